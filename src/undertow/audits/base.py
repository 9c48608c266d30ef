"""Interface of an audit: the hooks that `undertow run` and `undertow score` call, and the data that they pass on."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from undertow.errors import UndertowError
from undertow.report.page_data import Drawing, ReportText
from undertow.report.paper_table import TableLayout
from undertow.types import EXACT, Finding, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.record_schema import RecordSchema
    from undertow.audits.recorded_tables import Table

T = TypeVar("T")
ItemBatches: TypeAlias = Generator[list[Item], Scores, None]
"""Yields lists of items and receives their scores, so that later items can depend on earlier answers."""


def presets_of(audit: str) -> dict[str, dict[str, Any]]:
    """The presets of an audit by name."""
    text = resources.files("undertow.audits").joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: by_audit[audit] for name, by_audit in tomllib.loads(text).items() if audit in by_audit}


def preset_options(name: str, audit: str, challenge: str) -> dict[str, Any]:
    """Options that a preset sets for an audit and a challenge set.

    Raises:
        UndertowError: there is no such preset for this audit.
    """
    presets = presets_of(audit)
    if name not in presets:
        raise UndertowError(f"--preset {name!r}: {audit} has {', '.join(presets) or 'no presets'}")
    options: dict[str, Any] = presets[name]
    of_set: dict[str, Any] = options.get(challenge, {})
    return {key: value for key, value in options.items() if not isinstance(value, dict)} | of_set


def split_names(given: str, known: Sequence[str], name: str) -> list[str]:
    """The names of a comma-separated option, each once."""
    names = list(dict.fromkeys(one.strip() for one in given.split(",") if one.strip()))
    strange = [one for one in names if one not in known]
    if strange or not names:
        what = f"{strange[0]!r} is unknown" if strange else "is empty"
        raise UndertowError(f"--{name} {given!r}: {what}; use {', '.join(known)}")
    return names


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
class SentenceTable:
    """What a row of `Audit.sentences` is.

    Attributes:
        unit: what it is about: a sentence, a text, a question.
        order: which come first, as in "the 10 texts that ...".
        about: what its columns mean, in sentences.
        file: of `tables/` in the run folder, without its ending.
        warning: what a reader must know before reading the texts; "" for nothing.
    """

    unit: str
    order: str
    about: str
    file: str
    warning: str = ""


SLOPES = SentenceTable(
    "sentence",
    "move most",
    "Effect: how far the line through the answers to a sentence moves over the whole list, in percentage points. First and last: the "
    "values of W at its ends, and the answers there in percent. One sentence alone is not tested.",
    "sentence_slopes",
)


class Licence(NamedTuple):
    """The licence of texts: its name on the Hugging Face hub, and sentences on the owner [Markdown]."""

    name: str
    owner: str


UNKNOWN_LICENCE = Licence("unknown", "State the owner and the licence of the texts before you distribute them.")
UNDERTOW_LICENCE = Licence(
    "apache-2.0",
    "The texts are part of Undertow, under its licence, Apache-2.0; its page on data lists the sources of their facts.",
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sample of items: an approximate upper bound on their number, 0 for all, and its seed."""

    limit: int = 0
    seed: int = 0


class Audit(ABC):
    """One audit that a user can name.

    A subclass defines the items, the table of answers, its measures and the findings; every other hook has a default. Other
    packages add an audit by an entry point of the group `undertow.audits` that names its class.

    Attributes:
        name: its name for users.
        summary: one line for `undertow list audits`.
        Settings: frozen dataclass of the audit's own options, all of them `option`s.
        protocols: protocols that it supports, the default first.
        adaptive: whether later items depend on the answers to earlier ones; such an audit defines `max_items`.
        limit_help: what `--limit` counts; "" for the general text.
        causal_claim: what its causal findings rest on, "drift with W" or "specification of the task", for an audit that names a
            causal graph (docs/causal-graphs.md). A finding that makes no causal claim has `causal_claim=False`.
        references: keys of the papers behind it in `report/templates/references.bib`.
        method: its statistics in a sentence, for the methods section of a paper.
        table_layouts: tables that a paper prints, the default one first; () for a table of each measure alone.
        sentence_table: what `sentences` holds.
        licence: of the audit's own texts, for exports.
        reply_factors: columns over whose levels refusals and unclear replies are counted under protocol `text`.
        record_schema: what is checked when a run is read; None for the entries alone that a run adds to every design. An audit of this
            package has it in a module of that name, so that its runs are read without it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[Any]]
    protocols: ClassVar[tuple[str, ...]] = (EXACT,)
    adaptive: ClassVar[bool] = False
    limit_help: ClassVar[str] = ""
    causal_claim: ClassVar[str] = ""
    references: ClassVar[tuple[str, ...]] = ()
    method: ClassVar[str] = ""
    table_layouts: ClassVar[tuple[TableLayout, ...]] = ()
    sentence_table: ClassVar[SentenceTable] = SLOPES
    licence: ClassVar[Licence] = UNKNOWN_LICENCE
    reply_factors: ClassVar[tuple[str, ...]] = ()
    record_schema: ClassVar[RecordSchema | None] = None

    # Items.

    @abstractmethod
    def items(self, settings: Any, sampling: Sampling) -> ItemBatches:
        """Yield the items of a run."""

    def design(self, settings: Any) -> Mapping[str, Any]:
        """JSON-serialisable facts that the measures need beside the table, known before any model runs."""
        return {}

    def adapt_settings(self, settings: Any, capabilities: Mapping[str, Sequence[str]]) -> Any:
        """Settings for a model that answers these kinds of query."""
        return settings

    def max_items(self, settings: Any, sampling: Sampling) -> list[Item]:
        """Every item that a run may need."""
        return next(self.items(settings, sampling))

    def limitations(self, settings: Any, sampling: Sampling) -> list[str]:
        """Sentences on effects that the design, within `--limit`, cannot detect; they become its `w_notes` and `limitations`."""
        return []

    def controls(self, settings: Any) -> list[Item]:
        """Control items, scored last and excluded from all metrics; `controls` of the design has their mass on other words."""
        return []

    # Observations and results.

    @abstractmethod
    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        """Turn the answers of one model into a table."""

    def load_recorded(self, path: Path | Table, protocol: str) -> tuple[Observations, str]:
        """Read a recorded table of answers; return it with the protocol of the recording.

        Args:
            path: the file, or a table that is already read, with its columns renamed.
            protocol: "" for that of the recording.

        Raises:
            UndertowError: the file is not such a table, or the audit has no recorded tables.
        """
        raise UndertowError(f"{path}: {self.name} reads no recorded tables; use undertow run {self.name}")

    @abstractmethod
    def measure(self, observations: Observations, seed: int) -> list[Result]:
        """Compute the results."""

    def reply_rates(self, observations: Observations) -> list[Result]:
        """Rates of refusals and unclear replies under protocol `text`; [] under other protocols."""
        from undertow.metrics.text.reply_rates import reply_results

        is_text = "reply_outcome" in observations.frame
        return list(reply_results(self.reply_frame(observations), self.reply_factors)) if is_text else []

    def reply_frame(self, observations: Observations) -> pd.DataFrame:
        """The observations with the levels of `reply_factors` as results name them."""
        return observations.frame

    def note_missing(self, observations: Observations) -> Observations:
        """The observations; if missing replies depend on a factor, sentences on this in `w_notes` and `limitations` of the design."""
        if "reply_outcome" not in observations.frame:
            return observations
        from undertow.metrics.text.reply_rates import missing_by_level
        from undertow.report.sentence_templates import sentences

        words, frame = sentences("run"), self.reply_frame(observations)
        notes = [str(words.missing_by_level(*one)) for one in missing_by_level(frame, self.reply_factors)]
        design = {name: [*observations.design.get(name, []), *notes] for name in ("w_notes", "limitations") if notes}
        return replace(observations, design={**observations.design, **design})

    def differences(
        self, baseline: Observations, candidate: Observations, margin: Callable[[Result], float], seed: int
    ) -> list[Result]:
        """Differences between two models on the same rows, which replace those by jackknife; [] to keep the jackknife.

        `p` tests a difference within `margin(result)`; `inner_low` and `inner_high` of `extras` are the 90% interval. A NaN `value`
        keeps the value of the jackknife.
        """
        return []

    # Report.

    @abstractmethod
    def findings(self, observations: Observations, results: Sequence[Result]) -> list[Finding]:
        """State the results in plain sentences."""

    def draw(self, observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        """Draw the figures."""
        yield from ()

    def sentences(self, observations: Observations) -> pd.DataFrame:
        """What the findings are made of, sentence by sentence with the answers; `sentence_table` says in which order and columns.

        Empty for an audit that has no numbers by sentence.
        """
        import pandas as pd

        return pd.DataFrame()

    def sentence_table_of(self, observations: Observations) -> SentenceTable:
        """What a row of `sentences` is, in the words of this run."""
        return self.sentence_table

    def tables(self, observations: Observations) -> Mapping[str, pd.DataFrame]:
        """Tables beside the observations, for `tables/NAME.csv` of the run folder."""
        return {}

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        """Title, sentences and extra tables of the report."""
        return ReportText(self.name.replace("-", " ").capitalize(), self.summary)
