"""Pair two runs item by item, or refuse runs that are not comparable; docs/decisions/023 says which runs are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from undertow.audits.base import Audit, Observations
from undertow.errors import UndertowError
from undertow.runs.folder.storage import ManifestFacts, Record
from undertow.types import LIKELIHOOD, PROMPT

if TYPE_CHECKING:
    import pandas as pd

NOT_OF_QUESTIONS = frozenset(
    {
        "models", "scoring_methods", "scoring_method", "normalised", "title", "source", "notes", "document_notes", "protocol", "words",
        "prompts", "prompt_masks", "w_notes", "limitations", "controls", "tokens_of_word",
    }
)  # fmt: skip
"""Facts of a design that are about models or for a reader, or that the texts tell; all others must be the same in both runs."""
SHARES_HOWEVER_READ = ("task-specification",)
"""Audits whose measures take shares between the word groups, so that it does not matter how masses were read."""
QUESTION_COLUMNS = (
    "text", "passage", "gold", "expected", "well_specified", "w_name", "w_index", "w_value", "w", "template", "wording", "decoding",
    "n_shots", "attribute_donor", "options", "cluster",
)  # fmt: skip
"""Columns that say what was asked: they are the same for an item of both, or it is not the same item."""
ANSWERED_BEFORE = ("granted_female", "granted_male")
"""Columns with earlier answers that went into a question: where they differ, so may its text."""
FACTORS = (
    "challenge", "prompt", "part", "w_name", "w_index", "w", "sentence", "document", "description_class", "wording", "shots",
    "sampling", "draw", "decoding", "question_type", "pair", "occupation", "attribute", "category", "context", "order", "subject",
    "attribute_holder",
)  # fmt: skip
"""Columns that tell the rows of a recorded table apart; its names of items say who answered, or where a row stands."""
NAMED_BY = ("document", "pair", "sentence")
"""One of these says which text a row is of; where there is none, its cluster does."""
NO_ANSWER = "the other run has no answer to it"
SAME_SHARE = 1e-9
"""Numbers of a column that are nearer than this share of its largest are the same: another processor rounds otherwise."""
Matched: TypeAlias = Sequence[tuple[str, str]]
"""Models of the baseline and those of the candidate that they are compared with."""


class Names(NamedTuple):
    """The names of the two runs."""

    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Two runs on the items that both have, the same rows in the same order.

    Attributes:
        baseline, candidate: observations; a row without an answer in one is missing in both.
        models: pairs of models, by their names in the runs.
        n_items: number of rows.
        n_answered: of these, rows with an answer in both.
        n_alone: rows of compared models in the baseline only, and in the candidate only.
        identical: whether all answers are the same, to nine digits.
        others: models of the baseline, and of the candidate, that are not compared, unless the caller chose pairs.
    """

    baseline: Observations
    candidate: Observations
    models: Matched
    n_items: int
    n_answered: int
    n_alone: tuple[int, int]
    identical: bool
    others: tuple[Sequence[str], Sequence[str]]


def pair(baseline: Record, candidate: Record, audit: Audit, names: Names, matched: Matched = ()) -> PairedRuns:
    """Pair the answers of two runs.

    Args:
        baseline: the baseline run.
        candidate: the other run, or the same run with other models.
        audit: their audit.
        names: their names.
        matched: pairs of models; by default those of `matched_models`.

    Raises:
        UndertowError: they are not comparable; says what differs and how to fix it.
    """
    _check_audits(baseline.manifest, candidate.manifest, names)
    for record, name in zip((baseline, candidate), names, strict=True):
        if record.observations.empty:
            raise UndertowError(f"{name}: the run has no items, so that nothing can be compared; run the audit again")
    designs = [
        ManifestFacts(record.manifest["design"], name, "its design")
        for record, name in zip((baseline, candidate), names, strict=True)
    ]
    models = matched or matched_models(baseline, candidate, names)
    _check_readouts(baseline.manifest, candidate.manifest, models, names)
    same_texts = True
    for one in models:
        same_texts &= _same_questions((baseline, candidate), one, audit, names)
    keyed = [
        _KeyedRows.from_record(record, [one[at] for one in models], names[at])
        for at, record in enumerate((baseline, candidate))
    ]
    recorded = ["recorded" in record.manifest for record in (baseline, candidate)]
    factors = _factors([one.rows for one in keyed], of_tables=all(recorded)) if any(recorded) else []
    parts = [_matched(keyed, one, factors) for one in models]
    first, second = (_stacked([part[at] for part in parts]) for at in (0, 1))
    if first.empty:
        raise _nothing_shared(baseline.manifest, candidate.manifest, names)
    if not same_texts:
        _check_rows(first, second, names)
    n_alone = (len(keyed[0].rows) - len(first), len(keyed[1].rows) - len(first))
    first, second, answered = _answered_in_both(first, second, baseline.manifest["design"])
    if not answered.any():
        raise UndertowError(
            f"{names.baseline} and {names.candidate} cannot be compared: of {len(first):,} items that both have, none has an "
            "answer in both; their pages say why"
        )
    return PairedRuns(
        Observations(first, designs[0]),
        Observations(second, designs[1]),
        models,
        n_items=len(first),
        n_answered=int(answered.sum()),
        n_alone=n_alone,
        identical=_identical(first[answered], second[answered]),
        others=([], []) if matched else (_others(baseline, models, 0), _others(candidate, models, 1)),
    )


# Whether they are comparable.


def _refuse(names: Names, why: str, mend: str) -> UndertowError:
    return UndertowError(f"{names.baseline} and {names.candidate} cannot be compared: {why}; {mend}")


def _check_audits(first: Mapping[str, Any], second: Mapping[str, Any], names: Names) -> None:
    """Refuse runs with another audit, protocol or design."""
    if first["audit"] != second["audit"]:
        why = f"the first is a run of {first['audit']}, the second one of {second['audit']}"
        raise _refuse(names, why, "compare runs of one audit")
    if first["protocol"] != second["protocol"]:
        why = f"the first has protocol {first['protocol']}, the second {second['protocol']}"
        raise _refuse(names, why, "run one of them again under the protocol of the other")
    for name, of_first, of_second in _differing(_facts(first["design"]), _facts(second["design"])):
        why = f"{_spaced(name)} {_both(of_first, of_second)}"
        raise _refuse(names, why, "run one of them again as the other was")


def _facts(design: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a design that define the queries."""
    return {name: value for name, value in design.items() if name not in NOT_OF_QUESTIONS}


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Shared entries that differ; for tables, those whose shared entries differ."""
    for name, value in first.items():
        if name not in second or second[name] == value:
            continue
        if isinstance(value, Mapping) and isinstance(second[name], Mapping):
            yield from ((f"{name} of {key}", one, other) for key, one, other in _differing(value, second[name]))
        else:
            yield name, value, second[name]


def _both(first: Any, second: Any) -> str:
    """Two values in words, if they are short."""
    texts = [repr(one) for one in (first, second)]
    if max(map(len, texts)) > 60:
        return "are not the same in both"
    return f"is {texts[0]} in the first and {texts[1]} in the second"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def matched_models(baseline: Record, candidate: Record, names: Names) -> list[tuple[str, str]]:
    """Pairs of models: one with one whatever their names, several by name.

    Raises:
        UndertowError: several models, and no name in both runs.
    """
    first, second = (models_of(record) for record in (baseline, candidate))
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    shared = [name for name in first if name in second]
    if not shared:
        why = f"of several models, they have none in common ({_listed(first)}; {_listed(second)})"
        raise _refuse(names, why, "compare runs of one model each, or of models with the same names")
    return [(name, name) for name in shared]


def matchings(baseline: Record, candidate: Record) -> list[Matched]:
    """All comparisons between the models of two runs.

    One model is compared with one, whatever their names; of several those of one name together, and each that only one run has with
    each of the other.
    """
    first, second = models_of(baseline), models_of(candidate)
    if len(first) == len(second) == 1:
        return [[(first[0], second[0])]]
    if not first or not second:
        return [[]]  # a run without items, which `pair` refuses
    shared = [(name, name) for name in first if name in second]
    apart = [(one, other) for one in first for other in second if one not in second or other not in first]
    return [*([shared] if shared else []), *([one] for one in apart)]


def _others(record: Record, models: Matched, at: int) -> list[str]:
    """Models of a run that are not compared."""
    return [name for name in models_of(record) if name not in {one[at] for one in models}]


def _listed(models: Sequence[str]) -> str:
    more = f" and {len(models) - 3} more" if len(models) > 3 else ""
    return ", ".join(models[:3]) + more


def models_of(record: Record) -> list[str]:
    """The models of a run, in its order."""
    if "model" not in record.observations:
        return [str(record.manifest["model"])]
    return list(dict.fromkeys(record.observations["model"].astype(str)))


RECORDED, UNSAID = "", "unsaid"
KINDS = {
    RECORDED: "masses as they were recorded",
    UNSAID: "those of an older run, whose design does not say how they were read",
    LIKELIHOOD: "shares of what the listed words have between them",
    PROMPT: "probabilities in an answer to a prompt",
    "place": "probabilities of words in their place",
}


def _check_readouts(first: Mapping[str, Any], second: Mapping[str, Any], models: Matched, names: Names) -> None:
    """Refuse masses of word groups on different scales."""
    if "groups" not in first["design"] or first["audit"] in SHARES_HOWEVER_READ:
        return
    for one in models:
        kinds = [_kind(manifest, name) for manifest, name in zip((first, second), one, strict=True)]
        if kinds[0] != kinds[1] and (RECORDED not in kinds or LIKELIHOOD in kinds or UNSAID in kinds):
            said = [KINDS[kind] for kind in kinds]
            why = f"masses of the first ({one[0]}) are {said[0]}, those of the second ({one[1]}) {said[1]}"
            mend = "compare models that are read alike, or run both with the same --prompts"
            raise _refuse(names, why, "run the older one again" if UNSAID in kinds else mend)


def _kind(manifest: Mapping[str, Any], model: str) -> str:
    """How masses were measured, one of `KINDS`."""
    design = manifest["design"]
    scoring_method = str(design.get("scoring_methods", {}).get(model, design.get("scoring_method", "")))
    if not scoring_method:
        return RECORDED if "recorded" in manifest else UNSAID
    return scoring_method if scoring_method in (LIKELIHOOD, PROMPT) else "place"


def _same_questions(records: tuple[Record, Record], models: tuple[str, str], audit: Audit, names: Names) -> bool:
    """Whether both models got exactly the same texts; False for a part of them, or for texts that depend on answers.

    Raises:
        UndertowError: they got other texts.
    """
    first, second = (_of_model(record.manifest, name) for record, name in zip(records, models, strict=True))
    if first.get("challenge_sha256") == second.get("challenge_sha256"):
        return True
    if any("recorded" in record.manifest for record in records):
        return False
    for name, of_first, of_second in _differing(first.get("settings", {}), second.get("settings", {})):
        why = f"their texts differ: option {name} {_both(of_first, of_second)}"
        raise _refuse(names, why, "run one of them again with the options of the other")
    manifests = [record.manifest for record in records]
    seeds, limits = ([manifest.get(name, 0) for manifest in manifests] for name in ("seed", "limit"))
    if seeds[0] != seeds[1] and any(_drawn(record) for record in records):
        why = f"examples or answers were drawn with seed {seeds[0]} in the first and {seeds[1]} in the second"
        raise _refuse(names, why, f"run one of them again with --seed {seeds[0]}")
    if seeds[0] == seeds[1] and limits[0] == limits[1] and not audit.adaptive:
        why = (
            f"their texts differ though their options are equal (SHA-256 {str(first.get('challenge_sha256', ''))[:12]} and "
            f"{str(second.get('challenge_sha256', ''))[:12]}), so a file or the set has changed between them"
        )
        raise _refuse(names, why, "run the older one again")
    return False


def _of_model(manifest: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """The manifest's entry of one model."""
    parts: Sequence[Mapping[str, Any]] = manifest.get("models", ())
    return next((part for part in parts if part["name"] == model), manifest)


def _drawn(record: Record) -> bool:
    """Whether the seed decides the examples before a query, or the sampled answer."""
    frame = record.observations
    examples = "n_shots" in frame and bool((frame["n_shots"] > 0).any())
    return examples or bool(record.manifest["design"].get("sampled"))


def _nothing_shared(first: Mapping[str, Any], second: Mapping[str, Any], names: Names) -> UndertowError:
    titles = [str(manifest["design"].get("title", "")) for manifest in (first, second)]
    which = f" ({titles[0]}; {titles[1]})" if titles[0] != titles[1] else ""
    mend = "run one of them again with the challenge, --seed and --limit of the other"
    return _refuse(names, f"they share no item{which}", mend)


# Which item is which.


@dataclass(frozen=True, slots=True)
class _KeyedRows:
    """The rows of a run's compared models, with keys from their factors.

    Attributes:
        name: name of the run.
        rows: rows of these models.
        model: model of each row [row].
    """

    name: str
    rows: pd.DataFrame
    model: pd.Series[Any]

    @classmethod
    def from_record(cls, record: Record, models: Sequence[str], name: str) -> _KeyedRows:
        import pandas as pd

        frame = record.observations
        if "item" not in frame:
            raise UndertowError(
                f"{name}: its observations have no column 'item', so that nothing can be paired; run the audit again"
            )
        model = frame["model"].astype(str) if "model" in frame else pd.Series(models[0], index=frame.index)
        chosen = model.isin(models)
        return cls(name, frame[chosen].reset_index(drop=True), model[chosen].reset_index(drop=True))

    def of_model(self, model: str, factors: Sequence[str]) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """The rows of one model, and their keys: these factors, or the item's name without factors.

        Raises:
            UndertowError: two rows have the same key.
        """
        rows = self.rows[self.model == model].reset_index(drop=True)
        keys = rows[list(factors)].astype(str).agg(BETWEEN.join, axis=1) if factors else rows["item"].astype(str)
        twice = keys.duplicated()
        if twice.any():
            item = keys[twice].iloc[0].replace(BETWEEN, "/")
            raise UndertowError(
                f"{self.name}: item {item!r} of {model} is there twice, so that it cannot be paired; give each row one of its own"
            )
        return rows, keys


BETWEEN = "\x1f"


def _factors(tables: Sequence[pd.DataFrame], *, of_tables: bool) -> list[str]:
    """Shared columns that identify items; a cluster identifies a text in recorded tables only."""
    shared = [name for name in tables[0] if name in tables[1]]
    names = [name for name in FACTORS if name in shared]
    if any(name in names for name in NAMED_BY):
        return names
    return [*names, "text" if "text" in shared and not of_tables else "cluster"]


def _matched(
    keyed: Sequence[_KeyedRows], models: tuple[str, str], factors: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The shared rows, in the order of the first."""
    import pandas as pd

    (first, keys), (second, others) = (one.of_model(model, factors) for one, model in zip(keyed, models, strict=True))
    place = pd.Series(range(len(second)), index=others.to_numpy(), dtype="int64")
    at = keys.map(place)
    shared = at.notna().to_numpy()
    chosen = at[shared].astype("int64").to_numpy()
    return first[shared].reset_index(drop=True), second.iloc[chosen].reset_index(drop=True)


def _stacked(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _check_rows(first: pd.DataFrame, second: pd.DataFrame, names: Names) -> None:
    """Refuse rows with different queries.

    Raises:
        UndertowError: a query differs; names the first such item.
    """
    import numpy as np

    same_before = np.ones(len(first), dtype=np.bool_)
    for name in ANSWERED_BEFORE:
        if name in first and name in second:
            same_before &= (first[name].astype(str) == second[name].astype(str)).to_numpy()
    for name in QUESTION_COLUMNS:
        if name not in first or name not in second:
            continue
        sides = [_as_text(side[name]) for side in (first, second)]
        differ = (sides[0] != sides[1]).to_numpy()
        if name == "text":
            differ = differ & same_before
        if differ.any():
            at = int(differ.argmax())
            why = (
                f"their queries differ: of item {first['item'].iloc[at]!r}, {_spaced(name)} "
                f"{_both(sides[0].iloc[at], sides[1].iloc[at])}"
            )
            raise _refuse(names, why, "run one of them again with the challenge, options and --seed of the other")


def _as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Cells as text, where integers equal floats and lists compare by content."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return column.astype(float).astype(str)
    if _is_plain(column):
        return column.astype(str)
    return column.map(lambda cell: "; ".join(map(str, cell)) if hasattr(cell, "__len__") else str(cell))


def _answered_in_both(
    first: pd.DataFrame, second: pd.DataFrame, design: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Both tables with a row missing where it is missing in either, and the rows answered in both [row]."""
    import numpy as np
    import pandas as pd

    sides, reasons = (first, second), []
    for side in sides:
        given = (
            side["missing_reason"].map(lambda cell: "" if pd.isna(cell) else str(cell))
            if "missing_reason" in side
            else ""
        )
        reasons.append(
            np.full(len(side), given, dtype=object) if isinstance(given, str) else given.to_numpy(dtype=object)
        )
    answered = (reasons[0] == "") & (reasons[1] == "")
    if "missing_reason" not in first or "missing_reason" not in second:
        # An audit that does not say so has an answer to everything.
        return first[answered].reset_index(drop=True), second[answered].reset_index(drop=True), answered[answered]
    marked = []
    for side, reason in zip(sides, reasons, strict=True):
        table = side.copy()
        table["missing_reason"] = np.where((reason == "") & ~answered, NO_ANSWER, reason)
        masses = [*design.get("groups", ()), "other_words"]
        numbers = [name for one in masses for name in (one, f"{one}.low", f"{one}.high") if name in table]
        table.loc[~answered, numbers] = np.nan
        marked.append(table)
    return marked[0], marked[1], answered


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
