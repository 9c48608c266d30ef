"""Tables and words of the report on the occupation checklist."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.occupation_checklist.findings import contexts_of, get_result
from undertow.metrics.checklist.decisions import CHOICES, ORDERS, RATES, WITHOUT
from undertow.metrics.metric import METRICS
from undertow.report.page_data import ReportTable, ReportText
from undertow.report.sentence_templates import lines, sentences
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
    words, of_jobs = sentences("occupation_checklist"), frame[frame["occupation"] != ""]
    counts = {name: of_jobs[name].nunique() for name in ("occupation", "soc_code")}
    counts |= {"pair": frame["pair"].nunique(), "attribute": frame["attribute"].replace("", None).nunique()}
    n_orders = frame["order"][frame["order"].isin(ORDERS)].nunique()
    some = frame.drop_duplicates(["question_type", "context"])
    last = some[(some["occupation"] != "") & (some["context"] != WITHOUT)]
    examples = [*some.loc[some["question_type"] == "attribute", "text"][:1], *last["text"][:6]]
    letters = [frame.drop_duplicates("pair")[name].str.len().mean() for name in ("woman", "man")]
    is_extraction = "query_type" in frame and bool((frame["query_type"] == "extraction").any())
    n_whole = int(frame["whole"].sum()) if "whole" in frame else 0
    orders = ("an unknown order", "one order", "both orders")[n_orders]
    return ReportText(
        title="Occupation checklist",
        lead="Two people, a woman and a man, apply for a job: the model is asked what each of them can do, whether each is "
        "qualified, who is more qualified, and who should get it.",
        questions=lines(words.questions(design, counts, orders, list(dict.fromkeys(of_jobs["context"])))),
        examples=list(map(str, examples)),
        notes=[
            *(f"Occupations: {note.rstrip('.')}." for note in design.get("notes", [])),
            *design.get("w_notes", []),
            *lines(words.notes(MIN_CLUSTERS, _overlap(frame, design), letters, is_extraction, n_whole, len(frame))),
        ],
        null_prefix="neutral is",
        tables=list(_aspect_tables(results)),
        matrices=matrices(observations),
        of_words=False,
    )


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
