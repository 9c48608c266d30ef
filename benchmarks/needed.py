"""Floating-point work that a question cannot be answered without, counted from its tokens and the network's layers.

    tokens      distinct nodes of the prefix tree of all texts; for a masked model every token of every distinct text
    layers      a multiply-add for each weight of each linear layer of the body, for each token (looking a token up costs none);
                of the last layer those of keys and values alone, and the others for each place that is read: what the last
                layer makes of any other token is not looked at
    attention   for each token and layer, the products of one query with the keys of what it sees, and of those shares with
                their values: 2 x width multiply-adds for each of its ancestors and itself; for a masked model each token of its
                text; in the last layer for each place that is read
    head        a multiply-add for each weight of the linear layers above the body, for each distinct place that is read

Norms, rotations, activations and softmax are not counted: they are no products of matrices, and a percent or two of the whole.
A multiply-add is two operations. Knows the engine's tokens and tree, and networks of transformers; knows nothing about clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from undertow.models.base import Encoded
from undertow.scoring.plan import cut_batches, grow_tree, plan
from undertow.types import UndertowError
from worker import Loaded

FLOP_OF_MULTIPLY_ADD = 2
UNLIMITED = 2**62
KEYS_AND_VALUES = ("k_proj", "v_proj", "key", "value")
"""In the name of a linear layer that makes keys or values."""
FUSED = ("c_attn", "query_key_value", "qkv")
"""In the name of one that makes queries, too."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A network, as far as work depends on it.

    Attributes:
        body, head: (inputs, outputs) of each linear layer below and above the last hidden state.
        n_layers: with attention.
        width: of all heads of one layer together.
        weights_bytes: of all parameters, those with two uses once.
        at_reads: of the last layer, weights that only places that are read are multiplied with: all but keys' and values'.
    """

    body: tuple[tuple[int, int], ...]
    head: tuple[tuple[int, int], ...]
    n_layers: int
    width: int
    weights_bytes: int
    at_reads: int

    @classmethod
    def of(cls, network: Any) -> Shape:
        """Read off the network's configuration: the engine lays out its own weights in other ways.

        Raises:
            UndertowError: the last layer's keys and values are not found among its linear layers.
        """
        import torch
        from transformers.pytorch_utils import Conv1D

        with torch.device("meta"):
            bare = type(network)(network.config)
        body = {id(module) for module in bare.base_model.modules()}
        linear = [module for module in bare.modules() if isinstance(module, (torch.nn.Linear, Conv1D))]
        config = bare.config.get_text_config()
        n_layers = int(config.num_hidden_layers)
        n_heads = int(config.num_attention_heads)
        head_width = int(getattr(config, "head_dim", None) or config.hidden_size // n_heads)
        return cls(
            body=tuple(_sides(module) for module in linear if id(module) in body),
            head=tuple(_sides(module) for module in linear if id(module) not in body),
            n_layers=n_layers,
            width=n_heads * head_width,
            weights_bytes=sum(one.numel() for one in bare.parameters()) * network.dtype.itemsize,
            at_reads=_at_reads(_last_layer(bare.base_model, n_layers), n_heads * head_width),
        )


def _last_layer(body: Any, n_layers: int) -> dict[str, tuple[int, int]]:
    """Sides of the last layer's linear layers, by name: the first number in a module's name is its layer's."""
    import torch
    from transformers.pytorch_utils import Conv1D

    return {
        name: _sides(module)
        for name, module in body.named_modules()
        if isinstance(module, (torch.nn.Linear, Conv1D))
        and next((part for part in name.split(".") if part.isdecimal()), "") == str(n_layers - 1)
    }


def _at_reads(layer: Mapping[str, tuple[int, int]], width: int) -> int:
    """Weights of a layer beside those of keys and values.

    Args:
        layer: (inputs, outputs) of its linear layers, by name.
        width: outputs that are queries, in a linear layer that makes queries, keys and values at once.

    Raises:
        UndertowError: none of them makes keys or values.
    """
    own = {name: name.rpartition(".")[2] for name in layer}
    fused = [name for name, last in own.items() if any(word in last for word in FUSED)]
    apart = [name for name, last in own.items() if name not in fused and any(word in last for word in KEYS_AND_VALUES)]
    if not fused and not apart:
        raise UndertowError(
            f"keys and values are not found in a network's last layer (its linear layers: {', '.join(own.values()) or 'none'}); "
            "name another model, or add their names to benchmarks/needed.py"
        )
    of_all = [layer[name] for name in apart] + [(n_in, n_out - width) for n_in, n_out in map(layer.__getitem__, fused)]
    return _weights(list(layer.values())) - _weights(of_all)


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
        n_seen_by_reads: of the pairs, those of such a place.
        layers_flop, attention_flop, head_flop: the parts.
    """

    n_tokens: int
    n_fed: int
    n_seen: int
    n_reads: int
    n_seen_by_reads: int
    layers_flop: int = 0
    attention_flop: int = 0
    head_flop: int = 0

    @property
    def flop(self) -> int:
        """All of it."""
        return self.layers_flop + self.attention_flop + self.head_flop

    def in_flop(self, shape: Shape) -> Needed:
        """The same, in operations of this network."""
        of_layers = self.n_tokens * (_weights(shape.body) - shape.at_reads) + self.n_reads * shape.at_reads
        pairs = (shape.n_layers - 1) * self.n_seen + self.n_seen_by_reads
        return replace(
            self,
            layers_flop=FLOP_OF_MULTIPLY_ADD * of_layers,
            attention_flop=FLOP_OF_MULTIPLY_ADD * 2 * shape.width * pairs,
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
        reads = [len(set(zip(batch.read_rows, batch.read_positions, strict=True))) for batch in batches]
        widths = [batch.tokens.shape[1] for batch in batches]
        return Needed(
            n_tokens=sum(batch.tokens.size for batch in batches),
            n_fed=n_fed,
            n_seen=sum(batch.tokens.size * width for batch, width in zip(batches, widths, strict=True)),
            n_reads=sum(reads),
            n_seen_by_reads=sum(n * width for n, width in zip(reads, widths, strict=True)),
        )
    tree, _ = grow_tree(encoded)
    read = np.unique(tree.read_nodes)
    return Needed(
        n_tokens=len(tree.tokens),
        n_fed=n_fed,
        n_seen=int((tree.depths + 1).sum()),
        n_reads=len(read),
        n_seen_by_reads=int((tree.depths[read] + 1).sum()),
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
