"""A planted model and a schema table for guards."""

from __future__ import annotations

import zlib
from pathlib import Path

NOMINATIVE = "female: she; male: he; neutral: they"
UNDECIDED = "The nurse said that {blank} was late."
DECIDED = "The nurse lost {blank} keys."
WOMEN_MEET = ("baker", "judge", "singer", "tailor", "miller", "roofer")
MEN_MEET = ("driver", "painter", "farmer", "guard", "waiter", "potter")
OCCUPATIONS = [name for pair in zip(WOMEN_MEET, MEN_MEET, strict=True) for name in pair]


def planted_table(folder: Path) -> Path:
    """Sentences whose kind the toy's answers give away: it moves *she* and *he* with the date, and *her* and *his* not."""
    rows = ["sentence,occupation,pronoun_case,well_specified,gold"]
    for who in OCCUPATIONS:
        person, gold = ("woman", "female") if who in WOMEN_MEET else ("man", "male")
        rows.append(f"The {who} said that ___ was late.,{who},nominative,no,")
        rows.append(f"The {person} met the {who} and found ___ keys.,{who},possessive,yes,{gold}")
    path = folder / "planted.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def unit(text: str) -> float:
    return zlib.crc32(text.encode()) / 2**32


def planted_percent(before: str, year: int) -> dict[str, float]:
    """Shares of she, he and they as the toy's page has them, in percent of the three; `before` ends before the space."""
    she = 0.30 + 0.10 * (year - 1900) / 100 + 0.01 * (unit(before) - 0.5)
    return {"female": 100 * she / 0.80, "male": 100 * (0.70 - she) / 0.80, "neutral": 12.5}
