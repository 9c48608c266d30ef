"""Task specification: whether a sentence decides its blank, judged by whether the answer moves with W.

A W that should not matter goes in front of it; if the answer moves, the sentence did not decide. Every score comes with its
ability to separate sentences that decide their blank from those that do not, beside plain entropy, which needs no W.
McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5 and appendices A.2 and A.3 ("Method
2"); the ICLR submission "Selection Induced Collider Bias in LLMs", section 5 and appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from undertow.audits.base import EXACT, PAPER, Observations
from undertow.audits.shared.group_masses import observation_rows
from undertow.audits.shared.prompt_items import design_of
from undertow.audits.task_specification import findings as specification_findings
from undertow.audits.task_specification import items as specification_items
from undertow.audits.task_specification import specification_scores as scores_of
from undertow.errors import UndertowError
from undertow.types import LIKELIHOOD, Item, Result, Scores

SUMMARY = "does the answer move with a date that should not matter, and so show that the sentence did not decide it?"
PROTOCOLS = (EXACT, PAPER)
CAUSAL_CLAIM = "specification of the task"
RECORDED = "recorded"
"""Recorded masses with sentences left out that have none at one date; `paper` takes those as zero."""
DETECT = specification_items.DETECT
Settings = specification_items.Settings
adapt_settings, items, limitations, items_of = (
    specification_items.adapt_settings,
    specification_items.items,
    specification_items.limitations,
    specification_items.items_of,
)
scored, tables, draw = scores_of.scored, scores_of.tables, scores_of.draw
findings, report_text = specification_findings.findings, specification_findings.report_text


def design(settings: Settings) -> dict[str, Any]:
    """Word groups, how W goes in, and what counts as moved."""
    given = specification_items.sentences_of(settings)
    return {
        "groups": list(given.groups),
        "title": given.title,
        "source": given.source,
        "notes": list(given.notes),
        "inject": settings.inject,
        "endpoint_window": settings.endpoint_window,
        "threshold": settings.threshold,
        "protocol": EXACT,
        **design_of(given.words, settings),
    }


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
    """Masses in percent, normalised over the groups, from each option's log-likelihood."""
    shared = scores.scoring_method == LIKELIHOOD
    frame = observation_rows(items, scores, design["groups"], model)
    return Observations(frame, {**design, "normalised": shared, "scoring_method": scores.scoring_method})


def load_recorded(path: Path, protocol: str) -> tuple[Observations, str]:
    """Recorded masses at the first and the last date, several models and sets in one file.

    Raises:
        UndertowError: the file is no such table, or does not support the protocol.
    """
    if protocol not in ("", PAPER, RECORDED):
        raise UndertowError(
            f"{path}: protocol {protocol!r} cannot be had from recorded masses; leave it out, which leaves sentences without "
            f"any recorded mass out, or use --protocol {PAPER}, which takes them as zero"
        )
    from undertow.audits.task_specification.recorded_endpoints import read_ends

    chosen = protocol or RECORDED
    frame, groups, notes = read_ends(path, zeros_count=chosen == PAPER)
    design = {
        "groups": groups,
        "words": {},
        "title": f"recorded outputs ({path.name})",
        "source": path.name,
        "notes": [],
        "w_notes": notes,
        "inject": "",
        "endpoint_window": 1,
        "threshold": 0.5,
        "protocol": chosen,
    }
    return Observations(frame, design), chosen


def measure(observations: Observations, seed: int) -> list[Result]:
    """Detection of every model and set by every score, with baselines."""
    # Statistics and tables take most of a second to load: listing, help and refusals do without.
    from undertow.metrics.specification_detection import Threshold, detect

    design = observations.design
    threshold = Threshold(float(design["threshold"]), as_they_come=design["protocol"] == PAPER)
    return detect(scored(observations), design["groups"], threshold, seed=seed)
