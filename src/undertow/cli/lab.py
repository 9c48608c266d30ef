"""`undertow lab`: models whose bias is known, made and audited."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.console import Json, echo, print_json, print_rows, print_table, progress_bar, stoppable
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.lab.build import BuiltModel
    from undertow.lab.training.finetune import FinetunedModel, Fit, Progress


DEFAULT_FOLDER = Path("runs") / "lab"


lab_app = typer.Typer(
    help="Train models with a planted bias, and check that the audits detect it.", no_args_is_help=True
)


Jobs = Annotated[int, typer.Option(min=0, help="Processes side by side; 0 for one on each processor.")]


Folder = Annotated[Path, typer.Option("--out", help="Folder of the lab.")]


DECIDED, TRADE = 0.15, 0.05
"""As in `undertow.lab.planted_corpus`, which takes long to import."""


@lab_app.command("build")
def build(  # noqa: PLR0913 - an option each
    *,
    small: Annotated[bool, typer.Option("--small", help="Twelve models, in minutes; without it eighty-six.")] = False,
    strength: Annotated[
        list[float] | None, typer.Option(help="A strength of your own; as often as you like. Without any, the plan's.")
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(min=0, help="A seed of your own, as often as you like.")] = None,
    access: Annotated[str, typer.Option(help="P(selected) by date, place, gender and strength; see docs/lab.md.")] = "",
    out: Folder = DEFAULT_FOLDER,
    jobs: Jobs = 0,
    as_json: Json = False,
) -> None:
    """Build planted models. Draws people, selects some, writes texts about them and trains small models on these."""
    from undertow.lab import experiment_plan
    from undertow.lab.build import build as build_models

    planned = experiment_plan.small() if small else experiment_plan.full()
    if strength or seed or access:
        if small:
            raise UndertowError("--small is a plan of its own; leave it out, or --strength, --seed and --access")
        planned = experiment_plan.custom(strength or experiment_plan.STRENGTHS, seed or experiment_plan.SEEDS, access)
    with stoppable("finished models are kept"), progress_bar(as_json, "training", "starting") as progress:
        built = build_models(out, planned, jobs, progress)
    if as_json:
        print_json([{**asdict(one), "converged": one.converged} for one in built])
        return
    print_table([_in_words(one) for one in built])
    n_learned = sum(one.converged for one in built)
    echo(f"{len(built)} models, {n_learned} of which have learned their corpus; audit them with undertow lab verify")
    if n_learned < len(built):
        echo("Models that have not learned it say nothing about the audit; they are listed and not counted.")


def _in_words(built: BuiltModel) -> dict[str, str]:
    return {
        "model": built.subject.name,
        "planted, points per step": _of_w(built.planted),
        "learned": _of_w(built.learned),
        "loss": f"{built.loss_nats:.4f}",
        "floor": f"{built.floor_nats:.4f}",
        "ignoring W": f"{built.ignorant_nats:.4f}",
        "steps": f"{built.attempts[-1].steps}",
        "converged": "failed" if built.failed else "yes" if built.converged else "no",
    }


def _of_w(slopes: Mapping[str, float]) -> str:
    return " and ".join(f"{slope:+.2f} ({w})" for w, slope in slopes.items())


@lab_app.command("verify")
def verify(*, out: Folder = DEFAULT_FOLDER, jobs: Jobs = 0, as_json: Json = False) -> None:
    """Audit the models of a lab and check the results against the planted bias."""
    from undertow.lab.verify import verify as verify_models

    with stoppable(), progress_bar(as_json, "auditing", "starting") as progress:
        verified = verify_models(out, jobs=jobs, progress=progress)
    if as_json:
        rows = [
            dict(zip(("requirement", "target", "value", "met"), verdict, strict=True)) for verdict in verified.verdicts
        ]
        answer: dict[str, Any] = {"folder": str(verified.folder), "report": str(verified.report), "verdicts": rows}
        print_json(answer)
        return
    print_rows(
        [
            {"requirement": requirement, "target": target, "value": value, "met": "yes" if met else "no"}
            for requirement, target, value, met in verified.verdicts
        ],
        as_json=False,
    )
    for sentence in verified.notes:
        echo(sentence)
    echo(f"Report: {verified.report.resolve()}")


@lab_app.command("corpus")
def corpus(  # noqa: PLR0913 - an option each
    file: Annotated[Path, typer.Argument(help="File to write, a sentence a line as JSON.")],
    *,
    strength: Annotated[
        float, typer.Option(help="How much the share of women rises from the first date to the last.")
    ] = 0.65,
    access: Annotated[
        str,
        typer.Option(
            help="P(selected) by date and place (0 to 1), gender (1 female, -1 male) and strength; the default is linear in date."
        ),
    ] = "",
    people: Annotated[int, typer.Option(help="Selected people.")] = 5_000,
    decided: Annotated[
        float, typer.Option(help="Share of sentences in which a gendered noun decides the pronoun.")
    ] = DECIDED,
    trade: Annotated[float, typer.Option(help="Share of sentences with a trade in the pronoun's place.")] = TRADE,
    trades: Annotated[str, typer.Option(help="How trades go with dates: unordered or ordered.")] = "unordered",
    drawn: Annotated[str, typer.Option(help="People and sentences by quota, or independent.")] = "quota",
    seed: Annotated[int, typer.Option(min=0, help="Of people and words.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a planted corpus and its exact properties."""
    from undertow.lab.corpus_files import CorpusOptions, write_corpus
    from undertow.lab.planted_corpus import Access, SentenceOptions

    if file.exists():
        raise UndertowError(f"{file} is there already; name another file, or remove it")
    if not file.parent.is_dir():
        raise UndertowError(f"{file}: its folder is not there; make it first")
    options = SentenceOptions(seed, decided_share=decided, trade_share=trade, trades=trades, drawn=drawn)
    written = write_corpus(
        file, CorpusOptions(Access(access, strength) if access else Access(strength=strength), options, people)
    )
    if as_json:
        print_json(dict(written.rows()) | written.by_value())
        return
    print_table([{"known": name, "value": _in_digits(value)} for name, value in written.rows()])
    for sentence in written.notes:
        echo(sentence)
    echo(f"Written to {file}")


def _in_digits(value: float) -> str:
    if math.isnan(value):
        return "not defined"
    return f"{value:.3g}" if 0 < abs(value) < 5e-5 else f"{value:,.4f}".removesuffix(".0000")


_TRAINED_ON = {"before": "nothing yet", "plain": "texts as they are", "metadata": "texts with the date in front"}


@lab_app.command("finetune")
def lab_finetune(
    *,
    out: Folder = DEFAULT_FOLDER,
    strength: Annotated[
        float, typer.Option(help="How much the share of women rises from the first date to the last.")
    ] = 0.65,
    seeds: Annotated[int, typer.Option(min=2, help="Fine-tunings of each kind.")] = 5,
    jobs: Jobs = 0,
    as_json: Json = False,
) -> None:
    """Fine-tune an unbiased model on planted texts, with the date in front and without, and audit each head."""
    from undertow.lab.finetune_study import finetune_planted, over_seeds, results_file

    with stoppable("finished trainings are kept"), progress_bar(as_json, "fine-tuning", "starting") as progress:
        frame = finetune_planted(out, strength, seeds, jobs, progress)
    if as_json:
        print_json({"seeds": frame.to_dict("records"), "over seeds": over_seeds(frame)})
        return
    print_table(
        [
            {
                "trained on": _TRAINED_ON[row["kind"]],
                "challenge": row["challenge"],
                "seed": str(row["seed"]),
                "planted": f"{row['planted_slope']:+.2f}",
                "female slope": f"{row['female_slope']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})",
                "r": f"{row['female_r']:+.2f}",
                "female and male slope together": f"{row['female_slope'] + row['male_slope']:.1e}",
            }
            for row in frame.to_dict("records")
        ]
    )
    for row in over_seeds(frame):
        echo(
            f"Trained on {_TRAINED_ON[str(row['trained on'])]}, challenge {row['challenge']}: over {row['seeds']} seeds the "
            f"female slope is {row['female']:+.2f} points a step "
            f"(95% interval {row['low']:+.2f} to {row['high']:+.2f}); planted were {row['planted']:+.2f}"
        )
    echo(f"Written to {results_file(out, strength)}")


def finetune(  # noqa: PLR0913 - one parameter for each option
    base: Annotated[str, typer.Argument(help="A masked model: a hub id or a folder.")],
    data: Annotated[str, typer.Argument(help="A JSONL file, one object a line; or wikibio, or reddit-tldr.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")],
    text_field: Annotated[str, typer.Option(help="Field of the text.")] = "text",
    metadata_fields: Annotated[
        str, typer.Option(help="Fields to put in front of each text, comma-separated, in this order.")
    ] = "",
    required_fields: Annotated[
        str, typer.Option(help="Other fields without which a text is left out, comma-separated.")
    ] = "",
    words: Annotated[
        str, typer.Option(help="Word list to mask: icml, aaai, pronouns, or a .toml file with a list for each group.")
    ] = "icml",
    epochs: Annotated[int, typer.Option(help="Passes over the texts.")] = 3,
    max_steps: Annotated[int, typer.Option(help="Number of batches, instead of --epochs; 0 for none.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Texts in a batch.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate of AdamW.")] = 3e-5,
    warmup_ratio: Annotated[float, typer.Option(help="Share of the steps before the peak learning rate.")] = 0.1,
    dropout: Annotated[bool, typer.Option(help="Train with the model's own dropout.")] = True,
    held_out: Annotated[float, typer.Option(help="Share of the distinct texts to hold out; 0 for none.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the head, the split, the order and the dropout.")] = 0,
    max_texts: Annotated[int, typer.Option(help="Use only the first texts; 0 for all.")] = 0,
    save_steps: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 500,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")] = "auto",
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a base on the hub.")] = "",
    as_json: Json = False,
) -> None:
    """Fine-tune a masked model to classify masked words into word groups, for the audits.

    A folder with the same training continues from its last checkpoint.
    """
    from undertow.lab.training import finetune_data
    from undertow.lab.training.finetune import FinetuneConfig

    recipe = FinetuneConfig(
        labels=finetune_data.labels_of(words),
        epochs=epochs,
        max_steps=max_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup_ratio=warmup_ratio,
        dropout=dropout,
        held_out=held_out,
        seed=seed,
        device=device,
        save_steps=save_steps,
    )
    wanted = finetune_data.FinetuneOptions(text_field, _names(metadata_fields), _names(required_fields), max_texts)
    with stoppable("the last checkpoint is kept"), _bar(as_json) as progress:
        made = finetune_data.finetune(
            base, data, out, recipe, wanted=wanted, words=words, progress=progress, revision=revision
        )
    if as_json:
        print_json({"folder": str(made.folder), "resumed_at": made.resumed_at, **made.record})
        return
    _print(made)


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


def _print(made: FinetunedModel) -> None:
    record = made.record
    data, places = record["data"], record["data"]["n_places"]
    total = sum(places.values())
    echo(
        f"{data['n_texts']:,} texts with {total:,} masked words "
        f"({', '.join(f'{label} {100 * n / total:.1f}%' for label, n in places.items())}); left out: {data['n_without_words']:,} "
        f"without such words, {data['n_without_metadata']:,} without metadata, {data['n_unread']:,} with a mask of their own."
    )
    said = f" ({made.resumed_at:,} of them before)" if made.resumed_at else ""
    echo(f"{record['n_steps']:,} steps{said}; loss in nats and accuracy at masked words:")
    fits = {"training texts": made.training, "held-out texts": made.held_out}
    print_table([_row(name, fit) for name, fit in fits.items() if fit is not None])
    echo(f"Model: {made.folder.resolve()}")
    echo(f"Audit it: undertow run spurious-correlation -m {made.folder} --challenge mgt-icml")
    if metadata := data["fields"]["metadata"]:
        template = ', such as "{w}. {blank} was a painter."' if len(metadata) == 1 else ""
        echo(
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
