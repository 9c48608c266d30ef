"""The data types that all packages share. Read this first.

An *audit* turns a challenge set into `Item`s; each item carries one `Query`, the unit of compute and of
caching. A *model*, described by its `ModelIdentity`, gives each query an `Answer`; answers in item order are
`Scores`. *Metrics* turn scores into `Result`s.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
else:
    # numpy takes longer to import than all other dependencies of `undertow --help`.
    Floats: TypeAlias = Any
from undertow.errors import UndertowError, on_one_line

SCORING_VERSION = 9
"""Increment when scoring changes, so that cached answers of older versions are ignored."""

AS_SERVED = "as served"
"""Revision and precision of a model of a server, which names neither."""

LIKELIHOOD, PROMPT = "likelihood", "prompt"
"""Scoring methods: shares of a sentence's likelihood, or steps of a generated answer."""

EXACT, PAPER, TEXT = "exact", "paper", "text"
"""Protocols: the whole distribution; the papers' five most probable tokens, with 0 for all others; or the text of a free reply."""
NOT_SEEN = "not scored, because the tokenizer does not know them"
"""Beginning of the note that lists such words."""
STORED_EARLIER = "were stored by earlier runs"
"""Part of the note on cached answers of a server; the terminal prints notes with this or with `NOT_SEEN`."""


Progress: TypeAlias = Callable[[int, int], None]
"""Called with (units of work done, units in all)."""


def no_progress(done: int, total: int) -> None:
    """Show no progress."""


T = TypeVar("T")


def option(default: T, description: str = "", **bounds: float) -> T:
    """A field of settings.

    Args:
        default: its value if none is given.
        description: its help on the command line; "" for a field that is no option there.
        bounds: `ge`, `gt`, `le` and `lt`, the numbers that it must be at least, above, at most and below.
    """
    return field(default=default, metadata={"bounds": bounds} | ({"help": description} if description else {}))


Factor: TypeAlias = str | int | float | bool
"""One level of one factor of the design; stays a column all the way to the report."""


def as_json(value: Any, **options: Any) -> str:
    """JSON with control characters, unusual line ends and direction marks escaped."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return re.sub("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]", lambda match: f"\\u{ord(match[0]):04x}", text)


class Option(NamedTuple):
    """One way to fill the blanks of a sentence, and the group its probability counts towards.

    `fills` has one string for each blank of the sentence, in reading order.
    """

    group: str
    fills: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClozeQuery:
    """A sentence with one or more blanks, to be filled by one of the options.

    `pieces` are the texts around the blanks: `n` blanks have `n + 1` pieces, and the sentence that an option
    makes is `pieces[0] + fills[0] + pieces[1] + ...`.
    """

    pieces: tuple[str, ...]
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        n_blanks = len(self.pieces) - 1
        if n_blanks < 1 or {len(option.fills) for option in self.options} - {n_blanks}:
            raise ValueError(f"{len(self.pieces)} pieces need one fill fewer in each option, and at least one blank")

    def text(self, fills: tuple[str, ...]) -> str:
        """The whole sentence with its blanks filled."""
        filled = [piece + fill for piece, fill in zip(self.pieces[:-1], fills, strict=True)]
        return "".join(filled) + self.pieces[-1]

    def texts(self) -> list[str]:
        """The whole sentence with each option in it [option]."""
        return [self.text(option.fills) for option in self.options]

    def display_text(self, mark: str = "___") -> str:
        """The sentence as a reader sees it, each blank marked."""
        return mark.join(self.pieces)


@dataclass(frozen=True, slots=True)
class ContinuationQuery:
    """A context and the texts that may follow it, to be compared by their log-likelihood."""

    context: str
    continuations: tuple[str, ...]

    def texts(self) -> list[str]:
        """The context with each continuation [option]."""
        return [self.context + continuation for continuation in self.continuations]


@dataclass(frozen=True, slots=True)
class GenerateQuery:
    """A prompt to answer greedily, and the words whose probability is recorded at every step.

    Attributes:
        prompt: the text to continue; the user's message if `chat` is set.
        options: the words, one fill each.
        max_tokens: maximum number of steps.
        chat: whether to wrap the prompt in the model's chat template.
    """

    prompt: str
    options: tuple[Option, ...]
    max_tokens: int = 20
    chat: bool = False

    def __post_init__(self) -> None:
        if any(len(option.fills) != 1 for option in self.options) or self.max_tokens < 1:
            raise ValueError("options must have one word each, and max_tokens must be at least 1")

    def display_text(self) -> str:
        """The prompt."""
        return self.prompt


@dataclass(frozen=True, slots=True)
class MultipleChoiceQuery:
    """A prompt to answer with one of several labels.

    The answer's text is the label of greedy decoding. Its log-probabilities cover all labels, so the most
    probable label, which may differ, is known too.

    Attributes:
        prompt: the prompt.
        labels: texts that may follow the prompt, each with its leading space.
        shots: answered examples before the prompt, in order; the first ones are dropped if all do not fit.
        first_token: whether to compare labels by their first tokens only, such as *Yes* and *No*.
        chat: whether to wrap examples and prompt in the model's chat template; the labels begin its answer.
    """

    prompt: str
    labels: tuple[str, ...]
    shots: tuple[str, ...] = ()
    first_token: bool = False
    chat: bool = False

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len({label.strip() for label in self.labels}) < len(self.labels):
            raise ValueError("labels must be at least two, all distinct")
        if not all(label.strip() for label in self.labels):
            raise ValueError("labels must not be empty")

    def display_text(self) -> str:
        """Examples and prompt."""
        return "".join((*self.shots, self.prompt))


UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN = "unconstrained", "document", "span", "span-exact"
"""Constraints on a generated answer: none, tokens of the passage, a span of it, or its most probable span."""


@dataclass(frozen=True, slots=True)
class ConstrainedGenerateQuery:
    """A prompt to answer with generated text, no longer than a passage.

    Attributes:
        prompt: the prompt.
        passage: the text that bounds the answer's number of tokens and that a constrained answer consists of.
        constraint: `UNCONSTRAINED`, `PASSAGE_TOKENS`, `SPAN`, or `BEST_SPAN`, which needs temperature 0.
        temperature: 0 for greedy decoding, else for sampling.
        top_k: number of most probable tokens to sample from; 0 for all.
        seed: seed of the samples, which do not depend on other queries.
        line_ends: whether a line break ends the answer.
        shots: answered examples before the prompt, in order; the first ones are dropped if all do not fit.
        chat: whether to wrap examples and prompt in the model's chat template.
    """

    prompt: str
    passage: str
    constraint: str = UNCONSTRAINED
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0
    line_ends: bool = False
    shots: tuple[str, ...] = ()
    chat: bool = False

    def __post_init__(self) -> None:
        if (
            self.constraint not in (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
            or self.temperature < 0
            or self.top_k < 0
        ):
            raise ValueError("constraint must be known, and temperature and top_k at least 0")
        if self.constraint == BEST_SPAN and self.temperature:
            raise ValueError("the most probable span needs temperature 0")

    def display_text(self) -> str:
        """Examples and prompt."""
        return "".join((*self.shots, self.prompt))


@dataclass(frozen=True, slots=True)
class SpanQuery:
    """A question to answer with a span of a passage, or with no answer.

    The answer has the log-probabilities of each candidate, of no answer, and of the best span, and the text of the best span. The
    log-probability of a span is that of its start plus that of its end, at its best position.

    Attributes:
        passage: the text.
        question: the question.
        candidates: substrings of the passage to compare.
    """

    passage: str
    question: str
    candidates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(not piece.strip() or piece not in self.passage for piece in self.candidates):
            raise ValueError("candidates must be substrings of the passage")

    def display_text(self) -> str:
        """Passage and question."""
        return f"{self.passage}\n{self.question}"


ScoredQuery: TypeAlias = ClozeQuery | ContinuationQuery
"""Queries that are scored token by token."""

GeneratedQuery: TypeAlias = GenerateQuery | MultipleChoiceQuery | ConstrainedGenerateQuery
"""Queries that a model answers with generated text."""

Query: TypeAlias = ScoredQuery | GeneratedQuery | SpanQuery

BLANK, CONTINUATIONS, GENERATION, CHOICE, WRITING, EXTRACTION = (
    "blank", "continuations", "generation", "choice", "writing", "extraction"
)  # fmt: skip
"""Kinds of query, as `ModelHandle.capabilities` names them."""

_KINDS: Mapping[type, str] = {
    ClozeQuery: BLANK,
    ContinuationQuery: CONTINUATIONS,
    GenerateQuery: GENERATION,
    MultipleChoiceQuery: CHOICE,
    ConstrainedGenerateQuery: WRITING,
    SpanQuery: EXTRACTION,
}


def query_kind(query: Query) -> str:
    """The kind of a query."""
    return _KINDS[type(query)]


def query_digest(query: Query) -> str:
    """A stable name for a query: equal queries, and only those, share it (SHA-256, 64 hex digits)."""
    return hashlib.sha256(to_utf8(query_json(query))).hexdigest()


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
"""JSON in canonical form, as text."""
_VALUES = {kind: attrgetter(*(one.name for one in fields(kind))) for kind in _KINDS}
_options_json = lru_cache(maxsize=256)(canonical_json)


def query_json(query: Query) -> str:
    """Kind and fields of a query as canonical JSON; options, which many sentences share, are encoded once."""
    if isinstance(query, ClozeQuery):
        return f'["ClozeQuery",[{",".join(map(canonical_json, query.pieces))}],{_options_json(tuple(query.options))}]'
    return canonical_json((type(query).__name__, *_VALUES[type(query)](query)))


def digest(value: Any) -> str:
    """SHA-256 of a JSON-serialisable value in canonical form, 64 hex digits; errors are those of `to_utf8`."""
    return hashlib.sha256(to_utf8(canonical_json(value))).hexdigest()


def to_utf8(text: str) -> bytes:
    """The text in UTF-8; a lone surrogate is an `UndertowError` that quotes its surroundings."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 30) : error.end + 30]
        raise UndertowError(f"{around!r}: contains a lone surrogate, which no model can read; replace it") from error


@dataclass(frozen=True, slots=True)
class Item:
    """One cell of a factorial design.

    Attributes:
        id: unique in its challenge set, and readable.
        query: the query.
        factors: the levels of the design in this cell, by factor name.
        cluster: items of one cluster are not independent; intervals and tests take them as one unit.
        gold: the right answer, if there is one.
    """

    id: str
    query: Query
    factors: Mapping[str, Factor]
    cluster: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The identity of a model, which decides whether a cached answer belongs to it.

    Attributes:
        name: the name that the user gave.
        family: the module in `undertow.models.families`.
        source: origin of the weights (a hub id, a folder's or file's name, a package).
        revision: hub commit or SHA-256 of the weights and tokenizer files; never empty.
        dtype: precision of the arithmetic.
        scoring_method: how probabilities are computed, for example `likelihood`.
        tokenizer: origin of the tokenizer; "" if it belongs to the weights.
        system_prompt: the system message of every chat; "" for none. It makes the model another assistant, with answers of its own.
    """

    name: str
    family: str
    source: str
    revision: str
    dtype: str
    scoring_method: str
    tokenizer: str = ""
    system_prompt: str = ""

    def as_dict(self) -> dict[str, str]:
        """The fields by name, the system prompt only where there is one."""
        return {name: value for name, value in asdict(self).items() if value or name != "system_prompt"}

    def key(self, protocol: str) -> str:
        """The model's part of a cache key.

        It excludes `name`, so two names of the same weights share answers.
        """
        parts = self.as_dict() | {"protocol": protocol, "reading": SCORING_VERSION}
        del parts["name"]
        return digest(parts)


@dataclass(frozen=True, slots=True)
class Reply:
    """A free reply and its parsed answer.

    Attributes:
        text: the whole reply.
        outcome: `answer`, or why there is none: one of the outcomes in `undertow.data.replies.answer_rules`.
        low_prob, high_prob: bounds on the probability of the answer, from the log-probabilities of the reply's first token; NaN without
            these.
    """

    text: str
    outcome: str
    low_prob: float = math.nan
    high_prob: float = math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one query.

    Attributes:
        logprobs_nats: one log-probability for each option or label, in the query's order [option]; under likelihood, of the text
            from the first blank on. NaN for an option that the tokenizer does not know, and for one with the same tokens as an
            earlier option of its group (*He* and *he* in an uncased model), which counts with that option; in a free reply, for all
            spellings of a word but the lower-case one. Minus infinity for an option outside the tokens that the protocol uses. A
            generated answer has one, its own.
        other_prob: probability of all text other than the options, in 0 to 1; NaN if unknown.
        missing_reason: why there are no log-probabilities; "" if there are. A missing value is never zero.
        text: generated text, if any.
        upper_bound_prob: upper bound of the hidden probability of each option [option], for a server that returns only the most
            probable tokens; () if nothing is hidden.
        truncated_prob: upper bound of the hidden probability of all options together: probability that was not returned, or that
            belongs to tokens which may begin an option.
        n_dropped_shots: number of examples that did not fit before the prompt.
        n_tokens: number of tokens of each option, without a common ending of all options [option]; () if unknown.
        spaced_nats: at the start of a text, log-probability of the form with a space before the word [option]; () elsewhere, and if
            the tokenizer has no such token.
        reply: the free reply behind the answer, if any.
        cut_at_tokens: number of tokens after which a generated text was cut off; 0 if it ended by itself.
        served_as: what a server calls the model that answered, with its fingerprint; "" elsewhere.
        stored_s: when it was stored, in seconds since the epoch; 0 for an answer that was computed now.
    """

    logprobs_nats: tuple[float, ...]
    other_prob: float
    missing_reason: str = ""
    text: str = ""
    upper_bound_prob: tuple[float, ...] = ()
    truncated_prob: float = 0.0
    n_dropped_shots: int = 0
    n_tokens: tuple[int, ...] = ()
    spaced_nats: tuple[float, ...] = ()
    reply: Reply | None = None
    cut_at_tokens: int = 0
    served_as: str = ""
    stored_s: float = field(default=0.0, repr=False, compare=False)

    @classmethod
    def missing(cls, reason: str) -> Answer:
        """An answer without numbers, and why."""
        return cls(logprobs_nats=(), other_prob=math.nan, missing_reason=reason)


@dataclass(frozen=True, slots=True)
class Scores:
    """Answers in item order, by column.

    Attributes:
        answers: one per item [item].
        scoring_method: `likelihood` compares options only with each other; at a `mask` each option has a probability.
    """

    answers: tuple[Answer, ...]
    scoring_method: str = LIKELIHOOD

    @property
    def other_prob(self) -> Floats:
        """Probability of everything but the options [item]; NaN where missing."""
        import numpy as np

        return np.array([answer.other_prob for answer in self.answers], dtype=np.float64)

    @property
    def missing_reasons(self) -> list[str]:
        """Reason why an item has no numbers, "" where it has [item]."""
        return [answer.missing_reason for answer in self.answers]

    def logprobs_nats(self, index: int) -> Floats:
        """Log-probabilities of one item's options [option]; empty where missing."""
        import numpy as np

        return np.array(self.answers[index].logprobs_nats, dtype=np.float64)


ALPHA = 0.05
"""A result is significant if its q (false discovery rate) is below this."""
ALPHA_TEXT = f"{ALPHA:g}".removeprefix("0")
"""`ALPHA` as printed in sentences."""
RESERVED_COLUMNS = frozenset(
    {
        "item", "model", "challenge", "prompt", "part", "w_name", "w_index", "w_value", "w", "sentence", "cluster", "text", "other_words",
        "missing_reason", "options", "logprobs_nats", "spaced_logprobs_nats",
        "expected", "answer", "upper_bound_prob", "truncated_prob", "reply", "reply_outcome",
        "first_token_low", "first_token_high", "reply_cut_at",
    }
)  # fmt: skip
"""Columns of every observation table, which are not allowed as names of slots, factors and word groups."""


@dataclass(frozen=True, slots=True)
class Result:
    """One estimate of an audit, with interval and test.

    Attributes:
        measure: the measure's name in the literature, for example `slope`.
        group: levels of the group keys (model, challenge, w_name, pronoun, ...).
        value: the estimate, in `unit`; NaN where missing.
        low, high: 95% interval; NaN where missing.
        n: number of items with an answer.
        n_missing: number of items without an answer.
        unit: for example "percent per step".
        null_value: the value without bias, or NaN. It is no direction of improvement.
        p: p-value of the test named in the audit's documentation; NaN where not tested.
        q: Benjamini-Hochberg adjusted p-value over the tests of the run; NaN where not tested.
        extras: further numbers by name, for example the smallest slope that the design could detect.
        note: why a value is missing, or a caveat; "" otherwise.
    """

    measure: str
    group: Mapping[str, str]
    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    n_missing: int = 0
    unit: str = ""
    null_value: float = math.nan
    p: float = math.nan
    q: float = math.nan
    extras: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


MAX_DECIMALS = 6
"""Maximum decimals of a number in a sentence."""

MIN_WIDTH = 10.0**-MAX_DECIMALS
"""Unit of the last decimal of a number in a sentence."""


def has_width(low: float, high: float) -> bool:
    """Whether an interval is wider than `MIN_WIDTH`; its ends may be swapped."""
    return abs(high - low) >= MIN_WIDTH


def interval_decimals(low: float, high: float) -> int:
    """Decimals that distinguish the ends of an interval, at least two."""
    half = abs(high - low) / 2
    return min(max(2, -math.floor(math.log10(half))), MAX_DECIMALS) if 0 < half < math.inf else 2


def format_interval(low: float, high: float) -> str:
    """Both ends in ASCII, without negative zero; "without spread" for an interval of width 0."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    places = interval_decimals(low, high)
    return f"{low:z.{places}f} to {high:z.{places}f}" if has_width(low, high) else "without spread"


NOT_TESTED = "Not tested: "
"""Beginning of a decision rule that gives the reason why a finding was not tested."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the model, and its statistical support.

    Attributes:
        text: the sentence, without details of its results.
        significant: whether the effect survives correction for multiplicity.
        strength: order within a report, larger first (for example |slope| x steps, in percent).
        causal_claim: whether it depends on the audit's causal assumptions.
        results: the results that it reports, the deciding one first; () if unknown.
        n_tests: number of tests in the correction of its q; 0 if q does not decide.
        decision_rule: the decision in a sentence, if not by the q of the first result; "" otherwise.
        detail: further sentences; "" for none.
    """

    text: str
    significant: bool
    strength: float
    causal_claim: bool = True
    results: tuple[Result, ...] = field(default=(), repr=False, compare=False)
    n_tests: int = field(default=0, compare=False)
    decision_rule: str = field(default="", compare=False)
    detail: str = field(default="", compare=False)

    @property
    def explanation(self) -> str:
        """Its detail, and the reason why it was not tested if its text does not say it; "" for neither."""
        reason = self.decision_rule if self.decision_rule.startswith(NOT_TESTED) else ""
        is_in_text = reason.removeprefix(NOT_TESTED).rstrip(".") in self.text
        return self.detail if is_in_text else f"{self.detail} {reason}".strip()

    def as_json(self) -> dict[str, Any]:
        """Plain values, for JSON: the sentence, and the numbers of each result behind it."""
        results = [
            {name: getattr(one, name) for name in Result.__slots__}
            | {"group": dict(one.group), "extras": dict(one.extras), "significant": one.q < ALPHA}
            for one in self.results
        ]
        names = ("text", "detail", "significant", "strength", "n_tests", "decision_rule")
        return {name: getattr(self, name) for name in names} | {"results": results}

    def __post_init__(self) -> None:
        # Names of models, words and values may contain line breaks; a sentence must stay on one line.
        for name in ("text", "detail"):
            object.__setattr__(self, name, on_one_line(getattr(self, name).strip()))
