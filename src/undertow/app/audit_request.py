"""Audits of a visitor: of typed sentences, of a pasted challenge file, or a small one of another kind.

An audit writes a run folder into the operator's folder of runs, as `undertow run` does. The text of a challenge, its items,
words and controls, and the items of the audit are limited before the model is queried; what cannot be used raises an UndertowError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow import audits, data
from undertow._files import parse_toml
from undertow.app.forms import DRIFT, SPECIFICATION
from undertow.app.sentence_parser import BLANK_TEXT
from undertow.audits.base import Sampling
from undertow.data.in_memory import save_challenge
from undertow.data.templates.template import Template
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest
from undertow.runs.config import RunConfig
from undertow.runs.finished_run import Run
from undertow.runs.pipeline import run_audit
from undertow.types import ClozeQuery, Progress

MAX_CHALLENGE_CHARS = 60_000
MAX_ITEMS = 50_000
"""Maximum number of items of a challenge before sampling: sentences times values."""
MIN_LIMIT, MAX_LIMIT, DEFAULT_LIMIT = 48, 2_000, 400
MAX_CONTROLS, MAX_FORMS = 100, 200
"""Maximum number of control sentences, and of words of all groups, of a challenge."""
INJECTION = "In {w}: "
W_LISTS = ("date", "place", "subreddit")
"""W lists that a pasted challenge can name; other names could be files of this machine."""
MAX_TASK_DOCUMENTS, MAX_PAIRS, MAX_OCCUPATIONS = 40, 8, 8
TASKS: Mapping[str, str] = {
    "Identification: which dimension of bias a text has": "bias-identification",
    "Extraction: where in the text the bias is": "bias-extraction",
    "Diagnosis: whether a text is biased": "bias-diagnosis",
    "Rephrasing: the text without its bias": "bias-rephrasing",
}
_N_PREVIEW = 8


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """An audit requested by a visitor.

    Attributes:
        models: arguments of `undertow.models.resolve`, by label.
        options: of the audit.
        limit: maximum number of items for each model; 0 if the options bound them.
    """

    audit: str
    models: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int = 0

    def run(self, runs: Path, request: ModelRequest, progress: Progress) -> Run:
        """Run it and write its folder into the folder `runs`."""
        loading = {"revision": request.revision, "dtype": request.dtype, "device": request.device}
        keywords = {**loading, **request.settings, **self.options, "limit": self.limit}
        named = [name if label == name else f"{label}={name}" for label, name in self.models.items()]
        config = RunConfig.from_keywords(self.audit, named, keywords)
        return run_audit(config, None, progress, overwrite=False, runs=runs)


def of_challenge(challenge: Mapping[str, Any], models: Mapping[str, str], limit: int) -> tuple[AuditRequest, str]:
    """An audit of a challenge, and a preview of its items.

    Labelled sentences (`well_specified`) without `{w}` are audited for task specification, with dates; others for spurious correlation,
    with the values of the challenge, or else dates, in front of templates without `{w}`.
    """
    path = save_challenge(challenge)
    try:
        chosen = data.load(str(path))
        _check_size(len(chosen.controls), MAX_CONTROLS, "control sentences")
        _check_size(len(chosen.words.forms), MAX_FORMS, "words")
        has_place = ["w" in template.holes() for template in chosen.templates]
        is_known = all("well_specified" in template.factors for template in chosen.templates)
        name = SPECIFICATION if is_known and not any(has_place) else DRIFT
        if name == SPECIFICATION and "w" in challenge:
            raise UndertowError(
                "The challenge has labelled sentences, which are audited with dates; leave w out, or write {w} in the templates."
            )
        if name == DRIFT and not all(has_place):
            # Templates without {w} get it in front, and a challenge without values dates.
            entries = [dict(one) if isinstance(one, Mapping) else {"text": one} for one in challenge["templates"]]
            for entry in entries:
                if "w" not in Template(entry["text"]).holes():
                    entry["text"] = INJECTION + entry["text"]
            path = save_challenge({"w": "date", **challenge, "templates": entries})
            chosen = data.load(str(path))
        _check_size(chosen.n_items(chosen.covariates), MAX_ITEMS, "texts")
        audit_request = AuditRequest(name, models, {"challenge": str(path)}, limit)
        audit = audits.load(name)
        settings = audit.Settings(**audit_request.options)
        texts = list(
            dict.fromkeys(
                item.query.display_text(BLANK_TEXT)
                for item in next(audit.items(settings, Sampling(0, 0)))
                if isinstance(item.query, ClozeQuery)
            )
        )
        limits = audit.limitations(settings, Sampling(limit, 0))
    except UndertowError as error:
        message = str(error).replace(str(path), "the challenge").replace(path.stem, "the challenge")
        raise UndertowError(message) from error
    words = "; ".join(
        f"{group}: {', '.join(' … '.join(forms) for name, forms in chosen.words.forms if name == group)}"
        for group in chosen.words.groups
    )
    values = " ".join(covariate.summary() for covariate in chosen.covariates) if name == DRIFT else ""
    head = f"Audit: {name.replace('-', ' ')}. {len(texts):,} texts, of which at most {min(limit, len(texts)):,} are scored."
    step = max(len(texts) // _N_PREVIEW, 1)
    return audit_request, "\n".join(
        [head, *filter(None, [values]), f"Words: {words}", *limits, "", *texts[::step][:_N_PREVIEW]]
    )


def _check_size(n_given: int, most: int, what: str) -> None:
    if n_given > most:
        raise UndertowError(f"The challenge has {n_given:,} {what}; the limit here is {most:,}; use undertow run.")


def read_challenge(text: str) -> dict[str, Any]:
    """Parse a pasted challenge."""
    if not text.strip():
        raise UndertowError("There is no challenge yet: paste a challenge file, or choose one.")
    if len(text) > MAX_CHALLENGE_CHARS:
        raise UndertowError(f"The challenge has {len(text):,} characters; the limit here is {MAX_CHALLENGE_CHARS:,}.")
    try:
        given = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise UndertowError(f"The challenge is not valid TOML: {error}.") from error
    lists = given.get("w", [])
    named = [lists] if isinstance(lists, str) else lists if isinstance(lists, list) else []
    if (strange := next((name for name in named if name not in W_LISTS), None)) is not None:
        raise UndertowError(
            f"The challenge names the W list {strange!r}; use {', '.join(W_LISTS)}, or write the values under [w]."
        )
    return given


def of_documents(task: object, n_documents: object, models: Mapping[str, str]) -> AuditRequest:
    """A small audit of bias in text."""
    if (name := TASKS.get(str(task))) is None:
        raise UndertowError("Choose one of the tasks.")
    return AuditRequest(name, models, {"n_documents": _count(n_documents, MAX_TASK_DOCUMENTS, "texts"), "wordings": 1})


def of_occupations(n_pairs: object, n_occupations: object, models: Mapping[str, str]) -> AuditRequest:
    """A small audit with the occupation checklist."""
    options = {
        "n_pairs": _count(n_pairs, MAX_PAIRS, "pairs of names"),
        "n_occupations": _count(n_occupations, MAX_OCCUPATIONS, "occupations"),
        "contexts": "with,without",
    }
    return AuditRequest("occupation-checklist", models, options)


def limit_of(given: object) -> int:
    """The limit that a visitor chose."""
    return _count(given, MAX_LIMIT, "texts", MIN_LIMIT)


def _count(given: object, most: int, what: str, least: int = 1) -> int:
    if (
        not isinstance(given, (int, float))
        or isinstance(given, bool)
        or not least <= given <= most
        or given != int(given)
    ):
        raise UndertowError(f"The number of {what} must be a whole number from {least} to {most}.")
    return int(given)
