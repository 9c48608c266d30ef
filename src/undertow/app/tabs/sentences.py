"""The tabs in which a visitor types sentences: spurious correlation and task specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from undertow.app import sentence_parser
from undertow.app.audit_request import MAX_LIMIT, of_challenge
from undertow.app.forms import DEGREES, DRIFT, MAX_ENDS, SPECIFICATION, Form, Preset, presets, read_form
from undertow.app.tabs import components as ui
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.app.audit_request import AuditRequest
    from undertow.app.forms import Question
    from undertow.app.model_reply import ModelReply
    from undertow.app.page_jobs import PageJobs

TITLES = {DRIFT: "Spurious correlation", SPECIFICATION: "Task specification"}
_ABOUT = {
    DRIFT: "Put dates, places or any list of values into sentences. The values do not determine who the sentence is about; if pronouns, or "
    "words of your own, still depend on them, the model learned a spurious correlation.",
    SPECIFICATION: "Does the sentence itself determine the pronoun? If the answer moves with a value that should not matter, it "
    "probably does not. Your sentence is compared with 480 labelled sentences; scoring these takes "
    "a while the first time.",
}
_OWN = "My own"
_NO_ANSWER = "The model's answer appears here."


class SentenceTab:
    """A tab with a form and its answer, for the audit `DRIFT` or `SPECIFICATION`."""

    def __init__(self, page: PageJobs, audit: str) -> None:
        self._page, self._audit = page, audit
        self._presets = presets(audit)
        self._panel = ui.AuditPanel(page, _NO_ANSWER)
        gr.Markdown(_ABOUT[audit])
        with gr.Row(elem_classes="undertow-examples"):
            examples = [gr.Button(f"Example: {one.title.lower()}", size="sm", min_width=90) for one in self._presets]
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self._build_form(self._presets[0])
            with gr.Column(scale=3, min_width=300):
                self._build_answer()
        chosen = [self.sentence, self.preset, self.values, self.placeholder, self.words]
        for button, one in zip(examples, self._presets, strict=True):
            filled = one.sentence, one.title, ", ".join(one.covariate.values), one.placeholder, ""
            button.click(lambda filled=filled: filled, None, chosen, **ui.QUICK)
        values = {one.title: ", ".join(one.covariate.values) for one in self._presets}
        titles = {text: title for title, text in values.items()}
        self.preset.input(lambda title: values.get(title, gr.skip()), [self.preset], [self.values], **ui.QUICK)
        # A text field has `input` for typed characters only, and `change` for those that are pasted or deleted, too.
        last: dict[str, Any] = {"trigger_mode": "always_last", **ui.QUICK}
        self.values.change(lambda text: titles.get(text, _OWN), [self.values], [self.preset], **last)
        read = [self.sentence, self.placeholder, self.words]
        for one in read:
            one.change(self.read, read, [self.reading], **last)
        fields = [*read, self.values, *self.models.fields, self.normalise, self.degree, self.ends]
        self._rest = [*self.figures, self.scores, self.sentences, self.details, self.notes, self.table, self.download]
        # An audit asks all values of the list, which are at most `MAX_LIMIT` texts.
        run_audit = self._panel.handler(self._audit_request, self._rest)
        works: list[Any] = [self.answer, run_audit] if audit == DRIFT else [self.answer]
        self._panel.wire(works, fields, [*self._rest, self._panel.report.view], [self.reading])

    def _build_form(self, one: Preset) -> None:
        is_drift = self._audit == DRIFT
        several = f"One per line, at most {sentence_parser.MAX_SENTENCES}. " if is_drift else ""
        self.sentence = ui.field(
            "Sentences" if is_drift else "Sentence",
            one.sentence,
            sentence_parser.MAX_TEXT_CHARS if is_drift else sentence_parser.MAX_SENTENCE_CHARS,
            f"{several}The model fills the pronouns (she, he, they, her ...), or one blank, written as three underscores.",
            lines=2,
            max_lines=10,
        )
        in_front = "" if is_drift else " Without it, values go in front: In 1901: ..."
        info = f"The word of your sentence that the values replace.{in_front}"
        self.placeholder = ui.field("Placeholder", one.placeholder, sentence_parser.MAX_PLACEHOLDER_CHARS, info)
        info = "Empty for pronouns. Or one group per line for the blank, such as kind: gentle, patient"
        self.words = ui.field(
            "Word groups of your own", "", sentence_parser.MAX_WORDS_CHARS, info, lines=1, max_lines=6
        )
        self.reading = ui.text_box("Preview", value=self.read(one.sentence, one.placeholder, ""), visible=True)
        self.reading.info = "If a form is ambiguous, write which you mean: her/him or her/his."
        orders = "; ".join(f"{preset.title}: {preset.covariate.order}" for preset in self._presets)
        titles = [*(preset.title for preset in self._presets), _OWN]
        self.preset = gr.Radio(titles, value=one.title, label="Values", info=f"In order. {orders}.")
        self.values = ui.field(
            "List of values",
            ", ".join(one.covariate.values),
            sentence_parser.MAX_LIST_CHARS,
            f"In order, comma-separated; at most {sentence_parser.MAX_VALUES}. You can edit the list. "
            "Numbers are used as numbers.",
            lines=3,
            max_lines=6,
        )
        self.models = ui.ModelFields(self._page)
        with gr.Accordion("More settings", open=False):
            info = "On: shares of the listed words. Off: probabilities among all words."
            self.normalise = gr.Checkbox(value=True, label="Normalise", info=info)
            info = "1 is a straight line."
            self.degree = gr.Radio(list(DEGREES), value=1, label="Degree of the fit", info=info)
            info = "The movement is between the means of this many first and last values."
            self.ends = gr.Slider(
                1, MAX_ENDS, value=1, step=1, label="Endpoint window", info=info, visible=not is_drift
            )
        self._panel.build_buttons("Ask the model", *(["Run as an audit"] if is_drift else []))

    def _build_answer(self) -> None:
        self._panel.build_boxes("What it means")
        with gr.Row(elem_classes="undertow-figures"):
            size: dict[str, Any] = {"min_width": 240, "type": "filepath", "format": "png", "buttons": ["fullscreen"]}
            n = sentence_parser.MAX_GROUPS
            self.figures = [gr.Image(visible=False, interactive=False, show_label=False, **size) for _ in range(n)]
        label = "Your sentence, and the share of labelled sentences with lower scores"
        self.scores = ui.table_view(label, wrap=True, max_height=900, elem_classes="undertow-scores")
        self.sentences = ui.table_view(
            "Sentences: effect is the change of the first group minus the second over the list, in points",
            wrap=True,
            elem_classes="undertow-scores",
        )
        with gr.Accordion("Numbers and notes", open=False, visible=False) as self.details:
            self.notes = ui.text_box("How it was read")
            label = "Percent of each group at each value, with the fitted curve and its band (low, high)"
            self.table = ui.table_view(label)
            self.download = gr.DownloadButton("Download the table (CSV)", visible=False)

    def read(self, sentences: object, placeholder: object, words: object) -> str:
        """Typed sentences as parsed, or the error."""
        if not isinstance(sentences, str) or not isinstance(placeholder, str) or not isinstance(words, str):
            return ""
        try:
            patterns = sentence_parser.read_sentences(sentences, placeholder, sentence_parser.read_words(words))
        except UndertowError as error:
            return str(error)
        return "\n".join(pattern.reading(placeholder.strip()) for pattern in patterns)

    def _question(self, fields: tuple[Any, ...]) -> Question:
        return read_form(Form.from_fields(fields), self._page.allowed_models, self._audit)

    def answer(
        self,
        request: gr.Request,
        progress: gr.Progress = gr.Progress(),  # noqa: B008 - Gradio knows its arguments by type and default
        *fields: Any,
    ) -> Iterator[ui.Updates]:
        """The answer to the form: first the parsed sentences, then the reply or the error."""
        report = self._panel.report.view
        try:
            question = self._question(fields)
            yield {self.reading: ui.show(question.reading()), report: ui.hide(report)}
            job = partial(self._page.replies, question, self._audit)
            yield self._show_replies(question, self._page.work(request, progress, job))
        except UndertowError as error:
            yield self._panel.show_error(error, [*self._rest, report])

    def _audit_request(self, *fields: Any) -> AuditRequest:
        question = self._question(fields)
        return of_challenge(question.challenge(), question.models, MAX_LIMIT)[0]

    def _show_replies(self, question: Question, replies: Mapping[str, ModelReply]) -> ui.Updates:
        from undertow.app.probability_curve import drawings
        from undertow.report.style import image_bytes

        first, *others = replies.values()
        named = {label: f"{label}: " if others else "" for label in replies}
        lines = [f"{named[label]}{reply.sentence}" for label, reply in replies.items()]
        lines += _labelled({named[label]: reply.caveats for label, reply in replies.items()})
        notes = _labelled({named[label]: reply.notes for label, reply in replies.items()})
        table = _concatenate(replies, "table")
        updates = {
            **self._panel.show_outcome("\n\n".join(lines)),
            self.details: gr.Accordion(visible=True),
            self.notes: ui.show("\n".join(notes)),
            self.table: ui.show_table(table),
            self.download: self._page.download(f"undertow-{self._audit}.csv", table),
            **{one: ui.hide(one) for one in (*self.figures, self.sentences, self.scores)},
        }
        curves = {label: reply.curves for label, reply in replies.items()}
        for figure, drawing in zip(self.figures, drawings(curves, question.covariate), strict=False):
            path = self._page.keep("figure.png", image_bytes(drawing.figure, "png"))
            updates[figure] = gr.Image(path, alt_text=drawing.alt, visible=True)
        if first.sentences is not None:
            updates[self.sentences] = ui.show_table(
                _concatenate(replies, "sentences"), column_widths=None if others else ["46%", "18%", "18%", "18%"]
            )
        if first.scores is not None:
            updates[self.scores] = ui.show_table(
                _concatenate(replies, "scores").round(3), column_widths=None if others else ["36%", "20%", "22%", "22%"]
            )
        return updates


def _concatenate(replies: Mapping[str, ModelReply], name: str) -> pd.DataFrame:
    """The tables of this name of several models, concatenated with a column for the model; for one model unchanged."""
    import pandas as pd

    tables = {label: getattr(reply, name) for label, reply in replies.items()}
    known: dict[str, pd.DataFrame] = {label: table for label, table in tables.items() if table is not None}
    if len(known) == 1:
        return next(iter(known.values()))
    return pd.concat([table.assign(model=label)[["model", *table.columns]] for label, table in known.items()])


def _labelled(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of several models with the model in front; common lines once."""
    merged: list[str] = []
    for line in dict.fromkeys(line for own in lines.values() for line in own):
        labels = [label for label, own in lines.items() if line in own]
        merged += [line] if len(labels) == len(lines) else [f"{label}{line}" for label in labels]
    return merged
