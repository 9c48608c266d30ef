"""Spurious correlation: an answer that nothing in the sentence decides, against a W that should not matter.

Gender-neutral sentences, a gender-neutral W injected, the mass of each word group read, averaged per W value and
regressed on the index of W. McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 4;
the ICLR submission "Selection Induced Collider Bias in LLMs", section 4; McMilin 2022 (ICML workshop), section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import data as challenge
from undertow.audits.base import EXACT, PAPER, ItemBatches, Observations, Sampling
from undertow.audits.shared import control_items, item_limit
from undertow.audits.shared.group_masses import observation_rows
from undertow.audits.shared.model_comparison import (
    axis_label,
    comparison_findings,
    draw_grid,
    draw_sizes,
    draw_trajectories,
    is_ordered,
    line_points,
    mass_label,
    mean_of,
    step_of,
)
from undertow.audits.shared.prompt_items import (
    CHAT,
    DEFAULT_MAX_NEW_TOKENS,
    MAX_NEW_TOKENS,
    PROMPT_MASK,
    PROMPTS,
    design_of,
    in_prompts,
    n_prompts,
    odd_prompts,
    prompts_text,
)
from undertow.audits.shared.prompt_items import adapt_settings as adapt_prompt_settings
from undertow.audits.spurious_correlation import drift_findings, word_findings
from undertow.audits.spurious_correlation.drift_findings import ALPHA, FACETS
from undertow.errors import UndertowError
from undertow.report.model import ReportText
from undertow.types import LIKELIHOOD, PROMPT, Finding, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

SUMMARY = "does the answer to an undecided question drift with the date, the place, or any list of yours?"
PROTOCOLS = (EXACT, PAPER)
CAUSAL_CLAIM = "drift with W"
TRAJECTORIES = {
    "slope_gap": "Slope gap",
    "slope": "Slope",
    "pearson_r": "Pearson r",
    "mean_mass": "Mean mass",
    "w_effect": "Effect of W",
    "slope_gap_over_prompts": "Slope gap over prompts",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the audit."""

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


def adapt_settings(settings: Settings, capabilities: Mapping[str, Sequence[str]]) -> Settings:
    """Settings for a model that answers these kinds of query: a model without blanks gets the three prompts."""
    return adapt_prompt_settings(settings, capabilities, default="A,B,C")


def items(settings: Settings, sampling: Sampling) -> ItemBatches:
    """One round: every cell of the design, by every prompt."""
    words = _word_groups(settings).words
    yield in_prompts(_sample_items(_items(settings), settings, sampling), words, settings)


def controls(settings: Settings) -> list[Item]:
    """A few sentences that decide their answer, by every prompt, where the words are the English pronouns."""
    words = _word_groups(settings).words
    return in_prompts(control_items.controls(words), words, settings)


def limitations(settings: Settings, sampling: Sampling) -> list[str]:
    """Sentences on effects that the run is too small to detect.

    They are about lists with too few sentences or values for a claim, lists that only `--limit` makes too small, and unordered lists
    whose few sentences allow no significant p.
    """
    items, covariates, given = _items(settings), _covariates(settings), _word_groups(settings)
    whole, limited_lists = _items_by_list(items), _items_by_list(_sample_items(items, settings, sampling))
    least = {one.name: item_limit.fewest_values(one.scale) for one in covariates}
    useful = [name for name, of_list in limited_lists.items() if of_list.is_useful(least[name])]
    lost = [name for name, of_list in whole.items() if of_list.is_useful(least[name]) and name not in useful]
    notes = [one.limitation() for one in sizes_of(items, covariates)]
    if lost:
        smallest = item_limit.smallest_useful(len(limited_lists), n_prompts(settings))
        of_list = limited_lists[lost[0]]
        left = f"{len(of_list.sentences)} x {len(of_list.values)} sentences and values of {', '.join(lost)}"
        notes.append(item_limit.too_few(left, smallest, f"of {', '.join(lost)}" if useful else ""))
    sizes = sizes_of([item for one in limited_lists.values() for item in one.items], covariates)
    notes += flip_limitations(sizes, given.words, given.gaps)
    return [note for note in notes if note]


def lists_of(settings: Settings) -> list[tuple[challenge.Covariate, item_limit.ListSizes]]:
    """Sample size of each W list."""
    covariates = {one.name: one for one in _covariates(settings)}
    return [(covariates[one.name], one) for one in sizes_of(_items(settings), list(covariates.values()))]


def sizes_of(items: Sequence[Item], covariates: Sequence[challenge.Covariate]) -> list[item_limit.ListSizes]:
    """How many sentences and values each W list has."""
    scales = {one.name: one.scale for one in covariates}
    return [
        item_limit.ListSizes(
            name,
            scales[name],
            n_sentences=len(one.sentences),
            n_clusters=len(set(one.sentences.values())),
            n_values=len(one.values),
        )
        for name, one in _items_by_list(items).items()
    ]


def flip_limitations(
    lists: Sequence[item_limit.ListSizes], groups: Collection[str], gaps: Sequence[Sequence[str]]
) -> list[str]:
    """Sentences on unordered lists with too few sentences for a significant p; each list has a test for every group and gap."""
    n_tests = len(lists) * (len(groups) + len(gaps))
    return [note for one in lists if (note := one.flip_limitation(n_tests, "a model's"))]


def _items(settings: Settings) -> list[Item]:
    covariates = _covariates(settings)
    if not settings.inject:
        return _challenge(settings).items(covariates)
    if settings.words:
        raise UndertowError("--words cannot be used with --inject: the sentences have word groups of their own")
    sentences = challenge.load_sentences(settings.challenge, settings.data_dir, settings.options)
    return sentences.injected(challenge.Injection.parse(settings.inject), covariates)


def _covariates(settings: Settings) -> list[challenge.Covariate]:
    """W lists of the run, each on its scale."""
    dates = challenge.Dates(settings.date_start, settings.date_stop, settings.date_count)
    names = [name.strip() for name in settings.w.split(",") if name.strip()]
    if settings.w and not names:
        raise UndertowError("--w names no W list; write for example --w date,place")
    scale = settings.w_scale
    if settings.inject:
        chosen = [challenge.load_covariate(name, dates, scale=scale) for name in names or ["date"]]
    else:
        # The package's date list follows the date options wherever a set names it.
        published = challenge.Dates().to_covariate(scale)
        of_set = {
            one.name: dates.to_covariate(scale) if one == published else one for one in _challenge(settings).covariates
        }
        chosen = [of_set.get(name) or challenge.load_covariate(name, dates, scale=scale) for name in names or of_set]
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
    return challenge.load(settings.challenge, settings.words, settings.w_scale, challenge.SUMMARIES)


@dataclass(frozen=True, slots=True)
class _ListItems:
    """The items of one W list.

    Attributes:
        items: by value, then sentence.
        values: places in the list, rising.
        sentences: the cluster of each sentence.
    """

    items: list[Item]
    values: list[int]
    sentences: dict[tuple[tuple[str, object], ...], str]

    def is_useful(self, fewest_values: int) -> bool:
        """Whether there are enough clusters and values for a claim."""
        return len(set(self.sentences.values())) >= item_limit.MIN_SENTENCES and len(self.values) >= fewest_values

    def sample(self, limit: int, seed: int) -> list[Item]:
        """Whole sentences at evenly spread values, about `limit` items; sentences of as many clusters as there can be."""
        if limit >= len(self.items):
            return self.items
        n_sentences, n_values = item_limit.balanced(limit, len(self.sentences), len(self.values))
        values = {self.values[place] for place in item_limit.evenly(n_values, len(self.values))}
        cells = list(self.sentences)
        chosen = {cells[at] for at in item_limit.spread(list(self.sentences.values()), n_sentences, seed)}
        return [item for item in self.items if item.factors["w_index"] in values and _cell(item) in chosen]


def _items_by_list(items: Sequence[Item]) -> dict[str, _ListItems]:
    by_name: dict[str, list[Item]] = {}
    for item in items:
        by_name.setdefault(str(item.factors["w_name"]), []).append(item)
    return {
        name: _ListItems(
            of_name,
            sorted({int(item.factors["w_index"]) for item in of_name}),
            {_cell(item): item.cluster for item in of_name},
        )
        for name, of_name in by_name.items()
    }


def _sample_items(items: list[Item], settings: Settings, sampling: Sampling) -> list[Item]:
    """The items that a limit leaves, by W list, value and sentence: sentences and values in balance."""
    limit = max(sampling.limit // n_prompts(settings), 1)
    if not sampling.limit or limit >= len(items):
        return items
    lists = _items_by_list(items)
    shares = item_limit.shares(limit, [len(one.items) for one in lists.values()])
    return [
        item for one, share in zip(lists.values(), shares, strict=True) for item in one.sample(share, sampling.seed)
    ]


def _cell(item: Item) -> tuple[tuple[str, object], ...]:
    """The sentence of an item: all of its factors but those of its W value."""
    return tuple((name, level) for name, level in item.factors.items() if name not in ("w", "w_index", "w_value"))


@dataclass(frozen=True, slots=True)
class _Given:
    """Word groups, gaps and title of a challenge set, without its W values."""

    words: dict[str, list[str]]
    gaps: list[list[str]]
    title: str
    source: str


def _word_groups(settings: Settings) -> _Given:
    if settings.inject:
        given = challenge.load_sentences(settings.challenge, settings.data_dir, settings.options)
        return _Given(
            {group: list(forms) for group, forms in given.words.items()},
            gaps_of(given.groups),
            given.title,
            given.source,
        )
    chosen = _challenge(settings)
    words = {
        group: [" ".join(forms) for name, forms in chosen.words.forms if name == group] for group in chosen.words.groups
    }
    return _Given(words, [list(pair) for pair in chosen.gaps], chosen.title, chosen.source)


def design(settings: Settings) -> dict[str, Any]:
    """Word groups, their forms, the gaps that are compared, the W lists with their order and scale, and the prompts."""
    given, covariates = _word_groups(settings), _covariates(settings)
    return {
        "groups": list(given.words),
        "gaps": given.gaps,
        "title": given.title,
        "source": given.source,
        "normalised": True,
        "protocol": EXACT,
        "covariates": {covariate.name: covariate.design_entry() for covariate in covariates},
        "w_notes": [note for covariate in covariates for note in covariate.notes],
        **design_of(given.words, settings),
    }


def gaps_of(groups: Sequence[str]) -> list[list[str]]:
    """Female less male where there are both, else the first group less each other."""
    return [["female", "male"]] if {"female", "male"} <= set(groups) else [[groups[0], other] for other in groups[1:]]


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
    """Masses in percent, normalised over the groups, from each option's log-likelihood."""
    shared = scores.scoring_method == LIKELIHOOD
    groups, words = design["groups"], design.get("words", {})
    frame = observation_rows(items, scores, groups, model)
    tokens = word_findings.tokens_of_words(items, scores, words)
    unlike = word_findings.notes_on_words(word_findings.mean_masses(frame, groups), tokens, words, model)
    more = {
        "w_notes": [*design.get("w_notes", []), *unlike],
        **({"tokens_of_word": {model: tokens}} if tokens else {}),
    }
    return Observations(frame, {**design, **more, "normalised": shared, "scoring_method": scores.scoring_method})


def load_recorded(path: Path, protocol: str) -> tuple[Observations, str]:
    """Recorded masses in percent, several models in one file.

    Raises:
        UndertowError: the file is no such table, or does not support the protocol.
    """
    if protocol not in ("", PAPER):
        known = (
            "the exact masses cannot be had from recorded ones"
            if protocol == EXACT
            else f"there is no protocol {protocol!r}"
        )
        raise UndertowError(f"{path}: is measured as it was recorded (protocol paper): {known}, leave --protocol out")
    from undertow.audits.recorded_tables import read_recorded
    from undertow.audits.shared.recorded_covariates import covariates_of

    frame, groups, how_read = read_recorded(path)
    covariates, notes = covariates_of(frame)
    limits = _limit_notes(frame, covariates)
    notes = [*how_read, *notes, *limits]
    for model, rows in frame.groupby("model", sort=False):
        notes = [*notes, *word_findings.notes_on_words(word_findings.mean_masses(rows, groups), {}, {}, str(model))]
    design = {
        "groups": groups,
        "words": {},
        "gaps": gaps_of(groups),
        "title": f"recorded outputs ({path.name})",
        "source": path.name,
        "normalised": False,
        "protocol": PAPER,
        "covariates": covariates,
        "w_notes": notes,
        **({"limitations": limits} if limits else {}),
    }
    return Observations(frame, design), PAPER


def _limit_notes(frame: pd.DataFrame, covariates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences on W lists of a recording that are too small for a claim, with the models if these are not all."""
    scored = frame[frame["missing_reason"] == ""]
    models_of_note: dict[str, list[str]] = {}
    for (name, model, _), rows in scored.groupby(["w_name", "model", "challenge"], sort=False):
        n_clusters = int(rows["cluster"].nunique())
        of_list = item_limit.ListSizes(
            str(name), str(covariates[str(name)]["scale"]), n_clusters, n_clusters, int(rows["w_index"].nunique())
        )
        models_of_note.setdefault(of_list.limitation(), []).append(str(model))
    everywhere = scored["model"].nunique()
    return [
        note if len(set(models)) == everywhere else f"{', '.join(dict.fromkeys(models))}: {note}"
        for note, models in models_of_note.items()
        if note
    ]


def measure(observations: Observations, seed: int) -> list[Result]:
    """All measures of every model, challenge, prompt and W, and of masses averaged over prompts."""
    # Statistics and tables take most of a second to load: listing, help and refusals do without.
    from undertow.metrics.covariate_association import correlate

    groups = observations.design["groups"]
    gaps = [(str(first), str(second)) for first, second in observations.design["gaps"]]
    return correlate(observations.frame, groups, gaps, covariates=observations.design.get("covariates", {}), seed=seed)


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """State every drift, the largest effects first, each with one test that is corrected over the run.

    A model without any answer gets one sentence with the reason.
    """
    silent = _unmeasured_models(observations.frame)
    scored = [result for result in results if result.group.get("model") not in silent]
    claims = [
        *drift_findings.findings(scored, observations.frame, observations.design),
        *comparison_findings(scored, observations.frame, observations.design, ALPHA),
    ]
    return [
        *sorted(claims, key=lambda finding: (not finding.significant, -finding.strength)),
        *(
            Finding(
                text,
                significant=False,
                strength=0.0,
                results=tuple(one for one in drift_findings.decisive_results(results) if one.group["model"] == model),
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


def _span(w_name: str, facet: pd.DataFrame) -> str:
    first, last = drift_findings.ends(facet)
    return f"{w_name}: {facet['w'].nunique()} values, from {first} to {last}."


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """The papers' figure for every model, challenge, prompt and W."""
    from undertow.metrics.covariate_association import line_of
    from undertow.report.figures.covariate_curve import FittedLine, describe_spectrum, spectrum
    from undertow.report.style import Drawing

    frame, groups = observations.frame, list(observations.design["groups"])
    missing = [name for name in (*FACETS, *groups) if name not in frame]
    if missing:
        raise UndertowError(
            f"the observations have no column {missing[0]!r}, so they are of another table; run the audit again"
        )
    yield from draw_sizes(observations, results)
    yield from draw_trajectories(observations, results, TRAJECTORIES, "pronoun")
    yield from draw_grid(observations, groups)
    for levels, facet in frame.groupby(list(FACETS), sort=False):
        if not any(facet[group].notna().any() for group in groups):
            continue
        model, name, prompt, w_name = (str(level) for level in levels)
        lines = []
        for group in groups if is_ordered(observations.design, w_name) else ():
            line = line_of(facet, group)
            lines.append(FittedLine(group, line.slope, line.r, *line_points(facet, line, 100)))
        covariate = observations.design.get("covariates", {}).get(w_name, {})
        over = "the place of the value in its list" if step_of(covariate) == "step" else "the value"
        yield Drawing(
            name="_".join(filter(None, [w_name, name, model, prompt and f"prompt-{prompt}"])),
            figure=spectrum(
                facet,
                groups,
                title=" · ".join(filter(None, [model, name, prompt and f"prompt {prompt}", w_name])),
                lines=lines,
                x_label=axis_label(w_name, covariate),
                measured=mass_label(observations.design, [model]),
                step=step_of(covariate),
            ),
            caption=(
                f"{mean_of(observations.design, [model])} of each word group at every {w_name}, in percent, {len(facet):,} texts."
                + (
                    f" Lines are least-squares fits over {over}, shaded with the 95% band of the line alone."
                    if lines
                    else ""
                )
            ),
            alt=describe_spectrum(facet, groups, lines, mean_of(observations.design, [model])),
        )


def tables(observations: Observations) -> dict[str, pd.DataFrame]:
    """`words`: how each word of a group moves by itself, where groups have several; the results hold every group."""
    words = word_findings.words_table(observations)
    return {} if words is None else {"words": words}


def report_text(observations: Observations, results: Sequence[Result]) -> ReportText:
    """The words of the report."""
    frame, design = observations.frame, observations.design
    values = [_span(str(name), facet) for name, facet in frame.groupby("w_name", sort=False)]
    words = [f"{group}: {', '.join(forms)}" for group, forms in design["words"].items()]
    rows = frame["model"].value_counts()
    texts = f"{rows.max():,} texts" + (f", asked of {len(rows)} models" if len(rows) > 1 else "")
    texts += "" if rows.min() == rows.max() else f" ({len(frame):,} in all)"
    sentences = [
        f"{design['title']}{' — ' + design['source'] if design['source'] else ''}; {texts}.",
        *values,
    ]
    sentences += prompts_text(design)
    if words:
        sentences.append(f"Nothing in a text decides which of these words fills the blank: {'; '.join(words)}.")
    sentences += word_findings.controls_text(design)
    examples = [] if "text" not in frame else list(dict.fromkeys(frame["text"].iloc[:: max(len(frame) // 4, 1)]))[:4]
    return ReportText(
        title="Spurious correlation",
        lead="Does an answer that nothing in the sentence decides drift with a word that should not matter?",
        questions=sentences,
        examples=examples,
        notes=_notes(design, frame),
        tables=word_findings.report_tables(observations),
    )


def _readings(design: Mapping[str, Any]) -> list[str]:
    """What masses are, by the ways in which the models were read."""
    if "scoring_method" not in design:
        return [
            "Masses are as recorded and not normalised; a row of zeros is a measurement: none of the listed words "
            "was among what was recorded."
        ]
    scoring_methods = dict(design.get("scoring_methods", {}))
    kinds = dict.fromkeys(map(_kind_of_method, scoring_methods.values() or [design["scoring_method"]]))
    several = len(kinds) > 1
    said = []
    for kind in kinds:
        of = ", ".join(
            name for name, scoring_method in scoring_methods.items() if _kind_of_method(scoring_method) == kind
        )
        text = READINGS[kind] + (TOP_FIVE if kind != LIKELIHOOD and design["protocol"] == PAPER else "")
        said.append(f"{of}: {text}" if several else text)
    return said


def _kind_of_method(scoring_method: str) -> str:
    return scoring_method if scoring_method in (LIKELIHOOD, PROMPT) else "place"


READINGS = {
    LIKELIHOOD: "Masses are shares of the likelihood that the listed words have between them, so they add up to 100%.",
    PROMPT: (
        "Masses are probabilities of the listed words in the answer to a prompt, in percent: at the one step whose word is among "
        "them, or, where none or several are, averaged over all steps of the answer."
    ),
    "place": "Masses are probabilities of the words in their place, in percent; the rest goes to other words.",
}
BOUNDED = (
    "A server shows the most probable tokens of each step only. Masses are the middle of what they may be, and so are the dots "
    "and lines of the figures; the tables say between which bounds a mean or a slope lies whatever was hidden, and the "
    "intervals cover all of it."
)
TOP_FIVE = " Words that are not among the five most probable count as nothing."


def _notes(design: Mapping[str, Any], frame: pd.DataFrame) -> list[str]:
    rows = frame.loc[frame["missing_reason"] != "", ["model", "missing_reason"]]
    missing_reason = Counter(rows.itertuples(index=False, name=None))
    return [
        *_readings(design),
        *([BOUNDED] if any(str(name).endswith(".low") for name in frame) else []),
        *odd_prompts(design),
        *design.get("w_notes", []),
        "Three statements are told apart, each claimed by one test with q below .05, corrected over the run. *It depends on W*: these "
        "values of W move the answers, in other sentences too (effect of W). *It drifts with W*: the answers follow the order of W by more "
        "than noise that neighbouring values share could (slope); its 95% interval is for other sentences and other noise of this kind. "
        "*Other values would show it too*: the same, if the values of W are a sample of independent ones (further numbers of the slope).",
        "The band in a figure is that of the straight line alone, as in the papers; it promises less noise than there is.",
        "A slope shows that the answer moves with something that does not decide it. It does not show why: not which "
        "texts the model learned from, and not how it behaves in other sentences, prompts or languages.",
        *(f"Missing, {count:,} texts of {model}: {reason}" for (model, reason), count in missing_reason.items()),
    ]


def differences(
    baseline: Observations, candidate: Observations, margin: Callable[[Result], float], seed: int
) -> list[Result]:
    """What W does to the differences of two models: judged as a drift is."""
    from undertow.metrics.drift_differences import drift_differences

    return drift_differences((baseline.frame, candidate.frame), baseline.design, margin=margin, seed=seed)
