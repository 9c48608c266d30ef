"""Design and columns of the audits of sentences with word groups."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from undertow.audits.record_schema import LARGEST, REPLY_COLUMNS, AnyDesign, Number, Texts, columns, strict


@strict
class CovariatePart(TypedDict):
    """One of two crossed W lists."""

    name: str
    values: Texts
    axis: list[Number]
    order: str
    scale: str
    unit: str
    uneven: bool


@strict
class Covariate(TypedDict, total=False):
    """One W list."""

    order: str
    scale: str
    unit: str
    uneven: bool
    parts: Annotated[list[CovariatePart], Field(min_length=2, max_length=2)]


@strict
class WordDesign(AnyDesign, total=False):
    """Design of an audit of word groups."""

    groups: Annotated[Texts, Field(min_length=1)]
    gaps: list[Annotated[Texts, Field(min_length=2, max_length=2)]]
    title: str
    source: str
    normalised: bool
    lower_bounds: Texts  # models whose masses of word groups are lower bounds
    notes: Texts
    covariates: dict[str, Covariate]
    inject: str
    endpoint_window: Annotated[int, Field(ge=1, le=LARGEST)]
    threshold: Number


SENTENCE_COLUMNS = REPLY_COLUMNS | columns(
    "item model challenge part w_name w cluster",
    empty="prompt text missing_reason",
    numbers="w_value truncated_prob",
    whole="w_index",
)
REQUIRED = ("item", "model", "missing_reason", "cluster", "challenge", "prompt", "w_name", "w_index", "w")
