"""`undertow power`: plan how many sentences and values an audit needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli import console
from undertow.cli.options import Csv, DataDir, Inject, Json, TableOptions, WLists, Words
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.audits.spurious_correlation.power_plan import ObservedNoise, PowerCurve

POWER_DEFAULTS = {"text_sd": 4.7, "slopes_sd": 9.0, "values_sd": 4.8}
"""Noise of the default model on the published dates, for its share of female words; its autocorrelation is `power_plan.AUTOCORRELATION`."""


def _noise(name: str, what: str) -> Any:
    return typer.Option(help=f"{what}; {POWER_DEFAULTS[name]:g} if not given.")


def power(  # noqa: PLR0913 - an option each
    name: Annotated[
        str,
        typer.Argument(
            help="A challenge set or, with --inject, sentences: a name, or a .toml, .csv or .tsv file of your own."
        ),
    ],
    *,
    w: WLists = "",
    w_scale: Annotated[str, typer.Option(help="Unit of slopes: index or value; each list's own if not given.")] = "",
    inject: Inject = "",
    words: Words = "",
    data_dir: DataDir = "",
    options: TableOptions = "",
    text_sd: Annotated[
        float | None,
        _noise("text_sd", "Standard deviation of a text around the line of its sentence, in percentage points"),
    ] = None,
    slopes_sd: Annotated[
        float | None,
        _noise(
            "slopes_sd", "Standard deviation of the sentences' own changes over the whole list, in percentage points"
        ),
    ] = None,
    values_sd: Annotated[
        float | None,
        _noise(
            "values_sd", "Standard deviation of the noise that all sentences share at a W value, in percentage points"
        ),
    ] = None,
    autocorrelation: Annotated[
        float | None,
        typer.Option(
            help="Correlation of that noise between neighbouring values; if not given, 0.3 at 7.4 years, and between "
            "neighbours of any design if the values are not years."
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="Estimate all four from a finished run of spurious-correlation, or from a recorded table."),
    ] = None,
    group: Annotated[
        str, typer.Option(help="With --like: a word group, or a gap such as female-male; the first group if not given.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Also draw the curves: a .pdf, .svg or .png file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Estimate the smallest effect that a challenge detects, by number of sentences and of values. Needs no model."""
    given = {"text_sd": text_sd, "slopes_sd": slopes_sd, "values_sd": values_sd, "autocorrelation": autocorrelation}
    _check(given, like, group)
    if out is not None:
        console.check_figure(out, replace=overwrite, fix="add --overwrite")
    from undertow.audits.spurious_correlation.items import Settings
    from undertow.audits.spurious_correlation.power_plan import plan_power

    settings = Settings(
        challenge=name, w=w, inject=inject, w_scale=w_scale, data_dir=data_dir, options=options, words=words
    )
    observed = _like(like, group) if like is not None else None
    assumed = POWER_DEFAULTS | {option: number for option, number in given.items() if number is not None}
    with console.stoppable("nothing was simulated"), console.progress_bar(as_json or as_csv, "simulate") as bar:
        plan = plan_power(settings, assumed, observed, bar)
    if out is not None:
        from undertow.audits.spurious_correlation.figures import draw_power
        from undertow.report.style import write_figure

        write_figure(draw_power(plan).figure, out)
    if as_json:
        console.print_json(plan.as_dict())
    elif as_csv:
        console.print_csv([row for one in plan.curves for row in one.rows()])
    else:
        is_default = all(number is None for number in given.values())
        console.print_text("power", plan=plan, table=_table, digits=digits, is_default=is_default)
        if out is not None:
            console.echo(f"Written: {console.one_line(out.resolve())}")


def _check(given: Mapping[str, float | None], like: Path | None, group: str) -> None:
    for option, number in given.items():
        flag = f"--{option.replace('_', '-')}"
        if number is None:
            continue
        if like is not None:
            raise UndertowError(f"{flag}: --like {like} estimates this value; remove one of the two")
        if not (0 <= number < math.inf) or (option == "autocorrelation" and number >= 1):
            valid_range = "0 or more and below 1" if option == "autocorrelation" else "0 or more"
            raise UndertowError(f"{flag} {number:g}: must be {valid_range}")
    if group and like is None:
        raise UndertowError(
            f"--group {group}: says which series of a run --like is about; name the run, or leave it out"
        )


def _like(path: Path, group: str) -> ObservedNoise:
    """Estimate the noise of a run folder or a recorded table."""
    from undertow import audits
    from undertow.audits.spurious_correlation.power_plan import noise_of
    from undertow.runs.folder.storage import read_record
    from undertow.runs.pipeline import observations_of

    if not path.exists():
        raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
    if path.is_dir():
        record = read_record(path)
        if (audit := record.manifest["audit"]) != "spurious-correlation":
            raise UndertowError(f"{path}: is a run of {audit}; --like takes one of spurious-correlation")
        observations = observations_of(record)
    else:
        observations, _ = audits.load("spurious-correlation").load_recorded(path, "")
    try:
        return noise_of(observations, group)
    except UndertowError as error:
        raise UndertowError(f"--like {path}: {error}") from error


def _table(curve: PowerCurve) -> list[dict[str, str]]:
    rows: dict[int, dict[str, str]] = {}
    for one in curve.designs:
        row = rows.setdefault(one.n_sentences, {f"{curve.sizes.noun}s": str(one.n_sentences)})
        row[f"{one.n_values} values"] = digits(one.change)
    first = next(iter(rows.values()))
    correlations = {f"{one.n_values} values": f"{one.autocorrelation:.2g}" for one in curve.designs}
    return [*rows.values(), {name: correlations.get(name, "correlation") for name in first}]


def digits(number: float) -> str:
    """Three significant digits; a dash without a value."""
    if not math.isfinite(number):
        return "-"
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
