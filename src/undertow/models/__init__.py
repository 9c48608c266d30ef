"""WHO is asked: one file per model family. The only room that knows torch and transformers."""

from undertow.models.catalog import families, find, parsed_settings, settings, takers

__all__ = ["families", "find", "parsed_settings", "settings", "takers"]
