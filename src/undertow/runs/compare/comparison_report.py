"""The report of a comparison: findings, figures and page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow import audits
from undertow.audits.base import Observations
from undertow.metrics.catalog import METRICS
from undertow.report.formatting import (
    MAX_DIGITS,
    MINUS,
    MISSING,
    measure_title,
    number,
    probability,
    significant,
    significant_decimals,
)
from undertow.report.model import ReportTable, ReportText
from undertow.report.page import Page, PageFigure
from undertow.runs.compare.differences import Comparison, statement
from undertow.runs.compare.equivalence import (
    DIFFERS,
    EQUIVALENT,
    INCONCLUSIVE,
    INNER_HIGH,
    INNER_LOW,
    MARGIN,
    OVER_PROMPTS,
    VERDICTS,
    W_SPAN,
    is_significant,
    verdict,
)
from undertow.runs.compare.resampling import columns_known, require_columns
from undertow.runs.folder.storage import ManifestFacts
from undertow.runs.run_report import beside_each_other, sample_facts
from undertow.types import MAX_DECIMALS, Finding, Result

if TYPE_CHECKING:
    from undertow.report.style import Drawing
    from undertow.runs.folder.storage import Record

MAX_FIGURES = 6
MAX_ROWS = 18
"""Differences in one figure; the strongest."""
MAX_PAIRS = 3
"""Comparisons that are summed up one by one; of more there is a table, and one sentence on all of them."""
RUNS = "runs"
"""Key of the group that says which run less which, where there are several comparisons."""
VERDICT = "verdict"
"""Key of the group that says what a difference is, in the tables of the page."""
LEFT_TO_THE_TABLE = (INNER_LOW, INNER_HIGH, W_SPAN)
"""Further numbers that comparison.csv holds and the page leaves out."""

NOTES = (
    "A difference is the number of the later run less that of the baseline, each over the items that both answered.",
    f"The margin is the smallest difference of interest. A difference *{DIFFERS}* where q is below .05 and its 95% interval lies wholly "
    f"beyond the margin: only this is claimed. It is *{EQUIVALENT}* where its 90% interval lies wholly within (two one-sided tests). "
    f"Of all others it *{INCONCLUSIVE}* which they are: the interval says how large they could be. What has no interval is not claimed.",
    "The intervals are about other sentences of this kind (patterns, occupations, documents or pairs of names), and say nothing of other "
    "training seeds, prompts or languages. They come from leaving whole clusters out of both runs.",
    "Differences of slopes are judged as drifts are: the answers' differences, row by row, may have noise of each value of W, which "
    "neighbouring values share. Differences of mean masses are at these values of W, and not at others.",
    "p is how often chance alone would give a difference that far beyond its margin, if the true one were as large as the margin; q is p "
    "after Benjamini and Hochberg's correction over the tests of the same statement on this page: of slopes, of effects of W, or "
    "of all other measures. A difference within its margin has p = 1; one of rounding is a tie and is not tested.",
)
GLOSSARY = {
    "value": "the number of the candidate less that of the baseline",
    "95% interval": "a range that, over many comparisons like this one, holds the true difference 95 times in 100",
    "p": "how often chance alone would give a difference this far beyond its margin, if the true one were as large as the margin",
    "q": "p after Benjamini and Hochberg's correction over the tests of the same statement on this page (of slopes, of effects of W, or of "
    "all other measures); values in bold have q below .05",
    "n": "how many items of both runs the difference rests on",
    "missing": "items that one of the two runs lacks or has no answer to",
    "baseline": "value in the baseline run, over the items of both",
    "candidate": "value in the run that is held against it, over the items of both",
    "margin": "the smallest difference of interest, in the unit of the table",
    "verdict": f"{DIFFERS} (claimed), {EQUIVALENT}, or {INCONCLUSIVE}",
    "mean_mass": "the average probability that the words of a group take; a difference of two is at these values of W, for other sentences",
    "w_effect_of_difference": "the standard deviation of what the values of W do to the difference of both runs, without the noise that "
    "the sentences leave: 0 where both answer W alike",
    "slope": "how far the difference of both runs moves when W goes one step or unit further, which is the difference of their slopes; "
    "it is judged as a drift is",
}
GLOSSARY |= {
    f"{name}_over_prompts": f"{GLOSSARY[name]}; for masses averaged over all prompts, which decides what is claimed"
    for name in ("mean_mass", "w_effect_of_difference", "slope")
}
TITLES = {
    "w_effect_of_difference": "Effect of W on the difference",
    "w_effect_of_difference_over_prompts": "Effect of W on the difference over prompts",
}


DECISION_RULE = "A difference is claimed where q is below .05 and its 95% interval lies wholly beyond the margin."
NOT_TESTED = "Not tested."
NOTHING_DIFFERS = "No difference between the runs is claimed to be more than its margin."
ALL_ALIKE = "Where all answers are the same, there is no difference to be found."


def comparison_text(comparison: Comparison) -> ReportText:
    """The audit's report text for the items of both runs."""
    run = comparison.runs[0]
    audit = audits.load(comparison.audit)
    both = [
        Observations(shared.observations, ManifestFacts(of.manifest["design"], name, "its design"))
        for shared, of, name in zip(
            comparison.shared, comparison.runs, (comparison.baseline, comparison.candidate), strict=True
        )
    ]
    with require_columns(both[0], comparison.baseline, columns_known(comparison.audit, both)):
        return audit.report_text(both[0], run.results)


def strongest_first(differences: Sequence[Result]) -> list[Result]:
    """Sort differences: significant ones first, then by size in half-widths of the interval; missing numbers last."""
    return sorted(differences, key=lambda one: (not is_significant(one), -strength(one)))


def strength(difference: Result) -> float:
    """Size in half-widths of the interval; without an interval, 1 for any difference and below 0 for none."""
    if not math.isfinite(difference.value):
        return -1.0
    half = (difference.high - difference.low) / 2
    if math.isfinite(half) and half > 0:
        return abs(difference.value) / half
    return 1.0 if difference.value else 0.0


def findings(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> list[Finding]:
    """A sentence for each significant difference, the strongest first; then the number of others.

    Args:
        comparisons: comparisons of one report.
        titles: titles of the audit's metrics, by name.
    """
    several = len(comparisons) > 1
    tested = [statement(one) for of in comparisons for one in of.differences if math.isfinite(one.q)]
    said = [
        Finding(
            _sentence(one, of, titles, distinguishing_keys(of.differences)),
            significant=True,
            strength=strength(one),
            results=(named(of, one, several=several),),
            n_tests=tested.count(statement(one)),
        )
        for of in comparisons
        for one in of.differences
        if is_significant(one)
    ]
    said.sort(key=lambda finding: -finding.strength)
    if len(comparisons) > MAX_PAIRS:
        return [*said, *_not_significant(comparisons, tested)]
    return [*said, *(finding for of in comparisons for finding in _not_significant([of], tested, several=several))]


def _not_significant(
    comparisons: Sequence[Comparison], tested: Sequence[str], *, several: bool = True
) -> list[Finding]:
    """Number of differences that are not significant, with the strongest first among its results."""
    who = "" if not several else f"{comparisons[0].candidate} against {comparisons[0].baseline}: "
    if len(comparisons) > 1:
        who = f"All {len(comparisons)} comparisons together: "
    rows = strongest_first([named(of, one, several=several) for of in comparisons for one in of.differences])
    finite = [one for one in rows if math.isfinite(one.value)]
    lost = tuple(one for one in rows if not math.isfinite(one.value))
    left = tuple(one for one in finite if not is_significant(one))
    n_tests = tested.count(statement(left[0])) if left else 0
    said, identical = _summary(comparisons, finite), all(of.identical for of in comparisons)
    tallied = [
        Finding(who + said, significant=False, strength=0.0, decision_rule=ALL_ALIKE)
        if identical
        else Finding(
            who + said, significant=False, strength=0.0, results=left, n_tests=n_tests, decision_rule=DECISION_RULE
        )
    ]
    not_had = Finding(
        who + _lost_sentence(len(lost)), significant=False, strength=0.0, results=lost, decision_rule=NOT_TESTED
    )
    return [*(tallied if said else []), *([not_had] if lost else [])]


def _summary(comparisons: Sequence[Comparison], finite: Sequence[Result]) -> str:
    """Number of equivalent and inconclusive differences; "" if all are significant."""
    if len(comparisons) == 1 and comparisons[0].identical:
        same = f"All answers to {comparisons[0].n_answered:,} items are the same"
        return f"{same}, so all {len(finite):,} differences are 0." if finite else f"{same}."
    counts = counted(finite)
    said = []
    if counts[EQUIVALENT]:
        one = counts[EQUIVALENT] == 1
        said.append(
            f"{counts[EQUIVALENT]:,} {'is' if one else 'are'} equivalent within {'its' if one else 'their'} margin"
        )
    if counts[INCONCLUSIVE]:
        said.append(f"{counts[INCONCLUSIVE]:,} are inconclusive")
    if not said:
        return ""
    many = "1 difference" if len(finite) == 1 else f"{len(finite):,} differences"
    none = " None is claimed." if not counts[DIFFERS] else ""
    return f"Of {many}, {' and '.join(said)}.{none}"


def counted(differences: Sequence[Result]) -> dict[str, int]:
    """Number of differences with a value, by verdict."""
    verdicts = [verdict(one) for one in differences if math.isfinite(one.value)]
    return {one: verdicts.count(one) for one in VERDICTS}


def _lost_sentence(lost: int) -> str:
    return f"{'1 number' if lost == 1 else f'{lost:,} numbers'} cannot be compared; the tables say why."


def distinguishing_keys(differences: Sequence[Result]) -> list[str]:
    """Keys of the groups that have several levels."""
    keys = dict.fromkeys(key for one in differences for key in one.group)
    return [key for key in keys if len({one.group.get(key, "") for one in differences} - {""}) > 1]


def label(difference: Result, titles: Mapping[str, str], keys: Sequence[str]) -> str:
    """Label of a difference: its metric, and its levels of these keys."""
    title = title_of(difference.measure, titles)
    levels = [level for key, level in difference.group.items() if level and key in keys]
    return f"{title} ({', '.join(levels)})" if levels else title


def title_of(measure: str, titles: Mapping[str, str]) -> str:
    """The title of a metric: the audit's, or the default."""
    return titles.get(measure) or TITLES.get(measure) or measure_title(measure)


def _sentence(one: Result, comparison: Comparison, titles: Mapping[str, str], keys: Sequence[str]) -> str:
    what = label(one, titles, keys) + _at_these(one)
    places = decimals(one)
    unit = f" {one.unit}" if one.unit and one.unit not in ("share", "r") else ""
    direction = "higher" if one.value > 0 else "lower"
    interval = f"95% interval of the difference {digits(one.low, places)} to {digits(one.high, places)}"
    beyond = f"margin {significant(one.extras[MARGIN])}, q {probability(one.q)}"
    if not math.isfinite(one.extras["baseline"]):
        return f"{what}: {digits(one.value, places)}{unit}, {comparison.candidate} less {comparison.baseline}; {interval}, {beyond}."
    first, second = (digits(one.extras[side], places) for side in ("baseline", "candidate"))
    return (
        f"{what} is {digits(abs(one.value), places)}{unit} {direction} in {comparison.candidate} ({second}) than in "
        f"{comparison.baseline} ({first}); {interval}, {beyond}."
    )


def _at_these(one: Result) -> str:
    """Note that a mean mass is a mean over the queried values of W only."""
    w_name = one.group.get("w_name", "")
    return f" at these values of {w_name}" if w_name and one.measure.removesuffix(OVER_PROMPTS) == "mean_mass" else ""


def digits(value: float, places: int) -> str:
    """A number with these decimals; with an exponent if it would round to 0."""
    if math.isfinite(value) and value != 0.0 and float(f"{value:.{places}f}") == 0.0 and places >= MAX_DECIMALS:
        return f"{value:.1e}".replace("-", MINUS)
    return number(value, places)


def decimals(one: Result) -> int:
    """Decimals for the half-width of the interval, or for the difference if there is none."""
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
    """The page of one or more comparisons."""
    first, several = comparisons[0], len(comparisons) > 1
    text = comparison_text(first)
    sides = sides_of(comparisons)
    said = findings(comparisons, text.titles)
    claimants = "listed words" if text.of_words else "possible answers"
    all_of_them = f"{', '.join(list(sides)[:-1])} and {list(sides)[-1]}"
    return Page(
        title=f"{text.title}: {all_of_them} with each other"
        if several
        else f"{text.title}: {first.candidate} against {first.baseline}",
        lead=f"What differs between the answers of {all_of_them} to the same questions?{_one_model(comparisons)}",
        findings=said,
        results=[_row(named(one, each, several=several)) for one in comparisons for each in one.differences],
        figures=pictures,
        tables=[*([_pairs(comparisons)] if several else []), _compared(sides)],
        questions=text.questions,
        examples=text.examples,
        identity={_place(at, several=several): _who(name, run) for at, (name, run) in enumerate(sides.items(), 1)},
        notes=[*notes_of(comparisons), *NOTES],
        command=command,
        python=python,
        provenance=provenance,
        titles={**TITLES, **text.titles},
        glossary={**text.glossary, **_glossary(comparisons)},
        null_prefix="no difference would give",
        basis=_basis(said, comparisons, claimants),
        nothing=ALL_ALIKE if all(one.identical for one in comparisons) else NOTHING_DIFFERS,
    )


def _glossary(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Meanings of the columns and metrics of this comparison."""
    measures = {one.measure for of in comparisons for one in of.differences}
    of_measures = {name for name in GLOSSARY if name in METRICS}
    return {name: text for name, text in GLOSSARY.items() if name not in of_measures or name in measures}


def _row(difference: Result) -> Result:
    """A difference as a row of the page, with its verdict and without numbers that only the CSV table holds."""
    word = verdict(difference) if math.isfinite(difference.value) else ""
    detail = {name: number for name, number in difference.extras.items() if name not in LEFT_TO_THE_TABLE}
    return replace(difference, group={**difference.group, VERDICT: word}, extras=detail)


def sides_of(comparisons: Sequence[Comparison]) -> dict[str, Record]:
    """The compared runs by name, in order."""
    sides: dict[str, Record] = {}
    for one in comparisons:
        for name, run in zip((one.baseline, one.candidate), one.runs, strict=True):
            sides.setdefault(name, run)
    return sides


def _basis(said: Sequence[Finding], comparisons: Sequence[Comparison], claimants: str) -> dict[str, dict[str, str]]:
    """Basis of each finding: samples of both runs, mass of other words, protocol and graph."""
    by_name = {pair_name(one): one for one in comparisons}
    basis = {}
    for finding in said:
        if finding.results:
            of = by_name.get(finding.results[0].group.get(RUNS, ""), comparisons[0])
            facets = [{key: level for key, level in one.group.items() if key != RUNS} for one in finding.results]
            common = {key: level for key, level in facets[0].items() if all(one.get(key) == level for one in facets)}
            sides = zip((of.baseline, of.candidate), of.shared, strict=True)
            basis[finding.text] = beside_each_other([(name, _side(run, common, claimants)) for name, run in sides])
    return basis


def _side(run: Record, facet: Mapping[str, str], claimants: str) -> dict[str, str]:
    """Sample of one run, and its graph."""
    graph: Mapping[str, Any] = run.manifest.get("graph") or {}
    return sample_facts(run, facet, claimants) | ({"graph": f"{graph['name']}: {graph['title']}"} if graph else {})


def _one_model(comparisons: Sequence[Comparison]) -> str:
    """The model, where all runs are of one model and have other names."""
    models = {str(run.manifest["model"]) for one in comparisons for run in one.runs}
    names = set(sides_of(comparisons))
    return f" All runs are of {models.pop()}." if len(models) == 1 and not names & models else ""


def _who(name: str, run: Record) -> str:
    """Name of a run, and its model if that is not the name."""
    model = str(run.manifest["model"])
    models = {model, *(str(part["name"]) for part in run.manifest.get("models", ()))}
    return name if name in models else f"{name}: a run of {model}"


def _place(at: int, *, several: bool) -> str:
    return f"run {at}" if several else ("baseline", "candidate")[at - 1]


def notes_of(comparisons: Sequence[Comparison]) -> list[str]:
    """Notes of all comparisons without repeats, with the names of the pairs where not all share a note."""
    by_note: dict[str, list[str]] = {}
    for one in comparisons:
        for note in one.notes:
            by_note.setdefault(note, []).append(pair_name(one))
    return [
        note if len(names) == len(comparisons) else f"{'; '.join(names)}: {note}" for note, names in by_note.items()
    ]


def pair_name(comparison: Comparison) -> str:
    """Name of a comparison among others."""
    return f"{comparison.candidate} less {comparison.baseline}"


def named(comparison: Comparison, difference: Result, *, several: bool) -> Result:
    """A difference with the names of its runs, where there are several comparisons."""
    return replace(difference, group={RUNS: pair_name(comparison), **difference.group}) if several else difference


def _pairs(comparisons: Sequence[Comparison]) -> ReportTable:
    """Table of the number of differences by verdict, for each comparison."""
    rows = [
        [one.candidate, one.baseline, f"{one.n_answered:,}", *(f"{n:,}" for n in counted(one.differences).values())]
        for one in comparisons
    ]
    return ReportTable("Every pair", ["candidate", "baseline", "items of both", *VERDICTS], rows)


def _compared(sides: Mapping[str, Record]) -> ReportTable:
    """Facts of the runs side by side; one row per run where there are many."""
    facts = {name: _facts(name, run) for name, run in sides.items()}
    known = list(dict.fromkeys(key for one in facts.values() for key in one))
    if len(facts) > MAX_PAIRS:
        rows = [[name, *(one.get(key, "") or MISSING for key in known)] for name, one in facts.items()]
        return ReportTable("What was compared", ["run", *known], rows)
    rows = [[key, *(one.get(key, "") or MISSING for one in facts.values())] for key in known]
    return ReportTable("What was compared", ["fact", *facts], rows)


def _facts(name: str, run: Record) -> dict[str, str]:
    """Model, protocol, date and command of a run; of one model, if the run has that name."""
    manifest = run.manifest
    identities = {str(part["name"]): part["identity"] for part in manifest.get("models", ())}
    identities = {name: identities[name]} if name in identities else identities
    if "model_identity" in manifest:
        identities = {str(manifest["model"]): manifest["model_identity"]}
    counts: Mapping[str, Any] = manifest.get("counts", {})
    return {
        "model": name if name in identities else str(manifest["model"]),
        "source": _joined_facts(identities, "source") or str(manifest.get("recorded", "")),
        "revision": _joined_facts(identities, "revision"),
        "dtype": _joined_facts(identities, "dtype"),
        "read by": _joined_facts(identities, "scoring_method"),
        "protocol": str(manifest["protocol"]),
        "items": f"{counts.get('items', len(run.observations)):,}",
        "missing": f"{counts.get('missing', 0):,}",
        "seed": str(manifest["seed"]),
        "limit": f"{manifest.get('limit') or 'none'}",
        "challenge (SHA-256)": str(manifest.get("challenge_sha256", ""))[:16],
        "created": str(manifest["created"]),
        "Undertow": str(manifest["versions"].get("undertow", "")),
        "command": str(manifest["command"]),
    }


def _joined_facts(identities: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """A fact of each model, or one value if all are equal."""
    facts = {model: str(identity.get(name, ""))[:40] for model, identity in identities.items()}
    if len(set(facts.values())) < 2:
        return next(iter(facts.values()), "")
    return "; ".join(f"{model}: {fact}" for model, fact in facts.items())


# The figures.


def drawings(comparisons: Sequence[Comparison], titles: Mapping[str, str]) -> list[Drawing]:
    """A figure for each metric, those with the strongest differences first."""
    from undertow.report.figures.forest_plot import DrawnDifference, describe_differences, draw_differences
    from undertow.report.style import Drawing

    several, first = len(comparisons) > 1, comparisons[0]
    by_measure: dict[tuple[str, str], list[Result]] = {}
    for one in strongest_first([named(of, one, several=several) for of in comparisons for one in of.differences]):
        if math.isfinite(one.value):
            by_measure.setdefault((one.measure, one.unit), []).append(one)
    less = "one run less another" if several else pair_name(first)
    differing = [(key, rows) for key, rows in by_measure.items() if any(one.value for one in rows)]
    drawn = []
    for (measure, unit), rows in differing[:MAX_FIGURES]:
        title = title_of(measure, titles)
        keys = distinguishing_keys(rows)
        chosen = [
            DrawnDifference(
                ", ".join(one.group[key] for key in keys if one.group.get(key)) or _levels(one) or title,
                one.value,
                one.low,
                one.high,
                significant=is_significant(one),
                equivalent=verdict(one) == EQUIVALENT,
                margin=one.extras.get(MARGIN, 0.0),
            )
            for one in rows[:MAX_ROWS]
        ]
        drawn.append(
            Drawing(
                name=f"difference_{measure}",
                figure=draw_differences(chosen, title=f"{title}: {less}", unit=unit, n_all=len(rows)),
                caption=(
                    f"{title}, {less}, with 95% intervals before the band of the margin; a dot where a difference is claimed to be more "
                    f"than that, a square where it is equivalent. {_how_many(len(chosen), len(rows))}"
                ).strip(),
                alt=describe_differences(chosen, title, unit),
            )
        )
    return drawn


def _levels(one: Result) -> str:
    """All levels of a difference, for use outside a table."""
    return ", ".join(filter(None, one.group.values()))


def _how_many(n_drawn: int, of_all: int) -> str:
    return f"The {n_drawn} strongest of {of_all:,}." if n_drawn < of_all else ""
