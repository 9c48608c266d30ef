"""Fine-tuning on masked words: what was planted is learned, a killed training ends as one that was not, mistakes are one sentence."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.planted_lives import LABELS, STAGES, YEARS, fixed_tokenizer, lives
from helpers.sampled_cases import briefly
from helpers.shared_folders import contents
from helpers.tiny_models import POSITIONS
from undertow.errors import UndertowError
from undertow.lab.training.finetune import finetune
from undertow.lab.training.token_windows import Example, batches, rows_of
from undertow.lab.training.training_config import FinetuneConfig
from undertow.models.base import ModelRequest
from undertow.models.families import token_classifier
from undertow.types import EXACT, ClozeQuery, Option, digest

torch = pytest.importorskip("torch", reason="the model extra is not installed")

RECIPE = FinetuneConfig(LABELS, max_steps=120, learning_rate=3e-3, held_out=0.1)
SHORT = replace(RECIPE, max_steps=9, batch_size=16, save_steps=4)
OPTIONS = (Option("female", ("she",)), Option("male", ("he",)))
SAFETENSORS = "model.safetensors"


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """What is the same to the last bit is so with one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="module")
def base(network: Callable[[str], str]) -> Path:
    return Path(network("small_base"))


@pytest.fixture(scope="module")
def few() -> list[Example]:
    return lives(200, in_front=True)


def percent_female(folder: Path, *, in_front: bool) -> list[float]:
    """By year, as the family reads the folder."""
    found = token_classifier.resolve(ModelRequest(str(folder), device="cpu"))
    assert found is not None
    layout = "{}. " if in_front else "In {}, "
    queries = [ClozeQuery((layout.format(year), f" was {stage}."), OPTIONS) for year in YEARS for stage in STAGES]
    answers: dict[int, Any] = {}
    for arrived in found.open().answer(queries, EXACT):
        answers |= arrived
    probs = [math.exp(answers[place].logprobs_nats[0]) for place in range(len(queries))]
    return [100 * float(mean) for mean in np.array(probs).reshape(len(YEARS), -1).mean(1)]


@pytest.mark.parametrize(("in_front", "sign"), briefly([(True, 1), (True, -1), (False, 1)]))
def test_the_planted_direction_is_learned_from_metadata_and_from_texts(
    in_front: bool, sign: int, base: Path, tmp_path: Path
) -> None:
    """80 points over 9 steps are planted: 8.9 a step."""
    made = finetune(base, lives(1200, in_front=in_front, sign=sign), RECIPE, tmp_path / "made")
    read = np.polyfit(np.arange(len(YEARS)), percent_female(made.folder, in_front=in_front), 1)[0]
    assert 6 < sign * read < 11
    assert made.held_out is not None
    for fit in (made.training, made.held_out):
        assert fit.floor_nats < fit.loss_nats < fit.majority_loss_nats
        assert fit.accuracy > fit.majority_accuracy + 0.05
    shares = 0.1 + 0.8 * np.arange(len(YEARS)) / (len(YEARS) - 1)
    planted_nats = float(np.mean(-shares * np.log(shares) - (1 - shares) * np.log(1 - shares)))
    assert made.training.loss_nats == pytest.approx(planted_nats, abs=0.05)
    losses = [loss for _, loss in made.record["losses_nats"]]
    assert np.mean(losses[-20:]) < np.mean(losses[:20])


def test_the_numbers_of_a_fit_are_those_of_the_saved_model(base: Path, few: list[Example], tmp_path: Path) -> None:
    """Every number of the record from the folder and the texts alone, by transformers' own forward."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    made = finetune(base, few, replace(SHORT, held_out=0), tmp_path / "made")
    network = AutoModelForTokenClassification.from_pretrained(made.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(made.folder)
    assert network.config.id2label == dict(enumerate(LABELS))
    nats, right = [], []
    for one in few:
        coded = tokenizer(one.masked_text(tokenizer.mask_token), return_tensors="pt")
        at = (coded["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
        with torch.no_grad():
            said = network(**coded).logits[0, at].log_softmax(-1)
        wanted = [LABELS.index(label) for label in one.labels]
        nats += [float(said[place, number]) for place, number in enumerate(wanted)]
        right += [int(said[place].argmax()) == number for place, number in enumerate(wanted)]
    fit, counts = made.training, Counter(label for one in few for label in one.labels)
    assert fit.n_places == counts.total() == len(nats)
    assert fit.loss_nats == pytest.approx(-np.mean(nats), abs=1e-6)
    assert fit.accuracy == pytest.approx(np.mean(right))
    shares = np.array(list(counts.values())) / counts.total()
    assert fit.majority_loss_nats == pytest.approx(-(shares * np.log(shares)).sum())
    assert fit.majority_accuracy == pytest.approx(shares.max())
    cells: dict[Any, Counter[str]] = {}
    for one in few:
        for place, label in enumerate(one.labels):
            cells.setdefault((one.before, one.pieces, place), Counter())[label] += 1
    floor = sum(-n * math.log(n / cell.total()) for cell in cells.values() for n in cell.values()) / counts.total()
    assert fit.floor_nats == pytest.approx(floor)
    assert made.record["data"]["n_places"] == {label: counts[label] for label in LABELS}
    assert made.record["data"]["sha256"] == digest([[one.before, one.pieces, one.labels] for one in few])


# Repeating and resuming.


class StopError(Exception):
    """What a test ends a training with."""


def stop_at(step: int) -> Callable[[int, int, float], None]:
    def progress(done: int, total: int, loss: float) -> None:
        if done == step:
            raise StopError

    return progress


def test_a_training_that_was_cut_off_ends_with_the_same_files(base: Path, few: list[Example], tmp_path: Path) -> None:
    whole = finetune(base, few, SHORT, tmp_path / "whole")
    for step in (7, 8):  # before a checkpoint, and right after the next
        with pytest.raises(StopError):
            finetune(base, few, SHORT, tmp_path / "cut", stop_at(step))
    steps: list[int] = []
    cut = finetune(base, few, SHORT, tmp_path / "cut", lambda done, total, loss: steps.append(done))
    assert (whole.resumed_at, cut.resumed_at, steps) == (0, 8, [9])
    assert contents(whole.folder) == contents(cut.folder)
    assert set(contents(whole.folder)) == {
        "config.json", "finetuning.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip
    again = finetune(base, few, SHORT, tmp_path / "cut", stop_at(1))
    assert (again.resumed_at, again.record) == (9, cut.record)


def test_what_a_training_depends_on(base: Path, few: list[Example], tmp_path: Path) -> None:
    """Nothing outside: torch's own draws go on as if it had not been. Inside: the seed and dropout."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    recipes = {
        "plain": SHORT,
        "repeated": replace(SHORT, save_steps=1000),
        "seed": replace(SHORT, seed=1),
        "dropout": replace(SHORT, dropout=False),
    }
    weights = {
        name: contents(finetune(base, few, recipe, tmp_path / name).folder)[SAFETENSORS]
        for name, recipe in recipes.items()
    }
    assert torch.equal(torch.rand(3), expected)
    assert weights["plain"] == weights["repeated"]
    assert len(set(weights.values())) == 3
    torch.manual_seed(6)
    other = finetune(base, few, SHORT, tmp_path / "other").folder
    assert contents(other)[SAFETENSORS] == weights["plain"]


def test_long_texts_become_windows_that_teach_every_place_once() -> None:
    tokenizer = fixed_tokenizer()
    draw = random.Random(1)
    words = ["was a child", "went to Peru", "had tea", "lost keys", "was a teenager", "went to Kenya"]
    examples = [
        Example(tuple(" ".join(draw.choices(words, k=draw.randint(0, 9))) + " " for _ in range(n + 1)), (LABELS[0],) * n, before)
        for n in range(1, 9)
        for before in ("", "1801. Peru. ")
    ]  # fmt: skip
    rows, n_unread = rows_of(tokenizer, POSITIONS, examples, LABELS)
    assert n_unread == 0
    assert len(rows) > 2 * len(examples)
    of_text = {number: [row for row in rows if row.text == number] for number in range(len(examples))}
    for number, example in enumerate(examples):
        whole = tokenizer(example.masked_text(tokenizer.mask_token))["input_ids"]
        front = tokenizer(example.before, add_special_tokens=False)["input_ids"]
        at = [place for place, token in enumerate(whole) if token == tokenizer.mask_token_id]
        assert sum(len(row.places) for row in of_text[number]) == len(at) == len(example.labels)
        todo = list(at)
        for row in of_text[number]:
            tokens = row.tokens.tolist()
            assert len(tokens) <= POSITIONS
            assert tokens[: len(front) + 1] == [tokenizer.cls_token_id, *front]
            assert tokens[-1] == tokenizer.sep_token_id
            room = POSITIONS - 2 - len(front)
            for place in row.places:
                assert tokens[place] == tokenizer.mask_token_id
                true, left, right = todo.pop(0), place - 1 - len(front), len(tokens) - 2 - place
                # A quarter of the room is seen to either side, or all that there is.
                assert left >= min(room // 4, true - 1 - len(front))
                assert right >= min(room // 4, len(whole) - 2 - true) - 1
                assert tokens[place - left : place + right + 1] == whole[true - left : true + right + 1]
        assert not todo


def test_a_text_with_a_mask_of_its_own_is_left_out_and_counted(base: Path, few: list[Example], tmp_path: Path) -> None:
    strange = Example(("", " wrote [MASK]."), ("female",))
    made = finetune(base, [*few, strange], SHORT, tmp_path / "made")
    assert made.record["data"]["n_unread"] == 1
    with pytest.raises(UndertowError, match="no text could be read"):
        finetune(base, [strange], SHORT, tmp_path / "other")


def test_every_pass_takes_every_row_once_in_another_order() -> None:
    lengths = [3 + number % 17 for number in range(203)]
    order, per_pass = batches(lengths, 8, 0), 26
    passes = [list(islice(order, per_pass)) for _ in range(2)]
    for one in passes:
        assert sorted(np.concatenate(one)) == list(range(203))
        padded = sum(max(lengths[row] for row in batch) * len(batch) for batch in one)
        assert padded < 1.15 * sum(lengths)
    assert [list(batch) for batch in passes[0]] != [list(batch) for batch in passes[1]]
    assert list(next(islice(batches(lengths, 8, 0), per_pass + 3, None))) == list(passes[1][3])


def test_a_folder_that_holds_something_else_is_left_alone(base: Path, few: list[Example], tmp_path: Path) -> None:
    before = contents(base)
    with pytest.raises(UndertowError, match="is not empty and not a training folder"):
        finetune(base, few, SHORT, base)
    assert contents(base) == before
    (tmp_path / "new.unfinished").mkdir()
    (tmp_path / "new.unfinished" / "mine.txt").write_text("mine")
    with pytest.raises(UndertowError, match=r"new\.unfinished: is not empty"):
        finetune(base, few, SHORT, tmp_path / "new")
    made = finetune(base, few, SHORT, tmp_path / "made")
    for changed, said in (
        ((few, replace(SHORT, seed=3)), "seed 0, not 3"),
        ((few, replace(SHORT, labels=LABELS[::-1])), "labels female, male, not male, female"),
        ((few[:-1], SHORT), "other texts"),
    ):
        with pytest.raises(UndertowError, match=said):
            finetune(base, *changed, made.folder)
    with pytest.raises(StopError):
        finetune(base, few, SHORT, tmp_path / "cut", stop_at(5))
    with pytest.raises(UndertowError, match=r"holds another training \(seed 0, not 3\)"):
        finetune(base, few, replace(SHORT, seed=3), tmp_path / "cut")


def test_a_base_that_is_no_masked_model_is_refused(base: Path, few: list[Example], tmp_path: Path) -> None:
    made = finetune(base, few, SHORT, tmp_path / "made")
    with pytest.raises(UndertowError, match="is not a masked model"):
        finetune(made.folder, few, SHORT, tmp_path / "again")
    maskless = shutil.copytree(base, tmp_path / "maskless")
    tokenizer = fixed_tokenizer()
    tokenizer.mask_token = None
    tokenizer.save_pretrained(maskless)
    with pytest.raises(UndertowError, match="its tokenizer has no mask token"):
        finetune(maskless, few, SHORT, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_base_whose_tokenizer_has_tokens_beyond_its_embedding_is_refused(
    base: Path, few: list[Example], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(base, tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"<new {number}>" for number in range(2000)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(UndertowError, match="<new 1999>"):
        finetune(folder, few, SHORT, tmp_path / "made")


def test_texts_that_teach_nothing_are_refused(base: Path, few: list[Example], tmp_path: Path) -> None:
    women = [replace(one, labels=("female",) * len(one.labels)) for one in few]
    for examples, recipe, said in (
        ([], SHORT, "no text could be read"),
        (women, SHORT, "no masked word of the training texts is male"),
        (few[:1] * 9, SHORT, "of 1 distinct masked text cannot be held out"),
    ):
        with pytest.raises(UndertowError, match=said):
            finetune(base, examples, recipe, tmp_path / "made")
    assert not (tmp_path / "made").exists()
