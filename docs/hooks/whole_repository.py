"""Lets the site reach what lies beside docs/: a link that leaves the folder leads to a page that is made of what it names.

A Markdown file becomes a page as it is, any other text a page that shows it, an image a file, and a folder the list of its
files. Taken in is what a page links to, or the nav names, and nothing else. Knows paths and links; knows nothing of what a
page says. docs/decisions/028-a-site-that-stands-alone.md has the reasons.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=(?:#[^)\s]*)?\))")
"""Where a link leads, or an image lies, without its anchor."""
FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
PICTURES = (".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "sh", ".cff": "yaml", ".yml": "yaml"}
FIRST_PAGES = ("README.md", "index.md")
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""Before a page that shows a file: its lines would drown what is written about them."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A nav entry such as `decisions/*.md` stands for all the pages that it matches."""
    config.nav = _written_out(config.nav or [], Path(config.docs_dir))
    return config


def _written_out(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        written = [_written_out(entry, docs) for entry in nav]
        return [one for entry in written for one in (entry if isinstance(entry, list) else [entry])]
    if isinstance(nav, dict):
        return {title: _written_out(entry, docs) for title, entry in nav.items()}
    if "*" not in nav:
        return nav
    pages = sorted(docs.glob(nav), key=lambda page: (page.name not in FIRST_PAGES, page.name))
    return [page.relative_to(docs).as_posix() for page in pages]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what the nav names and what pages link to, and what these link to in turn."""
    in_nav = [
        uri for uri in _uris(config.nav) if files.get_file_from_path(uri) is None and (_root(config) / uri).is_file()
    ]
    for uri in in_nav:
        files.append(_taken_in(uri, config, InclusionLevel.UNDEFINED))
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for target in LINK.findall(FENCED.sub("", page.content_string)):
            meant = _meant(target, page, config)
            if meant and files.get_file_from_path(_uri_of(meant, config)) is None and not _in_docs(meant, config):
                taken = _taken_in(meant, config, InclusionLevel.NOT_IN_NAV)
                files.append(taken)
                waiting += [taken] if taken.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where the site has what they name."""
    folder = posixpath.dirname(page.file.src_uri)

    def led(link: re.Match[str]) -> str:
        meant = _meant(link[0], page.file, config)
        return posixpath.relpath(_uri_of(meant, config), folder or ".") if meant else link[0]

    text, at = [], 0
    for fenced in FENCED.finditer(markdown):
        text += [LINK.sub(led, markdown[at : fenced.start()]), fenced[0]]
        at = fenced.end()
    return "".join([*text, LINK.sub(led, markdown[at:])])


def _uris(nav: Any) -> Iterator[str]:
    """The pages that a nav names."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _uris(entry)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def _in_docs(place: str, config: MkDocsConfig) -> bool:
    return place.startswith(f"{Path(config.docs_dir).name}/")


def _meant(target: str, page: File, config: MkDocsConfig) -> str:
    """What a link of a page names, as a path from the root of the repository; "" if that is nothing in it."""
    folder = posixpath.dirname(page.src_uri if page.generated_by else f"{Path(config.docs_dir).name}/{page.src_uri}")
    place = posixpath.normpath(posixpath.join(folder, target))
    return place if not place.startswith(".") and (_root(config) / place).exists() else ""


def _uri_of(place: str, config: MkDocsConfig) -> str:
    """Where the site has a file or a folder of the repository."""
    if place == "README.md":
        return "index.md"
    if _in_docs(place, config):
        return place.split("/", 1)[1]
    if (_root(config) / place).is_dir():
        return f"{place}/README.md"
    return place if place.endswith((".md", *PICTURES)) else f"{place}.md"


def _taken_in(place: str, config: MkDocsConfig, inclusion: InclusionLevel) -> File:
    path, uri = _root(config) / place, _uri_of(place, config)
    if path.is_file() and uri == place:
        return File.generated(config, uri, abs_src_path=str(path), inclusion=inclusion)
    if (path / "README.md").is_file():
        return File.generated(config, uri, abs_src_path=str(path / "README.md"), inclusion=inclusion)
    return File.generated(
        config, uri, content=_listed(path, place) if path.is_dir() else _shown(path, place), inclusion=inclusion
    )


def _listed(folder: Path, place: str) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return "\n".join([f"{UNSEARCHED}# `{place}`\n", *(f"- [`{name}`]({name})" for name in names)])


def _shown(path: Path, place: str) -> str:
    text = path.read_text(encoding="utf-8")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{UNSEARCHED}# `{place}`\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
