"""Reads docstrings as this project writes them, for the reference.

Axes stand in brackets, and Markdown takes two pairs of them in a row for a link; one line of a section may be about several names
(`low, high: 95% interval`), of which each has a type of its own; and a section may end with a drawing. Knows Griffe's objects;
imports nothing of the package.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(r"^(?:Attributes|Args):\n(?:(?:[ ]{4}.*)?\n?)+", re.MULTILINE)
SEVERAL = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n     .*)*)", re.MULTILINE)
NAMED = re.compile(r" {4}\w+:")


class AsWritten(griffe.Extension):
    """Goes over every docstring of a package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Rewrite the docstrings."""
        _rewrite(pkg)


def _rewrite(thing: griffe.Object) -> None:
    if thing.docstring:
        thing.docstring.value = SECTION.sub(_told, thing.docstring.value).replace("][", r"]\[")
    for member in thing.members.values():
        if isinstance(member, griffe.Object):
            _rewrite(member)


def _told(section: re.Match[str]) -> str:
    """A section with a line for each name, after the drawings that stand at its end."""
    named, *rest = section[0].split("\n\n")
    drawings = [part for part in rest if part.strip() and not NAMED.match(part)]
    others = [part for part in rest if part not in drawings]
    return "\n\n".join([*drawings, SEVERAL.sub(_apart, named), *(SEVERAL.sub(_apart, part) for part in others)])


def _apart(several: re.Match[str]) -> str:
    return "\n".join(f"    {name}: {several[2]}" for name in several[1].split(", "))
