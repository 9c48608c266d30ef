"""Callback for the Trainer of transformers that audits a network during training.

    trainer = Trainer(...)
    trainer.add_callback(AuditCallback(trainer, "spurious-correlation", every_steps=500, challenge="mgc", w="date"))
    trainer.train()

`trainer.log` receives the numbers, so `trainer.state.log_history` and every logger of the trainer (Weights & Biases, TensorBoard, ...)
have them under `undertow/`. The audit does not affect training: weights, gradients, training mode and torch's random state are
unchanged.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled

from undertow import audits
from undertow._files import first_line
from undertow._folders import notify
from undertow.errors import UndertowError
from undertow.metrics.metric import OVER_PROMPTS
from undertow.runs.config import RunConfig
from undertow.runs.finished_run import Run
from undertow.runs.pipeline import run_audit

PREFIX = "undertow"
"""Prefix of every name in the trainer's logs, a section in loggers."""


class AuditCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
    """Audit of the trainer's network every few steps.

    Attributes:
        trainer: the trainer.
        config: audit, options and network.
        every_steps: steps between two audits.
        folder: where run folders are written, one per audit: `step-500`, ...
    """

    def __init__(
        self,
        trainer: Any,
        audit: str,
        *,
        every_steps: int,
        tokenizer: Any = None,
        folder: str | Path = "",
        **options: Any,
    ) -> None:
        """Check the options, so that a mistake is reported before training.

        Args:
            trainer: the trainer.
            audit: name of the audit, for example `spurious-correlation`.
            every_steps: steps between two audits.
            tokenizer: tokenizer of the network; by default the trainer's `processing_class`.
            folder: where run folders are written; by default `undertow` in the trainer's `output_dir`.
            options: as in `undertow.audit`, for example `challenge="mgc", limit=200`.

        Raises:
            UndertowError: an option is invalid, or no process holds the whole network.
        """
        if every_steps < 1:
            raise UndertowError(f"every_steps {every_steps} must be at least 1")
        if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
            raise UndertowError(
                "the network is split over processes and cannot be audited; use `undertow run` on its checkpoints"
            )
        tokenizer = trainer.processing_class if tokenizer is None else tokenizer
        self.config = RunConfig.from_keywords(audit, trainer.model, {**options, "tokenizer": tokenizer})
        self.config.resolve()
        self.trainer, self.every_steps = trainer, every_steps
        self.folder = Path(folder or Path(trainer.args.output_dir, PREFIX))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Audit the network every `every_steps` steps on the first process; a failure is reported, and training continues."""
        step = state.global_step
        if step % self.every_steps or not state.is_world_process_zero:
            return
        name = f"{Path(args.output_dir).name}/step-{step}"
        try:
            network = self.trainer.model  # with `model_init`, another one than at the start
            dtype = str(network.dtype).removeprefix("torch.")
            config = replace(self.config, models=[name], network=network, dtype=dtype)
            with tempfile.TemporaryDirectory() as cache:  # weights change with every step
                place = Path(cache, "answers.sqlite")
                run = run_audit(config, self.folder / f"step-{step}", overwrite=True, cache=place)
                numbers = headline_numbers(run)
        except Exception as error:  # noqa: BLE001 - no failure of an audit may end a training
            reason = str(error) if isinstance(error, UndertowError) else f"{type(error).__name__}: {first_line(error)}"
            notify(f"step {step}: the audit failed ({reason}); training continues")
            return
        should_log = control.should_log
        self.trainer.log(numbers)
        control.should_log = should_log  # `log` resets it, but the trainer has still to log this step


def headline_numbers(run: Run) -> Mapping[str, float]:
    """The numbers of findings that are in a table of the audit, by measure and group, and the number of significant findings."""
    start = f"{PREFIX}/{run.manifest['audit']}"
    findings, layouts = run.findings, audits.load(str(run.manifest["audit"])).table_layouts
    in_tables = {f"{row}{ending}" for layout in layouts for row in layout.rows for ending in ("", OVER_PROMPTS)}
    numbers = {f"{start}/significant_findings": float(sum(finding.significant for finding in findings))}
    for finding in findings:
        for result in [one for one in finding.results if one.measure in in_tables] or finding.results[:1]:
            levels = [level for name, level in result.group.items() if level and name != "model"]
            if math.isfinite(result.value):
                numbers["/".join([start, result.measure, *levels])] = float(result.value)
    return numbers
