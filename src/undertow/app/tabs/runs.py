"""The tab with the run folders: the list, the report of one of them, and two compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app.run_browser import RunListing
from undertow.app.tabs import components as ui
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.app.page_jobs import PageJobs

_NONE = "There are no runs yet. Run an audit in one of the other tabs or with undertow run, or start this page with --runs FOLDER."
_ALONE = "no other run has the same questions"


class RunsTab:
    """The tab: the load event of the blocks fills the list, and the select event of the tab fills it again."""

    def __init__(self, page: PageJobs, blocks: Any, tab: Any) -> None:
        self._page, self._panel = page, ui.WorkPanel(page)
        gr.Markdown("Runs of this page, of `undertow run` and of `undertow score`. Click one to see its report.")
        self.problem = ui.problem_box()
        self.list = gr.Radio([], label="Runs, the newest first", elem_classes="undertow-runs")
        refresh = gr.Button("Refresh", size="sm", min_width=110)
        self.about = ui.text_box("About this run")
        self.report = ui.ReportView()
        self.table = gr.DownloadButton("Download the results (CSV)", visible=False)
        gr.Markdown("## Compare two runs")
        with gr.Row():
            self.baseline = gr.Dropdown([], label="Baseline", filterable=False, min_width=220)
            info = "Runs with the same kind of questions."
            self.candidate = gr.Dropdown([], label="Candidate", info=info, filterable=False, min_width=220)
        self._panel.build_buttons("Compare")
        self._panel.build_boxes("What differs")
        self.differences = ui.table_view("Differences")
        self.saved = gr.DownloadButton("Download the differences (CSV)", visible=False)
        lists = [self.list, self.baseline, self.candidate, self.problem]
        blocks.load(self.refresh, None, lists, **ui.QUICK)
        # Gradio sends an object with a select event, which requests refuse; the event after it has none.
        for event in (tab.select(None).then, refresh.click):
            event(self.refresh, [self.list, self.baseline, self.candidate], lists, **ui.QUICK)
        outputs = [self.problem, self.about, self.table, self.report.view]
        self.list.input(self.show, [self.list], outputs, **{**ui.QUICK, "show_progress": "minimal"})
        self.baseline.input(self.candidates, [self.baseline], [self.candidate], **ui.QUICK)
        self._panel.wire([self.compare], [self.baseline, self.candidate], [self.differences, self.saved])

    def refresh(self, chosen: Any = None, baseline: Any = None, candidate: Any = None) -> ui.Updates:
        """Read the list of runs again; chosen runs stay chosen."""
        problem = _NONE
        try:
            listed = self._page.run_browser.list_runs()
        except UndertowError as error:
            listed, problem = [], str(error)
        names = [one.name for one in listed]
        pairs = {one: others for one in listed if (others := [other for other in listed if one.is_comparable(other)])}
        # By default the newest run is the candidate, and the baselines are runs that are comparable with it.
        newest = next((others[0] for others in pairs.values()), None)
        kept = next((one for one in pairs if one.name == baseline), newest)
        return {
            self.list: gr.Radio([(one.title, one.name) for one in listed], value=chosen if chosen in names else None),
            self.baseline: gr.Dropdown(_choices(pairs), value=kept and kept.name),
            self.candidate: self._candidates(pairs.get(kept, []) if kept else [], candidate),
            self.problem: gr.Textbox(problem, visible=not listed),
        }

    def candidates(self, name: object) -> Any:
        """Runs that are comparable with a baseline."""
        try:
            listed = self._page.run_browser.list_runs()
        except UndertowError:
            return gr.skip()
        baseline = next((one for one in listed if one.name == name), None)
        return self._candidates([one for one in listed if baseline is not None and baseline.is_comparable(one)])

    def _candidates(self, runs: list[RunListing], chosen: Any = None) -> Any:
        names = [one.name for one in runs]
        first = chosen if chosen in names else "".join(names[:1])
        return gr.Dropdown(_choices(runs) or [(_ALONE, "")], value=first)

    def show(self, name: Any) -> ui.Updates:
        """Show a run."""
        try:
            about, results = self._page.run_browser.show(name)
        except UndertowError as error:
            hidden = {one: ui.hide(one) for one in (self.about, self.table, self.report.view)}
            return {self.problem: ui.show(str(error)), **hidden}
        return {
            self.problem: ui.hide(self.problem),
            self.about: ui.show("\n".join(about)),
            self.table: self._page.download("results.csv", results),
            **self.report.show(str(name)),
        }

    def compare(
        self,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008 - Gradio knows its arguments by type and default
        baseline: Any = None,
        candidate: Any = None,
    ) -> ui.Updates:
        """Compare two runs."""
        runs = self._page.run_browser
        try:
            text, table = self._page.work(
                request, progress, lambda step: runs.compare(baseline, candidate, step("Comparing"))
            )
        except UndertowError as error:
            return self._panel.show_error(error, [self.differences, self.saved])
        saved = self._page.download("differences.csv", table)
        return {**self._panel.show_outcome(text), self.differences: ui.show_table(table), self.saved: saved}


def _choices(runs: Any) -> list[tuple[str, str]]:
    return [(f"{one.short_title} · {one.name}", one.name) for one in runs]
