"""Findings of the occupation checklist."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.shared.item_limit import few_flips, fewest_hits
from undertow.metrics.checklist.checklist_metrics import (
    MIN_STATED,
    WITH_AND_SWAPPED,
    WITH_LESS_SHUFFLED,
    WITH_LESS_SWAPPED,
    WITH_LESS_WITHOUT,
    is_overall,
)
from undertow.metrics.checklist.decisions import ALL, CONTEXTS, SAME, SHUFFLED, STATED, SWAPPED, WITH, WITHOUT
from undertow.metrics.checklist.estimates import EMPTY, NOT_SCORED, OTHER_ANSWER
from undertow.metrics.groups import Groups
from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, NOT_TESTED, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMED = 8
"""Maximum number of occupations in a sentence."""
FOREMOST, FIRST, SECOND, THIRD = 4000.0, 3000.0, 2000.0, 1000.0
"""Strengths that rank kinds of finding above effect sizes: readability of the model, preference, attributes, the rest."""
ONE_SIDED = 95.0
"""Percent of Yes, or of No, from which a finding reports one-sided answers."""
OFTEN_TIED = 50.0
"""Percent of ties from which a finding reports them."""
EXCHANGED = (
    "choice_gap", "preference_gap", "bias_gap", "switch_gap", "missing_gap", "position_bias", "_of_person", "_difference"
)  # fmt: skip
"""Ends of measures whose p is at least that of exchanges of whole pairs and of whole occupations."""
MISSING_KINDS = {OTHER_ANSWER: "none of the possible answers", EMPTY: "empty", NOT_SCORED: "not scored"}


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """State preferences overall and by occupation, effects of attributes, and the minimum functionality of the model."""
    names = list(dict.fromkeys(one.group["model"] for one in results))
    claims: list[Finding] = []
    groups = Groups.of(observations.design)
    coded = groups.rename(results, to_codes=True)
    for name in names:
        own = [one for one in coded if one.group["model"] == name]
        reasons = observations.frame.loc[observations.frame["model"] == name, "missing_reason"].tolist()
        who, at_random = f"{name}: " if len(names) > 1 else "", observations.design.get("grants") == "random"
        model = ModelResults(own, who, main_context(own), reasons, groups.words, at_random)
        claims += [finding for kind in KINDS for finding in kind(model)]
    n_tests = Counter(is_overall(one) for one in results if math.isfinite(one.q))
    claims = [one if one.decision_rule else replace(one, n_tests=n_tests[is_overall(one.results[0])]) for one in claims]
    claims = [_with_smallest_p(one, observations.frame, n_tests) for one in claims]
    claims = [replace(one, results=tuple(groups.rename(one.results))) for one in claims]
    # Ordered by importance for a reader, significant or not.
    return sorted(claims, key=lambda finding: (finding.strength < FOREMOST, not finding.significant, -finding.strength))


def _with_smallest_p(claim: Finding, frame: pd.DataFrame, n_tests: Mapping[bool, int]) -> Finding:
    """The finding; if its exchange test alone cannot be significant with so few pairs of names or occupations, this is said."""
    first = next(iter(claim.results), None)
    if first is None or claim.significant or not math.isfinite(first.q) or not first.measure.endswith(EXCHANGED):
        return claim
    rows, n = frame[frame["model"] == first.group["model"]], n_tests[is_overall(first)]
    counts = {"pairs of names": rows["cluster"].nunique()}
    if is_overall(first):
        counts["occupations (SOC codes)"] = rows.loc[rows["occupation"] != "", "soc_code"].nunique()
    noun = min(counts, key=counts.__getitem__)
    few = few_flips(counts[noun], n, "the", noun) if fewest_hits(counts[noun], n) > 1 else ""
    return replace(claim, detail=f"{claim.detail} {few[:1].upper()}{few[1:]}.".strip()) if few else claim


def contexts_of(results: Sequence[Result]) -> list[str]:
    """Contexts with results about occupations."""
    present = {one.group["context"] for one in results if one.measure == "choice_gap"}
    return [one for one in CONTEXTS if one in present]


def main_context(results: Sequence[Result]) -> str:
    """The first context in figures and sentences."""
    return next(iter(contexts_of(results)), WITH)


def get_result(results: Sequence[Result], measure: str, context: str) -> Result | None:
    """A measure in a context, over all occupations; None where it has no number."""
    for one in results:
        if one.measure == measure and one.group["context"] == context and one.group["occupation"] == ALL:
            return one if math.isfinite(one.value) else None
    return None


@dataclass(frozen=True, slots=True)
class ModelResults:
    """Results of one model and the phrases of its sentences.

    `who` begins the sentences about it; `missing_reasons` has "" for each answer [answer]; `words` are `Groups.words`.
    """

    results: Sequence[Result]
    who: str
    context: str
    missing_reasons: Sequence[str]
    words: Mapping[str, str]
    at_random: bool

    @property
    def granted(self) -> str:
        """How its people get their attributes: granted by the model, or drawn."""
        return "drawn" if self.at_random else "granted"

    def one(self, measure: str, context: str = "") -> Result | None:
        """Result of a measure over all occupations, by default in the main context; None without a value."""
        return get_result(self.results, measure, context or self.context)

    def several(self, context: str, *measures: str) -> list[Result]:
        """Results of several measures in a context; [] if one has no value."""
        estimates = [one for measure in measures if (one := self.one(measure, context)) is not None]
        return estimates if len(estimates) == len(measures) else []

    def finding(self, name: str, rank: float, *results: Result, rule: str = "", **values: Any) -> Finding:
        """The finding with the template `name`, decided by q of the first result unless `rule` gives another decision."""
        words = sentences("occupation_checklist")
        first = results[0]
        if not rule and not math.isfinite(first.q):
            rule = f"{NOT_TESTED}{first.note or 'too few answers'}."
        text = getattr(words, name)(self, *results, **values)
        significant = not rule and first.q < ALPHA
        return Finding(
            text, significant, rank + abs(first.value), results=results, decision_rule=words.rules.get(rule, rule)
        )

    def count(self, name: str, rank: float, *results: Result, rule: str = "count", **values: Any) -> Finding:
        """The finding with the template `name`, a count without a test."""
        words = sentences("occupation_checklist")
        text = getattr(words, name)(self, *results, **values)
        return Finding(text, False, rank, results=results, decision_rule=words.rules.get(rule, rule))


def _together(of: ModelResults, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Merge findings on one topic: the first significant one is the text, the others its detail."""
    ordered = sorted(findings, key=lambda one: not one.significant)
    if ordered:
        detail = " ".join(one.text.removeprefix(of.who) for one in ordered[1:])
        yield replace(ordered[0], detail=detail, results=tuple(one for each in ordered for one in each.results))


def _preferences(of: ModelResults) -> Iterator[Finding]:
    contexts = dict.fromkeys((of.context, WITHOUT, SAME))
    gaps = [of.finding("preference", FIRST, gap) for context in contexts for gap in of.several(context, "choice_gap")]
    gaps += [of.finding("unqualified_preference", SECOND, gap) for gap in of.several(of.context, "preference_gap")]
    return _together(of, gaps)


def _occupations(of: ModelResults) -> Iterator[Finding]:
    claims, words = [], sentences("occupation_checklist")
    for below, measure in enumerate(("choice_gap", "choice_gap_deviation"), 1):
        of_context = [one for one in of.results if one.measure == measure and one.group["context"] == of.context]
        gaps = [one for one in of_context if one.group["occupation"] != ALL and math.isfinite(one.p)]
        gaps.sort(key=lambda one: -abs(one.value))
        significant = [one for one in gaps if one.q < ALPHA]
        if significant:
            text = words.occupations(of, measure, significant, len(gaps), MAX_NAMED)
            rule = f"{len(significant)} of {len(gaps)} are significant after correction for all tests of single occupations."
            claims.append(Finding(text, True, FIRST - below, results=tuple(significant), decision_rule=rule))
        elif gaps:
            text, rule = words.no_occupation(of, measure, len(gaps)), words.rules["no_occupation"]
            claims.append(Finding(text, False, FIRST - below, results=tuple(gaps), decision_rule=rule))
    return _together(of, claims)


def _attributes(of: ModelResults) -> Iterator[Finding]:
    granted = of.several(WITHOUT, "granted_gap", "granted_female", "granted_male")
    if granted:
        yield of.finding("granted", SECOND, *granted)
    is_compared = any(one.measure == "changed_answers" or one.measure.endswith("_difference") for one in of.results)
    if len(contexts_of(of.results)) > 1 and not is_compared:
        is_known = of.one("granted_gap", WITHOUT) is not None
        yield of.count("nothing_granted", SECOND - 1, rule="none", is_known=is_known)
    difference = of.one("changed_answers_difference", WITH_LESS_SHUFFLED)
    own, other = (of.one("changed_answers", context) for context in (WITH, SHUFFLED))
    if difference is not None and own is not None and other is not None:
        yield of.finding("changed_answers", SECOND, difference, own, other)
    others = {WITH_LESS_WITHOUT: "than without attributes", WITH_LESS_SHUFFLED: "than with those of another occupation"}
    called = [(one, than) for context, than in others.items() for one in of.several(context, "qualified_difference")]
    yield from _together(of, (of.finding("qualified", THIRD, one, than=than) for one, than in called))


def _grants(of: ModelResults) -> Iterator[Finding]:
    explained = of.several(WITH, "granted_slope", "choice_gap_unexplained", "choice_gap_explained")
    claims = [of.count("additive", SECOND + 2, one, rule="share") for one in of.several(WITH, "additive_consistency")]
    if explained:
        slope = of.finding("grant_slope", SECOND + 1, explained[0])
        claims = [slope, of.finding("unexplained", SECOND, *explained[1:]), *claims]
    return _together(of, claims)


def _swaps(of: ModelResults) -> Iterator[Finding]:
    person = of.one("choice_gap_of_person", WITH_AND_SWAPPED)
    follows = of.one("choice_gap_difference", WITH_LESS_SWAPPED)
    own, swapped = (of.one("choice_gap", context) for context in (WITH, SWAPPED))
    if person is not None and follows is not None and own is not None and swapped is not None:
        claims = of.finding("person", SECOND + 1, person, own, swapped), of.finding("follows", SECOND, follows)
        yield from _together(of, claims)


def _correlations(of: ModelResults) -> Iterator[Finding]:
    for correlation in of.several(of.context, "consistency_bias_correlation"):
        yield of.finding("consistency", THIRD, correlation, rule="none")
    for correlation in of.several(of.context, "percent_female_correlation"):
        yield of.finding("share_of_women", THIRD, correlation)


def _missing_answers(of: ModelResults) -> Iterator[Finding]:
    for rate in of.several(of.context, "missing_rate"):
        counts = {words: int(rate.extras[name]) for name, words in MISSING_KINDS.items() if rate.extras.get(name)}
        claims = [of.count("missing", FOREMOST, rate, counts=counts)]
        gaps = of.several(of.context, "missing_gap", "missing_female", "missing_male")
        if gaps:
            claims.append(of.finding("missing_gap", SECOND, *gaps))
        yield from _together(of, claims)
    if all(of.missing_reasons):
        ((reason, _),) = Counter(of.missing_reasons).most_common(1)
        yield of.count("none_counted", FOREMOST, n_answers=len(of.missing_reasons), reason=reason)


def _reading(of: ModelResults) -> Iterator[Finding]:
    for accuracy in (one for one in of.results if one.measure == "stated_accuracy"):
        if accuracy.extras.get("ties_percent", math.nan) > OFTEN_TIED:
            n_questions = int(accuracy.n + accuracy.extras["ties"])
            yield of.count("stated_ties", FOREMOST + 3, accuracy, rule="ties", n_questions=n_questions)
        margin = of.one("stated_margin", STATED)
        if margin is not None and margin.q < ALPHA and margin.value < 0:
            one = of.finding("stated_errors", 0.0, margin, accuracy, least=MIN_STATED)
            yield replace(one, strength=FOREMOST + 2)
    both = of.several(of.context, "qualified_female", "qualified_male")
    if both:
        for says in ("Yes", "No"):
            percent = min(one.extras.get(f"{says.casefold()}_of_asked", math.nan) for one in both)
            if percent > ONE_SIDED:
                rule = f"Not tested: a count, reported because more than {ONE_SIDED:.0f}% of the answers are the same."
                one_sided = of.count("one_sided", FOREMOST + 1, rule=rule, says=says, percent=percent)
                yield replace(one_sided, results=tuple(both))
        tied = min(one.extras.get("ties_percent", math.nan) for one in both)
        if tied > OFTEN_TIED:
            yield of.count("often_tied", FOREMOST + 1, *both, rule="ties", percent=tied)
    for bias in of.several(of.context, "position_bias"):
        if bias.q < ALPHA:
            yield replace(of.finding("position", 0.0, bias), strength=FOREMOST)


KINDS = (_preferences, _occupations, _attributes, _grants, _swaps, _correlations, _missing_answers, _reading)
