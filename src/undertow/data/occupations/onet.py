"""Most important attributes of occupations, from the text release of the O*NET database in a user's folder.

These are the elements of each category with the highest importance (rows of scale IM), ties in alphabetical order. Columns are found
by name, so any release with these names works.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from undertow._schemas import Text
from undertow.data.text_files import TableRow, number_between, read_records
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

FILES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "skill": (("Skills.txt",), ("Essential Skills.txt", "Transferable Skills.txt")),
    "knowledge": (("Knowledge.txt",),),
    "ability": (("Abilities.txt",),),
}
"""Files of each category; the first complete set is used. Since release 30.3 there are two files of skills."""
IMPORTANCE = "IM"
LEAST, MOST = 1.0, 5.0
"""The ends of the importance scale."""

_UNRATED = ("", "n/a", "na", "null")
_PATTERN = re.compile(r"[\dx]{2}-[\dx]{4}(\.[\dx]{2})?", re.IGNORECASE)
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Rating:
    """One rated element of an occupation, of a category of `FILES`.

    Importance is 1 to 5; for a pattern of several codes, the mean to two decimals.
    """

    element: str
    category: str
    importance: float


def is_code(pattern: str) -> bool:
    """Whether this is an O*NET-SOC code or a pattern with x for any digit, as in 25-1xxx.00; the default ending is .00."""
    return _PATTERN.fullmatch(pattern) is not None


def read_onet(
    folder: str | Path, wanted: Mapping[str, str], top: int = 5
) -> tuple[dict[str, tuple[Rating, ...]], list[str]]:
    """The `top` most important skills, kinds of knowledge and abilities of each occupation, by name, from codes or patterns; and notes.

    The folder has `Skills.txt`, `Knowledge.txt` and `Abilities.txt`. A pattern such as 25-1xxx.00 matches all rated codes: importance is
    averaged over them, to two decimals, and then ranked. Values whose suppression is recommended are used and noted. Occupations without
    ratings of a category are excluded and noted.

    Raises:
        UndertowError: a file or column is missing, a row is corrupt (names file and line), or none of the occupations is rated.
    """
    if (bad := next((name for name, pattern in wanted.items() if not is_code(pattern)), None)) is not None:
        raise UndertowError(
            f"{bad!r} has the code {wanted[bad]!r}; write one such as 29-1141.00, or 25-1xxx.00 for several"
        )
    import pandas as pd

    table = pd.concat([_read_category(Path(folder), category) for category in FILES], ignore_index=True)
    by_occupation: dict[str, tuple[Rating, ...]] = {}
    left_out, imprecise, notes = list[str](), list[str](), list[str]()

    def rounded(values: pd.Series[float]) -> float:
        return round(fmean(values), 2)  # as in O*NET's published importance

    for occupation, pattern in wanted.items():
        whole = pattern.lower() if "." in pattern else f"{pattern.lower()}.00"
        rows = table[table["code"].str.fullmatch(re.escape(whole).replace("x", "[0-9]"))]
        if lacking := [category for category in FILES if category not in set(rows["category"])]:
            left_out.append(f"{occupation} ({pattern}, no {' or '.join(lacking)})")
            continue
        # In alphabetical order, so that ties are too.
        means = rows.groupby(["category", "element"]).agg({"value": rounded, "imprecise": "any"})
        ranked = means.sort_values("value", ascending=False, kind="stable").reset_index()
        best = [row for category in FILES for row in ranked[ranked["category"] == category][:top].to_dict("records")]
        by_occupation[occupation] = tuple(Rating(row["element"], row["category"], row["value"]) for row in best)
        imprecise += [f"{row['element']} of {occupation}" for row in best if row["imprecise"]]
    if not by_occupation:
        raise UndertowError(f"{folder}: rates none of the occupations, such as {left_out[0]}; check their codes")
    if left_out:
        notes.append(f"excluded because the O*NET release does not rate them in every category: {', '.join(left_out)}")
    if imprecise:
        examples = ", ".join(imprecise[:_EXAMPLES]) + (", ..." if len(imprecise) > _EXAMPLES else "")
        notes.append(
            f"{len(imprecise)} of the attributes have values that the O*NET release marks as imprecise (Recommend Suppress): {examples}"
        )
    return by_occupation, notes


class _ImportanceRow(TableRow):
    code: Text = Field(alias="O*NET-SOC Code")
    element: Text = Field(alias="Element Name")
    scale: str = Field(alias="Scale ID")
    value: str = Field(alias="Data Value")
    imprecise: Annotated[bool, BeforeValidator(lambda cell: cell.upper() == "Y")] = Field(
        False, alias="Recommend Suppress"
    )


def _read_category(folder: Path, category: str) -> pd.DataFrame:
    """Rows of a category's files on the scale of importance: `code`, `element`, `value`, `imprecise`, `category`."""
    import pandas as pd

    sets = [[folder / one for one in names] for names in FILES[category]]
    if not (paths := next((some for some in sets if all(map(Path.is_file, some))), [])):
        wanted = ", or ".join(map(" and ".join, FILES[category]))
        raise UndertowError(f"{folder}: has no {wanted}; name the folder with the text release of the O*NET database")
    values: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        for line, row in read_records(path, _ImportanceRow, (".txt",)):
            if row.scale != IMPORTANCE or row.value.lower() in _UNRATED:
                continue
            value, problem = number_between(LEAST, MOST, row.value), ""
            if math.isnan(value):
                problem = f"Data Value is {row.value!r}, not an importance from {LEAST:g} to {MOST:g}"
            elif (row.code, row.element) in values:
                problem = f"rates {row.element!r} of {row.code} again"
            if problem:
                raise UndertowError(f"{path}, line {line}: {problem}; fetch the release again")
            values[row.code, row.element] = row.model_dump() | {"value": value, "category": category}
    if not values:
        raise UndertowError(f"{paths[0]}: has no value on the scale {IMPORTANCE}; fetch the release again")
    return pd.DataFrame(values.values())
