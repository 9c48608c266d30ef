"""What the run folder of an audit holds: its design in the manifest, and the columns of its observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

LARGEST = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Texts = list[str]
Facts = dict[str, str | bool | Number | None]
strict = with_config(ConfigDict(strict=True))

TEXT, NUMBER, WHOLE, TRUTH = "text", "numbers", "whole numbers", "true or false"


class Column(NamedTuple):
    """The type of a column, and whether it may be missing in all rows."""

    kind: str
    may_be_empty: bool = True


def columns(text: str = "", empty: str = "", numbers: str = "", whole: str = "", truth: str = "") -> dict[str, Column]:
    """Columns by name; each argument has the names of one type, and `empty` those of text that may be empty in all rows."""
    kinds = {text: Column(TEXT, may_be_empty=False), empty: Column(TEXT), numbers: Column(NUMBER), truth: Column(TRUTH)}
    kinds[whole] = Column(WHOLE, may_be_empty=False)
    return {name: column for names, column in kinds.items() for name in names.split()}


REPLY_COLUMNS = columns(empty="reply reply_outcome", numbers="first_token_low first_token_high reply_cut_at")
"""Of every audit, where replies were read."""


@strict
class Control(TypedDict):
    """A control sentence; for a challenge file with its group and the group that the model prefers."""

    prompt: str
    text: str
    missing_reason: str
    other_words: Number | None
    gold: NotRequired[str]
    preferred: NotRequired[str]


@strict
class AnyDesign(TypedDict, total=False):
    """Entries that a run adds to the design of every audit."""

    protocol: str
    w_notes: Texts
    limitations: Texts
    words: dict[str, Texts]
    prompts: dict[str, str]
    prompt_masks: dict[str, Any]
    scoring_method: str
    scoring_methods: dict[str, str]
    models: dict[str, Facts]
    controls: dict[str, list[Control]]
    tokens_of_word: dict[str, dict[str, Count]]


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What is checked when a run of an audit is read.

    Attributes:
        design: a `TypedDict` of the design.
        columns: columns of the observations, without those of the design's word groups; {} to check none.
        required: columns that every run has; () if two compared runs must have the same ones instead.
        shares_only: whether its metrics use the word groups' shares alone, so that runs with other scoring methods are comparable.
        earlier_answers: columns of earlier answers that are part of a question, whose text may differ if they do.
    """

    design: Any = AnyDesign
    columns: Mapping[str, Column] = field(default_factory=dict)
    required: Sequence[str] = ()
    shares_only: bool = False
    earlier_answers: Sequence[str] = ()
