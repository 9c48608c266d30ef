"""`undertow lab` and `undertow finetune`: models with a planted bias, and fine-tuned classification heads."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.console import echo, print_json, print_table, print_text, progress_bar, stoppable
from undertow.cli.options import Group, Json, parameters_of, with_options
from undertow.errors import UndertowError
from undertow.lab.settings import CorpusOptions
from undertow.lab.training.training_config import FinetuneConfig, FinetuneOptions

if TYPE_CHECKING:
    from undertow.lab.build import BuiltModel


DEFAULT_FOLDER = Path("runs") / "lab"
lab_app = Group(help="Train models with a planted bias to test the audits.", no_args_is_help=True)
Jobs = Annotated[int, typer.Option(min=0, help="Number of parallel processes; 0 for one per processor.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder of the lab.")]


def _with_options_of(*settings: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with the options of these settings, which it gets as keywords."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        options = [one for kind in settings for one in parameters_of(kind)]
        return with_options(command, [*(one for one in own if one.kind is not one.VAR_KEYWORD), *options])

    return decorate


def _settings_from(kind: type[Any], options: Mapping[str, Any], *given: Any) -> Any:
    """Create settings from the options that belong to them."""
    own = {one.name for one in dataclasses.fields(kind)}
    return kind(*given, **{name: value for name, value in options.items() if name in own})


@lab_app.command("build")
def build(  # noqa: PLR0913 - an option each
    *,
    small: Annotated[bool, typer.Option("--small", help="Build 12 models (minutes) instead of 86 (hours).")] = False,
    strength: Annotated[
        list[float] | None,
        typer.Option(help="Strength of the planted bias, instead of those of the plan; may be repeated."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Training seed, instead of those of the plan; may be repeated.")
    ] = None,
    access: Annotated[str, typer.Option(help="P(selected) by date, place, gender and strength; see docs/lab.md.")] = "",
    out: Folder = DEFAULT_FOLDER,
    jobs: Jobs = 0,
    as_json: Json = False,
) -> None:
    """Build planted models. Samples people, selects some, writes texts about them and trains small models on the texts."""
    from undertow.lab import experiment_plan
    from undertow.lab.build import build as build_models

    planned = experiment_plan.small() if small else experiment_plan.full()
    if strength or seed or access:
        if small:
            raise UndertowError("--small is a plan of its own; leave it out, or --strength, --seed and --access")
        planned = experiment_plan.custom(strength or experiment_plan.STRENGTHS, seed or experiment_plan.SEEDS, access)
    with stoppable("finished models are kept"), progress_bar(as_json, "train") as progress:
        built = build_models(out, planned, jobs, progress)
    if as_json:
        print_json([{**dataclasses.asdict(one), "converged": one.converged} for one in built])
        return
    print_table([_in_words(one) for one in built])
    n_learned = sum(one.converged for one in built)
    echo(f"{len(built)} models, {n_learned} of which have converged; audit them with undertow lab verify")
    if n_learned < len(built):
        echo("Models that have not converged are listed but not counted, because they do not test the audit.")


def _in_words(built: BuiltModel) -> dict[str, str]:
    planted, learned = (
        " and ".join(f"{slope:+.2f} ({w})" for w, slope in slopes.items()) for slopes in (built.planted, built.learned)
    )
    return {
        "model": built.subject.name,
        "planted, points per step": planted,
        "learned": learned,
        "loss": f"{built.loss_nats:.4f}",
        "floor": f"{built.floor_nats:.4f}",
        "ignoring W": f"{built.ignorant_nats:.4f}",
        "steps": f"{built.attempts[-1].steps}",
        "converged": "failed" if built.failed else "yes" if built.converged else "no",
    }


@lab_app.command("verify")
def verify(*, out: Folder = DEFAULT_FOLDER, jobs: Jobs = 0, as_json: Json = False) -> None:
    """Audit the models of a lab and check the results against the planted bias."""
    from undertow.lab.verification.promises import KEPT
    from undertow.lab.verify import verify as verify_models

    with stoppable(), progress_bar(as_json, "audit") as progress:
        page, verified = verify_models(out, jobs=jobs, progress=progress)
    rows = [dict(zip(("requirement", "target", "value", "met"), verdict, strict=True)) for verdict in verified.verdicts]
    if as_json:
        print_json({"folder": str(page.parent), "report": str(page), "verdicts": rows})
        return
    print_table([{**row, "met": KEPT[verdict[3]]} for row, verdict in zip(rows, verified.verdicts, strict=True)])
    for sentence in verified.notes:
        echo(sentence)
    echo(f"Report: {page.resolve()}")


@lab_app.command("corpus")
@_with_options_of(CorpusOptions)
def corpus(
    file: Annotated[Path, typer.Argument(help="JSONL file to write, one sentence per line.")],
    *,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Write a planted corpus and its exact properties."""
    from undertow.lab.corpus_files import write_corpus

    if file.exists():
        raise UndertowError(f"{file} exists already; name another file, or remove it")
    if not file.parent.is_dir():
        raise UndertowError(f"{file}: its folder does not exist; create it first")
    written = write_corpus(file, CorpusOptions(**options))
    if as_json:
        print_json(written.rows() | written.by_value())
        return
    rows = []
    for name, value in written.rows().items():
        digits = f"{value:.3g}" if 0 < abs(value) < 5e-5 else f"{value:,.4f}".removesuffix(".0000")
        rows.append({"quantity": name, "value": "not defined" if math.isnan(value) else digits})
    print_table(rows)
    for sentence in written.notes:
        echo(sentence)
    echo(f"Written to {file}")


_TRAINED_ON = {"before": "nothing yet", "plain": "texts as they are", "metadata": "texts with the date in front"}


@lab_app.command("finetune")
def lab_finetune(
    *,
    out: Folder = DEFAULT_FOLDER,
    strength: Annotated[
        float, typer.Option(help="Increase of the share of women from the first date to the last.")
    ] = 0.65,
    seeds: Annotated[int, typer.Option(min=2, help="Number of fine-tuned models of each kind.")] = 5,
    jobs: Jobs = 0,
    as_json: Json = False,
) -> None:
    """Fine-tune an unbiased model on planted texts, with the date in front and without, and audit each head."""
    from undertow.lab.finetune_study import finetune_planted, over_seeds, results_file

    with stoppable("finished trainings are kept"), progress_bar(as_json, "fine-tune") as progress:
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
    for one in frame[frame["no_better_on"] != ""].drop_duplicates(["kind", "seed"]).to_dict("records"):
        echo(
            f"Trained on {_TRAINED_ON[one['kind']]}, seed {one['seed']}: on {one['no_better_on']} the model is no better than the "
            "majority class, so its slope is noise"
        )
    for row in over_seeds(frame):
        echo(
            f"Trained on {_TRAINED_ON[str(row['trained on'])]}, challenge {row['challenge']}: over {row['seeds']} seeds the "
            f"female slope is {row['female']:+.2f} points per step "
            f"(95% interval {row['low']:+.2f} to {row['high']:+.2f}), the planted slope {row['planted']:+.2f}"
        )
    echo(f"Written to {results_file(out, strength)}")


@_with_options_of(FinetuneOptions, FinetuneConfig)
def finetune(  # noqa: PLR0913 - one parameter for each option
    base: Annotated[str, typer.Argument(help="A masked model: a hub id or a folder.")],
    data: Annotated[str, typer.Argument(help="A JSONL file, one object per line; or wikibio, or reddit-tldr.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")],
    words: Annotated[
        str, typer.Option(help="Word list to mask: icml, aaai, pronouns, or a .toml file with a list for each group.")
    ] = "icml",
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a base on the hub.")] = "",
    as_json: Json = False,
    **options: Any,
) -> None:
    """Fine-tune a masked model to classify masked words by word group.

    A folder with the same training continues from its last checkpoint.
    """
    from undertow.lab.training import finetune_data

    config = _settings_from(FinetuneConfig, options, finetune_data.labels_of(words))
    wanted = _settings_from(FinetuneOptions, options)
    with stoppable("the last checkpoint, if any, is kept"), progress_bar(as_json, "train") as bar:
        made = finetune_data.finetune(
            base,
            data,
            out,
            config,
            wanted=wanted,
            words=words,
            revision=revision,
            progress=lambda done, total, loss: bar(done, total, f"loss {loss:.3f}"),
        )
    if as_json:
        print_json({"folder": str(made.folder), "resumed_at": made.resumed_at, **made.record})
        return
    fits = [
        {
            "measured on": name,
            "words": f"{fit.n_places:,}",
            "loss": f"{fit.loss_nats:.4f}",
            "loss of the majority": f"{fit.majority_loss_nats:.4f}",
            "accuracy": f"{100 * fit.accuracy:.1f}%",
            "accuracy of the majority": f"{100 * fit.majority_accuracy:.1f}%",
        }
        for name, fit in (("training texts", made.training), ("held-out texts", made.held_out))
        if fit is not None
    ]
    print_text("finetuned", of=made, fits=fits)
