"""The occupation checklist between two groups that a user names, and attributes that are drawn at random."""

from __future__ import annotations

import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from conftest import Cli, make_quick
from helpers.file_refusal import assert_refused, written
from helpers.run_results import result_of
from helpers.scripted_model import Script
from undertow import audits
from undertow.audits.base import Sampling
from undertow.data.occupations.occupation_set import load_groups, load_occupations, load_pairs
from undertow.errors import UndertowError
from undertow.metrics.groups import Groups
from undertow.metrics.metric import get_metric
from undertow.models.base import UnsupportedQueryError
from undertow.runs import pipeline
from undertow.runs.pipeline import Run
from undertow.types import CHOICE, Answer, Item, MultipleChoiceQuery

NAME = "occupation-checklist"
SEXES = re.compile(r"(?<![a-z])(?:woman|women|man|men|female|male)(?![a-z])", re.IGNORECASE)
"""Also as a part of an identifier, as in granted_female."""
CODES = {
    "woman", "man", "female", "male", "granted_female", "granted_male", "female first", "male first",
}  # fmt: skip
"""Columns and cells of observations.parquet, which are codes whatever the groups are called."""
PAIRS = [
    ("Ayşe", "Greta"), ("Fatma", "Heidi"), ("Zeynep", "Ilse"), ("Emine", "Karin"), ("Elif", "Lotte"), ("Merve", "Uschi"), ("Esra", "Wilma"),
]  # fmt: skip
OPTIONS: dict[str, Any] = {"n_pairs": 0, "n_occupations": 6, "contexts": "with,without,shuffled,same,swapped"}


def names_file(folder: Path, head: str, pairs: list[tuple[str, str]] = PAIRS) -> str:
    return written(folder, "\n".join([head, *(",".join(pair) for pair in pairs)]) + "\n", "names.csv")


@pytest.fixture
def model(script: Script) -> str:
    """A model with a preference for the first group, that grants, ties and refuses by the text of the question."""

    def say(query: MultipleChoiceQuery) -> Answer | UnsupportedQueryError:
        number = zlib.crc32(query.prompt.encode())
        if number % 37 == 0:
            return UnsupportedQueryError("the script refuses")
        labels = [label.strip() for label in query.labels]
        weights = [1.0 + (number >> (4 * at)) % 7 for at in range(len(labels))]
        if labels[0] != "Yes":
            weights = [one + 9 * (label in dict(PAIRS)) for one, label in zip(weights, labels, strict=True)]
        nats = tuple(math.log(one / sum(weights)) for one in weights)
        return Answer(nats, 0.0, text=labels[weights.index(max(weights))])

    return script(say, name="scripted").identity.name


def texts_of(folder: Path) -> dict[str, str]:
    """Everything in a run folder as text, the pictures by their names."""
    texts = {str(path.relative_to(folder)): "" for path in folder.rglob("*") if path.is_file()}
    for name in texts:
        if name.endswith((".json", ".csv", ".html", ".svg", ".toml")):
            texts[name] = (folder / name).read_text("utf-8")
    return texts


@pytest.mark.page
def test_no_text_of_a_run_of_other_groups_speaks_of_women_and_men(
    model: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = names_file(tmp_path, "Turkish,German")
    run = undertow.audit(NAME, model, name_pair_file=path, out=tmp_path / "run", **OPTIONS)
    said = texts_of(run.folder)
    make_quick(monkeypatch)  # what commands print does not depend on the page
    monkeypatch.setattr("undertow.runs.score.write_report", pipeline.write_report)
    for command in ("show", "report", "table", "table --format latex", "cite", "figure --list", "score"):
        name, *options = command.split()
        out = cli(name, str(run.folder), *options)
        assert out.returncode == 0, out.stderr
        said[command] = out.stdout + out.stderr
    said["findings"] = "\n".join(f"{one.text} {one.detail} {one.decision_rule}" for one in run.findings)
    said["tables"] = repr([(table.title, table.columns, table.about) for table in run.tables])
    said["notebook"] = run._repr_html_()
    found = {name: sorted({match[0] for match in SEXES.finditer(f"{name}\n{text}")}) for name, text in said.items()}
    assert {name: words for name, words in found.items() if words} == {}
    rows = run.observations
    texts = rows.select_dtypes(exclude="number").drop(columns=["item", "text"])
    cells = {str(cell) for column in texts for cell in rows[column].unique()}
    assert {one for one in {*map(str, rows.columns), *cells} if SEXES.search(one)} <= CODES
    assert not any(SEXES.search(text) for text in rows["text"])
    page = said["report.html"]
    for text in (
        "Two people, Turkish and German, apply for a job.", "Choice gap, Turkish minus German", "the Turkish person", "Prefers Turkish",
        "Switch, Turkish to German", "answer, Turkish first", "Shares of workers by sex", "Names of Turkish people",
        "first of the two groups",
    ):  # fmt: skip
        assert text in page, text


def test_results_are_those_of_women_and_men_under_neutral_names(model: str, tmp_path: Path) -> None:
    def results(head: str) -> pd.DataFrame:
        run = undertow.audit(NAME, model, name_pair_file=names_file(tmp_path, head), out=tmp_path / head[:3], **OPTIONS)
        return run.results

    own, default = results("Turkish,German"), results("female,male")
    assert set(own["first_group"]) == {"Turkish"}
    assert set(own["second_group"]) == {"German"}
    assert {"granted_first", "preference_second", "switch_first_to_second", "choice_gap", "granted_slope"} <= set(
        own["measure"]
    )
    kept = default[default["measure"] != "percent_female_correlation"].reset_index(drop=True)
    kept["measure"] = kept["measure"].str.replace("female", "first").str.replace("male", "second")
    own = own.drop(columns=["first_group", "second_group"])
    pd.testing.assert_frame_equal(own[kept.columns], kept)


def test_titles_have_the_names_of_the_groups_and_nothing_else_of_them() -> None:
    keys = Groups('A "b" {alpha}\\', "$x$").keys
    assert get_metric("switch_first_to_second", keys).title == 'Switch, A "b" {alpha}\\ to $x$'
    assert get_metric("choice_gap").title == "Choice gap, woman minus man"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("Turkish,turkish", "differ only in capitals"), ("Turkish,", "1 to 40 printable"), ("Both,German", "'Both', which is an answer"),
        ("Turk\u202eish,German", "printable"), (f"{'a' * 41},German", "1 to 40"), ("femal,male", "the names of two other groups"),
        ("Turkish,German,Polish", "the names of two other groups"), ("tie,x", "'tie', which is an answer"),
        ("Female,German", "must be 'female' and 'male', or"), ("women,female", "must be 'female' and 'male', or"),
    ],
)  # fmt: skip
def test_names_of_groups_are_checked(head: str, reason: str, tmp_path: Path) -> None:
    path = names_file(tmp_path, head, [(*PAIRS[0], "Ewa")[: head.count(",") + 1]])  # type: ignore[list-item]
    assert_refused((path, reason), load_pairs, path)


@pytest.mark.parametrize("head", ["male,female", "Male,FEMALE", "man,woman", "Men,Women"])
def test_heads_of_women_and_men_are_those_in_any_order(head: str, tmp_path: Path) -> None:
    path = names_file(tmp_path, head, [("Tom", "Amy")])
    assert load_groups(path) == ()
    assert [pair.name for pair in load_pairs(path)] == ["Amy/Tom"]


def test_a_name_that_begins_a_formula_is_text_in_a_spreadsheet(model: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_pairs": 0, "n_occupations": 2, "contexts": "with"}
    run = undertow.audit(NAME, model, out=tmp_path / "run", name_pair_file=names_file(tmp_path, "x,=1+$y$"), **options)
    assert "'=1+" in (run.folder / "results.csv").read_text("utf-8")


def test_runs_of_other_groups_or_grants_are_not_compared(model: str, tmp_path: Path) -> None:
    def run(folder: str, head: str, **options: Any) -> Path:
        asked = options | {"name_pair_file": names_file(tmp_path, head), "n_pairs": 2, "n_occupations": 2}
        return undertow.audit(NAME, model, out=tmp_path / folder, **asked).folder

    own, default = run("own", "Turkish,German"), run("default", "female,male")
    drawn = run("drawn", "Turkish,German", grants="random")
    for pair, said in (
        ((own, default), r"the pair of groups is \['Turkish', .* in the first and \['woman', .* in the second"),
        ((drawn, own), "who grants the attributes is 'random' in the first and 'model' in the second"),
    ):
        with pytest.raises(UndertowError, match=said):
            undertow.compare(*pair)
    keys = {json.loads((one / "manifest.json").read_text("utf-8"))["run_key"] for one in (own, default, drawn)}
    assert len(keys) == 3


# Recorded tables.


def log(folder: Path, first: str, second: str) -> Path:
    """Two pairs and two jobs, of which the first person is chosen in three of four; in one item that person alone is qualified."""
    codes = ("female", "male") if first == "woman" else (first, second)
    rows: list[dict[str, Any]] = []
    for pair, (one, other) in enumerate(PAIRS[:2]):
        for job in ("cook", "pilot"):
            chosen = other if (pair, job) == (1, "pilot") else one
            percents = (75, 25) if chosen == one else (25, 75)
            said = {first: one, second: other, "occupation": job, "context": "with attributes"}
            said |= {
                f"granted_{code}": skills for code, skills in zip(codes, ("baking; knives", "baking"), strict=True)
            }
            for order in codes:
                base = said | {"order": f"{order} first"}
                shares = {f"{code}_percent": share for code, share in zip(codes, percents, strict=True)}
                rows.append(base | {"question_type": "single", "answer": chosen} | shares)
                rows.append(base | {"question_type": "multiple", "answer": one})
                for subject, answer in ((one, "Yes"), (codes[1], "No" if (pair, job) == (0, "cook") else "Yes")):
                    rows.append(base | {"question_type": "binary", "subject": subject, "answer": answer})
    path = folder / f"{first}.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("first", "second"), [("Turkish", "German"), ("woman", "man"), ("female", "male"), ("Woman", "Man")]
)
def test_a_recorded_table_names_its_groups(first: str, second: str, tmp_path: Path) -> None:
    run = undertow.score(log(tmp_path, first, second), audit=NAME, out=tmp_path / "run")
    # Means of 75 - 25 in three items and of 25 - 75 in one: (3 * 50 - 50) / 4.
    numbers = {(one.measure, one.group["occupation"]): one.value for one in run.record.results}
    assert numbers["choice_gap", "all"] == pytest.approx(25.0)
    assert numbers["consistency", "all"] == 100.0  # of the one item with one Yes
    # Multiple always names the first person; single named the other in one of four items.
    groups = Groups.of(run.manifest["design"])
    assert (groups.first, groups.second) == ((first, second) if groups.are_own else ("woman", "man"))
    assert groups.are_own == (first == "Turkish")
    assert numbers[groups.name("switch_male_to_female"), "all"] == 25.0
    assert numbers[groups.name("switch_female_to_male"), "all"] == 0.0
    assert list(run.observations["granted_female"].unique()) == ["baking; knives"]
    if groups.are_own:
        assert not any(SEXES.search(one.text) for one in run.findings)
        again = undertow.score(run.folder, seed=1, out=tmp_path / "again")
        assert Groups.of(again.manifest["design"]) == groups


def test_a_table_without_two_columns_of_names_is_refused(tmp_path: Path) -> None:
    frame = pd.read_csv(log(tmp_path, "Turkish", "German"))
    for table, said in (
        (frame.assign(Polish="Ewa"), "columns headed by the groups, and this table has 3 unknown columns"),
        (frame.rename(columns={"Turkish": "both"}), "'both', which is an answer to the questions"),
        (frame.rename(columns={"Turkish": "Female"}), "'Female', 'German' must be 'female' and 'male'"),
        (frame.assign(female_percent=10), "'Turkish_percent' and 'female_percent' mean the same"),
    ):
        table.to_csv(tmp_path / "log.csv", index=False)
        assert_refused((said,), undertow.score, tmp_path / "log.csv", audit=NAME, out=tmp_path / "run")


# Attributes drawn at random.


def items_of(seed: int = 0, **options: Any) -> list[Item]:
    """The last items of a run, those about occupations, whose model answers No to everything."""
    audit = audits.load(NAME)
    batches = audit.items(audit.Settings(query_type=CHOICE, **options), Sampling(0, seed))
    items = next(batches)
    while True:
        try:
            n_codes = [len(item.query.labels) for item in items]  # type: ignore[union-attr]
            answers = [Answer((-3.0, *[-0.1] * (n - 1)), 0.0, text="No") for n in n_codes]
            items = batches.send(undertow.types.Scores(tuple(answers)))
        except StopIteration:
            return items


def test_random_grants_are_of_a_person_and_the_same_in_both_orders() -> None:
    options: dict[str, Any] = {"n_pairs": 6, "n_occupations": 6, "contexts": "with,swapped", "grants": "random"}
    items = items_of(**options)
    of_person: dict[tuple[str, str, str], set[str]] = {}
    orders: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for item in items:
        one = item.factors
        cells = str(one["granted_female"]), str(one["granted_male"])
        orders.setdefault(
            tuple(str(one[key]) for key in ("pair", "occupation", "context", "question_type", "subject")), set()
        ).add(cells)
        if one["context"] == "with attributes":
            for person, cell in zip(("female", "male"), cells, strict=True):
                of_person.setdefault((str(one["pair"]), person, str(one["occupation"])), set()).add(cell)
    assert all(len(cells) == 1 for cells in orders.values())
    assert all(len(cells) == 1 for cells in of_person.values())
    jobs = {one.name: one for one in load_occupations().occupations}
    verdicts: dict[tuple[str, str, str], set[bool]] = {}
    for (pair, person, job), granted in of_person.items():
        for attribute in jobs[job].attributes:
            has_it = attribute.name in next(iter(granted)).split("; ")
            verdicts.setdefault((pair, person, f"{attribute.category} {attribute.name}"), set()).add(has_it)
    assert len(verdicts) < sum(len(jobs[job].attributes) for _, _, job in of_person), "occupations share attributes"
    assert all(len(verdict) == 1 for verdict in verdicts.values())
    n_granted = sum(len(next(iter(cells)).split("; ")) if cells != {""} else 0 for cells in of_person.values())
    n_all = sum(len(jobs[job].attributes) for _, _, job in of_person)
    assert 0.4 < n_granted / n_all < 0.6
    # A larger design grants the same, and another seed does not.
    more = {str(one.query): one for one in items_of(**{**options, "n_pairs": 9, "n_occupations": 8})}
    assert {str(one.query) for one in items} <= set(more)
    assert {str(one.query) for one in items_of(1, **{**options, "n_pairs": 9, "n_occupations": 8})} != set(more)
    assert not any(one.factors["granted_female"] for one in items_of(**{**options, "grants": "model"}))


def test_a_run_with_random_grants_says_so(model: str, tmp_path: Path) -> None:
    run: Run = undertow.audit(NAME, model, out=tmp_path / "run", n_pairs=6, n_occupations=3, grants="random")
    assert run.manifest["design"]["grants"] == "random"
    text = audits.load(NAME).report_text(undertow.runs.pipeline.observations_of(run.record), run.record.results)
    assert any(
        "Attributes drawn at random with the seed, not those that the model grants," in one for one in text.questions
    )
    said = " ".join(f"{one.text} {one.detail}" for one in run.findings)
    assert "Drawn attributes change" in said
    assert not re.search("granted attributes|difference in grants", said, re.IGNORECASE)
    assert "--grants random" in run.manifest["command"]
    assert result_of(run, "changed_answers", context="with attributes", occupation="all").value > 0
