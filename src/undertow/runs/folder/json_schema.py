"""Schemas of a run folder's JSON files, so that an invalid field is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from undertow._schemas import first_problem

LARGEST = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Texts = list[str]
Fact = str | bool | Number | None
Facts = dict[str, Fact]
strict = with_config(ConfigDict(strict=True))


@strict
class Identity(TypedDict):
    """A model's identity."""

    name: str
    family: str
    source: str
    revision: str
    dtype: str
    scoring_method: str


@strict
class Part(TypedDict):
    """One of several models."""

    name: str
    identity: Identity
    facts: Facts
    scoring_method: str
    counts: dict[str, Count]
    notes: Texts


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
class Decided(TypedDict):
    """Result of the sanity check: numbers of right and of all answers; the rest for control sentences of a challenge file."""

    right: Count
    of: Count
    chance_percent: NotRequired[Number]
    better_than_chance: NotRequired[bool]


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
class Graph(TypedDict):
    """The causal graph of the findings."""

    name: str
    title: str
    source: str
    text: str


@strict
class Unread(TypedDict):
    """A model in reduced precision without a float32 sample."""

    model: str
    dtype: str
    of_items: Count
    unknown: str


@strict
class ReadAgain(TypedDict):
    """A model in reduced precision with its float32 sample."""

    model: str
    dtype: str
    of_items: Count
    items: Count
    turned_percent: Number | None
    rms_nats: Number | None
    largest_nats: Number | None
    difference_over_halfwidth: NotRequired[Number | None]


@strict
class Precision(TypedDict):
    """The effect of reduced precision."""

    models: list[ReadAgain | Unread]
    sentences: Texts
    could_change: Texts
    beyond_interval: Count
    unknown_results: Count


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


@strict
class WordDesign(AnyDesign, total=False):
    """Design of an audit of word groups."""

    groups: Annotated[Texts, Field(min_length=1)]
    gaps: list[Annotated[Texts, Field(min_length=2, max_length=2)]]
    title: str
    source: str
    normalised: bool
    notes: Texts
    covariates: dict[str, Covariate]
    inject: str
    endpoint_window: Annotated[int, Field(ge=1, le=LARGEST)]
    threshold: Number


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


@strict
class Manifest(TypedDict):
    """The manifest."""

    schema_version: Annotated[int, Field(ge=1, le=LARGEST)]
    audit: str
    model: str
    design: dict[str, Any]
    run_key: str
    request_key: str
    seed: Count
    protocol: str
    command: str
    python: str
    created: str
    versions: dict[str, str]
    machine: dict[str, str | Count | None]
    model_identity: NotRequired[Identity]
    models: NotRequired[Annotated[list[Part], Field(min_length=1)]]
    facts: NotRequired[Facts]
    settings: NotRequired[dict[str, Any]]
    recorded: NotRequired[str]
    limit: NotRequired[Count]
    challenge_sha256: NotRequired[str]
    challenge_file: NotRequired[str]
    model_info_sha256: NotRequired[str]
    code_sha256: NotRequired[str]
    counts: NotRequired[dict[str, Count]]
    notes: NotRequired[Texts]
    graph: NotRequired[Graph]
    engine: NotRequired[dict[str, Any]]
    precision: NotRequired[Precision]
    sanity_check: NotRequired[dict[str, Decided]]
    timing: NotRequired[dict[str, Number]]
    results_sha256: NotRequired[str]


@strict
class Row(TypedDict):
    """One result."""

    measure: str
    group: dict[str, str]
    value: Number | None
    low: Number | None
    high: Number | None
    null_value: Number | None
    p: Number | None
    q: Number | None
    n: Count
    n_missing: Count
    unit: str
    extras: NotRequired[dict[str, Number | None]]
    note: NotRequired[str]


@strict
class Results(TypedDict):
    """The results of a run."""

    results: list[Row]


_TEXTS = ("bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing")
_DESIGNS: Mapping[str, TypeAdapter[Any]] = {
    "spurious-correlation": (of_words := TypeAdapter(WordDesign)),
    "task-specification": of_words,
    "occupation-checklist": TypeAdapter(ChecklistDesign),
    **dict.fromkeys(_TEXTS, TypeAdapter(TextDesign)),
}
_MANIFEST, _RESULTS, _ANY = TypeAdapter(Manifest), TypeAdapter(Results), TypeAdapter(AnyDesign)


def wrong_in_manifest(manifest: Mapping[str, Any]) -> str:
    """The first missing or invalid field of a manifest; "" if there is none."""
    return wrong_field(_MANIFEST, manifest) or wrong_in_design(manifest["audit"], manifest["design"])


def wrong_in_design(audit: str, design: Mapping[str, Any]) -> str:
    """The first invalid field of a design; "" if there is none."""
    return wrong_field(_DESIGNS.get(audit, _ANY), design, "design.")


def wrong_in_results(results: Mapping[str, Any]) -> str:
    """The first invalid field of results; "" if there is none."""
    return wrong_field(_RESULTS, results)


def wrong_field(schema: TypeAdapter[Any], value: object, above: str = "") -> str:
    """The first invalid field and the reason; "" if there is none."""
    try:
        schema.validate_python(value)
    except ValidationError as error:
        return first_problem(error, above, is_json=True)
    return ""
