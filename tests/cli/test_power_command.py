from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import Cli
from undertow.audits.spurious_correlation.items import Settings
from undertow.audits.spurious_correlation.power_plan import plan_power
from undertow.cli.challenges.power import POWER_DEFAULTS, _table
from undertow.stats.regression.power_analysis import AssumedNoise, detectable_change
from undertow.types import no_progress

FILE = """title = "x"
source = "x"
templates = ["{{w}}, {{blank}} {{verb}}."]
[w]
year = {years}
[slots]
verb = {verbs}
[groups]
female = ["she"]
male = ["he"]
"""
VERBS = ["sat", "ran", "ate", "sang", "slept", "read", "spoke", "rested"]


def written(folder: Path, n_verbs: int, years: object) -> str:
    (folder / "own.toml").write_text(FILE.format(years=years, verbs=VERBS[:n_verbs]), encoding="utf-8")
    return "own.toml"


@pytest.mark.resamples
def test_the_curve_is_that_of_the_noise_which_is_given(cli: Cli, tmp_path: Path) -> None:
    name = written(tmp_path, 8, list(range(1900, 2000, 10)))
    noise = ["--text-sd", "3", "--slopes-sd", "0", "--values-sd", "2", "--autocorrelation", "0"]
    (one,) = json.loads(cli("power", name, *noise, "--json").stdout)["lists"]
    change = detectable_change(np.arange(10), 8, AssumedNoise(3.0, 0.0, 2.0, 0.0, step=1 / 9))
    assert one["change"] == pytest.approx(change, rel=0.01), "simulated with other draws"
    assert one["slope"] == pytest.approx(one["change"] / 90), "a list of numbers has slopes per unit"
    own = [row["change"] for row in one["curve"] if (row["sentences"], row["values"]) == (8, 10)]
    assert own == [one["change"]]
    assert one["limitations"] == ""


def test_a_design_has_one_answer_whatever_list_it_is_of(tmp_path: Path) -> None:
    words = json.dumps([f"moon {at}" for at in range(30)])
    expected = {8: 0.3 ** (100 / 7 / (215 / 29)), 20: 0.3 ** (100 / 19 / (215 / 29))}
    for lists, correlations in (
        ([np.linspace(1900, 2000, n).tolist() for n in (3, 8, 20)], expected),
        ([words, json.dumps(json.loads(words)[:9])], {8: 0.3, 20: 0.3}),
    ):
        curves = [
            plan_power(
                Settings(challenge=str(tmp_path / written(tmp_path, 8, one))), POWER_DEFAULTS, None, no_progress
            ).curves[0]
            for one in lists
        ]
        for n_values, correlation in correlations.items():
            own = [one for of in curves for one in of.designs if (one.n_sentences, one.n_values) == (12, n_values)]
            assert [one.autocorrelation for one in own] == pytest.approx([correlation] * len(lists), rel=1e-6)
            assert [one.change for one in own] == pytest.approx([own[0].change] * len(lists), rel=0.03)
        assert _table(curves[0])[-1]["8 values"] == f"{correlations[8]:.2g}"


def test_the_noise_of_a_table_is_found_again(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n_sentences, n_values = 60, 40
    she = 50 + 8 * rng.standard_normal((n_sentences, 1)) + 2 * rng.standard_normal(n_values)
    she = she + 3 * rng.standard_normal((n_sentences, n_values))
    rows = [
        {"model": "m", "w_name": "year", "w_index": w, "w": 1900 + w, "text_index": at, "she": mass, "he": 100 - mass}
        for (at, w), mass in np.ndenumerate(she)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "table.csv", index=False)
    name = written(tmp_path, 8, list(range(1900, 1940)))
    said = json.loads(cli("power", name, "--like", "table.csv", "--json").stdout)
    assert said["noise"]["text_sd"] == pytest.approx(3, rel=0.1)
    assert said["noise"]["values_sd"] == pytest.approx(2, rel=0.35)
    assert said["noise"]["slopes_sd"] < 1
    assert said["like"]["w_name"] == "year"
    wider = json.loads(cli("power", written(tmp_path, 8, [1900, 1939, 1978]), "--like", "table.csv", "--json").stdout)
    rho = said["lists"][0]["autocorrelation"]
    assert wider["lists"][0]["autocorrelation"] == pytest.approx(rho**39), "a year of the table is a year of the list"
    name = written(tmp_path, 8, list(range(1900, 1940)))
    done = cli("power", name, "--like", "table.csv", "--group", "she-he", "--out", "curves.svg")
    assert "of m by year, with 60 sentences and 40 values" in done.stdout
    assert f"Written: {tmp_path / 'curves.svg'}" in done.stdout
    assert "year" in (tmp_path / "curves.svg").read_text("utf-8")


def test_noise_that_is_no_noise_and_a_list_without_order_are_refused(
    cli: Cli, finished_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = str(finished_run("spurious-correlation", w="date"))
    rows = [
        {"model": "m", "w_name": "year", "w_index": w, "w": 1900 + w, "text_index": at, "she": 40 + at + (w % 3), "he": 20}
        for at in range(8) for w in range(10)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "alike.csv", index=False)
    for options, words in (
        (["--like", "alike.csv"], "noise cannot be estimated"),
        (["--like", run], "by rounding only"),  # sentences are all one to the toy
        (["--like", run, "--text-sd", "1"], "--text-sd: --like"),
        (["--values-sd", "-1"], "--values-sd -1: must be 0 or more"),
        (["--autocorrelation", "1"], "below 1"),
        (["--group", "female"], "--group female"),
        (["--like", "none"], "none: there is no such run folder"),
        (["--out", "curves.txt"], "curves.txt"),
        (["--w-scale", "none"], "list without order"),
    ):
        failed = cli("power", "mgc", "--w", "date", *options)
        assert (failed.returncode, words in failed.stderr) == (1, True), failed.stderr
