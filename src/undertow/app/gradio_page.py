"""The page of `undertow app`: audit sentences of your own, run audits, and browse runs; its tabs are in `undertow.app.tabs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from undertow.app.forms import DRIFT, SPECIFICATION
from undertow.app.page_jobs import PageJobs
from undertow.app.tabs import components
from undertow.app.tabs.audits import ChallengeTab, ChecklistTab, TextTab
from undertow.app.tabs.runs import RunsTab
from undertow.app.tabs.sentences import TITLES, SentenceTab

MAX_WAITING = 4
"""Maximum number of waiting questions; one more runs, and Gradio refuses further ones."""


def mount(page: PageJobs, app: Any, visitor: Callable[[Any], str | None]) -> int:
    """Add the page to a FastAPI application, without the parts of Gradio that it does not use.

    `visitor` gives the name of the sender of a request; None for a stranger. Returns the number of handlers of the page.
    """
    # Fonts of the system: Gradio's own themes fetch theirs from elsewhere.
    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["monospace"], primary_hue="blue")
    labels = {"block_info_text_color": "*neutral_600", "block_info_text_color_dark": "*neutral_300"}
    theme.set(**labels, block_label_text_color="*neutral_800")
    blocks = _build(page)
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


def _build(page: PageJobs) -> Any:
    with gr.Blocks(title="Undertow", analytics_enabled=False, delete_cache=(600, 3600)) as blocks:
        gr.Markdown(
            "# Undertow\nWhat affects a model's answer if the question does not determine it? "
            "Write sentences and see how the model's words depend on a date or place, or run an audit."
        )
        with gr.Tabs():
            for audit in (DRIFT, SPECIFICATION):
                with gr.Tab(TITLES[audit], id=audit):
                    SentenceTab(page, audit)
            of_audits = {"Challenge file": ChallengeTab, "Bias in text": TextTab, "Occupations": ChecklistTab}
            for title, build in of_audits.items():
                with gr.Tab(title):
                    build(page)
            with gr.Tab("Runs") as tab:
                RunsTab(page, blocks, tab)
        blocks.unload(page.halt)
    return blocks.queue(max_size=MAX_WAITING, api_open=False, default_concurrency_limit=1)
