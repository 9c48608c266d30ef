"""The page of a verification: whether the audit finds the planted bias, its requirements, and the numbers of each model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from undertow._folders import DRAFT_PREFIX, draft_folder
from undertow.lab.verification import metrics
from undertow.lab.verification.paragraphs import paragraphs
from undertow.lab.verification.promises import KEPT, MIN_UNBIASED_MODELS, Verdict
from undertow.report.formatting import NOTES, in_brackets, minus_signs, number, probability, shortest
from undertow.report.page import render_page
from undertow.report.page_data import Drawing, Page, PageFigure, ReportTable
from undertow.runs.folder.storage import Record, csv_of
from undertow.types import ALPHA_TEXT, MIN_WIDTH, Finding, Result

if TYPE_CHECKING:
    import pandas as pd


TITLE = "Verification: does the audit find what was planted?"
FIGURES = ("calibration", "power", "training", "detector")
"""Names of the figures, in the order of the page; `detector` is missing where no model has an AUROC."""
PAGE, TABLES, FIGURE_FOLDER = "report.html", ("models.csv", "results.csv"), "figures"
FILES = (PAGE, *TABLES)


@dataclass(frozen=True, slots=True)
class Verification:
    """Everything that the page tells."""

    models: pd.DataFrame
    lines: pd.DataFrame
    results: Sequence[Result]
    verdicts: Sequence[Verdict]
    examples: Sequence[str] = ()
    notes: Sequence[str] = ()
    command: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)


def write(folder: Path, verification: Verification) -> Path:
    """Write `report.html`, `models.csv`, `results.csv` and `figures/` into a folder, made if need be; returns the page's path.

    Files of an earlier verification there are replaced; others are left alone. All are drafted first, and the page is moved last
    and its predecessor removed first: an interruption leaves no partial file and no page beside the tables of another verification.
    """
    from undertow.report.inline_svg import page_figures
    from undertow.report.style import file_stem, save_drawing

    figures, page = folder / FIGURE_FOLDER, folder / PAGE
    figures.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder, DRAFT_PREFIX) as draft:
        drawings = _drawings(verification)
        (draft / FIGURE_FOLDER).mkdir()
        for drawing in drawings:
            save_drawing(drawing, draft / FIGURE_FOLDER)
        main, pictures = page_figures(lambda: _drawings(verification), drawings)
        of_results = Record({}, verification.models, verification.results).results_table()
        for name, table in zip(TABLES, (verification.models, of_results), strict=True):
            (draft / name).write_text(csv_of(table), encoding="utf-8", newline="")
        (draft / PAGE).write_text(render_page(page_of(verification, pictures, main)), encoding="utf-8")
        page.unlink(missing_ok=True)
        for name in FIGURES:  # an earlier one may have had more figures
            for end in (".svg", ".png"):
                (figures / f"{file_stem(name)}{end}").unlink(missing_ok=True)
        for path in (draft / FIGURE_FOLDER).iterdir():
            path.replace(figures / path.name)
        for name in (*TABLES, PAGE):
            (draft / name).replace(folder / name)
    return page


def _drawings(verification: Verification) -> list[Drawing]:
    from undertow.lab.verification.figures import draw_calibration, draw_detectors, draw_power, draw_training

    models, results = verification.models, verification.results
    drawings = [draw_calibration(models, verification.lines, results), draw_power(results), draw_training(models)]
    areas = models.loc[models["converged"], ["auroc_delta", "auroc_entropy"]]
    return [*drawings, draw_detectors(models, results)] if areas.notna().to_numpy().any() else drawings


def findings(verification: Verification) -> list[Finding]:
    """What came of it, in plain sentences: broken promises first, then one sentence for each question."""
    words = _page_texts(verification)["findings"]
    return [Finding(text, significant=True, strength=float(len(words) - place)) for place, text in enumerate(words)]


def page_of(verification: Verification, pictures: Sequence[PageFigure], main: PageFigure | None = None) -> Page:
    """The page around these figures."""
    words = _page_texts(verification)
    too_few = words["too few unbiased"] if _n_unbiased(verification.results) < MIN_UNBIASED_MODELS else []
    promises = ReportTable(
        "What the audit promises",
        ("promise", "target", "value", "kept"),
        [(what, target, minus_signs(value), KEPT[met]) for what, target, value, met in verification.verdicts],
        " ".join(too_few),
    )
    heads = ("model", "W", "why", "pronoun loss (nats)", "its floor", "if W is ignored", "planted", "learned")
    cells = [
        (
            str(row["model"]),
            str(row["w_name"]),
            str(row["left_out"]),
            *(number(row[name], 4) for name in ("pronoun_loss_nats", "floor_nats", "ignorant_nats")),
            *(number(row[name]) for name in ("planted_slope", "learned_slope")),
        )
        for row in verification.models[verification.models["left_out"] != ""].to_dict("records")
    ]
    tables = [promises, _every_slope(verification.models)]
    if cells:
        about = "They stand in no other number of this page."
        tables.insert(1, ReportTable("Slopes that do not count", heads, cells, about))
    return Page(
        title=TITLE,
        lead=" ".join(words["lead"]),
        main=main,
        findings=findings(verification),
        results=verification.results,
        figures=pictures,
        tables=tables,
        questions=words["method"],
        examples=verification.examples,
        notes=[*too_few, *words["notes"], *verification.notes, NOTES[2]],
        command=verification.command,
        provenance=verification.provenance,
        measure_titles={name: metric.title for name, metric in metrics.METRICS.items()},
        glossary={**{name: metric.meaning for name, metric in metrics.METRICS.items()}, **metrics.EXTRAS},
        null_prefix="to be compared with",
        tested=False,
    )


def _page_texts(verification: Verification) -> dict[str, list[str]]:
    models, results = verification.models, verification.results

    def finite_result(measure: str, *levels: str) -> Result | None:
        result = metrics.get_result(results, measure, *levels)
        return result if result is not None and math.isfinite(result.value) else None

    architectures = [
        name for name in dict.fromkeys(result.group["architecture"] for result in results) if name != metrics.ALL
    ]
    slopes = {name: finite_result("calibration_slope", name) for name in architectures}
    strengths = sorted({result.group["strength"] for result in results} - {metrics.ALL}, key=float)
    powers = [power for strength in strengths if (power := finite_result("power", metrics.ALL, metrics.ALL, strength))]
    at = next((one for one in reversed(strengths) if finite_result("auroc_delta", metrics.ALL, metrics.ALL, one)), "")
    detector, entropy, difference = (
        finite_result(f"auroc_{name}", metrics.ALL, metrics.ALL, at) for name in ("delta", "entropy", "difference")
    )
    n_models = models["model"].nunique()
    return paragraphs(
        "verification.txt.j2",
        result=finite_result,
        along=lambda measure: " and ".join(metrics.along(results, measure)),
        steps=metrics.STEPS,
        min_width=MIN_WIDTH,
        verdicts=verification.verdicts,
        n_models=n_models,
        n_lost=n_models - models.loc[models["left_out"] == "", "model"].nunique(),
        n_kept=sum(met is True for *_, met in verification.verdicts),
        n_promises=sum(met is not None for *_, met in verification.verdicts),
        by_architecture={name: slope for name, slope in slopes.items() if slope},
        powers=sorted(powers, key=lambda power: power.extras["planted"]),
        at=at,
        detector=detector if entropy and difference else None,
        entropy=entropy,
        difference=difference,
        failed=list(dict.fromkeys(models.loc[~models["converged"], "model"])),
        n_unbiased=_n_unbiased(results),
        min_unbiased=MIN_UNBIASED_MODELS,
    )


def _n_unbiased(results: Sequence[Result]) -> int:
    """Models behind the false alarms: they count, were tested, and have no bias along any W."""
    return max((int(result.extras["models"]) for result in results if result.measure == "false_alarms"), default=0)


def _every_slope(models: pd.DataFrame) -> ReportTable:
    heads = (
        "model", "W", "strength", "seed", "planted", "learned", "measured", "audit's own interval", "with training seed", "q", "found",
    )  # fmt: skip
    cells = [
        (
            str(row["model"]),
            str(row["w_name"]),
            metrics.UNBIASED if row["unbiased"] else shortest(row["strength"]),
            number(row["training_seed"], 0),
            *(number(row[name]) for name in ("planted_slope", "learned_slope", "measured_slope")),
            in_brackets(row["low"], row["high"]),
            in_brackets(row["seed_low"], row["seed_high"]),
            probability(row["q"]),
            "does not count" if row["left_out"] else "yes" if row["found"] else "no",
        )
        for row in models.to_dict("records")
    ]
    about = (
        f"Slopes in {metrics.STEPS}; learned is that of the network's own P(female) on texts like its corpus. "
        f"Found: q is below {ALPHA_TEXT} and the audit's own interval excludes 0."
    )
    return ReportTable("Every model and W", heads, cells, about)
