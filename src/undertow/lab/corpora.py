"""A planted corpus as a file, for those who train or fine-tune models of their own on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from undertow.causal.planted import LINEAR, Access, Known, Losses, Writing, draw_people, known_losses, write_about
from undertow.lab.build import realised_slopes, the_world


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of a corpus.

    Attributes:
        n_sentences: in the file.
        known: exactly, from the access alone.
        realised: slope of the share of women among its undecided pronouns that show W, by W, percentage points per step.
        losses: of a perfect reader of its undecided pronouns.
    """

    n_sentences: int
    known: Known
    realised: dict[str, float]
    losses: Losses

    def by_value(self) -> dict[str, dict[str, float]]:
        """Exact P(female | W, selected), by W and value."""
        world = the_world()
        return {
            "P(female | date, selected)": dict(zip(world.dates, map(float, self.known.by_date), strict=True)),
            "P(female | place, selected)": dict(zip(world.places, map(float, self.known.by_place), strict=True)),
        }

    def rows(self) -> list[tuple[str, float]]:
        """In words, for a table."""
        exact = [
            (f"slope of P(female | {w}, selected), points per step", slope) for w, slope in self.known.slopes().items()
        ]
        in_texts = [
            (f"the same among the pronouns of these sentences ({w})", slope) for w, slope in self.realised.items()
        ]
        return [
            ("sentences", float(self.n_sentences)),
            ("share of people who were selected", self.known.selected_share),
            *exact,
            *in_texts,
            ("least loss on an undecided pronoun, nats", self.losses.floor),
            ("the same for one who ignores date and place", self.losses.ignorant),
        ]


def write_corpus(file: Path, strength: float, access: str, n_people: int, seed: int) -> Written:
    """A sentence a line, `{"text", "masked", "date", "place", "gender", "person", "decided", "pronoun"}`; and what is known of it.

    Date and place are the person's, whether the sentence shows them or not: metadata, to be put in front or left out.

    Raises:
        UndertowError: an access that gives no probabilities, or no people.
    """
    world = the_world()
    chosen = Access(access or LINEAR, strength)
    known = Known.of(chosen, world)
    people = draw_people(chosen, world, n_people, seed)
    sentences = write_about(people, world, Writing(seed))
    draft = file.with_name(f"{file.name}.part")
    with draft.open("w", encoding="utf-8") as lines:
        for one in sentences:
            row = {
                "text": one.text,
                "masked": one.masked,
                "date": world.dates[people.date[one.person]],
                "place": world.places[people.place[one.person]],
                "gender": "female" if one.female else "male",
                "person": one.person,
                "decided": one.decided,
                "pronoun": one.pronoun,
            }
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    draft.replace(file)
    return Written(len(sentences), known, realised_slopes(sentences, world), known_losses(sentences, known))
