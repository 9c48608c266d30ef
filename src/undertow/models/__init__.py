"""Language models, one file per family. Only this package and `lab` import torch and transformers."""

from undertow.models.registry import (
    checked_settings,
    families,
    families_with_setting,
    name_of,
    refuse_unused,
    resolve,
    resolve_network,
    settings,
)

__all__ = [
    "checked_settings",
    "families",
    "families_with_setting",
    "name_of",
    "refuse_unused",
    "resolve",
    "resolve_network",
    "settings",
]
