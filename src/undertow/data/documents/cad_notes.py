"""What a reader must know about documents from CAD: how many there are beside the paper's, and what was left out.

Bauer et al. 2022, section 4.1 and tables A1 and A2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from undertow.data.documents.document_set import DIMENSIONS, Document, distinct_texts, seen_in_training

PAPER_TASKS: Mapping[str, int] = {"diagnosis": 1209, "identification": 580, "extraction": 496, "rephrasing": 437}
"""Documents of the paper's evaluation sets."""
PAPER_YES_NO: Mapping[str, tuple[int, int]] = {"evaluation": (596, 613), "training": (892, 891)}
"""Table A1: biased and not."""
PAPER_DIMENSIONS: Mapping[str, tuple[int, ...]] = {
    "evaluation": (19, 101, 72, 45, 1, 31, 8, 81, 59, 138, 25),
    "training": (13, 233, 82, 70, 16, 41, 10, 185, 63, 267, 28),
}
"""Table A2, in the order of `DIMENSIONS`."""
NEUTRAL_CHOICE = (
    "the paper does not say which of CAD's neutral documents it took to match its biased ones; all of them are here, "
    "so a balanced set has to be drawn from them"
)


def task_notes(evaluation: Sequence[Document], training: Sequence[Document]) -> tuple[str, ...]:
    """What each task finds here, beside what the paper had."""
    parts = {"evaluation": evaluation, "training": training}
    biased = {name: [document for document in part if document.biased] for name, part in parts.items()}
    n_evaluation, n_training = len(biased["evaluation"]), len(biased["training"])
    n_spans = sum(bool(document.span) for document in evaluation)
    return (
        *diagnosis_notes(evaluation, training),
        f"identification: {n_evaluation:,} documents of the evaluation splits pass the filters (the paper has"
        f" {PAPER_TASKS['identification']}), {n_training:,} of the training split (the paper has {sum(PAPER_DIMENSIONS['training']):,})",
        *(_dimensions(name, part) for name, part in biased.items()),
        f"extraction: {n_spans:,} documents of the evaluation splits have a span (the paper has {PAPER_TASKS['extraction']})",
        f"rephrasing: CAD holds no rephrasings (the paper has {PAPER_TASKS['rephrasing']}, collected by hand)",
        *seen_in_training(evaluation, training),
    )


def diagnosis_notes(evaluation: Sequence[Document], training: Sequence[Document]) -> tuple[str, ...]:
    """How many distinct texts are biased and how many not, beside table A1."""
    notes = []
    for name, part in (("evaluation", evaluation), ("training", training)):
        if not part:
            continue
        texts = distinct_texts(part)
        yes = sum(document.biased for document in texts)
        of_paper = PAPER_YES_NO[name]
        notes.append(
            f"diagnosis: {len(texts):,} distinct {name} texts, {yes:,} biased and {len(texts) - yes:,} not"
            f" (the paper has {sum(of_paper):,}: {of_paper[0]} and {of_paper[1]})"
        )
        both = {d.text for d in part if d.biased} & {d.text for d in part if not d.biased}
        if both:
            notes.append(f"{len(both):,} {name} texts stand both as biased and as not; diagnosis counts them as biased")
    return (*notes, NEUTRAL_CHOICE)


def left_out_note(left_out: Mapping[str, int]) -> tuple[str, ...]:
    """How many rows are not here, by the first reason of each."""
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in left_out.items() if n)
    return (f"left out: {reasons}",) if reasons else ()


def stranger_note(strangers: Mapping[str, int]) -> tuple[str, ...]:
    """Targets that are on none of the eleven dimensions, with how often each came."""
    names = ", ".join(f"{name!r} {n:,}" for name, n in Counter(strangers).most_common())
    return (f"targets that are not known to be on one of the eleven dimensions: {names}",) if names else ()


def _dimensions(name: str, biased: Sequence[Document]) -> str:
    counts = Counter(document.dimension for document in biased)
    pairs = zip(DIMENSIONS, PAPER_DIMENSIONS[name], strict=True)
    counts_text = ", ".join(f"{dimension} {counts[dimension]:,} ({n})" for dimension, n in pairs)
    return f"identification, {name} (the paper): {counts_text}"
