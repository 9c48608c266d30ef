"""The page of `undertow app`: audit a sentence of your own, and browse runs. The only module that imports Gradio.

Typed text and text of runs appear only in components that show plain text, never in HTML, Markdown or templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app.downloads import Files
from undertow.app.forms import (
    DEGREES,
    DRIFT,
    MAX_ENDPOINT_WINDOW,
    MAX_NAME_CHARS,
    SPECIFICATION,
    AllowedModels,
    Form,
    ModelSlot,
    Preset,
    Question,
    presets,
    read_form,
)
from undertow.app.job_queue import Job, JobQueue
from undertow.app.run_browser import MAX_FIGURES, MAX_ROWS, RunBrowser, moment
from undertow.app.sentence_parser import MAX_LIST_CHARS, MAX_PLACEHOLDER_CHARS, MAX_SENTENCE_CHARS, MAX_VALUES
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.model_reply import ModelReply

MAX_EVENTS = 32
"""Events that wait in Gradio's queue: past these, visitors are turned away."""
POLL_S = 0.15
"""Seconds between two polls of a job."""
_OWN = "My own"
_NO_ANSWER = "The model's answer will stand here."
_STYLE = """
.undertow-problem textarea { border: 2px solid #b3261e !important; font-weight: 600; }
.undertow-meaning textarea { font-size: 1.1rem !important; font-weight: 600; }
.undertow-figures, .undertow-pages { display: grid !important; align-items: start; }
.undertow-figures { grid-template-columns: repeat(auto-fill, minmax(min(100%, 270px), 1fr)); }
.undertow-pages { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
footer { display: none !important; }
@media (max-width: 640px) {
  .gradio-container, .gradio-container main { padding: 6px !important; }
  .undertow-scores th * { font-size: 0.7rem !important; padding: 2px !important; }
  .gradio-container .tab-container button { font-size: 0.78rem !important; padding: 0 6px !important; }
}
"""
Updates = Mapping[Any, Any]
"""New values of components, by component."""


def mounted(outer: Any, page: Page, files: Path) -> Any:
    """The page in a FastAPI application, with everything of Gradio left out that it has no use for."""
    # Fonts of the system: Gradio's own themes fetch theirs from elsewhere.
    theme = gr.themes.Base(
        font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"], primary_hue="blue"
    )
    theme.set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        block_label_text_color="*neutral_800",
    )
    return gr.mount_gradio_app(
        outer,
        page.build(),
        path="/",
        footer_links=[],
        run_history=False,
        allowed_paths=[str(files)],
        show_error=False,
        max_file_size=1,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=theme,
        head=f"<style>{_STYLE}</style>",  # Gradio rewrites what it is given as CSS, and media queries get lost
    )


class Page:
    """The page's components, and what happens when they are used.

    Args:
        allowed_models: the models that may be asked.
        run_browser: the runs that are shown.
        files: a folder for downloads and images.
    """

    def __init__(self, allowed_models: AllowedModels, run_browser: RunBrowser, files: Path) -> None:
        self.jobs = JobQueue()
        self._allowed_models, self._run_browser, self._files = allowed_models, run_browser, Files(files)
        self._model_slot = ModelSlot()
        self.n_functions = 0

    def build(self) -> Any:
        """The page, as Gradio has it."""
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
                    _QueryTab(self, DRIFT).build()
                with gr.Tab("Task specification", id=SPECIFICATION):
                    gr.Markdown(
                        "Does the sentence itself say which pronoun is right? If the answer moves with a value that should not matter, "
                        "it probably does not. Your sentence is judged beside 480 sentences of which that is known; the model is "
                        "asked those too, which takes a while the first time."
                    )
                    _QueryTab(self, SPECIFICATION).build()
                with gr.Tab("Runs", id="runs"):
                    _RunsTab(self).build(blocks)
            blocks.unload(self.unload)
        blocks.queue(max_size=MAX_EVENTS, api_open=False, default_concurrency_limit=8)
        self.n_functions = len(blocks.fns)
        return blocks

    @property
    def models(self) -> list[str]:
        """Models that visitors choose from."""
        return list(self._allowed_models.names)

    @property
    def any_model(self) -> bool:
        """Whether visitors may name any other model."""
        return self._allowed_models.any_model

    @property
    def run_browser(self) -> RunBrowser:
        """The runs."""
        return self._run_browser

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file for download; returns its path."""
        return self._files.keep(name, content)

    def unload(self, request: gr.Request) -> None:
        """Cancel the jobs of a visitor who left."""
        self.jobs.stop(_owner(request))

    def question(self, form: Form, audit: str) -> Question:
        """A form, checked; see `read_form`."""
        return read_form(form, self._allowed_models, audit)

    def answer(self, question: Question, audit: str, job: Job) -> ModelReply:
        """Answer a question within a job."""
        job.step("loading the model")
        # The statistics take a second to load, and the page is there before they are needed.
        from undertow.app.model_reply import answer_drift, answer_specification

        handle = self._model_slot.load(question.model)
        return (answer_drift if audit == DRIFT else answer_specification)(question, handle, job.step)

    async def progress_of(self, owner: str, function: Callable[[Job], Any]) -> AsyncIterator[tuple[str, Any]]:
        """Progress of a job as text, whenever it changes; at last "" with its result.

        The job stops when the caller stops iterating, as when the visitor leaves.

        Raises:
            UndertowError: whatever a visitor can fix.
        """
        job = self.jobs.submit(owner, function)
        try:
            said = ""
            while not job.is_done:
                now = self._progress_text(job)
                if now != said:
                    yield now, None
                    said = now
                await asyncio.sleep(POLL_S)
            try:
                result = job.result()
            except MemoryError as error:
                raise UndertowError("Memory ran out; choose a smaller model or fewer values.") from error
            except OSError as error:
                raise UndertowError(f"A file of this machine cannot be read or written ({error.strerror}).") from error
            yield "", result
        finally:
            job.stop()

    def _progress_text(self, job: Job) -> str:
        if not job.started:
            before = self.jobs.n_before(job)
            return f"Waiting for the model: {before} before you."
        if job.total:
            return f"{job.doing.capitalize()}: {job.done} of {job.total} ({100 * job.done // job.total}%), {job.seconds:.0f} s"
        return f"{job.doing.capitalize()} ... {job.seconds:.0f} s"


def _owner(request: gr.Request) -> str:
    return str(getattr(request, "session_hash", "") or "")


def _place_for_figure(min_width: int, *buttons: str) -> Any:
    """A hidden image component."""
    return gr.Image(
        visible=False, interactive=False, min_width=min_width, buttons=list(buttons), type="filepath", format="png", show_label=False
    )  # fmt: skip


def _problem() -> Any:
    """A hidden text box for an error."""
    return gr.Textbox(label="Error", interactive=False, visible=False, lines=2, elem_classes="undertow-problem")


class _JobPanel:
    """The part of a tab that shows a job: buttons to start and stop it, its progress, its error, its result.

    Args:
        page: whose job queue it uses.
        before: what stands where the outcome will be; "" to show that place only when there is one.
        stopping: what is said while it stops.
    """

    def __init__(self, page: Page, before: str, stopping: str) -> None:
        self._page, self._before, self._stopping = page, before, stopping

    def build_buttons(self, begin: str, **size: int) -> None:
        """The buttons, in a row of their own."""
        with gr.Row():
            self.begin = gr.Button(begin, variant="primary", **size)
            self.stop = gr.Button("Stop", variant="stop", interactive=False, scale=1, min_width=80)

    def build_boxes(self, outcome: str) -> None:
        """The texts, under each other."""
        self.status = gr.Textbox(label="Progress", interactive=False, visible=False, lines=1)
        self.problem = _problem()
        self.outcome = gr.Textbox(
            label=outcome,
            value=self._before or None,
            interactive=False,
            visible=bool(self._before),
            lines=3,
            max_lines=12,
            elem_classes="undertow-meaning",
        )

    def wire(
        self, handler: Callable[..., AsyncIterator[Updates]], fields: list[Any], more: list[Any], **quick: Any
    ) -> None:
        """Connect the buttons to a handler; `more` lists the other components that it updates."""
        begun = self.begin.click(
            handler,
            fields,
            [self.begin, self.stop, self.status, self.problem, self.outcome, *more],
            show_progress="hidden",
            api_visibility="private",
            concurrency_limit=8,
        )
        begun.then(self._reset, None, [self.begin, self.stop, self.status], **quick)
        self.stop.click(self.cancel, None, [self.status], **quick)

    def _reset(self) -> tuple[Any, Any, Any]:
        return gr.Button(interactive=True), gr.Button(interactive=False), gr.Textbox(visible=False)

    def cancel(self, request: gr.Request) -> Any:
        """Cancel the visitor's job."""
        if not self._page.jobs.stop(_owner(request)):
            return gr.skip()
        return gr.Textbox(self._stopping, visible=True)

    def begun(self, doing: str) -> Updates:
        """Updates that show that a job began."""
        return {
            self.begin: gr.Button(interactive=False),
            self.stop: gr.Button(interactive=True),
            self.problem: gr.Textbox(visible=False),
            self.status: gr.Textbox(doing, visible=True),
        }

    def done(self, said: str) -> Updates:
        """Updates that show a result."""
        return {self.status: gr.Textbox(visible=False), self.outcome: gr.Textbox(said, visible=True)}

    def failed(self, error: UndertowError) -> Updates:
        """Updates that show an error and hide the previous result."""
        return {
            self.status: gr.Textbox(visible=False),
            self.problem: gr.Textbox(str(error), visible=True),
            self.outcome: gr.Textbox(self._before) if self._before else gr.Textbox(visible=False),
        }


class _QueryTab:
    """A tab with a form: its fields, its answer, and what its buttons do."""

    def __init__(self, page: Page, audit: str) -> None:
        self._page, self._audit = page, audit
        self._presets = presets(audit)
        self._panel = _JobPanel(page, _NO_ANSWER, "Stopping after what the model reads now ...")

    def build(self) -> None:
        first = self._presets[0]
        with gr.Row():
            examples = [gr.Button(f"Example: {one.title.lower()}", size="sm", min_width=90) for one in self._presets]
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._build_form(first)
            with gr.Column(scale=3, min_width=300):
                self._build_answer()
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}
        chosen = [self.sentence, self.preset, self.values, self.placeholder]
        for button, one in zip(examples, self._presets, strict=True):
            button.click(lambda one=one: self._filled(one), None, chosen, **quick)
        self.preset.input(self._listed, [self.preset], [self.values], **quick)
        self.values.input(lambda: _OWN, None, [self.preset], **quick)
        fields = [
            self.sentence,
            self.values,
            self.placeholder,
            self.model,
            self.other,
            self.normalise,
            self.degree,
            self.endpoint_window,
        ]
        filled = [self.notes, self.sample, *self.figures, self.table, self.download, self.scores]
        self._panel.wire(self.answer, fields, filled, **quick)

    def _build_form(self, first: Preset) -> None:
        sentence = first.drift if self._audit == DRIFT else first.specification
        titles = [one.title for one in self._presets]
        self.sentence = gr.Textbox(
            label="Sentence",
            value=sentence,
            lines=2,
            max_length=MAX_SENTENCE_CHARS,
            info="The model decides the pronouns (she, he, they, her ...), or one blank, written as three underscores.",
        )
        self.placeholder = gr.Textbox(
            label="Place-holder",
            value=first.placeholder,
            max_length=MAX_PLACEHOLDER_CHARS,
            info="The word of your sentence that the values replace."
            + ("" if self._audit == DRIFT else " Without it they go in front: In 1901: ..."),
        )
        orders = "; ".join(f"{one.title}: {one.covariate.order}" for one in self._presets)
        self.preset = gr.Radio([*titles, _OWN], value=first.title, label="Values", info=f"In order. {orders}.")
        self.values = gr.Textbox(
            label="List of values",
            value=", ".join(first.values),
            lines=3,
            max_lines=6,
            max_length=MAX_LIST_CHARS,
            info=f"In order, with commas between them; {MAX_VALUES} at most. Change it, and it is your own list. Numbers are taken by "
            "their size.",
        )
        self.model = gr.Dropdown(self._page.models, value=self._page.models[0], label="Model", filterable=False)
        self.other = gr.Textbox(
            value="",  # a field that is not shown sends what it began with
            label="Or another model",
            info="By its hub id, such as bert-base-uncased or owner/name. It may have to be fetched.",
            visible=self._page.any_model,
            max_length=MAX_NAME_CHARS,
        )
        self.normalise = gr.Checkbox(
            value=True,
            label="Normalise",
            info="Shares of what the pronouns have together. Off: of all words.",
        )
        self.degree = gr.Radio(
            list(DEGREES), value=1, label="Degree of the fit", info="1 is a straight line; more bends more."
        )
        self.endpoint_window = gr.Slider(
            1,
            MAX_ENDPOINT_WINDOW,
            value=1,
            step=1,
            label="Values at either end",
            info="The movement is between the means of the first and the last so many.",
            visible=self._audit == SPECIFICATION,
        )
        self._panel.build_buttons("Ask the model", scale=2, min_width=170)

    def _build_answer(self) -> None:
        self._panel.build_boxes("What it means")
        self.notes = gr.Textbox(label="Keep in mind", interactive=False, visible=False, lines=2, max_lines=12)
        self.sample = gr.Textbox(
            label="Sample of what the model reads", interactive=False, visible=False, lines=4, max_lines=8
        )
        with gr.Row(elem_classes="undertow-figures"):
            self.figures = [_place_for_figure(240) for _ in range(3)]
        self.scores = gr.Dataframe(
            label="Your sentence, and how many of the sentences of known kind lie below it",
            visible=False,
            interactive=False,
            wrap=True,
            buttons=[],
            max_height=900,
            elem_classes="undertow-scores",
        )
        self.table = gr.Dataframe(
            label="Table: percent of each group at each value; fit, low and high are its curve and the band around it",
            visible=False,
            interactive=False,
            max_height=360,
            buttons=[],
        )
        self.download = gr.DownloadButton("Download the table (CSV)", visible=False)

    def _filled(self, one: Preset) -> tuple[str, str, str, str]:
        sentence = one.drift if self._audit == DRIFT else one.specification
        return sentence, one.title, ", ".join(one.values), one.placeholder

    def _listed(self, title: object) -> Any:
        return next((", ".join(one.values) for one in self._presets if one.title == title), gr.skip())

    async def answer(  # noqa: PLR0913, PLR0917 - the fields of the form, as Gradio hands them over
        self,
        sentence: object,
        values: object,
        placeholder: object,
        model: object,
        other: object,
        normalise: object,
        degree: object,
        endpoint_window: object,
        request: gr.Request,
    ) -> AsyncIterator[Updates]:
        """The answer to what stands in the fields: progress as it goes, and the reply or what is to be mended."""
        form = Form(sentence, values, placeholder, model, other, normalise, degree, endpoint_window)
        yield self._panel.begun("Reading the form ...")
        try:
            question = self._page.question(form, self._audit)
            yield {self.sample: gr.Textbox(question.sample(), visible=True)}
            function = lambda job: self._page.answer(question, self._audit, job)  # noqa: E731
            async for said, reply in self._page.progress_of(_owner(request), function):
                yield {self._panel.status: gr.Textbox(said)} if reply is None else self._replied(reply)
        except UndertowError as error:
            yield {
                **self._panel.failed(error),
                self.download: gr.DownloadButton(visible=False),
                **{field: gr.Textbox(visible=False) for field in (self.notes, self.sample)},
                **{table: gr.Dataframe(visible=False) for table in (self.table, self.scores)},
                **{figure: gr.Image(visible=False) for figure in self.figures},
            }

    def _replied(self, reply: ModelReply) -> Updates:
        from undertow.runs.folder.storage import csv_of

        table = self._page.keep(f"undertow-{self._audit}.csv", csv_of(reply.table, "%.6g").encode())
        updates = {
            **self._panel.done(reply.sentence),
            self.notes: gr.Textbox("\n".join(reply.notes), visible=True),
            self.sample: gr.Textbox(reply.sample, visible=True),
            self.table: gr.Dataframe(**_plain_table(reply.table), visible=True),
            self.download: gr.DownloadButton(value=table, visible=True),
        }
        for figure, (png, alt) in zip(self.figures, _drawn(reply), strict=True):
            updates[figure] = gr.Image(self._page.keep("figure.png", png), alt_text=alt, visible=True)
        if reply.scores is not None:
            updates[self.scores] = gr.Dataframe(
                **_plain_table(reply.scores.round(3)), column_widths=["36%", "20%", "22%", "22%"], visible=True
            )
        return updates


def _drawn(reply: ModelReply) -> list[tuple[bytes, str]]:
    """The figures as PNG, each with what it shows in words."""
    from undertow.app.probability_curve import draw_curve, top_percent
    from undertow.report.style import Drawing, png_bytes

    top = top_percent(reply.curves)
    drawings = [
        Drawing(curve.title, draw_curve(curve, reply.labels, place, top), curve.title, curve.alt)
        for place, curve in enumerate(reply.curves)
    ]
    return [(png_bytes(drawing), drawing.alt) for drawing in drawings]


def _plain_table(table: pd.DataFrame) -> dict[str, Any]:
    """A table as cells of text and numbers: whatever stands in one is shown as it is."""
    from undertow.app.model_reply import cells_of

    return {
        "value": cells_of(table.head(MAX_ROWS)),
        "headers": [str(name) for name in table.columns],
        "datatype": "str",
        "column_count": len(table.columns),
    }


class _RunsTab:
    """A tab with the run folders: the list, one of them, and two beside each other."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._panel = _JobPanel(page, "", "Stopping ...")

    def build(self, blocks: Any) -> None:
        gr.Markdown(
            "Runs that `undertow run` and `undertow score` wrote into the folder that this page was started with (`--runs`)."
        )
        self.problem = _problem()
        self.list = gr.Dataframe(
            label="Runs, the newest first", interactive=False, max_height=300, wrap=True, buttons=[]
        )
        look = gr.Button("Look again", size="sm", min_width=110)
        with gr.Row(equal_height=True):
            self.run = gr.Dropdown([], label="Run", scale=3, min_width=220)
            show = gr.Button("Show this run", variant="primary", scale=1, min_width=140)
        self.about = gr.Textbox(label="About this run", interactive=False, visible=False, lines=4, max_lines=8)
        self.findings = gr.Textbox(label="Findings", interactive=False, visible=False, lines=4, max_lines=20)
        with gr.Row(elem_classes="undertow-pages"):
            self.figures = [_place_for_figure(300, "fullscreen") for _ in range(MAX_FIGURES)]
        self.results = gr.Dataframe(label="Results", interactive=False, visible=False, max_height=360, buttons=[])
        with gr.Row():
            self.table = gr.DownloadButton("Download the results (CSV)", visible=False)
            self.report = gr.DownloadButton("Download the report page", visible=False)
        gr.Markdown("## Compare two runs")
        with gr.Row():
            self.baseline = gr.Dropdown([], label="Baseline", min_width=220)
            self.candidate = gr.Dropdown([], label="Beside it", min_width=220)
        self._panel.build_buttons("Compare", min_width=140)
        self._panel.build_boxes("What differs")
        self.differences = gr.Dataframe(
            label="Differences", interactive=False, visible=False, max_height=360, buttons=[]
        )
        self.saved = gr.DownloadButton("Download the differences (CSV)", visible=False)
        self._wire(blocks, look, show)

    def _wire(self, blocks: Any, look: Any, show: Any) -> None:
        quick: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": 2}
        lists = [self.list, self.run, self.baseline, self.candidate, self.problem]
        blocks.load(self.refresh, None, lists, **quick)
        look.click(self.refresh, None, lists, **quick)
        outputs = [self.problem, self.about, self.findings, *self.figures, self.results, self.table, self.report]
        show.click(self.show, [self.run], outputs, **(quick | {"show_progress": "minimal"}))
        self._panel.wire(self.compare, [self.baseline, self.candidate], [self.differences, self.saved], **quick)

    def refresh(self) -> Updates:
        """Refresh the list of runs."""
        said = "There are no runs to show. Make one with undertow run, or start this page with --runs FOLDER."
        try:
            listed = self._page.run_browser.listed()
        except UndertowError as error:
            listed, said = [], str(error)
        names = [one.name for one in listed]
        rows = [[one.name, one.audit, one.model, moment(one.created), str(one.n_items)] for one in listed]
        first, second = (names[place] if len(names) > place else None for place in (0, 1))
        return {
            self.list: gr.Dataframe(
                rows, headers=["run", "audit", "model", "when", "texts"], datatype="str", column_count=5
            ),
            self.run: gr.Dropdown(names, value=first),
            self.baseline: gr.Dropdown(names, value=second),
            self.candidate: gr.Dropdown(names, value=first),
            self.problem: gr.Textbox(said, visible=not names),
        }

    def show(self, name: object) -> Updates:
        """Show a run."""
        from undertow.runs.folder.storage import csv_of

        try:
            run = self._page.run_browser.show(name)
            report = self._page.run_browser.report(name)
        except UndertowError as error:
            return {self.problem: gr.Textbox(str(error), visible=True)}
        more = [f"The first {MAX_ROWS} of {run.n_results} results are shown."] if run.n_results > MAX_ROWS else []
        updates = {
            self.problem: gr.Textbox(visible=False),
            self.about: gr.Textbox("\n".join([*run.about, *more]), visible=True),
            self.findings: gr.Textbox("\n\n".join(run.findings) or "This audit states no findings.", visible=True),
            self.results: gr.Dataframe(**_plain_table(run.results), visible=True),
            self.table: gr.DownloadButton(
                value=self._page.keep("results.csv", csv_of(run.results, "%.6g").encode()), visible=True
            ),
            self.report: gr.DownloadButton(value=self._page.keep("report.html", report), visible=True)
            if report
            else gr.DownloadButton(visible=False),
        }
        for place, figure in enumerate(self.figures):
            png = run.figures[place] if place < len(run.figures) else b""
            updates[figure] = (
                gr.Image(
                    self._page.keep("figure.png", png),
                    alt_text=f"Figure {place + 1} of the run; its results are in the table",
                    visible=True,
                )
                if png
                else gr.Image(visible=False)
            )
        return updates

    async def compare(self, baseline: object, candidate: object, request: gr.Request) -> AsyncIterator[Updates]:
        """Compare two runs."""
        from undertow.runs.folder.storage import csv_of

        yield self._panel.begun("Reading both runs ...")
        function = lambda job: self._page.run_browser.compare(baseline, candidate, job.step("comparing"))  # noqa: E731
        try:
            async for said, comparison in self._page.progress_of(_owner(request), function):
                if comparison is None:
                    yield {self._panel.status: gr.Textbox(said)}
                    continue
                sentence, table = comparison
                yield {
                    **self._panel.done(sentence),
                    self.differences: gr.Dataframe(**_plain_table(table), visible=True),
                    self.saved: gr.DownloadButton(
                        value=self._page.keep("differences.csv", csv_of(table, "%.6g").encode()), visible=True
                    ),
                }
        except UndertowError as error:
            yield {
                **self._panel.failed(error),
                self.differences: gr.Dataframe(visible=False),
                self.saved: gr.DownloadButton(visible=False),
            }
