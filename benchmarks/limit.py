"""What the machine could do: the work that a question cannot be answered without, and how fast matrices are multiplied here.

    tokens      distinct nodes of the prefix tree of all texts; for a masked model every token of every distinct text
    layers      a multiply-add for each weight of each linear layer of the body, for each token; of the last layer those of
                keys and values alone, and the others for each place that is read
    attention   2 x width multiply-adds for each token, layer and token that it sees: its ancestors and itself, or for a masked
                model all of its text; in the last layer for each place that is read
    head        a multiply-add for each weight of the linear layers above the body, for each distinct place that is read

benchmarks/README.md says why, and what is not counted. A multiply-add is two operations. The limit is the fastest product, of the
shapes that a network has and of a few squares, by torch's own product and by oneDNN's on weights in a layout of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import UndertowError
from undertow.inference.planner import cut_batches, grow_tree, plan
from undertow.models.base import EncodedQuery
from worker import Loaded

UNLIMITED = 2**62
KEYS_AND_VALUES = ("k_proj", "v_proj", "key", "value")
"""In the name of a linear layer that makes keys or values."""
FUSED = ("c_attn", "query_key_value", "qkv")
"""In the name of one that makes queries, too."""
ROWS, SQUARES = (512, 2048), (1024, 2048)
"""Rows of a product with a network's weights (the widest ones are tried with the first alone), and sides of squares."""
WIDEST = 2**24
"""Weights of a layer beyond which more rows than the least would take seconds."""
REPEATS, LEAST_SECONDS = 3, 0.05
"""A product is repeated so often and so long, once more before to warm up."""

Sides = tuple[int, int]
Rates = dict[str, list[float]]
"""FLOP/s of each repetition, by what was multiplied."""


class Shape(NamedTuple):
    """A network, as far as work depends on it.

    Attributes:
        body, head: (inputs, outputs) of each linear layer below and above the last hidden state.
        n_layers: with attention.
        width: of all heads of one layer together.
        weights_bytes: of all parameters, those with two uses once.
        at_reads: of the last layer, weights that only places that are read are multiplied with: all but keys' and values'.
    """

    body: list[Sides]
    head: list[Sides]
    n_layers: int
    width: int
    weights_bytes: int
    at_reads: int


def shape_of(loaded: Loaded) -> Shape:
    """Read off the network's configuration: the engine lays out its own weights in other ways."""
    import torch
    from transformers.pytorch_utils import Conv1D

    network = loaded.model.network
    with torch.device("meta"):
        bare = type(network)(network.config)
    sides: dict[str, Sides] = {}
    for name, module in bare.named_modules():
        if isinstance(module, (torch.nn.Linear, Conv1D)):
            n_in, n_out = module.weight.shape if isinstance(module, Conv1D) else reversed(module.weight.shape)
            sides[name] = (int(n_in), int(n_out))
    body = {name: two for name, two in sides.items() if name.startswith(bare.base_model_prefix + ".")}
    config = bare.config.get_text_config()
    n_layers, n_heads = int(config.num_hidden_layers), int(config.num_attention_heads)
    width = n_heads * int(getattr(config, "head_dim", None) or config.hidden_size // n_heads)
    # The first number in a module's name is its layer's.
    numbers = {name: next((part for part in name.split(".") if part.isdecimal()), "") for name in body}
    last = {name: body[name] for name, number in numbers.items() if number == str(n_layers - 1)}
    head = [two for name, two in sides.items() if name not in body]
    weights_bytes = sum(one.numel() for one in bare.parameters()) * network.dtype.itemsize
    return Shape(list(body.values()), head, n_layers, width, weights_bytes, _at_reads(last, width))


def _at_reads(layer: dict[str, Sides], width: int) -> int:
    """Weights of a layer beside those of keys and values; `width` outputs are queries in one that makes all three at once."""
    own = {name: name.rpartition(".")[2] for name in layer}
    fused = [name for name, last in own.items() if any(word in last for word in FUSED)]
    apart = [name for name, last in own.items() if name not in fused and any(word in last for word in KEYS_AND_VALUES)]
    if not fused and not apart:
        raise UndertowError(
            f"no keys and values in the last layer (linear layers: {', '.join(own.values()) or 'none'}); "
            "name another model, or add their names to benchmarks/limit.py"
        )
    of_all = [layer[name] for name in apart] + [(layer[name][0], layer[name][1] - width) for name in fused]
    return _weights(layer.values()) - _weights(of_all)


def _weights(layers: Iterable[Sides]) -> int:
    return sum(n_in * n_out for n_in, n_out in layers)


def needed(loaded: Loaded, places: Sequence[int]) -> dict[str, int]:
    """The work of these items with a worker's model, in tokens and operations; `fed` are the tokens of the engine's plan."""
    encoded: list[EncodedQuery] = []
    for query in loaded.model.encode([loaded.queries[place] for place in places]):
        if not isinstance(query, EncodedQuery):
            raise UndertowError(f"{loaded.model.identity.name}: {query}; name a model that can score all items")
        encoded.append(query)
    if encoded[0].bidirectional:
        batches, _ = cut_batches(encoded, UNLIMITED)
        places_read = [len(set(zip(batch.read_rows, batch.read_positions, strict=True))) for batch in batches]
        widths = [batch.tokens.shape[1] for batch in batches]
        n_tokens, n_reads = sum(batch.tokens.size for batch in batches), sum(places_read)
        n_seen = sum(batch.tokens.size * width for batch, width in zip(batches, widths, strict=True))
        n_seen_by_reads = sum(n * width for n, width in zip(places_read, widths, strict=True))
    else:
        tree, _ = grow_tree(encoded)
        read = np.unique(tree.read_nodes)
        n_tokens, n_reads = len(tree.tokens), len(read)
        n_seen, n_seen_by_reads = int((tree.depths + 1).sum()), int((tree.depths[read] + 1).sum())
    shape = shape_of(loaded)
    layers = n_tokens * (_weights(shape.body) - shape.at_reads) + n_reads * shape.at_reads
    attention = 2 * shape.width * ((shape.n_layers - 1) * n_seen + n_seen_by_reads)
    head = n_reads * _weights(shape.head)
    return {
        "needed tokens": n_tokens,
        "fed": sum(pack.n_tokens for pack in plan(encoded, loaded.model.limits)),
        "places read": n_reads,
        "layers_flop": 2 * layers,
        "attention_flop": 2 * attention,
        "head_flop": 2 * head,
        "flop": 2 * (layers + attention + head),
    }


def has_bfloat16(_: Loaded) -> bool:
    """Whether this processor multiplies in bfloat16 by instructions of its own, as far as oneDNN may use them."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def rates(loaded: Loaded, shape: Shape) -> Rates:
    """One visit to all products, in the precision of the worker's network."""
    import torch

    dtype = loaded.model.network.dtype
    layers = dict.fromkeys([*shape.body, *shape.head])
    products = [
        (rows, n_in, n_out) for n_in, n_out in layers for rows in ROWS if rows == ROWS[0] or n_in * n_out <= WIDEST
    ]
    found: Rates = {}
    with torch.inference_mode():
        for rows, n_in, n_out in [*products, *((side, side, side) for side in SQUARES)]:
            left, weight = torch.randn(rows, n_in, dtype=dtype), torch.randn(n_out, n_in, dtype=dtype)
            for way, product in _ways(left, weight):
                seconds = _timed(product)
                found[f"{rows} x {n_in} x {n_out}, {way}"] = [2 * rows * n_in * n_out / one for one in seconds]
    return found


def _ways(left: Any, weight: Any) -> Iterable[tuple[str, Callable[[], Any]]]:
    import torch

    yield "torch", lambda: torch.mm(left, weight.t())
    ops = torch.ops.mkldnn
    if torch.backends.mkldnn.is_available() and hasattr(ops, "_linear_pointwise"):  # type: ignore[no-untyped-call]
        packed = ops._reorder_linear_weight(weight, len(left))
        yield "oneDNN", lambda: ops._linear_pointwise(left, packed, None, "none", [], "")


def _timed(product: Callable[[], Any]) -> list[float]:
    product()
    seconds: list[float] = []
    while len(seconds) < REPEATS or sum(seconds) < LEAST_SECONDS:
        started = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - started)
    return seconds


def best_of(visits: Sequence[Rates]) -> tuple[str, list[float]]:
    """The limit over several visits: the product with the best median of all, and its median in each visit."""
    best = max(visits[0], key=lambda name: median([rate for visit in visits for rate in visit[name]]))
    return best, [median(visit[best]) for visit in visits]
