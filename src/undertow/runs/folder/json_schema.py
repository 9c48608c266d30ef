"""Schemas of a run folder's JSON files, so that an invalid field is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from undertow._schemas import adapter_of, first_problem
from undertow.audits import schema_of
from undertow.audits.record_schema import LARGEST, Count, Facts, Number, Texts, strict


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
    warnings: NotRequired[Texts]


@strict
class Decided(TypedDict):
    """Result of the sanity check: numbers of right and of all answers; the rest for control sentences of a challenge file."""

    right: Count
    of: Count
    chance_percent: NotRequired[Number]
    better_than_chance: NotRequired[bool]


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
    unstable: Texts
    beyond_interval: Count
    unknown_results: Count


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
    warnings: NotRequired[Texts]
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


def wrong_in_manifest(manifest: Mapping[str, Any]) -> str:
    """The first missing or invalid field of a manifest; "" if there is none."""
    return wrong_field(Manifest, manifest) or wrong_in_design(manifest["audit"], manifest["design"])


def wrong_in_design(audit: str, design: Mapping[str, Any]) -> str:
    """The first invalid field of a design; "" if there is none."""
    return wrong_field(schema_of(audit).design, design, "design.")


def wrong_field(schema: Any, value: object, above: str = "") -> str:
    """The first invalid field and the reason; "" if there is none."""
    try:
        (schema if isinstance(schema, TypeAdapter) else adapter_of(schema)).validate_python(value)
    except ValidationError as error:
        return first_problem(error, above, is_json=True)
    return ""
