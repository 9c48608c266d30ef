from __future__ import annotations

import math
from pathlib import Path

import pytest

import undertow
from undertow import models
from undertow.models.base import ModelRequest
from undertow.models.families import uniform
from undertow.types import Answer, ClozeQuery, ContinuationQuery, GenerateQuery, Option, Query

OPTIONS = (Option("female", ("she",)), Option("male", ("he",)), Option("neutral", ("they",)))


@pytest.mark.parametrize(
    "query",
    [
        ClozeQuery(("In 1953, ", " was a teenager."), OPTIONS),
        ContinuationQuery("In 1953,", (" she was", " he was", " they were")),
        GenerateQuery("Who was it?", OPTIONS),
    ],
    ids=["blank", "continuations", "prompt"],
)
def test_every_option_has_the_same_and_the_rest_is_other_prob(query: Query) -> None:
    model = models.resolve(ModelRequest("uniform")).open()
    (answer,) = next(iter(model.answer([query], "exact"))).values()
    assert isinstance(answer, Answer)
    assert [math.exp(value) for value in answer.logprobs_nats] == pytest.approx([1 / uniform.WORDS] * 3)
    assert answer.other_prob == pytest.approx(1 - 3 / uniform.WORDS)


@pytest.mark.parametrize("prompts", ["", "A,B"])
def test_no_drift_is_found_in_it(prompts: str, tmp_path: Path) -> None:
    run = undertow.audit(
        "spurious-correlation", model="uniform", w="date", limit=90, prompts=prompts, out=tmp_path / "run"
    )
    assert not any(finding.significant for finding in run.findings)
    slopes = run.results[run.results["measure"].isin(["slope", "slope_gap"])]["value"]
    assert slopes.abs().max() < 1e-12


def test_undecided_sentences_cannot_be_told_from_it(tmp_path: Path) -> None:
    run = undertow.audit("task-specification", model="uniform", limit=80, out=tmp_path / "run")
    areas = run.results[run.results["measure"] == "auroc"]["value"]
    assert areas.tolist() == pytest.approx([0.5] * len(areas))
