"""Copy arrays to a device, and choose batch sizes for CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.models.base import Ints

if TYPE_CHECKING:
    import torch

SHARE_OF_GPU = 0.7
"""Share of a GPU's total memory for weights and one pass, since activations are estimated roughly. Total, not free memory, so that a
resumed run packs as before; a pack that does not fit is split in halves."""
LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU = 2**22, 2**26
"""Logits held at a time: 16 MiB in float32 on a CPU (64 MiB was no faster), 256 MiB on a GPU, which needs larger products."""


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


def tokens_per_pass(
    network: Any,
    memory_bytes: Callable[[int], int],
    *,
    processor: int,
    gpu: int,
    whole_bytes: Callable[..., Any] | None = None,
) -> int:
    """Efficient number of tokens of one pass that fits on the device.

    Args:
        network: on its device.
        memory_bytes: estimates the memory of weights and a pass of this many tokens.
        processor: tokens on a CPU.
        gpu: maximum tokens on a GPU.
        whole_bytes: returns a GPU's memory; torch's function by default.
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
