"""Few-shot examples: selection of documents, and their format with answers.

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
    """Up to `n` examples for one document, in prompt order, from documents that all suit the task.

    The examples of a smaller `n` are the first ones of a larger `n`, so that numbers of examples are compared on the same examples and
    shared prefixes are computed once. Texts are distinct and differ from the target's. `draw` numbers independent draws.

    Sampling `random` is uniform. `weak-oracle` uses the coarse category of the target's bias: it takes one example of each dimension of
    the category, repeatedly. The paper does not specify the order of dimensions. Here it is shuffled for each target and draw, because in
    a fixed order five examples would never include the last three of the eight identity dimensions.

    Raises:
        UndertowError: there is no such sampling, or the target's dimension has no category.
    """
    rng = np.random.default_rng(int(digest([seed, draw, target.id, sampling]), 16))
    if sampling == RANDOM:
        candidates = _distinct(_shuffle(documents, rng), {target.text})
    elif sampling == WEAK_ORACLE:
        if not target.category:
            raise UndertowError(
                f"document {target.id!r}: no category has its dimension {target.dimension!r}; use sampling {RANDOM}"
            )
        members = CATEGORIES[target.category]
        order = [members[place] for place in rng.permutation(len(members))]
        taken = {target.text}
        # Queues are lazy, so that the first dimension takes a text that two dimensions share.
        queues = [_distinct(_shuffle([d for d in documents if d.dimension == member], rng), taken) for member in order]
        candidates = (document for cycle in zip_longest(*queues) for document in cycle if document is not None)
    else:
        raise UndertowError(f"there is no sampling called {sampling!r}; use one of {', '.join(SAMPLINGS)}")
    return tuple(islice(candidates, n))


def prompt_of(document_text: str, wording: Wording, answer: str | None, dimension: str = "") -> str:
    """A document with its question and, for an example, its answer; a prompt concatenates examples and target.

        {document}                                    {document}
        Question: ...?                                Question: ...?
        Answer: {answer}            an example        Answer:              the question itself

    Without a description the answer is on the line after the document; it is None for the target. The text is inserted literally, with
    braces.

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
    """Separator of a wording and its answer: a space after words, nothing at the start of a line."""
    return " " if wording.text else ""


def _shuffle(documents: Sequence[Document], rng: np.random.Generator) -> list[Document]:
    return [documents[place] for place in rng.permutation(len(documents))]


def _distinct(documents: Iterable[Document], taken: set[str]) -> Iterator[Document]:
    for document in documents:
        if document.text not in taken:
            taken.add(document.text)
            yield document
