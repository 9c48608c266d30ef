"""Findings on the effect of W: dependence on these values, drift with their order, generalisation to other values.

docs/concepts.md gives the test behind each statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.audits.shared.item_limit import few_flips, fewest_hits
from undertow.audits.shared.model_comparison import comparison_findings, is_shared
from undertow.audits.spurious_correlation.word_findings import other_words
from undertow.errors import on_one_line
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.formatting import change_over_list
from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations

FACETS = ("model", "challenge", "prompt", "w_name")
KEYS = ("model", "challenge", "w_name")
DRIFTS = ("slope", "slope_gap")
OTHER_WORDS = "other_words"
INTERACTION = "w_interaction"


def findings(observations: Observations, results: Sequence[Result], texts: pd.DataFrame) -> list[Finding]:
    """State every drift, the largest effects first; each has one test that is corrected over the run.

    A model without any answer gets one sentence with the reason.

    Args:
        observations: with the rows of crossed lists once more for either list.
        results: of the run.
        texts: the rows once, to count texts.
    """
    frame, design = observations.frame, observations.design
    words = sentences("drift")
    reasons = {str(model): rows for model, rows in texts.groupby("model", sort=False)["missing_reason"]}
    silent = {model: rows for model, rows in reasons.items() if (rows != "").all()}
    scored = [result for result in results if result.group.get("model") not in silent]
    claims = [
        *_drift_claims(scored, frame, design),
        *_interaction_claims(scored, frame, design),
        *comparison_findings(scored, frame, design),
    ]
    claims.sort(key=lambda finding: (not finding.significant, -finding.strength))
    for model, rows in silent.items():
        text = words.unmeasured(model, len(rows), dict(rows.value_counts()))
        own = tuple(one for one in decisive_results(results) if one.group["model"] == model)
        claims.append(Finding(text, False, 0.0, results=own, decision_rule=words.not_tested))
    return claims


def decisive_results(results: Sequence[Result]) -> list[Result]:
    """Results that decide claims: averages over prompts if there are several, and effects of values for unordered W lists."""
    averaged = {_facet(result) for result in results if result.measure.endswith(OVER_PROMPTS)}
    chosen = [result for result in results if result.measure.endswith(OVER_PROMPTS) or _facet(result) not in averaged]
    drifts = [result for result in chosen if result.measure.removesuffix(OVER_PROMPTS) in DRIFTS]
    ordered = {_facet(result) for result in drifts}
    effects = [result for result in chosen if _is_effect(result) and _facet(result) not in ordered]
    return [*drifts, *effects]


def _facet(result: Result) -> tuple[str, ...]:
    return tuple(result.group.get(name, "") for name in KEYS)


def _is_effect(result: Result) -> bool:
    return result.measure.removesuffix(OVER_PROMPTS) == "w_effect"


def ends(facet: pd.DataFrame) -> tuple[str, str]:
    """The first and the last W value on its scale."""
    scored = facet[facet["missing_reason"] == ""] if (facet["missing_reason"] == "").any() else facet
    at = scored["w_value" if "w_value" in scored else "w_index"].to_numpy()
    return str(scored["w"].iloc[at.argmin()]), str(scored["w"].iloc[len(at) - 1 - at[::-1].argmax()])


def _drift_claims(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    facets = {tuple(map(str, levels)): facet for levels, facet in frame.groupby(list(KEYS), sort=False)}
    by_key = {(result.measure, tuple(result.group.items())): result for result in results}
    decisions = decisive_results(results)
    n_drifts = sum(math.isfinite(one.p) for one in decisions if not _is_effect(one))
    # Effects are also tested along ordered lists: they decide no claim there but enter the correction.
    n_effects = sum(math.isfinite(one.q) for one in results if _is_effect(one))

    def beside(result: Result, measure: str, **group: str) -> Result | None:
        ending = OVER_PROMPTS if result.measure.endswith(OVER_PROMPTS) else ""
        return by_key.get((f"{measure}{ending}", tuple({**result.group, **group}.items())))

    drifts: dict[tuple[str, ...], list[Drift]] = {}
    for result in decisions:
        others = [beside(result, measure) for measure in ("slope_log_odds", "pearson_r", "w_effect")]
        drift = Drift(result, [one for one in others if one is not None and one is not result], design)
        drifts.setdefault(_facet(result), []).append(drift)
    claims = []
    for key, own in drifts.items():
        n_tests = n_effects if _is_effect(own[0].result) else n_drifts
        other_mass = beside(own[0].result, "mean_mass", pronoun=OTHER_WORDS)
        claims.append(DriftFinding(own, design, facets[key], other_mass, frame["model"].nunique() > 1).finding(n_tests))
    return claims


def _interaction_claims(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    """A finding on the interaction of two crossed W lists for each model and list, averaged over prompts."""
    interactions = [one for one in results if one.measure.removesuffix(OVER_PROMPTS) == INTERACTION]
    averaged = {_facet(one) for one in interactions if one.measure.endswith(OVER_PROMPTS)}
    decisive = [one for one in interactions if one.measure.endswith(OVER_PROMPTS) or _facet(one) not in averaged]
    slopes = {(one.measure, tuple(one.group.items())): one for one in results if "interaction_slope" in one.measure}
    facets = {tuple(map(str, levels)): facet for levels, facet in frame.groupby(list(KEYS), sort=False)}
    n_tests = sum(math.isfinite(one.q) for one in decisive)
    drifts: dict[tuple[str, ...], list[Drift]] = {}
    for result in decisive:
        measure = result.measure.replace(INTERACTION, "interaction_slope")
        slope = slopes.get((measure, tuple(result.group.items())))
        drifts.setdefault(_facet(result), []).append(Drift(result, [slope] if slope else [], design))
    words, claims = sentences("drift"), []
    for key, own in drifts.items():
        of = DriftFinding(own, design, facets[key], None, frame["model"].nunique() > 1)
        first, second = (part["name"] for part in design["covariates"][of.w]["parts"])
        known = of.of_state("moved") or own
        leading = next((one for one in known if one.pair), known[0])
        ordered = [leading, *(one for one in own if one is not leading)]
        tested = math.isfinite(leading.result.p)
        claims.append(
            Finding(
                words.interaction(of, first, second),
                significant=bool(of.of_state("moved")),
                strength=max(one.strength for one in known),
                results=tuple(result for one in ordered for result in (one.result, *one.beside)),
                n_tests=n_tests if tested else 0,
                decision_rule="" if tested else words.not_tested,
                detail=words.interaction_detail(of, first, second),
            )
        )
    return claims


@dataclass(frozen=True, slots=True)
class Drift:
    """A slope, a slope gap, or the effect of an unordered list.

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
        if math.isnan(result.value) or math.isnan(result.p):
            is_constant = (
                result.value == 0 and result.extras.get("n_clusters", 0) >= 1 and "same at every" in result.note
            )
            return "constant" if is_constant else "untested"
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
    def depends(self) -> bool:
        """Whether the answers depend on W, regardless of order."""
        return any(_is_effect(one) and one.q < ALPHA for one in self.beside)


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """The finding on one model along one W list, with all word groups."""

    drifts: Sequence[Drift]
    design: Mapping[str, Any]
    facet: pd.DataFrame
    other_mass: Result | None
    several_models: bool

    def finding(self, n_tests: int) -> Finding:
        """The finding; its first result decides."""
        words, moved = sentences("drift"), self.of_state("moved")
        known = moved or [one for one in self.drifts if one.state in ("flat", "open")] or list(self.drifts)
        # A gap is the most informative result.
        decisive = next((one for one in known if one.pair), known[0])
        ordered = [decisive, *(one for one in self.drifts if one is not decisive)]
        results = [one.result for one in ordered] + [one for drift in ordered for one in drift.beside]
        tested = not math.isnan(decisive.result.p)
        return Finding(
            words.finding(self),
            significant=bool(moved),
            strength=max(one.strength for one in known),
            results=(*results, *([self.other_mass] if self.other_mass else [])),
            n_tests=n_tests if tested else 0,
            decision_rule="" if tested else words.no_drift_tested,
            detail=words.detail(self, decisive, n_tests),
        )

    def of_state(self, state: str) -> list[Drift]:
        """The groups in this state, the largest change first, gaps last."""
        own = [one for one in self.drifts if one.state == state]
        return sorted(own, key=lambda one: (bool(one.pair), -one.strength if state == "moved" else 0.0))

    @property
    def is_ordered(self) -> bool:
        """Whether the list has an order that a line can follow."""
        return not _is_effect(self.drifts[0].result)

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
        is_numeric = covariate.get("numeric", _is_number(first) and _is_number(last))
        order = "" if is_numeric else covariate.get("order", "")
        return on_one_line(f"from {first} to {last}" + (f" ({order})" if order else ""))

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


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
