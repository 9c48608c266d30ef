"""The site of the documentation: it builds without a warning, loads nothing from elsewhere, tells of everything that is public,
reads as its pages do in a checkout, and works in a browser that opens it from disk with the network off."""

from __future__ import annotations

import json
import re
import shutil
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
from undertow import cli

pytest.importorskip("mkdocs", reason="mkdocs, of the extra docs, is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), "")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
PHONE, DESK = 390, 1280
PAGES = sorted(ROOT.glob("docs/**/*.md"))
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
"""Pages that the build adds nothing to."""
LOADED = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data", "embed": "src",
}  # fmt: skip
COUNTED = (
    "h1",
    "h2",
    "h3",
    "h4",
    "p",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "td",
    "pre",
    "code",
    "em",
    "strong",
    "blockquote",
    "img",
)


class Html(HTMLParser):
    """What a page loads, where it leads, where it can be linked at, and what it consists of.

    Attributes:
        loaded: addresses that a browser fetches by itself.
        links: where its links lead.
        counts: elements, by name.
        sections: text below each anchor, until the next one.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.counts: Counter[str] = Counter()
        self.sections: dict[str, str] = {"": ""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.counts[tag] += 1
        if of.get(LOADED.get(tag, "")) and of.get("rel") not in ("next", "prev"):
            self.loaded.append(of[LOADED[tag]])
        if tag == "a" and of.get("href"):
            self.links.append(of["href"])
        if "id" in of:
            self.sections[of["id"]] = ""

    def handle_data(self, data: str) -> None:
        self.sections[next(reversed(self.sections))] += data


def build(folder: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(folder / "mkdocs.yml"), "--site-dir", str(into)],
        cwd=folder,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def html(site: Path, page: str) -> Html:
    """A page of the site, by the name of its source."""
    return Html((site / address(page)).read_text(encoding="utf-8"))


def address(page: str) -> str:
    """Where the site has the page of a source."""
    return re.sub(r"(README|index)\.md$", "index.md", page).removesuffix(".md") + ".html"


# What the build makes.


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        told = Html(page.read_text(encoding="utf-8"))
        assert told.loaded, page
        for one in told.loaded:
            assert not urlsplit(one).scheme, f"{page}: {one}"
            # The page for what is not found is served from anywhere, and says where it is from the root.
            folder = site if one.startswith("/") else page.parent
            assert (folder / unquote(urlsplit(one).path).lstrip("/")).is_file(), f"{page}: {one}"
    for sheet in site.rglob("*.css"):
        for one in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", sheet.read_text(encoding="utf-8")):
            assert one.startswith(("data:", "#", ".")), f"{sheet}: {one}"


def test_every_page_is_in_the_nav(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    (nav,) = re.findall(
        r'<nav class="md-nav md-nav--primary.*?(?=<div class="md-sidebar md-sidebar--secondary)', page, re.S
    )
    links = {link.partition("#")[0] for link in Html(nav).links} | {"index.html"}
    assert {address(page.relative_to(ROOT / "docs").as_posix()) for page in PAGES} - links == set()


def test_every_public_name_has_an_anchor(site: Path) -> None:
    sections = html(site, "reference/python.md").sections
    assert [name for name in undertow.__all__ if f"undertow.{name}" not in sections] == []
    # Of a dataclass each field, with what its docstring says of it; of a function each parameter.
    whole = " ".join(sections.values())
    for fragment in ("minus infinity for one that is not among the tokens", "a pattern such as", "95% interval"):
        assert fragment in whole, fragment


@pytest.mark.parametrize("room", ["measures", "stats", "probes", "causal"])
def test_every_file_of_a_room_has_an_anchor(site: Path, room: str) -> None:
    files = [path.stem for path in (ROOT / "src/undertow" / room).glob("*.py") if not path.stem.startswith("_")]
    sections = html(site, f"reference/{room}.md").sections
    assert [name for name in files if f"undertow.{room}.{name}" not in sections] == []


def commands(command: Any, path: str, parent: Any = None) -> Iterator[tuple[str, list[str]]]:
    """Every command, with the names that its options are given by."""
    context = command.context_class(command, parent=parent, info_name=path)
    yield path, [name for option in command.params for name in option.opts]
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, name), f"{path} {name}", context)


def test_every_command_and_option_is_told(site: Path) -> None:
    sections = html(site, "reference/commands.md").sections
    found = dict(commands(typer.main.get_command(cli.app), "undertow"))
    assert {"undertow run spurious-correlation", "undertow export lm-eval task-specification"} <= set(found)
    for path, names in found.items():
        words = path.split()
        groups = ["-".join(words[:length]) for length in range(2, len(words) + 1)] or ["command-line"]
        told = " ".join(sections[anchor] for anchor in groups)
        assert [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", told)] == [], path


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_reads_as_in_a_checkout(site: Path, page: Path) -> None:
    """Markdown has dialects: a list that one of them sees is text with hyphens in another."""
    text = (site / address(page.relative_to(ROOT / "docs").as_posix())).read_text(encoding="utf-8")
    article = text[text.index("<article") : text.index("</article>")]
    there = Html(MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))).counts
    here = Html(article).counts
    assert {name: here[name] for name in COUNTED} == {name: there[name] for name in COUNTED}


def test_the_search_index_has_what_is_told(site: Path) -> None:
    text = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    places = {entry["location"] for entry in json.loads(text.removeprefix("var __index = "))["docs"]}
    wanted = {
        "index.html",
        "reference/python.html#undertow.run",
        "reference/commands.html#undertow-run-spurious-correlation",
    }
    assert wanted <= places


# What lies beside docs/, and what is an error.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with this site's settings."""
    folder = tmp_path / "checkout"
    (folder / "docs" / "decisions").mkdir(parents=True)
    for name in ("hooks", "stylesheets", "javascripts"):
        shutil.copytree(ROOT / "docs" / name, folder / "docs" / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, CHANGES.md, decisions/*.md]\n", encoding="utf-8")
    written = {
        "docs/index.md": "# Start\n\n[later](../CHANGES.md#later) [table](../data/table.toml) [folder](../data) `[x](../LICENCE)`\n",
        "docs/decisions/README.md": "# Decisions\n\n[one](001-one.md)\n",
        "docs/decisions/001-one.md": "# One\n\n![picture](../../data/picture.svg)\n",
        "CHANGES.md": "# Changes\n\n## Later\n\n[back](docs/decisions/001-one.md) [readme](README.md)\n",
        "data/table.toml": "tick = '```'\n",
        "data/picture.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
        "data/.hidden": "",
        "README.md": "# Read me\n",
    }
    (folder / "data").mkdir()
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_links_that_leave_the_folder_lead_to_pages(checkout: Path, tmp_path: Path) -> None:
    done = build(checkout, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert {"CHANGES.html#later", "data/table.toml.html", "data/index.html"} <= set(
        html(tmp_path / "out", "index.md").links
    )
    assert {"decisions/001-one.html", "index.html"} <= set(html(tmp_path / "out", "CHANGES.md").links)
    assert "../data/picture.svg" in html(tmp_path / "out", "decisions/001-one.md").loaded
    shown = Html((tmp_path / "out" / "data" / "table.toml.html").read_text(encoding="utf-8"))
    assert "tick = '```'" in " ".join(shown.sections.values())
    listed = Html((tmp_path / "out" / "data" / "index.html").read_text(encoding="utf-8"))
    assert "table.toml.html" in listed.links
    assert not any("hidden" in link for link in listed.links)


def test_each_fault_is_an_error(checkout: Path, tmp_path: Path) -> None:
    faults = {
        "[a](nowhere.md)": "'nowhere.md'",
        "[b](decisions/001-one.md#gone)": "'#gone'",
        "[c](../CHANGES.md#away)": "'#away'",
        "[d](/index.md)": "'/index.md'",
        "[e][undertow.nothing]": "'undertow.nothing'",
    }
    (checkout / "docs" / "index.md").write_text("# Start\n\n" + "\n\n".join(faults), encoding="utf-8")
    (checkout / "docs" / "lost.md").write_text("# Lost\n", encoding="utf-8")
    done = build(checkout, tmp_path / "out")
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("WARNING") or line.startswith("  - ")]
    for complaint in (*faults.values(), "lost.md"):
        assert any(complaint in line for line in told), (complaint, done.stderr)


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, started once."""
    if not CHROMIUM:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra dev, is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (PHONE, "light"),
        (DESK, "dark"),
        pytest.param(PHONE, "dark", marks=pytest.mark.soak),
        pytest.param(DESK, "light", marks=pytest.mark.soak),
    ],
)
def test_pages_open_from_disk_without_a_word_and_fit(site: Path, browser: Any, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.extend([] if request.url.startswith(("file:", "data:")) else [request.url]))
    grounds = set()
    for page in (
        "index.md",
        "tutorial.md",
        "reliability.md",
        "comparing.md",
        "models.md",
        "reference/python.md",
        "reference/commands.md",
        "reference/stats.md",
    ):
        tab.goto((site / address(page)).as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == width, page
        grounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert said == []
    (ground,) = grounds
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128) is (scheme == "light")
    context.close()


def test_the_search_finds_from_disk(site: Path, browser: Any) -> None:
    context = browser.new_context(viewport={"width": DESK, "height": 900}, offline=True)
    tab = context.new_page()
    tab.goto((site / "index.html").as_uri())
    tab.locator("input.md-search__input").click()
    tab.locator("input.md-search__input").press_sequentially("benjamini hochberg")
    first = tab.locator(".md-search-result__item a").first
    first.wait_for(timeout=20_000)
    first.click()
    tab.wait_for_load_state()
    assert "benjamini" in tab.locator("article").text_content().lower()
    context.close()
