"""How the mass of a word group goes with W: mean mass, slope, Pearson r and slope gap.

The regression of McMilin 2024 ("Underspecification in Language Modeling Tasks", AAAI), McMilin's anonymous ICLR
submission ("Selection Induced Collider Bias") and McMilin 2022 (ICML workshop): the mass is averaged over the texts of a
W value, and the means are regressed on the *index* of W. Intervals resample clusters of texts, the test shuffles W labels.

Knows the columns of the observation table; knows nothing about how they were filled, or what the groups are words for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from undertow.stats import (
    LabelOrders,
    Line,
    benjamini_hochberg,
    bootstrap_means,
    detectable_slope,
    fit_line,
    fit_rows,
    label_orders,
    percentile_interval,
    slope_p_values,
)
from undertow.types import Floats, Result, UndertowError, digest

RUN_KEYS = ("model", "challenge", "prompt", "w_name")
"""What one regression is about; its results add the key `pronoun`."""

UNCLAIMED = "unclaimed"
COLUMNS = (*RUN_KEYS, "w_index", "cluster", "unscored", UNCLAIMED)
"""What the observation table must have beside the word groups."""

BOUNDS = (".low", ".high")
"""Endings of the columns that bound a group's mass, where a model did not show all of it."""

MIN_W_VALUES = 3
"""Two points always lie on a line."""

# Bootstrap means [series, draw, w] are held for as many series at a time as fit in about this many numbers (64 MB).
BATCH_NUMBERS = 8_000_000


def correlate(  # noqa: PLR0913 - what to measure, and the three settings of its errors, all named at the call
    observations: pd.DataFrame,
    groups: Sequence[str],
    gaps: Sequence[tuple[str, str]],
    *,
    seed: int,
    n_bootstrap: int = 10_000,
    n_permutations: int = 10_000,
) -> list[Result]:
    """Mean mass, slope, Pearson r and slope gaps of each (model, challenge, prompt, w_name), in order of appearance.

    - `mean_mass`, percent: mean over the W means, of each group and of what no option took ("unclaimed"). Not tested.
    - `slope`, percent per step of the W index: least squares through the W means of a group.
    - `pearson_r` of the same means; its p and q are those of its slope.
    - `slope_gap`, percent per step: slope of group a minus slope of group b, by the line through the means of a - b over
      the rows that have both. Its `pronoun` is "a-b".

    Intervals are 95% percentile intervals of a bootstrap over clusters, widened where these are few (`percentile_interval`), whose
    draws are shared by everything that is said of one (model, challenge, prompt, w_name). A draw adds the noise of the sample
    once more, which pulls r towards 0: where few clusters stand behind noisy means, the interval of r lies closer to 0 than it
    should. p shuffles W labels over the W means. q is Benjamini-Hochberg over the slopes and slope gaps of the whole table.
    Numbers that the table cannot give are NaN, with the reason in `note`.

    `detail` of slopes and gaps: `ols_low`, `ols_high` (classical t interval), `intercept` (at index 0), `detectable_slope`
    (power .8 at alpha .05), `n_w`, `n_clusters`, `first`, `last` (the line at the lowest and the highest index with data).
    `detail` of `pearson_r`: `fisher_low`, `fisher_high`.

    Where a group has columns `NAME.low` and `NAME.high` (a model that shows the most probable tokens only), its mass lies
    anywhere between them, and its own column is the middle. Means, slopes and gaps then have `bound_low` and `bound_high`
    in `detail`, between which they lie whatever was not shown, and their interval runs from the interval of the lowest to
    that of the highest. p, q and r are those of the middle.

    The random stream of a result follows from the seed and from what it is about, so that neither the order of the rows
    nor other models, groups or gaps change it.

    Args:
        observations: one row per item: `model`, `challenge`, `prompt`, `w_name`, `w_index` (whole number), `cluster`, `unscored`
            ("" where scored), and in percent `unclaimed` and one column per group. An all-zero row is a measurement.
        groups: columns of the word groups.
        gaps: pairs of groups to compare.
        seed: any whole number.
        n_bootstrap: bootstrap draws.
        n_permutations: random orders of the labels; all orders are taken where there are no more than this.

    Raises:
        UndertowError: a column is missing or holds something else than numbers, or an argument makes no sense.
    """
    _check_arguments(groups, gaps, n_bootstrap, n_permutations)
    table = _table(observations, groups)
    errors = _Errors(seed, n_bootstrap, n_permutations)
    results: list[Result] = []
    for levels, rows in table.groupby(list(RUN_KEYS), sort=False):
        run = {key: str(level) for key, level in zip(RUN_KEYS, levels, strict=True)}
        results += _run_results(run, rows, (groups, gaps), errors)
    return _with_q(results)


def line_of(observations: pd.DataFrame, group: str) -> Line:
    """The line that `correlate` fits to one group in the rows of one (model, challenge, prompt, w_name).

    Its `band` is what the papers shade. Below three W values with scored rows there is no line: NaN throughout.

    Raises:
        UndertowError: as `correlate`.
    """
    rows = _table(observations, [group])
    cells = _Cells.of(rows, rows[group].to_numpy())
    return _line(cells.x, cells.means)


@dataclass(frozen=True, slots=True)
class _Errors:
    """How errors are had: the settings, and the label orders drawn so far."""

    seed: int
    n_bootstrap: int
    n_permutations: int
    drawn_orders: dict[int, LabelOrders] = field(default_factory=dict)

    def clusters_rng(self, run: Mapping[str, str]) -> np.random.Generator:
        """The stream of cluster draws of one (model, challenge, prompt, w_name): the same each time it is asked for."""
        return self._stream("clusters", *(run[key] for key in RUN_KEYS))

    def orders(self, n_labels: int) -> LabelOrders:
        """Label orders; they follow from the seed and the number of labels, so that tests of equal size can share them."""
        if n_labels not in self.drawn_orders:
            rng = self._stream("labels", n_labels)
            self.drawn_orders[n_labels] = label_orders(n_labels, self.n_permutations, rng)
        return self.drawn_orders[n_labels]

    def _stream(self, *about: str | int) -> np.random.Generator:
        return np.random.default_rng(int(digest([int(self.seed), *about]), 16))


@dataclass(frozen=True, slots=True)
class _Cells:
    """Row values summed into the cells of the crossed design.

    Attributes:
        x: W indices, ascending [w].
        sums, counts: of the values in each cell [cluster, w].
        n, n_unscored: rows with and without a value.
    """

    x: Floats
    sums: Floats
    counts: Floats
    n: int
    n_unscored: int

    @classmethod
    def of(cls, rows: pd.DataFrame, values: Floats) -> _Cells:
        """Sum the values [row] of the table's rows; NaN is no value.

        Clusters without any scored row do not take part. Both axes are sorted, so that the order of rows is forgotten.
        """
        taking_part = rows.loc[rows["scored"], "cluster"].unique()
        clusters, x = np.sort(np.asarray(taking_part, dtype=str)), np.unique(rows["w_index"].to_numpy())
        seen = ~np.isnan(values)
        cluster = np.searchsorted(clusters, rows["cluster"].to_numpy(dtype=str)[seen])
        cell = cluster * len(x) + np.searchsorted(x, rows["w_index"].to_numpy()[seen])
        shape = len(clusters), len(x)
        counts: Floats = np.bincount(cell, minlength=shape[0] * shape[1]).astype(np.float64)
        sums: Floats = np.bincount(cell, weights=values[seen], minlength=len(counts)).astype(np.float64)
        n = int(seen.sum())
        return cls(x, sums.reshape(shape), counts.reshape(shape), n, len(rows) - n)

    @property
    def means(self) -> Floats:
        """W means [w]; NaN where a W value has no observation."""
        observed, means = self.counts.sum(axis=0), np.full(len(self.x), math.nan)
        np.divide(self.sums.sum(axis=0), observed, out=means, where=observed > 0)
        return means

    @property
    def n_clusters(self) -> int:
        """Clusters with observations."""
        return int(np.count_nonzero(self.counts.any(axis=1)))


@dataclass(frozen=True, slots=True)
class _Series:
    """One regression: the cells of a group, of the unclaimed mass or of a gap, and their bootstrap.

    Attributes:
        about: group key of the results.
        cells: what was observed.
        means: W means [w].
        drawn: bootstrap W means [draw, w].
    """

    about: dict[str, str]
    cells: _Cells
    means: Floats
    drawn: Floats

    def interval(self, drawn: Floats) -> tuple[float, float]:
        """95% interval of a number from its bootstrap distribution [draw]."""
        return percentile_interval(drawn, n_clusters=self.cells.n_clusters)

    def result(self, measure: str, **numbers: Any) -> Result:
        """A result about this series, with its counts filled in."""
        return Result(measure, self.about, n=self.cells.n, n_unscored=self.cells.n_unscored, **numbers)


def _run_results(
    run: dict[str, str], rows: pd.DataFrame, asked: tuple[Sequence[str], Sequence[tuple[str, str]]], errors: _Errors
) -> list[Result]:
    """Everything that is said of one (model, challenge, prompt, w_name)."""
    groups, gaps = asked
    values: dict[tuple[str, str], Floats] = {("group", group): rows[group].to_numpy() for group in groups}
    values["unclaimed", UNCLAIMED] = rows[UNCLAIMED].to_numpy()
    for a, b in gaps:
        # The line through the means of a difference has the difference of the slopes, and the rows stay paired.
        values["gap", f"{a}-{b}"] = rows[a].to_numpy() - rows[b].to_numpy()
    cells = {name: _Cells.of(rows, of_rows) for name, of_rows in values.items()}
    bounds = _Bounds.of(run, rows, asked, errors)
    means, slopes, correlations, slope_gaps = [], [], [], []
    for (kind, pronoun), series in _bootstrapped(run, cells, errors):
        about = replace(series, about={**run, "pronoun": pronoun})
        within = bounds.get((kind, pronoun))
        if kind != "gap":
            means.append(_bounded(_mean_mass(about), within, _mean_bounds))
        if kind == "group":
            slope, pearson_r = _slope_and_r(about, errors)
            slopes.append(_bounded(slope, within, _slope_bounds))
            correlations.append(pearson_r)
        if kind == "gap":
            slope, _ = _slope_and_r(about, errors)
            slope_gaps.append(_bounded(replace(slope, measure="slope_gap"), within, _slope_bounds))
    return [*means, *slopes, *correlations, *slope_gaps]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """A regression's least and greatest possible masses, and their bootstrap with the draws of the masses themselves."""

    low: _Series
    high: _Series

    @classmethod
    def of(
        cls,
        run: dict[str, str],
        rows: pd.DataFrame,
        asked: tuple[Sequence[str], Sequence[tuple[str, str]]],
        errors: _Errors,
    ) -> dict[tuple[str, str], _Bounds]:
        """Those of each group and gap whose masses were not shown whole; {} where all were."""
        groups, gaps = asked
        low, high = ({name: rows[f"{name}{end}"].to_numpy() for name in (*groups, UNCLAIMED)} for end in BOUNDS)
        ends = {("group", group): (low[group], high[group]) for group in groups}
        ends["unclaimed", UNCLAIMED] = low[UNCLAIMED], high[UNCLAIMED]
        ends |= {("gap", f"{a}-{b}"): (low[a] - high[b], high[a] - low[b]) for a, b in gaps}
        if all(np.array_equal(*both, equal_nan=True) for both in ends.values()):
            return {}
        if np.array_equal(low[UNCLAIMED], high[UNCLAIMED], equal_nan=True):
            del ends["unclaimed", UNCLAIMED]  # a table may bound its groups alone
        cells = {
            (pronoun, f"{kind}{end}"): _Cells.of(rows, values)
            for (kind, pronoun), both in ends.items()
            for end, values in zip(BOUNDS, both, strict=True)
        }
        drawn = dict(_bootstrapped(run, cells, errors))
        return {(kind, pronoun): cls(*(drawn[pronoun, f"{kind}{end}"] for end in BOUNDS)) for kind, pronoun in ends}


_Ends: TypeAlias = tuple[float, float, Floats, Floats]
"""The least and the greatest that a number can be, and their bootstrap [draw]."""


def _bounded(result: Result, bounds: _Bounds | None, ends_of: Callable[[_Bounds], _Ends]) -> Result:
    """A result with the interval of everything that it may be."""
    if bounds is None or math.isnan(result.value):
        return result
    least, greatest, drawn_least, drawn_greatest = ends_of(bounds)
    n_clusters = bounds.low.cells.n_clusters
    low = percentile_interval(drawn_least, n_clusters=n_clusters)[0]
    high = percentile_interval(drawn_greatest, n_clusters=n_clusters)[1]
    detail = {**result.detail, "bound_low": least, "bound_high": greatest}
    note = _joined(
        [result.note, "The model shows its most probable tokens only: the value is the middle of what it may be."]
    )
    return replace(result, low=low, high=high, detail=detail, note=note)


def _mean_bounds(bounds: _Bounds) -> _Ends:
    low, high = (_mean_mass(series).value for series in (bounds.low, bounds.high))
    drawn_low, drawn_high = (_means_of_draws(series.drawn) for series in (bounds.low, bounds.high))
    return low, high, drawn_low, drawn_high


def _after_middle(x: Floats, means: Floats) -> NDArray[np.bool_]:
    """Whether an index lies at or after the mean of those that are there [row, w]; a draw may miss some."""
    seen = ~np.isnan(means)
    n_seen = seen.sum(axis=1)
    middle = np.divide(seen @ x, n_seen, out=np.full(len(means), math.nan), where=n_seen > 0)
    after: NDArray[np.bool_] = x >= middle[:, np.newaxis]
    return after


def _slope_bounds(bounds: _Bounds) -> _Ends:
    """A slope weighs each mean by how far its index is from the middle: it is least where means before it are greatest.

    weight  - - - 0 + + +
    least   h h h   l l l        greatest  l l l   h h h
    """
    x = bounds.low.cells.x
    after, after_drawn = (_after_middle(x, means) for means in (bounds.low.means[np.newaxis], bounds.low.drawn))
    slopes = []
    for first, last in ((bounds.high, bounds.low), (bounds.low, bounds.high)):
        means = np.where(after[0], last.means, first.means)
        slopes.append((_line(x, means).slope, fit_rows(x, np.where(after_drawn, last.drawn, first.drawn))[0]))
    (least, drawn_least), (greatest, drawn_greatest) = slopes
    return least, greatest, drawn_least, drawn_greatest


def _bootstrapped(
    run: dict[str, str], cells: Mapping[tuple[str, str], _Cells], errors: _Errors
) -> Iterator[tuple[tuple[str, str], _Series]]:
    """Bootstrap the cells of all series with the same cluster draws, as many series at a time as fit in memory."""
    names = list(cells)
    n_w = len(cells[names[0]].x)
    at_once = max(1, BATCH_NUMBERS // (errors.n_bootstrap * n_w))
    for start in range(0, len(names), at_once):
        batch = names[start : start + at_once]
        sums = np.stack([cells[name].sums for name in batch])
        counts = np.stack([cells[name].counts for name in batch])
        drawn = bootstrap_means(sums, counts, errors.n_bootstrap, errors.clusters_rng(run))
        for name, means in zip(batch, drawn, strict=True):
            yield name, _Series(run, cells[name], cells[name].means, means)


def _mean_mass(series: _Series) -> Result:
    """Mean over the W means; a draw's mean is over the W values that it observed."""
    seen = ~np.isnan(series.means)
    if not seen.any():
        return series.result("mean_mass", value=math.nan, unit="percent", note=_nothing_scored(series))
    means = _means_of_draws(series.drawn)
    low, high = series.interval(means)
    notes = [_left_out(series, "mean"), _no_interval(series, means)]
    value = float(series.means[seen].mean())
    return series.result("mean_mass", value=value, low=low, high=high, unit="percent", note=_joined(notes))


def _means_of_draws(drawn: Floats) -> Floats:
    """Mean over the W values that a draw observed [draw]."""
    observed = ~np.isnan(drawn)
    n_observed = observed.sum(axis=1)
    totals = np.where(observed, drawn, 0.0).sum(axis=1)
    means: Floats = np.divide(totals, n_observed, out=np.full(len(totals), math.nan), where=n_observed > 0)
    return means


def _slope_and_r(series: _Series, errors: _Errors) -> tuple[Result, Result]:
    """`slope` and `pearson_r` of one series."""
    seen = ~np.isnan(series.means)
    line = _line(series.cells.x, series.means)
    detail = _slope_detail(series, line)
    fisher = {"fisher_low": line.r_low, "fisher_high": line.r_high}
    if math.isnan(line.slope):
        note = _no_line(series)
        slope = series.result("slope", value=math.nan, unit="percent per step", neutral=0.0, detail=detail, note=note)
        return slope, series.result("pearson_r", value=math.nan, neutral=0.0, detail=fisher, note=note)
    slopes, correlations = fit_rows(series.cells.x, series.drawn)
    (low, high), p = series.interval(slopes), math.nan
    flat = math.isnan(line.r)
    r_low, r_high = (math.nan, math.nan) if flat else series.interval(correlations)
    if series.cells.n_clusters > 1 and not flat:
        means = series.means[np.newaxis, seen]
        p = float(slope_p_values(series.cells.x[seen], means, errors.orders(int(seen.sum())))[0])
    shared = [_left_out(series, "line"), _untested(series, flat=flat)]
    slope = series.result(
        "slope",
        value=line.slope,
        low=low,
        high=high,
        unit="percent per step",
        neutral=0.0,
        p=p,
        detail=detail,
        note=_joined([*shared, _no_interval(series, slopes)]),
    )
    pearson_r = series.result(
        "pearson_r",
        value=line.r,
        low=r_low,
        high=r_high,
        neutral=0.0,
        p=p,
        detail=fisher,
        note=_joined([*shared, "" if flat else _no_interval(series, correlations)]),
    )
    return slope, pearson_r


def _line(x: Floats, means: Floats) -> Line:
    """The line through the W means [w] that are there; none where they are too few."""
    seen = ~np.isnan(means)
    return fit_line(x[seen], means[seen]) if seen.sum() >= MIN_W_VALUES else fit_line([], [])


def _slope_detail(series: _Series, line: Line) -> dict[str, float]:
    seen_x = series.cells.x[~np.isnan(series.means)]
    first, last = line.at(seen_x[[0, -1]]) if len(seen_x) else (math.nan, math.nan)
    return {
        "ols_low": line.slope_low,
        "ols_high": line.slope_high,
        "intercept": line.intercept,
        "detectable_slope": detectable_slope(seen_x, line.residual_sd),
        "n_w": float(len(seen_x)),
        "n_clusters": float(series.cells.n_clusters),
        "first": float(first),
        "last": float(last),
    }


def _with_q(results: Sequence[Result]) -> list[Result]:
    """Adjust the p of slopes and slope gaps over the run, and give Pearson r the q of its slope."""
    tested = [result for result in results if result.measure in ("slope", "slope_gap")]
    q_values = benjamini_hochberg([result.p for result in tested])
    q_of = {_test_of(result): float(q) for result, q in zip(tested, q_values, strict=True)}
    return [replace(result, q=q_of.get(_test_of(result), math.nan)) for result in results]


def _test_of(result: Result) -> tuple[str, ...]:
    measure = "slope" if result.measure == "pearson_r" else result.measure
    return (measure, *result.group.values())


def _joined(notes: Sequence[str]) -> str:
    return " ".join(note for note in notes if note)


def _nothing_scored(series: _Series) -> str:
    rows = series.cells.n_unscored
    return f"None of the {rows:,} rows has a number for {series.about['pronoun']}, so nothing is measured."


def _no_line(series: _Series) -> str:
    n_w = int(np.count_nonzero(~np.isnan(series.means)))
    if n_w == 0:
        return _nothing_scored(series)
    has = "1 W value has" if n_w == 1 else f"{n_w} W values have"
    return f"Only {has} scored rows, and a line needs at least {MIN_W_VALUES}, so no slope is given."


def _left_out(series: _Series, what: str) -> str:
    missing = int(np.count_nonzero(np.isnan(series.means)))
    if not missing:
        return ""
    verbs = "has no scored row and is" if missing == 1 else "have no scored row and are"
    return f"{missing} of {len(series.means)} W values {verbs} left out of the {what}."


def _untested(series: _Series, *, flat: bool) -> str:
    if flat:
        return "The mean is the same at every W value, so there is no correlation to test."
    return "" if series.cells.n_clusters > 1 else "With a single cluster, what was found is not tested."


def _no_interval(series: _Series, drawn: Floats) -> str:
    """Why the bootstrap distribution [draw] gives no interval; "" where it does."""
    if series.cells.n_clusters < 2:
        return "All scored rows are in a single cluster, so there is no interval."
    if not drawn.size or not math.isnan(percentile_interval(drawn)[0]):
        return ""  # without draws none was wanted
    return f"No interval is given: in {np.isnan(drawn).mean():.0%} of the bootstrap draws the number is not defined."


def _check_arguments(
    groups: Sequence[str], gaps: Sequence[tuple[str, str]], n_bootstrap: int, n_permutations: int
) -> None:
    for name in groups:
        taken = {*COLUMNS, *(f"{other}{end}" for other in (UNCLAIMED, *groups) for end in BOUNDS)}
        if name in taken:
            raise UndertowError(f"word group {name!r} has the name of another column of the table; rename the group")
    for pair in gaps:
        for name in pair:
            if name not in groups:
                raise UndertowError(
                    f"gap {'-'.join(pair)!r} compares {name!r}, which is none of the groups {[*groups]}"
                )
    for setting, number in (("n_bootstrap", n_bootstrap), ("n_permutations", n_permutations)):
        if number < 1:
            raise UndertowError(f"{setting} is {number}; give at least 1, and 10000 for a report")


def _table(observations: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """The columns that are measured, as text and numbers, and `scored`; masses of unscored rows are NaN."""
    for name in (*COLUMNS, *groups):
        if name not in observations.columns:
            raise UndertowError(f"the observation table has no column {name!r}; add it, or name the column that has it")
    table = pd.DataFrame(index=pd.RangeIndex(len(observations)))
    for name in (*RUN_KEYS, "cluster"):
        table[name] = _texts(observations, name)
    table["w_index"] = _numbers(observations, "w_index")
    whole = (table["w_index"] % 1 == 0).to_numpy()
    if not whole.all():
        raise _bad_cell(observations, "w_index", int(np.argmin(whole)), "a whole number, the place of w in its list")
    table["scored"] = [reason == "" for reason in _filled(observations["unscored"])]
    for name in (UNCLAIMED, *groups):
        table[name] = _numbers(observations, name)
        table.loc[~table["scored"], name] = math.nan
    for name in (UNCLAIMED, *groups):
        for end in BOUNDS:
            bound = f"{name}{end}"
            table[bound] = table[name]
            if bound in observations.columns:
                table[bound] = pd.Series(_numbers(observations, bound)).where(table["scored"]).fillna(table[name])
    return table


def _texts(observations: pd.DataFrame, name: str) -> list[str]:
    column = observations[name]
    # Files write the empty prompt as a missing value; any other key must be there.
    missing = column.isna().to_numpy() & (name != "prompt")
    if missing.any():
        raise _bad_cell(observations, name, int(np.argmax(missing)), "filled in")
    return _filled(column)


def _filled(column: pd.Series[Any]) -> list[str]:
    """A column as text, "" where it is empty."""
    return ["" if empty else str(level) for level, empty in zip(column, column.isna(), strict=True)]


def _numbers(observations: pd.DataFrame, name: str) -> Floats:
    """A column as floats, NaN where it is empty."""
    column = observations[name]
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(dtype=np.float64, na_value=math.nan)
    else:
        cells = [math.nan if empty else cell for cell, empty in zip(column, column.isna(), strict=True)]
        for row, cell in enumerate(cells):
            if not isinstance(cell, Real) or isinstance(cell, bool):
                raise _bad_cell(observations, name, row, "a number")
        numbers = np.array(cells, dtype=np.float64)
    if np.isinf(numbers).any():
        raise _bad_cell(observations, name, int(np.argmax(np.isinf(numbers))), "a finite number")
    return numbers


def _bad_cell(observations: pd.DataFrame, name: str, row: int, wanted: str) -> UndertowError:
    cell = observations[name].iloc[row]
    return UndertowError(
        f"column {name!r} of the observation table holds {cell!r} in row {row + 1} of {len(observations)}; "
        f"it must be {wanted}"
    )
