"""Words of the report on the four tasks of bias in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.report.sentence_templates import lines, sentences
from undertow.stats import MIN_CLUSTERS
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd


def design_sentences(observations: Observations) -> list[str]:
    """What was asked."""
    frame = observations.frame
    counts = {name: frame[name].nunique() for name in ("document", "description_class")}
    counts["wording"] = len(frame[["description_class", "wording"]].drop_duplicates())
    return lines(
        sentences("bias_in_text").questions(observations.design, counts, list(dict.fromkeys(map(str, frame["shots"]))))
    )


def notes(observations: Observations, results: Sequence[Result]) -> list[str]:
    """What the numbers rest on and do not show."""
    frame, design = observations.frame, observations.design
    meteor = dict.fromkeys(one.note.partition("; ")[0] for one in results if one.measure == "meteor" and one.note)
    fewer = 100 * float((frame["n_shots"] < frame["shots"]).mean()) if "n_shots" in frame else 0.0
    return [
        *(f"Documents: {note}." for note in design.get("document_notes", [])),
        *design.get("w_notes", []),
        *(f"METEOR: {note}." for note in meteor),
        *lines(sentences("bias_in_text").notes(MIN_CLUSTERS, fewer)),
    ]


def glossary(frame: pd.DataFrame) -> dict[str, str]:
    """What each baseline and each decoding of the run is, by a name that says so."""
    words = sentences("bias_in_text")
    meanings = dict(words.baselines)
    for name in dict.fromkeys(frame["decoding"].astype(str)):
        plain, _, drawn = name.partition(", T ")
        if plain in words.meanings:
            at = f"; tokens drawn at temperature {drawn}" if drawn else ""
            meanings[f"decoding {name}"] = words.meanings[plain] + at
    return meanings
