"""What a run of an audit of bias in text holds."""

from typing import Literal

from undertow.audits.record_schema import REPLY_COLUMNS, AnyDesign, RecordSchema, Texts, columns, strict

REQUIRED = (
    "item", "model", "missing_reason", "cluster", "document", "dimension", "gold", "passage", "description_class", "wording",
    "shots", "sampling", "draw", "decoding", "answer", "n_dropped_shots",
)  # fmt: skip


@strict
class TextDesign(AnyDesign, total=False):
    """Design of an audit of bias in text."""

    task: Literal["bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"]
    labels: Texts
    title: str
    source: str
    document_notes: Texts
    documents_sha256: str
    sampled: bool


SCHEMA = RecordSchema(
    TextDesign,
    REPLY_COLUMNS
    | columns(
        "item model document gold description_class decoding cluster",
        empty="dimension text passage wording sampling answer missing_reason",
        numbers="nats yes_percent",
        whole="shots draw n_shots n_dropped_shots",
    ),
    REQUIRED,
)
