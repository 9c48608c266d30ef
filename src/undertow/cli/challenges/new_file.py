"""`undertow init`: write a challenge file from options and answers in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from undertow.cli import console
from undertow.cli.challenges.power import POWER_DEFAULTS, digits
from undertow.cli.options import Json
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.data.challenges.challenge_draft import ChallengeDraft

Answer = TypeVar("Answer")
NOTHING_WRITTEN = "nothing was written"


def init(  # noqa: PLR0913 - an option each
    file: Annotated[
        Path | None, typer.Argument(help="The file to write; challenge.toml, or PACK.toml, if not given.")
    ] = None,
    *,
    pack: Annotated[
        str, typer.Option(help="Copy a ready challenge file, to edit: a name of `undertow list challenges`.")
    ] = "",
    title: Annotated[str, typer.Option(help="What the file audits, in one line.")] = "",
    group: Annotated[
        list[str] | None,
        typer.Option(help="Words of a group: 'old: old, elderly'; repeat for each group.", show_default=False),
    ] = None,
    sentence: Annotated[
        list[str] | None,
        typer.Option(
            help="A sentence with {w} for the value and ___ for the word: 'In {w}, the cook was ___.'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    w: Annotated[
        str,
        typer.Option(help="Values of W in order: 'year: 1900, 1910, ..., 2020'; or the name of a list, or of a file."),
    ] = "",
    order: Annotated[
        str, typer.Option(help="What values that are words are ordered by; none for values without an order.")
    ] = "",
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="A sentence that determines its word, after its group: 'old: At the age of 91 she is ___.'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    no_controls: Annotated[bool, typer.Option("--no-controls", help="Write no control sentences.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Write a challenge file of your own. Asks five questions; options answer them without asking."""
    from undertow import data
    from undertow._folders import whole_file
    from undertow.audits.spurious_correlation.items import Settings
    from undertow.audits.spurious_correlation.power_plan import plan_power
    from undertow.models.loading.download import PACKAGES, location

    path = file or Path(f"{pack or 'challenge'}.toml")
    given = [title, *(group or ()), *(sentence or ()), w, order, *(control or ())]
    if pack and (any(given) or no_controls):
        raise UndertowError(
            f"--pack {pack} answers all questions; leave the other options out, and edit the file it writes"
        )
    try:
        with console.stoppable(NOTHING_WRITTEN):
            is_asking = not pack and not (title and group and sentence and w and (control or no_controls))
            _check_new(path, is_asking=is_asking, overwrite=overwrite)
            if pack:
                text = data.pack_text(pack)
            else:
                controls = None if no_controls else control or ()
                text = _draft(title, group or (), sentence or (), w, order, controls).to_toml()
    except typer.Abort as error:
        raise UndertowError(
            f"the questions were not all answered, so {NOTHING_WRITTEN}; options can answer them, see undertow init --help"
        ) from error
    chosen = data.load_text(text, str(path))
    with whole_file(path) as target:
        target.write(text)
    plan = None
    notes = ["The values have no order, so there is no slope; the audit tests whether they differ."]
    if any(one.scale != data.NONE for one in chosen.covariates):
        with console.progress_bar(as_json, "estimate the smallest slope") as progress:
            plan = plan_power(Settings(challenge=str(path)), POWER_DEFAULTS, None, progress, own_only=True)
        notes = [note for one in plan.curves for note in one.covariate.notes]
        notes += [note for one in plan.curves if (note := one.sizes.limitation())]
    model = next(iter(PACKAGES))
    pull = "" if location(model).is_file() else f"undertow pull {model} && "
    following = f"{pull}undertow run spurious-correlation -m {model} --challenge {shlex.quote(str(path))}"
    n_texts = len(chosen.items())
    notes += _control_notes(chosen.words.groups, [gold for _, gold in chosen.controls])
    if as_json:
        lists = [one.as_dict() for one in plan.curves] if plan is not None else []
        about = {"file": str(path), "texts": n_texts, "controls": len(chosen.controls), "lists": lists}
        console.print_json(about | {"notes": notes, "next": following})
        return
    console.print_text(
        "init",
        file=path, n_texts=n_texts, n_controls=len(chosen.controls), plan=plan, notes=notes, next=following, digits=digits,
    )  # fmt: skip


def _check_new(path: Path, *, is_asking: bool, overwrite: bool) -> None:
    """Refuse a file that cannot be written; ask before replacing one, in an interactive session."""
    if path.suffix != ".toml":
        raise UndertowError(f"{path}: a challenge file ends in .toml; name it so")
    if not path.absolute().parent.is_dir():
        raise UndertowError(f"{path}: its folder does not exist; create it, or name another file")
    if path.is_dir():
        raise UndertowError(f"{path}: is a folder; name a file")
    if path.exists() and not overwrite:
        if not is_asking:
            raise UndertowError(f"{path}: exists already; name another file, or add --overwrite")
        if not typer.confirm(f"{console.one_line(path)} exists already. Replace it?", err=True):
            raise UndertowError(f"{path}: stays as it is; name another file")


def _draft(  # noqa: PLR0913, PLR0917 - an option each
    title: str, group: Sequence[str], sentence: Sequence[str], w: str, order: str, control: Sequence[str] | None
) -> ChallengeDraft:
    """The answers from options, and from the terminal for the rest; no control sentences if `control` is None."""
    from undertow.data.challenges import challenge_draft as draft
    from undertow.data.text_files import add_group

    title = title or _prompt("1/5 What do you audit? One line, the title of reports.", "Title", str.strip)
    groups: dict[str, list[str]] = {}
    for one in group:
        add_group(groups, one)
    if not groups:
        _prompt_lines(
            "2/5 Which words, by group? At least two groups, such as old: old, elderly.",
            "Group",
            partial(add_group, groups),
            least=2,
        )
    sentences = (
        [draft.parse_sentence(one) for one in sentence]
        if sentence
        else _prompt_lines(
            "3/5 Which sentences? {w} stands for the value and ___ for the word, as in: In {w}, the cook was ___.",
            "Sentence",
            draft.parse_sentence,
        )
    )
    chosen = (
        draft.parse_w(w)
        if w
        else _prompt(
            "4/5 Which values of W, in order? For example year: 1900, 1910, ..., 2020.", "Values", draft.parse_w
        )
    )
    if not chosen.values or chosen.has_numbers:
        if order:
            raise UndertowError(f"--order {order!r}: the order of {chosen.name} is known; leave it out")
    else:
        if not order and not w:
            question = "What are they ordered by? (none: no order; empty: as listed)"
            order = str(typer.prompt(question, default="", show_default=False, err=True))
        chosen = replace(chosen, order=order.strip())
    controls = []
    if control:
        controls = [draft.parse_control(one, list(groups)) for one in control]
    elif control is not None:
        controls = _prompt_lines(
            f"5/5 Which control sentences, which determine their word? Write the group first, as in {next(iter(groups))}: ... ___.",
            "Control",
            lambda answer: draft.parse_control(answer, list(groups)),
            least=0,
        )
    return draft.ChallengeDraft(title, groups, sentences, chosen, controls)


def _prompt(question: str, label: str, parse: Callable[[str], Answer]) -> Answer:
    """Ask until the answer can be parsed."""
    console.warn(question)
    while True:
        try:
            return parse(typer.prompt(label, err=True))
        except UndertowError as error:
            console.warn(error)


def _prompt_lines(question: str, label: str, parse: Callable[[str], Answer], least: int = 1) -> list[Answer]:
    """Answers, one a line, up to an empty line."""
    console.warn(f"{question} An empty line ends them.")
    answers: list[Answer] = []
    while True:
        line = str(typer.prompt(f"{label} {len(answers) + 1}", default="", show_default=False, err=True)).strip()
        if not line and len(answers) >= least:
            return answers
        try:
            if not line:
                raise UndertowError(f"at least {least} {'is' if least == 1 else 'are'} needed")
            answers.append(parse(line))
        except UndertowError as error:
            console.warn(error)


def _control_notes(groups: Sequence[str], golds: Sequence[str]) -> list[str]:
    """A sentence if the control sentences cannot show that a model reads."""
    if not golds:
        return [
            "There are no control sentences to check whether a model reads these sentences; add some as [[controls]]."
        ]
    from undertow.stats.calibration import share

    # If all are right, the exact 95% interval lies above chance.
    notes, least = [], next(n for n in range(1, 100) if share([True] * n).low > 1 / len(groups))
    if without := [group for group in groups if group not in golds]:
        notes.append(
            f"No control sentence determines {', '.join(without)}: a model that always prefers one group could get all right."
        )
    if len(golds) < least:
        notes.append(
            f"{len(golds)} of {len(golds)} right would be no better than chance with {len(groups)} groups: write at least {least} "
            "control sentences, better 12."
        )
    return notes
