"""Scores of the sentences of task specification, and findings: how well each score separates the two kinds of sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.task_specification.items import DETECT, TRACE
from undertow.errors import on_one_line
from undertow.report.sentence_templates import sentences
from undertow.types import ALPHA, Finding, Result

if TYPE_CHECKING:
    import pandas as pd

COMBINED, BASELINES = "combined", ("entropy", "total_variation")
_DETECTOR_KEYS = ("model", "set", "prompt", "w_name")


def score_sentences(observations: Observations) -> pd.DataFrame:
    """One row for each sentence with its scores; see `undertow.metrics.sentence_scores`."""
    from undertow.metrics.sentence_scores import sentence_scores
    from undertow.metrics.specification_detection import with_combined

    frame, groups = observations.frame, observations.design["groups"]
    scores = sentence_scores(frame[frame["part"] != TRACE], groups, int(observations.design["endpoint_window"]))
    return with_combined(scores, groups)


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """State the detection of each model and set, compared with plain entropy."""
    by_detector: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for result in results:
        key = tuple((name, result.group[name]) for name in _DETECTOR_KEYS if name in result.group)
        by_detector.setdefault(key, []).append(result)
    n_tests = sum(math.isfinite(result.q) for result in results)
    detectors = [Detector(observations, dict(key), own, n_tests) for key, own in by_detector.items()]
    claims = [finding for one in detectors for finding in one.findings()]
    return sorted(claims, key=lambda finding: (not finding.significant, -finding.strength))


@dataclass(frozen=True, slots=True)
class Detector:
    """A model on a set, with prompt and W if there are several."""

    observations: Observations
    group: Mapping[str, str]
    results: Sequence[Result]
    n_tests: int

    @property
    def who(self) -> str:
        """Beginning of sentences about it; "" for a single detector."""
        frame = self.observations.frame
        several = [key for key, column in (("model", "model"), ("set", "challenge")) if frame[column].nunique() > 1]
        keys = [*several, *(key for key in ("prompt", "w_name") if key in self.group)]
        return on_one_line(", ".join(self.group[key] for key in keys))  # a template's lines are sentences

    @property
    def lead(self) -> str:
        """The first word group, whose movement is reported."""
        return str(self.observations.design["groups"][0])

    @property
    def lead_name(self) -> str:
        """The name of `lead` for sentences."""
        return on_one_line(self.lead)

    @property
    def between(self) -> str:
        """The ends of the W list."""
        frame = self.observations.frame
        rows = frame[(frame["part"] == DETECT) & (frame["w_name"] == self.group.get("w_name", frame["w_name"].iloc[0]))]
        first, last = (str(rows.loc[at, "w"]) for at in (rows["w_index"].idxmin(), rows["w_index"].idxmax()))
        if (first, last) == ("first", "last"):
            return "the first and the last value of W"
        return on_one_line(f"{first} and {last}")

    @property
    def clusters(self) -> str:
        """Name of the clusters of sentences."""
        from undertow.metrics.score_table import cluster_noun

        return cluster_noun(self.observations.frame)

    def get_result(self, measure: str, level: str = "") -> Result | None:
        """A result by measure and level; None without a value."""
        for result in self.results:
            if result.measure == measure and self._level(result) == level and math.isfinite(result.value):
                return result
        return None

    def _level(self, result: Result) -> str:
        return "/".join(level for key, level in result.group.items() if key not in self.group)

    def findings(self) -> Iterator[Finding]:
        """The findings, the most important first."""
        known = [result for result in self.results if math.isfinite(result.value)]
        if not known:
            first = self.results[0]
            why = next((result.note for result in self.results if result.note), "No sentence was scored.")
            yield self._finding("nothing", 0, first, claim=False, why=why)
            return
        if not any(math.isfinite(result.p) for result in known):
            from undertow.metrics.score_table import ALIKE

            # A rate of one kind of sentences does not know how few the other kind has.
            noted = sorted(known, key=lambda result: result.measure in ("tpr", "tnr"))
            if too_few := next((result for result in noted if result.note not in ("", ALIKE)), None):
                yield self._finding("too_few", 7, too_few)
        yield from self._detection()
        score = f"delta_{self.lead}"
        names = ("balanced_accuracy", "tpr", "tnr", "held_out_balanced_accuracy")
        balanced, tpr, tnr, held_out = (self.get_result(name, score) for name in names)
        moved, differs = self.get_result("mean_movement", self.lead), self.get_result("interaction", self.lead)
        if balanced and tpr and tnr:
            others = (tpr, tnr, held_out, moved, differs)
            yield self._finding("at_threshold", 4, balanced, *others, claim=balanced.value > 0.5)
        elif moved:
            yield self._finding("movement", 1, moved, differs)
        agreed = self.get_result("coreference_agreement")
        if agreed:
            # Agreement does not depend on W, so one W is enough.
            yield replace(self._finding("agreement", 3, agreed, claim=agreed.value > 0.5), causal_claim=False)
        yield from self._weakest()
        flagged = self.get_result("flagged", score)
        if flagged:
            yield self._finding("flagged", 6, flagged)

    def _detection(self) -> Iterator[Finding]:
        """Ranking of sentences by movement, by entropy, and by both."""
        moved = self.get_result("auroc", "total_variation")
        if not moved:
            return
        area, gap = self.get_result("auroc", COMBINED), self.get_result("auroc_difference", "total_variation/entropy")
        gaps = [self.get_result("auroc_difference", f"{COMBINED}/{name}") for name in BASELINES]
        area = area if all(one and math.isfinite(one.low) for one in gaps) else None
        gap = gap if gap and math.isfinite(gap.low) else None
        others = self.get_result("auroc", "entropy"), gap, area, *gaps
        yield self._finding("ranking", 6, moved, *others, claim=moved.value > 0.5, names=BASELINES)

    def _weakest(self) -> Iterator[Finding]:
        """Occupations with the weakest and the strongest detection."""
        ranges = [one for one in self.results if one.measure == "auroc_range" and self._level(one) == "total_variation"]
        apart = next(iter(ranges), None)
        by_level = {self._level(one): one for one in self.results if one.measure == "auroc_by_occupations"}
        parts = {
            level.removeprefix("total_variation/"): result
            for level, result in by_level.items()
            if level.startswith("total_variation/") and (apart is None or math.isfinite(result.low))
        }
        if len({result.value for result in parts.values()}) > 1:
            ends = [pick(parts, key=lambda name: parts[name].value) for pick in (min, max)]
            names = [*map(on_one_line, ends)]
            finding = self._finding("weakest", 2, *(parts[name] for name in ends), decided_by=apart, names=names)
            yield replace(finding, results=(apart, *finding.results)) if apart else finding

    def _finding(
        self,
        name: str,
        rank: int,
        first: Result,
        *others: Result | None,
        claim: bool = True,
        decided_by: Result | None = None,
        **values: Any,
    ) -> Finding:
        """The finding with the template `name`, decided by q of the first result or of `claim`."""
        words, result = sentences("task_specification"), decided_by or first
        tested = math.isfinite(result.q)
        significant = tested and result.q < ALPHA
        rule = f"Not tested: {result.note}." if result.note else words.not_tested
        if tested:
            rule = words.not_claimed if significant and not claim else ""
        sentence = getattr(words, name)(self, first, *others, **values)
        text, _, detail = sentence.strip().partition("\n")
        return Finding(
            text,
            significant=significant and claim,
            strength=100.0 * rank + (abs(result.value) if math.isfinite(result.value) else 0.0),
            results=(first, *(one for one in others if one)),
            n_tests=0 if rule else self.n_tests,
            decision_rule=rule,
            detail=" ".join(detail.split()),
        )
