"""WHO is asked: one file per model family. The only room that knows torch and transformers."""

from undertow.models.catalog import families, find, settings

__all__ = ["families", "find", "settings"]
