"""Items of spurious correlation: gender-neutral sentences crossed with the values of each W list, and their sample for `--limit`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from undertow import data as challenge
from undertow.audits.base import Sampling
from undertow.audits.shared import item_limit
from undertow.audits.shared.control_items import OWN_CONTROL
from undertow.audits.shared.prompt_items import SentenceSettings, n_prompts
from undertow.errors import UndertowError
from undertow.types import Item, option


@dataclass(frozen=True, slots=True)
class Settings(SentenceSettings):
    """Options of the audit."""

    challenge: str = option("mgc", "A name of `undertow list challenges`, or a file of your own.")
    options: str = option("", "Word groups for a .csv or .tsv file, with --inject: 'yes: is; no: is not'.")
    inject: str = option("", "Text that puts W into sentences without {w}: 'In {w}: ', or '{text} It was {w}.'")
    w: str = option(
        "",
        "W lists, comma-separated: date, place, subreddit, or a file with one value a line; 'date x place' puts a value of both into "
        "each text, in every combination.",
    )
    w_scale: str = option(
        "",
        "Unit of slopes: index (a step of the list), value (the numbers), or none (no order). Default: value for your own lists "
        "of numbers, else index.",
    )
    words: str = option(
        "", "Word list that fills the blank: pronouns, aaai, icml, or a .toml file with a list for each group."
    )


@dataclass(frozen=True, slots=True)
class WordGroups:
    """Word groups of a challenge set, the compared gaps, its source and its limits."""

    words: dict[str, list[str]]
    gaps: list[list[str]]
    title: str
    source: str
    limits: Sequence[str] = ()


def word_groups(settings: Settings) -> WordGroups:
    """The word groups of the challenge set."""
    if settings.inject:
        given = challenge.load_sentences(settings.challenge, settings.data_dir, settings.options)
        words = {group: list(forms) for group, forms in given.words.items()}
        return WordGroups(words, gaps_of(given.groups), given.title, given.source)
    chosen = _challenge(settings)
    return WordGroups(
        chosen.listed_words(), [list(pair) for pair in chosen.gaps], chosen.title, chosen.source, chosen.limits
    )


def own_controls(settings: Settings) -> list[Item]:
    """The control sentences of a challenge file; [] if it has none."""
    if settings.inject:
        is_file = settings.challenge.endswith(".toml")
        items = challenge.load(settings.challenge).control_items() if is_file else []
    else:
        items = _challenge(settings).control_items()
    return [replace(item, factors={**item.factors, "part": OWN_CONTROL}) for item in items]


def gaps_of(groups: Sequence[str]) -> list[list[str]]:
    """Default gaps: female minus male if both exist, else the first group minus each other group."""
    return [["female", "male"]] if {"female", "male"} <= set(groups) else [[groups[0], other] for other in groups[1:]]


def all_items(settings: Settings, covariates: Sequence[challenge.Covariate] = ()) -> list[Item]:
    """Every sentence with every W value, of the settings if no W lists are given."""
    covariates = covariates or covariates_of(settings)
    if not settings.inject:
        chosen = _challenge(settings)
        if settings.challenge in challenge.names() and not settings.words:
            return list(_built_in_items(settings.challenge, settings.w_scale, tuple(covariates)))
        return chosen.items(covariates)
    if settings.words:
        raise UndertowError("--words cannot be used with --inject: the sentences have word groups of their own")
    sentences = challenge.load_sentences(settings.challenge, settings.data_dir, settings.options)
    return sentences.inject(challenge.Injection.parse(settings.inject), covariates)


@lru_cache(maxsize=4)
def _built_in_items(name: str, scale: str, covariates: tuple[challenge.Covariate, ...]) -> Sequence[Item]:
    """A run needs them several times: for its items, its sample and its limitations."""
    return challenge.load(name, scale=scale).items(covariates)


def covariates_of(settings: Settings) -> list[challenge.Covariate]:
    """W lists of the run, each on its scale."""
    dates = challenge.Dates(settings.date_start, settings.date_stop, settings.date_count)
    scale, of_set = settings.w_scale, dict[str, challenge.Covariate]()
    if not settings.inject:
        # The package's date list follows the date options wherever a set names it.
        published = challenge.Dates().to_covariate(scale)
        for one in _challenge(settings).covariates:
            of_set[one.name] = dates.to_covariate(scale) if one == published else one
    names = settings.list_names() if settings.w else ["date"] if settings.inject else list(of_set)

    def load(name: str) -> challenge.Covariate:
        return of_set.get(name) or challenge.load_covariate(name, dates, scale=scale)

    chosen = [challenge.crossed(name, load) for name in names]
    challenge.check_scaled([part for one in chosen for part in one.parts or (one,)], scale)
    return chosen


def _challenge(settings: Settings) -> challenge.ChallengeSet:
    if challenge.is_sentences(settings.challenge):
        raise UndertowError(f"challenge {settings.challenge!r} has no place for W; add --inject 'In {{w}}: '")
    if settings.data_dir:
        raise UndertowError(f"challenge {settings.challenge!r} is not read from a folder; leave --data-dir out")
    if settings.options:
        raise UndertowError(f"challenge {settings.challenge!r} has word groups of its own; leave --options out")
    challenge.check_scale(settings.w_scale, "--w-scale")
    return challenge.load(settings.challenge, settings.words, settings.w_scale, challenge.SUMMARIES)


def _by_list(items: Sequence[Item]) -> dict[str, list[Item]]:
    by_name: dict[str, list[Item]] = {}
    for item in items:
        by_name.setdefault(str(item.factors["w_name"]), []).append(item)
    return by_name


def _sentence_key(item: Item) -> tuple[tuple[str, object], ...]:
    """Key of the sentence of an item: all factors except those of W."""
    return tuple((name, level) for name, level in item.factors.items() if name not in ("w", "w_index", "w_value"))


def sample_items(items: list[Item], settings: Settings, sampling: Sampling) -> list[Item]:
    """A balanced sample of sentences and values of each W list, within the limit."""
    limit = max(sampling.limit // n_prompts(settings), 1)
    if not sampling.limit or limit >= len(items):
        return items
    lists, sample = _by_list(items), list[Item]()
    shares = item_limit.divide_limit(limit, list(map(len, lists.values())))
    n_inner_of = {one.name: len(one.parts[1].values) if one.parts else 1 for one in covariates_of(settings)}
    for (name, of_list), share in zip(lists.items(), shares, strict=True):
        if share >= len(of_list):
            sample += of_list
            continue
        # Whole sentences at evenly spaced values (over both of two crossed lists), from as many clusters as possible.
        clusters = {_sentence_key(item): item.cluster for item in of_list}
        values, n_inner = sorted({int(item.factors["w_index"]) for item in of_list}), n_inner_of[name]
        n_sentences, n_values = item_limit.cross_sizes(share, len(clusters), len(values))
        n_outer = len(values) // n_inner
        outer = min(max(round((n_values * n_outer / n_inner) ** 0.5), 1), n_values) if n_inner > 1 else n_values
        kept = {
            values[first * n_inner + second]
            for first in item_limit.even_places(outer, n_outer)
            for second in item_limit.even_places(n_values // outer, n_inner)
        }
        drawn = item_limit.stratified_sample(list(clusters.values()), n_sentences, sampling.seed)
        sentences = {list(clusters)[at] for at in drawn}
        sample += [item for item in of_list if item.factors["w_index"] in kept and _sentence_key(item) in sentences]
    return sample


def limitations(settings: Settings, sampling: Sampling) -> list[str]:
    """Sentences on effects that the run is too small to detect.

    These concern lists with too few sentences or values for a claim, lists that only `--limit` makes too small, and unordered lists with
    too few sentences for a significant p.
    """
    lists, groups = lists_of(settings), word_groups(settings)
    covariates, whole = [one for one, _ in lists], [one for _, one in lists]
    sample = sample_items(all_items(settings), settings, sampling) if sampling.limit else []
    left = {one.name: one for one in (sizes_of(sample, covariates) if sampling.limit else whole)}
    notes = [one.limitation() for one in whole]
    useful = [name for name, one in left.items() if not one.limitation()]
    lost = [one.name for one in whole if not one.limitation() and one.name not in useful]
    if lost:
        smallest = item_limit.MIN_SENTENCES * item_limit.MIN_VALUES * len(left) * n_prompts(settings)
        of_list = left[lost[0]]
        remainder = f"{of_list.n_sentences} x {of_list.n_values} sentences and values of {', '.join(lost)}"
        notes.append(item_limit.too_few(remainder, smallest, f"of {', '.join(lost)}" if useful else ""))
    notes += flip_limitations(list(left.values()), groups.words, groups.gaps)
    return [note for note in notes if note]


def lists_of(settings: Settings) -> list[tuple[challenge.Covariate, item_limit.ListSizes]]:
    """Sample size of each W list. Its sentences are the same at every value, so one value is enough to count them."""
    covariates = covariates_of(settings)
    short = [replace(one, values=one.values[:1], numbers=one.numbers[:1]) for one in covariates]
    sizes = {one.name: one for one in sizes_of(all_items(settings, short), covariates)}
    return [(one, replace(sizes[one.name], n_values=len(one.values))) for one in covariates]


def sizes_of(items: Sequence[Item], covariates: Sequence[challenge.Covariate]) -> list[item_limit.ListSizes]:
    """Number of sentences and values of each W list."""
    scales, sizes = {one.name: one.scale for one in covariates}, []
    for name, of_list in _by_list(items).items():
        clusters = {_sentence_key(item): item.cluster for item in of_list}
        n_values = len({item.factors["w_index"] for item in of_list})
        sizes.append(item_limit.ListSizes(name, scales[name], len(clusters), len(set(clusters.values())), n_values))
    return sizes


def flip_limitations(
    lists: Sequence[item_limit.ListSizes], groups: Collection[str], gaps: Sequence[Sequence[str]]
) -> list[str]:
    """Sentences on unordered lists with too few sentences for a significant p; each list has a test for every group and gap."""
    n_tests = len(lists) * (len(groups) + len(gaps))
    return [note for one in lists if (note := one.flip_limitation(n_tests))]
