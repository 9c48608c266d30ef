"""Items of the four tasks of bias in text: documents, task descriptions and few-shot examples, crossed.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), sections 3 and 4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from undertow.audits.base import Sampling, split_names
from undertow.audits.bias_in_text.tasks import Task
from undertow.audits.shared.item_limit import MIN_SENTENCES, divide_limit, stratified_sample, too_few
from undertow.data.documents.document_set import Document, DocumentSet
from undertow.data.documents.document_sources import load_documents
from undertow.data.documents.few_shot import NO_SHOTS, SAMPLINGS, answer_prefix, draw_shots, prompt_of
from undertow.data.documents.task_wordings import DIMENSION_HOLE, Wording, choose_wordings, wordings
from undertow.errors import UndertowError, counted
from undertow.types import (
    BEST_SPAN,
    SPAN,
    UNCONSTRAINED,
    ConstrainedGenerateQuery,
    Factor,
    Item,
    MultipleChoiceQuery,
    Query,
    digest,
    option,
)

MAX_SHOTS = 100
MIN_OPTIONS = {"n_documents": 0, "wordings": 0, "shot_wordings": 0, "draws": 1, "temperature": 0, "top_k": 0}
"""Minimum values of options, checked even if other options make them irrelevant."""
DECODING = "Constraints on answers: unconstrained, document, span, span-exact; comma-separated."


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Options of all four tasks."""

    challenge: str = option(
        "undertow-statements",
        "Documents: undertow-statements, cad, or a path: a table of your own, or CAD's full file, split file or folder.",
    )
    n_documents: int = option(0, "Number of documents, sampled evenly over the labels; 0 for all.")
    classes: str = option("", "Classes of task descriptions, comma-separated; all if not given.")
    wordings: int = option(0, "Number of wordings of each class, sampled evenly; 0 for all.")
    shot_wordings: int = option(2, "The same for questions with examples, which cost more; 0 for the same number.")
    description_file: str = option("", "TOML file with classes of task descriptions of your own, beside the paper's.")
    shots: str = option("0", "Numbers of examples before the question, comma-separated, for example 0,5,10,20.")
    draws: int = option(3, "Number of random samples of examples.")
    chat: bool = option(False, "Use the chat template of the model.")
    max_new_tokens: int = option(
        0,
        "Maximum number of tokens of a reply under protocol text, to which generated texts add two a word; 0 for 256.",
    )


@dataclass(frozen=True, slots=True)
class WrittenSettings(TextSettings):
    """Options of the tasks with generated answers."""

    wordings: int = option(4, "Number of wordings of each class, sampled evenly; 0 for all.")
    shot_wordings: int = option(0, "The same for questions with examples; 0 for the same number.")
    temperature: float = option(0.0, "Sampling temperature; 0 for greedy decoding. The paper has 0.7.")
    top_k: int = option(50, "Number of most probable tokens to sample from, with a temperature above 0.")
    line_ends: bool = option(False, "Also end an answer at a line break.")


@dataclass(frozen=True, slots=True)
class Cell:
    """One wording, number of examples, draw and decoding, applied to every document."""

    wording: Wording
    n_shots: int
    sampling: str
    draw: int
    decoding: str


@dataclass(frozen=True)
class ItemPlan:
    """Documents crossed with wordings, examples and decodings, within the limit of a sample."""

    task: Task
    settings: Any
    sampling: Sampling
    _examples: dict[tuple[str, str, str], str] = field(
        default_factory=dict, init=False
    )  # answered, by document and wording

    def items(self) -> list[Item]:
        """All items."""
        _check_numbers(self.settings)
        documents = self._sample_documents()
        pool = [self._with_passage(document) for document in self.task.applicable(self.document_set.training)]
        # Draws are nested: the largest number of examples is drawn once, and cells use the first ones.
        most = max(cell.n_shots for cell in self.cells)
        if most and not pool:
            raise UndertowError(f"{self.document_set.name}: has no training documents for examples; leave --shots at 0")
        draws = list(dict.fromkeys((cell.sampling, cell.draw) for cell in self.cells if cell.n_shots))
        items = []
        for document in documents:
            target = self._with_passage(document)
            drawn = {(s, d): draw_shots(pool, target, most, s, d, self.sampling.seed) for s, d in draws}
            for cell in self.cells:
                if document.dimension or DIMENSION_HOLE not in cell.wording.text:
                    shots = drawn[cell.sampling, cell.draw][: cell.n_shots] if cell.n_shots else ()
                    items.append(self._item(document, cell, shots))
        if not items:
            raise UndertowError(
                f"{self.settings.challenge}: the classes {self.settings.classes} name the dimension of bias, and no document has one; "
                "fill dimensions in, or ask other --classes"
            )
        return items

    def limitations(self) -> list[str]:
        """A sentence if the documents are too few for a claim, with the smallest sufficient limit; else []."""
        if self.n_wanted < MIN_SENTENCES:
            few = counted(self.n_wanted, "document")
            return [f"{few} are too few for a claim about others, which needs at least {MIN_SENTENCES}."]
        if not self.sampling.limit or self.n_documents >= MIN_SENTENCES:
            return []
        return [too_few(counted(self.n_documents, "document"), MIN_SENTENCES * len(self.cells))]

    # Documents.

    @cached_property
    def document_set(self) -> DocumentSet:
        """The set of documents that the settings name."""
        return documents_of(self.settings)

    @cached_property
    def applicable(self) -> list[Document]:
        """Documents of the evaluation part that suit the task."""
        return self.task.applicable(self.document_set.evaluation)

    @property
    def n_wanted(self) -> int:
        """Number of documents without a limit."""
        return min(self.settings.n_documents or len(self.applicable), len(self.applicable))

    def _sample_documents(self) -> list[Document]:
        self._check_documents()
        n, documents, seed = self.n_documents, self.applicable, self.sampling.seed
        if not 0 < n < len(documents):
            return documents
        strata: dict[str, list[int]] = {}
        kept: list[int] = []
        if self.sampling.limit and n != self.settings.n_documents:
            for at, document in enumerate(documents):
                strata.setdefault(self.task.stratum(document), []).append(at)
            sizes = divide_limit(n, [len(places) for places in strata.values()])
            for places, size in zip(strata.values(), sizes, strict=True):
                dimensions = [documents[place].dimension for place in places]
                kept += [places[at] for at in stratified_sample(dimensions, size, seed)]
        else:
            for at in np.random.default_rng(seed).permutation(len(documents)):
                stratum = self.task.stratum(documents[at]) or documents[at].dimension
                strata.setdefault(stratum, []).append(int(at))
            one_of_each = zip_longest(*(strata[name][::-1] for name in sorted(strata)))
            kept += [at for places in one_of_each for at in places if at is not None][:n]
        return [documents[at] for at in sorted(kept)]

    def _check_documents(self) -> None:
        settings, name = self.settings, self.task.name
        if not self.applicable:
            n_training = len(self.task.applicable(self.document_set.training))
            if n_training:
                raise UndertowError(
                    f"{settings.challenge}: all its {n_training:,} documents for {name} are training documents; "
                    "use a set with evaluation documents, such as a folder with all split files of CAD, or rows with the split evaluation"
                )
            raise UndertowError(f"{settings.challenge}: has no document for {name}; it needs {self.task.needs}")
        if settings.n_documents > len(self.applicable):
            raise UndertowError(
                f"--n-documents {settings.n_documents}: {settings.challenge} has {len(self.applicable):,} for {name}; give that or "
                "less, or 0 for all"
            )
        if any(cell.sampling == SAMPLINGS[1] for cell in self.cells):
            strange = next((document for document in self.applicable if not document.category), None)
            if strange is not None:
                raise UndertowError(
                    f"document {strange.id!r}: no category has {strange.dimension!r}; use --shot-selection random"
                )

    def _with_passage(self, document: Document) -> Document:
        """The document with its passage as text, so that no few-shot example repeats the passage with its answer."""
        return replace(document, text=self.task.passage(document))

    # Cells.

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells of the design.

        A limit keeps whole documents. It drops wordings, evenly over the classes, until there are as many documents as wordings and at
        least six.
        """
        limit, cells = self.sampling.limit, self._cross(self.settings.wordings)
        if not limit:
            return cells
        distinct = {(cell.wording.kind, cell.wording.text) for cell in cells}
        for n_wordings in range(max(Counter(kind for kind, _ in distinct).values()) - 1, 0, -1):
            n_distinct = len({(cell.wording.kind, cell.wording.text) for cell in cells})
            if limit // len(cells) >= min(self.n_wanted, max(n_distinct, MIN_SENTENCES)):
                break
            cells = self._cross(n_wordings)
        return cells

    @property
    def n_documents(self) -> int:
        """Number of documents in each cell; 0 for all."""
        if not self.sampling.limit:
            return int(self.settings.n_documents)
        within = max(self.sampling.limit // len(self.cells), 1)
        return min(self.settings.n_documents or within, within)

    def _cross(self, n_wordings: int) -> list[Cell]:
        task, settings = self.task, self.settings
        if settings.description_file:
            plain = choose_wordings(self._wordings, n_wordings, self.sampling.seed)
        else:
            plain = list(_choose_published(task.name, settings.classes, n_wordings, self.sampling.seed))
        behind = choose_wordings(plain, settings.shot_wordings, self.sampling.seed)
        decodings = split_names(getattr(settings, "decoding", task.decodings[0]), task.decodings, "decoding")
        samplings = split_names(getattr(settings, "shot_selection", SAMPLINGS[0]), task.samplings, "shot-selection")
        draws = [(sampling, draw) for sampling in samplings for draw in range(settings.draws)]
        return [
            Cell(wording, n, sampling, draw, decoding)
            for n in _numbers(settings.shots)
            for sampling, draw in (draws if n else [(NO_SHOTS, 0)])
            for wording in (behind if n else plain)
            for decoding in decodings
        ]

    @cached_property
    def _wordings(self) -> list[Wording]:
        own = Path(self.settings.description_file) if self.settings.description_file else None
        return _of_classes(wordings(self.task.name, own), self.settings.classes)

    # One item.

    def _item(self, document: Document, cell: Cell, shots: Sequence[Document]) -> Item:
        gold, temperature = self.task.gold(document), getattr(self.settings, "temperature", 0.0)
        is_drawn = temperature and cell.decoding != BEST_SPAN
        factors: dict[str, Factor] = {
            "challenge": Path(self.settings.challenge).name,
            "task": self.task.name,
            "document": document.id,
            "dimension": document.dimension,
            "text": document.text,
            "passage": self.task.passage(document),
            "gold": gold,
            "description_class": cell.wording.kind,
            "wording": cell.wording.text,
            "shots": cell.n_shots,
            "sampling": cell.sampling,
            "draw": cell.draw,
            "decoding": f"{cell.decoding}, T {temperature:g}" if is_drawn else cell.decoding,
            "n_shots": len(shots),
            **{f"slot_{name}": level for name, level in cell.wording.slots.items()},
        }
        wording = digest([cell.wording.kind, cell.wording.text])[:8]
        name = f"{document.id}/{cell.wording.kind}-{wording}/{cell.n_shots}-{cell.sampling}-{cell.draw}/{cell.decoding}"
        query = self._query(document, cell, tuple(self._example(shot, cell.wording) for shot in shots))
        return Item(name, query, factors, cluster=document.id, gold=gold)

    def _query(self, document: Document, cell: Cell, shots: tuple[str, ...]) -> Query:
        prompt, settings = self._block(document, cell.wording, None), self.settings
        if self.task.is_written:
            drawn = settings.temperature > 0 and cell.decoding != BEST_SPAN
            return ConstrainedGenerateQuery(
                prompt,
                self.task.passage(document),
                cell.decoding,
                temperature=settings.temperature if drawn else 0.0,
                top_k=settings.top_k if drawn else 0,
                seed=self.sampling.seed * 1000 + cell.draw if drawn else 0,
                line_ends=settings.line_ends,
                shots=shots,
                chat=settings.chat,
            )
        labels = tuple(answer_prefix(cell.wording) + label for label in self._labels)
        return MultipleChoiceQuery(prompt, labels, shots, first_token=bool(self.task.answers), chat=settings.chat)

    @cached_property
    def _labels(self) -> list[str]:
        return self.task.labels(self.document_set)

    def _example(self, document: Document, wording: Wording) -> str:
        """An answered example, cached because many prompts contain it."""
        key = document.id, wording.kind, wording.text
        if key not in self._examples:
            self._examples[key] = self._block(document, wording, self.task.gold(document))
        return self._examples[key]

    def _block(self, document: Document, wording: Wording, answer: str | None) -> str:
        return prompt_of(self.task.passage(document), wording, answer, document.dimension)


def _of_classes(bank: Sequence[Wording], classes: str) -> list[Wording]:
    kinds = tuple(dict.fromkeys(wording.kind for wording in bank))
    wanted = split_names(classes or ",".join(kinds), kinds, "classes")
    return [wording for wording in bank if wording.kind in wanted]


@lru_cache(maxsize=256)
def _choose_published(task: str, classes: str, n_wordings: int, seed: int) -> Sequence[Wording]:
    """A limit tries many numbers of wordings, for the items and again for what they cannot show."""
    return choose_wordings(_of_classes(wordings(task), classes), n_wordings, seed)


def adapt_to_text(settings: Any) -> Any:
    """Settings for free replies: a span of the text if the decoding asks for one, else the whole reply.

    Raises:
        UndertowError: an option is for decoding under constraints, or for sampling.
    """
    default = getattr(type(settings)(), "decoding", "")
    if getattr(settings, "decoding", default) == default:
        return replace(settings, decoding=SPAN if SPAN in default.split(",") else default) if default else settings
    if settings.decoding not in (UNCONSTRAINED, SPAN):
        raise UndertowError(
            f"--decoding {settings.decoding}: protocol text parses free replies; use {UNCONSTRAINED} (the whole reply) or {SPAN} (the span "
            "of the text in it)"
        )
    return settings


def documents_of(settings: Any) -> DocumentSet:
    """The set of documents that the settings name."""
    given = settings.challenge, getattr(settings, "rephrasings", "")
    return _load(*given, tuple(map(_file_versions, given)))


@lru_cache(maxsize=2)
def _load(name: str, rephrasings: str, versions: tuple[tuple[int, ...], ...]) -> DocumentSet:
    """The documents, cached until their files change."""
    return load_documents(name, rephrasings)


def _file_versions(path: str) -> tuple[int, ...]:
    """Modification time and size of a file, or of all files of a folder; () for the name of a set."""
    place = Path(path)
    files = sorted(place.iterdir()) if path and place.is_dir() else [place] if path and place.is_file() else []
    return tuple(number for file in files for number in (file.stat().st_mtime_ns, file.stat().st_size))


def _numbers(given: str) -> list[int]:
    numbers = [part.strip() for part in given.split(",") if part.strip()]
    if not numbers or not all(part.isdecimal() and int(part) <= MAX_SHOTS for part in numbers):
        raise UndertowError(
            f"--shots {given!r} must be numbers of examples from 0 to {MAX_SHOTS}, for example 0,5,10,20"
        )
    return list(dict.fromkeys(map(int, numbers)))


def _check_numbers(settings: Any) -> None:
    for name, least in MIN_OPTIONS.items():
        number = getattr(settings, name, least)
        if not (math.isfinite(number) and number >= least):
            raise UndertowError(f"--{name.replace('_', '-')} {number}: give {least} or more")
    idle = () if any(_numbers(settings.shots)) else ("shot_selection", "draws", "shot_wordings")
    defaults = type(settings)()
    for name in idle:
        if getattr(settings, name, None) != getattr(defaults, name, None):
            given = f"--{name.replace('_', '-')}"
            raise UndertowError(f"{given} {getattr(settings, name)}: there are no examples; add --shots 5")
    if getattr(settings, "temperature", 1) == 0 and settings.top_k != defaults.top_k:
        raise UndertowError(f"--top-k {settings.top_k} has no effect at temperature 0; add --temperature 0.7")
