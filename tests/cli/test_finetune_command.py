from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.cli_refusal import refused
from helpers.planted_lives import LABELS, lives, small_base
from helpers.workplace import Workplace

pytest.importorskip("torch", reason="the model extra is not installed")

FAST = ("--max-steps", "120", "--learning-rate", "3e-3")
SHORT = ("--max-steps", "3", "--learning-rate", "3e-3")
WORD = {"female": ("She", "her"), "male": ("He", "his")}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("bench")
    small_base(folder / "base")
    rows = []
    for one in lives(1200, in_front=True):
        words = WORD[one.labels[0]]
        text = "".join(part for pair in zip(one.pieces, (*words[: len(one.labels)], ""), strict=True) for part in pair)
        rows.append({"text": text, "year": int(one.before[:4])})
    rows += [{"text": "They were painters.", "year": 1801}, {"text": "She was a painter.", "year": None}]
    (folder / "lives.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return Workplace(folder)


@pytest.fixture(scope="module")
def made(bench: Workplace) -> Any:
    return bench.json("finetune", "base", "lives.jsonl", "--out", "dated", "--metadata-fields", "year", *FAST)


def test_what_the_command_says(bench: Workplace, made: Any) -> None:
    data = made["data"]
    counts = ("n_texts", "n_objects", "n_without_words", "n_without_metadata")
    assert [data[name] for name in counts] == [1200, 1202, 1, 1]
    assert (data["source"], data["layout"]) == ("lives.jsonl", "{year}. {text}")
    assert data["words"].keys() == set(LABELS)
    assert len(data["sha256"]) == len(data["file_sha256"]) == 64
    assert made["recipe"]["max_steps"] == made["n_steps"] == made["losses_nats"][-1][0] == 120
    kept = json.loads((bench.folder / "dated" / "finetuning.json").read_text("utf-8"))
    assert kept == {name: value for name, value in made.items() if name not in ("folder", "resumed_at")}
    again = bench.attempt("finetune", "base", "lives.jsonl", "--out", "dated", "--metadata-fields", "year", *FAST)
    assert again.returncode == 0
    assert "1,200 texts with" in again.stdout
    assert "120 steps (resumed at step 120)" in again.stdout
    assert "undertow run spurious-correlation -m dated --challenge FILE.toml" in again.stdout
    assert '"{w}. {blank} was a painter."' in again.stdout
    assert not [text for text in ("mgt-icml", "majority class") if text in again.stdout]
    weak = bench.attempt(
        "finetune", "base", "lives.jsonl", "--out", "weak", "--max-steps", "1", "--learning-rate", "1e-9"
    )
    assert "On training texts the model is no better than the majority class" in weak.stdout
    assert "undertow run spurious-correlation -m weak --challenge mgt-icml" in weak.stdout
    assert weak.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("base", "broken.jsonl"), ("broken.jsonl, line 2",)),
        (("toy", "lives.jsonl"), ("toy: is not a masked model",)),
        (("base", "lives.jsonl", "--out", "base"), ("base: is not empty and not a training folder",)),
        (("base", "lives.jsonl", "--out", "lives.jsonl"), ("lives.jsonl: is a file; name a folder",)),
        (("base", "lives.jsonl", "--out", "lives.jsonl/new"), ("lives.jsonl: is a file; name a folder",)),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], words: tuple[str, ...], bench: Workplace) -> None:
    (bench.folder / "broken.jsonl").write_text('{"text": "She was."}\n{"text": "He was"\n')
    out = () if "--out" in arguments else ("--out", "new")
    refused(bench.attempt("finetune", *arguments, *out, *SHORT), *words)
    assert not (bench.folder / "new").exists()
