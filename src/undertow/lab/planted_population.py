"""A population whose bias is known, because we put it there.

    date, place and gender are drawn independently      W, G, no arrow between them
    an access function decides who is written about     W -> S <- G, and only S = 1 is kept

so that P(gender | date, place, S = 1) is known exactly: what a model trained on texts about these people should come to say of a
sentence that does not decide its pronoun, and what an audit should read from it. After McMilin 2022 ("Selection Bias Induced Spurious
Correlations in Large Language Models", section 2) and 2024 ("Underspecification in Language Modeling Tasks", section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertow.causal.expressions import Noise, evaluate, names, read_expression, subexpressions
from undertow.errors import UndertowError
from undertow.lab.settings import INDEPENDENT, QUOTA
from undertow.models.base import Ints
from undertow.types import Floats

LINEAR = "0.5 + strength * gender * (date - 0.5)"
"""The default access: with the dates, the share of women rises by `strength` from the first to the last."""
VARIABLES = ("date", "place", "gender", "strength")


@dataclass(frozen=True, slots=True)
class World:
    """What people's dates and places can be, as sentences name them, in the order that slopes are taken over."""

    dates: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Who is written about: P(S = 1) by date, place and gender.

    Attributes:
        expression: of `date` and `place` (0 the first value, 1 the last), `gender` (1 female, -1 male) and `strength`, in the
            language of structural equations; without noise, since it is a probability itself.
        strength: the number that the expression may name.
    """

    expression: str = LINEAR
    strength: float = 0.0

    def selection_prob(self, world: World) -> Floats:
        """P(S = 1) [date, place, gender], gender female first; raises `UndertowError` if the expression is no probability."""
        where = f"access {self.expression!r}"
        read = read_expression(self.expression)
        unknown = sorted(set(names(read)) - set(VARIABLES))
        if unknown:
            raise UndertowError(f"{where}: there is no {unknown[0]!r}; it may name {', '.join(VARIABLES)}")
        if any(isinstance(part, Noise) for part in subexpressions(read)):
            raise UndertowError(f"{where}: is a probability, so nothing in it is drawn; leave the noise out")
        shape = (len(world.dates), len(world.places), 2)
        dates, places, gender = np.meshgrid(
            np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]), np.array([1.0, -1.0]), indexing="ij"
        )
        values = {"date": dates, "place": places, "gender": gender, "strength": np.float64(self.strength)}
        evaluated = evaluate(read, values, lambda noise: np.empty(0))  # there is none
        kept = np.broadcast_to(np.asarray(evaluated, dtype=np.float64), shape)
        outside = kept[~((kept >= 0) & (kept <= 1))]
        if outside.size:
            raise UndertowError(
                f"{where}: comes to {outside[0]:g}, which is not a probability; keep it between 0 and 1"
            )
        if not kept.any():
            raise UndertowError(f"{where}: keeps nobody; raise it somewhere")
        return kept.copy()


@dataclass(frozen=True, slots=True)
class PlantedTruth:
    """What is known exactly of the selected, from the access alone.

    Attributes:
        joint: P(date, place, gender | S = 1) [date, place, gender], gender female first.
        selected_share: P(S = 1).
    """

    joint: Floats
    selected_share: float

    @classmethod
    def from_world(cls, access: Access, world: World) -> PlantedTruth:
        """By Bayes' rule: date, place and gender are uniform and independent before the selection."""
        kept = access.selection_prob(world)
        return cls(kept / kept.sum(), float(kept.mean()))

    @property
    def by_date(self) -> Floats:
        """P(female | date, S = 1) [date]; NaN for dates without selected people."""
        return _share(self.joint.sum(axis=1))

    @property
    def by_place(self) -> Floats:
        """P(female | place, S = 1) [place]."""
        return _share(self.joint.sum(axis=0))

    @property
    def by_both(self) -> Floats:
        """P(female | date, place, S = 1) [date, place]."""
        return _share(self.joint)

    @property
    def overall(self) -> float:
        """P(female | S = 1)."""
        return float(_share(self.joint.sum(axis=(0, 1))))

    def slopes(self) -> dict[str, float]:
        """Least squares slope of P(female | W, S = 1) on the index of W, in percentage points per step, by W."""
        return {"date": slope_percent(self.by_date), "place": slope_percent(self.by_place)}


def _share(joint: Floats) -> Floats:
    total = joint.sum(axis=-1)
    share: Floats = np.divide(joint[..., 0], total, out=np.full(np.shape(total), np.nan), where=total > 0)
    return share


def slope_percent(share: Floats) -> float:
    """Least squares slope of a share [value] on the index of its value, in percentage points per step, without NaN."""
    seen = np.flatnonzero(~np.isnan(share))
    if len(seen) < 2:
        return float("nan")
    centred = seen - seen.mean()
    return float(100 * centred @ share[seen] / (centred @ centred))


@dataclass(frozen=True, slots=True)
class People:
    """The selected, a row each.

    Attributes:
        date, place: index of their values [person].
        female: [person].
    """

    date: Ints
    place: Ints
    female: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.date)


def draw_people(access: Access, world: World, n_people: int, seed: int, sampling: str = QUOTA) -> People:
    """People as the access keeps them, in random order.

    They are drawn from the joint distribution of the selected. By quota (systematic sampling, sorted by date and gender), the share
    of women at each date is exact but for one person.
    """
    known = PlantedTruth.from_world(access, world)
    rng = np.random.default_rng([seed, 1])
    by_date_and_gender = known.joint.transpose(0, 2, 1)
    up_to = by_date_and_gender.cumsum() / by_date_and_gender.sum()
    points = rng.random(n_people) if sampling == INDEPENDENT else (np.arange(n_people) + rng.random()) / n_people
    cells = rng.permutation(np.searchsorted(up_to, points, side="right"))
    date, gender, place = np.unravel_index(cells, by_date_and_gender.shape)
    return People(date.astype(np.int64), place.astype(np.int64), gender == 0)


def stratified_uniform(group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Numbers from 0 to 1, uniform each, that are spread evenly within each group: one in each of as many equal parts as it has members.

    Sorted by them, any stretch of all members holds each group in proportion; cut at a share, each group is cut at it, but for one
    member. `group` is which group each is of, from 0 on [member]; so are the numbers.
    """
    order = np.lexsort((rng.random(len(group)), group))
    sizes = np.bincount(group)
    first = np.cumsum(sizes) - sizes
    part = np.empty(len(group))
    part[order] = np.arange(len(group)) - first[group[order]]
    return (part + rng.random(len(group))) / sizes[group]
