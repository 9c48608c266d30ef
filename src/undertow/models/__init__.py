"""Language models, one file per family. Only this package and `lab` import torch and transformers."""

from undertow.models.registry import (
    families,
    families_with_setting,
    name_of,
    parse_settings,
    resolve,
    resolve_network,
    settings,
)

__all__ = ["families", "families_with_setting", "name_of", "parse_settings", "resolve", "resolve_network", "settings"]
