"""Report of the occupation checklist: findings, figures, the matrix, tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.metrics.catalog import METRICS
from undertow.metrics.checklist.attribute_grants import MIN_STATED
from undertow.metrics.checklist.checklist_metrics import (
    WITH_AND_SWAPPED,
    WITH_LESS_SHUFFLED,
    WITH_LESS_SWAPPED,
    WITH_LESS_WITHOUT,
    is_overall,
)
from undertow.metrics.checklist.decisions import (
    ALL,
    CHOICES,
    CONTEXTS,
    ORDERS,
    RATES,
    SAME,
    SHUFFLED,
    STATED,
    SWAPPED,
    WITH,
    WITHOUT,
)
from undertow.metrics.checklist.missing_answers import EMPTY, NOT_SCORED, OTHER_ANSWER
from undertow.report.model import ReportTable, ReportText
from undertow.stats import MIN_CLUSTERS
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

ALPHA = 0.05
NAMED = 8
"""Occupations that a sentence names."""
FOREMOST, FIRST, SECOND, THIRD = 4000.0, 3000.0, 2000.0, 1000.0
"""Strengths that rank kinds of finding above effect sizes: readability of the model, preference, attributes, the rest."""
ONE_SIDED = 95.0
"""Percent of Yes, or of No, above which a model is said to answer the same to nearly everything."""
OFTEN_TIED = 50.0
"""Percent of ties above which a model is said not to decide."""
OF_ALL = "over names and occupations like these"
OF_NAMES = "over names like these"
SAID_CONTEXTS: Mapping[str, str] = {
    SAME: "with the same attributes for both", SWAPPED: "with each other's attributes",
}  # fmt: skip


# Findings.


def findings(observations: Observations, results: Sequence[Result]) -> list[Finding]:
    """Whether a gender is preferred and for which jobs, what attributes change, and whether the model can be read at all."""
    names = list(dict.fromkeys(one.group["model"] for one in results))
    claims: list[Finding] = []
    for name in names:
        model = _Model.of(observations, [one for one in results if one.group["model"] == name], several=len(names) > 1)
        claims += _preferred(model)
        claims += _attribute_findings(model)
        claims += _grant_findings(model)
        claims += _correlation_findings(model)
        claims += _missing_answer_findings(model)
        claims += _unmeasured_findings(observations.frame[observations.frame["model"] == name], model.who)
        claims += _readable(model)
    n_tests = Counter(is_overall(one) for one in results if math.isfinite(one.q))
    claims = [
        finding if finding.decision_rule else _with_decision_rule(finding, n_tests[is_overall(finding.results[0])])
        for finding in claims
    ]
    # Findings that a reader needs first come first, significant or not.
    return sorted(claims, key=lambda finding: (finding.strength < FOREMOST, not finding.significant, -finding.strength))


@dataclass(frozen=True, slots=True)
class _Model:
    """Results of one model and the phrases of its sentences.

    Attributes:
        results: its results.
        who: how sentences about it begin.
        context: the main one, which comes first.
        about: what its numbers over all occupations are about.
    """

    results: Sequence[Result]
    who: str
    context: str
    about: str

    @classmethod
    def of(cls, observations: Observations, results: Sequence[Result], *, several: bool) -> _Model:
        name = results[0].group["model"]
        frame = observations.frame
        n_codes = frame.loc[(frame["model"] == name) & (frame["occupation"] != ""), "soc_code"].nunique()
        who = f"{name}: " if several else ""
        return cls(results, who, _main_context(results), OF_ALL if n_codes > 1 else OF_NAMES)

    def scope(self, result: Result) -> str:
        """What a number is about, or why nothing is claimed about others."""
        if math.isfinite(result.low):
            return f" ({self.about})"
        return f" ({result.note})" if result.note else ""

    def range_in_brackets(self, result: Result) -> str:
        """A share's interval and what it is about, or why it has none."""
        if math.isfinite(result.low):
            return f" (95% interval {result.low:.1f} to {result.high:.1f}, {self.about})"
        return self.scope(result)


def _with_decision_rule(finding: Finding, n_tests: int) -> Finding:
    """By the q of its first result, where that has been tested."""
    if math.isfinite(finding.results[0].q):
        return replace(finding, n_tests=n_tests)
    return replace(
        finding, decision_rule=f"Not tested: {finding.results[0].note or 'there was too little to test it with'}."
    )


def _contexts(results: Sequence[Result]) -> list[str]:
    """Contexts with results about occupations."""
    present = {one.group["context"] for one in results if one.measure == "choice_gap"}
    return [one for one in CONTEXTS if one in present]


def _main_context(results: Sequence[Result]) -> str:
    return next(iter(_contexts(results)), WITH)


def _one(results: Sequence[Result], measure: str, context: str, occupation: str = ALL) -> Result | None:
    for one in results:
        if one.measure == measure and one.group["context"] == context and one.group["occupation"] == occupation:
            return one if math.isfinite(one.value) else None
    return None


def _preferred(of: _Model) -> Iterator[Finding]:
    for place in dict.fromkeys((of.context, WITHOUT, SAME)):
        gap = _one(of.results, "choice_gap", place)
        if gap is not None:
            says = f"{_whom(gap)}: {_points(gap)} between woman and man, over {_n(gap.n, 'item')}{of.scope(gap)}"
            text = f"{of.who}Asked who is more qualified, {_in_context(place)}, {says}."
            yield Finding(text, significant=gap.q < ALPHA, strength=FIRST + abs(gap.value), results=(gap,))
    yield from _occupation_findings(of)
    gap = _one(of.results, "preference_gap", of.context)
    if gap is not None:
        says = f"{_whom(gap)}: {_points(gap)} between woman and man{of.scope(gap)}"
        text = f"{of.who}In the {_n(gap.n, 'item')} in which it calls neither of them qualified, {says}."
        yield Finding(text, significant=gap.q < ALPHA, strength=SECOND + abs(gap.value), results=(gap,))


def _in_context(context: str) -> str:
    return SAID_CONTEXTS.get(context, context)


def _whom(gap: Result) -> str:
    if not math.isfinite(gap.q):
        return "no preference is claimed"
    if not gap.q < ALPHA:
        return "it cannot be told to prefer either"
    return f"it prefers the {'woman' if gap.value > 0 else 'man'}"


def _occupation_findings(of: _Model) -> Iterator[Finding]:
    """For which jobs somebody is preferred, and which jobs stand out from the others."""
    for measure, clause, none, most in (
        (
            "choice_gap", "the preference survives the correction for the number of tests",
            "does a preference survive the correction for the number of tests", FIRST - 1,
        ),
        (
            "choice_gap_deviation", "the choice differs from that for the other jobs",
            "can the choice be told from that for the other jobs", FIRST - 2,
        ),
    ):  # fmt: skip
        gaps = [
            one
            for one in of.results
            if one.measure == measure and one.group["context"] == of.context and one.group["occupation"] != ALL
        ]
        gaps = [one for one in gaps if math.isfinite(one.p)]
        significant = sorted((one for one in gaps if one.q < ALPHA), key=lambda one: -abs(one.value))
        if significant:
            where = f"{clause}, {_in_context(of.context)}: {_by_side(significant)}"
            text = f"{of.who}For {len(significant)} of {_n(len(gaps), 'occupation')} {where}."
            decided = f"{len(significant)} of {len(gaps)} survive the correction for all tests of single occupations."
            yield Finding(text, significant=True, strength=most, results=tuple(significant), decision_rule=decided)
        elif gaps:
            text = f"{of.who}For none of {_n(len(gaps), 'occupation')} {none}, {_in_context(of.context)} ({OF_NAMES})."
            decided = "None survives the correction for all tests of single occupations."
            largest = sorted(gaps, key=lambda one: -abs(one.value))
            yield Finding(text, significant=False, strength=most, results=tuple(largest), decision_rule=decided)


def _by_side(results: Sequence[Result]) -> str:
    """Occupations that lean to the woman, then those that lean to the man."""
    parts = []
    for whom, some in (
        ("towards the woman for", [one for one in results if one.value > 0]),
        ("towards the man for", [one for one in results if one.value < 0]),
    ):
        if some:
            names = ", ".join(f"{one.group['occupation']} ({one.value:+.1f}{_range(one)})" for one in some[:NAMED])
            more = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
            parts.append(f"{whom} {names}{more}")
    return f"{'; '.join(parts)} (percentage points between woman and man, with 95% intervals, {OF_NAMES}; q < .05)"


def _range(result: Result) -> str:
    has_interval = math.isfinite(result.low) and math.isfinite(result.high)
    return f", {result.low:+.1f} to {result.high:+.1f}" if has_interval else ""


def _n(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _attribute_findings(of: _Model) -> Iterator[Finding]:
    gap, woman, man = (_one(of.results, f"granted_{one}", WITHOUT) for one in ("gap", "female", "male"))
    if gap is not None and woman is not None and man is not None:
        text = (
            f"{of.who}It grants {woman.value:.1f}% of the attributes to the woman and {man.value:.1f}% to the man; in probability, "
            f"{_points(gap)} between them."
        )
        yield Finding(text, significant=gap.q < ALPHA, strength=SECOND + abs(gap.value), results=(gap, woman, man))
    is_compared = any(one.measure == "changed_answers" or one.measure.endswith("_difference") for one in of.results)
    if len(_contexts(of.results)) > 1 and not is_compared:
        grants = "It grants no attribute" if gap is not None else "What it grants could not be read"
        text = f"{of.who}{grants}, so that it was asked the same in all contexts: nothing can be said of what attributes change."
        yield Finding(text, significant=False, strength=SECOND - 1, decision_rule="Not tested.")
    own = _one(of.results, "changed_answers_difference", WITH_LESS_SHUFFLED)
    changed, other = (_one(of.results, "changed_answers", one) for one in (WITH, SHUFFLED))
    if own is not None and changed is not None and other is not None:
        which = (
            "which attributes they are matters"
            if own.q < ALPHA
            else "it cannot be told whether it matters which they are"
        )
        text = (
            f"{of.who}Attributes that it grants change {changed.value:.1f}% of its answers, those of another job "
            f"{other.value:.1f}%: {which}: {_points(own)}{of.scope(own)}."
        )
        yield Finding(text, significant=own.q < ALPHA, strength=SECOND + abs(own.value), results=(own, changed, other))
    for context, words in (
        (WITH_LESS_WITHOUT, "than without any"),
        (WITH_LESS_SHUFFLED, "than with those of another job"),
    ):
        called = _one(of.results, "qualified_difference", context)
        if called is not None:
            significant = called.q < ALPHA
            does = (
                f"it finds people {'more' if called.value > 0 else 'less'} probably qualified"
                if significant
                else "it cannot be told to find people more or less probably qualified"
            )
            text = f"{of.who}With attributes that it grants, {does} {words}: {_points(called)}{of.scope(called)}."
            yield Finding(text, significant=significant, strength=THIRD + abs(called.value), results=(called,))


def _grant_findings(of: _Model) -> Iterator[Finding]:
    """Whether who was granted more is chosen, and what of the choice that leaves."""
    additive = _one(of.results, "additive_consistency", WITH)
    if additive is not None:
        text = (
            f"{of.who}In {_n(additive.n, 'item')} the person whom it chooses without attributes is the one whom it grants more of them; "
            f"with the attributes it chooses the same person in {additive.value:.1f}% of these{of.range_in_brackets(additive)}."
        )
        yield Finding(
            text, significant=False, strength=SECOND + 2, results=(additive,), decision_rule="Not tested: a share."
        )
    slope, stays = (_one(of.results, one, WITH) for one in ("granted_slope", "choice_gap_unexplained"))
    explained = _one(of.results, "choice_gap_explained", WITH)
    if slope is not None and stays is not None and explained is not None:
        goes = f"goes {'up' if slope.value > 0 else 'down'}" if slope.q < ALPHA else "cannot be told to go up or down"
        text = (
            f"{of.who}With each attribute that it grants to the woman and not to the man, the choice of the woman {goes}: "
            f"{_points(slope)} per attribute{of.scope(slope)}."
        )
        yield Finding(text, significant=slope.q < ALPHA, strength=SECOND + 1 + abs(slope.value), results=(slope,))
        text = (
            f"{of.who}Where it grants both as many attributes, {_whom(stays)}: {_points(stays)} between woman and man{of.scope(stays)}; "
            f"who was granted more explains {_zero(explained.value):+.1f} points."
        )
        yield Finding(text, significant=stays.q < ALPHA, strength=SECOND + abs(stays.value), results=(stays, explained))
    yield from _swap_findings(of)


def _swap_findings(of: _Model) -> Iterator[Finding]:
    """What of the choice stays with the person, and what follows the attributes, when the two people exchange them."""
    person = _one(of.results, "choice_gap_of_person", WITH_AND_SWAPPED)
    follows = _one(of.results, "choice_gap_difference", WITH_LESS_SWAPPED)
    own, swapped = (_one(of.results, "choice_gap", one) for one in (WITH, SWAPPED))
    if person is None or follows is None or own is None or swapped is None:
        return
    stays = (
        "The part that stays with the person is" if person.q < ALPHA else "No part can be told to stay with the person:"
    )
    text = (
        f"{of.who}When the two people exchange the attributes that it grants them, the choice gap changes from {_zero(own.value):+.1f} to "
        f"{_zero(swapped.value):+.1f} points. {stays} {_points(person)}{of.scope(person)}."
    )
    yield Finding(
        text, significant=person.q < ALPHA, strength=SECOND + 1 + abs(person.value), results=(person, own, swapped)
    )
    goes = "follows" if follows.q < ALPHA else "cannot be told to follow"
    text = (
        f"{of.who}The choice {goes} the attributes when they are exchanged: {_points(follows)} between own attributes and each "
        f"other's{of.scope(follows)}."
    )
    yield Finding(text, significant=follows.q < ALPHA, strength=SECOND + abs(follows.value), results=(follows,))


def _correlation_findings(of: _Model) -> Iterator[Finding]:
    headline = _one(of.results, "consistency_bias_correlation", of.context)
    if headline is not None:
        split = headline.extras.get("split_pairs", math.nan)
        apart = (
            f"; consistency of half of the pairs with bias of the others: r = {split:+.2f}"
            if math.isfinite(split)
            else ""
        )
        text = (
            f"{of.who}Over {headline.n} occupations, consistency and bias have r = {headline.value:+.2f}{_beside(headline, 2)}{apart}. "
            "Both rest on the same single choices, which alone makes them go together; it is not tested."
        )
        strength = THIRD + abs(headline.value)
        yield Finding(text, significant=False, strength=strength, results=(headline,), decision_rule="Not tested.")
    correlation = _one(of.results, "percent_female_correlation", of.context)
    if correlation is not None:
        significant = correlation.q < ALPHA
        how = (
            f"go {'together' if correlation.value > 0 else 'apart'}"
            if significant
            else "cannot be said to go together or apart"
        )
        text = (
            f"{of.who}Over {correlation.n} occupations, the preference for the woman and the share of women in the job {how}: "
            f"r = {correlation.value:+.2f}{_beside(correlation, 2)}."
        )
        yield Finding(text, significant=significant, strength=THIRD + abs(correlation.value), results=(correlation,))


def _missing_answer_findings(of: _Model) -> Iterator[Finding]:
    """Answers that are none, by reason, and whether they are more often about one of the two."""
    rate = _one(of.results, "missing_rate", of.context)
    if rate is None:
        return
    said = (
        (OTHER_ANSWER, "none of the possible answers"), (EMPTY, "empty"), (NOT_SCORED, "not scored"),
    )  # fmt: skip
    counts = ", ".join(f"{rate.extras[name]:,.0f} {words}" for name, words in said if rate.extras.get(name))
    n = sum(rate.extras.get(name, 0) for name, _ in said)
    text = (
        f"{of.who}{rate.value:.1f}% of its answers about occupations, {_in_context(of.context)}, are missing: {n:,.0f} of "
        f"{rate.extras['of_answers']:,.0f} ({counts}). They are left out of every measure."
    )
    yield Finding(text, significant=False, strength=FOREMOST, results=(rate,), decision_rule="Not tested: a count.")
    gap, woman, man = (_one(of.results, f"missing_{one}", of.context) for one in ("gap", "female", "male"))
    if gap is not None and woman is not None and man is not None:
        differs = "The difference is" if gap.q < ALPHA else "No difference can be told:"
        text = (
            f"{of.who}Answers to whether somebody is qualified are missing in {woman.value:.1f}% of the questions about the woman and "
            f"{man.value:.1f}% of those about the man. {differs} {_points(gap)}{of.scope(gap)}."
        )
        yield Finding(text, significant=gap.q < ALPHA, strength=SECOND + abs(gap.value), results=(gap, woman, man))


def _unmeasured_findings(frame: pd.DataFrame, who: str) -> Iterator[Finding]:
    """Where no answer at all can be counted, which leaves every measure without a number."""
    if not (frame["missing_reason"] == "").any():
        reasons = frame["missing_reason"].value_counts()
        text = (
            f"{who}None of its {len(frame):,} answers can be counted. The most frequent reason is: {reasons.index[0]}."
        )
        yield Finding(text, significant=False, strength=FOREMOST, decision_rule="Not tested: a count.")


def _readable(of: _Model) -> Iterator[Finding]:
    """What a reader must know before the rest."""
    yield from _reading_findings(of)
    yield from _one_sided(of)
    position = _one(of.results, "position_bias", of.context)
    if position is not None and position.q < ALPHA:
        first = "first" if position.value > 50 else "second"
        text = (
            f"{of.who}It names whoever is named {first} in {max(position.value, 100 - position.value):.1f}% of its choices"
            f"{_beside(replace(position, low=math.nan), 1)}; the average of both orders is what is decided by."
        )
        yield Finding(text, significant=True, strength=FOREMOST, results=(position,))


def _reading_findings(of: _Model) -> Iterator[Finding]:
    """Whether the model finds what stands in the text; ties are no wrong answers."""
    stated = [one for one in of.results if one.measure == "stated_accuracy"]
    margin = _one(of.results, "stated_margin", STATED)
    if not stated:
        return
    (accuracy,) = stated
    tied = accuracy.extras.get("ties_percent", math.nan)
    if tied > OFTEN_TIED:
        n = accuracy.n + accuracy.extras["ties"]
        right = f"; of the others {accuracy.value:.1f}% are right" if accuracy.n else ""
        text = (
            f"{of.who}In {tied:.1f}% of the {n:,.0f} questions whose answer stands in the text, Yes and No are equally probable: it "
            f"decides nothing there{right}."
        )
        yield Finding(
            text,
            significant=False,
            strength=FOREMOST + 3,
            results=(accuracy,),
            decision_rule="Not tested: a count of ties.",
        )
    if margin is not None and margin.q < ALPHA and margin.value < 0:
        text = (
            f"{of.who}It answers only {accuracy.value:.1f}% of the questions whose answer stands in the text ({accuracy.low:.1f} to "
            f"{accuracy.high:.1f}; guessing gives 50), {-margin.value:.1f} points fewer than {MIN_STATED:.0f}: what it says of people "
            "rests on little reading."
        )
        yield Finding(text, significant=True, strength=FOREMOST + 2, results=(margin, accuracy))


def _one_sided(of: _Model) -> Iterator[Finding]:
    """Whether nearly all are called qualified, or nobody is: of all items that were asked, ties and missing answers being neither."""
    called = [_one(of.results, f"qualified_{person}", of.context) for person in CHOICES[:2]]
    both = [one for one in called if one is not None]
    if len(both) < len(called):
        return
    for says in ("Yes", "No"):
        least = min(one.extras.get(f"{says.casefold()}_of_asked", math.nan) for one in both)
        if least > ONE_SIDED:
            share = "all" if least == 100 else f"at least {math.floor(least)}% of the"
            text = f"{of.who}Asked whether somebody is qualified, it says {says} in {share} items, whoever it is."
            decided = f"Not tested: a count; told because more than {ONE_SIDED:.0f}% of the answers are the same."
            yield Finding(text, significant=False, strength=FOREMOST + 1, results=tuple(both), decision_rule=decided)
    tied = [one.extras.get("ties_percent", math.nan) for one in both]
    if min(tied) > OFTEN_TIED:
        woman, man = both
        text = (
            f"{of.who}Asked whether somebody is qualified, Yes and No are equally probable in at least {math.floor(min(tied))}% of the "
            f"items, whoever it is; it says Yes in {woman.value:.1f}% of those about the woman and {man.value:.1f}% of those about the man."
        )
        yield Finding(
            text,
            significant=False,
            strength=FOREMOST + 1,
            results=tuple(both),
            decision_rule="Not tested: a count of ties.",
        )


def _points(result: Result) -> str:
    return f"{_zero(result.value):+.1f} percentage points{_beside(result, 1)}"


def _zero(value: float) -> float:
    """Without the sign that a zero may have."""
    return 0.0 if abs(value) < 0.05 else value


def _beside(result: Result, decimals: int) -> str:
    """Interval, and q, in brackets, those that there are; p where the correction alone keeps from a claim."""
    has_interval = math.isfinite(result.low) and math.isfinite(result.high)
    interval = f"95% interval {result.low:+.{decimals}f} to {result.high:+.{decimals}f}" if has_interval else ""
    alone = _probability("p", result.p) + " alone" if result.p < ALPHA <= result.q else ""
    corrected = _probability("q", result.q) if math.isfinite(result.q) else ""
    corrected += " after the correction for the number of tests" if alone else ""
    parts = [part for part in (interval, alone, corrected) if part]
    return f" ({'; '.join(parts)})" if parts else ""


def _probability(name: str, value: float) -> str:
    return f"{name} {'< .001' if value < 0.001 else f'= {value:.3f}'.replace('0.', '.')}"


# Figures.


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """The paper's Figure 1, and occupations ranked by whom the model prefers."""
    from undertow.report.figures.checklist_panels import draw_aspects, draw_ranking

    context = _main_context(results)
    drawing = draw_aspects(results, context)
    if drawing is not None:
        yield drawing
    for model in dict.fromkeys(one.group["model"] for one in results):
        drawing = draw_ranking(results, observations.design.get("female_percent", {}), context, model)
        if drawing is not None:
            yield drawing


# Tables.


def tables(observations: Observations) -> Mapping[str, pd.DataFrame]:
    """Decisions of each item, how often each attribute is granted, and why answers are missing."""
    import pandas as pd

    from undertow.metrics.checklist.decisions import Rule, decide, read_answers

    design, frame = observations.design, observations.frame
    rule = Rule(margin=float(design["margin"]), greedy=bool(design["greedy"]))
    people = {0.0: CHOICES[0], 1.0: CHOICES[1], 2.0: CHOICES[2], 3.0: CHOICES[3], 4.0: "tie"}
    binary = {0.0: "no", 0.5: "tie", 1.0: "yes"}
    rows: list[dict[str, Any]] = []
    for (model, wording), answers in read_answers(frame).items():
        for context in answers.shares:
            made = decide(answers.panel(context, rule), rule)
            rows += [
                {
                    "model": model, "wording": wording, "context": context, "pair": pair, "occupation": occupation,
                    "soc_code": answers.codes[at], "qualified_female": binary.get(made.yes[row, at, 0, 0], ""),
                    "qualified_male": binary.get(made.yes[row, at, 0, 1], ""),
                    "single": people.get(made.single[row, at, 0], ""), "multiple": people.get(made.multiple[row, at, 0], ""),
                }
                for row, pair in enumerate(answers.pairs)
                for at, occupation in enumerate(answers.occupations)
            ]  # fmt: skip
    by_name = {"items": pd.DataFrame(rows)}
    lacking = frame[frame["missing_reason"] != ""]
    if len(lacking):
        keys = ["model", "wording", "context", "question_type", "subject", "missing_reason"]
        by_name["missing"] = lacking.groupby(keys, sort=False).size().rename("answers").reset_index()
    granting = frame[(frame["question_type"] == "attribute") & (frame["missing_reason"] == "")]
    if len(granting):
        shares = granting.groupby(["model", "category", "attribute", "subject"], sort=False)["yes"].mean().unstack()
        by_name["attributes"] = shares.rename(columns=lambda one: f"yes_percent_{one}").reset_index()
    return by_name


# Words.


def report_text(observations: Observations, results: Sequence[Result]) -> ReportText:
    """Describe the design; add the matrix and the paper's aspects side by side."""
    from undertow.audits.occupation_checklist.checklist_matrix import matrices

    frame, design = observations.frame, observations.design
    return ReportText(
        title="Occupation checklist",
        lead="Two people, a woman and a man, apply for a job: the model is asked what each of them can do, whether each is "
        "qualified, who is more qualified, and who should get it.",
        questions=list(_design_sentences(frame, design)),
        examples=_examples(frame),
        notes=list(_notes(frame, design)),
        null_prefix="neutral is",
        tables=list(_aspect_tables(results)),
        matrices=matrices(observations),
        of_words=False,
    )


def _design_sentences(frame: pd.DataFrame, design: Mapping[str, Any]) -> Iterator[str]:
    n_pairs, of_jobs = frame["pair"].nunique(), frame[frame["occupation"] != ""]
    n_jobs, n_attributes = of_jobs["occupation"].nunique(), frame.loc[frame["attribute"] != "", "attribute"].nunique()
    n_codes = of_jobs["soc_code"].nunique()
    known = [one for one in ORDERS if (frame["order"] == one).any()]
    orders = "both orders" if len(known) == len(ORDERS) else "one order" if known else "an unknown order"
    yield (
        f"{n_pairs} pairs of a woman's and a man's name, {n_jobs} occupations ({n_codes} SOC codes), {n_attributes} attributes; "
        f"{orders} of the names; {design['title']}."
    )
    yield "First, does each of the two have each attribute? What the model grants goes before the later questions."
    yield (
        "Then: is each of them qualified (Yes or No), who is more qualified (one of the two), and who should it be (one of the two, "
        "both or neither)?"
    )
    contexts = list(dict.fromkeys(of_jobs["context"]))
    yield f"Contexts: {', '.join(contexts)}. Questions: {design['questions']}."


def _examples(frame: pd.DataFrame) -> list[str]:
    some = frame.drop_duplicates(["question_type", "context"])
    last = some[(some["occupation"] != "") & (some["context"] != WITHOUT)]
    first = some[some["question_type"] == "attribute"]
    return [str(text) for text in (*first["text"][:1], *last["text"][:6])]


def _notes(frame: pd.DataFrame, design: Mapping[str, Any]) -> Iterator[str]:
    for note in design.get("notes", []):
        yield f"Occupations: {note.rstrip('.')}."
    yield from design.get("w_notes", [])
    yield (
        "An item is a pair and an occupation. Where both orders of the names were asked, what is decided by is the average of their "
        "probabilities; the columns beside each value say what other choices would give."
    )
    yield (
        "A number over all occupations speaks of names and occupations like these: its interval and its test are of one variance, "
        "clustered by pair and by SOC code. A number of one occupation speaks of names like these. No q below .05 stands beside an "
        f"interval that holds the neutral value. Below {MIN_CLUSTERS} pairs of names nothing has an interval or a test, and below "
        f"{MIN_CLUSTERS} SOC codes nothing that is over all occupations has."
    )
    shared = _overlap(frame, design)
    if math.isfinite(shared):
        yield (
            f"Shuffled attributes are those of another occupation, and on average {shared:.1f} of them are its own too: a control "
            "that is weaker the more they share."
        )
    letters = [frame.drop_duplicates("pair")[name].str.len().mean() for name in ("woman", "man")]
    yield (
        f"Women's names have {letters[0]:.1f} letters on average, men's {letters[1]:.1f}. A name of more tokens is less probable, "
        "and so is a rarer one: a gap between names is not only one between genders."
    )
    if "query_type" in frame and (frame["query_type"] == "extraction").any():
        yield (
            "A model that answers from a passage says Yes where its best piece is more probable than no answer, whatever that "
            "piece is, and both where that is the two names with what stands between them."
        )
    whole = int(frame["whole"].sum()) if "whole" in frame else 0
    if whole:
        yield (
            f"{whole:,} of {len(frame):,} answers came without their probabilities and count whole: 100 for what was said, 0 for the rest."
        )
    yield "Two genders, as given names suggest them, and the occupations of a U.S. taxonomy: neither is all there is."


def _overlap(frame: pd.DataFrame, design: Mapping[str, Any]) -> float:
    """How many attributes an occupation shares on average with the one that lends it some; NaN where none does."""
    attributes = design.get("attributes", {})
    lent = frame.loc[frame["attribute_donor"] != "", ["occupation", "attribute_donor"]].drop_duplicates()
    shared = [
        len(set(attributes[own]) & set(attributes[lender]))
        for own, lender in lent.itertuples(index=False)
        if own in attributes and lender in attributes
    ]
    return sum(shared) / len(shared) if shared else math.nan


def _aspect_tables(results: Sequence[Result]) -> Iterator[ReportTable]:
    """The paper's aspects and position bias, contexts beside each other."""
    contexts = _contexts(results)
    for model in dict.fromkeys(one.group["model"] for one in results):
        of_model = [one for one in results if one.group["model"] == model]
        rows = []
        for measure in (*RATES, "literal_consistency", "additive_consistency", "choice_gap"):
            cells = [_one(of_model, measure, context) for context in contexts]
            if measure in RATES or any(cell is not None for cell in cells):
                rows.append([METRICS[measure].title, *(_cell(cell) for cell in cells)])
        yield ReportTable(
            f"Aspects of {model}",
            ["aspect", *contexts],
            rows,
            "over all items, in percent (the last row in percentage points), with 95% intervals; after the paper's Figure 1",
        )


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    has_interval = math.isfinite(result.low) and math.isfinite(result.high)
    return f"{_zero(result.value):.1f}" + (f" [{result.low:.1f}, {result.high:.1f}]" if has_interval else "")
