"""Shared parts of the tabs: fields, tables, the work panel, the choice of models, and the report of a run.

Typed text and text of runs appear only in components that show plain text, never in HTML, Markdown or templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import gradio as gr

from undertow.app.access_control import REPORT
from undertow.app.forms import MAX_MODELS, MAX_NAME_CHARS
from undertow.app.page_jobs import STOPPED, PageJobs, StoppedError
from undertow.app.run_browser import MAX_FINDINGS, MAX_ROWS, finding_text
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.audit_request import AuditRequest
    from undertow.runs.finished_run import Run

QUICK: Mapping[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False, "preprocess": False}
Updates = dict[Any, Any]
"""New values of components, by component."""


class WorkPanel:
    """Buttons that start and stop work, its outcome, and errors of the request.

    Args:
        page: the page that does the work.
        empty: placeholder text of the outcome; "" to hide the place without an outcome.
    """

    def __init__(self, page: PageJobs, empty: str = "") -> None:
        self._page, self._empty = page, empty

    def build_buttons(self, *labels: str) -> None:
        """A start button with each label, and one to stop."""
        with gr.Row(elem_classes="undertow-buttons"):
            variants = ["primary", *["secondary"] * (len(labels) - 1)]
            self.starts = [
                gr.Button(label, variant=variant, scale=2, min_width=140)
                for label, variant in zip(labels, variants, strict=True)
            ]
            self.stop = gr.Button("Stop", variant="stop", interactive=False, scale=1, min_width=80)

    def build_boxes(self, label: str) -> None:
        """Places for an error and for the outcome."""
        self.problem = problem_box()
        before = {"value": self._empty or None, "visible": bool(self._empty)}
        self.outcome = text_box(label, lines=2, elem_classes="undertow-meaning", **before)

    def wire(
        self,
        works: Sequence[Callable[..., Any]],
        fields: Sequence[Any],
        filled: Sequence[Any],
        kept: Sequence[Any] = (),
    ) -> None:
        """Connect each start button; in addition to the outcome, work updates `filled`, which errors hide, and `kept`."""

        def halt(request: gr.Request) -> Updates:
            self._page.halt(request)
            return self.show_error(StoppedError(STOPPED), filled)

        buttons = [*self.starts, self.stop]
        running = []
        for start, work in zip(self.starts, works, strict=True):
            started = start.click(
                lambda: (
                    *[gr.Button(interactive=False)] * len(works),
                    gr.Button(interactive=True),
                    hide(self.problem),
                    show(),
                ),
                None,
                [*buttons, self.problem, self.outcome],
                **QUICK,
            )
            working = started.then(
                work,
                [*fields],
                [self.problem, self.outcome, *filled, *kept],
                concurrency_id="work",
                show_progress_on=self.outcome,
                api_visibility="private",
            )
            working.then(
                lambda: (*[gr.Button(interactive=True)] * len(works), gr.Button(interactive=False)),
                None,
                buttons,
                **QUICK,
            )
            running.append(working)
        self.stop.click(halt, None, [self.problem, self.outcome, *filled], **QUICK)
        self.stop.click(None, None, None, cancels=running, api_visibility="private")

    def show_outcome(self, sentence: str) -> Updates:
        """Updates that show an outcome."""
        return {self.problem: hide(self.problem), self.outcome: show(sentence)}

    def show_error(self, error: UndertowError, filled: Sequence[Any]) -> Updates:
        """Updates that show an error and hide the previous outcome."""
        outcome = gr.Textbox(self._empty, visible=bool(self._empty))
        return {self.problem: show(str(error)), self.outcome: outcome, **{one: hide(one) for one in filled}}


class ModelFields:
    """The choice of models: a first and a second one, and typed names."""

    def __init__(self, page: PageJobs) -> None:
        allowed = page.allowed_models
        self._allowed, names = allowed, list(allowed.names)
        with gr.Row():
            self.model = gr.Dropdown(names, value=names[0], label="Model", filterable=False, min_width=130)
            choices = [("none", ""), *names]
            self.beside = gr.Dropdown(choices, value="", label="Second model", filterable=False, min_width=130)
        info = (
            f"Hub ids such as bert-base-uncased or owner/name, comma-separated, at most {MAX_MODELS}. They replace the first "
            "model above and may be downloaded."
        )
        self.other = field("Or other models", "", MAX_MODELS * MAX_NAME_CHARS, info, visible=allowed.any_model)

    @property
    def fields(self) -> list[Any]:
        """The components, in the order of `AllowedModels.choose`."""
        return [self.model, self.beside, self.other]

    def chosen(self, *values: object) -> dict[str, str]:
        """The models, by label; raises `UndertowError` if one cannot be used."""
        if not all(isinstance(value, str) for value in values):
            raise UndertowError("The names of models must be texts.")
        return self._allowed.choose(*map(str, values))


class ReportView:
    """The report of a run: a link, and the page in a frame, whose scripts have no origin."""

    def __init__(self) -> None:
        self.view = gr.Markdown(visible=False, sanitize_html=False, elem_classes="undertow-report")

    def show(self, name: str) -> Updates:
        """Updates that show the report of the run of this name."""
        address = f"{REPORT}/{quote(name, safe='')}"  # letters, digits, and _.-~%: no markup
        opened = f'<a href="{address}" target="_blank" rel="noopener">Open the report in a new tab</a>'
        frame = f'<iframe title="Report of the run" src="{address}"></iframe>'
        return {self.view: gr.Markdown(f"{opened}\n\n{frame}", visible=True, sanitize_html=False)}


class AuditPanel(WorkPanel):
    """A work panel whose work is an audit; its outcome is the findings and the report."""

    def build_boxes(self, label: str) -> None:  # noqa: D102
        super().build_boxes(label)
        self.report = ReportView()

    def handler(self, audit_request: Callable[..., AuditRequest], filled: Sequence[Any] = ()) -> Callable[..., Updates]:
        """A handler that runs an audit, and shows its findings and its report.

        Args:
            audit_request: returns the audit of the fields, or raises an error for the visitor.
            filled: components of an earlier outcome, to hide.
        """

        def audit(
            request: gr.Request,
            progress: gr.Progress = gr.Progress(),  # noqa: B008 - Gradio knows its arguments by type and default
            *fields: Any,
        ) -> Updates:
            try:
                wanted = audit_request(*fields)
                run: Run = self._page.work(request, progress, lambda step: self._page.run_audit(wanted, step))
            except UndertowError as error:
                return self.show_error(error, [*filled, self.report.view])
            findings, hidden = run.findings, {one: hide(one) for one in filled}
            lines = [f"{'★' if one.significant else '–'} {finding_text(one)}" for one in findings[:MAX_FINDINGS]]
            n_more = len(findings) - len(lines)
            more = f"The report has {n_more} further findings. " if n_more else ""
            lines.append(
                f"{more}★ marks significant findings. The run is saved as {run.folder.name}; see the tab Runs."
            )
            return {**hidden, **self.show_outcome("\n\n".join(lines)), **self.report.show(run.folder.name)}

        return audit


def field(label: str, value: str, most_chars: int, info: str, **more: Any) -> Any:
    """A text field; a hidden one sends its initial text."""
    return gr.Textbox(label=label, value=value, max_length=most_chars, info=info, **more)


def text_box(label: str, **more: Any) -> Any:
    """A read-only text of its own height."""
    return gr.Textbox(label=label, interactive=False, **{"visible": False, "max_lines": 60, **more})


def problem_box() -> Any:
    """A box for errors."""
    return text_box("Error", lines=2, elem_classes="undertow-problem")


def show(*text: str) -> Any:
    """Show a text box, optionally with a new text."""
    return gr.Textbox(*text, visible=True)


def hide(component: Any) -> Any:
    """The component, hidden."""
    return type(component)(visible=False)


def table_view(label: str, **more: Any) -> Any:
    """A table to read."""
    return gr.Dataframe(label=label, interactive=False, buttons=[], **{"visible": False, "max_height": 360, **more})


def show_table(table: pd.DataFrame, **more: Any) -> Any:
    """Show a table with all cells as plain text."""
    from undertow.app.model_reply import cells_of

    headers = [str(name) for name in table.columns]
    cells = cells_of(table.head(MAX_ROWS))
    return gr.Dataframe(cells, headers=headers, datatype="str", column_count=len(headers), visible=True, **more)
