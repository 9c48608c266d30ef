"""The nouns that flow through every room. Read this first.

An *audit* turns a challenge set into `Item`s; each item carries one `Query`, the unit of compute and of
caching. A *model*, described by its `ModelIdentity`, gives each query an `Answer`; answers in item order are
`Scores`. *Metrics* turn scores into `Result`s.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
else:
    # numpy takes longer to load than everything else that `undertow --help` needs.
    Floats: TypeAlias = Any
from undertow.errors import UndertowError, on_one_line

SCORING_VERSION = 5
"""Raised when the same model would be read to other numbers than before, so that older answers are not served."""


LIKELIHOOD, PROMPT = "likelihood", "prompt"
"""Read-outs that others must know: shares of a sentence's likelihood, and steps of an answer to a prompt."""


NOT_SEEN = "not seen in answers to prompts, since they are several tokens"
"""How the note begins that names such words."""


Factor: TypeAlias = str | int | float | bool
"""One level of one factor of the design; stays a column all the way to the report."""


def as_json(value: Any, **options: Any) -> str:
    """JSON in which no text ends a line for those who know more line ends than JSON does, or moves a cursor."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return re.sub("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


@dataclass(frozen=True, slots=True)
class Option:
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
        if len(self.pieces) < 2 or any(len(option.fills) != len(self.pieces) - 1 for option in self.options):
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
    """A prompt to be answered greedily, and the words whose probability is read at every step of the answer.

    Attributes:
        prompt: the text to go on with; what the user says, where `chat` is set.
        options: the words, one fill each.
        max_tokens: steps, at most.
        chat: whether the model's own chat template goes around the prompt.
    """

    prompt: str
    options: tuple[Option, ...]
    max_tokens: int = 20
    chat: bool = False

    def __post_init__(self) -> None:
        if any(len(option.fills) != 1 for option in self.options) or self.max_tokens < 1:
            raise ValueError("a prompt has options of one word each, and at least one step")

    def display_text(self) -> str:
        """The prompt, as a reader sees it."""
        return self.prompt


@dataclass(frozen=True, slots=True)
class MultipleChoiceQuery:
    """A prompt to be answered with one of several labels.

    The answer's text is the label that greedy decoding comes to, its log-probabilities are those of every label, so that the
    most probable one can be had beside it (they may differ).

    Attributes:
        prompt: what is to be answered.
        labels: the texts that may follow the prompt, each with the space that belongs before it.
        shots: answered examples that come before the prompt, in order; where all are too long, those in front are left out.
        first_token: whether labels are compared by their first tokens alone, as *Yes* and *No* are.
        chat: whether the model's own chat template goes around examples and prompt; the labels begin its answer.
    """

    prompt: str
    labels: tuple[str, ...]
    shots: tuple[str, ...] = ()
    first_token: bool = False
    chat: bool = False

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len({label.strip() for label in self.labels}) < len(self.labels):
            raise ValueError("a choice is between two labels or more, each of its own")
        if not all(label.strip() for label in self.labels):
            raise ValueError("a label says something")

    def display_text(self) -> str:
        """Examples and prompt, as a reader sees them."""
        return "".join((*self.shots, self.prompt))


FREE, PASSAGE_TOKENS, SPAN, BEST_SPAN = "unconstrained", "document", "span", "span-exact"
"""What a written answer may consist of: anything, tokens of a passage, a piece of it, or its most probable piece."""


@dataclass(frozen=True, slots=True)
class ConstrainedGenerateQuery:
    """A prompt to be answered in writing, no longer than a passage.

    Attributes:
        prompt: what is to be answered.
        passage: the text that the answer may not be longer than in tokens, and that a constrained one is made of.
        constraint: `FREE`, `PASSAGE_TOKENS`, `SPAN`, or `BEST_SPAN`, which is found by search and takes no temperature.
        temperature: 0 for the most probable token at every step, else tokens are drawn.
        top_k: draw among so many most probable tokens; 0 for all.
        seed: of the draws, which depend on it and on nothing else that is asked.
        line_ends: whether a line break ends the answer as the model's own end tokens do.
        shots: answered examples that come before the prompt, in order; where all are too long, those in front are left out.
        chat: whether the model's own chat template goes around examples and prompt.
    """

    prompt: str
    passage: str
    constraint: str = FREE
    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0
    line_ends: bool = False
    shots: tuple[str, ...] = ()
    chat: bool = False

    def __post_init__(self) -> None:
        if self.constraint not in (FREE, PASSAGE_TOKENS, SPAN, BEST_SPAN) or self.temperature < 0 or self.top_k < 0:
            raise ValueError("a written answer has a known constraint, and neither temperature nor top_k below 0")
        if self.constraint == BEST_SPAN and self.temperature:
            raise ValueError("the most probable span is searched for, not drawn")

    def display_text(self) -> str:
        """Examples and prompt, as a reader sees them."""
        return "".join((*self.shots, self.prompt))


@dataclass(frozen=True, slots=True)
class SpanQuery:
    """A question about a passage, to be answered with a piece of it, or not at all.

    The answer's log-probabilities are those of each candidate piece, then of no answer, then of the best piece of all, whose
    text is the answer's. A piece's is the sum of those that it begins and that it ends where it does, its best place counting.

    Attributes:
        passage: the text.
        question: about it.
        candidates: pieces of the passage that are compared, each of them standing in it.
    """

    passage: str
    question: str
    candidates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(not piece.strip() or piece not in self.passage for piece in self.candidates):
            raise ValueError("candidates are pieces of the passage")

    def display_text(self) -> str:
        """Passage and question, as a reader sees them."""
        return f"{self.passage}\n{self.question}"


ScoredQuery: TypeAlias = ClozeQuery | ContinuationQuery
"""Queries whose texts are read as they stand."""


GeneratedQuery: TypeAlias = GenerateQuery | MultipleChoiceQuery | ConstrainedGenerateQuery
"""Queries that a model answers whole."""


Query: TypeAlias = ScoredQuery | GeneratedQuery | SpanQuery


BLANK, CONTINUATIONS, GENERATION, CHOICE, WRITING, EXTRACTION = (
    "blank", "continuations", "generation", "choice", "writing", "extraction"
)  # fmt: skip
"""Kinds of query, by the names that models say they can be asked them."""


_KINDS: Mapping[type, str] = {
    ClozeQuery: BLANK,
    ContinuationQuery: CONTINUATIONS,
    GenerateQuery: GENERATION,
    MultipleChoiceQuery: CHOICE,
    ConstrainedGenerateQuery: WRITING,
    SpanQuery: EXTRACTION,
}


def kind_of(query: Query) -> str:
    """The kind of a query."""
    return _KINDS[type(query)]


def query_digest(query: Query) -> str:
    """A stable name for a query: equal queries, and only those, share it (SHA-256, 64 hex digits)."""
    return digest({"kind": type(query).__name__, **asdict(query)})


def digest(value: Any) -> str:
    """SHA-256 of a JSON-serialisable value in canonical form, 64 hex digits.

    Raises:
        UndertowError: a text in it cannot be written; quotes what stands around.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 30) : error.end + 30]
        raise UndertowError(
            f"{around!r}: holds half of a character (a lone surrogate), which no model can read; fix it"
        ) from error
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Item:
    """One cell of a factorial design.

    Attributes:
        id: unique in its challenge set, and readable.
        query: the query.
        factors: the levels of the design in this cell, by factor name.
        cluster: items that share it are not independent; intervals and tests take them as one unit.
        gold: the right answer, where there is one.
    """

    id: str
    query: Query
    factors: Mapping[str, Factor]
    cluster: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The identity of a model: everything that makes a stored answer valid for this model and no other.

    Attributes:
        name: what the user called it.
        family: the file in `undertow.models` that reads it.
        source: where its weights are from (a hub id, a folder's or file's name, a package).
        revision: hub commit or SHA-256 of the weights and tokenizer files; never empty.
        dtype: the precision its arithmetic runs in.
        scoring_method: how probabilities are read from it, for example `likelihood`.
        tokenizer: where the tokenizer is from, or "" if it lies beside the weights.
    """

    name: str
    family: str
    source: str
    revision: str
    dtype: str
    scoring_method: str
    tokenizer: str = ""

    def key(self, protocol: str) -> str:
        """The half of a stored answer's key that says who answered, and under which protocol.

        The name that the user chose is not part of it: two names for the same weights share answers.
        """
        parts = asdict(self) | {"protocol": protocol, "reading": SCORING_VERSION}
        del parts["name"]
        return digest(parts)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to one query.

    Attributes:
        logprobs_nats: one log-probability for each option or label, in the query's order [option]; NaN for an option that the
            model spells like an earlier one of its group (*He* and *he* to an uncased one), and which counts with it;
            minus infinity for one that is not among the tokens that the protocol looks at. Of a written answer one, its own.
        other_prob: the probability that none of the options took, in 0 to 1; NaN where not readable.
        missing_reason: why there are no numbers; "" where there are. A missing value is never zero.
        text: what the model wrote, where it was asked to write.
        upper_bound_prob: probability that each option may have had beyond what was seen of it [option], of a model that shows
            the most probable tokens only; () where everything was seen.
        truncated_prob: probability that was not shown, or that is of tokens which may be the first piece of an option; all
            options together cannot have more than that beyond what was seen.
        n_dropped_shots: examples that had no room before the prompt, and were left out.
        n_tokens: tokens that each option takes in its place, but those that all options end with [option]; () where that is not known.
    """

    logprobs_nats: tuple[float, ...]
    other_prob: float
    missing_reason: str = ""
    text: str = ""
    upper_bound_prob: tuple[float, ...] = ()
    truncated_prob: float = 0.0
    n_dropped_shots: int = 0
    n_tokens: tuple[int, ...] = ()

    @classmethod
    def none(cls, reason: str) -> Answer:
        """The answer of a query that could not be asked."""
        return cls(logprobs_nats=(), other_prob=math.nan, missing_reason=reason)


@dataclass(frozen=True, slots=True)
class Scores:
    """Answers in item order, by column.

    Attributes:
        answers: one per item [item].
        scoring_method: how they were read: by `likelihood`, options are compared with each other only; at a `mask`, each has a
            probability of its own.
    """

    answers: tuple[Answer, ...]
    scoring_method: str = LIKELIHOOD

    @property
    def other_prob(self) -> Floats:
        """Probability that no option took [item]; NaN where missing."""
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


@dataclass(frozen=True, slots=True)
class Result:
    """One number of an audit, with its errors.

    Attributes:
        measure: the measure's name in the literature, for example `slope`.
        group: what the number is about, by group key (model, challenge, w_name, pronoun, ...).
        value: the estimate, in `unit`; NaN where it could not be had.
        low, high: 95% interval; NaN where it could not be had.
        n: items behind the number.
        n_missing: items that should have been behind it but have no answer.
        unit: for example "percent per step".
        null_value: the value that no bias would give; NaN where there is none. Not "higher is better".
        p: p-value of the test that the page of the audit names; NaN where the measure is not tested.
        q: Benjamini-Hochberg adjusted p-value over the tests of the run; NaN where not tested.
        extras: further numbers by name, for example the smallest slope that the design could detect.
        note: why a number is missing, or what to keep in mind; "" otherwise.
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
"""Of a number that is told to people."""


MIN_WIDTH = 10.0**-MAX_DECIMALS
"""Less than the last decimal that is ever told."""


def has_width(low: float, high: float) -> bool:
    """Whether an interval is more than a point, in as many decimals as are ever told. One whose ends are swapped is no point."""
    return abs(high - low) >= MIN_WIDTH


def interval_decimals(low: float, high: float) -> int:
    """Decimals that tell the ends of an interval apart, and two at least."""
    half = abs(high - low) / 2
    return min(max(2, -math.floor(math.log10(half))), MAX_DECIMALS) if 0 < half < math.inf else 2


def interval_in_words(low: float, high: float) -> str:
    """Both ends, in ASCII and without negative zero. Of a point they would look alike, as if they had been rounded."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    places = interval_decimals(low, high)
    return f"{low:z.{places}f} to {high:z.{places}f}" if has_width(low, high) else "without spread"


@dataclass(frozen=True, slots=True)
class Finding:
    """One plain sentence about the model, and how strongly the numbers carry it.

    Attributes:
        text: the sentence.
        significant: whether the effect survives correction for multiplicity.
        strength: orders findings within a report, larger first (for example |slope| x steps, in percent).
        causal_claim: whether it rests on the audit's causal assumptions (`RESTS_ON` of the audit), and not on the answers alone.
        results: the results that it reports, the deciding one first; () where unknown.
        n_tests: how many tests the q of that result is corrected for; 0 where no q decides.
        decision_rule: how it was decided, in a sentence, where not by the q of that result alone; "" otherwise.
    """

    text: str
    significant: bool
    strength: float
    causal_claim: bool = True
    results: tuple[Result, ...] = field(default=(), repr=False, compare=False)
    n_tests: int = field(default=0, compare=False)
    decision_rule: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        # Names of models, words and values may hold anything, and a sentence stays one wherever it is shown.
        object.__setattr__(self, "text", on_one_line(self.text.strip()))
