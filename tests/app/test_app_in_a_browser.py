from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.chromium import LIMIT_MS
from helpers.file_refusal import written
from helpers.hostile_text import PAYLOADS as ALL_PAYLOADS
from helpers.served_app import ServedApp

pytestmark = pytest.mark.slow

PAYLOADS = {name: text for name, text in ALL_PAYLOADS.items() if name != "surrogates"}
"""A manifest with half of a character is refused as corrupt, so no run of the list holds one."""
ADDED = (
    "img[src='x'], td b, td img, iframe:not([title='Report of the run']), "
    "base[href*='a.example'], meta[content*='hit'], link[href*='a.example'], p[style]"
)
EVIL = "<img src=x onerror=alert(1)><b>bold</b>{{7*7}}${7*7}"
EVIL_RUN = "<img src=x onerror=alert(2)>"
HOSTILE_REPORT = """<!doctype html><body><script>
for (const reach of [() => { parent.document.title = "hit"; }, () => document.cookie, () => localStorage.length]) {
  try { reach(); document.body.append("reached "); } catch (error) { document.body.append("blocked "); }
}
alert("hit");
</script>"""
OWN = re.compile(r"http://127\.0\.0\.1[:/]|data:|blob:")
WIDE, NARROW = 1280, 390


@dataclass
class Browser:
    """A browser's window on the page, and everything that went wrong in it."""

    page: Any
    wrong: list[str] = field(default_factory=list)

    def watch(self) -> None:
        note, on = self.wrong.append, self.page.on
        on("console", lambda one: one.type in ("error", "warning") and note(f"{one.type}: {one.text}"))
        on("pageerror", lambda error: note(f"error: {error}"))
        on("dialog", lambda dialog: (note(f"dialog: {dialog.message}"), dialog.dismiss()))
        on("response", lambda reply: reply.status >= 400 and note(f"{reply.status}: {reply.url}"))
        on("request", lambda asked: OWN.match(asked.url) or note(f"elsewhere: {asked.url}"))

    def tab(self, name: str) -> Any:
        """The button of a tab; a narrow page has those that do not fit below the others."""
        buttons = "[role=tablist] > button, .overflow-dropdown > button"
        return self.page.locator(f":is({buttons}) >> visible=true").filter(has_text=name).first

    def button(self, name: str) -> Any:
        named = re.compile(f"^\\s*{re.escape(name)}\\s*$")
        return self.page.locator("button >> visible=true").filter(has_text=named).first

    def field(self, label: str) -> Any:
        """The text field with this label, of those that can be seen."""
        named = self.page.locator("label >> visible=true").filter(has_text=re.compile(f"^\\s*{re.escape(label)}"))
        return named.locator("textarea, input").first

    def choose(self, label: str, name: str) -> None:
        self.page.locator(f"input[aria-label='{label}'] >> visible=true").first.click()
        self.page.get_by_role("option", name=name, exact=True).locator("visible=true").first.click()

    def text(self, label: str) -> str:
        return str(self.field(label).input_value())

    def until(self, holds: Callable[[], object]) -> None:
        """Wait in Python: the page's policy lets nobody evaluate a string, which is how a browser would wait."""
        end = time.monotonic() + LIMIT_MS / 1000
        while not holds():
            assert time.monotonic() < end, "it never came"
            self.page.wait_for_timeout(50)

    def ask(self) -> None:
        self.button("Ask the model").click()

    def answered(self, beginning: str) -> str:
        """What it means, once that begins so and the page is at rest."""
        self.until(lambda: self.text("What it means").startswith(beginning))
        self.button("Stop").and_(self.page.locator(":disabled")).wait_for()
        return self.text("What it means")

    def download(self, name: str, folder: Path) -> Path:
        with self.page.expect_download() as waiting:
            self.page.locator(f"text={name} >> visible=true").first.click()
        place: Path = folder / waiting.value.suggested_filename
        waiting.value.save_as(place)
        return place


def make_hostile(run: Path) -> None:
    """Have a run say every payload wherever it says something that nothing else depends on."""
    manifest, results = (json.loads((run / name).read_text()) for name in ("manifest.json", "results.json"))
    del manifest["results_sha256"]
    payloads = list(PAYLOADS.values())
    manifest |= {"command": "|".join(payloads), "created": "2000", "model": payloads[0]}
    for place, result in enumerate(results["results"]):
        payload = payloads[place % len(payloads)]
        result |= {"unit": payload, "note": payload}
        result["group"] |= dict(zip(payloads, payloads, strict=True))
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "results.json").write_text(json.dumps(results))
    (run / "report.html").write_text(HOSTILE_REPORT)


@pytest.fixture(scope="module")
def address(chromium: Any, finished_run: Callable[..., Path], served_app: ServedApp) -> Iterator[str]:
    """The page's address; whatever is done in the browser, the server has no word to say."""
    runs = served_app.folder / "runs"
    for name, model in (("first", "toy"), ("hostile", "toy"), (EVIL_RUN, "toy:slope=-5")):
        shutil.copytree(finished_run("spurious-correlation", model, w="date", limit=150, page=True), runs / name)
    make_hostile(runs / "hostile")
    before = served_app.complaints.read_text()
    yield served_app.address
    assert served_app.complaints.read_text() == before


@contextmanager
def window(chromium: Any, address: str, width: int) -> Iterator[Browser]:
    context = chromium.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
    try:
        opened = Browser(context.new_page())
        opened.watch()
        opened.page.set_default_timeout(LIMIT_MS)
        opened.page.goto(address)
        opened.button("Ask the model").wait_for()
        yield opened
    finally:
        context.close()


@pytest.fixture(params=[WIDE, pytest.param(NARROW, marks=pytest.mark.soak)])
def browser(request: pytest.FixtureRequest, address: str, chromium: Any) -> Iterator[Browser]:
    with window(chromium, address, request.param) as opened:
        yield opened


@pytest.fixture
def wide(address: str, chromium: Any) -> Iterator[Browser]:
    """For what does not depend on the width."""
    with window(chromium, address, WIDE) as opened:
        yield opened


@pytest.mark.soak
def test_a_person_walks_the_page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    width = request.node.callspec.params["browser"]
    page = browser.page
    assert "token" not in page.url
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("Spurious correlation", "Task specification", "Challenge file", "Bias in text", "Occupations", "Runs"):
        assert browser.tab(name).is_visible()

    # An example at one click, and its answer.
    browser.button("Example: countries").click()
    browser.until(lambda: browser.text("List of values").startswith("Afghanistan, Yemen"))
    assert browser.text("Sentences") == "She became an adult in COUNTRY."
    browser.ask()
    told = browser.answered("From Afghanistan to Iceland, ")
    assert "is the same at every value." in told  # the toy's places do not matter
    assert "Global Gender Gap Report 2021, largest gap first" in told
    assert browser.text("Preview").splitlines()[0] == "[She/He/They] became an adult in Afghanistan."
    page.locator("img[alt^='Female words at 20 values'] >> visible=true").wait_for()
    browser.until(lambda: page.locator("img[alt*='words at 20 values'] >> visible=true").count() == 3)
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    # The table comes down as a file.
    page.get_by_text("Numbers and notes").locator("visible=true").first.click()
    lines = browser.download("Download the table (CSV)", tmp_path).read_text(encoding="utf-8").splitlines()
    assert (lines[0].startswith("value,female,"), lines[1].startswith("Afghanistan,")) == (True, True)

    # A sentence of one's own, with markup in it that stays text; the field with the focus has a frame.
    browser.field("Sentences").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.field("Sentences").fill(f"In YEAR, she was a {EVIL} child.")
    browser.field("Placeholder").fill("YEAR")
    browser.field("List of values").fill(f"1800, 1850, 1900, 1950, 2000, 2020 {EVIL}")
    # A pasted text is a change, too.
    browser.until(page.get_by_label("My own").locator("visible=true").first.is_checked)
    browser.until(lambda: browser.text("Preview") == f"In YEAR, [she/he/they] was a {EVIL} child.")
    browser.ask()
    browser.answered("From 1800 to 2020 <img src=x")
    assert f"In 1800, [she/he/they] was a {EVIL} child." in browser.text("Preview")
    page.get_by_text(f"2020 {EVIL}").locator("visible=true").first.wait_for()  # as text, in the table
    assert page.locator("img[src='x'], td b, td img").count() == 0
    assert "49" not in browser.text("Preview")

    # What cannot be asked is said in a sentence, and the next answer takes it away.
    browser.field("Sentences").fill("Nothing here is open in YEAR.")
    browser.ask()
    problem = browser.field("Error")
    problem.wait_for()
    assert "neither a pronoun" in problem.input_value()
    browser.field("Sentences").fill("In YEAR, ___ was here.")
    browser.ask()
    problem.wait_for(state="hidden")
    browser.answered("From 1800 to 2020 <img src=x")
    assert browser.wrong == []


@pytest.mark.soak
def test_a_link_on_another_page_leads_to_it(address: str, chromium: Any) -> None:
    """Browsers send a strict cookie with what this page asks for, and not along a redirection that began elsewhere."""
    with closing(chromium.new_context()) as context:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.set_content(f"<a href='{address}'>the page</a>")
        page.get_by_text("the page").click()
        page.get_by_role("tab", name="Spurious correlation").wait_for()
        assert "token" not in page.url


def test_whatever_runs_and_files_hold_is_shown_as_it_is_and_a_file_becomes_an_audit(
    wide: Browser, tmp_path: Path
) -> None:
    runs = wide.page.locator(".undertow-runs label >> visible=true")
    wide.tab("Runs").click()
    runs.filter(has_text="hostile").click()
    wide.field("About this run").wait_for()
    report = wide.page.frame_locator("iframe[title='Report of the run'] >> visible=true")
    report.get_by_text("blocked blocked blocked").wait_for()
    assert wide.page.title() == "Undertow"
    shown = wide.text("About this run")
    for payload in PAYLOADS.values():
        assert payload.encode("utf-8", "replace").decode() in shown
    assert wide.page.locator(ADDED).count() == 0
    assert all("Ignored call to 'alert()'. The document is sandboxed" in one for one in wide.wrong), wide.wrong
    runs.filter(has_text="first").click()
    report.get_by_text("Spurious correlation: toy").first.wait_for()
    wide.wrong.clear()

    # A challenge file of one's own.
    slots = f'slots.where = ["home", {json.dumps(EVIL)}]'
    file = written(
        tmp_path, f'templates = ["In {{w}}, {{blank}} ran {{where}}."]\nwords = "pronouns"\n{slots}', "mine.toml"
    )
    wide.tab("Challenge file").click()
    wide.page.locator("#undertow-file").set_input_files(file)
    wide.until(lambda: "{where}" in wide.text("Challenge file"))
    wide.button("Check the file").click()
    wide.until(lambda: "Audit: spurious correlation. 60 texts" in wide.text("What it asks"))
    assert EVIL in wide.text("What it asks")
    wide.choose("Model", "toy")
    wide.button("Run as an audit").click()
    wide.until(lambda: "The run is saved as spurious-correlation_toy" in wide.text("Findings"))
    report = wide.page.frame_locator("iframe[title='Report of the run'] >> visible=true")
    report.get_by_text("Spurious correlation: toy").first.wait_for()
    wide.tab("Runs").click()
    wide.button("Refresh").click()
    runs.filter(has_text="spurious-correlation_toy").first.wait_for()
    assert wide.page.locator(ADDED).count() == 0
    wide.tab("Challenge file").click()
    wide.page.locator("#undertow-file").set_input_files(written(tmp_path, "#" * 300_000, "large.toml"))
    wide.page.get_by_text("The file is too large.").wait_for()
    assert "{where}" in wide.text("Challenge file")
    assert wide.wrong == []
