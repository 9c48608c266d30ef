"""`undertow store`: whose answers are kept, and forgetting them.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from undertow.cli.terminal import Json, say, say_list
from undertow.types import UndertowError

store_app = typer.Typer(help="What models said before, and forgetting it.", no_args_is_help=True)


@store_app.command("info")
def store_info(*, as_json: Json = False) -> None:
    """Whose answers are stored."""
    from datetime import datetime

    from undertow.places import store_file
    from undertow.scoring.store import AnswerStore

    with AnswerStore(store_file()) as store:
        shelves = store.shelves()
    rows: list[dict[str, Any]] = [
        {
            "model": shelf.model,
            "dtype": shelf.dtype,
            "protocol": shelf.protocol,
            "answers": shelf.n_answers,
            "last used": datetime.fromtimestamp(shelf.used).isoformat(sep=" ", timespec="minutes"),
            "key": shelf.key[:12],
        }
        for shelf in shelves
    ]
    if not as_json:
        size = sum(file.stat().st_size for file in store_file().parent.glob(f"{store_file().name}*"))
        say(f"{store_file()} ({size / 2**20:.1f} MiB)")
    say_list(rows, as_json=as_json)


@store_app.command("prune")
def store_prune(
    *,
    model: Annotated[str, typer.Option("-m", "--model", help="Forget the answers of this model (name or key).")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Forget all answers.")] = False,
) -> None:
    """Forget answers. Run folders are not touched."""
    from undertow.places import store_file
    from undertow.scoring.store import AnswerStore

    if bool(model) == everything:
        raise UndertowError("say what to forget: -m MODEL for one model's answers, or --all")
    with AnswerStore(store_file()) as store:
        shelves = store.shelves()
        keys = [
            shelf.key
            for shelf in shelves
            if everything or shelf.model == model or (len(model) >= 8 and shelf.key.startswith(model))
        ]
        if model and not keys:
            known = ", ".join(dict.fromkeys(shelf.model for shelf in shelves)) or "none at all"
            raise UndertowError(f"no answers of {model!r} are stored; there are those of {known}")
        n_answers = store.prune(keys)
    say(f"forgot {n_answers:,} answers of {len(keys)} model{'s' if len(keys) != 1 else ''}")
