"""Interface of an audit: the hooks that `undertow run` and `undertow score` call, and the data that they pass on."""

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

ItemBatches: TypeAlias = Generator[list[Item], Scores, None]
"""Yields lists of items and receives their scores, so that later items can depend on earlier answers."""


@dataclass(frozen=True, slots=True)
class Observations:
    """Table of answers and the facts that its measures need.

    Attributes:
        frame: observations, a row per item, factors as columns; see docs/run-folder.md.
        design: JSON-serialisable facts that the measures need beside the table.
    """

    frame: pd.DataFrame
    design: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Size of the sample of items.

    Attributes:
        limit: upper bound on the number of items, approximate; 0 for all.
        seed: of the sample.
    """

    limit: int = 0
    seed: int = 0


class Audit(Protocol):
    """One audit that a user can name.

    The module defines these as module-level names. A package outside adds an audit by an entry point of the group `undertow.audits`
    that names such a module. Optional names:

    - `adapt_settings(settings, capabilities)`: settings for a model that answers these kinds of query.
    - `max_items(settings, sampling)`: every item that a run may need; required where later items depend on answers.
    - `limitations(settings, sampling)`: sentences on effects that the design, or its part within `--limit`, cannot detect.
      They go into `w_notes` and `limitations` of the design.
    - `controls(settings)`: items that follow all others and enter no metric. `controls` of the design holds how
      much probability went to other words in them.
    - `differences(baseline, candidate, margin, seed)`: results for the same rows answered by two models. They replace the
      jackknife errors. `p` tests a difference no larger than `margin(result)`; `inner_low` and `inner_high` of `extras` are
      the 90% interval; a NaN value keeps the value.
    - `CAUSAL_CLAIM`: what its causal findings rest on, "drift with W" or "specification of the task", for an audit that names a
      causal graph (docs/causal-graphs.md). A finding that makes no causal claim has `causal_claim=False`.

    Attributes:
        SUMMARY: one line for `undertow list audits`.
        Settings: frozen dataclass of the audit's own options, all with defaults; each field's metadata has `help`.
        PROTOCOLS: protocols that it supports, the default first.
    """

    SUMMARY: str
    Settings: type[Any]
    PROTOCOLS: tuple[str, ...]

    def items(self, settings: Any, sampling: Sampling) -> ItemBatches:
        """Yield the items of a run."""
        ...

    def design(self, settings: Any) -> Mapping[str, Any]:
        """JSON-serialisable facts that the measures need beside the table, known before any model runs."""
        ...

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        """Turn the answers of one model into a table."""
        ...

    def load_recorded(self, path: Path, protocol: str) -> tuple[Observations, str]:
        """Read a recorded table of answers; return it with the protocol of the recording."""
        ...

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        """Compute the results."""
        ...

    def findings(self, observations: Observations, results: Sequence[Result]) -> list[Finding]:
        """State the results in plain sentences."""
        ...

    def draw(self, observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        """Draw the figures."""
        ...

    def tables(self, observations: Observations) -> Mapping[str, pd.DataFrame]:
        """Tables beside the observations, for `tables/NAME.csv` of the run folder."""
        ...

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        """Title, sentences and extra tables of the report."""
        ...
