"""Folder of a simulation: a table of correlations, and figures before and after selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from undertow._files import csv_cell
from undertow._folders import DRAFT_PREFIX, draft_folder
from undertow.causal.example_scms import DIFFERENCE, SUM
from undertow.causal.simulate import SimulatedCase, Simulation
from undertow.errors import UndertowError
from undertow.report import style
from undertow.report.figures.scatter import Cloud, Panel, draw_simulation
from undertow.report.page_data import Drawing
from undertow.report.style import file_stem

TABLE = "correlations.csv"
MAX_PAIRS, MAX_CASES = 2, 6
"""Maximum numbers of pairs and cases in one figure; there are as many figures as needed."""
MAX_NAME_CHARS = 14
"""Maximum length of both names together in a column title."""
_SPECIFIED = {"well specified": "Well specified, X causes Y", "unspecified": "Unspecified, X does not cause Y"}
_SELECTED_ON = {SUM: "selected on W + G", DIFFERENCE: "selected on W \N{MINUS SIGN} G"}


def check_folder(out: Path, *, overwrite: bool) -> None:
    """Raise an UndertowError if a simulation may not be written into this folder."""
    if out.exists() and not out.is_dir():
        raise UndertowError(f"{out}: is a file; name a folder")
    if (out / TABLE).exists() and not overwrite:
        raise UndertowError(f"{out}: already has a simulation; name another folder, or add --overwrite")


def write_simulation(
    cases: Sequence[SimulatedCase], out: Path, changed: Mapping[str, float], *, papers: bool
) -> list[Path]:
    """Write the table and the figures into a folder, and return their paths.

    Args:
        cases: at least one.
        out: folder, created if missing; files of an earlier simulation are replaced.
        changed: parameters that differ from the model's, for the titles of the figures.
        papers: whether to draw the papers' figures, which need all cases of their models.
    """
    note = f" ({', '.join(f'{name} = {value:g}' for name, value in changed.items())})" if changed else ""
    drawings = paper_figures(cases, note) if papers else _model_figures(cases, note)
    files = [f"{file_stem(drawing.name)}{suffix}" for drawing in drawings for suffix in (".png", ".svg")]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with draft_folder(out, DRAFT_PREFIX) as draft:
            table = pd.DataFrame([row for one in cases for row in one.rows()])
            table.map(csv_cell).to_csv(draft / TABLE, index=False, lineterminator="\n")
            for drawing in drawings:
                style.save_drawing(drawing, draft)
            # The table marks a complete simulation, so the old one is deleted first and the new one written last.
            (out / TABLE).unlink(missing_ok=True)
            for name in (*files, TABLE):
                (draft / name).replace(out / name)
    except OSError as error:
        problem = f"{out}: cannot be written ({error.strerror or error}); free space, or name another folder"
        raise UndertowError(problem) from error
    return [out / name for name in (TABLE, *files)]


def paper_figures(cases: Sequence[SimulatedCase], note: str = "") -> list[Drawing]:
    """Figure 2 of McMilin 2024 and figures 6 and 7 of the ICLR submission."""
    results = {(one.model, one.case): one.result for one in cases}
    weights = {", beta 0.01": "beta = 0.01", ", beta 0.1": "beta = 0.1", "": "beta = 1"}
    pairs = [("W", "G"), ("X", "Y")]
    both, injected = [], []
    for model, selected_on in _SELECTED_ON.items():
        for case, specified in _SPECIFIED.items():
            words = f"{specified}; {selected_on}: {100 * results[model, case].share:.3g}% of all people"
            both.append((words, _before_and_after(results[model, case], pairs)))
            injected.append((words, [_before_and_after(results[model, case + beta], pairs[1:])[1] for beta in weights]))
    columns = _columns(pairs)
    title = f"Selection on W + G makes X and Y correlate if the task is unspecified{note}"
    sign = f"The sign of the spurious correlation depends on who is selected{note}"
    beta = f"The larger the effect of W on X (beta), the larger the spurious correlation in an unspecified task{note}"
    return [
        draw_simulation("mcmilin-2024-figure-2", title, columns, both[: len(_SPECIFIED)]),
        draw_simulation("iclr-submission-figure-6", sign, columns, both),
        draw_simulation("iclr-submission-figure-7", beta, list(weights.values()), injected),
    ]


def _model_figures(cases: Sequence[SimulatedCase], note: str) -> list[Drawing]:
    """Figures of every pair and case, with at most two pairs and six cases each."""
    model, pairs = cases[0].model, cases[0].result.pairs
    figures: list[Drawing] = []
    for first in range(0, len(cases), MAX_CASES):
        for pair in range(0, len(pairs), MAX_PAIRS):
            across = pairs[pair : pair + MAX_PAIRS]
            name = f"{model}-{len(figures) + 1}" if len(cases) > MAX_CASES or len(pairs) > MAX_PAIRS else model
            some = cases[first : first + MAX_CASES]
            texts = [f"{one.case or model}; selected: {100 * one.result.share:.3g}% of all people" for one in some]
            rows = list(zip(texts, [_before_and_after(one.result, across) for one in some], strict=True))
            title = f"{model}: correlations before and after selection{note}"
            figures.append(draw_simulation(name, title, _columns(across), rows))
    return figures


def _columns(pairs: Sequence[tuple[str, str]]) -> list[str]:
    if any(len(x + y) > MAX_NAME_CHARS for x, y in pairs):
        return ["Everyone", "Selected"] * len(pairs)
    return [f"{x} and {y}, {who}" for x, y in pairs for who in ("everyone", "selected")]


def _before_and_after(result: Simulation, pairs: Sequence[tuple[str, str]]) -> list[Panel]:
    """For each pair a panel of everyone, and one of the selected in front of everyone."""
    panels = []
    for x, y in pairs:
        clouds = []
        for people, selected in ((result.everyone, False), (result.selected, True)):
            r = result.correlation(x, y, selected=selected)
            clouds.append(Cloud(people[x], people[y], r.r, r.low, r.high, r.n))
        panels += [Panel(x, y, clouds[0]), Panel(x, y, *clouds)]
    return panels
