"""`undertow power`: the smallest change along a W list that a design detects, before any model runs."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow._files import csv_cell
from undertow.cli.console import Json, one_line, progress_bar, say, say_json, say_table, stoppable, without_nan
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.audits.shared.item_limit import ListSizes
    from undertow.data import Covariate
    from undertow.metrics.power_planning import Detectable, ObservedNoise
    from undertow.report.style import Drawing

TEXT_SD, SLOPES_SD, VALUES_SD, AUTOCORRELATION = 4.7, 9.0, 4.8, 0.3
"""What the default model shows on the published dates, for its share of female words."""
COLUMNS = ("w_name", "sentences", "values", "autocorrelation", "change", "slope", "step", "as_it_stands")
SUFFIXES = (".png", ".svg")


@dataclass(frozen=True, slots=True)
class _Curve:
    """What can be found along one W list.

    Attributes:
        covariate: the list.
        sizes: how much of it is asked.
        designs: the smallest change of each design; [] for a list without order.
    """

    covariate: Covariate
    sizes: ListSizes
    designs: Sequence[Detectable]

    @property
    def own(self) -> Detectable:
        """Of the design as it stands."""
        return next(one for one in self.designs if one.is_own)

    @property
    def step(self) -> str:
        """What a slope is per."""
        return "step" if self.covariate.scale == "index" else self.covariate.unit or "unit"


def power(  # noqa: PLR0913 - an option each
    name: Annotated[
        str,
        typer.Argument(
            help="A challenge set or, with --inject, sentences: a name, or a .toml, .csv or .tsv file of your own."
        ),
    ],
    *,
    w: Annotated[str, typer.Option(help="W lists, comma-separated; those of the set if not given.")] = "",
    w_scale: Annotated[
        str, typer.Option(help="What slopes are per: index or value; each list's own if not given.")
    ] = "",
    inject: Annotated[str, typer.Option(help="Put W into sentences that have no place for it: 'In {w}: '.")] = "",
    words: Annotated[str, typer.Option(help="Word list to fill the blank from.")] = "",
    data_dir: Annotated[str, typer.Option(help="Folder with the two published files of winogender.")] = "",
    options: Annotated[str, typer.Option(help="Word groups for a .csv or .tsv file: 'yes: is; no: is not'.")] = "",
    text_sd: Annotated[
        float | None,
        typer.Option(
            help=f"Noise of a text around the line of its sentence, in percentage points; {TEXT_SD:g} if not given."
        ),
    ] = None,
    slopes_sd: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the sentences' own changes over the whole list, in percentage points; "
            f"{SLOPES_SD:g} if not given."
        ),
    ] = None,
    values_sd: Annotated[
        float | None,
        typer.Option(
            help=f"Noise of a W value that all sentences share, in percentage points; {VALUES_SD:g} if not given."
        ),
    ] = None,
    autocorrelation: Annotated[
        float | None,
        typer.Option(help=f"Of that noise, at neighbouring values of the list; {AUTOCORRELATION:g} if not given."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="Take all four from a finished run of spurious-correlation, or from a recorded table."),
    ] = None,
    group: Annotated[
        str, typer.Option(help="Of --like: a word group, or a gap such as female-male; the first group if not given.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Draw the curves, too: a .png or .svg file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Print the smallest change along a W list that a design detects, by number of sentences and of values."""
    given = {"text_sd": text_sd, "slopes_sd": slopes_sd, "values_sd": values_sd, "autocorrelation": autocorrelation}
    _check(given, like, group, out, overwrite=overwrite)
    from undertow.audits.spurious_correlation.items import Settings, lists_of

    settings = Settings(
        challenge=name, w=w, inject=inject, w_scale=w_scale, data_dir=data_dir, options=options, words=words
    )
    lists = lists_of(settings)
    unordered = [covariate.name for covariate, _ in lists if covariate.scale == "none"]
    if len(unordered) == len(lists):
        raise UndertowError(
            f"{name}: nothing can rise or fall along a list without order ({', '.join(unordered)}); give it an order, or --w-scale index"
        )
    observed = _like(like, group) if like is not None else None
    with stoppable("nothing was simulated"), progress_bar(as_json or as_csv, "simulating", "") as bar:
        curves = [
            _curve(one, given, observed, lambda done, total, at=at: bar(at * total + done, len(lists) * total))
            for at, one in enumerate(lists)
        ]
    if out is not None:
        _write(_drawing(name, curves), out)
    if as_json:
        say_json(_plain(name, curves, given, observed))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {key: "" if cell is None else csv_cell(cell) for key, cell in row.items()} for row in _rows(curves)
        )
    else:
        _say(curves, given, observed)
        if out is not None:
            say(f"Written: {one_line(out.resolve())}")


def _check(
    given: Mapping[str, float | None], like: Path | None, group: str, out: Path | None, *, overwrite: bool
) -> None:
    for option, number in given.items():
        flag = f"--{option.replace('_', '-')}"
        if number is None:
            continue
        if like is not None:
            raise UndertowError(f"{flag}: --like {like} takes it from there; leave one of the two out")
        if not (0 <= number < math.inf) or (option == "autocorrelation" and number >= 1):
            valid_range = "0 or more and below 1" if option == "autocorrelation" else "0 or more"
            raise UndertowError(f"{flag} {number:g}: must be {valid_range}")
    if group and like is None:
        raise UndertowError(
            f"--group {group}: says which series of a run --like is about; name the run, or leave it out"
        )
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UndertowError(f"{out}: a figure is a {' or '.join(SUFFIXES)} file; name one")
    if out is not None and (out.is_dir() or (out.exists() and not overwrite)):
        raise UndertowError(
            f"{out}: is there already; name another file" + ("" if out.is_dir() else ", or add --overwrite")
        )


def _like(path: Path, group: str) -> ObservedNoise:
    """Estimate the noise of a run folder or a recorded table."""
    from undertow import audits, data
    from undertow.metrics.power_planning import observed_noise

    if path.is_dir():
        from undertow.runs.folder.storage import read_record
        from undertow.runs.pipeline import observations_of

        record = read_record(path)
        audit = record.manifest["audit"]
        if audit != "spurious-correlation":
            raise UndertowError(f"{path}: is a run of {audit}; --like takes one of spurious-correlation")
        observations = observations_of(record)
    else:
        if not path.exists():
            raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
        observations, _ = audits.load("spurious-correlation").load_recorded(path, "")
    gaps = [(str(first), str(second)) for first, second in observations.design["gaps"]]
    covariates = observations.design.get("covariates", {})
    unordered = [name for name, one in covariates.items() if one["scale"] == data.NONE]
    try:
        return observed_noise(observations.frame, observations.design["groups"], gaps, group, unordered)
    except UndertowError as error:
        raise UndertowError(f"--like {path}: {error}") from error


def _curve(
    one: tuple[Covariate, ListSizes], given: Mapping[str, float | None], observed: ObservedNoise | None, progress: Any
) -> _Curve:
    """The curve of one list; the autocorrelation that was given is that of neighbours in the list itself."""
    from dataclasses import replace

    from undertow.metrics.power_planning import curve
    from undertow.stats.regression.power_analysis import AssumedNoise, step_of

    covariate, sizes = one
    if covariate.scale == "none":
        return _Curve(covariate, sizes, [])
    n_texts = sizes.n_sentences / sizes.n_clusters
    if observed is not None:
        noise = replace(observed.noise, n_texts=n_texts)
    else:
        noise = AssumedNoise(**_assumed(given), step=step_of(covariate.axis), n_texts=n_texts)
    return _Curve(covariate, sizes, curve(covariate.axis, sizes.n_clusters, noise, progress))


def _assumed(given: Mapping[str, float | None]) -> dict[str, float]:
    defaults = {"text_sd": TEXT_SD, "slopes_sd": SLOPES_SD, "values_sd": VALUES_SD, "autocorrelation": AUTOCORRELATION}
    return {name: default if given[name] is None else float(given[name] or 0) for name, default in defaults.items()}


def _noise(given: Mapping[str, float | None], observed: ObservedNoise | None) -> dict[str, float]:
    """The three standard deviations; the autocorrelation is each list's own."""
    numbers = _assumed(given) if observed is None else asdict(observed.noise)
    return {name: float(numbers[name]) for name in ("text_sd", "slopes_sd", "values_sd")}


def _rows(curves: Sequence[_Curve]) -> list[dict[str, Any]]:
    """A row for each design."""
    rows: list[dict[str, Any]] = without_nan(
        [
            dict(
                zip(
                    COLUMNS,
                    (
                        curve.covariate.name,
                        one.n_sentences,
                        one.n_values,
                        one.autocorrelation,
                        one.change,
                        one.slope,
                        curve.step,
                        "yes" if one.is_own else "no",
                    ),
                    strict=True,
                )
            )
            for curve in curves
            for one in curve.designs
        ]
    )
    return rows


def _plain(
    name: str, curves: Sequence[_Curve], given: Mapping[str, float | None], observed: ObservedNoise | None
) -> dict[str, Any]:
    from undertow.stats.regression.power_analysis import ALPHA, POWER

    return {
        "challenge": name,
        "power": POWER,
        "alpha": ALPHA,
        "noise": _noise(given, observed),
        "like": None
        if observed is None
        else {**observed.group, "sentences": observed.n_sentences, "values": observed.n_values},
        "lists": [
            {
                "w_name": curve.covariate.name,
                **curve.covariate.design_entry(),
                "first": curve.covariate.values[0],
                "last": curve.covariate.values[-1],
                "sentences": curve.sizes.n_sentences,
                "clusters": curve.sizes.n_clusters,
                "values": curve.sizes.n_values,
                "missing": {"sentences": curve.sizes.missing_clusters, "values": curve.sizes.missing_values},
                "limitations": curve.sizes.limitation(),
                **(_own(curve) if curve.designs else {}),
                "curve": [
                    {
                        "sentences": one.n_sentences,
                        "values": one.n_values,
                        "autocorrelation": one.autocorrelation,
                        "change": one.change,
                    }
                    for one in curve.designs
                ],
            }
            for curve in curves
        ],
        "notes": [note for curve in curves for note in curve.covariate.notes],
    }


def _own(curve: _Curve) -> dict[str, Any]:
    own = curve.own
    return {"autocorrelation": own.autocorrelation, "change": own.change, "slope": own.slope, "step": curve.step}


def _say(curves: Sequence[_Curve], given: Mapping[str, float | None], observed: ObservedNoise | None) -> None:
    for curve in curves:
        say(one_line(curve.covariate.summary()))
        for note in (*curve.covariate.notes, curve.sizes.limitation()):
            if note:
                say(one_line(note))
        if not curve.designs:
            say(f"{one_line(curve.covariate.name)}: has no order, so it has no detectable change.")
            say("")
            continue
        first, last = (one_line(curve.covariate.values[at]) for at in (0, -1))
        say(
            f"Smallest change from {first} to {last}, in percentage points, that is found (p < .05, before the correction for several "
            "tests) in 8 of 10 runs:"
        )
        say_table(_table(curve))
        own = curve.own
        if math.isfinite(own.change):
            say(
                f"As it stands, {own.n_sentences} {curve.sizes.noun}s and {own.n_values} values: {_digits(own.change)} points, "
                f"{_digits(own.slope)} points a {curve.step}."
            )
        say("")
    numbers = _noise(given, observed)
    neighbours = ", ".join(
        f"{one_line(curve.covariate.name)} {curve.own.autocorrelation:.2g}" for curve in curves if curve.designs
    )
    say(
        f"Assumed: standard deviations of {numbers['text_sd']:.3g} points (a text around the line of its sentence), "
        f"{numbers['slopes_sd']:.3g} (sentences' own changes over the whole list) and {numbers['values_sd']:.3g} (a W value, for all "
        f"sentences alike); correlation of neighbouring values: {neighbours}."
    )
    say(_source(given, observed))


def _source(given: Mapping[str, float | None], observed: ObservedNoise | None) -> str:
    if observed is not None:
        about = observed.group
        return (
            f"So shows {one_line(about['pronoun'])} of {one_line(about['model'])} by {one_line(about['w_name'])}, with "
            f"{observed.n_sentences} sentences and {observed.n_values} values."
        )
    if all(number is None for number in given.values()):
        return "So does the default model on the published dates; others may be noisier. --like RUN takes the noise of a run."
    return "--like RUN takes the noise of a run."


def _table(curve: _Curve) -> list[dict[str, str]]:
    rows: dict[int, dict[str, str]] = {}
    for one in curve.designs:
        row = rows.setdefault(one.n_sentences, {f"{curve.sizes.noun}s": str(one.n_sentences)})
        row[f"{one.n_values} values"] = _digits(one.change)
    return list(rows.values())


def _digits(number: float) -> str:
    """Three digits; a dash where nothing is claimed."""
    if not math.isfinite(number):
        return "-"
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"


def _drawing(name: str, curves: Sequence[_Curve]) -> Drawing:
    from undertow.report.figures.detectable_change import Curve, draw_power

    return draw_power(
        name,
        [
            Curve(
                title=f"{one.covariate.name}, from {one.covariate.values[0]} to {one.covariate.values[-1]}",
                changes={(cell.n_sentences, cell.n_values): cell.change for cell in one.designs},
                own=(one.own.n_sentences, one.own.n_values),
            )
            for one in curves
            if one.designs
        ],
    )


def _write(drawing: Drawing, out: Path) -> None:
    from undertow.report.style import png_bytes, svg_text

    try:
        if out.suffix.lower() == ".svg":
            out.write_text(svg_text(drawing), encoding="utf-8", newline="\n")
        else:
            out.write_bytes(png_bytes(drawing))
    except OSError as error:
        raise UndertowError(f"{out}: cannot be written ({error.strerror or error}); name another file") from error
