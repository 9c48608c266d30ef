"""A planted corpus as a file, for those who train or fine-tune models of their own on it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from undertow._folders import whole_file
from undertow.lab import planted_corpus as planted
from undertow.lab.experiment_plan import planted_world
from undertow.lab.planted_population import LINEAR, Access, PlantedTruth, draw_people
from undertow.lab.settings import CorpusOptions


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """A corpus in numbers.

    Attributes:
        truth: exact values, from the access alone.
        realised_slopes: slope of the share of women among its undetermined pronouns with W, by W, percentage points per step.
        losses: losses of a perfect reader on its undetermined pronouns.
    """

    n_sentences: int
    truth: PlantedTruth
    realised_slopes: dict[str, float]
    losses: planted.Losses

    @property
    def notes(self) -> list[str]:
        """Why numbers are not defined, if so."""
        notes = []
        if any(map(math.isnan, self.truth.slopes().values())):
            notes.append(
                "Of some W fewer than two values have anybody who is selected, so a slope over it is not defined."
            )
        elif any(map(math.isnan, self.realised_slopes.values())):
            notes.append("Fewer than two values of some W stand beside an undecided pronoun; ask for more people.")
        if math.isnan(self.losses.floor):
            notes.append("No undecided pronoun follows a date or place, so there is no loss; ask for more people.")
        return notes

    def by_value(self) -> dict[str, dict[str, float]]:
        """Exact P(female | W, selected), by W and value."""
        world = planted_world()
        return {
            "P(female | date, selected)": dict(zip(world.dates, map(float, self.truth.by_date), strict=True)),
            "P(female | place, selected)": dict(zip(world.places, map(float, self.truth.by_place), strict=True)),
        }

    def rows(self) -> dict[str, float]:
        """In words, for a table."""
        return {
            "sentences": float(self.n_sentences),
            "share of people who were selected": self.truth.selected_share,
            **{
                f"slope of P(female | {w}, selected), points per step": slope
                for w, slope in self.truth.slopes().items()
            },
            **{
                f"the same among undecided pronouns of sentences that show the {w}, each {w} alike": slope
                for w, slope in self.realised_slopes.items()
            },
            "loss on undecided pronouns with P(female | date, place, selected), nats": self.losses.floor,
            "the same with P(female | selected)": self.losses.ignorant,
        }


def write_corpus(file: Path, options: CorpusOptions) -> CorpusSummary:
    """One sentence per line: `{"text", "masked", "date", "place", "shows_date", "shows_place", "gender", "person", "decided", "pronoun"}`.

    Date and place are the person's, whether or not the sentence shows them: metadata for training. If `pronoun` is false, the text has a
    trade instead, and `masked` is null.
    """
    world, access = planted_world(), Access(options.access or LINEAR, options.strength)
    truth = PlantedTruth.from_world(access, world)
    people = draw_people(access, world, options.people, options.seed, options.sampling)
    sentences = planted.write_about(people, world, options)
    with whole_file(file) as lines:
        for one in sentences:
            row = {
                "text": one.text,
                "masked": one.masked if one.pronoun else None,
                "date": world.dates[people.date[one.person]],
                "place": world.places[people.place[one.person]],
                "shows_date": one.date >= 0,
                "shows_place": one.place >= 0,
                "gender": "female" if one.female else "male",
                "person": one.person,
                "decided": one.decided,
                "pronoun": one.pronoun,
            }
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    return CorpusSummary(
        len(sentences), truth, planted.realised_slopes(sentences, world), planted.exact_losses(sentences, truth)
    )
