"""Pack weights for oneDNN on a CPU.

In float32, torch multiplies with MKL, which reaches half of the speed of many CPUs. oneDNN, also part of torch, is up to twice as
fast with weights in its own layout, with equal numbers within rounding (a few 1e-6). In bfloat16 torch uses oneDNN but converts
the layout for every product. The choice depends on torch's build and the CPU only, never on a timing, so runs repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from undertow.errors import UndertowError
from undertow.models.backend.malloc import keep_freed_memory

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model")
TYPICAL_ROWS = 512
MIN_WEIGHTS = 2**14
"""Smaller products are not faster."""
COLUMNS_AT_ONCE = 2048
"""Columns of a block of a head with tied embedding."""


def with_packed_weights(network: Any, wrap: Callable[[], Model]) -> Model:
    """Pack a network's weights and wrap it; unpack it if it does not work with packed weights.

    Args:
        network: on its device.
        wrap: builds the model and tests the network.
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
    if undo:
        undo.clear()
        _leave_files(network)
    if network.device.type == "cpu":
        keep_freed_memory()
    return model


def _leave_files(network: Any) -> None:
    """Copy unpacked weights out of the mapped file, so that the file can be unmapped."""
    for parameter in network.parameters():
        if not parameter.is_mkldnn:
            parameter.data = parameter.data.clone()


def pack(network: Any) -> list[Callable[[], None]]:
    """Pack the weights of every plain linear layer; returns functions that undo it, [] if nothing was packed.

    A head with tied embedding would be held twice, so it keeps its layout and is multiplied in blocks of columns.
    """
    import torch

    if network.device.type != "cpu" or not can_pack(network.dtype):
        return []
    from transformers.pytorch_utils import Conv1D

    owners: dict[int, int] = {}
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    undo = []
    for module in network.modules():
        if type(module) not in (torch.nn.Linear, Conv1D) or module.weight.numel() < MIN_WEIGHTS:
            continue
        if owners[id(module.weight)] == 1:
            undo.append(_pack_module(module, turned=type(module) is Conv1D))
        elif type(module) is torch.nn.Linear and len(module.weight) > COLUMNS_AT_ONCE:
            undo.append(_multiply_in_columns(module))
    return undo + [restore for module in network.modules() if undo for restore in _gate_in_place(module)]


def _gate_in_place(module: Any) -> list[Callable[[], None]]:
    """Make a gated layer reuse its gate's memory, which saves two wide arrays; returns functions that undo it, [] for other layers.

    A layer is left as it is if the result differs on random rows.
    """
    import torch

    parts = (getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj"))
    if (
        not all(type(part) is torch.nn.Linear for part in parts)
        or type(getattr(module, "act_fn", None)) not in _silus()
    ):
        return []

    def forward(self: Any, rows: torch.Tensor) -> torch.Tensor:
        gate = torch.nn.functional.silu(self.gate_proj(rows), inplace=True)
        actual: torch.Tensor = self.down_proj(gate.mul_(self.up_proj(rows)))
        return actual

    with torch.inference_mode():
        dtype = module.gate_proj.weight.dtype
        rows = torch.randn(4, module.gate_proj.in_features, generator=torch.Generator().manual_seed(0)).to(dtype)
        expected, actual = module(rows), forward(module, rows)
    if not torch.equal(expected, actual):
        return []
    module.forward = MethodType(forward, module)

    def restore() -> None:
        del module.forward

    return [restore]


def _silus() -> tuple[type, ...]:
    import torch
    from transformers.activations import ACT2FN

    return torch.nn.SiLU, type(ACT2FN["silu"])


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


def _multiply_in_columns(module: Any) -> Callable[[], None]:
    """Multiply one layer in blocks of columns, since MKL converts and keeps whole weights; returns a function that undoes it."""
    import torch

    def forward(self: Any, rows: torch.Tensor) -> torch.Tensor:
        actual = rows.new_empty(*rows.shape[:-1], len(self.weight))
        for left in range(0, len(self.weight), COLUMNS_AT_ONCE):
            block = slice(left, left + COLUMNS_AT_ONCE)
            bias = None if self.bias is None else self.bias[block]
            actual[..., block] = torch.nn.functional.linear(rows, self.weight[block], bias)
        return actual

    module.forward = MethodType(forward, module)

    def restore() -> None:
        del module.forward

    return restore


def _pack_module(module: Any, *, turned: bool) -> Callable[[], None]:
    """Pack one layer; returns a function that undoes it."""
    import torch

    dense = module.weight
    packed = packed_weight(dense.detach().t().contiguous() if turned else dense.detach())

    def forward(self: Any, rows: torch.Tensor) -> torch.Tensor:
        return linear(rows, packed, self.bias)

    module.forward = MethodType(forward, module)
    module.weight = torch.nn.Parameter(packed, requires_grad=False)

    def restore() -> None:
        module.weight = dense
        del module.forward

    return restore


def weight_bytes(network: Any) -> int:
    """Memory of a network's weights, packed ones included."""
    return sum(parameter.numel() * parameter.dtype.itemsize for parameter in network.parameters())
