"""Task descriptions: questions about the bias of a document, in many lexical variants.

Variants are templates crossed with the words of their slots. The published ones are in `task_wordings.toml`, in the format that
users write. Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP),
section 3 and appendix A.3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, model_validator

from undertow._schemas import Schema, Text, check, distinct
from undertow.data.documents.document_set import is_reserved_name
from undertow.data.prompts import MAX_NAME_CHARS
from undertow.data.templates.template import Template
from undertow.data.text_files import RESOURCES, error_place, first_repeat, read_toml
from undertow.errors import UndertowError, closest
from undertow.types import digest

TASKS = ("bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing")
CLASSES = ("statement", "question", "completion", "null", "dimension")
"""The paper's names for classes of descriptions."""
REPHRASING = "bias-rephrasing"
DIMENSION = "dimension"
DIMENSION_HOLE = "{dimension}"
"""Placeholder of a document's dimension of bias in a wording."""
MAX_VARIANTS = 1000
"""Maximum number of variants of one class; the paper's largest class has 108."""


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of one of `TASKS`, of one of `CLASSES` or a user's own.

    The text goes after the document, with `{dimension}` for the document's dimension; "" for no description. `slots` are the level of each
    slot; within a class every combination of levels occurs once.
    """

    task: str
    kind: str
    text: str
    slots: Mapping[str, str]


def wordings(task: str, own: Path | None = None) -> list[Wording]:
    r"""All wordings of a task, class by class: the paper's, then those of a user's own file.

    A user's file has a table for each class, with one or several texts and a list of words for each slot:

        [bias-identification.instruction]
        text = "Name the {noun} in the text above.\nAnswer:"      # or texts = ["...", "..."]: then each has all the slots,
        [bias-identification.instruction.slots]                  # and the slot `text` says which of them it is
        noun = ["bias", "prejudice"]                             # or { bias = "the bias", prejudice = "the prejudice" }

    White space around a text is removed. Texts for rephrasing may contain `{dimension}`.
    """
    if task not in TASKS:
        raise UndertowError(f"there is no task called {task!r}{closest(task, TASKS)}; use one of {', '.join(TASKS)}")
    published = list(_load_published()[task])
    return published if own is None else published + _own(own)[task]


def choose_wordings(wordings: Sequence[Wording], per_class: int, seed: int) -> list[Wording]:
    """Choose at most `per_class` wordings of each class (0: all), in the given order, with levels of slots as balanced as possible.

    The choice in one class does not depend on the other classes. The seed orders equally good candidates.
    """
    if per_class < 0:
        raise UndertowError(f"{per_class} variants of a class cannot be chosen; give 1 or more, or 0 for all")
    if not per_class:
        return list(wordings)
    classes: dict[tuple[str, str], list[int]] = {}
    for place, wording in enumerate(wordings):
        classes.setdefault((wording.task, wording.kind), []).append(place)
    kept = set()
    for name, places in classes.items():
        order = np.random.default_rng(int(digest([seed, *name]), 16)).permutation(places).tolist()
        levels = {place: sorted(wordings[place].slots.items()) for place in order}
        pairs = {name: list(combinations(of, 2)) for name, of in levels.items()}
        seen, pairs_seen = Counter[Any](), Counter[Any]()
        left, taken = list(levels), list[int]()
        # Pairs of levels prevent aliased slots in a small choice, which stratification by single slots does not.
        while left and len(taken) < per_class:
            best = min(left, key=lambda name: (_total(seen, levels[name]), _total(pairs_seen, pairs[name])))
            left.remove(best)
            taken.append(best)
            seen.update(levels[best])
            pairs_seen.update(pairs[best])
        # Remove differences of two between counts of levels.
        while (swap := _best_swap(seen, levels, taken, left)) is not None:
            out, into = swap
            taken[taken.index(out)], left[left.index(into)] = into, out
            seen.subtract(levels[out])
            seen.update(levels[into])
        kept.update(taken)
    return [wording for place, wording in enumerate(wordings) if place in kept]


def describe(task: str, own: Path | None = None) -> list[dict[str, str]]:
    """The wordings of a task as rows of `class`, `number` (in its class), `text` on one line, and `slots`."""
    rows, numbers = [], Counter[str]()
    for wording in wordings(task, own):
        numbers[wording.kind] += 1
        rows.append(
            {
                "class": wording.kind,
                "number": str(numbers[wording.kind]),
                "text": " / ".join(wording.text.splitlines()),
                "slots": ", ".join(f"{slot}: {level}" for slot, level in wording.slots.items()),
            }
        )
    return rows


def _total(counts: Counter[Any], keys: Iterable[Any]) -> int:
    return sum(map(counts.__getitem__, keys))


def _best_swap(
    seen: Counter[Any], levels: Mapping[int, list[tuple[str, str]]], taken: list[int], left: list[int]
) -> tuple[int, int] | None:
    """The exchange of a chosen and another candidate that balances levels most; None if there is none.

    It is needed if the combination that balances levels was chosen already.
    """

    def gain(swap: tuple[int, int]) -> int:
        # Half the decrease of the sum of squared counts: for each changed level, its count minus the other's minus one.
        out, into = swap
        return sum(seen[old] - seen[new] - 1 for old, new in zip(levels[out], levels[into], strict=True) if old != new)

    best = max(product(taken, left), key=gain, default=None)
    return best if best is not None and gain(best) > 0 else None


@cache
def _load_published() -> Mapping[str, tuple[Wording, ...]]:
    tables = read_toml(RESOURCES / "task_wordings.toml")
    return {task: tuple(w for kind in tables[task] for w in _of_the_paper(task, kind, tables[task])) for task in TASKS}


def _of_the_paper(task: str, kind: str, table: Mapping[str, Any]) -> list[Wording]:
    entry = table[kind]
    if "again" not in entry:
        return _cross(task, kind, [entry["text"]], _slots(entry))
    classes = {form: _slots(table[form]) for form in entry["again"]}
    shared = set.intersection(*(set(slots) for slots in classes.values()))
    variants = []
    for form, slots in classes.items():
        for wording in _cross(task, kind, [table[form]["text"]], slots | _slots(entry)):
            of_form = [level for slot, level in wording.slots.items() if slot not in shared]
            rest = {slot: level for slot, level in wording.slots.items() if slot in shared}
            variants.append(Wording(task, kind, wording.text, {"form": " ".join([form, *of_form]), **rest}))
    return variants


def _slots(entry: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """The words of each slot, by the names of its levels."""
    return {name: _levels_by_name(words) for name, words in entry.get("slots", {}).items()}


def _cross(task: str, kind: str, texts: Sequence[str], slots: Mapping[str, Mapping[str, str]]) -> list[Wording]:
    """Every combination, the last slot of the text changing fastest; several texts are numbered by the slot `text`."""
    variants = []
    for number, text in enumerate(texts, 1):
        template = Template(text)
        names = [hole for hole in dict.fromkeys(template.holes()) if hole in slots]
        for levels in product(*(slots[slot] for slot in names)):
            levels_by_slot = dict(zip(names, levels, strict=True))
            words = {slot: slots[slot][level] for slot, level in levels_by_slot.items()}
            filled = template.text_with(words | {DIMENSION: DIMENSION_HOLE})
            which = {"text": str(number)} if len(texts) > 1 else {}
            variants.append(Wording(task, kind, filled, which | levels_by_slot))
    return variants


def _levels_by_name(words: Any) -> Any:
    """A list of words names each level by its word."""
    if not isinstance(words, list | Mapping) or not words:
        raise ValueError('needs a list of words, such as ["bias", "prejudice"]')
    if isinstance(words, list):
        if others := [word for word in words if not isinstance(word, str)]:
            raise ValueError(f"{others[0]!r} is not a text; quote it")
        words = {word: word for word in distinct(words)}
    if not all(name.strip() for name in words):
        raise ValueError('an empty word has no name; write { "(none)" = "" } instead of a list')
    return words


def _check_task(task: str) -> str:
    if task not in TASKS:
        raise ValueError(f"{task!r} is not a task{closest(task, TASKS)}; write [TASK.CLASS] with {', '.join(TASKS)}")
    return task


def _free_name(kind: str) -> str:
    if kind in CLASSES or is_reserved_name(kind):
        raise ValueError(f"the name {kind!r} is the paper's or reserved by results; rename your class")
    if not kind.strip() or len(kind) > MAX_NAME_CHARS or "," in kind or not kind.isprintable():
        raise ValueError(f"give a class a name of 1 to {MAX_NAME_CHARS} letters, without commas")
    return kind


class ClassTable(Schema):
    """A class as its file has it."""

    text: Text | None = None
    texts: Annotated[list[Text], Field(min_length=1)] | None = None
    slots: dict[str, Annotated[dict[str, str], BeforeValidator(_levels_by_name)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_or_several(self) -> ClassTable:
        if (self.text is None) == (self.texts is None):
            raise ValueError("needs either a text or a list of texts, with a hole in braces for each slot")
        return self


_FILE = TypeAdapter(
    dict[Annotated[str, AfterValidator(_check_task)], dict[Annotated[str, AfterValidator(_free_name)], ClassTable]]
)


def _own(path: Path) -> dict[str, list[Wording]]:
    """The classes of a file, by task; the whole file is checked."""
    by_task: dict[str, list[Wording]] = {task: [] for task in TASKS}
    for task, classes in check(_FILE, read_toml(path), str(path)).items():
        for kind, table in classes.items():
            by_task[task] += _own_class(f"{path}, {task}.{kind}", task, kind, table)
    if not any(by_task.values()):
        raise UndertowError(f"{path}: has no class; write [{TASKS[1]}.instruction] and a text below it")
    return by_task


def _own_class(place: str, task: str, kind: str, table: ClassTable) -> list[Wording]:
    texts = [text.strip() for text in table.texts or [table.text or ""]]
    slots = table.slots
    for kept in [DIMENSION, *(["text"] if len(texts) > 1 else [])]:
        if kept in slots:
            raise UndertowError(f"{place}, slot {kept!r}: this name is reserved; rename the slot")
    known = {*slots, DIMENSION} if task == REPHRASING else {*slots}
    for number, written in enumerate(texts, 1):
        which = f"text {number}" if len(texts) > 1 else "the text"
        with error_place(place):
            holes = Template(written).holes()
        if (strange := next((hole for hole in holes if hole not in known), None)) is not None:
            raise UndertowError(
                f"{place}, slot {strange!r}: {which} has {{{strange}}}, but there are no words for it{closest(strange, known)};"
                f" list them under slots (only texts of {REPHRASING} can have {DIMENSION_HOLE})"
            )
        if (unused := next((slot for slot in slots if slot not in holes), None)) is not None:
            raise UndertowError(f"{place}, slot {unused!r}: {which} has no {{{unused}}}; write it where the words go")
    with error_place(place):
        n = len(texts) * math.prod(len(levels) for levels in slots.values())
        if n > MAX_VARIANTS:
            raise UndertowError(
                f"its texts and slots make {n} variants; at most {MAX_VARIANTS} are allowed, so remove some"
            )
        variants = _cross(task, kind, texts, slots)
        if (twice := first_repeat(wording.text for wording in variants)) is not None:
            raise UndertowError(f"two of its variants have the text {twice!r}; change the words of the slots")
        if not all(wording.text.strip() for wording in variants):
            raise UndertowError("one of its variants is empty, as the class null is; add words to its text")
        if task != REPHRASING and any(DIMENSION_HOLE in wording.text for wording in variants):
            raise UndertowError(f"only texts of {REPHRASING} can have {DIMENSION_HOLE}; remove it")
    return variants
