"""Text of the report on spurious correlation: design, scoring of masses, limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from undertow.audits.base import PAPER, Observations
from undertow.audits.shared.prompt_items import example_texts, odd_prompts, prompts_text, words_text
from undertow.audits.spurious_correlation import drift_findings, word_findings
from undertow.report.page_data import ReportText
from undertow.report.sentence_templates import sentences
from undertow.types import LIKELIHOOD, PROMPT


def report_text(observations: Observations) -> ReportText:
    """The words of the report."""
    frame, design = observations.frame, observations.design
    words, rows = sentences("drift"), frame["model"].value_counts()
    texts = f"{rows.max():,} texts" + (f" for each of {len(rows)} models" if len(rows) > 1 else "")
    texts += "" if rows.min() == rows.max() else f" ({len(frame):,} in all)"
    questions = [f"{design['title']}{' — ' + design['source'] if design['source'] else ''}; {texts}."]
    for name, facet in frame.groupby("w_name", sort=False):
        first, last = drift_findings.ends(facet)
        questions.append(f"{name}: {facet['w'].nunique()} values, from {first} to {last}.")
    questions += prompts_text(design)
    if design["words"]:
        questions.append(f"The texts do not determine which of these words fills the blank: {words_text(design)}.")
    lacking = frame.loc[frame["missing_reason"] != "", ["model", "missing_reason"]]
    missing = Counter(lacking.itertuples(index=False, name=None))
    return ReportText(
        title="Spurious correlation",
        lead="Does the answer to an underspecified sentence drift with a word that should not matter?",
        questions=[*questions, *word_findings.controls_text(design)],
        examples=example_texts(frame, 4),
        notes=[
            *_readings(design),
            *([words.bounded] if any(str(name).endswith(".low") for name in frame) else []),
            *odd_prompts(design),
            *design.get("w_notes", []),
            *design.get("notes", []),
            *words.notes,
            *(f"Missing, {count:,} texts of {model}: {reason}" for (model, reason), count in missing.items()),
        ],
        caveats=words.caveats,
        tables=word_findings.report_tables(observations),
    )


def _readings(design: Mapping[str, Any]) -> list[str]:
    methods = design.get("scoring_methods") or {"": design.get("scoring_method", "")}
    if "scoring_method" not in design:
        methods = {"": "recorded"}
    by_kind: dict[str, list[str]] = {}
    for name, method in methods.items():
        by_kind.setdefault(method if method in ("recorded", LIKELIHOOD, PROMPT) else "place", []).append(name)
    reading, is_paper = sentences("drift").reading, design["protocol"] == PAPER
    texts = {", ".join(names): reading(kind, is_paper) for kind, names in by_kind.items()}
    return [f"{names}: {text}" if len(texts) > 1 else text for names, text in texts.items()]
