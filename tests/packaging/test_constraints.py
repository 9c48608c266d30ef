"""constraints.txt pins all that pyproject.toml asks for, directly and indirectly, and says nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = {canonicalize_name(name): version for name, version in (line.split("==") for line in LINES)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Builds of torch for graphics cards bring packages of their own, which differ between machines.
HARDWARE = re.compile(r"^(nvidia|cuda|triton|rocm|pytorch-triton)")
OF_THE_ENVIRONMENT = {"pip"}
"""There before anything is installed, and no part of what is."""


def direct() -> list[Requirement]:
    """What pyproject.toml asks for, with the extras that `make install` takes."""
    taken = re.search(r"-e '\.\[([a-z,]+)\]'", (ROOT / "Makefile").read_text())
    assert taken
    extras = [line for extra in taken[1].split(",") for line in PROJECT["optional-dependencies"][extra]]
    asked = [Requirement(line) for line in [*PROJECT["dependencies"], *extras]]
    return [one for one in asked if one.marker is None or one.marker.evaluate()]


def needed_by(requirement: Requirement) -> Iterator[Requirement]:
    """What an installed package needs on this machine."""
    for line in metadata.requires(requirement.name) or []:
        needed = Requirement(line)
        wanted = [{"extra": extra} for extra in ("", *requirement.extras)]
        if needed.marker is None or any(needed.marker.evaluate(extra) for extra in wanted):
            yield needed


def test_every_line_is_a_plain_pin() -> None:
    odd = [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)]
    assert odd == []
    assert len(PINS) == len(LINES)


def test_pins_satisfy_the_ranges() -> None:
    for requirement in direct():
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)]), requirement


def test_indirect_needs_are_pinned() -> None:
    waiting, seen = direct(), set[str]()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen | OF_THE_ENVIRONMENT or HARDWARE.match(name):
            continue
        assert name in PINS, f"{name} is installed with Undertow, and constraints.txt does not pin it"
        seen.add(name)
        waiting.extend(needed_by(requirement))
    assert len(seen) > len(direct())
