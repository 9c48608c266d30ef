"""Differences of two runs: every metric on the items that both answered, with an interval and a test against a margin.

The interval is a paired jackknife that omits each group of clusters from both runs; docs/decisions/023 has reasons and coverage. An
audit may compute the differences of some metrics itself (`Audit.differences`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import audits
from undertow.audits.base import Audit
from undertow.errors import UndertowError
from undertow.metrics.metric import OVER_PROMPTS
from undertow.metrics.text.judgements import JUDGEMENT_MEASURES
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
from undertow.runs.compare.pairing import IncomparablePairError, Matched, Names, PairedRuns, pair
from undertow.runs.compare.resampling import (
    Key,
    by_key,
    groups_of,
    key_of,
    results_with_rates,
    with_object_columns,
    without_each,
)
from undertow.runs.folder.storage import CorruptRunError, Record
from undertow.types import Floats, Progress, Result, no_progress

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from undertow.stats.significance.sign_flip import JackknifeReplicates, PairedErrors

MAX_GROUPS = 50
"""Maximum number of jackknife groups; more clusters are assigned to groups at random."""
MAX_CROSSED = 30
"""Maximum number of groups with two clusterings, and of their cells."""
CROSSED = ("pair", "soc_code")
"""Columns of the two clusterings of the occupation checklist."""
TIE_SHARE = 1e-9
"""Relative difference below which values are ties, which are not tested."""
CHANGED_SHARE = 1e-12
"""Relative change below which a group does not contribute to a value."""
SAME_SHARE = 1e-5
"""Relative width below which an interval is rounding error: all clusters have the same difference."""
WHOLES = {"share": 1.0, "percent": 100.0}
"""Units of rates and the size of a whole: an interval of a difference of rates is cut there."""
ONE_CLUSTER = "All items are in a single cluster, so there is no interval."
NO_SPREAD = "All clusters have the same difference, so there is no interval."
HANGS = "Without some of its clusters the value is undefined, so there is no interval."
UNJUDGED = "The noise at each value of W is unknown here, so there is no interval."
ROUNDED = "The answers differ by rounding only, which determines this value, so there is no interval."
BY_PROMPT = "Only the mean over prompts is tested."
HIDDEN = "The models hide some probability; the interval covers its bounds."


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two runs.

    Attributes:
        baseline, candidate: names of the runs.
        differences: of each measure and group, candidate minus baseline, with a 95% interval, p of a difference within the margin, and
            Benjamini-Hochberg q over all tests of the same `statement` in one report; `extras` has both values, `margin`, `inner_low` and
            `inner_high` (90% interval), and the number of clusters. See `equivalence.verdict`.
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
        """The differences with a column for the measure, each group key, each estimate and each extra [difference]."""
        import pandas as pd

        return Record({}, pd.DataFrame(), self.differences).results_table()


def compare(  # noqa: PLR0913 - two runs, and a keyword for each choice
    baseline: Record,
    candidate: Record,
    *,
    names: tuple[str, str],
    seed: int = 0,
    progress: Progress = no_progress,
    margins: Margins | None = None,
    models: Matched = (),
) -> Comparison:
    """Compare two runs of one audit, item by item.

    Args:
        baseline: the baseline run.
        candidate: the other run, or the same run with other models.
        names: names of the runs.
        seed: of the groups that clusters are dealt into where there are many, and of flipped signs.
        progress: called with (tables measured, tables in all).
        margins: smallest differences of interest; None for the defaults.
        models: pairs of models to compare, the baseline's first; by default one with one, or those with the same names.

    Raises:
        UndertowError: the runs are not comparable, the seed is negative, or a margin is of no metric that is compared.
    """
    # Import statistics here: they take most of a second, and other code imports this module too.
    from undertow.stats.context import point_estimates

    if seed < 0:
        raise UndertowError(f"seed {seed} is negative; use 0 or more")
    runs, called = (baseline, candidate), Names(*names)
    audit = audits.load(str(baseline.manifest["audit"]))
    paired = pair(baseline, candidate, audit, called, models)
    with point_estimates():  # one context for all tables, so that caches of measures are shared
        measured = _PairedResults.from_pair(audit, paired, seed, margins or Margins(), called)
    own = measured.own_differences()
    measured.margins.check(measure for measure, _ in (*measured.keys, *own))
    with point_estimates():
        errors = measured.errors(progress)
    comparison = Comparison(
        baseline=called.baseline,
        candidate=called.candidate,
        differences=_Rows(measured, errors, own, runs, called).all(chosen=bool(models)),
        notes=_notes(measured, called, runs),
        audit=str(baseline.manifest["audit"]),
        seed=seed,
        n_items=paired.n_items,
        n_answered=paired.n_answered,
        n_alone=paired.n_alone,
        identical=paired.identical,
        runs=runs,
        shared=(
            replace(baseline, observations=paired.baseline.frame, results=()),
            replace(candidate, observations=paired.candidate.frame, results=()),
        ),
    )
    return corrected([comparison])[0]


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Comparisons of one report, with q over the tests of the same statement in all of them.

    Slopes, effects of W, and all other measures are corrected separately: means and effects often differ, and a joint correction would
    make false claims about slopes too likely. With several prompts, results by prompt have p but no q; only averages over prompts are
    tested.
    """
    from undertow.stats.significance.false_discovery import q_values

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
    return "effects of W" if difference.measure.removesuffix(OVER_PROMPTS) == "w_effect_of_difference" else "all others"


@dataclass(frozen=True, slots=True)
class _PairedResults:
    """Both runs, measured on the items that both answered.

    Attributes:
        sides: results of the baseline and of the candidate, by key.
        ways: cluster labels of each row, for one or two clusterings [way][row].
        max_groups: maximum number of jackknife groups.
    """

    audit: Audit
    paired: PairedRuns
    seed: int
    margins: Margins
    sides: Sequence[Mapping[Key, Result]]
    keys: Sequence[Key]
    ways: Sequence[Sequence[str]]
    max_groups: int

    @classmethod
    def from_pair(cls, audit: Audit, paired: PairedRuns, seed: int, margins: Margins, names: Names) -> _PairedResults:
        try:
            sides = [
                by_key(_shared_names(results_with_rates(audit, observations, seed), paired, at))
                for at, observations in enumerate((paired.baseline, paired.candidate))
            ]
        except CorruptRunError:
            raise
        except UndertowError as error:
            pair_name = f"{names.baseline} and {names.candidate}"
            reason = f"cannot be compared on the {paired.n_answered:,} items that both answered: {error}"
            raise IncomparablePairError(f"{pair_name} {reason}", f"{pair_name} {reason}") from error
        return cls(audit, paired, seed, margins, sides, list(sides[0] | sides[1]), *_clusterings(paired.baseline.frame))

    @property
    def n_clusters(self) -> int:
        """Number of shared clusters; for two clusterings, the smaller number."""
        return min((count for labels in self.ways if (count := len(set(labels))) > 1), default=1)

    def values(self, frames: Sequence[pd.DataFrame]) -> tuple[Floats, Floats]:
        """Values and numbers of items of both runs on a part of their rows, each [run, result]; NaN and 0 if missing."""
        sides: list[Mapping[Key, Result]] = []
        for at, observations in enumerate((self.paired.baseline, self.paired.candidate)):
            results: list[Result] = []
            if not frames[at].empty:
                with suppress(UndertowError):  # too few rows to measure
                    results = results_with_rates(self.audit, replace(observations, frame=frames[at]), self.seed)
            sides.append(by_key(_shared_names(results, self.paired, at)))
        return self.as_arrays(sides)

    def as_arrays(self, sides: Sequence[Mapping[Key, Result]]) -> tuple[Floats, Floats]:
        """Values and numbers of items of both runs, each [run, result]."""
        values = [[side[key].value if key in side else math.nan for key in self.keys] for side in sides]
        counts = [[float(side[key].n) if key in side else 0.0 for key in self.keys] for side in sides]
        return np.array(values), np.array(counts)

    def open_by(self, key: Key) -> float:
        """Largest error of a difference from hidden probability; 0 if the models hide none."""
        return sum(
            max(one.value - one.extras["bound_low"], one.extras["bound_high"] - one.value)
            for side in self.sides
            if (one := side.get(key)) and math.isfinite(one.value) and {"bound_low", "bound_high"} <= set(one.extras)
        )

    def own_differences(self) -> dict[Key, Result]:
        """Differences that the audit computes itself, by key; {} if it computes none."""

        def margin(result: Result) -> float:
            (named,) = _shared_names([result], self.paired, 0)
            return self.margins.margin(result) + self.open_by(key_of(named))

        results = self.audit.differences(self.paired.baseline, self.paired.candidate, margin, self.seed)
        return by_key(_shared_names(results, self.paired, 0))

    def errors(self, progress: Progress) -> PairedErrors | None:
        """Jackknife errors of the differences [result]; None if all answers are equal."""
        from undertow.stats.significance.sign_flip import JackknifeReplicates, paired_errors

        if self.paired.identical or not self.keys:
            return None
        frames = [with_object_columns(one.frame) for one in (self.paired.baseline, self.paired.candidate)]
        ways = list(self.ways)
        if len(ways) > 1:  # and the cells of both clusterings
            ways.append([f"{a}\x1f{b}" for a, b in zip(*ways, strict=True)])
        groups = [groups_of(labels, self.max_groups, self.seed) for labels in ways]
        total, done = sum(n for _, n in groups), 0
        values, counts = self.as_arrays(self.sides)
        progress(0, total)

        def left_out(grouped: tuple[NDArray[Any], int]) -> JackknifeReplicates:
            nonlocal done
            without, counting = [], []
            for both in zip(*(without_each(frame, *grouped) for frame in frames), strict=True):
                own_values, own_counts = self.values(both)
                without.append(own_values[1] - own_values[0])
                # A result depends on a group if its value or number of items changes, or its value becomes undefined.
                moved = ~(np.abs(own_values - values) <= CHANGED_SHARE * np.abs(values))
                counting.append((moved | (own_counts != counts)).any(axis=0))
                done += 1
                progress(done, total)
            return JackknifeReplicates(np.array(without), np.array(counting))

        replicates = [left_out(one) for one in groups]
        margins = [
            self.margins.margin(replace(one, unit=unit_of_difference(one.unit))) + self.open_by(key)
            for key in self.keys
            for one in [self.sides[0].get(key) or self.sides[1][key]]
        ]
        return paired_errors(
            values[1] - values[0],
            replicates[: len(self.ways)],
            replicates[-1] if len(self.ways) > 1 else None,
            seed=self.seed,
            margins=margins,
            sizes=np.nan_to_num(np.abs(values).max(axis=0)),
        )


def _shared_names(results: Sequence[Result], paired: PairedRuns, at: int) -> list[Result]:
    """Results with common keys of both runs: without the model if one model is compared with one."""
    if len(paired.models) > 1:
        return list(results)
    own = paired.models[0][at]
    return [
        replace(one, group={name: level for name, level in one.group.items() if name != "model"})
        if one.group.get("model") == own
        else one
        for one in results
    ]


def _clusterings(frame: pd.DataFrame) -> tuple[list[list[str]], int]:
    """Cluster labels of each row, for one or two clusterings [way][row], and the maximum number of jackknife groups."""
    if not all(name in frame for name in CROSSED):
        # Without clusters, the items are independent.
        return [frame["cluster" if "cluster" in frame else "item"].astype(str).tolist()], MAX_GROUPS
    names = ["category", "attribute"]
    what = frame[names].astype(str).agg("/".join, axis=1) if all(name in frame for name in names) else ""
    codes = frame["soc_code"].astype(str)
    # A question about an attribute has no occupation; its cluster is the attribute.
    pairs = frame["pair"].astype(str)
    clusters = frame["cluster"].astype(str) if "cluster" in frame else pairs
    return [clusters.where(clusters != "", pairs).tolist(), codes.where(codes != "", what).tolist()], MAX_CROSSED


@dataclass(frozen=True, slots=True)
class _Rows:
    """Builds the rows of differences; `own` are those that the audit computes itself, and `errors` is None if all answers are equal."""

    measured: _PairedResults
    errors: PairedErrors | None
    own: Mapping[Key, Result]
    runs: tuple[Record, Record]
    names: Names

    def all(self, *, chosen: bool) -> list[Result]:
        """A difference for each result of either run; also for other models, unless the caller chose pairs of models."""
        measured, paired = self.measured, self.measured.paired
        recorded = []
        for at, run in enumerate(self.runs):
            models = ("", "all", *(one[at] for one in paired.models))
            own = [
                one
                for one in run.results
                if one.measure not in JUDGEMENT_MEASURES and (not chosen or one.group.get("model", "") in models)
            ]
            recorded.append(by_key(_shared_names(own, paired, at)))
        rows = [self._measured_row(at, key, recorded) for at, key in enumerate(measured.keys)]
        rows += [self._added_row(own) for key, own in self.own.items() if key not in measured.keys]
        rows += [
            self._missing_row([one.get(key) for one in recorded])
            for key in recorded[0] | recorded[1]
            # Results that use no answers, such as baselines, do not differ.
            if key not in {*measured.keys, *self.own}
            and not any(one[key].group.get("model") == "" for one in recorded if key in one)
        ]
        # Metrics that the audit replaces by a metric of the difference, and results by prompt if averages over prompts are tested.
        replaced = {measure.replace("_of_difference", "") for measure, _ in self.own if "_of_difference" in measure}
        averaged = {_facet(one) for one in rows if one.measure.endswith(OVER_PROMPTS)}
        return [
            replace(one, note=f"{one.note} {BY_PROMPT}".strip())
            if not one.measure.endswith(OVER_PROMPTS) and _facet(one) in averaged
            else one
            for one in rows
            if one.measure not in replaced
        ]

    def _measured_row(self, at: int, key: Key, recorded: Sequence[Mapping[Key, Result]]) -> Result:
        sides, own = [side.get(key) for side in self.measured.sides], self.own.get(key)
        one = next(result for result in sides if result is not None)
        values = [math.nan if result is None else result.value for result in sides]
        value = values[1] - values[0]
        if own is not None and math.isfinite(own.value) and math.isfinite(value):
            value = own.value
        if abs(value) <= TIE_SHARE * max(map(abs, values)):
            value = 0.0
        n, n_shared = min(0 if result is None else result.n for result in sides), one.n + one.n_missing
        of_one_run = sum(max(0, of[key].n + of[key].n_missing - n_shared) for of in recorded if key in of)
        result = Result(
            measure=one.measure,
            group=self._displayed_group(one),
            value=value,
            n=n,
            n_missing=max(0, n_shared - n) + of_one_run,
            unit=unit_of_difference(one.unit),
            null_value=0.0,
            extras={"baseline": values[0], "candidate": values[1]},
        )
        if not math.isfinite(value):
            return replace(result, value=math.nan, note=self._why_not(sides))
        if own is None:
            unknown = self.own and PER in one.unit
            own = replace(result, extras={}, note=UNJUDGED) if unknown else self._clustered(at, result)
        result = self._with_errors(result, own, self.measured.open_by(key))
        if (whole := WHOLES.get(one.unit)) is None or not all(0 <= value <= whole for value in values):
            return result
        ends = {
            name: float(np.clip(end, -whole, whole))
            for name, end in result.extras.items()
            if name in (INNER_LOW, INNER_HIGH)
        }
        low, high = np.clip((result.low, result.high), -whole, whole).tolist()
        return replace(result, low=low, high=high, extras={**result.extras, **ends})

    def _added_row(self, own: Result) -> Result:
        """A difference that the audit adds."""
        value = own.value if self.errors is not None or own.value == 0 else math.nan
        sides = dict.fromkeys(("baseline", "candidate"), math.nan)
        result = replace(own, group=self._displayed_group(own), value=value, extras=sides)
        return self._with_errors(result, own, 0.0)

    def _with_errors(self, result: Result, errors: Result, open_by: float) -> Result:
        """A difference with the interval, p, note and extras of `errors`, widened by hidden probability."""
        margin = self.measured.margins.margin(replace(result, extras=errors.extras))
        errors = self._of_identical(result, errors) if self.errors is None else errors
        if open_by and math.isfinite(errors.low):
            inner = {name: errors.extras[name] + by for name, by in ((INNER_LOW, -open_by), (INNER_HIGH, open_by))}
            errors = replace(
                errors,
                low=errors.low - open_by,
                high=errors.high + open_by,
                extras={**errors.extras, **inner},
                note=f"{errors.note} {HIDDEN}".strip(),
            )
        # Ties, and differences without an interval, are not tested.
        is_tie = result.value == 0.0 and math.isfinite(result.extras["baseline"])
        p = errors.p if not is_tie and math.isfinite(errors.low) else math.nan
        extras = {**result.extras, MARGIN: margin, **errors.extras}
        return replace(result, low=errors.low, high=errors.high, p=p, extras=extras, note=errors.note)

    def _clustered(self, at: int, result: Result) -> Result:
        """The difference with jackknife errors."""
        if self.errors is None:
            return replace(result, extras={})
        low, high, p = float(self.errors.low[at]), float(self.errors.high[at]), float(self.errors.p[at])
        n_clusters = int(self.errors.n_clusters[at])
        size = max(abs(number) for number in (*result.extras.values(), 0.0))
        result = replace(result, extras={"n_clusters": float(n_clusters)})
        if n_clusters < 2:
            # No replicate changes if all clusters are equal, for example if all answers are right.
            return replace(result, note=NO_SPREAD if n_clusters == 0 else ONE_CLUSTER)
        if n_clusters < fewest_clusters():
            return replace(result, note=too_few(n_clusters))
        if math.isnan(low):
            return replace(result, note=HANGS)
        if high - low <= max(TIE_SHARE * size, SAME_SHARE * abs(result.value)):
            return replace(result, note=NO_SPREAD)
        inner = {INNER_LOW: float(self.errors.inner_low[at]), INNER_HIGH: float(self.errors.inner_high[at])}
        return replace(result, low=low, high=high, p=p, extras={**result.extras, **inner})

    def _of_identical(self, result: Result, errors: Result) -> Result:
        """Errors of identical runs: all zero, if there are enough clusters for an interval."""
        n_clusters = self.measured.n_clusters
        extras = {name: number for name, number in errors.extras.items() if name in ("n_clusters", "n_w", "w_span")}
        none = replace(errors, low=math.nan, high=math.nan, p=math.nan, extras=extras, note=ROUNDED)
        if result.value != 0.0:
            return none
        if n_clusters < fewest_clusters():
            return replace(none, extras={**extras, "n_clusters": float(n_clusters)}, note=too_few(n_clusters))
        return replace(none, low=0.0, high=0.0, extras={**extras, INNER_LOW: 0.0, INNER_HIGH: 0.0}, note="")

    def _missing_row(self, sides: Sequence[Result | None]) -> Result:
        """The row of a recorded result that cannot be measured on the shared items."""
        known = [result for result in sides if result is not None]
        return Result(
            measure=known[0].measure,
            group=self._displayed_group(known[0]),
            value=math.nan,
            n_missing=max(result.n + result.n_missing for result in known),
            unit=unit_of_difference(known[0].unit),
            null_value=0.0,
            extras={"baseline": math.nan, "candidate": math.nan},
            note=self._why_not(sides) if None in sides else "It is undefined on the common items.",
        )

    def _why_not(self, sides: Sequence[Result | None]) -> str:
        """Reason of a missing difference."""
        reasons = []
        for name, result in zip(self.names, sides, strict=True):
            if result is None:
                reasons.append(f"{name} has no such result.")
            elif not math.isfinite(result.value):
                reasons.append(f"{name}: {result.note or 'it has no value.'}")
        return " ".join(reasons)

    def _displayed_group(self, result: Result) -> dict[str, str]:
        """The group without the model if one model is compared with one, unless it is another model of a run."""
        models = self.measured.paired.models
        own = {"", "all", *(name for one in models for name in one)}
        has_model = len(models) > 1 or result.group.get("model", "") not in own
        return {name: level for name, level in result.group.items() if name != "model" or has_model}


def too_few(n_clusters: int) -> str:
    """Reason why too few clusters have no interval."""
    return f"There is no interval and no test with {n_clusters} clusters; both need at least {fewest_clusters()}."


def _facet(one: Result) -> tuple[object, ...]:
    """The metric and group of a result, whatever its prompt."""
    levels = sorted((name, level) for name, level in one.group.items() if name != "prompt")
    return (one.measure.removesuffix(OVER_PROMPTS), *levels)


def _notes(measured: _PairedResults, names: Names, runs: tuple[Record, Record]) -> list[str]:
    """Notes on compared and excluded items, grouped clusters, reduced precision and other versions."""
    words, paired = sentences("comparison"), measured.paired
    notes = [words.compared(paired.n_answered)]
    if paired.readings:
        readings = " and ".join(f"{name} by {way}" for name, way in zip(names, paired.readings, strict=True))
        notes.append(
            f"The runs were scored in different ways ({readings}), so differences include effects of the scoring method."
        )
    if paired.n_items > paired.n_answered:
        notes.append(words.unanswered(paired.n_items - paired.n_answered))
    notes += [words.alone(n, name) for name, n in zip(names, paired.n_alone, strict=True) if n]
    notes += [words.left_out(name, others) for name, others in zip(names, paired.others, strict=True) if others]
    notes += map(words.not_compared, paired.unanswered)
    counts = [] if paired.identical else [len(set(labels)) for labels in measured.ways]
    notes += [words.dealt(n, measured.max_groups) for n in counts if n > measured.max_groups]
    for run, name in zip(runs, names, strict=True):
        notes += [f"{name}: {sentence}" for sentence in run.manifest.get("precision", {}).get("sentences", ())]
    versions = [str(run.manifest["versions"].get("undertow", "")) for run in runs]
    if versions[0] != versions[1]:
        notes.append(
            f"The runs were made by Undertow {versions[0]} and {versions[1]}; this version measured both again."
        )
    return notes
