"""Texts that try to be more than text, and a page that has one of them in every place that takes a text."""

from __future__ import annotations

from typing import Any

from undertow.causal.assumptions import Assumption
from undertow.report.page_data import (
    Checklist,
    ChecklistTest,
    Page,
    PageAssumptions,
    PageFigure,
    PagePrecision,
    ReportTable,
)
from undertow.types import Finding, Result

SVG = '<svg viewBox="0 0 1 1"></svg>'
PAYLOADS = {
    "script": "<script>hit(1)</script>",
    "attribute": '"><img src=x onerror=hit(1)>',
    "handler": "' onmouseover='hit(1)' autofocus onfocus='hit(1)",
    "braces": "{{7*7}}{% for x in y %}{# c #}${7*7}",
    "address": "javascript:hit(1)",
    "closing": "</style></title></pre></code></details></table></script><svg onload=hit(1)>",
    "comment": "<!--><script>hit(1)</script>--!> ]]><![CDATA[<svg/onload=hit(1)>",
    "frame": "<iframe srcdoc='<script>parent.hit(1)</script>'></iframe><base href=//a.example>",
    "meta": "<meta http-equiv=refresh content='0;url=javascript:hit(1)'><link rel=stylesheet href=//a.example>",
    "style": "<style>body{display:none}</style><p style='display:none'>",
    "references": "&lt;b&gt; &amp; &#60;script&#62; &NotEqualTilde;",
    "directions": "\u202eabc\u2066def\u200f日本 Ж",
    "controls": "a\x00b\x1bc\x85d\ufffee",
    "surrogates": "a\ud800b\udcffc",
    "long": "w" * 3000,
}
"""By what they try."""


def as_shown(payload: str) -> str:
    """What of a text a page can show: signs that nobody can see are written out."""
    kept = "".join(
        " " if sign.isspace() else sign if sign.isprintable() or sign == "\u200f" else ascii(sign)[1:-1]
        for sign in payload
    )
    return " ".join(kept.split())


def page_of(text: str) -> Page:
    """A page with this text wherever a text can be."""
    group = {"model": text, "prompt": text, text: text, "pronoun": text}
    results = [
        Result("slope", group, 0.5, 0.1, 0.9, 9, 1, text, 0.0, 0.01, 0.02, {text: 1.0}, text),
        Result(text, group | {"pronoun": "he"}, 0.5, n=9),
        *(Result("mean_mass", group | {"pronoun": f"g{place}"}, float(place), n=9, note=text) for place in range(9)),
    ]
    figure = PageFigure(text, SVG, text, text)
    check = ChecklistTest(text, text, 9, 4, (text, text))
    table = ReportTable(text, (text, "n"), [(text, str(n)) for n in range(9)], text)
    findings = [
        Finding(text, True, 2.0, results=tuple(results), n_tests=4),
        Finding(text, True, 1.0, causal_claim=False, decision_rule=text),
        Finding(text, False, 1.0, results=(results[0],), n_tests=4),
    ]
    rows = [Assumption(text, holds, text) for holds in (True, False, None)]
    parts: dict[str, Any] = dict.fromkeys(("title", "lead", "command", "python", "null_prefix", "nothing"), text)
    parts |= {key: [text] for key in ("questions", "examples", "notes")}
    parts |= {key: {text: text} for key in ("identity", "provenance", "glossary")}
    return Page(
        **parts, findings=findings, results=results, figures=[figure], measure_titles={text: text, "slope": text},
        tables=[table, ReportTable(text, (text,), [(text,)], text, warning=text)], basis={findings[0].text: {text: text}},
        matrices=[Checklist(text, (text,), (text,), {(text, text): [check]}, text)],
        causal_assumptions=PageAssumptions(text, text, [text], text, rows, text, figure),
        precision=PagePrecision([text], [findings[0].text], table),
    )  # fmt: skip
