"""Task specification of the default model: golden areas on winogender, and what our own set is held to.

The model is asked in this process, so that it is loaded once for all tests.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from undertow import audits
from undertow._folders import cache_file
from undertow.audits.base import Sampling
from undertow.audits.task_specification.items import Settings
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import ModelHandle, TokenModel
from undertow.types import EXACT, Result

pytestmark = [pytest.mark.model, pytest.mark.slow]


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


@pytest.mark.soak
def test_winogender_has_its_golden_areas(reference_data: Path, smollm2_found: ModelHandle, smollm2: TokenModel) -> None:
    settings = Settings(challenge="winogender", data_dir=str(reference_data / "winogender"))
    found = results(settings, smollm2_found, smollm2)
    golden = {
        "delta_female": 0.718,
        "delta_male": 0.852,
        "delta_neutral": 0.789,
        "total_variation": 0.870,
        "entropy": 0.851,
    }
    for score, expected in golden.items():
        assert value(found, "auroc", score) == pytest.approx(expected, abs=0.01), score
    assert value(found, "coreference_agreement") == pytest.approx(0.992, abs=0.01)
    # The fitted score is held to what decision 009 claims of it.
    assert value(found, "auroc", "combined") == pytest.approx(0.917, abs=0.01)
    for gap in (result for result in found if result.measure == "auroc_difference"):
        if gap.group["score"] == "combined":
            assert gap.low > 0, gap.group


@pytest.mark.soak
def test_our_own_set_is_understood(smollm2_found: ModelHandle, smollm2: TokenModel) -> None:
    """On all of its 960 questions: what a limit keeps depends on how it samples."""
    found = results(Settings(), smollm2_found, smollm2)
    assert value(found, "coreference_agreement") >= 0.95
    golden = {"delta_female": 0.650, "total_variation": 0.824, "entropy": 0.840, "combined": 0.860}
    for score, expected in golden.items():
        assert value(found, "auroc", score) == pytest.approx(expected, abs=0.01), score
