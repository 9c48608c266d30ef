"""Contents of artefacts: drawings, and tables in the paper's layout with published numbers beside computed ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from undertow import data
from undertow.errors import UndertowError
from undertow.report.formatting import MISSING
from undertow.report.page_data import Drawing, ReportTable
from undertow.reproduction.catalog import Artefact, paper_name, published
from undertow.reproduction.sources import ModelResults, Sources
from undertow.types import ClozeQuery, no_progress

N_PEOPLE = 1_000_000
"""People to simulate for each case."""
SLOPE_UNIT = "Slopes in percent per step of the W list."
PUBLISHED, OUTPUTS, OWN_RUN = "published", "from published outputs", "this run"
"""What a number is: printed in the paper, computed from the published outputs, or computed from a run of the user's models."""


class IncompleteInputError(UndertowError):
    """An artefact cannot be made, or needs further models or files."""


@dataclass(frozen=True, slots=True)
class Content:
    """Contents of an artefact: figures, tables with all cells as text, notes for readers, and the outputs it was computed from."""

    drawings: Sequence[Drawing] = ()
    tables: Sequence[ReportTable] = ()
    notes: Sequence[str] = ()
    measured: Sequence[ModelResults] = ()

    @property
    def origin(self) -> list[str]:
        """What the numbers were computed from: a sentence for each kind of source, with the number of items of each model."""
        sizes: dict[str, dict[str, list[str]]] = {OWN_RUN: {}, OUTPUTS: {}}
        for one in self.measured:
            for model, size in one.sizes().items():
                sizes[_source(model, one)].setdefault(model, []).append(size)
        limit = max((one.limit for one in self.measured), default=0)
        own = f"runs of your models with --limit {limit}" if limit else "runs of your models"
        leads = {OWN_RUN: own, OUTPUTS: "the published outputs"}
        return [
            f"Computed from {leads[source]}: {_models_by_size(models)}." for source, models in sizes.items() if models
        ]


def content(artefact: Artefact, sources: Sources) -> Content:
    """Contents of an artefact; raises `IncompleteInputError` if it cannot be made, or needs a model or file that is not given."""
    if artefact.why:
        raise IncompleteInputError(f"{artefact.id} {artefact.needs}")
    if lacking := sources.missing_inputs(artefact):
        raise IncompleteInputError(f"{artefact.id} {lacking}")
    made: Content = MAKERS[artefact.make](artefact, sources, **artefact.settings)
    return made


def _table(title: str, rows: Sequence[Mapping[str, str]], columns: Sequence[str] = (), about: str = "") -> ReportTable:
    """A table of rows by column; absent cells are missing."""
    heads = list(columns or dict.fromkeys(name for row in rows for name in row))
    return ReportTable(title, heads, [[str(row.get(head, MISSING)) for head in heads] for row in rows], about)


def _published(artefact: Artefact) -> dict[tuple[str, str], dict[str, str]]:
    """The cells of the published table, by row and subrow, then by column; `value ± sd` if there is an sd."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in published(artefact.id).itertuples():
        cell = " ± ".join(filter(None, [str(one.value), str(one.sd)]))
        rows.setdefault((str(one.row), str(one.subrow)), {})[str(one.column)] = cell
    return rows


# Without a model.


def graphs(artefact: Artefact, sources: Sources, graphs: str) -> Content:
    """Causal graphs of the paper."""
    return Content(_graphs(graphs))


def _graphs(names: str) -> list[Drawing]:
    from undertow.causal.describe import graph_shape
    from undertow.causal.published import load_graph
    from undertow.report.figures.causal_graph import draw_graph

    loaded = [load_graph(name) for name in names.split(",") if name]
    return [draw_graph(graph_shape(named.graph), named.title) for named in loaded]


def simulation(artefact: Artefact, sources: Sources, figure: str, graphs: str = "") -> Content:
    """A figure of simulated selection, with its correlations."""
    from undertow.causal import example_scms
    from undertow.causal.simulate import simulate_cases
    from undertow.report.simulation import paper_figures

    if not sources.simulated:
        models = {name: example_scms.load(name) for name in example_scms.NAMES}
        sources.simulated += simulate_cases(models, N_PEOPLE, 0, {}, no_progress)
    rows = [
        {name: f"{value:.3f}" if isinstance(value, float) else str(value) for name, value in row.items()}
        for one in sources.simulated
        for row in one.rows()
    ]
    drawings = [one for one in paper_figures(sources.simulated) if one.name == figure]
    return Content([*_graphs(graphs), *drawings], [_table("Correlations", rows)])


def templates(artefact: Artefact, sources: Sources, challenge: str) -> Content:
    """The templates of a challenge set with an example of each."""
    given = data.load(challenge)
    items, rows = given.items(list(given.covariates)), []
    for template in given.templates:
        of_template = [one for one in items if one.factors.get("template", template.text) == template.text] or items
        example = of_template[len(of_template) // 2].query
        rows.append(
            {
                "template": template.text,
                "W": ", ".join(dict.fromkeys(str(one.factors["w_name"]) for one in of_template)),
                "texts": f"{len(of_template):,}",
                "example": example.display_text("[MASK]") if isinstance(example, ClozeQuery) else "",
            }
        )
    lists = [*given.slots.items(), *((one.name, one.values) for one in given.covariates)]
    values = [{"slot": name, "values": ", ".join(some)} for name, some in lists]
    return Content(tables=[_table("Templates", rows), _table("Slots and W lists", values)])


def words(artefact: Artefact, sources: Sources, words: str) -> Content:
    """A word list, a column for each group."""
    groups = data.word_list(words)
    rows = [dict(zip(groups, forms, strict=True)) for forms in zip_longest(*groups.values(), fillvalue="")]
    return Content(tables=[_table("Words", rows)])


def wordings(artefact: Artefact, sources: Sources, tasks: str, per_class: int = 0) -> Content:
    """Task descriptions by class."""
    tables = []
    for task in tasks.split(","):
        rows, seen = [], Counter[str]()
        for one in data.wordings(task):
            seen[one.kind] += 1
            if not per_class or seen[one.kind] <= per_class:
                rows.append({"class": one.kind, "description": " / ".join(one.text.splitlines()) or "(empty)"})
        tables.append(_table(task, rows))
    return Content(tables=tables)


def wording_counts(artefact: Artefact, sources: Sources) -> Content:
    """Number of task descriptions in each class, published and here."""
    rows = []
    for (task, kind), cells in _published(artefact).items():
        count = str(sum(one.kind == kind for one in data.wordings(f"bias-{task}")))
        rows += [{"task": f"bias-{task}", "class": kind, PUBLISHED: n, "here": count} for n in cells.values()]
    return Content(tables=[_table("Task descriptions", rows)])


def slots(artefact: Artefact, sources: Sources) -> Content:
    """The slots of the task descriptions and their variants."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for task in data.TASKS:
        for one in data.wordings(task):
            for slot, level in one.slots.items():
                rows.setdefault((task, slot), {})[level] = None
    table = [{"task": task, "slot": slot, "variants": ", ".join(levels)} for (task, slot), levels in rows.items()]
    return Content(tables=[_table("Slots", table)])


def label_counts(artefact: Artefact, sources: Sources, task: str) -> Content:
    """Labels of the documents for training and evaluation, published and here."""
    given = data.load_documents(sources.documents or "cad")
    counts = {}
    for part, documents in (("train", given.training), ("evaluation", given.evaluation)):
        if task == "bias-diagnosis":
            labels = Counter("Yes" if one.biased else "No" for one in documents)
        else:
            labels = Counter(one.dimension.title() for one in documents if one.dimension)
        if not labels:
            raise IncompleteInputError(
                f"{artefact.id}: these documents name no dimensions; give CAD's full file with --documents"
            )
        labels["Total"] = labels.total()
        counts[part] = labels
    rows = [
        {"label": label}
        | {f"{part}, {PUBLISHED}": cells.get(part, MISSING) for part in counts}
        | {f"{part}, here": f"{counts[part][label]:,}" for part in counts}
        for (label, _), cells in _published(artefact).items()
    ]
    return Content(tables=[_table("Labels", rows)])


def questions(artefact: Artefact, sources: Sources) -> Content:
    """The questions of the occupation checklist."""
    return Content(tables=[_table("Questions", data.checklist_table("occupation-checklist"))])


def occupation_list(artefact: Artefact, sources: Sources, columns: str) -> Content:
    """The occupations of the checklist."""
    return Content(tables=[_table("Occupations", data.checklist_table("occupations"), columns.split(","))])


# Spurious correlation.


def drift(  # noqa: PLR0913 - what the figures of spurious correlation differ in
    artefact: Artefact,
    sources: Sources,
    *,
    design: str,
    w: str,
    figure: str,
    graphs: str = "",
    reading: str = "",
    table: bool = False,
) -> Content:
    """Figures of masses against W: `models` (slope gap by size) and `grid` (a panel for each model and prompt)."""
    measured = sources.measured(design, w=w)
    if reading:
        prompted = measured.observations.frame["prompt"].astype(str) != ""
        measured = measured.only(measured.observations.frame[prompted if reading == "prompt" else ~prompted])
        if measured.observations.frame.empty:
            raise IncompleteInputError(
                f"{artefact.id}: shows models that {'answer prompts' if reading == 'prompt' else 'fill a blank'}, and none of these does"
            )
    drawn = measured.drawings(with_results="models" in figure)
    wanted = tuple(f"{kind}_" for kind in figure.split(","))
    chosen = [one for one in drawn if one.name.startswith(wanted)] if len(drawn) > 1 else []
    if not chosen:  # one model and one prompt have another figure
        chosen = [one for one in drawn if one.name.startswith(tuple(w.split(",")))]
    tables = [_table("Slopes", slope_rows(measured))] if table or "models" in figure else []
    return Content([*_graphs(graphs), *chosen], tables, measured=[measured])


def slopes(artefact: Artefact, sources: Sources, design: str, w: str) -> Content:
    """Slope and Pearson's r by W, model and word group, below the published ones."""
    of_paper = [
        {"W": w_name, "model": model, "prompt": "", "source": PUBLISHED} | cells
        for (w_name, model), cells in _published(artefact).items()
    ]
    lists, measured = w.split(","), sources.measured(design, w=w)
    table = sorted([*of_paper, *slope_rows(measured)], key=lambda row: lists.index(row["W"]))
    return Content(tables=[_table("Slopes", table, [*of_paper[0], "n"], SLOPE_UNIT)], measured=[measured])


def slope_rows(measured: ModelResults) -> list[dict[str, str]]:
    """A row for each W list, model and prompt: slope in percent per step and Pearson's r of each word group, and n items."""
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in measured.results:
        column = {"slope": "slope", "pearson_r": "r"}.get(one.measure)
        if column:
            key = one.group["w_name"], one.group["model"], one.group["prompt"]
            cells = rows.setdefault(key, {"n": f"{one.n:,}"})
            cells[f"{one.group['pronoun']} {column}"] = _number(one.value, 3)
    return [
        {"W": w_name, "model": model, "prompt": prompt, "source": _source(model, measured)} | cells
        for (w_name, model, prompt), cells in rows.items()
    ]


# Task specification.


def occupations(  # noqa: PLR0913 - what the figures of task specification differ in
    artefact: Artefact,
    sources: Sources,
    *,
    design: str,
    threshold: float = 0.5,
    coreferent: str = "",
    objective: str = "",
) -> Content:
    """The task specification metric of every sentence by occupation, in a figure for each model and one of all models.

    Raises:
        UndertowError: the figure shows models of one training objective, and no given model has it.
    """
    drawings, measured, parts = [], sources.measured(design), []
    frame = measured.observations.frame
    if objective:
        frame = frame[[_objective(str(model), measured) == objective for model in frame["model"]]]
        if frame.empty:
            raise IncompleteInputError(f"{artefact.id}: shows {objective} models, and none of these is one")
    for whose in coreferent.split(","):
        rows = frame[frame["coreferent"].astype(str).str.startswith(whose)] if whose else frame
        part = {"0": " (a)", "1": " (b)"}.get(whose, "") if "," in coreferent else ""
        parts.append(measured.only(rows, threshold=threshold))
        drawn = parts[-1].drawings("occupations_", "occupations-models")
        drawings += [replace(one, name=one.name + part) for one in drawn]
    return Content(drawings, measured=parts)


def _objective(model: str, measured: ModelResults) -> str:
    """Training objective of a model; if unknown, inferred from whether it answers prompts."""
    objective = str(measured.observations.design.get("models", {}).get(model, {}).get("objective", ""))
    for known in ("masked", "denoising", "autoregressive"):
        if objective.startswith(known):
            return known
    frame = measured.observations.frame
    return "autoregressive" if (frame.loc[frame["model"] == model, "prompt"].astype(str) != "").any() else "masked"


def trace(artefact: Artefact, sources: Sources, design: str) -> Content:
    """One occupation over all dates."""
    from undertow.audits.task_specification.figures import followed_sentences

    measured = sources.measured(design)
    return Content(measured.drawings("over-w"), measured=[measured.only(followed_sentences(measured.observations))])


def sentences(artefact: Artefact, sources: Sources, design: str, occupation: str) -> Content:
    """The metric of each sentence about one occupation, published numbers first."""
    from undertow.audits.task_specification.findings import score_sentences
    from undertow.audits.task_specification.items import TRACE

    measured = sources.measured(design)
    frame = measured.observations.frame
    measured = measured.only(frame[(frame["cluster"].astype(str) == occupation) & (frame["part"] != TRACE)])
    scores = score_sentences(measured.observations)
    cells = {
        row: {"sentence": row} | {f"{column}, {PUBLISHED}": value for column, value in of_paper.items()}
        for (row, _), of_paper in _published(artefact).items()
    }
    lead = measured.observations.design["groups"][0]
    for row in scores.to_dict("records"):
        people = {"other": "patient"}.get(str(row["participant_class"]), str(row["participant_class"]))
        name = f"{people}, the pronoun is the {'participant' if int(row['coreferent']) else occupation}'s"
        model, prompt = str(row["model"]), f", prompt {row['prompt']}" if row["prompt"] else ""
        by = f"{model}{prompt}, {lead}, {_source(model, measured)}"
        cells.setdefault(name, {"sentence": name})[by] = _number(float(row[f"delta_{lead}"]), 1)
    table = _table(
        f"Movement of {lead} words, percentage points", list(cells.values()), about="n = 1 sentence in each cell."
    )
    return Content(tables=[table], measured=[measured])


def detection(artefact: Artefact, sources: Sources, designs: str) -> Content:
    """TPR, TNR and balanced accuracy of each model on each set, for each word group; published rates first."""
    rates = {"tpr": "TPR", "tnr": "TNR", "balanced_accuracy": "BA"}
    rows = {(model, "", PUBLISHED): cells for (model, _), cells in _published(artefact).items()}
    every = [sources.measured(name) for name in designs.split(",")]
    for name, measured in zip(designs.split(","), every, strict=True):
        for result in measured.results:
            score = result.group.get("score", "")
            if result.measure in rates and score.startswith("delta_"):
                model = result.group["model"]
                of_paper = model if model in measured.models else paper_name(model)
                key = of_paper, score.removeprefix("delta_"), _source(model, measured)
                cells = rows.setdefault(key, {})
                cells |= {f"{name} {rates[result.measure]}": _number(result.value, 3), f"{name} n": f"{result.n:,}"}
    order = list(dict.fromkeys(key[0] for key in rows))
    table = [
        {"model": model, "words": group, "source": source} | cells
        for (model, group, source), cells in sorted(rows.items(), key=lambda row: order.index(row[0][0]))
    ]
    columns = [f"{name} {rate}" for name in designs.split(",") for rate in (*rates.values(), "n")]
    heads = ["model", "words", "source", *columns]
    return Content(tables=[_table("Detection of unspecified sentences", table, heads)], measured=every)


# Bias in text and the occupation checklist.


def text_scores(artefact: Artefact, sources: Sources, design: str, layout: str) -> Content:
    """A table of scores, published first, then one for each model."""
    of_paper = [{"class": row, "score": sub} | cells for (row, sub), cells in _published(artefact).items()]
    measured = sources.measured(design)
    text = measured.audit.report_text(measured.observations, measured.results)
    tables = [_table("Published", of_paper), *(one for one in text.tables if f"as {layout} of" in one.title)]
    notes = ["Mean ± standard deviation over wordings and draws of examples, in percent."]
    return Content(tables=tables, notes=notes, measured=[measured])


def checklist(artefact: Artefact, sources: Sources, design: str) -> Content:
    """The aspects of the occupation checklist, by model."""
    measured = sources.measured(design)
    return Content(measured.drawings("aspects", with_results=True), measured=[measured])


def _models_by_size(sizes: Mapping[str, Sequence[str]]) -> str:
    """Models by their sizes."""
    models: dict[str, list[str]] = {}
    for model, own in sizes.items():
        models.setdefault(" and ".join(dict.fromkeys(own)), []).append(model)
    return "; ".join(f"{', '.join(some)} ({size})" for size, some in models.items())


def _source(model: str, measured: ModelResults) -> str:
    return OWN_RUN if model in measured.models else OUTPUTS


def _number(value: float, places: int) -> str:
    return MISSING if math.isnan(value) else f"{value:.{places}f}"


MAKERS: Mapping[str, Callable[..., Content]] = {
    one.__name__: one
    for one in (
        graphs, simulation, templates, words, wordings, wording_counts, slots, label_counts, questions, occupation_list, drift,
        slopes, occupations, trace, sentences, detection, text_scores, checklist,
    )
}  # fmt: skip
