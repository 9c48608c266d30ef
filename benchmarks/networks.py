"""Networks that are timed: those of peers, as transformers loads them, and random ones that are made once, in the cache folder.

The engine lays its weights out again and attends in its own way; a peer must get neither.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice, product
from multiprocessing import get_context
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

from undertow._folders import cache_folder
from undertow.errors import UndertowError
from undertow.models.backend.execution import end_tokens_of
from undertow.models.base import ModelHandle, ModelRequest
from undertow.models.generation.generation_state import Stops
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.resolve_weights import resolve_weights
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import ModelIdentity, digest

NETWORKS = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM"}
SEED = 0
Shape = dict[str, int]
BERT_BASE: Shape = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
BERT_TOKENS = 30_522
SMALL_BODY: Shape = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
LLAMA_POSITIONS = 512
LLAMA_TOKENS = 256_000
"""A row of logits takes a million bytes, so that a scorer which holds them for all tokens of a pass cannot hide it."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A model as transformers has it; `stops` says which tokens end an answer, and is None for a masked model."""

    identity: ModelIdentity
    network: Any
    tokenizer: Any
    stops: Stops | None


def load(family: str, found: ModelHandle, request: ModelRequest) -> Plain:
    """The model that `found` is, loaded by transformers alone."""
    weights = resolve_weights(request, import_module(f"undertow.models.families.{family}").MODEL.ARCHITECTURES)
    if weights is None:
        raise UndertowError(f"{request.name}: is no {family} model; name another, see --help")
    with loading_errors(request.name):
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(weights.location, **weights.options)
        network = getattr(transformers, NETWORKS[family]).from_pretrained(
            weights.location, dtype=getattr(torch, found.identity.dtype), use_safetensors=True, **weights.options
        )
        # Greedy search by the probabilities alone, as for the engine; a checkpoint's own settings would bend them.
        stops = Stops(end_tokens_of(network, tokenizer), Vocabulary(tokenizer)) if family == "causal" else None
        if stops is not None:
            network.generation_config = transformers.GenerationConfig()
        return Plain(found.identity, network.eval().to(request.device), tokenizer, stops)


def random_bert(texts: Iterable[str], shape: Shape = BERT_BASE) -> str:
    """The folder of a masked model of BERT-base's size: what is timed is its shape, and needs no knowledge."""
    return _made_once("bert", sorted(set(texts)), shape, BERT_TOKENS)


def random_llama(texts: Iterable[str], shape: Shape = SMALL_BODY, n_tokens: int = LLAMA_TOKENS) -> str:
    """The folder of a causal model that is nearly all vocabulary."""
    return _made_once("llama", sorted(set(texts)), shape, n_tokens)


def _made_once(kind: str, texts: list[str], shape: Shape, n_tokens: int) -> str:
    recipe = {"texts": texts, "shape": shape, "seed": SEED, "tokens": n_tokens}
    folder = cache_folder() / "benchmarks" / f"{kind}-{digest(recipe)[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # In a process of its own: the memory of this one is counted in that of every worker it starts.
        with (
            tempfile.TemporaryDirectory(dir=folder.parent) as unfinished,
            ProcessPoolExecutor(1, get_context("spawn")) as process,
        ):
            process.submit(_save, kind, Path(unfinished) / "model", texts, shape, n_tokens).result()
            (Path(unfinished) / "model").rename(folder)
    return str(folder)


def _save(kind: str, folder: Path, texts: list[str], shape: Shape, n_tokens: int) -> None:
    """Draw the weights; every word of the texts is a token, as it would be to a model that was trained on such words."""
    os.environ["TQDM_DISABLE"] = "1"
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    split, lowered = pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=kind == "bert")
    words = (word for text in texts for word, _ in split.pre_tokenize_str(lowered.normalize_str(text)))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if kind == "bert" else ["<unk>", "<s>", "</s>"]
    tokens = islice(dict.fromkeys(chain(special, words, _made_up(kind))), n_tokens)
    numbers = {token: number for number, token in enumerate(tokens)}
    torch.manual_seed(SEED)
    if kind == "bert":
        transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(numbers), **shape)).save_pretrained(folder)
        transformers.BertTokenizer(vocab=numbers).save_pretrained(folder)
        return
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    sizes = {"vocab_size": len(numbers), "max_position_embeddings": LLAMA_POSITIONS, **ends, **shape}
    config = transformers.LlamaConfig(tie_word_embeddings=True, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=special[0]))
    tokenizer.pre_tokenizer = split
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def _made_up(kind: str) -> Iterator[str]:
    """Letters and made-up pieces, more than are needed."""
    for n_letters in (1, 3) if kind == "bert" else (1, 2, 3, 4):
        for letters in map("".join, product(ascii_lowercase + digits, repeat=n_letters)):
            yield letters
            if kind == "bert":
                yield "##" + letters
