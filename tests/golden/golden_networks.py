"""Small networks with the same weights on every machine: one of each family, in a folder each, named as the family is.

Their tokenizers are written out, not trained, and their weights are drawn by name from a stream that numpy promises never to change,
so that neither the version of a library nor the order in which it builds a network moves a number.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers import planted_lives
from helpers import tiny_models as tiny
from helpers import tiny_qa_models as tiny_readers

POSITIONS = 1536
"""Tokens that a network reads: prompts are spelled letter by letter."""
LABELS = ("female", "male")
SPREAD = 0.2
"""Standard deviation of the weights: wide, so that texts make a difference."""


def save_networks(folder: Path) -> None:
    """Save a network of each family into this folder."""
    for family, build in BUILDERS.items():
        build(folder / family)
        _draw_weights(folder / family / "model.safetensors")
    tokenizer = tiny_readers.byte_pair_tokenizer()
    # A GGUF file names the first two tokens as those that begin and end a text.
    tiny.tiny_gguf(folder / "network.gguf", tokenizer, POSITIONS)


def _causal(folder: Path) -> None:
    tokenizer = tiny_readers.byte_pair_tokenizer()
    tokenizer.model_max_length = POSITIONS
    marks = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    _save(folder, tiny.tiny_llama(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, **marks), tokenizer)


def _masked(folder: Path) -> None:
    _save_bert(folder, "ForMaskedLM", planted_lives.fixed_tokenizer())


def _labelled(folder: Path) -> None:
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: at for at, label in enumerate(LABELS)}}
    _save_bert(folder, "ForTokenClassification", planted_lives.fixed_tokenizer(), **labels)


def _seq2seq(folder: Path) -> None:
    tokenizer = tiny.sentencepiece_tokenizer(("Yes", "No"))
    tokenizer.model_max_length = POSITIONS
    _save(folder, tiny.small_t5(tokenizer, width=32), tokenizer)


def _extractive(folder: Path) -> None:
    tokenizer = tiny_readers.wordpieces()
    tokenizer.model_max_length = POSITIONS
    _save_bert(folder, "ForQuestionAnswering", tokenizer)


BUILDERS: Mapping[str, Callable[[Path], None]] = {
    "causal": _causal,
    "masked": _masked,
    "seq2seq": _seq2seq,
    "extractive": _extractive,
    "labelled": _labelled,
}


def _save_bert(folder: Path, head: str, tokenizer: Any, **settings: Any) -> None:
    sizes = {"vocab_size": len(tokenizer), "intermediate_size": 64, "max_position_embeddings": POSITIONS}
    _save(folder, tiny.network("Bert", head, **sizes, **settings), tokenizer)


def _save(folder: Path, network: Any, tokenizer: Any) -> None:
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _draw_weights(file: Path) -> None:
    """Draw the weights of a file again, each tensor from a stream that its name chooses."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    drawn = {
        name: np.random.RandomState(zlib.crc32(name.encode())).normal(0, SPREAD, tensor.shape).astype(np.float32)
        for name, tensor in load_file(file).items()
    }
    save_file(drawn, file, metadata={"format": "pt"})
