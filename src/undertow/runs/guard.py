"""Judge whether a sentence decides its blank, or any answer would be a guess.

A `Guard` queries a model with a schema set once, learns how far its answers move with W in sentences that decide their blank
and in those that do not, and then judges any sentence with a blank.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from undertow import data, models
from undertow import data as challenge
from undertow._files import LONE_SURROGATE, decode_text, is_encodable, parse_json, read_file
from undertow._folders import cache_file
from undertow.audits.base import EXACT, Sampling
from undertow.audits.task_specification.audit import TaskSpecification
from undertow.audits.task_specification.items import Settings, items_of
from undertow.audits.task_specification.scores import scored as score_sentences
from undertow.errors import UndertowError, short_traceback
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import Progress, run_queries
from undertow.models.backend.dtype import costs_precision
from undertow.models.base import FLOAT32, ModelHandle, ModelRequest
from undertow.types import Item, ModelIdentity, as_json

if TYPE_CHECKING:
    import pandas as pd

    from undertow.metrics.reference_distribution import Reference, ReferenceRank


Options = str | Mapping[str, Sequence[str]]
"""Word groups: `female: she, her; male: he`, or the same as a table of lists."""


SCORES = ("total_variation", "jensen_shannon", "entropy")


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one sentence.

    Attributes:
        text: the sentence, its blank marked `{blank}`.
        unspecified: True where the answer is a guess, since nothing in the sentence decides it; None without
            an answer.
        chance_percent: probability that it is unspecified, with a prior of 50%; NaN for word groups that the schema set lacks.
        advice: what to do with it, in one sentence.
        rests_on: the score that the verdict rests on, and how well it does on the schema set, in one sentence.
        percent: share of each word group of what they have together, by W value.
        scores: movements and entropy, with their ranks among the schema set's sentences.
        other_words_percent: the largest share of other words, over the W values.
        missing_reason: why there is no verdict; "" where there is one.
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
        plain: dict[str, Any] = _without_nan(asdict(self))
        return plain


class Guard:
    """Judges sentences for one model.

    Args:
        handle: the model; loaded at the first query that is not cached, and kept.
        settings: settings of the task-specification audit: schema set, W and its injection.
        progress: called with (queries done, queries in all) for the schema set.

    Attributes:
        reference: the reference distribution from the schema set.
        notes: caveats of every verdict.

    Raises:
        UndertowError: the model or the set cannot be loaded, or too few sentences have an answer.
    """

    def __init__(self, handle: ModelHandle, settings: Settings, progress: Progress = _silent) -> None:
        from undertow.metrics.reference_distribution import Reference

        self._handle = replace(handle, open=cache(handle.open))
        self._settings = settings
        items = next(TaskSpecification().items(settings, Sampling()))
        design = TaskSpecification().design(settings)
        scored, _ = self._scored(items, design, progress)
        if "well_specified" not in scored:
            raise UndertowError(
                f"challenge {settings.challenge!r} does not say which of its sentences decide their blank, so nothing can be "
                "compared with it; add a column well_specified, or use undertow-schemas"
            )
        self.reference: Reference = Reference.of(scored, design["words"])
        self.notes = _notes(handle.identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self._handle.identity.name!r}, challenge={self._settings.challenge!r})"

    @short_traceback
    def __call__(self, text: str, options: Options = "") -> Verdict:
        """The verdict on one sentence with a blank (`{blank}`, `[MASK]` or `___`).

        Args:
            text: the sentence.
            options: words for the blank, by group; by default pronouns, in the case that the model finds likeliest.

        Raises:
            UndertowError: the sentence has no blank, or the options are invalid.
        """
        (verdict,) = self.check([(text, options)])
        return verdict

    @short_traceback
    def check(self, sentences: Iterable[tuple[str, Options]], progress: Progress = _silent) -> list[Verdict]:
        """Verdicts on many sentences, (text, options) each, in one batch.

        Raises:
            UndertowError: a sentence is invalid; then no model is queried.
        """
        numbered = [(number, variant) for number, one in enumerate(sentences) for variant in _variants(number, *one)]
        together: dict[tuple[str, ...], list[tuple[int, challenge.SentenceSet]]] = {}
        for number, variant in numbered:
            together.setdefault(variant.groups, []).append((number, variant))
        best: dict[int, tuple[float, Verdict]] = {}
        for variants in together.values():
            for number, likely, verdict in self._judged(variants, progress):
                if number not in best or likely > best[number][0]:
                    best[number] = likely, verdict
        return [best[number][1] for number in sorted(best)]

    def _judged(
        self, variants: Sequence[tuple[int, challenge.SentenceSet]], progress: Progress
    ) -> Iterator[tuple[int, float, Verdict]]:
        """Judge sentences with the same groups together: number, log-likelihood of the text, verdict."""
        by_id = {given.sentences[0].id: (number, given) for number, given in variants}
        first = variants[0][1]
        words = {
            group: tuple(dict.fromkeys(w for _, given in variants for w in given.words[group]))
            for group in first.groups
        }
        whole = replace(first, words=words, sentences=tuple(given.sentences[0] for _, given in variants))
        design = TaskSpecification().design(self._settings) | {"groups": list(first.groups)}
        scored, frame = self._scored(items_of(whole, self._settings), design, progress)
        rows_of = dict(iter(frame.groupby("sentence", sort=False)))
        for index, row in enumerate(scored.to_dict("records")):
            number, given = by_id[str(row["sentence"])]
            chance = float(self.reference.chances_percent(scored.iloc[[index]], given.words)[0])
            rows = rows_of[row["sentence"]]
            yield number, _likelihood_nats(rows), self._verdict(row, chance, rows, given)

    def _verdict(
        self, row: Mapping[Any, Any], chance: float, rows: pd.DataFrame, given: challenge.SentenceSet
    ) -> Verdict:
        text = given.title
        percent = {str(cells["w"]): _shares(cells, given.groups) for cells in rows.to_dict("records")}
        scores = {name: self.reference.standing(name, float(row[name])) for name in self._score_names(given)}
        if row["missing_reason"]:
            return Verdict(
                text,
                None,
                math.nan,
                "Nothing can be said of this sentence.",
                "",
                percent,
                scores,
                math.nan,
                str(row["missing_reason"]),
                self.notes,
            )
        moved = float(row["total_variation"])
        unspecified = chance > 50 if math.isfinite(chance) else moved > self.reference.thresholds["total_variation"]
        other_percent = float(rows["other_words"].max())
        return Verdict(
            text=text,
            unspecified=unspecified,
            chance_percent=chance,
            advice=_advice(row, given, unspecified=unspecified) + _caution(other_percent, self._accuracy(chance)),
            rests_on=self._rests_on(chance),
            percent=percent,
            scores=scores,
            other_words_percent=other_percent,
            notes=self.notes,
        )

    def _score_names(self, given: challenge.SentenceSet) -> list[str]:
        return [*(f"delta_{group}" for group in given.groups), *SCORES]

    def _accuracy(self, chance: float) -> float:
        return self.reference.accuracy[_basis(chance)]

    def _rests_on(self, chance: float) -> str:
        name = _basis(chance)
        what = {
            "combined": "movement, entropy and masses together, fitted to the schema set",
            "total_variation": f"total variation above {self.reference.thresholds['total_variation']:.2g} points, the best "
            "threshold for pronouns, since the schema set has no such words",
        }[name]
        return (
            f"{what}; on sentences of {self.reference.name} that were held out it is right in "
            f"{100 * self.reference.accuracy[name]:.0f}% (balanced; AUROC {self.reference.area[name]:.2f})"
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
    model: str,
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
    progress: Progress = _silent,
) -> Guard:
    """A guard for one model: a function from a sentence with a blank to a `Verdict`.

    The first call for a model queries the schema set (about a minute for a small model on two cores); later calls read the
    answer cache and take seconds.

    Args:
        model: a name of `undertow list models`, a hub id, or the path of a folder or GGUF file.
        challenge: the schema set to learn from; it must say which sentences decide their blank.
        data_dir: folder with the published files of winogender, where that is the set.
        w: the W list: date, place, subreddit, or a file.
        inject: template that puts W into a sentence.
        date_start: first year of the list of dates.
        date_stop: last year.
        date_count: number of years.
        endpoint_window: number of W values to average at each end of the list.
        revision: of a hub id.
        dtype: precision of the arithmetic; in a reduced one verdicts are not checked against float32, which their notes say.
        device: `auto`, `cpu`, `cuda`, ...
        progress: called with (queries done, queries in all).

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
    return Guard(models.resolve(ModelRequest(model, revision, dtype, device)), settings, progress)


def check_sentence(text: str, options: Options = "") -> None:
    """Refuse a sentence that cannot be judged, before any model is queried.

    Raises:
        UndertowError: it has no blank, or several, or the options are invalid.
    """
    _variants(0, text, options)


def _notes(identity: ModelIdentity) -> tuple[str, ...]:
    """Note on reduced precision: unlike a run, a guard does not rescore a sample in float32."""
    if not costs_precision(identity):
        return ()
    return (f"{identity.name} ran in {identity.dtype}; verdicts in reduced precision are not checked against float32.",)


CASES = ("nominative", "accusative", "possessive")


def _variants(number: int, text: str, options: Options = "") -> list[challenge.SentenceSet]:
    """The sentence with the options, or with the pronouns of each case; the likeliest case is used."""
    if options:
        return [challenge.single(str(number), text, options)]
    cases = CASES[:1] if "{verb:" in text else CASES
    return [challenge.single(f"{number}/{case}", text, case=case) for case in cases]


def _likelihood_nats(rows: pd.DataFrame) -> float:
    """Log-likelihood of the text with any of its options, mean over W; minus infinity if an answer is missing."""
    if (rows["missing_reason"] != "").any():
        return -math.inf
    return float(np.mean([np.logaddexp.reduce(np.array(one)[~np.isnan(one)]) for one in rows["logprobs_nats"]]))


def _shares(row: Mapping[Any, Any], groups: Sequence[str]) -> dict[str, float]:
    """Percent of each group in the mass of all groups; NaN without answers."""
    total = sum(float(row[group]) for group in groups)
    return {group: 100 * float(row[group]) / total if total else math.nan for group in groups}


def _advice(row: Mapping[Any, Any], given: challenge.SentenceSet, *, unspecified: bool) -> str:
    preferred = max(given.groups, key=lambda group: float(row[f"mean_{group}"]))
    share = float(row[f"mean_{preferred}"])
    if not unspecified:
        return f"The sentence seems to decide this; the model prefers {preferred} words ({share:.0f}%)."
    neutral = given.words.get("neutral")
    how = f"answer neutrally ({', '.join(neutral)})" if neutral else "leave it open, or ask"
    if neutral and preferred == "neutral":
        return f"Nothing in the sentence seems to decide this: {how}, as the model prefers to ({share:.0f}%)."
    return (
        f"Nothing in the sentence seems to decide this: {how}, rather than with the {preferred} words that the model prefers "
        f"({share:.0f}%)."
    )


MAX_OTHER_PERCENT = 95.0


HARDLY_BETTER_THAN_CHANCE = 0.6


def _basis(chance: float) -> str:
    """The name of the score that a verdict rests on."""
    return "combined" if math.isfinite(chance) else "total_variation"


def _caution(other_percent: float, accuracy: float) -> str:
    """Caveats of a verdict."""
    said = ""
    if accuracy < HARDLY_BETTER_THAN_CHANCE:
        said += f" But on sentences of known kind this model's verdicts are hardly better than chance ({100 * accuracy:.0f}%)."
    if other_percent > MAX_OTHER_PERCENT:
        said += f" But {other_percent:.0f}% of the model's probability went to other words, so what these share says little."
    return said


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(one) for key, one in value.items()}
    return [_without_nan(one) for one in value] if isinstance(value, list) else value


AT_ONCE = 200
"""Lines that are asked together: their verdicts are written before the next are asked."""


MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    Attributes:
        given: the object as it stood there; its keys come back with the verdict.
        text: the sentence.
        options: what may fill its blank; "" for pronouns.
    """

    given: Mapping[str, Any]
    text: str
    options: Options


def read_lines(path: Path, options: str = "") -> list[Line]:
    """Read and check every line of a JSONL file; skip empty lines.

    Args:
        path: the file; each line has `text`, and may have `options`.
        options: for the lines that have none.

    Raises:
        UndertowError: the file cannot be read, or a line is invalid; names the line.
    """
    text = decode_text(read_file(path, MAX_BYTES, "a file of sentences"), path)
    lines = [
        _line(row, options, f"{path}, line {number}") for number, row in enumerate(text.split("\n"), 1) if row.strip()
    ]
    if not lines:
        raise UndertowError(
            f'{path}: holds no lines; write one object a line, such as {{"text": "The doctor said {{blank}} was late."}}'
        )
    return lines


def _line(row: str, options: str, where: str) -> Line:
    try:
        given = parse_json(row)
    except ValueError as error:
        raise UndertowError(f"{where}: is not JSON ({error}); write one object a line") from error
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        raise UndertowError(f'{where}: needs an object with a "text", not {row[:60]!r}')
    if not is_encodable(row) or not is_encodable(json.dumps(given, ensure_ascii=False)):
        raise UndertowError(f"{where}: {LONE_SURROGATE}, which cannot be written; fix it")
    own = given.get("options") or options
    if not isinstance(own, (str, dict)):
        raise UndertowError(
            f"{where}: options must be a text such as 'yes: is; no: is not', or a table of lists of words"
        )
    try:
        data.single("line", given["text"], own)
    except UndertowError as error:
        raise UndertowError(f"{where}: {error}") from error
    return Line(given, given["text"], own)


def check_out(out: Path | None) -> None:
    """Refuse to overwrite a file, before any model is queried.

    Raises:
        UndertowError: the file exists already, or its folder does not.
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder does not exist; create it, or name another file with --out")
    if out is not None and out.exists():
        raise UndertowError(f"{out}: exists already; name another file with --out, or remove it")


def write_verdicts(guard: Guard, lines: Sequence[Line], out: Path | None) -> None:
    """Write one JSON object per line, in order: its own keys, then the verdict; to standard output without a file.

    Raises:
        UndertowError: a model or file error; answers so far stay in the cache, and verdicts so far are written.
    """
    with _opened(out) as file:
        for start in range(0, len(lines), AT_ONCE):
            part = lines[start : start + AT_ONCE]
            for line, verdict in zip(part, guard.check([(line.text, line.options) for line in part]), strict=True):
                file.write(as_json(_without_nan({**line.given, "verdict": verdict.as_json()})) + "\n")
            file.flush()


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    # Written beside its place and moved there whole, so that a file that is there is a file that is complete.
    draft = out.with_name(f".{out.name}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
