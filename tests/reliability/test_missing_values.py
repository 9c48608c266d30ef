from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import undertow
from conftest import Cli
from helpers.scripted_model import OF_ALL, Script
from undertow.cli.console import print_run
from undertow.data.documents.task_wordings import TASKS
from undertow.errors import UndertowError
from undertow.models.base import UnsupportedQueryError
from undertow.runs.pipeline import Run
from undertow.stats import calibration, correlation, variance_components
from undertow.stats.classification import agreement, roc
from undertow.stats.intervals import cluster_errors, multiway_cluster
from undertow.stats.regression import least_squares, logistic, power_analysis, trend  # fmt: skip
from undertow.stats.significance import false_discovery, sign_flip
from undertow.types import Answer, ClozeQuery, ContinuationQuery, MultipleChoiceQuery, Query, Result

Floats = NDArray[np.float64]
ones = np.ones_like

NASTY = [0.0, 1.0, -1.0, 1e-300, 5e-324, -5e-324, 1e-70, 1e70, 1e155, 1e308, -1e308, math.inf, -math.inf, math.nan]
"""Numbers that nobody can compute with; beside them such as an audit can have: none, or at least a billionth."""
ordinary = st.floats(-100, 100).map(lambda value: value if abs(value) > 1e-9 else 0.0)
vectors = st.lists(st.one_of(st.sampled_from(NASTY), ordinary), max_size=7).map(np.array)


def numbers(found: object) -> Iterator[float]:
    if is_dataclass(found):
        for one in fields(found):
            yield from numbers(getattr(found, one.name))
    elif isinstance(found, Mapping):
        yield from numbers(list(found.values()))
    elif isinstance(found, (list, tuple)):
        for part in found:
            yield from numbers(part)
    elif isinstance(found, (float, np.floating, np.ndarray)):
        yield from np.asarray(found, dtype=np.float64).ravel().tolist()


def at(y: Floats) -> Floats:
    return np.arange(len(y), dtype=np.float64)


def pairs(y: Floats) -> NDArray[np.int64]:
    return np.arange(len(y)) // 2


def kinds(y: Floats) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.arange(len(y)) % 2 == 0
    return found


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def of_cells(y: Floats, x: Floats | None = None) -> trend.ClusterSummary:
    """Of three sentences, of which one goes another way."""
    cells = np.stack([y, y, y[::-1]])[None]
    return trend.cluster_summary(at(y) if x is None else x, cells, np.ones_like(cells))


def twelve(y: Floats) -> Floats:
    """As many places, since a trend needs eight; those that are equal are refused."""
    return np.concatenate([y, np.linspace(10, 20, 12)])[:12]


def left(y: Floats) -> sign_flip.JackknifeReplicates:
    return sign_flip.JackknifeReplicates(y[:, None], np.ones((len(y), 1), dtype=bool))


STATISTICS: dict[str, Callable[[Floats], object]] = {
    "line of y": lambda y: least_squares.fit_line(at(y), y),
    "line on x": lambda y: least_squares.fit_line(y, at(y)),
    "band": lambda y: least_squares.fit_line(at(y), y).band(y),
    "rows of y": lambda y: least_squares.fit_rows(at(y), y[None]),
    "trend of y": lambda y: trend.trend(at(y), of_cells(y)),
    "trend on x": lambda y: trend.trend(twelve(y), of_cells(np.arange(12.0), twelve(y))),
    "trend of other values": lambda y: trend.trend_of_other_values(at(y), of_cells(y)),
    "any effect": lambda y: trend.covariate_effect(np.outer([0.2, 0.5, -0.3, 1], y), np.ones((4, len(y)))),
    "influences": lambda y: cluster_errors.influence_variance(y, kinds(y)),
    "interval of a share": lambda y: [cluster_errors.share_interval(one, one, one) for one in y],
    "polynomial of y": lambda y: least_squares.fit_polynomial(at(y), y, 2),
    # Places that are all but equal give no curve; those of an audit are whole numbers or years.
    "polynomial on x": lambda y: least_squares.fit_polynomial(np.where(np.abs(y) < 1e-12, 0, y), at(y), 2),
    "polynomial band": lambda y: least_squares.fit_polynomial(at(y), y, 1).band(y),
    "detectable slope": lambda y: power_analysis.detectable_slope(at(y), of_cells(y)),
    "percentiles": cluster_errors.percentile_interval,
    "Benjamini-Hochberg": false_discovery.benjamini_hochberg,
    "auroc": lambda y: roc.auroc(y, kinds(y)),
    "auroc draws": lambda y: roc.auroc_draws(y, kinds(y), pairs(y), np.ones((3, len(y) // 2 + 1))),
    "auroc p": lambda y: roc.auroc_p_value(y, kinds(y), pairs(y), 20, rng()),
    "threshold": lambda y: roc.best_threshold(y, kinds(y)),
    "held out": lambda y: roc.held_out_calls(y, kinds(y), pairs(y)),
    "curve": lambda y: roc.roc_points(y, kinds(y)),
    "one way": lambda y: variance_components.one_way(y, pairs(y)),
    "pearson": lambda y: tuple(correlation.pearson(at(y), y)),
    "mean of a crossed design": lambda y: multiway_cluster.ratio_interval(y, ones(y), pairs(y), pairs(y[::-1]), bounded=False),
    "rate of a crossed design": lambda y: multiway_cluster.ratio_interval(y, ones(y), pairs(y), pairs(y[::-1])),
    "denominators": lambda y: multiway_cluster.ratio_interval(0 * ones(y), y, pairs(y), pairs(y[::-1])),
    "difference of means": lambda y: multiway_cluster.difference_of_ratios(
        y, ones(y), y[::-1], ones(y), pairs(y), pairs(y), bounded=False
    ),
    "correlation of columns": lambda y: correlation.cluster_correlation(at(y), y, np.arange(len(y)), 0),
    "exchange": lambda y: sign_flip.sign_flip_pvalues((y[:, None], ones(y)[:, None]), (at(y)[:, None], ones(y)[:, None])),
    "jackknife": lambda y: cluster_errors.jackknife_interval(np.array([1.0]), y[:, None]),
    "paired": lambda y: sign_flip.paired_errors(np.array([1.0]), [left(y)]),
    "paired twice": lambda y: sign_flip.paired_errors(y[:1], [left(y), left(y)], left(y)) if len(y) else (),
    "logistic": lambda y: logistic.fit_logistic(y[:, None], kinds(y)),
    "held out log-odds": lambda y: logistic.held_out_log_odds(y[:, None], kinds(y), pairs(y)),
    "mean over cells": lambda y: agreement.mean_over_cells(np.clip(y, 0, 1)[:, None], (0.0, 1.0)),
    "BLEU": lambda y: agreement.bleu_over_cells(np.tile(y[:, None, None], (1, 1, 10)), 0),
    "corpus BLEU": lambda y: agreement.corpus_bleu(np.tile(np.abs(y)[:, None], (1, 10))),
    "mean over models": calibration.mean_over_models,
    "median over models": lambda y: calibration.median_over_models(y, at(y), 20, rng()),
    "standard errors": lambda y: calibration.standard_errors(y, y, ones(y) * 5)[0],
    "training seed": lambda y: calibration.with_training_seed(at(y), y, ones(y), ones(y) * 4),
    "calibration": lambda y: calibration.calibrate(at(y), y, ones(y), ones(y) * 4),
    "calibration on x": lambda y: calibration.calibrate(y, at(y), ones(y), ones(y) * 4),
    "attenuation": lambda y: calibration.attenuation(at(y), y, ones(y), ones(y) * 4),
    "variance shares": lambda y: variance_components.variance_shares(y[None, :, None], [0], np.arange(len(y))),
    "factor shares": lambda y: variance_components.factor_shares(y, pairs(y)[:, None]),
    "level means": lambda y: variance_components.level_means(y, pairs(y), 4),
    "standard deviation": variance_components.population_sd,
}  # fmt: skip


@pytest.mark.parametrize("name", STATISTICS)
@settings(max_examples=10)
@given(y=vectors)
def test_statistics_warn_of_nothing_and_are_finite_or_nan(name: str, y: Floats) -> None:
    """A `ValueError` says what is wrong with the numbers; warnings are errors here."""
    try:
        found = STATISTICS[name](y)
    except ValueError as refused:
        found = str(refused)
        assert re.search(r"finite|between 0 and 1|\[0, 1\]|in 0 to|negative|both kinds|shape", found)
    # The ends of what is open are infinite degrees of freedom, which a row without errors has.
    infinite = [one for one in numbers(found) if math.isinf(one)]
    assert not infinite or name in ("training seed", "calibration", "calibration on x"), found


@pytest.mark.parametrize("far", [1e155, 1e308, -1e308, math.inf, -math.inf])
def test_no_p_value_is_small_because_a_number_is_too_large(far: float) -> None:
    """Nothing exchanged is as large as what has overflowed, which would be a finding."""
    y = np.array([[1.0, 5, 2, 4, 3, far]])
    long = np.concatenate([y[0], [2.0, 6, 1]])
    assert np.isnan(trend.trend(np.arange(9), of_cells(long)).p).all()
    assert not trend.covariate_effect(np.tile(long, (6, 1)), np.ones((6, 9))).p < 0.05
    sides = y.T, np.ones((6, 1))
    assert np.isnan(sign_flip.sign_flip_pvalues(sides, (np.zeros((6, 1)), np.ones((6, 1))))).all()
    assert np.isnan(sign_flip.flip_p_values(np.array([1.0]), left(y[0]))).all()


SMALL: dict[str, dict[str, Any]] = {
    "spurious-correlation": {"w": "date", "date_count": 4, "limit": 24},
    "task-specification": {"limit": 40},
    "occupation-checklist": {"n_pairs": 3, "n_occupations": 3},
    **{task: {"n_documents": 6, "wordings": 2} for task in TASKS},
}
QUICK = ("spurious-correlation",)
"""The soak has all."""
REASON = "the line was cut for good"


def silent(query: Query) -> UnsupportedQueryError:
    return UnsupportedQueryError(REASON)


def alike(nats: Callable[[int], tuple[float, ...]], other_prob: float = 0.0) -> Callable[[Query], Answer]:
    """The same log-probabilities of so many options, whatever is asked; of labels the first."""

    def say(query: Query) -> Answer:
        if isinstance(query, ClozeQuery):
            n = len(query.options)
        elif isinstance(query, ContinuationQuery):
            n = len(query.continuations)
        else:
            n = len(query.labels) if isinstance(query, MultipleChoiceQuery) else 1
        return Answer(
            nats(n), other_prob, text=query.labels[0] if isinstance(query, MultipleChoiceQuery) else "as ever"
        )

    return say


SAYS: dict[str, Callable[[Query], Answer]] = {
    "everything alike": alike(lambda n: (-math.log(n),) * n),
    "nothing possible": alike(lambda n: (-math.inf,) * n, 1.0),
    "the first for certain": alike(lambda n: (0.0, *(-math.inf,) * (n - 1))),
    "no numbers": alike(lambda n: (math.nan,) * n, math.nan),
}


def asked(name: str, options: Mapping[str, Any], folder: Path, model: str = "scripted") -> Run:
    return undertow.audit(name, model, out=folder, overwrite=True, **options)


NO_NUMBER = re.compile(r"(?<![\w./-])[-+\N{MINUS SIGN}]?(nan|NaN|NaT|<NA>|inf|Infinity)(?![\w-])")


def outputs(run: Run) -> Iterator[tuple[str, str]]:
    """What a run says, by its place; the script of the page tests for numbers itself."""
    terminal = io.StringIO()
    for as_json in (False, True):
        with contextlib.redirect_stdout(terminal), contextlib.suppress(UndertowError):  # names a model without numbers
            print_run(run, as_json=as_json)
    yield "terminal", terminal.getvalue()
    for path in run.folder.rglob("*"):
        if path.suffix in (".csv", ".json", ".html"):
            yield path.name, re.sub("<script>.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield "notebook", run._repr_html_()


def assert_honest(run: Run) -> None:
    """Every number is finite or missing; one that is missing says why, or stands beside one of its own that does.

    No output has a number that is none.
    """
    told = list(outputs(run))
    assert all(text for place, text in told if place in ("terminal", "notebook"))
    assert len(told) > 5
    assert not [(place, found[0]) for place, text in told for found in NO_NUMBER.finditer(text)]
    written = json.loads((run.folder / "results.json").read_text(encoding="utf-8"))["results"]
    assert len(written) == len(run.record.results)
    for row, result in zip(written, run.record.results, strict=True):
        assert not any(math.isinf(one) for one in numbers(result)), result
        assert (row["value"] is None) == math.isnan(result.value), result
        if math.isnan(result.value):
            assert np.isnan([result.low, result.high, result.p]).all(), result
        else:
            assert result.n > 0 or result.group.get("model") == "", result
        if math.isfinite(result.low) and math.isfinite(result.high):
            assert result.low - 1e-9 <= result.value <= result.high + 1e-9, result
        assert math.isnan(result.p) or 0 < result.p <= 1, result
        assert math.isnan(result.q) == math.isnan(result.p) or math.isfinite(result.p), result


def of_a_model(results: Sequence[Result]) -> list[Result]:
    return [one for one in results if one.group.get("model", "scripted") != ""]


def claimed(run: Run) -> list[str]:
    return [finding.text for finding in run.findings if finding.significant]


PAGES = [
    pytest.param(name, marks=[pytest.mark.page, pytest.mark.slow, *([] if name in QUICK else [pytest.mark.soak])])
    for name in SMALL
]


@pytest.mark.parametrize("name", [*SMALL, *PAGES])
def test_a_model_that_answers_nothing_has_no_numbers_and_the_page_says_why(
    name: str, script: Script, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    script(silent, OF_ALL)
    run = asked(name, SMALL[name], tmp_path / "run")
    assert claimed(run) == []
    assert run.manifest["counts"]["missing"] == run.manifest["counts"]["items"] > 0
    assert set(run.observations["missing_reason"]) == {REASON}
    assert_honest(run)
    assert [one for one in of_a_model(run.record.results) if math.isfinite(one.value)] == []
    if "page" in request.keywords:
        text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", run.report.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"\b(nan|inf|NaN)\b", text), re.findall(r".{40}\b(?:nan|inf|NaN)\b.{40}", text)[:3]
        reasons = {one.note for one in of_a_model(run.record.results) if math.isnan(one.value) and one.note}
        assert reasons
        assert [reason for reason in reasons if reason not in unescape(text)] == []


OF_WORDS = ("spurious-correlation", "task-specification")
"""Audits of a drift, which no model that says the same to everything has; the others count right and wrong answers."""


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.soak) for name in SMALL]
)
def test_a_model_that_says_the_same_to_everything_moves_nothing(
    name: str, says: str, script: Script, tmp_path: Path
) -> None:
    script(SAYS[says], OF_ALL)
    run = asked(name, SMALL[name], tmp_path / "run")
    assert_honest(run)
    if name in OF_WORDS:
        assert claimed(run) == []
    if name == "spurious-correlation":
        masses = run.observations[["female", "male", "neutral"]].to_numpy(dtype=np.float64)
        if says in ("no numbers", "nothing possible"):
            assert np.isnan(masses).all(), "what has no share was given one"
            assert (run.observations["missing_reason"] != "").all()
        else:
            np.testing.assert_allclose(masses.sum(axis=1), 100)


@pytest.mark.parametrize("model", ["toy", "scripted"])
@pytest.mark.parametrize("name", SMALL)
def test_next_to_no_question_is_no_finding(name: str, model: str, script: Script, tmp_path: Path) -> None:
    script(SAYS["everything alike"], OF_ALL)
    one = {key: 1 if key.startswith("n_") or key == "limit" else value for key, value in SMALL[name].items()}
    run = asked(name, one, tmp_path / "run", model)
    assert_honest(run)
    if name in OF_WORDS:
        assert claimed(run) == []


def table(
    masses: Callable[[int, int], float],
    n_clusters: int = 6,
    n_w: int = 5,
    holes: Callable[[int, int], bool] = lambda c, w: False,
) -> pd.DataFrame:
    def row(cluster: int, w: int) -> dict[str, Any]:
        is_hole = holes(cluster, w)
        of_text = {"model": "m", "w_name": "date", "w_index": w, "w": str(1900 + w), "text_index": cluster}
        return of_text | {"xe": "" if is_hole else masses(cluster, w), "ze": "" if is_hole else 50.0}

    return pd.DataFrame([row(cluster, w) for cluster in range(n_clusters) for w in range(n_w)])


TABLES: dict[str, pd.DataFrame] = {
    "one cluster": table(lambda cluster, w: 10.0 + w, n_clusters=1),
    "one W": table(lambda cluster, w: 10.0 + cluster, n_w=1),
    "two W": table(lambda cluster, w: 10.0 + cluster + w, n_w=2),
    "constant": table(lambda cluster, w: 25.0),
    "no values": table(lambda cluster, w: 10.0, holes=lambda cluster, w: True),
    "values at two W": table(lambda cluster, w: 10.0 + w + cluster, holes=lambda cluster, w: w > 1),
    "smallest double": table(lambda cluster, w: 5e-324 * ((cluster + w) % 2)),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_says_too_little_has_no_finding(case: str, tmp_path: Path) -> None:
    TABLES[case].to_csv(tmp_path / "t.csv", index=False)
    run = undertow.score(tmp_path / "t.csv", audit="spurious-correlation", out=tmp_path / "run")
    assert claimed(run) == []
    assert_honest(run)
    for one in run.record.results:
        # r is a description, without a test of its own.
        if one.measure in ("slope", "slope_gap", "w_effect") and (math.isnan(one.value) or math.isnan(one.p)):
            assert one.note, one
        if one.measure == "pearson_r" and math.isnan(one.value):
            assert one.note, one
        if one.measure == "slope" and case in ("one W", "two W", "values at two W", "no values"):
            assert math.isnan(one.value), one


def test_a_command_fails_where_one_of_several_models_has_no_number(cli: Cli, tmp_path: Path) -> None:
    silent = table(lambda cluster, w: 0.0, holes=lambda cluster, w: True).assign(model="silent")
    pd.concat([table(lambda cluster, w: 10.0 + w), silent]).to_csv(tmp_path / "t.csv", index=False)
    done = cli("score", "t.csv", "--audit", "spurious-correlation", "--out", "run")
    assert done.returncode == 1
    assert "silent" in done.stderr
    assert (tmp_path / "run/report.html").is_file()
    drift = ("run", "spurious-correlation", "-m", "toy", "--limit", "9")
    assert cli(*drift, "--w", "date", "--date-count", "3", "--out", "toy").returncode == 0
    done = cli(*drift, "-m", "replay:toy", "--w", "place", "--out", "both")
    assert (done.returncode, "replay:toy (" in done.stderr, " toy (" in done.stderr) == (1, True, False)
