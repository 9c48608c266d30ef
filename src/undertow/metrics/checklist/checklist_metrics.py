"""The measures of the occupation checklist, with intervals over pairs of names and SOC codes, and their tests.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", section "Experiments". If the paper leaves a choice open, the
extras of each overall result have the values of the other choices. Overall results generalise to names and occupations like these,
results of one occupation to names like these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.checklist import decisions
from undertow.metrics.checklist.attribute_grants import attributes, choice_gaps, grants
from undertow.metrics.checklist.estimates import difference_p, group_keys, item_clusters, mask_if_few, result_of
from undertow.metrics.checklist.missing_answers import missing
from undertow.metrics.multiple_testing import adjust_p_values
from undertow.stats.correlation import cluster_correlation
from undertow.stats.intervals.multiway_cluster import difference_of_ratios, ratio_interval
from undertow.types import Floats, Result

if TYPE_CHECKING:
    import pandas as pd

WITH_LESS_WITHOUT, WITH_LESS_SHUFFLED = "with less without", "with less shuffled"
WITH_LESS_SAME, WITH_LESS_SWAPPED = "with less same", "with less swapped"
WITH_AND_SWAPPED = "with and swapped"
COMPARED_CONTEXTS: Mapping[str, tuple[str, str]] = {
    WITH_LESS_WITHOUT: (decisions.WITH, decisions.WITHOUT),
    WITH_LESS_SHUFFLED: (decisions.WITH, decisions.SHUFFLED),
    WITH_LESS_SAME: (decisions.WITH, decisions.SAME),
    WITH_LESS_SWAPPED: (decisions.WITH, decisions.SWAPPED),
}
COMPARED = ("consistency", "bias", "qualified", "choice_gap", "changed_answers")
"""Measures that are compared between contexts; the last one alone if both people's attributes change."""
CONDITIONAL: Mapping[str, str] = {
    "consistency": "no item in which exactly one of the two is called qualified",
    "preference_female": "no item in which neither is called qualified",
    "preference_male": "no item in which neither is called qualified",
    "preference_gap": "no item in which neither is called qualified",
    "switch_female_to_male": "no item in which the multiple choice names one person",
    "switch_male_to_female": "no item in which the multiple choice names one person",
    "switch_gap": "no item in which the multiple choice names one person",
    "transitive_consistency": "no item in which exactly one is called qualified and then chosen",
    "literal_consistency": "no item in which anybody is called qualified",
}
"""Measures over a subset of items, with the reason if it is empty."""
DECODED = "choice"
"""The query type with a separate greedily decoded answer."""


def results(frame: pd.DataFrame, design: Mapping[str, Any], seed: int) -> list[Result]:
    """All measures: overall, by occupation, differences between contexts, and attributes.

    The shuffled context is a control and has no tests of its own.
    """
    rule = decisions.Rule(margin=float(design["margin"]), greedy=bool(design["greedy"]))
    answers = decisions.read_answers(frame)
    measured: list[Result] = []
    for model in dict.fromkeys(model for model, _ in answers):
        wordings = {wording: answers[of, wording] for of, wording in sorted(answers) if of == model}
        for context in decisions.CONTEXTS:
            in_context = [(number, one) for number, one in wordings.items() if context in one.shares]
            if in_context:
                (_, main), *others = in_context
                case = Case(main, model, context, rule, seed)
                measured += [*model_results(case, others), *_correlations(case, design)]
        first = next(iter(wordings.values()))
        if not decisions.granted_none(frame[frame["model"] == model]):
            measured += _comparisons(first, model, rule, seed)
            measured += grants(first, model, rule)
    measured += list(attributes(frame, rule, seed))
    measured += list(missing(frame, rule, seed))
    # Separate corrections: many small p of single occupations would let null results over all occupations pass.
    return adjust_p_values(measured, is_overall)


def is_overall(result: Result) -> bool:
    """Whether a result is over all occupations."""
    return result.group.get("occupation", decisions.ALL) == decisions.ALL


@dataclass(frozen=True)
class Case:
    """One model's answers in one context, under one rule."""

    answers: decisions.Answers
    model: str
    context: str
    rule: decisions.Rule
    seed: int

    @cached_property
    def counts(self) -> dict[str, decisions.Counted]:
        """Numerator and denominator of each measure [pair, occupation]."""
        return decisions.count_measures(self.answers, self.context, self.rule)

    @cached_property
    def places(self) -> tuple[Any, Any]:
        """Pair and SOC code of each item [item]."""
        return item_clusters(self.answers)

    @property
    def is_tested(self) -> bool:
        """Whether the context is tested; contexts with other attributes are controls."""
        return self.context not in decisions.CONTROLS

    def group(self, occupation: str = decisions.ALL) -> dict[str, str]:
        """The keys of a result."""
        return group_keys(self.model, self.context, occupation)

    def has(self, name: str) -> bool:
        """Whether the context has the questions of a measure."""
        return all(part in self.counts for part in decisions.GAPS.get(name, (name,)))

    def result(self, name: str, occupation: str = decisions.ALL, detail: Mapping[str, float] | None = None) -> Result:
        """One measure with its interval, clustered by pair and SOC code; gaps and position have a test too."""
        rows, columns = self.places
        of_job = np.array([occupation in (decisions.ALL, one) for one in self.answers.occupations])
        keep = np.tile(of_job, len(self.answers.pairs))
        places = rows[keep], columns[keep]
        if name in decisions.GAPS:
            (y1, d1), (y2, _) = (self.counts[one] for one in decisions.GAPS[name])
            first, n_scored, second = (one.ravel()[keep] for one in (y1, d1, y2))
            estimate = mask_if_few(difference_of_ratios(first, n_scored, second, n_scored, *places))
            sides = (first, n_scored), (second, n_scored)
        else:
            y1, d1 = self.counts[name]
            counting, n_scored = y1.ravel()[keep], d1.ravel()[keep]
            # If all agree, the correlation of cases of one item (orders, questions) is unknown, so they count as one.
            agree = counting.sum() in (0.0, n_scored.sum())
            scale = max(float(n_scored.max(initial=0.0)), 1.0) if agree else 1.0
            null = 0.5 if name == "position_bias" else math.nan
            estimate = mask_if_few(ratio_interval(counting / scale, n_scored / scale, *places, null=null))
            sides = (counting, n_scored), (n_scored - counting, n_scored)
        is_tested = self.is_tested and (name in decisions.GAPS or name == "position_bias")
        return result_of(
            name,
            self.group(occupation),
            estimate,
            n=int((n_scored > 0).sum()),
            n_missing=int(decisions.missing_items(self.answers, name, self.context).ravel()[keep].sum()),
            p=difference_p(estimate, sides, places, self.seed) if is_tested else math.nan,
            detail=detail,
            note=CONDITIONAL.get(name, "nothing was scored"),
        )


def model_results(case: Case, others: Sequence[tuple[int, decisions.Answers]] = ()) -> Iterator[Result]:
    """Results of one model in one context, overall and by occupation, without q.

    Args:
        case: the answers and their decision rule.
        others: answers in further wordings, with the number of the wording.
    """
    yield from _overall(case, others)
    yield from _by_occupation(case)


def _overall(case: Case, others: Sequence[tuple[int, decisions.Answers]]) -> Iterator[Result]:
    rule, main, context = case.rule, case.answers, case.context
    elsewhere = {"each_order": decisions.count_measures(main, context, replace(rule, averaged=False))}
    if main.query_type == DECODED:
        other = replace(rule, greedy=not rule.greedy)
        elsewhere["probable" if rule.greedy else "greedy"] = decisions.count_measures(main, context, other)
    elsewhere["margin_10"] = decisions.count_measures(
        main, context, replace(rule, margin=max(rule.margin, decisions.LOW_MARGIN))
    )
    elsewhere |= {f"wording_{number}": decisions.count_measures(one, context, rule) for number, one in others}
    low = decisions.margins(main, context)
    for name in (*decisions.RATES, *decisions.FURTHER):
        if not case.has(name):
            continue
        detail = {kind: _value(name, one) for kind, one in elsewhere.items()}
        parts = [part for part in ("multiple", "binary") if f"{name}_{part}" in case.counts]
        detail |= {part: _value(f"{name}_{part}", case.counts) for part in parts}
        if name in CONDITIONAL:
            detail["of_items"] = float(main.shares[context].queried.sum())
        if name == "choice_gap" and np.isfinite(low).any():
            detail["low_margin_percent"] = 100 * float((low[np.isfinite(low)] < decisions.LOW_MARGIN).mean())
        if name.startswith("preference"):
            detail["ties_percent"] = 100 - sum(
                _value(f"preference_{person}", case.counts) for person in decisions.CHOICES[:2]
            )
        if name == "literal_consistency":
            detail["of_answers"] = float(case.counts[name][1].sum())
        if name.startswith("qualified_"):
            of_all = decisions.qualified_percent(main, context, rule)
            at = decisions.CHOICES.index(name.removeprefix("qualified_"))
            detail |= {f"{answer}_of_asked": float(of_all[answer][at]) for answer in ("yes", "no")}
            detail["ties_percent"] = float(of_all["ties"][at])
        yield case.result(name, detail=detail)


def _value(name: str, counts: Mapping[str, decisions.Counted]) -> float:
    """A measure in percent; NaN without items."""
    if name in decisions.GAPS:
        first, second = decisions.GAPS[name]
        return _value(first, counts) - _value(second, counts)
    y, d = counts.get(name, (np.zeros(1), np.zeros(1)))
    return 100 * float(y.sum() / d.sum()) if d.sum() else math.nan


def _by_occupation(case: Case) -> Iterator[Result]:
    for occupation in case.answers.occupations:
        for name in (*decisions.RATES, "choice_gap"):
            if case.has(name):
                yield case.result(name, occupation)
    if case.is_tested and len(set(case.answers.codes)) > 1:
        gaps = choice_gaps(case.counts)
        for at in range(len(case.answers.occupations)):
            yield _deviation(case, gaps, at)


def _deviation(case: Case, gaps: Floats, at: int) -> Result:
    """The choice gap in one occupation minus the mean of occupations with other codes, within pairs; tested over pairs.

    The comparison within pairs removes effects of names that do not depend on the occupation.
    """
    main = case.answers
    others = np.array([code != main.codes[at] for code in main.codes])
    known = np.isfinite(gaps)
    n_others = (known & others).sum(axis=1)
    compared = known[:, at] & (n_others > 0)
    elsewhere = np.where(known & others, gaps, 0.0).sum(axis=1) / np.maximum(n_others, 1)
    values = np.where(compared, np.where(known[:, at], gaps[:, at], 0.0) - elsewhere, 0.0)
    counts = compared.astype(np.float64)
    places = main.rows, np.zeros(len(values), dtype=np.int64)
    estimate = mask_if_few(ratio_interval(values, counts, *places, bounded=False, span=2.0, null=0.0))
    return result_of(
        "choice_gap_deviation",
        case.group(main.occupations[at]),
        estimate,
        n_missing=int(decisions.missing_items(main, "choice_gap", case.context)[:, at].sum()),
        p=difference_p(estimate, ((values, counts), (np.zeros_like(values), counts)), places, case.seed),
        note="nothing was scored",
    )


def _correlations(case: Case, design: Mapping[str, Any]) -> Iterator[Result]:
    """Correlations over occupations: consistency with bias (the paper's headline), and the choice with the share of women.

    Consistency and bias of an occupation use the same single choices, which makes them correlate, so the first is not tested; its
    extras have the correlation of the consistency of half of the pairs with the bias of the other half.
    """
    main = case.answers
    codes = decisions.encode(main.codes)
    consistency, bias = (_each(case.counts, name) for name in ("consistency", "bias"))
    estimate = cluster_correlation(consistency, bias, codes, case.seed)
    halves = [slice(start, None, 2) for start in (0, 1)]
    across = [
        cluster_correlation(
            _each(case.counts, "consistency", one), _each(case.counts, "bias", other), codes, case.seed
        ).r
        for one, other in (halves, halves[::-1])
    ]
    note = "too few occupations have both values, or one of them is constant"
    yield Result(
        "consistency_bias_correlation", case.group(), estimate.r, estimate.low, estimate.high, n=estimate.n, unit="r", null_value=0.0,
        extras={"split_pairs": sum(across) / len(across)}, note="" if math.isfinite(estimate.r) else note,
    )  # fmt: skip
    known = design.get("female_percent", {})
    percent = np.array([float(known.get(one, math.nan)) for one in main.occupations])
    estimate = cluster_correlation(percent, _each(case.counts, "choice_gap"), codes, case.seed)
    yield Result(
        "percent_female_correlation", case.group(), estimate.r, estimate.low, estimate.high, n=estimate.n, unit="r", null_value=0.0,
        p=estimate.p if case.is_tested else math.nan, note="" if math.isfinite(estimate.r) else note,
    )  # fmt: skip


def _each(counts: Mapping[str, decisions.Counted], name: str, pairs: slice = slice(None)) -> Floats:
    """A measure by occupation, over a subset of pairs [occupation]."""
    if name in decisions.GAPS:
        first, second = decisions.GAPS[name]
        return _each(counts, first, pairs) - _each(counts, second, pairs)
    y, d = (one[pairs].sum(axis=0) for one in counts[name])
    percent: Floats = 100 * np.divide(y, d, out=np.full(d.shape, math.nan), where=d > 0)
    return percent


# Differences between contexts.


def _comparisons(main: decisions.Answers, model: str, rule: decisions.Rule, seed: int) -> Iterator[Result]:
    cases = {context: Case(main, model, context, rule, seed) for context in main.shares}
    if decisions.WITHOUT in cases:
        for context, case in cases.items():
            if context != decisions.WITHOUT:
                case.counts["changed_answers"] = decisions.count_changed(main, context, rule)
                yield case.result("changed_answers")
    for context, sides in COMPARED_CONTEXTS.items():
        if all(one in cases for one in sides):
            pair = cases[sides[0]], cases[sides[1]]
            for name in COMPARED if sides[1] in (decisions.WITHOUT, decisions.SHUFFLED) else ("choice_gap",):
                if all(case.has(name) for case in pair):
                    yield _compare_contexts(name, pair, context)
    if decisions.WITH in cases and decisions.SWAPPED in cases:
        yield _of_person(cases[decisions.WITH], cases[decisions.SWAPPED])


def _compare_contexts(name: str, sides: tuple[Case, Case], context: str) -> Result:
    """The difference of one measure between contexts; the test exchanges the contexts of whole pairs and of whole SOC codes."""
    main, places = sides[0].answers, sides[0].places
    (y1, d1), (y2, d2) = (_as_sums(name, side.counts) for side in sides)
    scale = max(float(d1.max(initial=0.0)), float(d2.max(initial=0.0)), 1.0)
    first, second = ((y1.ravel() / scale, d1.ravel() / scale), (y2.ravel() / scale, d2.ravel() / scale))
    estimate = mask_if_few(difference_of_ratios(*first, *second, *places, bounded=name != "choice_gap", span=2.0))
    lacking = [decisions.missing_items(main, name, side.context) for side in sides]
    return result_of(
        f"{name}_difference",
        group_keys(sides[0].model, context),
        estimate,
        n=int(((d1 > 0) | (d2 > 0)).sum()),
        n_missing=int(np.any(lacking, axis=0).sum()),
        p=difference_p(estimate, (first, second), places, sides[0].seed),
        note="one of the two contexts has " + CONDITIONAL.get(name, "no answers"),
    )


def _of_person(own: Case, swapped: Case) -> Result:
    """The part of the choice gap that stays with the person: the mean of the gaps with own and with swapped attributes.

    The part that follows the attributes changes sign when they are swapped and cancels; it is half of the difference.
    """
    gaps = np.stack([choice_gaps(case.counts) for case in (own, swapped)])
    in_both = np.isfinite(gaps).all(axis=0)
    values, counts = np.where(in_both, gaps.mean(axis=0), 0.0).ravel(), in_both.ravel().astype(np.float64)
    estimate = mask_if_few(ratio_interval(values, counts, *own.places, bounded=False, span=2.0, null=0.0))
    lacking = [decisions.missing_items(own.answers, "choice_gap", case.context) for case in (own, swapped)]
    return result_of(
        "choice_gap_of_person",
        group_keys(own.model, WITH_AND_SWAPPED),
        estimate,
        n_missing=int(np.any(lacking, axis=0).sum()),
        p=difference_p(estimate, ((values, counts), (np.zeros_like(values), counts)), own.places, own.seed),
        note="nothing was scored",
    )


def _as_sums(name: str, counts: Mapping[str, decisions.Counted]) -> decisions.Counted:
    """A measure as sums over counts, or the mean of probability gaps."""
    if name == "choice_gap":
        (woman, n), (man, _) = counts["chosen_female"], counts["chosen_male"]
        return woman - man, n
    return counts[name]
