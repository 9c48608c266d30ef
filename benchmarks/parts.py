"""Everything that is measured, by name: a race for each row, then what is measured of the engine alone.

A new kind of measurement is a file with `NAME`, `measure`, `promises` and `section`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import bfloat16
import growth
import memory
import race
import race_told
import share
import startup
from rows import ROWS
from telling import Promise
from work import Plan

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the benchmark.

    Attributes:
        measure: takes it; the record of what was found.
        promises: what was promised of it, from its record.
        section: tells it, from its record and those of the races that there are.
    """

    measure: Callable[[Plan], Entry]
    promises: Callable[[Entry], list[Promise]]
    section: Callable[[Entry, Mapping[str, Entry]], str]


def _section_of_race(entry: Entry, _: Mapping[str, Entry]) -> str:
    return race_told.section(entry)


_RACES = {name: Part(partial(race.run, row), race_told.promises, _section_of_race) for name, row in ROWS.items()}
_OF_THE_ENGINE = {
    module.NAME: Part(module.measure, module.promises, module.section)
    for module in (share, growth, memory, startup, bfloat16)
}
PARTS: Mapping[str, Part] = _RACES | _OF_THE_ENGINE
"""In the order of the page."""
