"""A masked model of BERT-base's size, made on the spot: what is timed is its shape, and needs no knowledge.

Its weights are drawn with a fixed seed. Every word of the texts that it is made for is a token of its own, so that they are
as long as a model that was trained on such words would see them. Knows torch and transformers, in a process that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from made import made_once, made_up_words

SEED = 0
N_TOKENS = 30_522
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERT_BASE: Mapping[str, float] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


def prepared(texts: Iterable[str], shape: Mapping[str, float] = BERT_BASE) -> Path:
    """The folder of the model for these texts, made if it is not there yet.

    Raises:
        UndertowError: it could not be made.
    """
    words = sorted(set(texts))
    recipe = {"texts": words, "shape": dict(shape), "seed": SEED, "tokens": N_TOKENS}
    return made_once("bert", recipe, save, (words, shape), "about 1.5 GiB of memory and 0.5 GiB of disk")


def save(folder: Path, texts: Sequence[str], shape: Mapping[str, float]) -> None:
    """Draw the weights, and write them and the tokenizer into a folder."""
    os.environ["TQDM_DISABLE"] = "1"
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    tokens = list(islice(dict.fromkeys(_vocabulary(texts)), N_TOKENS))
    torch.manual_seed(SEED)
    BertForMaskedLM(BertConfig(vocab_size=len(tokens), **shape)).save_pretrained(folder)
    BertTokenizer(vocab={token: number for number, token in enumerate(tokens)}).save_pretrained(folder)


def _vocabulary(texts: Sequence[str]) -> Iterator[str]:
    """The words of the texts, then letters and made-up pieces; some more than once, and more than are needed."""
    from tokenizers import normalizers, pre_tokenizers

    yield from SPECIAL
    lowered, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    for text in texts:
        yield from (word for word, _ in split.pre_tokenize_str(lowered.normalize_str(text)))
    for n_letters in (1, 3):
        for letters in made_up_words(n_letters):
            yield letters
            yield "##" + letters
