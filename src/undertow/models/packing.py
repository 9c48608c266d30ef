"""Weights in the layout that a processor multiplies fastest.

On a processor in float32, torch hands its products to MKL, which on many machines uses half of what they can do. oneDNN, which comes
with torch too, does better if it may keep the weights in a layout of its own: the same numbers within rounding (a few 1e-6), at
up to twice the speed. The choice depends on the build of torch alone, never on a timing, so that runs repeat to the bit.

Knows torch; knows no family.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from undertow.types import UndertowError

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model")
TYPICAL_ROWS = 512
LEAST_WEIGHTS = 2**14
"""Smaller products gain nothing."""


def opened_packed(network: Any, wrap: Callable[[], Model]) -> Model:
    """Wrap a network whose weights were packed; one that does not work so is unpacked and wrapped as it was.

    Args:
        network: on its device.
        wrap: makes the model of it, and tries it in doing so.
    """
    undo = pack(network)
    try:
        model = wrap()
    except UndertowError:
        raise
    except Exception:
        if not undo:
            raise
        for restore in undo:
            restore()
        model = wrap()
    undo.clear()
    _give_back()
    return model


def _give_back() -> None:
    """The old weights lie between the new ones, and glibc keeps such holes until it is told not to."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def pack(network: Any) -> list[Callable[[], None]]:
    """Pack the weights of every plain linear layer; returns what undoes it, [] where nothing was done.

    A head that is the embedding too is left alone: it would need memory twice.
    """
    import torch

    if network.device.type != "cpu" or network.dtype != torch.float32 or not _can_pack():
        return []
    from transformers.pytorch_utils import Conv1D

    owners: dict[int, int] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    undo = []
    for module in network.modules():
        plain = type(module) in (torch.nn.Linear, Conv1D) and module.weight.numel() >= LEAST_WEIGHTS
        if plain and owners[id(module.weight)] == 1:
            undo.append(_pack_module(module, turned=type(module) is Conv1D))
    return undo


def _can_pack() -> bool:
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def _pack_module(module: Any, *, turned: bool) -> Callable[[], None]:
    """One layer, and what undoes it."""
    import torch

    dense = module.weight
    weight = dense.detach().t().contiguous() if turned else dense.detach()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)

    def forward(self: Any, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, self.bias, "none", [], "")
        return product

    module.forward = MethodType(forward, module)
    module.weight = torch.nn.Parameter(packed, requires_grad=False)

    def restore() -> None:
        module.weight = dense
        del module.forward

    return restore


def weight_bytes(network: Any) -> int:
    """What a network's weights take; packed ones have no size in bytes of their own."""
    return sum(parameter.numel() * parameter.dtype.itemsize for parameter in network.parameters())
