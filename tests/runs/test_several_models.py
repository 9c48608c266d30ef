from __future__ import annotations

import gc
import json
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import undertow
from conftest import Cli, make_quick
from helpers.answering import n_stored
from helpers.file_refusal import assert_refused
from helpers.sampled_cases import briefly
from helpers.scripted_model import OF_PROMPTS, Said, Script, partly_hidden
from helpers.shared_folders import made_once
from undertow.models.base import RequestFailedError
from undertow.runs.collect import NEVER
from undertow.runs.pipeline import Run
from undertow.stats import benjamini_hochberg
from undertow.types import CONTINUATIONS, EXACT, GENERATION, Query, Result

AUDIT = "spurious-correlation"
BOTH = ["toy", "toy:slope=-5"]
SMALL: dict[str, Any] = {"w": "date,place", "date_count": 8, "limit": 96}
N_SMALL = 6 * 8 + 6 * 8
"""Six sentences at eight dates, and at eight of twenty places."""
TINY: dict[str, Any] = {"w": "date", "date_count": 4, "limit": 8}
ABOUT = """
[models.toy]
parameters = 135e6
objective = "autoregressive"
[models."toy:slope=-5"]
parameters = 7e9
objective = "masked"
post_training = "RLHF"
[models."a model that is not asked"]
parameters = 1e9
"""
Add = Callable[..., list[Query]]


@pytest.fixture
def add(script: Script) -> Add:
    """Adds a model that answers prompts only; those with a number in `lost` get no answer."""

    def add(
        name: str, kinds: Mapping[str, tuple[str, ...]] = OF_PROMPTS, *, lost: frozenset[int] = frozenset()
    ) -> list[Query]:
        def say(query: Query) -> Said:
            return RequestFailedError("the line was cut") if len(model.asked) - 1 in lost else partly_hidden(query)

        model = script(say, kinds, name=name, notes=("asked far away",))
        return model.asked

    return add


@pytest.fixture
def about(shared_base: Path) -> Path:
    return made_once(shared_base, "about-models", lambda made: (made / "about.toml").write_text(ABOUT)) / "about.toml"


@pytest.fixture
def both(finished_run: Callable[..., Path], about: Path) -> Run:
    """A run of two models that drift in opposite directions, with its figures and its page."""
    return undertow.load_run(finished_run(AUDIT, BOTH, model_info=about, page=True, **SMALL))


def of_model(run: Run, model: str) -> list[Result]:
    return [result for result in run.record.results if result.group["model"] == model]


def check_as_alone(run: Run, model: str, alone: Run) -> None:
    """Every number of this model is that of a run of its own, to the bit, q apart; and so is every row."""
    ours, theirs = of_model(run, model), of_model(alone, model)
    assert [(one.measure, dict(one.group)) for one in ours] == [(one.measure, dict(one.group)) for one in theirs]
    assert ours
    for one, other in zip(ours, theirs, strict=True):
        for name in ("value", "low", "high", "p", "null_value", "n", "n_missing", "unit", "note"):
            assert repr(getattr(one, name)) == repr(getattr(other, name)), (one, name)
        # A model that shows everything has no bounds, of which there are columns where another one has them.
        details = [
            {name: number for name, number in each.extras.items()
             if not math.isnan(number) and not name.startswith(("corrected_", "values_q"))}  # which know all tests
            for each in (one, other)
        ]  # fmt: skip
        assert details[0] == details[1]
    rows = run.observations[run.observations["model"] == model].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows[list(alone.observations)], alone.observations, check_dtype=False)


def test_each_model_is_as_in_a_run_of_its_own_and_q_is_over_all_tests(both: Run, tmp_path: Path) -> None:
    q_moved = False
    for model in BOTH:
        alone = undertow.audit(AUDIT, model=model, out=tmp_path / model, **SMALL)
        check_as_alone(both, model, alone)
        q_moved |= [one.q for one in of_model(both, model)] != [one.q for one in of_model(alone, model)]
    assert q_moved
    tested = [one for one in both.record.results if one.measure in ("slope", "slope_gap") and not math.isnan(one.p)]
    expected = benjamini_hochberg(np.array([one.p for one in tested]))
    assert [one.q for one in tested] == pytest.approx(expected.tolist(), abs=1e-12)


def test_manifest_findings_and_page_say_who_was_asked(both: Run) -> None:
    manifest = json.loads((both.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["model"] == "toy, toy:slope=-5"
    assert "model_identity" not in manifest
    parts = manifest["models"]
    assert [part["name"] for part in parts] == BOTH
    assert [part["identity"]["revision"] for part in parts] == [
        "toy version 1, slope 10.0",
        "toy version 1, slope -5.0",
    ]
    counts = {name: manifest["counts"][name] for name in ("items", "queries", "computed", "missing", "lost")}
    assert counts == dict.fromkeys(("items", "queries", "computed"), 2 * N_SMALL) | {"missing": 0, "lost": 0}
    assert manifest["timing"]["inference_s"] == pytest.approx(sum(part["seconds"] for part in parts))
    # Two models were asked the same texts, each by its own name.
    assert len({part["challenge_sha256"] for part in parts}) == 1
    told = [finding.text for finding in both.findings]
    assert "2 models" in told[0]
    assert all(any(name in text for name in ("2 models", *BOTH)) for text in told)
    page = both.report.read_text(encoding="utf-8")
    assert all(said in page for said in (*(f">{name}<" for name in BOTH), f"{N_SMALL:,} texts for each of 2 models"))


def test_what_got_no_answer_is_asked_again(add: Add, tmp_path: Path) -> None:
    asked = add("served", lost=frozenset({1, 4}))
    controls = 8 + 5  # sentences that decide their answer, of which nothing is measured
    first = undertow.audit(AUDIT, model=["toy", "served"], out=tmp_path / "run", prompts="A", **TINY)
    assert len(asked) == 8 + controls
    assert (first.manifest["counts"]["lost"], first.manifest["counts"]["computed"]) == (2, 14)
    assert [part["counts"]["lost"] for part in first.manifest["models"]] == [0, 2]
    missing_reason = first.observations.query("missing_reason != ''")
    assert set(missing_reason["model"]) == {"served"}
    assert missing_reason["missing_reason"].tolist() == ["the line was cut"] * 2
    second = undertow.audit(AUDIT, model=["toy", "served"], out=tmp_path / "run", prompts="A", **TINY)
    assert len(asked) == 10 + controls
    assert (second.manifest["counts"]["lost"], second.manifest["counts"]["computed"]) == (0, 2)
    assert not second.observations["missing_reason"].any()
    third = undertow.audit(AUDIT, model=["toy", "served"], out=tmp_path / "run", prompts="A", **TINY)
    assert len(asked) == 10 + controls
    assert third.manifest["created"] == second.manifest["created"]


def test_a_run_of_several_models_is_measured_anew(both: Run, about: Path, tmp_path: Path) -> None:
    again = undertow.score(both.folder, out=tmp_path / "again")
    assert (again.folder / "results.json").read_bytes() == (both.folder / "results.json").read_bytes()
    other = undertow.score(both.folder, seed=4, out=tmp_path / "other")
    assert other.manifest["models"] == json.loads(json.dumps(both.manifest["models"]))
    pairs = list(zip(other.record.results, both.record.results, strict=True))
    assert [one.value for one, _ in pairs] == pytest.approx([one.value for _, one in pairs], nan_ok=True)
    assert_refused(("--model-info",), undertow.score, both.folder, model_info=about)


@pytest.mark.parametrize(
    ("asked", "more", "expected"),
    [
        (["toy", "continues"], {}, "continues: "),
        (["toy", "nosuch/*"], {}, "nosuch/*: "),
        (["exact", "toy"], {"protocol": "paper"}, "'paper'"),
        (["toy", "toy"], {}, "'toy'"),
        (["toy", "served"], {"model_info": "nosuch.toml"}, "nosuch.toml"),
    ],
)
def test_one_that_cannot_be_asked_stops_all(
    asked: list[str], more: dict[str, Any], expected: str, add: Add, in_folder: Path
) -> None:
    n_asked = [add("served"), add("continues", {CONTINUATIONS: (EXACT,)}), add("exact", {GENERATION: (EXACT,)})]
    assert_refused((expected,), undertow.audit, AUDIT, model=asked, **more, **TINY)
    assert (n_stored(), n_asked) == (0, [[], [], []])
    assert not list(in_folder.iterdir())


@pytest.mark.parametrize("order", briefly([["served", "toy"], ["toy", "served"]]))
def test_one_is_asked_by_blanks_and_one_by_prompts(order: list[str], add: Add, tmp_path: Path) -> None:
    add("served")
    options = TINY | {"limit": 12}
    run = undertow.audit(AUDIT, model=order, out=tmp_path / "run", **options)
    for model in order:
        check_as_alone(run, model, undertow.audit(AUDIT, model=model, out=tmp_path / model, **options))
    frame = run.observations
    assert set(frame.loc[frame["model"] == "toy", "prompt"]) == {""}
    assert set(frame.loc[frame["model"] == "served", "prompt"]) == {"A", "B", "C"}
    assert set(frame.loc[frame["model"] == "toy", "answer"]) == {""}
    assert all(frame.loc[frame["model"] == "served", "answer"].str.endswith("."))
    design = run.manifest["design"]
    assert design["scoring_methods"] == {"toy": "likelihood", "served": "prompt"}
    assert list(design["prompts"]) == ["A", "B", "C"]
    assert set(design["words"]["female"]) >= {"she", "She"}
    bounded = [result for result in of_model(run, "served") if "bound_low" in result.extras]
    assert bounded
    assert all(math.isnan(result.extras.get("bound_low", math.nan)) for result in of_model(run, "toy"))
    assert run.manifest["notes"] == ["served: asked far away"]
    cells = {cell for table in run.tables for row in table.rows for cell in row}
    assert {"toy", "served"} <= cells
    assert not cells & {"nan", "None"}, "nobody knows how many tokens a server's words are"


@pytest.mark.page
def test_what_is_said_about_the_models_of_a_table_is_drawn(
    in_folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"model": model, "w_name": "season", "w_index": index, "w": season, "text_index": text}
        | {"female": 20 + drift * index + text, "male": 40 - drift * index}
        for model, drift in (("small", 1), ("large", 4))
        for index, season in enumerate(["spring", "summer", "autumn", "winter"])
        for text in range(2)
    ]
    pd.DataFrame(rows).to_csv("table.csv", index=False)
    Path("about.toml").write_text("[models.large]\nparameters = 7e9\n[models.small]\nparameters = 125e6\n")
    run = undertow.score("table.csv", audit=AUDIT, model_info="about.toml", out="run")
    assert run.manifest["design"]["models"] == {"large": {"parameters": 7e9}, "small": {"parameters": 125e6}}
    assert [path.stem for path in run.folder.glob("figures/models_*.svg")] == ["models_season_recorded_female-male"]
    page = run.report.read_text(encoding="utf-8")
    assert "7B" in page
    assert "125M" in page
    words = shlex.split(str(run.manifest["command"]))
    make_quick(monkeypatch)
    assert cli(*words[1:], "--out", "again").returncode == 0
    assert undertow.load_run("again").manifest["design"] == run.manifest["design"]
    # What is said about models is part of what is asked for.
    assert_refused(("another run",), undertow.score, "table.csv", audit=AUDIT, out="run")


def test_a_network_is_freed_before_the_next_model_loads(network: Callable[[str], str], tmp_path: Path) -> None:
    """By the objects that Python still has: how much memory is taken is not measured here."""
    threshold, seen = gc.get_threshold(), list[tuple[int, int, int]]()

    def count(*_: int) -> None:
        kinds = [type(one).__name__ for one in gc.get_objects()]
        seen.append((kinds.count("LlamaForCausalLM"), kinds.count("GPTNeoForCausalLM"), gc.get_threshold()[2]))

    gc.collect()
    count()
    undertow.audit(
        AUDIT, [network("tiny_llama"), network("tiny_gpt_neo")], **TINY, out=tmp_path / "run", progress=count
    )
    n_llamas, n_neos, _ = seen[0]
    assert (n_llamas + 1, n_neos, NEVER) in seen
    assert seen[-1] == (n_llamas, n_neos + 1, NEVER)
    assert gc.get_threshold() == threshold
