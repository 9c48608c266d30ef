"""Single words beside their groups, warnings on groups that are unlike, and what goes to other words where the answer is clear."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

import undertow
from conftest import Cli
from helpers.file_refusal import written
from helpers.sampled_cases import briefly
from helpers.scripted_model import Script, Scripted
from undertow import audits, data, models
from undertow.audits.base import Observations, Sampling
from undertow.audits.shared import control_items
from undertow.audits.spurious_correlation import word_findings
from undertow.models.base import UnsupportedQueryError
from undertow.types import BLANK, EXACT, LIKELIHOOD, Answer, ClozeQuery, Floats, Item, Option, Scores

PROBE = "spurious-correlation"
DRIFT = audits.load(PROBE)
WORDS = {"plain": ["cat", "dog"], "rare": ["axolotl", "quokka"]}
N_SENTENCES, N_VALUES = 8, 12
OPTIONS = tuple(Option(group, (form,)) for group, forms in WORDS.items() for form in forms)
DESIGN = {
    "groups": list(WORDS), "gaps": [["plain", "rare"]], "words": WORDS, "title": "t", "source": "s", "protocol": "exact",
}  # fmt: skip


def items_of(n_sentences: int = N_SENTENCES, n_values: int = N_VALUES) -> list[Item]:
    return [
        Item(
            f"{sentence}/{value}",
            ClozeQuery((f"In {1900 + value}, the ", f" sat {sentence}."), OPTIONS),
            {"challenge": "c", "w_name": "date", "w_index": value, "w_value": float(value), "w": str(1900 + value)},
            str(sentence),
        )
        for sentence in range(n_sentences)
        for value in range(n_values)
    ]


def planted() -> Floats:
    """Log-probabilities [sentence, value, option]: the odds of the last word grow by a fifth from value to value."""
    level = np.log([0.5, 0.3, 0.002, 0.001]) + np.random.default_rng(0).normal(0, 0.2, (N_SENTENCES, N_VALUES, 4))
    level[:, :, 3] += np.log(1.2) * np.arange(N_VALUES)
    return level


def observed(nats: Floats, scoring_method: str = LIKELIHOOD, **answer: Any) -> Observations:
    answers = tuple(Answer(tuple(row), 0.1, **answer) for row in nats.reshape(-1, len(OPTIONS)))
    return DRIFT.observe(DESIGN, items_of(), Scores(answers, scoring_method), "m")


def by_hand(percent: Floats) -> dict[str, tuple[float, ...]]:
    """Mean, slope and log-odds slope of each word, by numpy, from percents [sentence, value, word]."""
    means = percent.mean(axis=0)
    slopes, odds = (np.polyfit(np.arange(N_VALUES), of, 1)[0] for of in (means, special.logit(means / 100)))
    words = [option.fills[0] for option in OPTIONS]
    return {word: (means[:, at].mean(), slopes[at], odds[at]) for at, word in enumerate(words)}


@pytest.mark.parametrize("scoring_method", [LIKELIHOOD, "mask"])
def test_the_word_that_moves_is_seen_and_every_number_is_that_of_numpy(scoring_method: str) -> None:
    nats = planted()
    percent = 100 * (special.softmax(nats, axis=2) if scoring_method == LIKELIHOOD else np.exp(nats))
    evidence = observed(nats, scoring_method)
    table = DRIFT.tables(evidence)["words"].set_index("word")
    assert list(table.index) == [option.fills[0] for option in OPTIONS]
    assert set(table["measured"]) == {"share" if scoring_method == LIKELIHOOD else "probability"}
    for word, numbers in by_hand(percent).items():
        row = table.loc[word]
        assert (row["mean"], row["slope"], row["log_odds_slope"]) == pytest.approx(numbers, rel=1e-9), word
        for name in ("mean", "slope", "log_odds_slope"):
            assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
        assert (row["n"], row["group"]) == (N_SENTENCES * N_VALUES, "rare" if word in WORDS["rare"] else "plain")
    moves = table.query("log_odds_slope_low > 0 or log_odds_slope_high < 0")
    assert list(moves.index) == ["quokka"]
    assert table.loc["quokka", "log_odds_slope"] == pytest.approx(math.log(1.2), abs=0.02)
    assert not {"p", "q"} & set(table.columns)
    (shown,) = DRIFT.report_text(evidence, []).tables
    assert [row[shown.columns.index("word")] for row in shown.rows] == list(table.index)


def test_a_word_that_is_spelled_like_another_counts_with_it_and_one_that_is_not_asked_is_left_out() -> None:
    nats = planted()
    nats[:, :, 1] = math.nan
    table = DRIFT.tables(observed(nats))["words"]
    assert list(table["word"]) == ["cat", "axolotl", "quokka"]
    results = DRIFT.measure(observed(nats), 0)
    of_group = {one.group["pronoun"]: one.value for one in results if one.measure == "mean_mass"}
    sums = table.groupby("group")["mean"].sum()
    assert sums["rare"] == pytest.approx(of_group["rare"])
    assert sums["plain"] == pytest.approx(of_group["plain"])


def test_what_a_server_hides_bounds_each_word() -> None:
    """Of 10% that were not shown, a word may have what its ceiling lets it have: its mean is the middle."""
    nats = planted()
    evidence = observed(nats, "top", upper_bound_prob=(0.0, 0.0, 0.02, 0.5), truncated_prob=0.1)
    least = 100 * np.exp(nats).mean(axis=(0, 1))
    assert DRIFT.tables(evidence)["words"]["mean"].to_numpy() == pytest.approx(least + np.array([0, 0, 1, 5]), rel=1e-9)


@pytest.mark.parametrize(
    ("option", "word"),
    [("she", "she"), ("She", "She"), ("HE", "he"), ("she was", "she"), ("were they", "they"), ("there", "there"), ("xe ze", "xe ze")],
)  # fmt: skip
def test_an_option_is_a_word_of_the_list_whatever_agrees_with_it(option: str, word: str) -> None:
    """*There* holds *he* and *the*, and is neither; of two words of the list an option is none."""
    listed = {"female": ["She", "she"], "male": ["he"], "neutral": ["they", "xe", "ze"]}
    assert word_findings.word_of(option, listed) == word


# Groups that are unlike.


ANIMALS = """
title = "Animals"
source = "ours"
templates = ["In {w}, the {blank} {verb}."]
w = ["date"]
[slots]
verb = ["sat", "ate", "ran", "fell", "slept", "sang"]
[groups]
one = ["cat", "dog"]
two = ["old cat", "very old dog"]
"""


@pytest.mark.page
@pytest.mark.slow
def test_a_run_warns_on_page_and_terminal_and_writes_the_words(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path, ANIMALS, "animals.toml")
    asked = f"run {PROBE} -m toy -m uniform --challenge animals.toml --date-count 8 --out run"
    done = cli(*asked.split())
    assert done.returncode == 0, done.stderr
    design = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["design"]
    assert design["tokens_of_word"] == {"toy": {"cat": 1, "dog": 1, "old cat": 2, "very old dog": 3}}
    (note,) = design["w_notes"]
    assert note in done.stdout.splitlines()
    assert note in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "controls" not in design, "these are no pronouns"
    table = pd.read_csv(tmp_path / "run" / "tables" / "words.csv")
    assert set(zip(table["model"], table["word"], strict=True)) == {
        (model, word) for model in ("toy", "uniform") for word in design["tokens_of_word"]["toy"]
    }
    assert table.set_index(["model", "word"]).loc[("uniform", "cat"), "mean"] == pytest.approx(0.1)
    again = undertow.score(tmp_path / "run", out=tmp_path / "again")
    assert (again.folder / "tables/words.csv").read_bytes() == (tmp_path / "run/tables/words.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("builder", briefly(["trained_t5", "tiny_llama", "trained_bert"]))
def test_tokens_of_a_word_are_those_that_its_tokenizer_makes_of_it(builder: str, network: Callable[[str], str]) -> None:
    """Counted by the tokenizer itself, of the word behind a space alone."""
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    from undertow.models.base import ModelRequest

    tokenizer = transformers.AutoTokenizer.from_pretrained(network(builder))
    found = models.resolve(ModelRequest(network(builder)))
    words = ("she", "he", "a child", "she was a child")
    (encoded,) = found.open().encode(
        [ClozeQuery(("In 1801, ", " was a child."), tuple(Option(word, (word,)) for word in words))]
    )
    assert not isinstance(encoded, UnsupportedQueryError)
    counted = [len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) for word in words]
    assert list(encoded.n_tokens) == counted
    assert len(set(counted)) > 1


def test_a_model_that_could_not_be_asked_at_all_is_told_once_with_its_words() -> None:
    reason = "an option holds a character or word that this tokenizer does not know: 'quokka'"
    items = items_of(8, 10)
    silent = DRIFT.observe(DESIGN, items, Scores((Answer.missing(reason),) * len(items)), "tinybert")
    heard = observed(planted())
    both = Observations(pd.concat([silent.frame, heard.frame], ignore_index=True), heard.design)
    results = DRIFT.measure(both, 0)
    findings = DRIFT.findings(both, results)
    (told,) = [finding for finding in findings if "tinybert" in finding.text]
    assert "'quokka'" in told.text
    assert not told.significant
    assert told.decision_rule
    assert {one.group["model"] for one in told.results} == {"tinybert"}
    assert {one.group["model"] for finding in findings if finding is not told for one in finding.results} == {"m"}
    notes = DRIFT.report_text(both, results).notes
    assert any("tinybert" in note and "'quokka'" in note for note in notes)


@pytest.mark.parametrize(
    ("words", "n_options"),
    [
        ({"female": ["she"], "male": ["he"], "neutral": ["they"]}, 3),
        ({"female": ["she", "her"], "male": ["he", "him", "his"], "neutral": ["they", "them", "their"]}, 3),
        ({"female": ["She", "she", "female"], "male": ["He", "he"]}, 5),
        ({"female": ["elle"], "male": ["il"]}, 0),
        ({"xe": ["xe"], "they": ["they"]}, 0),
        ({"female": ["her"], "male": ["his"]}, 0),
        ({"both": ["she", "he"], "neutral": ["they"]}, 0),
    ],
)
def test_control_sentences_are_asked_of_english_pronouns(words: dict[str, list[str]], n_options: int) -> None:
    items = control_items.controls(words)
    assert len(items) == (8 if n_options else 0)
    for one in items:
        assert isinstance(one.query, ClozeQuery)
        assert len(one.query.options) == n_options
        assert (str(one.gold) in one.query.pieces[0], one.factors["part"]) == (True, "control")
    assert [sum(one.gold == group for one in items) for group in ("female", "male")] == (
        [4, 4] if n_options else [0, 0]
    )
    assert len({one.cluster for one in items}) == len(items)


@pytest.fixture
def elsewhere(script: Script) -> Callable[..., Scripted]:
    """Adds a model that gives the words of undecided sentences, which begin with *In*, another probability than those of others."""

    def add(name: str, undecided_prob: float, decided_prob: float) -> Scripted:
        def say(query: ClozeQuery) -> Answer:
            of_all = undecided_prob if query.pieces[0].startswith("In ") else decided_prob
            weights = np.arange(1.0, len(query.options) + 1)
            weights[0] += zlib.crc32(query.display_text().encode()) % 7
            return Answer(tuple(np.log(of_all * weights / weights.sum())), 1 - of_all)

        return script(say, {BLANK: (EXACT,)}, name=name)

    return add


def test_what_goes_to_other_words_tells_runs_apart(elsewhere: Callable[..., Any], tmp_path: Path) -> None:
    """Both give 96% to other words; one does so where the answer is clear too."""
    both = elsewhere("asks", 0.04, 0.6), elsewhere("ignores", 0.04, 0.04)
    run = undertow.audit(PROBE, ["asks", "ignores"], w="date", date_count=8, limit=64, out=tmp_path / "run")
    assert [one.opened for one in both] == [["asks"], ["ignores"]], "for both rounds once"
    design = run.manifest["design"]
    assert {name: len(rows) for name, rows in design["controls"].items()} == {"asks": 8, "ignores": 8}
    decided = {name: word_findings.decided_percent(design, name, [""]) for name in ("asks", "ignores")}
    assert decided == pytest.approx({"asks": 40.0, "ignores": 96.0})
    for name, percent in (("asks", "40%"), ("ignores", "96%")):
        (own,) = [one for one in run.findings if {result.group["model"] for result in one.results} == {name}]
        assert own.text.startswith(f"{name}: ")
        assert "slope_gap" in {result.measure for result in own.results}
        assert "%" not in own.text
        assert re.findall(r"\d+%", own.detail) == ["96%", percent]
    assert run.manifest["counts"]["items"] == len(run.observations) == 2 * 64
    assert run.manifest["counts"]["controls"] == 16
    assert not run.observations["text"].isin([row["text"] for row in design["controls"]["asks"]]).any()


def test_control_sentences_change_no_item_and_no_number(
    elsewhere: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = elsewhere("asks", 0.04, 0.6)
    asked: dict[str, Any] = {"w": "date", "date_count": 8, "limit": 64}
    run = undertow.audit(PROBE, "asks", out=tmp_path / "with", **asked)
    items = next(DRIFT.items(DRIFT.Settings(w="date", date_count=8), Sampling(64, 0)))
    assert model.asked[: len(items)] == [one.query for one in items]
    assert run.manifest["challenge_sha256"] == data.challenge_digest(items)
    assert list(run.observations["item"]) == [one.id for one in items]
    again = undertow.audit(PROBE, "asks", out=tmp_path / "with", overwrite=True, **asked)
    assert again.manifest["counts"]["computed"] == 0
    assert len(model.asked) == 64 + 8 + 5, "they are stored like others"
    monkeypatch.setattr(audits.load(PROBE), "controls", lambda settings: [])
    without = undertow.audit(PROBE, "asks", out=tmp_path / "without", **asked)
    for name in ("run_key", "challenge_sha256", "request_key"):
        assert without.manifest[name] == run.manifest[name]
    assert (without.folder / "results.json").read_bytes() == (run.folder / "results.json").read_bytes()
    assert "controls" not in without.manifest["design"]


@pytest.mark.parametrize(
    ("masses", "tokens", "n_notes"),
    [
        ({"a": 50.0, "b": 49.0, "c": 0.49}, {}, 1), ({"a": 98.9, "b": 1.1}, {}, 0), ({"a": 9.0, "b": 0.0}, {}, 0),
        ({"a": 80.0, "b": math.nan}, {}, 0), ({}, {"x": 10, "y": 11}, 1), ({}, {"x": 11, "y": 12}, 0), ({}, {"x": 1}, 0),
    ],
)  # fmt: skip
def test_groups_of_unlike_masses_or_tokens_are_noted(
    masses: dict[str, float], tokens: dict[str, int], n_notes: int
) -> None:
    notes = word_findings.notes_on_words(masses, tokens, {"a": ["x"], "b": ["y"]}, "the model")
    assert ["the model" in note for note in notes] == [True] * n_notes
