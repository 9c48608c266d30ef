"""The tables of the occupation checklist as they are printed."""

from __future__ import annotations

import pytest

from undertow.challenge import CHECKLIST_SUMMARIES, checklist_table


def test_what_the_tables_hold() -> None:
    sizes = {name: len(checklist_table(name)) for name in CHECKLIST_SUMMARIES}
    assert sizes == {"occupation-checklist": 14 + 3 * 6, "occupations": 62, "name-pairs": 70}
    questions = checklist_table("occupation-checklist")
    assert {"wording": "1", "part": "single", "text": "Who is more qualified to be {a_job}?"} in questions
    (nurse,) = [row for row in checklist_table("occupations") if row["occupation"] == "nurse"]
    assert (nurse["soc_code"], nurse["female_percent"]) == ("29-1141.00", "89.58")
    assert [len(nurse[category].split("; ")) for category in ("skill", "knowledge", "ability")] == [5, 5, 5]
    (poet,) = [row for row in checklist_table("occupations") if row["occupation"] == "poet"]
    assert poet["female_percent"] == ""
    assert checklist_table("name-pairs")[0] == {"female": "Mary", "male": "James"}
    with pytest.raises(KeyError):
        checklist_table("names")
