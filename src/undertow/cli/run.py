"""`undertow run AUDIT`: run an audit, or estimate its cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from undertow.cli import options as opt
from undertow.cli.console import echo, print_json, print_run, print_table, print_text, progress_bar, stoppable
from undertow.cli.gate import Format, JUnit, check_format, print_gate, refusing
from undertow.errors import UndertowError


@dataclasses.dataclass(frozen=True, slots=True)
class CommonOptions:
    """Options that every `undertow run AUDIT` has."""

    model: Annotated[
        list[str],
        typer.Option(
            "-m",
            "--model",
            help="A name of `undertow list models`, a hub id, a model folder or a GGUF file; repeat it to compare models. "
            "label=NAME sets its name in reports.",
        ),
    ]
    revision: opt.Revision = ""
    dtype: opt.Dtype = "float32"
    float32_sample: Annotated[
        int,
        typer.Option(
            help="In reduced precision: number of items to score again in float32, to measure its effect; 0 for a tenth, but at least 200."
        ),
    ] = 0
    device: opt.Device = "auto"
    model_info: opt.ModelInfo = None
    system: Annotated[
        Path | None, typer.Option(help="Text file with a system message for every chat, with --chat.")
    ] = None
    graph: opt.Graph = ""
    protocol: opt.Protocol = ""
    preset: Annotated[
        str,
        typer.Option(help="Preset of options: paper (the settings of the audit's paper). Other options override it."),
    ] = ""
    seed: Annotated[int, typer.Option(help="Seed of sampling and resampling.")] = 0
    limit: Annotated[int, typer.Option(help="Maximum number of items; 0 for all.")] = 0
    engine: Annotated[
        str, typer.Option(help="Where models run: local (this process) or ray (workers); answers are equal.")
    ] = "local"
    ray_address: Annotated[
        str, typer.Option(help="Ray cluster to join: auto, or host:port; starts one on this machine if not given.")
    ] = ""
    workers: Annotated[
        int,
        typer.Option(
            help="Number of Ray workers, each of which loads the model; 0 for one per GPU, or one per machine without GPUs."
        ),
    ] = 0
    out: opt.Out = None
    overwrite: opt.Overwrite = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate time and memory, and run nothing.")] = False
    as_json: opt.Json = False


_given_options: ContextVar[set[str]] = ContextVar("given_options")


class AuditCommand(opt.Command):
    """`undertow run AUDIT`, with a hint about patterns that the shell has expanded."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; options that are given with their default value override a preset."""
        token = _given_options.set(
            {name for name in ctx.params if ctx.get_parameter_source(name).name in ("COMMANDLINE", "ENVIRONMENT")}
        )
        try:
            return super().invoke(ctx)
        finally:
            _given_options.reset(token)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse extra arguments, such as further folders of an unquoted `-m run/*`."""
        ctx.allow_extra_args = True
        left: list[str] = super().parse_args(ctx, args)
        if paths := [argument for argument in left if Path(argument).exists()]:
            ctx.fail(
                f"{paths[0]!r} belongs to no option; quote patterns, as in -m 'run/checkpoint-*', so that the shell "
                "does not expand them, or write -m before each model"
            )
        if left:
            ctx.fail(f"got {' '.join(map(repr, left))}, which belongs to no option")
        return left


class AuditGroup(TyperGroup):
    """`undertow run`: one subcommand for each audit, with the options of its settings."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        from undertow import audits

        return audits.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        from undertow import audits

        audit = audits.load(cmd_name)
        return opt.subcommand(cmd_name, audit.summary, _command_of(cmd_name, audit), AuditCommand)


def _command_of(name: str, audit: Any) -> Callable[..., None]:
    """A function with the common options and the audit's own in its signature; options that it refuses are hidden."""
    from undertow import models
    from undertow.audits.base import presets_of

    own = {option.name: option for option in dataclasses.fields(audit.Settings)}
    of_models = {name: option for name, option in models.settings().items() if name not in own}

    def command(**given: Any) -> None:
        options = {key: (given.pop(key), option.default) for key, option in (own | of_models).items()}
        kept = _given_options.get() if given["preset"] else set()
        options = {key: value for key, (value, default) in options.items() if value != default or key in kept}
        _run(name, CommonOptions(**given), options)

    common = {one.name: one for one in opt.parameters_of(CommonOptions)}
    if audit.limit_help:
        common["limit"] = common["limit"].replace(annotation=Annotated[int, typer.Option(help=audit.limit_help)])
    for key, is_refused in (
        ("graph", not audit.causal_claim),
        ("protocol", len(audit.protocols) < 2),
        ("preset", not presets_of(name)),
    ):
        if is_refused:
            common[key] = common[key].replace(annotation=Annotated[str, typer.Option(f"--{key}", hidden=True)])
    return opt.with_options(
        command, [*common.values(), *opt.parameters_of(audit.Settings, every=True), *opt.family_options(own)]
    )


def _run(audit: str, common: CommonOptions, options: dict[str, Any]) -> None:
    from undertow.runs import pipeline
    from undertow.runs.config import COMMON

    request = {name: getattr(common, name) for name in COMMON} | {
        "model_info": common.model_info or "",
        "system": common.system or "",
        "preset": common.preset,
        **options,
    }
    if common.dry_run:
        estimate = pipeline.dry_run(audit, common.model, **request)
        if common.as_json:
            print_json(dataclasses.asdict(estimate))
        else:
            print_text("estimate", of=estimate)
        return
    with stoppable(), progress_bar(common.as_json) as progress:
        run = pipeline.audit(
            audit, common.model, out=common.out, overwrite=common.overwrite, progress=progress, **request
        )
    print_run(run, as_json=common.as_json)


def suite(  # noqa: PLR0913 - an option each
    file: Annotated[Path, typer.Argument(help="TOML or YAML file: models, options, rules, and the audits.")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the runs; that of the file if not given.")
    ] = None,
    overwrite: opt.Overwrite = False,
    junit: JUnit = None,
    format: Format = "text",  # noqa: A002 - the name of the option
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate time and memory of each run, and run nothing.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Run the audits of a suite file. Checks its rules and writes a page that links to all runs; exits like `undertow gate`."""
    from undertow.runs import suite as suites
    from undertow.runs.gates.junit import write_junit

    check_format(format)
    needs_gate = junit is not None or format != "text"
    if dry_run:
        if needs_gate:
            raise UndertowError("--dry-run runs nothing, so there is no gate to report; leave --junit and --format out")
        with refusing(), stoppable("nothing was run"):
            estimates = suites.dry_run(file)
        if as_json:
            print_json({name: dataclasses.asdict(one) for name, one in estimates.items()})
            return
        for name, one in estimates.items():
            echo(f"{name}:")
            print_text("estimate", of=one)
        return
    with refusing(junit), stoppable(), progress_bar(as_json) as progress:
        if needs_gate and not suites.has_rules(file):
            raise UndertowError(
                f"{file}: has no rules, so there is no gate to report; add rules, or leave --junit and --format out"
            )
        finished = suites.suite(file, out, progress, overwrite=overwrite)
        if junit is not None and finished.gate is not None:
            write_junit(finished.gate, junit)
    if as_json:
        gate = finished.gate.as_json() if finished.gate is not None else None
        print_json({"index": str(finished.index), "runs": finished.rows(), "gate": gate})
    elif format == "markdown" and finished.gate is not None:
        typer.echo(finished.gate.to_markdown())
    else:
        print_table([{name: row[name] for name in row if name != "strongest"} for row in finished.rows()])
        if finished.gate is not None:
            print_gate(finished.gate)
        echo(f"Index: {finished.index}")
    if finished.status:
        raise typer.Exit(finished.status)


run_app = typer.Typer(cls=AuditGroup, help="Run an audit on one or more models.", no_args_is_help=True)
