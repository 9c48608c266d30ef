"""Task specification: golden numbers of models, tables of one's own and bad ones, what is asked and what is refused."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import undertow
from conftest import make_quick
from helpers.file_refusal import assert_refused, written
from helpers.shared_folders import made_once
from undertow import audits
from undertow._folders import cache_file
from undertow.audits.base import Observations, Sampling
from undertow.audits.task_specification.audit import RECORDED, TaskSpecification
from undertow.audits.task_specification.findings import score_sentences
from undertow.audits.task_specification.items import Settings
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.metrics import specification_detection
from undertow.models.base import ModelHandle, TokenModel
from undertow.runs.finished_run import load_run
from undertow.stats import point_estimates
from undertow.types import EXACT, PAPER, Answer, ClozeQuery, Finding, Item, Result, Scores

AUDIT = TaskSpecification()
slow = pytest.mark.slow
Found = dict[tuple[str, ...], Result]
MODELS = ("bert-base-uncased", "bert-large-uncased", "roberta-base", "text-davinci-002")


def by_group(results: Sequence[Result]) -> Found:
    """By measure, model, set and the rest of their group."""
    named = {(result.measure, *result.group.values()): result for result in results}
    assert len(named) == len(results)
    return named


# Real recorded outputs -----------------------------------------------------------------------------------------------


def measured(reference_data: Path, shared_base: Path, protocol: str) -> Found:
    """What is measured of the recorded models, measured once for all workers."""

    def make(folder: Path) -> None:
        evidence, chosen = AUDIT.load_recorded(reference_data / "recorded/specification_pronoun_mass.csv.gz", protocol)
        assert chosen == (protocol or RECORDED)
        # Of the paper's protocol the values alone are looked at, whose draws are those of the other.
        values_alone = point_estimates() if protocol == PAPER else nullcontext()
        with pytest.MonkeyPatch.context() as patch, values_alone:
            make_quick(patch)
            for name in ("N_REFITS", "N_REFITTED_PERMUTATIONS"):  # of the combined score, which has tests of its own
                patch.setattr(specification_detection, name, 39)
            (folder / "results").write_bytes(pickle.dumps(AUDIT.measure(evidence, 0)))

    made = made_once(shared_base, f"recorded-specification-{protocol or RECORDED}", make)
    return by_group(pickle.loads((made / "results").read_bytes()))


@pytest.fixture(scope="module")
def as_published(reference_data: Path, shared_base: Path) -> Found:
    """Zeros count, and doubles are compared as they come."""
    return measured(reference_data, shared_base, PAPER)


@pytest.fixture(scope="module")
def by_default(reference_data: Path, shared_base: Path) -> Found:
    return measured(reference_data, shared_base, "")


@slow
@pytest.mark.parametrize(
    ("challenge", "rates"),
    [
        ("winogender", [(0.853, 0.492), (0.789, 0.667), (0.922, 0.725), (0.944, 0.867)]),
        ("simplified", [(0.958, 0.208), (0.938, 0.500), (0.979, 0.198), (1.000, 1.000)]),
    ],
)
def test_published_masses_have_these_rates(
    challenge: str, rates: list[tuple[float, float]], as_published: Found
) -> None:
    counts = {"winogender": (360, 120), "simplified": (48, 96)}[challenge]
    for model, expected in zip(MODELS, rates, strict=True):
        of = model, challenge, "delta_female"
        tpr, tnr = (as_published[name, *of] for name in ("tpr", "tnr"))
        assert (tpr.value, tnr.value) == pytest.approx(expected, abs=0.001), model
        assert (tpr.n, tnr.n, tpr.n_missing) == (*counts, 0)
        assert tpr.extras == {"threshold": 0.5}
        assert as_published["balanced_accuracy", *of].value == pytest.approx(sum(expected) / 2, abs=0.001)
        # With one person only there is nobody else whose the pronoun could be.
        assert (("hardest_tpr", *of) in as_published) == (challenge == "winogender")


@slow
@pytest.mark.parametrize(
    ("model", "expected"), [("roberta-base", (0.825, 0.842)), ("text-davinci-002", (0.842, 0.917))]
)
def test_published_masses_have_these_rates_on_the_hardest(
    model: str, expected: tuple[float, float], as_published: Found
) -> None:
    hard = [as_published[name, model, "winogender", "delta_female"] for name in ("hardest_tpr", "hardest_tnr")]
    assert tuple(result.value for result in hard) == pytest.approx(expected, abs=0.001)
    assert [(result.n, result.extras["threshold"]) for result in hard] == [(120, 1), (120, 1)]


@slow
@pytest.mark.parametrize(
    ("model", "challenge", "movement", "entropy"),
    [
        ("bert-base-uncased", "winogender", 0.761, 0.788),
        ("roberta-base", "winogender", 0.919, 0.938),
        ("text-davinci-002", "winogender", 0.952, 0.984),
        ("bert-base-uncased", "simplified", 0.709, 0.736),
        ("roberta-base", "simplified", 0.868, 0.763),
    ],
)
def test_recorded_masses_have_these_areas(
    model: str, challenge: str, movement: float, entropy: float, by_default: Found
) -> None:
    of_movement, of_entropy = (by_default["auroc", model, challenge, score] for score in ("delta_female", "entropy"))
    assert of_movement.value == pytest.approx(movement, abs=0.002)
    assert of_entropy.value == pytest.approx(entropy, abs=0.002)
    assert 0.5 < of_movement.low < of_movement.value < of_movement.high < 1
    assert of_movement.q < 0.05
    gap = by_default["auroc_difference", model, challenge, "delta_female", "entropy"]
    assert gap.value == pytest.approx(of_movement.value - of_entropy.value)
    assert gap.low < gap.value < gap.high


@slow
def test_sentences_without_any_recorded_mass_at_a_date_are_missing_by_default(by_default: Found) -> None:
    for model, n_missing in zip(MODELS, (11, 13, 6, 0), strict=True):
        for challenge, expected in (("winogender", (n_missing, 480)), ("simplified", (0, 144))):
            result = by_default["auroc", model, challenge, "delta_female"]
            assert (result.n_missing, result.n + result.n_missing) == expected, model


# A user's own tables -------------------------------------------------------------------------------------------------

HEADER = "model,sentence,well_specified,w_first_xe,w_first_ze,w_last_xe,w_last_ze"
ROWS = ["m,a,yes,60,40,60,40", "m,b,yes,80,20,77,23", "m,c,no,50,50,70,30", "m,d,no,30,70,32,68"]


def table(*changes: tuple[str, str]) -> str:
    """A good table, or one with changes made to its text."""
    text = "\n".join([HEADER, *ROWS, ""])
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def people(*rows: str) -> str:
    header = "model,occupation,participant_class,coreferent,w_first_xe,w_first_ze,w_last_xe,w_last_ze"
    return "\n".join([header, *rows, ""])


def read(text: str, folder: Path, protocol: str = "") -> Observations:
    return AUDIT.load_recorded(Path(written(folder, text, "own.csv")), protocol)[0]


def test_a_sentence_has_a_row_for_either_end(tmp_path: Path) -> None:
    frame = read(table(), tmp_path).frame
    assert frame["w"].tolist() == ["first"] * 4 + ["last"] * 4
    assert frame["w_index"].tolist() == [0] * 4 + [1] * 4
    assert frame["xe"].tolist() == [60, 80, 50, 30, 60, 77, 70, 32]
    assert frame["well_specified"].tolist() == [True, True, False, False] * 2
    # Nothing says that sentences belong together.
    assert frame["cluster"].tolist() == list("abcd") * 2
    assert frame["item"].is_unique


def test_a_run_of_unlabelled_sentences_can_be_opened(tmp_path: Path) -> None:
    unlabelled = "\n".join(
        row.replace(",yes", "").replace(",no", "") for row in [HEADER.replace(",well_specified", ""), *ROWS]
    )
    undertow.score(written(tmp_path, unlabelled, "own.csv"), audit="task-specification", out=tmp_path / "run")
    assert "the sentences have no labels" in load_run(tmp_path / "run").findings[-1].text


def test_empty_cells_are_missing_and_zeros_are_so_unless_the_papers_protocol_is_asked_for(tmp_path: Path) -> None:
    text = table((ROWS[1], "m,b,yes,80,,77,23"), (ROWS[2], "m,c,no,50,50,0,0"))
    by_default = read(text, tmp_path).frame
    assert (by_default["missing_reason"] != "").tolist() == [False, True, True, False] * 2
    assert by_default["xe"].isna().tolist() == [False, True, True, False] * 2
    as_published = read(text, tmp_path, PAPER)
    assert (as_published.frame["missing_reason"] != "").tolist() == [False, True, False, False] * 2
    assert score_sentences(as_published)["delta_xe"].tolist() == pytest.approx([0, math.nan, 50, 2], nan_ok=True)
    assert by_group(AUDIT.measure(as_published, 0))["auroc", "m", "recorded", "delta_xe"].n_missing == 1


def test_the_papers_protocol_compares_doubles_as_they_come_and_no_table_has_the_exact_one(tmp_path: Path) -> None:
    text = table((ROWS[2], "m,c,no,0.6,99.4,1.1,98.9"))
    for protocol, rate in (("", 0.5), (PAPER, 1)):
        found = by_group(AUDIT.measure(read(text, tmp_path, protocol), 0))
        assert found["tpr", "m", "recorded", "delta_xe"].value == rate
    assert_refused(("'exact'",), read, text, tmp_path, "exact")


def test_whether_a_sentence_decides_follows_from_its_people(tmp_path: Path) -> None:
    """A man or a woman, and the pronoun is theirs; occupations go together, and those that are known have their share of women."""
    rows = [
        f"m,{occupation},{person},{coreferent},50,50,50,50"
        for occupation in ("nurse", "juggler")
        for person in ("man", "woman", "someone")
        for coreferent in (0, 1)
    ]
    frame = read(people(*rows), tmp_path).frame.iloc[:12]
    assert frame["well_specified"].tolist() == [False, True, False, True, False, False] * 2
    assert frame["expected"].tolist() == ["", "male", "", "female", "", ""] * 2
    assert frame["cluster"].tolist() == ["nurse"] * 6 + ["juggler"] * 6
    assert (frame["percent_female"] > 80).tolist() == [True] * 6 + [False] * 6
    assert frame["percent_female"].isna().tolist() == [False] * 6 + [True] * 6
    assert frame["sentence"].iloc[3] == "nurse/woman/1"


def told(text: str, folder: Path) -> list[Finding]:
    evidence = read(text, folder)
    return audits.load("task-specification").findings(evidence, AUDIT.measure(evidence, 0))


def occupations(n: int) -> str:
    """Four sentences of each occupation, of which those that decide nothing move more."""
    rng = np.random.default_rng(0)
    rows = [
        f"m,o{occupation},{person},{coreferent},50,50,{last:.6f},{100 - last:.6f}"
        for occupation in range(n)
        for person, coreferent in (("man", 1), ("woman", 1), ("man", 0), ("someone", 0))
        for last in [50 + rng.exponential(1 if coreferent else 6)]
    ]
    return people(*rows)


@pytest.mark.parametrize("n", [1, 5])
def test_nothing_is_claimed_of_fewer_than_six_occupations(n: int, tmp_path: Path) -> None:
    found = told(occupations(n), tmp_path)
    assert len(found) > 2
    for finding in found:
        assert (finding.significant, bool(finding.decision_rule)) == (False, True)
        assert not re.search("nan|95%", finding.text)
    assert str(n) in found[0].text
    assert found[0].text.startswith("No claim is possible")


def test_too_few_of_one_kind_are_counted_of_that_kind(tmp_path: Path) -> None:
    rows = occupations(5).splitlines()
    found = told(
        "\n".join([rows[0], *(row for row in rows[1:] if row.split(",")[3] == "0" or "o0" in row), ""]), tmp_path
    )
    assert "one kind has 1" in found[0].text


def test_the_flagged_are_described_and_not_tested(tmp_path: Path) -> None:
    rows = [f"m,s{number},60,40,{60 + number},{40 - number}" for number in range(12)]
    (flagged,) = told("\n".join(["model,sentence,w_first_xe,w_first_ze,w_last_xe,w_last_ze", *rows, ""]), tmp_path)
    assert flagged.results[0].value == 11 / 12
    assert not flagged.significant
    assert flagged.decision_rule


BAD: dict[str, tuple[str, list[str]]] = {
    "no last": (table(("w_last_xe", "w_end_xe")), ["'w_last_xe'"]),
    "no first": (table(("w_first_", "first_")), ["'w_first_<group>'"]),
    "one group": ("model,sentence,well_specified,w_first_xe,w_last_xe\nm,a,yes,60,60\n", ["at least two"]),
    "no sentence": (table(("sentence", "phrase")), ["'sentence'"]),
    "repeated people": (
        people("m,nurse,man,1,50,50,50,50", "m,nurse,man,0,50,50,50,50", "m,nurse,man,1,10,90,10,90"),
        ["line 4", "line 2"],
    ),
    "text": (table((ROWS[0], "m,a,yes,60,40,much,40")), ["line 2", "w_last_xe", "'much'"]),
    "more than all": (table((ROWS[2], "m,c,no,50,50,70,40")), ["line 4", "110.0"]),
    "well specified perhaps": (table(("m,b,yes", "m,b,perhaps")), ["line 3", "well_specified", "'perhaps'"]),
    "half of rows": (
        # A class of people decides, another says nothing without whose the pronoun is.
        people("m,nurse,female,,50,50,50,50", "m,nurse,unspecified,,50,50,50,50", "m,cook,man,,1,99,1,99").replace(
            "coreferent", "shift"
        ),
        ["line 4", "well_specified"],
    ),
    "coreferent": (people("m,nurse,man,2,50,50,50,50"), ["line 2", "coreferent", "'2'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_table_is_refused_with_its_line_and_column(case: str, tmp_path: Path) -> None:
    text, words = BAD[case]
    assert_refused((tmp_path / "own.csv", *words), read, text, tmp_path)


# What is asked -------------------------------------------------------------------------------------------------------


def asked(settings: Settings | None = None, limit: int = 0, seed: int = 0) -> list[list[Item]]:
    """The items by part; all are asked in one round."""
    (some,) = AUDIT.items(settings or Settings(), Sampling(limit, seed))
    parts = dict.fromkeys(item.factors["part"] for item in some)
    return [[item for item in some if item.factors["part"] == part] for part in parts]


def of_factor(items: Sequence[Item], factor: str) -> Counter[Any]:
    return Counter(item.factors[factor] for item in items)


def test_every_sentence_is_asked_at_the_first_and_the_last_date() -> None:
    (items,) = asked()
    assert len(items) == 2 * 480
    assert of_factor(items, "w") == {"1901": 480, "2016": 480}
    assert set(of_factor(items, "sentence").values()) == {2}
    assert of_factor(items, "part") == {"detect": 960}
    assert len({item.id for item in items}) == 960
    first = [item for item in items if item.factors["w"] == "1901"]
    assert of_factor(first, "well_specified") == {True: 120, False: 360}
    for item in items:
        assert isinstance(item.query, ClozeQuery)
        assert item.query.display_text().startswith(f"In {item.factors['w']}: ")
        assert item.factors["expected"] == (item.gold or "")


@pytest.mark.parametrize(
    ("limit", "decided", "undecided"), [(48, 6, 18), (96, 12, 36), (24, 6, 6), (26, 6, 7), (9, 2, 2), (1, 1, 1)]
)
def test_a_limit_keeps_either_kind_in_proportion_but_six_of_each_and_sentences_whole(
    limit: int, decided: int, undecided: int
) -> None:
    (items,) = asked(limit=limit)
    assert set(of_factor(items, "sentence").values()) == {2}
    assert of_factor(items, "well_specified") == {True: 2 * decided, False: 2 * undecided}


@pytest.mark.parametrize(("limit", "n_clusters", "n_mixed"), [(24, 6, 6), (48, 6, 6), (100, 12, 12), (240, 30, 30)])
def test_a_limit_spreads_sentences_over_occupations_that_both_kinds_share(
    limit: int, n_clusters: int, n_mixed: int
) -> None:
    """A quarter decides, at most one of an occupation while there are others; the rest is of the same occupations, as many of each."""
    for seed in range(3):
        (items,) = asked(limit=limit, seed=seed)
        first = [item for item in items if item.factors["w"] == "1901"]
        decided, others = (Counter(item.cluster for item in first if bool(item.gold) is kind) for kind in (True, False))
        assert (len(decided | others), len(decided & others)) == (n_clusters, n_mixed)
        assert set(decided.values()) == {1}
        assert max(others.values()) - min(others.values()) <= 1


@pytest.mark.resamples
def test_the_smallest_useful_limit_is_told_and_finds_what_is_there() -> None:
    """Flips within six occupations that have one sentence of each kind: p is 2 / 64 at least, .031."""
    audit = audits.load("task-specification")
    assert audit.limitations(Settings(), Sampling(0)) == []
    for settings, smallest in (
        (Settings(), 24), (Settings(w="place"), 240), (Settings(prompts="A,B,C"), 72), (Settings(date_count=5), 60),
    ):  # fmt: skip
        assert audit.limitations(settings, Sampling(smallest)) == []
        assert f" {smallest}." in audit.limitations(settings, Sampling(smallest - 1))[0]
    for limit, claimed in ((22, False), (24, True)):
        (items,) = asked(limit=limit)
        evidence = answered(items, Settings())
        results = AUDIT.measure(evidence, 0)
        p = by_group(results)["auroc", "planted", "undertow-schemas", "delta_female"].p
        assert p == pytest.approx(2 / 64, abs=0.015) if claimed else math.isnan(p)
        assert any(finding.significant for finding in audit.findings(evidence, results)) is claimed


def test_a_set_of_few_occupations_is_told_to_show_nothing_whatever_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path, "sentence,well_specified\nIt ___ cold.,yes\nIt ___ warm.,no\n", "own.csv")
    settings = Settings(challenge=path, options="past: was; now: is", inject="{text} It is {w}.")
    (told,) = audits.load("task-specification").limitations(settings, Sampling(0))
    assert "--limit" not in told


def test_an_occupation_is_followed_over_thirty_dates_whatever_the_limit() -> None:
    injected, plain, followed = asked(
        Settings(entropy_baseline=True, trace_occupation="nurse", date_start=1801, date_stop=2000), limit=8
    )
    assert len(injected) == 8
    assert len(plain) == 4
    assert {item.cluster for item in followed} == {"nurse"}
    assert of_factor(followed, "part") == {"trace": 8 * 30}
    dates = of_factor(followed, "w")
    assert (len(dates), min(dates), max(dates)) == (30, "1801", "2000")
    assert set(of_factor(followed, "sentence").values()) == {30}
    assert len({item.id for item in [*injected, *plain, *followed]}) == 8 + 4 + 240


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(endpoint_window=0), ["--endpoint-window"]),
        (Settings(endpoint_window=2, w="place,date"), ["--endpoint-window 2", "date has 2"]),
        (Settings(threshold=-0.1), ["--threshold -0.1"]),
        (Settings(threshold=math.inf), ["--threshold inf"]),
        (Settings(date_start=2016), ["2016"]),
        (Settings(inject="In the past: "), ["value"]),
        (Settings(trace_occupation="nurse,astronaut"), ["--trace-occupation", "'astronaut' is unknown"]),
        (Settings(options="a: b; c: d"), ["--options"]),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(settings: Settings, words: list[str]) -> None:
    assert_refused(tuple(words), asked, settings)


# From answers to numbers ---------------------------------------------------------------------------------------------


def answered(items: Sequence[Item], settings: Settings) -> Observations:
    """Where a sentence decides, its group takes 80% at any date; else 20% moves to the last group in the last year."""
    answers = []
    for item in items:
        assert isinstance(item.query, ClozeQuery)
        groups = [option.group for option in item.query.options]
        if item.gold:
            masses = [0.8 if group == item.gold else 0.1 for group in groups]
        elif item.factors["w_name"] == "none":
            masses = [1 / 3] * 3
        else:
            masses = [0.3, 0.4, 0.3] if item.factors["w"] == "1901" else [0.1, 0.4, 0.5]
        answers.append(Answer(tuple(map(math.log, masses)), other_prob=0.5))
    audit = audits.load("task-specification")
    return audit.observe(audit.design(settings), items, Scores(tuple(answers)), "planted")


def test_planted_answers_are_found_and_what_is_followed_stays_out() -> None:
    settings = Settings(entropy_baseline=True, trace_occupation="nurse,")
    items = [item for part in asked(settings, limit=96) for item in part]
    evidence = answered(items, settings)
    table_of_scores = score_sentences(evidence)
    assert len(table_of_scores) == 48
    decided = table_of_scores["well_specified"].to_numpy(dtype=bool)
    assert table_of_scores["missing_reason"].eq("").all()
    np.testing.assert_allclose(table_of_scores["delta_female"], np.where(decided, 0, 20), atol=1e-9)
    np.testing.assert_allclose(table_of_scores["shift_neutral"], np.where(decided, 0, 20), atol=1e-9)
    np.testing.assert_allclose(table_of_scores["entropy_plain"][~decided], 100)
    without = [item for item in items if item.factors["part"] != "trace"]
    pd.testing.assert_frame_equal(score_sentences(answered(without, settings)), table_of_scores)
    found = by_group(AUDIT.measure(evidence, 0))
    assert found["auroc", "planted", "undertow-schemas", "delta_female"].value == 1
    assert found["coreference_agreement", "planted", "undertow-schemas"].value == 1
    assert found["mean_movement", "planted", "undertow-schemas", "female"].value == pytest.approx(-20)


# The default model, asked in this process, so that it is loaded once for all tests -----------------------------------


def results(settings: Settings, found: ModelHandle, model: TokenModel) -> list[Result]:
    audit = audits.load("task-specification")
    (items,) = audit.items(settings, Sampling(0))
    opened = replace(found, open=lambda: model)
    with AnswerCache(cache_file()) as store:
        asked = run_queries(opened, [item.query for item in items], store, EXACT, lambda done, total: None)
    return audit.measure(audit.observe(audit.design(settings), items, asked.scores, "smollm2"), 0)


def value(found: list[Result], measure: str, score: str = "") -> float:
    of_measure = [result for result in found if result.measure == measure and "occupations" not in result.group]
    (one,) = [result for result in of_measure if result.group.get("score", "") == score]
    return one.value


@slow
@pytest.mark.soak
@pytest.mark.model
def test_winogender_has_its_golden_areas(reference_data: Path, smollm2_found: ModelHandle, smollm2: TokenModel) -> None:
    settings = Settings(challenge="winogender", data_dir=str(reference_data / "winogender"))
    found = results(settings, smollm2_found, smollm2)
    golden = {"delta_female": 0.718, "delta_male": 0.852, "delta_neutral": 0.789, "total_variation": 0.870}
    # The fitted score is held to what decision 009 claims of it.
    golden |= {"entropy": 0.851, "combined": 0.917}
    for score, expected in golden.items():
        assert value(found, "auroc", score) == pytest.approx(expected, abs=0.01), score
    assert value(found, "coreference_agreement") == pytest.approx(0.992, abs=0.01)
    for gap in (result for result in found if result.measure == "auroc_difference"):
        if gap.group["score"] == "combined":
            assert gap.low > 0, gap.group


@slow
@pytest.mark.soak
@pytest.mark.model
def test_our_own_set_is_understood(smollm2_found: ModelHandle, smollm2: TokenModel) -> None:
    """On all of its 960 questions: what a limit keeps depends on how it samples."""
    found = results(Settings(), smollm2_found, smollm2)
    assert value(found, "coreference_agreement") >= 0.95
    golden = {"delta_female": 0.650, "total_variation": 0.824, "entropy": 0.840, "combined": 0.860}
    for score, expected in golden.items():
        assert value(found, "auroc", score) == pytest.approx(expected, abs=0.01), score
