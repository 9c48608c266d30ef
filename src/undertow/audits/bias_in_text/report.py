"""Text and tables of the report on bias in text, and the tables of the run folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations, SentenceTable
from undertow.audits.bias_in_text.findings import ALL, main_measure
from undertow.audits.bias_in_text.tasks import EXTRACTION, REPHRASING, Task
from undertow.data.documents.document_set import DIMENSIONS
from undertow.data.documents.few_shot import NO_SHOTS
from undertow.errors import counted
from undertow.metrics.metric import METRICS
from undertow.metrics.text.judgements import CATEGORIES, KAPPA, SAME, SHARE
from undertow.report.formatting import MISSING, uncapitalized
from undertow.report.page_data import ReportTable
from undertow.report.sentence_templates import sentences
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

EMPTY_ANSWER = "(empty)"
MAX_WORDINGS = 5
"""Number of best and worst wordings on the page."""
PAPER = "Bauer et al. 2022"
"""Source of the table layouts."""
OVER_CELLS = "Mean ± standard deviation over wordings and draws of examples, in percent."
PAIRED = (
    " The table counts each text once for a baseline. A finding compares each wording with baselines on the texts that it answers, so its "
    "numbers may differ."
)
LABELLED, WRITTEN = (
    SentenceTable("text", "are answered worst", about, "texts", "these texts may be offensive")
    for about in (
        "Score: how many of the answers to a text are right, over all wordings of the task and draws of examples. Answers: each with "
        "the number of times that it was given.",
        "Score: the mean token F1 of the answers to a text, over all wordings of the task and draws of examples. Best and worst answer: "
        "the nearest to the right one, and the furthest from it.",
    )
)


def run_tables(observations: Observations) -> Mapping[str, pd.DataFrame]:
    """Scores of each wording, and by level of each slot, and which labels are taken for which."""
    import pandas as pd

    from undertow.metrics.text.scores import confusion_counts, score_answers
    from undertow.metrics.text.tasks import wording_scores
    from undertow.metrics.text.wording_effects import slot_table
    from undertow.metrics.text.yes_probability import reliability

    frame, design = observations.frame, observations.design
    settings, labels = score_answers(frame, design, whole=False), list(design["labels"])
    counts = [
        {"model": model, "shots": shots, "sampling": sampling, "decoding": decoding, "gold": gold}
        | dict(zip([*labels, "(none of them)"], row, strict=True))
        for (model, shots, sampling, decoding), answers in settings.items()
        for gold, row in zip(labels, confusion_counts(answers, len(labels)).tolist() if labels else (), strict=True)
    ]
    by_name = {
        "wordings": wording_scores(frame, design),
        "slots": slot_table(frame, settings, main_measure(design)),
        "confusion": pd.DataFrame(counts),
        "reliability": reliability(frame),
    }
    return {name: table for name, table in by_name.items() if len(table)}


def paper_tables(frame: pd.DataFrame, results: Sequence[Result], task: Task, paper: str) -> Iterator[ReportTable]:
    """The paper's tables for each model and decoding, without decodings that have no results if others have some."""
    from undertow.metrics.text.scores import MEASURES

    scores = [one for one in results if "shots" in one.group and not {"slot", "source"} & one.group.keys()]
    baselines = sorted(
        (one for one in scores if not one.group["shots"]), key=lambda one: one.group["description_class"]
    )
    for model, of_model in _by_level([one for one in scores if one.group["shots"]], "model").items():
        decodings = _by_level(of_model, "decoding")
        known = {name: own for name, own in decodings.items() if any(math.isfinite(one.value) for one in own)}
        for decoding, own in (known or decodings).items():
            where = f"{model}, {decoding}"
            if task.gold_is_dimension:
                rows = frame[(frame["model"].astype(str) == model) & (frame["decoding"].astype(str) == decoding)]
                scored = rows[(rows["shots"].astype(str) == "0") & (rows["missing_reason"] == "")]
                answered = scored["answer"].astype(str).str.strip().str.casefold().value_counts(normalize=True)
                yield from _by_dimension(own, baselines, where, answered.to_dict())
                continue
            whole = [one for one in own if one.group["dimension"] == ALL]
            title = f"By class of task description, as {paper} of {PAPER}: {where}"
            yield _by_measure(title, "description_class", whole, MEASURES[task.name], baselines)
        whole = [one for one in of_model if one.group["dimension"] == ALL]
        statements = [one for one in whole if one.group["description_class"] == "statement"]
        if task == EXTRACTION and len(decodings) > 1 and statements:
            title = f"By decoding, statement descriptions, as Table 5 of {PAPER}: {model}"
            yield _by_measure(title, "decoding", statements, ("token_f1", "bleu4", "meteor"))


def judgement_tables(results: Sequence[Result]) -> Iterator[ReportTable]:
    """Human judgements as the paper's Table 10; none without annotations."""
    shares = [one for one in results if one.measure == SHARE]
    for level, of_class in _by_level(shares, "description_class").items():
        rows = []
        for model, of_model in _by_level(of_class, "model").items():
            for annotator, own in _by_level(of_model, "annotator").items():
                of_category = {one.group.get("category", ""): one for one in own if math.isfinite(one.value)}
                cells = [_with_interval(one) if (one := of_category.get(name)) else "–" for name in CATEGORIES]
                rows.append([model, annotator, *cells, f"{own[0].n} of {own[0].n + own[0].n_missing}"])
        agreements = [
            f"{same.group['annotator']} chose the same category for {same.value:.1f}% of {counted(same.n, 'rephrasing')} "
            f"(Cohen's kappa {'undefined' if math.isnan(kappa.value) else f'{kappa.value:.2f}'})."
            for same in results
            for kappa in results
            if same.measure == SAME and kappa.measure == KAPPA and same.group == kappa.group
        ]
        where = "" if level == ALL else f": class {level}"
        about = (
            "Percent of the annotated rephrasings, with a 95% interval over clusters of texts if there are six or more; each distinct "
            "rephrasing counts once for each model."
        )
        yield ReportTable(
            f"Rephrasings by human judgement, as Table 10 of {PAPER}{where}",
            ["model", "annotator", *CATEGORIES, "annotated"],
            rows,
            " ".join([about, *(agreements if level == ALL else ())]),
        )


def _with_interval(result: Result) -> str:
    ends = f" ({result.low:.1f} to {result.high:.1f})" if math.isfinite(result.low + result.high) else ""
    return f"{result.value:.1f}{ends}"


def _by_level(results: Sequence[Result], key: str) -> dict[str, list[Result]]:
    levels = dict.fromkeys(one.group[key] for one in results)
    return {level: [one for one in results if one.group[key] == level] for level in levels}


def _by_measure(
    title: str, key: str, results: Sequence[Result], measures: Sequence[str], baselines: Sequence[Result] = ()
) -> ReportTable:
    """Measures by the levels of a key, and of the baselines by class.

    With one number of examples, measures are columns; with several, each measure has a row and each number of examples a column.
    """
    head = "class" if key == "description_class" else key
    about = OVER_CELLS + PAIRED * (bool(baselines) and any(one.n_missing for one in results))
    columns = list(dict.fromkeys((one.group["shots"], one.group["sampling"]) for one in results))
    by_key = {(one.group[key], one.measure, one.group["shots"], one.group["sampling"]): one for one in results}
    levels: dict[str, dict[str, list[Result | None]]] = {
        level: {measure: [by_key.get((level, measure, *at)) for at in columns] for measure in measures}
        for level in _by_level(results, key)
    }
    for one in baselines:
        levels.setdefault(one.group["description_class"], {})[one.measure] = [one] * len(columns)
    if len(columns) == 1:
        rows = [[level, *(_cell(*of.get(measure, [None])) for measure in measures)] for level, of in levels.items()]
        heads = [head, *(METRICS[measure].title for measure in measures)]
        return ReportTable(f"{title}, {_head(*columns[0])}", heads, rows, about)
    rows = [
        [level, METRICS[measure].title, *map(_cell, cells)]
        for level, of in levels.items()
        for measure, cells in of.items()
    ]
    return ReportTable(title, [head, "measure", *(_head(*at) for at in columns)], rows, about)


def _by_dimension(
    results: Sequence[Result], baselines: Sequence[Result], where: str, answered: Mapping[Any, float]
) -> Iterator[ReportTable]:
    """Exact match by dimension and class, for prompts with examples also by their number.

    `answered` has the share of each label among the scored answers without examples.
    """
    names = ("dimension", "description_class", "shots", "sampling")
    by_key = {tuple(one.group[name] for name in names): one for one in results if one.measure == "exact_match"}
    dimensions = sorted(
        dict.fromkeys(key[0] for key in by_key),
        key=lambda name: (name == ALL, DIMENSIONS.index(name) if name in DIMENSIONS else -1, name),
    )
    classes = [name for name in dict.fromkeys(key[1] for key in by_key) if name != ALL]
    matches = [one for one in baselines if one.measure == "exact_match"]
    no_model = ", ".join(f"{one.group['description_class'].strip('()')} {_cell(one)}" for one in matches)
    about = "Mean ± standard deviation of exact match over wordings and draws of examples, in percent."
    if no_model:
        about += f" Without a model, over all texts: {no_model}."
        about += PAIRED * any(one.n_missing for one in results)
    if any(key[2] == "0" for key in by_key):
        rows = []
        for name in dimensions:
            share = f"{100 * answered.get(name.casefold(), 0.0):.1f}" if answered else MISSING
            named = "" if name == ALL else share
            rows.append([name, *(_cell(by_key.get((name, kind, "0", NO_SHOTS))) for kind in classes), named])
        yield ReportTable(
            f"Without examples, as Table 9 of {PAPER}: {where}",
            ["dimension", *classes, "of all answers"],
            rows,
            f"{about} Of all answers: share of scored answers that name the dimension, right or wrong.",
        )
    for sampling, table in (("weak-oracle", "A7"), ("random", "A8")):
        shots = list(dict.fromkeys(key[2] for key in by_key if key[3] == sampling))
        if shots:
            rows = [
                [name, kind, *(_cell(by_key.get((name, kind, n, sampling))) for n in shots)]
                for name in dimensions
                for kind in classes
            ]
            title = f"With {sampling} examples, as Table {table} of {PAPER}: {where}"
            yield ReportTable(title, ["dimension", "class", *(_head(n, "random") for n in shots)], rows, about)


def _head(shots: str, sampling: str) -> str:
    examples = f"{shots} example{'s' if shots != '1' else ''}"
    return examples if sampling in (NO_SHOTS, "random") else f"{examples}, {sampling}"


def _cell(result: Result | None) -> str:
    if result is None or math.isnan(result.value):
        return "–"
    sd = result.extras.get("sd", math.nan)
    has_sd = result.extras.get("cells") != 1 and not math.isnan(sd)
    return f"{result.value:.1f} ± {sd:.1f}" if has_sd else f"{result.value:.1f}"


def reliability_tables(frame: pd.DataFrame) -> Iterator[ReportTable]:
    """Share of biased texts by the probability of Yes, a table for each setting of bias diagnosis."""
    from undertow.metrics.text.scores import SETTING
    from undertow.metrics.text.yes_probability import BIN_PERCENT, reliability

    table = reliability(frame)
    for setting, rows in table.groupby(list(SETTING), sort=False) if len(table) else ():
        model, shots, sampling, decoding = map(str, setting)
        yield ReportTable(
            f"Calibration of P(Yes): {model}, {examples_text(shots, sampling)}, {decoding}",
            ["P(Yes)", "answers", "mean P(Yes)", "biased texts"],
            [
                [f"{low} to {low + BIN_PERCENT}%", f"{n:,}", f"{mean:.1f}%", f"{biased:.1f}%"]
                for low, n, mean, biased in zip(
                    *(rows[name] for name in ("lowest_percent", "n", "mean_percent", "biased_percent")), strict=True
                )
            ],
            "All answers to all wordings, in bins of the probability of Yes. If it is calibrated, the last two columns are equal.",
        )


def wording_tables(observations: Observations) -> Iterator[ReportTable]:
    """A table of the best and the worst wordings for each setting, by the measure of the findings."""
    from undertow.metrics.text.scores import SETTING
    from undertow.metrics.text.tasks import wording_scores

    measure = main_measure(observations.design)
    table = wording_scores(observations.frame, observations.design, [measure])
    for setting, of_setting in table[table["score"].notna()].groupby(list(SETTING), sort=False):
        model, shots, sampling, decoding = map(str, setting)
        rows = of_setting.sort_values("rank", kind="stable")
        if len(rows) < 2:
            continue
        ends = rows if len(rows) <= 2 * MAX_WORDINGS else rows.iloc[[*range(MAX_WORDINGS), *range(-MAX_WORDINGS, 0)]]
        some = f"{len(ends)} of {len(rows):,} wordings, in percent; all are in tables/wordings.csv."
        where = some if len(ends) < len(rows) else "All wordings, in percent."
        yield ReportTable(
            f"Wordings by {uncapitalized(METRICS[measure].title)}: {model}, {examples_text(shots, sampling)}, {decoding}",
            ["rank", "class", "wording", "score", "95% interval"],
            [
                [str(row["rank"]), row["description_class"], " / ".join(row["wording"].splitlines()) or "(no description)",
                 f"{row['score']:.1f}", f"{row['low']:.1f} to {row['high']:.1f}" if math.isfinite(row["low"]) else "–"]
                for _, row in ends.iterrows()
            ],
            f"{where} Intervals ignore the selection of the best of many wordings, which score lower on other texts.",
        )  # fmt: skip


def examples_text(shots: str, sampling: str) -> str:
    """Number and sampling of the examples of a prompt."""
    text: str = sentences("bias_in_text").examples({"shots": shots, "sampling": sampling})
    return text


def text_answers(observations: Observations) -> pd.DataFrame:
    """Score and answers of each text in each setting, the lowest score first; a text that was not scored comes last."""
    import pandas as pd

    from undertow.metrics.text.overlap import token_f1
    from undertow.metrics.text.scores import SETTING, finite_mean, score_answers

    frame, design = observations.frame, observations.design
    measure, is_written = main_measure(design), not design["labels"]
    scores = {
        (*setting, document): score
        for setting, answers in score_answers(frame, design, whole=False).items()
        for document, score in zip(answers.documents, finite_mean(answers.of_measure(measure), axis=1), strict=True)
    }
    rows = []
    for key, own in frame.groupby([*SETTING, "document"], sort=False):
        first, gold, names = own.iloc[0], str(own["gold"].iloc[0]), tuple(map(str, key))
        score = float(scores[names])
        known = own[own["missing_reason"] == ""]
        closeness = {answer: token_f1(answer, gold) for answer in dict.fromkeys(known["answer"].astype(str))}
        best, worst = (pick(closeness, key=closeness.__getitem__, default="") for pick in (max, min))
        empty = EMPTY_ANSWER if len(known) else ""
        counts = Counter(answer.strip() or EMPTY_ANSWER for answer in known["answer"].astype(str))
        given = {"answers": ", ".join(f"{answer} ({count})" for answer, count in counts.most_common())}
        if is_written:
            given = {"best answer": best or empty, "worst answer": worst or empty}
        if "reply" in own:
            given["reply"] = next(iter(known.loc[known["answer"].astype(str) == worst, "reply"].astype(str)), "")
        passage = str(first["passage"])
        rows.append(
            {
                "model": names[0],
                "score": score,
                "text": str(first["text"]) or passage,
                **({"span": passage} if str(design["task"]) == REPHRASING.name else {}),
                "gold": gold,
                **given,
                **dict(zip((*SETTING[1:], "document"), names[1:], strict=True)),
                "dimension": str(first["dimension"]),
                "answered": len(known),
                "missing": len(own) - len(known),
            }
        )
    return pd.DataFrame(rows).sort_values("score", kind="stable", ignore_index=True)
