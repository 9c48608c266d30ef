from __future__ import annotations

from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused
from undertow.runs.folder.model_info import checkpoint, expand_patterns, read_model_info


@pytest.fixture
def folder(in_folder: Path) -> Path:
    """Where names are looked for: checkpoints of a run, a folder without a number, and a file beside them."""
    for name in ("checkpoint-1000", "checkpoint-20", "checkpoint-3", "final", "best"):
        (in_folder / "run" / name).mkdir(parents=True)
    (in_folder / "run" / "checkpoint-5").write_text("no folder")
    return in_folder


def test_a_pattern_stands_for_the_folders_that_it_matches_by_training_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert expand_patterns(["run/checkpoint-*"]) == ["run/checkpoint-3", "run/checkpoint-20", "run/checkpoint-1000"]
    assert expand_patterns(["run/checkpoint-?"]) == ["run/checkpoint-3"]
    assert expand_patterns(["r*/checkpoint-[23]*"]) == ["run/checkpoint-3", "run/checkpoint-20"]
    given = ["toy:slope=2", "run/checkpoint-?0*", "smollm2"]
    assert expand_patterns(given) == ["toy:slope=2", "run/checkpoint-20", "run/checkpoint-1000", "smollm2"]
    # Folders without a step come last by name.
    steps = ["run/checkpoint-3", "run/checkpoint-20", "run/checkpoint-1000"]
    assert expand_patterns(["run/*"]) == [*steps, "run/best", "run/final"]
    monkeypatch.setenv("HOME", str(folder))
    for pattern in (f"{folder}/run/f*", "~/run/f*"):
        assert expand_patterns([pattern]) == [f"{folder}/run/final"]


@pytest.mark.parametrize(
    "pattern",
    [
        # back behind a wildcard
        "**/..", "*/../run", "run/**/../final",
        # nothing matches
        "run/checkpoint-9*", "nosuch/*", "run/checkpoint-5*", "/nosuch-root/*", "run/[a", "nosuch**",
    ],
)  # fmt: skip
def test_a_pattern_that_goes_back_or_matches_no_folder_is_refused(pattern: str, folder: Path) -> None:
    assert_refused((pattern,), expand_patterns, [pattern])
    assert expand_patterns(["run/../run/b*"]) == ["run/../run/best"]
    assert_refused(("'run/checkpoint-20' is named twice",), expand_patterns, ["run/checkpoint-20", "run/checkpoint-*"])
    assert_refused(("-m",), expand_patterns, [])


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500), ("checkpoint_500", 500), ("Checkpoint500", 500), ("step-0", 0),
        ("global_step1000", 1000), ("ckpt-007", 7),
        *((name, None) for name in ("checkpoint", "checkpoint-", "checkpoint-5-best", "5", "model-500")),
    ],
)  # fmt: skip
def test_a_checkpoint_says_its_step_and_whose_it_is(name: str, step: int | None, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    expected = {} if step is None else {"step": float(step), "trajectory": str(tmp_path)}
    for path in (f"{tmp_path / name}", f"{tmp_path / name}/"):
        assert checkpoint(path) == expected
    (tmp_path / "step-3").write_text("no folder")
    assert checkpoint(str(tmp_path / "step-3")) == checkpoint("someone/checkpoint-500") == {}


def about(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "about.toml"
    path.write_text(text, encoding="utf-8")
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
    assert read_model_info(about(tmp_path, text)) == {
        "toy": {"parameters": 1.5e9, "objective": "autoregressive", "post_training": "RLHF"},
        "openai:my-model": {"parameters": 7_000_000_000},
        "run/checkpoint-20": {},
    }
    assert read_model_info(None) == {}
    marked = about(tmp_path, "\ufeff[models.toy]\nparameters = 5\n")
    assert read_model_info(marked) == {"toy": {"parameters": 5}}
    hint = "[models.'Qwen2.5-0.5B']"
    assert_refused((hint,), read_model_info, about(tmp_path, "[models.Qwen2.5-0.5B]\nparameters = 1e9"))
    assert read_model_info(about(tmp_path, f"{hint}\nparameters = 1e9")) == {"Qwen2.5-0.5B": {"parameters": 1e9}}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "[models.smollm2]"), ("[[models]]\nparameters = 1", "table"), ("[toy]\nparameters = 1", "table"),
        ("[models]\ntoy = 1e6", "'toy'"),
        ("[models.toy]\nparams = 1", "model 'toy'"),
        ("[models.toy]\nstep = 3", "step"),
        *((f"[models.toy]\nparameters = {value}", "parameters")
          for value in ('"135M"', "true", "0", "nan")),
        ("[models.toy]\nobjective = 3", "objective"),
        ("[models.toy", "TOML"),
    ],
)  # fmt: skip
def test_a_damaged_file_about_models_is_refused_by_its_key(text: str, named: str, tmp_path: Path) -> None:
    path = about(tmp_path, text)
    assert_refused((path, named), read_model_info, path)
