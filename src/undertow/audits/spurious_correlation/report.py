"""Words of the report on spurious correlation: what was asked, how masses are read, what the numbers rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.audits.base import PAPER, Observations
from undertow.audits.shared.prompt_items import example_texts, odd_prompts, prompts_text, words_text
from undertow.audits.spurious_correlation import drift_findings, word_findings
from undertow.report.page_data import ReportText
from undertow.types import LIKELIHOOD, PROMPT, Result

if TYPE_CHECKING:
    import pandas as pd


def report_text(observations: Observations, results: Sequence[Result]) -> ReportText:
    """The words of the report."""
    frame, design = observations.frame, observations.design
    values = [_span(str(name), facet) for name, facet in frame.groupby("w_name", sort=False)]
    rows = frame["model"].value_counts()
    texts = f"{rows.max():,} texts" + (f", asked of {len(rows)} models" if len(rows) > 1 else "")
    texts += "" if rows.min() == rows.max() else f" ({len(frame):,} in all)"
    sentences = [
        f"{design['title']}{' — ' + design['source'] if design['source'] else ''}; {texts}.",
        *values,
    ]
    sentences += prompts_text(design)
    if design["words"]:
        sentences.append(f"Nothing in a text decides which of these words fills the blank: {words_text(design)}.")
    sentences += word_findings.controls_text(design)
    return ReportText(
        title="Spurious correlation",
        lead="Does an answer that nothing in the sentence decides drift with a word that should not matter?",
        questions=sentences,
        examples=example_texts(frame, 4),
        notes=_notes(design, frame),
        tables=word_findings.report_tables(observations),
    )


def _readings(design: Mapping[str, Any]) -> list[str]:
    """What masses are, by the ways in which the models were read."""
    if "scoring_method" not in design:
        return [
            "Masses are as recorded and not normalised; a row of zeros is a measurement: none of the listed words "
            "was among what was recorded."
        ]
    scoring_methods = dict(design.get("scoring_methods", {}))
    kinds = dict.fromkeys(map(_kind_of_method, scoring_methods.values() or [design["scoring_method"]]))
    several = len(kinds) > 1
    said = []
    for kind in kinds:
        of = ", ".join(
            name for name, scoring_method in scoring_methods.items() if _kind_of_method(scoring_method) == kind
        )
        text = READINGS[kind] + (TOP_FIVE if kind != LIKELIHOOD and design["protocol"] == PAPER else "")
        said.append(f"{of}: {text}" if several else text)
    return said


def _kind_of_method(scoring_method: str) -> str:
    return scoring_method if scoring_method in (LIKELIHOOD, PROMPT) else "place"


READINGS = {
    LIKELIHOOD: "Masses are shares of the likelihood that the listed words have between them, so they add up to 100%.",
    PROMPT: (
        "Masses are probabilities of the listed words in the answer to a prompt, in percent: at the one step whose word is among "
        "them, or, where none or several are, averaged over all steps of the answer."
    ),
    "place": "Masses are probabilities of the words in their place, in percent; the rest goes to other words.",
}
BOUNDED = (
    "A server shows the most probable tokens of each step only. Masses are the middle of what they may be, and so are the dots "
    "and lines of the figures; the tables say between which bounds a mean or a slope lies whatever was hidden, and the "
    "intervals cover all of it."
)
TOP_FIVE = " Words that are not among the five most probable count as nothing."


def _notes(design: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    rows = frame.loc[frame["missing_reason"] != "", ["model", "missing_reason"]]
    missing_reason = Counter(rows.itertuples(index=False, name=None))
    return [
        *_readings(design),
        *([BOUNDED] if any(str(name).endswith(".low") for name in frame) else []),
        *odd_prompts(design),
        *design.get("w_notes", []),
        "Three statements are told apart, each claimed by one test with q below .05, corrected over the run. *It depends on W*: these "
        "values of W move the answers, in other sentences too (effect of W). *It drifts with W*: the answers follow the order of W by more "
        "than noise that neighbouring values share could (slope); its 95% interval is for other sentences and other noise of this kind. "
        "*Other values would show it too*: the same, if the values of W are a sample of independent ones (further numbers of the slope).",
        "The band in a figure is that of the straight line alone, as in the papers; it promises less noise than there is.",
        "A slope shows that the answer moves with something that does not decide it. It does not show why: not which "
        "texts the model learned from, and not how it behaves in other sentences, prompts or languages.",
        *(f"Missing, {count:,} texts of {model}: {reason}" for (model, reason), count in missing_reason.items()),
    ]


def _span(w_name: str, facet: pd.DataFrame) -> str:
    first, last = drift_findings.ends(facet)
    return f"{w_name}: {facet['w'].nunique()} values, from {first} to {last}."
