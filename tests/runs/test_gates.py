from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow.runs.compare
from helpers.file_refusal import assert_refused
from helpers.gate_runs import DATE, FOUR, GAP, MANIFEST, RESULTS, WHERE, gap_rule, parsed, rule, run_folder
from undertow.runs.folder.storage import Record, write_record
from undertow.runs.gates.evaluate import ERROR, FAILED, PASSED, SKIPPED, RuleResult
from undertow.runs.gates.evaluate import gate as check
from undertow.runs.gates.gate_formatting import formatted, printable
from undertow.runs.gates.junit import write_junit
from undertow.types import Result


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "run").parent


def rules(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return path


def all_of(folder: Path, text: str, **options: Any) -> list[RuleResult]:
    """What comes of these rules for the run of a folder."""
    return [one for run in check([folder / "run"], rules(folder, text), **options).runs for one in run.judged]


def one_of(folder: Path, **keys: object) -> RuleResult:
    (judged,) = all_of(folder, gap_rule(**keys))
    return judged


NUMBERS = {
    "value": 1.25, "low": 1.0, "high": 1.5, "magnitude": 1.25, "magnitude_low": 1.0, "magnitude_high": 1.5, "p": 0.04, "q": 0.06,
    "n": 90.0, "n_missing": 10.0, "missing_percent": 10.0, "detectable_slope": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(("of", "number"), NUMBERS.items())
def test_each_number_is_judged_by_both_thresholds_which_themselves_pass(of: str, number: float, place: Path) -> None:
    at_most, at_least = {"at_most": number}, {"at_least": number}
    of_each = [(at_most, PASSED), (at_least, PASSED), (at_most | at_least, PASSED)]
    of_each += [({"at_most": number - 0.001}, FAILED), ({"at_least": number + 0.001}, FAILED)]
    for keys, outcome in of_each:
        (judged,) = all_of(place, rule(name="gap", measure="slope_gap", where=WHERE, of=of, **keys))
        assert (judged.number, judged.outcome) == (number, outcome), keys
        assert judged.group == DATE


@pytest.mark.parametrize(
    ("interval", "neutral", "magnitudes"),
    [
        ((-0.75, -0.5, 0.25), 0.0, (0.5, 0.0, 0.75)),
        ((-1.5, -1.25, -1.0), 0.0, (1.25, 1.0, 1.5)),
        ((40.0, 45.0, 56.0), 50.0, (5.0, 0.0, 10.0)),
        # A bootstrap interval need not hold its estimate; what is farthest is the estimate then.
        ((1.0, 2.0, 1.5), 0.0, (2.0, 1.0, 2.0)),
    ],
)
def test_magnitudes_are_distances_from_neutral(
    interval: tuple[float, float, float], neutral: float, magnitudes: tuple[float, float, float], tmp_path: Path
) -> None:
    low, value, high = interval
    run_folder(tmp_path / "run", [replace(GAP, value=value, low=low, high=high, null_value=neutral)])
    for of, expected in zip(("magnitude", "magnitude_low", "magnitude_high"), magnitudes, strict=True):
        assert one_of(tmp_path, of=of).number == expected


@given(
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number) < 1e14),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_number_is_shown_on_its_own_side_of_a_threshold(number: float, threshold: float) -> None:
    for at in (threshold, math.nextafter(number, math.inf), math.nextafter(number, -math.inf), number):
        said = float(formatted(number, [at]))
        assert (said > at, said < at) == (number > at, number < at)


def test_a_rule_is_asked_of_every_result_that_it_matches(place: Path) -> None:
    judged = all_of(place, rule(name="gap", measure="slope_gap", of="magnitude_high", at_most=0.5))
    assert {one.label: one.outcome for one in judged} == {
        "date-female-male": FAILED, "place-female-male": FAILED, "date-neutral-male": PASSED
    }  # fmt: skip


def test_of_a_list_any_level_will_do_and_each_must_be_there(place: Path) -> None:
    where = {"pronoun": ["female-male", "neutral-male"], "w_name": "date"}
    judged = all_of(place, gap_rule(where=where))
    assert [one.label for one in judged] == ["date-female-male", "date-neutral-male"]
    judged = all_of(place, gap_rule(where={**where, "pronoun": ["female-male", "neutral-mal"]}))
    assert [one.outcome for one in judged] == [ERROR, PASSED]
    assert "(did you mean 'neutral-male'?)" in judged[0].sentence
    # Each level is there, but not together with the others.
    judged = all_of(place, gap_rule(where={**where, "w_name": "place"}))
    assert [one.outcome for one in judged] == [ERROR, PASSED]
    assert "together" in judged[0].sentence


@pytest.mark.parametrize(("classes", "outcome"), [(["statement"], PASSED), (["statement", "null"], ERROR)])
def test_all_classes_together_are_the_only_one_of_a_run(classes: list[str], outcome: str, tmp_path: Path) -> None:
    results = [Result("token_f1", {"model": "m", "description_class": one}, 40.0) for one in [*classes, "(copy)"]]
    run_folder(tmp_path / "run", results)
    (judged,) = all_of(
        tmp_path, rule(name="words", measure="token_f1", where={"description_class": "all"}, at_least=30)
    )
    assert judged.outcome == outcome, judged.sentence


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"measure": "slope_gp"}, ["did you mean 'slope_gap'?", "it has slope_gap, mean_mass"]),
        ({"where": {"w_nam": "date"}}, ["where.w_nam", "did you mean 'w_name'?"]),
        ({"where": {"w_name": "dat"}}, ["where.w_name", "did you mean 'date'?", "it has date, place"]),
        ({"where": {"w_name": "place", "pronoun": "neutral-male"}}, ["together"]),
        ({"audit": "spurious-corelation"}, ["did you mean 'spurious-correlation'?"]),
        ({"of": "detectable_slop"}, ["did you mean 'detectable_slope'?"]),
        ({"measure": "mean_mass", "where": {"w_name": "date"}, "of": "magnitude"}, ["no null value"]),
    ],
)
def test_a_rule_that_tests_nothing_is_an_error(keys: dict[str, object], words: list[str], place: Path) -> None:
    gate = check([place / "run"], rules(place, gap_rule(**keys)))
    ((judged,),) = (run.judged for run in gate.runs)
    assert (judged.outcome, gate.status) == (ERROR, 2)
    assert judged.sentence.startswith(f"{place / 'rules.toml'}, rule 1 ('gap'): ")
    for word in words:
        assert word in judged.sentence
    if "of" not in keys:
        gate = check([place / "run"], rules(place, gap_rule(**keys, optional=True)))
        assert [(one.outcome, gate.status) for one in gate.runs[0].judged] == [(SKIPPED, 0)]


@pytest.mark.parametrize(
    ("of", "measure", "reason"),
    [
        ("value", "pearson_r", "Nothing was scored"),
        ("magnitude_high", "pearson_r", "Nothing was scored"),
        ("p", "mean_mass", "it is not tested"),
    ],
)
def test_a_missing_number_fails_with_the_reason(of: str, measure: str, reason: str, place: Path) -> None:
    # Either bound: NaN is neither at most nor at least anything.
    for bound in ({"at_most": 0.5}, {"at_least": 0.5}):
        keys: dict[str, Any] = {"name": "x", "measure": measure, "of": of, **bound}
        (judged,) = all_of(place, rule(**keys))
        assert judged.outcome == FAILED
        assert f"is missing ({reason}), and rule 'x' needs it" in judged.sentence
        (judged,) = all_of(place, rule(**keys, allow_missing=True))
        assert judged.outcome == SKIPPED


def test_an_estimate_without_interval_and_a_detail_of_others_are_missing(tmp_path: Path) -> None:
    lonely = replace(GAP, low=math.nan, high=math.nan)
    other = replace(GAP, group={**DATE, "w_name": "place"}, extras={})
    run_folder(tmp_path / "run", [lonely, other])
    assert "is missing (it has no interval)" in one_of(tmp_path, of="low").sentence
    assert "is missing (it has no interval)" in one_of(tmp_path, of="magnitude_high").sentence
    judged = all_of(tmp_path, rule(name="x", measure="slope_gap", of="detectable_slope", at_most=1))
    assert [one.outcome for one in judged] == [PASSED, FAILED]


OF_OTHERS = ("low", "high", "magnitude_low", "magnitude_high", "p", "q", "detectable_slope")


@pytest.mark.parametrize("of", OF_OTHERS)
def test_a_rule_on_other_sentences_is_an_error_below_six_clusters(of: str, tmp_path: Path) -> None:
    """Whatever the numbers are, and whatever the rule lets by: a run that asked less must not pass."""
    for n, outcome in ((1, ERROR), (2, ERROR), (5, ERROR), (6, PASSED)):
        for low, high in ((1.0, 1.5), (math.nan, math.nan)) if n < 6 else ((1.0, 1.5),):
            few = replace(GAP, low=low, high=high, extras={**GAP.extras, "n_clusters": float(n), "n_w": 9.0})
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
            run_folder(tmp_path / "run", [few])
            for keys in ({}, {"allow_missing": True}):
                judged = one_of(tmp_path, of=of, at_most=0.9 if of in "pq" else 10, **keys)
                assert judged.outcome == outcome, (n, keys)
                assert (f"{n} cluster" in judged.sentence and "needs 6" in judged.sentence) == (outcome == ERROR)
            assert one_of(tmp_path, of="value").outcome == PASSED
            gate = check([tmp_path / "run"], rules(tmp_path, gap_rule(of=of, at_most=0.9 if of in "pq" else 10)))
            assert gate.status == (2 if outcome == ERROR else 0)


def test_clusters_are_counted_in_the_rows_where_a_result_does_not_say(tmp_path: Path) -> None:
    rows = [(f"{w}{at}", w, f"c{at}", "") for w, n in (("date", 7), ("place", 6)) for at in range(n)]
    frame = pd.DataFrame(rows, columns=["item", "w_name", "cluster", "missing_reason"])
    frame.loc[frame["item"] == "place0", "missing_reason"] = "gone"
    record = Record(MANIFEST, frame, [GAP, replace(GAP, group={**DATE, "w_name": "place"})])
    write_record(record, tmp_path / "run", lambda _: None)
    judged = all_of(tmp_path, rule(name="x", measure="slope_gap", of="high", at_most=10))
    assert [one.outcome for one in judged] == [PASSED, ERROR]
    assert "5 clusters, this rule needs 6" in judged[1].sentence
    # Of two kinds, the smaller counts, and for a measure of one kind its own.
    results = [replace(GAP, measure=one, null_value=0.5, extras={}) for one in ("auroc", "yes_auroc", "tpr", "tnr")]
    for kind, levels in (("well_specified", [False, True]), ("gold", ["yes", "no"])):
        kinds = frame.iloc[:12].assign(w_name="date", **{kind: [levels[0]] * 7 + [levels[1]] * 5})
        kinds["cluster"] = kinds["item"]
        for at, one in enumerate(results[:2] if kind == "gold" else results):
            shutil.rmtree(tmp_path / "run")
            write_record(Record(MANIFEST, kinds.assign(missing_reason=""), [one]), tmp_path / "run", lambda _: None)
            (judged_one,) = all_of(
                tmp_path, rule(name="x", measure=one.measure, of="low", at_least=0.5, allow_missing=True)
            )
            assert judged_one.outcome == (PASSED if one.measure == "tpr" else ERROR)
            assert one.measure == "tpr" or f"5 clusters{' of one kind' * (at < 2)}, this" in judged_one.sentence


def test_what_was_surely_found_needs_no_power(tmp_path: Path) -> None:
    for p, outcome in ((0.009, PASSED), (0.01, FAILED)):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        run_folder(tmp_path / "run", [replace(GAP, p=p, extras={"n_clusters": 60.0, "n_w": 30.0})])
        assert one_of(tmp_path, of="detectable_slope").outcome == outcome
        assert one_of(tmp_path, of="detectable_slope", at_least=0.1, at_most=1).outcome == FAILED


def test_rules_for_another_audit_are_not_asked(tmp_path: Path) -> None:
    first = run_folder(tmp_path / "run")
    second = run_folder(tmp_path / "other", RESULTS[:1], audit="task-specification")
    text = gap_rule(name="a", audit="task-specification") + gap_rule(name="b")
    gate = check([first, second], rules(tmp_path, text))
    assert [[one.rule.name for one in run.judged] for run in gate.runs] == [["b"], ["a", "b"]]
    assert gate.status == 0


def test_a_failure_is_the_status_even_where_another_rule_could_not_be_judged(place: Path) -> None:
    gate = check([place / "run"], rules(place, gap_rule(at_most=1) + gap_rule(name="b", measure="nosuch")))
    assert gate.status == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["[[rule]]"]),
        ("rule = [", ["TOML"]),
        ("[[rules]]\nname = 'a'\n", ["'rules'", "did you mean 'rule'?"]),
        ("schema = 2\n" + gap_rule(), ["schema = 1"]),
        (rule(name="x", at_most=1), ["rule 1 ('x')", "measure"]),
        (gap_rule() + gap_rule(), ["rule 2 ('gap')", "rule 1"]),
        (gap_rule(at_mos=3), ["rule 1 ('gap')", "did you mean 'at_most'?"]),
        (gap_rule().replace("= 10", "= nan"), ["at_most holds nan"]),
        (gap_rule(at_least=11), ["at_least 11", "at_most 10", "nothing can pass"]),
        (gap_rule(of="p", at_most=1), ["can never fail"]),
        (gap_rule(where={"w_name": 1.5}), ["where.w_name"]),
    ],
)
def test_bad_rules_are_refused_with_file_rule_and_key(text: str, words: list[str], tmp_path: Path) -> None:
    path = rules(tmp_path, text)
    assert_refused((path, *words), check, [tmp_path / "no such run"], path)


def change(start: float, by: tuple[float, float, float], **more: Any) -> Result:
    """A difference of two runs: what the baseline has, and low end, value and high end of the change."""
    low, value, high = by
    group = {key: level for key, level in DATE.items() if key != "model"}
    detail = {"baseline": start, "candidate": start + value}
    fields: dict[str, Any] = {"unit": "percent per step", "null_value": 0.0, "extras": detail} | more
    return Result("slope_gap", group, value, low, high, n=80, p=0.01, q=0.02, **fields)


@pytest.fixture
def changed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judges a rule by a change that the test makes up."""
    run_folder(place / "base")

    def judged(difference: Result, **keys: object) -> RuleResult:
        monkeypatch.setattr(
            undertow.runs.compare, "compare", lambda *_, **__: SimpleNamespace(differences=[difference])
        )
        text = gap_rule(against="baseline", **keys)
        (one,) = all_of(place, text, baseline=place / "base")
        return one

    return judged


@pytest.mark.parametrize(
    ("start", "by", "expected"),
    [
        # Above neutral, moving on: as the change.
        (1.0, (0.25, 0.5, 0.75), {"value": 0.5, "magnitude": 0.5, "magnitude_low": 0.25, "magnitude_high": 0.75}),
        (
            1.0,
            (0.25, 0.5, 0.75),
            {"low": 0.25, "high": 0.75, "p": 0.01, "q": 0.02, "n": 80, "baseline": 1.0, "candidate": 1.5},
        ),
        # Below neutral, the same change mends it.
        (-1.0, (0.25, 0.5, 0.75), {"value": 0.5, "magnitude": -0.5, "magnitude_low": -0.75, "magnitude_high": -0.25}),
        # From 1 to -5: fallen by 6, and 4 worse.
        (1.0, (-7.0, -6.0, -5.0), {"value": -6.0, "magnitude": 4.0, "magnitude_low": 3.0, "magnitude_high": 5.0}),
        # The interval holds the way back to neutral and beyond.
        (1.0, (-1.5, -0.5, 0.25), {"magnitude": -0.5, "magnitude_low": -1.0, "magnitude_high": 0.25}),
    ],
)
def test_each_number_of_a_change_is_judged(
    start: float, by: tuple[float, float, float], expected: dict[str, float], changed: Any
) -> None:
    for of, number in expected.items():
        judged = changed(change(start, by), of=of, at_most=0.9 if of in "pq" else 100)
        assert (judged.number, judged.outcome) == (pytest.approx(number), PASSED), of
        if of.startswith("magnitude"):
            bound = {"magnitude": "", "magnitude_low": "at least ", "magnitude_high": "up to "}[of]
            bound = {"at least ": "up to ", "up to ": "at least "}.get(bound, bound) if number < 0 else bound
            side = "nearer to" if number < 0 else "farther from"
            assert f"is {bound}{abs(number):g} percent per step {side} its null value" in judged.sentence


def test_each_run_is_as_far_as_it_is_from_its_own_neutral_value(changed: Any, place: Path) -> None:
    """Where chance would have it depends on the run, as for shares of variance."""
    shutil.rmtree(place / "base")
    run_folder(place / "base", [replace(GAP, null_value=0.5)])
    # The baseline lies 0.5 from its 0.5, the run 1.5 from its 0.
    assert changed(change(1.0, (0.25, 0.5, 0.75)), of="magnitude").number == 1.0


LOST = change(1.0, (math.nan, math.nan, math.nan), note="No item was asked of both.")
FEW = change(1.0, (0.25, 0.5, 0.75), extras={"baseline": 1.0, "candidate": 1.5, "n_clusters": 5.0})
TIE = replace(change(1.0, (0.0, 0.0, 0.0)), p=math.nan, q=math.nan)
AT_LEAST = {"at_most": 2, "at_least": 0.05}


@pytest.mark.parametrize(
    ("difference", "keys", "outcome", "number", "words"),
    [
        (LOST, {}, FAILED, math.nan, "No item was asked of both"),
        (LOST, {"of": "magnitude"}, FAILED, math.nan, "No item was asked of both"),
        *((FEW, {"of": of, "at_most": 0.9, "allow_missing": True}, ERROR, math.nan, "5 clusters, this rule needs 6")
          for of in ("low", "high", "magnitude_low", "magnitude_high", "p", "q")),
        (FEW, {"of": "magnitude"}, PASSED, 0.5, ""),
        # Ties are not tested, and a rule that wants no clear change is not to fail by that.
        *((TIE, {"of": of, **AT_LEAST}, PASSED, 1.0, "") for of in ("p", "q")),
        (replace(TIE, low=math.nan, high=math.nan), {"of": "q", **AT_LEAST}, FAILED, math.nan, "is missing"),
    ],
)  # fmt: skip
def test_how_lost_changes_few_clusters_and_ties_are_judged(  # noqa: PLR0917 - pytest names them
    difference: Result, keys: dict[str, Any], outcome: str, number: float, words: str, changed: Any
) -> None:
    judged = changed(difference, **keys)
    assert (judged.outcome, judged.number) == (outcome, pytest.approx(number, nan_ok=True))
    assert words in judged.sentence


def test_a_baseline_is_needed_and_used(place: Path) -> None:
    assert_refused(("rule 1 ('gap')", "baseline"), check, [place / "run"], rules(place, gap_rule(against="baseline")))
    (judged,) = all_of(place, gap_rule(against="baseline", optional=True))
    assert judged.outcome == SKIPPED
    assert_refused(("baseline",), check, [place / "run"], rules(place, gap_rule()), place / "run")


def test_a_junit_file_has_a_suite_for_each_run_and_a_case_for_each_rule_and_result(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / "run"), run_folder(tmp_path / "o\x1bther", model="org/Model\x01-1.7B")]
    gate = check(runs, rules(tmp_path, FOUR.replace("said so", r"said\u0001 so")))
    out = tmp_path / "new" / "folder" / "gate.xml"
    write_junit(gate, out)
    root = parsed(out)
    assert root.attrib["failures"] == "2"
    first, second = root
    assert [first.attrib["name"], second.attrib["name"]] == [printable(str(run)) for run in runs]
    names = ["passes[date-female-male]", "fails[date-female-male]", "errs", "skips"]
    assert [case.attrib["name"] for case in first.findall("testcase")] == names
    failure = first.find("testcase/failure")
    assert failure is not None
    assert "1.25 percent per step" in failure.attrib["message"]
    assert failure.text == failure.attrib["message"] + "\nBecause\nwe said\ufffd so."
    (classname,) = {case.attrib["classname"] for case in second.iter("testcase")}
    assert classname == "undertow.spurious-correlation.org/Model\ufffd-1_7B"
    kept = {one.attrib["name"]: one.attrib["value"] for one in first.iter("property")}
    assert kept["rules_sha256"] == gate.rules.sha256
    assert kept["model"] == "M"
    before = out.read_bytes()
    write_junit(gate, out)
    assert out.read_bytes() == before
    assert [path.name for path in out.parent.iterdir()] == ["gate.xml"]


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_what_is_printable_is_xml_and_one_line(text: str) -> None:
    element = ET.Element("a", {"b": printable(text)})
    element.text = printable(text)
    back = ET.fromstring(ET.tostring(element, encoding="utf-8"))
    assert (back.attrib["b"], back.text or "") == (printable(text), printable(text))
    assert len(printable(text).splitlines()) <= 1


def test_a_junit_file_that_cannot_be_written(place: Path) -> None:
    gate = check([place / "run"], rules(place, gap_rule()))
    (place / "file").touch()
    for out in (place, place / "file" / "gate.xml", place / ("x" * 300)):
        assert_refused(("--junit",), write_junit, gate, out)
    assert sorted(path.name for path in place.iterdir()) == ["file", "rules.toml", "run"]
