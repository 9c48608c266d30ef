"""Few-shot examples: which documents precede the target, and how each is formatted with its answer.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 4.4 and
appendix A.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest

import numpy as np

from undertow.data.documents.document_set import CATEGORIES, Document
from undertow.data.documents.task_wordings import DIMENSION_HOLE, Wording
from undertow.errors import UndertowError
from undertow.types import digest

RANDOM, WEAK_ORACLE = "random", "weak-oracle"
SAMPLINGS = (RANDOM, WEAK_ORACLE)
NO_SHOTS = "none"
"""The sampling of prompts without examples."""


def draw_shots(  # noqa: PLR0913, PLR0917 - where from, for whom, and the four things that a draw is named by
    documents: Sequence[Document], target: Document, n: int, sampling: str, draw: int, seed: int
) -> tuple[Document, ...]:
    """Examples for one document, in the order in which they stand before it.

    The examples of a smaller `n` are the first ones of a larger: numbers of examples are compared on the same ones, and what
    they share is read once. Texts are distinct, and none is the target's own.

    `weak-oracle` knows the coarse category of the target's bias: it takes one example of each dimension of the category, and
    begins again. The paper leaves open which dimension comes first. Here the order is shuffled for each target and draw: in
    a fixed one the last three of the eight identity dimensions would never be shown among five examples.

    Args:
        documents: what to draw from; all of them must suit the task.
        target: the document to query.
        n: how many; there are fewer where the documents run out.
        sampling: `random`, uniform over documents, or `weak-oracle`.
        draw: which of several independent draws.
        seed: of all draws.

    Raises:
        UndertowError: there is no such sampling, or the target's dimension has no category to draw from.
    """
    rng = np.random.default_rng(int(digest([seed, draw, target.id, sampling]), 16))
    if sampling == RANDOM:
        candidates = _distinct(_shuffle(documents, rng), {target.text})
    elif sampling == WEAK_ORACLE:
        candidates = _round_robin(documents, target, rng)
    else:
        raise UndertowError(f"there is no sampling called {sampling!r}; use one of {', '.join(SAMPLINGS)}")
    return tuple(islice(candidates, n))


def prompt_of(document_text: str, wording: Wording, answer: str | None, dimension: str = "") -> str:
    """A document with its question and, for an example, its answer; a prompt concatenates examples and target.

        {document}                                    {document}
        Question: ...?                                Question: ...?
        Answer: {answer}            an example        Answer:              the question itself

    Without a description the answer stands on the line behind the document.

    Args:
        document_text: taken as it stands, braces and all.
        wording: of the task.
        answer: None for the target.
        dimension: of the document's bias, for wordings that name it.

    Raises:
        UndertowError: the wording names the dimension, and there is none.
    """
    if DIMENSION_HOLE in wording.text and not dimension:
        raise UndertowError(
            f"class {wording.kind!r} names the dimension of bias, and a document has none; leave it out"
        )
    question = f"{document_text}\n{wording.text.replace(DIMENSION_HOLE, dimension)}"
    return question if answer is None else f"{question}{answer_prefix(wording)}{answer}\n\n"


def answer_prefix(wording: Wording) -> str:
    """What stands between a wording and its answer: a space behind words, nothing at the start of a line."""
    return " " if wording.text else ""


def _shuffle(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    return [documents[place] for place in rng.permutation(len(documents))]


def _distinct(documents: Iterable[Document], taken: set[str]) -> Iterator[Document]:
    for document in documents:
        if document.text not in taken:
            taken.add(document.text)
            yield document


def _round_robin(documents: Sequence[Document], target: Document, rng: np.random.Generator) -> Iterator[Document]:
    """One of each dimension of the target's category, again and again; dimensions that have run out are passed over."""
    if not target.category:
        raise UndertowError(
            f"document {target.id!r}: no category has its dimension {target.dimension!r}; use sampling {RANDOM}"
        )
    members = CATEGORIES[target.category]
    order = [members[place] for place in rng.permutation(len(members))]
    taken = {target.text}
    # Each queue takes its texts only when its turn comes, so that a text which two dimensions have goes to whoever is first.
    queues = [_distinct(_shuffle([d for d in documents if d.dimension == member], rng), taken) for member in order]
    cycles = zip_longest(*queues)
    return (document for cycle in cycles for document in cycle if document is not None)
