"""Words of the report on the four tasks of bias in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.stats import MIN_CLUSTERS
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

DECODINGS = {
    "greedy": "the likelier of the two labels",
    "paper": "the label that the most probable next token leads to, step by step, where an end competes from the second step on, as in "
    "the paper; a part of a label is wrong",
    "trie": "the label that the most probable next token leads to, step by step, and no part of one",
    "exact": "the most probable label of all, each with all its tokens",
    "unconstrained": "any tokens",
    "document": "tokens of the text, in any order",
    "span": "a contiguous piece of the text, step by step",
    "span-exact": "the most probable contiguous piece of the text",
}
BASELINES = {
    "(majority)": "the most frequent label of the other texts; where labels are evenly frequent that is always another one",
    "(always Yes)": "the answer Yes to every text",
    "(random)": "a guess at random",
    "(copy)": "the whole text, copied",
    "(random span)": "a piece of the text at random",
}


def design_sentences(observations: Observations) -> list[str]:
    """What was asked."""
    frame, design = observations.frame, observations.design
    n_wordings = len(frame[["description_class", "wording"]].drop_duplicates())
    shots = ", ".join(map(str, dict.fromkeys(frame["shots"])))
    sentences = [
        f"{frame['document'].nunique():,} documents of {design['title']} ({design['source']}).",
        f"{n_wordings:,} wordings of the task in {frame['description_class'].nunique()} classes; {shots} examples before the question.",
    ]
    return [*sentences, f"Labels: {', '.join(design['labels'])}."] if design["labels"] else sentences


def notes(observations: Observations, results: Sequence[Result]) -> list[str]:
    """What the numbers rest on and do not show."""
    frame, design = observations.frame, observations.design
    meteor = dict.fromkeys(one.note.partition("; ")[0] for one in results if one.measure == "meteor" and one.note)
    sentences = [
        *(f"Documents: {note}." for note in design.get("document_notes", [])),
        *design.get("w_notes", []),
        *(f"METEOR: {note}." for note in meteor),
        "An interval is over documents like these; the wordings are the design and are not a sample of others. Fewer than "
        f"{MIN_CLUSTERS} documents have none, and nothing is claimed of them.",
        "Baselines are scored on the texts whose answers are scored, and the most frequent label is that of the other texts.",
        "An empty or undecodable answer of a model is a wrong answer and stays in; a recorded answer that is none of the labels is "
        "missing.",
    ]
    fewer = (frame["n_shots"] < frame["shots"]).mean() if "n_shots" in frame else 0.0
    if fewer > 0:
        sentences.append(
            f"{100 * fewer:.0f}% of the prompts have fewer examples than their number says: the training documents ran out."
        )
    return sentences


def glossary(frame: pd.DataFrame) -> dict[str, str]:
    """What each baseline and each decoding of the run is, by a name that says so."""
    meanings = dict(BASELINES)
    for name in dict.fromkeys(frame["decoding"].astype(str)):
        plain, _, drawn = name.partition(", T ")
        if plain in DECODINGS:
            meanings[f"decoding {name}"] = DECODINGS[plain] + (
                f"; tokens drawn at temperature {drawn}" if drawn else ""
            )
    return meanings
