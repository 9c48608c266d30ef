"""`undertow challenge`: print the items of a challenge set."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli import console
from undertow.cli.options import Csv, DataDir, Inject, Json, TableOptions, WLists, Words, WScale
from undertow.errors import UndertowError


def show_challenge(  # noqa: PLR0913 - an option each
    name: Annotated[
        str, typer.Argument(help="A name of `undertow list challenges`, or a .toml, .csv or .tsv file of your own.")
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
