"""The differences of two runs: every measure on the items that both answered, with clustered intervals and a test by exchange.

Both runs are measured without each group of clusters, and lose the same ones; docs/decisions/023 says why, and how well it covers.
Knows probes by their `measure`; knows nothing about what is measured, or how differences are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from undertow import probes
from undertow.comparing.pairing import Names, Paired, pair
from undertow.comparing.replicates import (
    Key,
    by_key,
    columns_known,
    groups_of,
    lacking_told,
    point_results,
    quick,
    without_each,
)
from undertow.probes.base import DamagedRunError, Evidence, Probe
from undertow.records import Record
from undertow.types import Floats, Result, UndertowError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from undertow.stats.paired import Left, PairedErrors

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (tables measured, tables in all)."""

MOST_GROUPS = 50
"""Clusters up to which each is left out by itself; more are dealt into as many groups at random."""
MOST_CROSSED = 30
"""The same of items that are in clusters in two ways, and of their cells."""
CROSSED = ("pair", "soc_code")
"""Columns of an audit whose items share a pair of names with some and an occupation with others."""
SAME_SHARE = 1e-12
"""Values that are nearer than this share of their size differ in the last digits only."""
POINTS: Mapping[str, str] = {"percent": "percentage points", "percent per step": "percentage points per step"}
"""Units of differences, by those of what they are the difference of."""
ONE_CLUSTER = "All items are in a single cluster, so there is no interval."
NO_SPREAD = "No cluster differs from the others here, which says little about others: there is no interval."
HANGS = "Without some of its clusters the number cannot be had, so there is no interval."


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other.

    Attributes:
        baseline: what the baseline run is called: its model, or more where both have one name.
        candidate: what the other run is called.
        differences: of each measure and group, candidate less baseline, with a 95% interval, permutation p and Benjamini-Hochberg q over
            all that are tested, in other comparisons that are told with it too; `detail` has the value of either on the items of both,
            and on how many clusters it rests.
        notes: what was left out, and what to keep in mind.
        probe: the audit.
        seed: of groups and permutations.
        n_items: items that both were asked.
        n_answered: of these, items that both have an answer to.
        n_alone: items that only the baseline was asked, and only the candidate.
        identical: whether all answers are the same.
        runs: both, as they were recorded.
        shared: both, with nothing but the items of both; a row that one has no answer to is unscored in either.
    """

    baseline: str
    candidate: str
    differences: Sequence[Result]
    notes: Sequence[str]
    probe: str
    seed: int
    n_items: int
    n_answered: int
    n_alone: tuple[int, int]
    identical: bool
    runs: tuple[Record, Record] = field(repr=False)
    shared: tuple[Record, Record] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """The differences with a column for the measure, each group key, each number and each detail [difference]."""
        import pandas as pd

        return Record({}, pd.DataFrame(), self.differences).results_table()


def silent(done: int, total: int) -> None:
    """No progress is shown."""


def compare(
    baseline: Record,
    candidate: Record,
    *,
    seed: int = 0,
    names: tuple[str, str] = ("", ""),
    progress: Progress = silent,
) -> Comparison:
    """Compare two runs of one audit, item by item.

    Args:
        baseline: the run that the other is held against.
        candidate: the other.
        seed: of the groups that clusters are dealt into where there are many, and of permutations.
        names: what the runs are called; their models if not given.
        progress: called with (tables measured, tables in all).

    Raises:
        UndertowError: the runs are not comparable, and why; or the seed is negative.
    """
    # Statistics take most of a second to load, and runs that are made import this room too.
    from undertow.stats.points import point_estimates

    if seed < 0:
        raise UndertowError(f"seed {seed} is negative; use 0 or more")
    called = Names(*(given or own for given, own in zip(names, _names(baseline, candidate), strict=True)))
    probe = probes.load(str(baseline.manifest["probe"]))
    paired = pair(baseline, candidate, probe, called)
    columns = columns_known(str(baseline.manifest["probe"]), (paired.baseline, paired.candidate))
    with point_estimates():  # one context, so that what measures keep serves all tables
        measured = _Measured.of(probe, paired, seed, called, columns)
        errors = _errors(measured, progress)
    rows = _Rows(measured, errors, (baseline, candidate), called)
    comparison = Comparison(
        baseline=called.baseline,
        candidate=called.candidate,
        differences=rows.all(),
        notes=[*_notes(paired, called), *_of_groups(paired), *_of_precision((baseline, candidate), called)],
        probe=str(baseline.manifest["probe"]),
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
    """Comparisons that are told together, each q for the tests of all of them."""
    from undertow.stats.multiplicity import benjamini_hochberg

    q_values = iter(benjamini_hochberg([result.p for one in comparisons for result in one.differences]))
    return [
        replace(one, differences=[replace(result, q=float(next(q_values))) for result in one.differences])
        for one in comparisons
    ]


def _names(baseline: Record, candidate: Record) -> tuple[str, str]:
    """Models, with the precision where that tells them apart, or else by their place."""
    models = [str(record.manifest["model"]) for record in (baseline, candidate)]
    if models[0] != models[1]:
        return models[0], models[1]
    cards: list[Mapping[str, Any]] = [record.manifest.get("model_card", {}) for record in (baseline, candidate)]
    dtypes = [str(card.get("dtype", "")) for card in cards]
    if dtypes[0] != dtypes[1]:
        return f"{models[0]} ({dtypes[0]})", f"{models[1]} ({dtypes[1]})"
    return f"{models[0]} (baseline)", f"{models[1]} (candidate)"


# Measuring.


@dataclass(frozen=True, slots=True)
class _Measured:
    """Both runs, measured on the items that both answered.

    Attributes:
        probe: the audit.
        paired: the items.
        seed: of groups and permutations.
        baseline, candidate: results by what they are.
        keys: of all that either run has, in order.
    """

    probe: Probe
    paired: Paired
    seed: int
    baseline: Mapping[Key, Result]
    candidate: Mapping[Key, Result]
    keys: Sequence[Key]

    @classmethod
    def of(cls, probe: Probe, paired: Paired, seed: int, names: Names, columns: Set[str]) -> _Measured:
        found = []
        for at, evidence in enumerate((paired.baseline, paired.candidate)):
            with lacking_told(evidence, names[at], columns):
                try:
                    found.append(by_key(_shared_names(point_results(probe, evidence, seed), paired, at)))
                except DamagedRunError:
                    raise
                except UndertowError as error:
                    raise UndertowError(
                        f"{names.baseline} and {names.candidate} cannot be compared on the {paired.n_answered:,} items that both "
                        f"answered: {error}"
                    ) from error
        first, second = found
        return cls(probe, paired, seed, first, second, list(dict.fromkeys([*first, *second])))

    def values(self, frames: Sequence[pd.DataFrame]) -> tuple[list[Floats], list[Floats]]:
        """Values of both runs, and the items behind each, of a part of their rows, each [result]; NaN and 0 where there are none."""
        evidences = (self.paired.baseline, self.paired.candidate)
        found = [
            by_key(_shared_names(self._results(replace(evidence, frame=frame)), self.paired, at))
            for at, (evidence, frame) in enumerate(zip(evidences, frames, strict=True))
        ]
        return self.as_arrays(found)

    def _results(self, evidence: Evidence) -> list[Result]:
        """None where what is left is too little for the audit to be measured at all."""
        if evidence.frame.empty:
            return []
        try:
            return point_results(self.probe, evidence, self.seed)
        except UndertowError:
            return []

    def as_arrays(self, found: Sequence[Mapping[Key, Result]]) -> tuple[list[Floats], list[Floats]]:
        """Values and numbers of items by the keys, of either run, each [result]."""
        values = [np.array([one[key].value if key in one else math.nan for key in self.keys]) for one in found]
        counts = [np.array([float(one[key].n) if key in one else 0.0 for key in self.keys]) for one in found]
        return values, counts


def _shared_names(results: Sequence[Result], paired: Paired, at: int) -> list[Result]:
    """Results under names that both runs share: where one model is compared with one, without any."""
    if len(paired.models) > 1:
        return list(results)
    own = paired.models[0][at]
    return [_without_model(result, own) for result in results]


def _without_model(result: Result, own: str) -> Result:
    if result.group.get("model") != own:
        return result
    return replace(result, group={name: level for name, level in result.group.items() if name != "model"})


def _errors(measured: _Measured, progress: Progress) -> PairedErrors | None:
    """Of the differences [result]; None where all answers are the same, so that nothing can differ."""
    from undertow.stats.paired import Left, paired_errors

    if measured.paired.identical or not measured.keys:
        return None
    frames = [quick(evidence.frame) for evidence in (measured.paired.baseline, measured.paired.candidate)]
    ways, n_most = _ways(frames[0])
    groups = [groups_of(labels, n_most, measured.seed) for labels in ways]
    cells = (
        groups_of([f"{a}\x1f{b}" for a, b in zip(*ways, strict=True)], n_most, measured.seed) if len(ways) > 1 else None
    )
    total, done = sum(n for _, n in [*groups, *([cells] if cells else [])]), 0
    whole = measured.as_arrays((measured.baseline, measured.candidate))
    progress(0, total)

    def left(grouped: tuple[NDArray[Any], int]) -> Left:
        nonlocal done
        without, counting = [], []
        for both in zip(*(without_each(frame, *grouped) for frame in frames), strict=True):
            found = measured.values(both)
            without.append(found[0][1] - found[0][0])
            counting.append(_changed(whole, found))
            done += 1
            progress(done, total)
        return Left(np.array(without), np.array(counting))

    difference = whole[0][1] - whole[0][0]
    return paired_errors(difference, [left(one) for one in groups], left(cells) if cells else None, seed=measured.seed)


def _changed(whole: tuple[list[Floats], list[Floats]], left: tuple[list[Floats], list[Floats]]) -> NDArray[np.bool_]:
    """Whether a group has anything of a result: without it the number of items or the value is another one [result]."""
    changed = np.zeros(len(whole[0][0]), dtype=np.bool_)
    for before, after in zip(whole[1], left[1], strict=True):
        changed |= before != after
    for before, after in zip(whole[0], left[0], strict=True):
        changed |= ~(np.abs(after - before) <= SAME_SHARE * np.abs(before))  # a value that is gone has changed
    return changed


def _ways(frame: pd.DataFrame) -> tuple[list[list[str]], int]:
    """Labels of the clusters of each row, in one way or in two [way][row], and up to how many are left out one by one."""
    if not all(name in frame for name in CROSSED):
        # An audit that names no clusters takes its items for independent.
        return [frame["cluster" if "cluster" in frame else "item"].astype(str).tolist()], MOST_GROUPS
    names = ["category", "attribute"]
    what = frame[names].astype(str).agg("/".join, axis=1) if all(name in frame for name in names) else ""
    codes = frame["soc_code"].astype(str)
    # A question about an attribute is of no occupation: there the attribute is what others share.
    return [frame["pair"].astype(str).tolist(), codes.where(codes != "", what).tolist()], MOST_CROSSED


# Telling.


@dataclass(frozen=True, slots=True)
class _Rows:
    """What becomes differences.

    Attributes:
        measured: both runs, on the items of both.
        errors: of the differences; None where all answers are the same.
        runs: as they were recorded.
        names: what they are called.
    """

    measured: _Measured
    errors: PairedErrors | None
    runs: tuple[Record, Record]
    names: Names

    def all(self) -> list[Result]:
        """Of each result that either run has."""
        own = [by_key(_shared_names(run.results, self.measured.paired, at)) for at, run in enumerate(self.runs)]
        measured = [self._difference(at, key, own) for at, key in enumerate(self.measured.keys)]
        seen = set(self.measured.keys)
        others = [key for key in dict.fromkeys([*own[0], *own[1]]) if key not in seen]
        return measured + [self._missing(key, own) for key in others if not _of_no_model(own, key)]

    def _difference(self, at: int, key: Key, own: Sequence[Mapping[Key, Result]]) -> Result:
        found = [one.get(key) for one in (self.measured.baseline, self.measured.candidate)]
        one = next(result for result in found if result is not None)
        values = [math.nan if result is None else result.value for result in found]
        value = values[1] - values[0]
        if abs(value) <= SAME_SHARE * max(map(abs, values)):
            value = 0.0
        n = min(0 if result is None else result.n for result in found)
        result = Result(
            measure=one.measure,
            group=_shown_group(one.group, self.measured.paired),
            value=value,
            n=n,
            n_unscored=max(0, (one.n + one.n_unscored - n) + self._alone(key, one.n + one.n_unscored, own)),
            unit=POINTS.get(one.unit, one.unit),
            neutral=0.0,
            detail={"baseline": values[0], "candidate": values[1]},
        )
        if not math.isfinite(value):
            return replace(result, value=math.nan, note=self._why_not(found))
        return self._with_errors(result, at)

    def _alone(self, key: Key, n_shared: int, own: Sequence[Mapping[Key, Result]]) -> int:
        """Items behind a result that one run has alone, by what the runs themselves have recorded."""
        asked = [one[key].n + one[key].n_unscored for one in own if key in one]
        return sum(max(0, number - n_shared) for number in asked)

    def _with_errors(self, result: Result, at: int) -> Result:
        if self.errors is None:
            return replace(result, low=0.0, high=0.0, p=1.0)
        low, high, p = (float(one[at]) for one in (self.errors.low, self.errors.high, self.errors.p))
        n_clusters = int(self.errors.n_clusters[at])
        size = max(abs(number) for number in (*result.detail.values(), 0.0))
        detail = {**result.detail, "n_clusters": float(n_clusters)}
        if n_clusters < 2:
            # Nothing changes where no cluster has anything else than the others, as where all were answered rightly.
            note = NO_SPREAD if n_clusters == 0 else ONE_CLUSTER
            return replace(
                result, p=1.0 if result.value == 0 and n_clusters == 0 else math.nan, detail=detail, note=note
            )
        if math.isnan(low):
            return replace(result, detail=detail, note=HANGS)
        if high - low <= SAME_SHARE * size:
            return replace(result, p=p, detail=detail, note=NO_SPREAD)
        return replace(result, low=low, high=high, p=p, detail=detail)

    def _missing(self, key: Key, own: Sequence[Mapping[Key, Result]]) -> Result:
        """A result that was recorded, and cannot be measured on the items of both."""
        found = [one.get(key) for one in own]
        one = next(result for result in found if result is not None)
        return Result(
            measure=one.measure,
            group=_shown_group(one.group, self.measured.paired),
            value=math.nan,
            n_unscored=max(result.n + result.n_unscored for result in found if result is not None),
            unit=POINTS.get(one.unit, one.unit),
            neutral=0.0,
            detail={"baseline": math.nan, "candidate": math.nan},
            note=self._why_not(found) if None in found else "It cannot be measured on the items that both have.",
        )

    def _why_not(self, found: Sequence[Result | None]) -> str:
        """Why a difference cannot be had."""
        said = []
        for name, result in zip(self.names, found, strict=True):
            if result is None:
                said.append(f"{name} has no such number.")
            elif not math.isfinite(result.value):
                said.append(f"{name}: {result.note or 'it has no value.'}")
        return " ".join(said)


def _shown_group(group: Mapping[str, str], paired: Paired) -> dict[str, str]:
    """Without the model where one is compared with one, unless it is another model of a run."""
    own = {name for one in paired.models for name in one}
    level = group.get("model", "")
    of_others = len(paired.models) > 1 or (level not in ("", "all") and level not in own)
    return {name: one for name, one in group.items() if name != "model" or of_others}


def _of_no_model(own: Sequence[Mapping[Key, Result]], key: Key) -> bool:
    """Whether a result rests on nobody's answers, as that of a baseline which needs no model."""
    return any(one[key].group.get("model") == "" for one in own if key in one)


def _notes(paired: Paired, names: Names) -> list[str]:
    """What was compared, and what was left out."""
    said = [f"{paired.n_answered:,} items that both answered were compared."]
    n_unanswered = paired.n_items - paired.n_answered
    if n_unanswered:
        said.append(f"{_items(n_unanswered)} that one of them has no answer to {_were(n_unanswered)} left out of both.")
    for name, n_alone in zip(names, paired.n_alone, strict=True):
        if n_alone:
            said.append(f"{_items(n_alone)} that only {name} was asked {_were(n_alone)} left out.")
    for name, others in zip(names, paired.others, strict=True):
        if others:
            said.append(
                f"Of {name}, {', '.join(others)} {_were(len(others))} left out, whom the other run did not ask."
            )
    return said


def _of_groups(paired: Paired) -> list[str]:
    """That groups stand for clusters, where there are many."""
    ways, n_most = _ways(paired.baseline.frame)
    many = [] if paired.identical else [number for number in (len(set(labels)) for labels in ways) if number > n_most]
    return [
        f"{number:,} clusters were dealt at random into {n_most} groups, which intervals and tests take for clusters."
        for number in many
    ]


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _of_precision(runs: Sequence[Record], names: Names) -> list[str]:
    """What a reader must know of runs in reduced precision, or that were measured by other versions."""
    said = []
    for run, name in zip(runs, names, strict=True):
        block = run.manifest.get("precision", {})
        said += [f"{name}: {sentence}" for sentence in block.get("said", ())]
    versions = [str(run.manifest["versions"].get("undertow", "")) for run in runs]
    if versions[0] != versions[1]:
        said.append(
            f"The runs were made by Undertow {versions[0]} and {versions[1]}; both are measured anew by this one, but asked as it was then."
        )
    return said
