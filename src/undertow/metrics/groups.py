"""Names of the two groups of a checklist, in its texts and results.

The observations have codes: `woman` and `female` are the first group, `man` and `male` the second, whatever their names. Results of groups
with names of their own have neutral measures (`granted_first`) and say in `first_group` and `second_group` which group is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from undertow.types import Result

DESIGN_KEY = "pair_groups"
"""Of a design: the two names; absent for women and men."""
KEYS = ("first_group", "second_group")
WOMEN_AND_MEN_ONLY = ("percent_female_correlation",)
"""Measures of women and men only."""
_CODES = {"first": "female", "second": "male"}


@dataclass(frozen=True, slots=True)
class Groups:
    """Names of the two groups; women and men if there are none."""

    first: str = "woman"
    second: str = "man"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Groups:
        """The groups of a design, or of the keys of a result."""
        return cls(*facts.get(DESIGN_KEY, [facts[key] for key in KEYS if key in facts]))

    @property
    def are_own(self) -> bool:
        """Whether they have names of their own."""
        return self != WOMAN_AND_MAN

    def in_design(self, female_percent: Mapping[str, float]) -> dict[str, Any]:
        """The entry of a design: their names, or for women and men the percentages of women by occupation."""
        return {DESIGN_KEY: [self.first, self.second]} if self.are_own else {"female_percent": dict(female_percent)}

    @property
    def keys(self) -> dict[str, str]:
        """Keys of a result that name them; {} for women and men."""
        return dict(zip(KEYS, (self.first, self.second), strict=True)) if self.are_own else {}

    @property
    def words(self) -> dict[str, str]:
        """Words for texts by key: `first`, `second`, `First`, `Second`, `the_first`, `the_second`, `her`, `him` and `she`."""
        pronouns = {"her": "her", "him": "him", "she": "she"}
        nouns = {"first": self.first, "second": self.second}
        if self.are_own:
            nouns = {name: f"{noun} person" for name, noun in nouns.items()}
            pronouns = {"her": f"the {nouns['first']}", "him": f"the {nouns['second']}", "she": "the person"}
        return {
            "first": self.first,
            "second": self.second,
            "First": self.first[:1].upper() + self.first[1:],
            "Second": self.second[:1].upper() + self.second[1:],
            **{f"the_{name}": f"the {noun}" for name, noun in nouns.items()},
            **pronouns,
        }

    @property
    def levels(self) -> dict[str, str]:
        """Levels of `subject` and of choices by code: names of their own, or the code itself."""
        names = (self.first, self.second) if self.are_own else _CODES.values()
        return dict(zip(_CODES.values(), names, strict=True))

    def order(self, order: str) -> str:
        """An order of the names, `female first`, in words."""
        person, _, rest = order.partition(" ")
        return f"{self.levels[person]} {rest}" if person in self.levels else order

    def name(self, measure: str) -> str:
        """The name of a measure or column in a run of these groups."""
        return measure.replace("female", "first").replace("male", "second") if self.are_own else measure

    def code(self, measure: str) -> str:
        """The reverse of `name`."""
        return "_".join(_CODES.get(part, part) for part in measure.split("_"))

    def rename(self, results: Iterable[Result], *, to_codes: bool = False) -> list[Result]:
        """Results with their measures by name, or by code."""
        change = self.code if to_codes else self.name
        if not self.are_own:
            return list(results)
        return [replace(one, measure=change(one.measure)) for one in results]

    def name_results(self, results: Iterable[Result]) -> list[Result]:
        """Results by name with the names of the groups, and without those of women and men only."""
        if not self.are_own:
            return list(results)
        named = self.rename(one for one in results if one.measure not in WOMEN_AND_MEN_ONLY)
        return [replace(one, group={**one.group, **self.keys}) for one in named]


WOMAN_AND_MAN = Groups()
