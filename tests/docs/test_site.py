"""The site of the documentation: it builds without a warning, loads nothing from elsewhere, tells of all that is public."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer
from markdown_it import MarkdownIt

import undertow
from conftest import ROOT
from made_once import made_once
from undertow import cli

pytest.importorskip("mkdocs", reason="mkdocs, of the extra docs, is not installed")
pytestmark = pytest.mark.slow

PAGES = sorted(ROOT.glob("docs/**/*.md"))
LOADED = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data", "embed": "src",
}  # fmt: skip
COUNTED = ["h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "table", "tr", "td", "pre", "code", "em", "strong", "img"]


class Html(HTMLParser):
    """What a page loads, where it can be linked at, and what it consists of.

    Attributes:
        loaded: addresses that a browser fetches by itself.
        counts: elements, by name.
        sections: text below each anchor, until the next one.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.counts: Counter[str] = Counter()
        self.sections: dict[str, str] = {"": ""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.counts[tag] += 1
        if of.get(LOADED.get(tag, "")) and of.get("rel") not in ("next", "prev"):
            self.loaded.append(of[LOADED[tag]])
        if "id" in of:
            self.sections[of["id"]] = ""

    def handle_data(self, data: str) -> None:
        self.sections[next(reversed(self.sections))] += data


@pytest.fixture(scope="module")
def site(shared_base: Path) -> Path:
    """The site, built once."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(ROOT / "mkdocs.yml")]
        environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)}
        done = subprocess.run(
            [*command, "--site-dir", str(folder)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stderr

    return made_once(shared_base, "site", build)


def html(site: Path, page: str) -> str:
    """A page of the site, by the name of its source."""
    name = re.sub(r"(README|index)\.md$", "index.md", page).removesuffix(".md") + ".html"
    return (site / name).read_text(encoding="utf-8")


def commands(command: Any, path: str, parent: Any = None) -> Iterator[tuple[str, list[str]]]:
    """Every command, with the names that its options are given by."""
    context = command.context_class(command, parent=parent, info_name=path)
    yield path, [name for option in command.params for name in option.opts]
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, name), f"{path} {name}", context)


@pytest.mark.soak
def test_site_builds_without_warnings_and_tells_everything_public(site: Path) -> None:
    # Nothing is loaded from elsewhere.
    for page in sorted(site.rglob("*.html")):
        for one in Html(page.read_text(encoding="utf-8")).loaded:
            assert not urlsplit(one).scheme, f"{page}: {one}"
            # The page for what is not found is served from anywhere, and says where it is from the root.
            folder = site if one.startswith("/") else page.parent
            assert (folder / unquote(urlsplit(one).path).lstrip("/")).is_file(), f"{page}: {one}"
    for sheet in site.rglob("*.css"):
        for one in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", sheet.read_text(encoding="utf-8")):
            assert one.startswith(("data:", "#", ".")), f"{sheet}: {one}"

    # Every public name, file of a room, command and option is told.
    sections = Html(html(site, "reference/python.md")).sections
    assert [name for name in undertow.__all__ if f"undertow.{name}" not in sections] == []
    for room in ("measures", "stats", "probes", "causal"):
        files = [path.stem for path in (ROOT / "src/undertow" / room).glob("[!_]*.py")]
        sections = Html(html(site, f"reference/{room}.md")).sections
        assert [name for name in files if f"undertow.{room}.{name}" not in sections] == []
    sections = Html(html(site, "reference/commands.md")).sections
    for path, names in commands(typer.main.get_command(cli.app), "undertow"):
        words = path.split()
        groups = ["-".join(words[:length]) for length in range(2, len(words) + 1)] or ["command-line"]
        told = " ".join(sections[anchor] for anchor in groups)
        assert [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", told)] == [], path

    # Markdown has dialects, in which a list of one is text of another: the site reads as the page in a checkout.
    for page in (page for page in PAGES if page.parent.name != "reference"):
        text = html(site, page.relative_to(ROOT / "docs").as_posix())
        there = Html(MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))).counts
        here = Html(text[text.index("<article") : text.index("</article>")]).counts
        assert [here[name] for name in COUNTED] == [there[name] for name in COUNTED], page
