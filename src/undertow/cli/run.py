"""`undertow run AUDIT`: an audit of models, or what it will take."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from undertow.cli.console import (
    Device,
    Dtype,
    Graph,
    Json,
    ModelInfo,
    Out,
    Overwrite,
    Protocol,
    Revision,
    echo,
    hidden_option,
    one_line,
    parameter,
    parameters_of,
    print_json,
    print_run,
    progress_bar,
    stoppable,
)

if TYPE_CHECKING:
    from undertow.inference.runner import RunEstimate


@dataclasses.dataclass(frozen=True, slots=True)
class CommonOptions:
    """Options that every `undertow run AUDIT` has."""

    model: Annotated[
        list[str],
        typer.Option(
            "-m",
            "--model",
            help="A name of `undertow list models`, a hub id, a model folder or a GGUF file; may be repeated, to compare models.",
        ),
    ]
    revision: Revision = ""
    dtype: Dtype = "float32"
    float32_sample: Annotated[
        int,
        typer.Option(
            help="In reduced precision, number of items to score again in float32; 0 for a tenth, but at least 200."
        ),
    ] = 0
    device: Device = "auto"
    model_info: ModelInfo = None
    graph: Graph = ""
    protocol: Protocol = ""
    seed: Annotated[int, typer.Option(help="Seed of sampling and resampling.")] = 0
    limit: Annotated[int, typer.Option(help="Maximum number of items; 0 for all.")] = 0
    engine: Annotated[
        str,
        typer.Option(help="Where models run: local (in this process) or ray (in workers); the answers are the same."),
    ] = "local"
    ray_address: Annotated[
        str, typer.Option(help="Ray cluster to join: auto, or host:port; a new one on this machine if not given.")
    ] = ""
    workers: Annotated[
        int, typer.Option(help="Ray workers, each with the model; 0 for one per GPU, or one per machine without GPUs.")
    ] = 0
    out: Out = None
    overwrite: Overwrite = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate the cost in a single process, and run nothing.")
    ] = False
    as_json: Json = False


class AuditCommand(TyperCommand):
    """`undertow run AUDIT`, which knows what becomes of a pattern that the shell writes out."""

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


class AuditGroup(TyperGroup):
    """`undertow run`: one subcommand for each file in `undertow.audits`, its options read from its settings."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        from undertow import audits

        return audits.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        from undertow import audits

        audit = audits.load(cmd_name)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name=cmd_name, cls=AuditCommand, help=f"{audit.summary[:1].upper()}{audit.summary[1:]}")(
            _command_of(cmd_name, audit)
        )
        return typer.main.get_command(single)


def _command_of(name: str, audit: Any) -> Callable[..., None]:
    """A function whose signature is the common options followed by the audit's own; those that it refuses are not in its help."""
    from undertow import models

    own = {option.name: option for option in dataclasses.fields(audit.Settings)}
    hidden = {"graph": not audit.causal_claim, "protocol": len(audit.protocols) < 2}
    of_models = {name: option for name, option in models.settings().items() if name not in own}

    def command(**given: Any) -> None:
        defaults = {key: option.default for key, option in (own | of_models).items()}
        options = {key: given.pop(key) for key in defaults}
        _run(name, CommonOptions(**given), {key: value for key, value in options.items() if value != defaults[key]})

    parameters = [
        one.replace(annotation=Annotated[int, typer.Option(help=audit.limit_help)])
        if one.name == "limit" and audit.limit_help
        else hidden_option(one)
        if hidden.get(one.name)
        else one
        for one in parameters_of(CommonOptions)
    ]
    parameters += parameters_of(audit.Settings)
    parameters += [
        parameter(key, Annotated[type(option.default), typer.Option(help=f"{option.metadata['help']}")], option.default)
        for key, option in of_models.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _run(audit: str, common: CommonOptions, options: dict[str, Any]) -> None:
    from undertow.runs import pipeline

    names = (
        "revision",
        "dtype",
        "device",
        "protocol",
        "seed",
        "limit",
        "graph",
        "float32_sample",
        "engine",
        "ray_address",
        "workers",
    )
    request = {name: getattr(common, name) for name in names} | {"model_info": common.model_info or "", **options}
    if common.dry_run:
        _print_estimate(pipeline.dry_run(audit, common.model, **request), as_json=common.as_json)
        return
    with stoppable(), progress_bar(common.as_json) as progress:
        run = pipeline.audit(
            audit, common.model, out=common.out, overwrite=common.overwrite, progress=progress, **request
        )
    print_run(run, as_json=common.as_json)


def _print_estimate(estimate: RunEstimate, *, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(estimate))
        return
    echo(f"{estimate.n_queries:,} queries, {estimate.n_distinct:,} of them distinct, {estimate.n_stored:,} cached.")
    n_left = estimate.n_distinct - estimate.n_stored
    if estimate.n_passes:
        echo(
            f"To compute: about {estimate.n_tokens:,} tokens in {estimate.n_passes:,} {estimate.passes}."
            if math.isnan(estimate.seconds)
            else f"To compute: {estimate.n_tokens:,} tokens in {estimate.n_passes:,} {estimate.passes}, "
            f"about {estimate.seconds:,.0f} seconds and {estimate.memory_bytes / 2**20:,.0f} MiB."
        )
    elif n_left:
        echo(f"The other {n_left:,} cannot be scored and will be missing; the run gives the reasons.")
    else:
        echo("All answers are cached; the run loads no model.")
    if estimate.n_controls:
        echo(f"In addition, {estimate.n_controls:,} control sentences that decide their answer.")
    for note in estimate.notes:
        echo(one_line(note))


run_app = typer.Typer(cls=AuditGroup, help="Run an audit on one or more models.", no_args_is_help=True)
