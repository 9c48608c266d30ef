"""Build the models of a lab: draw and select people, write about them, train a network, and check that it learned its corpus.

lab/plan.json                the models
lab/models/NAME/             weights, tokenizer, training.json; a model folder like any other
lab/models/NAME.planted.json what is known of it: planted slopes, losses, whether it converged
lab/models/NAME.STEPS.MARK/  a training, which is renamed to NAME if it is the one that is kept

A training is in NAME.planted.json once its loss is known, and in NAME once no further one follows. Files and folders are renamed into
place, so a build that was killed continues where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator

from undertow._files import is_plain_file
from undertow._folders import names_in
from undertow.errors import UndertowError
from undertow.lab import planted_corpus as planted
from undertow.lab.experiment_plan import Plan, PlannedModel, join_plans, planted_world
from undertow.lab.lab_folder import lab_lock, read_lab_json, write_lab_json
from undertow.lab.planted_population import PlantedTruth, draw_people
from undertow.lab.settings import QUOTA, SentenceOptions
from undertow.lab.training.pretrain import DONE, Question, TrainingExample, option_losses, train
from undertow.lab.training.training_config import PretrainConfig
from undertow.lab.training.training_loop import DivergedError
from undertow.lab.worker_pool import side_by_side, step_progress
from undertow.types import Progress, no_progress

PLAN = "plan.json"
LEARNED_SHARE = 0.9
"""Share that a network must have learned of what date and place tell of a pronoun, ..."""
LEARNED_NATS = 0.002
"""... up to this loss: without a planted bias there is nothing to learn."""
SLOPE_SHARE, SLOPE_POINTS = 0.1, 0.1
"""Maximum error of the slope of the network's own P(female) in a corpus with a bias, as a share of the corpus's slope or in points per
step of W, whichever is more. The loss hardly shows it, because it grows with the square of the error."""
ATTEMPTS = 3
"""Maximum number of trainings, each with twice the steps of the one before."""
UNBIASED_BELOW = 1e-9
"""A smaller slope is the rounding error of 0."""
JUDGED_PEOPLE = 2_500
JUDGES_SEED = 1_000_000
MARKED_PEOPLE = 200
"""Number of people whose texts identify a corpus: a change to how texts are written shows in any few."""


def _of_every_w(slopes: dict[str, float]) -> dict[str, float]:
    if set(slopes) != {"date", "place"}:
        raise ValueError("must have a slope over date and one over place")
    return slopes


Number = Annotated[float, BeforeValidator(lambda given: math.nan if given is None else given)]
"""NaN for null in a file."""
Slopes = Annotated[dict[str, Number], AfterValidator(_of_every_w)]
"""By W, in percentage points per step of W."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One training.

    Attributes:
        loss_nats: loss on undetermined pronouns about people outside the corpus; NaN if the training failed.
        seconds: of the training; of its last part, if it was resumed.
        learned: slope of the network's own P(female) on these pronouns, by W, in percentage points per step of W.
    """

    steps: int
    loss_nats: Number
    seconds: float
    learned: dict[str, Number] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model of the lab, and what is known of it.

    Attributes:
        planted: slope of the share of women among the undetermined pronouns of its corpus.
        population: the same slope of the exact P(female | W, S = 1).
        selected_share: P(S = 1).
        floor_nats, ignorant_nats: loss on these pronouns of one who knows P(female | W, S = 1), and of one who ignores W.
        attempts: trainings; the last one that did not fail is kept.
        mark: hash of the first training's configuration and of a part of the corpus, as `recipe_digest`; another one is of another
            version of the lab.
    """

    subject: PlannedModel
    planted: Slopes
    population: Slopes
    selected_share: Number
    floor_nats: Number
    ignorant_nats: Number
    attempts: tuple[Attempt, ...]
    mark: str = ""

    @property
    def final_attempt(self) -> Attempt | None:
        """The training whose network is kept."""
        return next((attempt for attempt in reversed(self.attempts) if not attempt.failure), None)

    @property
    def failed(self) -> bool:
        """Whether every training failed, so that there is no network."""
        return bool(self.attempts) and self.final_attempt is None

    @property
    def done(self) -> bool:
        """Whether no further training follows."""
        return bool(self.attempts) and (self.converged or len(self.attempts) >= ATTEMPTS)

    @property
    def loss_nats(self) -> float:
        """Loss of the training that is kept; NaN if there is none."""
        return self.final_attempt.loss_nats if self.final_attempt else math.nan

    @property
    def learned(self) -> Mapping[str, float]:
        """Slopes of the training that is kept, by W; empty if there is none."""
        return self.final_attempt.learned if self.final_attempt else {}

    @property
    def converged(self) -> bool:
        """Whether it has learned what its corpus tells: by its loss, and where a bias was planted by its own slope.

        No unbiased model is excluded for its slope, because that would select models without drift.
        """
        missing = (1 - LEARNED_SHARE) * (self.ignorant_nats - self.floor_nats)
        by_loss = self.loss_nats - self.floor_nats <= LEARNED_NATS + missing
        biased = {w: slope for w, slope in self.planted.items() if abs(self.population[w]) > UNBIASED_BELOW}
        return by_loss and all(
            abs(self.learned.get(w, math.nan) - slope) <= max(SLOPE_SHARE * abs(slope), SLOPE_POINTS)
            for w, slope in biased.items()
        )


def build(folder: Path, plan: Plan, jobs: int = 0, progress: Progress = no_progress) -> list[BuiltModel]:
    """Build the models of the plan that are missing or of another version of the lab, and add them to the folder's plan.

    Models whose trainings all failed are among those returned, and are not tried again.

    Raises:
        UndertowError: the folder holds something else, another build of it is running, or a model could not be built; the others
            are built first.
    """
    held = names_in(folder)
    if held and PLAN not in held and not any((folder / "models").glob("*.planted.json")):
        raise UndertowError(f"{folder}: is not empty and not a lab folder; name another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    with lab_lock(folder):
        earlier = read_plan(folder) if (folder / PLAN).is_file() else ()
        write_lab_json(folder / PLAN, Plan, join_plans(plan, earlier))
        left = [(str(folder), subject) for subject in plan if not _is_settled(folder, subject)]
        units = sum(subject.config.max_steps for _, subject in left)
        side_by_side(train_model, left, units, jobs=jobs, cache=folder / "cache", progress=progress)
        return read_attempts(folder, plan)


def train_model(work: tuple[str, PlannedModel]) -> None:
    """Train a model, unless it is there, until it has learned its corpus or has had `ATTEMPTS` trainings, failed ones included."""
    folder, subject = Path(work[0]), work[1]
    built = _read(folder, subject)
    if built is None or not built.done or not _has_network(folder, built):
        world, seed = planted_world(), JUDGES_SEED + subject.own_seed
        sentences = _sentences(subject, subject.people)
        unseen = planted.write_about(
            draw_people(subject.selection, world, JUDGED_PEOPLE, seed), world, SentenceOptions(seed)
        )
        if built is None or built.done:
            known = PlantedTruth.from_world(subject.selection, world)
            losses = planted.exact_losses(unseen, known)
            built = BuiltModel(
                subject,
                planted=planted.realised_slopes(sentences, world),
                population=known.slopes(),
                selected_share=known.selected_share,
                floor_nats=losses.floor,
                ignorant_nats=losses.ignorant,
                attempts=(),
                mark=recipe_digest(subject),
            )
        # By quota, texts that show the same and tell of the same gender are of one kind, and come evenly.
        n_places, is_stratified = len(world.places), subject.sampling == QUOTA
        kinds = [((one.date + 1) * (n_places + 1) + one.place + 1) * 2 + one.female for one in sentences]
        lessons = [
            TrainingExample(one.text, one.subject, kind if is_stratified else 0)
            for one, kind in zip(sentences, kinds, strict=True)
        ]
        while not built.done:
            config = replace(subject.config, max_steps=subject.config.max_steps * 2 ** len(built.attempts))
            attempt = _attempt(_draft(folder, built, config.max_steps), lessons, unseen, config)
            built = replace(built, attempts=(*built.attempts, attempt))
            write_lab_json(_place(folder, subject), BuiltModel, built)
    _install_model(folder, built)


def _sentences(subject: PlannedModel, n_people: int) -> list[planted.Sentence]:
    world = planted_world()
    people = draw_people(subject.selection, world, n_people, subject.own_seed, subject.sampling)
    return planted.write_about(
        people, world, SentenceOptions(subject.own_seed, trades=subject.trades, sampling=subject.sampling)
    )


def recipe_digest(subject: PlannedModel) -> str:
    """SHA-256 of how a model is first trained and of the texts about `MARKED_PEOPLE`, drawn as its corpus is."""
    few = [(one.text, one.subject) for one in _sentences(subject, min(subject.people, MARKED_PEOPLE))]
    return hashlib.sha256(json.dumps([asdict(subject), subject.config.settings(), few]).encode()).hexdigest()


def _attempt(
    draft: Path, lessons: Sequence[TrainingExample], unseen: Sequence[planted.Sentence], config: PretrainConfig
) -> Attempt:
    started = time.perf_counter()
    try:
        train(lessons, config, draft, step_progress())
    except DivergedError as error:
        return Attempt(config.max_steps, math.nan, time.perf_counter() - started, failure=str(error))
    seconds = time.perf_counter() - started
    sentences = planted.judged_sentences(unseen)
    questions = [
        Question(one.text[: one.subject[0]], one.text[one.subject[1] :], ("she", "he"), 0 if one.female else 1)
        for one in sentences
    ]
    losses = option_losses(draft, questions)
    if not np.isfinite(losses).all():
        # The last step may have spoiled the training.
        return Attempt(config.max_steps, math.nan, seconds, failure="the loss on unseen texts is not a number")
    right = np.exp(-losses)
    p_female = np.where([one.female for one in sentences], right, 1 - right)
    slopes = planted.slopes_by_covariate(sentences, p_female, planted_world())
    return Attempt(config.max_steps, float(losses.mean()), seconds, slopes)


def _install_model(folder: Path, built: BuiltModel) -> None:
    """Move the network that is kept to its place, and remove the other trainings."""
    place = folder / "models" / built.subject.name
    draft = _draft(folder, built, built.final_attempt.steps) if built.final_attempt else None
    if draft is None or draft.is_dir():
        # Audits of another network of this name.
        shutil.rmtree(folder / "audits" / place.name, ignore_errors=True)
        if place.is_dir():
            old = place.with_name(f"{place.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        if draft is not None:
            draft.rename(place)
    for left in _left_over(folder, built.subject):
        shutil.rmtree(left, ignore_errors=True)


def _left_over(folder: Path, subject: PlannedModel) -> list[Path]:
    return [one for one in (folder / "models").glob(f"{subject.name}.*") if one.is_dir()]


def _has_network(folder: Path, built: BuiltModel) -> bool:
    if built.final_attempt is None:
        return True
    draft = _draft(folder, built, built.final_attempt.steps)
    return draft.is_dir() or (folder / "models" / built.subject.name / DONE).is_file()


def _is_settled(folder: Path, subject: PlannedModel) -> bool:
    built = _read(folder, subject)
    if built is None or not built.done or _left_over(folder, subject):
        return False
    return not (folder / "models" / subject.name).exists() if built.failed else _has_network(folder, built)


def read_plan(folder: Path) -> Plan:
    """The plan of a lab; raises `UndertowError` if it is missing or corrupt."""
    if not is_plain_file(folder / PLAN):
        raise UndertowError(f"{folder}: there is no lab; make one with undertow lab build --out {folder}")
    plan: Plan = read_lab_json(folder / PLAN, Plan, "remove it and build the lab again, models that are there are kept")
    return plan


def read_built(folder: Path, plan: Plan) -> list[BuiltModel]:
    """The models of the plan that have been made."""
    return [
        one
        for one in read_attempts(folder, plan)
        if one.final_attempt and _has_network(folder, one) and not _draft(folder, one, one.final_attempt.steps).is_dir()
    ]


def read_attempts(folder: Path, plan: Plan) -> list[BuiltModel]:
    """The models of the plan that need no further training: made, or failed every time."""
    attempts = [_read(folder, subject) for subject in plan]
    return [built for built in attempts if built is not None and built.done]


def _place(folder: Path, subject: PlannedModel) -> Path:
    return folder / "models" / f"{subject.name}.planted.json"


def _draft(folder: Path, built: BuiltModel, steps: int) -> Path:
    """The folder of a training before it is renamed; another version of the lab has another one."""
    return folder / "models" / f"{built.subject.name}.{steps}.{built.mark[:12]}"


def _read(folder: Path, subject: PlannedModel) -> BuiltModel | None:
    """The record of a model; None if there is none, or if another version of the lab made it."""
    place = _place(folder, subject)
    if not is_plain_file(place):
        return None
    built: BuiltModel = read_lab_json(place, BuiltModel, "remove it and build the lab again")
    if built.subject != subject:
        raise UndertowError(f"{place}: is about another model than planned; name another folder, or remove it")
    return built if built.mark == recipe_digest(subject) else None
