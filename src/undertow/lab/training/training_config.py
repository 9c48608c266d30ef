"""How a network is trained: one configuration for pre-training and fine-tuning, and how it is checked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from undertow.errors import UndertowError
from undertow.lab.settings import check_bounds
from undertow.types import option

MASKED, CAUSAL = "masked", "causal"
ARCHITECTURES = (MASKED, CAUSAL)
LINEAR, COSINE = "linear", "cosine"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """How a network is trained, whatever it learns. Other options have their help.

    Attributes:
        batch_size: texts per step (windows, if texts are long).
        warmup_ratio: share of the steps over which the rate rises to its peak in a straight line.
        warmup_steps: number of these steps instead, if above 0.
        schedule: how the rate falls to 0 from there, `linear` or `cosine` (which begins at the first step).
        embedding_rate: how many times as fast the token embeddings learn.
        weight_decay: of matrices; biases and normalisers have none.
        max_grad_norm: largest norm of a step's gradient.
        fused: whether AdamW runs as one kernel, which is faster for small networks and rounds otherwise.
        seed: of all that is drawn: first weights, held-out texts, their order, dropout.
        logging_steps: steps whose mean loss is one number of the record; 0 for a hundredth of them.
    """

    epochs: int = option(3, "Passes over the texts.", ge=0)
    max_steps: int = option(0, "Number of batches, instead of --epochs; 0 for none.", ge=0)
    batch_size: int = option(32, "Texts in a batch.", ge=1)
    learning_rate: float = option(3e-5, "Peak learning rate of AdamW.", gt=0, lt=math.inf)
    warmup_ratio: float = option(0.1, "Share of the steps before the peak learning rate.", ge=0, le=1)
    warmup_steps: int = option(0, ge=0)
    schedule: str = LINEAR
    embedding_rate: float = option(1.0, gt=0)
    weight_decay: float = option(0.01, ge=0, lt=math.inf)
    max_grad_norm: float = option(1.0, gt=0)
    fused: bool = False
    dropout: bool = option(True, "Train with the model's own dropout.")
    seed: int = option(0, "Seed of the head, the split, the order and the dropout.", ge=0, lt=2**63)
    device: str = option("auto", "auto, cpu, cuda, mps, ...")
    logging_steps: int = option(0, ge=0)
    save_steps: int = option(500, "Steps between checkpoints.", ge=1)

    def __post_init__(self) -> None:
        check_bounds(self)
        if not (self.max_steps or self.epochs):
            raise UndertowError("max_steps or epochs must be above 0, got 0 of both")

    def settings(self) -> dict[str, Any]:
        """What makes a training this one and no other, by name, as JSON holds it.

        The device and the distance of checkpoints are not part of it, though another device rounds otherwise.
        """
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in ("device", "save_steps")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig(TrainingConfig):
    """How a small network is built and trained from scratch.

    Attributes:
        architecture: `masked` (BERT) or `causal` (Llama).
        vocabulary: tokens, at most.
        positions: tokens that it can read, at most.
    """

    architecture: str = field(kw_only=False)
    width: int = option(64, ge=1)
    layers: int = option(2, ge=1)
    heads: int = option(4, ge=1)
    inner: int = option(128, ge=1)
    vocabulary: int = option(800, ge=1)
    positions: int = option(64, ge=1)
    max_steps: int = option(930, ge=1)
    batch_size: int = option(128, ge=1)
    learning_rate: float = option(2e-3, gt=0, lt=math.inf)
    warmup_ratio: float = option(0.0, ge=0, le=1)
    warmup_steps: int = option(60, ge=0)
    schedule: str = COSINE
    embedding_rate: float = option(5.0, gt=0)  # each token is seen in a few texts of a batch only
    weight_decay: float = option(0.0, ge=0)
    fused: bool = True
    dropout: bool = False
    device: str = "cpu"
    logging_steps: int = option(50, ge=1)
    save_steps: int = option(200, ge=1)

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        if self.architecture not in ARCHITECTURES:
            raise UndertowError(f"architecture must be {' or '.join(ARCHITECTURES)}, got {self.architecture!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig(TrainingConfig):
    """How a head for masked words is trained.

    Attributes:
        labels: the word groups, in the order of the head's outputs.
    """

    labels: tuple[str, ...] = field(kw_only=False)
    held_out: float = option(0.1, "Share of the distinct texts to hold out; 0 for none.", ge=0, lt=1)

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UndertowError(
                f"labels must be two word groups or more, each once, got {', '.join(self.labels) or 'none'}"
            )


@dataclass(frozen=True, slots=True)
class FinetuneOptions:
    """Which fields of each object are used.

    Attributes:
        required_fields: further fields that must have a value, so that a training without metadata can use the same texts as one
            with it.
        max_texts: number of texts with a word to mask, from the start; 0 for all.
    """

    text_field: str = option("text", "Field of the text.")
    metadata_fields: tuple[str, ...] = option(
        (), "Fields to put in front of each text, comma-separated, in this order."
    )
    required_fields: tuple[str, ...] = option((), "Other fields without which a text is left out, comma-separated.")
    max_texts: int = option(0, "Use only the first texts; 0 for all.", ge=0)

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.text_field in (*self.metadata_fields, *self.required_fields):
            raise UndertowError(f"field {self.text_field!r} is the text itself; leave it out of the other fields")
        for names in (self.metadata_fields, self.required_fields):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UndertowError(f"field {twice!r} is named twice in {', '.join(names)}; name it once")
