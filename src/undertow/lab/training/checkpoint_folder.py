"""The folder of a training: where it was left, whose it is, and the model that it ends with.

Checkpoints are safetensors with JSON in their head. What is written is whole or not there. Knows files; knows nothing about training.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow._files import parse_json, read_file
from undertow.errors import UndertowError

MAX_BYTES = 16 * 2**20
RECORD, CHECKPOINT, PART = "finetuning.json", "checkpoint.safetensors", ".part"
OF_HASHES = {"base_revision": "of another base", "data_sha256": "on other texts"}
"""What it means that a hash differs, which says nothing to a reader itself."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a training was left: steps done, what was said of them, and the tensors by name."""

    n_done: int = 0
    losses: list[list[float]] = field(default_factory=list)
    open_losses: list[float] = field(default_factory=list)
    tensors: Mapping[str, Any] = field(default_factory=dict)


class CheckpointDir:
    """Where a training is kept, and whose it is."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self._identity = path, dict(identity)
        if path.exists() and not path.is_dir():
            raise UndertowError(f"{path}: is a file; name a folder")
        held = {one.name for one in path.iterdir()} if path.is_dir() else set()
        if held and not held & {RECORD, CHECKPOINT, PART}:
            raise UndertowError(f"{path}: holds something else than a training; name another folder")

    def finished(self) -> dict[str, Any] | None:
        """What is said of the training, if it is done."""
        path = self.path / RECORD
        if not path.is_file():
            return None
        try:
            record: dict[str, Any] = parse_json(read_file(path, MAX_BYTES, "a record"))
            self._check(record["identity"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UndertowError(f"{path}: is corrupt; remove the folder, or name another one") from error
        self._tidy()
        return record

    def standing(self) -> Checkpoint:
        """Where the training was left; nowhere if there is no checkpoint."""
        path = self.path / CHECKPOINT
        if not path.is_file():
            return Checkpoint()
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                said = parse_json((file.metadata() or {})["state"])
                self._check(said["identity"])
                n_done, losses, open_losses = (
                    int(said["n_done"]),
                    [[int(step), float(nats)] for step, nats in said["losses"]],
                    [float(nats) for nats in said["open_losses"]],
                )
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UndertowError(f"{path}: is corrupt; remove it, and the training begins again") from error
        return Checkpoint(n_done, losses, open_losses, tensors)

    def keep(self, standing: Checkpoint) -> None:
        """Write a checkpoint, whole or not at all."""
        from safetensors.torch import save_file

        state = {
            "identity": self._identity,
            "n_done": standing.n_done,
            "losses": standing.losses,
            "open_losses": standing.open_losses,
        }
        with self._explained():
            draft = self._part() / CHECKPOINT
            save_file(dict(standing.tensors), draft, metadata={"state": json.dumps(state)})
            draft.replace(self.path / CHECKPOINT)

    def finish(self, network: Any, tokenizer: Any, record: Mapping[str, Any]) -> None:
        """Write the model; the record comes last, since the folder is a finished training by it, and its work then cleared away."""
        with self._explained():
            part = self._part()
            network.save_pretrained(part)
            tokenizer.save_pretrained(part)
            (part / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            written = sorted(
                (one.name for one in part.iterdir()), key=lambda name: (name == RECORD, name == "config.json", name)
            )
            for name in written:
                (part / name).replace(self.path / name)
            self._tidy()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Rust, which writes tensors and tokenizers, says of a full disk only in words which error of the system it was."""
        try:
            yield
        except Exception as error:
            said = re.search(r"\(os error (\d+)\)", str(error))
            if said is None and not isinstance(error, OSError):
                raise
            reason = error.strerror if isinstance(error, OSError) and error.strerror else None
            reason = reason or (os.strerror(int(said[1])) if said else str(error))
            raise UndertowError(
                f"{self.path}: the training cannot be written there ({reason}); what was trained until the last checkpoint is kept, "
                "so free some space and run the same command again"
            ) from error

    def _tidy(self) -> None:
        """Nothing of the work is left once the model is there."""
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        shutil.rmtree(self.path / PART, ignore_errors=True)

    def _part(self) -> Path:
        """An empty folder for drafts; never away in between, since a folder may be known as a training by it alone."""
        part = self.path / PART
        part.mkdir(parents=True, exist_ok=True)
        for left in part.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()
        return part

    def _check(self, other: Mapping[str, Any]) -> None:
        # As JSON gives it back, where a tuple is a list.
        own = json.loads(json.dumps(self._identity))
        for name in own:
            if own[name] != other.get(name):
                difference = f"{name.replace('_', ' ')} {_text_of(other.get(name))}, not {_text_of(own[name])}"
                raise UndertowError(
                    f"{self.path}: holds another training ({OF_HASHES.get(name, difference)}); to go on with it, give the base, texts and "
                    "options that it was begun with, or name another folder"
                )


def _text_of(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
