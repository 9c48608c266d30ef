"""Findings of the four tasks of bias in text: against the best baseline, between dimensions, and between words of the descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from undertow.audits.base import Observations
from undertow.report.sentence_templates import sentences
from undertow.stats import MIN_CLUSTERS
from undertow.types import ALPHA, Finding, Result

ALL, TOGETHER = "all", " + "
"""As measures write them; they are not imported here, since they take long to."""
FIRST = 1000.0
"""Strength that ranks comparisons with a baseline above effects of words of any size."""
MAX_EFFECTS, MAX_SEEN = 6, 3
"""Findings on words over all texts, and by dimension; and of those that were not tested."""
LARGE_GAP = 70.0
"""Minimum difference in percentage points between two words that is reported without a test on few texts: the paper reports
more than 80% with one word and less than 10% with another."""
HABIT, EMPTY = 90.0, 10.0
"""Percent of texts with the same answer, and of empty answers, above which a finding mentions it."""


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """Compare with the best baseline first, then dimensions, then words.

    Each claim has one test; it is significant if q is below .05 over all tests of the run.
    """
    several = observations.frame["model"].nunique() > 1
    n_tests = sum(math.isfinite(result.q) for result in results)
    measure = main_measure(observations.design)
    claims = [
        _baseline_finding(result, n_tests, several=several)
        for result in {
            tuple(result.group[name] for name in ("model", "shots", "sampling", "decoding")): result
            for result in results
            if result.measure == measure and result.group["shots"] and result.group["dimension"] == ALL
        }.values()
    ]
    claims += _dimension_findings(results, measure, n_tests, several=several)
    claims += _word_findings(results, n_tests, several=several)
    return sorted(claims, key=lambda finding: (not finding.significant, -finding.strength))


def main_measure(design: Mapping[str, object]) -> str:
    """The measure that findings are about."""
    from undertow.metrics.text.scores import MEASURES

    return MEASURES[str(design["task"])][0]


def _baseline_finding(result: Result, n_tests: int, *, several: bool) -> Finding:
    words = sentences("bias_in_text")
    if math.isnan(result.value):
        text = words.nothing(result, several)
        return Finding(text, False, FIRST, results=(result,), decision_rule=words.not_tested)
    tested, value = math.isfinite(result.q), result.extras.get("above_baseline", math.nan)
    significant = tested and result.q < ALPHA
    better = "better than" if value > 0 else "worse than"
    verdict = "" if not tested else better if significant else "not told apart from"
    text = words.baseline(result, several, verdict, n_tests, MIN_CLUSTERS, _habit(result))
    size = max(result.extras["above_low"], -result.extras["above_high"], 0.0) if significant else 0.0
    rule = {"n_tests": n_tests} if tested else {"decision_rule": words.not_tested}
    return Finding(text, significant, FIRST + size, results=(result,), **rule)


def _habit(result: Result) -> str:
    """What nearly all answers have in common; what is neither Yes nor No, or missing, is not taken for the other."""
    n_items = max(result.n + result.n_missing, 1)
    shares = {label: result.extras.get(f"{label.lower()}_percent", 0.0) * result.n / n_items for label in ("Yes", "No")}
    label = next((label for label, share in shares.items() if share > HABIT), "")
    empty = result.extras.get("empty_percent", 0.0)
    habit: str = sentences("bias_in_text").habit(label, shares.get(label, 0.0), empty if empty >= EMPTY else 0, result)
    return habit


def _dimension_findings(results: Sequence[Result], measure: str, n_tests: int, *, several: bool) -> Iterator[Finding]:
    """The best and the worst dimension of each setting, where these are further apart than of as many alike."""
    scores = {tuple(sorted(one.group.items())): one for one in results if one.measure == measure}
    for gap in results:
        if gap.measure == "dimension_gap" and gap.q < ALPHA:
            ends = [
                scores[tuple(sorted({**gap.group, "dimension": one}.items()))] for one in gap.note.split(" less ", 1)
            ]
            text = sentences("bias_in_text").dimensions(gap, *ends, several, n_tests)
            yield Finding(text, True, gap.value, results=(gap, *ends), n_tests=n_tests)


def _word_findings(results: Sequence[Result], n_tests: int, *, several: bool) -> Iterator[Finding]:
    """Significant effects of words, large untested ones on few texts, and slots whose effects are aliased."""
    words = sentences("bias_in_text")
    effects = sorted((one for one in results if one.measure == "slot_effect"), key=lambda one: -abs(one.value))
    significant = [one for one in effects if one.q < ALPHA]
    for of_all in (True, False):
        for one in [one for one in significant if (one.group["dimension"] == ALL) is of_all][:MAX_EFFECTS]:
            text = words.word_effect(one, several, n_tests, TOGETHER in one.group["slot"])
            yield Finding(text, True, abs(one.value), results=(one,), n_tests=n_tests)
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
    """Whether two texts or more all agree about one slot, and are so few that they could not have a q below .05 as the only effect."""
    n = effect.extras["n_clusters"]
    agree = n > 1 and effect.extras["n_agreeing"] == n and TOGETHER not in effect.group["slot"]
    return agree and not effect.q < ALPHA and 2.0 ** (1 - n) * max(n_tests, 1) >= ALPHA
