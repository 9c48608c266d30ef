"""The page of `undertow app`: audit sentences of your own, run audits, and browse runs; its tabs are in `undertow.app.tabs`."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app.forms import DRIFT, SPECIFICATION, AllowedModels, LoadedModel, Question
from undertow.app.run_browser import RunBrowser
from undertow.app.tabs import components
from undertow.app.tabs.audits import ChallengeTab, ChecklistTab, TextTab
from undertow.app.tabs.runs import RunsTab
from undertow.app.tabs.sentences import TITLES, SentenceTab
from undertow.errors import UndertowError
from undertow.stats.context import interruptible

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.audit_request import AuditRequest
    from undertow.app.model_reply import ModelReply, Steps
    from undertow.runs.finished_run import Run
    from undertow.types import Progress

MAX_WAITING = 4
"""Maximum number of waiting questions; one more runs, and Gradio refuses further ones."""


class Page:
    """The page's components and their handlers.

    Args:
        allowed_models: the models that visitors can choose.
        run_browser: the runs to show.
        files: a folder for downloads and figures; Gradio deletes files after an hour.
    """

    def __init__(self, allowed_models: AllowedModels, run_browser: RunBrowser, files: Path) -> None:
        self.allowed_models, self.run_browser, self._files = allowed_models, run_browser, files
        self._loaded_model = LoadedModel(allowed_models.request)
        self._lock = threading.Lock()
        self._working, self._stop, self._closing = "", threading.Event(), False

    def mount(self, app: Any, visitor: Callable[[Any], str | None]) -> int:
        """Add the page to a FastAPI application, without the parts of Gradio that it does not use.

        Args:
            app: the application.
            visitor: the name of the sender of a request; None for a stranger.

        Returns:
            Number of handlers of the page.
        """
        # Fonts of the system: Gradio's own themes fetch theirs from elsewhere.
        theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"], primary_hue="blue")
        labels = {"block_info_text_color": "*neutral_600", "block_info_text_color_dark": "*neutral_300"}
        theme.set(**labels, block_label_text_color="*neutral_800")
        blocks = self._build()
        unused = ("run_history", "show_error", "ssr_mode", "enable_monitoring", "pwa", "mcp_server")
        style = Path(components.__file__).with_name("style.html")  # what Gradio is given as CSS loses its media queries
        gr.mount_gradio_app(
            app,
            blocks,
            path="/",
            auth_dependency=visitor,
            footer_links=[],
            max_file_size=1,
            theme=theme,
            head_paths=style,
            **dict.fromkeys(unused, False),
        )
        return len(blocks.fns)

    def _build(self) -> Any:
        with gr.Blocks(title="Undertow", analytics_enabled=False, delete_cache=(600, 3600)) as blocks:
            gr.Markdown(
                "# Undertow\nWhat affects a model's answer if the question does not determine it? "
                "Write sentences and see how the model's words depend on a date or place, or run an audit."
            )
            with gr.Tabs():
                for audit in (DRIFT, SPECIFICATION):
                    with gr.Tab(TITLES[audit], id=audit):
                        SentenceTab(self, audit)
                for title, build in (
                    ("Challenge file", ChallengeTab),
                    ("Bias in text", TextTab),
                    ("Occupations", ChecklistTab),
                ):
                    with gr.Tab(title):
                        build(self)
                with gr.Tab("Runs") as tab:
                    RunsTab(self, blocks, tab)
            blocks.unload(self.halt)
        return blocks.queue(max_size=MAX_WAITING, api_open=False, default_concurrency_limit=1)

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
        """Run a job exclusively until it ends or is stopped.

        Raises:
            UndertowError: an error that a visitor can correct.
        """
        stop = threading.Event()

        def check() -> None:
            if stop.is_set() or self._closing:
                raise components.StoppedError(components.STOPPED)

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
            step(f"{of_model}Loading the model")
            handle = self._loaded_model.load(name)
            replies[label] = answer(question, handle, partial(_of_model, step, of_model))
        return replies

    def run_audit(self, audit_request: AuditRequest, step: Steps) -> Run:
        """Run an audit within a job."""
        asking = step("Running the audit")
        self._loaded_model.drop()

        def progress(done: int, total: int) -> None:
            asking(done, total)
            if done >= total > 0:
                step("Statistics, figures and report")

        return audit_request.run(self.run_browser.root, self.allowed_models.request, progress)


def _of_model(step: Steps, before: str, doing: str) -> Progress:
    return step(f"{before}{doing}")
