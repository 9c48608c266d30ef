"""The lab end to end, small: a model whose bias was planted, made, proved to have converged, and read by the audits.

The model is also the masked family's end-to-end test: everything from text to finding, with a truth to compare with.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from undertow.lab.experiment_plan import join_plans
from undertow.lab.verify import _command

pytest.importorskip("torch", reason="torch is not installed")

import undertow
from conftest import Cli
from helpers.cli_refusal import refused
from helpers.processes import touch
from helpers.shared_folders import made_once
from helpers.trained_models import model_rows
from undertow.errors import UndertowError
from undertow.lab import build as building
from undertow.lab import experiment_plan as planning
from undertow.lab.build import Attempt, BuiltModel, read_attempts, read_built, read_plan, train_model
from undertow.lab.experiment_plan import Plan, PlannedModel, planted_world
from undertow.lab.finetune_study import over_seeds
from undertow.lab.lab_folder import write_lab_json
from undertow.lab.planted_corpus import write_about
from undertow.lab.planted_population import Access, PlantedTruth, draw_people
from undertow.lab.settings import SentenceOptions
from undertow.lab.training.training_config import CAUSAL, MASKED, PretrainConfig
from undertow.lab.verify import _chance_verdict, _rise, beside_notes, split_models, verify
from undertow.lab.worker_pool import side_by_side

SUBJECT = PlannedModel(MASKED, 0.65, 7, people=15_000)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def verified_lab(shared_base: Path) -> Path:
    """A lab of one model, trained in fewer steps than usual, and verified: half a minute."""

    def build(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(planning.STEPS, MASKED, 500)
            patch.setenv("UNDERTOW_CACHE", str(folder / "cache"))
            write_lab_json(folder / "plan.json", Plan, (SUBJECT,))
            train_model((str(folder), SUBJECT))
            verify(folder, jobs=1)

    return made_once(shared_base, "lab", build)


@pytest.fixture
def lab(verified_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the lab, for one test."""
    monkeypatch.setitem(planning.STEPS, MASKED, 500)
    return Path(shutil.copytree(verified_lab, tmp_path / "lab"))


@pytest.fixture
def built(lab: Path) -> BuiltModel:
    (one,) = read_built(lab, (SUBJECT,))
    return one


@pytest.mark.soak
def test_trained_model_has_learned_its_corpus_and_is_not_trained_again(
    lab: Path, built: BuiltModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert built.population["date"] == pytest.approx(100 * 0.65 / 29)
    assert built.planted["date"] == pytest.approx(built.population["date"], abs=0.04)  # drawn by quota
    assert built.selected_share == pytest.approx(0.5)
    assert built.floor_nats < built.loss_nats < built.ignorant_nats
    assert built.converged
    assert built.learned["date"] == pytest.approx(built.planted["date"], rel=0.1)
    assert built.learned["place"] == pytest.approx(0, abs=0.1)
    assert len(built.attempts) == 1
    monkeypatch.setattr(building, "train", lambda *given: pytest.fail("trained again"))
    train_model((str(lab), SUBJECT))
    assert building.build(lab, (SUBJECT,))[0].subject == SUBJECT


@pytest.mark.soak
def test_both_audits_read_what_was_planted(lab: Path, built: BuiltModel) -> None:
    """On sentences that the corpus does not hold."""
    drift, specification = (
        undertow.load_run(lab / "audits" / SUBJECT.name / name) for name in ("drift", "specification")
    )
    assert drift.manifest["counts"]["missing"] == 0
    slopes = drift.results.query("measure == 'slope' and pronoun == 'female'").set_index("w_name")
    # Held-out frames, a short training: within a fifth of what was planted, and nothing where nothing was.
    assert slopes["value"]["date"] == pytest.approx(built.planted["date"], rel=0.2)
    assert slopes["q"]["date"] < 0.05
    assert abs(slopes["value"]["place"]) < 0.3
    assert drift.findings[0].significant
    assert "date" in drift.findings[0].text
    areas = specification.results.query("measure == 'auroc'").set_index("score")["value"]
    assert {"delta_female", "entropy"} <= set(areas.index)
    assert areas["delta_female"] > 0.9
    people = draw_people(Access(SUBJECT.access, SUBJECT.strength), planted_world(), 2_000, 1)
    shapes = {one.masked.lower() for one in write_about(people, planted_world(), SentenceOptions(1))}
    assert not shapes & set(drift.observations["text"].str.lower())


def test_a_training_that_does_not_converge_is_repeated_longer_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(planning.STEPS, CAUSAL, 2)
    monkeypatch.setattr(building, "JUDGED_PEOPLE", 40)
    subject = PlannedModel(CAUSAL, 0.65, 1, people=100)
    train_model((str(tmp_path), subject))
    (one,) = read_built(tmp_path, (subject,))
    assert [attempt.steps for attempt in one.attempts] == [2, 4, 8]
    assert not one.converged
    assert [entry.name for entry in (tmp_path / "models").iterdir() if entry.is_dir()] == [subject.name]


QUICK = PlannedModel(CAUSAL, 0.65, 1, people=100)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Trainings of two and four steps, judged by few: they learn nothing, in no time."""
    monkeypatch.setitem(planning.STEPS, CAUSAL, 2)
    monkeypatch.setattr(building, "ATTEMPTS", 2)
    monkeypatch.setattr(building, "JUDGED_PEOPLE", 40)
    return monkeypatch


def here(do: Any, works: Any, *given: object, **named: object) -> None:
    """In place of `side_by_side`: in this process, so that what a test has changed holds."""
    for work in works:
        do(work)


def test_a_training_that_fails_is_listed_and_the_others_are_made(tmp_path: Path, quick: pytest.MonkeyPatch) -> None:
    quick.setattr(building, "side_by_side", here)
    quick.setitem(planning.STEPS, CAUSAL, 4)
    plan = (QUICK, replace(QUICK, seed=2))
    recipe = PlannedModel.config.fget  # type: ignore[attr-defined]

    def diverging(subject: PlannedModel) -> PretrainConfig:
        wanted: PretrainConfig = recipe(subject)
        return replace(wanted, learning_rate=1e30, warmup_steps=0) if subject.seed == 1 else wanted

    quick.setattr(PlannedModel, "config", property(diverging))
    failed, made = building.build(tmp_path, plan)
    assert failed.failed
    assert not failed.converged
    assert ["is not a number" in attempt.failure for attempt in failed.attempts] == [True, True]
    assert not (tmp_path / "models" / QUICK.name).exists()
    assert not made.failed
    assert read_built(tmp_path, plan) == [made]
    assert "NaN" not in (tmp_path / "models" / f"{QUICK.name}.planted.json").read_text()
    # It would fail so again, and is not tried again.
    quick.setattr(building, "train", lambda *given: pytest.fail("trained again"))
    assert len(building.build(tmp_path, plan)) == 2
    # With another recipe it would be another model.
    quick.setattr(PlannedModel, "config", property(recipe))
    assert read_attempts(tmp_path, (QUICK,)) == []


def test_work_side_by_side_reports_a_failure_once_the_rest_is_done(tmp_path: Path) -> None:
    works = ["recurrent", str(tmp_path / "it")]
    with pytest.raises(UndertowError, match="'recurrent'"):
        side_by_side(touch, works, 2, jobs=1, cache=tmp_path, progress=lambda done, total: None)
    assert (tmp_path / "it").exists()


def test_a_terminated_lab_ends_with_one_sentence() -> None:
    """SIGTERM ends the processes and frees their semaphores, of which Python would print a warning."""
    script = (
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "from undertow.cli.console import stoppable\n"
        "from undertow.lab.worker_pool import side_by_side\n"
        "def stop(done, total):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "with stoppable('models are kept'):\n"
        "    side_by_side(time.sleep, [60], 1, jobs=1, cache=Path('cache'), progress=stop)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "StoppedError: stopped; models are kept" in ended.stderr
    assert "resource_tracker" not in ended.stderr


def test_a_network_that_says_no_numbers_has_failed(tmp_path: Path, quick: pytest.MonkeyPatch) -> None:
    quick.setattr(building, "side_by_side", here)
    quick.setattr(building, "option_losses", lambda folder, questions: np.full(len(questions), np.nan))
    (one,) = building.build(tmp_path, (QUICK,))
    assert one.failed
    assert [entry.name for entry in (tmp_path / "models").iterdir()] == [f"{QUICK.name}.planted.json"]
    assert building.build(tmp_path, (QUICK,)) != []


@pytest.mark.soak
def test_one_lab_is_built_by_one_build_also_after_one_that_was_killed(
    tmp_path: Path, quick: pytest.MonkeyPatch
) -> None:
    quick.setattr(building, "side_by_side", here)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from undertow.lab import build as building\n"
        "def hold(*given, **named):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
        "building.side_by_side = hold\n"
        "building.build(Path(sys.argv[1]), ())\n"
    )
    command, pipe = [sys.executable, "-c", script, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(UndertowError, match="another command") as refusal:
                building.build(tmp_path, (QUICK,))
            assert "\n" not in str(refusal.value)
            assert not (tmp_path / "models").exists()
        finally:
            other.kill()
    assert len(building.build(tmp_path, (QUICK,))) == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"attempts": [3]}', '{"attempts": [], "subject": {"a": 1}}'])
def test_a_damaged_model_file_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{QUICK.name}.planted.json").write_text(text)
    with pytest.raises(UndertowError, match=r"planted\.json") as refusal:
        read_built(tmp_path, (QUICK,))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("loss", "slope", "kept", "converged"),
    [
        (0.655, 2.0, {}, True),  # 0.006 may be missing
        (0.657, 2.0, {}, False),
        (0.655, 2.19, {}, True),
        (0.655, 2.21, {}, False),
        (0.655, 0.45, {"planted": 0.54}, True),
        (0.655, math.nan, {}, False),
        # No unbiased model is left out for its slope.
        (0.6915, -3.0, {"floor": 0.69, "planted": 0.0}, True),
        (0.6925, 0.0, {"floor": 0.69, "planted": 0.0}, False),
    ],
)
def test_convergence_is_of_what_there_is_to_learn(
    loss: float, slope: float, kept: dict[str, float], converged: bool
) -> None:
    of_date, floor = {"date": kept.get("planted", 2.0)}, kept.get("floor", 0.65)
    attempt = Attempt(1, loss, 1.0, {"date": slope})
    assert BuiltModel(SUBJECT, of_date, of_date, 0.5, floor, 0.69, (attempt,)).converged is converged


def test_plans_hold_each_model_once_and_the_small_one_is_part_of_the_full_one(tmp_path: Path) -> None:
    small, full = planning.small(), planning.full()
    names = [subject.name for subject in full]
    assert len(names) == len(set(names))
    assert set(small) < set(full)
    write_lab_json(tmp_path / "plan.json", Plan, full)
    assert read_plan(tmp_path) == full
    assert len({subject.own_seed for subject in full}) == len(full)
    unbiased = [subject for subject in full if not subject.strength and subject.trades == "unordered"]
    assert len(unbiased) >= 20
    assert {subject.strength for subject in small} >= {0.0, 0.65, -0.65}


def beside(trades: str, sampling: str, alarms: int, n: int = 20) -> pd.DataFrame:
    """Unbiased models that are told apart, some of which drift along the date."""
    frame = pd.DataFrame([row for at in range(n) for row in model_rows(f"{trades}-{sampling}-{at}", "masked", 0.0)])
    chosen = frame["model"].isin([f"{trades}-{sampling}-{at}" for at in range(alarms)]) & (frame["w_name"] == "date")
    return frame.assign(trades=trades, sampling=sampling, trainings=1, q=frame["q"].mask(chosen, 0.01))


def test_models_are_judged_apart() -> None:
    judged, by_chance = beside("unordered", "quota", 0), beside("unordered", "independent", 2)
    smooth = beside("ordered", "quota", 3)
    parts = split_models(pd.concat([smooth, judged, by_chance]))
    (*_, said) = beside_notes(parts[0], parts[1], parts[2], 60, 0)
    assert "comes from training" in said
    assert "3 of them drift" in said
    for part, wanted in zip(parts, (judged, by_chance, smooth), strict=True):
        assert part["model"].tolist() == wanted["model"].tolist()


@pytest.mark.parametrize(("alarms", "met"), [(2, True), (3, False)])
def test_false_alarms_where_texts_lean_by_chance_are_a_promise_too(alarms: int, met: bool) -> None:
    ((_, _, said, is_met),) = _chance_verdict(beside("unordered", "independent", alarms))
    assert f"{alarms * 5}%" in said
    assert is_met is met
    assert _chance_verdict(beside("unordered", "independent", alarms, n=19)) == []


def test_over_seeds() -> None:
    rows = [
        {"kind": "plain", "challenge": "as they are", "seed": seed, "planted_slope": 2.0}
        | {"female_slope": slope, "male_slope": -slope}
        for seed, slope in enumerate((1.0, 2.0, 3.0))
    ]
    (told,) = over_seeds(pd.DataFrame(rows))
    half = 4.302652729911275 / math.sqrt(3)  # t with two degrees of freedom; the standard deviation is 1
    assert told["female"] == pytest.approx(2.0)
    assert (told["low"], told["high"]) == pytest.approx((2 - half, 2 + half))
    assert told["largest sum of female and male"] == 0


def test_strength_of_any_access_is_the_rise_of_its_line() -> None:
    known = PlantedTruth.from_world(
        Access("0.5 + gender * (0.2 * (place - 0.5) - 0.1 * (date - 0.5))"), planted_world()
    )
    slopes = known.slopes()
    assert _rise(slopes["place"], 20) == pytest.approx(0.2, abs=0.01)
    assert _rise(slopes["date"], 30) == pytest.approx(-0.1, abs=0.01)
    assert _rise(1e-12, 30) == 0.0
    assert _rise(PlantedTruth.from_world(Access(strength=0.65), planted_world()).slopes()["date"], 30) == 0.65


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("build", "--small", "--out", "mine"), "mine"), (("build", "--strength", "3"), "not a probability"),
        (("verify", "--out", "nowhere"), "nowhere"), (("verify", "--out", "broken"), "plan.json"),
        (("verify", "--out", "empty"), "no model"), (("corpus", "mine/notes.txt"), "notes.txt"),
        (("corpus", "new.jsonl", "--people", "2000000000"), "people must be at most 1,000,000"),
        (("corpus", "nowhere/new.jsonl"), "nowhere"),
    ],
)  # fmt: skip
def test_bad_lab_command_is_refused(command: tuple[str, ...], said: str, cli: Cli, tmp_path: Path) -> None:
    files = {"mine/notes.txt": "mine", "broken/plan.json": "[{", "empty/plan.json": "[]"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    refused(cli("lab", *command), said)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"


def test_the_command_that_repeats_a_lab(tmp_path: Path) -> None:
    def told(plan: Plan) -> str:
        return _command(tmp_path, plan).replace(str(tmp_path), "LAB")

    verified = "undertow lab verify --out LAB"
    own = planning.custom([0.3, -0.65], [4, 2])
    assert told(planning.small()) == f"undertow lab build --small --out LAB && {verified}"
    assert told(planning.full()) == f"undertow lab build --out LAB && {verified}"
    options = "--strength -0.65 --strength 0.3 --seed 2 --seed 4"
    assert told(own) == f"undertow lab build {options} --out LAB && {verified}"
    access = "0.5 + strength * gender * (place - 0.5)"
    assert told(planning.custom([0.3], [1], access)).endswith(f"--access '{access}' --out LAB && {verified}")
    assert told(join_plans(own, planning.small())) == verified
