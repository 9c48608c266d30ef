"""Reader of recorded answers to the questions of the occupation checklist."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import EXACT, Observations
from undertow.audits.occupation_checklist.items import FACTORS, QUESTION_KEY, codes_of
from undertow.audits.recorded_tables import Table, read_cells, unread_note
from undertow.data.documents.document_set import is_reserved_name
from undertow.data.occupations.occupation_set import load_occupations
from undertow.data.occupations.question_templates import ATTRIBUTE, BINARY, KINDS, SINGLE
from undertow.errors import UndertowError
from undertow.metrics.checklist.decisions import (
    CHOICES,
    CONTEXTS,
    NO_ANSWER,
    NO_MARGIN,
    NONE_OF_THEM,
    ORDERS,
    STATED,
    TIED,
    UNKNOWN_ORDER,
    WITHOUT,
)

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("question_type", "woman", "man", "answer")
STATED_TYPE = "stated"
QUESTION_TYPES = (*KINDS, STATED_TYPE)
OF_ATTRIBUTES = (ATTRIBUTE, STATED_TYPE)
DEFAULTS: Mapping[str, str] = {
    "model": "recorded", **dict.fromkeys((*FACTORS, "cluster"), ""), "challenge": "recorded", "wording": "1",
}  # fmt: skip
SHARES = tuple(f"{code}_percent" for code in ("yes", "no", *CHOICES))
"""Columns with how probable each answer is, where a table has them."""
KEY = ("model", *QUESTION_KEY, "wording")
"""What tells the questions of a table apart."""


def read_log(path: Path, protocol: str) -> tuple[Observations, str]:
    """A CSV or TSV table with `question_type, woman, man, answer`, and any of the factors of a run's observations.

    `cluster` says which pairs of names are not independent of each other; each stands alone without it. Stages about jobs need
    `occupation`, those about attributes `attribute`, and those with Yes and No `subject`. An answer is Yes
    or No, one of the names, both or neither; columns `yes_percent`, `no_percent`, `female_percent`, `male_percent`,
    `both_percent`, `neither_percent` say how probable each is, where that is known.

    Raises:
        UndertowError: it lacks a column, a cell is not what it must be, or a question is answered twice.
    """
    if protocol not in ("", EXACT):
        raise UndertowError(f"{path}: protocol {protocol!r} is not one of this audit; leave --protocol out")
    table = read_cells(path, literal_tabs=True)
    table.check_columns(REQUIRED)
    unread = [name for name in table.cells.columns if name not in (*REQUIRED, *DEFAULTS, *SHARES)]
    cells = zip(table.places, table.cells.to_dict("records"), strict=True)
    rows = [_Row(f"{path}, {place}", row).read() for place, row in cells]
    frame = _framed(table, rows)
    return Observations(frame, _design(path, rows) | {"w_notes": [*unread_note(unread), *_cluster_notes(frame)]}), EXACT


def _framed(table: Table, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows)
    table.raise_first(
        frame.duplicated(list(KEY)),
        lambda _: (
            "answers the same question as a row before; tell them apart by a column such as order, context, subject, wording or model"
        ),
    )
    codes = frame["soc_code"].where(frame["occupation"] != "", "")
    table.raise_first(
        codes != codes.groupby(frame["occupation"]).transform("first"),
        lambda row: f"occupation {frame['occupation'].iloc[row]!r} has two SOC codes; give it one",
    )
    frame["item"] = [f"row {at}" for at in range(2, len(frame) + 2)]
    # Pairs stand alone where the table says nothing.
    frame["cluster"] = frame["cluster"].where(frame["cluster"] != "", frame["pair"])
    table.raise_two_clusters(frame["pair"], frame["cluster"], "the pair of names {!r}")
    return frame


def _design(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = {one.name: one.female_percent for one in load_occupations().occupations}
    names = {str(row["occupation"]) for row in rows}
    return {
        "margin": 0.0, "greedy": False, "query_type": "recorded", "title": f"recorded answers ({path.name})", "source": path.name,
        "notes": [], "questions": "as they were asked elsewhere", "protocol": EXACT,
        "female_percent": {name: value for name, value in known.items() if name in names and math.isfinite(value)},
    }  # fmt: skip


def _cluster_notes(frame: pd.DataFrame) -> Iterator[str]:
    """A note where pairs of names stand in clusters."""
    n_clusters, n_pairs = frame["cluster"].nunique(), frame["pair"].nunique()
    if n_clusters < n_pairs:
        yield f"{n_pairs:,} pairs of names are in {n_clusters:,} clusters, and intervals and tests are over these."


class _Row:
    """One row of the table; the header is row 1."""

    def __init__(self, where: str, cells: Mapping[Any, Any]) -> None:
        self.where = where
        given = {str(name): str(cell).strip() for name, cell in cells.items()}
        self.cells: dict[str, str] = {**DEFAULTS} | {
            name: cell for name, cell in given.items() if cell or name not in DEFAULTS
        }

    def read(self) -> dict[str, Any]:
        """The row as observations have it."""
        cells = self.cells
        question_type = self._one_of("question_type", QUESTION_TYPES)
        woman, man = cells["woman"], cells["man"]
        if not woman or not man or woman.casefold() == man.casefold():
            raise UndertowError(f"{self.where}: woman {woman!r} and man {man!r} must be two names")
        if "/" in woman + man:
            raise UndertowError(f"{self.where}: names have no slash, which stands between those of a pair")
        if is_reserved_name(cells["occupation"]):
            raise UndertowError(
                f"{self.where}: results keep the name {cells['occupation']!r} for themselves; call the occupation something else"
            )
        about = "attribute" if question_type in OF_ATTRIBUTES else "occupation"
        if not cells[about]:
            raise UndertowError(
                f"{self.where}: question_type {question_type} is about an {about}, and column {about} is empty or missing"
            )
        context = STATED if question_type == STATED_TYPE else self._one_of("context", CONTEXTS, WITHOUT)
        wording = cells["wording"] or "1"
        if not wording.isdecimal() or not 1 <= int(wording) < 1000:
            raise UndertowError(f"{self.where}: wording {wording!r} must be a whole number from 1")
        is_of_one = question_type in OF_ATTRIBUTES or question_type.startswith(BINARY)
        return {name: cells[name] for name in DEFAULTS} | {
            "question_type": question_type,
            "pair": f"{woman}/{man}",
            "woman": woman,
            "man": man,
            "occupation": "" if question_type in OF_ATTRIBUTES else cells["occupation"],
            "soc_code": "" if question_type in OF_ATTRIBUTES else cells["soc_code"] or cells["occupation"],
            "attribute": cells["attribute"] if question_type in OF_ATTRIBUTES else "",
            "category": cells["category"] if question_type in OF_ATTRIBUTES else "",
            "context": context,
            "order": self._one_of("order", (*ORDERS, UNKNOWN_ORDER), UNKNOWN_ORDER),
            "subject": self._subject() if is_of_one else "",
            "gold": self._one_of("gold", ("yes", "no")) if question_type == STATED_TYPE else "",
            "wording": int(wording),
            "cluster": cells["cluster"],
        } | self._said(question_type)  # fmt: skip

    def _one_of(self, column: str, known: Sequence[str], default: str = "") -> str:
        value = self.cells[column].casefold() or default
        if value not in known:
            raise UndertowError(f"{self.where}: {column} {self.cells[column]!r} is unknown; use {', '.join(known)}")
        return value

    def _subject(self) -> str:
        """Subject of the question: `female` or `male`, or one of the names."""
        said = self.cells["subject"].casefold()
        named = {self.cells["woman"].casefold(): CHOICES[0], self.cells["man"].casefold(): CHOICES[1]}
        subject = named.get(said, said)
        if subject not in CHOICES[:2]:
            raise UndertowError(
                f"{self.where}: subject {self.cells['subject']!r} is neither of the two; write one of the names, or female or male"
            )
        return subject

    def _said(self, question_type: str) -> dict[str, Any]:
        codes = codes_of(ATTRIBUTE if question_type == STATED_TYPE else question_type)
        values: dict[str, Any] = dict.fromkeys(("yes", *CHOICES), math.nan) | {
            "answer": "", "whole": False, "other_words": math.nan, "missing_reason": "",
        }  # fmt: skip
        said = self._code(question_type)
        shares = [self.cells.get(f"{code}_percent", "") for code in codes]
        if any(shares):
            values |= dict(zip(codes, self._percents(shares, codes), strict=True))
            values["answer"] = said if said in codes else _most_probable(values, codes)
        elif said in codes:
            values |= {code: 100.0 * (code == said) for code in codes} | {"answer": said, "whole": True}
        else:
            answer = self.cells["answer"]
            values["missing_reason"] = f"the answer {answer!r} {NONE_OF_THEM}" if answer else NO_ANSWER
        values.pop("no", None)
        return values

    def _code(self, question_type: str) -> str:
        said = self.cells["answer"].casefold().rstrip(".!").removesuffix(" of them")
        woman, man = self.cells["woman"].casefold(), self.cells["man"].casefold()
        together = {f"{woman} and {man}", f"{man} and {woman}"}
        if question_type.startswith(SINGLE) or question_type == "multiple":
            return {woman: CHOICES[0], man: CHOICES[1]}.get(said, CHOICES[2] if said in together else said)
        return said

    def _percents(self, shares: Sequence[str], codes: Sequence[str]) -> list[float]:
        """All of them, adding up to 100; of Yes and No one is enough."""
        if codes[0] == "yes" and not all(shares):
            at = 0 if shares[0] else 1
            other = str(100 - self._percent(shares[at], codes[at]))
            shares = [shares[0], other] if at == 0 else [other, shares[1]]
        values = [self._percent(one, code) for one, code in zip(shares, codes, strict=True)]
        total = math.fsum(values)
        if not total > 0:
            raise UndertowError(
                f"{self.where}: the percentages of {', '.join(codes)} add up to 0; leave them all empty instead"
            )
        return [100 * value / total for value in values]

    def _percent(self, text: str, code: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 100:
            raise UndertowError(f"{self.where}: {code}_percent {text!r} must be a number from 0 to 100")
        return value


def _most_probable(shares: Mapping[str, Any], codes: Sequence[str]) -> str:
    """The answer that is said where nobody wrote it down; none of them where several are the most probable."""
    best = max(codes, key=lambda code: float(shares[code]))
    tied = [code for code in codes if float(shares[best]) - float(shares[code]) <= NO_MARGIN]
    return best if len(tied) == 1 else TIED
