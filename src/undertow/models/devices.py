"""What a graphics card wants otherwise than a processor: how tokens travel to it, and how many at a time.

Knows torch, imported when it is needed; knows no family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.models.base import Ints

if TYPE_CHECKING:
    import torch

SHARE_OF_FREE = 0.5
"""Of a card's free memory, for one pass: estimates of activations are rough, and others may use the card too."""
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_CARDS = 2**22, 2**26
"""Logits held at a time: 16 MiB in float32, whatever the vocabulary (four times as many were no faster on a processor); 256 MiB on a
card, which needs larger products to be busy."""


def on_device(array: Ints, device: torch.device) -> torch.Tensor:
    """An array where a network is; to a card from pinned memory, so that the processor need not wait for the copy."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def logits_at_once(device: torch.device) -> int:
    """How many logits are held at a time."""
    return LOGITS_AT_ONCE_ON_CARDS if device.type == "cuda" else LOGITS_AT_ONCE


def affordable_tokens(
    network: Any,
    memory_bytes: Callable[[int], int],
    *,
    processor: int,
    card: int,
    free_bytes: Callable[..., Any] | None = None,
) -> int:
    """Tokens of one pass that use the device well and have room on it.

    Args:
        network: on its device.
        memory_bytes: what weights and a pass of so many tokens take, estimated.
        processor: tokens for a processor.
        card: tokens for a card, at most.
        free_bytes: gives a card's free and whole memory; torch's own if not given.
    """
    import torch

    if network.device.type != "cuda":
        return processor
    free, _ = (free_bytes or torch.cuda.mem_get_info)(network.device)
    least = min(processor, card)
    # The weights are on the card already; what is asked is what the tokens add. The estimate may grow with their square.
    tokens = card
    while tokens > least and memory_bytes(tokens) - memory_bytes(0) > SHARE_OF_FREE * free:
        tokens //= 2
    return max(tokens, least)
