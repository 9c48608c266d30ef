"""The page of a verification: whether the audit finds what was planted, what it promises, and what each model says.

Knows the parts of the page and how they are worded; knows nothing about how models were trained or numbers were got.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from undertow._folders import DRAFT_PREFIX
from undertow.report.formatting import MISSING, NOTES, interval, minus_signs, number, probability, shortest
from undertow.report.model import Page, PageFigure, ReportTable
from undertow.report.page import render_page
from undertow.runs.folder.storage import Record, csv_of
from undertow.types import MIN_WIDTH, Finding, Result, has_width

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

ALL, UNBIASED = "all", "0"
TITLE = "Verification: does the audit find what was planted?"
FIGURES = ("calibration", "power", "training", "detector")
"""Names of the figures, in the order of the page; `detector` is missing where no model has an AUROC."""
PAGE, TABLES, FIGURE_FOLDER = "report.html", ("models.csv", "results.csv"), "figures"
FILES = (PAGE, *TABLES)
DRAFT = f"{DRAFT_PREFIX}verification"
"""Of one name, so that the next verification removes what a stopped one has left."""
MIN_UNBIASED_MODELS = 20
STEPS = "percentage points per step of W"

Verdict = tuple[str, str, str, bool]
"""What is asked for, the target and the value, in words, and whether it is met."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Everything that the page tells.

    Attributes:
        models: a row for each model and W, as measured, with its intervals and why it does not count, if so.
        lines: points of each architecture's fitted line: `architecture`, `planted_slope`, `fitted`, `low`, `high`.
        results: calibration, coverage, width, false alarms, power, direction errors and AUROC.
        verdicts: what is asked for, the target and the value, in words, and whether it is met.
        method: sentences on how these models were trained and audited, beside those that hold for all verifications.
        examples: some of the texts.
        notes: what else the numbers rest on.
        command: the shell command that repeats it.
        python: the same in Python.
        provenance: versions, seeds, timing, machine, row by row.
    """

    models: pd.DataFrame
    lines: pd.DataFrame
    results: Sequence[Result]
    verdicts: Sequence[Verdict]
    method: Sequence[str] = ()
    examples: Sequence[str] = ()
    notes: Sequence[str] = ()
    command: str = ""
    python: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)


def write(folder: Path, verification: Verification) -> Path:
    """Write `report.html`, `models.csv`, `results.csv` and `figures/` into a folder, which is made if need be.

    Files of an earlier verification there are replaced; others are left alone. All are drafted first, and the page is moved last
    and its predecessor removed first: whatever stops it, no file is half written, and a page stands beside its own tables.

    Returns:
        The page.

    Raises:
        UndertowError: there is no model to tell of.
    """
    from undertow.report.style import file_stem

    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)  # of one that was stopped
    _draft(draft, verification)
    page = folder / PAGE
    page.unlink(missing_ok=True)
    figures = folder / FIGURE_FOLDER
    figures.mkdir(exist_ok=True)
    drawn = sorted((draft / FIGURE_FOLDER).iterdir())
    for path in drawn:
        path.replace(figures / path.name)
    for path in [figures / f"{file_stem(name)}{end}" for name in FIGURES for end in (".svg", ".png")]:
        if path.name not in {one.name for one in drawn}:
            path.unlink(missing_ok=True)  # an earlier one may have had more figures
    for name in (*TABLES, PAGE):
        (draft / name).replace(folder / name)
    shutil.rmtree(draft)
    return page


def _draft(folder: Path, verification: Verification) -> None:
    from undertow.report.style import save_drawing, svg_text

    drawings = _drawings(verification)
    figures = folder / FIGURE_FOLDER
    figures.mkdir(parents=True)
    for drawing in drawings:
        save_drawing(drawing, figures)
    pictures = [PageFigure(drawing.name, svg_text(drawing), drawing.caption, drawing.alt) for drawing in drawings]
    models, numbers = TABLES
    of_results = Record({}, verification.models, verification.results).results_table()
    for name, table in ((models, verification.models), (numbers, of_results)):
        (folder / name).write_text(csv_of(table), encoding="utf-8", newline="")
    (folder / PAGE).write_text(render_page(page_of(verification, pictures)), encoding="utf-8")


def findings(verification: Verification) -> list[Finding]:
    """What came of it, in plain sentences: broken promises first, then one sentence for each question."""
    broken = [
        f"A promise is not kept. {what}: {value.removesuffix('.')}. Promised was: {target}."
        for what, target, value, met in verification.verdicts
        if not met
    ]
    sentences = [
        *broken,
        _of_scale(verification.results),
        _of_coverage(verification.results),
        _of_power(verification.results),
        _of_false_alarms(verification.results),
        _of_direction(verification.results),
        _of_detector(verification.results),
        _of_training(verification.models),
    ]
    said = [text for text in sentences if text]
    return [Finding(text, significant=True, strength=float(len(said) - place)) for place, text in enumerate(said)]


def _drawings(verification: Verification) -> list[Drawing]:
    from undertow.lab.calibration.calibration_figures import draw_calibration, draw_detectors, draw_power, draw_training

    drawings = [
        draw_calibration(verification.models, verification.lines, verification.results),
        draw_power(verification.results),
        draw_training(verification.models),
    ]
    areas = verification.models.loc[verification.models["converged"], ["auroc_delta", "auroc_entropy"]]
    return (
        [*drawings, draw_detectors(verification.models, verification.results)]
        if areas.notna().to_numpy().any()
        else drawings
    )


def page_of(verification: Verification, pictures: Sequence[PageFigure]) -> Page:
    """The page around these figures."""
    uncounted = _uncounted_models(verification.models)
    return Page(
        title=TITLE,
        lead=_lead(verification),
        findings=findings(verification),
        results=verification.results,
        figures=pictures,
        tables=[_promises(verification), *([uncounted] if uncounted else []), _every_slope(verification.models)],
        questions=[*_METHOD, *verification.method],
        examples=verification.examples,
        notes=[*_own_notes(verification), *_NOTES, *verification.notes, NOTES[2]],
        command=verification.command,
        python=verification.python,
        provenance=verification.provenance,
        titles=_TITLES,
        glossary=_GLOSSARY,
        null_prefix="to be compared with",
    )


def _lead(verification: Verification) -> str:
    models, counting = verification.models["model"].nunique(), _counting(verification.models)["model"].nunique()
    kept, n_promises = sum(met for *_, met in verification.verdicts), len(verification.verdicts)
    promises = f"all of its {n_promises} promises" if kept == n_promises else f"{kept} of its {n_promises} promises"
    tried = "1 model" if models == 1 else f"{models:,} models"
    lost = models - counting
    left_out = f"; {lost:,} of the models {'does' if lost == 1 else 'do'} not count" if lost else ""
    return (
        f"The audit was tried on {tried} whose bias is known, because it was planted in the training texts, and keeps "
        f"{promises}{left_out}."
    )


def _counting(models: pd.DataFrame) -> pd.DataFrame:
    return models[models["left_out"] == ""]


def _find(results: Sequence[Result], measure: str, *levels: str) -> Result | None:
    """One number by architecture, W and strength ("all" where not given), if it could be had."""
    wanted = (*levels, ALL, ALL, ALL)[:3]
    for result in results:
        group = tuple(result.group[key] for key in ("architecture", "w_name", "strength"))
        if result.measure == measure and group == wanted and math.isfinite(result.value):
            return result
    return None


def _architectures(results: Sequence[Result]) -> list[str]:
    return [name for name in dict.fromkeys(result.group["architecture"] for result in results) if name != ALL]


def _of_scale(results: Sequence[Result]) -> str:
    slope = _find(results, "calibration_slope")
    if slope is None:
        return ""
    each = [(name, _find(results, "calibration_slope", name)) for name in _architectures(results)]
    parts = [f"{name} {number(one.value)}" for name, one in each if one is not None]
    by = f"; by architecture: {', '.join(parts)}" if len(parts) > 1 else ""
    said = f"For each point planted the audit reads {number(slope.value)} points ({_interval(slope)}{by}). "
    if not math.isfinite(slope.low):
        return f"{said}Too few models were made for an interval."
    if slope.low - MIN_WIDTH <= 1 <= slope.high + MIN_WIDTH:
        return f"{said}That is compatible with 1, an audit that neither loses nor adds anything."
    loses = "loses some of the bias" if slope.high < 1 else "reads more bias than there is"
    excludes = "The interval excludes 1" if has_width(slope.low, slope.high) else "That is not 1"
    return f"{said}{excludes}: the audit {loses}.{_of_parts(results)}"


def _of_parts(results: Sequence[Result]) -> str:
    """Where it was lost or added."""
    trained, read = _find(results, "training_slope"), _find(results, "reading_slope")
    if trained is None or read is None:
        return ""
    return (
        f" The networks themselves learned {number(trained.value)} points for each ({_interval(trained)}), and of each that they "
        f"learned the audit reads {number(read.value)} ({_interval(read)})."
    )


def _of_coverage(results: Sequence[Result]) -> str:
    coverage, own = _find(results, "coverage"), _find(results, "coverage_sentences_only")
    if own is None:
        return ""
    alone = (
        f"the audit's own interval, for other sentences and not for other training seeds, does so for "
        f"{_percent(own.value)} of {_slopes(own.n)}; it is about the one model that was asked"
    )
    along = _along(results, "coverage")
    if coverage is None:
        return f"There are too few models for intervals with the training seed; along {along}, {alone}."
    beside = _find(results, "coverage_beside")
    easier = ""
    if beside is not None:
        where = _along(results, "coverage_beside")
        share = f"{_percent(beside.value)} of {_slopes(beside.n)}"
        easier = (
            f" Along {where}, where nothing was planted in any model, the interval with the seed does so for {share}."
        )
    return (
        f"Along {along}, the 95% interval with the training seed holds the planted slope for {_percent(coverage.value)} of "
        f"{_slopes(coverage.n)} ({_percents(coverage)}); {alone}.{easier}"
    )


def _along(results: Sequence[Result], measure: str) -> str:
    """The W that a measure is of, in words."""
    names = dict.fromkeys(result.group["w_name"] for result in results if result.measure == measure)
    return _listed([name for name in names if name != ALL])


def _of_power(results: Sequence[Result]) -> str:
    powers = [
        power
        for strength in _strengths(results)
        for power in [_find(results, "power", ALL, ALL, strength)]
        if power is not None
    ]
    if not powers:
        return ""
    parts = [
        f"{_percent(power.value)} of {_slopes(power.n)} where {number(power.extras['planted'])} were planted on average"
        for power in sorted(powers, key=lambda power: power.extras["planted"])
    ]
    return f"The larger the bias, the surer it should be found. In {STEPS}, the audit finds {_listed(parts)}."


def _of_false_alarms(results: Sequence[Result]) -> str:
    said = []
    alarms = _find(results, "false_alarms", ALL, ALL, UNBIASED)
    if alarms is not None:
        share = f"{_percent(alarms.value)}; {_percents(alarms)}"
        where = f"along {_along(results, 'false_alarms')}, {_slopes_have(alarms.n)}"
        said.append(f"In models without any bias, {where} {_alarms(alarms)} ({share}).")
    beside = _find(results, "false_alarms_beside", ALL, ALL, UNBIASED)
    if beside is not None:
        where = _along(results, "false_alarms_beside")
        said.append(f"Where nothing was planted along {where}, {_slopes_have(beside.n)} {_alarms(beside)}.")
    return " ".join(said)


def _alarms(share: Result) -> str:
    hits = round(share.value * share.n)
    return "1 false alarm" if hits == 1 else f"{hits:,} false alarms"


def _of_direction(results: Sequence[Result]) -> str:
    errors = _find(results, "direction_errors")
    if errors is None:
        return ""
    hits = round(errors.value * errors.n)
    if not hits:
        return f"No biased model is read as biased the other way round, in {_slopes(errors.n)}."
    return f"{hits:,} of {_slopes(errors.n)} of biased models have the wrong direction ({_percents(errors)})."


def _of_detector(results: Sequence[Result]) -> str:
    strengths = [
        strength for strength in _strengths(results) if _find(results, "auroc_delta", ALL, ALL, strength) is not None
    ]
    if not strengths:
        return ""
    at = strengths[-1]
    delta, entropy = (_find(results, f"auroc_{name}", ALL, ALL, at) for name in ("delta", "entropy"))
    difference = _find(results, "auroc_difference", ALL, ALL, at)
    if delta is None or entropy is None or difference is None:
        return ""
    where = "Without bias" if at == UNBIASED else f"At strength {at}, the largest"
    said = (
        f"{where}, the specification detector tells sentences that decide their pronoun from those that do not with an AUROC of "
        f"{number(delta.value)} ({_interval(delta)}), entropy with {number(entropy.value)} ({_interval(entropy)})"
    )
    if not math.isfinite(difference.low):
        return f"{said}."
    if difference.low <= 0 <= difference.high:
        return f"{said}; these models do not show which of the two is better."
    return f"{said}; {'the detector' if difference.value > 0 else 'entropy'} is better, by {number(abs(difference.value))}."


def _of_training(models: pd.DataFrame) -> str:
    failed = list(dict.fromkeys(models.loc[~models["converged"], "model"].astype(str)))
    if not failed:
        return ""
    one = len(failed) == 1
    count = "1 model does" if one else f"{len(failed):,} models do"
    return f"{count} not count, because {'its' if one else 'their'} training did not converge: {', '.join(failed)}."


def _strengths(results: Sequence[Result]) -> list[str]:
    """Every strength, "0" for unbiased models, by its size."""
    return sorted({result.group["strength"] for result in results} - {ALL}, key=lambda strength: abs(float(strength)))


def _interval(result: Result) -> str:
    return interval(result.low, result.high)


def _percent(value: float) -> str:
    return f"{number(100 * value, 0)}%"


def _percents(result: Result) -> str:
    return f"95% interval {_percent(result.low)} to {_percent(result.high)}"


def _slopes(count: int) -> str:
    return "1 slope" if count == 1 else f"{count:,} slopes"


def _slopes_have(count: int) -> str:
    return f"{_slopes(count)} {'has' if count == 1 else 'have'}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _promises(verification: Verification) -> ReportTable:
    rows = [
        (what, target, minus_signs(value), "yes" if met else "no") for what, target, value, met in verification.verdicts
    ]
    about = "" if _judges_alarms(verification) else _too_few_unbiased(verification)
    return ReportTable("What the audit promises", ("promise", "target", "value", "kept"), rows, about)


def _judges_alarms(verification: Verification) -> bool:
    return _n_unbiased(verification.results) >= MIN_UNBIASED_MODELS


def _n_unbiased(results: Sequence[Result]) -> int:
    """Models behind the false alarms: they count, were tested, and have no bias along any W."""
    return max((int(result.extras["models"]) for result in results if result.measure == "false_alarms"), default=0)


def _too_few_unbiased(verification: Verification) -> str:
    count = _n_unbiased(verification.results)
    models = "1 unbiased model counts" if count == 1 else f"{count:,} unbiased models count"
    return f"False alarms are not among the promises here: {models}, and it takes {MIN_UNBIASED_MODELS} to judge them."


def _uncounted_models(models: pd.DataFrame) -> ReportTable | None:
    rows = models[models["left_out"] != ""]
    if not len(rows):
        return None
    heads = ("model", "W", "why", "pronoun loss (nats)", "its floor", "if W is ignored", "planted", "learned")
    cells = [
        (
            str(row["model"]),
            str(row["w_name"]),
            str(row["left_out"]),
            *(number(float(row[name]), 4) for name in ("pronoun_loss_nats", "floor_nats", "ignorant_nats")),
            *(number(float(row[name])) for name in ("planted_slope", "learned_slope")),
        )
        for row in rows.to_dict("records")
    ]
    return ReportTable("Slopes that do not count", heads, cells, "They stand in no other number of this page.")


def _every_slope(models: pd.DataFrame) -> ReportTable:
    heads = (
        "model", "W", "strength", "seed", "planted", "learned", "measured", "audit's own interval", "with training seed", "q", "found",
    )  # fmt: skip
    cells = []
    for row in models.to_dict("records"):
        seed = float(row["training_seed"])
        cells.append(
            (
                str(row["model"]),
                str(row["w_name"]),
                UNBIASED if row["unbiased"] else shortest(float(row["strength"])),
                f"{seed:.0f}" if math.isfinite(seed) else MISSING,
                *(number(float(row[name])) for name in ("planted_slope", "learned_slope", "measured_slope")),
                *(
                    _ends(float(row[low]), float(row[high]))
                    for low, high in (("low", "high"), ("seed_low", "seed_high"))
                ),
                probability(float(row["q"])),
                "does not count" if row["left_out"] else "yes" if row["found"] else "no",
            )
        )
    about = (
        f"Slopes in {STEPS}; learned is that of the network's own P(female) on texts like its corpus. Found: q is below .05 and the "
        "audit's own interval excludes 0."
    )
    return ReportTable("Every model and W", heads, cells, about)


def _ends(low: float, high: float) -> str:
    return f"[{number(low)}, {number(high)}]" if math.isfinite(low) and math.isfinite(high) else MISSING


def _own_notes(verification: Verification) -> list[str]:
    return [] if _judges_alarms(verification) else [_too_few_unbiased(verification)]


_METHOD = (
    "Small models were trained from scratch on texts about people whose pronoun goes with a date or a place only because of who "
    "was selected to be written about. How far it goes with them in those texts is the planted slope; it is counted in the very "
    "texts that the model saw, so it is known without error.",
    "The audit then asked each model about sentences that it had not seen, all models the same ones, and knew nothing of what was "
    "planted. What it read is the measured slope.",
)

_NOTES = (
    "Models count only where their training is proved to have converged: the pronoun loss has come down to the least that the "
    "texts allow, and where a bias was planted the network's own P(female), on texts like its corpus, has the slope of the corpus "
    "within a tenth of it or 0.1 points. Otherwise the page would judge the training and not the audit.",
    "The interval with the training seed adds two variances: of the sentences, from the audit's own interval, and of training, from "
    "how far the other models of the same architecture and W lie from their line. It takes five models of each. All models are "
    "asked the same sentences, so what is wrong with these is shared by all and is not averaged out by more models; it is in the "
    "intervals of the calibration slope and intercept too. Where each model has an error of its own with each sentence, that "
    "counts twice and makes intervals wider than they need be.",
    "Coverage and false alarms are judged along each W along which bias was planted in some model (along every W, if in none); with one "
    "such W, each model counts once. Where nothing was planted in any model a W is easy to read right, so it is told beside them and "
    "changes neither.",
    "Intervals of shares take slopes as independent. Slopes of one W hit or miss together, being read from the same sentences, so "
    "these intervals may be narrower than they should.",
    "These are small models and simple texts. What holds here says what the instrument can do, and nothing of how biased any other "
    "model is.",
)

_TITLES = {
    "calibration_slope": "Calibration slope",
    "calibration_intercept": "Calibration intercept",
    "training_slope": "What training kept",
    "reading_slope": "What the audit read of it",
    "attenuation": "Attenuation",
    "coverage": "Coverage, training seed included",
    "coverage_sentences_only": "Coverage of the audit's own interval",
    "coverage_beside": "Coverage along other W (not judged)",
    "interval_width": "Median interval width",
    "false_alarms": "False alarms",
    "false_alarms_beside": "False alarms elsewhere (not judged)",
    "power": "Power",
    "direction_errors": "Direction errors",
    "auroc_delta": "AUROC of the specification detector",
    "auroc_entropy": "AUROC of entropy",
    "auroc_difference": "AUROC: detector less entropy",
}

_GLOSSARY = {
    "calibration_slope": "how far the measured slope moves when the planted slope moves by one; 1 is an audit that reads right",
    "calibration_intercept": "the slope that the audit reads, on the fitted line, where nothing was planted",
    "training_slope": "how far the slope of a network's own P(female), on texts like those it learned, moves when the planted slope "
    "moves by one; below 1, part of the bias was not learned",
    "reading_slope": "how far the measured slope moves when the network's own moves by one; 1 is an audit that reads what the network "
    "says of such texts",
    "attenuation": "the mean measured slope over the mean planted slope, for models of one strength in either direction",
    "coverage": "the share of slopes, along each W along which bias was planted in some model, whose 95% interval, with the training "
    "seed, holds the planted slope",
    "coverage_sentences_only": "the same of the interval that the audit gives for one model, which leaves out the training seed",
    "coverage_beside": "the same share as coverage, along each W in which nothing was planted in any model",
    "interval_width": "the median width of the 95% interval with the training seed",
    "false_alarms": "the share of slopes with q below .05 in models without any bias, along each W along which it was planted in others "
    "(along every W, if in none)",
    "false_alarms_beside": "the share of all other slopes in which nothing was planted that have q below .05",
    "power": "the share of slopes with q below .05, on the planted side, where something was planted",
    "direction_errors": "the share of slopes of biased models that are measured on the wrong side of 0, found or not",
    "auroc_delta": "the chance that a sentence which does not decide its pronoun moves more with W than one that does",
    "auroc_entropy": "the chance that a sentence which does not decide its pronoun has the higher entropy",
    "auroc_difference": "how much larger the detector's AUROC is than that of entropy, in the same models",
    "architecture": "masked models fill a blank with both sides in view; causal models read from the left; all is both together",
    "strength": "the size of the parameter of the selection that the texts were drawn with, whichever way it goes; 0 stands for "
    "all slopes without bias",
    "n": "how many slopes the number rests on; for AUROC, how many models",
    "missing": "how many more there are, of models that did not converge or without the number that is needed",
    "biased": "the same share of biased slopes alone",
    "models_low": "with models low and high: the 95% interval for other models that are asked these very sentences",
    "scatter": "standard deviation of the models around the fitted line, in percentage points per step of W",
    "planted": "the mean size of the planted slopes, in percentage points per step of W",
    "of_largest": "the median of the width as a share of the largest slope planted in the same W",
    "audit_width": "the median width of the audit's interval over sentences, without the training seed",
    "spread": "the median standard deviation over training seeds",
    "claimed": "the share that the audit claims",
    "models": "how many models that count and were tested have no bias along any W",
    "models_alarmed": "the share of these models with a false alarm along any W",
}
