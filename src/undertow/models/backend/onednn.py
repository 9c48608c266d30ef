"""Pack weights for oneDNN on a CPU.

In float32, torch multiplies with MKL, which reaches half of the speed of many CPUs. oneDNN, also part of torch, is up to twice as
fast with weights in its own layout, with equal numbers within rounding (a few 1e-6). In bfloat16 torch uses oneDNN but converts
the layout for every product. The choice depends on torch's build and the CPU only, never on a timing, so runs repeat bit by bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import proxy

from undertow.errors import UndertowError
from undertow.models.backend.malloc import keep_freed_memory, trim_memory

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model")
TYPICAL_ROWS = 512
MIN_WEIGHTS = 2**14
"""Smaller products are not faster."""
COLUMNS_AT_ONCE = 2048
"""Columns of a block of a head with tied embedding."""


def accelerated(network: Any, wrap: Callable[[Any], Model]) -> Model:
    """Accelerate a network and wrap it; undo it if the network does not work with packed weights, as `wrap` finds out by tests."""
    restore = accelerate(network)
    try:
        model = wrap(network)
    except UndertowError:
        raise
    except Exception:  # noqa: BLE001 - code of the network's own, which knows no packed weight
        restore()
        model = wrap(network)
    packed = [parameter.is_mkldnn for parameter in network.parameters()]
    for parameter, is_packed in zip(network.parameters(), packed, strict=True):
        if any(packed) and not is_packed:  # leave the mapped file, so that it can be unmapped
            parameter.data = parameter.data.clone()
    del restore  # with it the weights as they were
    trim_memory()
    return model


def accelerate(network: Any) -> Callable[[], None]:
    """Pack the weights of every plain linear layer, and keep freed memory; nothing where that is no faster.

    A head with tied embedding would be held twice, so it keeps its layout and is multiplied in blocks of columns.

    Returns:
        A function that undoes it.
    """
    import torch

    undo = ExitStack()
    if network.device.type != "cpu":
        return undo.close
    keep_freed_memory()
    if not can_pack(network.dtype):
        return undo.close
    from transformers.pytorch_utils import Conv1D

    owners = Counter(id(one) for module in network.modules() for one in module.parameters(recurse=False))
    for module in network.modules():
        if type(module) not in (torch.nn.Linear, Conv1D) or module.weight.numel() < MIN_WEIGHTS:
            continue
        if owners[id(module.weight)] == 1:
            dense = module.weight
            packed = packed_weight(dense.detach().t().contiguous() if type(module) is Conv1D else dense.detach())
            module.weight = torch.nn.Parameter(packed, requires_grad=False)
            undo.callback(setattr, module, "weight", dense)
            multiply = _multiply_packed
        elif type(module) is torch.nn.Linear and len(module.weight) > COLUMNS_AT_ONCE:
            multiply = _multiply_in_columns
        else:
            continue
        module.forward = partial(multiply, proxy(module))  # a cycle would keep the weights of a model that is dropped
        undo.callback(delattr, module, "forward")
    return undo.close


def _multiply_packed(module: Any, rows: torch.Tensor) -> torch.Tensor:
    """One layer with a packed weight, and the bias that it has now."""
    return linear(rows, module.weight, module.bias)


def _multiply_in_columns(module: Any, rows: torch.Tensor) -> torch.Tensor:
    """One layer in blocks of columns, since MKL converts and keeps whole weights."""
    import torch

    product = rows.new_empty(*rows.shape[:-1], len(module.weight))
    for left in range(0, len(module.weight), COLUMNS_AT_ONCE):
        block = slice(left, left + COLUMNS_AT_ONCE)
        bias = None if module.bias is None else module.bias[block]
        product[..., block] = torch.nn.functional.linear(rows, module.weight[block], bias)
    return product


def packed_weight(weight: torch.Tensor) -> torch.Tensor:
    """A weight [out, in] in oneDNN's own layout; a copy."""
    import torch

    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
    return packed


def linear(rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Rows [row, in] times a packed weight [row, out]."""
    import torch

    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


def can_pack(dtype: torch.dtype) -> bool:
    """Whether packed weights of this precision are supported and faster with this torch and CPU."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # Without bfloat16 instructions packed weights are slower.
    if dtype != torch.float32 and not (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def weight_bytes(network: Any) -> int:
    """Memory of a network's weights, packed ones included."""
    return sum(parameter.numel() * parameter.dtype.itemsize for parameter in network.parameters())
