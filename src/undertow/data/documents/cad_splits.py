"""CAD's split files: `id`, `text` and the primary categories of each text, no rationale. They serve diagnosis only.

Written by CAD's authors from the full file, without its slurs: a text that is annotated as a slur alone stands there as neutral.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from undertow.data.documents.cad_notes import diagnosis_notes, left_out_note
from undertow.data.documents.cad_values import COARSE, NEUTRAL, cad_rows, clean, primary_of
from undertow.data.documents.document_set import EVALUATION, TRAINING, Document, DocumentSet, seen_in_training

SPLIT_COLUMNS = ("id", "text", "labels")
MAX_TRAINING_WORDS = 150
"""Bauer et al., section 4.1, filter iv."""
TOO_LONG = f"training documents of more than {MAX_TRAINING_WORDS} words"
NO_TEXT = "without a text"
NEITHER = "neither neutral nor directed at an identity or an affiliation"


class Ids:
    """Ids that are unique: the second document of an id becomes `id#2`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """The id, with a number if it is taken."""
        unique, number = name, 1
        while unique in self._taken:
            number += 1
            unique = f"{name}#{number}"
        self._taken.add(unique)
        return unique


def is_too_long(text: str, split: str) -> bool:
    """Whether a text is one of training that the paper leaves out for its length."""
    return split == TRAINING and len(text.split()) > MAX_TRAINING_WORDS


def read_splits(paths: Sequence[Path]) -> DocumentSet:
    """The documents of split files. A file with *train* in its name is for training, any other for evaluation.

    Raises:
        UndertowError: a file is not what it must be; names the line.
    """
    ids, left_out = Ids(), Counter[str]()
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    for path in paths:
        split = TRAINING if "train" in path.name.lower() else EVALUATION
        for where, row in cad_rows(path, SPLIT_COLUMNS):
            text = clean(row["text"])
            biased = _is_biased({primary_of(label, where) for label in row["labels"].split(",")})
            reason = _reason(text, split, biased)
            left_out[reason] += 1
            if not reason:
                parts[split].append(Document(ids.unique(row["id"].strip()), text, bool(biased)))
    evaluation, training = tuple(parts[EVALUATION]), tuple(parts[TRAINING])
    return DocumentSet(
        name="cad-splits",
        title="Contextual Abuse Dataset, texts and labels",
        source=f"Vidgen et al. 2021 (CC BY 4.0), {', '.join(path.name for path in paths)}",
        evaluation=evaluation,
        training=training,
        notes=(
            "these files hold neither dimensions nor spans: they serve diagnosis alone, and the paper's filters that ask for"
            " a rationale cannot be applied",
            *diagnosis_notes(evaluation, training),
            *left_out_note({reason: n for reason, n in left_out.items() if reason}),
            *seen_in_training(evaluation, training),
        ),
    )


def _is_biased(labels: Collection[str]) -> bool | None:
    """Whether these labels make a text biased; None where they make it neither biased nor neutral."""
    if any(label in COARSE for label in labels):
        return True
    return False if set(labels) == {NEUTRAL} else None


def _reason(text: str, split: str, biased: bool | None) -> str:
    """Why a text is left out; "" if it is not."""
    if not text:
        return NO_TEXT
    if biased is None:
        return NEITHER
    return TOO_LONG if is_too_long(text, split) else ""
