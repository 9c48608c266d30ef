from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from helpers.file_refusal import assert_refused
from helpers.scripted_model import OF_PROMPTS, Script, partly_hidden
from undertow import models
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest
from undertow.runs.folder import replay
from undertow.runs.pipeline import Run
from undertow.types import BLANK, GENERATION

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_folder")]
PROBE = "spurious-correlation"
OPTIONS: dict[str, Any] = {"w": "date", "date_count": 5, "limit": 30}
FACTS: Mapping[str, str | float] = {"parameters": 9e9, "objective": "autoregressive"}


@pytest.fixture(autouse=True)
def hiding(script: Script) -> None:
    """A model that answers prompts and hides some of each distribution, called `hiding`."""
    script(partly_hidden, OF_PROMPTS, name="hiding", notes=("asked far away",), facts=FACTS)


def run(model: str | list[str], out: str, **more: Any) -> Run:
    return undertow.audit(PROBE, model=model, out=out, **OPTIONS | more)


First = Callable[..., Run]


@pytest.fixture
def first(finished_run: Callable[..., Path]) -> First:
    """A copy of a finished run, which the tests of this file share: in the folder `first`, or another."""

    def copied(model: str | list[str] = "toy", out: str = "first", **more: Any) -> Run:
        shutil.copytree(finished_run(PROBE, model, **OPTIONS | more), out)
        return undertow.load_run(out)

    return copied


def check_same_answers(again: Run, first: Run, model: str) -> None:
    """Every column but the model's name, whatever a cell holds."""
    theirs = first.observations[first.observations["model"] == model].reset_index(drop=True)
    ours = again.observations.drop(columns="model")
    # A model beside others has columns that only the others fill.
    assert all(theirs[name].isna().all() or not theirs[name].any() for name in set(theirs) - {"model"} - set(ours))
    pd.testing.assert_frame_equal(ours, theirs[list(ours)], check_dtype=False, rtol=1e-12)


def check_same_results(again: Run, first: Run, model: str) -> None:
    """Estimates and tests are the same; intervals come from draws that depend on the model's name."""
    theirs = [result for result in first.record.results if result.group["model"] == model]
    assert len(theirs) == len(again.record.results) > 0
    for one, other in zip(again.record.results, theirs, strict=True):
        assert one.measure == other.measure
        assert dict(one.group) == dict(other.group) | {"model": again.manifest["model"]}
        assert (one.n, one.n_missing, one.unit) == (other.n, other.n_missing, other.unit)
        bounds = [name for name in ("bound_low", "bound_high") if name in one.extras]
        ours, expected = ([each.value, each.p, *(each.extras[name] for name in bounds)] for each in (one, other))
        assert ours == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
        width = 0.0 if math.isnan(other.high) else other.high - other.low
        assert one.low == pytest.approx(other.low, abs=0.5 * width + 1e-9, nan_ok=True)
        assert one.high == pytest.approx(other.high, abs=0.5 * width + 1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("toy", {}),
        ("toy", {"prompts": "A", "protocol": "paper"}),
        ("toy", {"prompts": "C", "chat": True, "max_new_tokens": 1}),
        ("hiding", {"prompts": "A,C"}),
        ("toy", {"challenge": "undertow-schemas", "inject": "In {w}: ", "limit": 20}),
    ],
    ids=["blanks", "paper", "chat", "bounds", "sentences"],
)
def test_it_says_and_gives_what_the_run_did(first: First, model: str, asked: dict[str, Any]) -> None:
    original = first(model, **asked)
    again = run("replay:first", "again", **asked)
    check_same_answers(again, original, model)
    check_same_results(again, original, model)
    for name in ("groups", "words", "prompts", "normalised", "scoring_method"):
        assert again.manifest["design"][name] == original.manifest["design"][name]
    assert again.manifest["protocol"] == original.manifest["protocol"]
    assert again.manifest["counts"]["missing"] == 0
    assert again.manifest["model_identity"]["family"] == "replay"
    assert again.manifest["model_identity"]["dtype"] == "as recorded"


BOTH = ["toy", "toy:slope=-5", "hiding"]


def test_one_of_several_models_is_named_after_an_at(first: First) -> None:
    both = first(BOTH, "both")
    for model, kind in zip(BOTH, (BLANK, BLANK, GENERATION), strict=True):
        name = f"replay:both@{model}"
        assert dict(models.resolve(ModelRequest(name)).capabilities) == {kind: ("exact",)}
        again = run(name, f"again {model}")
        check_same_answers(again, both, model)
        check_same_results(again, both, model)
    for name in ("replay:both", "replay:both@nosuch"):
        assert_refused(("toy, toy:slope=-5, hiding",), models.resolve, ModelRequest(name))


def test_models_of_one_run_are_not_taken_for_each_other_and_are_named_as_the_refusal_says(first: First) -> None:
    """Their answers are stored under the same file's hash."""
    first(BOTH, "both")
    again = run(["replay:both@toy", "replay:both@toy:slope=-5"], "second")
    slopes = again.results.query("measure == 'slope' and pronoun == 'female'")["value"].tolist()
    assert slopes[0] > 0 > slopes[1]
    with pytest.raises(UndertowError, match="as in ") as error:
        models.resolve(ModelRequest("replay:second"))
    suggested = str(error.value).partition("as in ")[2]
    assert suggested == "replay:second@replay:both@toy"
    assert models.resolve(ModelRequest(suggested)).identity.source == "second: replay:both@toy"


@pytest.mark.parametrize(
    ("recorded_with", "asked", "n_missing"),
    [
        ({}, {"words": "aaai"}, 30),
        ({"prompts": "A"}, {"prompts": "A,B", "limit": 60}, 30),
        ({"prompts": "A"}, {"prompts": "A", "max_new_tokens": 1}, 30),
    ],
)
def test_what_was_not_asked_is_missing_with_a_reason(
    first: First, recorded_with: dict[str, Any], asked: dict[str, Any], n_missing: int
) -> None:
    first(**recorded_with)
    again = run("replay:first", "again", **asked)
    reasons = again.observations["missing_reason"]
    assert (reasons != "").sum() == again.manifest["counts"]["missing"] == n_missing
    assert len(set(reasons) - {""}) == 1
    assert again.observations.loc[reasons != "", "female"].isna().all()


def test_what_cannot_be_asked_is_refused(first: First, tmp_path: Path) -> None:
    first()
    (tmp_path / "empty").mkdir()
    rows = "\n".join(f"m,season,{at},{at},{at},{10 + at},{30 - at}" for at in range(4))
    Path("table.csv").write_text(f"model,w_name,w_index,w,text_index,xe,ze\n{rows}\n")
    undertow.score("table.csv", audit=PROBE, out="table")
    named: list[tuple[str, dict[str, Any], str]] = [
        ("replay:nosuch", {}, "nosuch"),
        ("replay: ", {}, "replay:FOLDER"),
        ("replay:~nosuch-user/run", {}, "~nosuch-user/run"),
        ("replay:empty", {}, "manifest.json"),
        ("replay:first", {"revision": "main"}, "--revision"),
        ("replay:first@nosuch", {}, "'nosuch'"),
        ("replay:table", {}, "table"),
    ]
    for name, more, word in named:
        assert_refused((word,), models.resolve, ModelRequest(name, **more))
    for asked in ({"prompts": "A"}, {"protocol": "paper"}):
        assert_refused(("replay:first",), run, "replay:first", "again", **asked)
    assert replay.resolve(ModelRequest("replay")) is None
