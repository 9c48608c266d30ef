"""Findings on the effect of W: the answer depends on these values, follows their order, or would follow other values too.

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
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.formatting import significant_decimals
from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations

FACETS = ("model", "challenge", "prompt", "w_name")
KEYS = ("model", "challenge", "w_name")
DRIFTS = ("slope", "slope_gap")
HIGH_AUTOCORRELATION = 0.6
"""From here on a slow wave that neighbouring values share is hard to tell from a trend."""
OTHER_WORDS = "other_words"


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """State every drift, the largest effects first, each with one test that is corrected over the run.

    A model without any answer gets one sentence with the reason.
    """
    frame, design = observations.frame, observations.design
    words = sentences("drift")
    reasons = {str(model): rows for model, rows in frame.groupby("model", sort=False)["missing_reason"]}
    silent = {model: rows for model, rows in reasons.items() if (rows != "").all()}
    scored = [result for result in results if result.group.get("model") not in silent]
    claims = [*_drift_claims(scored, frame, design), *comparison_findings(scored, frame, design)]
    claims.sort(key=lambda finding: (not finding.significant, -finding.strength))
    for model, rows in silent.items():
        text = words.unmeasured(model, len(rows), dict(rows.value_counts()))
        own = tuple(one for one in decisive_results(results) if one.group["model"] == model)
        claims.append(Finding(text, False, 0.0, results=own, decision_rule=words.not_tested))
    return claims


def decisive_results(results: Sequence[Result]) -> list[Result]:
    """The results that decide what is claimed: of several prompts their average, of an unordered W list the effect of its values."""
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
    """The first and the last W value, as they stand on its scale."""
    scored = facet[facet["missing_reason"] == ""] if (facet["missing_reason"] == "").any() else facet
    at = scored["w_value" if "w_value" in scored else "w_index"].to_numpy()
    return str(scored["w"].iloc[at.argmin()]), str(scored["w"].iloc[len(at) - 1 - at[::-1].argmax()])


def _drift_claims(results: Sequence[Result], frame: pd.DataFrame, design: Mapping[str, Any]) -> list[Finding]:
    facets = {tuple(map(str, levels)): facet for levels, facet in frame.groupby(list(KEYS), sort=False)}
    by_key = {(result.measure, tuple(result.group.items())): result for result in results}
    decisions = decisive_results(results)
    n_drifts = sum(math.isfinite(one.p) for one in decisions if not _is_effect(one))
    # Effects are tested along ordered lists, too, where they decide nothing but are corrected with the others.
    n_effects = sum(math.isfinite(one.q) for one in results if _is_effect(one))
    claims = []
    for result in decisions:
        ending = OVER_PROMPTS if result.measure.endswith(OVER_PROMPTS) else ""
        key, other_key = (tuple(one.items()) for one in (result.group, {**result.group, "pronoun": OTHER_WORDS}))
        beside = {name: by_key.get((f"{name}{ending}", key)) for name in ("w_effect", "pearson_r", "slope_log_odds")}
        beside["mean_mass"] = by_key.get((f"mean_mass{ending}", other_key))
        n_tests = n_effects if _is_effect(result) else n_drifts
        drift = Drift(result, beside, design, facets[_facet(result)], frame["model"].nunique() > 1, n_tests)
        claims.append(drift.finding())
    return claims


@dataclass(frozen=True, slots=True)
class Drift:
    """A slope, a slope gap, or the effect of an unordered list, with what its sentence says beside it."""

    result: Result
    beside: Mapping[str, Result | None]
    design: Mapping[str, Any]
    facet: pd.DataFrame
    several_models: bool
    n_tests: int

    def finding(self) -> Finding:
        """The finding."""
        words, tested = sentences("drift"), not math.isnan(self.result.p)
        significant = tested and self.result.q < ALPHA
        text = self._text(words)
        if significant or (self._is_main and tested):
            text = f"{text} {self._other_words()}".rstrip()
        also = (one for one in self.beside.values() if one is not None and one is not self.result)
        return Finding(
            words.sentence(self, text),
            significant=significant,
            strength=self.strength,
            results=(self.result, *also),
            n_tests=self.n_tests if tested else 0,
            decision_rule="" if tested else words.no_drift_tested,
        )

    def _text(self, words: Any) -> str:
        """Text of the finding; `words` has the macros."""
        result, extras = self.result, self.result.extras
        if math.isnan(result.value) or math.isnan(result.p):
            if result.value == 0 and extras.get("n_clusters", 0) >= 1 and "same at every" in result.note:
                return str(words.constant(self))
            return str(words.untested(self, result.note or "Too little was scored."))
        if _is_effect(result):
            n_clusters = int(extras.get("n_clusters", 0))
            is_few = result.q >= ALPHA and fewest_hits(n_clusters, self.n_tests) > 1
            return str(words.effect(self, few_flips(n_clusters, self.n_tests, "the") if is_few else ""))
        if result.q < ALPHA:
            is_wave = extras.get("autocorrelation", 0.0) >= HIGH_AUTOCORRELATION
            return str(words.drift(self, extras.get("values_q", math.nan), is_wave))
        if "bound_low" in extras and result.p == 1.0:
            return str(words.open(self, extras["bound_low"], extras["bound_high"]))
        return str(words.no_drift(self, extras.get("detectable_slope", math.nan)))

    @property
    def _is_main(self) -> bool:
        """Whether the result is of a pair of groups, or of a group if the design compares no pair."""
        gaps = self.design["gaps"]
        return not gaps or self.result.group["pronoun"] in {"-".join(pair) for pair in gaps}

    @property
    def prompts(self) -> list[str]:
        """The prompts of its model, challenge and W; "" for none."""
        return sorted(map(str, self.facet["prompt"].fillna("").unique()))

    def _other_words(self) -> str:
        by_prompt = self.result.group.get("prompt")
        return other_words(self.beside["mean_mass"], self.design, self.prompts if by_prompt is None else [by_prompt])

    # What the sentence says.

    @property
    def who(self) -> str:
        """With whom it is about, where there are several."""
        who = [str(self.result.group["model"])] if self.several_models else []
        if self.result.measure.endswith(OVER_PROMPTS):
            who.append(f"mean over prompts {', '.join(filter(None, self.prompts))}")
        return ", ".join(who)

    @property
    def what(self) -> str:
        """What drifts."""
        group = self.result.group["pronoun"]
        for pair in self.design["gaps"]:
            if "-".join(pair) == group:
                return f"the lead of {pair[0]} over {pair[1]} words"
        words = self.design["words"].get(group, [])
        forms = f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""
        mass = "share" if is_shared(self.design, self.result.group["model"]) else "probability"
        return f"the {mass} of {group} words{forms}"

    @property
    def w(self) -> str:
        """The W list."""
        return str(self.result.group["w_name"])

    @property
    def span(self) -> str:
        """From where to where, and what the order is, where the values do not say it themselves."""
        first, last = ends(self.facet)
        covariate = self.design.get("covariates", {}).get(self.w, {})
        is_numeric = covariate.get("numeric", _is_number(first) and _is_number(last))
        order = "" if is_numeric else covariate.get("order", "")
        return f"from {first} to {last}" + (f" ({order})" if order else "")

    @property
    def step(self) -> str:
        """What a slope is per."""
        return self.result.unit.rpartition(" per ")[2] or "step"

    @property
    def strength(self) -> float:
        """Along the fitted line, from its first to its last value; of an effect its size."""
        extras = self.result.extras
        size = abs(extras["last"] - extras["first"]) if "last" in extras else abs(self.result.value)
        return size if math.isfinite(size) else 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The interval at the level that decides: corrected for the number of tests, where there are several."""
        result = self.result
        return result.extras.get("corrected_low", result.low), result.extras.get("corrected_high", result.high)

    @property
    def is_corrected(self) -> bool:
        """Whether that interval is corrected."""
        return self.ends != (self.result.low, self.result.high)

    @property
    def decimals(self) -> int:
        """Decimals of the slope and its interval: two significant digits of half the interval."""
        half = (self.result.high - self.result.low) / 2
        return max(2, significant_decimals(half if math.isfinite(half) and half > 0 else self.result.value))

    @property
    def effect(self) -> Result | None:
        """The effect of W, if it is significant."""
        effect = self.beside["w_effect"]
        return effect if effect is not None and effect.q < ALPHA else None

    @property
    def r(self) -> float:
        """Pearson's r; NaN where it is not known."""
        r = self.beside["pearson_r"]
        return math.nan if r is None else r.value

    @property
    def odds(self) -> float:
        """Factor of the odds over the whole list; NaN where it is not known."""
        odds = self.beside["slope_log_odds"]
        if odds is None or not math.isfinite(odds.value) or "last" not in odds.extras:
            return math.nan
        return math.exp(odds.extras["last"] - odds.extras["first"])

    @property
    def autocorrelation(self) -> float:
        """What neighbouring values share; NaN where it is not known."""
        return self.result.extras.get("autocorrelation", math.nan)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
