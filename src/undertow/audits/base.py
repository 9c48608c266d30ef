"""What an audit must offer. An audit is one file in this folder; the file's name, with dashes, is what users call it.

Knows the shape of an audit; knows nothing about models, scoring or files.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from undertow.report.model import ReportText
from undertow.types import Finding, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

EXACT, PAPER = "exact", "paper"
"""Protocols: the full softmax gathered for every listed form, or what the papers read (top 5, unnormalised)."""

ItemRounds: TypeAlias = Generator[list[Item], Scores, None]
"""Yields items to ask and is sent their scores, so that a later round can depend on earlier answers."""


@dataclass(frozen=True, slots=True)
class Observations:
    """What was observed, ready to be measured, saved and measured again.

    Attributes:
        frame: observations, a row per item, factors as columns; see docs/run-folder.md.
        design: JSON-serialisable facts that the measures need beside the table.
    """

    frame: pd.DataFrame
    design: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How much of the design is asked.

    Attributes:
        limit: at most about so many items; 0 for all.
        seed: chooses which.
    """

    limit: int = 0
    seed: int = 0


class Audit(Protocol):
    """One audit that a user can name.

    The module defines these as module-level names. A package outside adds an audit by an entry point of the group `undertow.audits`
    that names such a module. Optional names:

    - `adapt_settings(settings, capabilities)`: the settings for a model that can be asked these kinds of query.
    - `max_items(settings, sampling)`: all items that may be asked; needed where later rounds depend on answers.
    - `limited(settings, sampling)`: sentences on what the design, or what `--limit` leaves of it, cannot find.
      They go into `w_notes` and `unable` of the design.
    - `controls(settings)`: items that are asked after all rounds and enter no metric. `controls` of the design holds how
      much probability went to other words in them.
    - `differences(baseline, candidate, margin, seed)`: results for the same rows answered by two models. They replace the
      jackknife errors. `p` tests a difference no larger than `margin(result)`; `inner_low` and `inner_high` of `extras` are
      the 90% interval; a NaN value keeps the value.
    - `RESTS_ON`: what its causal findings rest on, "drift with W" or "specification of the task", for an audit that names a
      causal graph (docs/causal-graphs.md). A finding that makes no causal claim has `causal_claim=False`.

    Attributes:
        SUMMARY: one line for `undertow list audits`.
        Settings: frozen dataclass of the audit's own options, all with defaults; each field's metadata has `help`.
        PROTOCOLS: the protocols that it can be asked under, the default first.
    """

    SUMMARY: str
    Settings: type[Any]
    PROTOCOLS: tuple[str, ...]

    def items(self, settings: Any, sampling: Sampling) -> ItemRounds:
        """The items to ask."""
        ...

    def design(self, settings: Any) -> Mapping[str, Any]:
        """JSON-serialisable facts that the measures need beside the table; had before anything is asked."""
        ...

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        """Answers of one model as a table."""
        ...

    def load_recorded(self, path: Path, protocol: str) -> tuple[Observations, str]:
        """A recorded table of answers, and the protocol that it was recorded under."""
        ...

    def measure(self, evidence: Observations, seed: int) -> list[Result]:
        """The measures."""
        ...

    def findings(self, evidence: Observations, results: Sequence[Result]) -> list[Finding]:
        """The results in plain sentences."""
        ...

    def draw(self, evidence: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        """The figures."""
        ...

    def tables(self, evidence: Observations) -> Mapping[str, pd.DataFrame]:
        """Tables beside the observations, for `tables/NAME.csv` of the run folder."""
        ...

    def report_text(self, evidence: Observations, results: Sequence[Result]) -> ReportText:
        """The words of the report."""
        ...
