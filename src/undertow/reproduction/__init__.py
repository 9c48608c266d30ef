"""Tables and figures of the five papers: published numbers beside those of recorded outputs and of a user's models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from undertow.errors import UndertowError, short_traceback
from undertow.reproduction.catalog import Artefact, artefacts, get_artefact
from undertow.runs.folder.provenance import command_line
from undertow.types import Progress, no_progress

__all__ = ["Artefact", "artefacts", "reproduce"]


@short_traceback
def reproduce(  # noqa: PLR0913 - what is made, of what, and where
    names: str | Sequence[str],
    models: Sequence[str | Path] = (),
    *,
    recorded: str | Path = "",
    model_info: str | Path = "",
    data_dir: str | Path = "",
    documents: str | Path = "",
    rephrasings: str | Path = "",
    out: str | Path = "reproduction",
    width: float = 8.0,
    progress: Progress = no_progress,
    on_error: Callable[[UndertowError], None] | None = None,
    **options: Any,
) -> Mapping[str, list[Path]]:
    """Make tables and figures of the papers: do missing runs, and write each artefact in every format with a page.

    Args:
        names: names of artefacts, such as `000:figure-3b`; `artefacts()` has all.
        models: the user's models; masked, encoder-decoder and causal ones can be mixed.
        recorded: folder with the published outputs as tables; "" for none.
        model_info: TOML file with the parameters, objective and post_training of models.
        data_dir: folder with winogender's two files; "" to fetch them.
        documents: CAD's file or folder; "" to fetch it.
        rephrasings: file with rephrasings of CAD's texts, which were not published; "" for none.
        out: folder with a folder for each artefact and `runs/`.
        width: of the figures, in inches; 3.3 is a column of a journal. Those of runs keep 8.
        progress: called with (queries done, queries in all).
        on_error: called with the error of each artefact that was not made (an `IncompleteInputError` if an input is missing); by default,
            the first error is raised.
        options: options of every run, such as `limit=400` or `dtype="bfloat16"`.

    Returns:
        Paths of the files of each artefact, its page first. Of all artefacts, `out` has an index, too: `index.html` and `index.md`.

    Raises:
        UndertowError: there is no such artefact, it cannot be made, or it needs a model or file that is not given.
    """
    from undertow.report.inline_svg import MAX_PHONE_FIGURES, PHONE_IN
    from undertow.report.style import WIDTH_IN, figure_width
    from undertow.reproduction.contents import Content, IncompleteInputError, content
    from undertow.reproduction.sources import Sources
    from undertow.reproduction.writing import folder_name, write, write_index

    chosen = [get_artefact(name) for name in ([names] if isinstance(names, str) else names)]
    folder, own = Path(out), [str(model) for model in models]
    sources = Sources(
        own,
        Path(recorded) if recorded else None,
        folder,
        options,
        model_info=str(model_info),
        data_dir=str(data_dir),
        documents=str(documents),
        rephrasings=str(rephrasings),
        progress=progress,
    )
    files = ("model_info", "data_dir", "documents", "rephrasings")
    given = {
        "recorded": str(recorded),
        "width": 0 if width == WIDTH_IN else width,
        **{name: getattr(sources, name) for name in files},
        **options,
    }
    changed = {key: value for key, value in given.items() if value}
    files_of: dict[str, list[Path]] = {}
    made: dict[str, Content | str] = {}

    def command(*arguments: str) -> str:
        return command_line(["reproduce", *arguments, *(part for model in own for part in ("-m", model))], changed)

    for artefact in chosen:
        try:
            with figure_width(width):
                one = content(artefact, sources)
            with figure_width(PHONE_IN):
                phone = content(artefact, sources).drawings[:MAX_PHONE_FIGURES] if one.drawings else ()
            place = folder / folder_name(artefact.id)
            files_of[artefact.id] = write(artefact, one, place, command(artefact.id), phone)
            made[artefact.id] = one
        except UndertowError as error:
            if on_error is None:
                raise
            on_error(error)
            reason = str(error).removeprefix(artefact.id).lstrip(" :")
            made[artefact.id] = reason if isinstance(error, IncompleteInputError) else f"failed: {reason}"
    if len(made) == len(artefacts()):
        write_index(made, folder, command("--all"))
    return files_of
