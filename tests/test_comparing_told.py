"""A comparison in words, figures and files: what each sentence rests on, what is shown, and what becomes of damaged folders."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import undertow
from test_comparing import DESIGN, FIRST, SECOND, OutsideProbe, difference, record, table, written
from undertow import probes
from undertow.comparing import Comparison, compare, differences
from undertow.comparing.runs import JSON, PAGE, TABLE, Runs
from undertow.comparing.runs import compare as compare_folders
from undertow.comparing.told import ALL_ALIKE, HOW_FOUND, drawings, findings, named, told_of
from undertow.probes.base import Evidence
from undertow.records import UNFINISHED, Record
from undertow.types import Finding, Result, UndertowError

GRAPH = {"name": "unspecified", "title": "No feature says anything of the label"}


def leaning(by: float, n: int = 12, model: str = "two", **changed: Any) -> Record:
    """A run of n clusters whose share of female words lies higher, not by the same in each."""
    rng = np.random.default_rng(7)
    values = {str(at): rng.uniform(30, 60, 4) for at in range(n)}
    own = np.random.default_rng(8).uniform(0.8, 1.2, n)
    moved = {name: (one + by * own[int(name)]).tolist() for name, one in values.items()}
    return record(table(moved, model), run_key=model, **changed)


def told(of: Comparison) -> list[Finding]:
    return findings([of], {})


def folds(html: str) -> list[dict[str, str]]:
    """Rows of each \"What this rests on\" of a page, by their names."""
    parts = re.findall(r'<details class="basis">.*?</dl>', html, re.DOTALL)
    return [{name: unescape(text) for name, text in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", one)} for one in parts]


# What a sentence rests on.


def test_each_finding_names_the_difference_that_it_tells() -> None:
    of = compare(leaning(0, model="one"), leaning(9))
    found = [one for one in told(of) if one.found]
    assert found
    n_tests = sum(math.isfinite(one.q) for one in of.differences)
    for one in found:
        (result,) = one.of
        assert any(result is given for given in of.differences)
        assert one.n_tests == n_tests > 1
        assert one.decided == ""
        assert result.q < 0.05
        assert not result.low <= 0 <= result.high
    assert found == sorted(found, key=lambda one: -one.strength)


def test_what_is_not_found_names_the_nearest_first() -> None:
    of = compare(record(table(FIRST)), record(table(SECOND, "two")))
    (left,) = [one for one in told(of) if one.of]
    assert left.text.startswith("None of ")
    assert left.decided == HOW_FOUND
    assert {one.measure for one in left.of} >= {"slope", "mean_mass"}
    sizes = [abs(one.value) / (one.high - one.low) for one in left.of if math.isfinite(one.low)]
    assert sizes == sorted(sizes, reverse=True)


def test_the_page_says_what_each_finding_rests_on(tmp_path: Path) -> None:
    half = {"dtype": "bfloat16", "source": "here", "revision": "1", "readout": "likelihood"}
    first = written(leaning(0, model="one", graph=GRAPH), tmp_path / "a")
    second = written(leaning(9, graph=GRAPH, model_card=half), tmp_path / "b")
    html = compare_folders(first, second).write(tmp_path / "out").read_text(encoding="utf-8")
    rests = folds(html)
    assert rests
    (value,) = [text for name, text in rests[0].items() if name.startswith(("Mean mass", "Slope", "Pearson"))]
    for part in ("95% interval", "no difference would give 0", "n = 48 in 12 clusters"):
        assert part in value
    assert rests[0]["asked"] == "48 texts in 12 clusters, 0 unscored"
    assert rests[0]["unclaimed mass"] == "10.0% on average went to none of the listed words"
    assert rests[0]["protocol"] == (
        "one: exact; read by likelihood, in float32; two: exact; read by likelihood, in bfloat16"
    )
    assert rests[0]["graph"] == "unspecified: No feature says anything of the label"
    assert "Survives the correction for" in html
    assert "tests were made, so that some p would be small by chance alone" in html


def test_runs_that_are_called_by_their_folders_name_their_model(tmp_path: Path) -> None:
    places = [written(record(table(FIRST)), tmp_path / name) for name in ("before", "after")]
    html = compare_folders(*places).write(tmp_path / "out").read_text(encoding="utf-8")
    assert "to the same questions? All runs asked one." in html
    assert "<dd>after: a run of one</dd>" in html
    other = written(record(table(SECOND, "two")), tmp_path / "other")
    html = compare_folders(places[0], other).write(tmp_path / "two").read_text(encoding="utf-8")
    assert "All runs asked" not in html
    assert "<dd>two</dd>" in html


def test_items_that_one_run_has_alone_are_not_what_a_finding_rests_on(tmp_path: Path) -> None:
    more = leaning(0, n=14, model="one", limit=56)
    fewer = leaning(9, challenge_sha256="less", limit=48)
    first, second = written(more, tmp_path / "a"), written(fewer, tmp_path / "b")
    compared = compare_folders(first, second)
    assert [len(one.observations) for one in compared.comparisons[0].shared] == [48, 48]
    html = compared.write(tmp_path / "out").read_text(encoding="utf-8")
    assert folds(html)[0]["asked"] == "48 texts in 12 clusters, 0 unscored"
    assert "48 texts in all" in html, "what was asked is what was compared"


def test_several_runs_are_corrected_for_all_of_their_tests(tmp_path: Path) -> None:
    places = [written(leaning(by, model=name), tmp_path / name) for name, by in (("one", 0), ("two", 2), ("three", 9))]
    compared = compare_folders(*places)
    tested = [one for of in compared.comparisons for one in of.differences if math.isfinite(one.p)]
    assert [one.q for one in tested] == pytest.approx(
        stats.false_discovery_control([one.p for one in tested], method="bh")
    )
    assert {one.n_tests for one in compared.findings if one.n_tests} == {len(tested)}
    html = compared.write(tmp_path / "out").read_text(encoding="utf-8")
    named_rows = {name for one in folds(html) for name in one if "candidate " in name}
    assert {name.split("candidate ")[1].split(",")[0] for name in named_rows} == {"two", "three"}


def test_where_nothing_differs_the_page_says_so_of_differences(tmp_path: Path) -> None:
    first = written(record(table(FIRST)), tmp_path / "a")
    html = compare_folders(first, first).write(tmp_path / "same").read_text(encoding="utf-8")
    assert ALL_ALIKE in html
    second = written(record(table(SECOND, "two"), run_key="l"), tmp_path / "b")
    html = compare_folders(first, second).write(tmp_path / "out").read_text(encoding="utf-8")
    assert "No difference between the runs survived the correction" in html
    assert "No effect in this run" not in html


def test_both_values_have_the_decimals_of_their_difference(tmp_path: Path) -> None:
    """Two digits of 40.2 and 40.4 would be the same."""
    first = written(leaning(0, model="one"), tmp_path / "a")
    second = written(leaning(0.2), tmp_path / "b")
    compared = compare_folders(first, second)
    found = difference(compared.comparisons[0], "mean_mass")
    html = compared.write(tmp_path / "out").read_text(encoding="utf-8")
    cells = re.findall("<td[^>]*>([^<]*)</td>", html)
    shown = [f"{found.detail[side]:.3f}" for side in ("baseline", "candidate")]
    assert shown[0] != shown[1]
    assert set(shown) <= set(cells)


def test_an_interval_much_narrower_than_its_difference_gives_no_row_of_digits() -> None:
    of = compare(record(table(FIRST)), record(table(SECOND, "two")))
    narrow = replace(difference(of, "slope"), value=-0.20981234, low=-0.20981934, high=-0.20980534, p=0.001, q=0.001)
    (one,) = [each for each in told(replace(of, differences=[narrow])) if each.found]
    assert "0.210 percentage points per step lower" in one.text


# Figures.


def drawn_names(of: Comparison) -> dict[str, set[str]]:
    return {one.name: {text.get_text() for text in one.figure.texts} for one in drawings([of], {})}


def test_a_figure_of_one_row_says_what_it_is_of() -> None:
    said = drawn_names(compare(record(table(FIRST)), record(table(SECOND, "two"))))
    assert "set, date, female-male" in said["difference_slope_gap"]
    assert "all" not in said["difference_slope_gap"]


def test_differences_of_nothing_are_drawn_beside_the_others() -> None:
    """The mass that nobody claimed is the same in both: it is one of those that are shown, and named as they are."""
    (mass,) = [
        one
        for one in drawings([compare(record(table(FIRST)), record(table(SECOND, "two")))], {})
        if one.name == "difference_mean_mass"
    ]
    said = {text.get_text() for text in mass.figure.texts}
    assert {"female", "male", "unclaimed (no interval)"} <= said
    assert "strongest of" not in mass.caption
    assert "unclaimed 0.00 (no interval)" in mass.alt


def test_what_is_not_drawn_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.comparing.told.MOST_ROWS", 2)
    captions = {
        one.name: one.caption for one in drawings([compare(record(table(FIRST)), record(table(SECOND, "two")))], {})
    }
    assert captions["difference_mean_mass"].endswith("The 2 strongest of 3.")


def test_a_measure_that_differs_nowhere_has_no_figure() -> None:
    of = compare(record(table(FIRST)), record(table(SECOND, "two")))
    still = [replace(one, value=0.0) for one in of.differences]
    assert drawings([replace(of, differences=still)], {}) == []


# Runs that are odd, or damaged.


def test_a_run_that_lacks_what_its_audit_needs_is_told_of() -> None:
    whole, lacking = record(table(FIRST)), record(table(SECOND, "two"))
    design = {key: fact for key, fact in DESIGN.items() if key != "gaps"}
    with pytest.raises(UndertowError, match=r"^two: is damaged \(its design does not say gaps\); run the audit again$"):
        compare(whole, replace(lacking, manifest={**lacking.manifest, "design": design}))
    untitled = {key: fact for key, fact in DESIGN.items() if key != "title"}
    of = compare(replace(whole, manifest={**whole.manifest, "design": untitled}), lacking)
    with pytest.raises(UndertowError, match=r"^one: is damaged \(its design does not say title\)"):
        told_of(of)


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("readouts", [1]),
        ("readouts", None),
        ("readouts", {"two": 1}),
        ("readout", ["mask"]),
        ("models", [1]),
        ("models", {"two": 1}),
        ("groups", 5),
        ("words", {"female": "she"}),
    ],
)
def test_a_design_of_another_kind_is_refused(name: str, fact: object) -> None:
    whole, other = record(table(FIRST)), record(table(SECOND, "two"))
    design = {key: held for key, held in DESIGN.items() if key != name}
    garbled = replace(other, manifest={**other.manifest, "design": design | {name: fact}})
    whole = replace(whole, manifest={**whole.manifest, "design": design})
    said = rf"^two: is damaged \({name} of its design is of another kind\); run the audit again$"
    with pytest.raises(UndertowError, match=said):
        compare(whole, garbled)


def test_a_fault_of_an_audit_stays_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Outside(OutsideProbe):
        @staticmethod
        def measure(evidence: Evidence, seed: int) -> list[Result]:
            raise KeyError("score")  # which the table has

    monkeypatch.setattr(probes, "load", lambda name: Outside)
    frame = pd.DataFrame({"item": ["a"], "score": [1.0]})
    run = record(frame.assign(model="m"), probe="outside", design={"groups": []})
    with pytest.raises(KeyError, match="score"):
        compare(run, run)


def test_a_run_whose_readouts_are_no_table_is_not_measured_anew_either(tmp_path: Path) -> None:
    run = record(table(FIRST), design={"readouts": {"one": "likelihood"}})
    undertow.score(written(run, tmp_path / "good"), out=tmp_path / "anew")
    folder = written(replace(run, manifest={**run.manifest, "design": DESIGN | {"readouts": [1]}}), tmp_path / "bad")
    with pytest.raises(UndertowError, match="readouts of its design is of another kind"):
        undertow.score(folder, out=tmp_path / "other")
    with pytest.raises(UndertowError, match="readouts of its design is of another kind"):
        undertow.compare(tmp_path / "good", folder)


Asking = Callable[[Evidence], object]
OF_COLUMNS: dict[str, Asking] = {
    "one": lambda of: of.frame["zz"],
    "of a part": lambda of: of.frame[of.frame["a"] > 1].reset_index(drop=True)["zz"],
    "several": lambda of: of.frame[["a", "zz"]],
    "none of several": lambda of: of.frame.loc[:, ["zz", "yy"]],
    "dropped": lambda of: of.frame.drop(columns=["zz"]),
    "sorted by": lambda of: of.frame.sort_values("zz"),
    "grouped by": lambda of: of.frame.groupby("zz"),
    "of groups": lambda of: of.frame.groupby("a")["zz"].mean(),
    "index": lambda of: of.frame.set_index("zz"),
    "joined by": lambda of: of.frame.merge(of.frame, on="zz"),
}
OF_OUR_OWN: dict[str, Asking] = {
    "label": lambda of: of.frame.set_index("g")["a"]["nobody"],
    "row": lambda of: of.frame.set_index("g").loc["nobody"],
    "group": lambda of: of.frame.groupby("g").get_group("nobody"),
    "wide table": lambda of: of.frame.pivot_table("a", "item", "g")["nobody"],
    "mapping": lambda of: {"g": 1}["zz"],
    "table in a design": lambda of: of.design["k"]["zz"],
}


def asked_for(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare runs whose audit asks this of them; the later of which lacks columns that the first has."""

    class Outside(OutsideProbe):
        @staticmethod
        def measure(evidence: Evidence, seed: int) -> list[Result]:
            asking(evidence)
            return []

    monkeypatch.setattr(probes, "load", lambda name: Outside)
    whole = pd.DataFrame({"item": ["a", "b"], "model": "m", "a": [1, 2], "g": ["x", "y"], "zz": [1, 2], "yy": [1, 2]})
    runs = [record(frame, probe="outside", design={"k": {}}) for frame in (whole, whole.drop(columns=["zz", "yy"]))]
    compare(*runs, names=("first", "later"))


@pytest.mark.parametrize("way", OF_COLUMNS)
def test_a_column_that_a_run_lacks_is_named_however_it_is_asked_for(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    column = "yy" if way == "none of several" else "zz"
    told = rf"^later: the run is damaged or of another version \(its observations have no column '{column}', which its audit needs\); run"
    with pytest.raises(UndertowError, match=told):
        asked_for(OF_COLUMNS[way], monkeypatch)


@pytest.mark.parametrize("way", OF_OUR_OWN)
def test_what_a_table_of_ours_lacks_is_no_damage_of_a_run(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="zz" if way in ("mapping", "table in a design") else "nobody"):
        asked_for(OF_OUR_OWN[way], monkeypatch)


def test_a_fact_that_a_design_lacks_is_named_for_an_audit_from_outside_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UndertowError, match=r"^first: is damaged \(its design does not say nosuch\)"):
        asked_for(lambda of: of.design["nosuch"], monkeypatch)


def test_what_cannot_be_measured_at_all_names_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Outside(OutsideProbe):
        @staticmethod
        def measure(evidence: Evidence, seed: int) -> list[Result]:
            raise UndertowError("there is too little; ask more")

    monkeypatch.setattr(probes, "load", lambda name: Outside)
    run = record(pd.DataFrame({"item": ["a"], "model": ["m"]}), probe="outside", design={"groups": []})
    with pytest.raises(
        UndertowError, match="cannot be compared on the 1 items that both answered: there is too little"
    ):
        compare(run, run)


def test_answers_that_are_lists_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a difference would be told with an interval from 0 to 0."""

    class Outside(OutsideProbe):
        @staticmethod
        def measure(evidence: Evidence, seed: int) -> list[Result]:
            return [Result("mean", {}, float(np.mean([sum(one) for one in evidence.frame["picks"]])), n=1)]

    def run(picks: Sequence[Sequence[float]]) -> Record:
        frame = pd.DataFrame({"item": [str(at) for at in range(len(picks))], "picks": list(picks), "model": "m"})
        return record(frame, probe="outside", design={"groups": []})

    monkeypatch.setattr(probes, "load", lambda name: Outside)
    first = [[1.0, 2.0], [3.0], [0.5, 1.0]]
    of = compare(run(first), run([[2.0, 2.0], [5.0], [0.5, 1.5]]))
    assert not of.identical
    (found,) = of.differences
    assert found.value == pytest.approx(3.5 / 3)
    assert found.low < found.value < found.high
    assert compare(run(first), run(first)).identical


@pytest.mark.parametrize("side", [0, 1])
def test_a_run_without_items_is_refused(side: int) -> None:
    runs = [record(table(FIRST)), record(table(SECOND, "two"))]
    runs[side] = replace(runs[side], observations=runs[side].observations.iloc[:0])
    with pytest.raises(UndertowError, match=rf"{('one', 'two')[side]}: the run has no items"):
        compare(runs[0], runs[1], names=("one", "two"))


def test_a_column_of_reasons_that_is_all_missing_means_answered() -> None:
    first = record(table(FIRST))
    gaps = replace(first, observations=first.observations.assign(unscored=np.nan))
    assert compare(gaps, record(table(SECOND, "two"))).n_answered == len(first.observations)


def test_groups_that_stand_for_many_clusters_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MOST_GROUPS", 8)
    of = compare(leaning(0, model="one"), leaning(9))
    assert any(note.startswith("12 clusters were dealt at random into 8 groups") for note in of.notes)
    monkeypatch.setattr(differences, "MOST_GROUPS", 12)
    assert not any("dealt" in note for note in compare(leaning(0, model="one"), leaning(9)).notes)


def test_a_folder_that_is_called_as_a_model_is_not_taken_for_it(tmp_path: Path) -> None:
    places: Mapping[str, str] = {"x": "m", "y": "m", "z": "x"}  # folder: model
    folders = [written(record(table(FIRST, model)), tmp_path / name) for name, model in places.items()]
    assert Runs.read(folders).names == [str(folders[0]), str(folders[1]), "x"]


# Folders.


@pytest.fixture
def pair_of_runs(tmp_path: Path) -> list[Path]:
    return [
        written(record(table(FIRST)), tmp_path / "a"),
        written(record(table(SECOND, "two"), run_key="l"), tmp_path / "b"),
    ]


def test_a_comparison_that_was_stopped_while_it_was_rewritten_is_taken_over(
    pair_of_runs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    compared = compare_folders(*pair_of_runs)
    compared.write(out)
    (out / JSON).unlink()
    (out / UNFINISHED).touch()
    compared.write(out)
    assert {entry.name for entry in out.iterdir()} == {PAGE, TABLE, JSON}


def test_what_a_reader_has_put_beside_a_comparison_stays(pair_of_runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    compared = compare_folders(*pair_of_runs)
    compared.write(out)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    compared.write(out)
    assert (out / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("held", ["", "[]", "{", '{"comparison_key": 3}'])
def test_a_damaged_comparison_is_not_replaced(pair_of_runs: list[Path], tmp_path: Path, held: str) -> None:
    out = tmp_path / "out"
    compared = compare_folders(*pair_of_runs)
    compared.write(out)
    (out / JSON).write_text(held, encoding="utf-8")
    with pytest.raises(
        UndertowError, match="holds another comparison, or a damaged one; name another folder with --out"
    ):
        compared.write(out)
    assert (out / JSON).read_text(encoding="utf-8") == held


def test_the_json_has_no_number_that_json_has_not(pair_of_runs: list[Path], tmp_path: Path) -> None:
    compare_folders(*pair_of_runs).write(tmp_path / "out")
    text = (tmp_path / "out" / JSON).read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)


def test_a_name_of_a_run_is_kept_apart_from_the_groups_of_its_audit() -> None:
    of = compare(record(table(FIRST)), record(table(SECOND, "two")))
    one = named(of, of.differences[0], several=True)
    assert one.group["candidate"] == "two"
    assert named(of, of.differences[0], several=False) is of.differences[0]
