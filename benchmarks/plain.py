"""The model of a peer: the same weights and tokenizer, as transformers loads them and nothing changed.

The engine lays its weights out anew and attends in its own way; a peer must get neither. Knows transformers, and where the engine
finds a model's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from undertow.models.base import Found, Request
from undertow.models.decoding import Decoder
from undertow.models.weights import explain_loading, find_weights, parsed_once
from undertow.types import ModelCard, UndertowError

NETWORKS = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM"}
"""Families, and what transformers loads them with."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A model as transformers has it.

    Attributes:
        card: who it is.
        network, tokenizer: of transformers.
        decoder: for peers that write: the texts of tokens and which of them end an answer; None for a masked model.
    """

    card: ModelCard
    network: Any
    tokenizer: Any
    decoder: Decoder | None


def load(family: str, found: Found, request: Request) -> Plain:
    """The model that `found` is, loaded by transformers alone.

    Raises:
        UndertowError: it cannot be loaded.
    """
    weights = find_weights(request, import_module(f"undertow.models.{family}").ARCHITECTURES)
    if weights is None:
        raise UndertowError(f"{request.name}: is no {family} model; name another, see --help")
    with explain_loading(request.name), parsed_once(weights.options):
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(weights.location, **weights.options)
        network = getattr(transformers, NETWORKS[family]).from_pretrained(
            weights.location, dtype=getattr(torch, found.card.dtype), use_safetensors=True, **weights.options
        )
        network = network.eval()
        # Greedy search by the probabilities alone, as for the engine; a checkpoint's own settings would bend them.
        decoder = Decoder.of(network, tokenizer, 0, 0) if family == "causal" else None
        return Plain(found.card, network, tokenizer, decoder)
