"""Text of the report on task specification."""

from __future__ import annotations

from undertow import data
from undertow.audits.base import PAPER, Observations
from undertow.audits.shared.prompt_items import example_texts, prompts_text, words_text
from undertow.metrics.specification_detection import cluster_noun
from undertow.report.page_data import ReportText
from undertow.report.sentence_templates import lines, sentences


def report_text(observations: Observations) -> ReportText:
    """The text of the report."""
    frame, design = observations.frame, observations.design
    injected = frame[frame["w_name"] != data.NO_W]
    n_sentences = frame.groupby(["model", "challenge"], sort=False)["sentence"].nunique().groupby("challenge").max()
    questions = [f"{design['title']}{' (' + design['source'] + ')' if design['source'] else ''}."]
    questions += [f"{name}: {count:,} sentences." for name, count in n_sentences.items()]
    for name, rows in injected.groupby("w_name", sort=False):
        values = rows.drop_duplicates("w_index").sort_values("w_index")["w"].astype(str)
        cells = values.tolist() if len(values) <= 6 else [*values.iloc[:3], "...", values.iloc[-1]]
        how = f", inserted as {design['inject']!r}" if design["inject"] else ""
        questions.append(f"{name}: {', '.join(cells)}{how}.")
    questions += prompts_text(design)
    if design["words"]:
        questions.append(f"Words for the blank: {words_text(design)}.")
    words, missing = sentences("task_specification"), frame[frame["missing_reason"] != ""]
    missing = missing[["missing_reason", "model", "challenge", "sentence"]].drop_duplicates()
    return ReportText(
        title="Task specification",
        lead="Do a model's answers alone show whether a sentence determines its blank?",
        questions=questions,
        examples=example_texts(frame, 6),
        notes=[
            *design["notes"],
            *design.get("w_notes", []),
            *lines(words.notes(cluster_noun(frame), design["protocol"] == PAPER, float(design["threshold"]) == 0.5)),
            *(
                f"Missing, {count:,} sentences: {reason}"
                for reason, count in missing["missing_reason"].value_counts().items()
            ),
        ],
        caveats=words.caveats,
        null_prefix="chance would give",
    )
