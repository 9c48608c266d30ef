"""Findings on the effect of W: the answer depends on these values, follows their order, or would follow other values too.

docs/concepts.md gives the test behind each statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow.audits.shared.item_limit import few_flips, fewest_hits
from undertow.audits.shared.model_comparison import comparison_findings, is_shared
from undertow.audits.spurious_correlation.word_findings import other_words
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations

ALPHA = 0.05
FACETS = ("model", "challenge", "prompt", "w_name")
OVER_PROMPTS = "_over_prompts"
DRIFTS = ("slope", "slope_gap")
HIGH_AUTOCORRELATION = 0.6
"""From here on a slow wave that neighbouring values share is hard to tell from a trend."""
NOT_TESTED = "No drift is tested."
OTHER_WORDS = "other_words"


@dataclass(frozen=True, slots=True)
class _DriftFacts:
    """Facts about the observations, computed once for all findings.

    Attributes:
        several_models: whether there are several.
        prompts: of each model, challenge and W.
        ends: the first and the last W value of each model, challenge and W.
        n_effects: tests of effects of W, which are corrected together.
    """

    several_models: bool
    prompts: Mapping[tuple[str, ...], Sequence[str]]
    ends: Mapping[tuple[str, ...], tuple[str, str]]
    n_effects: int = 0

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _DriftFacts:
        """What a table of observations holds."""
        facets = {tuple(map(str, levels)): facet for levels, facet in frame.groupby(list(KEYS), sort=False)}
        return cls(
            several_models=frame["model"].nunique() > 1,
            prompts={key: sorted(map(str, facet["prompt"].fillna("").unique())) for key, facet in facets.items()},
            ends={key: ends(facet) for key, facet in facets.items()},
        )


KEYS = ("model", "challenge", "w_name")


def ends(facet: pd.DataFrame) -> tuple[str, str]:
    """The first and the last W value, as they stand on its scale."""
    scored = facet[facet["missing_reason"] == ""] if (facet["missing_reason"] == "").any() else facet
    at = scored["w_value" if "w_value" in scored else "w_index"].to_numpy()
    return str(scored["w"].iloc[at.argmin()]), str(scored["w"].iloc[len(at) - 1 - at[::-1].argmax()])


def decisive_results(results: Sequence[Result]) -> list[Result]:
    """The results that decide what is claimed: of several prompts their average, of an unordered W list the effect of its values."""
    averaged = {_facet(result) for result in results if result.measure.endswith(OVER_PROMPTS)}
    chosen = [result for result in results if result.measure.endswith(OVER_PROMPTS) or _facet(result) not in averaged]
    drifts = [result for result in chosen if result.measure.removesuffix(OVER_PROMPTS) in DRIFTS]
    ordered = {_facet(result) for result in drifts}
    effects = [result for result in chosen if result.measure.removesuffix(OVER_PROMPTS) == "w_effect"]
    return [*drifts, *(result for result in effects if _facet(result) not in ordered)]


def _facet(result: Result) -> tuple[str, ...]:
    return tuple(result.group.get(name, "") for name in KEYS)


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """State every drift, the largest effects first, each with one test that is corrected over the run.

    A model without any answer gets one sentence with the reason.
    """
    silent = _unmeasured_models(observations.frame)
    scored = [result for result in results if result.group.get("model") not in silent]
    claims = [
        *_drift_claims(scored, observations.frame, observations.design),
        *comparison_findings(scored, observations.frame, observations.design, ALPHA),
    ]
    return [
        *sorted(claims, key=lambda finding: (not finding.significant, -finding.strength)),
        *(
            Finding(
                text,
                significant=False,
                strength=0.0,
                results=tuple(one for one in decisive_results(results) if one.group["model"] == model),
                decision_rule="Not tested.",
            )
            for model, text in silent.items()
        ),
    ]


def _unmeasured_models(frame: pd.DataFrame) -> dict[str, str]:
    """Why a model has no number at all, by its name; without models that have some."""
    sentences = {}
    for model, reasons in frame.groupby("model", sort=False)["missing_reason"]:
        if (reasons != "").all():
            counts = reasons.value_counts()
            whys = (
                "; ".join(f"{reason} ({count:,} texts)" for reason, count in counts.items())
                if counts.size > 1
                else counts.index[0]
            )
            sentences[str(model)] = (
                f"{model}: nothing was measured, since none of the {len(reasons):,} texts could be asked: {whys}."
            )
    return sentences


def _drift_claims(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    """A sentence for each result that decides something, each claimed by its own q."""
    facts, by_key = (
        _DriftFacts.of(frame),
        {(result.measure, tuple(result.group.items())): result for result in results},
    )
    decisions = decisive_results(results)
    # Effects are tested along ordered lists, too, where they decide nothing but are corrected with the others.
    effects = [one for one in results if one.measure.removesuffix(OVER_PROMPTS) == "w_effect"]
    n_tests = {
        "drift": sum(math.isfinite(one.p) for one in decisions if _kind(one) == "drift"),
        "effect": sum(math.isfinite(one.q) for one in effects),
    }
    facts = replace(facts, n_effects=n_tests["effect"])
    claims = []
    for result in decisions:
        key, ending = tuple(result.group.items()), OVER_PROMPTS if result.measure.endswith(OVER_PROMPTS) else ""
        beside = {name: by_key.get((f"{name}{ending}", key)) for name in ("w_effect", "pearson_r", "slope_log_odds")}
        other_key = tuple({**result.group, "pronoun": OTHER_WORDS}.items())
        beside["mean_mass"] = by_key.get((f"mean_mass{ending}", other_key))
        one = _DriftReport(result, beside, design, facts)
        text, significant = one.finding_text()
        if significant or (_is_gap(result, design) and math.isfinite(result.p)):
            text = f"{text} {one.other_words()}".rstrip()
        also = tuple(other for other in beside.values() if other is not None and other is not result)
        claims.append(
            Finding(
                one.sentence(text),
                significant=significant,
                strength=one.strength,
                results=(result, *also),
                n_tests=0 if math.isnan(result.p) else n_tests[_kind(result)],
                decision_rule=NOT_TESTED if math.isnan(result.p) else "",
            )
        )
    return claims


def _is_gap(result: Result, design: Mapping[str, Any]) -> bool:
    """Whether the result is a main one: of a pair of groups, or of a group if the design compares no pair."""
    return not design["gaps"] or result.group["pronoun"] in {"-".join(pair) for pair in design["gaps"]}


def _kind(result: Result) -> str:
    return "effect" if result.measure.startswith("w_effect") else "drift"


@dataclass(frozen=True, slots=True)
class _DriftReport:
    """One result and what stands beside it.

    Attributes:
        result: the slope, the slope gap, or the effect of an unordered list.
        beside: further results of the same masses, by measure.
        design: of the run.
        facts: of the observations.
    """

    result: Result
    beside: Mapping[str, Result | None]
    design: Mapping[str, Any]
    facts: _DriftFacts

    @property
    def strength(self) -> float:
        """Along the fitted line, from its first to its last value; of an effect its size."""
        detail = self.result.extras
        size = abs(detail["last"] - detail["first"]) if "last" in detail else abs(self.result.value)
        return size if math.isfinite(size) else 0.0

    @property
    def w(self) -> str:
        return str(self.result.group["w_name"])

    @property
    def span(self) -> str:
        """From where to where, and what the order is, where the values do not say it themselves."""
        first, last = self.facts.ends[_facet(self.result)]
        covariate = self.design.get("covariates", {}).get(self.w, {})
        order = "" if covariate.get("numeric", _numeric(first) and _numeric(last)) else str(covariate.get("order", ""))
        return f"from {first} to {last}" + (f" ({order})" if order else "")

    @property
    def step(self) -> str:
        """What a slope is per."""
        return self.result.unit.rpartition(" per ")[2] or "step"

    def sentence(self, text: str) -> str:
        """With whom it is about, where there are several."""
        group, key = self.result.group, _facet(self.result)
        prompts = [prompt for prompt in self.facts.prompts.get(key, ()) if prompt]
        who = [str(group["model"])] if self.facts.several_models else []
        if self.result.measure.endswith(OVER_PROMPTS):
            who.append(f"mean over prompts {', '.join(prompts)}")
        return f"{', '.join(who)}: {text}" if who else text[:1].upper() + text[1:]

    def other_words(self) -> str:
        """How much of the probability went to other words, beside sentences that decide their answer; "" where not known."""
        by_prompt = self.result.group.get("prompt")
        prompts = self.facts.prompts.get(_facet(self.result), ()) if by_prompt is None else [by_prompt]
        return other_words(self.beside["mean_mass"], self.design, prompts)

    def finding_text(self) -> tuple[str, bool]:
        """Text of the finding, and whether it is significant."""
        result, what = self.result, _what(self.result, self.design)
        if math.isnan(result.value) or math.isnan(result.p):
            if result.value == 0 and result.extras.get("n_clusters", 0) >= 1 and "same at every" in result.note:
                return f"{what} does not move at all with {self.w} {self.span}.", False
            why = result.note or "Too little was scored."
            why = f"{why[:1].lower()}{why[1:]}"
            depends = f"{what} depends on {self.w} ({self.moved}), but no drift can be claimed"
            return f"{depends if self.moved else f'nothing can be claimed of {what} by {self.w}'}: {why}", False
        if _kind(result) == "effect":
            return self._effect(what)
        if result.q < ALPHA:
            return self._drift(what), True
        if "bound_low" in result.extras and result.p == 1.0:
            low, high = (self._points(result.extras[name]) for name in ("bound_low", "bound_high"))
            return (
                f"what the server does not show leaves open whether {what} drifts with {self.w} {self.span}: it moves by {low} to {high} "
                f"points a {self.step}, {self._interval()}."
            ), False
        return self._no_drift(what), False

    def _effect(self, what: str) -> tuple[str, bool]:
        """Of a W list without an order."""
        result = self.result
        numbers = f"{_amount(result.value)} points, {self._interval(signed=False)}; q {_p(result.q)}"
        if result.q < ALPHA:
            return f"{what} depends on {self.w} (standard deviation of its values' effects {numbers}).", True
        n_clusters = int(result.extras.get("n_clusters", 0))
        few = fewest_hits(n_clusters, self.facts.n_effects) > 1
        numbers += f"; {few_flips(n_clusters, self.facts.n_effects, 'the')}" if few else ""
        return (
            f"no effect of {self.w} on {what} can be told from chance (standard deviation of its values' effects {numbers}).",
            False,
        )

    def _drift(self, what: str) -> str:
        result, direction = self.result, "rises" if self.result.value > 0 else "falls"
        other = result.extras.get("values_q", math.nan)
        text = f"with {self.w} {self.span}, {what} {direction} by {_amount(self.strength)} percentage points ({self._numbers()})."
        if other < ALPHA:
            text += f" Other values of {self.w} would show it too (q {_p(other)})."
        elif math.isfinite(other):
            text += f" For other values of {self.w} it is not shown (q {_p(other)})."
        if result.extras.get("autocorrelation", 0.0) >= HIGH_AUTOCORRELATION:
            text += " Neighbouring values share so much that a slow wave could look like this."
        return text

    @property
    def moved(self) -> str:
        """Numbers of the effect of W; "" if it is not significant or not tested."""
        effect = self.beside.get("w_effect")
        if effect is None or not effect.q < ALPHA:
            return ""
        return f"standard deviation of its values' effects {_amount(effect.value)} points, q {_p(effect.q)}"

    def _no_drift(self, what: str) -> str:
        result = self.result
        least = result.extras.get("detectable_slope", math.nan)
        missed = (
            f"; {self._points(least).lstrip('+')} points a {self.step} would have had p < .05 in 8 of 10 such runs"
            if math.isfinite(least)
            else ""
        )
        if self.moved:
            trend = f"a trend {self.span} cannot be told from what neighbouring values share"
            return f"{what} depends on {self.w} ({self.moved}), but {trend} ({self._numbers()}{missed})."
        return f"no drift of {what} with {self.w} {self.span} can be told from chance ({self._numbers()}{missed})."

    def _numbers(self) -> str:
        """Slope, interval, what it is in odds, r and q."""
        result, r, odds = self.result, self.beside.get("pearson_r"), self.beside.get("slope_log_odds")
        parts = [f"{self._points(result.value)} points a {self.step}, {self._interval()}"]
        if odds is not None and math.isfinite(odds.value) and "last" in odds.extras:
            ratio = math.exp(odds.extras["last"] - odds.extras["first"])
            parts.append(f"odds times {_ratio(ratio)} over the whole list")
        if r is not None and math.isfinite(r.value):
            parts.append(f"r {r.value:+z.2f}")
        shared = result.extras.get("autocorrelation", math.nan)
        if math.isfinite(shared):
            parts.append(f"autocorrelation {shared:.2f}")
        return "; ".join([*parts, f"q {_p(result.q)}"])

    def _interval(self, *, signed: bool = True) -> str:
        """The interval at the level that decides: corrected for the number of tests, where there are several."""
        result = self.result
        low, high = (result.extras.get(f"corrected_{end}", getattr(result, end)) for end in ("low", "high"))
        if math.isnan(low):
            return "no interval"
        ends = [self._points(end) if signed else _amount(end) for end in (low, high)]
        name = "corrected interval" if (low, high) != (result.low, result.high) else "95% interval"
        return f"{name} {ends[0]} to {ends[1]}"

    def _points(self, value: float) -> str:
        """With a sign and two significant digits of half the interval."""
        result = self.result
        size = (result.high - result.low) / 2
        size = size if math.isfinite(size) and size > 0 else abs(result.value)
        if not size > 0:
            return f"{value:+.2f}"
        places = max(2, 1 - math.floor(math.log10(size)))
        return f"{value:+.{places}f}" if places <= MAX_PLACES else f"{value:+.1e}"


MAX_PLACES = 5
"""Decimals that a reader can count; smaller numbers are written as powers of ten."""


def _amount(points: float) -> str:
    """Tenths of a point, or two significant digits for smaller values: an effect never reads 0.0."""
    if points >= 0.05 or points == 0 or not math.isfinite(points):
        return f"{points:.1f}"
    places = max(1 - math.floor(math.log10(points)), 2)
    return f"{points:.{places}f}" if places <= MAX_PLACES else f"{points:.1e}"


def _ratio(value: float) -> str:
    """Two significant digits, and as many as tell it from 1."""
    off = abs(value - 1)
    places = -math.floor(math.log10(off)) if off > 0 else 0
    return f"{value:.2g}" if places < 2 or value < 0.1 else f"{value:.{min(places, MAX_PLACES)}f}"


def _what(result: Result, design: Mapping[str, Any]) -> str:
    pronoun = result.group["pronoun"]
    for pair in design["gaps"]:
        if "-".join(pair) == pronoun:
            return f"the lead of {pair[0]} over {pair[1]} words"
    words = design["words"].get(pronoun, [])
    forms = f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""
    mass = "share" if is_shared(design, result.group["model"]) else "probability"
    return f"the {mass} of {pronoun} words{forms}"


def _numeric(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _p(value: float) -> str:
    return "none" if math.isnan(value) else "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")
