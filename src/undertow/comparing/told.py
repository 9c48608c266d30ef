"""Comparisons in words: what differs, the strongest first, and the parts of their page.

Knows comparisons and the page's parts; knows nothing about how differences were got or files are written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow import probes
from undertow.comparing.differences import Comparison
from undertow.comparing.replicates import columns_known, lacking_told
from undertow.probes.base import Design, Evidence
from undertow.report.page import Page, PageFigure
from undertow.report.telling import asked_of, beside_each_other
from undertow.report.words import MAX_DIGITS, MISSING, measure_title, number, probability, significant_decimals
from undertow.types import Finding, Result, Shown, Told

if TYPE_CHECKING:
    from undertow.records import Record
    from undertow.report.drawing import Drawing

ALPHA = 0.05
MOST_FIGURES = 6
MOST_ROWS = 18
"""Differences in one figure; the strongest."""
CANDIDATE = "candidate"
"""Key of the group that says which run, where several are held against one baseline."""

NOTES = (
    "A difference is the number of the later run less that of the baseline, each over the items that both answered.",
    "The intervals come from leaving whole clusters (sentence patterns, occupations, documents or pairs of names) out of both runs. They "
    "say how far the difference would move with other sentences of this kind, and nothing of other training seeds, prompts or languages.",
    "p is how often as large a difference would come about if the two runs were exchanged in some of the clusters, as they could be if "
    "they did not differ; q is p after Benjamini and Hochberg's correction over all differences on this page. A difference counts as "
    "found if q is below .05 and its interval excludes 0.",
    "That a difference is not found does not say that there is none: its interval says how large it could be.",
)
GLOSSARY = {
    "value": "the number of the candidate less that of the baseline",
    "95% interval": "a range that, over many comparisons like this one, holds the true difference 95 times in 100",
    "p": "how often a difference at least this large comes about when the two runs are exchanged in some of the clusters",
    "q": "p after Benjamini and Hochberg's correction over all differences on this page; values in bold have q below .05",
    "n": "how many items of both runs the difference rests on",
    "unscored": "items that one of the two runs lacks or has no answer to",
    "baseline": "value in the baseline run, over the items of both",
    "candidate": "value in the run that is held against it, over the items of both",
}


HOW_FOUND = "A difference counts as found where its q is below .05 and its interval excludes 0."
NOT_TESTED = "Not tested."
NOTHING_DIFFERS = "No difference between the runs survived the correction for the number of tests."
ALL_ALIKE = "Where all answers are the same, there is no difference to be found."


def told_of(comparison: Comparison) -> Told:
    """The words that the audit has for its measures, and for what both runs were asked."""
    run = comparison.runs[0]
    probe = probes.load(comparison.probe)
    both = [
        Evidence(shared.observations, Design(of.manifest["design"], name))
        for shared, of, name in zip(
            comparison.shared, comparison.runs, (comparison.baseline, comparison.candidate), strict=True
        )
    ]
    with lacking_told(both[0], comparison.baseline, columns_known(comparison.probe, both)):
        return probe.told(both[0], run.results)


def is_found(difference: Result) -> bool:
    """Whether a difference is told from zero; one without an interval by its q alone."""
    return difference.q < ALPHA and not difference.low <= 0 <= difference.high


def strongest_first(differences: Sequence[Result]) -> list[Result]:
    """By how often they hold half their interval, since units differ; those that are found first, those without a number last."""
    return sorted(differences, key=lambda one: (not is_found(one), -strength(one)))


def strength(difference: Result) -> float:
    """Size in halves of the interval; of one without an interval, 1 where there is a difference at all, and less than 0 of none."""
    if not math.isfinite(difference.value):
        return -1.0
    half = (difference.high - difference.low) / 2
    if math.isfinite(half) and half > 0:
        return abs(difference.value) / half
    return 1.0 if difference.value else 0.0


def findings(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> list[Finding]:
    """A sentence for each difference that is found, the strongest first; then how many are not.

    Args:
        comparisons: with one baseline, told together.
        titles: of the audit's own measures, by name.
    """
    several = len(comparisons) > 1
    n_tests = sum(math.isfinite(one.q) for of in comparisons for one in of.differences)
    said = [
        Finding(
            _sentence(one, of, titles, telling_keys(of.differences)),
            found=True,
            strength=strength(one),
            of=(named(of, one, several=several),),
            n_tests=n_tests,
        )
        for of in comparisons
        for one in of.differences
        if is_found(one)
    ]
    said.sort(key=lambda finding: -finding.strength)
    return [*said, *(finding for of in comparisons for finding in _not_found(of, n_tests, several=several))]


def _not_found(comparison: Comparison, n_tests: int, *, several: bool) -> list[Finding]:
    """How many differences are not told from zero, the strongest of them first in what the sentence rests on."""
    both = f"{comparison.candidate} against {comparison.baseline}: " if several else ""
    rows = [named(comparison, one, several=several) for one in strongest_first(comparison.differences)]
    finite = [one for one in rows if math.isfinite(one.value)]
    lost = tuple(one for one in rows if not math.isfinite(one.value))
    left = tuple(one for one in finite if not is_found(one))
    said = _summary(comparison, finite)
    found = [
        Finding(both + said, found=False, strength=0.0, decided=ALL_ALIKE)
        if comparison.identical
        else Finding(both + said, found=False, strength=0.0, of=left, n_tests=n_tests, decided=HOW_FOUND)
    ]
    not_had = Finding(both + _lost_told(len(lost)), found=False, strength=0.0, of=lost, decided=NOT_TESTED)
    return [*(found if said else []), *([not_had] if lost else [])]


def _summary(comparison: Comparison, finite: Sequence[Result]) -> str:
    """How many differences can be told from zero; "" where all can."""
    if comparison.identical:
        same = f"All answers to {comparison.n_answered:,} items are the same"
        return f"{same}, so all {len(finite):,} differences are 0." if finite else f"{same}."
    left = sum(not is_found(one) for one in finite)
    if not left:
        return ""
    none = left == len(finite)
    return (
        f"None of {left:,} differences can be told from zero."
        if none
        else f"Of {len(finite):,} differences, {left:,} cannot be told from zero."
    )


def _lost_told(lost: int) -> str:
    return f"{'1 number' if lost == 1 else f'{lost:,} numbers'} cannot be compared; the tables say why."


def telling_keys(differences: Sequence[Result]) -> list[str]:
    """Keys of the groups that have several levels."""
    keys = dict.fromkeys(key for one in differences for key in one.group)
    return [key for key in keys if len({one.group.get(key, "") for one in differences} - {""}) > 1]


def label(difference: Result, titles: Mapping[str, str], keys: Sequence[str]) -> str:
    """What a difference is of: its measure, and its levels of these keys."""
    title = titles.get(difference.measure) or measure_title(difference.measure)
    levels = [level for key, level in difference.group.items() if level and key in keys]
    return f"{title} ({', '.join(levels)})" if levels else title


def _sentence(one: Result, comparison: Comparison, titles: Mapping[str, str], keys: Sequence[str]) -> str:
    what = label(one, titles, keys)
    places = decimals(one)
    unit = f" {one.unit}" if one.unit and one.unit not in ("share", "r") else ""
    direction = "higher" if one.value > 0 else "lower"
    first, second = (number(one.detail[side], places) for side in ("baseline", "candidate"))
    interval = (
        f"95% interval of the difference {number(one.low, places)} to {number(one.high, places)}"
        if math.isfinite(one.low)
        else "no interval, since all clusters differ alike"
    )
    return (
        f"{what} is {number(abs(one.value), places)}{unit} {direction} in {comparison.candidate} ({second}) than in "
        f"{comparison.baseline} ({first}); {interval}, q {probability(one.q)}."
    )


def decimals(one: Result) -> int:
    """As many as half the interval needs, or where there is none the difference."""
    half = (one.high - one.low) / 2
    if not (math.isfinite(half) and half > 0):
        return significant_decimals(one.value)
    # An interval that is much narrower than the difference would print digits that say nothing.
    wanted = min(significant_decimals(half), significant_decimals(one.value, MAX_DIGITS - 1))
    return max(wanted, significant_decimals(one.value, 1) if one.value else 0)


# The page.


def page_of(
    comparisons: Sequence[Comparison],
    pictures: Sequence[PageFigure],
    command: str,
    python: str,
    provenance: Mapping[str, str],
) -> Page:
    """The page of one or more comparisons with one baseline."""
    first, several = comparisons[0], len(comparisons) > 1
    told = told_of(first)
    others = " and ".join(one.candidate for one in comparisons)
    said = findings(comparisons, told.titles)
    claimants = "listed words" if told.of_words else "possible answers"
    return Page(
        title=f"{told.title}: {others} against {first.baseline}",
        lead=f"What differs between the answers of {others} and those of {first.baseline}, to the same questions?{_one_model(comparisons)}",
        findings=said,
        results=[named(one, difference, several=several) for one in comparisons for difference in one.differences],
        figures=pictures,
        shown=[_compared(comparisons)],
        asked=told.asked,
        examples=told.examples,
        asked_of={"baseline": _who(first.baseline, first.runs[0])}
        | {_place(at, several=several): _who(one.candidate, one.runs[1]) for at, one in enumerate(comparisons, 1)},
        notes=[*_own_notes(comparisons, several=several), *NOTES],
        command=command,
        python=python,
        provenance=provenance,
        titles=told.titles,
        glossary={**told.glossary, **GLOSSARY},
        neutral="no difference would give",
        basis=_basis(said, comparisons, claimants),
        nothing=ALL_ALIKE if all(one.identical for one in comparisons) else NOTHING_DIFFERS,
    )


def _basis(said: Sequence[Finding], comparisons: Sequence[Comparison], claimants: str) -> dict[str, dict[str, str]]:
    """What each finding rests on beside its differences: what both runs were asked, the mass that nobody claimed, protocol, graph."""
    by_name = {one.candidate: one for one in comparisons}
    basis = {}
    for finding in said:
        if finding.of:
            of = by_name.get(finding.of[0].group.get(CANDIDATE, ""), comparisons[0])
            facets = [{key: level for key, level in one.group.items() if key != CANDIDATE} for one in finding.of]
            common = {key: level for key, level in facets[0].items() if all(one.get(key) == level for one in facets)}
            sides = zip((of.baseline, of.candidate), of.shared, strict=True)
            basis[finding.text] = beside_each_other([(name, _side(run, common, claimants)) for name, run in sides])
    return basis


def _side(run: Record, facet: Mapping[str, str], claimants: str) -> dict[str, str]:
    """What one of the runs was asked, and the graph that it names."""
    graph: Mapping[str, Any] = run.manifest.get("graph") or {}
    return asked_of(run, facet, claimants) | ({"graph": f"{graph['name']}: {graph['title']}"} if graph else {})


def _one_model(comparisons: Sequence[Comparison]) -> str:
    """Whose answers these all are, where runs of one model are called otherwise."""
    models = {str(run.manifest["model"]) for one in comparisons for run in one.runs}
    return f" All runs asked {models.pop()}." if len(models) == 1 else ""


def _who(name: str, run: Record) -> str:
    model = str(run.manifest["model"])
    return name if name == model else f"{name}: a run of {model}"


def _place(at: int, *, several: bool) -> str:
    return f"candidate {at}" if several else "candidate"


def _own_notes(comparisons: Sequence[Comparison], *, several: bool) -> list[str]:
    return [f"{one.candidate}: {note}" if several else note for one in comparisons for note in one.notes]


def named(comparison: Comparison, difference: Result, *, several: bool) -> Result:
    """A difference that says of which run it is, where there are several."""
    return replace(difference, group={CANDIDATE: comparison.candidate, **difference.group}) if several else difference


def _compared(comparisons: Sequence[Comparison]) -> Shown:
    """Who the runs are, side by side."""
    runs = [(comparisons[0].baseline, comparisons[0].runs[0]), *((one.candidate, one.runs[1]) for one in comparisons)]
    facts = [_facts(run) for _, run in runs]
    rows = [
        [name, *(one.get(name, "") or MISSING for one in facts)]
        for name in dict.fromkeys(k for one in facts for k in one)
    ]
    return Shown("What was compared", ["fact", *(name for name, _ in runs)], rows)


def _facts(run: Record) -> dict[str, str]:
    """Who a run asked, how, when, and the command that repeats it."""
    manifest = run.manifest
    cards = {str(part["name"]): part["card"] for part in manifest.get("models", ())}
    if "model_card" in manifest:
        cards = {str(manifest["model"]): manifest["model_card"]}
    counts: Mapping[str, Any] = manifest.get("counts", {})
    return {
        "model": str(manifest["model"]),
        "source": _of_cards(cards, "source") or str(manifest.get("recorded", "")),
        "revision": _of_cards(cards, "revision"),
        "dtype": _of_cards(cards, "dtype"),
        "read by": _of_cards(cards, "readout"),
        "protocol": str(manifest["protocol"]),
        "items": f"{counts.get('items', len(run.observations)):,}",
        "unscored": f"{counts.get('unscored', 0):,}",
        "seed": str(manifest["seed"]),
        "limit": f"{manifest.get('limit') or 'none'}",
        "challenge (SHA-256)": str(manifest.get("challenge_sha256", ""))[:16],
        "made": str(manifest["created"]),
        "Undertow": str(manifest["versions"].get("undertow", "")),
        "command": str(manifest["command"]),
    }


def _of_cards(cards: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """A fact of each model, once where it is the same of all."""
    facts = {model: str(card.get(name, ""))[:40] for model, card in cards.items()}
    if len(set(facts.values())) < 2:
        return next(iter(facts.values()), "")
    return "; ".join(f"{model}: {fact}" for model, fact in facts.items())


# The figures.


def drawings(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> list[Drawing]:
    """A figure for each measure, those with the strongest differences first."""
    from undertow.report.differences import DrawnDifference, describe_differences, draw_differences
    from undertow.report.drawing import Drawing

    several, first = len(comparisons) > 1, comparisons[0]
    by_measure: dict[tuple[str, str], list[Result]] = {}
    for one in strongest_first([named(of, one, several=several) for of in comparisons for one in of.differences]):
        if math.isfinite(one.value):
            by_measure.setdefault((one.measure, one.unit), []).append(one)
    others = "the other runs" if several else first.candidate
    differing = [(key, rows) for key, rows in by_measure.items() if any(one.value for one in rows)]
    drawn = []
    for (measure, unit), rows in differing[:MOST_FIGURES]:
        title = titles.get(measure) or measure_title(measure)
        keys = telling_keys(rows)
        chosen = [
            DrawnDifference(
                ", ".join(one.group[key] for key in keys if one.group.get(key)) or _levels(one) or title,
                one.value,
                one.low,
                one.high,
                is_found(one),
            )
            for one in rows[:MOST_ROWS]
        ]
        drawn.append(
            Drawing(
                name=f"difference_{measure}",
                figure=draw_differences(
                    chosen, title=f"{title}: {others} less {first.baseline}", unit=unit, n_all=len(rows)
                ),
                caption=(
                    f"{title}, {others} less {first.baseline}, with 95% intervals; filled where a difference is told from zero after "
                    f"correction. {_how_many(len(chosen), len(rows))}"
                ).strip(),
                alt=describe_differences(chosen, title, unit),
            )
        )
    return drawn


def _levels(one: Result) -> str:
    """All that a difference is of, where it stands alone."""
    return ", ".join(filter(None, one.group.values()))


def _how_many(shown: int, of_all: int) -> str:
    return f"The {shown} strongest of {of_all:,}." if shown < of_all else ""
