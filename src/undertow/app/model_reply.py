"""The reply to a question of the page: runs the model, fits the curves, and writes a sentence, notes and a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from undertow import data
from undertow._folders import cache_file
from undertow.app.forms import Question
from undertow.app.probability_curve import Curve
from undertow.app.sentence_parser import GROUPS
from undertow.audits.base import EXACT, Observations
from undertow.audits.spurious_correlation import audit as spurious_correlation
from undertow.audits.task_specification import audit as task_specification
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import Progress, run_queries
from undertow.models.base import ModelHandle
from undertow.stats import benjamini_hochberg
from undertow.stats.regression.polynomial import Polynomial, fit_polynomial
from undertow.stats.regression.trend import MIN_VALUES, trend_of_one_series
from undertow.types import LIKELIHOOD, Floats, Item, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.metrics.reference_distribution import Reference

SCHEMAS, INJECTION = "undertow-schemas", "In {w}: "
"""Sentences of known kind, beside which a sentence is judged, and how a value goes into them."""
ALPHA = 0.05
SAME_PERCENT = 1e-9
CURVE_POINTS = 101
MAX_OTHER_PERCENT = 95.0
HARDLY_BETTER_THAN_CHANCE = 0.6
OPEN_PERCENT = 10.0
"""A chance of being undecided that is nearer than this to one half is no verdict."""
OTHER = "other words"
NOTHING, SMALL, LARGE = 1e-9, 0.0001, 9999.5
"""What rounding leaves of a number that is zero; what a reader need not know more exactly; and where four digits end."""
Steps = Callable[[str], Progress]
"""Begins a named step and returns its progress callback; see `undertow.app.job_queue.Job.step`."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to a question.

    Attributes:
        sentence: what it means, plainly.
        notes: what a reader must know beside it.
        sample: some of the texts.
        labels: the values [w].
        curves: one for each word group.
        table: a row for each value: the value, percent of each group, each group's fit with its band, and the text.
        scores: for task specification, a row for each score of the sentence; None otherwise.
    """

    sentence: str
    notes: tuple[str, ...]
    sample: str
    labels: tuple[str, ...]
    curves: tuple[Curve, ...]
    table: pd.DataFrame
    scores: pd.DataFrame | None = None


def answer_drift(question: Question, handle: ModelHandle, step: Steps) -> ModelReply:
    """Whether the answer drifts along the values.

    Raises:
        UndertowError: the model cannot be asked this.
    """
    answers = _FittedAnswers.from_model(question, handle, step("asking the model"))
    return answers.reply(_drift_sentence(answers), (_of_one_sentence(answers), *answers.notes))


def answer_specification(question: Question, handle: ModelHandle, step: Steps) -> ModelReply:
    """Whether the sentence decides its blank, by whether the answer moves from the first values to the last.

    Raises:
        UndertowError: the model cannot be asked this, or not enough of the sentences of known kind.
    """
    answers = _FittedAnswers.from_model(question, handle, step("asking the model"))
    reference = _reference(question, handle, step("asking it sentences of known kind, to compare with"))
    judged = _SentenceVerdict.from_answers(answers, reference)
    return answers.reply(judged.sentence(), (*judged.notes(), *answers.notes), judged.scores())


@dataclass(frozen=True, slots=True)
class _FittedAnswers:
    """A question with the model's answers, fitted.

    Attributes:
        question: of the form.
        observations: of the audit.
        percent: what each group has at each value [w], and what other words have.
        fits: of each group.
        q: corrected p-value of a trend in each group, whatever curve is drawn; NaN where it was not tested.
        notes: what the model says of how it was read.
    """

    question: Question
    observations: Observations
    percent: pd.DataFrame
    fits: Mapping[str, Polynomial]
    q: Mapping[str, float]
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def from_model(cls, question: Question, handle: ModelHandle, progress: Progress) -> _FittedAnswers:
        items = question.items()
        scores, notes = _run(handle, items, progress)
        design = {"groups": list(GROUPS), "words": dict(question.pattern.words)}
        observations = spurious_correlation.observe(design, items, scores, handle.identity.name)
        reasons = [reason for reason in scores.missing_reasons if reason]
        if len(items) - len(reasons) < question.degree + 2:
            raise UndertowError(f"The model cannot score this: {reasons[0]}.")
        if reasons:
            notes = (*notes, f"{len(reasons)} of {len(items)} texts could not be scored: {reasons[0]}.")
        percent = _percent(observations.frame, scores.scoring_method, normalise=question.normalise)
        seen = percent[list(GROUPS)].dropna()
        x = np.array(question.covariate.axis)[seen.index]
        p = trend_of_one_series(x, seen.to_numpy().T).p
        fits = {group: fit_polynomial(x, seen[group], question.degree) for group in GROUPS}
        q = dict(zip(GROUPS, map(float, benjamini_hochberg(p)), strict=True))
        return cls(question, observations, percent, fits, q, notes)

    @property
    def mass(self) -> str:
        """Either "share" or "probability"."""
        return "share" if self.question.normalise else "probability"

    def words(self, group: str) -> str:
        """The words of a group, as they stand in a sentence."""
        return f"“{'/'.join(self.question.pattern.words[group])}”"

    def fitted_range(self, group: str) -> tuple[float, float, float, float]:
        """The fitted mass at the first and the last value that was answered, and the least and the most between them.

        A line does not know that there is nothing below 0%, nor above 100%; a reader does.
        """
        fitted = np.clip(self.fits[group].at(self._x()), 0, 100)
        return float(fitted[0]), float(fitted[-1]), float(fitted.min()), float(fitted.max())

    def _x(self) -> np.ndarray:
        seen = self.axis[self.percent[GROUPS[0]].dropna().index]
        return np.linspace(seen[0], seen[-1], CURVE_POINTS)

    @property
    def axis(self) -> Floats:
        """Where each value stands [w]: at its number, or at its place in the list."""
        return np.array(self.question.covariate.axis)

    def reply(self, sentence: str, notes: Sequence[str], scores: pd.DataFrame | None = None) -> ModelReply:
        x = self._x()
        curves = tuple(
            Curve(
                title=f"{group.capitalize()}: {', '.join(self.question.pattern.words[group])}",
                percent=self.percent[group].to_numpy(dtype=np.float64),
                axis=self.axis,
                x=x,
                mean=self.fits[group].at(x),
                low=(band := self.fits[group].band(x))[0],
                high=band[1],
                alt=self._described(group),
            )
            for group in GROUPS
        )
        other = float(self.observations.frame["other_words"].mean())
        if other > MAX_OTHER_PERCENT:
            notes = (
                *notes,
                f"On average {other:.0f}% of the model's probability went to other words, so it hardly took up the question.",
            )
        kept = tuple(dict.fromkeys((*notes, *_of_the_list(self.question.covariate))))
        return ModelReply(sentence, kept, self.question.sample(), self.question.values, curves, self._table(), scores)

    def _described(self, group: str) -> str:
        """Alt text of a figure. It quotes nothing that the visitor typed."""
        first, last, least, most = self.fitted_range(group)
        return (
            f"{group.capitalize()} words at {len(self.question.values)} values: the fitted {self.mass} goes from {first:.1f} to {last:.1f} "
            f"percent, and lies between {least:.1f} and {most:.1f}."
        )

    def _table(self) -> pd.DataFrame:
        table = self.percent.copy()
        table.insert(0, "value", list(self.question.values))
        for group in GROUPS:
            low, high = self.fits[group].band(self.axis)
            table[f"{group} fit"], table[f"{group} low"], table[f"{group} high"] = (
                self.fits[group].at(self.axis), low, high,
            )  # fmt: skip
        return table.assign(text=list(self.observations.frame["text"]))


def _run(handle: ModelHandle, items: Sequence[Item], progress: Progress) -> tuple[Scores, tuple[str, ...]]:
    with AnswerCache(cache_file()) as store:
        result = run_queries(handle, [item.query for item in items], store, EXACT, progress)
    return result.scores, tuple(result.notes)


def _percent(frame: pd.DataFrame, scoring_method: str, *, normalise: bool) -> pd.DataFrame:
    """Percent of each group, and of other words, at each value [w].

    A sentence's likelihood says how its options compare and nothing of other words: what the options have together is then the
    probability of their first tokens at the blank, the rest of which is the probability of other words.
    """
    percent = frame[list(GROUPS)].reset_index(drop=True).astype(float)
    if normalise:
        return percent.mul(100 / percent.sum(axis=1), axis=0)
    other = frame["other_words"].reset_index(drop=True).astype(float)
    if other[percent[GROUPS[0]].notna()].isna().any():
        raise UndertowError(
            "What other words have cannot be read from this model here; tick Normalise, to compare the pronouns alone."
        )
    if scoring_method == LIKELIHOOD:
        percent = percent.mul((100 - other) / 100, axis=0)
    return percent.assign(**{OTHER: other})


# Spurious correlation.


def _drift_sentence(answers: _FittedAnswers) -> str:
    values = answers.question.values
    order = answers.question.covariate.order
    by = "" if answers.question.covariate.numbers or order == data.AS_LISTED else f" ({order})"
    along = f"From {values[0]} to {values[-1]}{by}"
    if all(float(np.ptp(answers.percent[group].dropna())) < SAME_PERCENT for group in GROUPS):
        return f"{along}, the answer does not move at all."
    moved = [group for group in GROUPS if answers.q[group] < ALPHA]
    if moved:
        moves = _moves(answers, moved)
        tested = f"p {_p(max(answers.q[group] for group in moved))}, corrected for {len(GROUPS)} tests"
        return f"{along}, {moves}: the answer drifts with something that does not decide it ({tested})."
    tested_q = [q for q in answers.q.values() if math.isfinite(q)]
    if not tested_q:
        moves = _moves(answers, GROUPS)
        return (
            f"{along}, {moves}; {len(values)} values are too few to tell this from noise that neighbouring values share. "
            f"Ask for {MIN_VALUES} or more."
        )
    least = f" (smallest p {_p(min(tested_q))}, corrected for {len(GROUPS)} tests)"
    return f"{along}, no drift of the answer can be told from noise that neighbouring values share{least}."


def _moves(answers: _FittedAnswers, groups: Sequence[str]) -> str:
    """The movement of the fitted curves, in words."""
    fitted = "line" if answers.question.degree == 1 else "curve"
    return f"by the fitted {fitted}{'s' * (len(groups) > 1)} {_joined([_move(answers, group) for group in groups])}"


def _move(answers: _FittedAnswers, group: str) -> str:
    first, last, least, most = answers.fitted_range(group)
    what = f"the {answers.mass} of {answers.words(group)}"
    if answers.question.degree == 1:
        return f"{what} {'rises' if last > first else 'falls'} from {_percents(first, last)}%"
    return f"{what} moves between {_percents(least, most, 'and')}%"


def _percents(one: float, other: float, between: str = "to") -> str:
    """Two percentages with as many decimals as tell them apart."""
    places = 1 if abs(one - other) >= 0.1 else min(max(1 - math.floor(math.log10(abs(one - other) or 1.0)), 1), 6)
    return f"{one:.{places}f} {between} {other:.{places}f}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {value:.3f}".replace("0.", ".", 1)


def _of_the_list(covariate: data.Covariate) -> list[str]:
    """What the curve is drawn along."""
    if covariate.scale == data.VALUE:
        steps = "The values are numbers, so the curve is fitted to the numbers, however the list orders or spaces them."
    else:
        steps = f"The curve counts each value as one step; the order of the values: {covariate.order}."
    return [steps]


def _of_one_sentence(answers: _FittedAnswers) -> str:
    return (
        "This is one sentence and one model: the band and p say how the values differ for this sentence, not how other sentences would "
        "answer. An audit over a whole challenge set (undertow run spurious-correlation) can say that."
    )


# Task specification.


def _reference(question: Question, handle: ModelHandle, progress: Progress) -> Reference:
    """How far this model's answers move between the same values in sentences of known kind."""
    from undertow.metrics.reference_distribution import Reference

    ends = question.values[: question.endpoint_window] + question.values[-question.endpoint_window :]
    given = data.load_sentences(SCHEMAS)
    injection = data.Injection.parse(INJECTION)
    items = [_detected(item) for item in given.injected(injection, [data.Covariate("value", ends)])]
    scores, _ = _run(handle, items, progress)
    design = {"groups": list(GROUPS), "endpoint_window": question.endpoint_window}
    observations = task_specification.observe(design, items, scores, handle.identity.name)
    return Reference.of(task_specification.scored(observations), given.words)


def _detected(item: Item) -> Item:
    """An item as the audit has it in its first part."""
    return replace(item, factors={"part": task_specification.DETECT, "expected": item.gold or "", **item.factors})


@dataclass(frozen=True, slots=True)
class _SentenceVerdict:
    """A sentence beside those of known kind.

    Attributes:
        answers: to the sentence.
        reference: those of the others.
        row: its scores, by name.
        chance_percent: that it is unspecified; NaN where its words are not those of the reference.
    """

    answers: _FittedAnswers
    reference: Reference
    row: Mapping[str, float]
    chance_percent: float

    @classmethod
    def from_answers(cls, answers: _FittedAnswers, reference: Reference) -> _SentenceVerdict:
        frame = answers.observations.frame.assign(part=task_specification.DETECT, expected="")
        design = {"groups": list(GROUPS), "endpoint_window": answers.question.endpoint_window}
        scored = task_specification.scored(Observations(frame, design))
        if scored["missing_reason"].iloc[0]:
            raise UndertowError(f"The model cannot score this: {scored['missing_reason'].iloc[0]}.")
        chance = float(reference.chances_percent(scored, answers.question.pattern.words)[0])
        names = [name for name in scored.columns if scored[name].dtype == np.float64]
        return cls(answers, reference, {str(name): float(scored[name].iloc[0]) for name in names}, chance)

    @property
    def basis(self) -> str:
        """The score that the verdict rests on."""
        return "combined" if math.isfinite(self.chance_percent) else "total_variation"

    @property
    def accuracy(self) -> float:
        """Accuracy of such verdicts on the reference sentences."""
        return self.reference.accuracy[self.basis]

    @property
    def is_unspecified(self) -> bool:
        if self.basis == "combined":
            return self.chance_percent > 50
        return self.row["total_variation"] > self.reference.thresholds["total_variation"]

    def sentence(self) -> str:
        values, moved = self.answers.question.values, self.row["total_variation"]
        standing = self.reference.standing("total_variation", moved)
        preferred = max(GROUPS, key=lambda group: self.row[f"mean_{group}"])
        prefers = f"the model prefers {self.answers.words(preferred)} ({self.row[f'mean_{preferred}']:.0f}%)"
        said = (
            f"from {values[0]} to {values[-1]} the answer moves by {moved:.1f} points, more than in "
            f"{100 * standing.above_specified:.0f}% of sentences that decide theirs and {100 * standing.above_unspecified:.0f}% of those "
            "that do not"
        )
        if self.accuracy < HARDLY_BETTER_THAN_CHANCE:
            return f"With this model it cannot be told whether the sentence decides its pronoun: {said}; {prefers}."
        if self.basis == "combined" and abs(self.chance_percent - 50) < OPEN_PERCENT:
            return f"It is open whether the sentence decides its pronoun: {said}; {prefers}."
        if self.is_unspecified:
            return f"Nothing in the sentence seems to decide its pronoun: {said}; {prefers}, and that is a guess."
        return f"The sentence seems to decide its pronoun: {said}; {prefers}."

    def notes(self) -> list[str]:
        rests = {
            "combined": f"movement, entropy and shares together, which give it a chance of {self.chance_percent:.0f}% to be undecided",
            "total_variation": f"movement alone, against {self.reference.thresholds['total_variation']:.2g} points, since the sentences of "
            "known kind have no such words",
        }[self.basis]
        hardly = ", which is hardly better than chance" if self.accuracy < HARDLY_BETTER_THAN_CHANCE else ""
        return [
            f"The verdict rests on {rests}. On sentences of known kind that were held out such verdicts are right in "
            f"{100 * self.accuracy:.0f}% (balanced){hardly}."
        ]

    def scores(self) -> pd.DataFrame:
        """A row for each score, and where it stands."""
        import pandas as pd

        titles = {f"delta_{group}": f"movement of {group} words" for group in GROUPS}
        titles |= {
            "total_variation": "movement of all (total variation)",
            "jensen_shannon": "movement of all, % of the most (Jensen-Shannon)",
            "entropy": "indecision, % of the most (entropy)",
        }
        rows = []
        for name, title in titles.items():
            one = self.reference.standing(name, self.row[name])
            rows.append([title, self.row[name], 100 * one.above_unspecified, 100 * one.above_specified])
        return pd.DataFrame(rows, columns=["score", "here", "% below that do not decide", "% below that decide"])


# The table as it is shown.


def cells_of(table: pd.DataFrame) -> list[list[str]]:
    """The table's cells as texts [row][column]; numbers to four digits."""
    return [[_cell(cell) for cell in row] for row in table.itertuples(index=False)]


def _cell(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    if math.isnan(cell):
        return ""
    if NOTHING <= abs(cell) < SMALL:
        return f"below {SMALL}" if cell > 0 else f"above -{SMALL}"
    return f"{cell:.0f}" if abs(cell) >= LARGE else f"{0.0 if abs(cell) < NOTHING else cell:.4g}"
