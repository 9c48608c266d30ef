"""Findings on the effect of W: dependence on these values, drift with their order, generalisation to other values.

docs/concepts.md gives the test behind each statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.audits.shared.item_limit import few_flips, fewest_hits
from undertow.audits.shared.model_comparison import is_shared
from undertow.audits.spurious_correlation.word_findings import other_words
from undertow.data.text_files import number_between
from undertow.errors import on_one_line
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.formatting import change_over_list
from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations

KEYS = ("model", "challenge", "w_name")
DRIFTS, EFFECT, INTERACTION = ("slope", "slope_gap"), "w_effect", "w_interaction"
BESIDE = {INTERACTION: ("interaction_slope",)} | dict.fromkeys(
    (*DRIFTS, EFFECT), ("slope_log_odds", "pearson_r", EFFECT)
)
"""Further results of the same words for each measure that decides."""
OTHER_WORDS = "other_words"
ALL_PROMPTS = f"slope_gap{OVER_PROMPTS}"
"""The slope gap of the masses averaged over prompts."""
TIE = 1e-9
"""Relative difference below which changes are equal."""


def findings(observations: Observations, results: Sequence[Result], texts: pd.DataFrame) -> list[Finding]:
    """State every drift, the largest effects first; each has one test that is corrected over the run.

    A model without any answer gets one sentence with the reason.

    `observations` repeats the rows of crossed lists for either list; `texts` has them once.
    """
    frame, design, words = observations.frame, observations.design, sentences("drift")
    reasons = {str(model): rows for model, rows in texts.groupby("model", sort=False)["missing_reason"]}
    silent = {model: rows for model, rows in reasons.items() if (rows != "").all()}
    scored = [result for result in results if result.group.get("model") not in silent]
    decisive = decisive_results(scored)
    by_key = {(result.measure, tuple(result.group.items())): result for result in scored}
    # Effects are also tested along ordered lists: they decide no claim there but enter the correction.
    n_effects = sum(math.isfinite(one.q) for one in scored if _measure(one) == EFFECT)
    n_interactions = sum(math.isfinite(one.q) for one in decisive if _measure(one) == INTERACTION)
    n_drifts = sum(math.isfinite(one.p) for one in decisive if _measure(one) in DRIFTS)
    n_tests = dict.fromkeys(DRIFTS, n_drifts) | {EFFECT: n_effects, INTERACTION: n_interactions}

    def beside(result: Result, measure: str, **group: str) -> Result | None:
        ending = OVER_PROMPTS if result.measure.endswith(OVER_PROMPTS) else ""
        return by_key.get((f"{measure}{ending}", tuple({**result.group, **group}.items())))

    by_list: dict[tuple[bool | str, ...], list[Drift]] = {}
    for result in decisive:
        others = [beside(result, measure) for measure in BESIDE[_measure(result)]]
        drift = Drift(result, [one for one in others if one is not None and one is not result], design)
        by_list.setdefault((_measure(result) == INTERACTION, *_facet(result)), []).append(drift)
    facets = {tuple(map(str, levels)): facet for levels, facet in frame.groupby(list(KEYS), sort=False)}
    claims = []
    for (is_interaction, *key), drifts in by_list.items():
        first = drifts[0].result
        other_mass = None if is_interaction else beside(first, "mean_mass", pronoun=OTHER_WORDS)
        of = DriftFinding(drifts, design, facets[tuple(map(str, key))], other_mass, frame["model"].nunique() > 1)
        claims.append(of.finding(n_tests[_measure(first)]))
    claims += comparison_findings(scored, frame, design)
    claims.sort(key=lambda finding: (not finding.significant, -finding.strength))
    for model, rows in silent.items():
        text = words.unmeasured(model, len(rows), dict(rows.value_counts()))
        of_model = [one for one in decisive_results(results) if one.group["model"] == model]
        own = tuple(one for one in of_model if _measure(one) != INTERACTION)
        claims.append(Finding(text, False, 0.0, results=own, decision_rule=words.not_tested))
    return claims


def decisive_results(results: Sequence[Result]) -> list[Result]:
    """Results that decide claims: averages over prompts if there are several, and effects of values for unordered W lists."""
    averaged = {_facet(result) for result in results if result.measure.endswith(OVER_PROMPTS)}
    chosen = [result for result in results if result.measure.endswith(OVER_PROMPTS) or _facet(result) not in averaged]
    drifts = [result for result in chosen if _measure(result) in DRIFTS]
    ordered = {_facet(result) for result in drifts}
    effects = [result for result in chosen if _measure(result) == EFFECT and _facet(result) not in ordered]
    return [*drifts, *effects, *(result for result in chosen if _measure(result) == INTERACTION)]


def _facet(result: Result) -> tuple[str, ...]:
    return tuple(result.group.get(name, "") for name in KEYS)


def _measure(result: Result) -> str:
    return result.measure.removesuffix(OVER_PROMPTS)


def _axis(facet: pd.DataFrame) -> tuple[Any, pd.Series[Any]]:
    """W of each scored row, or of all rows if none is scored: its place on the scale [row], and its value."""
    scored = facet[facet["missing_reason"] == ""] if (facet["missing_reason"] == "").any() else facet
    return scored["w_value" if "w_value" in scored else "w_index"].to_numpy(), scored["w"]


def ends(facet: pd.DataFrame) -> tuple[str, str]:
    """The first and the last W value on its scale."""
    at, names = _axis(facet)
    return str(names.iloc[at.argmin()]), str(names.iloc[len(at) - 1 - at[::-1].argmax()])


@dataclass(frozen=True, slots=True)
class Drift:
    """A slope, a slope gap, the effect of an unordered list, or an interaction.

    Attributes:
        beside: further results of the same words: log-odds slope, correlation, effect of W.
    """

    result: Result
    beside: Sequence[Result]
    design: Mapping[str, Any]

    @property
    def state(self) -> str:
        """`moved`, `flat`, `constant`, `open` (a server hides too much probability), or `untested`."""
        result = self.result
        hidden = result.extras.get("bound_high", 0.0) - result.extras.get("bound_low", 0.0)
        if result.value == 0 and hidden > 0:  # equal midpoints
            return "open"
        if math.isnan(result.value) or math.isnan(result.p):
            is_constant = result.value == 0 and "same at every" in result.note
            return "constant" if is_constant and result.extras.get("n_clusters", 0) >= 1 else "untested"
        if result.q < ALPHA:
            return "moved"
        return "open" if "bound_low" in result.extras and result.p == 1.0 else "flat"

    @property
    def pair(self) -> Sequence[str]:
        """The two groups that are compared; () for one group."""
        return next((pair for pair in self.design["gaps"] if "-".join(pair) == self.result.group["pronoun"]), ())

    @property
    def of(self) -> str:
        """The word group, with its words if they are few."""
        group = self.result.group["pronoun"]
        words = self.design["words"].get(group, [])
        return on_one_line(f"{group} words" + (f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""))

    @property
    def mass(self) -> str:
        """Name of the measured quantity: share or probability."""
        return "share" if is_shared(self.design, self.result.group["model"]) else "probability"

    @property
    def strength(self) -> float:
        """Change along the fitted line from the first to the last value, or the size of an effect."""
        return change_over_list(self.result)

    @property
    def detectable(self) -> float:
        """Smallest change over the whole list that such a run detects in 8 of 10 cases; NaN if unknown."""
        slope = self.result.extras.get("detectable_slope", math.nan)
        return slope * self.strength / abs(self.result.value) if self.result.value else math.nan

    @property
    def largest_possible(self) -> float:
        """Largest steady change in percentage points: a share ends at 0 and 100, a lead of one over another at -100 and 100."""
        return 200.0 if self.pair else 100.0

    @property
    def depends(self) -> bool:
        """Whether the answers depend on W, regardless of order."""
        return any(_measure(one) == EFFECT and one.q < ALPHA for one in self.beside)


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """The finding on one model along one W list, or two crossed ones, with all word groups."""

    drifts: Sequence[Drift]
    design: Mapping[str, Any]
    facet: pd.DataFrame
    other_mass: Result | None
    several_models: bool

    def finding(self, n_tests: int) -> Finding:
        """The finding; its first result decides."""
        words, moved, drifts = sentences("drift"), self.of_state("moved"), list(self.drifts)
        is_interaction = _measure(drifts[0].result) == INTERACTION  # of two crossed lists
        parts = [part["name"] for part in self.design["covariates"][self.w]["parts"]] if is_interaction else []
        tested = drifts if parts else [one for one in drifts if one.state in ("flat", "open")]
        known = moved or tested or drifts
        # A gap is the most informative result.
        decisive = next((one for one in known if one.pair), known[0])
        ordered = [decisive, *(one for one in drifts if one is not decisive)]
        results = [one.result for one in ordered] + [one for drift in ordered for one in drift.beside]
        if parts:
            results = [result for one in ordered for result in (one.result, *one.beside)]
        is_tested = not math.isnan(decisive.result.p)
        return Finding(
            words.interaction(self, *parts) if parts else words.finding(self),
            significant=bool(moved),
            strength=max(one.strength for one in known),
            results=(*results, *([self.other_mass] if self.other_mass else [])),
            n_tests=n_tests if is_tested else 0,
            decision_rule="" if is_tested else words.not_tested if parts else words.no_drift_tested,
            detail=words.interaction_detail(self, *parts) if parts else words.detail(self, decisive, n_tests),
        )

    def of_state(self, state: str) -> list[Drift]:
        """The groups in this state, the largest change first, gaps last."""
        own = [one for one in self.drifts if one.state == state]
        return sorted(own, key=lambda one: (bool(one.pair), -one.strength if state == "moved" else 0.0))

    @property
    def is_ordered(self) -> bool:
        """Whether the list has an order that a line can follow."""
        return _measure(self.drifts[0].result) != EFFECT

    @property
    def reasons(self) -> dict[str, list[Drift]]:
        """Untested groups by reason."""
        untested: dict[str, list[Drift]] = {}
        for one in self.of_state("untested"):
            untested.setdefault(one.result.note or "Too little was scored.", []).append(one)
        return untested

    @property
    def prompts(self) -> list[str]:
        """The prompts of its model, challenge and W; "" for none."""
        return sorted(map(str, self.facet["prompt"].fillna("").unique()))

    @property
    def who(self) -> str:
        """Model, challenge and prompts, as far as the run has several."""
        first = self.drifts[0].result
        who = [str(first.group["model"])] if self.several_models else []
        if first.measure.endswith(OVER_PROMPTS):
            who.append(f"mean over prompts {', '.join(filter(None, self.prompts))}")
        return ", ".join(who)

    @property
    def w(self) -> str:
        """The W list, on one line: a template's lines are sentences."""
        return on_one_line(str(self.drifts[0].result.group["w_name"]))

    @property
    def span(self) -> str:
        """First and last value, with the order if the values do not show it."""
        first, last = ends(self.facet)
        covariate = self.design.get("covariates", {}).get(self.drifts[0].result.group["w_name"], {})
        is_numeric = all(math.isfinite(number_between(-math.inf, math.inf, end)) for end in (first, last))
        order = "" if is_numeric else covariate.get("order", "")
        return on_one_line(f"from {first} to {last}" + (f" ({order})" if order else ""))

    @property
    def bunched(self) -> float:
        """`gap_ratio` of W values that are too bunched for a claim about other values; 0 for others."""
        from undertow.stats.regression.trend import MAX_GAP_RATIO, gap_ratio

        ratio = gap_ratio(_axis(self.facet)[0])
        return ratio if ratio > MAX_GAP_RATIO else 0.0

    @property
    def adjusted(self) -> str:
        """Sentence on means that are adjusted because values are missing; "" for plain means."""
        from undertow.metrics.drift.covariate_association import ADJUSTED

        return ADJUSTED if any(ADJUSTED in one.result.note for one in self.drifts if one.state != "untested") else ""

    @property
    def other_words(self) -> str:
        """Sentence on the mass on other words."""
        by_prompt = self.drifts[0].result.group.get("prompt")
        return other_words(self.other_mass, self.design, self.prompts if by_prompt is None else [by_prompt])

    def is_few(self, drift: Drift, n_tests: int) -> str:
        """Reason why sentences are too few to detect an effect of an unordered list; "" if they suffice."""
        n_clusters = int(drift.result.extras.get("n_clusters", 0))
        is_few = drift.state == "flat" and not self.is_ordered and fewest_hits(n_clusters, n_tests) > 1
        return few_flips(n_clusters, n_tests, "the") if is_few else ""


def comparison_findings(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    """One finding for each challenge, W and pair of groups with several models: the largest and the smallest drift.

    With several prompts, a model's value is their average, as in the figure.
    """
    if frame["model"].nunique() < 2:
        return []
    words, claims = sentences("drift"), []
    by_pair = gaps_by_pair(results)
    n_challenges = len({challenge for challenge, _, _ in by_pair})
    for (challenge, w_name, pair), models in by_pair.items():
        known = [[one for one in gaps if not math.isnan(one.value)] for gaps in models.values()]
        ranked = sorted((gaps[0] for gaps in known if gaps), key=change_over_list, reverse=True)
        # A model without a test is not compared with those that have one; one that never moves needs none.
        n_models, ranked = len(models), list(filter(_is_comparable, ranked)) or ranked
        if len(ranked) > 1:
            n_claimed = sum(gap.q < ALPHA for gap in ranked)
            over_prompts = any(gap.measure == ALL_PROMPTS for gap in ranked)
            changes = list(map(change_over_list, ranked))
            most, least = (
                [gap for gap, change in zip(ranked, changes, strict=True) if abs(change - end) <= TIE * end]
                for end in (changes[0], changes[-1])
            )
            lead = next((one for one in design.get("gaps", []) if "-".join(one) == pair), None)
            what = f"the lead of {lead[0]} over {lead[1]} words" if lead else pair
            what += f" ({challenge})" if n_challenges > 1 else ""
            text = words.models(what, w_name, ranked, over_prompts, n_claimed, (most, least), n_models - len(ranked))
            claims.append(
                Finding(
                    text, n_claimed > 0, 1000.0 + changes[0], results=tuple(ranked), decision_rule=words.models_rule
                )
            )
    return claims


def _is_comparable(gap: Result) -> bool:
    from undertow.metrics.drift.covariate_association import FLAT, why_few

    sizes = (int(gap.extras.get(name, 0)) for name in ("n_clusters", "n_w"))
    return math.isfinite(gap.p) or (FLAT in gap.note and not why_few(*sizes))


def gaps_by_pair(results: Sequence[Result]) -> dict[tuple[str, str, str], dict[str, list[Result]]]:
    """Slope gaps of each model by challenge, W and pair of groups, the average over prompts first."""
    by_pair: dict[tuple[str, str, str], dict[str, list[Result]]] = {}
    for result in results:
        if result.measure in ("slope_gap", ALL_PROMPTS):
            key = result.group["challenge"], result.group["w_name"], result.group["pronoun"]
            gaps = by_pair.setdefault(key, {}).setdefault(result.group["model"], [])
            gaps.insert(0 if result.measure == ALL_PROMPTS else len(gaps), result)
    return by_pair
