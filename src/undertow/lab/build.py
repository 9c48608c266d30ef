"""Making the models of a lab: people drawn, selected, written about; a network trained; and proof that it learned its corpus.

lab/plan.json                the models
lab/models/NAME/             weights, tokenizer, training.json; a model folder like any other
lab/models/NAME.planted.json what is known of it: planted slopes, losses, whether it converged
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from undertow.causal.planted import (
    Access,
    Known,
    Sentence,
    World,
    Writing,
    counted,
    draw_people,
    known_losses,
    slope_percent,
    write_about,
)
from undertow.challenge.spectra import spectrum
from undertow.lab.plan import Plan, Subject
from undertow.lab.work import Crew, Progress, side_by_side, worked
from undertow.models.train import Lesson, Question, Recipe, choice_losses, train
from undertow.types import UndertowError

PLAN = "plan.json"
LEARNED_SHARE = 0.9
"""Of what date and place tell of a pronoun in the selected texts, at least so much must have been learned ..."""
LEARNED_NATS = 0.002
"""... give or take so much: where nothing is planted there is nothing to be learned."""
ATTEMPTS = 3
"""A network that has not learned its corpus is trained anew with twice the steps, so many times in all."""
JUDGED_PEOPLE = 2_500
JUDGES_SEED = 1_000_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One training.

    Attributes:
        steps: of it.
        loss_nats: on undecided pronouns about people that the corpus does not hold.
        seconds: of the training.
    """

    steps: int
    loss_nats: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Built:
    """A model of the lab, and what is known of it.

    Attributes:
        subject: as planned.
        planted: slope of the share of women among the undecided pronouns of its corpus, by W, in percentage points per step of W.
        population: the same slope of the exact P(female | W, S = 1).
        selected_share: P(S = 1).
        floor_nats, ignorant_nats: what one loses on these pronouns who knows P(female | W, S = 1), and one who ignores W.
        attempts: trainings, the last one kept.
    """

    subject: Subject
    planted: dict[str, float]
    population: dict[str, float]
    selected_share: float
    floor_nats: float
    ignorant_nats: float
    attempts: tuple[Attempt, ...]

    @property
    def loss_nats(self) -> float:
        """Of the training that is kept."""
        return self.attempts[-1].loss_nats

    @property
    def converged(self) -> bool:
        """Whether it has learned what its corpus tells."""
        return self.loss_nats - self.floor_nats <= LEARNED_NATS + (1 - LEARNED_SHARE) * (
            self.ignorant_nats - self.floor_nats
        )

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Built:
        """From a file."""
        attempts = tuple(Attempt(**attempt) for attempt in row["attempts"])
        return cls(**{**row, "subject": Subject(**row["subject"]), "attempts": attempts})


def build(folder: Path, plan: Plan, jobs: int = 0, progress: Progress = lambda done, total: None) -> list[Built]:
    """Make all models of the plan that are not there yet; the folder's plan comes to hold them too.

    Raises:
        UndertowError: the folder holds something else, or a training failed.
    """
    whole = plan.joined(read_plan(folder)) if (folder / PLAN).is_file() else plan
    if folder.is_dir() and any(folder.iterdir()) and not (folder / PLAN).is_file():
        raise UndertowError(f"{folder}: holds something else; name another folder for the lab")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAN).write_text(json.dumps(whole.as_json(), indent=1), encoding="utf-8")
    left = [(str(folder), subject) for subject in plan.subjects if not _is_done(_read(folder, subject))]
    units = sum(subject.recipe.steps for _, subject in left)
    side_by_side(make, left, Crew(jobs, folder / "cache"), units, progress)
    return read_built(folder, plan)


def make(work: tuple[str, Subject]) -> None:
    """One model, unless it is there: trained until it has learned its corpus, or `ATTEMPTS` times."""
    folder, subject = Path(work[0]), work[1]
    world = the_world()
    access = Access(subject.access, subject.strength)
    known = Known.of(access, world)
    sentences = write_about(
        draw_people(access, world, subject.people, subject.seed), world, Writing(subject.seed, trades=subject.trades)
    )
    unseen = write_about(
        draw_people(access, world, JUDGED_PEOPLE, JUDGES_SEED + subject.seed),
        world,
        Writing(JUDGES_SEED + subject.seed),
    )
    losses = known_losses(unseen, known)
    built = _read(folder, subject) or Built(
        subject,
        realised_slopes(sentences, world),
        known.slopes(),
        known.selected_share,
        losses.floor,
        losses.ignorant,
        (),
    )
    while not _is_done(built):
        recipe = replace(subject.recipe, steps=subject.recipe.steps * 2 ** len(built.attempts))
        attempt = _attempt(folder / "models" / subject.name, sentences, unseen, recipe)
        built = replace(built, attempts=(*built.attempts, attempt))
        _write(folder, built)


def _is_done(built: Built | None) -> bool:
    return built is not None and bool(built.attempts) and (built.converged or len(built.attempts) == ATTEMPTS)


def _attempt(place: Path, sentences: Sequence[Sentence], unseen: Sequence[Sentence], recipe: Recipe) -> Attempt:
    reached = 0

    def progress(done: int, total: int) -> None:
        nonlocal reached
        worked(done - reached)
        reached = done

    fresh = place.with_name(f"{place.name}.{recipe.steps}")
    lessons = [Lesson(one.text, one.subject) for one in sentences]
    trained = train(lessons, recipe, fresh, progress)
    questions = [
        Question(one.text[: one.subject[0]], one.text[one.subject[1] :], ("she", "he"), 0 if one.female else 1)
        for one in counted(unseen)
    ]
    loss = float(choice_losses(fresh, questions).mean())
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)
    # What was read of another network under this name.
    shutil.rmtree(place.parents[1] / "audits" / place.name, ignore_errors=True)
    return Attempt(recipe.steps, loss, trained.seconds)


def the_world() -> World:
    """The dates and places that the audits ask about."""
    return World(tuple(spectrum("date").values), tuple(spectrum("place").values))


def realised_slopes(sentences: Sequence[Sentence], world: World) -> dict[str, float]:
    """Slope of the share of women among the undecided pronouns that show W, by W, in percentage points per step."""
    asked = [one for one in sentences if one.pronoun and not one.decided]
    slopes = {}
    for w_name, values in (("date", world.dates), ("place", world.places)):
        shown = np.array([getattr(one, w_name) for one in asked], dtype=np.int64)
        female = np.array([one.female for one in asked], dtype=np.float64)
        n_shown = np.bincount(shown[shown >= 0], minlength=len(values)).astype(np.float64)
        n_female = np.bincount(shown[shown >= 0], female[shown >= 0], minlength=len(values))
        share = np.divide(n_female, n_shown, out=np.full(len(values), np.nan), where=n_shown > 0)
        slopes[w_name] = slope_percent(share)
    return slopes


def read_plan(folder: Path) -> Plan:
    """The plan of a lab.

    Raises:
        UndertowError: there is none, or it is damaged.
    """
    place = folder / PLAN
    try:
        return Plan.from_json(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UndertowError(f"{folder}: there is no lab; make one with undertow lab build --out {folder}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UndertowError(
            f"{place}: is damaged; remove it and build the lab again, models that are there are kept"
        ) from error


def read_built(folder: Path, plan: Plan) -> list[Built]:
    """The models of the plan that have been made."""
    found = [_read(folder, subject) for subject in plan.subjects]
    return [built for built in found if built is not None and built.attempts]


def _place(folder: Path, subject: Subject) -> Path:
    return folder / "models" / f"{subject.name}.planted.json"


def _read(folder: Path, subject: Subject) -> Built | None:
    place = _place(folder, subject)
    try:
        built = Built.from_json(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UndertowError(f"{place}: is damaged; remove it and build the lab again") from error
    if built.subject != subject:
        raise UndertowError(f"{place}: tells of another model than is planned; name another folder, or remove it")
    return built


def _write(folder: Path, built: Built) -> None:
    place = _place(folder, built.subject)
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(built), indent=1), encoding="utf-8")
    fresh.replace(place)
