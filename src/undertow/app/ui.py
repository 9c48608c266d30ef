"""The page of `undertow app`: audit a sentence of your own, and browse runs. The only module that imports Gradio.

Typed text and text of runs appear only in components that show plain text, never in HTML, Markdown or templates.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app import sentence_parser
from undertow.app.forms import (
    DEGREES,
    DRIFT,
    MAX_ENDS,
    MAX_NAME_CHARS,
    SPECIFICATION,
    AllowedModels,
    Form,
    LoadedModel,
    Preset,
    Question,
    presets,
    read_form,
)
from undertow.app.run_browser import MAX_FIGURES, MAX_ROWS, RunBrowser, moment
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.model_reply import ModelReply, Steps

MAX_WAITING = 4
"""Questions that wait for the model; one more runs, and Gradio refuses further ones."""
_OWN = "My own"
_STOPPED = "Stopped. Answers so far are kept: ask again to continue."
_NO_ANSWER = "The model's answer will stand here."
_QUICK: Mapping[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "queue": False,
    "preprocess": False,
}
Updates = dict[Any, Any]
"""New values of components, by component."""


class StoppedError(UndertowError):
    """The visitor stopped the work, or went away."""


class Page:
    """The page's components, and what happens when they are used.

    Args:
        allowed_models: the models that visitors can choose.
        run_browser: the runs that are shown.
        files: a folder for downloads and figures; Gradio deletes those of an hour ago.
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
            How many handlers the page has.
        """
        # Fonts of the system: Gradio's own themes fetch theirs from elsewhere.
        theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"], primary_hue="blue")
        labels = {"block_info_text_color": "*neutral_600", "block_info_text_color_dark": "*neutral_300"}
        theme.set(**labels, block_label_text_color="*neutral_800")
        blocks = self._build()
        unused = ("run_history", "show_error", "ssr_mode", "enable_monitoring", "pwa", "mcp_server")
        style = Path(__file__).with_name("style.html")  # what Gradio is given as CSS loses its media queries
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
                "# Undertow\nWhat pulls on a model's answer when the question does not decide it? "
                "Write a sentence, and see what the model makes of its pronouns."
            )
            with gr.Tabs():
                with gr.Tab("Spurious correlation", id=DRIFT):
                    gr.Markdown(
                        "Put dates, places or any list of values into one sentence. They say nothing about who the sentence is about; "
                        "if the pronouns still follow them, the model learned a spurious correlation."
                    )
                    _QueryTab(self, DRIFT)
                with gr.Tab("Task specification", id=SPECIFICATION):
                    gr.Markdown(
                        "Does the sentence itself say which pronoun is right? If the answer moves with a value that should not matter, "
                        "it probably does not. Your sentence is compared with 480 sentences of which that is known; the model is "
                        "asked those too, which takes a while the first time."
                    )
                    _QueryTab(self, SPECIFICATION)
                with gr.Tab("Runs", id="runs"):
                    _RunsTab(self, blocks)
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
        """Stop the work of a visitor who wants that, or who left."""
        if request.session_hash == self._working:
            self._stop.set()

    def close(self) -> None:
        """Stop all work."""
        self._closing = True

    def work(self, request: gr.Request, progress: gr.Progress, job: Callable[[Steps], Any]) -> Any:
        """Do a job, alone, until it is stopped.

        Raises:
            UndertowError: whatever a visitor can correct.
        """
        stop = threading.Event()

        def step(name: str) -> Callable[[int, int], None]:
            def report(done: int, total: int) -> None:
                if stop.is_set() or self._closing:
                    raise StoppedError(_STOPPED)
                progress((done, total or None), desc=name)

            report(0, 0)
            return report

        with self._lock:
            self._working, self._stop = str(request.session_hash), stop
            try:
                return job(step)
            except MemoryError as error:
                raise UndertowError("Memory ran out; choose a smaller model or fewer values.") from error
            except OSError as error:
                raise UndertowError(f"A file of this machine cannot be read or written ({error.strerror}).") from error

    def reply(self, question: Question, audit: str, step: Steps) -> ModelReply:
        """The reply to a question, within a job."""
        step("Loading the model")
        # The statistics take a second to load, and the page is there before they are needed.
        from undertow.app.model_reply import answer_drift, answer_specification

        answer = answer_drift if audit == DRIFT else answer_specification
        return answer(question, self._loaded_model.load(question.model), step)


class _WorkPanel:
    """Buttons that start and stop a piece of work, its outcome, and what is wrong with the request.

    Args:
        page: that does the work.
        empty: text where the outcome will be; "" to show that place only when there is one.
    """

    def __init__(self, page: Page, empty: str) -> None:
        self._page, self._empty = page, empty

    def build_buttons(self, label: str, **size: int) -> None:
        with gr.Row():
            self.start = gr.Button(label, variant="primary", **size)
            self.stop = gr.Button("Stop", variant="stop", interactive=False, scale=1, min_width=80)

    def build_boxes(self, label: str) -> None:
        self.problem = _problem()
        before = {"value": self._empty or None, "visible": bool(self._empty)}
        self.outcome = _text(label, lines=3, max_lines=12, elem_classes="undertow-meaning", **before)

    def wire(self, work: Callable[..., Any], fields: list[Any], filled: list[Any]) -> None:
        """Have the buttons start and stop the work, which fills `filled` besides the outcome."""

        def halt(request: gr.Request) -> Updates:
            self._page.halt(request)
            return self.show_error(StoppedError(_STOPPED), filled)

        buttons = [self.start, self.stop]
        started = self.start.click(
            lambda: (gr.Button(interactive=False), gr.Button(interactive=True), _hide(self.problem), _show()),
            None,
            [*buttons, self.problem, self.outcome],
            **_QUICK,
        )
        working = started.then(
            work,
            fields,
            [self.problem, self.outcome, *filled],
            concurrency_id="work",
            show_progress_on=self.outcome,
            api_visibility="private",
        )
        working.then(lambda: (gr.Button(interactive=True), gr.Button(interactive=False)), None, buttons, **_QUICK)
        self.stop.click(halt, None, [self.problem, self.outcome, *filled], **_QUICK)
        self.stop.click(None, None, None, cancels=[working], api_visibility="private")

    def show_outcome(self, sentence: str) -> Updates:
        """Updates that show an outcome."""
        return {self.problem: _hide(self.problem), self.outcome: _show(sentence)}

    def show_error(self, error: UndertowError, filled: list[Any]) -> Updates:
        """Updates that show an error and hide the previous outcome."""
        outcome = gr.Textbox(self._empty, visible=bool(self._empty))
        return {self.problem: _show(str(error)), self.outcome: outcome, **{one: _hide(one) for one in filled}}


class _QueryTab:
    """A tab with a form and its answer."""

    def __init__(self, page: Page, audit: str) -> None:
        self._page, self._audit = page, audit
        self._presets = presets(audit)
        self._panel = _WorkPanel(page, _NO_ANSWER)
        with gr.Row():
            examples = [gr.Button(f"Example: {one.title.lower()}", size="sm", min_width=90) for one in self._presets]
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._build_form(*self._preset_fields(self._presets[0]))
            with gr.Column(scale=3, min_width=300):
                self._build_answer()
        chosen = [self.sentence, self.preset, self.values, self.placeholder]
        for button, one in zip(examples, self._presets, strict=True):
            button.click(lambda one=one: self._preset_fields(one), None, chosen, **_QUICK)
        self.preset.input(self._preset_values, [self.preset], [self.values], **_QUICK)
        self.values.input(lambda: _OWN, None, [self.preset], **_QUICK)
        fields = [self.sentence, self.values, self.placeholder, self.model, self.other]
        self._rest = [self.notes, self.sample, *self.figures, self.table, self.download, self.scores]
        self._panel.wire(self.answer, [*fields, self.normalise, self.degree, self.ends], self._rest)

    def _build_form(self, sentence: str, title: str, values: str, placeholder: str) -> None:
        orders = "; ".join(f"{one.title}: {one.covariate.order}" for one in self._presets)
        names = list(self._page.allowed_models.names)
        is_drift = self._audit == DRIFT
        self.sentence = _field(
            "Sentence",
            sentence,
            sentence_parser.MAX_SENTENCE_CHARS,
            "The model decides the pronouns (she, he, they, her ...), or one blank, written as three underscores.",
            lines=2,
        )
        in_front = "" if is_drift else " Without it they go in front: In 1901: ..."
        info = f"The word of your sentence that the values replace.{in_front}"
        self.placeholder = _field("Place-holder", placeholder, sentence_parser.MAX_PLACEHOLDER_CHARS, info)
        titles = [*(one.title for one in self._presets), _OWN]
        self.preset = gr.Radio(titles, value=title, label="Values", info=f"In order. {orders}.")
        self.values = _field(
            "List of values",
            values,
            sentence_parser.MAX_LIST_CHARS,
            f"In order, with commas between them; {sentence_parser.MAX_VALUES} at most. Change it, and it is your own list. "
            "Numbers are taken by their size.",
            lines=3,
            max_lines=6,
        )
        self.model = gr.Dropdown(names, value=names[0], label="Model", filterable=False)
        info = "By its hub id, such as bert-base-uncased or owner/name. It may have to be fetched."
        self.other = _field("Or another model", "", MAX_NAME_CHARS, info, visible=self._page.allowed_models.any_model)
        info = "Shares of what the pronouns have together. Off: of all words."
        self.normalise = gr.Checkbox(value=True, label="Normalise", info=info)
        info = "1 is a straight line; more bends more."
        self.degree = gr.Radio(list(DEGREES), value=1, label="Degree of the fit", info=info)
        info = "The movement is between the means of the first and the last so many."
        self.ends = gr.Slider(
            1, MAX_ENDS, value=1, step=1, label="Values at either end", info=info, visible=not is_drift
        )
        self._panel.build_buttons("Ask the model", scale=2, min_width=170)

    def _build_answer(self) -> None:
        self._panel.build_boxes("What it means")
        self.notes = _text("Keep in mind", lines=2, max_lines=12)
        self.sample = _text("Sample of what the model reads", lines=4, max_lines=8)
        with gr.Row(elem_classes="undertow-figures"):
            self.figures = [_figure(240) for _ in range(3)]
        label = "Your sentence, and how many of the sentences of known kind lie below it"
        self.scores = _table(label, wrap=True, max_height=900, elem_classes="undertow-scores")
        label = "Table: percent of each group at each value; fit, low and high are its curve and the band around it"
        self.table = _table(label)
        self.download = gr.DownloadButton("Download the table (CSV)", visible=False)

    def _preset_fields(self, one: Preset) -> tuple[str, str, str, str]:
        return one.sentence, one.title, ", ".join(one.values), one.placeholder

    def _preset_values(self, title: object) -> Any:
        return next((", ".join(one.values) for one in self._presets if one.title == title), gr.skip())

    def answer(
        self,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008 - Gradio knows its arguments by type and default
        *fields: Any,
    ) -> Iterator[Updates]:
        """The answer to the form: the sample at once, then the reply or what is to be corrected."""
        try:
            question = read_form(Form.from_fields(fields), self._page.allowed_models, self._audit)
            yield {self.sample: _show(question.sample())}
            job = partial(self._page.reply, question, self._audit)
            yield self._show_reply(self._page.work(request, progress, job))
        except UndertowError as error:
            yield self._panel.show_error(error, self._rest)

    def _show_reply(self, reply: ModelReply) -> Updates:
        from undertow.app.probability_curve import drawings
        from undertow.report.style import image_bytes

        updates = {
            **self._panel.show_outcome(reply.sentence),
            self.notes: _show("\n".join(reply.notes)),
            self.table: _show_table(reply.table),
            self.download: self._page.download(f"undertow-{self._audit}.csv", reply.table),
        }
        for figure, drawing in zip(self.figures, drawings(reply.curves, reply.labels), strict=True):
            path = self._page.keep("figure.png", image_bytes(drawing.figure, "png"))
            updates[figure] = gr.Image(path, alt_text=drawing.alt, visible=True)
        if reply.scores is not None:
            updates[self.scores] = _show_table(reply.scores.round(3), column_widths=["36%", "20%", "22%", "22%"])
        return updates


class _RunsTab:
    """A tab with the run folders: the list, one of them, and two compared."""

    def __init__(self, page: Page, blocks: Any) -> None:
        self._page, self._panel = page, _WorkPanel(page, "")
        gr.Markdown(
            "Runs that `undertow run` and `undertow score` wrote into the folder that this page was started with (`--runs`)."
        )
        self.problem = _problem()
        self.list = _table("Runs, the newest first", max_height=300, wrap=True, visible=True)
        look = gr.Button("Look again", size="sm", min_width=110)
        with gr.Row(equal_height=True):
            self.run = gr.Dropdown([], label="Run", scale=3, min_width=220)
            show = gr.Button("Show this run", variant="primary", scale=1, min_width=140)
        self.about = _text("About this run", lines=4, max_lines=8)
        self.findings = _text("Findings", lines=4, max_lines=20)
        with gr.Row(elem_classes="undertow-pages"):
            self.figures = [_figure(300, "fullscreen") for _ in range(MAX_FIGURES)]
        self.results = _table("Results")
        with gr.Row():
            self.table = gr.DownloadButton("Download the results (CSV)", visible=False)
            self.report = gr.DownloadButton("Download the report page", visible=False)
        gr.Markdown("## Compare two runs")
        with gr.Row():
            self.baseline, self.candidate = (
                gr.Dropdown([], label=label, min_width=220) for label in ("Baseline", "Candidate")
            )
        self._panel.build_buttons("Compare", min_width=140)
        self._panel.build_boxes("What differs")
        self.differences = _table("Differences")
        self.saved = gr.DownloadButton("Download the differences (CSV)", visible=False)
        lists = [self.list, self.run, self.baseline, self.candidate, self.problem]
        blocks.load(self.look, None, lists, **_QUICK)
        look.click(self.look, None, lists, **_QUICK)
        outputs = [self.problem, self.about, self.findings, *self.figures, self.results, self.table, self.report]
        show.click(self.show, [self.run], outputs, **{**_QUICK, "show_progress": "minimal"})
        self._panel.wire(self.compare, [self.baseline, self.candidate], [self.differences, self.saved])

    def look(self) -> Updates:
        """Refresh the list of runs."""
        problem = "There are no runs to show. Make one with undertow run, or start this page with --runs FOLDER."
        try:
            listed = self._page.run_browser.list_runs()
        except UndertowError as error:
            listed, problem = [], str(error)
        names = [one.name for one in listed]
        rows = [[one.name, one.audit, one.model, moment(one.created), str(one.n_items)] for one in listed]
        headers = ["run", "audit", "model", "when", "texts"]
        return {
            self.list: gr.Dataframe(rows, headers=headers, datatype="str", column_count=len(headers)),
            self.run: gr.Dropdown(names, value=next(iter(names), None)),
            self.baseline: gr.Dropdown(names, value=next(iter(names[1:]), None)),
            self.candidate: gr.Dropdown(names, value=next(iter(names), None)),
            self.problem: gr.Textbox(problem, visible=not names),
        }

    def show(self, name: Any) -> Updates:
        """Show a run."""
        try:
            run = self._page.run_browser.show(name)
        except UndertowError as error:
            return {self.problem: _show(str(error))}
        more = [f"The first {MAX_ROWS} of {len(run.results)} results are shown."] if len(run.results) > MAX_ROWS else []
        updates = {
            self.problem: _hide(self.problem),
            self.about: _show("\n".join([*run.about, *more])),
            self.findings: _show("\n\n".join(run.findings) or "This audit states no findings."),
            self.results: _show_table(run.results),
            self.table: self._page.download("results.csv", run.results),
            **{one: _hide(one) for one in (*self.figures, self.report)},
        }
        if run.report:
            updates[self.report] = gr.DownloadButton(value=self._page.keep("report.html", run.report), visible=True)
        for number, (figure, png) in enumerate(zip(self.figures, run.figures, strict=False), 1):
            alt = f"Figure {number} of the run, its results are in the table"
            updates[figure] = gr.Image(self._page.keep("figure.png", png), alt_text=alt, visible=True)
        return updates

    def compare(
        self,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008 - as in `_QueryTab.answer`
        baseline: Any = None,
        candidate: Any = None,
    ) -> Updates:
        """Compare two runs."""
        runs = self._page.run_browser
        try:
            said, table = self._page.work(
                request, progress, lambda step: runs.compare(baseline, candidate, step("Comparing"))
            )
        except UndertowError as error:
            return self._panel.show_error(error, [self.differences, self.saved])
        saved = self._page.download("differences.csv", table)
        return {**self._panel.show_outcome(said), self.differences: _show_table(table), self.saved: saved}


def _field(label: str, value: str, most_chars: int, info: str, **more: Any) -> Any:
    """A text field; one that is not shown sends what it began with."""
    return gr.Textbox(label=label, value=value, max_length=most_chars, info=info, **more)


def _text(label: str, **more: Any) -> Any:
    return gr.Textbox(label=label, interactive=False, **{"visible": False, **more})


def _problem() -> Any:
    return _text("Error", lines=2, elem_classes="undertow-problem")


def _show(*text: str) -> Any:
    """A visible text box, with a text or the one that it has."""
    return gr.Textbox(*text, visible=True)


def _hide(component: Any) -> Any:
    return type(component)(visible=False)


def _figure(min_width: int, *buttons: str) -> Any:
    size: dict[str, Any] = {"min_width": min_width, "type": "filepath", "format": "png"}
    return gr.Image(visible=False, interactive=False, buttons=list(buttons), show_label=False, **size)


def _table(label: str, **more: Any) -> Any:
    return gr.Dataframe(label=label, interactive=False, buttons=[], **{"visible": False, "max_height": 360, **more})


def _show_table(table: pd.DataFrame, **more: Any) -> Any:
    """A table as cells of text: whatever stands in one is shown as it is."""
    from undertow.app.model_reply import cells_of

    headers = [str(name) for name in table.columns]
    cells = cells_of(table.head(MAX_ROWS))
    return gr.Dataframe(cells, headers=headers, datatype="str", column_count=len(headers), visible=True, **more)
