"""The form of a question: its examples, its checks, and the models that the operator allows.

    Form -> Question -> items       `undertow.app.model_reply` runs the model and writes the reply
                     -> challenge   `undertow.app.audit_request` runs an audit of it

Form fields are untrusted: each is checked for type and size, and the model against the operator's list. An invalid one raises an
UndertowError that says how to correct it.
McMilin 2022 (ICML workshop), section 6, and the ICLR submission "Selection Induced Collider Bias in LLMs", appendices A and E,
describe such a page.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, StrictBool, StrictStr, ValidationError

from undertow import audits, data, models
from undertow._schemas import requirement
from undertow.app.sentence_parser import BLANK, BLANK_TEXT, Pattern, read_sentences, read_values, read_words
from undertow.errors import UndertowError
from undertow.models.base import ModelHandle, ModelRequest
from undertow.types import Item

DEGREES = (1, 2, 3, 4)
MAX_ENDS = 5
MAX_NAME_CHARS, MAX_MODELS = 120, 4
DRIFT, SPECIFICATION = "spurious-correlation", "task-specification"
_HUB_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*")
_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Preset:
    """An example that fills the form; values replace the placeholder."""

    title: str
    covariate: data.Covariate
    placeholder: str
    sentence: str


def presets(audit: str) -> list[Preset]:
    """Dates of an audit's own range, countries and subreddits of the papers, with a sentence each."""
    dates = data.Dates(audits.load(audit).Settings().date_start).to_covariate()
    places, subreddits = map(data.load_covariate, ("place", "subreddit"))
    sentences = {
        DRIFT: ("In DATE, she was a child.", "She became an adult in COUNTRY.", "She was a kid. SUBREDDIT."),
        SPECIFICATION: (
            "In DATE: The doctor told the man that she would be late.",
            "In COUNTRY: The engineer said that he was tired.",
            "From SUBREDDIT: The nurse lost her keys.",
        ),
    }[audit]
    return [
        Preset("Dates", dates, "DATE", sentences[0]),
        Preset("Countries", places, "COUNTRY", sentences[1]),
        Preset("Subreddits", subreddits, "SUBREDDIT", sentences[2]),
    ]


_AS_IT_IS = ModelRequest("")


@dataclass(frozen=True, slots=True)
class AllowedModels:
    """The models that visitors can choose.

    Attributes:
        names: arguments of `undertow.models.resolve`, by the label that a visitor sees.
        any_model: whether a visitor can name another one, by its hub id.
        request: how each of them is loaded; its name is "".
    """

    names: Mapping[str, str]
    any_model: bool = False
    request: ModelRequest = _AS_IT_IS

    @classmethod
    def from_names(
        cls, names: Sequence[str], *, any_model: bool = False, request: ModelRequest = _AS_IT_IS
    ) -> AllowedModels:
        """The models of these names, folders and files; of a path, visitors see the last part."""
        by_label: dict[str, str] = {}
        for name in names:
            label = Path(name).name if Path(name).exists() else name
            if by_label.setdefault(label, name) != name:
                raise UndertowError(f"two models have the label {label!r}: {by_label[label]} and {name}; remove one")
        if not by_label:
            raise UndertowError("the page needs a model; name one or more, as in --models smollm2,toy")
        return cls(by_label, any_model, request)

    def choose(self, label: str, beside: str, typed: str) -> dict[str, str]:
        """The models that a visitor chose or typed, by label; raises `UndertowError` if one is not allowed, or they are too many.

        `label` and `beside` are a first and a second one of the list, `typed` comma-separated names that replace the first; "" is none.
        """
        others = [name.strip() for name in typed.split(",") if name.strip()]
        chosen = {name: self._typed(name) for name in others} or {label: self._listed(label)}
        if beside:
            chosen[beside] = self._listed(beside)
        if len(chosen) > MAX_MODELS:
            raise UndertowError(f"There are {len(chosen)} models; the limit is {MAX_MODELS}.")
        return chosen

    def _listed(self, label: str) -> str:
        if label not in self.names:
            raise UndertowError(f"That model is not on this page's list; choose one of {', '.join(self.names)}.")
        return self.names[label]

    def _typed(self, typed: str) -> str:
        if not self.any_model:
            raise UndertowError(
                "This page offers only the models of its list; its operator can allow others with --allow-any-model."
            )
        # The text could also be the path of a folder, which visitors must not reach.
        if len(typed) > MAX_NAME_CHARS or not _HUB_ID.fullmatch(typed) or ".." in typed or Path(typed).exists():
            raise UndertowError(
                "That is not a hub id; write one such as bert-base-uncased or owner/name, or choose a model of the list."
            )
        return typed


class Form(BaseModel):
    """The fields of the form, in the order of the page."""

    sentence: StrictStr
    placeholder: StrictStr = Field(title="placeholder")
    words: StrictStr = Field(title="word groups")
    values: StrictStr = Field(title="list of values")
    model: StrictStr
    beside: StrictStr = Field("", title="second model")
    other_model: StrictStr = Field("", title="other model")
    normalise: StrictBool = True
    degree: int = Field(1, ge=DEGREES[0], le=DEGREES[-1], title="degree of the fit")
    ends: int = Field(1, ge=1, le=MAX_ENDS, title="endpoint window")

    @classmethod
    def from_fields(cls, fields: Sequence[object]) -> Form:
        """Create a form from the fields that a browser sent."""
        try:
            return cls.model_validate(dict(zip(cls.model_fields, fields, strict=False)))
        except ValidationError as error:
            wrong = error.errors()[0]
            name = str(wrong["loc"][0])
            raise UndertowError(f"The {cls.model_fields[name].title or name} {requirement(wrong)}.") from error


@dataclass(frozen=True, slots=True)
class Question:
    """A checked form.

    Attributes:
        patterns: the sentences.
        words: words for their blanks, by group.
        models: arguments of `undertow.models.resolve`, by label.
        normalise: whether shares are normalised over the words.
        ends: number of values at either end that are averaged for a movement; for task specification.
    """

    patterns: tuple[Pattern, ...]
    words: Mapping[str, tuple[str, ...]]
    covariate: data.Covariate
    models: Mapping[str, str]
    normalise: bool
    degree: int
    ends: int = 1

    def items(self) -> list[Item]:
        """Every sentence with every value."""
        return [
            Item(
                id=f"typed/{number}/{index}",
                query=pattern.with_value(value),
                factors={"challenge": "typed", **place, "sentence": f"sentence {number}"},
                cluster=f"sentence {number}",
            )
            for number, pattern in enumerate(self.patterns, 1)
            for index, (place, value) in enumerate(zip(self.covariate.places(), self.covariate.values, strict=True))
        ]

    def reading(self) -> str:
        """The sentences as parsed, with the first and the last value, and the words for the blank."""
        values = self.covariate.values
        if len(self.patterns) == 1:
            places = sorted({round(place) for place in np.linspace(0, len(values) - 1, _SAMPLES)})
            texts = [self.patterns[0].reading(values[place]) for place in places]
        else:
            texts = [pattern.reading(values[0]) for pattern in self.patterns]
        listed = "; ".join(f"{group}: {', '.join(words)}" for group, words in self.words.items())
        return "\n".join([*texts, *([f"{BLANK_TEXT} is one of {listed}"] if BLANK in self.patterns[0].places else [])])

    def challenge(self) -> dict[str, Any]:
        """The sentences, words and values as the content of a challenge file."""
        blanks = {place: forms for pattern in self.patterns for place, forms in pattern.forms().items()}
        if BLANK in blanks and len(blanks) > 1:
            raise UndertowError(
                "An audit needs a blank ___ in every sentence or in none; write the pronouns as blanks."
            )
        covariate = self.covariate
        values = {"values": list(covariate.values), "scale": covariate.scale}
        order = {} if covariate.scale == "none" else {"order": covariate.order}
        return {
            "title": "Sentences typed into the page",
            "templates": [pattern.template() for pattern in self.patterns],
            "w": {covariate.name: values | order},
            "blanks": blanks,
        }


def read_form(form: Form, allowed_models: AllowedModels, audit: str) -> Question:
    """Check a form as the browser sent it, and return its question; `audit` is `DRIFT` or `SPECIFICATION`."""
    patterns = read_sentences(form.sentence, form.placeholder, read_words(form.words))
    values = read_values(form.values, max(form.degree + 2, 3 if audit == DRIFT else 2 * form.ends))
    lacking = next((number for number, pattern in enumerate(patterns, 1) if not pattern.n_values), None)
    if lacking is not None and audit == DRIFT:
        wanted = f"the placeholder {form.placeholder.strip()!r}" if form.placeholder.strip() else "a placeholder"
        which = "The sentence" if len(patterns) == 1 else f"Sentence {lacking}"
        raise UndertowError(f"{which} has no place for the values: write {wanted} there, as a separate word.")
    if len(patterns) > 1 and audit == SPECIFICATION:
        raise UndertowError("This tab judges one sentence; remove the others, or run an audit of a challenge file.")
    words: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        for group, own in pattern.words.items():
            words[group] = tuple(dict.fromkeys([*words.get(group, ()), *own]))
    known = [one.covariate for one in (*presets(DRIFT), *presets(SPECIFICATION)) if one.covariate.values == values]
    return Question(
        # As in the labelled sentences.
        tuple(pattern if pattern.n_values else pattern.in_front("In ", ": ") for pattern in patterns),
        words,
        known[0] if known else data.CovariateList("value", values, "The list of values").to_covariate(),
        allowed_models.choose(form.model, form.beside, form.other_model),
        form.normalise,
        form.degree,
        form.ends,
    )


class LoadedModel:
    """Cache of one model, so that two are never in memory."""

    def __init__(self, request: ModelRequest = _AS_IT_IS) -> None:
        self._request = request
        self._opened: tuple[str, ModelHandle] | None = None

    def drop(self) -> None:
        """Drop the model, before others are loaded elsewhere."""
        self._opened = None
        gc.collect()

    def load(self, name: str) -> ModelHandle:
        """The model of this name, loaded on first use and dropped when another is loaded."""
        if self._opened is None or self._opened[0] != name:
            self.drop()
            handle = models.resolve(replace(self._request, name=name))
            self._opened = name, replace(handle, open=cache(handle.open))
        return self._opened[1]
