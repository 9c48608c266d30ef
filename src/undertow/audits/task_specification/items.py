"""Items of task specification: options, and sentences with W, without W, and over all dates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from undertow import data as challenge
from undertow.audits.base import Sampling, split_names
from undertow.audits.shared import item_limit
from undertow.audits.shared.prompt_items import SentenceSettings, in_prompts, n_prompts
from undertow.errors import UndertowError
from undertow.types import Item, option

DETECT, PLAIN, TRACE = "detect", "plain", "trace"
"""Parts of a run: sentences with the W values of the scores, sentences without W, one occupation over all dates."""
TRACE_DATES = 30


@dataclass(frozen=True, slots=True)
class Settings(SentenceSettings):
    """Options of the audit."""

    words: str = option(
        "",
        "Word list that fills every blank, regardless of case: aaai, or a .toml file with a list for each group; the form of the case if "
        "not given.",
    )
    challenge: str = option(
        "undertow-schemas",
        "Sentences: undertow-schemas, simplified, winogender, simplified-winogender, or a .csv, .tsv or .toml file.",
    )
    w: str = option("date", "W lists, comma-separated: date, place, subreddit, or a file with one value a line.")
    inject: str = option(
        "In {w}: ", "Text that puts W in front of a sentence, or around it as in '{text} It was {w}.'."
    )
    date_start: int = option(1901, "First year of the date list.")
    date_count: int = option(2, "Number of years; 3 or more also give slopes.")
    endpoint_window: int = option(1, "Number of W values to average at each end of the list.")
    threshold: float = option(0.5, "Score in percent above which a sentence is classified as underspecified.")
    entropy_baseline: bool = option(False, "Also query each sentence without W, for the score entropy_plain.")
    trace_occupation: str = option("", "Occupations to query at 30 dates, comma-separated (figure 4 of the papers).")


def all_items(settings: Settings, sampling: Sampling) -> list[Item]:
    """The items of the scores and, if set, sentences without W and one occupation over all dates."""
    sentence_set = sentences_of(settings)
    chosen = _sample(sentence_set, sampling, _n_values(settings))
    items = items_of(chosen, settings)
    if settings.entropy_baseline:
        items += _part(chosen.plain(), PLAIN)
    if settings.trace_occupation:
        known = list(dict.fromkeys(sentence.cluster for sentence in sentence_set.sentences))
        wanted = split_names(settings.trace_occupation, known, "trace-occupation")
        traced = tuple(one for one in sentence_set.sentences if one.cluster in wanted)
        # A range with fewer years than the trace: all of them.
        years = min(TRACE_DATES, abs(settings.date_stop - settings.date_start) + 1)
        dates = challenge.Dates(settings.date_start, settings.date_stop, years, least=2).to_covariate()
        injection = challenge.Injection.parse(settings.inject)
        items += _part(replace(sentence_set, sentences=traced).inject(injection, [dates]), TRACE)
    return in_prompts(items, sentence_set.words, settings)


def items_of(sentences: challenge.SentenceSet, settings: Settings) -> list[Item]:
    """Sentences crossed with the W values."""
    return _part(sentences.inject(challenge.Injection.parse(settings.inject), _covariates(settings)), DETECT)


def sentences_of(settings: Settings) -> challenge.SentenceSet:
    """The set of sentences of the settings."""
    sentence_set = challenge.load_sentences(settings.challenge, settings.data_dir, settings.options)
    return sentence_set.with_words(challenge.word_list(settings.words)) if settings.words else sentence_set


def _covariates(settings: Settings) -> list[challenge.Covariate]:
    if settings.endpoint_window < 1:
        raise UndertowError(f"--endpoint-window must be at least 1, got {settings.endpoint_window}")
    dates = challenge.Dates(settings.date_start, settings.date_stop, settings.date_count, least=2)
    covariates = [challenge.load_covariate(name, dates, least=2) for name in settings.list_names()]
    challenge.check_covariates(covariates)
    for covariate in covariates:
        if len(covariate.values) < 2 * settings.endpoint_window:
            raise UndertowError(
                f"--endpoint-window {settings.endpoint_window} needs {2 * settings.endpoint_window} W values, and "
                f"{covariate.name} has {len(covariate.values)}: lower it, or raise --date-count"
            )
    if not math.isfinite(settings.threshold) or settings.threshold < 0:
        raise UndertowError(f"--threshold {settings.threshold} must be 0 or more, in percent")
    return covariates


def limitations(settings: Settings, sampling: Sampling) -> list[str]:
    """A sentence if the set, or its sample for `--limit`, is too small for a claim about detection; else []."""
    sentence_set = sentences_of(settings)
    n_values = _n_values(settings)
    if lacking := _too_small(sentence_set.sentences):
        return [f"{sentence_set.name}: no claim about detection is possible with {lacking}."]
    limited_set = _sample(sentence_set, sampling, n_values)
    if not (left := _too_small(limited_set.sentences)):
        return []
    useful = (
        n_values * n
        for n in range(2 * item_limit.MIN_SENTENCES, len(sentence_set.sentences))
        if not _too_small(_sample(sentence_set, Sampling(n_values * n, sampling.seed), n_values).sentences)
    )
    return [item_limit.too_few(left, next(useful, n_values * len(sentence_set.sentences)), "about detection")]


def _too_small(sentences: Sequence[challenge.Sentence]) -> str:
    """What is missing for a test, which needs six clusters of each kind, and six or none with both kinds; "" if nothing."""
    clusters = [{one.cluster for one in of_kind} for of_kind in _kinds(sentences).values()]
    fewest = min(map(len, clusters), default=0)
    if fewest < item_limit.MIN_SENTENCES:
        kinds = "sentences of each kind" if len(clusters) > 1 else "sentences"
        return f"{kinds} from {fewest} {'cluster' if fewest == 1 else 'clusters'} where {item_limit.MIN_SENTENCES} are needed"
    mixed = len(set.intersection(*clusters)) if len(clusters) > 1 else 0
    if 0 < mixed < item_limit.MIN_SENTENCES:
        return f"{mixed} clusters with sentences of both kinds where {item_limit.MIN_SENTENCES}, or none, are needed"
    return ""


def _kinds(sentences: Sequence[challenge.Sentence]) -> dict[object, list[challenge.Sentence]]:
    kinds: dict[object, list[challenge.Sentence]] = {}
    for sentence in sentences:
        kinds.setdefault(sentence.factors.get("well_specified"), []).append(sentence)
    return kinds


def _n_values(settings: Settings) -> int:
    return n_prompts(settings) * sum(len(covariate.values) for covariate in _covariates(settings))


def _sample(sentence_set: challenge.SentenceSet, sampling: Sampling, n_values: int) -> challenge.SentenceSet:
    """Sample whole sentences at every W value, both kinds in proportion, from at least six clusters if the limit allows.

    The rarer kind comes from as many clusters as possible, the other kind from the same clusters if they have it, because tests of
    detection use the differences between kinds within a cluster.
    """
    n_kept = max(sampling.limit // n_values, 1)
    if not sampling.limit or n_kept >= len(sentence_set.sentences):
        return sentence_set
    kinds = sorted(_kinds(sentence_set.sentences).values(), key=len)
    least = max(min(n_kept // len(kinds), item_limit.MIN_SENTENCES), 1)
    counts = [max(round(n_kept * len(kind) / len(sentence_set.sentences)), min(least, len(kind))) for kind in kinds]
    counts[-1] = max(counts[-1] - max(sum(counts) - n_kept, 0), least)
    kept: list[challenge.Sentence] = []
    for kind, count in zip(kinds, counts, strict=True):
        clusters = {sentence.cluster for sentence in kept}
        beside = [sentence for sentence in kind if sentence.cluster in clusters]
        others = [sentence for sentence in kind if sentence.cluster not in clusters]
        n_beside = min(count, len(beside))
        for some, n in ((beside, n_beside), (others, count - n_beside)):
            kept += [some[at] for at in item_limit.stratified_sample([one.cluster for one in some], n, sampling.seed)]
    ids = {sentence.id for sentence in kept}
    return replace(sentence_set, sentences=tuple(one for one in sentence_set.sentences if one.id in ids))


def _part(items: list[Item], part: str) -> list[Item]:
    factors = [{"part": part, "expected": item.gold or "", **item.factors} for item in items]
    return [replace(item, id=f"{part}/{item.id}", factors=own) for item, own in zip(items, factors, strict=True)]
