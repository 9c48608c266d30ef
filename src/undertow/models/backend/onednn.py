"""Weights in the layout that a processor multiplies fastest.

On a processor in float32, torch hands its products to MKL, which on many machines uses half of what they can do. oneDNN, which
comes with torch too, does better if it may keep the weights in a layout of its own: the same numbers within rounding (a few
1e-6), at up to twice the speed. In bfloat16, where a processor has instructions for it, torch uses oneDNN already, but lays the
weights out again for every product. The choice depends on the build of torch and on the processor alone, never on a timing, so
that runs repeat to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from undertow.errors import UndertowError
from undertow.models.backend.malloc import keep_pages

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model")
TYPICAL_ROWS = 512
MIN_WEIGHTS = 2**14
"""Smaller products gain nothing."""
COLUMNS_AT_ONCE = 2048
"""Of a head that is the embedding too."""


def with_packed_weights(network: Any, wrap: Callable[[], Model]) -> Model:
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
    if undo:
        undo.clear()
        _leave_files(network)
    if network.device.type == "cpu":
        keep_pages()
    return model


def _leave_files(network: Any) -> None:
    """Weights that were not packed may lie in a mapped file, and one of them keeps all of it in memory."""
    for parameter in network.parameters():
        if not parameter.is_mkldnn:
            parameter.data = parameter.data.clone()


def pack(network: Any) -> list[Callable[[], None]]:
    """Pack the weights of every plain linear layer; returns what undoes it, [] where nothing was done.

    A head that is the embedding too would need memory twice. It keeps its layout, and is multiplied with in blocks of columns.
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
    """Have a gated layer write over its gate: two arrays less of the widest kind, and what undoes it; [] for other layers.

    Which layers are such is tried, not looked up: a layer that says anything else of random rows is left as it is.
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
    """Whether this build of torch and this processor can multiply with packed weights of this precision, and gain by it."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # A processor without instructions for bfloat16 is slower by packed weights than by torch's own way.
    if dtype != torch.float32 and not (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


def _multiply_in_columns(module: Any) -> Callable[[], None]:
    """One layer, and what undoes it: MKL lays out again what it multiplies with, all of it at once, and keeps that memory."""
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
    """One layer, and what undoes it."""
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
    """What a network's weights take; packed ones have no size in bytes of their own."""
    return sum(parameter.numel() * parameter.dtype.itemsize for parameter in network.parameters())
