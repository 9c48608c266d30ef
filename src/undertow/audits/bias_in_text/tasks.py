"""The four tasks of bias in text: their documents, passages and right answers.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undertow.data.documents.document_set import DIMENSIONS, Document, DocumentSet, distinct_texts
from undertow.data.documents.few_shot import SAMPLINGS
from undertow.data.documents.task_wordings import TASKS
from undertow.errors import UndertowError
from undertow.types import BEST_SPAN, PASSAGE_TOKENS, SPAN, UNCONSTRAINED

YES, NO = "Yes", "No"
GREEDY, TRIE, MAX_PROBABLE = "greedy", "trie", "exact"
"""Label decoding: greedy by token, greedy within the trie of labels, or the most probable label."""
FREE_REPLY = "free reply"
FREE_REPLIES = {GREEDY: FREE_REPLY, TRIE: FREE_REPLY, UNCONSTRAINED: FREE_REPLY, SPAN: f"span of a {FREE_REPLY}"}
"""The level of `decoding` under protocol text, which constrains no answer, by the decoding of the query."""
BIASED, DIMENSION = "biased", "dimension"


@dataclass(frozen=True, slots=True)
class Task:
    """One of the four tasks.

    Attributes:
        name: of the audit.
        target: the field of a document with the right answer; empty if the document has none.
        needs: required content of a document, in words.
        passage_column: the field that precedes the description.
        decodings: possible decodings, the default first.
        samplings: possible samplings of examples.
    """

    name: str
    target: str
    needs: str
    passage_column: str = "text"
    decodings: tuple[str, ...] = (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
    samplings: tuple[str, ...] = SAMPLINGS[:1]

    @property
    def gold_is_dimension(self) -> bool:
        """Whether the right answer is the document's dimension."""
        return self.target == DIMENSION

    @property
    def is_written(self) -> bool:
        """Whether answers are generated instead of chosen among labels."""
        return self.target not in (BIASED, DIMENSION)

    @property
    def answers(self) -> tuple[str, ...]:
        """Labels that do not depend on the documents; () if they do."""
        return (YES, NO) if self.target == BIASED else ()

    def gold(self, document: Document) -> str:
        """The right answer; "" if there is none."""
        return (YES if document.biased else NO) if self.target == BIASED else str(getattr(document, self.target))

    def passage(self, document: Document) -> str:
        """The text that precedes the description."""
        return str(getattr(document, self.passage_column))

    def applicable(self, documents: Sequence[Document]) -> list[Document]:
        """Documents that suit the task; one per text if each text must have one right answer."""
        return list(distinct_texts(documents)) if self.answers else [one for one in documents if self.gold(one)]

    def stratum(self, document: Document) -> str:
        """Stratum of sampling, beside the dimension: the right answer, or "" if only dimensions are balanced."""
        return self.gold(document) if self.answers else ""

    def labels(self, given: DocumentSet) -> list[str]:
        """The labels: the paper's dimensions unless documents have others; [] for generated answers."""
        if not self.gold_is_dimension:
            return list(self.answers)
        own = sorted({one.dimension for one in self.applicable((*given.evaluation, *given.training))})
        if set(own) <= set(DIMENSIONS):
            return list(DIMENSIONS)
        if len(own) < 2:
            raise UndertowError(f"{given.name}: all documents have the dimension {own[0]!r}; add some of another")
        spelled = {label.casefold(): label for label in own}
        alike = next((label for label in own if spelled[label.casefold()] != label), None)
        if alike is not None:
            other = spelled[alike.casefold()]
            raise UndertowError(
                f"{given.name}: the dimensions {alike!r} and {other!r} differ in case only; write them alike"
            )
        return own


DIAGNOSIS = Task(TASKS[0], BIASED, "documents that are biased or not", decodings=(GREEDY,))
IDENTIFICATION = Task(
    TASKS[1], DIMENSION, "biased documents with their dimension", decodings=(TRIE,), samplings=SAMPLINGS
)
EXTRACTION = Task(
    TASKS[2], "span", "biased documents with their span, as CAD's full file has them and its split files have not"
)
REPHRASING = Task(
    TASKS[3], "rephrasing", "biased spans with a rephrasing; give some with --rephrasings FILE", passage_column="span"
)
