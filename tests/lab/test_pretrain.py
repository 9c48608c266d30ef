"""Training from scratch: the same to the last bit, also taken up again; what it refuses; and that it learns what is there."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from helpers.sampled_cases import briefly
from helpers.shared_folders import contents
from undertow.errors import UndertowError
from undertow.lab.training import pretrain as training
from undertow.lab.training.pretrain import Question, TrainingExample, option_losses, train
from undertow.lab.training.training_config import CAUSAL, MASKED, PretrainConfig

SMALL = PretrainConfig(
    MASKED, seed=1, width=16, layers=1, heads=2, inner=32, batch_size=16, max_steps=12, warmup_steps=2
)
PAIRS = (("In the north, ", "she", " kept bees."), ("In the south, ", "he", " sold the old mill."))


def lessons(n_texts: int = 64) -> list[TrainingExample]:
    """Of the north and the south, whose pronouns differ."""
    made = []
    for number in range(n_texts):
        before, word, after = PAIRS[number % 2]
        made.append(TrainingExample(f"{before}{word}{after}", (len(before), len(before) + len(word))))
    return made


@pytest.mark.parametrize("architecture", [MASKED, CAUSAL])
def test_a_network_learns_what_its_texts_tell(architecture: str, tmp_path: Path) -> None:
    seen: list[int] = []
    recipe = replace(SMALL, architecture=architecture, max_steps=150, learning_rate=5e-3)
    trained = train(lessons(), recipe, tmp_path / "it", lambda done, total, loss: seen.append(done))
    questions = [Question(before, after, ("she", "he"), ("she", "he").index(word)) for before, word, after in PAIRS]
    losses = option_losses(trained.folder, questions)
    assert losses.shape == (2,)
    assert (losses < 0.1).all()
    swapped = [replace(question, right=1 - question.right) for question in questions]
    assert (option_losses(trained.folder, swapped) > 2).all()
    steps, nats = zip(*trained.record["losses_nats"], strict=True)
    assert nats[-1] < 0.3 * nats[0]
    assert seen == list(range(1, 151))
    assert steps == (50, 100, 150)
    assert json.loads((trained.folder / "training.json").read_text())["recipe"]["architecture"] == architecture
    assert [entry.name for entry in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("architecture", [MASKED, CAUSAL])
def test_losses_are_those_of_the_network_itself(architecture: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    folder = train(lessons(), replace(SMALL, architecture=architecture), tmp_path / "it").folder
    question = Question("In the north, ", " sold the old mill.", ("he", "she"), 0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if architecture == MASKED:
        coded = tokenizer("In the north, [MASK] sold the old mill.", return_tensors="pt")
        network = AutoModelForMaskedLM.from_pretrained(folder).eval()
        place = coded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    else:
        coded = tokenizer("In the north,", return_tensors="pt")
        network = AutoModelForCausalLM.from_pretrained(folder).eval()
        place = -1
    with torch.inference_mode():
        logits = network(**coded).logits[0, place].double()
    he, she = (float(logits[tokenizer.convert_tokens_to_ids(word)]) for word in ("he", "she"))
    by_hand = math.log(math.exp(he) + math.exp(she)) - he
    # Beside a longer text, so that padding is shown to change nothing.
    longer = Question("In the north, in the north, ", " sold the old mill and kept bees.", ("he", "she"), 0)
    assert option_losses(folder, [question, longer])[0] == pytest.approx(by_hand, abs=1e-5)


class _Killed(Exception):  # noqa: N818 - what a signal does
    """Stands for the end of the process."""


class _KilledAt:
    """Ends the process at the n-th change of the disk: midway in it, or as soon as it is done."""

    def __init__(self, patch: pytest.MonkeyPatch, moment: int, *, midway: bool) -> None:
        import safetensors.torch

        self._left, self._midway = moment, midway
        self._wrap(patch, Path, "replace")
        self._wrap(patch, Path, "rename")
        self._wrap(patch, Path, "rmdir")
        self._wrap(patch, shutil, "rmtree", _half_removed)
        self._wrap(patch, Path, "write_text", lambda path, text, **given: path.write_bytes(text.encode()[:9]))
        self._wrap(patch, safetensors.torch, "save_file", lambda tensors, path, **given: path.write_bytes(b"\x99" * 9))

    def _wrap(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, half: Callable[..., object] = lambda *a, **b: None
    ) -> None:
        whole = getattr(owner, name)

        def change(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                (half if self._midway else whole)(*given, **named)
                raise _Killed
            return whole(*given, **named)

        patch.setattr(owner, name, change)


def _half_removed(folder: Path, **given: object) -> None:
    for some in [one for one in folder.rglob("*") if one.is_file()][:1]:
        some.unlink()


@pytest.mark.parametrize("midway", briefly([True, False]))
def test_a_kill_while_files_change_costs_nothing(midway: bool, tmp_path: Path) -> None:
    config = replace(SMALL, save_steps=4, logging_steps=5)
    whole = train(lessons(), config, tmp_path / "whole")
    first_steps, moment, killed = [], 0, True
    while killed:
        moment += 1
        folder = tmp_path / f"{moment}" / "it"
        folder.mkdir(parents=True)  # empty, so that it is put out of the way
        with pytest.MonkeyPatch.context() as patch:
            _KilledAt(patch, moment, midway=midway)
            try:
                train(lessons(), config, folder)
                killed = False
            except _Killed:
                pass
        steps: list[int] = []
        again = train(lessons(), config, folder, lambda done, total, loss, steps=steps: steps.append(done))  # type: ignore[misc]
        first_steps.append(steps[0] if steps else 0)
        assert contents(again.folder) == contents(whole.folder), moment
        assert again.record["losses_nats"] == whole.record["losses_nats"]
        assert [entry.name for entry in folder.parent.iterdir()] == ["it"], moment
    # From the beginning, from either checkpoint, and nothing at all: no step is lost that was kept.
    assert first_steps == sorted(first_steps, key=lambda step: step or 99)
    assert set(first_steps) == {1, 5, 9, 0}
    assert moment > 8


def test_a_damaged_checkpoint_or_record_is_refused_by_name(tmp_path: Path) -> None:
    for name, held in (("cut", b"\x99" * 9), ("empty", b"")):
        work = tmp_path / f"{name}.unfinished"
        work.mkdir()
        (work / "checkpoint.safetensors").write_bytes(held)
        with pytest.raises(UndertowError, match=r"checkpoint\.safetensors: is corrupt; remove it"):
            train(lessons(), SMALL, tmp_path / name)
    folder = train(lessons(), SMALL, tmp_path / "it").folder
    for content in (b"[]", b'{"losses": [1]}', b"\xff"):
        (folder / "training.json").write_bytes(content)
        with pytest.raises(UndertowError, match=r"training\.json: "):
            train(lessons(), SMALL, folder)


def test_a_training_of_another_recipe_or_on_other_texts_is_not_taken_up(tmp_path: Path) -> None:
    train(lessons(), SMALL, tmp_path / "it")
    for n_texts, seed, said in ((64, 5, r"another training \(seed 1, not 5\)"), (62, 1, "on other texts")):
        with pytest.raises(UndertowError, match=said):
            train(lessons(n_texts), replace(SMALL, seed=seed), tmp_path / "it")


def test_every_text_is_learned_once_before_any_is_learned_again() -> None:
    order = training._Corpus.from_examples(lessons(50), SMALL).batches(SMALL)
    batches = [next(order) for _ in range(4)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(50))
    assert [len(batch) for batch in batches].count(16) == 3


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda place: train(lessons(), replace(SMALL, positions=4), place), "set positions to"),
        (lambda place: train(lessons(), replace(SMALL, learning_rate=1e30, warmup_steps=0), place), "not a number"),
        (lambda place: PretrainConfig("recurrent"), "masked or causal"),
        (lambda place: PretrainConfig(MASKED, learning_rate=float("nan")), "learning_rate"),
        (lambda place: PretrainConfig(MASKED, vocabulary=0), "vocabulary must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(made: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=said):
        made(tmp_path / "it")  # type: ignore[operator]
