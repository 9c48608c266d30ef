"""Apply the LM head, and what follows the last attention of a masked network, at selected positions only, a slice of rows at a time.

The head is the widest part of a small model, so [row, position, vocabulary] is never held. Whether a network's head can be applied
to single rows is tested on the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.models.backend.execution import in_top_k, logits_at_once, to_device
from undertow.models.backend.onednn import COLUMNS_AT_ONCE, can_pack, linear, packed_weight
from undertow.models.base import Ints, TokenBatch
from undertow.types import Floats

if TYPE_CHECKING:
    import torch

ROWS_AT_ONCE = 512
"""Rows of a slice of a head that is applied in blocks of columns."""
MIN_ROWS = 256
"""Rows from which packing the head pays; packing takes as long as about 50 rows."""


def flat_positions(batch: TokenBatch) -> Ints:
    """Flat position of each read of a batch: row x length + position [read]."""
    places: Ints = batch.read_rows * batch.tokens.shape[1] + batch.read_positions
    return places


def read_at(
    places: Ints, tokens: Ints, slices_at: Callable[[Ints], Iterable[torch.Tensor]], device: Any, top: int = 0
) -> Floats:
    """Log P(token) at each place, in nats [read].

    Args:
        places: flat positions [read].
        tokens: token to read at each [read].
        slices_at: returns the logits at distinct positions, in order, in slices [row, vocabulary].
        device: device of the logits.
        top: minus infinity for tokens beyond this many most probable ones; 0 for no limit.
    """
    import torch

    distinct, place_of_read = np.unique(places, return_inverse=True)
    at, wanted = (to_device(one, device) for one in (place_of_read, tokens))
    logprobs = torch.full((len(tokens),), torch.nan, dtype=torch.float32, device=device)
    start = 0
    for logits in slices_at(distinct):
        in_slice = (at >= start) & (at < start + len(logits))
        rows = at[in_slice] - start
        values = logits.log_softmax(-1)[rows, wanted[in_slice]]
        if top:
            values = values.masked_fill(~in_top_k(logits[rows], wanted[in_slice], top), -torch.inf)
        logprobs[in_slice] = values
        start += len(logits)
    return logprobs.cpu().numpy().astype(np.float64)


def read_in_columns(rows: torch.Tensor, row_of_read: Ints, tokens: Ints, head: Any) -> Floats:
    """Log P(token) after each row of hidden states on a CPU, for many rows and a plain linear head [read].

    The head is packed for oneDNN one block of columns at a time: whole, it would hold the largest weight of a small model twice.
    A row's normaliser is combined from those of the blocks.

        log sum exp over all  =  log sum over blocks of exp( largest logit - largest log-share, of the block )

    Args:
        rows: hidden states [row, dim].
        row_of_read: row of each read [read].
        tokens: token of each read [read].
        head: an unpacked `torch.nn.Linear`.
    """
    import torch

    at, wanted = torch.from_numpy(row_of_read), torch.from_numpy(tokens)
    wanted_logits = torch.full((len(tokens),), torch.nan)  # NaN for tokens outside the columns
    parts = []
    for left in range(0, len(head.weight), COLUMNS_AT_ONCE):
        right = min(left + COLUMNS_AT_ONCE, len(head.weight))
        packed = packed_weight(head.weight.detach()[left:right])
        bias = None if head.bias is None else head.bias[left:right]
        normalisers = torch.empty(len(rows))
        for start in range(0, len(rows), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(rows))
            logits = linear(rows[start:stop], packed, bias)
            reads = ((wanted >= left) & (wanted < right) & (at >= start) & (at < stop)).nonzero()[:, 0]
            wanted_logits[reads] = logits[at[reads] - start, wanted[reads] - left].float()
            normalisers[start:stop] = logits.amax(-1) - logits.log_softmax(-1, dtype=torch.float32).amax(-1)
        parts.append(normalisers)
    return (wanted_logits - torch.stack(parts).logsumexp(0)[at]).numpy().astype(np.float64)


def takes_columns(head: Any, n_rows: int) -> bool:
    """Whether to apply a head in blocks of columns: enough rows to pay for packing, and a plain linear head."""
    import torch

    if type(head) is not torch.nn.Linear or n_rows < MIN_ROWS:
        return False
    return head.weight.device.type == "cpu" and not head.weight.is_mkldnn and can_pack(head.weight.dtype)


def in_slices(
    hidden: torch.Tensor, vocabulary: int, head: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[torch.Tensor]:
    """Logits of the head in slices of rows [row, vocabulary], in float32."""
    at_once = max(1, logits_at_once(hidden.device) // vocabulary)
    for start in range(0, len(hidden), at_once):
        yield head(hidden[start : start + at_once]).float()


def apply_head(network: Any, body: Any, hidden: torch.Tensor, vocabulary: int, **inputs: Any) -> Iterator[torch.Tensor]:
    """Logits of a network's head on hidden states of its body [row, dim], as of `in_slices`.

    The network is called with `inputs` of one token, and its body returns the hidden states instead.
    """
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    def head(rows: torch.Tensor) -> Any:
        output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=rows[None])
        body.forward = lambda *_, **__: output
        try:
            return network(**inputs).logits[0]
        finally:
            del body.forward

    return in_slices(hidden, vocabulary, head)


def last_attention_output(network: Any) -> Any:
    """The module behind the last attention of a network of BERT's kind, after which each position is computed independently; or None."""
    layers = getattr(getattr(network.base_model, "encoder", None), "layer", None)
    return getattr(getattr(layers[-1], "attention", None), "output", None) if layers else None


@contextmanager
def rows_only(module: Any, rows: torch.Tensor) -> Iterator[None]:
    """Keep these flat positions alone of what a module is given [1, row, dim]."""

    def keep(_: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(one.flatten(0, 1)[rows][None] for one in given)

    with module.register_forward_pre_hook(keep):
        yield
