"""The folder of a training: where it was left, whose it is, and the model that it ends with.

FOLDER.unfinished/checkpoint.safetensors    weights, moments, step and losses, the identity of the training in its head
FOLDER.unfinished/model/                    the trained model while it is written; renamed to FOLDER when it is complete
FOLDER/                                     a model folder like any other, with the record of the training
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow._files import parse_json, read_file
from undertow._folders import names_in
from undertow.errors import UndertowError

MAX_BYTES = 16 * 2**20
UNFINISHED = ".unfinished"
CHECKPOINT, DRAFT, MODEL = "checkpoint.safetensors", "checkpoint.new", "model"
OF_HASHES = {"base_revision": "of another base", "data_sha256": "on other texts"}
"""Meanings of differences between hashes, by name."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""Exceptions of parsing invalid JSON values."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a training was left: steps done, mean losses [step, nats], losses since the last one, and the tensors by name."""

    n_done: int = 0
    losses: list[list[float]] = field(default_factory=list)
    open_losses: list[float] = field(default_factory=list)
    tensors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A finished training.

    Attributes:
        record: content of its record: configuration, losses and more.
        resumed_at: the step from which this call went on; the last one if nothing was left to train.
    """

    folder: Path
    record: Mapping[str, Any]
    resumed_at: int = 0


class CheckpointFolder:
    """Where a training is kept, and whose it is; raises `UndertowError` if the folder holds something else.

    Args:
        path: of the model.
        record: file about the training in the folder.
        identity: data that identify the training, as JSON.
    """

    def __init__(self, path: Path, record: str, identity: Mapping[str, Any]) -> None:
        self.path, self._record, self._identity = path, record, identity
        self._work = path.absolute().with_name(f"{path.absolute().name}{UNFINISHED}")
        self._refuse(path, lambda names: bool(names) and record not in names)
        self._refuse(self._work, lambda names: bool(names - {CHECKPOINT, DRAFT, MODEL}))

    @staticmethod
    def _refuse(folder: Path, is_other: Callable[[set[str]], bool]) -> None:
        if is_other(names_in(folder)):
            raise UndertowError(f"{folder}: is not empty and not a training folder; name another folder with --out")

    def finished(self) -> TrainedModel | None:
        """The model, if it is there."""
        path = self.path / self._record
        if not path.is_file():
            return None
        try:
            record = parse_json(read_file(path, MAX_BYTES, "a record"))
            n_steps = int(record["n_steps"])
            self._check(self.path, record["identity"])
        except _DAMAGE as error:
            raise UndertowError(f"{path}: is corrupt; remove the folder, or name another one") from error
        shutil.rmtree(self._work, ignore_errors=True)
        return TrainedModel(self.path, record, n_steps)

    def load(self) -> Checkpoint:
        """Where the training was left; at its beginning if there is no checkpoint."""
        path = self._work / CHECKPOINT
        if not path.is_file():
            return Checkpoint()
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                state = parse_json((file.metadata() or {})["state"])
                self._check(self._work, state["identity"])
                return Checkpoint(
                    int(state["n_done"]),
                    [[int(step), float(nats)] for step, nats in state["losses"]],
                    [float(nats) for nats in state["open_losses"]],
                    {name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118 - not a mapping
                )
        except (SafetensorError, *_DAMAGE) as error:
            raise UndertowError(f"{path}: is corrupt; remove it, and the training begins again") from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, which replaces the one before at once or not at all."""
        from safetensors.torch import save_file

        state = {
            "identity": self._identity,
            "n_done": checkpoint.n_done,
            "losses": checkpoint.losses,
            "open_losses": checkpoint.open_losses,
        }
        with self._disk_errors():
            self._work.mkdir(parents=True, exist_ok=True)
            save_file(dict(checkpoint.tensors), self._work / DRAFT, metadata={"state": json.dumps(state)})
            (self._work / DRAFT).replace(self._work / CHECKPOINT)

    def finish(self, network: Any, tokenizer: Any, record: Mapping[str, Any], resumed_at: int) -> TrainedModel:
        """Write the model with its record, all of it at once.

        No times are in it: its files are its revision, which is to be that of every model with these weights.
        """
        record = {"identity": self._identity, **record}
        with self._disk_errors():
            fresh = self._work / MODEL
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            network.save_pretrained(fresh)
            tokenizer.save_pretrained(fresh)
            text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
            (fresh / self._record).write_text(text, encoding="utf-8")
            if self.path.is_dir():
                # Empty, or it would have been refused. Not every system renames over a folder.
                self.path.rmdir()
            fresh.rename(self.path)
            shutil.rmtree(self._work, ignore_errors=True)
        return TrainedModel(self.path, record, resumed_at)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Error numbers in messages of the Rust libraries that write tensors and tokenizers."""
        try:
            yield
        except Exception as error:
            code = re.search(r"\(os error (\d+)\)", str(error))
            if code is None and not isinstance(error, OSError):
                raise
            reason = os.strerror(int(code[1])) if code else getattr(error, "strerror", None) or str(error)
            raise UndertowError(
                f"{self.path}: the training cannot be written there ({reason}); the last checkpoint is kept, so free some "
                "space and run the same command again"
            ) from error

    def _check(self, folder: Path, other: Mapping[str, Any]) -> None:
        for name, own in self._identity.items():
            if own != other.get(name):
                difference = f"{name.replace('_', ' ')} {_text_of(other.get(name))}, not {_text_of(own)}"
                raise UndertowError(
                    f"{folder}: holds another training ({OF_HASHES.get(name, difference)}); to continue "
                    "it, give the same options, or name another folder"
                )


def _text_of(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
