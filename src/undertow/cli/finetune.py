"""`undertow finetune`: a masked model learns which word group a masked word is of.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.terminal import Json, say, say_json, say_table, stoppable

if TYPE_CHECKING:
    from undertow.models.finetune import Finetuned, Fit, Progress


def finetune(  # noqa: PLR0913 - one parameter for each option
    base: Annotated[str, typer.Argument(help="A masked model: a hub id or a folder.")],
    data: Annotated[str, typer.Argument(help="A JSONL file, one object a line; or wikibio, or reddit-tldr.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")],
    text: Annotated[str, typer.Option(help="Field of the text.")] = "text",
    metadata: Annotated[
        str, typer.Option(help="Fields to put in front of each text, comma-separated, in this order.")
    ] = "",
    require: Annotated[
        str, typer.Option(help="Fields that a text must have a value in to be used, beside those in front of it.")
    ] = "",
    words: Annotated[
        str, typer.Option(help="Word list to mask: icml, aaai, pronouns, or a .toml file with a list for each group.")
    ] = "icml",
    epochs: Annotated[int, typer.Option(help="Passes over the texts.")] = 3,
    steps: Annotated[int, typer.Option(help="Train on so many batches instead.")] = 0,
    batch: Annotated[int, typer.Option(help="Texts in a batch.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW, at its peak.")] = 3e-5,
    warmup: Annotated[float, typer.Option(help="Share of the steps until that peak.")] = 0.1,
    dropout: Annotated[bool, typer.Option(help="Train with the model's own dropout.")] = True,
    held_out: Annotated[float, typer.Option(help="Share of the different texts to hold out; 0 for none.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the head, the split, the order and the dropout.")] = 0,
    limit: Annotated[int, typer.Option(help="Use so many texts, the first ones; 0 for all.")] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 500,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")] = "auto",
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a base on the hub.")] = "",
    as_json: Json = False,
) -> None:
    """Fine-tune a masked model to tell the word groups of masked words, for the probes to read.

    A folder that holds this very training goes on where it was.
    """
    from undertow import finetuning
    from undertow.models.finetune import Recipe

    recipe = Recipe(
        labels=finetuning.labels_of(words),
        epochs=epochs,
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        dropout=dropout,
        held_out=held_out,
        seed=seed,
        device=device,
        checkpoint_every=checkpoint_every,
    )
    wanted = finetuning.Wanted(text, _names(metadata), _names(require), limit)
    with stoppable("what was trained until the last checkpoint is kept"), _bar(as_json) as progress:
        made = finetuning.finetune(
            base, data, out, recipe, wanted=wanted, words=words, progress=progress, revision=revision
        )
    if as_json:
        say_json({"folder": str(made.folder), "resumed_at": made.resumed_at, **made.record})
        return
    _say(made)


def _names(given: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",") if name.strip())


@contextmanager
def _bar(as_json: bool) -> Iterator[Progress]:
    """A bar with the loss and the time left on a terminal; nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda done, total, loss: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=None, loss="reading the texts")
        yield lambda done, total, loss: bar.update(task, completed=done, total=total, loss=f"loss {loss:.3f}")


def _say(made: Finetuned) -> None:
    record = made.record
    data, places = record["data"], record["data"]["n_places"]
    total = sum(places.values())
    say(
        f"{data['n_texts']:,} texts with {total:,} masked words "
        f"({', '.join(f'{label} {100 * n / total:.1f}%' for label, n in places.items())}); left out: {data['n_without_words']:,} "
        f"without such words, {data['n_without_metadata']:,} without metadata, {data['n_unread']:,} with a mask of their own."
    )
    said = f" ({made.resumed_at:,} of them before)" if made.resumed_at else ""
    say(f"{record['n_steps']:,} steps{said}; loss in nats and accuracy at masked words:")
    fits = {"training texts": made.training, "held-out texts": made.held_out}
    say_table([_row(name, fit) for name, fit in fits.items() if fit is not None])
    say(f"Model: {made.folder.resolve()}")
    say(f"Audit it: undertow run spurious-correlation -m {made.folder} --challenge mgt-icml")
    if metadata := data["fields"]["metadata"]:
        template = ', such as "{w}. {blank} was a painter."' if len(metadata) == 1 else ""
        say(
            f"First ask it in the layout of its training, {data['layout']}, by a challenge file with such templates{template}: "
            "in another one, as mgt-icml has, it may read a flat line whatever it learned."
        )


def _row(name: str, fit: Fit) -> dict[str, Any]:
    return {
        "measured on": name,
        "words": f"{fit.n_places:,}",
        "loss": f"{fit.loss_nats:.4f}",
        "loss of the majority": f"{fit.majority_loss_nats:.4f}",
        "accuracy": f"{100 * fit.accuracy:.1f}%",
        "accuracy of the majority": f"{100 * fit.majority_accuracy:.1f}%",
    }
