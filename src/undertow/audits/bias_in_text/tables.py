"""Tables of the four tasks of bias in text: those of the run folder, the paper's, wordings by score, and examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.audits.bias_in_text.findings import ALL, main_measure
from undertow.data.documents.document_set import DIMENSIONS
from undertow.data.documents.few_shot import NO_SHOTS
from undertow.metrics.metric import METRICS
from undertow.report.page_data import ReportTable
from undertow.report.sentence_templates import sentences
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

N_EXAMPLES = 6
NEAR = 0.5
"""Token F1 above which a written answer is shown among those that come close."""
MAX_WORDINGS = 5
"""Best and worst wordings on the page; all are in the table of wordings."""
PAPER = "Bauer et al. 2022"
"""Whose tables the page lays out."""
OVER_CELLS = "Mean ± standard deviation over wordings and draws of examples, in percent."
WARNING = "These texts may be offensive. Open to read them."


def run_tables(observations: Observations) -> Mapping[str, pd.DataFrame]:
    """Scores of each wording, and by level of each slot, and which labels are taken for which."""
    import pandas as pd

    from undertow.metrics.text.scores import confusion_counts, score_answers
    from undertow.metrics.text.tasks import wording_scores
    from undertow.metrics.text.wording_effects import slot_table

    frame, design = observations.frame, observations.design
    settings, labels = score_answers(frame, design, whole=False), list(design["labels"])
    counts = [
        {"model": model, "shots": shots, "sampling": sampling, "decoding": decoding, "gold": gold}
        | dict(zip([*labels, "(none of them)"], row, strict=True))
        for (model, shots, sampling, decoding), answers in settings.items()
        for gold, row in zip(labels, confusion_counts(answers, len(labels)).tolist() if labels else (), strict=True)
    ]
    by_name = {
        "wordings": wording_scores(frame, design, 0),
        "slots": slot_table(frame, settings, main_measure(design)),
        "confusion": pd.DataFrame(counts),
    }
    return {name: table for name, table in by_name.items() if len(table)}


# The paper's tables.


@dataclass(frozen=True, slots=True)
class SettingResults:
    """Results of one model and decoding, as the paper's tables lay them out."""

    model: str
    decoding: str
    results: Sequence[Result]
    of_model: Sequence[Result]
    baselines: Sequence[Result]
    measures: Sequence[str]
    is_last: bool


def settings_of(results: Sequence[Result], task: str) -> Iterator[SettingResults]:
    """The models and decodings of a run; decodings without a number are left out where others have some."""
    from undertow.metrics.text.scores import MEASURES

    scores = [one for one in results if "slot" not in one.group and "source" not in one.group and "shots" in one.group]
    baselines = [one for one in scores if not one.group["shots"]]
    for model in dict.fromkeys(one.group["model"] for one in scores if one.group["shots"]):
        of_model = [one for one in scores if one.group["shots"] and one.group["model"] == model]
        decodings = list(dict.fromkeys(one.group["decoding"] for one in of_model))
        known = [
            name
            for name in decodings
            if any(one.group["decoding"] == name and math.isfinite(one.value) for one in of_model)
        ]
        for decoding in known or decodings:
            own = [one for one in of_model if one.group["decoding"] == decoding]
            is_last = decoding == (known or decodings)[-1]
            yield SettingResults(model, decoding, own, of_model, baselines, MEASURES[task], is_last)


def by_class(setting: SettingResults, paper: str) -> ReportTable:
    """Each measure by class of task description and number of examples."""
    whole = [one for one in setting.results if one.group["dimension"] == ALL]
    columns = _columns(whole)
    by_key = {_key(one, "description_class"): one for one in whole}
    rows = [
        [name, METRICS[measure].title, *(_cell(by_key.get((name, measure, *column))) for column in columns)]
        for name in dict.fromkeys(one.group["description_class"] for one in whole)
        for measure in setting.measures
    ]
    rows += [
        [one.group["description_class"], METRICS[one.measure].title, *[_cell(one)] * len(columns)]
        for one in sorted(setting.baselines, key=lambda one: one.group["description_class"])
    ]
    title = f"By class of task description, as {paper} of {PAPER}: {setting.model}, {setting.decoding}"
    return ReportTable(title, ["class", "measure", *map(_head, columns)], rows, OVER_CELLS)


def by_decoding(setting: SettingResults) -> Iterator[ReportTable]:
    """Measures of written answers by decoding, where there are several, for statement descriptions."""
    decodings = dict.fromkeys(one.group["decoding"] for one in setting.of_model)
    some = [
        one
        for one in setting.of_model
        if one.group["dimension"] == ALL and one.group["description_class"] == "statement"
    ]
    if len(decodings) > 1 and some:
        columns = _columns(some)
        by_key = {_key(one, "decoding"): one for one in some}
        rows = [
            [decoding, METRICS[measure].title, *(_cell(by_key.get((decoding, measure, *column))) for column in columns)]
            for decoding in decodings
            for measure in ("token_f1", "bleu4", "meteor")
        ]
        title = f"By decoding, statement descriptions, as Table 5 of {PAPER}: {setting.model}"
        yield ReportTable(title, ["decoding", "measure", *map(_head, columns)], rows, OVER_CELLS)


def by_dimension(setting: SettingResults, frame: pd.DataFrame) -> Iterator[ReportTable]:
    """Exact match by dimension: of prompts without examples by class, of those with examples by class and number."""
    names = ("dimension", "description_class", "shots", "sampling")
    exact = [one for one in setting.results if one.measure == "exact_match"]
    by_key = {tuple(one.group[name] for name in names): one for one in exact}
    dimensions = sorted(
        dict.fromkeys(key[0] for key in by_key),
        key=lambda name: (name == ALL, DIMENSIONS.index(name) if name in DIMENSIONS else -1, name),
    )
    classes = [name for name in dict.fromkeys(key[1] for key in by_key) if name != ALL]
    no_model = ", ".join(
        f"{one.group['description_class'].strip('()')} {_cell(one)}"
        for one in setting.baselines
        if one.measure == "exact_match"
    )
    about = (
        "Mean ± standard deviation of exact match over wordings and draws of examples, in percent. "
        f"Without a model, over all texts: {no_model}."
    )
    where = f"{setting.model}, {setting.decoding}"
    if any(key[2] == "0" for key in by_key):
        answered = _label_percents(frame, setting)
        rows = [
            [
                name,
                *(_cell(by_key.get((name, kind, "0", NO_SHOTS))) for kind in classes),
                "" if name == ALL else f"{answered.get(name.casefold(), 0.0):.1f}",
            ]
            for name in dimensions
        ]
        yield ReportTable(
            f"Without examples, as Table 9 of {PAPER}: {where}",
            ["dimension", *classes, "of all answers"],
            rows,
            f"{about} Of all answers: how many of those that are scored named the dimension, whatever was right.",
        )
    for sampling, paper in (("weak-oracle", "A7"), ("random", "A8")):
        shots = list(dict.fromkeys(key[2] for key in by_key if key[3] == sampling))
        if shots:
            rows = [
                [name, kind, *(_cell(by_key.get((name, kind, n, sampling))) for n in shots)]
                for name in dimensions
                for kind in classes
            ]
            title = f"With {sampling} examples, as Table {paper} of {PAPER}: {where}"
            yield ReportTable(title, ["dimension", "class", *(_head((n, "random")) for n in shots)], rows, about)


def _label_percents(frame: pd.DataFrame, setting: SettingResults) -> dict[str, float]:
    rows = frame[
        (frame["model"].astype(str) == setting.model)
        & (frame["decoding"].astype(str) == setting.decoding)
        & (frame["shots"].astype(str) == "0")
        & (frame["missing_reason"] == "")
    ]
    shares = 100 * rows["answer"].astype(str).str.strip().str.casefold().value_counts(normalize=True)
    return {str(name): float(share) for name, share in shares.items()}


def _key(result: Result, first: str) -> tuple[str, ...]:
    group = result.group
    return group[first], result.measure, group["shots"], group["sampling"]


def _columns(results: Sequence[Result]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((one.group["shots"], one.group["sampling"]) for one in results))


def _head(shots: tuple[str, str]) -> str:
    examples = f"{shots[0]} example{'s' if shots[0] != '1' else ''}"
    return examples if shots[1] in (NO_SHOTS, "random") else f"{examples}, {shots[1]}"


def _cell(result: Result | None) -> str:
    if result is None or math.isnan(result.value):
        return "–"
    sd = result.extras.get("sd", math.nan)
    return (
        f"{result.value:.1f}" if result.extras.get("cells") == 1 or math.isnan(sd) else f"{result.value:.1f} ± {sd:.1f}"
    )


# Wordings and examples.


def wording_tables(observations: Observations) -> Iterator[ReportTable]:
    """The best and the worst wordings by name: a table for each setting, of the measure that findings are about."""
    from undertow.metrics.text.scores import SETTING
    from undertow.metrics.text.tasks import wording_scores

    measure = main_measure(observations.design)
    table = wording_scores(observations.frame, observations.design, 0, [measure])
    for setting, of_setting in table[table["score"].notna()].groupby(list(SETTING), sort=False):
        model, shots, sampling, decoding = map(str, setting)
        rows = of_setting.sort_values("rank", kind="stable")
        if len(rows) < 2:
            continue
        ends = rows if len(rows) <= 2 * MAX_WORDINGS else rows.iloc[[*range(MAX_WORDINGS), *range(-MAX_WORDINGS, 0)]]
        some = f"{len(ends)} of {len(rows):,} wordings, in percent; all are in tables/wordings.csv."
        where = some if len(ends) < len(rows) else "All wordings, in percent."
        yield ReportTable(
            f"Wordings by {METRICS[measure].title.lower()}: {model}, {examples_text(shots, sampling)}, {decoding}",
            ["rank", "class", "wording", "score", "95% interval"],
            [
                [str(row["rank"]), row["description_class"], " / ".join(row["wording"].splitlines()) or "(no description)",
                 f"{row['score']:.1f}", f"{row['low']:.1f} to {row['high']:.1f}" if math.isfinite(row["low"]) else "–"]
                for _, row in ends.iterrows()
            ],
            f"{where} An interval is of its wording alone: the first of many was picked, and does less well on other texts.",
        )  # fmt: skip


def examples_text(shots: str, sampling: str) -> str:
    """How many examples a prompt has, and how they were drawn."""
    text: str = sentences("bias_in_text").examples({"shots": shots, "sampling": sampling})
    return text


def example_tables(frame: pd.DataFrame, *, written: bool) -> Iterator[ReportTable]:
    """A few answers that are right (or come closest), and a few that are wrong, of each model, behind a warning."""
    for model, rows in frame[frame["missing_reason"] == ""].groupby("model", sort=False):
        for name, some in _right_and_wrong(rows, written=written):
            if some.empty:
                continue
            at = [round(place * (len(some) - 1) / (N_EXAMPLES - 1)) for place in range(N_EXAMPLES)]
            sample = some.iloc[sorted(set(at))]
            cells = [
                [str(row["passage"]), str(row["wording"]) or "(no description)", examples_text(str(row["shots"]), str(row["sampling"])),
                 str(row["decoding"]), str(row["gold"]), str(row["answer"]) or "(empty)"]
                for _, row in sample.iterrows()
            ]  # fmt: skip
            yield ReportTable(
                f"Answers that {name}: {model}",
                ["text", "description", "examples", "decoding", "right answer", "answer"],
                cells,
                f"{len(sample)} of {len(some):,}, spread evenly over the run.",
                WARNING,
            )


def _right_and_wrong(rows: pd.DataFrame, *, written: bool) -> list[tuple[str, pd.DataFrame]]:
    """Right and wrong answers; of written ones those with more or less than half of the words in common."""
    answers, golds = rows["answer"].astype(str), rows["gold"].astype(str)
    if not written:
        right = answers.str.casefold() == golds.str.casefold()
        return [("are right", rows[right]), ("are wrong", rows[~right])]
    from undertow.metrics.text.overlap import token_f1

    near = [token_f1(answer, gold) > NEAR for answer, gold in zip(answers, golds, strict=True)]
    return [("have more than half of the words", rows[near]), ("have less", rows[[not one for one in near]])]
