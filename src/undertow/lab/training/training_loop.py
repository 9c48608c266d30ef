"""The training loop: batches in, a trained network out. A training resumed from a checkpoint ends with identical weights.

The order of the batches, the noise of dropout and the learning rate follow from the seed and the number of the step alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.lab.training.checkpoint_folder import Checkpoint, CheckpointFolder
from undertow.lab.training.training_config import COSINE, TrainingConfig
from undertow.models.backend.execution import oom_errors
from undertow.models.base import Ints

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int, float], None]
"""Called with (steps done, steps in all, loss of the last one in nats)."""
WEIGHTS, FIRST, SECOND = "weights/", "first/", "second/"
"""Beginnings of a checkpoint's tensor names: the weights, and the two moments that AdamW keeps of each."""
N_LOSSES = 100
OUT_OF_MEMORY = "out of memory while training; free memory, or choose a smaller batch"


class DivergedError(UndertowError):
    """A loss that is not a number: the same texts, configuration and seed end so again."""


def fit(  # noqa: PLR0913, PLR0917 - what is trained, on what, how, and where it is kept
    network: Any,
    batches: Iterator[Ints],
    config: TrainingConfig,
    loss_of: Callable[[Ints], torch.Tensor],
    folder: CheckpointFolder,
    progress: Progress = lambda done, total, loss: None,
) -> tuple[int, list[list[float]]]:
    """Train a network for `config.max_steps` steps, or for those that a checkpoint leaves.

    `batches` are the numbers of the texts of each step, from the first one on. The network is in evaluation mode afterwards. Returns
    the step that it went on from, and mean losses as [step, nats].

    Raises:
        DivergedError: a loss or a gradient that is not a number.
        UndertowError: memory ran out, or a checkpoint is corrupt or of another training.
    """
    import torch

    optimizer = _optimizer(network, config)
    peaks = [group["lr"] for group in optimizer.param_groups]
    checkpoint = folder.load()
    _restore(network, optimizer, checkpoint)
    losses, open_losses = list(checkpoint.losses), list(checkpoint.open_losses)
    logging_steps = config.logging_steps or max(config.max_steps // N_LOSSES, 1)
    network.train(config.dropout)
    for done, batch in enumerate(islice(batches, checkpoint.n_done, config.max_steps), checkpoint.n_done + 1):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * _rate(done - 1, config)
        with oom_errors(OUT_OF_MEMORY), seeded(config.seed, 2, done - 1, device=network.device):
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
            nats = float(loss.detach())
            if not (math.isfinite(nats) and bool(torch.isfinite(norm))):
                raise DivergedError(
                    f"the loss or its gradient is not a number at step {done}; choose a smaller learning rate than "
                    f"{config.learning_rate:g}, and a new folder"
                )
            optimizer.step()
        open_losses.append(nats)
        if done % logging_steps == 0 or done == config.max_steps:
            losses.append([done, math.fsum(open_losses) / len(open_losses)])
            open_losses = []
        if done % config.save_steps == 0 and done < config.max_steps:
            folder.save(Checkpoint(done, losses, open_losses, _tensors(network, optimizer)))
        progress(done, config.max_steps, nats)
    network.eval()
    return checkpoint.n_done, losses


def _optimizer(network: Any, config: TrainingConfig) -> torch.optim.AdamW:
    import torch

    embeddings = network.get_input_embeddings().weight
    others = [one for one in network.parameters() if one is not embeddings]
    matrices, vectors = ([one for one in others if (one.ndim >= 2) == is_matrix] for is_matrix in (True, False))
    rate, decay = config.learning_rate, config.weight_decay
    groups = [
        {"params": [embeddings], "lr": rate * config.embedding_rate, "weight_decay": decay},
        {"params": matrices, "lr": rate, "weight_decay": decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, fused=config.fused or None)


def _rate(step: int, config: TrainingConfig) -> float:
    """Share of the peak learning rate at a step, counted from 0."""
    n_warm = config.warmup_steps or round(config.warmup_ratio * config.max_steps)
    rising = min((step + 1) / n_warm, 1.0) if n_warm else 1.0
    if config.schedule == COSINE:
        return rising * 0.5 * (1 + math.cos(math.pi * step / config.max_steps))
    return rising if step < n_warm else (config.max_steps - step) / max(config.max_steps - n_warm, 1)


def _tensors(network: Any, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
    tensors = {}
    for name, parameter in network.named_parameters():
        tensors[WEIGHTS + name] = parameter
        if moments := optimizer.state.get(parameter):
            tensors |= {FIRST + name: moments["exp_avg"], SECOND + name: moments["exp_avg_sq"]}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _restore(network: Any, optimizer: torch.optim.AdamW, checkpoint: Checkpoint) -> None:
    import torch

    kept = checkpoint.tensors
    if not kept:
        return
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(kept[WEIGHTS + name])
            if FIRST + name in kept:
                optimizer.state[parameter] = {
                    # A fused optimizer reads the step from the parameter's device.
                    "step": torch.tensor(
                        float(checkpoint.n_done), device=parameter.device if optimizer.defaults["fused"] else "cpu"
                    ),
                    "exp_avg": kept[FIRST + name].to(parameter.device),
                    "exp_avg_sq": kept[SECOND + name].to(parameter.device),
                }


@contextmanager
def seeded(*numbers: int, device: torch.device | None = None) -> Iterator[None]:
    """Torch's own draws from these numbers alone; what others draw is not changed by it."""
    import torch

    devices = [device.index or 0] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(2, np.uint64)[0] >> np.uint64(1)))
        yield
