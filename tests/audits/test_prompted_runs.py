"""Audits by instruction prompts: what is asked, the columns that come of it, and the planted drift that is found again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import undertow
from conftest import make_quick
from helpers.answering import answers_only
from helpers.shared_folders import made_once
from undertow import audits, models
from undertow.audits.base import Observations
from undertow.audits.spurious_correlation.drift_findings import Drift
from undertow.audits.task_specification.findings import score_sentences
from undertow.metrics.metric import make_result
from undertow.runs.collect import ModelUnderTest
from undertow.runs.config import RunConfig
from undertow.runs.pipeline import Run
from undertow.types import (
    BLANK,
    CONTINUATIONS,
    EXACT,
    GENERATION,
    PAPER,
    PROMPT,
    TEXT,
    Answer,
    GenerateQuery,
    Item,
    Option,
    Scores,
)

SPURIOUS, SPECIFICATION = "spurious-correlation", "task-specification"
STEP_YEARS = 215 / 29
"""Between neighbours of the date list."""


def prompted(shared_base: Path, audit: str, **options: Any) -> Run:
    """A run of a model that answers prompts only, made once for all workers."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNDERTOW_CACHE", str(folder / "cache"))
            patch.setattr(models, "resolve", answers_only)
            make_quick(patch)
            undertow.audit(audit, "server", out=folder / "run", **options)

    return undertow.load_run(made_once(shared_base, f"prompted-{audit}", make) / "run")


@pytest.fixture(scope="module")
def drift(shared_base: Path) -> Run:
    """Asked by no prompts: the model is put the paper's three."""
    return prompted(shared_base, SPURIOUS, w="date", limit=200, protocol=PAPER)


@pytest.fixture(scope="module")
def detection(shared_base: Path) -> Run:
    """The same model, asked whether sentences decide their blank."""
    return prompted(shared_base, SPECIFICATION, limit=40, entropy_baseline=True)


@pytest.mark.parametrize(("audit", "default"), [(SPURIOUS, "A,B,C"), (SPECIFICATION, "A")])
def test_a_model_without_blanks_is_put_the_papers_prompts(audit: str, default: str) -> None:
    module = audits.load(audit)
    plain, own = module.Settings(), module.Settings(prompts="C")
    answers = {GENERATION: (EXACT, PAPER)}
    assert module.adapt_settings(plain, answers) == dataclasses.replace(plain, prompts=default)
    assert module.adapt_settings(own, answers) == own
    for capabilities in ({BLANK: (EXACT,)}, {BLANK: (EXACT,), **answers}, {CONTINUATIONS: (EXACT,)}, {}):
        assert module.adapt_settings(plain, capabilities) == plain


@pytest.mark.parametrize("audit", [SPURIOUS, SPECIFICATION])
def test_free_replies_have_more_tokens_unless_a_number_is_given(audit: str) -> None:
    for protocol, given, expected in ((EXACT, 0, 20), (EXACT, 128, 128), (TEXT, 0, 128), (TEXT, 20, 20)):
        options = {"max_new_tokens": given}
        config = RunConfig(audit=audit, options=options, models=("openai:m",), protocol=protocol, limit=6)
        subject = ModelUnderTest.from_request(config, config.requests()[0])
        n_tokens = {item.query.max_tokens for item in subject.first if isinstance(item.query, GenerateQuery)}
        assert (n_tokens, subject.design["max_new_tokens"]) == ({expected}, expected)


def test_a_limit_is_of_all_prompts_together_and_columns_are_probabilities_as_they_are(drift: Run) -> None:
    frame = drift.observations
    assert 150 < len(frame) <= 200
    cells = {prompt: rows[["w", "cluster"]].to_numpy().tolist() for prompt, rows in frame.groupby("prompt")}
    assert cells["A"] == cells["B"] == cells["C"]
    assert len(cells["A"]) == frame["w"].nunique() * frame["cluster"].nunique()
    assert (set(frame["answer"]), set(frame["w_name"])) == ({" he.", " she."}, {"date"})
    # Not shares of each other; nothing was hidden, so there are no bounds.
    assert not [name for name in frame if str(name).endswith((".low", ".high"))]
    np.testing.assert_allclose(frame[["female", "male", "neutral"]].sum(axis=1), 80)
    np.testing.assert_allclose(frame["neutral"], 10)
    np.testing.assert_allclose(frame["other_words"], 20)
    design = drift.manifest["design"]
    assert (design["scoring_method"], design["normalised"]) == (PROMPT, False)
    assert len({tuple(words) for words in frame["options"]}) == 1
    assert {"She", "Her", "Female", "they", "his"} <= set(frame["options"].iloc[0])


def observations(items: Sequence[Item], scores: Scores, groups: Sequence[str]) -> pd.DataFrame:
    return audits.load("spurious-correlation").observe({"groups": groups}, items, scores, "m").frame


ITEM_OPTIONS = Option("she", ("she",)), Option("she", ("She",)), Option("he", ("he",))
ITEMS = [
    Item(f"i{number}", GenerateQuery(f"p{number}", ITEM_OPTIONS), {"challenge": "c", "prompt": "A", "w": number}, "k")
    for number in range(6)
]


def logs(*probs: float) -> tuple[float, ...]:
    return tuple(math.log(prob) if prob > 0 else -math.inf for prob in probs)


def test_masses_that_were_not_shown_whole_by_hand() -> None:
    """The column is the middle; a group gains no more than its ceilings, than what was hidden, and than 100."""
    answers = (
        Answer(logs(0.40, 0.06, 0.30), 0.24, text="she", upper_bound_prob=(0.02, 0.04, 0.0), truncated_prob=0.24),
        Answer(logs(0.40, 0.00, 0.30), 0.30, text="she", upper_bound_prob=(0.08, 0.09, 0.05), truncated_prob=0.10),
        Answer(logs(0.20, 0.10, 0.70), 0.0, text="he"),
        Answer.missing("lost"),
        Answer(logs(0.97, 0.02, 0.0), 0.01, text="she", upper_bound_prob=(0.2, 0.2, 0.2), truncated_prob=0.3),
        # .40 belongs to one of two words, and so to no other word.
        Answer(logs(0.10, 0.00, 0.30), 0.20, text="she", upper_bound_prob=(0.4, 0.0, 0.4), truncated_prob=0.45),
    )
    frame = observations(ITEMS, Scores(answers, PROMPT), ["she", "he"])
    expected = {
        "she.low": [46, 40, 30, math.nan, 99, 10],
        "she.high": [52, 50, 30, math.nan, 100, 50],
        "she": [49, 45, 30, math.nan, 99.5, 30],
        "he.low": [30, 30, 70, math.nan, 0, 30],
        "he.high": [30, 35, 70, math.nan, 20, 70],
        "he": [30, 32.5, 70, math.nan, 10, 50],
        "other_words.low": [18, 20, 0, math.nan, 0, 15],
        "other_words.high": [24, 30, 0, math.nan, 1, 20],
        "other_words": [21, 25, 0, math.nan, 0.5, 17.5],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(frame[name], values, atol=1e-9, err_msg=name)
    assert frame["answer"].tolist() == ["she", "she", "he", "", "she", "she"]
    assert frame["missing_reason"].tolist() == ["", "", "", "lost", "", ""]
    assert frame["upper_bound_prob"].map(len).tolist() == [3, 3, 0, 0, 3, 3]


@pytest.mark.parametrize(("hidden", "state"), [(0.5, "open"), (0.0, "constant")])
def test_equal_midpoints_of_hidden_masses_are_not_called_the_same(hidden: float, state: str) -> None:
    bounds = {"bound_low": -hidden, "bound_high": hidden} if hidden else {}
    note = "The mean is the same at every W value, so there is no trend to test."
    result = make_result("slope", {"pronoun": "she"}, value=0.0, n=9, note=note, extras={"n_clusters": 3.0, **bounds})
    assert Drift(result, (), {"gaps": []}).state == state


def test_the_planted_slope_is_found_through_prompts(drift: Run) -> None:
    results = {(one.measure, *one.group.values()): one for one in drift.record.results}
    assert drift.observations["w"].nunique() == 11
    for prompt in "ABC":
        run = "server", "mgc", prompt, "date"
        # 10 points a century go from he to she.
        assert results["slope", *run, "female"].value == pytest.approx(STEP_YEARS / 10, rel=0.05)
        assert results["slope_gap", *run, "female-male"].value == pytest.approx(STEP_YEARS / 5, rel=0.05)
        assert results["slope", *run, "neutral"].value == pytest.approx(0, abs=1e-9)
        assert results["slope", *run, "female"].p < 0.05
        assert math.isnan(results["slope", *run, "female"].q)  # the average over prompts decides
    assert results["slope_over_prompts", *run[:2], run[3], "female"].q < 0.05
    claimed = [finding.text for finding in drift.findings if finding.significant]
    assert "female words rises by 21.5" in " ".join(claimed)
    assert all(text.startswith("mean over prompts A, B, C: ") for text in claimed)


def test_prompts_of_one_name_tell_the_sentences_that_decide(detection: Run) -> None:
    frame = detection.observations
    assert set(frame["part"]) == {"detect", "plain"}
    assert frame["text"].str.startswith("Instructions: Please carefully read").all()
    assert frame["text"].str.endswith("\nAnswer:").all()
    assert (frame.loc[frame["part"] == "detect", "text"].str.contains("Passage: In (?:1901|2016): ")).all()
    assert frame["text"].str.count("<mask>").eq(2).all()
    table = score_sentences(Observations(frame, detection.manifest["design"]))
    # The toy moves by 11.5 points between 1901 and 2016, of the 80 that the words share, in every sentence.
    np.testing.assert_allclose(table["delta_female"], 100 * 0.115 / 0.8, atol=1.3)
    np.testing.assert_allclose(table["total_variation"], table["delta_female"], atol=1e-9)
    assert table["entropy_plain"].notna().all()
    measures = {one.measure for one in detection.record.results}
    assert {"auroc", "tpr", "tnr", "coreference_agreement"} <= measures
