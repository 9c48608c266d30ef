"""The jobs of the page, one at a time: replies, audits, and files to download."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app.forms import DRIFT, AllowedModels, LoadedModel, Question
from undertow.app.run_browser import RunBrowser
from undertow.errors import UndertowError
from undertow.stats.context import interruptible

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.audit_request import AuditRequest
    from undertow.app.model_reply import ModelReply, Steps
    from undertow.runs.finished_run import Run
    from undertow.types import Progress

STOPPED = "Stopped. Answers so far are kept: ask again to continue."


class StoppedError(UndertowError):
    """The visitor stopped the work, or went away."""


class PageJobs:
    """What the tabs of the page share: its models, runs and files, and one job at a time.

    `files` is a folder for downloads and figures, which Gradio deletes after an hour.
    """

    def __init__(self, allowed_models: AllowedModels, run_browser: RunBrowser, files: Path) -> None:
        self.allowed_models, self.run_browser, self._files = allowed_models, run_browser, files
        self._loaded_model = LoadedModel(allowed_models.request)
        self._lock = threading.Lock()
        self._working, self._stop, self._closing = "", threading.Event(), False

    def keep(self, name: str, content: bytes) -> str:
        """Write a file that visitors can download; returns its path."""
        path = Path(tempfile.mkdtemp(dir=self._files)) / name
        path.write_bytes(content)
        return str(path)

    def download(self, name: str, table: pd.DataFrame) -> Any:
        """A button to download a table as CSV."""
        from undertow.runs.folder.storage import csv_of

        return gr.DownloadButton(value=self.keep(name, csv_of(table, "%.6g").encode()), visible=True)

    def halt(self, request: gr.Request) -> None:
        """Stop the work of a visitor who pressed Stop or left."""
        if request.session_hash == self._working:
            self._stop.set()

    def close(self) -> None:
        """Stop all work."""
        self._closing = True

    def work(self, request: gr.Request, progress: gr.Progress, job: Callable[[Steps], Any]) -> Any:
        """Run a job exclusively until it ends or is stopped; raises an `UndertowError` that a visitor can correct."""
        stop = threading.Event()

        def check() -> None:
            if stop.is_set() or self._closing:
                raise StoppedError(STOPPED)

        def step(name: str) -> Callable[[int, int], None]:
            def report(done: int, total: int) -> None:
                check()
                progress((done, total or None), desc=name)

            report(0, 0)
            return report

        with self._lock:
            self._working, self._stop = str(request.session_hash), stop
            try:
                with interruptible(check):
                    return job(step)
            except MemoryError as error:
                raise UndertowError("Out of memory; choose a smaller model or fewer values.") from error
            except OSError as error:
                raise UndertowError(f"A file of this machine cannot be read or written ({error.strerror}).") from error

    def replies(self, question: Question, audit: str, step: Steps) -> dict[str, ModelReply]:
        """The reply of each model to a question, within a job."""
        step("Loading the model")
        # Import the statistics, which take a second, after the page is built.
        from undertow.app.model_reply import answer_drift, answer_specification

        answer = answer_drift if audit == DRIFT else answer_specification
        replies = {}
        for label, name in question.models.items():
            of_model = f"{label}: " if len(question.models) > 1 else ""

            def step_of_model(doing: str, of_model: str = of_model) -> Progress:
                return step(f"{of_model}{doing}")

            step_of_model("Loading the model")
            replies[label] = answer(question, self._loaded_model.load(name), step_of_model)
        return replies

    def run_audit(self, audit_request: AuditRequest, step: Steps) -> Run:
        """Run an audit within a job."""
        report = step("Running the audit")
        self._loaded_model.drop()

        def progress(done: int, total: int) -> None:
            report(done, total)
            if done >= total > 0:
                step("Statistics, figures and report")

        return audit_request.run(self.run_browser.root, self.allowed_models.request, progress)
