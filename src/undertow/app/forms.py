"""Validation of the form: turns its fields into a checked question for a model that the operator allows.

    Form -> Question -> items;  `undertow.app.model_reply` runs the model and writes the reply

Form fields are untrusted: each is checked for type and size, and the model against the operator's list.
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

import numpy as np

from undertow import audits, data, models
from undertow.app.sentence_parser import BLANK_TEXT, Pattern, read_sentence, read_values
from undertow.errors import UndertowError
from undertow.models.base import ModelHandle, ModelRequest
from undertow.types import Item

DEGREES = (1, 2, 3, 4)
MAX_ENDPOINT_WINDOW = 5
MAX_NAME_CHARS = 120
DRIFT, SPECIFICATION = "spurious-correlation", "task-specification"
IN_FRONT = ("In ", ": ")
"""What stands around a value that a sentence has no place for, as for the sentences of known kind."""
_HUB_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*")
_SAMPLES = 3
LIST_NAME = "value"
"""Name of the form's list in results."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A form that is filled at one click.

    Attributes:
        title: of its button.
        covariate: the W list.
        placeholder: what stands for a value.
        drift, specification: a sentence for either tab.
    """

    title: str
    covariate: data.Covariate
    placeholder: str
    drift: str
    specification: str

    @property
    def values(self) -> tuple[str, ...]:
        """The W values, in order."""
        return self.covariate.values


def presets(audit: str) -> list[Preset]:
    """Dates of an audit's own range, countries and subreddits of the papers, with a sentence each."""
    dates = data.Dates(audits.load(audit).Settings().date_start).to_covariate()
    places, subreddits = map(data.load_covariate, ("place", "subreddit"))
    return [
        Preset(
            "Dates",
            dates,
            "DATE",
            "In DATE, she was a child.",
            "In DATE: The doctor told the man that she would be late.",
        ),
        Preset(
            "Countries",
            places,
            "COUNTRY",
            "She became an adult in COUNTRY.",
            "In COUNTRY: The engineer said that he was tired.",
        ),
        Preset(
            "Subreddits",
            subreddits,
            "SUBREDDIT",
            "She was a kid. SUBREDDIT.",
            "From SUBREDDIT: The nurse lost her keys.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class AllowedModels:
    """The models that visitors may query.

    Attributes:
        names: what `undertow.models.resolve` is given, by what a visitor is shown.
        any_model: whether a visitor may name another one, by its hub id.
    """

    names: Mapping[str, str]
    any_model: bool = False

    @classmethod
    def from_names(cls, names: Sequence[str], *, any_model: bool = False) -> AllowedModels:
        """The models of these names, folders and files; a path is shown as its last part.

        Raises:
            UndertowError: there is no name, or two would look alike.
        """
        by_label: dict[str, str] = {}
        for name in names:
            label = Path(name).name if Path(name).exists() else name
            if by_label.setdefault(label, name) != name:
                raise UndertowError(
                    f"two models would be shown as {label!r}: {by_label[label]} and {name}; leave one out"
                )
        if not by_label:
            raise UndertowError("the page needs a model; name one or more, as in --models smollm2,toy")
        return cls(by_label, any_model)

    def resolve(self, label: object, other: object) -> str:
        """The name of the model that a visitor chose, or typed.

        Raises:
            UndertowError: it is not allowed, or what was typed is no hub id, or may not be typed.
        """
        typed = _text(other, "model's name").strip()
        if not typed:
            if not isinstance(label, str) or label not in self.names:
                raise UndertowError(f"That model is not on this page's list; choose one of {', '.join(self.names)}.")
            return self.names[label]
        if not self.any_model:
            raise UndertowError(
                "This page offers only the models of its list; its operator can allow others with --allow-any-model."
            )
        if len(typed) > MAX_NAME_CHARS or not _HUB_ID.fullmatch(typed) or ".." in typed:
            raise UndertowError(
                "A model is named by its hub id (bert-base-uncased, owner/name), with letters, digits, dots, dashes and underscores."
            )
        # The same words may be the path of a folder, and visitors reach no files.
        if Path(typed).exists():
            raise UndertowError("That name cannot be used here; choose a model of the list, or another hub id.")
        return typed


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of the form, unchecked.

    Attributes:
        sentence, values, placeholder: typed.
        model, other_model: of the list, and typed.
        normalise: whether shares are told of what the pronouns have together.
        degree: of the fit.
        endpoint_window: number of values to average at each end; for task specification.
    """

    sentence: object
    values: object
    placeholder: object
    model: object
    other_model: object = ""
    normalise: object = True
    degree: object = 1
    endpoint_window: object = 1


@dataclass(frozen=True, slots=True)
class Question:
    """A checked form.

    Attributes:
        pattern: the sentence.
        covariate: the W values, with their order and scale.
        model: what `undertow.models.resolve` is given.
        normalise, degree, endpoint_window: as in the form.
    """

    pattern: Pattern
    covariate: data.Covariate
    model: str
    normalise: bool
    degree: int
    endpoint_window: int = 1

    @property
    def values(self) -> tuple[str, ...]:
        """The W values, in order."""
        return self.covariate.values

    def items(self) -> list[Item]:
        """The sentence with every value."""
        return [
            Item(
                id=f"typed/{index}",
                query=self.pattern.with_value(value),
                factors={"challenge": "typed", **place, "sentence": "typed"},
                cluster="typed",
            )
            for index, (place, value) in enumerate(zip(self.covariate.places(), self.values, strict=True))
        ]

    def sample(self) -> str:
        """The first, the middle and the last text that the model reads, and what may stand in the blank."""
        places = sorted({round(place) for place in np.linspace(0, len(self.values) - 1, _SAMPLES)})
        texts = [self.pattern.with_value(self.values[place]).display_text(BLANK_TEXT) for place in places]
        fills = [" … ".join(option.fills) for option in self.pattern.options]
        return "\n".join([*texts, f"{BLANK_TEXT} is one of: {', '.join(fills)}"])


def read_form(form: Form, allowed_models: AllowedModels, audit: str) -> Question:
    """The question that a form asks.

    Args:
        form: as it came.
        allowed_models: the models that may be asked.
        audit: `DRIFT` or `SPECIFICATION`.

    Raises:
        UndertowError: a field is not what it should be; says which, and how to fix it.
    """
    degree, endpoint_window = (
        _whole(form.degree, "degree of the fit", DEGREES[-1]),
        _whole(form.endpoint_window, "number of values at either end", MAX_ENDPOINT_WINDOW),
    )
    if not isinstance(form.normalise, bool):
        raise UndertowError("The field for normalising must be on or off.")
    placeholder = _text(form.placeholder, "place-holder")
    pattern = read_sentence(_text(form.sentence, "sentence"), placeholder)
    least = max(degree + 2, 3 if audit == DRIFT else 2 * endpoint_window)
    values = read_values(_text(form.values, "list of values"), least)
    if not pattern.n_values and audit == DRIFT:
        wanted = f"the place-holder {placeholder.strip()!r}" if placeholder.strip() else "a place-holder"
        raise UndertowError(
            f"The sentence has no place for the values: write {wanted} where they go, as a word of its own."
        )
    if not pattern.n_values:
        pattern = pattern.in_front(*IN_FRONT)
    spectrum = listed(values)
    return Question(
        pattern, spectrum, allowed_models.resolve(form.model, form.other_model), form.normalise, degree, endpoint_window
    )


def listed(values: tuple[str, ...]) -> data.Covariate:
    """The W list of these values: one of the package's, or a visitor's own, whose numbers are taken by their size.

    Raises:
        UndertowError: two values are one number.
    """
    for known in (*presets(DRIFT), *presets(SPECIFICATION)):
        if known.values == values:
            return replace(known.covariate, name=LIST_NAME)
    return data.CovariateList(LIST_NAME, values, "The list of values").to_covariate()


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise UndertowError(f"The {what} must be text.")
    return value


def _whole(value: object, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value not in range(1, most + 1):
        raise UndertowError(f"The {what} must be a whole number from 1 to {most}.")
    return int(value)


class ModelSlot:
    """Holds one model, so that two are never in memory; whoever takes one is alone with it."""

    def __init__(self) -> None:
        self._opened: tuple[str, ModelHandle] | None = None

    def load(self, name: str) -> ModelHandle:
        """The model of this name, loaded once when it is first asked, and dropped when another is taken.

        Raises:
            UndertowError: there is no such model.
        """
        if self._opened is None or self._opened[0] != name:
            self._opened = None
            gc.collect()
            handle = models.resolve(ModelRequest(name))
            self._opened = name, replace(handle, open=cache(handle.open))
        return self._opened[1]
