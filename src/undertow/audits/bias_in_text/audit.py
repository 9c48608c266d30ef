"""Bias in text: whether a model recognises a biased text, names its dimension, finds the biased span, and rewrites it.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3: diagnosis
compares the first tokens of Yes and No. Identification decodes labels greedily along their trie and also takes the most probable label
(under protocol paper the answer may end inside a label, which is then wrong). Extraction and rephrasing generate answers without
constraints, from the text's tokens, or as a span of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from undertow.audits.base import UNDERTOW_LICENCE, Audit, ItemBatches, Observations, Sampling
from undertow.audits.bias_in_text import figures, report
from undertow.audits.bias_in_text import findings as text_findings
from undertow.audits.bias_in_text.items import (
    DECODING,
    ItemPlan,
    TextSettings,
    WrittenSettings,
    adapt_to_text,
    documents_of,
)
from undertow.audits.bias_in_text.tasks import DIAGNOSIS, EXTRACTION, IDENTIFICATION, REPHRASING, Task
from undertow.data.documents.few_shot import SAMPLINGS
from undertow.report.page_data import ReportText
from undertow.report.paper_table import TableLayout
from undertow.report.sentence_templates import lines, sentences
from undertow.stats import MIN_CLUSTERS
from undertow.types import (
    EXACT,
    PAPER,
    PASSAGE_TOKENS,
    SPAN,
    TEXT,
    UNCONSTRAINED,
    WRITING,
    Item,
    Result,
    Scores,
    digest,
    option,
)

if TYPE_CHECKING:
    from undertow.audits.recorded_tables import Table

ALL_TEXTS = {"dimension": "all"}
WRITTEN_LAYOUTS = (TableLayout("scores", ["token_f1"], ["bleu4", "meteor", "exact_match"], ALL_TEXTS),)


class BiasAudit(Audit):
    """One of the four tasks as an audit.

    Attributes:
        task: the task.
        paper: numbers of the tables of Bauer et al. that the report reproduces.
        lead: the first sentence of the report.
        null_prefix: text before the null value of a measure.
        notes: limits of the measures of this task.
    """

    task: ClassVar[Task]
    paper: ClassVar[str]
    lead: ClassVar[str]
    null_prefix: ClassVar[str] = "the best baseline has"
    notes: ClassVar[tuple[str, ...]] = ()
    protocols: ClassVar[tuple[str, ...]] = (EXACT, TEXT)
    licence = UNDERTOW_LICENCE
    references = ("bauer2022limits",)
    method = "Scores are compared with the best baseline without a model on the same texts; intervals are clustered by document."
    sentence_table = report.LABELLED
    reply_factors = ("description_class", "dimension")
    limit_help = (
        "Maximum number of items (document x wording x number of examples x draw x decoding), in balance over documents and wordings; "
        "0 for all. Documents are sampled evenly over dimensions; a finding needs 6 documents."
    )
    # Hooks in the modules beside this one.
    findings = staticmethod(text_findings.findings)
    draw = staticmethod(figures.draw)
    tables = staticmethod(report.run_tables)
    sentences = staticmethod(report.text_answers)

    def adapt_settings(self, settings: Any, capabilities: Mapping[str, Sequence[str]]) -> Any:
        """Settings for a model with these capabilities; free replies are decoded without constraints."""
        return adapt_to_text(settings) if capabilities.get(WRITING) == (TEXT,) else settings

    def items(self, settings: Any, sampling: Sampling) -> ItemBatches:
        """One batch: documents x wordings x examples x decodings."""
        yield ItemPlan(self.task, settings, sampling).items()

    def limitations(self, settings: Any, sampling: Sampling) -> list[str]:
        return ItemPlan(self.task, settings, sampling).limitations()

    def design(self, settings: Any) -> dict[str, Any]:
        given, task = documents_of(settings), self.task
        documents = [[one.id, one.text, task.gold(one)] for one in given.evaluation if task.gold(one)]
        return {
            "task": task.name,
            "labels": task.labels(given),
            "title": given.title,
            "source": given.source,
            "document_notes": list(given.notes),
            "documents_sha256": digest(documents),
            "protocol": EXACT,
            "sampled": bool(getattr(settings, "temperature", 0.0)),
        }

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        from undertow.audits.bias_in_text import answers  # tables are not loaded before a model

        return answers.observe(design, items, scores, model)

    def load_recorded(self, path: Path | Table, protocol: str) -> tuple[Observations, str]:
        """Recorded answers: `document, gold, answer` and any of the factors."""
        from undertow.audits.bias_in_text import answers

        return answers.read_answers(path, self.task, protocol)

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        from undertow.metrics.text.tasks import results

        return results(observations.frame, observations.design, seed)

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        frame, design, words = observations.frame, observations.design, sentences("bias_in_text")
        counts = {name: frame[name].nunique() for name in ("document", "description_class")}
        counts["wording"] = len(frame[["description_class", "wording"]].drop_duplicates())
        meteor = dict.fromkeys(one.note.partition("; ")[0] for one in results if one.measure == "meteor" and one.note)
        fewer = 100 * float((frame["n_shots"] < frame["shots"]).mean()) if "n_shots" in frame else 0.0
        glossary = dict(words.baselines)
        for name in dict.fromkeys(frame["decoding"].astype(str)):
            plain, _, drawn = name.partition(", T ")
            if plain in words.meanings:
                at = f"; tokens sampled at temperature {drawn}" if drawn else ""
                glossary[words.decoding({"decoding": name})] = words.meanings[plain] + at
        return ReportText(
            title=self.name.replace("-", " ").capitalize(),
            lead=self.lead,
            questions=lines(words.questions(design, counts, list(dict.fromkeys(map(str, frame["shots"]))))),
            notes=[
                *(f"Documents: {note}." for note in design.get("document_notes", [])),
                *design.get("w_notes", []),
                *(f"METEOR: {note}." for note in meteor),
                *lines(words.notes(MIN_CLUSTERS, fewer)),
                *self.notes,
            ],
            glossary=glossary,
            null_prefix=self.null_prefix,
            caveats=words.caveats,
            tables=[
                *report.paper_tables(frame, results, self.task, self.paper),
                *report.reliability_tables(frame),
                *report.judgement_tables(results),
                *report.wording_tables(observations),
            ],
            of_words=False,
        )


class BiasDiagnosis(BiasAudit):
    """Whether a model recognises biased texts better than a guess."""

    name = "bias-diagnosis"
    table_layouts = (TableLayout("scores", ["accuracy"], ["f1", "f1_macro"], ALL_TEXTS),)
    summary = "does the model say whether a text is biased, better than a guess?"
    Settings = TextSettings
    task = DIAGNOSIS
    paper = "Table 4"
    lead = "Each prompt is a text and the question whether it is biased; the answer is Yes or No."


@dataclass(frozen=True, slots=True)
class IdentificationSettings(TextSettings):
    """Options of `bias-identification`."""

    shot_selection: str = option(
        SAMPLINGS[0], "How examples are chosen: random, weak-oracle (of the category of the right answer), or both."
    )


class BiasIdentification(BiasAudit):
    """Whether a model names the dimension on which a text is biased."""

    name = "bias-identification"
    table_layouts = (TableLayout("scores", ["exact_match"], ["f1_macro"], ALL_TEXTS),)
    summary = "does the model name the dimension on which a text is biased?"
    Settings = IdentificationSettings
    protocols = (EXACT, PAPER, TEXT)
    task = IDENTIFICATION
    paper = "Tables 9, A7 and A8"
    lead = "Each prompt is a biased text and the question which kind of bias it has; the answer is one of the labels."


@dataclass(frozen=True, slots=True)
class ExtractionSettings(WrittenSettings):
    """Options of `bias-extraction`."""

    decoding: str = option(",".join((UNCONSTRAINED, PASSAGE_TOKENS, SPAN)), DECODING)


class BiasExtraction(BiasAudit):
    """Whether a model finds the biased piece of a text."""

    name = "bias-extraction"
    table_layouts = WRITTEN_LAYOUTS
    summary = "does the model find the biased piece of a text?"
    Settings = ExtractionSettings
    task = EXTRACTION
    sentence_table = report.WRITTEN
    paper = "Table 6"
    lead = "Each prompt is a biased text and the question which span is biased; the answer is compared with the annotated span."


@dataclass(frozen=True, slots=True)
class RephrasingSettings(WrittenSettings):
    """Options of `bias-rephrasing`."""

    decoding: str = option(UNCONSTRAINED, DECODING)
    rephrasings: str = option("", "Table of rephrase pairs (span, rephrasing) for documents that have none.")


class BiasRephrasing(BiasAudit):
    """Whether a model rewrites a biased piece of text without its bias, beyond copying it."""

    name = "bias-rephrasing"
    table_layouts = WRITTEN_LAYOUTS
    summary = "does the model rewrite a biased piece of text without its bias?"
    Settings = RephrasingSettings
    task = REPHRASING
    sentence_table = report.WRITTEN
    paper = "Tables 7 and 8"
    lead = "Each prompt is a biased span and the request to rephrase it; the answer is compared with a person's rephrasing."
    null_prefix = "copying the span has"
    notes = (
        "A copy of the span shares most words with a good rephrasing, so overlap does not show that the bias is gone. "
        "`undertow annotate RUN` collects human judgements, which then appear here, in results.csv and in gates.",
    )
