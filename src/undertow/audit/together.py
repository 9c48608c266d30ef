"""The models of a run beside each other: their tables in one, and what the manifest says of each.

Knows what was answered; asks and measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from undertow.audit.asking import Answered, Subject
from undertow.challenge import challenge_digest
from undertow.probes.base import Evidence
from undertow.subjects import Facts, checkpoint

BY_MODEL = ("controls", "tokens_of_word")
"""What a design tells of each model by its name, where it is told at all."""


def part_of(name: str, subject: Subject, answered: Answered, said: Mapping[str, Facts]) -> dict[str, Any]:
    """What the manifest says of one model."""
    return {
        "name": name,
        # A model that has other ways too may have been asked by prompts only.
        "card": asdict(subject.found.card) | {"readout": answered.scores.readout},
        "settings": asdict(subject.settings),
        "facts": {**answered.facts, **checkpoint(name), **said.get(name, {})},
        "readout": answered.scores.readout,
        "counts": answered.counts,
        "notes": answered.notes,
        "challenge_sha256": challenge_digest(answered.items),
        **({"reading": answered.reading.counted()} if answered.reading else {}),
        "seconds": answered.seconds,
    }


def notes_of(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes on all models, each with its name where there are several."""
    if len(parts) == 1:
        return list(parts[0]["notes"])
    return [f"{part['name']}: {note}" for part in parts for note in part["notes"]]


def unasked(said: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    """A misspelled name in a file about models would go unnoticed otherwise."""
    strange = [name for name in said if name not in names]
    return [f"the file about models names {', '.join(strange)} too, which this run does not ask"] if strange else []


def put_together(evidences: Sequence[Evidence], parts: Sequence[Mapping[str, Any]]) -> Evidence:
    """The tables of several models under each other, and what is known of each model."""
    design = dict(evidences[0].design)
    for name in ("words", "prompts"):
        design[name] = _joined([evidence.design.get(name, {}) for evidence in evidences])
    for name in BY_MODEL:
        told = {model: facts for one in evidences for model, facts in one.design.get(name, {}).items()}
        design |= {name: told} if told else {}
    for name in ("w_notes", "unable"):
        if any(name in one.design for one in evidences):
            design[name] = list(dict.fromkeys(note for one in evidences for note in one.design.get(name, [])))
    design["models"] = {part["name"]: part["facts"] for part in parts}
    design["readouts"] = {part["name"]: part["readout"] for part in parts}
    if len(evidences) == 1:
        return Evidence(evidences[0].frame, design)
    import pandas as pd

    frame = pd.concat([evidence.frame for evidence in evidences], ignore_index=True)
    if "answer" in frame:
        frame["answer"] = frame["answer"].fillna("")
    return Evidence(frame, design)


def _joined(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Entries of several tables; lists of one name put together, each word once."""
    joined: dict[str, Any] = {}
    for table in tables:
        for name, entry in table.items():
            if isinstance(entry, list):
                joined[name] = list(dict.fromkeys([*joined.get(name, []), *entry]))
            else:
                joined[name] = entry
    return joined
