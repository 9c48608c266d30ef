"""Leave a network in memory as its owner gave it, so that training can go on behind an audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def preserve(network: Any) -> Iterator[None]:
    """Restore a network when the context ends, also after an error.

    Restored are the training mode of every module, buffers (some rotary embeddings replace theirs), the attention implementation,
    and torch's random state. Weights and gradients are never changed. Within the context a network that Accelerate wrapped for
    mixed precision computes in the precision of its weights.
    """
    import torch

    modes = [(module, module.training) for module in network.modules()]
    buffers = [
        (module, name, buffer) for module in network.modules() for name, buffer in module.named_buffers(recurse=False)
    ]
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
