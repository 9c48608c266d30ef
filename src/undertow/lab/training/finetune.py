"""Fine-tuning of a masked model as classifier of the word group of a masked word.

    1953. Mali. [MASK] was a painter and sold [MASK] pictures.
                   ^ female                     ^ female          loss at these places only

The head has one output for each word group, so that of two groups one gains what the other loses. McMilin 2022 (ICML workshop),
section 4.4. What is made is a Hugging Face folder that `undertow.models.families.token_classifier` reads.

On a processor with one thread, and with the same number of them as a rule, equal configurations give equal weights to the last bit,
also where the training was killed and taken up again.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError, counted
from undertow.lab.training.checkpoint_folder import CheckpointFolder, TrainedModel
from undertow.lab.training.token_windows import Example, Row, batches, floor_nats, label_counts, rows_of
from undertow.lab.training.training_config import FinetuneConfig
from undertow.lab.training.training_loop import OUT_OF_MEMORY, Progress, fit, seeded
from undertow.models.backend.execution import chosen_device, context_tokens, oom_errors
from undertow.models.base import Ints, ModelRequest
from undertow.models.loading.check_weights import check_tokens
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_network, load_tokenizer
from undertow.models.loading.resolve_weights import WeightFiles, path_of, resolve_weights
from undertow.models.registry import families
from undertow.types import digest

if TYPE_CHECKING:
    import torch

ARCHITECTURES = ("ForMaskedLM",)
NAME_ONE = "name one such as bert-base-uncased"
RECORD = "finetuning.json"
NO_LABEL = -100
MEASURED_WINDOWS = 5000


@dataclass(frozen=True, slots=True)
class Fit:
    """Accuracy at masked places, and that of a constant answer.

    Attributes:
        n_places: number of masked places.
        loss_nats: mean of minus the log-probability of the right label.
        accuracy: share of places whose right label is the most probable one.
        majority_loss_nats, majority_accuracy: the same of one who knows only the labels' shares in the training texts.
        floor_nats: smallest possible loss at these places, given the masked texts; 0 unless texts repeat.
    """

    n_places: int
    loss_nats: float
    accuracy: float
    majority_loss_nats: float
    majority_accuracy: float
    floor_nats: float


class FinetunedModel(TrainedModel):
    """A finished fine-tuning, whose record has base, data, fits and versions."""

    __slots__ = ()

    @property
    def training(self) -> Fit:
        """On training texts, 5,000 windows at most."""
        return Fit(**self.record["training"])

    @property
    def held_out(self) -> Fit | None:
        """On the texts that were held out; None if none were."""
        fit = self.record["held_out"]
        return Fit(**fit) if fit else None

    @property
    def no_better(self) -> list[tuple[str, Fit]]:
        """Texts on which its loss is not below that of the majority class, and its fit there."""
        fits = (("training texts", self.training), ("held-out texts", self.held_out))
        return [(name, fit) for name, fit in fits if fit and fit.loss_nats >= fit.majority_loss_nats]


def finetune(  # noqa: PLR0913 - what is trained, on what, how, and where it goes
    base: Path | str,
    examples: Sequence[Example],
    config: FinetuneConfig,
    out: Path,
    progress: Progress = lambda done, total, loss: None,
    *,
    about: Mapping[str, Any] | None = None,
    revision: str = "",
) -> FinetunedModel:
    """Train a head on masked places together with the base model, and write the folder of a model.

    An existing folder of the same training is resumed.

    `about` is what else `finetuning.json` says of the texts, as JSON values.

    Raises:
        UndertowError: the base is no masked model, the texts cannot teach anything, the loss is not a number, or the folder holds
            something else.
    """
    import torch

    weights = _base(str(base), revision)
    sha256 = digest([[one.before, one.pieces, one.labels] for one in examples])
    folder = CheckpointFolder(
        Path(out), RECORD, {"base_revision": weights.revision, "data_sha256": sha256, **config.settings()}
    )
    done = folder.finished()
    if done is not None:
        return FinetunedModel(done.folder, done.record, done.resumed_at)
    with loading_errors(str(base)), seeded(config.seed):
        network, tokenizer = _with_head(str(base), weights, config)
    rows, n_unread = rows_of(tokenizer, context_tokens(network, tokenizer), examples, config.labels)
    trained, held = _split(rows, examples, config)

    def loss_of(numbers: Ints) -> torch.Tensor:
        """Mean over masked places."""
        logits, targets = _logits(network, tokenizer.pad_token_id, [trained[number] for number in numbers])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_LABEL)

    n_steps = config.max_steps or config.epochs * -(-len(trained) // config.batch_size)
    order = batches([len(row.tokens) for row in trained], config.batch_size, config.seed)
    resumed_at, losses = fit(network, order, replace(config, max_steps=n_steps), loss_of, folder, progress)
    counts = label_counts(trained, len(config.labels))
    shares = [count / sum(counts) for count in counts]
    measured = trained[:: -(-len(trained) // MEASURED_WINDOWS)]
    fits = {
        name: asdict(_fit(network, tokenizer.pad_token_id, some, shares, config.batch_size)) if some else None
        for name, some in (("training", measured), ("held_out", held))
    }
    record = {
        "made_by": f"undertow {version('undertow')}",
        "base": {"source": weights.source, "revision": weights.revision},
        "recipe": config.settings(),
        "data": {
            "sha256": sha256,
            "n_texts": len(examples),
            "n_unread": n_unread,
            "n_windows": len(rows),
            "n_windows_held_out": len(held),
            "n_places": dict(zip(config.labels, label_counts(rows, len(config.labels)), strict=True)),
            "shares_in_training": dict(zip(config.labels, shares, strict=True)),
            **(about or {}),
        },
        "n_steps": n_steps,
        "losses_nats": losses,
        **fits,
        "device": network.device.type,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")}
        | {"python": platform.python_version()},
    }
    made = folder.finish(network, tokenizer, record, resumed_at)
    return FinetunedModel(made.folder, made.record, made.resumed_at)


def check_ends(base: Path | str, out: Path, revision: str = "") -> None:
    """Refuse a base that is no masked model, or a folder that holds something else than a training, before texts are read."""
    _base(str(base), revision)
    CheckpointFolder(Path(out), RECORD, {})


def _base(name: str, revision: str) -> WeightFiles:
    # What -m takes for a family's own, such as toy or openai:NAME, is no name on the hub.
    if name.partition(":")[0] in families() and not path_of(name).exists():
        raise UndertowError(f"{name}: is not a masked model that can be trained; {NAME_ONE}")
    weights = resolve_weights(ModelRequest(name, revision=revision), ARCHITECTURES)
    if weights is None:
        raise UndertowError(f"{name}: is not a masked model (no architecture {ARCHITECTURES[0]}); {NAME_ONE}")
    return weights


def _split(rows: Sequence[Row], examples: Sequence[Example], config: FinetuneConfig) -> tuple[list[Row], list[Row]]:
    """Rows for training and held-out rows; equal masked texts are in the same part."""
    if not rows:
        raise UndertowError("no text could be read, since all hold the mask token itself; bring other texts")
    of_text = [(one.before, one.pieces) for one in examples]
    distinct = list(dict.fromkeys(of_text[row.text] for row in rows))
    n_held = max(round(config.held_out * len(distinct)), 1) if config.held_out else 0
    if n_held >= len(distinct):
        raise UndertowError(
            f"{config.held_out:g} of {counted(len(distinct), 'distinct masked text')} cannot be held out; add texts"
        )
    drawn = np.random.default_rng([config.seed, 0]).permutation(len(distinct))[:n_held]
    held = {distinct[number] for number in drawn}
    trained = [row for row in rows if of_text[row.text] not in held]
    counts = label_counts(trained, len(config.labels))
    if not all(counts):
        missing = config.labels[counts.index(0)]
        raise UndertowError(f"no masked word of the training texts is {missing}; add texts, or leave this group out")
    return trained, [row for row in rows if of_text[row.text] in held]


def _with_head(name: str, weights: WeightFiles, config: FinetuneConfig) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForTokenClassification

    device = chosen_device(config.device)
    tokenizer = load_tokenizer(name, weights)
    if tokenizer.mask_token_id is None or not tokenizer.is_fast or tokenizer.pad_token_id is None:
        lacks = "mask token" if tokenizer.mask_token_id is None else "fast form, or no padding token"
        raise UndertowError(f"{name}: its tokenizer has no {lacks}, so no word can be masked; name another base")
    network, _ = load_network(
        name,
        weights,
        AutoModelForTokenClassification,
        "fill masks",
        new_head=True,
        dtype=torch.float32,
        num_labels=len(config.labels),
        id2label=dict(enumerate(config.labels)),
        label2id={label: number for number, label in enumerate(config.labels)},
    )
    check_tokens(name, network, tokenizer, from_gguf=False)
    return network.to(device), tokenizer


def _logits(network: Any, padding: int, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of every position [row, position, label], and the labels there, `NO_LABEL` for none [row, position]."""
    import torch

    shape = (len(rows), max(len(row.tokens) for row in rows))
    tokens, seen, targets = (np.full(shape, value, dtype=np.int64) for value in (padding, 0, NO_LABEL))
    for number, row in enumerate(rows):
        tokens[number, : len(row.tokens)] = row.tokens
        seen[number, : len(row.tokens)] = 1
        targets[number, row.places] = row.labels
    fed, mask, wanted = (torch.from_numpy(one).to(network.device) for one in (tokens, seen, targets))
    return network(input_ids=fed, attention_mask=mask).logits.float(), wanted


def _fit(network: Any, padding: int, rows: Sequence[Row], shares: Sequence[float], batch: int) -> Fit:
    import torch

    nats: list[float] = []
    right: list[bool] = []
    ordered = sorted(rows, key=lambda row: len(row.tokens))
    for start in range(0, len(ordered), batch):
        with torch.inference_mode(), oom_errors(OUT_OF_MEMORY):
            logits, targets = _logits(network, padding, ordered[start : start + batch])
            wanted = targets != NO_LABEL
            log_probs = logits[wanted].cpu().double().log_softmax(-1)  # [place, label]
            labels = targets[wanted].cpu()
        nats += log_probs[torch.arange(len(labels)), labels].tolist()
        right += (log_probs.argmax(-1) == labels).tolist()
    counts = label_counts(rows, len(shares))
    loss = -math.fsum(nats) / len(nats)
    if not math.isfinite(loss):
        raise UndertowError("the trained model gives no numbers; choose a smaller learning rate")
    return Fit(
        n_places=len(nats),
        loss_nats=loss,
        accuracy=sum(right) / len(right),
        majority_loss_nats=-sum(n * math.log(share) for n, share in zip(counts, shares, strict=True)) / len(nats),
        majority_accuracy=counts[int(np.argmax(shares))] / len(nats),
        floor_nats=floor_nats(rows),
    )
