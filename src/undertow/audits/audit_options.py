"""Keyword options of `undertow.audit`, typed for each audit, for type checkers and editors.

Each class has the fields of an audit's `Settings`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from undertow.data.in_memory import Table

Text: TypeAlias = str | Path | Sequence[str | int | float | Path]
"""A text option: the text itself, a path, or a list that is joined by commas."""
Challenge: TypeAlias = Text | Mapping[str, Any] | Table
"""A challenge by name or file, the content of a challenge file as a dict, or a pandas table with a row per sentence."""

Lists: TypeAlias = Text | Mapping[str, Sequence[str | int | float]]
"""W lists by name or file, or a dict of names and values."""


class ModelOptions(TypedDict, total=False):
    """Options of the model families of the package."""

    base_url: str
    concurrency: int
    grammar: str
    max_api_tokens: int
    max_requests: int
    mode: str
    retries: int
    timeout_s: float
    top_logprobs: int


class RunOptions(ModelOptions, total=False):
    """Options that every audit takes."""

    tokenizer: Any
    model_name: str
    revision: str
    dtype: str
    device: str
    preset: str
    protocol: str
    seed: int
    limit: int
    model_info: str | Path
    system: str | Path
    graph: str | Path
    float32_sample: int
    engine: str
    ray_address: str
    workers: int
    out: str | Path | None
    overwrite: bool
    progress: Callable[[int, int], None]


class BiasDiagnosisOptions(RunOptions, total=False):
    """Options of `bias-diagnosis`, which all audits of bias in text take."""

    challenge: Challenge
    n_documents: int
    classes: Text
    wordings: int
    shot_wordings: int
    description_file: Text
    shots: Text
    draws: int
    chat: bool
    max_new_tokens: int


class BiasIdentificationOptions(BiasDiagnosisOptions, total=False):
    """Options of `bias-identification`."""

    shot_selection: Text


class BiasExtractionOptions(BiasDiagnosisOptions, total=False):
    """Options of `bias-extraction`."""

    temperature: float
    top_k: int
    line_ends: bool
    decoding: Text


class BiasRephrasingOptions(BiasExtractionOptions, total=False):
    """Options of `bias-rephrasing`."""

    rephrasings: Text


class OccupationChecklistOptions(RunOptions, total=False):
    """Options of `occupation-checklist`."""

    n_pairs: int
    n_occupations: int
    occupation_names: Text
    name_pair_file: Text
    occupation_file: Text
    onet: Text
    contexts: Text
    grants: Text
    wordings: int
    question_file: Text
    negated: bool
    decision: Text
    margin: float
    query_type: Text
    chat: bool
    max_new_tokens: int


class SentenceOptions(RunOptions, total=False):
    """Options of the audits that put W into sentences."""

    challenge: Challenge
    data_dir: Text
    options: Text
    w: Lists
    inject: Text
    date_start: int
    date_stop: int
    date_count: int
    prompts: Text
    prompt_mask: Text
    chat: bool
    max_new_tokens: int


class SpuriousCorrelationOptions(SentenceOptions, total=False):
    """Options of `spurious-correlation`."""

    w_scale: Text
    words: Text


class TaskSpecificationOptions(SentenceOptions, total=False):
    """Options of `task-specification`."""

    words: Text
    endpoint_window: int
    threshold: float
    entropy_baseline: bool
    trace_occupation: Text


class AnyAuditOptions(
    BiasIdentificationOptions,
    BiasRephrasingOptions,
    OccupationChecklistOptions,
    SpuriousCorrelationOptions,
    TaskSpecificationOptions,
    total=False,
):
    """Options of all audits of the package, for a name that is not a literal."""
