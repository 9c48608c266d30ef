"""Weights in the layout that a processor multiplies fastest.

On a processor in float32, torch hands its products to MKL, which on many machines uses half of what they can do. oneDNN, which
comes with torch too, does better if it may keep the weights in a layout of its own: the same numbers within rounding (a few
1e-6), at up to twice the speed. In bfloat16, where a processor has instructions for it, torch uses oneDNN already, but lays the
weights out anew for every product. The choice depends on the build of torch and on the processor alone, never on a timing, so
that runs repeat to the bit.

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
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's malloc.h."""
KEPT_BYTES = 2**29
LARGEST_COPY_BYTES = 2**28
"""A head that is the embedding too is packed beside it, if the copy is no larger."""


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
    """The old weights lie between the new ones, and glibc keeps such holes until it is told not to.

    From here on it is to keep what passes leave: it would hand large arrays back to the system after each use, and clearing the
    same pages again and again for the next one takes a sixth of a pass.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.malloc_trim(0)
            libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
            libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def pack(network: Any) -> list[Callable[[], None]]:
    """Pack the weights of every plain linear layer; returns what undoes it, [] where nothing was done.

    A head that is the embedding too is packed beside it, unless that would take much memory.
    """
    import torch

    if network.device.type != "cpu" or not _can_pack(network.dtype):
        return []
    from transformers.pytorch_utils import Conv1D

    head = network.get_output_embeddings()
    owners: dict[int, int] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    undo = []
    for module in network.modules():
        if type(module) not in (torch.nn.Linear, Conv1D) or module.weight.numel() < LEAST_WEIGHTS:
            continue
        shared = owners[id(module.weight)] > 1
        copied = module is head and module.weight.nbytes <= LARGEST_COPY_BYTES
        if copied or not shared:
            undo.append(_pack_module(module, turned=type(module) is Conv1D, shared=shared))
    return undo


def _can_pack(dtype: torch.dtype) -> bool:
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # A processor without instructions for bfloat16 is slower by packed weights than by torch's own way.
    if dtype != torch.float32 and not (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def _pack_module(module: Any, *, turned: bool, shared: bool) -> Callable[[], None]:
    """One layer, and what undoes it. Weights that are used elsewhere too stay as they are beside the packed ones."""
    import torch

    dense = module.weight
    weight = dense.detach().t().contiguous() if turned else dense.detach()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)

    def forward(self: Any, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, self.bias, "none", [], "")
        return product

    module.forward = MethodType(forward, module)
    if shared:
        module.packed_copy = packed
    else:
        module.weight = torch.nn.Parameter(packed, requires_grad=False)

    def restore() -> None:
        if shared:
            del module.packed_copy
        else:
            module.weight = dense
        del module.forward

    return restore


def weight_bytes(network: Any) -> int:
    """What a network's weights take; packed ones have no size in bytes of their own."""
    copies = (module.packed_copy for module in network.modules() if hasattr(module, "packed_copy"))
    return sum(weight.numel() * weight.dtype.itemsize for weight in (*network.parameters(), *copies))
