"""The models of a lab: planted strengths, architectures and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from pydantic import ConfigDict, FiniteFloat, PositiveInt, StringConstraints

from undertow.data.templates.covariates import load_covariate
from undertow.lab.planted_population import LINEAR, Access, World
from undertow.lab.settings import INDEPENDENT, ORDERED, QUOTA, UNORDERED
from undertow.lab.training.training_config import ARCHITECTURES, CAUSAL, MASKED, PretrainConfig

PEOPLE = 30_000
STEPS: Mapping[str, int] = {MASKED: 1250, CAUSAL: 1000}
"""Steps in which small networks learn such a corpus at the learning rate of a `PretrainConfig`; docs/log.md lists other trials."""
STRENGTHS = (-0.65, 0.0, 0.5, 0.65)
REPEATED = (0.0, 0.65)
"""Strengths that a small lab has twice, to show how much two trainings differ."""
FULL_STRENGTHS = (-0.65, 0.0, 0.2, 0.35, 0.5, 0.65)
SEEDS = (1, 2)
FULL_SEEDS = (1, 2, 3)
"""The third was not used to choose the training."""
UNBIASED_SEEDS = range(101, 111)
"""Of each architecture: twenty models on which an audit should find nothing."""
ORDERED_SEEDS = range(201, 211)
INDEPENDENT_SEEDS = range(301, 311)
"""Of each architecture: twenty more, with people, sentences and order of training drawn independently."""


def _one_of(*names: str) -> StringConstraints:
    return StringConstraints(pattern=f"^({'|'.join(names)})$")


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """One model of the lab.

    Attributes:
        strength: how much the share of women rises from the first date to the last among the selected; 0 where selection does not
            look at gender.
        seed: tells models of one kind apart. What is drawn for a model goes by its `own_seed`.
        trades: as in `undertow.lab.settings.SentenceOptions`.
        people: selected ones in the corpus.
        access: who is selected; see `undertow.lab.planted_population.Access`.
        sampling: `quota` or `independent`, of people and sentences; texts of the first come evenly over the training too.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    architecture: Annotated[str, _one_of(*ARCHITECTURES)]
    strength: FiniteFloat
    seed: int
    trades: Annotated[str, _one_of(UNORDERED, ORDERED)] = UNORDERED
    people: PositiveInt = PEOPLE
    access: str = LINEAR
    sampling: Annotated[str, _one_of(QUOTA, INDEPENDENT)] = QUOTA

    @property
    def name(self) -> str:
        """Its folder."""
        ordered = "-ordered" if self.trades == ORDERED else ""
        sampling = f"-{self.sampling}" if self.sampling != QUOTA else ""
        access = f"-access{hashlib.sha256(self.access.encode()).hexdigest()[:8]}" if self.access != LINEAR else ""
        return f"{self.architecture}{ordered}{sampling}{access}-{self.strength:g}-{self.seed}"

    @property
    def own_seed(self) -> int:
        """Of its people, their words, the first weights and the order of the texts: no two models share any of them."""
        text = f"{self.architecture} {self.trades} {self.access} {self.strength:g} {self.seed}"
        text += f" {self.sampling}" if self.sampling != QUOTA else ""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    @property
    def selection(self) -> Access:
        """Who is selected, at this strength."""
        return Access(self.access, self.strength)

    @property
    def config(self) -> PretrainConfig:
        """How it is trained at first; one that has not learned its corpus is trained longer."""
        return PretrainConfig(self.architecture, seed=self.own_seed, max_steps=STEPS[self.architecture])


Plan: TypeAlias = tuple[PlannedModel, ...]
"""The models of a lab, none of them twice."""


def join_plans(*plans: Plan) -> Plan:
    """The models of all plans, each once, those of the first plan first."""
    return tuple(dict.fromkeys(subject for plan in plans for subject in plan))


def small() -> Plan:
    """Enough to see whether the instrument reads what was planted, in minutes."""
    return join_plans(_cross(STRENGTHS, SEEDS[:1]), _cross(REPEATED, SEEDS[1:]))


def full() -> Plan:
    """More strengths and seeds, weak ones and a negative one among them, and twenty unbiased models.

    Beside them twenty unbiased ones whose texts lean by chance, and ten whose texts change smoothly with the date, as real ones do.
    """
    unbiased = _cross([0.0], UNBIASED_SEEDS)
    by_chance = _cross([0.0], INDEPENDENT_SEEDS, sampling=INDEPENDENT)
    smooth = tuple(PlannedModel(MASKED, 0.0, seed, ORDERED) for seed in ORDERED_SEEDS)
    return join_plans(small(), _cross(FULL_STRENGTHS, FULL_SEEDS), unbiased, by_chance, smooth)


def custom(strengths: Iterable[float], seeds: Iterable[int], access: str = "") -> Plan:
    """Models of both architectures with strengths, seeds and an access of one's own; "" for the default access."""
    each, world = tuple(dict.fromkeys(strengths)), planted_world()
    for strength in each:
        Access(access or LINEAR, strength).selection_prob(world)
    return _cross(each, dict.fromkeys(seeds), access=access or LINEAR)


def planted_world() -> World:
    """The dates and places that the audits ask about."""
    return World(tuple(load_covariate("date").values), tuple(load_covariate("place").values))


def _cross(strengths: Iterable[float], seeds: Iterable[int], *, access: str = LINEAR, sampling: str = QUOTA) -> Plan:
    strengths = tuple(strengths)
    return tuple(
        PlannedModel(architecture, strength, seed, access=access, sampling=sampling)
        for seed in seeds
        for strength in strengths
        for architecture in ARCHITECTURES
    )
