"""Differences between a GPU and a processor: how tokens are copied to it, and how many are fed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.models.base import Ints

if TYPE_CHECKING:
    import torch

SHARE_OF_GPU = 0.7
"""Of a GPU's memory, for weights and one pass: estimates of activations are rough. It is the whole memory that counts and not what
happens to be free, so that a run that is taken up again packs as before; a pack that has no room after all is read in halves."""
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**22, 2**26
"""Logits held at a time: 16 MiB in float32, whatever the vocabulary (four times as many were no faster on a processor); 256 MiB on a
GPU, which needs larger products to be busy."""


def to_device(array: Ints, device: torch.device) -> torch.Tensor:
    """An array where a network is; to a GPU from pinned memory, so that the processor need not wait for the copy."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def logits_at_once(device: torch.device) -> int:
    """How many logits are held at a time."""
    return LOGITS_AT_ONCE_ON_GPU if device.type == "cuda" else LOGITS_AT_ONCE


def tokens_per_pass(
    network: Any,
    memory_bytes: Callable[[int], int],
    *,
    processor: int,
    gpu: int,
    whole_bytes: Callable[..., Any] | None = None,
) -> int:
    """Tokens of one pass that use the device well and have room on it.

    Args:
        network: on its device.
        memory_bytes: what weights and a pass of so many tokens take, estimated.
        processor: tokens for a processor.
        gpu: tokens for a GPU, at most.
        whole_bytes: gives a GPU's memory; torch's own if not given.
    """
    if network.device.type != "cuda":
        return processor
    whole = (whole_bytes or _whole_bytes)(network.device)
    least = min(processor, gpu)
    tokens = gpu
    while tokens > least and memory_bytes(tokens) > SHARE_OF_GPU * whole:
        tokens //= 2
    return max(tokens, least)


def _whole_bytes(device: torch.device) -> int:
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory)
