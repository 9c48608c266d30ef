"""Differences of two runs: every metric on the items that both answered, with an interval and a test against a margin.

The interval is a paired jackknife: both runs are measured without each group of clusters; docs/decisions/023 gives reasons and
coverage. An audit may compute the differences of some metrics itself (its `differences`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from undertow import audits
from undertow.audits.base import Audit
from undertow.errors import UndertowError
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.sentence_templates import sentences
from undertow.runs.compare.equivalence import (
    INNER_HIGH,
    INNER_LOW,
    MARGIN,
    PER,
    Margins,
    fewest_clusters,
    unit_of_difference,
)
from undertow.runs.compare.pairing import Matched, Names, PairedRuns, pair
from undertow.runs.compare.resampling import (
    Key,
    by_key,
    groups_of,
    key_of,
    point_results,
    quick,
    without_each,
)
from undertow.runs.folder.storage import CorruptRunError, Record
from undertow.types import Floats, Result

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from undertow.stats.significance.paired_differences import JackknifeReplicates, PairedErrors

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (tables measured, tables in all)."""

MAX_GROUPS = 50
"""Clusters up to which each is left out by itself; more are dealt into as many groups at random."""
MAX_CROSSED = 30
"""The same of items that are in clusters in two ways, and of their cells."""
CROSSED = ("pair", "soc_code")
"""Columns of an audit whose items share a pair of names with some and an occupation with others."""
TIE_SHARE = 1e-9
"""Values that are nearer than this share of their size differ by rounding only: a tie, which is not tested."""
CHANGED_SHARE = 1e-12
"""A group that moves a value by no more than this share of it has nothing of it."""
EFFECT_OF_W = "w_effect_of_difference"
"""The measure of what W does to a difference, of audits that judge differences themselves."""
ONE_CLUSTER = "All items are in a single cluster, so there is no interval."
SAME_SHARE = 1e-5
"""An interval that is narrower than this share of its difference shows rounding: all clusters share one reading."""
NO_SPREAD = "No cluster differs from the others here, which says little about others: there is no interval."
HANGS = "Without some of its clusters the number is undefined, so there is no interval."
UNJUDGED = "Its noise at each value of W is not known here: there is no interval."
ROUNDED = "The answers differ by rounding only, which decides this number: there is no interval."
BY_PROMPT = "The mean over prompts decides what is claimed."
HIDDEN = "The models do not show all probabilities: the interval covers whatever was not shown."


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two runs.

    Attributes:
        baseline: name of the baseline run: its model, or more where both have the same model.
        differences: of each measure and group, candidate less baseline, with a 95% interval, p of a difference no larger than the margin,
            and Benjamini-Hochberg q over all tests of the same `statement`, over all comparisons of one report; `extras` has both values,
            `margin`, `inner_low` and `inner_high` (90% interval), and the number of clusters. See `equivalence.verdict`.
        seed: of groups and of flipped signs.
        n_answered: of these, items with an answer in both.
        n_alone: items of the baseline only, and of the candidate only.
        identical: whether all answers are the same, to nine digits.
        shared: observations of both on their shared items; a row without an answer in one is missing in both.
    """

    baseline: str
    candidate: str
    differences: Sequence[Result]
    notes: Sequence[str]
    audit: str
    seed: int
    n_items: int
    n_answered: int
    n_alone: tuple[int, int]
    identical: bool
    runs: tuple[Record, Record] = field(repr=False)
    shared: tuple[Record, Record] = field(repr=False)

    def __repr__(self) -> str:
        differences = f"{self.n_items:,} items, {len(self.differences):,} differences"
        return f"{type(self).__name__}({self.audit!r}, {self.baseline!r} against {self.candidate!r}, {differences})"

    def table(self) -> pd.DataFrame:
        """The differences with a column for the measure, each group key, each number and each detail [difference]."""
        import pandas as pd

        return Record({}, pd.DataFrame(), self.differences).results_table()


def silent(done: int, total: int) -> None:
    """No progress is shown."""


def compare(  # noqa: PLR0913 - two runs, and a keyword for each choice
    baseline: Record,
    candidate: Record,
    *,
    seed: int = 0,
    names: tuple[str, str] = ("", ""),
    progress: Progress = silent,
    margin: float | Mapping[str, float] | Margins | None = None,
    models: Matched = (),
) -> Comparison:
    """Compare two runs of one audit, item by item.

    Args:
        baseline: the baseline run.
        candidate: the other run, or the same run with other models.
        seed: of the groups that clusters are dealt into where there are many, and of flipped signs.
        names: names of the runs; by default their models.
        progress: called with (tables measured, tables in all).
        margin: the smallest difference of interest, in the unit of each measure; or by measure; the defaults of
            `undertow.runs.compare.equivalence` if not given.
        models: pairs of models to compare, the baseline's first; by default one with one, or those with the same names.

    Raises:
        UndertowError: the runs are not comparable, and why; or the seed is negative, or a margin.
    """
    # Statistics take most of a second to load, and runs that are made import this room too.
    from undertow.stats.point_estimates import point_estimates

    if seed < 0:
        raise UndertowError(f"seed {seed} is negative; use 0 or more")
    margins = margin if isinstance(margin, Margins) else Margins.from_value(margin)
    called = Names(*(given or own for given, own in zip(names, _names(baseline, candidate), strict=True)))
    audit = audits.load(str(baseline.manifest["audit"]))
    paired = pair(baseline, candidate, audit, called, models)
    with point_estimates():  # one context, so that what measures keep serves all tables
        measured = _Measured.from_pair(audit, paired, seed, called)
    judged = _judged(measured, margins)
    margins.check(measure for measure, _ in (*measured.keys, *judged))
    with point_estimates():
        errors = _errors(measured, judged, margins, progress)
    rows = _Rows(measured, errors, judged, margins, (baseline, candidate), called)
    comparison = Comparison(
        baseline=called.baseline,
        candidate=called.candidate,
        differences=rows.all(chosen=bool(models)),
        notes=_notes(paired, called, (baseline, candidate)),
        audit=str(baseline.manifest["audit"]),
        seed=seed,
        n_items=paired.n_items,
        n_answered=paired.n_answered,
        n_alone=paired.n_alone,
        identical=paired.identical,
        runs=(baseline, candidate),
        shared=(
            replace(baseline, observations=paired.baseline.frame, results=()),
            replace(candidate, observations=paired.candidate.frame, results=()),
        ),
    )
    return corrected([comparison])[0]


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons of one report, with q over the tests of the same statement in all of them.

    Slopes are one statement, effects of W another, and all other measures a third: means and effects at these values of W often do
    differ, and under one correction with them a slope of no drift would be claimed too easily. Where masses were averaged over several
    prompts, a result by prompt has p and no q: the average decides what is claimed.
    """
    from undertow.metrics.multiple_testing import q_values

    every = [(of, one) for of in comparisons for one in of.differences]
    families = [
        None
        if BY_PROMPT in one.note and any(other.measure.endswith(OVER_PROMPTS) for other in of.differences)
        else statement(one)
        for of, one in every
    ]
    q = iter(q_values([one.p for _, one in every], families))
    return [replace(of, differences=[replace(one, q=next(q)) for one in of.differences]) for of in comparisons]


def statement(difference: Result) -> str:
    """The family of tests of a difference: slopes, effects of W, or all other metrics."""
    if PER in difference.unit:
        return "slopes"
    return "effects of W" if difference.measure.removesuffix(OVER_PROMPTS) == EFFECT_OF_W else "all others"


def _names(baseline: Record, candidate: Record) -> tuple[str, str]:
    """Names by model, with the dtype if models are equal, else `baseline` and `candidate`."""
    models, dtypes = (
        [str(record.manifest["model"]) for record in (baseline, candidate)],
        [str(record.manifest.get("model_identity", {}).get("dtype", "")) for record in (baseline, candidate)],
    )
    if models[0] != models[1]:
        return models[0], models[1]
    details = dtypes if dtypes[0] != dtypes[1] else ["baseline", "candidate"]
    return f"{models[0]} ({details[0]})", f"{models[1]} ({details[1]})"


# Measuring.


@dataclass(frozen=True, slots=True)
class _Measured:
    """Both runs, measured on the items that both answered.

    Attributes:
        seed: of groups and of flipped signs.
        baseline, candidate: results by key.
    """

    audit: Audit
    paired: PairedRuns
    seed: int
    baseline: Mapping[Key, Result]
    candidate: Mapping[Key, Result]
    keys: Sequence[Key]

    @classmethod
    def from_pair(cls, audit: Audit, paired: PairedRuns, seed: int, names: Names) -> _Measured:
        try:
            first, second = (
                by_key(_shared_names(point_results(audit, observations, seed), paired, at))
                for at, observations in enumerate((paired.baseline, paired.candidate))
            )
        except CorruptRunError:
            raise
        except UndertowError as error:
            raise UndertowError(
                f"{names.baseline} and {names.candidate} cannot be compared on the {paired.n_answered:,} items that both "
                f"answered: {error}"
            ) from error
        return cls(audit, paired, seed, first, second, list(dict.fromkeys([*first, *second])))

    def values(self, frames: Sequence[pd.DataFrame]) -> tuple[list[Floats], list[Floats]]:
        """Values and numbers of items of both runs on a part of their rows, each [result]; NaN and 0 if missing."""
        sides: list[Mapping[Key, Result]] = []
        for at, (observations, frame) in enumerate(
            zip((self.paired.baseline, self.paired.candidate), frames, strict=True)
        ):
            results: list[Result] = []
            if not frame.empty:
                with suppress(UndertowError):  # too little is left to measure
                    results = point_results(self.audit, replace(observations, frame=frame), self.seed)
            sides.append(by_key(_shared_names(results, self.paired, at)))
        return self.as_arrays(sides)

    def as_arrays(self, sides: Sequence[Mapping[Key, Result]]) -> tuple[list[Floats], list[Floats]]:
        """Values and numbers of items of both runs, each [result]."""
        values = [np.array([one[key].value if key in one else math.nan for key in self.keys]) for one in sides]
        counts = [np.array([float(one[key].n) if key in one else 0.0 for key in self.keys]) for one in sides]
        return values, counts

    def open_by(self, key: Key) -> float:
        """Largest error of a difference from probability that the models did not show; 0 if they showed all."""
        sides = [one[key] for one in (self.baseline, self.candidate) if key in one]
        return sum(
            max(one.value - one.extras["bound_low"], one.extras["bound_high"] - one.value)
            for one in sides
            if math.isfinite(one.value) and {"bound_low", "bound_high"} <= set(one.extras)
        )


def _shared_names(results: Sequence[Result], paired: PairedRuns, at: int) -> list[Result]:
    """Results with keys that both runs share: without the model where one model is compared with one."""
    if len(paired.models) > 1:
        return list(results)
    own = paired.models[0][at]
    return [
        replace(one, group={name: level for name, level in one.group.items() if name != "model"})
        if one.group.get("model") == own
        else one
        for one in results
    ]


def _judged(measured: _Measured, margins: Margins) -> dict[Key, Result]:
    """Differences that the audit computes itself, by key; {} if it computes none."""
    paired = measured.paired

    def margin(result: Result) -> float:
        (named,) = _shared_names([result], paired, 0)
        return margins.margin(result) + measured.open_by(key_of(named))

    results = measured.audit.differences(paired.baseline, paired.candidate, margin, measured.seed)
    return by_key(_shared_names(results, paired, 0))


def _errors(
    measured: _Measured, judged: Mapping[Key, Result], margins: Margins, progress: Progress
) -> PairedErrors | None:
    """Jackknife errors of the differences [result]; None if all answers are equal."""
    from undertow.stats.significance.paired_differences import JackknifeReplicates, paired_errors

    if measured.paired.identical or not measured.keys:
        return None
    frames = [quick(observations.frame) for observations in (measured.paired.baseline, measured.paired.candidate)]
    ways, n_most = _ways(frames[0])
    groups = [groups_of(labels, n_most, measured.seed) for labels in ways]
    cells = (
        groups_of([f"{a}\x1f{b}" for a, b in zip(*ways, strict=True)], n_most, measured.seed) if len(ways) > 1 else None
    )
    total, done = sum(n for _, n in [*groups, *([cells] if cells else [])]), 0
    whole = measured.as_arrays((measured.baseline, measured.candidate))
    progress(0, total)

    def left(grouped: tuple[NDArray[Any], int]) -> JackknifeReplicates:
        nonlocal done
        without, counting = [], []
        for both in zip(*(without_each(frame, *grouped) for frame in frames), strict=True):
            recomputed = measured.values(both)
            without.append(recomputed[0][1] - recomputed[0][0])
            counting.append(_changed(whole, recomputed))
            done += 1
            progress(done, total)
        return JackknifeReplicates(np.array(without), np.array(counting))

    return paired_errors(
        whole[0][1] - whole[0][0],
        [left(one) for one in groups],
        left(cells) if cells else None,
        seed=measured.seed,
        margins=[
            margins.margin(replace(one, unit=unit_of_difference(one.unit))) + measured.open_by(key)
            for key in measured.keys
            for one in [measured.baseline.get(key) or measured.candidate[key]]
        ],
        sizes=np.nan_to_num(np.abs(whole[0]).max(axis=0)),
    )


def _changed(whole: tuple[list[Floats], list[Floats]], left: tuple[list[Floats], list[Floats]]) -> NDArray[np.bool_]:
    """Whether a result depends on a left-out group: its value or number of items changes [result]."""
    changed = np.zeros(len(whole[0][0]), dtype=np.bool_)
    for before, after in zip(whole[1], left[1], strict=True):
        changed |= before != after
    for before, after in zip(whole[0], left[0], strict=True):
        changed |= ~(np.abs(after - before) <= CHANGED_SHARE * np.abs(before))  # a value that is gone has changed
    return changed


def _ways(frame: pd.DataFrame) -> tuple[list[list[str]], int]:
    """Cluster labels of each row, for one or two clusterings [way][row], and the most clusters to leave out one by one."""
    if not all(name in frame for name in CROSSED):
        # An audit that names no clusters takes its items for independent.
        return [frame["cluster" if "cluster" in frame else "item"].astype(str).tolist()], MAX_GROUPS
    names = ["category", "attribute"]
    what = frame[names].astype(str).agg("/".join, axis=1) if all(name in frame for name in names) else ""
    codes = frame["soc_code"].astype(str)
    # A question about an attribute is of no occupation: there the attribute is what others share.
    pairs = frame["pair"].astype(str)
    clusters = frame["cluster"].astype(str) if "cluster" in frame else pairs
    return [clusters.where(clusters != "", pairs).tolist(), codes.where(codes != "", what).tolist()], MAX_CROSSED


# Telling.


@dataclass(frozen=True, slots=True)
class _Rows:
    """Builds the rows of differences.

    Attributes:
        measured: both runs, on the items of both.
        errors: jackknife errors; None if all answers are equal.
        judged: differences that the audit computes itself.
        margins: smallest differences of interest.
    """

    measured: _Measured
    errors: PairedErrors | None
    judged: Mapping[Key, Result]
    margins: Margins
    runs: tuple[Record, Record]
    names: Names

    def all(self, *, chosen: bool) -> list[Result]:
        """A difference for each result of either run; also for other models, unless the caller chose pairs of models."""
        paired = self.measured.paired
        own = []
        for at, run in enumerate(self.runs):
            models = ("", "all", *(one[at] for one in paired.models))
            recorded = [one for one in run.results if not chosen or one.group.get("model", "") in models]
            own.append(by_key(_shared_names(recorded, paired, at)))
        rows = [self._difference(at, key, own) for at, key in enumerate(self.measured.keys)]
        rows += [self._added(result) for key, result in self.judged.items() if key not in set(self.measured.keys)]
        rows += [
            self._missing(key, own)
            for key in dict.fromkeys([*own[0], *own[1]])
            # A result that uses no model's answers, such as a baseline, does not differ.
            if key not in {*self.measured.keys, *self.judged}
            and not any(one[key].group.get("model") == "" for one in own if key in one)
        ]
        # Metrics that the audit replaces by one of the difference, and results by prompt where results over prompts decide.
        replaced = {measure.replace("_of_difference", "") for measure, _ in self.judged if "_of_difference" in measure}
        averaged = {_facet(one) for one in rows if one.measure.endswith(OVER_PROMPTS)}
        return [
            replace(one, note=" ".join(filter(None, [one.note, BY_PROMPT])))
            if not one.measure.endswith(OVER_PROMPTS) and _facet(one) in averaged
            else one
            for one in rows
            if one.measure not in replaced
        ]

    def _difference(self, at: int, key: Key, own: Sequence[Mapping[Key, Result]]) -> Result:
        sides = [one.get(key) for one in (self.measured.baseline, self.measured.candidate)]
        one = next(result for result in sides if result is not None)
        values = [math.nan if result is None else result.value for result in sides]
        judged = self.judged.get(key)
        value = values[1] - values[0]
        if judged is not None and math.isfinite(judged.value):
            value = judged.value if math.isfinite(value) else value
        if abs(value) <= TIE_SHARE * max(map(abs, values)):
            value = 0.0
        n, n_shared = min(0 if result is None else result.n for result in sides), one.n + one.n_missing
        recorded = [of[key] for of in own if key in of]
        result = Result(
            measure=one.measure,
            group=_displayed_group(one.group, self.measured.paired),
            value=value,
            n=n,
            # And items of this result that only one run has.
            n_missing=max(0, n_shared - n) + sum(max(0, of.n + of.n_missing - n_shared) for of in recorded),
            unit=unit_of_difference(one.unit),
            null_value=0.0,
            extras={"baseline": values[0], "candidate": values[1]},
        )
        if not math.isfinite(value):
            return replace(result, value=math.nan, note=self._why_not(sides))
        if judged is not None:
            errors = _Errors(judged.low, judged.high, judged.p, judged.extras, judged.note)
        else:
            errors = _Errors(note=UNJUDGED) if self.judged and PER in one.unit else self._clustered(at, result)
        margin = self.margins.margin(replace(result, extras=errors.detail))
        errors = _of_identical(result, errors, self._n_clusters) if self.errors is None else errors
        errors = _widened(errors, self.measured.open_by(key))
        detail = {**result.extras, MARGIN: margin, **errors.detail}
        # A tie is not tested, and what has no interval is not either: without one nothing is claimed.
        p = errors.p if value != 0.0 and math.isfinite(errors.low) else math.nan
        return replace(result, low=errors.low, high=errors.high, p=p, extras=detail, note=errors.note)

    @property
    def _n_clusters(self) -> int:
        """Number of shared clusters; for two clusterings, the smaller number."""
        counts = [len(set(labels)) for labels in _ways(self.measured.paired.baseline.frame)[0]]
        return min((count for count in counts if count > 1), default=1)

    def _clustered(self, at: int, result: Result) -> _Errors:
        """Errors from leaving out clusters."""
        if self.errors is None:
            return _Errors()
        low, high, inner_low, inner_high, p = (
            float(one[at])
            for one in (
                self.errors.low, self.errors.high, self.errors.inner_low, self.errors.inner_high, self.errors.p,
            )
        )  # fmt: skip
        n_clusters = int(self.errors.n_clusters[at])
        size = max(abs(number) for number in (*result.extras.values(), 0.0))
        none = _Errors(detail={"n_clusters": float(n_clusters)})
        if n_clusters < 2:
            # Nothing changes where no cluster has anything else than the others, as where all were answered rightly.
            return replace(none, note=NO_SPREAD if n_clusters == 0 else ONE_CLUSTER)
        if n_clusters < fewest_clusters():
            return replace(none, note=too_few(n_clusters))
        if math.isnan(low):
            return replace(none, note=HANGS)
        if high - low <= max(TIE_SHARE * size, SAME_SHARE * abs(result.value)):
            return replace(none, note=NO_SPREAD)
        return _Errors(low, high, p, {**none.detail, INNER_LOW: inner_low, INNER_HIGH: inner_high})

    def _added(self, judged: Result) -> Result:
        """A difference that the audit adds."""
        result = replace(judged, group=_displayed_group(judged.group, self.measured.paired))
        margin = self.margins.margin(result)
        errors = _Errors(judged.low, judged.high, judged.p, judged.extras, judged.note)
        if self.errors is None:
            result = replace(result, value=0.0 if result.value == 0 else math.nan)
            errors = _of_identical(result, errors, self._n_clusters)
        detail = {"baseline": math.nan, "candidate": math.nan, MARGIN: margin, **errors.detail}
        p = errors.p if math.isfinite(errors.low) else math.nan
        return replace(result, low=errors.low, high=errors.high, p=p, extras=detail, note=errors.note)

    def _missing(self, key: Key, own: Sequence[Mapping[Key, Result]]) -> Result:
        """The row of a recorded result that cannot be measured on the shared items."""
        sides = [one.get(key) for one in own]
        one = next(result for result in sides if result is not None)
        return Result(
            measure=one.measure,
            group=_displayed_group(one.group, self.measured.paired),
            value=math.nan,
            n_missing=max(result.n + result.n_missing for result in sides if result is not None),
            unit=unit_of_difference(one.unit),
            null_value=0.0,
            extras={"baseline": math.nan, "candidate": math.nan},
            note=self._why_not(sides) if None in sides else "It is not measured on the items that both have.",
        )

    def _why_not(self, sides: Sequence[Result | None]) -> str:
        """Why a difference is missing."""
        said = []
        for name, result in zip(self.names, sides, strict=True):
            if result is None:
                said.append(f"{name} has no such number.")
            elif not math.isfinite(result.value):
                said.append(f"{name}: {result.note or 'it has no value.'}")
        return " ".join(said)


@dataclass(frozen=True, slots=True)
class _Errors:
    """The errors of one difference.

    Attributes:
        low, high: 95% interval; NaN where there is none.
        p: of a difference no larger than the margin; NaN where it is not tested.
        detail: `inner_low`, `inner_high` and further numbers.
    """

    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    detail: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def too_few(n_clusters: int) -> str:
    """Why so few clusters have no interval."""
    return f"There is no interval and no test with {n_clusters} clusters; both need at least {fewest_clusters()}."


def _of_identical(result: Result, errors: _Errors, n_clusters: int) -> _Errors:
    """Errors of identical runs: all zero, if there are enough clusters for an interval."""
    detail = {name: number for name, number in errors.detail.items() if name in ("n_clusters", "n_w", "w_span")}
    if result.value != 0.0:
        return _Errors(detail=detail, note=ROUNDED)
    if n_clusters < fewest_clusters():
        return _Errors(detail={**detail, "n_clusters": float(n_clusters)}, note=too_few(n_clusters))
    return _Errors(0.0, 0.0, detail={**detail, INNER_LOW: 0.0, INNER_HIGH: 0.0})


def _widened(errors: _Errors, by: float) -> _Errors:
    """Widen an interval by the probability that the models did not show."""
    if by == 0 or math.isnan(errors.low):
        return errors
    inner = {name: errors.detail[name] + sign * by for name, sign in ((INNER_LOW, -1), (INNER_HIGH, 1))}
    return replace(
        errors,
        low=errors.low - by,
        high=errors.high + by,
        detail={**errors.detail, **inner},
        note=" ".join(filter(None, [errors.note, HIDDEN])),
    )


def _facet(one: Result) -> tuple[object, ...]:
    """The metric and group of a result, whatever its prompt."""
    levels = sorted((name, level) for name, level in one.group.items() if name != "prompt")
    return (one.measure.removesuffix(OVER_PROMPTS), *levels)


def _displayed_group(group: Mapping[str, str], paired: PairedRuns) -> dict[str, str]:
    """The group without the model where one model is compared with one, unless it is another model of a run."""
    own = {name for one in paired.models for name in one}
    level = group.get("model", "")
    of_others = len(paired.models) > 1 or (level not in ("", "all") and level not in own)
    return {name: one for name, one in group.items() if name != "model" or of_others}


def _notes(paired: PairedRuns, names: Names, runs: tuple[Record, Record]) -> list[str]:
    """Notes on what was compared and left out, on clusters that are grouped, on reduced precision and on other versions."""
    said = sentences("comparison")
    notes = [said.compared(paired.n_answered)]
    if paired.readings:
        readings = " and ".join(f"{name} by {way}" for name, way in zip(names, paired.readings, strict=True))
        notes.append(
            f"The runs were read in different ways, {readings}: differences are of the models and of the ways together."
        )
    if paired.n_items > paired.n_answered:
        notes.append(said.unanswered(paired.n_items - paired.n_answered))
    notes += [said.alone(n, name) for name, n in zip(names, paired.n_alone, strict=True) if n]
    notes += [said.left_out(name, others) for name, others in zip(names, paired.others, strict=True) if others]
    ways, n_most = _ways(paired.baseline.frame)
    counts = [] if paired.identical else [len(set(labels)) for labels in ways]
    notes += [said.dealt(n, n_most) for n in counts if n > n_most]
    for run, name in zip(runs, names, strict=True):
        notes += [f"{name}: {sentence}" for sentence in run.manifest.get("precision", {}).get("sentences", ())]
    versions = [str(run.manifest["versions"].get("undertow", "")) for run in runs]
    if versions[0] != versions[1]:
        notes.append(
            f"The runs were made by Undertow {versions[0]} and {versions[1]}; this version measured both again."
        )
    return notes
