"""Spurious correlation: an answer that nothing in the sentence decides, against a W that should not matter.

Gender-neutral sentences, a gender-neutral W injected, the mass of each word group read, averaged per W value and
regressed on the index of W. McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 4;
the ICLR submission "Selection Induced Collider Bias in LLMs", section 4; McMilin 2022 (ICML workshop), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import challenge
from undertow.probes import _limit
from undertow.probes._masses import observations
from undertow.probes._models import ALL_PROMPTS, compared, draw_grid, draw_sizes, draw_trajectories
from undertow.probes._prompts import (
    CHAT,
    DEFAULT_MAX_NEW_TOKENS,
    MAX_NEW_TOKENS,
    PROMPT_MASK,
    PROMPTS,
    design_of,
    in_prompts,
    n_prompts,
    odd_prompts,
    told_prompts,
)
from undertow.probes._prompts import suited as _suited
from undertow.probes.base import EXACT, PAPER, Evidence, Rounds, Sampling
from undertow.types import LIKELIHOOD, PROMPT, Finding, Item, Result, Scores, Told, UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.drawing import Drawing

SUMMARY = "does the answer to an undecided question drift with the date, the place, or any list of yours?"
PROTOCOLS = (EXACT, PAPER)
RESTS_ON = "drift with W"
ALPHA = 0.05
FACETS = ("model", "challenge", "prompt", "w_name")
TRAJECTORIES = {
    "slope_gap": "Slope gap",
    "slope": "Slope",
    "pearson_r": "Pearson r",
    "mean_mass": "Mean mass",
    "slope_gap_over_prompts": "Slope gap over prompts",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the probe."""

    challenge: str = field(default="mgc", metadata={"help": "Challenge set: a name, or a .toml file of your own."})
    w: str = field(
        default="",
        metadata={"help": "W lists, comma-separated: date, place, subreddit, or a file with one value a line."},
    )
    inject: str = field(
        default="",
        metadata={"help": "Put W into sentences that have no place for it: 'In {w}: ', or '{text} It was {w}.'"},
    )
    w_scale: str = field(
        default="",
        metadata={
            "help": "What slopes are per: index (a step of the list), value (the numbers themselves), or none (lists without order); "
            "value for number lists of your own, else index, if not given."
        },
    )
    data_dir: str = field(default="", metadata={"help": "Folder with the two published files of winogender."})
    options: str = field(
        default="", metadata={"help": "Word groups for a .csv or .tsv file, with --inject: 'yes: is; no: is not'."}
    )
    words: str = field(default="", metadata={"help": "Word list to fill the blank from: pronouns, aaai, icml."})
    date_start: int = field(default=1801, metadata={"help": "First year of the date list."})
    date_stop: int = field(default=2016, metadata={"help": "Last year of the date list."})
    date_count: int = field(default=30, metadata={"help": "Number of evenly spaced years in the date list."})
    prompts: str = field(default="", metadata=PROMPTS)
    prompt_mask: str = field(default="", metadata=PROMPT_MASK)
    chat: bool = field(default=False, metadata=CHAT)
    max_new_tokens: int = field(default=DEFAULT_MAX_NEW_TOKENS, metadata=MAX_NEW_TOKENS)


def suited(settings: Settings, asks: Mapping[str, Sequence[str]]) -> Settings:
    """These settings for a model that can be asked these kinds of query: one without blanks is asked the three prompts."""
    return _suited(settings, asks, default="A,B,C")


def rounds(settings: Settings, sampling: Sampling) -> Rounds:
    """One round: every cell of the design, by every prompt."""
    words = _given(settings).words
    yield in_prompts(_drawn(_items(settings), settings, sampling), words, settings)


def limited(settings: Settings, sampling: Sampling) -> list[str]:
    """A sentence where `--limit` leaves too few sentences and values for any claim; none where it does not."""
    items = _items(settings)
    asked = _of_lists(_drawn(items, settings, sampling))
    for name, whole in _of_lists(items).items():
        of_list = asked[name]
        if of_list.is_useful() or not whole.is_useful():
            continue
        n_sentences, n_values = len(of_list.sentences), len(of_list.values)
        left = f"{n_sentences} sentence{'s' if n_sentences > 1 else ''} with {n_values} values of {name}"
        return [_limit.too_few(left, _limit.smallest_useful(len(asked), n_prompts(settings)))]
    return []


def _items(settings: Settings) -> list[Item]:
    spectra = _spectra(settings)
    if not settings.inject:
        return _challenge(settings).items(spectra)
    if settings.words:
        raise UndertowError("--words cannot be used with --inject: the sentences have word groups of their own")
    sentences = challenge.sentences(settings.challenge, settings.data_dir, settings.options)
    return sentences.injected(challenge.Injection.parse(settings.inject), spectra)


def _spectra(settings: Settings) -> list[challenge.Spectrum]:
    """The W lists that are asked, each on its scale."""
    dates = challenge.Dates(settings.date_start, settings.date_stop, settings.date_count)
    names = [name.strip() for name in settings.w.split(",") if name.strip()]
    if settings.w and not names:
        raise UndertowError("--w names no W list; write for example --w date,place")
    scale = settings.w_scale
    if settings.inject:
        chosen = [challenge.spectrum(name, dates, scale=scale) for name in names or ["date"]]
    else:
        # The package's date list follows the date options wherever a set names it.
        published = challenge.Dates().spectrum(scale)
        of_set = {one.name: dates.spectrum(scale) if one == published else one for one in _challenge(settings).spectra}
        chosen = [of_set.get(name) or challenge.spectrum(name, dates, scale=scale) for name in names or of_set]
    challenge.check_scaled(chosen, scale)
    return chosen


def _challenge(settings: Settings) -> challenge.ChallengeSet:
    if challenge.is_sentences(settings.challenge):
        raise UndertowError(
            f"challenge {settings.challenge!r} has no place for W in its sentences; say how it goes in, as with --inject 'In {{w}}: '"
        )
    if settings.data_dir:
        raise UndertowError(f"challenge {settings.challenge!r} is not read from a folder; leave --data-dir out")
    if settings.options:
        raise UndertowError(f"challenge {settings.challenge!r} has word groups of its own; leave --options out")
    challenge.check_scale(settings.w_scale, "--w-scale")
    return challenge.load(settings.challenge, settings.words, settings.w_scale)


@dataclass(frozen=True, slots=True)
class _OfList:
    """The items of one W list.

    Attributes:
        items: by value, then sentence.
        values: places in the list, rising.
        sentences: the cluster of each sentence.
    """

    items: list[Item]
    values: list[int]
    sentences: dict[tuple[tuple[str, object], ...], str]

    def is_useful(self) -> bool:
        """Whether there are enough clusters and values for a claim."""
        clusters = len(set(self.sentences.values()))
        return clusters >= _limit.FEWEST_SENTENCES and len(self.values) >= _limit.FEWEST_VALUES

    def drawn(self, limit: int, seed: int) -> list[Item]:
        """Whole sentences at evenly spread values, about `limit` items; sentences of as many clusters as there can be."""
        if limit >= len(self.items):
            return self.items
        n_sentences, n_values = _limit.balanced(limit, len(self.sentences), len(self.values))
        values = {self.values[place] for place in _limit.evenly(n_values, len(self.values))}
        cells = list(self.sentences)
        chosen = {cells[at] for at in _limit.spread(list(self.sentences.values()), n_sentences, seed)}
        return [item for item in self.items if item.factors["w_index"] in values and _cell(item) in chosen]


def _of_lists(items: Sequence[Item]) -> dict[str, _OfList]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(str(item.factors["w_name"]), []).append(item)
    return {
        name: _OfList(
            of_name,
            sorted({int(item.factors["w_index"]) for item in of_name}),
            {_cell(item): item.cluster for item in of_name},
        )
        for name, of_name in found.items()
    }


def _drawn(items: list[Item], settings: Settings, sampling: Sampling) -> list[Item]:
    """The items that a limit leaves, by W list, value and sentence: sentences and values in balance."""
    limit = max(sampling.limit // n_prompts(settings), 1)
    if not sampling.limit or limit >= len(items):
        return items
    lists = _of_lists(items)
    shares = _limit.shares(limit, [len(one.items) for one in lists.values()])
    return [item for one, share in zip(lists.values(), shares, strict=True) for item in one.drawn(share, sampling.seed)]


def _cell(item: Item) -> tuple[tuple[str, object], ...]:
    """The sentence of an item: all of its factors but those of its W value."""
    return tuple((name, level) for name, level in item.factors.items() if name not in ("w", "w_index", "w_value"))


@dataclass(frozen=True, slots=True)
class _Given:
    """What is asked, apart from its W values."""

    words: dict[str, list[str]]
    gaps: list[list[str]]
    title: str
    source: str


def _given(settings: Settings) -> _Given:
    if settings.inject:
        given = challenge.sentences(settings.challenge, settings.data_dir, settings.options)
        return _Given(
            {group: list(forms) for group, forms in given.words.items()}, _gaps(given.groups), given.title, given.source
        )
    chosen = _challenge(settings)
    words = {
        group: [" ".join(forms) for name, forms in chosen.words.forms if name == group] for group in chosen.words.groups
    }
    return _Given(words, [list(pair) for pair in chosen.gaps], chosen.title, chosen.source)


def design(settings: Settings) -> dict[str, Any]:
    """Word groups, their forms, the gaps that are compared, the W lists with their order and scale, and the prompts."""
    given, spectra = _given(settings), _spectra(settings)
    return {
        "groups": list(given.words),
        "gaps": given.gaps,
        "title": given.title,
        "source": given.source,
        "normalised": True,
        "protocol": EXACT,
        "covariates": {spectrum.name: spectrum.covariate() for spectrum in spectra},
        "w_notes": [note for spectrum in spectra for note in spectrum.notes],
        **design_of(given.words, settings),
    }


def _gaps(groups: Sequence[str]) -> list[list[str]]:
    """Female less male where there are both, else the first group less each other."""
    return [["female", "male"]] if {"female", "male"} <= set(groups) else [[groups[0], other] for other in groups[1:]]


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Evidence:
    """Masses in percent, normalised over the groups, from each option's log-likelihood."""
    shared = scores.readout == LIKELIHOOD
    frame = observations(items, scores, design["groups"], model)
    return Evidence(frame, {**design, "normalised": shared, "readout": scores.readout})


def read_table(path: Path, protocol: str) -> tuple[Evidence, str]:
    """Recorded masses in percent, several models in one file.

    Raises:
        UndertowError: the file is no such table, or the protocol cannot be had from it.
    """
    if protocol not in ("", PAPER):
        known = (
            "the exact masses cannot be had from recorded ones"
            if protocol == EXACT
            else f"there is no protocol {protocol!r}"
        )
        raise UndertowError(f"{path}: is measured as it was recorded (protocol paper): {known}, leave --protocol out")
    from undertow.probes._recorded import read_recorded
    from undertow.probes._recorded_lists import covariates_of

    frame, groups = read_recorded(path)
    covariates, notes = covariates_of(frame)
    design = {
        "groups": groups,
        "words": {},
        "gaps": _gaps(groups),
        "title": f"recorded outputs ({path.name})",
        "source": path.name,
        "normalised": False,
        "protocol": PAPER,
        "covariates": covariates,
        "w_notes": notes,
    }
    return Evidence(frame, design), PAPER


def measure(evidence: Evidence, seed: int) -> list[Result]:
    """Mean mass, slope, Pearson r and slope gaps of every model, challenge, prompt and W, and gaps over all prompts."""
    # Statistics and tables take most of a second to load: listing, help and refusals do without.
    from undertow.measures.correlation import correlate

    groups, gaps = evidence.design["groups"], [(str(first), str(second)) for first, second in evidence.design["gaps"]]
    results = correlate(evidence.frame, groups, gaps, seed=seed)
    pooled = _pooled(evidence.frame)
    averaged = correlate(pooled, groups, gaps, seed=seed) if len(pooled) else []
    return results + [_over_prompts(result) for result in averaged if result.measure == "slope_gap"]


def _pooled(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the models that were asked by several prompts, as if all were one: means are then over prompts too."""
    several = frame.groupby(["model", "challenge", "w_name"], sort=False)["prompt"].transform("nunique") > 1
    return frame[several].assign(prompt="")


def _over_prompts(result: Result) -> Result:
    """What is averaged is not tested once more."""
    group = {name: level for name, level in result.group.items() if name != "prompt"}
    return replace(result, measure=ALL_PROMPTS, group=group, p=math.nan, q=math.nan)


def findings(evidence: Evidence, results: Sequence[Result]) -> list[Finding]:
    """A sentence for every slope and slope gap, the largest effects first; claimed only where both tests agree."""
    by_key = {(result.measure, tuple(result.group.items())): result for result in results}
    asked = _Asked.of(evidence.frame)
    drifts = [result for result in results if result.measure in ("slope", "slope_gap")]
    n_tests = sum(math.isfinite(result.p) for result in drifts)
    told = []
    for result in drifts:
        r = by_key.get(("pearson_r", tuple(result.group.items())))
        finding = _finding(result, r, evidence.design, asked)
        tests = 0 if math.isnan(result.p) else n_tests
        told.append(replace(finding, of=(result, *([r] if r else [])), n_tests=tests, decided=_decided(result)))
    told += compared(results, evidence.frame, evidence.design, ALPHA)
    return sorted(told, key=lambda finding: (not finding.found, -finding.strength))


def _decided(result: Result) -> str:
    """What keeps a drift from being tested, or one with a small q from being claimed; "" for all others."""
    if math.isnan(result.p):
        return "Not tested."
    held = _held(result)
    return f"Not claimed: q is below .05, but {held}." if held else ""


def _held(result: Result) -> str:
    """Why a drift with a small q is not claimed; "" where it is, and where q alone decides."""
    if not result.q < ALPHA or result.low > 0 or result.high < 0:
        return ""
    return "it has no 95% interval" if math.isnan(result.low) else "its 95% interval includes 0"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What findings say of the observations, looked up once for all of them.

    Attributes:
        several: what there are several of, of models and prompts.
        ends: the first and the last W value of each facet.
    """

    several: frozenset[str]
    ends: Mapping[tuple[str, ...], tuple[str, str]]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _Asked:
        several = frozenset(name for name in ("model", "prompt") if frame[name].nunique() > 1)
        facets = frame.groupby(list(FACETS), sort=False)
        return cls(several, {tuple(map(str, levels)): _ends(facet) for levels, facet in facets})


def _finding(result: Result, r: Result | None, design: Mapping[str, Any], asked: _Asked) -> Finding:
    who = _who(result.group, asked.several)
    first, last = asked.ends[tuple(result.group[name] for name in FACETS)]
    what = _what(result, design)
    span = f"from {first} to {last}"
    if result.value == 0 and math.isnan(result.p) and result.low == result.high == 0:
        text = f"{what} does not move at all with {result.group['w_name']} {span}."
        return Finding(_sentence(who, text), found=False, strength=0.0)
    if math.isnan(result.value) or math.isnan(result.p):
        why = result.note or "Too little was scored."
        text = f"nothing can be said of {what} by {result.group['w_name']}: {why[:1].lower()}{why[1:]}"
        return Finding(_sentence(who, text), found=False, strength=0.0)
    places = _places(result)
    interval = (
        "no interval"
        if math.isnan(result.low)
        else f"95% interval {result.low:+.{places}f} to {result.high:+.{places}f}"
    )
    errors = f"{result.value:+.{places}f} points a step, {interval}"
    tests = ", ".join(filter(None, [_r(r), f"q {_p(result.q)}"]))
    # Along the fitted line, from its first to its last value.
    strength = abs(result.detail["last"] - result.detail["first"])
    if not (result.q < ALPHA and (result.low > 0 or result.high < 0)):
        if "bound_low" in result.detail:
            text = (
                f"what the server does not show leaves open whether {what} drifts with {result.group['w_name']} {span}: it moves by "
                f"{result.detail['bound_low']:+.{places}f} to {result.detail['bound_high']:+.{places}f} points a step, 95% interval "
                f"{result.low:+.{places}f} to {result.high:+.{places}f}."
            )
            return Finding(_sentence(who, text), found=False, strength=strength)
        if held := _held(result):
            # The least slope that would have had p < .05 is not told: p is small enough here. What keeps the drift from being claimed
            # is the interval over sentences, of which that slope says nothing.
            q = "below .001" if result.q < 0.001 else _p(result.q)
            numbers = "; ".join(filter(None, [errors, _r(r)]))
            text = f"a drift of {what} with {result.group['w_name']} {span} is not claimed: q is {q}, but {held} ({numbers})."
            return Finding(_sentence(who, text), found=False, strength=strength)
        least = result.detail["detectable_slope"]
        missed = (
            f"; {least:.{places}f} points a step would have had p < .05 in 8 of 10 such runs"
            if math.isfinite(least)
            else ""
        )
        text = f"no drift of {what} with {result.group['w_name']} {span} can be told from chance ({errors}; {tests}){missed}."
        return Finding(_sentence(who, text), found=False, strength=strength)
    direction = "rises" if result.value > 0 else "falls"
    text = f"with {result.group['w_name']} {span}, {what} {direction} by {_amount(strength)} percentage points ({errors}; {tests})."
    return Finding(_sentence(who, text), found=True, strength=strength)


def _amount(points: float) -> str:
    """A tenth of a point where that is something, else as many decimals as it needs: what was found is never 0.0."""
    return f"{points:.1f}" if points >= 0.05 else f"{points:.{min(max(1 - math.floor(math.log10(points)), 2), 6)}f}"


def _who(group: Mapping[str, str], several: frozenset[str]) -> str:
    """The model and prompt that a sentence is about, where there are several of either."""
    model = group["model"] if "model" in several else ""
    prompt = f"prompt {group['prompt']}" if "prompt" in several and group["prompt"] else ""
    return f"{', '.join(filter(None, [model, prompt]))}: " if model or prompt else ""


def _sentence(who: str, text: str) -> str:
    return who + text if who else text[:1].upper() + text[1:]


def _places(result: Result) -> int:
    """Decimals that show a slope and its interval: two, and more where both are small."""
    size = max((result.high - result.low) / 2, abs(result.value) / 10)
    return min(max(2, 1 - math.floor(math.log10(size))), 5) if size > 0 else 2


def _what(result: Result, design: Mapping[str, Any]) -> str:
    if result.measure == "slope_gap":
        first, second = result.group["pronoun"].split("-", 1)
        for pair in design["gaps"]:
            if "-".join(pair) == result.group["pronoun"]:
                first, second = pair
        return f"the lead of {first} over {second} words"
    words = design["words"].get(result.group["pronoun"], [])
    shown = f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""
    readout = design.get("readouts", {}).get(result.group["model"], design.get("readout", LIKELIHOOD))
    mass = "share" if readout == LIKELIHOOD and design.get("normalised", True) else "probability"
    return f"the {mass} of {result.group['pronoun']} words{shown}"


def _r(result: Result | None) -> str:
    return "" if result is None or math.isnan(result.value) else f"r {result.value:+.2f}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")


def _ends(facet: pd.DataFrame) -> tuple[str, str]:
    """The first and the last W value."""
    scored = facet[facet["unscored"] == ""] if (facet["unscored"] == "").any() else facet
    index = scored["w_index"].to_numpy()
    return str(scored["w"].iloc[index.argmin()]), str(scored["w"].iloc[len(index) - 1 - index[::-1].argmax()])


def _span(w_name: str, facet: pd.DataFrame) -> str:
    first, last = _ends(facet)
    return f"{w_name}: {facet['w'].nunique()} values, from {first} to {last}."


def draw(evidence: Evidence, results: Sequence[Result]) -> Iterator[Drawing]:
    """The papers' figure for every model, challenge, prompt and W."""
    from undertow.measures.correlation import line_of
    from undertow.report.drawing import Drawing
    from undertow.report.spectrum import FittedLine, describe_spectrum, spectrum

    frame, groups = evidence.frame, list(evidence.design["groups"])
    missing = [name for name in (*FACETS, *groups) if name not in frame]
    if missing:
        raise UndertowError(
            f"the observations have no column {missing[0]!r}, so they are of another table; run the audit again"
        )
    yield from draw_sizes(evidence, results)
    yield from draw_trajectories(evidence, results, TRAJECTORIES, "pronoun")
    yield from draw_grid(evidence, groups)
    for levels, facet in frame.groupby(list(FACETS), sort=False):
        if not any(facet[group].notna().any() for group in groups):
            continue
        model, name, prompt, w_name = (str(level) for level in levels)
        lines = []
        for group in groups:
            line = line_of(facet, group)
            x = np.linspace(float(facet["w_index"].min()), float(facet["w_index"].max()), 100)
            lines.append(FittedLine(group, line.slope, line.r, x, line.at(x), *line.band(x)))
        yield Drawing(
            name="_".join(filter(None, [w_name, name, model, prompt and f"prompt-{prompt}"])),
            figure=spectrum(
                facet,
                groups,
                title=" · ".join(filter(None, [model, name, prompt and f"prompt {prompt}", w_name])),
                lines=lines,
            ),
            caption=(
                f"Mean mass of each word group at every {w_name}, {len(facet):,} texts. Lines are least-squares fits over the "
                "index of the value, shaded with the 95% confidence band of the fit."
            ),
            alt=describe_spectrum(facet, groups, lines),
        )


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """None: the observations hold every sentence, and the results every mean."""
    return {}


def told(evidence: Evidence, results: Sequence[Result]) -> Told:
    """The words of the report."""
    frame, design = evidence.frame, evidence.design
    values = [_span(str(name), facet) for name, facet in frame.groupby("w_name", sort=False)]
    words = [f"{group}: {', '.join(forms)}" for group, forms in design["words"].items()]
    asked = [
        f"{design['title']}{' — ' + design['source'] if design['source'] else ''}; {len(frame):,} texts in all.",
        *values,
    ]
    asked += told_prompts(design)
    if words:
        asked.append(f"Nothing in a text decides which of these words fills the blank: {'; '.join(words)}.")
    examples = [] if "text" not in frame else list(dict.fromkeys(frame["text"].iloc[:: max(len(frame) // 4, 1)]))[:4]
    return Told(
        title="Spurious correlation",
        lead="Does an answer that nothing in the sentence decides drift with a word that should not matter?",
        asked=asked,
        examples=examples,
        notes=_notes(design, frame),
    )


def _readings(design: Mapping[str, Any]) -> list[str]:
    """What masses are, by the ways in which the models were read."""
    if "readout" not in design:
        return [
            "Masses are as recorded and not normalised; a row of zeros is a measurement: none of the listed words "
            "was among what was recorded."
        ]
    readouts = dict(design.get("readouts", {}))
    kinds = dict.fromkeys(map(_kind_of_readout, readouts.values() or [design["readout"]]))
    several = len(kinds) > 1
    said = []
    for kind in kinds:
        of = ", ".join(name for name, readout in readouts.items() if _kind_of_readout(readout) == kind)
        text = READINGS[kind] + (TOP_FIVE if kind != LIKELIHOOD and design["protocol"] == PAPER else "")
        said.append(f"{of}: {text}" if several else text)
    return said


def _kind_of_readout(readout: str) -> str:
    return readout if readout in (LIKELIHOOD, PROMPT) else "place"


READINGS = {
    LIKELIHOOD: "Masses are shares of the likelihood that the listed words have between them, so they add up to 100%.",
    PROMPT: (
        "Masses are probabilities of the listed words in the answer to a prompt, in percent: at the one step whose word is among "
        "them, or, where none or several are, averaged over all steps of the answer."
    ),
    "place": "Masses are probabilities of the words in their place, in percent; what none of them took is unclaimed.",
}
BOUNDED = (
    "A server shows the most probable tokens of each step only. Masses are the middle of what they may be, and so are the dots "
    "and lines of the figures; the tables say between which bounds a mean or a slope lies whatever was hidden, and the "
    "intervals cover all of it."
)
TOP_FIVE = " Words that are not among the five most probable count as nothing."


def _notes(design: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    unscored = frame.loc[frame["unscored"] != "", "unscored"].value_counts()
    return [
        *_readings(design),
        *([BOUNDED] if any(str(name).endswith(".low") for name in frame) else []),
        *odd_prompts(design),
        "Slopes are percentage points per step along the W list, in the order it is given.",
        "A drift is claimed only if its q value is below .05 and its interval excludes 0.",
        "Each mean is taken over the sentences that share one inserted value. The intervals come from resampling whole "
        "sentence patterns, because sentences of one pattern are not independent of each other; the band in a figure is "
        "that of the straight line alone.",
        "A slope shows that the answer moves with something that does not decide it. It does not show why: not which "
        "texts the model learned from, and not how it behaves in other sentences, prompts or languages.",
        *(f"Unscored, {count:,} texts: {reason}" for reason, count in unscored.items()),
    ]
