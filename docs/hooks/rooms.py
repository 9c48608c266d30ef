"""Writes a room of the package out in the reference: `::: undertow.stats.*` stands for each of its files, by name.

So a new file is told without a line anywhere. Knows files; knows nothing about what is in them.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOM = re.compile(r"^::: ([\w.]+)\.\*$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write rooms out; files whose names begin with an underscore are their own business."""
    source = Path(config.docs_dir).parent / "src"

    def files_of(room: re.Match[str]) -> str:
        names = sorted(path.stem for path in source.joinpath(*room[1].split(".")).glob("[!_]*.py"))
        return "\n\n".join(f"::: {room[1]}.{name}" for name in names)

    return ROOM.sub(files_of, markdown)
