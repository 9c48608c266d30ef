"""The reply to a question of the page: runs the model, fits curves, and returns a sentence, notes and a table.

The sentences are in `reply.txt.j2`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from undertow import data
from undertow._folders import cache_file
from undertow.app.forms import Question
from undertow.app.probability_curve import Curve
from undertow.audits.base import Observations
from undertow.audits.shared.sentence_slopes import sentence_slopes
from undertow.audits.spurious_correlation.audit import SpuriousCorrelation
from undertow.audits.task_specification.audit import TaskSpecification
from undertow.audits.task_specification.findings import score_sentences
from undertow.audits.task_specification.items import DETECT
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.metrics.reference_distribution import Reference
from undertow.models.base import ModelHandle
from undertow.report.formatting import significant_decimals
from undertow.report.sentence_templates import lines, text_templates
from undertow.stats import benjamini_hochberg
from undertow.stats.regression.least_squares import fit_polynomial
from undertow.stats.regression.trend import MIN_VALUES, trend_of_one_series
from undertow.types import EXACT, LIKELIHOOD, Item, Progress, Scores

SCHEMAS, INJECTION = "undertow-schemas", "In {w}: "
"""Labelled sentences for comparison, and the position of values in them."""
CURVE_POINTS = 101
HARDLY_BETTER_THAN_CHANCE = 0.6
OPEN_PERCENT = 10.0
"""Distance from 50% below which a probability gives no verdict."""
OTHER = "other words"
NOTHING, SMALL, LARGE = 1e-9, 0.0001, 9999.5
"""Rounding error of zero, smallest number that is printed, and limit of four digits."""
Steps = Callable[[str], Progress]
"""Begins a named step and returns its progress callback."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to a question.

    Attributes:
        sentence: the answer in one sentence.
        caveats: its limits.
        notes: scoring and tests.
        table: a row for each value: the value, percent of each group, each group's fit with its band, and the text.
        sentences: for several sentences, a row for each, the largest effect first; None otherwise.
        scores: for task specification, a row for each score of the sentence; None otherwise.
    """

    sentence: str
    caveats: Sequence[str]
    notes: Sequence[str]
    curves: tuple[Curve, ...]
    table: pd.DataFrame
    sentences: pd.DataFrame | None = None
    scores: pd.DataFrame | None = None


def answer_drift(question: Question, handle: ModelHandle, step: Steps) -> ModelReply:
    """Whether the answer drifts along the values; raises `UndertowError` if the model does not support the question."""
    answers = _Answers.from_question(question, handle, step("Asking the model"))
    return answers.reply("drift", answers)


def answer_specification(question: Question, handle: ModelHandle, step: Steps) -> ModelReply:
    """Whether the sentence determines its blank, by the movement of the answer; raises an `UndertowError` as `answer_drift`."""
    answers = _Answers.from_question(question, handle, step("Asking the model"))
    # Labelled sentences with the same model and values.
    ends = question.covariate.values[: question.ends] + question.covariate.values[-question.ends :]
    given = data.load_sentences(SCHEMAS)
    items = [
        replace(item, factors={"part": DETECT, "expected": item.gold or "", **item.factors})
        for item in given.inject(data.Injection.parse(INJECTION), [data.Covariate("value", ends)])
    ]
    scored, _ = _run(handle, items, step("Scoring labelled sentences for comparison"))
    design = {"groups": list(given.words), "endpoint_window": question.ends}
    observations = TaskSpecification().observe(design, items, scored, handle.identity.name)
    verdict, scores = _verdict(answers, Reference.from_scores(score_sentences(observations), given.words))
    return answers.reply("specification", verdict, scores)


@cache
def _sentences() -> Any:
    def beside(pair: tuple[float, float], between: str) -> str:
        """Two percentages with enough decimals to distinguish them."""
        places = max(1, significant_decimals(abs(pair[0] - pair[1]), 1))
        return f"{pair[0]:.{places}f} {between} {pair[1]:.{places}f}"

    environment = text_templates("undertow.app")
    environment.filters["beside"] = beside
    return environment.get_template("reply.txt.j2").module


@dataclass(frozen=True, slots=True)
class _Answers:
    """A question with the model's answers.

    Attributes:
        frame: a row for each sentence and value.
        rounded: the same with rounded masses.
        percent: mass of each group, and of other words, at each value, the mean over sentences [w].
    """

    question: Question
    frame: pd.DataFrame
    rounded: pd.DataFrame
    percent: pd.DataFrame
    groups: tuple[Curve, ...]
    missing: Sequence[str]
    model_notes: Sequence[str]
    min_values = MIN_VALUES

    @classmethod
    def from_question(cls, question: Question, handle: ModelHandle, progress: Progress) -> _Answers:
        items, names = question.items(), list(question.words)
        scores, notes = _run(handle, items, progress)
        design = {"groups": names, "words": dict(question.words)}
        frame = SpuriousCorrelation().observe(design, items, scores, handle.identity.name).frame
        missing = [reason for reason in scores.missing_reasons if reason]
        rows = _percent(frame, names, scores.scoring_method, normalise=question.normalise)
        # A value with a missing sentence has no comparable mean.
        n = len(question.patterns)
        percent = rows.groupby(frame["w_index"].to_numpy()).sum(min_count=n) / n
        axis = np.array(question.covariate.axis)
        seen = percent[names].dropna()
        if len(seen) < question.degree + 2:
            unknown = [name for name in names if percent[name].isna().all()]
            reason = (
                f"its tokenizer does not know the words of {', '.join(unknown)}"
                if unknown
                else "too few values have scores"
            )
            raise UndertowError(f"The model cannot score this: {missing[0] if missing else reason}.")
        at = axis[seen.index]
        x = np.linspace(at[0], at[-1], CURVE_POINTS)
        tested = benjamini_hochberg(trend_of_one_series(at, seen.to_numpy().T).p)
        groups = tuple(
            Curve(
                name=name,
                words=question.words[name],
                percent=percent[name].to_numpy(dtype=np.float64),
                axis=axis,
                x=x,
                fit=fit_polynomial(at, seen[name], question.degree),
                line=fit_polynomial(at, seen[name], 1),
                q=float(q),
            )
            for name, q in zip(names, tested, strict=True)
        )
        rounded = frame.assign(**{name: rows[name].to_numpy() for name in names})
        return cls(question, frame, rounded, percent, groups, missing, notes)

    @property
    def mass(self) -> str:
        return "share" if self.question.normalise else "probability"

    @property
    def other_percent(self) -> float:
        return float(self.frame["other_words"].mean())

    def reply(self, kind: str, facts: Any, scores: pd.DataFrame | None = None) -> ModelReply:
        """The reply with the sentences of a kind, rendered from `facts`."""
        template, table = _sentences(), self.percent.reset_index(drop=True)
        table.insert(0, "value", list(self.question.covariate.values))
        for group in self.groups:
            table[f"{group.name} fit"] = group.fit.at(group.axis)
            table[f"{group.name} low"], table[f"{group.name} high"] = group.fit.band(group.axis)
        sentences = None
        if len(self.question.patterns) == 1:
            table["text"] = list(self.frame["text"])
        else:
            names = list(self.question.words)
            slopes = sentence_slopes(self.rounded, {"groups": names})
            sentences = slopes[["text", "effect", f"{names[0]} first", f"{names[0]} last"]]
        sentence, caveats = (getattr(template, name)(facts) for name in (kind, f"{kind}_caveats"))
        sentence = re.sub(r" (?=[,:;.](?: |$))", "", " ".join(sentence.split()))
        return ModelReply(sentence, lines(caveats), lines(template.notes(self)), self.groups, table, sentences, scores)


def _run(handle: ModelHandle, items: Sequence[Item], progress: Progress) -> tuple[Scores, tuple[str, ...]]:
    with AnswerCache(cache_file()) as store:
        result = run_queries(handle, [item.query for item in items], store, EXACT, progress)
    return result.scores, tuple(result.notes)


def _percent(frame: pd.DataFrame, names: Sequence[str], scoring_method: str, *, normalise: bool) -> pd.DataFrame:
    """Percent of each group, and of other words, in each text [row].

    Sentence likelihoods compare options only. The mass of all options is then the probability of their first tokens at the blank, and
    the rest is the mass on other words.
    """
    percent = frame[[*names]].reset_index(drop=True).astype(float)
    if normalise:
        return percent.mul(100 / percent.sum(axis=1, min_count=1), axis=0)
    other = frame["other_words"].reset_index(drop=True).astype(float)
    if other[percent[names[0]].notna()].isna().any():
        raise UndertowError(
            "This model gives no probability of other words here; tick Normalise to compare the listed words only."
        )
    if scoring_method == LIKELIHOOD:
        percent = percent.mul((100 - other) / 100, axis=0)
    return percent.assign(**{OTHER: other})


def _verdict(answers: _Answers, reference: Reference) -> tuple[dict[str, Any], pd.DataFrame]:
    """Comparison of a sentence with labelled ones: facts for the template, and a row for each score."""
    frame = answers.frame.assign(part=DETECT, expected="")
    design = {"groups": list(answers.question.words), "endpoint_window": answers.question.ends}
    scored = score_sentences(Observations(frame, design))
    row = scored.iloc[0]
    if row["missing_reason"]:
        raise UndertowError(f"The model cannot score this: {row['missing_reason']}.")
    chance_percent = float(reference.chances_percent(scored, answers.question.words)[0])
    moved = float(row["total_variation"])
    # The probability is NaN for words other than those of the reference.
    basis = "combined" if math.isfinite(chance_percent) else "total_variation"
    threshold, accuracy = reference.thresholds["total_variation"], reference.accuracy[basis]
    if accuracy < HARDLY_BETTER_THAN_CHANCE:
        conclusion = "none"
    elif abs(chance_percent - 50) < OPEN_PERCENT:
        conclusion = "open"
    else:
        is_unspecified = chance_percent > 50 if basis == "combined" else moved > threshold
        conclusion = "unspecified" if is_unspecified else "specified"
    preferred = max(answers.groups, key=lambda group: float(row[f"mean_{group.name}"]))
    verdict = {
        "answers": answers,
        "basis": basis,
        "chance_percent": chance_percent,
        "threshold": threshold,
        "accuracy": accuracy,
        "conclusion": conclusion,
        "moved": moved,
        "rank": reference.rank_of("total_variation", moved),
        "preferred": preferred,
        "preferred_percent": float(row[f"mean_{preferred.name}"]),
    }
    titles = {f"delta_{group}": f"movement of {group} words" for group in answers.question.words} | {
        "total_variation": "movement of all (total variation)",
        "jensen_shannon": "movement of all, % of maximum (Jensen-Shannon)",
        "entropy": "entropy, % of maximum",
    }
    ranks = {title: reference.rank_of(name, float(row[name])) for name, title in titles.items()}
    rows = [[title, one.value, 100 * one.above_unspecified, 100 * one.above_specified] for title, one in ranks.items()]
    columns = ["score", "this sentence", "% of underspecified below", "% of specified below"]
    return verdict, pd.DataFrame(rows, columns=columns)


def cells_of(table: pd.DataFrame) -> list[list[str]]:
    """The table's cells as texts [row][column]; numbers to four digits."""

    def text(cell: object) -> str:
        if not isinstance(cell, float):
            return "" if cell is None else str(cell)
        if NOTHING <= abs(cell) < SMALL:
            return f"below {SMALL}" if cell > 0 else f"above -{SMALL}"
        return "" if math.isnan(cell) else f"{cell:.0f}" if abs(cell) >= LARGE else f"{round(cell, 9) + 0.0:.4g}"

    return [[text(cell) for cell in row] for row in table.itertuples(index=False)]
