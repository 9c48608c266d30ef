"""The report of a comparison: findings, figures and page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow import audits
from undertow.audits.base import Observations
from undertow.errors import on_one_line
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.formatting import MAX_DIGITS, MINUS, MISSING, measure_title, number, significant_decimals
from undertow.report.page_data import Drawing, Page, PageFigure, ReportTable, ReportText
from undertow.report.sentence_templates import lines, sentences
from undertow.runs.compare.differences import Comparison, statement
from undertow.runs.compare.equivalence import (
    EQUIVALENT,
    INCONCLUSIVE,
    INNER_HIGH,
    INNER_LOW,
    MARGIN,
    VERDICTS,
    W_SPAN,
    is_significant,
    verdict,
)
from undertow.runs.folder.storage import ManifestFacts
from undertow.runs.run_report import beside_each_other, sample_facts
from undertow.types import MAX_DECIMALS, Finding, Result

if TYPE_CHECKING:
    from undertow.runs.folder.storage import Record

MAX_FIGURES = 6
MAX_ROWS = 18
"""Maximum number of differences in a figure, the strongest first."""
MAX_PAIRS = 3
"""Maximum number of comparisons with separate summaries; more have a table and one common sentence."""
RUNS = "runs"
"""Group key of the pair of runs, for several comparisons."""


def comparison_text(comparison: Comparison) -> ReportText:
    """The audit's report text for the items of both runs."""
    run = comparison.runs[0]
    audit = audits.load(comparison.audit)
    design = ManifestFacts(run.manifest["design"], comparison.baseline, "its design")
    return audit.report_text(Observations(comparison.shared[0].observations, design), run.results)


def strength(difference: Result) -> float:
    """Size in half-widths of the interval; without an interval, 1 for any difference and below 0 for none."""
    if not math.isfinite(difference.value):
        return -1.0
    half = (difference.high - difference.low) / 2
    if math.isfinite(half) and half > 0:
        return abs(difference.value) / half
    return 1.0 if difference.value else 0.0


def pairs_of(comparisons: Sequence[Comparison]) -> list[tuple[Comparison, Result]]:
    """Every difference with its comparison, the strongest first; missing numbers last."""
    both = [(of, one) for of in comparisons for one in of.differences]
    return sorted(both, key=lambda pair: (not is_significant(pair[1]), -strength(pair[1])))


def findings(comparisons: Sequence[Comparison]) -> list[Finding]:
    """A sentence for each significant difference, the strongest first; then the number of others."""
    tests = Counter(statement(one) for of in comparisons for one in of.differences if math.isfinite(one.q))
    stated = []
    for of, one in pairs_of(comparisons):
        if is_significant(one):
            text, detail = _sentence(one, of)
            results = (named(of, one, several=len(comparisons) > 1),)
            stated.append(Finding(text, True, strength(one), True, results, tests[statement(one)], detail=detail))
    if len(comparisons) > MAX_PAIRS:
        return [*stated, *_not_significant(comparisons, tests, f"All {len(comparisons)} comparisons together: ")]
    for of in comparisons:
        who = f"{of.candidate} against {of.baseline}: " if len(comparisons) > 1 else ""
        stated += _not_significant([of], tests, who)
    return stated


def _not_significant(comparisons: Sequence[Comparison], tests: Mapping[str, int], who: str) -> Iterator[Finding]:
    """The number of differences that are not significant, and of those that are missing."""
    text = sentences("comparison")
    rows = [named(of, one, several=bool(who)) for of, one in pairs_of(comparisons)]
    finite = [one for one in rows if math.isfinite(one.value)]
    left = tuple(one for one in finite if not is_significant(one))
    counts = Counter(map(verdict, left))
    if all(of.identical for of in comparisons):
        n_answered = sum(of.n_answered for of in comparisons)
        sentence = text.identical(n_answered, len(finite))
        yield Finding(who + sentence, significant=False, strength=0.0, decision_rule=text.all_alike)
    elif left:
        yield Finding(
            who + text.others(len(finite), counts[EQUIVALENT], counts[INCONCLUSIVE]),
            significant=False,
            strength=0.0,
            results=left,
            n_tests=tests.get(statement(left[0]), 0),
            decision_rule=text.decision_rule,
        )
    lost = tuple(one for one in rows if not math.isfinite(one.value))
    if lost:
        sentence = who + text.missing(len(lost))
        yield Finding(sentence, significant=False, strength=0.0, results=lost, decision_rule=text.not_tested)


def _meanings(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Meanings of measures on the page that differ for differences."""
    own, page_meanings = sentences("comparison").meanings, {}
    for name in dict.fromkeys(one.measure for of in comparisons for one in of.differences):
        if meaning := own.get(name.removesuffix(OVER_PROMPTS)):
            over = "; for masses averaged over all prompts, which decides what is claimed" * name.endswith(OVER_PROMPTS)
            page_meanings[name] = meaning + over
    return page_meanings


def counted(differences: Sequence[Result]) -> dict[str, int]:
    """Number of differences with a value, by verdict."""
    verdicts = [verdict(one) for one in differences if math.isfinite(one.value)]
    return {one: verdicts.count(one) for one in VERDICTS}


def distinguishing_keys(differences: Sequence[Result]) -> list[str]:
    """Keys of the groups that have several levels."""
    keys = dict.fromkeys(key for one in differences for key in one.group)
    return [key for key in keys if len({one.group.get(key, "") for one in differences} - {""}) > 1]


def label(difference: Result, keys: Sequence[str]) -> str:
    """Label of a difference: its metric, and its levels of these keys."""
    title = measure_title(difference)
    levels = [level for key, level in difference.group.items() if level and key in keys]
    return f"{title} ({', '.join(levels)})" if levels else title


def _sentence(one: Result, of: Comparison) -> list[str]:
    """The sentence on a difference, and its interval."""
    what, w_name = label(one, distinguishing_keys(of.differences)), one.group.get("w_name", "")
    if w_name and one.measure.removesuffix(OVER_PROMPTS) == "mean_mass":
        what += f" at these values of {w_name}"
    places = decimals(one)
    return lines(sentences("comparison").difference(one, of, on_one_line(what), lambda value: digits(value, places)))


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
    # An interval much narrower than the difference would print meaningless digits.
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
    stated, words = findings(comparisons), sentences("comparison")
    claimants = "listed words" if text.of_words else "possible answers"
    all_of_them = f"{', '.join(list(sides)[:-1])} and {list(sides)[-1]}"
    return Page(
        title=f"{text.title}: {all_of_them} with each other"
        if several
        else f"{text.title}: {first.candidate} against {first.baseline}",
        lead=f"Differences between the answers of {all_of_them} to the same questions.{_one_model(comparisons)}",
        facts={
            "Runs": all_of_them,
            "Compared": f"{sum(one.n_answered for one in comparisons):,} items that both answered",
        },
        caveats=words.notes[:1],
        findings=stated,
        results=[_row(named(one, each, several=several)) for one in comparisons for each in one.differences],
        figures=pictures,
        tables=[*([_pairs(comparisons)] if several else []), _compared(sides)],
        questions=text.questions,
        examples=text.examples,
        identity={
            f"run {at}" if several else ("baseline", "candidate")[at - 1]: _who(name, run)
            for at, (name, run) in enumerate(sides.items(), 1)
        },
        notes=[*notes_of(comparisons), *words.notes],
        command=command,
        python=python,
        provenance=provenance,
        glossary={**text.glossary, **words.glossary, **_meanings(comparisons)},
        null_prefix="no difference would give",
        basis=_basis(stated, comparisons, claimants),
        nothing=words.all_alike if all(one.identical for one in comparisons) else words.nothing_differs,
    )


def _row(difference: Result) -> Result:
    """A difference as a row of the page, with its verdict and without the extras that only the CSV table has."""
    word = verdict(difference) if math.isfinite(difference.value) else ""
    extras = {name: number for name, number in difference.extras.items() if name not in (INNER_LOW, INNER_HIGH, W_SPAN)}
    return replace(difference, group={**difference.group, "verdict": word}, extras=extras)


def sides_of(comparisons: Sequence[Comparison]) -> dict[str, Record]:
    """The compared runs by name, in order."""
    sides: dict[str, Record] = {}
    for one in comparisons:
        for name, run in zip((one.baseline, one.candidate), one.runs, strict=True):
            sides.setdefault(name, run)
    return sides


def _basis(stated: Sequence[Finding], comparisons: Sequence[Comparison], claimants: str) -> dict[str, dict[str, str]]:
    """Basis of each finding: samples of both runs, mass of other words, protocol and graph."""
    by_name = {pair_name(one): one for one in comparisons}
    basis = {}
    for finding in stated:
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
    """A sentence on the model, if all runs have the same model and other names."""
    models = {str(run.manifest["model"]) for one in comparisons for run in one.runs}
    names = set(sides_of(comparisons))
    return f" All runs are of {models.pop()}." if len(models) == 1 and not names & models else ""


def _who(name: str, run: Record) -> str:
    """Name of a run, and its model if that is not the name."""
    model = str(run.manifest["model"])
    models = {model, *(str(part["name"]) for part in run.manifest.get("models", ()))}
    return name if name in models else f"{name}: a run of {model}"


def notes_of(comparisons: Sequence[Comparison]) -> list[str]:
    """Notes of all comparisons without repeats, with the names of the pairs if not all share a note."""
    by_note: dict[str, list[str]] = {}
    for one in comparisons:
        for note in one.notes:
            by_note.setdefault(note, []).append(pair_name(one))
    n = len(comparisons)
    return [note if len(names) == n else f"{'; '.join(names)}: {note}" for note, names in by_note.items()]


def pair_name(comparison: Comparison) -> str:
    """Name of a comparison among others."""
    return f"{comparison.candidate} minus {comparison.baseline}"


def named(comparison: Comparison, difference: Result, *, several: bool) -> Result:
    """A difference with the names of its runs if there are several comparisons."""
    return replace(difference, group={RUNS: pair_name(comparison), **difference.group}) if several else difference


def _pairs(comparisons: Sequence[Comparison]) -> ReportTable:
    """Table of the number of differences by verdict, for each comparison."""
    rows = [
        [one.candidate, one.baseline, f"{one.n_answered:,}", *(f"{n:,}" for n in counted(one.differences).values())]
        for one in comparisons
    ]
    return ReportTable("Every pair", ["candidate", "baseline", "items of both", *VERDICTS], rows)


def _compared(sides: Mapping[str, Record]) -> ReportTable:
    """Facts of the runs side by side; one row per run if there are many."""
    facts = {name: _facts(name, run) for name, run in sides.items()}
    known = list(dict.fromkeys(key for one in facts.values() for key in one))
    if len(facts) > MAX_PAIRS:
        rows = [[name, *(one.get(key, "") or MISSING for key in known)] for name, one in facts.items()]
        return ReportTable("What was compared", ["run", *known], rows)
    rows = [[key, *(one.get(key, "") or MISSING for one in facts.values())] for key in known]
    return ReportTable("What was compared", ["fact", *facts], rows)


def _facts(name: str, run: Record) -> dict[str, str]:
    """Model, protocol, date and command of a run, or of one of its models with this name."""
    manifest = run.manifest
    identities = {str(part["name"]): part["identity"] for part in manifest.get("models", ())}
    identities = {name: identities[name]} if name in identities else identities
    if "model_identity" in manifest:
        identities = {str(manifest["model"]): manifest["model_identity"]}
    counts: Mapping[str, Any] = manifest.get("counts", {})
    system_prompt = _joined_facts(identities, "system_prompt")
    return {
        "model": name if name in identities else str(manifest["model"]),
        "source": _joined_facts(identities, "source") or str(manifest.get("recorded", "")),
        "revision": _joined_facts(identities, "revision"),
        "dtype": _joined_facts(identities, "dtype"),
        "read by": _joined_facts(identities, "scoring_method"),
        **({"system prompt": system_prompt} if system_prompt else {}),
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


def drawings(comparisons: Sequence[Comparison]) -> list[Drawing]:
    """A figure for each metric, those with the strongest differences first."""
    from undertow.report.figures.forest_plot import ForestRow, describe_differences, draw_differences

    several, first = len(comparisons) > 1, comparisons[0]
    by_measure: dict[tuple[str, str], list[Result]] = {}
    for of, one in pairs_of(comparisons):
        if math.isfinite(one.value):
            by_measure.setdefault((one.measure, one.unit), []).append(named(of, one, several=several))
    less = "one run less another" if several else pair_name(first)
    differing = [(key, rows) for key, rows in by_measure.items() if any(one.value for one in rows)]
    drawn = []
    for (measure, unit), rows in differing[:MAX_FIGURES]:
        title = measure_title(rows[0])
        keys = distinguishing_keys(rows)
        chosen = [
            ForestRow(
                ", ".join(one.group[key] for key in keys if one.group.get(key))
                or ", ".join(filter(None, one.group.values()))
                or title,
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
                caption=sentences("comparison").caption(title, less, len(chosen), len(rows)),
                alt=describe_differences(chosen, title, unit),
            )
        )
    return drawn
