"""Models that are made on the spot: once, of the promised shape, and with the words they are made for."""

# ruff: noqa: F401, F811 - fixtures are imported, and named again where they are asked for
from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest
from stand_ins import TINY_BERT, Here, here, loaded, masked_texts

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

import made
import random_bert
import random_llama
from rows import ROWS
from undertow.types import UndertowError


def test_the_random_bert_is_made_once_and_spells_every_word_as_one_token(here: Here) -> None:
    from transformers import AutoTokenizer

    folder = random_bert.prepared(masked_texts(), TINY_BERT)
    assert random_bert.prepared(masked_texts(), TINY_BERT) == folder
    assert here.started == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == random_bert.N_TOKENS
    assert tokenizer.tokenize("In 1801, she was an adolescent.") == [
        "in",
        "1801",
        ",",
        "she",
        "was",
        "an",
        "adolescent",
        ".",
    ]
    coded = tokenizer(masked_texts(), add_special_tokens=False)["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(sorted({token for text in coded for token in text}))
    assert [token for token in tokens if token.startswith(("##", "["))] == []


def test_the_shape_of_the_random_bert_is_bert_bases() -> None:
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    usual = transformers.BertConfig()
    assert {name: getattr(usual, name) for name in random_bert.BERT_BASE} == random_bert.BERT_BASE
    assert usual.vocab_size == random_bert.N_TOKENS


def test_a_random_bert_that_cannot_be_made_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "get_context", lambda _kind: Here(fails=True))
    with pytest.raises(UndertowError, match="could not be made"):
        random_bert.prepared(["she"], TINY_BERT)
    assert list((cache / "benchmarks").iterdir()) == []


TINY_LLAMA = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def test_the_random_llama_knows_every_word_and_is_read_as_a_tree(here: Here) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    texts = ["In 1801, she was an adolescent.", "In Peru, they were not."]
    folder = random_llama.prepared(texts, TINY_LLAMA, 2000)
    assert random_llama.prepared(texts, TINY_LLAMA, 2000) == folder
    assert here.started == 1
    model = loaded(ROWS["likelihood"], folder).open()
    assert model.network.get_output_embeddings().weight.shape == (2000, 32)
    assert model.network.config.tie_word_embeddings
    assert model.limits.tree_depth > 0
    assert model.tokenizer.tokenize(texts[0]) == ["In", "1801", ",", "she", "was", "an", "adolescent", "."]
    assert model.tokenizer.unk_token_id not in {token for one in model.tokenizer(texts)["input_ids"] for token in one}


def test_the_vocabulary_of_the_random_llama_is_large_enough_to_show() -> None:
    words = random_llama._vocabulary([])
    assert len(set(islice(words, random_llama.N_TOKENS + 10))) == random_llama.N_TOKENS + 10
    assert random_llama.N_TOKENS == 256_000
