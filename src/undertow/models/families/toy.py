"""A model with a planted answer: deterministic, without torch, for trying Undertow out and for its tests.

    -m toy                    she-share rises 10 points a century; places and other words do not matter
    -m toy:slope=-5           the same with another slope, in points a century
    -m toy:pause=0.2          waits so many seconds before each forward pass, to see progress and resuming

Where a pronoun may stand, P(she) = 0.30 + slope * (year - 1900), P(they) = 0.10, P(he) takes the rest of 0.80,
each moved by up to half a point that depends only on the preceding text; 0.20 goes to unlisted words.
After the pronoun, words are equally probable whichever pronoun came before, so the likelihood of the sentence, normalised over
the three, equals the planted shares. A prompt is answered with the pronoun of the largest share and
a full stop.

Labels share 0.80 in proportion to 1 + u, where u, in 0 to 1, is an arbitrary function of the prompt with its examples and of the
label (of its first word, if only that counts); the most probable label is chosen. A free answer about a passage is a copy of it; an
answer constrained to the passage is the first half of its words, at least one. Words of a generated answer are as probable as words
after a pronoun, whatever the temperature, the seed or the line ends.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from undertow.errors import UndertowError
from undertow.models.base import (
    EMPTY_PASSAGE,
    PROMPT_CAPABILITIES,
    TOKEN_CAPABILITIES,
    BatchLimits,
    CostEstimate,
    EncodedQuery,
    ModelHandle,
    ModelRequest,
    Outcome,
    PackedTree,
    TokenBatch,
    TokenPath,
    UnsupportedQueryError,
    common_prefix_length,
)
from undertow.models.generation.step_readout import Step, answer_of
from undertow.types import (
    UNCONSTRAINED,
    Answer,
    ClozeQuery,
    ConstrainedGenerateQuery,
    Floats,
    GeneratedQuery,
    ModelIdentity,
    MultipleChoiceQuery,
    Query,
    ScoredQuery,
)

SUMMARY = "deterministic, no download: planted answers, for trying things out"
SETTINGS = {"slope": 10.0, "pause": 0.0}
TOKEN = re.compile(r" ?\w+|\s+|[^\w\s]")
PRONOUNS = {"she": "female", "he": "male", "they": "neutral"}
LISTED_SHARE = 0.80
NEUTRAL = 0.10
START = 0
PROMPTS_AT_ONCE = 8
CAPABILITIES = {**TOKEN_CAPABILITIES, **PROMPT_CAPABILITIES}
LIMITS = BatchLimits(budget_tokens=400, tree_depth=10_000)


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The toy model, with settings after a colon.

    Raises:
        UndertowError: a setting that it does not have.
    """
    name, _, given = request.name.partition(":")
    if name != "toy":
        return None
    if request.revision:
        raise UndertowError("toy has no revisions; leave --revision out")
    settings = dict(SETTINGS)
    for part in filter(None, given.split(",")):
        setting, _, value = part.partition("=")
        if setting not in SETTINGS:
            raise UndertowError(f"toy has no setting {setting!r}; it has {', '.join(SETTINGS)}, as in toy:slope=5")
        try:
            settings[setting] = float(value)
        except ValueError as error:
            raise UndertowError(f"toy: {setting} must be a number, not {value!r}") from error
        if not abs(settings[setting]) <= 20:
            raise UndertowError(f"toy: {setting} must lie between -20 and 20, not {value}")
    slope, pause_s = settings["slope"], settings["pause"]
    revision = f"toy version 1, slope {slope!r}"
    identity = ModelIdentity(request.name, "toy", "undertow", revision, request.dtype, "likelihood")
    return ModelHandle(
        identity, lambda: ToyModel(identity, slope_per_year=slope / 10_000, pause_s=pause_s), CAPABILITIES
    )


@dataclass(slots=True)
class ToyModel:
    """The planted model; see the module's text."""

    identity: ModelIdentity
    slope_per_year: float
    pause_s: float = 0.0
    notes: tuple[str, ...] = ()
    limits: BatchLimits = LIMITS
    words: dict[int, str] = field(default_factory=lambda: {START: ""})

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Tokens are words with the space before them."""
        encoded: list[EncodedQuery | UnsupportedQueryError] = []
        for query in queries:
            before = query.pieces[0] if isinstance(query, ClozeQuery) else query.context
            texts = [self._tokens(text) for text in query.texts()]
            # A space belongs to the word after it, a line break to the text before.
            parts = self._tokens(before), self._tokens(before.rstrip())
            start = max(min(common_prefix_length(part, tokens) for tokens in texts) for part in parts)
            reads = (tuple((at - 1, tokens[at]) for at in range(start, len(tokens))) for tokens in texts)
            paths = (TokenPath(tokens[:-1], own) for tokens, own in zip(texts, reads, strict=True))
            encoded.append(EncodedQuery(tuple(paths)))
        return encoded

    def _tokens(self, text: str) -> tuple[int, ...]:
        tokens = [START]
        for word in TOKEN.findall(text):
            token = zlib.crc32(word.encode()) | 1 << 32
            self.words[token] = word
            tokens.append(token)
        return tuple(tokens)

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """Probabilities of each prompt, eight prompts at a time, the same for both protocols."""
        for start in range(0, len(queries), PROMPTS_AT_ONCE):
            time.sleep(self.pause_s)
            pack = enumerate(cast(Sequence[GeneratedQuery], queries[start : start + PROMPTS_AT_ONCE]), start)
            yield {place: self._answer(query) for place, query in pack}

    def _answer(self, query: GeneratedQuery) -> Outcome:
        if isinstance(query, MultipleChoiceQuery):
            return _choose_label(query)
        if isinstance(query, ConstrainedGenerateQuery):
            return _write_passage(query)
        shares = self._shares(query.prompt)
        word = max(PRONOUNS, key=lambda pronoun: shares[PRONOUNS[pronoun]])
        words = [option.fills[0] for option in query.options]
        first = Step(f" {word}", tuple(shares[PRONOUNS[one]] if one in PRONOUNS else 0.0 for one in words))
        steps = [first, Step(".", (0.0,) * len(words))][: query.max_tokens]
        return answer_of(query, steps, "".join(step.token for step in steps))

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """A pass for every eight prompts."""
        passes = -(-len(queries) // PROMPTS_AT_ONCE)
        return CostEstimate(2 * len(queries), passes, passes * self.pause_s, 1024)

    def read_tree(self, tree: PackedTree) -> Floats:
        """Log-probabilities in nats [read]."""
        parents = np.full(len(tree.tokens), -1)
        for node, end in enumerate(tree.ends):
            parents[node + 1 : end] = node

        def before(node: int) -> str:
            words = []
            while node >= 0:
                words.append(self.words[int(tree.tokens[node])])
                node = int(parents[node])
            return "".join(reversed(words))

        return self._read(tree.read_nodes, tree.read_tokens, before)

    def read_batch(self, batch: TokenBatch) -> Floats:
        """Log-probabilities in nats [read]."""

        def before(read: int) -> str:
            row, position = batch.read_rows[read], batch.read_positions[read]
            return "".join(self.words[token] for token in batch.tokens[row, : position + 1])

        return self._read(np.arange(len(batch.read_rows)), batch.read_tokens, before)

    def _read(self, places: np.ndarray, tokens: np.ndarray, before: Callable[[int], str]) -> Floats:
        time.sleep(self.pause_s)
        nats = []
        for place, token in zip(places, tokens, strict=True):
            word = self.words[token]
            group = PRONOUNS.get(word.strip().lower())
            nats.append(_word_nats(word) if group is None else math.log(self._shares(before(place))[group]))
        return np.array(nats, dtype=np.float64)

    def _shares(self, before: str) -> dict[str, float]:
        year = re.search(r"\b(1[5-9]|20)\d\d\b", before)
        drift = self.slope_per_year * (int(year.group()) - 1900) if year else 0.0
        female = min(max(0.30 + drift + 0.01 * (_unit(before) - 0.5), 0.01), LISTED_SHARE - NEUTRAL - 0.01)
        return {"female": female, "male": LISTED_SHARE - NEUTRAL - female, "neutral": NEUTRAL}

    def memory_bytes(self, budget_tokens: int) -> int:
        """Next to nothing."""
        return 1024 * budget_tokens


def _choose_label(query: MultipleChoiceQuery) -> Outcome:
    """The label of the largest share."""
    labels = [label.strip() for label in query.labels]
    read = [TOKEN.findall(label)[0] for label in labels] if query.first_token else labels
    if len(set(read)) < len(read):
        return UnsupportedQueryError("labels begin with the same word, so they cannot be told apart by it")
    weights = [1.0 + _unit(f"{query.display_text()}\n{one}") for one in read]
    nats = tuple(math.log(LISTED_SHARE * weight / math.fsum(weights)) for weight in weights)
    return Answer(nats, 1.0 - LISTED_SHARE, text=labels[nats.index(max(nats))])


def _write_passage(query: ConstrainedGenerateQuery) -> Outcome:
    """The passage, or the first half of it."""
    words = list(re.finditer(r"\S+", query.passage))
    if not words:
        return UnsupportedQueryError(EMPTY_PASSAGE)
    if query.constraint != UNCONSTRAINED:
        words = words[: max(1, len(words) // 2)]
    nats = math.fsum(_word_nats(word.group()) for word in words)
    text = query.passage if query.constraint == UNCONSTRAINED else query.passage[words[0].start() : words[-1].end()]
    return Answer((nats,), math.nan, text=text)


def _word_nats(word: str) -> float:
    """Log-probability of a word that is no pronoun."""
    return -1.0 - _unit(word)


def _unit(text: str) -> float:
    """A number in 0 to 1 that depends on the text only."""
    return zlib.crc32(text.encode()) / 2**32
