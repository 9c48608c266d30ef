"""Names of several models: patterns written out by training step, and the file that says what models do not tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from undertow import subjects
from undertow.subjects import KNOWN, checkpoint, read_about, written_out
from undertow.types import UndertowError


def refusal(refused: Callable[[], object]) -> str:
    """The one sentence that this refusal is."""
    with pytest.raises(UndertowError) as error:
        refused()
    said = str(error.value)
    assert said
    assert "\n" not in said
    return said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where names are looked for: checkpoints of a run, a folder without a number, and a file beside them."""
    monkeypatch.chdir(tmp_path)
    for name in ("checkpoint-1000", "checkpoint-20", "checkpoint-3", "final", "best"):
        (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run" / "checkpoint-5").write_text("no folder")
    return tmp_path


# Patterns.


def test_a_pattern_stands_for_the_folders_that_it_matches_by_training_step(folder: Path) -> None:
    assert written_out(["run/checkpoint-*"]) == ["run/checkpoint-3", "run/checkpoint-20", "run/checkpoint-1000"]
    assert written_out(["run/checkpoint-?"]) == ["run/checkpoint-3"]
    assert written_out(["r*/checkpoint-[23]*"]) == ["run/checkpoint-3", "run/checkpoint-20"]


def test_folders_without_a_step_come_last_by_name(folder: Path) -> None:
    steps = ["run/checkpoint-3", "run/checkpoint-20", "run/checkpoint-1000"]
    assert written_out(["run/*"]) == [*steps, "run/best", "run/final"]


def test_a_pattern_may_be_a_whole_path(folder: Path) -> None:
    assert written_out([f"{folder}/run/f*"]) == [f"{folder}/run/final"]


@pytest.mark.parametrize(
    "pattern", ["**/checkpoint-*", "run/**/checkpoint-*", "**/run/**/checkpoint-*", "**/**/checkpoint-*"]
)
def test_a_pattern_may_go_through_folders_at_any_depth(pattern: str, folder: Path) -> None:
    (folder / "run/later/on/checkpoint-7").mkdir(parents=True)
    steps = ["run/checkpoint-3", "run/later/on/checkpoint-7", "run/checkpoint-20", "run/checkpoint-1000"]
    assert written_out([pattern]) == steps
    assert written_out(["run/la*", "run/later/**/checkpoint-*"]) == ["run/later", "run/later/on/checkpoint-7"]
    assert written_out(["run/later/**"]) == ["run/later/on/checkpoint-7", "run/later", "run/later/on"]


@pytest.mark.parametrize("pattern", ["**/checkpoint-*", "**/nosuch", "run/*"])
def test_a_pattern_does_not_go_through_everything(pattern: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "MOST_FOLDERS", 4)
    assert "goes through more than 4 files and folders; name more of the path" in refusal(
        lambda: written_out([pattern])
    )
    assert written_out(["run/b*"]) == ["run/best"]


@pytest.mark.parametrize("pattern", ["*/*/*/nosuch", "*/*/nosuch/**", "?/?/?/*.bin", "**/nosuch/*", "0/*/*/nosuch/x"])
def test_folders_that_a_wildcard_goes_through_count_where_nothing_matches_too(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(64):
        (tmp_path.joinpath(*f"{number:03o}")).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subjects, "MOST_FOLDERS", 8)
    assert "goes through more than 8 files and folders" in refusal(lambda: written_out([pattern]))
    assert written_out(["0/*"]) == [f"0/{number}" for number in range(8)]


@pytest.mark.parametrize("pattern", ["**/..", "*/../run", "run/**/../final", "run/checkpoint-*/.."])
def test_a_pattern_does_not_go_back_behind_a_wildcard(pattern: str, folder: Path) -> None:
    said = refusal(lambda: written_out([pattern]))
    assert (
        said == f"{pattern}: has a .. behind a wildcard, which would match a folder again and again; write it without"
    )
    assert written_out(["run/../run/b*"]) == ["run/../run/best"]


def test_a_pattern_of_any_length_is_read(folder: Path) -> None:
    assert written_out(["/".join(["**"] * 1200 + ["best"])]) == ["run/best"]
    assert written_out(["/".join(["run/.."] * 500 + ["r*", "best"])])[0].endswith("/run/best")


def test_a_folder_that_goes_away_meanwhile_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(place: Path, pattern: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(place / "gone"))

    monkeypatch.setattr(Path, "glob", gone)
    said = refusal(lambda: written_out(["**/step-*"]))
    assert "gone could not be looked into (No such file or directory); name more of the path, or run again" in said


def test_names_keep_their_order_and_a_pattern_its_place(folder: Path) -> None:
    given = ["toy:slope=2", "run/checkpoint-?0*", "smollm2", "someone/model"]
    expected = ["toy:slope=2", "run/checkpoint-20", "run/checkpoint-1000", "smollm2", "someone/model"]
    assert written_out(given) == expected


def test_a_folder_whose_name_looks_like_a_pattern_is_itself(folder: Path) -> None:
    (folder / "model[1]").mkdir()
    (folder / "model1").mkdir()
    assert written_out(["model[1]"]) == ["model[1]"]
    assert written_out(["model[12]"]) == ["model1"]


@pytest.mark.parametrize("names", [["toy", "toy:slope=3", "toy"], ["run/checkpoint-20", "run/checkpoint-*"]])
def test_a_model_is_named_once(names: list[str], folder: Path) -> None:
    said = refusal(lambda: written_out(names))
    assert "is named twice" in said
    assert repr(names[0]) in said


def test_no_model_is_none() -> None:
    assert "give one with -m" in refusal(lambda: written_out([]))


@pytest.mark.parametrize("pattern", ["run/checkpoint-9*", "nosuch/*", "run/checkpoint-5*", "/nosuch-root/*", "run/[a"])
def test_a_pattern_that_matches_no_folder_is_refused(pattern: str, folder: Path) -> None:
    said = refusal(lambda: written_out([pattern]))
    assert said.startswith(f"{pattern}: no folder matches")


@pytest.mark.parametrize("pattern", ["nosuch**", "nosuch**/*"])
def test_a_pattern_that_is_none_is_refused(pattern: str, folder: Path) -> None:
    assert pattern in refusal(lambda: written_out([pattern]))


def test_a_pattern_may_begin_at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In quotes, as a pattern has to be, it passes by the shell, which would write out the ~."""
    monkeypatch.setenv("HOME", str(folder))
    assert written_out(["~/run/f*"]) == [f"{folder}/run/final"]


# Checkpoints.


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500.0),
        ("checkpoint_500", 500.0),
        ("Checkpoint500", 500.0),
        ("step-0", 0.0),
        ("global_step1000", 1000.0),
        ("ckpt-007", 7.0),
    ],
)
def test_a_checkpoint_says_its_step_and_whose_it_is(name: str, step: float, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert checkpoint(str(tmp_path / name)) == {"step": step, "trajectory": str(tmp_path)}
    assert checkpoint(f"{tmp_path / name}/") == {"step": step, "trajectory": str(tmp_path)}


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint-", "checkpoint-5-best", "5", "model-500"])
def test_a_folder_of_another_name_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert checkpoint(str(tmp_path / name)) == {}


def test_only_a_folder_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-3").write_text("no folder")
    assert checkpoint(str(tmp_path / "step-3")) == {}
    assert checkpoint("someone/checkpoint-500") == {}


# What is said about models.


def about(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "about.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_what_a_file_says_is_read_by_model(tmp_path: Path) -> None:
    text = """
[models.toy]
parameters = 1.5e9
objective = "autoregressive"
post_training = "RLHF"
[models."openai:my-model"]
parameters = 7_000_000_000
[models."run/checkpoint-20"]
"""
    assert read_about(about(tmp_path, text)) == {
        "toy": {"parameters": 1.5e9, "objective": "autoregressive", "post_training": "RLHF"},
        "openai:my-model": {"parameters": 7_000_000_000},
        "run/checkpoint-20": {},
    }
    assert read_about(None) == {}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf[models.toy]\nparameters = 5\n"
    assert read_about(about(tmp_path, text)) == {"toy": {"parameters": 5}}


@pytest.mark.parametrize("name", ["SmolLM2-1.7B", "Qwen2.5-0.5B"])
def test_a_name_with_dots_needs_quotes(name: str, tmp_path: Path) -> None:
    said = refusal(lambda: read_about(about(tmp_path, f"[models.{name}]\nparameters = 1e9")))
    hint = f"[models.{name!r}]"
    assert hint in said
    assert read_about(about(tmp_path, f"{hint}\nparameters = 1e9")) == {name: {"parameters": 1e9}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["needs one table for each model", "[models.smollm2]"]),
        ("models = 3", ["needs one table for each model"]),
        ("[[models]]\nparameters = 1", ["needs one table for each model"]),
        ("[models.toy]\n[sizes]\ntoy = 1", ["needs one table for each model"]),
        ("[toy]\nparameters = 1", ["needs one table for each model"]),
        ("[models]\ntoy = 1e6", ["model 'toy'", "must be a table"]),
        ("[models.toy]\nparams = 1", ["model 'toy'", "'params' is not known", *KNOWN]),
        ("[models.toy]\nstep = 3", ["'step' is not known"]),
        ('[models.toy]\nparameters = "135M"', ["model 'toy'", "parameters is '135M'", "must be a number"]),
        ("[models.toy]\nparameters = true", ["parameters is True", "must be a number"]),
        ("[models.toy]\nparameters = 0", ["parameters is 0", "more than 0"]),
        ("[models.toy]\nparameters = -1e6", ["parameters is -1000000.0", "more than 0"]),
        ("[models.toy]\nparameters = nan", ["parameters is nan", "more than 0"]),
        ("[models.toy]\nparameters = inf", ["parameters is inf", "more than 0"]),
        ("[models.toy]\nobjective = 3", ["objective is 3", "must be text"]),
        ("[models.toy]\npost_training = 2020-01-01", ["post_training is", "must be text"]),
        ('[models."a\\nb"]\n"no\\nsuch" = 1', ["is not known"]),
        ("[models.toy", ["not valid TOML"]),
        ("[models.toy]\n[models.toy]", ["not valid TOML"]),
        (b"[models.toy]\nobjective = '\xff'", ["byte 26 is not UTF-8"]),
        pytest.param("models = " + "[" * 20_000, ["not valid TOML"], id="too deep"),
        pytest.param("[models.toy]\nparameters = 1" + "0" * 400, ["parameters is"], id="too large for a number"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(text: str | bytes, words: list[str], tmp_path: Path) -> None:
    path = about(tmp_path, text)
    said = refusal(lambda: read_about(path))
    assert said.startswith(f"{path}")
    for word in words:
        assert word in said


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(lambda: read_about(tmp_path / "nosuch.toml"))
    assert "directory" in refusal(lambda: read_about(tmp_path))
