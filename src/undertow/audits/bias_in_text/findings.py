"""Findings of bias in text: scores against the best baseline, differences between dimensions, effects of words in descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from undertow.audits.base import Observations
from undertow.report.sentence_templates import sentences
from undertow.stats import MIN_CLUSTERS
from undertow.types import ALPHA, Finding, Result

ALL, TOGETHER = "all", " + "
"""As measures write them; they are not imported here, since they take long to."""
FIRST = 1000.0
"""Strength that ranks comparisons with a baseline above effects of words of any size."""
MAX_SEEN = 3
"""Maximum number of findings on untested words."""
LARGE_GAP = 70.0
"""Minimum difference in percentage points between two words that is reported without a test on few texts: the paper reports
more than 80% with one word and less than 10% with another."""
HABIT, EMPTY = 90.0, 10.0
"""Percent of equal answers, and of empty answers, from which a finding mentions them."""


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """Compare with the best baseline first, then dimensions, then words.

    Each claim has one test; it is significant if q is below .05 over all tests of the run.
    """
    several = observations.frame["model"].nunique() > 1
    n_tests = sum(math.isfinite(result.q) for result in results)
    measure = main_measure(observations.design)
    by_model: dict[str, dict[tuple[str, ...], Result]] = {}
    for result in results:
        if result.measure == measure and result.group["shots"] and result.group["dimension"] == ALL:
            key = tuple(result.group[name] for name in ("shots", "sampling", "decoding"))
            by_model.setdefault(result.group["model"], {})[key] = result
    scores = {tuple(sorted(one.group.items())): one for one in results if one.measure == measure}
    areas = {tuple(sorted(one.group.items())): one for one in results if one.measure == "yes_auroc"}
    claims: list[Finding] = []
    for settings in by_model.values():
        claims += _baseline_findings(list(settings.values()), areas, n_tests, several=several)
    # The two dimensions of each setting whose gap is significant.
    for gap in (one for one in results if one.measure == "dimension_gap" and one.q < ALPHA):
        ends = [scores[tuple(sorted({**gap.group, "dimension": one}.items()))] for one in gap.note.split(" less ", 1)]
        text = sentences("bias_in_text").dimensions(*ends, several)
        claims.append(Finding(text, True, gap.value, results=(gap, *ends), n_tests=n_tests))
    claims += _word_findings(results, n_tests, several=several)
    return sorted(claims, key=lambda finding: (not finding.significant, -finding.strength))


def main_measure(design: Mapping[str, object]) -> str:
    """The measure of the findings."""
    from undertow.metrics.text.scores import MEASURES

    return MEASURES[str(design["task"])][0]


def _baseline_findings(
    settings: Sequence[Result], areas: Mapping[tuple[Any, ...], Result], n_tests: int, *, several: bool
) -> Iterator[Finding]:
    """One finding per model: its scores for each number of examples and decoding, against the best baseline."""
    words = sentences("bias_in_text")
    unknown = [one for one in settings if math.isnan(one.value)]
    for one in unknown:
        yield Finding(words.nothing(one, several), False, FIRST, results=(one,), decision_rule=words.not_tested)
    # The comparison with the largest excess decides and comes first.
    known = sorted((one for one in settings if one not in unknown), key=lambda one: (not one.q < ALPHA, -_excess(one)))
    if not known:
        return
    first, significant = known[0], known[0].q < ALPHA
    compared = []
    for one in known:
        verdict = "" if math.isnan(one.q) else "not significantly different from"
        if one.q < ALPHA:
            verdict = "better than" if one.extras.get("above_baseline", math.nan) > 0 else "worse than"
        area = areas.get(tuple(sorted(one.group.items())))
        compared.append({"result": one, "verdict": verdict, "habit": _habit(one), "area": area})
    yield Finding(
        words.baseline(compared, several, MIN_CLUSTERS),
        significant,
        FIRST + (_excess(first) if significant else 0.0),
        results=tuple(known),
        n_tests=n_tests if math.isfinite(first.q) else 0,
        decision_rule="" if math.isfinite(first.q) else words.not_tested,
        detail=" ".join(words.beside_baseline(compared, MIN_CLUSTERS).split()),
    )


def _excess(result: Result) -> float:
    """Smallest difference from the baseline within the corrected interval; 0 if the interval includes 0."""
    ends = result.extras.get("above_low", math.nan), -result.extras.get("above_high", math.nan)
    return max((end for end in ends if math.isfinite(end)), default=0.0) if max(ends) > 0 else 0.0


def _habit(result: Result) -> str:
    """The label of nearly all answers; unclear and missing answers count for neither label."""
    n_items = max(result.n + result.n_missing, 1)
    shares = {label: result.extras.get(f"{label.lower()}_percent", 0.0) * result.n / n_items for label in ("Yes", "No")}
    label = next((label for label, share in shares.items() if share > HABIT), "")
    empty = result.extras.get("empty_percent", 0.0)
    habit: str = sentences("bias_in_text").habit(label, shares.get(label, 0.0), empty if empty >= EMPTY else 0, result)
    return habit


def _word_findings(results: Sequence[Result], n_tests: int, *, several: bool) -> Iterator[Finding]:
    """Significant effects of words, large untested ones on few texts, and slots whose effects are aliased."""
    words = sentences("bias_in_text")
    effects = sorted((one for one in results if one.measure == "slot_effect"), key=lambda one: -abs(one.value))
    significant = [one for one in effects if one.q < ALPHA]
    for of_all in (True, False):
        own = [one for one in significant if (one.group["dimension"] == ALL) is of_all]
        if own:
            n_compared = sum(math.isfinite(one.q) and (one.group["dimension"] == ALL) is of_all for one in effects)
            together = next((f"{one.note}." for one in own if TOGETHER in one.group["slot"]), "")
            detail = " ".join(words.other_effects(own, together).split())
            text = words.word_effects(own, n_compared, several)
            yield Finding(text, True, abs(own[0].value), results=tuple(own), n_tests=n_tests, detail=detail)
    counted = [one for one in effects if math.isfinite(one.value)]
    if counted and not significant:
        n_tested = sum(math.isfinite(one.q) for one in counted)
        rule = words.none_below(n_tests) if n_tested else words.not_tested
        yield Finding(words.no_effect(n_tested), False, 0.0, decision_rule=rule)
    unsure = [one for one in counted if _is_beyond_a_test(one, n_tests) and abs(one.value) >= LARGE_GAP]
    for one in unsure[:MAX_SEEN]:
        text = words.seen_effect(one, several)
        yield Finding(text, False, -1.0, results=(one,), decision_rule=words.seen_rule(one, n_tests))
    prompts_by_note: dict[tuple[str, str], dict[str, None]] = {}
    for one in (one for one in results if one.measure == "slot_effect" and TOGETHER in one.group["slot"]):
        key = one.group["description_class"], one.note.partition("; ")[0]
        prompts_by_note.setdefault(key, {})[words.examples(one.group)] = None
    for (name, note), prompts in prompts_by_note.items():
        yield Finding(words.aliased(name, list(prompts), note), False, -2.0, decision_rule=words.alias_rule)


def _is_beyond_a_test(effect: Result, n_tests: int) -> bool:
    """Whether at least two texts all agree on an effect but are too few for q below .05, even as the only effect."""
    n = effect.extras["n_clusters"]
    agree = n > 1 and effect.extras["n_agreeing"] == n and TOGETHER not in effect.group["slot"]
    return agree and not effect.q < ALPHA and 2.0 ** (1 - n) * max(n_tests, 1) >= ALPHA
