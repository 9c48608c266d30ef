"""What a run of the occupation checklist holds."""

from typing import Annotated, Literal

from pydantic import Field

from undertow.audits.record_schema import REPLY_COLUMNS, AnyDesign, Number, RecordSchema, Texts, columns, strict

REQUIRED = (
    "item", "model", "missing_reason", "cluster", "question_type", "pair", "woman", "man", "occupation", "context", "attribute",
    "order", "subject", "wording", "answer",
)  # fmt: skip


@strict
class ChecklistDesign(AnyDesign, total=False):
    """Design of the occupation checklist."""

    margin: Number
    greedy: bool
    query_type: str
    title: str
    source: str
    notes: Texts
    female_percent: dict[str, Number]
    attributes: dict[str, Texts]
    questions: str
    pair_groups: Annotated[Texts, Field(min_length=2, max_length=2)]
    grants: Literal["random"]


SCHEMA = RecordSchema(
    ChecklistDesign,
    REPLY_COLUMNS
    | columns(
        "item model question_type pair woman man occupation soc_code context attribute_donor attribute category order subject "
        "attribute_holder gold query_type cluster",
        empty="text answer missing_reason",
        numbers="yes female male both neither",
        whole="wording",
        truth="whole",
    ),
    REQUIRED,
    earlier_answers=("granted_female", "granted_male"),
)
