"""Language models, one file per family. Only this package and `lab` import torch and transformers."""

from undertow.models.registry import families, parsed_settings, resolve, settings, takers

__all__ = ["families", "parsed_settings", "resolve", "settings", "takers"]
