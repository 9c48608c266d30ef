"""The four tasks of bias in text: which documents each is about, what it shows of one, and which answer is right.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from undertow.data.documents.document_set import DIMENSIONS, Document, DocumentSet, distinct_texts
from undertow.data.documents.few_shot import SAMPLINGS
from undertow.data.documents.task_wordings import TASKS
from undertow.errors import UndertowError
from undertow.types import BEST_SPAN, PASSAGE_TOKENS, SPAN, UNCONSTRAINED

YES, NO = "Yes", "No"
GREEDY, TRIE, MAX_PROBABLE = "greedy", "trie", "exact"
"""Label decoding: greedy by token, greedy within the trie of labels, or the most probable label."""


class Task:
    """One of the four tasks.

    Attributes:
        name: of the audit.
        needs: what a document must have, in words.
        decodings: how answers may be decoded, the default first.
        samplings: how examples may be drawn.
        is_written: whether answers are written, and not chosen among labels.
        first_token: whether labels are compared by their first tokens alone.
        passage_column: column of a recorded table that holds what the description is about.
        gold_is_dimension: whether the right answer is the document's dimension.
        answers: the labels of every set of documents; () where these decide.
    """

    name: ClassVar[str]
    needs: ClassVar[str]
    decodings: ClassVar[tuple[str, ...]] = (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
    samplings: ClassVar[tuple[str, ...]] = SAMPLINGS[:1]
    is_written: ClassVar[bool] = False
    first_token: ClassVar[bool] = False
    passage_column: ClassVar[str] = "text"
    gold_is_dimension: ClassVar[bool] = False
    answers: ClassVar[tuple[str, ...]] = ()

    def applies_to(self, document: Document) -> bool:
        """Whether the task can be about a document."""
        return True

    def applicable(self, documents: Sequence[Document]) -> list[Document]:
        """The documents that the task can be about."""
        return [document for document in documents if self.applies_to(document)]

    def stratum(self, document: Document) -> str:
        """Right answer over which documents are sampled evenly; "" where they are sampled over dimensions alone."""
        return ""

    def passage(self, document: Document) -> str:
        """What the description is about."""
        return document.text

    def gold(self, document: Document) -> str:
        """The right answer."""
        raise NotImplementedError

    def labels(self, given: DocumentSet) -> list[str]:
        """What is chosen among; [] where answers are written."""
        return list(self.answers)


class Diagnosis(Task):
    """Whether a text is biased; one of each text is asked about, so that none is right both ways."""

    name = TASKS[0]
    needs = "documents that are biased or not"
    decodings = (GREEDY,)
    first_token = True
    answers = (YES, NO)

    def applicable(self, documents: Sequence[Document]) -> list[Document]:
        return list(distinct_texts(documents))

    def stratum(self, document: Document) -> str:
        return self.gold(document)

    def gold(self, document: Document) -> str:
        return YES if document.biased else NO


class Identification(Task):
    """On which dimension a text is biased: one of the paper's, unless documents have others."""

    name = TASKS[1]
    needs = "biased documents with their dimension"
    decodings = (TRIE,)
    samplings = SAMPLINGS
    gold_is_dimension = True

    def applies_to(self, document: Document) -> bool:
        return document.biased and bool(document.dimension)

    def gold(self, document: Document) -> str:
        return document.dimension

    def labels(self, given: DocumentSet) -> list[str]:
        own = sorted({one.dimension for one in (*given.evaluation, *given.training) if self.applies_to(one)})
        if set(own) <= set(DIMENSIONS):
            return list(DIMENSIONS)
        if len(own) < 2:
            raise UndertowError(f"{given.name}: all documents have the dimension {own[0]!r}; add some of another")
        spelled: dict[str, str] = {}
        for label in own:
            if spelled.setdefault(label.casefold(), label) != label:
                raise UndertowError(
                    f"{given.name}: the dimensions {spelled[label.casefold()]!r} and {label!r} differ in case only; "
                    "write them alike"
                )
        return own


class Extraction(Task):
    """Which piece of a text is biased."""

    name = TASKS[2]
    needs = "biased documents with their span, as CAD's full file has them and its split files have not"
    is_written = True

    def applies_to(self, document: Document) -> bool:
        return bool(document.span)

    def gold(self, document: Document) -> str:
        return document.span


class Rephrasing(Task):
    """A biased span without its bias; the description is about the span alone."""

    name = TASKS[3]
    needs = "biased spans with a rephrasing; give some with --rephrasings FILE"
    is_written = True
    passage_column = "span"

    def applies_to(self, document: Document) -> bool:
        return bool(document.span) and bool(document.rephrasing)

    def passage(self, document: Document) -> str:
        return document.span

    def gold(self, document: Document) -> str:
        return document.rephrasing
