"""Lists the files of a room in the reference: `::: undertow.stats.*` stands for each of its files, in sub-folders too."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOM = re.compile(r"^::: ([\w.]+)\.\*$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """List the files of each room, but for those whose names begin with an underscore."""
    source = Path(config.docs_dir).parent / "src"

    def files_of(room: re.Match[str]) -> str:
        folder = source.joinpath(*room[1].split("."))
        paths = sorted(path.relative_to(source).with_suffix("") for path in folder.rglob("[!_]*.py"))
        return "\n\n".join(f"::: {'.'.join(path.parts)}" for path in paths)

    return ROOM.sub(files_of, markdown)
