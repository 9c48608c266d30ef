"""Pair two runs item by item, or refuse runs that are not comparable (docs/decisions/023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from undertow.audits import schema_of
from undertow.audits.base import Audit, Observations
from undertow.errors import UndertowError, shorten_list
from undertow.metrics.groups import DESIGN_KEY, WOMAN_AND_MAN
from undertow.runs.folder.storage import ManifestFacts, Record
from undertow.types import EXACT, LIKELIHOOD, PROMPT, TEXT

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

NOT_OF_QUESTIONS = frozenset(
    {
        "models", "scoring_methods", "scoring_method", "normalised", "title", "source", "notes", "document_notes", "protocol", "words",
        "prompts", "prompt_masks", "w_notes", "limitations", "controls", "tokens_of_word", "answer_reader",
    }
)  # fmt: skip
"""Entries of a design about models, for readers, or implied by the texts; all others must be equal in both runs."""
ABSENT_AT_DEFAULT: Mapping[str, tuple[str, object]] = {
    DESIGN_KEY: ("the pair of groups", [WOMAN_AND_MAN.first, WOMAN_AND_MAN.second]),
    "grants": ("who grants the attributes", "model"),
}
"""Entries of a design that are absent at their default, with what they are."""
QUESTION_COLUMNS = (
    "text", "passage", "gold", "expected", "well_specified", "w_name", "w_index", "w_value", "w", "template", "wording", "decoding",
    "n_shots", "attribute_donor", "options", "cluster",
)  # fmt: skip
"""Columns of the question, which must be equal for an item in both runs."""
FACTORS = (
    "challenge", "prompt", "part", "w_name", "w_index", "w", "sentence", "document", "description_class", "wording", "shots",
    "sampling", "draw", "decoding", "question_type", "pair", "occupation", "attribute", "category", "context", "order", "subject",
    "attribute_holder",
)  # fmt: skip
"""Columns that identify rows of a recorded table, whose item names contain models or row numbers."""
NO_ANSWER = "the other run has no answer to it"
SAME_SHARE = 1e-9
"""Relative tolerance for equal numbers of a column, because processors round differently."""
BETWEEN = "\x1f"
RECORDED, UNSAID = "", "unsaid"
SCALES = {
    RECORDED: "masses as recorded",
    UNSAID: "on an unknown scale (its design, of an older run, lacks a scoring method)",
    LIKELIHOOD: "shares of the listed words",
    PROMPT: "probabilities in an answer to a prompt",
    "place": "probabilities of words at the blank",
}
Matched: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of models of the baseline and of the candidate."""


class IncomparablePairError(UndertowError):
    """Two models that cannot be compared, though other models of their runs may be.

    Attributes:
        reason: a clause without names of the pair, equal for all pairs with the same problem.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Names(NamedTuple):
    """The names of the two runs."""

    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Two runs on their common items, with the same rows in the same order.

    Attributes:
        baseline, candidate: observations; a row without an answer in one is missing in both.
        models: pairs of models, by their names in the runs.
        n_answered: of these, rows with an answer in both.
        n_alone: rows of compared models in the baseline only, and in the candidate only.
        identical: whether all answers are the same, to nine digits.
        readings: scoring of each run, if they differ; () otherwise.
        unanswered: for each pair of models without an item that both answered, the reason.
        others: models of the baseline, and of the candidate, that are not compared, unless the caller chose pairs.
    """

    baseline: Observations
    candidate: Observations
    models: Matched
    n_items: int
    n_answered: int
    n_alone: tuple[int, int]
    identical: bool
    readings: Sequence[str]
    unanswered: Sequence[str]
    others: tuple[Sequence[str], Sequence[str]]


def pair(baseline: Record, candidate: Record, audit: Audit, names: Names, matched: Matched = ()) -> PairedRuns:
    """Pair the answers of two runs of an audit, or of one run with itself; refuses runs that are not comparable, and says why.

    `matched` are pairs of models; by default one with one whatever their names, several by name.
    """
    runs = baseline, candidate
    sides = _Sides(runs, names, audit, matched or _by_name(*map(models_of, runs)))
    sides.check_designs()
    sides.check_observations()
    sides.check_texts()
    own = [[_rows_of(run, one[at]) for one in sides.models] for at, run in enumerate(runs)]
    recorded = ["recorded" in run.manifest for run in runs]
    factors = _factors(own[0][0], own[1][0], of_tables=all(recorded)) if any(recorded) else ["item"]
    parts = [_shared(one, other, factors, sides, at) for at, (one, other) in enumerate(zip(*own, strict=True))]
    shared = _stacked([part[0] for part in parts]), _stacked([part[1] for part in parts])
    first, second, answered = _answered_in_both(*shared, baseline.manifest["design"])
    readings = _readings(*runs)
    if "decoding" in first and readings:  # a free reply answers the same query as a constrained answer
        second = second.assign(decoding=first["decoding"].to_numpy())
    unanswered = [_unanswered(part, sides, at) for at, part in enumerate(parts)]
    sides.check_items(*shared, unanswered=unanswered)
    designs = [ManifestFacts(run.manifest["design"], name, "its design") for run, name in zip(runs, names, strict=True)]
    others = [
        [name for name in models_of(run) if name not in {one[at] for one in sides.models} and not matched]
        for at, run in enumerate(runs)
    ]
    return PairedRuns(
        Observations(first, designs[0]),
        Observations(second, designs[1]),
        sides.models,
        n_items=len(shared[0]),
        n_answered=int(answered.sum()),
        n_alone=(sum(map(len, own[0])) - len(shared[0]), sum(map(len, own[1])) - len(shared[0])),
        identical=_identical(first[answered], second[answered]) and _same_outcomes(first, second),
        readings=readings,
        unanswered=list(filter(None, unanswered)),
        others=(others[0], others[1]),
    )


def _by_name(first: Sequence[str], second: Sequence[str]) -> Matched:
    """One model with one, whatever their names; several by name."""
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    return [(name, name) for name in first if name in second]


def matchings(baseline: Record, candidate: Record) -> list[Matched]:
    """All comparisons between the models of two runs.

    If each run has one model, these are compared, whatever their names. Otherwise models with equal names are compared together, and each
    model of one run only with each such model of the other.
    """
    first, second = models_of(baseline), models_of(candidate)
    shared = _by_name(first, second)
    if len(first) == len(second) == 1:
        return [shared]
    if not first or not second:
        return [[]]  # a run without items, which `pair` refuses
    apart = [(one, other) for one in first for other in second if one not in second or other not in first]
    return [*([shared] if shared else []), *([one] for one in apart)]


def models_of(record: Record) -> list[str]:
    """The models of a run, in its order."""
    if "model" not in record.observations:
        return [str(record.manifest["model"])]
    return list(dict.fromkeys(record.observations["model"].astype(str)))


# Comparability.


@dataclass(frozen=True, slots=True)
class _Sides:
    """Checks of the comparability of two runs; each raises an UndertowError with the difference and how to fix it."""

    runs: tuple[Record, Record]
    names: Names
    audit: Audit
    models: Matched

    def refuse(self, reason: str, fix: str, *, of_pair: bool = False) -> NoReturn:
        """Raise an UndertowError; an IncomparablePairError if other models of the runs may be comparable."""
        text = f"{self.names.baseline} and {self.names.candidate} cannot be compared: {reason}; {fix}"
        raise IncomparablePairError(text, reason) if of_pair else UndertowError(text)

    def facts(self, name: str, default: object = None) -> tuple[Any, Any]:
        """An entry of both manifests."""
        return self.runs[0].manifest.get(name, default), self.runs[1].manifest.get(name, default)

    def check_designs(self) -> None:
        """Check that audit, protocol and design are equal, and that there are common items and models."""
        audits, protocols = self.facts("audit"), self.facts("protocol")
        if audits[0] != audits[1]:
            problem = f"the first is a run of {audits[0]}, the second one of {audits[1]}"
            self.refuse(problem, "compare runs of one audit")
        if protocols[0] != protocols[1] and not _readings(*self.runs):
            problem = f"the first has protocol {protocols[0]}, the second {protocols[1]}"
            self.refuse(problem, "run one of them again under the protocol of the other")
        for name, (what, default) in ABSENT_AT_DEFAULT.items():
            values = [design.get(name, default) for design in self.facts("design")]
            if values[0] != values[1]:
                self.refuse(f"{what} {_both(*values)}", "compare runs that have the same")
        first, second = (
            {name: fact for name, fact in design.items() if name not in NOT_OF_QUESTIONS}
            for design in self.facts("design")
        )
        for name, *values in _differing(first, second):
            self.refuse(f"{name.replace('_', ' ')} {_both(*values)}", "run one of them again as the other was")
        for name, run in zip(self.names, self.runs, strict=True):
            if run.observations.empty:
                self.refuse(f"{name} has no items", "run its audit again")
        if not self.models:
            listed = "; ".join(shorten_list(models_of(run), 3) for run in self.runs)
            fix = "compare runs of one model each, or of models with the same names"
            self.refuse(f"they have no common models ({listed})", fix)

    def check_observations(self) -> None:
        """Check that the masses of both runs are on one scale, and that no required column is missing."""
        manifests = [run.manifest for run in self.runs]
        columns = [set(run.observations) for run in self.runs]
        schema = schema_of(manifests[0]["audit"])
        has_masses = "groups" in manifests[0]["design"] and not schema.shares_only
        for one, other in self.models if has_masses else ():
            scales = _scale(manifests[0], one), _scale(manifests[1], other)
            if scales[0] != scales[1] and (RECORDED not in scales or {LIKELIHOOD, UNSAID} & set(scales)):
                fix = "compare models with the same scoring method, or run both with the same --prompts"
                fix = "run the older one again" if UNSAID in scales else fix
                problem = f"masses of the first ({one}) are {SCALES[scales[0]]}, those of the second ({other})"
                problem += f" {SCALES[scales[1]]}"
                self.refuse(problem, fix, of_pair=True)
        if schema.required:
            needed = [[*schema.required, *manifest["design"].get("groups", ())] for manifest in manifests]
        else:  # an audit of another package must have equal columns in both runs
            needed = [[name for name in columns[at] if not _is_optional(str(name))] for at in (1, 0)]
        for at, name in enumerate(self.names):
            for column in ("item", *needed[at]):
                if column not in columns[at] and (column != "model" or len(models_of(self.runs[at])) > 1):
                    problem = f"the observations of {name} have no column {column!r}, which its audit needs"
                    self.refuse(problem, "run its audit again")

    def check_texts(self) -> None:
        """Check that texts differ only because of sample sizes."""
        others = [] if any("recorded" in run.manifest for run in self.runs) else self.other_texts
        seeds, limits = self.facts("seed", 0), self.facts("limit", 0)
        for first, second in others:
            for name, *values in _differing(first.get("settings", {}), second.get("settings", {})):
                fix = "run one of them again with the options of the other"
                self.refuse(f"their texts differ: option {name} {_both(*values)}", fix)
        if others and seeds[0] != seeds[1] and any(map(_depends_on_seed, self.runs)):
            problem = f"examples or answers were sampled with seed {seeds[0]} in the first and {seeds[1]} in the second"
            self.refuse(problem, f"run one of them again with --seed {seeds[0]}")
        if others and not self.audit.adaptive and seeds[0] == seeds[1] and limits[0] == limits[1]:
            hashes = " and ".join(str(one.get("challenge_sha256", ""))[:12] for one in others[0])
            problem = f"their texts differ though their options are equal (SHA-256 {hashes})"
            self.refuse(f"{problem}, so a file or the set has changed between them", "run the older one again")

    @property
    def other_texts(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """The manifest's entries of matched models with different texts."""
        first, second = (run.manifest for run in self.runs)
        entries = [(_of_model(first, one), _of_model(second, other)) for one, other in self.models]
        return [pair for pair in entries if pair[0].get("challenge_sha256") != pair[1].get("challenge_sha256")]

    def check_items(self, first: pd.DataFrame, second: pd.DataFrame, *, unanswered: Sequence[str]) -> None:
        """Check that common rows have the same questions (texts may differ with earlier answers) and some have answers in both."""
        if first.empty:
            titles = [str(design.get("title", "")) for design in self.facts("design")]
            sets = f" ({titles[0]}; {titles[1]})" if titles[0] != titles[1] else ""
            fix = "run one of them again with the challenge, --seed and --limit of the other"
            self.refuse(f"they have no common item{sets}", fix)
        earlier = schema_of(self.runs[0].manifest["audit"]).earlier_answers
        before = [name for name in earlier if name in first and name in second]
        same_before = (first[before].astype(str) == second[before].astype(str)).all(axis=1).to_numpy()
        for name in QUESTION_COLUMNS if self.other_texts else ():
            if name in first and name in second:
                texts = _as_text(first[name]), _as_text(second[name])
                differ = (texts[0] != texts[1]).to_numpy() & (same_before | (name != "text"))
                if differ.any():
                    at = int(differ.argmax())
                    values = _both(texts[0].iloc[at], texts[1].iloc[at])
                    problem = f"of item {first['item'].iloc[at]!r}, {name.replace('_', ' ')} {values}"
                    fix = "run one of them again with the challenge, options and --seed of the other"
                    self.refuse(f"their queries differ: {problem}", fix)
        if all(unanswered):
            self.refuse("; ".join(unanswered), "see their reports for the reasons", of_pair=True)


def _is_optional(column: str) -> bool:
    return column in ("model", "missing_reason", "text", "truncated_prob") or column.endswith((".low", ".high"))


def _readings(first: Record, second: Record) -> Sequence[str]:
    """Scoring of each run, if only one used free replies or both used different rules; () otherwise."""
    protocols = [str(run.manifest.get("protocol", "")) for run in (first, second)]
    ways = [str(run.manifest["design"].get("answer_reader", "")) for run in (first, second)]
    if ways[0] == ways[1] or not {*protocols} <= {EXACT, TEXT}:
        return ()
    return [f"free replies (rules {way})" if way else "its probabilities or constrained answers" for way in ways]


def _depends_on_seed(run: Record) -> bool:
    """Whether the seed affects the examples of a query, or the sampled answer."""
    frame = run.observations
    return bool(run.manifest["design"].get("sampled")) or ("n_shots" in frame and bool((frame["n_shots"] > 0).any()))


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Shared entries that differ; for tables, those whose shared entries differ."""
    for name, value in first.items():
        if name not in second or second[name] == value:
            continue
        if isinstance(value, Mapping) and isinstance(second[name], Mapping):
            yield from ((f"{name} of {key}", one, other) for key, one, other in _differing(value, second[name]))
        else:
            yield name, value, second[name]


def _both(first: object, second: object) -> str:
    """Two values in words, if they are short."""
    texts = repr(first), repr(second)
    if max(map(len, texts)) > 60:
        return "are not the same in both"
    return f"is {texts[0]} in the first and {texts[1]} in the second"


def _scale(manifest: Mapping[str, Any], model: str) -> str:
    """How masses were measured, one of `SCALES`."""
    design = manifest["design"]
    scoring_method = str(design.get("scoring_methods", {}).get(model, design.get("scoring_method", "")))
    if not scoring_method:
        return RECORDED if "recorded" in manifest else UNSAID
    return scoring_method if scoring_method in (LIKELIHOOD, PROMPT) else "place"


def _of_model(manifest: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """The manifest's entry of one model."""
    parts: Sequence[Mapping[str, Any]] = manifest.get("models", ())
    return next((part for part in parts if part["name"] == model), manifest)


# Identification of items.


def _rows_of(run: Record, model: str) -> pd.DataFrame:
    """The rows of one model."""
    frame = run.observations
    return frame[frame["model"].astype(str) == model].reset_index(drop=True) if "model" in frame else frame


def _factors(first: pd.DataFrame, second: pd.DataFrame, *, of_tables: bool) -> list[str]:
    """Shared columns that identify items, with the text of those without a document, pair or sentence: its cluster in recorded tables."""
    shared = [name for name in first if name in second]
    names = [name for name in FACTORS if name in shared]
    if not {"document", "pair", "sentence"}.isdisjoint(names):
        return names
    return [*names, "text" if "text" in shared and not of_tables else "cluster"]


def _shared(
    first: pd.DataFrame, second: pd.DataFrame, factors: Sequence[str], sides: _Sides, at: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The common rows, in the order of the first run."""
    import pandas as pd

    keys = [pd.Index(rows[list(factors)].astype(str).agg(BETWEEN.join, axis=1)) for rows in (first, second)]
    for name, model, own in zip(sides.names, sides.models[at], keys, strict=True):
        if own.has_duplicates:
            item = own[own.duplicated()][0].replace(BETWEEN, "/")
            raise UndertowError(f"{name}: two rows of {model} are item {item!r}; give each row an item of its own")
    place = keys[1].get_indexer(keys[0])
    return first[place >= 0].reset_index(drop=True), second.iloc[place[place >= 0]].reset_index(drop=True)


def _stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _missing_reasons(rows: pd.DataFrame) -> NDArray[Any]:
    """Why each row has no answer, "" if it has one [row]."""
    import numpy as np

    name = "missing_reason"
    if name not in rows:
        return np.full(len(rows), "", dtype=object)
    return rows[name].astype(object).where(rows[name].notna(), "").astype(str).to_numpy(dtype=object)


def _unanswered(rows: tuple[pd.DataFrame, pd.DataFrame], sides: _Sides, at: int) -> str:
    """Why no common row of two models has an answer in both, "" if one has or there is no common row."""
    reasons, several = [_missing_reasons(side) for side in rows], len(sides.models) > 1
    if ((reasons[0] == "") & (reasons[1] == "")).any() or not len(reasons[0]):
        return ""
    who = [f"{model} ({name})" if several else name for model, name in zip(sides.models[at], sides.names, strict=True)]
    for name, own in zip(who, reasons, strict=True):
        if (own != "").all():
            return f"{name} answered none of the common items ({Counter(own).most_common(1)[0][0].rstrip('.')})"
    return f"{who[0]} and {who[1]} answered none of the same items"


def _answered_in_both(
    first: pd.DataFrame, second: pd.DataFrame, design: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Both tables with a row missing where it is missing in either, and the rows answered in both [row]."""
    import numpy as np

    sides, name = (first, second), "missing_reason"
    reasons = [_missing_reasons(side) for side in sides]
    answered = (reasons[0] == "") & (reasons[1] == "")
    if name not in first or name not in second:
        # Without missing reasons, all items have answers.
        return first[answered].reset_index(drop=True), second[answered].reset_index(drop=True), answered[answered]
    marked = []
    for side, reason in zip(sides, reasons, strict=True):
        table = side.assign(**{name: np.where((reason == "") & ~answered, NO_ANSWER, reason)})
        masses = [*design.get("groups", ()), "other_words"]
        numbers = [name for one in masses for name in (one, f"{one}.low", f"{one}.high") if name in table]
        table.loc[~answered, numbers] = np.nan
        marked.append(table)
    return marked[0], marked[1], answered


def _same_outcomes(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether free replies have the same outcomes, including those without an answer."""
    name = "reply_outcome"
    if name not in first or name not in second:
        return name not in first and name not in second
    return bool((first[name].fillna("").to_numpy() == second[name].fillna("").to_numpy()).all())


def _as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Cells as text, where integers equal floats and lists compare by content."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype(float).astype(str)
    if _is_plain(column):
        return column.astype(str)
    return column.map(lambda cell: "; ".join(map(str, cell)) if hasattr(cell, "__len__") else str(cell))


def _identical(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Whether all answers are equal, ignoring the model."""
    names = [name for name in first if name not in ("item", "model", "missing_reason")]
    return set(first) == set(second) and all(_same(first[name], second[name]) for name in names)


def _same(first: pd.Series[Any], second: pd.Series[Any]) -> bool:
    """Whether two columns are equal: numbers to nine digits, lists by content."""
    import numpy as np

    numbers, others = _flat_numbers(first), _flat_numbers(second)
    if numbers is None or others is None:
        sides = [one if _is_plain(one) else _as_text(one) for one in (first, second)]
        return bool(sides[0].reset_index(drop=True).equals(sides[1].reset_index(drop=True)))
    (one, lengths), (other, of_other) = numbers, others
    if not np.array_equal(lengths, of_other):
        return False
    finite = np.abs(one[np.isfinite(one)])
    near = SAME_SHARE * finite.max() if len(finite) else 0.0
    return bool(np.allclose(one, other, rtol=0, atol=near, equal_nan=True))


def _flat_numbers(column: pd.Series[Any]) -> tuple[Any, Any] | None:
    """All numbers of a column, and their number per cell; None for integers and other types."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_float_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan), np.ones(len(column), dtype=np.int64)
    if pd.api.types.is_numeric_dtype(column) or _is_plain(column):
        return None
    cells = [np.asarray(cell) if hasattr(cell, "__len__") else np.asarray([cell]) for cell in column]
    if not all(one.ndim == 1 and one.dtype.kind in "fiu" for one in cells if one.size):
        return None
    lengths = np.array([one.size for one in cells], dtype=np.int64)
    return np.concatenate([*cells, np.empty(0)]).astype(np.float64), lengths


def _is_plain(column: pd.Series[Any]) -> bool:
    """Whether its cells are numbers or text."""
    known = column.dropna()
    return known.empty or isinstance(known.iloc[0], str) or not hasattr(known.iloc[0], "__len__")
