"""Judge whether a sentence determines its blank, or any answer would be a guess.

A `Guard` queries a model with a schema set once, fits the score `combined` to these labelled sentences, and then judges any sentence
with a blank.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow import data, models
from undertow._files import LONE_SURROGATE, decode_text, is_encodable, parse_json, read_file
from undertow._folders import cache_file, whole_file
from undertow.audits.base import Sampling
from undertow.audits.task_specification.audit import TaskSpecification
from undertow.audits.task_specification.findings import score_sentences
from undertow.audits.task_specification.items import Settings, items_of
from undertow.errors import UndertowError, short_traceback
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.inference.sanity_check import TIE_TOLERANCE
from undertow.models.backend.dtype import costs_precision
from undertow.models.base import FLOAT32, ModelHandle, ModelRequest, split_label
from undertow.report.sentence_templates import sentences
from undertow.runs.folder.storage import without_nan
from undertow.types import EXACT, Item, Progress, as_json, no_progress

if TYPE_CHECKING:
    import pandas as pd

    from undertow.metrics.reference_distribution import Reference, ReferenceRank


Options = str | Mapping[str, Sequence[str]]
"""Word groups: `female: she, her; male: he`, or the same as a table of lists."""


SCORES = ("total_variation", "jensen_shannon", "entropy")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one sentence.

    Attributes:
        text: the sentence, its blank marked `{blank}`.
        unspecified: True if the sentence does not determine the answer, which is then a guess; None without an answer.
        chance_percent: probability that it is underspecified, with a prior of 50%; NaN for word groups that the schema set lacks.
        advice: advice in one sentence.
        rests_on: the score behind the verdict, and its accuracy on the schema set, in one sentence.
        percent: share of each word group, by W value.
        scores: movements and entropy, with their ranks among the schema set's sentences.
        other_words_percent: the largest share of other words, over the W values.
        missing_reason: why there is no verdict; "" if there is one.
        notes: caveats on how the model was queried.
    """

    text: str
    unspecified: bool | None
    chance_percent: float
    advice: str
    rests_on: str
    percent: Mapping[str, Mapping[str, float]]
    scores: Mapping[str, ReferenceRank]
    other_words_percent: float
    missing_reason: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        chance = "" if math.isnan(self.chance_percent) else f", chance_percent={self.chance_percent:.1f}"
        reason = f", missing_reason={self.missing_reason!r}" if self.missing_reason else ""
        return f"{type(self).__name__}({self.text!r}, unspecified={self.unspecified}{chance}{reason})"

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain


class Guard:
    """Judges sentences for one model.

    Args:
        handle: the model; loaded at the first query that is not cached.
        settings: settings of the task-specification audit: schema set, W and its injection.
        progress: called with (queries done, queries in all) for the schema set.

    Attributes:
        reference: the reference distribution from the schema set.
        notes: caveats of every verdict.

    Raises:
        UndertowError: the model or the set cannot be loaded, or too few sentences have an answer.
    """

    def __init__(self, handle: ModelHandle, settings: Settings, progress: Progress = no_progress) -> None:
        from undertow.metrics.reference_distribution import Reference

        self._handle = replace(handle, open=cache(handle.open))
        self._settings = settings
        items = next(TaskSpecification().items(settings, Sampling()))
        design = TaskSpecification().design(settings)
        scored, _ = self._scored(items, design, progress)
        if "well_specified" not in scored:
            raise UndertowError(
                f"challenge {settings.challenge!r} does not say which of its sentences determine their blank; "
                "add a column well_specified, or use undertow-schemas"
            )
        self.reference: Reference = Reference.from_scores(scored, design["words"])
        name, dtype = handle.identity.name, handle.identity.dtype
        note = f"{name} ran in {dtype}; verdicts in reduced precision are not checked against float32."
        self.notes: tuple[str, ...] = (note,) if costs_precision(handle.identity) else ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._handle.identity.name!r}, challenge={self._settings.challenge!r})"

    @short_traceback
    def __call__(self, text: str, options: Options = "") -> Verdict:
        """The verdict on one sentence with a blank (`{blank}`, `[MASK]` or `___`).

        Args:
            text: the sentence.
            options: words for the blank, by group; by default pronouns, in the case that the model finds most probable.

        Raises:
            UndertowError: the sentence has no blank, or the options are invalid.
        """
        (verdict,) = self.check([(text, options)])
        return verdict

    @short_traceback
    def check(self, sentences: Iterable[tuple[str, Options]], progress: Progress = no_progress) -> list[Verdict]:
        """Verdicts on many sentences, (text, options) each, in one batch.

        Raises:
            UndertowError: a sentence is invalid; then no model is queried.
        """
        numbered = [(number, variant) for number, one in enumerate(sentences) for variant in _variants(number, *one)]
        together: dict[tuple[str, ...], list[tuple[int, data.SentenceSet]]] = {}
        for number, variant in numbered:
            together.setdefault(variant.groups, []).append((number, variant))
        best: dict[int, tuple[float, Verdict]] = {}
        for variants in together.values():
            for number, likely, verdict in self._verdicts(variants, progress):
                if number not in best or likely > best[number][0]:
                    best[number] = likely, verdict
        return [best[number][1] for number in sorted(best)]

    def _verdicts(
        self, variants: Sequence[tuple[int, data.SentenceSet]], progress: Progress
    ) -> Iterator[tuple[int, float, Verdict]]:
        """Judge sentences with the same groups together: number, log-likelihood of the text, verdict."""
        by_id = {variant.sentences[0].id: (number, variant) for number, variant in variants}
        first = variants[0][1]
        words = {
            group: tuple(dict.fromkeys(w for _, variant in variants for w in variant.words[group]))
            for group in first.groups
        }
        whole = replace(first, words=words, sentences=tuple(variant.sentences[0] for _, variant in variants))
        design = TaskSpecification().design(self._settings) | {"groups": list(first.groups)}
        scored, frame = self._scored(items_of(whole, self._settings), design, progress)
        rows_of = dict(iter(frame.groupby("sentence", sort=False)))
        for index, row in enumerate(scored.to_dict("records")):
            number, variant = by_id[str(row["sentence"])]
            chance = float(self.reference.chances_percent(scored.iloc[[index]], variant.words)[0])
            rows = rows_of[row["sentence"]]
            yield number, _likelihood_nats(rows), self._verdict(row, chance, rows, variant)

    def _verdict(self, row: Mapping[Any, Any], chance: float, rows: pd.DataFrame, variant: data.SentenceSet) -> Verdict:
        of, accuracy = self.reference, self.reference.accuracy
        masses = rows.set_index(rows["w"].astype(str))[list(variant.groups)].astype(float)
        masses = 100 * masses.div(masses.sum(axis=1, skipna=False), axis=0)
        score_names = [*(f"delta_{group}" for group in variant.groups), *SCORES]
        verdict = Verdict(
            text=variant.title,
            unspecified=None,
            chance_percent=math.nan,
            advice="There is no verdict on this sentence.",
            rests_on="",
            percent={str(w): masses.loc[w].to_dict() for w in masses.index},
            scores={name: of.rank_of(name, float(row[name])) for name in score_names},
            other_words_percent=math.nan,
            missing_reason=str(row["missing_reason"]),
            notes=self.notes,
        )
        if verdict.missing_reason:
            return verdict
        is_fitted, threshold = math.isfinite(chance), of.thresholds["total_variation"]
        unspecified = chance > 50 if is_fitted else float(row["total_variation"]) > threshold
        basis = "combined" if is_fitted else "total_variation"
        other_percent = float(rows["other_words"].max())
        shares = {group: float(row[f"mean_{group}"]) for group in variant.groups}
        preferred = max(shares, key=lambda group: shares[group])
        is_tie = sum(share >= shares[preferred] * (1 - TIE_TOLERANCE) for share in shares.values()) > 1
        named = "" if is_tie else preferred
        text, right = sentences("guard"), accuracy[basis]
        neutral = variant.words.get("neutral", ())
        return replace(
            verdict,
            unspecified=unspecified,
            chance_percent=chance,
            advice=text.advice(unspecified, named, shares[preferred], neutral, other_percent, right),
            rests_on=text.rests_on(is_fitted, threshold, of.name, right, of.area[basis]),
            other_words_percent=other_percent,
        )

    def _scored(
        self, items: list[Item], design: Mapping[str, Any], progress: Progress
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        with AnswerCache(cache_file()) as store:
            result = run_queries(self._handle, [item.query for item in items], store, EXACT, progress)
        observations = TaskSpecification().observe(design, items, result.scores, self._handle.identity.name)
        return score_sentences(observations), observations.frame


@short_traceback
def guard(  # noqa: PLR0913 - a keyword for each choice a user has
    model: str | Path,
    *,
    challenge: str = "undertow-schemas",
    data_dir: str = "",
    w: str = "date",
    inject: str = "In {w}: ",
    date_start: int = 1901,
    date_stop: int = 2016,
    date_count: int = 2,
    endpoint_window: int = 1,
    revision: str = "",
    dtype: str = FLOAT32,
    device: str = "auto",
    progress: Progress = no_progress,
    **options: Any,
) -> Guard:
    """A guard for one model: a function from a sentence with a blank to a `Verdict`.

    The first call for a model queries the schema set (about a minute for a small model on two cores); later calls read the
    answer cache and take seconds.

    Args:
        model: a name of `undertow list models`, a hub id, or the path of a folder or GGUF file.
        challenge: the schema set to learn from, with labelled sentences.
        data_dir: folder with the published files of winogender, if that is the set.
        w: the W list: date, place, subreddit, or a file.
        inject: template that puts W into a sentence.
        date_start: first year of the list of dates.
        date_stop: last year.
        date_count: number of years.
        endpoint_window: number of W values to average at each end of the list.
        revision: of a hub id.
        dtype: precision of the arithmetic; verdicts in reduced precision are not checked against float32, and have a note.
        device: `auto`, `cpu`, `cuda`, ...
        progress: called with (queries done, queries in all).
        options: those of model families, for example `base_url` of `openai:MODEL`.

    Raises:
        UndertowError: anything that the caller can fix.
    """
    if "," in w:
        raise UndertowError(f"w {w!r} names several lists; a guard uses one")
    settings = Settings(
        challenge=challenge,
        data_dir=data_dir,
        w=w,
        inject=inject,
        date_start=date_start,
        date_stop=date_stop,
        date_count=date_count,
        endpoint_window=endpoint_window,
    )
    if not isinstance(model, str | Path):
        raise UndertowError(
            f"guard needs the name or path of a model, not {type(model).__name__}; save a network with save_pretrained and name the folder"
        )
    label, name = split_label(str(model))
    request = ModelRequest(name, revision, dtype, device, models.checked_settings(options), label=label)
    handle = models.resolve(request)
    models.refuse_unused(request.settings, [handle])
    return Guard(handle, settings, progress)


def check_sentence(text: str, options: Options = "") -> None:
    """Refuse a sentence without a blank or with several, and invalid options, before any model is queried."""
    _variants(0, text, options)


CASES = ("nominative", "accusative", "possessive")


def _variants(number: int, text: str, options: Options = "") -> list[data.SentenceSet]:
    """The sentence with the options, or with the pronouns of each case, of which the most probable is used."""
    if options:
        return [data.single(str(number), text, options)]
    cases = CASES[:1] if "{verb:" in text else CASES
    return [data.single(f"{number}/{case}", text, case=case) for case in cases]


def _likelihood_nats(rows: pd.DataFrame) -> float:
    """Log-likelihood of the text with any of its options, mean over W; minus infinity if an answer is missing."""
    if (rows["missing_reason"] != "").any():
        return -math.inf
    return float(np.mean([np.logaddexp.reduce(np.array(one)[~np.isnan(one)]) for one in rows["logprobs_nats"]]))


AT_ONCE = 200
"""Number of lines that are judged, and written, together."""
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    Attributes:
        record: its object, whose keys come back with the verdict.
        text: the sentence.
        options: words for its blank; "" for pronouns.
    """

    record: Mapping[str, Any]
    text: str
    options: Options


def read_lines(path: Path, options: str = "") -> list[Line]:
    """Read and check every line of a JSONL file, without empty ones. `options` are for lines without. Errors name the line."""
    rows = decode_text(read_file(path, MAX_BYTES, "a file of sentences"), path).split("\n")
    lines = []
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            record = parse_json(row)
            text, own = (record.get("text"), record.get("options") or options) if isinstance(record, dict) else ("", "")
            if not text or not isinstance(text, str):
                raise ValueError('needs an object with a "text"')
            if not is_encodable(json.dumps(record, ensure_ascii=False)):
                raise ValueError(f"{LONE_SURROGATE}, which cannot be written")
            if wrong := [key for key in record if key.casefold() in ("option", "options") and key != "options"]:
                raise ValueError(f"has the key {wrong[0]!r}; the key for the words of the blank is 'options'")
            if not isinstance(own, (str, dict)):
                raise ValueError("options must be a text such as 'yes: is; no: is not', or a table of lists of words")
            data.single("line", text, own)
        except (ValueError, UndertowError) as error:
            not_json = isinstance(error, json.JSONDecodeError)
            reason = f"is not JSON ({error}); write one object a line" if not_json else error
            raise UndertowError(f"{path}, line {number}: {reason}") from error
        lines.append(Line(record, text, own))
    if not lines:
        raise UndertowError(
            f'{path}: holds no lines; write one object a line, such as {{"text": "The doctor said {{blank}} was late."}}'
        )
    return lines


def check_out(out: Path | None) -> None:
    """Refuse a file that exists already, or whose folder does not, before any model is queried."""
    if out is not None and not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder does not exist; create it, or name another file with --out")
    if out is not None and out.exists():
        raise UndertowError(f"{out}: exists already; name another file with --out, or remove it")


def write_verdicts(guard: Guard, lines: Sequence[Line], out: Path | None) -> None:
    """Write one JSON object per line, in order: its own keys, then the verdict; to standard output without a file.

    Raises:
        UndertowError: a model or file error; answers so far stay in the cache, and verdicts so far are written.
    """
    with nullcontext(sys.stdout) if out is None else whole_file(out) as file:
        for start in range(0, len(lines), AT_ONCE):
            part = lines[start : start + AT_ONCE]
            for line, verdict in zip(part, guard.check([(line.text, line.options) for line in part]), strict=True):
                file.write(as_json(without_nan({**line.record, "verdict": verdict.as_json()})) + "\n")
            file.flush()
