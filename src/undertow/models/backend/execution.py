"""What the families that run on torch share: a device, words for memory that runs out, options that are spelled alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError
from undertow.models.base import OutOfMemoryError, UnsupportedQueryError
from undertow.types import ClozeQuery, ScoredQuery

if TYPE_CHECKING:
    import torch

FORWARD_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError)
"""What a network raises that cannot be fed in the way that is tried."""
OUT_OF_MEMORY = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "could not create a memory",
)
"""How torch, CUDA and oneDNN say that memory ran out, where they raise nothing of its own kind."""
AGREEMENT_NATS = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
"""How far the tree reading may be from plain batches before it is given up: rounding, not another attention."""


def chosen_device(wanted: str) -> str:
    """The device to run on, for `auto` the fastest one here.

    Raises:
        UndertowError: it cannot be used on this machine.
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
def oom_errors() -> Iterator[None]:
    """Torch says in many words that memory ran out; a user needs one sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error):
            raise
        raise OutOfMemoryError(
            "memory ran out while the model was reading; all answers so far are kept, so free some and run the same "
            "command again, or choose --dtype bfloat16 or a smaller model"
        ) from error


def is_oom(error: BaseException) -> bool:
    """Whether it is memory that is missing, and not a property of the network, nor a fault of a card (an illegal memory access)."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(phrase in said for phrase in OUT_OF_MEMORY)


def end_tokens_of(network: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer, as the checkpoint, its configuration and its tokenizer say, each in its way."""
    said = [
        getattr(getattr(network, "generation_config", None), "eos_token_id", None),
        getattr(network.config, "eos_token_id", None),
        tokenizer.eos_token_id,
    ]
    return frozenset(
        int(token) for one in said if one is not None for token in (one if isinstance(one, list) else [one])
    )


def in_top_k(logits: torch.Tensor, tokens: torch.Tensor, top: int) -> torch.Tensor:
    """Whether tokens are among so many most probable ones, and never more: of equal ones some are left out.

    Args:
        logits: [row, vocabulary].
        tokens: [token] to look for in every row, or [row, token].
        top: how many.
    """
    best = logits.topk(min(top, logits.shape[-1])).indices  # [row, top]
    wanted = tokens if tokens.ndim == 2 else tokens.expand(len(logits), -1)
    return (wanted[:, :, None] == best[:, None, :]).any(-1)


def find_duplicate_options(
    query: ScoredQuery, spellings: Sequence[tuple[int, ...]]
) -> frozenset[int] | UnsupportedQueryError:
    """Options of one group that are the same tokens count once; of two groups, they cannot be told apart.

    Args:
        query: whose options they are.
        spellings: the tokens of each option, whole text or fill alone [option].

    Returns:
        The options that are spelled like an earlier one, or why the query cannot be asked.
    """
    groups = (
        [option.group for option in query.options]
        if isinstance(query, ClozeQuery)
        else list(map(str, range(len(spellings))))
    )
    owner: dict[tuple[int, ...], str] = {}
    repeats = set()
    for option, (spelling, group) in enumerate(zip(spellings, groups, strict=True)):
        if owner.setdefault(spelling, group) != group:
            return UnsupportedQueryError(
                f"this tokenizer spells an option of {owner[spelling]} and one of {group} alike"
            )
        if spelling in spellings[:option]:
            repeats.add(option)
    return frozenset(repeats)


UNKNOWN = "an option holds a character or word that this tokenizer does not know"


def unknown_words(query: ScoredQuery, options: Iterable[int]) -> UnsupportedQueryError:
    """Why a query cannot be asked: its options of these numbers hold what the tokenizer has no token for."""
    words = (
        " ".join(query.options[option].fills) if isinstance(query, ClozeQuery) else query.continuations[option].strip()
        for option in options
    )
    return UnsupportedQueryError(f"{UNKNOWN}: {', '.join(map(repr, dict.fromkeys(words)))}")


def unused_positions(network: Any) -> int:
    """Positions that no token can have: some families (RoBERTa) count from the padding token's number on."""
    places = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(places, "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def context_tokens(network: Any, tokenizer: Any) -> int:
    """The longest text that a network and its tokenizer take, in tokens."""
    config = network.config.get_text_config()
    said = int(getattr(config, "max_position_embeddings", 0) or 2**20) - unused_positions(network)
    return min(said, int(getattr(tokenizer, "model_max_length", 0) or 2**20))
