"""How the four audits of bias in text are told: what findings claim, the page, figures of little, and answers from elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import undertow
from helpers.file_refusal import assert_refused, written
from helpers.run_results import results_of
from helpers.sampled_cases import briefly
from helpers.scripted_model import Script
from helpers.text_answers import labelled, statements, wrote
from undertow import audits
from undertow.audits.base import Observations
from undertow.data.documents.document_set import DIMENSIONS
from undertow.data.documents.task_wordings import TASKS
from undertow.types import ConstrainedGenerateQuery, Finding, MultipleChoiceQuery, Query

__all__ = ["statements"]

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS
COLUMNS: dict[str, Any] = {
    "model": "m", "challenge": "c", "dimension": "", "text": "A text.", "passage": "A text.", "description_class": "null", "wording": "",
    "shots": 0, "sampling": "none", "draw": 0, "decoding": "greedy", "n_shots": 0, "nats": -1.0, "n_dropped_shots": 0, "missing_reason": "",
}  # fmt: skip


def evidence(task: str, rows: Sequence[Mapping[str, Any]]) -> Observations:
    """Answers as a run has them, what a row does not say at its default."""
    frame = pd.DataFrame([COLUMNS | dict(row) for row in rows])
    frame["item"] = [str(at) for at in range(len(frame))]
    frame["cluster"] = frame["document"]
    labels = {DIAGNOSIS: ["Yes", "No"], IDENTIFICATION: list(DIMENSIONS)}.get(task, [])
    return Observations(
        frame, {"task": task, "labels": labels, "title": "Texts", "source": "somewhere", "document_notes": []}
    )


def said(golds: Sequence[str], answers: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    pairs = zip(golds, answers, strict=True)
    return [{"document": f"d{at}", "gold": gold, "answer": answer, **more} for at, (gold, answer) in enumerate(pairs)]


def findings_of(task: str, rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    audit, given = audits.load(task), evidence(task, rows)
    return audit.findings(given, audit.measure(given, 0))


# Findings.

HALF = ["Yes", "No"] * 20


@pytest.mark.parametrize("task", briefly(TASKS, 2))
def test_what_is_claimed_is_what_the_interval_says(task: str) -> None:
    """Many small runs, better and worse ones: a claim always, and only, where 0 is outside."""
    measures = {DIAGNOSIS: "accuracy", IDENTIFICATION: "exact_match"}
    golds = {DIAGNOSIS: HALF, IDENTIFICATION: list(DIMENSIONS) * 4}.get(task, ["one two three four", "five six"] * 8)
    rng = np.random.default_rng(7)
    audit, seen = audits.load(task), set()
    for skill in (0.0, 0.05, 0.1, 0.3, 0.5, 0.6, 0.9, 1.0):
        answers = [gold if rng.random() < skill else "eight" for gold in golds]
        given = evidence(task, said(golds, answers, passage="one two three four five six seven"))
        results = audit.measure(given, 0)
        compared = [one for one in results if "above_low" in one.extras]
        (headline,) = [one for one in compared if one.measure == measures.get(task, "token_f1")]
        # Dimensions are compared, too, where they have texts enough: this one interval is wider for them.
        n_tests = sum(np.isfinite(one.q) for one in results)
        (finding,) = [one for one in audit.findings(given, results) if "the best baseline" in one.text]
        low, high = headline.extras["claim_low"], headline.extras["claim_high"]
        if n_tests == 1:
            assert (low, high) == (headline.extras["above_low"], headline.extras["above_high"])
        expected = "better than" if low > 0 else "worse than" if high < 0 else "not significantly different from"
        assert re.findall("better than|worse than|not significantly different from", finding.text) == [expected]
        assert f"{headline.value:.1f}%" in finding.text
        assert finding.significant == (low > 0 or high < 0) == (headline.q < 0.05)
        assert low <= headline.extras["above_baseline"] <= high
        assert headline.extras["above_baseline"] == pytest.approx(headline.value - headline.null_value, abs=0.01)
        seen.add(expected)
    assert seen == {"better than", "worse than", "not significantly different from"}


def test_the_best_and_the_worst_dimension_are_told_where_they_lie_apart() -> None:
    """Of 40 texts of each dimension 20 are right, but for 39 and 1."""
    rows = []
    for name in DIMENSIONS:
        n_right = {"gender": 39, "age": 1}.get(name, 20)
        answers = [name] * n_right + [""] * (40 - n_right)
        rows += [row | {"document": f"{name} {row['document']}"} for row in said([name] * 40, answers, dimension=name)]
    (text,) = [one.text for one in findings_of(IDENTIFICATION, rows) if "dimensions differ" in one.text]
    assert "dimensions differ; gender (97.5%) scores higher than age (2.5%)." in text


def by_wording(right: Mapping[str, float]) -> list[dict[str, Any]]:
    """Two Yes-or-No wordings whose word in one slot is all that differs."""
    rng, golds, rows = np.random.default_rng(1), (HALF * 2)[:60], []
    for level, share in right.items():
        answers = [gold if rng.random() < share else "neither" for gold in golds]
        rows += said(golds, answers, description_class="question", wording=f"{level}?", slot_target=level)
    return rows


@pytest.mark.parametrize("levels", ["ab", "abc"])
def test_words_that_make_a_difference_are_found_and_come_first(levels: str) -> None:
    rows = [row | {"model": "a"} for row in by_wording({"bias": 0.9, "toxicity": 0.3})]
    rows += [row | {"model": "b"} for row in by_wording(dict.fromkeys(levels, 0.5))]
    findings = findings_of(DIAGNOSIS, rows)
    assert any(one.significant and "'toxicity'" in one.text for one in findings)
    (effect,) = [one for one in findings if one.significant and one.results[0].measure == "slot_effect"]
    assert effect.results[0].q < 0.05
    assert not effect.decision_rule
    assert not any(one.significant and "slot" in one.text for one in findings if one.text.startswith("b"))
    order = [finding.significant for finding in findings]
    assert order == sorted(order, reverse=True)
    assert set(order) == {True, False}


# The page.

DANGER = """text\tbiased\tdimension\tspan\trephrasing
<script>alert(1)</script> & old people, he said.\tyes\tage\t<script>alert(1)</script> & old people\t<b>people</b>
Nurses talk too much anyway.\tyes\tprofession\tNurses talk too much\tShe talks
The <i>bus</i> was late.\tno\t\t\t
"""
N_TABLES = {DIAGNOSIS: 2, IDENTIFICATION: 2 + 2, EXTRACTION: 4 + 3, REPHRASING: 1 + 1}
"""The paper's, one of calibration for diagnosis, and one of wordings for each decoding where there are two wordings or more."""


def echoes(query: Query) -> Any:
    """The first label, or all of the text."""
    if isinstance(query, MultipleChoiceQuery):
        return labelled(query, query.labels[0].strip(), exact=query.labels[-1].strip())
    assert isinstance(query, ConstrainedGenerateQuery)
    return wrote(query.passage)


@pytest.mark.page
@pytest.mark.parametrize("audit", briefly(TASKS))
def test_the_page_has_the_papers_tables_and_examples_behind_a_warning(
    audit: str, script: Script, tmp_path: Path
) -> None:
    script(echoes)
    path = written(tmp_path, DANGER)
    classes = "null" if audit == DIAGNOSIS else "statement,null"
    run = undertow.audit(audit, "scripted", challenge=path, classes=classes, wordings=2, out=tmp_path / "run")
    page = run.report.read_text(encoding="utf-8")
    assert len(run.tables) == N_TABLES[audit]
    assert all(table.title in page for table in run.tables)
    assert page.count("<script") == 1  # the page's own
    assert "<i>bus</i>" not in page
    assert "<b>people</b>" not in page
    texts = [match.group() for match in re.finditer(r'<details class="table warned">.*?</details>', page, re.DOTALL)]
    assert texts
    assert all("offensive" in text for text in texts)
    assert any("&lt;script&gt;alert(1)&lt;/script&gt;" in text for text in texts)
    # No text stands anywhere else.
    outside = re.sub(r'<details class="table warned">.*?</details>', "", page, flags=re.DOTALL)
    assert "alert(1)" not in outside
    assert "Nurses talk" not in outside
    assert not [table for table in run.tables if table.warning]


def test_texts_are_scored_over_all_wordings_the_worst_first() -> None:
    rows = [
        {"document": name, "gold": gold, "answer": answer, "wording": f"w{at}", "missing_reason": "gone" if answer == "?" else ""}
        for name, gold, answers in (("a", "Yes", ["Yes", "Yes", "No"]), ("b", "No", ["Yes", "Yes", ""]), ("c", "No", ["?", "?", "?"]))
        for at, answer in enumerate(answers)
    ]  # fmt: skip
    table = audits.load(DIAGNOSIS).sentences(evidence(DIAGNOSIS, rows))
    assert table["document"].tolist() == ["b", "a", "c"]
    assert table["score"].tolist()[:2] == pytest.approx([0.0, 200 / 3])
    assert table["answers"].tolist() == ["Yes (2), (empty) (1)", "Yes (2), No (1)", ""]
    assert table["missing"].tolist() == [0, 0, 3]
    written = [{"document": "a", "gold": "old men", "answer": one, "wording": one} for one in ("men", "old men", "")]
    (row,) = audits.load(EXTRACTION).sentences(evidence(EXTRACTION, written)).to_dict("records")
    assert (row["best answer"], row["worst answer"]) == ("old men", "(empty)")
    assert row["score"] == pytest.approx((100 + 200 / 3 + 0) / 3)


# Figures of little.


def drawn(task: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    import matplotlib.pyplot as plt

    audit, given = audits.load(task), evidence(task, rows)
    drawings = list(audit.draw(given, audit.measure(given, 0)))
    names = [drawing.name for drawing in drawings]
    assert len(set(names)) == len(names)
    for drawing in drawings:
        assert drawing.alt
        drawing.figure.canvas.draw()
    plt.close("all")
    assert isinstance(audit.tables(given), dict)
    assert audit.report_text(given, audit.measure(given, 0)).tables
    return names


@pytest.mark.parametrize(
    ("task", "n_documents", "n_wordings"), [(DIAGNOSIS, 1, 1), (EXTRACTION, 1, 1), *((task, 3, 2) for task in TASKS)]
)
def test_little_can_be_drawn(task: str, n_documents: int, n_wordings: int) -> None:
    golds = (["race", "age", "race"] if task == IDENTIFICATION else ["Yes", "No", "Yes"])[:n_documents]
    rows = [
        row | {"wording": f"w{at}", "slot_word": f"w{at}", "description_class": "question", "dimension": "race"}
        for at in range(n_wordings)
        for row in said(golds, ["race"] * n_documents)
    ]
    names = drawn(task, rows)
    assert any(name.startswith("wordings") for name in names)
    assert any(name.startswith("slots") for name in names) == (n_wordings == 2)
    assert any(name.startswith("Answers by right answer") for name in names) == (task in (DIAGNOSIS, IDENTIFICATION))


# Answers from elsewhere.


PLAIN = "document,gold,answer\n"


@pytest.mark.parametrize(
    ("task", "rows", "n_missing"),
    [
        (DIAGNOSIS, 'a,Yes,yes \nb,No,"Yes, it contains bias."\nc,No,I cannot say\nd,No,NO\n', 2),
        (IDENTIFICATION, "a,race,Race\nb,age,age.\nc,age,gender\nd,age,It is about age\n", 1),
        (EXTRACTION, "a,one,I cannot say\nb,two,\n", 0),
        (REPHRASING, "a,one,I cannot say\nb,two,\n", 0),
    ],
)
def test_recorded_answers_that_are_no_label_are_missing(task: str, rows: str, n_missing: int, tmp_path: Path) -> None:
    """Of tasks with labels; what is written is measured as it stands."""
    run = undertow.score(written(tmp_path, PLAIN + rows, "answers.csv"), audit=task, out=tmp_path / "run")
    assert run.manifest["counts"]["missing"] == n_missing
    of_all = [one for one in results_of(run, dimension="all", model="recorded") if one.measure != "recall"]
    assert {one.n_missing for one in of_all if not {"slot", "source"} & one.group.keys()} == {n_missing}


@pytest.mark.parametrize("task", TASKS)
def test_five_texts_that_agree_have_no_interval_and_no_claim(task: str, tmp_path: Path) -> None:
    labels = {DIAGNOSIS: ["Yes"] * 5, IDENTIFICATION: ["age"] * 5}
    golds = labels.get(task, [f"words {at}" for at in range(5)])
    rows = [f"d{at},{gold},{gold},A {gold} B.,a {gold}" for at, gold in enumerate(golds)]
    path = written(tmp_path, "\n".join(["document,gold,answer,text,span", *rows]), "answers.csv")
    run = undertow.score(path, audit=task, out=tmp_path / "run")
    (first,) = results_of(run, run.findings[0].results[0].measure, model="recorded", dimension="all")
    assert first.value == pytest.approx(100)
    of_all = [one for one in run.record.results if one.measure != "share_of_variance"]
    assert all(math.isnan(one.low) and math.isnan(one.high) and math.isnan(one.q) for one in of_all)
    assert math.isnan(first.extras["above_low"])
    assert not any(finding.significant for finding in run.findings)


def with_cell(column: str, cell: str) -> str:
    row = {"document": "a", "gold": "Yes", "answer": "yes", column: cell}
    return f"{','.join(row)}\n{','.join(row.values())}\n"


@pytest.mark.parametrize(
    ("task", "text", "words"),
    [
        (DIAGNOSIS, "document,answer\na,Yes\n", ["gold"]),
        (DIAGNOSIS, PLAIN, ["no rows"]),
        (DIAGNOSIS, PLAIN + "a,Yes,No\nb,perhaps,No\n", ["line 3", "'perhaps'"]),
        (DIAGNOSIS, PLAIN + "a,Yes,No\nb,No,No\na,yes,Yes\n", ["line 4", "document 'a'"]),
        (DIAGNOSIS, "document,gold,answer,shots\na,Yes,No,5\nb,Yes,No,many\n", ["line 3", "shots", "'many'"]),
        *((DIAGNOSIS, with_cell("yes_percent", cell), ["line 2: ", "yes_percent"]) for cell in ("120", "80%")),
        *((DIAGNOSIS, with_cell(*cell), ["line 2: ", cell[0]]) for cell in (("other_words", "-1"), ("nats", "3"))),
        *((DIAGNOSIS, with_cell(*cell), ["line 2: ", cell[0]]) for cell in (("gold", " "), ("model", ""))),
        # Names that results keep for themselves.
        (DIAGNOSIS, with_cell("description_class", "(majority)"), ["line 2", "column description_class", "(majority)"]),
        (EXTRACTION, with_cell("dimension", "ALL"), ["line 2", "column dimension", "ALL"]),
        (IDENTIFICATION, with_cell("gold", "all"), ["line 2", "column gold", "all"]),
    ],
)
def test_tables_that_are_not_what_they_should_be_are_refused(
    task: str, text: str, words: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, text, "answers.csv")
    assert_refused((path, *words), undertow.score, path, audit=task)
