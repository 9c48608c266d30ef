"""Floating-point work that a question cannot be answered without, counted from its tokens and the network's layers.

    tokens      distinct nodes of the prefix tree of all texts; for a masked model every token of every distinct text
    layers      a multiply-add for each weight of each linear layer of the body, for each token (looking a token up costs none)
    attention   for each token and layer, the products of one query with the keys of what it sees, and of those shares with
                their values: 2 x width multiply-adds for each of its ancestors and itself; for a masked model each token of its text
    head        a multiply-add for each weight of the linear layers above the body, for each distinct place that is read

Norms, rotations, activations and softmax are not counted: they are no products of matrices, and a percent or two of the whole.
A multiply-add is two operations. Knows the engine's tokens and tree, and networks of transformers; knows nothing about clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from undertow.models.base import Encoded
from undertow.scoring.plan import cut_batches, grow_tree, plan
from undertow.types import UndertowError
from worker import Loaded

FLOP_OF_MULTIPLY_ADD = 2
UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Shape:
    """A network, as far as work depends on it.

    Attributes:
        body, head: (inputs, outputs) of each linear layer below and above the last hidden state.
        n_layers: with attention.
        width: of all heads of one layer together.
        weights_bytes: of all parameters, those with two uses once.
    """

    body: tuple[tuple[int, int], ...]
    head: tuple[tuple[int, int], ...]
    n_layers: int
    width: int
    weights_bytes: int

    @classmethod
    def of(cls, network: Any) -> Shape:
        """Read off the network's configuration: the engine lays out its own weights in other ways."""
        import torch
        from transformers.pytorch_utils import Conv1D

        with torch.device("meta"):
            bare = type(network)(network.config)
        body = {id(module) for module in bare.base_model.modules()}
        linear = [module for module in bare.modules() if isinstance(module, (torch.nn.Linear, Conv1D))]
        config = bare.config.get_text_config()
        n_heads = int(config.num_attention_heads)
        head_width = int(getattr(config, "head_dim", None) or config.hidden_size // n_heads)
        return cls(
            body=tuple(_sides(module) for module in linear if id(module) in body),
            head=tuple(_sides(module) for module in linear if id(module) not in body),
            n_layers=int(config.num_hidden_layers),
            width=n_heads * head_width,
            weights_bytes=sum(one.numel() for one in bare.parameters()) * network.dtype.itemsize,
        )


def _sides(module: Any) -> tuple[int, int]:
    """Inputs and outputs of a linear layer, whichever way its weight lies."""
    n_out, n_in = module.weight.shape if hasattr(module, "out_features") else reversed(module.weight.shape)
    return int(n_in), int(n_out)


@dataclass(frozen=True, slots=True)
class Needed:
    """Work in tokens and operations.

    Attributes:
        n_tokens: that must be read.
        n_fed: that the engine's plan feeds, in packs that share nothing with each other.
        n_seen: pairs of a token and one that it attends to, itself included.
        n_reads: distinct places at which the head is needed.
        layers_flop, attention_flop, head_flop: the parts.
    """

    n_tokens: int
    n_fed: int
    n_seen: int
    n_reads: int
    layers_flop: int = 0
    attention_flop: int = 0
    head_flop: int = 0

    @property
    def flop(self) -> int:
        """All of it."""
        return self.layers_flop + self.attention_flop + self.head_flop

    def in_flop(self, shape: Shape) -> Needed:
        """The same, in operations of this network."""
        return replace(
            self,
            layers_flop=FLOP_OF_MULTIPLY_ADD * self.n_tokens * _weights(shape.body),
            attention_flop=FLOP_OF_MULTIPLY_ADD * 2 * shape.width * shape.n_layers * self.n_seen,
            head_flop=FLOP_OF_MULTIPLY_ADD * self.n_reads * _weights(shape.head),
        )

    def told(self) -> dict[str, int]:
        """For the record."""
        return asdict(self) | {"flop": self.flop}


def _weights(layers: Sequence[tuple[int, int]]) -> int:
    return sum(n_in * n_out for n_in, n_out in layers)


def shape_of(loaded: Loaded) -> Shape:
    """The shape of a worker's network."""
    return Shape.of(loaded.model.network)


def needed_by(loaded: Loaded, places: Sequence[int]) -> Needed:
    """What these items need of a worker's model.

    Raises:
        UndertowError: the model cannot be asked one of them.
    """
    encoded = _encoded(loaded, places)
    return counted(encoded, _fed(loaded, encoded)).in_flop(shape_of(loaded))


def counted(encoded: Sequence[Encoded], n_fed: int) -> Needed:
    """Tokens, what they see, and places that are read, over all queries together."""
    if any(query.sees_all for query in encoded):
        batches, _ = cut_batches(encoded, UNLIMITED)
        return Needed(
            n_tokens=sum(batch.tokens.size for batch in batches),
            n_fed=n_fed,
            n_seen=sum(batch.tokens.size * batch.tokens.shape[1] for batch in batches),
            n_reads=sum(len(set(zip(batch.read_rows, batch.read_positions, strict=True))) for batch in batches),
        )
    tree, _ = grow_tree(encoded)
    return Needed(
        n_tokens=len(tree.tokens),
        n_fed=n_fed,
        n_seen=int((tree.depths + 1).sum()),
        n_reads=len(np.unique(tree.read_nodes)),
    )


def _encoded(loaded: Loaded, places: Sequence[int]) -> list[Encoded]:
    def each() -> Iterator[Encoded]:
        for query in loaded.model.encode([loaded.queries[place] for place in places]):
            if not isinstance(query, Encoded):
                raise UndertowError(f"{loaded.model.card.name}: {query}; name a model that can be asked all of it")
            yield query

    return list(each())


def _fed(loaded: Loaded, encoded: Sequence[Encoded]) -> int:
    return sum(pack.n_tokens for pack in plan(encoded, loaded.model.limits))
