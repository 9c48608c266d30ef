"""What a probe must offer. A probe is one file in this folder; the file's name, with dashes, is what users call it.

Knows the shape of an audit; knows nothing about models, scoring or files.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from undertow.types import Finding, Item, Result, Scores, Told, UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.drawing import Drawing

EXACT, PAPER = "exact", "paper"
"""Protocols: the full softmax gathered for every listed form, or what the papers read (top 5, unnormalised)."""

Rounds: TypeAlias = Generator[list[Item], Scores, None]
"""Yields items to ask and is sent their scores, so that a later round can depend on earlier answers."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was observed, ready to be measured, saved and measured again.

    Attributes:
        frame: observations, a row per item, factors as columns; see docs/run-folder.md.
        design: JSON-serialisable facts that the measures need beside the table.
    """

    frame: pd.DataFrame
    design: Mapping[str, Any]


class DamagedRunError(UndertowError):
    """A run does not hold what its audit needs, or holds something else."""


class Design(dict[str, Any]):
    """The design of a run that was read from a folder, where it may lack what the measures need, or hold something else.

    Raises:
        DamagedRunError: when something is asked for that it lacks; and by `check`, when something is of another kind than it must be.
    """

    def __init__(self, held: Mapping[str, Any], where: str) -> None:
        super().__init__(held)
        self._where = where

    def __missing__(self, name: str) -> Any:
        raise DamagedRunError(f"{self._where}: is damaged (its design does not say {name}); run the audit again")

    def check(self, example: Mapping[str, Any]) -> None:
        """Refuse what is of another kind than in the audit's own design; what an older or newer one says more or less, may be."""
        for name, value in self.items():
            is_right = OF_MODELS.get(name, _is_anything)(value)
            if not is_right or (name in example and not _is_alike(value, example[name])):
                raise DamagedRunError(
                    f"{self._where}: is damaged ({name} of its design is of another kind); run the audit again"
                )


def _is_anything(_: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value.values()))


def _are_tables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(one, Mapping) for one in value.values())


def _are_counts(value: Any) -> bool:
    return _are_tables(value) and all(type(n) is int for counts in value.values() for n in counts.values())


def _are_controls(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(rows, list) and all(map(_is_control, rows)) for rows in value.values()
    )


def _is_control(row: Any) -> bool:
    """Whether it says what was asked, and which percentage went to no option, or nothing of that."""
    if not isinstance(row, Mapping) or not all(_is_text(row.get(name)) for name in ("prompt", "text", "unscored")):
        return False
    percent = row.get("unclaimed", "")
    return percent is None or type(percent) in (int, float)


OF_MODELS: Mapping[str, Callable[[Any], bool]] = {
    "readout": _is_text,
    "readouts": _are_texts,
    "models": _are_tables,
    "controls": _are_controls,
    "tokens_of_word": _are_counts,
}
"""What asking adds to a design, which no audit's own has: of each model, what is known of it and how it was read."""


def _is_alike(value: Any, example: Any) -> bool:
    """Whether a value has the types of another, as far as that one tells: an empty list says nothing of what may be in one."""
    if value is None or example is None:
        return True
    if isinstance(example, (list, tuple)):
        of_one = len({type(one) for one in example}) == 1 and all(map(bool, example))
        if not isinstance(value, (list, tuple)) or not of_one:
            return isinstance(value, (list, tuple))
        return all(_is_alike(one, example[0]) and one is not None and _is_as_long(one, example[0]) for one in value)
    if isinstance(example, Mapping):
        first = next(iter(example.values()), None)
        of_one = len({type(one) for one in example.values()}) == 1
        return isinstance(value, Mapping) and (not of_one or all(_is_alike(one, first) for one in value.values()))
    numbers = (int, float)
    if isinstance(example, numbers) and not isinstance(example, bool):
        return isinstance(value, numbers) and not isinstance(value, bool)
    return type(value) is type(example)


def _is_as_long(value: Any, example: Any) -> bool:
    """Of lists within lists, as pairs are."""
    return not isinstance(example, (list, tuple)) or len(value) == len(example)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How much of the design is asked.

    Attributes:
        limit: at most about so many items; 0 for all.
        seed: chooses which.
    """

    limit: int = 0
    seed: int = 0


class Probe(Protocol):
    """One audit that a user can name.

    The module defines these as module-level names; a package outside adds a probe by an entry point of the group `undertow.probes`
    that names such a module. Six more it may have: `limited(settings, sampling)`, sentences on what its design, or what `--limit`
    leaves of it, cannot find, which go into `w_notes` and `unable` of the design; `suited(settings, asks)`, its settings for a
    model that can be asked these kinds of query; `foreseen(settings, sampling)`, where later rounds depend on answers: all items
    that may be asked; `differences(baseline, candidate, margin, seed)`, results of the same rows answered by two models, whose
    errors stand for those that leaving out clusters gives (p is that of a difference no larger than `margin(result)`; `inner_low`
    and `inner_high` of `detail` are the 90% interval; a NaN value leaves the value as it is); `controls(settings)`, items that are
    asked after all rounds and are in no measure, of which `controls` of the design tells how much of the probability went to no
    option; and `RESTS_ON`, which kind its findings are if they are laid at selection's door, "drift with W" or "specification of
    the task", for an audit that names a causal graph (docs/causal-graphs.md). What is found and rests on no W has `rests=False`.

    Attributes:
        SUMMARY: one line for `undertow ls probes`.
        Settings: frozen dataclass of the probe's own options, all with defaults; each field's metadata has `help`.
        PROTOCOLS: the protocols that it can be asked under, the default first.
    """

    SUMMARY: str
    Settings: type[Any]
    PROTOCOLS: tuple[str, ...]

    def rounds(self, settings: Any, sampling: Sampling) -> Rounds:
        """The items to ask."""
        ...

    def design(self, settings: Any) -> Mapping[str, Any]:
        """JSON-serialisable facts that the measures need beside the table; had before anything is asked."""
        ...

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Evidence:
        """Answers of one model as a table."""
        ...

    def read_table(self, path: Path, protocol: str) -> tuple[Evidence, str]:
        """A recorded table of answers, and the protocol that it was recorded under."""
        ...

    def measure(self, evidence: Evidence, seed: int) -> list[Result]:
        """The measures."""
        ...

    def findings(self, evidence: Evidence, results: Sequence[Result]) -> list[Finding]:
        """The results in plain sentences."""
        ...

    def draw(self, evidence: Evidence, results: Sequence[Result]) -> Iterator[Drawing]:
        """The figures."""
        ...

    def tables(self, evidence: Evidence) -> Mapping[str, pd.DataFrame]:
        """Tables beside the observations, for `tables/NAME.csv` of the run folder."""
        ...

    def told(self, evidence: Evidence, results: Sequence[Result]) -> Told:
        """The words of the report."""
        ...
