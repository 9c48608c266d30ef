"""Pairs of given names, a woman's and a man's, to stand for two people who differ in nothing else.

The package's 70 pairs are facts of the word lists of UNQOVER (Li, Khot, Khashabi, Sabharwal and Srikumar 2020, "UNQOVERing
Stereotyping Biases via Underspecified Questions", Apache-2.0), which Zhang, "Taxonomy-based CheckList for Large Language Model
Evaluation", takes too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from undertow.data.tables import Rows, read_rows
from undertow.data.text_files import RESOURCES, closest
from undertow.errors import UndertowError

FEMALE, MALE = "female", "male"
"""The columns of a table of pairs."""
ANSWERS = ("yes", "no", "both", "neither")
"""What may be answered beside a name."""


@dataclass(frozen=True, slots=True)
class NamePair:
    """A woman's name and a man's.

    Neither contains the other, so an answer names one of them unambiguously.
    """

    female: str
    male: str

    @property
    def name(self) -> str:
        """What the pair is called: `Mary/James`. Names have no slash, so that no two pairs are called alike."""
        return f"{self.female}/{self.male}"


def load_pairs(path: str = "") -> list[NamePair]:
    """The package's 70 pairs, or those of a user's table (.tsv, .csv) with the columns `female` and `male`."""
    file = Path(path) if path else RESOURCES / "sets" / "name-pairs.tsv"
    pairs: dict[tuple[str, str], tuple[int, NamePair]] = {}
    for line, row in read_names(file, (FEMALE, MALE)):
        extra = next((column for column in row if column not in (FEMALE, MALE)), None)
        if extra is not None:
            raise UndertowError(f"{file}: column {extra!r} is not used{closest(extra, (FEMALE, MALE))}; drop it")
        pair = NamePair(row[FEMALE], row[MALE])
        problem = _problem(pair.female, pair.male)
        key = pair.female.casefold(), pair.male.casefold()
        first_line, _ = pairs.setdefault(key, (line, pair))
        if first_line != line:
            problem = f"repeats the pair {pair.name} of line {first_line}; drop one of them"
        if problem:
            raise UndertowError(f"{file}, line {line}: {problem}")
    return [pair for _, pair in pairs.values()]


def read_names(path: Path, needed: Sequence[str]) -> Rows:
    """The rows of a table whose cells are names, each written in one way.

    White space around a cell goes, and within it is one space each; letters with marks are composed (NFC), so that names that
    look alike are alike.
    """
    return [
        (line, {column: unicodedata.normalize("NFC", " ".join(cell.split())) for column, cell in row.items()})
        for line, row in read_rows(path, needed)
    ]


def _problem(female: str, male: str) -> str:
    """What is wrong with a pair and how to fix it; "" for a valid one."""
    for column, name in ((FEMALE, female), (MALE, male)):
        if not name:
            return f"the {column} name is empty; write it, or drop the row"
        if name.casefold() in ANSWERS:
            return f"the {column} name {name!r} is an answer to the questions too; choose another"
        if "/" in name:
            return f"the {column} name {name!r} has a slash, which stands between the names of a pair; write it without"
    # As whole words, whatever their case: Ann in Mary Ann and in Ann-Marie, not in Anna.
    first, second = (f" {_words(name)} " for name in (female, male))
    if first in second or second in first:
        return f"one of {female!r} and {male!r} is a part of the other, so that an answer could mean either; choose names apart"
    return ""


def _words(name: str) -> str:
    """Runs of letters, digits and marks, unseen joiners too. An apostrophe is within a word, as in O'Neil; a hyphen is between."""
    kinds = [(char, unicodedata.category(char)) for char in name.casefold()]
    return " ".join(
        "".join(char if char in "'’" or kind[0] in "LMN" or kind == "Cf" else " " for char, kind in kinds).split()
    )
