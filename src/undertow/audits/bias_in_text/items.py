"""Items of the four tasks of bias in text: documents, task descriptions and few-shot examples, crossed; and the table of answers.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), sections 3 and 4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from undertow.audits.base import EXACT, PAPER, ItemBatches, Observations, Sampling
from undertow.audits.shared.item_limit import MIN_SENTENCES, shares, spread, too_few
from undertow.data.documents.document_set import DIMENSIONS, Document, DocumentSet, distinct_texts
from undertow.data.documents.document_sources import load_documents
from undertow.data.documents.few_shot import NO_SHOTS, SAMPLINGS, answer_prefix, draw_shots, prompt_of
from undertow.data.documents.task_wordings import DIMENSION_HOLE, TASKS, Wording, chosen, wordings
from undertow.errors import UndertowError
from undertow.types import (
    BEST_SPAN,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    Answer,
    ConstrainedGenerateQuery,
    Factor,
    Item,
    MultipleChoiceQuery,
    Query,
    Scores,
    digest,
)

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS
YES, NO = "Yes", "No"
GREEDY, TRIE, MAX_PROBABLE = "greedy", "trie", "exact"
"""Label decoding: greedy by token, greedy within the trie of labels, or the most probable label."""
CONSTRAINTS = (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
MAX_SHOTS = 100
PROTOCOLS = (EXACT,)

DOCUMENTS = {
    "help": "Documents: undertow-statements, cad, or a path: a table of your own, or CAD's full file, split file or folder."
}
DESCRIPTIONS = {"help": "TOML file with classes of task descriptions of your own, beside the paper's."}


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Options of all four tasks."""

    challenge: str = field(default="undertow-statements", metadata=DOCUMENTS)
    n_documents: int = field(
        default=0, metadata={"help": "Number of documents, sampled evenly over the labels; 0 for all."}
    )
    classes: str = field(
        default="", metadata={"help": "Classes of task descriptions, comma-separated; all if not given."}
    )
    wordings: int = field(default=0, metadata={"help": "Ask so many wordings of each class, chosen evenly; 0 for all."})
    shot_wordings: int = field(
        default=2, metadata={"help": "Likewise behind examples, where little is shared; 0 for as many as without."}
    )
    description_file: str = field(default="", metadata=DESCRIPTIONS)
    shots: str = field(default="0", metadata={"help": "Numbers of examples before the question, as in 0,5,10,20."})
    draws: int = field(default=3, metadata={"help": "Number of random samples of examples."})
    chat: bool = field(default=False, metadata={"help": "Put prompts into the model's own chat template."})


@dataclass(frozen=True, slots=True)
class WrittenSettings(TextSettings):
    """Options of the tasks whose answers are written."""

    wordings: int = field(default=4, metadata={"help": "Ask so many wordings of each class, chosen evenly; 0 for all."})
    shot_wordings: int = field(default=0, metadata={"help": "Likewise behind examples; 0 for as many as without."})
    temperature: float = field(
        default=0.0, metadata={"help": "0 for the most probable token at each step; the paper draws at 0.7."}
    )
    top_k: int = field(
        default=50, metadata={"help": "Draw from so many most probable tokens, where the temperature is above 0."}
    )
    line_ends: bool = field(
        default=False, metadata={"help": "Let a line break end an answer, not only the model's own end."}
    )


@dataclass(frozen=True, slots=True)
class Task:
    """One of the four tasks.

    Attributes:
        name: as users call it.
        samplings: how examples may be drawn.
    """

    name: str
    samplings: tuple[str, ...] = SAMPLINGS[:1]

    # Items.

    def items(self, settings: Any, sampling: Sampling) -> ItemBatches:
        """Yield documents x wordings x examples x decodings as one list."""
        _check_numbers(settings)
        items = list(self._items(settings, sampling))
        if not items:
            raise UndertowError(
                f"{settings.challenge}: the classes {settings.classes} name the dimension of bias, and no document has one; "
                "fill dimensions in, or ask other --classes"
            )
        yield items

    def _items(self, settings: Any, sampling: Sampling) -> Iterator[Item]:
        given = self._documents(settings)
        cells, n_documents = self._cells_within_limit(settings, sampling)
        documents = self._evaluation_documents(given.evaluation, settings, cells)
        pool = [self._with_passage(document) for document in self._applicable(given.training)]
        _check_pool(pool, cells, given)
        ground = _TaskContext(settings, sampling.seed, self._labels(given))
        # Draws are nested: the most examples of each are drawn once, and the cells take the first ones of them.
        most = max(cell.n_shots for cell in cells)
        draws = list(dict.fromkeys((cell.sampling, cell.draw) for cell in cells if cell.n_shots))
        drawn_by = self._spread if sampling.limit and n_documents != settings.n_documents else self._sample
        for document in drawn_by(documents, n_documents, sampling.seed):
            target = self._with_passage(document)
            drawn = {(s, d): draw_shots(pool, target, most, s, d, sampling.seed) for s, d in draws}
            for cell in cells:
                if document.dimension or DIMENSION_HOLE not in cell.wording.text:
                    shots = drawn[cell.sampling, cell.draw][: cell.n_shots] if cell.n_shots else ()
                    yield self._item(document, cell, ground, shots)

    def limitations(self, settings: Any, sampling: Sampling) -> list[str]:
        """The sentence on a run of too few documents for a claim, with the smallest limit that would do; none of enough."""
        n_given = len(self._applicable(self._documents(settings).evaluation))
        n_wanted = min(settings.n_documents or n_given, n_given)
        if n_wanted < MIN_SENTENCES:
            return [f"{_count_text(n_wanted)} cannot show anything of others: a claim needs at least {MIN_SENTENCES}."]
        cells, n_documents = self._cells_within_limit(settings, sampling)
        if not sampling.limit or n_documents >= MIN_SENTENCES:
            return []
        return [too_few(_count_text(n_documents), MIN_SENTENCES * len(cells))]

    def _cells_within_limit(self, settings: Any, sampling: Sampling) -> tuple[list[_Cell], int]:
        """Cells, and the number of documents in each; 0 for all.

        A limit of items is one of whole documents. Wordings are left out, alike of each class, until there are as many documents as
        wordings, and six at least.
        """
        bank = _select_wordings(self.name, settings)
        cells = list(self._cells(bank, settings, sampling.seed))
        if not sampling.limit:
            return cells, settings.n_documents
        n_given = len(self._applicable(self._documents(settings).evaluation))
        n_wanted = min(settings.n_documents or n_given, n_given)
        of_class = Counter(kind for kind, _ in dict.fromkeys(_wording_of(cell) for cell in cells))
        for n_wordings in range(max(of_class.values()) - 1, 0, -1):
            if sampling.limit // len(cells) >= min(n_wanted, max(len(set(map(_wording_of, cells))), MIN_SENTENCES)):
                break
            cells = list(self._cells(bank, replace(settings, wordings=n_wordings), sampling.seed))
        n_documents = max(sampling.limit // len(cells), 1)
        return cells, min(settings.n_documents or n_documents, n_documents)

    def _sample(self, documents: Sequence[Document], n: int, seed: int) -> list[Document]:
        """So many documents, as evenly over right answers (or dimensions) as there are of them; all where n is 0."""
        if not 0 < n < len(documents):
            return list(documents)
        strata: dict[str, list[int]] = {}
        for at in np.random.default_rng(seed).permutation(len(documents)):
            strata.setdefault(self._stratum(documents[at]), []).append(int(at))
        kept: list[int] = []
        while len(kept) < n:
            for name in sorted(strata):
                if strata[name] and len(kept) < n:
                    kept.append(strata[name].pop())
        return [documents[at] for at in sorted(kept)]

    def _spread(self, documents: Sequence[Document], n: int, seed: int) -> list[Document]:
        """So many documents as a limit leaves, as evenly over right answers, and then over dimensions, as there are of them."""
        strata: dict[str, list[int]] = {}
        for at, document in enumerate(documents):
            strata.setdefault(self.gold(document) if self.name == DIAGNOSIS else "", []).append(at)
        sizes = shares(n, [len(places) for places in strata.values()])
        kept = [
            places[at]
            for places, size in zip(strata.values(), sizes, strict=True)
            for at in spread([documents[place].dimension for place in places], size, seed)
        ]
        return [documents[at] for at in sorted(kept)]

    def _stratum(self, document: Document) -> str:
        return self.gold(document) if self.name == DIAGNOSIS else document.dimension

    def _documents(self, settings: Any) -> DocumentSet:
        given = settings.challenge, getattr(settings, "rephrasings", "")
        return _load(*given, tuple(map(_file_versions, given)))

    def _evaluation_documents(
        self, documents: Sequence[Document], settings: Any, cells: Sequence[_Cell]
    ) -> list[Document]:
        applicable = self._applicable(documents)
        if not applicable:
            n_training = len(self._applicable(self._documents(settings).training))
            if n_training:
                raise UndertowError(
                    f"{settings.challenge}: all its {n_training:,} documents for {self.name} are for training, and none to ask "
                    "about; name a set that has both, as a folder with all split files of CAD, or set rows to split evaluation"
                )
            raise UndertowError(
                f"{settings.challenge}: holds no document for {self.name}; it needs {_NEEDS[self.name]}"
            )
        if settings.n_documents > len(applicable):
            raise UndertowError(
                f"--n-documents {settings.n_documents}: {settings.challenge} has {len(applicable):,} for {self.name}; give that or "
                "less, or 0 for all"
            )
        if any(cell.sampling == SAMPLINGS[1] for cell in cells):
            strange = next((document for document in applicable if not document.category), None)
            if strange is not None:
                raise UndertowError(
                    f"document {strange.id!r}: its dimension {strange.dimension!r} is in no category of the paper, which "
                    "--shot-selection weak-oracle draws from; use --shot-selection random"
                )
        return applicable

    def _applicable(self, documents: Sequence[Document]) -> list[Document]:
        """Those that the task can be about; for diagnosis one of each text, so that none is right both ways."""
        applicable = [document for document in documents if self._applies_to(document)]
        return list(distinct_texts(applicable)) if self.name == DIAGNOSIS else applicable

    def _with_passage(self, document: Document) -> Document:
        """Document whose text is the passage of the question, so that no few-shot example repeats that passage with its answer."""
        return replace(document, text=self._passage(document))

    def _applies_to(self, document: Document) -> bool:
        if self.name == DIAGNOSIS:
            return True
        if self.name == IDENTIFICATION:
            return document.biased and bool(document.dimension)
        return bool(document.span) and (self.name == EXTRACTION or bool(document.rephrasing))

    def _cells(self, bank: Sequence[Wording], settings: Any, seed: int) -> Iterator[_Cell]:
        plain = chosen(bank, settings.wordings, seed)
        behind = chosen(plain, settings.shot_wordings, seed)
        own = TRIE if self.name == IDENTIFICATION else GREEDY
        decodings = _names(getattr(settings, "decoding", own), CONSTRAINTS if self.is_written else (own,), "decoding")
        samplings = _names(getattr(settings, "shot_selection", SAMPLINGS[0]), self.samplings, "shot-selection")
        for n in _numbers(settings.shots):
            drawn = [(s, d) for s in samplings for d in range(settings.draws)] if n else [(NO_SHOTS, 0)]
            for sampling, draw in drawn:
                for wording in behind if n else plain:
                    for decoding in decodings:
                        yield _Cell(wording, n, sampling, draw, decoding)

    @property
    def is_written(self) -> bool:
        """Whether answers are written, and not chosen."""
        return self.name in (EXTRACTION, REPHRASING)

    def _item(self, document: Document, cell: _Cell, ground: _TaskContext, shots: Sequence[Document]) -> Item:
        settings = ground.settings
        examples = [self._example(shot, cell.wording, ground) for shot in shots]
        factors: dict[str, Factor] = {
            "challenge": Path(settings.challenge).name,
            "task": self.name,
            "document": document.id,
            "dimension": document.dimension,
            "text": document.text,
            "passage": self._passage(document),
            "gold": self.gold(document),
            "description_class": cell.wording.kind,
            "wording": cell.wording.text,
            "shots": cell.n_shots,
            "sampling": cell.sampling,
            "draw": cell.draw,
            "decoding": decoding_name(cell.decoding, settings),
            "n_shots": len(shots),
            **{f"slot_{name}": level for name, level in cell.wording.slots.items()},
        }
        wording = digest([cell.wording.kind, cell.wording.text])[:8]
        name = f"{document.id}/{cell.wording.kind}-{wording}/{cell.n_shots}-{cell.sampling}-{cell.draw}/{cell.decoding}"
        query = self._query(document, cell, ground, tuple(examples))
        return Item(name, query, factors, cluster=document.id, gold=self.gold(document))

    def _query(self, document: Document, cell: _Cell, ground: _TaskContext, shots: tuple[str, ...]) -> Query:
        prompt, settings = self._block(document, cell.wording, None), ground.settings
        if self.is_written:
            drawn = settings.temperature > 0 and cell.decoding != BEST_SPAN
            return ConstrainedGenerateQuery(
                prompt,
                self._passage(document),
                cell.decoding,
                temperature=settings.temperature if drawn else 0.0,
                top_k=settings.top_k if drawn else 0,
                seed=ground.seed * 1000 + cell.draw if drawn else 0,
                line_ends=settings.line_ends,
                shots=shots,
                chat=settings.chat,
            )
        labels = tuple(answer_prefix(cell.wording) + label for label in ground.labels)
        return MultipleChoiceQuery(prompt, labels, shots, first_token=self.name == DIAGNOSIS, chat=settings.chat)

    def _example(self, document: Document, wording: Wording, ground: _TaskContext) -> str:
        """An answered example, made once: many prompts hold it."""
        key = document.id, wording.kind, wording.text
        if key not in ground.examples:
            ground.examples[key] = self._block(document, wording, self.gold(document))
        return ground.examples[key]

    def _block(self, document: Document, wording: Wording, answer: str | None) -> str:
        return prompt_of(self._passage(document), wording, answer, document.dimension)

    def _passage(self, document: Document) -> str:
        """What the description is about: the document, or for rephrasing its span alone."""
        return document.span if self.name == REPHRASING else document.text

    def gold(self, document: Document) -> str:
        """The right answer."""
        if self.name == DIAGNOSIS:
            return YES if document.biased else NO
        return {IDENTIFICATION: document.dimension, EXTRACTION: document.span, REPHRASING: document.rephrasing}[
            self.name
        ]

    def _labels(self, given: DocumentSet) -> list[str]:
        """What is chosen among; [] where answers are written. Dimensions of the paper, unless documents have others."""
        if self.is_written:
            return []
        if self.name == DIAGNOSIS:
            return [YES, NO]
        own = dict.fromkeys(one.dimension for one in (*given.evaluation, *given.training) if self._applies_to(one))
        if set(own) <= set(DIMENSIONS):
            return list(DIMENSIONS)
        _check_labels(given.name, sorted(own))
        return sorted(own)

    # What came back.

    def design(self, settings: Any) -> dict[str, Any]:
        """Labels, the source of the documents, and what a reader must know of them."""
        given = self._documents(settings)
        return {
            "task": self.name,
            "labels": self._labels(given),
            "title": given.title,
            "source": given.source,
            "document_notes": list(given.notes),
            "documents_sha256": digest(
                [[one.id, one.text, self.gold(one)] for one in given.evaluation if self._applies_to(one)]
            ),
            "protocol": EXACT,
            "sampled": bool(getattr(settings, "temperature", 0.0)),
        }

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        """A row for each answer; a choice among labels has two, by greedy steps and by the most probable label."""
        import pandas as pd

        labels = list(design["labels"])
        rows = []
        for item, answer in zip(items, scores.answers, strict=True):
            said = _answer_rows(item, answer, labels)
            if self.name == IDENTIFICATION and design["protocol"] == PAPER:
                said[PAPER] = said.pop("")
            rows += [
                {
                    "item": f"{item.id}" if decoding == "" else f"{item.id}/{decoding}",
                    "model": model,
                    **item.factors,
                    **one,
                }
                | ({"decoding": decoding} if decoding else {})
                for decoding, one in said.items()
            ]
        frame = pd.DataFrame(rows)
        for name in [name for name in frame.columns if name.startswith("slot_")]:
            frame[name] = frame[name].fillna("")
        frame["cluster"] = frame["document"]
        return Observations(frame, dict(design))

    def load_recorded(self, path: Path, protocol: str) -> tuple[Observations, str]:
        """Answers that were got elsewhere: `document, gold, answer` and any of the factors.

        Raises:
            UndertowError: the table lacks what it needs.
        """
        from undertow.audits.bias_in_text.recorded_answers import read_answers

        return read_answers(path, self.name, protocol, (YES, NO) if self.name == DIAGNOSIS else ())


@lru_cache(maxsize=2)
def _load(name: str, rephrasings: str, stamps: tuple[tuple[int, ...], ...]) -> DocumentSet:
    """The documents, read once as long as their files stay as they are."""
    return load_documents(name, rephrasings)


def _file_versions(path: str) -> tuple[int, ...]:
    """When a file was last written, and its size; of a folder, of all files in it; () of a name."""
    place = Path(path)
    files = sorted(place.iterdir()) if path and place.is_dir() else [place] if path and place.is_file() else []
    return tuple(number for file in files for number in (file.stat().st_mtime_ns, file.stat().st_size))


_NEEDS = {
    DIAGNOSIS: "documents that are biased or not",
    IDENTIFICATION: "biased documents with their dimension",
    EXTRACTION: "biased documents with their span, as CAD's full file has them and its split files have not",
    REPHRASING: "biased spans with a rephrasing; give some with --rephrasings FILE",
}


@dataclass(frozen=True, slots=True)
class _TaskContext:
    """What all cells share: the settings, the seed, the labels, and examples made so far."""

    settings: Any
    seed: int
    labels: Sequence[str]
    examples: dict[tuple[str, str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One way of asking about every document."""

    wording: Wording
    n_shots: int
    sampling: str
    draw: int
    decoding: str


def decoding_name(decoding: str, settings: Any) -> str:
    """The level of `decoding` in the table: the constraint, and the temperature where tokens are drawn."""
    temperature = getattr(settings, "temperature", 0.0)
    return f"{decoding}, T {temperature:g}" if temperature and decoding != BEST_SPAN else decoding


def _answer_rows(item: Item, answer: Answer, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Texts of one answer by decoding; "" is the decoding of the query."""
    known = not answer.missing_reason
    common: dict[str, Any] = {
        "answer": answer.text.strip(),
        "nats": answer.logprobs_nats[0] if known and answer.logprobs_nats else math.nan,
        "n_dropped_shots": answer.n_dropped_shots,
        "missing_reason": answer.missing_reason,
    }
    if not labels:
        return {"": common}
    common["other_words"] = 100 * answer.other_prob
    nats = np.array(answer.logprobs_nats if known else [math.nan] * len(labels), dtype=np.float64)
    named = {label.casefold(): at for at, label in enumerate(labels)}
    greedy = named.get(common["answer"].casefold(), -1)
    common["nats"] = float(nats[greedy]) if greedy >= 0 else math.nan
    if labels == [YES, NO]:
        return {"": common | {"yes_percent": _share(nats)}}
    if not np.isfinite(nats).any():
        why = answer.missing_reason or "decoding exact: the server does not show how probable each label is"
        best = common | {"answer": "", "nats": math.nan, "missing_reason": why}
    else:
        at = int(np.nanargmax(nats))
        best = common | {"answer": labels[at], "nats": float(nats[at])}
    return {"": common, MAX_PROBABLE: best}


def _share(nats: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Percent of the first of two labels, among both."""
    if not np.isfinite(nats).all():
        return math.nan
    return float(100 / (1 + np.exp(nats[1] - nats[0])))


def _select_wordings(task: str, settings: Any) -> list[Wording]:
    own = Path(settings.description_file) if settings.description_file else None
    bank = wordings(task, own)
    kinds = list(dict.fromkeys(wording.kind for wording in bank))
    wanted = _names(settings.classes or ",".join(kinds), tuple(kinds), "classes")
    return [wording for wording in bank if wording.kind in wanted]


def _names(given: str, known: Sequence[str], option: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    strange = [name for name in names if name not in known]
    if strange or not names:
        what = f"{strange[0]!r} is unknown" if strange else "is empty"
        raise UndertowError(f"--{option} {given!r}: {what}; use {', '.join(known)}")
    return names


def _numbers(given: str) -> list[int]:
    numbers = [part.strip() for part in given.split(",") if part.strip()]
    if not numbers or not all(part.isdecimal() and int(part) <= MAX_SHOTS for part in numbers):
        raise UndertowError(f"--shots {given!r}: write numbers of examples from 0 to {MAX_SHOTS}, as in 0,5,10,20")
    return list(dict.fromkeys(map(int, numbers)))


MIN_VALUES = {"n_documents": 0, "wordings": 0, "shot_wordings": 0, "draws": 1, "temperature": 0, "top_k": 0}
"""The least that options may be, also where the rest of the options makes them idle."""


def _check_numbers(settings: Any) -> None:
    for option, least in MIN_VALUES.items():
        number = getattr(settings, option, least)
        if not (math.isfinite(number) and number >= least):
            raise UndertowError(f"--{option.replace('_', '-')} {number}: give {least} or more")
    idle = () if any(_numbers(settings.shots)) else ("shot_selection", "draws", "shot_wordings")
    defaults = type(settings)()
    for name in idle:
        if getattr(settings, name, None) != getattr(defaults, name, None):
            option = f"--{name.replace('_', '-')}"
            raise UndertowError(
                f"{option} {getattr(settings, name)} is for prompts with examples, and there are none; add --shots 5, or leave "
                f"{option} out"
            )
    if getattr(settings, "temperature", 1) == 0 and settings.top_k != WrittenSettings().top_k:
        raise UndertowError(
            f"--top-k {settings.top_k}: at temperature 0 nothing is drawn; add --temperature 0.7, or leave --top-k out"
        )


def _check_labels(name: str, labels: Sequence[str]) -> None:
    """Refuse fewer than two labels, and labels that differ in case only."""
    if len(labels) < 2:
        raise UndertowError(
            f"{name}: all its documents have the dimension {labels[0]!r}, so that there is nothing to choose between; "
            "add documents of another one"
        )
    spelled: dict[str, str] = {}
    for label in labels:
        if spelled.setdefault(label.casefold(), label) != label:
            raise UndertowError(
                f"{name}: the dimensions {spelled[label.casefold()]!r} and {label!r} differ in case only; write them alike"
            )


def _wording_of(cell: _Cell) -> tuple[str, str]:
    return cell.wording.kind, cell.wording.text


def _count_text(n_documents: int) -> str:
    return f"{n_documents} document{'' if n_documents == 1 else 's'}"


def _check_pool(pool: Sequence[Document], cells: Sequence[_Cell], given: DocumentSet) -> None:
    most = max(cell.n_shots for cell in cells)
    if most and not pool:
        raise UndertowError(
            f"{given.name}: holds no training documents to draw examples from; leave --shots at 0, or name a set that has some: a "
            "folder with all split files of CAD, or a table with rows of split train"
        )
