"""A causal model with a very large vocabulary and a tiny body, made on the spot: its head is all but the whole of it.

A row of its logits takes a million bytes, so that a scorer which holds them for all tokens of a pass cannot hide it. Weights are
drawn with a fixed seed, and every word of the texts that it is made for is a token. Knows torch and transformers, in a process that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from made import made_once, made_up_words

SEED = 0
N_TOKENS = 256_000
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
TINY_BODY: Mapping[str, float] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
}


def prepared(texts: Iterable[str], shape: Mapping[str, float] = TINY_BODY, n_tokens: int = N_TOKENS) -> Path:
    """The folder of the model for these texts, made if it is not there yet.

    Raises:
        UndertowError: it could not be made.
    """
    words = sorted(set(texts))
    recipe = {"texts": words, "shape": dict(shape), "seed": SEED, "tokens": n_tokens}
    return made_once("llama", recipe, save, (words, shape, n_tokens), "about 1 GiB of memory and 0.3 GiB of disk")


def save(folder: Path, texts: Sequence[str], shape: Mapping[str, float], n_tokens: int) -> None:
    """Draw the weights, and write them and the tokenizer into a folder."""
    os.environ["TQDM_DISABLE"] = "1"
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokens = list(islice(dict.fromkeys(_vocabulary(texts)), n_tokens))
    torch.manual_seed(SEED)
    config = LlamaConfig(vocab_size=len(tokens), tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    numbers = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END
    ).save_pretrained(folder)


def _vocabulary(texts: Sequence[str]) -> Iterator[str]:
    """The words of the texts, then made-up ones; some more than once, and more than are needed."""
    from tokenizers import pre_tokenizers

    yield from (UNKNOWN, BEGIN, END)
    split = pre_tokenizers.BertPreTokenizer()
    for text in texts:
        yield from (word for word, _ in split.pre_tokenize_str(text))
    yield from chain.from_iterable(made_up_words(n_letters) for n_letters in (1, 2, 3, 4))
