"""`undertow export FORMAT AUDIT`: export the items of an audit in the format of another tool."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from undertow.cli.console import echo, print_json
from undertow.cli.options import Json, parameters_of, subcommand, with_options

FORMATS = ("datasets", "inspect", "lm-eval")
"""As `undertow.integrations.names()`, which takes long to import; a test compares them."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options that every `undertow export FORMAT AUDIT` has."""

    out: Annotated[Path | None, typer.Option("--out", help="Folder to write; AUDIT_FORMAT if not given.")] = None
    seed: Annotated[int, typer.Option(help="Seed of the sample, if there is a limit.")] = 0
    limit: Annotated[
        int, typer.Option(help="Maximum number of items, counted as in `undertow run AUDIT --help`; 0 for all.")
    ] = 0
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another export.")] = False
    as_json: Json = False


class AuditsOfFormat(TyperGroup):
    """`undertow export FORMAT`: a subcommand for each audit, with the audit's own options."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        from undertow import integrations

        return integrations.supported_audits(integrations.load(str(self.name)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        from undertow import audits

        audit = audits.load(cmd_name)
        return subcommand(cmd_name, audit.summary, _command_of(str(self.name), cmd_name, audit.Settings))


class Formats(TyperGroup):
    """`undertow export`: a group for each format; its summary is read when help is printed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102
        return list(FORMATS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        from undertow import integrations

        summary = integrations.load(cmd_name).SUMMARY
        group = typer.Typer(
            name=cmd_name,
            cls=AuditsOfFormat,
            help=f"{summary[:1].upper()}{summary[1:]}.",
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
        )
        group.callback()(lambda: None)
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command


def _command_of(format_name: str, audit: str, settings: type[Any]) -> Callable[..., None]:
    """A function whose signature is the common options followed by the audit's own."""
    own = {option.name: option.default for option in dataclasses.fields(settings)}

    def command(**given: Any) -> None:
        from undertow import integrations

        options = {name: value for name, default in own.items() if (value := given.pop(name)) != default}
        as_json, out = given.pop("as_json"), given.pop("out") or f"{audit}_{format_name}"
        exported = integrations.export(format_name, audit, out, **given, **options)
        if as_json:
            print_json(dataclasses.asdict(exported) | {"folder": str(exported.folder)})
            return
        echo(f"{exported.n_items:,} items of {audit} for {format_name}, named {', '.join(exported.names)}")
        for step in exported.next_steps:
            echo(f"  {step}")
        echo(f"Written to {exported.folder}")

    return with_options(command, [*parameters_of(ExportOptions), *parameters_of(settings, every=True)])


export_app = typer.Typer(cls=Formats, help="Export the items of an audit for another tool.", no_args_is_help=True)
