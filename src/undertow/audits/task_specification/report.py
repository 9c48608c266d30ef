"""Words of the report on task specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undertow import data
from undertow.audits.base import PAPER, Observations
from undertow.audits.shared.prompt_items import example_texts, prompts_text, words_text
from undertow.metrics.specification_detection import cluster_noun
from undertow.report.page_data import ReportText

if TYPE_CHECKING:
    import pandas as pd

PAPERS_THRESHOLD = 0.5


def report_text(observations: Observations) -> ReportText:
    """The words of the report."""
    frame, design = observations.frame, observations.design
    injected = frame[frame["w_name"] != data.NO_W]
    n_sentences = frame.groupby(["model", "challenge"], sort=False)["sentence"].nunique().groupby("challenge").max()
    sentences = [f"{design['title']}{' (' + design['source'] + ')' if design['source'] else ''}."]
    sentences += [f"{name}: {count:,} sentences." for name, count in n_sentences.items()]
    for name, rows in injected.groupby("w_name", sort=False):
        values = rows.drop_duplicates("w_index").sort_values("w_index")["w"].astype(str)
        cells = values.tolist() if len(values) <= 6 else [*values.iloc[:3], "...", values.iloc[-1]]
        how = f", put in as {design['inject']!r}" if design["inject"] else ""
        sentences.append(f"{name}: {', '.join(cells)}{how}.")
    sentences += prompts_text(design)
    if design["words"]:
        sentences.append(f"What may fill the blank: {words_text(design)}.")
    return ReportText(
        title="Task specification",
        lead="Can it be told from a model's answers alone that a sentence did not decide them?",
        questions=sentences,
        examples=example_texts(frame, 6),
        notes=_notes(frame, design),
        null_prefix="chance would give",
    )


def _notes(frame: pd.DataFrame, design: Mapping[str, Any]) -> list[str]:
    missing_reason = frame.loc[
        frame["missing_reason"] != "", ["missing_reason", "model", "challenge", "sentence"]
    ].drop_duplicates()
    counts = missing_reason["missing_reason"].value_counts()
    paper = [
        "Protocol paper: masses are taken as recorded, zeros included, and compared with the threshold as doubles come."
    ]
    noun = cluster_noun(frame)
    return [
        *design["notes"],
        *design.get("w_notes", []),
        *(paper if design["protocol"] == PAPER else []),
        "Masses are shares between the word groups, so they add up to 100%. Movements are in percentage points; divergence and entropy "
        "are in percent of the most they can be.",
        "A sentence counts as undecided by what its writers say that it says. That a model's answer moves does not prove that the "
        "sentence is undecided, and that it does not move does not prove that it is not.",
        f"The intervals come from resampling whole {noun}, because the sentences of one are not independent; with fewer than six of "
        "either kind there is no interval, no test and no claim. Thresholds under 'held out' were chosen, and the score combined was "
        "fitted, without the ones they are applied to, and again in every resample and permutation.",
        "A finding is claimed where q is below .05. q is corrected for all tests of this run: of every area under the ROC curve, and of "
        "each other number that a finding rests on. The interval stands beside it and is not adjusted. Where every sentence is a hit, the "
        f"interval is an approximate one from the number of {noun}.",
        *(
            ["The threshold of 0.5 is the papers' own and was not tuned for this model."]
            if float(design["threshold"]) == PAPERS_THRESHOLD
            else []
        ),
        *(f"Missing, {count:,} sentences: {reason}" for reason, count in counts.items()),
    ]
