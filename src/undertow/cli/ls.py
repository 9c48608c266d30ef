"""`undertow ls`: the audits, challenge sets and models that there are.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import typer

from undertow.cli.terminal import Json, say_list

ls_app = typer.Typer(help="List what there is.", no_args_is_help=True)


@ls_app.command("probes")
def ls_probes(*, as_json: Json = False) -> None:
    """The audits."""
    from undertow import probes

    say_list([{"probe": name, "what it asks": probes.load(name).SUMMARY} for name in probes.names()], as_json=as_json)


@ls_app.command("challenges")
def ls_challenges(*, as_json: Json = False) -> None:
    """The challenge sets."""
    from undertow import challenge

    sets = [challenge.load(name) for name in challenge.names()]
    rows = [
        {
            "challenge": one.name,
            "title": one.title,
            "W": ", ".join(spectrum.name for spectrum in one.spectra),
            "source": one.source,
        }
        for one in sets
    ]
    rows += [
        {"challenge": name, "title": title, "W": "any, with --inject", "source": ""}
        for name, title in challenge.SUMMARIES.items()
    ]
    rows += [
        {"challenge": name, "title": title, "W": "none: documents", "source": ""}
        for name, title in challenge.DOCUMENT_SUMMARIES.items()
    ]
    rows += [
        {"challenge": name, "title": title, "W": "none: a table", "source": ""}
        for name, title in challenge.CHECKLIST_SUMMARIES.items()
    ]
    say_list(rows, as_json=as_json)


@ls_app.command("models")
def ls_models(*, as_json: Json = False) -> None:
    """The models that have a name, and the families that others may be of."""
    from undertow import models
    from undertow.models.pull import PULLABLE, location

    rows = [
        {
            "model": name,
            "what it is": f"{package.source}; {package.licence}; "
            + ("on this machine" if location(name).is_file() else f"not here yet: undertow pull {name}"),
        }
        for name, package in PULLABLE.items()
    ]
    rows += [{"model": f"({name})", "what it is": summary} for name, summary in models.families().items()]
    say_list(rows, as_json=as_json)
