"""Which models a lab holds: their planted strengths, architectures and seeds.

Knows no file and trains nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from undertow.data.templates.covariates import load_covariate
from undertow.errors import UndertowError
from undertow.lab.planted_corpus import INDEPENDENT, LINEAR, ORDERED, QUOTA, UNORDERED, Access, World
from undertow.lab.training.pretrain import ARCHITECTURES, CAUSAL, MASKED, PretrainConfig

PEOPLE = 30_000
STEPS: Mapping[str, int] = {MASKED: 1250, CAUSAL: 1000}
"""With so many, and the learning rate of a `Recipe`, small networks learn such a corpus; docs/log.md has what else was tried."""
STRENGTHS = (-0.65, 0.0, 0.5, 0.65)
REPEATED = (0.0, 0.65)
"""Strengths that a small lab has twice, so that it tells how far two trainings are apart."""
FULL_STRENGTHS = (-0.65, 0.0, 0.2, 0.35, 0.5, 0.65)
SEEDS = (1, 2)
FULL_SEEDS = (1, 2, 3)
"""The third was not looked at while the training was chosen."""
UNBIASED_SEEDS = range(101, 111)
"""Of each architecture: twenty models on which an audit should find nothing."""
ORDERED_SEEDS = range(201, 211)
INDEPENDENT_SEEDS = range(301, 311)
"""Of each architecture: twenty more, whose people, sentences and order of training were left to chance."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One model of the lab.

    Attributes:
        architecture: `masked` or `causal`.
        strength: how much the share of women rises from the first date to the last among the selected; 0 where selection does not
            look at gender.
        seed: tells models of one kind apart. What is drawn for a model goes by its `own_seed`.
        trades: as in `undertow.lab.planted_corpus.SentenceOptions`.
        people: selected ones in the corpus.
        access: who is selected; see `undertow.lab.planted_corpus.Access`.
        drawn: `quota` or `independent`, of people and sentences; texts of the first come evenly over the training too.
    """

    architecture: str
    strength: float
    seed: int
    trades: str = UNORDERED
    people: int = PEOPLE
    access: str = LINEAR
    drawn: str = QUOTA

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UndertowError(f"there is no architecture {self.architecture!r}; it is {' or '.join(ARCHITECTURES)}")

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Subject:
        """From a file, of which nothing is taken for granted: folders are named by what stands there.

        Raises:
            AttributeError, OverflowError, TypeError, ValueError: it is no subject.
        """
        made = cls(**row)
        for text in (made.architecture, made.trades, made.access, made.drawn):
            text.encode()  # no text has no such method, and half of a character no such form
        if type(made.seed) is not int or type(made.people) is not int or made.people < 1:
            raise TypeError("a seed or a number of people that is no whole number")
        if type(made.strength) not in (int, float) or not math.isfinite(float(made.strength)):
            raise ValueError("a strength that is no number")
        if made.drawn not in (QUOTA, INDEPENDENT):
            raise ValueError("people are drawn in a way that is not known")
        return made

    @property
    def name(self) -> str:
        """Its folder."""
        ordered = "-ordered" if self.trades == ORDERED else ""
        drawn = f"-{self.drawn}" if self.drawn != QUOTA else ""
        access = f"-access{hashlib.sha256(self.access.encode()).hexdigest()[:8]}" if self.access != LINEAR else ""
        return f"{self.architecture}{ordered}{drawn}{access}-{self.strength:g}-{self.seed}"

    @property
    def own_seed(self) -> int:
        """Of its people, their words, the first weights and the order of the texts: no two models share any of them."""
        text = f"{self.architecture} {self.trades} {self.access} {self.strength:g} {self.seed}"
        text += f" {self.drawn}" if self.drawn != QUOTA else ""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    @property
    def recipe(self) -> PretrainConfig:
        """How it is trained at first; one that has not learned its corpus is trained longer."""
        return PretrainConfig(self.architecture, seed=self.own_seed, steps=STEPS[self.architecture])


@dataclass(frozen=True, slots=True)
class Plan:
    """The models of a lab, none of them twice."""

    subjects: tuple[Subject, ...]

    def joined(self, other: Plan) -> Plan:
        """Both plans, this one's models first."""
        return Plan(tuple(dict.fromkeys((*self.subjects, *other.subjects))))

    def as_json(self) -> list[dict[str, Any]]:
        """For a file."""
        return [asdict(subject) for subject in self.subjects]

    @classmethod
    def from_json(cls, rows: Iterable[Mapping[str, Any]]) -> Plan:
        """From a file.

        Raises:
            AttributeError, OverflowError, TypeError, ValueError: a row that is no subject.
        """
        return cls(tuple(Subject.from_json(row) for row in rows))


def small() -> Plan:
    """Enough to see whether the instrument reads what was planted, in minutes."""
    return _crossed(STRENGTHS, SEEDS[:1]).joined(_crossed(REPEATED, SEEDS[1:]))


def full() -> Plan:
    """More strengths and seeds, weak ones and a negative one among them, and twenty unbiased models.

    Beside them twenty unbiased ones whose texts lean by chance, and ten whose texts change smoothly with the date, as real ones do.
    """
    unbiased = tuple(Subject(architecture, 0.0, seed) for seed in UNBIASED_SEEDS for architecture in ARCHITECTURES)
    by_chance = tuple(
        Subject(architecture, 0.0, seed, drawn=INDEPENDENT)
        for seed in INDEPENDENT_SEEDS
        for architecture in ARCHITECTURES
    )
    smooth = tuple(Subject(MASKED, 0.0, seed, ORDERED) for seed in ORDERED_SEEDS)
    return small().joined(_crossed(FULL_STRENGTHS, FULL_SEEDS)).joined(Plan((*unbiased, *by_chance, *smooth)))


def custom(strengths: Iterable[float], seeds: Iterable[int], access: str = "") -> Plan:
    """Models of both architectures with strengths, seeds and an access of one's own; "" for the default access.

    Raises:
        UndertowError: an access that gives no probabilities at one of the strengths.
    """
    each, world = tuple(dict.fromkeys(strengths)), planted_world()
    for strength in each:
        Access(access or LINEAR, strength).kept_prob(world)
    return _crossed(each, dict.fromkeys(seeds), access or LINEAR)


def planted_world() -> World:
    """The dates and places that the audits ask about."""
    return World(tuple(load_covariate("date").values), tuple(load_covariate("place").values))


def _crossed(strengths: Iterable[float], seeds: Iterable[int], access: str = LINEAR) -> Plan:
    return Plan(
        tuple(
            Subject(architecture, strength, seed, access=access)
            for seed in seeds
            for strength in strengths
            for architecture in ARCHITECTURES
        )
    )
