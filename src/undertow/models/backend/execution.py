"""Helpers of the torch families: devices, batch sizes, out-of-memory errors, networks in memory, duplicate options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError
from undertow.models.base import Ints, OutOfMemoryError, UnsupportedQueryError
from undertow.types import ClozeQuery, ScoredQuery

if TYPE_CHECKING:
    import torch

FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError)
"""Exceptions of a network that does not support the tried input."""
OOM_IN_FORWARD = (
    "out of memory in a forward pass; all answers so far are cached; free memory and run the same command again, or choose "
    "--dtype bfloat16 or a smaller model"
)
OUT_OF_MEMORY = re.compile("out of memory|not enough memory|can('|no)t allocate memory|could not create a memory")
"""Messages of out-of-memory errors of torch, CUDA and oneDNN that have no exception class of their own."""
SHARE_OF_GPU = 0.7
"""Share of a GPU's total memory for weights and one pass, since activations are estimated roughly. Total, not free memory, so that a
resumed run packs as before; a pack that does not fit is split in halves."""
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**22, 2**26
"""Logits held at a time: 16 MiB in float32 on a CPU (64 MiB was no faster), 256 MiB on a GPU, which needs larger products."""
AGREEMENT_NATS = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""Tolerance between tree and plain reading: rounding, not a different attention."""


def to_device(array: Ints, device: torch.device) -> torch.Tensor:
    """Copy an array to a device; to a GPU from pinned memory, so that the copy is asynchronous."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def logits_at_once(device: torch.device) -> int:
    """Number of logits to hold at a time."""
    return LOGITS_AT_ONCE_ON_GPU if device.type == "cuda" else LOGITS_AT_ONCE


def tokens_per_pass(network: Any, memory_bytes: Callable[[int], int], *, processor: int, gpu: int) -> int:
    """Efficient number of tokens of one pass that fits on the device.

    Args:
        network: on its device.
        memory_bytes: estimates the memory of weights and a pass of this many tokens.
        processor: tokens on a CPU.
        gpu: maximum tokens on a GPU.
    """
    if network.device.type != "cuda":
        return processor
    import torch

    whole = torch.cuda.get_device_properties(network.device).total_memory
    least = min(processor, gpu)
    tokens = gpu
    while tokens > least and memory_bytes(tokens) > SHARE_OF_GPU * whole:
        tokens //= 2
    return max(tokens, least)


def n_cores() -> int:
    """Number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_name(device: str) -> str:
    """Name of the GPU that this process computes on, if its networks are on `device` (`auto`, `cuda:1`); "" for none."""
    torch = sys.modules.get("torch")
    if device.partition(":")[0] not in ("auto", "cuda") or torch is None or not torch.cuda.is_initialized():
        return ""
    return str(torch.cuda.get_device_name(device if ":" in device else None))


def chosen_device(wanted: str) -> str:
    """The device to run on; the fastest one for `auto`.

    Raises:
        UndertowError: the device cannot be used on this machine.
    """
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, AssertionError) as error:
        raise UndertowError(f"device {wanted!r} cannot be used here ({str(error).splitlines()[0]}); try cpu") from error
    return wanted


@contextmanager
def oom_errors(sentence: str = OOM_IN_FORWARD) -> Iterator[None]:
    """Turn out-of-memory errors into `OutOfMemoryError` with one sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error):
            raise
        raise OutOfMemoryError(sentence) from error


def is_oom(error: BaseException) -> bool:
    """Whether an error means that memory ran out, and not for example an illegal memory access."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error).lower()) is not None


@contextmanager
def preserve(network: Any) -> Iterator[None]:
    """Restore a network when the context ends, also after an error.

    Restored are the training mode of every module, buffers (some rotary embeddings replace theirs), the attention implementation,
    and torch's random state. Weights and gradients are never changed. Within the context a network that Accelerate wrapped for
    mixed precision computes in the precision of its weights.
    """
    import torch

    modes = [(module, module.training) for module in network.modules()]
    buffers = [(module, *named) for module in network.modules() for named in module.named_buffers(recurse=False)]
    attention = network.config._attn_implementation
    wrapped = vars(network).get("forward") if "_original_forward" in vars(network) else None
    if wrapped is not None:
        network.forward = network._original_forward
    devices = [network.device] if network.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        if network.config._attn_implementation != attention:
            network.set_attn_implementation(attention)
        for module, name, buffer in buffers:
            if getattr(module, name) is not buffer:
                setattr(module, name, buffer)
        for module, mode in modes:
            module.training = mode
        if wrapped is not None:
            network.forward = wrapped


def end_tokens_of(network: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer, from generation config, model config and tokenizer."""
    holders = getattr(network, "generation_config", None), network.config, tokenizer
    ends = [getattr(one, "eos_token_id", None) for one in holders]
    return frozenset(
        int(token) for one in ends if one is not None for token in (one if isinstance(one, list) else [one])
    )


def in_top_k(logits: torch.Tensor, tokens: torch.Tensor, top: int) -> torch.Tensor:
    """Whether tokens are among the `top` most probable ones; ties beyond that number do not count.

    `logits` are [row, vocabulary], and `tokens` [row] or [row, token].
    """
    best = logits.topk(min(top, logits.shape[-1])).indices  # [row, top]
    return (tokens[..., None] == (best[:, None] if tokens.ndim == 2 else best)).any(-1)


def list_duplicate_options(query: ScoredQuery, spellings: Sequence[tuple[int, ...]]) -> frozenset[int]:
    """Indices of options with the tokens of an earlier option of their group, which count once.

    `spellings` are the tokens of each option, of the whole text or the fill only [option]; () for one that the tokenizer does not know.

    Raises:
        UnsupportedQueryError: two groups share an option, or the tokenizer knows none.
    """
    if not any(spellings):
        raise unknown_words(query, range(len(spellings)))
    groups = list(map(str, range(len(spellings))))
    if isinstance(query, ClozeQuery):
        groups = [option.group for option in query.options]
    owner: dict[tuple[int, ...], str] = {}
    for spelling, group in zip(spellings, groups, strict=True):
        if spelling and owner.setdefault(spelling, group) != group:
            raise UnsupportedQueryError(
                f"this tokenizer spells an option of {owner[spelling]} and one of {group} alike"
            )
    return frozenset(at for at, one in enumerate(spellings) if one and one in spellings[:at])


def check_length(n_tokens: int, context_tokens: int) -> None:
    """Refuse a text that is longer than the model's context."""
    if n_tokens > context_tokens:
        raise UnsupportedQueryError(f"the text is longer than the {context_tokens} tokens that the model reads")


def unknown_words(query: ScoredQuery, options: Iterable[int]) -> UnsupportedQueryError:
    """The error for options with characters that the tokenizer has no token for."""
    words = (
        " ".join(query.options[option].fills) if isinstance(query, ClozeQuery) else query.continuations[option].strip()
        for option in options
    )
    named = ", ".join(map(repr, dict.fromkeys(words)))
    return UnsupportedQueryError(f"an option holds a character or word that this tokenizer does not know: {named}")


def context_tokens(network: Any, tokenizer: Any) -> int:
    """Context length of a network and its tokenizer, in tokens."""
    config = network.config.get_text_config()
    names = ("max_position_embeddings", "max_encoder_position_embeddings", "max_decoder_position_embeddings")
    limits = [int(getattr(config, name, 0) or 2**20) for name in names]
    # Some families (RoBERTa) count positions from the padding index.
    positions = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    unused = 0 if padding is None else int(padding) + 1
    return min(*(one - unused for one in limits), int(getattr(tokenizer, "model_max_length", 0) or 2**20))
