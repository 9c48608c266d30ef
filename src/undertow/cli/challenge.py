"""`undertow challenge`, `init` and `power`: print, write and plan a challenge set."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from undertow.cli import console
from undertow.cli.options import Csv, DataDir, Inject, Json, TableOptions, WLists, Words, WScale
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.audits.spurious_correlation.power_plan import ObservedNoise, PowerCurve
    from undertow.data.templates.challenge_draft import ChallengeDraft

Answer = TypeVar("Answer")
NEW_FILE = Path("challenge.toml")
NOTHING_WRITTEN = "nothing was written"


def show_challenge(  # noqa: PLR0913 - an option each
    name: Annotated[
        str,
        typer.Argument(help="A name of `undertow list challenges`, or a .toml, .csv or .tsv file of your own."),
    ],
    *,
    w: WLists = "",
    w_scale: WScale = "",
    words: Words = "",
    inject: Inject = "",
    data_dir: DataDir = "",
    options: TableOptions = "",
    descriptions: Annotated[
        bool, typer.Option("--descriptions", help="Print all wordings of a task: bias-diagnosis, bias-extraction, ...")
    ] = False,
    description_file: Annotated[
        str, typer.Option(help="TOML file with classes of task descriptions of your own.")
    ] = "",
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Print the items of a challenge set. Needs no model; also prints documents, task wordings and tables of the checklist."""
    from undertow import data

    if descriptions or name in (*data.TASKS, *data.CHECKLIST_SUMMARIES) or data.is_documents(name):
        others = {"--w": w, "--w-scale": w_scale, "--words": words, "--inject": inject, "--data-dir": data_dir}
        others |= {"--options": options}
        for strange in (option for option, given in others.items() if given):
            raise UndertowError(f"{name}: {strange} is for sentences with a blank; leave it out")
        if description_file and not descriptions:
            raise UndertowError(
                "--description-file goes with --descriptions, which prints wordings; add that, or leave it out"
            )
        without_blank, summary = _without_blank(name, description_file, descriptions=descriptions)
        console.print_rows(without_blank, as_json=as_json, as_csv=as_csv)
        if not (as_csv or as_json):
            console.echo(summary)
        return
    from undertow.audits.spurious_correlation.items import flip_limitations, gaps_of, sizes_of

    names = [one.strip() for one in w.split(",") if one.strip()]
    if inject or data.is_sentences(name):
        if words:
            raise UndertowError(
                f"challenge {name!r} has word groups of its own; leave --words out, or use --options for a table"
            )
        sentences = data.load_sentences(name, data_dir, options)
        load = partial(data.load_covariate, least=2, scale=w_scale)
        covariates = [data.crossed(one, load) for one in names or (["date"] if inject else [])]
        injection = data.Injection.parse(inject or "In {w}: ")
        items = sentences.inject(injection, covariates) if covariates else sentences.plain()
        title, groups = sentences.name, {group: list(forms) for group, forms in sentences.words.items()}
        gaps, limits = gaps_of(sentences.groups), list[str]()
    else:
        data.check_scale(w_scale, "--w-scale")
        tables = data.DOCUMENT_SUMMARIES, data.TASKS, data.CHECKLIST_SUMMARIES
        chosen = data.load(name, words, w_scale, chain(data.SUMMARIES, *tables))
        of_set = {covariate.name: covariate for covariate in chosen.covariates}
        covariates = [
            data.crossed(one, lambda name: of_set.get(name) or data.load_covariate(name, scale=w_scale))
            for one in names or of_set
        ]
        items = chosen.items(covariates)
        title, groups = chosen.name, chosen.listed_words()
        gaps, limits = [list(pair) for pair in chosen.gaps], list(chosen.limits)
    data.check_scaled(covariates, w_scale)
    lists = sizes_of(items, covariates) if covariates else []
    notes = [note for covariate in covariates for note in covariate.notes]
    notes += [note for one in lists if (note := one.limitation())] + flip_limitations(lists, groups, gaps)
    rows = [{"item": item.id, **item.factors, "text": item.query.display_text()} for item in items]  # type: ignore[union-attr]
    if as_json:
        designs = {covariate.name: covariate.design_entry() for covariate in covariates}
        about = {"challenge": title, "groups": groups, "covariates": designs, "w_notes": notes, "limits": limits}
        console.print_json(about | {"items": rows})
    elif as_csv:
        console.print_csv(rows)
    else:
        console.print_table([{"w_name": row["w_name"], "w": row["w"], "text": row["text"]} for row in rows])
        words = "; ".join(f"{group}: {', '.join(forms)}" for group, forms in groups.items())
        for line in (*(covariate.summary() for covariate in covariates), *notes, *limits):
            console.echo(line)
        console.echo(f"{len(rows):,} texts; the blank takes {words}")


def _without_blank(name: str, description_file: str, *, descriptions: bool) -> tuple[list[dict[str, str]], str]:
    """Rows of a data set without blanks (wordings of a task, tables of a checklist, documents), and a line that counts them."""
    from undertow import data

    if descriptions:
        description = data.describe(name, Path(description_file) if description_file else None)
        counts = Counter(row["class"] for row in description)
        return description, f"{len(description):,} wordings: {', '.join(f'{name} {n}' for name, n in counts.items())}"
    if name in data.CHECKLIST_SUMMARIES:
        rows = data.checklist_table(name)
        return rows, f"{len(rows):,} rows: {data.CHECKLIST_SUMMARIES[name]}"
    chosen = "undertow-statements" if name in data.TASKS else name
    documents = data.documents_table(chosen)
    if data.may_offend(chosen):
        console.warn("These texts may be offensive.")
    return documents, f"{len(documents):,} documents"


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

    path = file or (Path(f"{pack}.toml") if pack else NEW_FILE)
    given = [title, *(group or ()), *(sentence or ()), w, order, *(control or ())]
    if pack and (any(given) or no_controls):
        raise UndertowError(
            f"--pack {pack} answers all questions; leave the other options out, and edit the file it writes"
        )
    try:
        with console.stoppable(NOTHING_WRITTEN):
            _check_new(
                path,
                is_asking=not pack and not (title and group and sentence and w and (control or no_controls)),
                overwrite=overwrite,
            )
            if pack:
                text = data.pack_text(pack)
            else:
                text = _draft(
                    title=title,
                    group=group or (),
                    sentence=sentence or (),
                    w=w,
                    order=order,
                    control=control or (),
                    no_controls=no_controls,
                ).to_toml()
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


def _draft(  # noqa: PLR0913 - an option each
    *,
    title: str,
    group: Sequence[str],
    sentence: Sequence[str],
    w: str,
    order: str,
    control: Sequence[str],
    no_controls: bool,
) -> ChallengeDraft:
    """The answers from options, and from the terminal for the rest."""
    from undertow.data.templates import challenge_draft as draft
    from undertow.data.text_files import add_group

    title = title or _ask("1/5 What do you audit? One line, the title of reports.", "Title", str.strip)
    groups: dict[str, list[str]] = {}
    for one in group:
        add_group(groups, one)
    if not groups:
        _ask_lines(
            "2/5 Which words, by group? At least two groups, such as old: old, elderly.",
            "Group",
            partial(add_group, groups),
            least=2,
        )
    sentences = (
        [draft.parse_sentence(one) for one in sentence]
        if sentence
        else _ask_lines(
            "3/5 Which sentences? {w} stands for the value and ___ for the word, as in: In {w}, the cook was ___.",
            "Sentence",
            draft.parse_sentence,
        )
    )
    chosen = (
        draft.parse_w(w)
        if w
        else _ask("4/5 Which values of W, in order? For example year: 1900, 1910, ..., 2020.", "Values", draft.parse_w)
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
    elif not no_controls:
        controls = _ask_lines(
            f"5/5 Which control sentences, which determine their word? Write the group first, as in {next(iter(groups))}: ... ___.",
            "Control",
            lambda answer: draft.parse_control(answer, list(groups)),
            least=0,
        )
    return draft.ChallengeDraft(title, groups, sentences, chosen, controls)


def _ask(question: str, label: str, parse: Callable[[str], Answer]) -> Answer:
    """Ask until the answer can be parsed."""
    console.warn(question)
    while True:
        try:
            return parse(typer.prompt(label, err=True))
        except UndertowError as error:
            console.warn(error)


def _ask_lines(question: str, label: str, parse: Callable[[str], Answer], least: int = 1) -> list[Answer]:
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
    without = [group for group in groups if group not in golds]
    if without:
        notes.append(
            f"No control sentence determines {', '.join(without)}: a model that always prefers one group could get all right."
        )
    if len(golds) < least:
        notes.append(
            f"{len(golds)} of {len(golds)} right would be no better than chance with {len(groups)} groups: write at least {least} "
            "control sentences, better 12."
        )
    return notes


POWER_DEFAULTS = {"text_sd": 4.7, "slopes_sd": 9.0, "values_sd": 4.8, "autocorrelation": 0.3}
"""Noise of the default model on the published dates, for its share of female words."""


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
        float | None, _noise("autocorrelation", "Correlation of that noise between neighbouring values")
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
        from undertow.report.style import write_figure

        write_figure(plan.drawing().figure, out)
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
        audit = record.manifest["audit"]
        if audit != "spurious-correlation":
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
    return list(rows.values())


def digits(number: float) -> str:
    """Three significant digits; a dash without a value."""
    if not math.isfinite(number):
        return "-"
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
