from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from conftest import make_quick
from helpers.cli_refusal import refused
from helpers.command_line import in_process
from helpers.json_edits import change
from helpers.readers import bounded
from helpers.shared_folders import made_once
from helpers.stored_kinds import KINDS, edit
from undertow.errors import MAX_MESSAGE_CHARS, UndertowError

N_SHORT, N_LONG = 10, 2000
QUICK = (
    "spurious-correlation", "occupation-checklist", "several models", "scored with a graph", "comparison", "table of spurious-correlation",
    "log of lm-eval", "log of Inspect", "causal network", "judgements",
)  # fmt: skip
"""Kinds that differ in how they are read; `make soak` edits all."""
COMMANDS_OF = 200
"""One edit in so many is read by a command line, too."""
NEEDS_TORCH = ("reduced precision", "causal network", "masked network", "encoder-decoder", "lab", "fine-tuned model")


@pytest.fixture(scope="session")
def stored(shared_base: Path) -> Callable[[str], Path]:
    """A folder with one of a kind, not to be changed."""

    def folder(kind: str) -> Path:
        def make(made: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("UNDERTOW_CACHE", str(made / "cache"))
                make_quick(patch, resamples=True)  # of a run, its page is never edited
                (made / "whole").mkdir()
                KINDS[kind].make(made / "whole")

        return made_once(shared_base, f"stored-{kind.replace(' ', '-')}", make) / "whole"

    return folder


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, N_SHORT) for name in QUICK),
        *(pytest.param(name, N_LONG, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]) for name in KINDS),
    ],
)
def test_an_edit_is_refused_in_a_sentence_or_changes_nothing(
    name: str, n: int, stored: Callable[[str], Path], tmp_path: Path, measured: Callable[[str], None]
) -> None:
    if name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="torch is not installed")
    kind, choice, n_refused, began = KINDS[name], random.Random(n), 0, time.monotonic()
    here = shutil.copytree(stored(name), tmp_path / "here")
    kind.read(here, choice)
    contents = {file: (here / file).read_bytes() for file in kind.files}
    for at in range(n):
        file = choice.choice(kind.files)
        told = f"{file}, edit {at}"
        edit(here / file, choice)
        if kind.commands and at % COMMANDS_OF == COMMANDS_OF // 2:
            _check_command(shutil.copytree(here, tmp_path / "command"), choice.choice(kind.commands), told)
            shutil.rmtree(tmp_path / "command")
        try:
            with bounded():
                kind.read(here, choice)
        except UndertowError as error:
            n_refused += 1
            said = str(error)
            assert said.strip(), told
            assert said.isprintable(), f"{told}: {said!r}"
            assert len(said) <= MAX_MESSAGE_CHARS, told
        except Exception as error:
            raise AssertionError(told) from error
        (here / file).write_bytes(contents[file])
    measured(f"{n:,} edits of: {name}; {n_refused:,} refused, {n - n_refused:,} read, {time.monotonic() - began:.0f} s")
    # Of a comparison its key alone is read back.
    assert 0 < n_refused < n or n < N_LONG or name == "comparison"


def _check_command(folder: Path, command: tuple[str, ...], told: str) -> None:
    try:
        done = in_process(folder, *command)
    except Exception as error:
        raise AssertionError(f"{told}: undertow {' '.join(command)}") from error
    assert done.returncode in {0, 1, 2, 3}, f"{told}: {done.stderr}"
    refusals = [line for line in done.stderr.splitlines() if line.startswith("undertow: ")]
    assert done.returncode != 1 or not done.stderr.strip() or refusals, f"{told}: {done.stderr}"


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("manifest.json", ("seed",), None, "seed"),
        ("manifest.json", ("counts", "items"), 10**400, "counts.items"),
        ("manifest.json", ("model_identity", "scoring_method"), ..., "model_identity.scoring_method"),
        ("manifest.json", ("design", "gaps"), [["female"]], "design.gaps.0"),
        ("manifest.json", ("design", "words"), {"female": "she"}, "design.words"),
        ("manifest.json", ("design", "controls", "toy", 0, "other_words"), ..., "other_words"),
        *(("manifest.json", ("design", "pair_groups"), value, "pair_groups") for value in (5, ["a", "b", "c"], [1, 2])),
        ("manifest.json", ("design", "grants"), "chance", "grants"),
        ("results.json", ("results", 0), 1, "results.0"),
        ("results.json", ("results", 0, "value"), "12", "results.0.value"),
        ("results.json", ("results", 0, "value"), 0.5, "it was changed"),
    ],
)
def test_a_changed_field_is_named(  # noqa: PLR0917 - a column each
    name: str, place: tuple[Any, ...], value: object, said: str, stored: Callable[[str], Path], tmp_path: Path
) -> None:
    kind = "occupation-checklist" if place[-1] in {"pair_groups", "grants"} else "spurious-correlation"
    run = shutil.copytree(stored(kind) / "run", tmp_path / "run")
    document = json.loads((run / name).read_text(encoding="utf-8"))
    change(document, place, value)
    (run / name).write_text(json.dumps(document), encoding="utf-8")
    for command in ("report", "score"):
        refused(in_process(tmp_path, command, "run"), said, name)


@pytest.mark.parametrize(
    ("name", "column", "cells", "said"),
    [
        ("spurious-correlation", "w", ..., "it has no column 'w'"),
        ("spurious-correlation", "model", "x", "no row with the model 'toy', which results.json names"),
        ("spurious-correlation", "w_value", None, "its column 'w_value' has an empty cell"),
        ("spurious-correlation", "female", "x", "'female'"),
        ("spurious-correlation", "model", ["x"], "'model'"),
        ("occupation-checklist", "pair", ..., "it has no column 'pair'"),
    ],
)
def test_observations_that_lack_a_column_or_a_name_are_corrupt_in_every_command(  # noqa: PLR0917 - a column each
    name: str, column: str, cells: Any, said: str, stored: Callable[[str], Path], tmp_path: Path
) -> None:
    run = shutil.copytree(stored(name) / "run", tmp_path / "run")
    frame = pd.read_parquet(run / "observations.parquet")
    edited = frame.drop(columns=column) if cells is ... else frame.assign(**{column: [cells] * len(frame)})
    edited.astype({column: frame[column].dtype} if cells is None else {}).to_parquet(
        run / "observations.parquet", index=False
    )
    for command in ("show", "table", "cite", "report"):
        refused(in_process(tmp_path, command, "run"), "observations.parquet: is corrupt", said)
