"""Writes the reference of the command line when the site is built, from the commands themselves.

A page for each section of `undertow --help` has what `--help` of its commands prints, with an anchor for each command. Options that all
commands of a group share are listed once, with the group; those that a command has from an audit are listed with `undertow run` of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from undertow import cli
from undertow.cli.options import first_sentence

FOLDER, INDEX, PLACE = "reference/commands/", "index.md", "<!--commands-->"
AUDITS = "undertow run"
"""The group that has the options of each audit."""
CODE = re.compile(r"(`[^`]*`)")
MARKS = re.compile(r"([\\*_{}\[\]<>#|])")


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument.

    Attributes:
        written: as it is given: `--seed <int>`.
        about: what it does, and in brackets its default and whether it is needed.
    """

    written: str
    about: str

    def markdown(self) -> Iterator[str]:
        """Lines of a definition list."""
        about, _, facts = self.about.rpartition("  [") if self.about.endswith("]") else (self.about, "", "")
        word = about.partition(" ")[0]
        is_sentence = about.endswith(".") and word.isalpha()  # not a list of values
        sentence = about[:1].upper() + about[1:] if is_sentence else about
        yield f"`{self.written}`"
        yield f":   {escaped(sentence)}" + (f" *{escaped(facts[:-1].capitalize())}.*" if facts else "")
        yield ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of them.

    Attributes:
        path: as it is typed.
        help: what it does.
        usage: what follows the path.
        options: of its own, arguments first.
        inner: the commands of a group.
    """

    path: str
    help: str
    usage: str
    options: tuple[Option, ...]
    inner: tuple[Command, ...]

    def leaves(self) -> Iterator[Command]:
        """The commands that do something: itself, or those below it."""
        if not self.inner:
            yield self
        for command in self.inner:
            yield from command.leaves()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill a page in: the list of commands, or the commands of one section of the help."""
    if not page.file.src_uri.startswith(FOLDER):
        return markdown
    top = read(typer.main.get_command(cli.app), "undertow")
    commands = {command.path.removeprefix("undertow "): command for command in top.inner}
    of_audits = {audit.path.split()[-1]: audit for audit in commands["run"].inner}
    lines = [*options_of(top.options), ""] if page.file.src_uri == FOLDER + INDEX else []
    for title, names in cli.COMMAND_SECTIONS.items():
        if page.file.src_uri == FOLDER + page_of(title):
            for name in names:
                lines += command_markdown(commands[name], of_audits)
        elif page.file.src_uri == FOLDER + INDEX:
            lines += [f"## {title}", "", *(_entry(commands[name], title) for name in names), ""]
    return markdown.replace(PLACE, "\n".join(lines))


def page_of(title: str) -> str:
    """File of the page of a section of the help."""
    return f"{title.lower().replace(' ', '-')}.md"


def _entry(command: Command, title: str) -> str:
    return f"- [`{command.path}`]({page_of(title)}#{anchor(command.path)}): {escaped(first_sentence(command.help))}"


def read(command: Any, path: str, parent: Any = None) -> Command:
    """A command of the command line, and those below it."""
    context = command.context_class(command, parent=parent, info_name=path.rsplit(maxsplit=1)[-1])
    records = [parameter.get_help_record(context) for parameter in command.params if not parameter.hidden]
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    return Command(
        path=path,
        help=command.help or "",
        usage=" ".join(command.collect_usage_pieces(context)),
        options=tuple(Option(*record) for record in records if record),
        inner=tuple(read(command.get_command(context, name), f"{path} {name}", context) for name in names),
    )


def command_markdown(command: Command, of_audits: dict[str, Command], shared: Sequence[Option] = ()) -> Iterator[str]:
    """A command as Markdown, one heading for it and one for each below it."""
    yield from (f"{'#' * min(len(command.path.split()), 4)} `{command.path}`", "", escaped(command.help), "")
    if not command.inner:
        yield from ("```text", f"{command.path} {command.usage}".strip(), "```", "")
        yield from options_of(tuple(_own(command, of_audits, shared)))
        yield from _of_audit(command, of_audits, shared)
        return
    common = tuple(_common(command, shared))
    if common:
        yield from (f"Every `{command.path} ...` takes, beside options of its own:", "", *options_of(common))
    for inner in command.inner:
        yield from command_markdown(inner, of_audits, (*shared, *common))


def options_of(options: Sequence[Option]) -> Iterator[str]:
    """A definition list."""
    for option in options:
        yield from option.markdown()


def escaped(text: str) -> str:
    """Text whose signs are no Markdown, but for code in backticks."""
    return "".join(part if part.startswith("`") else MARKS.sub(r"\\\1", part) for part in CODE.split(text))


def anchor(path: str) -> str:
    """Of the heading of a command."""
    return path.replace(" ", "-")


def _common(group: Command, shared: Sequence[Option]) -> Iterator[Option]:
    """Options that each of several commands of a group has."""
    leaves = list(group.leaves())
    for option in leaves[0].options if len(leaves) > 1 else ():
        if option not in shared and all(option in leaf.options for leaf in leaves):
            yield option


def _from_audit(command: Command, of_audits: dict[str, Command]) -> Sequence[Option]:
    audit = of_audits.get(command.path.split()[-1])
    return () if audit is None or audit.path == command.path else audit.options


def _own(command: Command, of_audits: dict[str, Command], shared: Sequence[Option]) -> Iterator[Option]:
    for option in command.options:
        if option not in shared and option not in _from_audit(command, of_audits):
            yield option


def _of_audit(command: Command, of_audits: dict[str, Command], shared: Sequence[Option]) -> Iterator[str]:
    known = _from_audit(command, of_audits)
    names = [option.written for option in command.options if option not in shared and option in known]
    if names:
        path = f"{AUDITS} {command.path.split()[-1]}"
        listed = ", ".join(f"`{re.findall(r'--[a-z-]+', name)[0]}`" for name in names)
        yield from (f"And as [`{path}`](audits.md#{anchor(path)}) takes them: {listed}.", "")
