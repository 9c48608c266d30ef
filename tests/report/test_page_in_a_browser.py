from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.chromium import LIMIT_MS
from helpers.hostile_text import PAYLOADS, as_shown, page_of
from helpers.sampled_cases import briefly
from undertow.report import Page, render_page
from undertow.report.page_data import ReportTable

pytestmark = pytest.mark.slow

PHONE, DESK = 390, 1280
HITS = "window.hits = []; window.hit = (one) => { window.hits.push(one); };"
"""What payloads call; there before any script of the page."""


@dataclass
class Opened:
    """A page of the browser, and what it did that it should not: words to the console, requests elsewhere, dialogs."""

    tab: Any
    complaints: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def unfold(self) -> None:
        self.tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    def column(self, table: str, column: int) -> list[str]:
        """Texts of a column of the shown rows."""
        cells = self.tab.locator(f"{table} tbody tr td:nth-child({column})")
        return [str(text).strip() for text in cells.all_text_contents()]


Open = Callable[..., Any]


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Open:
    """Open a page that lies on disk, or is written there, with the network off."""

    @contextmanager
    def opening(what: Path | Page | str, width: int = DESK, **options: Any) -> Iterator[Opened]:
        path = what if isinstance(what, Path) else tmp_path / "page.html"
        if not isinstance(what, Path):
            path.write_text(what if isinstance(what, str) else render_page(what), encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        context.add_init_script(HITS)
        made = Opened(context.new_page())
        made.tab.set_default_timeout(LIMIT_MS)
        made.tab.on("console", lambda message: made.complaints.append(message.text))
        made.tab.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.tab.on("dialog", lambda dialog: made.dialogs.append(dialog.message))
        made.tab.on("dialog", lambda dialog: dialog.dismiss())
        made.tab.on("request", lambda request: made.fetched.append(request.url))
        made.tab.goto(path.as_uri())
        made.fetched = [one for one in made.fetched if one != path.as_uri() and not one.startswith("data:")]
        try:
            yield made
        finally:
            context.close()

    return opening


@pytest.fixture
def run_page(finished_run: Callable[..., Path]) -> Path:
    options: dict[str, Any] = {"w": "date", "limit": 90, "graph": "unspecified"}
    return finished_run("spurious-correlation", ["toy", "uniform"], page="whole", **options) / "report.html"


@pytest.mark.parametrize(("width", "scheme"), briefly([(PHONE, "light"), (DESK, "dark")]))
def test_a_run_opens_without_a_word_and_fits(opened: Open, run_page: Path, width: int, scheme: str) -> None:
    with opened(run_page, width, color_scheme=scheme) as page:
        page.unfold()
        assert (page.complaints, page.fetched, page.dialogs) == ([], [], [])
        assert page.tab.evaluate("document.documentElement.scrollWidth") == width


def test_the_first_thing_is_what_was_found_and_it_opens_to_what_it_rests_on(opened: Open, run_page: Path) -> None:
    """And a point of its figure says its value under the pointer."""
    with opened(run_page) as page:
        first, tip = page.tab.locator("#findings li").first, page.tab.locator("#tip")
        assert first.locator(".rows").is_hidden()
        first.locator("summary").press("Enter")
        assert first.locator(".rows").is_visible()
        told = first.locator(".rows").inner_text()
        assert all(name in told for name in ("mass on other words", "protocol", "graph"))
        assert "95% interval" in first.locator("table").inner_text()
        assert page.tab.locator("h2").first.inner_text() == "Findings"
        verdict, figure = (page.tab.locator(one).bounding_box() for one in (".verdict", "#summary figure"))
        assert figure["x"] > verdict["x"] + verdict["width"], "beside the verdict"
        assert figure["y"] < DESK / 2
        page.tab.locator("#summary .hover circle >> visible=true").first.hover(force=True)
        assert tip.is_visible()
        assert "points per step" in tip.inner_text()
        page.tab.mouse.move(2, 2)
        assert tip.is_hidden()


CELLS = [
    ("b", "\N{MINUS SIGN}0.56", "< .001", "x 1"),
    ("a", "1,800", ".040", "x 2"),
    ("C", "–", "–", "x 3"),
    ("a", "0.20", ".310", "x 4"),
    ("\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{MINUS SIGN}12", ".001", "x 5"),
    ("item 10", "", "1.000", "x 6"),
    ("item 9", "7", ".040", "x 7"),
    ("", "7", "–", "x 8"),
    ("z", "0.000042", ".999", "x 9"),
]
TABLE = Page("t", "l", (), (), tables=[ReportTable("T", ("name", "size", "p", "place"), CELLS)])


def test_columns_are_sorted_as_people_do_one_at_a_time_and_the_third_time_as_they_were(opened: Open) -> None:
    """Numbers as numbers, with gaps last; what is less than a thousandth before it; é by e, and item 9 before item 10."""
    rises, falls, given = list("519478236"), list("278491536"), list("123456789")
    with opened(TABLE) as page:
        page.unfold()
        for head, keys, order, places in (
            ("size", [""], "ascending", rises),
            ("size", [""], "descending", falls),
            ("size", [""], None, given),
            ("size", ["Enter"], "ascending", rises),
            ("size", ["Space"], "descending", falls),
            ("p", [""], "ascending", list("152749638")),
            ("name", [""], "ascending", list("241357698")),
        ):
            button = page.tab.get_by_role("button", name=head, exact=True)
            for key in keys:
                button.press(key) if key else button.click()
            assert page.tab.locator("th", has=button).get_attribute("aria-sort") == order
            assert page.tab.locator("th[aria-sort]").count() == (order is not None)
            assert places_of(page) == places
        assert page.complaints == []


def places_of(page: Opened) -> list[str]:
    return [text.removeprefix("x ") for text in page.column("#tables", 4)]


TYPED = {
    "item": "67", "ITEM 9": "7", "-12": "5", "\N{MINUS SIGN}12": "5", ".040 a": "2", "<": "1", "<script>": "", "  ": "123456789",
}  # fmt: skip


def test_rows_are_filtered_by_every_word_whether_or_not_they_are_sorted(opened: Open) -> None:
    with opened(TABLE) as page:
        page.unfold()
        field = page.tab.get_by_role("searchbox")
        for typed, places in TYPED.items():
            field.fill(typed)
            assert places_of(page) == list(places), typed
            said = page.tab.locator("#tables .status").inner_text()
            assert said.startswith(f"{len(places)} of 9") if typed.strip() else said == ""
        field.fill("0")
        page.tab.get_by_role("button", name="size", exact=True).click()
        sizes = [text.replace("\N{MINUS SIGN}", "-") for text in page.column("#tables", 2)]
        assert sizes == ["-12", "-0.56", "0.000042", "0.20", "7", "1,800", ""]


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if at % 5 == 0 else pytest.mark.soak) for at, one in enumerate(PAYLOADS)]
)
def test_text_is_shown_and_never_runs(opened: Open, name: str) -> None:
    with opened(page_of(PAYLOADS[name]), PHONE) as page:
        page.unfold()
        page.tab.mouse.move(100, 100)
        assert (page.complaints, page.fetched, page.dialogs, page.tab.evaluate("window.hits")) == ([], [], [], [])
        assert page.tab.url.startswith("file:")
        shown = as_shown(PAYLOADS[name])
        assert page.tab.title() == shown
        for place in ("h1", ".lead", "#findings bdi >> nth=0", "#repeat code >> nth=0"):
            assert " ".join(page.tab.locator(place).text_content().split()) == shown, place
        cell = page.tab.locator("#tables td >> nth=0")
        beginning = "".join(cell.locator("summary").all_text_contents())  # a long cell unfolds
        assert " ".join(cell.text_content().removeprefix(beginning).split()) == shown
        assert page.tab.evaluate("document.documentElement.scrollWidth") == PHONE
