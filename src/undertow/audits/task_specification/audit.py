"""Task specification: whether a sentence determines its blank, by the movement of the answer with W.

An irrelevant W is put in front of the sentence; if the answer moves, the sentence is probably underspecified. Each score is evaluated
by its ability to separate underspecified from specified sentences, and compared with plain entropy, which needs no W.
McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5 and appendices A.2 and A.3 ("Method
2"); the ICLR submission "Selection Induced Collider Bias in LLMs", section 5 and appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import data
from undertow.audits.base import UNDERTOW_LICENCE, Audit, ItemBatches, Observations, Sampling
from undertow.audits.shared.group_probabilities import observation_rows
from undertow.audits.shared.prompt_items import design_of, example_texts, prompts_text, words_text
from undertow.audits.shared.sentence_slopes import sentence_slopes
from undertow.audits.task_specification import figures
from undertow.audits.task_specification import findings as specification_findings
from undertow.audits.task_specification import items as specification_items
from undertow.audits.task_specification.findings import score_sentences
from undertow.errors import UndertowError
from undertow.report.page_data import ReportText
from undertow.report.paper_table import TableLayout
from undertow.report.sentence_templates import lines, sentences
from undertow.types import EXACT, LIKELIHOOD, PAPER, TEXT, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.recorded_tables import Table

RECORDED = "recorded"
"""Protocol of recorded masses that excludes sentences without any mass at one date; `paper` counts these as zero."""


class TaskSpecification(Audit):
    """Whether sentences determine their blank, by the movement of answers with an irrelevant W."""

    name = "task-specification"
    summary = "does the sentence determine its answer, or does an irrelevant date change it?"
    Settings = specification_items.Settings
    protocols = (EXACT, PAPER, TEXT)
    causal_claim = "specification of the task"
    licence = UNDERTOW_LICENCE
    references = ("mcmilin2024underspecification",)
    method = (
        "Detection is the area under the ROC curve, tested by permuting labels within occupations; intervals resample whole "
        "occupations."
    )
    table_layouts = (TableLayout("detection", ["auroc"], ["balanced_accuracy", "tpr", "tnr"]),)
    reply_factors = ("prompt", "well_specified")
    limit_help = (
        "Approximate number of items (sentence x W value x prompt); each sentence has every value; 0 for all. A finding needs sentences "
        "of each kind from 6 occupations: 24 items with two dates and one prompt."
    )
    # Hooks in the modules beside this one.
    limitations = staticmethod(specification_items.limitations)
    findings = staticmethod(specification_findings.findings)
    draw = staticmethod(figures.draw)

    def adapt_settings(
        self, settings: specification_items.Settings, capabilities: Mapping[str, Sequence[str]]
    ) -> specification_items.Settings:
        return settings.adapt(capabilities, prompts="A")

    def items(self, settings: specification_items.Settings, sampling: Sampling) -> ItemBatches:
        """One batch: the items of the scores and, if set, sentences without W and one occupation over all dates."""
        yield specification_items.all_items(settings, sampling)

    def design(self, settings: specification_items.Settings) -> dict[str, Any]:
        sentences = specification_items.sentences_of(settings)
        return {
            "groups": list(sentences.groups),
            "title": sentences.title,
            "source": sentences.source,
            "notes": list(sentences.notes),
            "inject": settings.inject,
            "endpoint_window": settings.endpoint_window,
            "threshold": settings.threshold,
            "protocol": EXACT,
            **design_of(sentences.words, settings),
        }

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        shared = scores.scoring_method == LIKELIHOOD
        frame = observation_rows(items, scores, design["groups"], model)
        return Observations(frame, {**design, "normalised": shared, "scoring_method": scores.scoring_method})

    def load_recorded(self, path: Path | Table, protocol: str) -> tuple[Observations, str]:
        """Recorded masses at the first and the last date, several models and sets in one file."""
        if protocol not in ("", PAPER, RECORDED):
            raise UndertowError(
                f"{path}: recorded masses do not support protocol {protocol!r}; omit --protocol to exclude sentences without any recorded "
                f"mass, or use --protocol {PAPER} to count them as zero"
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

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        # Statistics and tables take most of a second to load: listing, help and refusals do without.
        from undertow.metrics.specification_detection import Threshold, detect

        design = observations.design
        threshold = Threshold(float(design["threshold"]), as_they_come=design["protocol"] == PAPER)
        return detect(score_sentences(observations), design["groups"], threshold, seed=seed)

    def tables(self, observations: Observations) -> dict[str, pd.DataFrame]:
        """Scores of each sentence, and their means by occupation."""
        from undertow.metrics.specification_detection import by_cluster

        tables = {"sentences": score_sentences(observations)}
        if "well_specified" in tables["sentences"]:
            tables["occupations"] = by_cluster(tables["sentences"], observations.design["groups"])
        return tables

    def sentences(self, observations: Observations) -> pd.DataFrame:
        return sentence_slopes(observations.frame, observations.design, by=("sentence", "well_specified", "expected"))

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        from undertow.metrics.score_table import cluster_noun

        frame, design = observations.frame, observations.design
        n_sentences = frame.groupby(["model", "challenge"], sort=False)["sentence"].nunique().groupby("challenge").max()
        questions = [f"{design['title']}{' (' + design['source'] + ')' if design['source'] else ''}."]
        questions += [f"{name}: {count:,} sentences." for name, count in n_sentences.items()]
        for name, rows in frame[frame["w_name"] != data.NO_W].groupby("w_name", sort=False):
            values = rows.drop_duplicates("w_index").sort_values("w_index")["w"].astype(str)
            cells = values.tolist() if len(values) <= 6 else [*values.iloc[:3], "...", values.iloc[-1]]
            how = f", inserted as {design['inject']!r}" if design["inject"] else ""
            questions.append(f"{name}: {', '.join(cells)}{how}.")
        questions += prompts_text(design)
        if design["words"]:
            questions.append(f"Words for the blank: {words_text(design)}.")
        words, missing = sentences("task_specification"), frame[frame["missing_reason"] != ""]
        missing = missing[["missing_reason", "model", "challenge", "sentence"]].drop_duplicates()
        notes = words.notes(cluster_noun(frame), design["protocol"] == PAPER, float(design["threshold"]) == 0.5)
        counts = missing["missing_reason"].value_counts()
        return ReportText(
            title="Task specification",
            lead="Do a model's answers alone show whether a sentence determines its blank?",
            questions=questions,
            examples=example_texts(frame, 6),
            notes=[
                *design["notes"],
                *design.get("w_notes", []),
                *lines(notes),
                *(f"Missing, {count:,} sentences: {reason}" for reason, count in counts.items()),
            ],
            caveats=words.caveats,
            null_prefix="chance would give",
        )
