"""WHO is asked: one file per model family. The only room that knows torch and transformers."""

from undertow.models.registry import families, parsed_settings, resolve, settings, takers

__all__ = ["families", "parsed_settings", "resolve", "settings", "takers"]
