"""Fine-tuning a masked model to say which word group a masked word is of.

    1953. Mali. [MASK] was a painter and sold [MASK] pictures.
                   ^ female                     ^ female          loss at these places only

The head has one output for each word group, so that of two groups one gains what the other loses. McMilin 2022 (ICML workshop),
section 4.4. What is made is a Hugging Face folder that `undertow.models.families.token_classifier` reads.

A training that is killed goes on from its last checkpoint, and ends with the weights that it would have had: the order of the texts, the
noise of dropout and the learning rate follow from the seed and the number of the step alone. On a processor with one thread, and
with the same number of them as a rule, equal recipes give equal weights to the last bit.

Knows torch and transformers, imported when a training starts; knows nothing about where texts are from or which words are masked.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.lab.training.checkpoint_folder import Checkpoint, CheckpointDir
from undertow.lab.training.token_windows import Batches, Example, Row, data_sha256, floor_nats, label_counts, rows_of
from undertow.models.backend.execution import chosen_device, context_tokens, is_oom
from undertow.models.base import ModelRequest
from undertow.models.loading.library_contexts import loading_errors
from undertow.models.loading.load_network import load_network, load_tokenizer
from undertow.models.loading.weight_files import WeightFiles, find_weights, path_of
from undertow.models.registry import families

if TYPE_CHECKING:
    import torch

__all__ = ["Example", "FinetuneConfig", "FinetunedModel", "Fit", "Progress", "check_ends", "data_sha256", "finetune"]

ARCHITECTURES = ("ForMaskedLM",)
NAME_ONE = "name one such as bert-base-uncased"
WEIGHTS, FIRST, SECOND = "weights/", "first/", "second/"
"""Beginnings of a checkpoint's tensor names: the weights, and the two moments that AdamW keeps of each."""
NO_LABEL = -100
MEASURED_WINDOWS = 5000
N_LOSSES = 100

Progress = Callable[[int, int, float], None]
"""Called with (steps done, steps in all, loss of the last one in nats)."""


@dataclass(frozen=True, slots=True)
class FinetuneConfig:
    """How to train.

    Attributes:
        labels: the word groups, in the order of the head's outputs.
        epochs: passes over the texts.
        max_steps: batches instead, if above 0.
        batch_size: texts (windows of them, where they are long) in a step.
        learning_rate: of AdamW, at its peak.
        warmup_ratio: share of the steps over which the rate rises to its peak; it then falls to 0 in a straight line.
        weight_decay: of matrices; biases and normalisers have none.
        max_grad_norm: largest norm of a step's gradient.
        dropout: whether the model's own dropout is on.
        held_out: share of the different texts that are not trained on; 0 for none.
        seed: of the head, of which texts are held out, of their order and of dropout.
        device: `auto`, or what torch calls it. Not part of what a training is, though another device rounds otherwise.
        save_steps: steps between checkpoints. Not part of what a training is.
    """

    labels: tuple[str, ...]
    epochs: int = 3
    max_steps: int = 0
    batch_size: int = 32
    learning_rate: float = 3e-5
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    dropout: bool = True
    held_out: float = 0.1
    seed: int = 0
    device: str = "auto"
    save_steps: int = 500

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise UndertowError(
                f"word groups {', '.join(self.labels) or '(none)'}: there must be two or more, each named once"
            )
        for name, fine, must in (
            ("max_steps", self.max_steps >= 0, "0 or more"),
            ("epochs", self.epochs >= 1 or self.max_steps, "1 or more"),
            ("batch_size", self.batch_size >= 1, "1 or more"),
            ("learning_rate", 0 < self.learning_rate < math.inf, "above 0"),
            ("warmup_ratio", 0 <= self.warmup_ratio <= 1, "a share from 0 to 1"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or more"),
            ("max_grad_norm", self.max_grad_norm > 0, "above 0"),
            ("held_out", 0 <= self.held_out < 1, "a share from 0 to below 1"),
            ("seed", 0 <= self.seed < 2**63, "a whole number from 0 on"),
            ("save_steps", self.save_steps >= 1, "1 or more"),
        ):
            if not fine:
                raise UndertowError(f"{name} must be {must}")

    def settings(self) -> dict[str, Any]:
        """What makes a training this one and no other, by name."""
        apart = ("device", "save_steps")
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in apart
        }


@dataclass(frozen=True, slots=True)
class Fit:
    """How well masked places are told apart, beside who always says the same.

    Attributes:
        n_places: masked places that were looked at.
        loss_nats: mean of minus the log-probability of the right label.
        accuracy: share of places whose right label is the most probable one.
        majority_loss_nats, majority_accuracy: the same of one who knows the labels' shares in the training texts and no text.
        floor_nats: the least loss that is possible on these places for one who sees the masked texts and fits the labels of each: 0
            unless texts repeat, and below what can be learned where each repeats a few times only.
    """

    n_places: int
    loss_nats: float
    accuracy: float
    majority_loss_nats: float
    majority_accuracy: float
    floor_nats: float


@dataclass(frozen=True, slots=True)
class FinetunedModel:
    """A finished training.

    Attributes:
        folder: of the model.
        record: what `finetuning.json` in it says: base, data, recipe, losses, fits, versions.
        resumed_at: the step from which this call went on; the last one if nothing was left to train.
    """

    folder: Path
    record: Mapping[str, Any]
    resumed_at: int = 0

    @property
    def training(self) -> Fit:
        """On training texts, 5,000 windows at most."""
        return Fit(**self.record["training"])

    @property
    def held_out(self) -> Fit | None:
        """On the texts that were held out; None if none were."""
        fit = self.record["held_out"]
        return Fit(**fit) if fit else None


def finetune(  # noqa: PLR0913 - what is trained, on what, how, and where it goes
    base: Path | str,
    examples: Sequence[Example],
    recipe: FinetuneConfig,
    out: Path,
    progress: Progress = lambda done, total, loss: None,
    *,
    about: Mapping[str, Any] | None = None,
    revision: str = "",
) -> FinetunedModel:
    """Train a head on masked places, and the model below it with it; write a folder that can be asked like any other model.

    A folder that holds this training, finished or not, is gone on with.

    Args:
        base: a masked model, by folder or hub id.
        examples: masked texts.
        recipe: how.
        out: the folder to write.
        progress: told after every step.
        about: what else `finetuning.json` should say of the texts; JSON values.
        revision: of a hub id; "" for the default.

    Raises:
        UndertowError: the base is no masked model, the texts cannot teach anything, the loss is no number, or the folder holds
            something else.
    """
    weights = _base(str(base), revision)
    _check_labels(examples, recipe)
    identity = {"base_revision": weights.revision, "data_sha256": data_sha256(examples), **recipe.settings()}
    folder = CheckpointDir(Path(out), identity)
    record = folder.finished()
    if record is not None:
        return FinetunedModel(folder.path, record, resumed_at=int(record["n_steps"]))
    standing = folder.standing()
    with loading_errors(str(base)), _seeded(recipe.seed):
        trainer = _Trainer.from_weights(str(base), weights, recipe)
    rows, n_unread = trainer.rows_of(examples)
    trained, held = _split(rows, examples, recipe)
    resumed_at, losses = trainer.train(trained, folder, standing, progress)
    measured = trained if len(trained) <= MEASURED_WINDOWS else trained[:: -(-len(trained) // MEASURED_WINDOWS)]
    shares = _shares(trained, recipe.labels)
    fits = {
        name: asdict(trainer.fit(some, shares)) if some else None
        for name, some in (("training", measured), ("held_out", held))
    }
    record = {
        "made_by": f"undertow {version('undertow')}",
        "identity": identity,
        "base": {"source": weights.source, "revision": weights.revision},
        "recipe": recipe.settings(),
        "data": {
            "sha256": identity["data_sha256"],
            "n_texts": len(examples),
            "n_unread": n_unread,
            "n_windows": len(rows),
            "n_windows_held_out": len(held),
            "n_places": dict(zip(recipe.labels, label_counts(rows, len(recipe.labels)), strict=True)),
            "shares_in_training": dict(zip(recipe.labels, shares, strict=True)),
            **(about or {}),
        },
        "n_steps": trainer.n_steps(len(trained)),
        "losses_nats": losses,
        **fits,
        "device": trainer.network.device.type,
        "threads": trainer.n_threads,
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")}
        | {"python": platform.python_version()},
    }
    folder.finish(trainer.network, trainer.tokenizer, record)
    return FinetunedModel(folder.path, record, resumed_at)


def check_ends(base: Path | str, out: Path, revision: str = "") -> None:
    """Refuse a base or a folder that nothing can be made of, before texts are read.

    Raises:
        UndertowError: the base is no masked model, or the folder holds something else than a training.
    """
    _base(str(base), revision)
    CheckpointDir(Path(out), {})


def _base(name: str, revision: str) -> WeightFiles:
    # What -m takes for a family's own, such as toy or openai:NAME, is no name on the hub.
    if name.partition(":")[0] in families() and not path_of(name).exists():
        raise UndertowError(f"{name}: is no masked model that can be trained; {NAME_ONE}")
    weights = find_weights(ModelRequest(name, revision=revision), ARCHITECTURES)
    if weights is None:
        raise UndertowError(
            f"{name}: is no masked model that can be trained (its architecture does not end in {ARCHITECTURES[0]}); {NAME_ONE}"
        )
    return weights


def _check_labels(examples: Sequence[Example], recipe: FinetuneConfig) -> None:
    if not examples:
        raise UndertowError("no text has a word to mask, so there is nothing to train on; bring other texts or words")
    strange = {label for one in examples for label in one.labels}.difference(recipe.labels)
    if strange:
        raise UndertowError(f"label {min(strange)!r} is none of the word groups {', '.join(recipe.labels)}; name it")


@contextmanager
def _seeded(*numbers: int, device: torch.device | None = None) -> Iterator[None]:
    """Torch's own draws from these numbers alone; what others draw is not changed by it."""
    import torch

    devices = [device.index or 0] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(2, np.uint64)[0] >> np.uint64(1)))
        yield


def _split(rows: Sequence[Row], examples: Sequence[Example], recipe: FinetuneConfig) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and those of texts that are held out; equal masked texts lie on one side."""
    if not rows:
        raise UndertowError("no text could be read, since all hold the mask token itself; bring other texts")
    of_text = [(one.before, one.pieces) for one in examples]
    distinct = list(dict.fromkeys(of_text[row.text] for row in rows))
    n_held = max(round(recipe.held_out * len(distinct)), 1) if recipe.held_out else 0
    if n_held >= len(distinct):
        raise UndertowError(
            f"{len(distinct)} different masked texts are too few to hold {recipe.held_out:g} of them out; bring more, or hold none out"
        )
    drawn = np.random.default_rng([recipe.seed, 0]).permutation(len(distinct))[:n_held]
    held = {distinct[number] for number in drawn}
    trained = [row for row in rows if of_text[row.text] not in held]
    counts = label_counts(trained, len(recipe.labels))
    if not all(counts):
        missing = recipe.labels[counts.index(0)]
        raise UndertowError(
            f"no masked place of the {len({row.text for row in trained})} training texts is {missing}, so it cannot be learned; "
            "bring more texts, or leave the group out"
        )
    return trained, [row for row in rows if of_text[row.text] in held]


def _shares(rows: Sequence[Row], labels: Sequence[str]) -> list[float]:
    counts = label_counts(rows, len(labels))
    return [count / sum(counts) for count in counts]


# Training.


@dataclass(slots=True)
class _Trainer:
    """A network with a head of its own on the base, and how it is taught."""

    network: Any
    tokenizer: Any
    recipe: FinetuneConfig
    n_threads: int

    @classmethod
    def from_weights(cls, name: str, weights: WeightFiles, recipe: FinetuneConfig) -> _Trainer:
        """Load the base, and put a head on it whose weights are drawn."""
        import torch
        from transformers import AutoModelForTokenClassification

        device = chosen_device(recipe.device)
        tokenizer = load_tokenizer(name, weights)
        if tokenizer.mask_token_id is None or not tokenizer.is_fast or tokenizer.pad_token_id is None:
            lacks = "mask token" if tokenizer.mask_token_id is None else "fast form, or no padding token"
            raise UndertowError(f"{name}: its tokenizer has no {lacks}, so no word can be masked; name another base")
        labels = dict(enumerate(recipe.labels))
        network, _ = load_network(
            name,
            weights,
            AutoModelForTokenClassification,
            "fill masks",
            new_head=True,
            dtype=torch.float32,
            num_labels=len(labels),
            id2label=labels,
            label2id={label: number for number, label in labels.items()},
        )
        return cls(network.to(device), tokenizer, recipe, torch.get_num_threads())

    def rows_of(self, examples: Sequence[Example]) -> tuple[list[Row], int]:
        """Texts in tokens, and how many could not be read."""
        return rows_of(self.tokenizer, context_tokens(self.network, self.tokenizer), examples, self.recipe.labels)

    def n_steps(self, n_rows: int) -> int:
        """Steps in all."""
        return self.recipe.max_steps or self.recipe.epochs * -(-n_rows // self.recipe.batch_size)

    def train(
        self, rows: Sequence[Row], folder: CheckpointDir, standing: Checkpoint, progress: Progress
    ) -> tuple[int, list[list[float]]]:
        """All steps that are left; the step it went on from, and mean losses as [step, nats]."""
        batches = Batches([len(row.tokens) for row in rows], self.recipe.batch_size, self.recipe.seed)
        n_steps = self.n_steps(len(rows))
        optimizer = self._optimizer()
        self._restore(optimizer, standing)
        losses, since = list(standing.losses), list(standing.open_losses)
        report_every = max(n_steps // N_LOSSES, 1)
        self.network.train(self.recipe.dropout)
        for step in range(standing.n_done, n_steps):
            loss = self._step(optimizer, [rows[number] for number in batches.at(step)], (step, n_steps))
            since.append(loss)
            done = step + 1
            if done % report_every == 0 or done == n_steps:
                losses.append([done, math.fsum(since) / len(since)])
                since = []
            if done % self.recipe.save_steps == 0 and done < n_steps:
                folder.keep(Checkpoint(done, losses, since, self._tensors(optimizer)))
            progress(done, n_steps, loss)
        self.network.eval()
        return standing.n_done, losses

    def _optimizer(self) -> torch.optim.AdamW:
        import torch

        matrices = [one for one in self.network.parameters() if one.ndim >= 2]
        others = [one for one in self.network.parameters() if one.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": self.recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.recipe.learning_rate)

    def _step(self, optimizer: torch.optim.AdamW, rows: Sequence[Row], at: tuple[int, int]) -> float:
        import torch

        for group in optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * _rate(*at, self.recipe.warmup_ratio)
        with _explained(), _seeded(self.recipe.seed, 2, at[0], device=self.network.device):
            logits, targets = self._logits(rows)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=NO_LABEL
            )  # the mean over masked places
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.max_grad_norm)
            loss_nats = float(loss.detach())
            if not (math.isfinite(loss_nats) and bool(torch.isfinite(norm))):
                raise UndertowError(
                    f"the loss or its gradient is not a number at step {at[0] + 1}, so nothing can be learned from there on; choose a "
                    f"smaller learning rate than {self.recipe.learning_rate:g}, and a new folder"
                )
            optimizer.step()
        return loss_nats

    def _logits(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of every position [row, position, label], and the labels there, `NO_LABEL` for none [row, position]."""
        import torch

        longest = max(len(row.tokens) for row in rows)
        tokens = np.full((len(rows), longest), self.tokenizer.pad_token_id, dtype=np.int64)
        seen = np.zeros((len(rows), longest), dtype=np.int64)
        targets = np.full((len(rows), longest), NO_LABEL, dtype=np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row.tokens)] = row.tokens
            seen[number, : len(row.tokens)] = 1
            targets[number, row.places] = row.labels
        fed, mask, wanted = (torch.from_numpy(one).to(self.network.device) for one in (tokens, seen, targets))
        return self.network(input_ids=fed, attention_mask=mask).logits.float(), wanted

    def fit(self, rows: Sequence[Row], shares: Sequence[float]) -> Fit:
        """How well these places are told, beside one who knows the shares of the labels only."""
        import torch

        nats: list[float] = []
        right: list[bool] = []
        ordered = sorted(rows, key=lambda row: len(row.tokens))
        for start in range(0, len(ordered), self.recipe.batch_size):
            with torch.inference_mode(), _explained():
                logits, targets = self._logits(ordered[start : start + self.recipe.batch_size])
                wanted = targets != NO_LABEL
                said = logits[wanted].cpu().double().log_softmax(-1)  # [place, label]
                labels = targets[wanted].cpu()
            nats += said[torch.arange(len(labels)), labels].tolist()
            right += (said.argmax(-1) == labels).tolist()
        counts = label_counts(rows, len(shares))
        loss = -math.fsum(nats) / len(nats)
        if not math.isfinite(loss):
            raise UndertowError(
                "the trained model gives probabilities that are not numbers; choose a smaller learning rate"
            )
        most = max(range(len(shares)), key=lambda label: shares[label])
        return Fit(
            n_places=len(nats),
            loss_nats=loss,
            accuracy=sum(right) / len(right),
            majority_loss_nats=-sum(n * math.log(share) for n, share in zip(counts, shares, strict=True)) / len(nats),
            majority_accuracy=counts[most] / len(nats),
            floor_nats=floor_nats(rows),
        )

    # Checkpoints.

    def _tensors(self, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
        tensors = {}
        for name, parameter in self.network.named_parameters():
            tensors[WEIGHTS + name] = parameter
            moments = optimizer.state.get(parameter)
            if moments:
                tensors |= {FIRST + name: moments["exp_avg"], SECOND + name: moments["exp_avg_sq"]}
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def _restore(self, optimizer: torch.optim.AdamW, standing: Checkpoint) -> None:
        import torch

        if not standing.n_done:
            return
        kept = standing.tensors
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(kept[WEIGHTS + name])
                if FIRST + name in kept:
                    optimizer.state[parameter] = {
                        "step": torch.tensor(float(standing.n_done)),
                        "exp_avg": kept[FIRST + name].to(parameter.device),
                        "exp_avg_sq": kept[SECOND + name].to(parameter.device),
                    }


def _rate(step: int, n_steps: int, warmup: float) -> float:
    """Share of the peak learning rate: up in a straight line, down to 0 in another."""
    n_warm = round(warmup * n_steps)
    return (step + 1) / n_warm if step < n_warm else (n_steps - step) / max(n_steps - n_warm, 1)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_oom(error):
            raise
        raise UndertowError(
            "memory ran out while training; what was kept at the last checkpoint stays, so free some, or choose a smaller batch"
        ) from error
