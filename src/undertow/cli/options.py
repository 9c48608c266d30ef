"""Options that commands share, options that are made of dataclasses, and the classes of the commands themselves."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

from undertow.cli.console import VERBOSITY
from undertow.errors import LOGGER, UndertowError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Model = Annotated[
    str,
    typer.Option("-m", "--model", help="A name of `undertow list models`, a hub id, a model folder or a GGUF file."),
]
Revision = Annotated[str, typer.Option(help="Branch, tag or commit of a hub id.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")]
Dtype = Annotated[
    str,
    typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 if this machine has fast instructions for it."),
]
WLists = Annotated[
    str, typer.Option(help="W lists, comma-separated; 'date x place' crosses two. Those of the set if not given.")
]
WScale = Annotated[
    str,
    typer.Option(
        help="Unit of slopes: index (a step of the list), value (the numbers) or none (no order); each list's own if not given."
    ),
]
Inject = Annotated[str, typer.Option(help="Text that puts W in front of sentences without {w}: 'In {w}: '.")]
Words = Annotated[str, typer.Option(help="Word list that fills the blank: pronouns, aaai, icml, or a .toml file.")]
DataDir = Annotated[str, typer.Option(help="Folder with the two published files of winogender.")]
TableOptions = Annotated[str, typer.Option(help="Word groups for a .csv or .tsv file: 'yes: is; no: is not'.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Run folder to write; a name from audit, model and options if not given.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another run.")]
ModelInfo = Annotated[
    Path | None,
    typer.Option(help="TOML file with facts about models ([models.NAME]): parameters, objective, post_training."),
]


def _named(context: typer.Context, parameter: typer.CallbackParam, graph: str) -> str:
    """Refuse an empty --graph, which is not the same as no --graph."""
    source = context.get_parameter_source(str(parameter.name))
    if not graph and source is not None and source.name == "COMMANDLINE":
        from undertow.causal.published import load_graph

        load_graph(graph)
    return graph


Graph = Annotated[
    str,
    typer.Option(
        "--graph",
        callback=_named,
        help="Causal graph for the interpretation of findings: a name of `undertow graph`, a file, or the graph itself.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="How answers are scored: exact, paper (if the audit has it), or text (free replies of any chat model).",
    ),
]


def parameters_of(options: type[Any], *, every: bool = False) -> list[inspect.Parameter]:
    """The fields of a dataclass as options of a command, from their annotation, or their type and help; others only with `every`.

    A field with several names becomes one option with comma-separated values.
    """
    hints, parameters = get_type_hints(options, include_extras=True), []
    for one in dataclasses.fields(options):
        hint, default = hints[one.name], inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
        if "help" in one.metadata and isinstance(default, tuple):
            hint, default = Annotated[str, typer.Option(help=one.metadata["help"], callback=_split)], ""
        elif "help" in one.metadata or (every and not hasattr(hint, "__metadata__")):
            hint = Annotated[hint, typer.Option(help=one.metadata.get("help"))]
        if hasattr(hint, "__metadata__"):
            parameters.append(parameter(one.name, hint, default))
    return parameters


def _split(given: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip())


def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return one keyword option of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_options(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The command with these parameters as its signature, which Typer reads."""
    listed = list(parameters)
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in listed}
    return command


NOT_FROM_ENVIRONMENT = ("--overwrite", "--all")
"""Options that delete something, which the environment cannot set."""

OWN_OPTIONS, _FAMILY_SECTION = "Options", "Servers (openai:MODEL) and UL2"
SECTIONS: Mapping[str, Sequence[str]] = {
    "Model": (
        "model", "models", "revision", "dtype", "device", "model_info", "system", "float32_sample", "allow_any_model",
    ),
    OWN_OPTIONS: (),
    "Where it runs": ("engine", "ray_address", "workers"),
    "Output": ("out", "overwrite", "dry_run", "as_json"),
    _FAMILY_SECTION: (),
    "All commands": ("quiet", "verbose", "log_file", "help"),
}  # fmt: skip
"""Sections of the help of model commands, with their options; others are the command's own, or of a model family."""


@cache
def _family_names() -> frozenset[str]:
    from undertow import models

    return frozenset(models.settings())


def _section_of(name: str) -> str:
    of_families = _FAMILY_SECTION if name in _family_names() else OWN_OPTIONS
    return next((title for title, names in SECTIONS.items() if name in names), of_families)


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<=[.?])\s", text.strip(), maxsplit=1)[0].replace("\n", " ")


class Command(TyperCommand):
    """A command with the options that all commands have; most may also be set as UNDERTOW_OPTION in the environment."""

    family_section = _FAMILY_SECTION

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own options, then -q, -v and --log-file."""
        *own, help_option = super().get_params(ctx)
        for option in own:
            is_deleting = not {*option.opts}.isdisjoint(NOT_FROM_ENVIRONMENT)
            if isinstance(option, TyperOption) and option.envvar is None and not is_deleting:
                longest = max(option.opts, key=len)
                option.show_envvar = False
                option.envvar = f"UNDERTOW_{longest.lstrip('-').replace('-', '_').upper()}"
        return [*own, *self.further_options(), help_option]

    @staticmethod
    def further_options() -> list[Any]:
        """Options in addition to its own."""
        return _shared_options()

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence, for the list of commands."""
        return first_sentence(self.help or "")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options, in sections for model commands."""
        params = self.get_params(ctx)
        has_sections = any(one.name in _family_names() for one in params)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in SECTIONS}}
        for one in params:
            if (record := one.get_help_record(ctx)) is None:
                continue
            title = _section_of(str(one.name)) if has_sections else OWN_OPTIONS
            sections["Arguments" if one.param_type_name == "argument" else title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(self.family_section if title == _FAMILY_SECTION else title):
                    formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors are also written to the log file."""
        try:
            return super().invoke(ctx)
        except UndertowError as error:
            LOGGER.error("%s", error)
            raise
        finally:
            VERBOSITY.quiet = VERBOSITY.verbose = False


_family_settings: ContextVar[dict[str, Any]] = ContextVar("family_settings")


class ModelCommand(Command):
    """A command on a model, with the options of all model families, which are looked up when it is called."""

    @staticmethod
    def further_options() -> list[Any]:
        """Options of families, then those of every command."""
        return [*subcommand("", "", with_options(lambda **_: None, family_options())).params, *_shared_options()]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Typer passes only options in the function's signature, so family options are passed separately."""
        from undertow import models

        names = {one.name for one in self.params}
        given = {name: ctx.params.pop(name) for name in list(ctx.params) if name not in names}
        token = _family_settings.set(
            {name: one for name, one in given.items() if one != models.settings()[name].default}
        )
        try:
            return super().invoke(ctx)
        finally:
            _family_settings.reset(token)


class BlankCommand(ModelCommand):
    """A command on a model that fills blanks; its help omits the options of servers, which do not."""

    family_section = "UL2"

    @staticmethod
    def further_options() -> list[Any]:
        """Options of families, those of servers hidden, then those of every command."""
        from undertow import models

        options = ModelCommand.further_options()
        for one in options:
            one.hidden = one.hidden or models.families_with_setting(one.name) == ["openai"]
        return options


def family_options(own: Iterable[str] = ()) -> list[inspect.Parameter]:
    """The options of all model families, except those with the name of an own option of the command."""
    from undertow import models

    return [
        parameter(name, Annotated[type(option.default), typer.Option(help=option.metadata["help"])], option.default)
        for name, option in models.settings().items()
        if name not in {*own}
    ]


def on_model(command: Callable[..., None]) -> Callable[..., None]:
    """Make a function a `ModelCommand`: its argument `settings` gets the options of families that are not at their defaults."""
    own, hints = inspect.signature(command).parameters, get_type_hints(command, include_extras=True)

    @wraps(command)
    def run(**given: Any) -> None:
        command(**given, settings=_family_settings.get({}))

    return with_options(run, [one.replace(annotation=hints[name]) for name, one in own.items() if name != "settings"])


class Group(typer.Typer):
    """A group whose commands have the options that all commands have, built once in a process."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As of Typer."""
        return self._built(*given, **named)

    @cached_property
    def _built(self) -> Any:
        return typer.main.get_command(self)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Like `Typer.command`."""
        return super().command(name, cls=cls or Command, **options)


@cache
def _shared_options() -> list[Any]:
    return list(subcommand("", "", _shared).params)


def _set_verbosity(option: typer.CallbackParam, value: bool) -> None:
    setattr(VERBOSITY, str(option.name), value)


def _log_to(context: typer.Context, path: Path | None) -> None:
    if path is None or context.resilient_parsing:
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UndertowError(
            f"{path}: the log cannot be written ({error.strerror or error}); name another file"
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)

    def close() -> None:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        handler.close()

    context.call_on_close(close)
    LOGGER.info("%s", context.command_path)


def _shared(
    *,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Show no progress.", callback=_set_verbosity, expose_value=False)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Print each phase on its own line.", callback=_set_verbosity, expose_value=False
        ),
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", help="Append phases and errors to this file.", callback=_log_to, expose_value=False),
    ] = None,
) -> None:
    """Options of every command."""


def subcommand(name: str, summary: str, command: Callable[..., None], cls: type[TyperCommand] | None = None) -> Any:
    """A command of a group, with the first letter of its summary as a capital."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name=name, cls=cls or Command, help=f"{summary[:1].upper()}{summary[1:]}")(command)
    return typer.main.get_command(single)
