"""Report of task specification: findings and the sentences of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow import data
from undertow.audits.base import PAPER, Observations
from undertow.audits.shared.prompt_items import prompts_text
from undertow.audits.task_specification.items import DETECT
from undertow.report.model import ReportText
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

COMBINED, BASELINES = "combined", ("entropy", "total_variation")
ALPHA = 0.05
PAPERS_THRESHOLD = 0.5
UNTESTED = "Not tested."
OTHER_WAY = "Not claimed: its q is below .05, but the number lies on the other side of what chance would give."


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """The detection of each model and set in sentences, beside plain entropy, and what it rests on."""
    n_tests = sum(math.isfinite(result.q) for result in results)
    claims = [
        finding
        for group in _detectors(results)
        for finding in _ReportWriter(observations, group, _of(results, group), n_tests).findings()
        if finding is not None
    ]
    return sorted(claims, key=lambda finding: (not finding.significant, -finding.strength))


_Key = tuple[tuple[str, str], ...]
_DETECTOR_KEYS = ("model", "set", "prompt", "w_name")


def _detectors(results: Sequence[Result]) -> list[dict[str, str]]:
    """What is judged apart: each model on each set, by prompt and W where there are several."""
    keys: dict[_Key, None] = {}
    for result in results:
        keys[tuple((key, result.group[key]) for key in _DETECTOR_KEYS if key in result.group)] = None
    return [dict(key) for key in keys]


def _of(results: Sequence[Result], group: Mapping[str, str]) -> dict[tuple[str, str], Result]:
    """Results of one detector by measure and the rest of their group."""
    chosen = {}
    for result in results:
        own = {key: result.group.get(key) for key in _DETECTOR_KEYS if key in result.group}
        if own == dict(group):
            rest = "/".join(level for key, level in result.group.items() if key not in group)
            chosen[result.measure, rest] = result
    return chosen


@dataclass(frozen=True, slots=True)
class _ReportWriter:
    """One detector's sentences.

    Attributes:
        observations: of the run.
        group: which detector.
        results: its results, by measure and the rest of their group.
        n_tests: of the whole run.
    """

    observations: Observations
    group: Mapping[str, str]
    results: Mapping[tuple[str, str], Result]
    n_tests: int

    def findings(self) -> Iterator[Finding | None]:
        """In the order that a reader needs them."""
        if not any(math.isfinite(result.value) for result in self.results.values()):
            noted = next((result for result in self.results.values() if result.note), None)
            why = noted.note if noted else "None of its sentences has a number."
            text = f"nothing can be said: {why[:1].lower()}{why[1:]}"
            yield self._say(text, list(self.results.values())[:1], 0, claim=False)
            return
        yield self._too_few()
        yield self._ranking()
        yield self._beside_entropy()
        yield self._combined()
        yield self._at_threshold()
        yield self._agreement()
        yield self._weakest()
        yield self._movement()
        yield self._flagged()

    def _say(self, text: str, of: Sequence[Result | None], rank: int, *, claim: bool = True) -> Finding:
        """A sentence of results, of which the first decides it: what its q finds, where it is the claim that is made."""
        known = tuple(one for one in of if one is not None)
        result = known[0]
        tested = math.isfinite(result.q)
        significant = tested and result.q < ALPHA
        decided = (OTHER_WAY if significant and not claim else "") if tested else _reason(result)
        frame = self.observations.frame
        several = [key for key, column in (("model", "model"), ("set", "challenge")) if frame[column].nunique() > 1]
        who = ", ".join(self.group[key] for key in [*several, *(k for k in ("prompt", "w_name") if k in self.group)])
        size = abs(result.value) if math.isfinite(result.value) else 0.0
        said, strength = f"{who}: {text}" if who else text[:1].upper() + text[1:], 100.0 * rank + size
        n_tests = 0 if decided else self.n_tests
        return Finding(
            said,
            significant=significant and claim,
            strength=strength,
            results=known,
            n_tests=n_tests,
            decision_rule=decided,
        )

    def _too_few(self) -> Finding | None:
        """What is said first where there are too few clusters to claim anything."""
        if any(math.isfinite(result.p) for result in self.results.values()):
            return None
        from undertow.metrics.specification_detection import ALIKE

        known = [result for result in self.results.values() if math.isfinite(result.value)]
        noted = next((result for result in known if result.note not in ("", ALIKE)), None)
        if noted is None:
            return None
        return self._say(f"nothing can be claimed: {noted.note}. What follows describes these sentences.", (noted,), 7)

    @property
    def _lead(self) -> str:
        return str(self.observations.design["groups"][0])

    @property
    def _between(self) -> str:
        frame = self.observations.frame
        rows = frame[(frame["part"] == DETECT) & (frame["w_name"] == self.group.get("w_name", frame["w_name"].iloc[0]))]
        first, last = (str(rows.loc[at, "w"]) for at in (rows["w_index"].idxmin(), rows["w_index"].idxmax()))
        return "the first and the last value of W" if (first, last) == ("first", "last") else f"{first} and {last}"

    def _ranking(self) -> Finding | None:
        moved, entropy = (self.results.get(("auroc", score)) for score in ("total_variation", "entropy"))
        if moved is None or math.isnan(moved.value):
            return None
        baseline = ""
        if entropy is not None and math.isfinite(entropy.value):
            baseline = f"; entropy alone does so on {_percent(entropy.value)}{_range(entropy)}"
        text = (
            f"on {_percent(moved.value)} of pairs, the movement between {self._between} (total variation) ranks the sentence that "
            f"does not decide its blank above one that does{_range(moved)}{baseline}."
        )
        return self._say(text, (moved, entropy), 6, claim=moved.value > 0.5)

    def _beside_entropy(self) -> Finding | None:
        gap = self.results.get(("auroc_difference", "total_variation/entropy"))
        if gap is None or math.isnan(gap.low):
            return None
        differs = gap.q < ALPHA
        size = f"{abs(gap.value):.3f}".removeprefix("0")
        verdict = f"{'better' if gap.value > 0 else 'worse'} than" if differs else "as well as"
        difference = f"larger by {size}" if gap.value > 0 else f"smaller by {size}"
        hedge = "" if differs else ", or so near that these sentences cannot tell"
        text = (
            f"the movement tells the two kinds apart {verdict} plain entropy, which needs no W{hedge}: its area under the ROC curve is "
            f"{difference} (95% interval {_signed(gap.low)} to {_signed(gap.high)}{_not_enough(gap)})."
        )
        return self._say(text, (gap,), 5)

    def _combined(self) -> Finding | None:
        area, *gaps = (
            self.results.get(key)
            for key in (("auroc", COMBINED), *(("auroc_difference", f"{COMBINED}/{name}") for name in BASELINES))
        )
        known = [gap for gap in gaps if gap is not None and math.isfinite(gap.low)]
        if area is None or math.isnan(area.value) or len(known) < len(BASELINES):
            return None
        sizes = "; ".join(
            f"{_beside(gap)} {name.replace('_', ' ')} alone ({_signed(gap.value)}, 95% interval {_signed(gap.low)} to {_signed(gap.high)}"
            f"{_not_enough(gap)})"
            for name, gap in zip(BASELINES, known, strict=True)
        )
        text = (
            f"movement, entropy and masses together, fitted to the sentences of other {self._clusters}, rank {_percent(area.value)} of "
            f"pairs rightly{_range(area)}: {sizes}. Unlike the others this score needs sentences of known kind to learn from."
        )
        # It adds something if it is better than either: the one of the two that is less sure decides.
        deciding = max(known, key=lambda gap: (gap.value <= 0, gap.q))
        return self._say(
            text, (deciding, area, *(gap for gap in known if gap is not deciding)), 5, claim=deciding.value > 0
        )

    @property
    def _clusters(self) -> str:
        """What the sentences come in."""
        from undertow.metrics.specification_detection import cluster_noun

        return cluster_noun(self.observations.frame)

    def _at_threshold(self) -> Finding | None:
        score = f"delta_{self._lead}"
        tpr, tnr, balanced, held_out = (
            self.results.get((name, score))
            for name in ("tpr", "tnr", "balanced_accuracy", "held_out_balanced_accuracy")
        )
        if tpr is None or tnr is None or balanced is None or math.isnan(balanced.value):
            return None
        text = (
            f"{self._lead} mass that moves by more than {tpr.extras['threshold']:g} points flags {_percent(tpr.value)} of the "
            f"undecided sentences, and {_percent(1 - tnr.value)} of those that decide (balanced accuracy "
            f"{_percent(balanced.value)}{_interval(balanced)})"
        )
        if held_out is not None and math.isfinite(held_out.value):
            text += (
                f"; with a threshold chosen on other {self._clusters} the balanced accuracy is "
                f"{_percent(held_out.value)}{_range(held_out)}"
            )
        return self._say(f"{text}.", (balanced, tpr, tnr, held_out), 4, claim=balanced.value > 0.5)

    def _agreement(self) -> Finding | None:
        agreed = self.results.get(("coreference_agreement", ""))
        if agreed is None or math.isnan(agreed.value):
            return None
        text = (
            f"where the sentence decides, the model prefers what it decides on in {_percent(agreed.value)} of {agreed.n} "
            f"sentences{_range(agreed)}."
        )
        # What a sentence says decides this, whatever W it stands beside.
        return replace(self._say(text, (agreed,), 3, claim=agreed.value > 0.5), causal_claim=False)

    def _weakest(self) -> Finding | None:
        apart = self.results.get(("auroc_range", "total_variation"))
        parts = {
            name.partition("/")[2]: result
            for (measure_name, name), result in self.results.items()
            if measure_name == "auroc_by_occupations"
            and name.startswith("total_variation/")
            and (apart is None or math.isfinite(result.low))
        }
        if len({result.value for result in parts.values()}) < 2:
            return None
        name, weakest = min(parts.items(), key=lambda part: part[1].value)
        other, best = max(parts.items(), key=lambda part: part[1].value)
        text = (
            f"the movement detects least in occupations with {name} ({_percent(weakest.value)} of pairs{_interval(weakest)}) and most in "
            f"those with {other} ({_percent(best.value)}{_interval(best)})."
        )
        return self._say(text, (apart, weakest, best), 2)

    def _movement(self) -> Finding | None:
        moved, differs = (self.results.get((name, self._lead)) for name in ("mean_movement", "interaction"))
        if moved is None or math.isnan(moved.value):
            return None
        text = f"in undecided sentences {self._lead} mass moves by {moved.value:+z.1f} points on average between {self._between}"
        if math.isfinite(moved.low):
            text += f" (95% interval {moved.low:+z.1f} to {moved.high:+z.1f})"
        if differs is not None and math.isfinite(differs.value):
            text += (
                f"; {_percent(differs.value)} of how sentences differ in this lies between {self._clusters} and their wordings, where "
                f"{_percent(differs.null_value)} would be chance"
            )
        return self._say(f"{text}.", (moved, differs), 1)

    def _flagged(self) -> Finding | None:
        share = self.results.get(("flagged", f"delta_{self._lead}"))
        if share is None or math.isnan(share.value):
            return None
        text = (
            f"in {_percent(share.value)} of {share.n} sentences {self._lead} mass moves by more than {share.extras['threshold']:g} "
            f"points between {self._between}{_range(share)}; whether they decide their blank was not said."
        )
        return self._say(text, (share,), 6)


def _reason(result: Result) -> str:
    """Reason why a number has no test."""
    return f"Not tested: {result.note}." if result.note else UNTESTED


def _beside(gap: Result) -> str:
    if not gap.q < ALPHA:
        return "not told apart from"
    return "better than" if gap.value > 0 else "worse than"


def _not_enough(gap: Result) -> str:
    """Why a difference is not claimed although its interval leaves out 0; "" elsewhere."""
    if not math.isfinite(gap.q) or gap.q < ALPHA or gap.low <= 0 <= gap.high:
        return ""
    return f", without 0; but q is {gap.q:.3f} after the correction for all tests of the run"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1)


def _range(result: Result) -> str:
    """The interval in brackets; nothing where there is none."""
    return f" ({_interval(result).removeprefix(', ')})" if _interval(result) else ""


def _interval(result: Result) -> str:
    """The interval after a comma, inside brackets that are open already."""
    if math.isnan(result.low):
        return ""
    return f", 95% interval {100 * result.low:.0f}% to {100 * result.high:.0f}%"


def report_text(observations: Observations, results: Sequence[Result]) -> ReportText:
    """The words of the report."""
    frame, design = observations.frame, observations.design
    injected = frame[frame["w_name"] != data.NO_W]
    n_sentences = frame.groupby(["model", "challenge"], sort=False)["sentence"].nunique().groupby("challenge").max()
    sentences = [f"{design['title']}{' (' + design['source'] + ')' if design['source'] else ''}."]
    sentences += [f"{name}: {count:,} sentences." for name, count in n_sentences.items()]
    for name, rows in injected.groupby("w_name", sort=False):
        values = rows.drop_duplicates("w_index").sort_values("w_index")["w"].astype(str)
        cells = values.tolist() if len(values) <= 6 else [*values.iloc[:3], "...", values.iloc[-1]]
        how = f", put in as {design['inject']!r}" if design["inject"] else ""
        sentences.append(f"{name}: {', '.join(cells)}{how}.")
    sentences += prompts_text(design)
    if design["words"]:
        words = [f"{group}: {', '.join(forms)}" for group, forms in design["words"].items()]
        sentences.append(f"What may fill the blank: {'; '.join(words)}.")
    examples = [] if "text" not in frame else list(dict.fromkeys(frame["text"].iloc[:: max(len(frame) // 6, 1)]))[:6]
    return ReportText(
        title="Task specification",
        lead="Can it be told from a model's answers alone that a sentence did not decide them?",
        questions=sentences,
        examples=examples,
        notes=_notes(frame, design),
        null_prefix="chance would give",
    )


def _notes(frame: pd.DataFrame, design: Mapping[str, Any]) -> list[str]:
    from undertow.metrics.specification_detection import cluster_noun

    missing_reason = frame.loc[
        frame["missing_reason"] != "", ["missing_reason", "model", "challenge", "sentence"]
    ].drop_duplicates()
    counts = missing_reason["missing_reason"].value_counts()
    paper = [
        "Protocol paper: masses are taken as recorded, zeros included, and compared with the threshold as doubles come."
    ]
    noun = cluster_noun(frame)
    return [
        *design["notes"],
        *design.get("w_notes", []),
        *(paper if design["protocol"] == PAPER else []),
        "Masses are shares between the word groups, so they add up to 100%. Movements are in percentage points; divergence and entropy "
        "are in percent of the most they can be.",
        "A sentence counts as undecided by what its writers say that it says. That a model's answer moves does not prove that the "
        "sentence is undecided, and that it does not move does not prove that it is not.",
        f"The intervals come from resampling whole {noun}, because the sentences of one are not independent; with fewer than six of "
        "either kind there is no interval, no test and no claim. Thresholds under 'held out' were chosen, and the score combined was "
        "fitted, without the ones they are applied to, and again in every resample and permutation.",
        "A finding is claimed where q is below .05. q is corrected for all tests of this run: of every area under the ROC curve, and of "
        "each other number that a finding rests on. The interval stands beside it and is not adjusted. Where every sentence is a hit, the "
        f"interval is an approximate one from the number of {noun}.",
        *(
            ["The threshold of 0.5 is the papers' own and was not tuned for this model."]
            if float(design["threshold"]) == PAPERS_THRESHOLD
            else []
        ),
        *(f"Missing, {count:,} sentences: {reason}" for reason, count in counts.items()),
    ]
