"""The machine's limit: how fast it multiplies matrices at its best, in one process with the threads that score.

Products of the shapes that a network has, and of a few square ones, in the fastest two ways that torch offers here: its own, and
oneDNN's on weights in a layout of oneDNN's own. Knows torch and clocks; knows nothing about what is scored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from needed import FLOP_OF_MULTIPLY_ADD, Shape
from worker import Loaded

ROWS = (512, 2048)
"""Rows of a product with a network's weights; the widest ones are tried with the first alone."""
SQUARES = (1024, 2048)
WIDEST = 2**24
"""Weights of a layer beyond which more rows than the least would take seconds."""
REPEATS = 3
LEAST_SECONDS = 0.05
"""A product is repeated so often and so long, once more before to warm up."""

Rates = Mapping[str, Sequence[float]]
"""FLOP/s of each repetition, by what was multiplied."""


def products_of(shape: Shape) -> list[tuple[int, int, int]]:
    """(rows, inputs, outputs) of what is tried."""
    layers = dict.fromkeys([*shape.body, *shape.head])
    of_network = [
        (rows, n_in, n_out) for n_in, n_out in layers for rows in (ROWS if n_in * n_out <= WIDEST else ROWS[:1])
    ]
    return [*of_network, *((side, side, side) for side in SQUARES)]


def rates(loaded: Loaded, products: Sequence[tuple[int, int, int]]) -> Rates:
    """One visit to all products, in the precision of the worker's network."""
    import torch

    dtype = loaded.model.network.dtype
    found: dict[str, list[float]] = {}
    with torch.inference_mode():
        for rows, n_in, n_out in products:
            left, weight = torch.randn(rows, n_in, dtype=dtype), torch.randn(n_out, n_in, dtype=dtype)
            flop = FLOP_OF_MULTIPLY_ADD * rows * n_in * n_out
            for way, product in _ways(left, weight):
                found[f"{rows} x {n_in} x {n_out}, {way}"] = [flop / seconds for seconds in _timed(product)]
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


@dataclass(frozen=True, slots=True)
class Peak:
    """The limit over several visits.

    Attributes:
        product: what was multiplied fastest, by its median over all repetitions of all visits.
        flop_per_s: that median.
        by_visit: the same product's median in each visit.
        others: each product's median over all repetitions, fastest first.
    """

    product: str
    flop_per_s: float
    by_visit: tuple[float, ...]
    others: Mapping[str, float]

    @classmethod
    def of(cls, visits: Sequence[Rates]) -> Peak:
        """The best of what was tried in every visit."""
        middles = {name: median([rate for visit in visits for rate in visit[name]]) for name in visits[0]}
        ranked = dict(sorted(middles.items(), key=lambda pair: -pair[1]))
        best = next(iter(ranked))
        return cls(best, ranked[best], tuple(median(visit[best]) for visit in visits), ranked)

    def told(self) -> dict[str, Any]:
        """For the record."""
        return {
            "product": self.product,
            "flop_per_s": self.flop_per_s,
            "flop_per_s_by_visit": self.by_visit,
            "products": dict(self.others),
        }
