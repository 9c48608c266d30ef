"""Tables and words of the report on the occupation checklist."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.occupation_checklist.findings import contexts_of, get_result
from undertow.metrics.catalog import METRICS
from undertow.metrics.checklist.decisions import CHOICES, ORDERS, RATES, WITHOUT
from undertow.report.page_data import ReportTable, ReportText
from undertow.stats import MIN_CLUSTERS
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd


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
    contexts = contexts_of(results)
    for model in dict.fromkeys(one.group["model"] for one in results):
        of_model = [one for one in results if one.group["model"] == model]
        rows = []
        for measure in (*RATES, "literal_consistency", "additive_consistency", "choice_gap"):
            cells = [get_result(of_model, measure, context) for context in contexts]
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
    return f"{result.value:z.1f}" + (f" [{result.low:.1f}, {result.high:.1f}]" if has_interval else "")
