from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from helpers.hostile_text import PAYLOADS, as_shown, page_of
from undertow.report import Page, PageFigure, render_page
from undertow.types import Finding, Result

VOID = {"meta", "img", "br", "hr", "link", "input"}
SVG = '<svg viewBox="0 0 1 1"></svg>'


class Outline(HTMLParser):
    """The elements of a page, checked for balance while they are read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", " ".join(data.split())))

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def under(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def read(html: str) -> Outline:
    outline = Outline()
    outline.feed(html)
    outline.close()
    assert outline.open == [], "every element is closed"
    return outline


def result(measure: str = "slope", pronoun: str = "she", **numbers: Any) -> Result:
    group = {"model": "m", "challenge": "mgc", "prompt": "", "w_name": "date", "pronoun": pronoun}
    made = Result(measure, group, -0.5612, -0.6934, -0.4312, 1800, 12, "percent per step", 0.0, 0.0001, 0.04)
    return dataclasses.replace(made, **numbers)


FINDINGS = [
    Finding(text, significant, strength)
    for text, significant, strength in (
        ("nothing weak", False, 1.0), ("found weak", True, 2.0), ("nothing strong", False, 5.0), ("found unknown", True, math.nan),
        ("found strong", True, 9.0),
    )
]  # fmt: skip


def page(**parts: Any) -> Page:
    results = [result(), result(pronoun="he", value=0.2, low=-0.1, high=0.5, p=0.31, q=0.4)]
    said = {"questions": ["Who is it?"], "examples": ["In 1953, ___ was a child."], "command": "undertow audit m"}
    figures = [PageFigure("dates", SVG, "A caption.", "What it shows.")]
    return Page(
        **{"title": "An audit", "lead": "It moved.", "findings": FINDINGS, "results": results, "figures": figures}
        | said
        | parts
    )


def test_the_page_is_balanced_and_has_its_headings_in_order() -> None:
    outline = read(render_page(page()))
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert outline.under("h2")[:3] == ["Findings", "Figures", "Results"]
    assert outline.named("html") == [{"lang": "en"}]
    full = read(render_page(page_of("T")))
    targets = [attributes["href"] for _, attributes in full.elements if attributes.get("href", "").startswith("#")]
    sections = [attributes["id"] for attributes in full.named("section")]
    assert [target[1:] for target in targets[: len(sections) + 1]] == ["summary", *sections]
    assert len(sections) == 12
    body = render_page(page()).partition('<section id="findings">')[2]
    kinds = ("found strong", "found weak", "found unknown", "nothing strong", "nothing weak")
    assert sorted(kinds, key=lambda kind: body.index(f">{kind}<")) == list(kinds)


def test_the_page_fetches_nothing() -> None:
    html = render_page(page())
    outline = read(html)
    given = [attributes for _, attributes in outline.elements]
    assert not [
        name for attributes in given for name in attributes if name in ("src", "srcset") or name.startswith("on")
    ]
    assert len(outline.named("svg")) == 1
    targets = [attributes["href"] for attributes in given if "href" in attributes]
    assert all(target.startswith("#") for target in targets)
    assert {target[1:] for target in targets} <= {attributes.get("id") for attributes in given}
    assert not re.search(r"https?://|url\(|@import", html)
    assert {"iframe", "object", "embed", "form", "link", "base"}.isdisjoint(tag for tag, _ in outline.elements)


def test_the_policy_of_the_page_names_its_only_script_by_its_hash() -> None:
    html = render_page(page_of("T"))
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    assert read(html).named("script") == [{}]
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in read(html).named("meta") if "http-equiv" in meta]
    assert dict(part.strip().split(" ", 1) for part in policy.split(";")) == {
        **dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'"),
        "img-src": "data:",
        "script-src": f"'sha256-{sha256}'",
        "style-src": "'unsafe-inline'",
    }
    assert html.index("Content-Security-Policy") < html.index("<title>")


TOLD = [
    "An audit",
    "Significant",
    "it drifts",
    "Significant after correction",
    "The main figure.",
    "First.",
    "Third.",
    "Model",
]


def test_the_first_screen_has_the_verdict_the_figure_how_it_was_decided_and_the_caveats() -> None:
    resting = Finding("it drifts", True, 9.0, results=(result(),), n_tests=12)
    parts: dict[str, Any] = {"facts": {"Model": "m"}, "caveats": ["First.", "Second.", "Third.", "Fourth."]}
    html = render_page(page(**parts, main=PageFigure("main", SVG, "The main figure.", "Lines."), findings=[resting]))
    first = html.partition("<header")[2].partition("</header>")[0]
    assert sorted(TOLD, key=first.index) == TOLD
    assert "Fourth." not in first
    nothing = render_page(page(findings=[Finding("nothing moves", False, 1.0)])).partition("</header>")[0]
    assert "<strong>Not significant</strong> <bdi>nothing moves</bdi>" in nothing


def elements(html: str) -> list[tuple[str, list[str]]]:
    return [(tag, sorted(attributes.keys() - {"class"})) for tag, attributes in read(html).elements]


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=list(PAYLOADS))
def test_every_text_is_shown_and_never_obeyed(payload: str) -> None:
    html, plain = render_page(page_of(payload)), render_page(page_of("T"))
    if len(payload) < 1000:
        assert elements(html) == elements(plain)
    told, usual = read(html), read(plain)
    shown, as_finding = as_shown(payload), as_shown(Finding(payload, significant=True, strength=1.0).text)
    assert told.under("title") == told.under("h1") == [shown]
    assert told.under("code") == [shown] * 3
    for tag in ("p", "li", "bdi", "td", "th", "dt", "dd", "summary", "strong", "span", "figcaption", "h3"):
        texts = told.under(tag) + (told.under("details") if tag == "td" else [])  # a long cell is folded
        assert sum(shown in text or as_finding in text for text in texts) >= usual.under(tag).count("T"), tag
    figures = [one["aria-label"] for one in told.named("div") if one.get("role") == "img"]
    assert {" ".join(label.split()) for label in figures} == {shown}
    targets = [attributes["href"] for _, attributes in told.elements if "href" in attributes]
    assert all(re.fullmatch("#[a-z_]+", target) for target in targets)
