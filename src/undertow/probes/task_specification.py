"""Task specification: whether a sentence decides its blank, told by whether the answer moves.

A W that should not matter is put in front of it; if the answer moves, the sentence did not decide. Every score is told
with how well it tells sentences that decide their blank from those that do not, beside plain entropy, which needs no W.
McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5 and appendices A.2 and A.3 ("Method
2"); the ICLR submission "Selection Induced Collider Bias in LLMs", section 5 and appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import challenge
from undertow.probes._masses import observations
from undertow.probes._models import draw_trajectories
from undertow.probes._prompts import (
    CHAT,
    DEFAULT_MAX_NEW_TOKENS,
    MAX_NEW_TOKENS,
    PROMPT_MASK,
    PROMPTS,
    design_of,
    in_prompts,
    n_prompts,
    told_prompts,
)
from undertow.probes._prompts import suited as _suited
from undertow.probes.base import EXACT, PAPER, Evidence, Rounds, Sampling
from undertow.types import LIKELIHOOD, Finding, Item, Result, Scores, Told, UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.drawing import Drawing

SUMMARY = "does the answer move with a date that should not matter, and so show that the sentence did not decide it?"
PROTOCOLS = (EXACT, PAPER)
RESTS_ON = "specification of the task"
RECORDED = "recorded"
"""Recorded masses with sentences left out that have none at one date; `paper` takes those as zero."""
DETECT, PLAIN, FOLLOW = "detect", "plain", "follow"
"""Parts of a run: the dates that scores are made of, sentences without a date, one occupation over all dates."""
FOLLOWED_DATES = 30
TRAJECTORIES = {"auroc": "Area under the ROC curve", "balanced_accuracy": "Balanced accuracy"}
COMBINED, BASELINES = "combined", ("entropy", "total_variation")
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the probe."""

    challenge: str = field(
        default="undertow-schemas",
        metadata={
            "help": "Sentences: undertow-schemas, simplified, winogender, simplified-winogender, or a .csv, .tsv or .toml file."
        },
    )
    data_dir: str = field(default="", metadata={"help": "Folder with the two published files of winogender."})
    options: str = field(
        default="",
        metadata={"help": "Word groups for a .csv or .tsv file: 'yes: is; no: is not'; pronouns if not given."},
    )
    w: str = field(
        default="date",
        metadata={"help": "W lists, comma-separated: date, place, subreddit, or a file with one value a line."},
    )
    inject: str = field(
        default="In {w}: ",
        metadata={"help": "How W goes in: in front, or as in '{text} It was {w}.', around the sentence."},
    )
    date_start: int = field(default=1901, metadata={"help": "First year of the date list."})
    date_stop: int = field(default=2016, metadata={"help": "Last year of the date list."})
    date_count: int = field(default=2, metadata={"help": "Number of years; with 3 or more there are slopes too."})
    ends: int = field(default=1, metadata={"help": "How many W values at either end are averaged."})
    threshold: float = field(default=0.5, metadata={"help": "A score above it, in percent, says that nothing decides."})
    plain: bool = field(default=False, metadata={"help": "Ask every sentence without a W too, for entropy_plain."})
    follow: str = field(
        default="", metadata={"help": "An occupation to follow over 30 dates (figure 4 of the papers)."}
    )
    prompts: str = field(default="", metadata=PROMPTS)
    prompt_mask: str = field(default="", metadata=PROMPT_MASK)
    chat: bool = field(default=False, metadata=CHAT)
    max_new_tokens: int = field(default=DEFAULT_MAX_NEW_TOKENS, metadata=MAX_NEW_TOKENS)


def suited(settings: Settings, asks: Mapping[str, Sequence[str]]) -> Settings:
    """These settings for a model that can be asked these kinds of query: one without blanks is asked prompt A, as in the paper."""
    return _suited(settings, asks, default="A")


def rounds(settings: Settings, sampling: Sampling) -> Rounds:
    """One round: what the scores are made of, and where asked for sentences without W and one occupation over all dates."""
    given = _sentences(settings)
    chosen = _sample(
        given, sampling, n_prompts(settings) * sum(len(spectrum.values) for spectrum in _spectra(settings))
    )
    items = items_of(chosen, settings)
    if settings.plain:
        items += _part(chosen.plain(), PLAIN)
    if settings.follow:
        dates = challenge.Dates(settings.date_start, settings.date_stop, FOLLOWED_DATES)
        injection = challenge.Injection.parse(settings.inject)
        items += _part(_chosen(given, _followed(settings, given)).injected(injection, [_all(dates)]), FOLLOW)
    yield in_prompts(items, given.words, settings)


def _all(dates: challenge.Dates) -> challenge.Spectrum:
    """All the years of a range that has fewer than were to be followed."""
    years = min(dates.count, abs(dates.stop - dates.start) + 1)
    return challenge.Dates(dates.start, dates.stop, years, least=2).spectrum()


def items_of(sentences: challenge.SentenceSet, settings: Settings) -> list[Item]:
    """Sentences with every W value in them, as the scores need them.

    Raises:
        UndertowError: the W lists or the way they go in are not what they should be.
    """
    return _part(sentences.injected(challenge.Injection.parse(settings.inject), _spectra(settings)), DETECT)


def _sentences(settings: Settings) -> challenge.SentenceSet:
    return challenge.sentences(settings.challenge, settings.data_dir, settings.options)


def _spectra(settings: Settings) -> list[challenge.Spectrum]:
    names = [name.strip() for name in settings.w.split(",") if name.strip()]
    if not names:
        raise UndertowError("--w names no W list; write for example --w date,place")
    if settings.ends < 1:
        raise UndertowError(f"--ends {settings.ends} is too small: at least one W value at either end makes the score")
    dates = challenge.Dates(settings.date_start, settings.date_stop, settings.date_count, least=2)
    spectra = [challenge.spectrum(name, dates, least=2) for name in names]
    challenge.check_spectra(spectra)
    for spectrum in spectra:
        if len(spectrum.values) < 2 * settings.ends:
            raise UndertowError(
                f"--ends {settings.ends} needs {2 * settings.ends} W values, and {spectrum.name} has {len(spectrum.values)}: "
                "lower it, or raise --date-count"
            )
    if not math.isfinite(settings.threshold) or settings.threshold < 0:
        raise UndertowError(f"--threshold {settings.threshold} must be 0 or more, in percent")
    return spectra


def _sample(given: challenge.SentenceSet, sampling: Sampling, n_values: int) -> challenge.SentenceSet:
    """Whole sentences, at every W value; as many of either kind as the set has, in proportion."""
    n_kept = max(sampling.limit // n_values, 1)
    if not sampling.limit or n_kept >= len(given.sentences):
        return given
    rng = np.random.default_rng(sampling.seed)
    kinds: dict[object, list[str]] = {}
    for sentence in given.sentences:
        kinds.setdefault(sentence.factors.get("well_specified"), []).append(sentence.id)
    kept: set[str] = set()
    for ids in kinds.values():
        share = max(round(n_kept * len(ids) / len(given.sentences)), 1)
        kept |= {ids[index] for index in rng.permutation(len(ids))[:share]}
    return _chosen(given, kept)


def _chosen(given: challenge.SentenceSet, ids: set[str]) -> challenge.SentenceSet:
    return challenge.SentenceSet(
        given.name,
        given.title,
        given.source,
        given.words,
        tuple(sentence for sentence in given.sentences if sentence.id in ids),
        given.notes,
    )


def _followed(settings: Settings, given: challenge.SentenceSet) -> set[str]:
    """Ids of the sentences of the occupation to follow."""
    found = {sentence.id for sentence in given.sentences if sentence.cluster == settings.follow}
    if not found:
        known = ", ".join(dict.fromkeys(sentence.cluster for sentence in given.sentences))
        raise UndertowError(f"--follow {settings.follow!r} is no occupation of {given.name}; it has {known[:500]}")
    return found


def _part(items: list[Item], part: str) -> list[Item]:
    return [
        Item(
            f"{part}/{item.id}",
            item.query,
            {"part": part, "expected": item.gold or "", **item.factors},
            item.cluster,
            item.gold,
        )
        for item in items
    ]


def design(settings: Settings) -> dict[str, Any]:
    """Word groups, how W goes in, and what counts as moved."""
    given = _sentences(settings)
    return {
        "groups": list(given.groups),
        "title": given.title,
        "source": given.source,
        "notes": list(given.notes),
        "inject": settings.inject,
        "ends": settings.ends,
        "threshold": settings.threshold,
        "protocol": EXACT,
        **design_of(given.words, settings),
    }


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Evidence:
    """Masses in percent, normalised over the groups, from each option's log-likelihood."""
    shared = scores.readout == LIKELIHOOD
    frame = observations(items, scores, design["groups"], model)
    return Evidence(frame, {**design, "normalised": shared, "readout": scores.readout})


def read_table(path: Path, protocol: str) -> tuple[Evidence, str]:
    """Recorded masses at the first and the last date, several models and sets in one file.

    Raises:
        UndertowError: the file is no such table, or the protocol cannot be had from it.
    """
    if protocol not in ("", PAPER, RECORDED):
        raise UndertowError(
            f"{path}: protocol {protocol!r} cannot be had from recorded masses; leave it out, which leaves sentences without "
            f"any recorded mass out, or use --protocol {PAPER}, which takes them as zero"
        )
    from undertow.probes._recorded_ends import read_ends

    chosen = protocol or RECORDED
    frame, groups = read_ends(path, zeros_count=chosen == PAPER)
    design = {
        "groups": groups,
        "words": {},
        "title": f"recorded outputs ({path.name})",
        "source": path.name,
        "notes": [],
        "inject": "",
        "ends": 1,
        "threshold": 0.5,
        "protocol": chosen,
    }
    return Evidence(frame, design), chosen


def scored(evidence: Evidence) -> pd.DataFrame:
    """One row for each sentence with its scores; see `undertow.measures.movement`."""
    from undertow.measures.detection import with_combined
    from undertow.measures.movement import sentence_scores

    frame = evidence.frame
    needed = ["part", "w_name", "sentence", "unscored", *evidence.design["groups"]]
    missing = [name for name in needed if name not in frame]
    if missing:
        raise UndertowError(
            f"the observations have no column {missing[0]!r}, so they are of another table; run the audit again"
        )
    groups = evidence.design["groups"]
    return with_combined(sentence_scores(frame[frame["part"] != FOLLOW], groups, int(evidence.design["ends"])), groups)


def measure(evidence: Evidence, seed: int) -> list[Result]:
    """Detection of every model and set by every score, with baselines."""
    # Statistics and tables take most of a second to load: listing, help and refusals do without.
    from undertow.measures.detection import Threshold, detect

    design = evidence.design
    threshold = Threshold(float(design["threshold"]), as_they_come=design["protocol"] == PAPER)
    return detect(scored(evidence), design["groups"], threshold, seed=seed)


def findings(evidence: Evidence, results: Sequence[Result]) -> list[Finding]:
    """The detection of each model and set in sentences, beside plain entropy, and what it rests on."""
    n_tests = sum(math.isfinite(result.q) for result in results)
    told = [
        finding
        for group in _detectors(results)
        for finding in _Teller(evidence, group, _of(results, group), n_tests).findings()
        if finding is not None
    ]
    return sorted(told, key=lambda finding: (not finding.found, -finding.strength))


BY_INTERVAL = "Decided by its 95% interval; the other tests of the run are not corrected for."
HELD_BY_INTERVAL = "Not claimed: its q is below .05, but its 95% interval reaches to chance."

_Key = tuple[tuple[str, str], ...]
_DETECTOR_KEYS = ("model", "set", "prompt", "w_name")


def _detectors(results: Sequence[Result]) -> list[dict[str, str]]:
    """What is judged apart: each model on each set, by prompt and W where there are several."""
    found: dict[_Key, None] = {}
    for result in results:
        found[tuple((key, result.group[key]) for key in _DETECTOR_KEYS if key in result.group)] = None
    return [dict(key) for key in found]


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
class _Teller:
    """One detector's sentences.

    Attributes:
        evidence: of the run.
        group: which detector.
        results: its results, by measure and the rest of their group.
        n_tests: of the whole run.
    """

    evidence: Evidence
    group: Mapping[str, str]
    results: Mapping[tuple[str, str], Result]
    n_tests: int

    def findings(self) -> Iterator[Finding | None]:
        """In the order that a reader needs them."""
        if not any(math.isfinite(result.value) for result in self.results.values()):
            noted = next((result for result in self.results.values() if result.note), None)
            why = noted.note if noted else "None of its sentences has a number."
            told = f"nothing can be said: {why[:1].lower()}{why[1:]}"
            yield self._say(told, list(self.results.values())[:1], 0, found=False, decided="Not tested.")
            return
        yield self._ranking()
        yield self._beside_entropy()
        yield self._combined()
        yield self._at_threshold()
        yield self._agreement()
        yield self._weakest()
        yield self._movement()
        yield self._flagged()

    def _say(
        self, text: str, of: Sequence[Result | None], rank: int, *, found: bool, decided: str = BY_INTERVAL
    ) -> Finding:
        """A sentence of results, of which the first decides it."""
        known = tuple(one for one in of if one is not None)
        result, n_tests = known[0], 0 if decided else self.n_tests
        frame = self.evidence.frame
        several = [key for key, column in (("model", "model"), ("set", "challenge")) if frame[column].nunique() > 1]
        who = ", ".join(self.group[key] for key in [*several, *(k for k in ("prompt", "w_name") if k in self.group)])
        size = abs(result.value) if math.isfinite(result.value) else 0.0
        said, strength = f"{who}: {text}" if who else text[:1].upper() + text[1:], 100.0 * rank + size
        return Finding(said, found=found, strength=strength, of=known, n_tests=n_tests, decided=decided)

    @property
    def _lead(self) -> str:
        return str(self.evidence.design["groups"][0])

    @property
    def _between(self) -> str:
        frame = self.evidence.frame
        rows = frame[(frame["part"] == DETECT) & (frame["w_name"] == self.group.get("w_name", frame["w_name"].iloc[0]))]
        first, last = (str(rows.loc[at, "w"]) for at in (rows["w_index"].idxmin(), rows["w_index"].idxmax()))
        return "the first and the last date" if (first, last) == ("first", "last") else f"{first} and {last}"

    def _ranking(self) -> Finding | None:
        moved, entropy = (self.results.get(("auroc", score)) for score in ("total_variation", "entropy"))
        if moved is None or math.isnan(moved.value):
            return None
        baseline = f"; entropy alone does so on {_percent(entropy.value)}{_range(entropy)}" if entropy else ""
        text = (
            f"on {_percent(moved.value)} of pairs, the movement between {self._between} (total variation) ranks the sentence that "
            f"does not decide its blank above one that does{_range(moved)}{baseline}."
        )
        decided = "" if moved.low > 0.5 or not moved.q < ALPHA else HELD_BY_INTERVAL
        return self._say(text, (moved, entropy), 6, found=moved.low > 0.5 and moved.q < ALPHA, decided=decided)

    def _beside_entropy(self) -> Finding | None:
        gap = self.results.get(("auroc_difference", "total_variation/entropy"))
        if gap is None or math.isnan(gap.low):
            return None
        differs = gap.low > 0 or gap.high < 0
        size = f"{abs(gap.value):.3f}".removeprefix("0")
        verdict = f"{'better' if gap.value > 0 else 'worse'} than" if differs else "as well as"
        told = f"larger by {size}" if gap.value > 0 else f"smaller by {size}"
        hedge = "" if differs else ", or so near that these sentences cannot tell"
        text = (
            f"the movement tells the two kinds apart {verdict} plain entropy, which needs no W{hedge}: its area under the ROC curve is "
            f"{told} (95% interval {_signed(gap.low)} to {_signed(gap.high)})."
        )
        return self._say(text, (gap,), 5, found=differs)

    def _combined(self) -> Finding | None:
        area, *gaps = (
            self.results.get(key)
            for key in (("auroc", COMBINED), *(("auroc_difference", f"{COMBINED}/{name}") for name in BASELINES))
        )
        known = [gap for gap in gaps if gap is not None and math.isfinite(gap.low)]
        if area is None or math.isnan(area.value) or len(known) < len(BASELINES):
            return None
        sizes = "; ".join(
            f"{_beside(gap)} {name.replace('_', ' ')} alone ({_signed(gap.value)}, 95% interval {_signed(gap.low)} to {_signed(gap.high)})"
            for name, gap in zip(BASELINES, known, strict=True)
        )
        text = (
            f"movement, entropy and masses together, fitted to the sentences of other {self._clusters}, rank {_percent(area.value)} of "
            f"pairs rightly{_range(area)}: {sizes}. Unlike the others this score needs sentences of known kind to learn from; the "
            "intervals take its fits as given."
        )
        decided = "Decided by the 95% intervals of both differences; the other tests of the run are not corrected for."
        return self._say(text, (area, *known), 5, found=all(gap.low > 0 for gap in known), decided=decided)

    @property
    def _clusters(self) -> str:
        """What the sentences come in."""
        return "occupations" if "occupation" in self.evidence.frame else "clusters"

    def _at_threshold(self) -> Finding | None:
        score = f"delta_{self._lead}"
        tpr, tnr, balanced, held_out = (
            self.results.get((name, score))
            for name in ("tpr", "tnr", "balanced_accuracy", "held_out_balanced_accuracy")
        )
        if tpr is None or tnr is None or balanced is None or held_out is None or math.isnan(balanced.value):
            return None
        text = (
            f"{self._lead} mass that moves by more than {tpr.detail['threshold']:g} points flags {_percent(tpr.value)} of the "
            f"undecided sentences, and {_percent(1 - tnr.value)} of those that decide (balanced accuracy "
            f"{_percent(balanced.value)}{_interval(balanced)}); with a threshold chosen on other {self._clusters} the balanced accuracy is "
            f"{_percent(held_out.value)}{_range(held_out)}."
        )
        return self._say(text, (balanced, tpr, tnr, held_out), 4, found=balanced.low > 0.5)

    def _agreement(self) -> Finding | None:
        agreed = self.results.get(("coreference_agreement", ""))
        if agreed is None or math.isnan(agreed.value):
            return None
        text = (
            f"where the sentence decides, the model prefers what it decides on in {_percent(agreed.value)} of {agreed.n} "
            f"sentences{_range(agreed)}."
        )
        # What a sentence says decides this, whatever W it stands beside.
        return replace(self._say(text, (agreed,), 3, found=agreed.low > 0.5), rests=False)

    def _weakest(self) -> Finding | None:
        parts = {
            name.partition("/")[2]: result
            for (measure_name, name), result in self.results.items()
            if measure_name == "auroc_by_occupations" and name.startswith("total_variation/")
        }
        if len(parts) < 2:
            return None
        if len({result.value for result in parts.values()}) == 1:
            return None
        name, weakest = min(parts.items(), key=lambda part: part[1].value)
        other, best = max(parts.items(), key=lambda part: part[1].value)
        apart = weakest.high < best.low and best.low > 0.5
        text = (
            f"the movement detects least in occupations with {name} ({_percent(weakest.value)} of pairs{_interval(weakest)}) and most in "
            f"those with {other} ({_percent(best.value)}{_interval(best)})."
        )
        decided = "Decided by whether the two 95% intervals meet; the other tests of the run are not corrected for."
        return self._say(text, (weakest, best), 2, found=apart, decided=decided)

    def _movement(self) -> Finding | None:
        moved, differs = (self.results.get((name, self._lead)) for name in ("w_effect", "interaction"))
        if moved is None or math.isnan(moved.low):
            return None
        text = (
            f"in undecided sentences {self._lead} mass moves by {moved.value:+.1f} points on average between {self._between} (95% "
            f"interval {moved.low:+.1f} to {moved.high:+.1f})"
        )
        if differs is not None and math.isfinite(differs.value):
            text += (
                f"; {_percent(differs.value)} of how sentences differ in this lies between {self._clusters} and their wordings, where "
                f"{_percent(differs.neutral)} would be chance"
            )
        return self._say(f"{text}.", (moved, differs), 1, found=moved.low > 0 or moved.high < 0)

    def _flagged(self) -> Finding | None:
        share = self.results.get(("flagged", f"delta_{self._lead}"))
        if share is None or math.isnan(share.value):
            return None
        text = (
            f"in {_percent(share.value)} of {share.n} sentences {self._lead} mass moves by more than {share.detail['threshold']:g} "
            f"points between {self._between}{_range(share)}; whether they decide their blank was not said."
        )
        return self._say(text, (share,), 6, found=share.low > 0)


def _beside(gap: Result) -> str:
    if gap.low > 0:
        return "better than"
    return "worse than" if gap.high < 0 else "not to be told from"


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


def draw(evidence: Evidence, results: Sequence[Result]) -> Iterator[Drawing]:
    """Figure 5 and ROC curves of every model and set; figure 4 where an occupation was followed."""
    from undertow.report.drawing import Drawing
    from undertow.report.specification import occupations, over_w, roc

    yield from draw_trajectories(evidence, results, TRAJECTORIES, "score")
    table, design = scored(evidence), evidence.design
    lead, threshold = design["groups"][0], float(design["threshold"])
    by = ["model", "challenge", "prompt", "w_name"]
    for levels, part in table.groupby(by, sort=False):
        name = [str(level) for level in levels if level]
        known = part[part["unscored"] == ""]
        if "well_specified" not in part or known.empty:
            continue
        score = f"delta_{lead}"
        if known["cluster"].nunique() <= MOST_ROWS:
            row = (
                "a row for each occupation in order of its share of women"
                if "percent_female" in known and known["percent_female"].notna().any()
                else "a row for each group of sentences"
            )
            yield Drawing(
                name="_".join(["occupations", *name]),
                figure=occupations(
                    known, score, threshold, title=" · ".join(name), unit=f"movement of {lead} mass, percentage points"
                ),
                caption=(
                    f"How far the {lead} mass moves in each of {len(known):,} sentences, {row}. If detection were perfect, all blue marks "
                    "(sentences that decide) would lie left of the dashed line, and all orange ones right of it. Up to the line the "
                    "scale is even, beyond it by factors."
                ),
                alt=_describe(known, score, threshold, lead),
            )
        areas = [result for result in results if result.measure == "auroc" and _is_of(result, levels)]
        curves = [_curve(known, result) for result in areas if math.isfinite(result.value)]
        if curves:
            best = max(curves, key=lambda curve: curve.area)
            yield Drawing(
                name="_".join(["roc", *name]),
                figure=roc(curves, title=" · ".join(name)),
                caption=(
                    "Every threshold of every score: how many undecided sentences it flags, and how many deciding ones. The entropy "
                    "needs no W to move, and is what a movement has to beat."
                ),
                alt=f"ROC curves of {len(curves)} scores; the largest area is {best.area:.2f}, of {best.name.replace('_', ' ')}.",
            )
    yield from _followed_drawings(evidence, over_w, Drawing)


MOST_ROWS = 90
"""A figure of more occupations than this could not be read."""


def _is_of(result: Result, levels: Sequence[object]) -> bool:
    given = dict(zip(("model", "set", "prompt", "w_name"), map(str, levels), strict=True))
    return all(result.group[key] == given[key] for key in given if key in result.group)


def _curve(known: pd.DataFrame, result: Result) -> Any:
    from undertow.report.specification import Curve
    from undertow.stats.detection import roc_points

    part = known[np.isfinite(known[result.group["score"]].to_numpy(dtype=np.float64))]
    false_positive, true_positive = roc_points(part[result.group["score"]], ~part["well_specified"].astype(bool))
    return Curve(result.group["score"], false_positive, true_positive, result.value, result.low, result.high)


def _describe(known: pd.DataFrame, score: str, threshold: float, lead: str) -> str:
    decided = known["well_specified"].astype(bool)
    above = known[score] > threshold
    return (
        f"Movement of {lead} mass by occupation. Of {int((~decided).sum())} sentences that do not decide, {int((above & ~decided).sum())} "
        f"lie above {threshold:g} points; of {int(decided.sum())} that decide, {int((above & decided).sum())} do."
    )


def _followed_drawings(evidence: Evidence, over_w: Any, drawing: Any) -> Iterator[Drawing]:
    frame, lead = evidence.frame, evidence.design["groups"][0]
    injected = frame[frame["w_name"] != challenge.NO_W]
    followed = injected[injected["part"] == FOLLOW]
    if followed.empty and "occupation" in injected and injected["w_index"].nunique() > 2:
        # With a whole range of dates one occupation can be shown without having been asked for.
        first = injected["occupation"].astype(str)
        followed = injected[first == ("doctor" if (first == "doctor").any() else first.iloc[0])]
    followed = followed[followed["unscored"] == ""]
    groups = list(evidence.design["groups"])
    followed = followed.assign(**followed[groups].mul(100 / followed[groups].sum(axis=1), axis=0))
    for levels, rows in followed.groupby(["model", "challenge", "w_name", "cluster"], sort=False):
        name = [str(level) for level in levels]
        yield drawing(
            name="_".join(["over-w", *name]),
            figure=over_w(rows, lead, title=" · ".join(name)),
            caption=(
                f"The share of {lead} words in every sentence of one occupation. What lies between two lines at one {name[2]} is the "
                f"model's view of the sentence; how far one line rises or falls is due to the {name[2]} alone, and where the sentence "
                "decides its blank it should not."
            ),
            alt=f"Share of {lead} words by {name[2]} in {rows['sentence'].nunique()} sentences about one occupation ({name[3]}).",
        )


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """Every sentence's scores, and a row for each occupation."""
    from undertow.measures.detection import by_cluster

    sentences = scored(evidence)
    return {"sentences": sentences} | (
        {"occupations": by_cluster(sentences, evidence.design["groups"])} if "well_specified" in sentences else {}
    )


def told(evidence: Evidence, results: Sequence[Result]) -> Told:
    """The words of the report."""
    frame, design = evidence.frame, evidence.design
    injected = frame[frame["w_name"] != challenge.NO_W]
    n_sentences = frame.groupby(["model", "challenge"], sort=False)["sentence"].nunique().groupby("challenge").max()
    asked = [f"{design['title']}{' (' + design['source'] + ')' if design['source'] else ''}."]
    asked += [f"{name}: {count:,} sentences." for name, count in n_sentences.items()]
    for name, rows in injected.groupby("w_name", sort=False):
        values = rows.drop_duplicates("w_index").sort_values("w_index")["w"].astype(str)
        shown = values.tolist() if len(values) <= 6 else [*values.iloc[:3], "...", values.iloc[-1]]
        how = f", put in as {design['inject']!r}" if design["inject"] else ""
        asked.append(f"{name}: {', '.join(shown)}{how}.")
    asked += told_prompts(design)
    if design["words"]:
        words = [f"{group}: {', '.join(forms)}" for group, forms in design["words"].items()]
        asked.append(f"What may fill the blank: {'; '.join(words)}.")
    examples = [] if "text" not in frame else list(dict.fromkeys(frame["text"].iloc[:: max(len(frame) // 6, 1)]))[:6]
    return Told(
        title="Task specification",
        lead="Can it be told from a model's answers alone that a sentence did not decide them?",
        asked=asked,
        examples=examples,
        notes=_notes(frame, design),
        titles=_TITLES,
        glossary=_GLOSSARY,
        neutral="chance would give",
    )


def _notes(frame: pd.DataFrame, design: Mapping[str, Any]) -> list[str]:
    unscored = frame.loc[frame["unscored"] != "", ["unscored", "model", "challenge", "sentence"]].drop_duplicates()
    counts = unscored["unscored"].value_counts()
    paper = [
        "Protocol paper: masses are taken as recorded, zeros included, and compared with the threshold as doubles come."
    ]
    return [
        *design["notes"],
        *(paper if design["protocol"] == PAPER else []),
        "Masses are shares between the word groups, so they add up to 100%. Movements are in percentage points; divergence and entropy "
        "are in percent of the most they can be.",
        "A sentence counts as undecided by what its writers say that it says. That a model's answer moves does not prove that the "
        "sentence is undecided, and that it does not move does not prove that it is not.",
        "The intervals come from resampling whole occupations (or what else groups the sentences), because the sentences of one "
        "are not independent; with fewer than five there are none. Thresholds under 'held out' were chosen, and the score combined "
        "was fitted, without the occupation they are applied to; the spread from choosing and fitting is not in the interval.",
        "p and q are of the areas under the ROC curve, and the q of all of them in this run; other intervals are not adjusted for "
        "their number. Where every sentence is a hit, the interval is an approximate one from the number of occupations.",
        "The threshold of 0.5 is the papers' own and was not tuned for this model.",
        *(f"Unscored, {count:,} sentences: {reason}" for reason, count in counts.items()),
    ]


_TITLES = {
    "tpr": "True positive rate",
    "tnr": "True negative rate",
    "balanced_accuracy": "Balanced accuracy",
    "held_out_balanced_accuracy": "Balanced accuracy with a held-out threshold",
    "auroc": "Area under the ROC curve",
    "auroc_difference": "Difference of two areas",
    "coreference_agreement": "Coreference agreement",
    "hardest_tpr": "True positive rate, hardest sentences",
    "hardest_tnr": "True negative rate, hardest sentences",
    "auroc_by_occupations": "Area under the ROC curve by occupations",
    "occupation_effect": "Effect of the occupation on the level",
    "interaction": "Effect of the occupation on the movement",
    "w_effect": "Mean movement",
    "called_right": "Every occupation",
    "flagged": "Flagged",
}
_GLOSSARY = {
    "tpr": "share of the sentences that do not decide their blank that a score above the threshold flags",
    "tnr": "share of the sentences that decide it that are not flagged",
    "balanced_accuracy": "mean of the two rates; always saying the same gives one half",
    "held_out_balanced_accuracy": "the same, with the best threshold of the other occupations for each occupation",
    "auroc": "share of pairs, one sentence of either kind, in which the undecided one has the higher score; one half is chance",
    "auroc_difference": "area of one score less that of a baseline, on the same sentences",
    "coreference_agreement": "share of deciding sentences in which the model prefers the word that the sentence decides on",
    "hardest_tpr": "a man or a woman is in the sentence, but the pronoun is the professional's: share flagged",
    "hardest_tnr": "the same people, and the pronoun is theirs: share not flagged",
    "auroc_by_occupations": "the area within occupations that employ few, as many, or mostly women",
    "occupation_effect": "share of the variance of levels among undecided sentences that lies between occupations",
    "interaction": "share of the variance of movements that lies between occupations; as much as chance where the two only add up",
    "w_effect": "mean of last less first among undecided sentences",
    "called_right": "share of an occupation's sentences that the threshold calls right, with the mean score of either kind",
    "flagged": "share of the sentences whose score is above the threshold",
    "score": "delta: how far a group's mass moves between first and last W; total variation: half the sum over groups; Jensen-Shannon: "
    "divergence of the two; slope: the movement by a straight line over all W; entropy: of the mean of first and last; entropy plain: of "
    "the sentence without W; combined: the chance that it is undecided, fitted to the sentences of other occupations",
    "against": "the baseline",
    "threshold": "above it a score, in percent, says that the sentence does not decide",
}
