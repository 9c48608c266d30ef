"""Reader of recorded answers to the questions of the occupation checklist."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from undertow.audits.base import Observations
from undertow.audits.occupation_checklist.answer_rows import codes_of
from undertow.audits.occupation_checklist.items import FACTORS, QUESTION_KEY
from undertow.audits.recorded_tables import Table, read_cells, unread_note
from undertow.data.documents.document_set import is_reserved_name
from undertow.data.occupations.occupation_set import group_columns, load_occupations
from undertow.data.occupations.question_templates import ATTRIBUTE, BINARY, KINDS
from undertow.data.text_files import number_between
from undertow.errors import UndertowError
from undertow.metrics.checklist import decisions
from undertow.metrics.groups import WOMAN_AND_MAN, Groups
from undertow.types import EXACT

REQUIRED = ("question_type", "woman", "man", "answer")
STATED_TYPE = "stated"
DEFAULTS: Mapping[str, str] = {
    "model": "recorded", **dict.fromkeys((*FACTORS, "cluster"), ""), "challenge": "recorded", "wording": "1",
}  # fmt: skip
SHARES = tuple(f"{code}_percent" for code in ("yes", "no", *decisions.CHOICES))
"""Optional columns with the probability of each answer."""
KEY = ("model", *QUESTION_KEY, "wording")
"""Columns that identify a question of a table."""


def read_log(path: Path | Table, protocol: str) -> tuple[Observations, str]:
    """A CSV or TSV table with `question_type, woman, man, answer`, and any of the factors of a run's observations.

    For other groups, their names replace `woman` and `man` as the heads of two columns; `female` and `male` are women and men.

    `cluster` groups pairs of names that are not independent; without it each pair is a cluster. Questions about occupations need
    `occupation`, those about attributes `attribute`, and those with Yes and No `subject`. An answer is Yes, No, one of the names,
    both or neither. The optional columns `yes_percent`, `no_percent`, `female_percent`, `male_percent`, `both_percent`,
    `neither_percent` are probabilities of the answers.
    """
    if protocol not in ("", EXACT):
        raise UndertowError(f"{path}: protocol {protocol!r} is not one of this audit; leave --protocol out")
    table, groups = _by_codes(read_cells(path), path)
    table.check_columns(REQUIRED)
    unread = [name for name in table.cells.columns if name not in (*REQUIRED, *DEFAULTS, *SHARES)]
    cells = zip(table.places, table.cells.to_dict("records"), strict=True)
    frame = pd.DataFrame([_observation(f"{path}, {place}", row, groups) for place, row in cells])
    table.refuse(
        frame.duplicated(list(KEY)),
        "answers the same question as an earlier row; distinguish them by a column such as order, context, subject, wording or model",
    )
    table.check_one_value(frame, "soc_code", "occupation")
    frame["item"] = [f"row {at}" for at in range(2, len(frame) + 2)]
    # Without the column, each pair is a cluster.
    frame["cluster"] = frame["cluster"].where(frame["cluster"] != "", frame["pair"])
    table.check_one_value(frame, "cluster", "pair")
    n_clusters, n_pairs = frame["cluster"].nunique(), frame["pair"].nunique()
    clustered = f"{n_pairs:,} pairs of names are in {n_clusters:,} clusters, and intervals and tests are over these."
    known = {one.name: one.female_percent for one in load_occupations().occupations}
    design = {
        "margin": 0.0, "greedy": False, "query_type": "recorded", "title": f"recorded answers ({path.name})", "source": path.name,
        "notes": [], "questions": "recorded", "protocol": EXACT,
        **groups.in_design({name: known[name] for name in known if name in set(frame["occupation"]) and math.isfinite(known[name])}),
        "w_notes": [*unread_note(unread), *([clustered] if n_clusters < n_pairs else [])],
    }  # fmt: skip
    return Observations(frame, design), EXACT


def _by_codes(table: Table, path: Path | Table) -> tuple[Table, Groups]:
    """The table with the codes of the groups: two unknown columns in place of `woman` and `man` hold the names of other groups.

    Their names are those of the groups, also in `NAME_percent`, `granted_NAME`, `subject` and `order`.
    """
    columns = list(map(str, table.cells.columns))
    known = {*REQUIRED, *DEFAULTS, *SHARES}
    of_groups = [
        name
        for name in columns
        if name not in known and not name.startswith("granted_") and not name.endswith("_percent")
    ]
    if {"woman", "man"} & set(columns) or not {"question_type", "answer"} <= set(columns):
        return table, WOMAN_AND_MAN
    if len(of_groups) != 2:
        raise UndertowError(
            f"{path}: has no columns 'woman' and 'man'; the names of other groups are in two columns headed by the groups, "
            f"and this table has {len(of_groups)} unknown columns"
        )
    heads, own = group_columns(of_groups, f"{path}: the columns")
    groups = Groups(*own)
    names = dict(zip(heads, ("woman", "man"), strict=True))
    for head, code in zip(heads, decisions.CHOICES[:2], strict=True):
        names |= {f"{head}_percent": f"{code}_percent", f"granted_{head}": f"granted_{code}"}
    for name, code in names.items():
        if name != code and {name, code} <= set(columns):
            raise UndertowError(f"{path}: the columns {name!r} and {code!r} mean the same; remove one of them")
    cells = table.cells.rename(columns=names)
    codes = {name.casefold(): code for name, code in zip((*own, *heads), decisions.CHOICES[:2] * 2, strict=False)}
    for column, suffix in (("subject", ""), ("attribute_holder", ""), ("order", " first")):
        if column in cells:
            levels = {f"{name}{suffix}": f"{code}{suffix}" for name, code in codes.items()}
            cells[column] = [levels.get(str(cell).strip().casefold(), cell) for cell in cells[column]]
    return replace(table, cells=cells), groups


def _observation(where: str, given: Mapping[Any, Any], groups: Groups) -> dict[str, Any]:
    cells = {str(name): str(cell).strip() for name, cell in given.items()}
    cells = {**DEFAULTS} | {name: cell for name, cell in cells.items() if cell or name not in DEFAULTS}

    def one_of(column: str, known: Sequence[str], default: str = "") -> str:
        value = cells[column].casefold() or default
        if value not in known:
            raise UndertowError(f"{where}: {column} {cells[column]!r} is unknown; use {', '.join(known)}")
        return value

    question_type = one_of("question_type", (*KINDS, STATED_TYPE))
    woman, man, wording = cells["woman"], cells["man"], cells["wording"] or "1"
    of_attribute = question_type in (ATTRIBUTE, STATED_TYPE)
    about = "attribute" if of_attribute else "occupation"
    people = {woman.casefold(): decisions.CHOICES[0], man.casefold(): decisions.CHOICES[1]}
    named = people.get(cells["subject"].casefold(), cells["subject"].casefold())
    is_of_one = of_attribute or question_type.startswith(BINARY)
    problem = ""
    if not woman or not man or len(people) < 2:
        problem = f"{groups.first} {woman!r} and {groups.second} {man!r} must be two names"
    elif "/" in woman + man:
        problem = "names must not contain a slash, which separates the names of a pair"
    elif is_reserved_name(cells["occupation"]):
        problem = f"the name {cells['occupation']!r} is reserved for results; rename the occupation"
    elif not cells[about]:
        problem = f"question_type {question_type} is about an {about}, and column {about} is empty or missing"
    elif not wording.isdecimal() or not 1 <= int(wording) < 1000:
        problem = f"wording {wording!r} must be a whole number from 1"
    elif is_of_one and named not in decisions.CHOICES[:2]:
        problem = f"subject {cells['subject']!r} is neither of the two; write one of the names, or {' or '.join(groups.levels.values())}"
    if problem:
        raise UndertowError(f"{where}: {problem}")
    about_what = {"attribute": "", "category": "", "soc_code": cells["soc_code"] or cells["occupation"]}
    if of_attribute:
        about_what = {"occupation": "", "soc_code": ""}
    is_stated = question_type == STATED_TYPE
    return {name: cells[name] for name in DEFAULTS} | {
        **about_what,
        "question_type": question_type,
        "pair": f"{woman}/{man}",
        "context": decisions.STATED if is_stated else one_of("context", decisions.CONTEXTS, decisions.WITHOUT),
        "order": one_of("order", (*decisions.ORDERS, decisions.UNKNOWN_ORDER), decisions.UNKNOWN_ORDER),
        "subject": named if is_of_one else "",
        "gold": one_of("gold", ("yes", "no")) if is_stated else "",
        "wording": int(wording),
        **_answer(where, cells, ATTRIBUTE if is_stated else question_type, people, groups),
    }


def _answer(
    where: str, cells: Mapping[str, str], kind: str, people: Mapping[str, str], groups: Groups
) -> dict[str, Any]:
    codes, answer = codes_of(kind), cells["answer"]
    reply = answer.casefold().rstrip(".!").removesuffix(" of them")
    if codes[0] != "yes":
        woman, man = people
        together = {f"{woman} and {man}", f"{man} and {woman}"}
        reply = people.get(reply, decisions.CHOICES[2] if reply in together else reply)
    row: dict[str, Any] = dict.fromkeys(("yes", *decisions.CHOICES), math.nan) | {
        "answer": "", "whole": False, "other_words": math.nan, "missing_reason": "",
    }  # fmt: skip
    given = {code: cells.get(f"{code}_percent", "") for code in codes}
    if any(given.values()):
        shares = {code: number_between(0, 100, text) for code, text in given.items()}
        one_is_enough = codes[0] == "yes" and not all(given.values())
        for code, share in shares.items():
            if math.isnan(share) and not (one_is_enough and not given[code]):
                raise UndertowError(
                    f"{where}: {groups.levels.get(code, code)}_percent {given[code]!r} must be a number from 0 to 100"
                )
        if one_is_enough:
            (code,) = (code for code in codes if given[code])
            shares = {one: shares[code] if one == code else 100 - shares[code] for one in codes}
        total = math.fsum(shares.values())
        if not total > 0:
            raise UndertowError(
                f"{where}: the percentages of {', '.join(groups.levels.get(code, code) for code in codes)} add up to 0; leave them empty"
            )
        shares = {code: 100 * share / total for code, share in shares.items()}
        # Without an answer, the most probable one; none if several are equally probable.
        best = [code for code in codes if max(shares.values()) - shares[code] <= decisions.NO_MARGIN]
        row |= shares | {"answer": reply if reply in codes else best[0] if len(best) == 1 else decisions.TIED}
    elif reply in codes:
        row |= {code: 100.0 * (code == reply) for code in codes} | {"answer": reply, "whole": True}
    else:
        row["missing_reason"] = f"the answer {answer!r} {decisions.NONE_OF_THEM}" if answer else decisions.NO_ANSWER
    row.pop("no", None)
    return row
