"""Parse the top log-probabilities of an OpenAI-compatible server into decoding steps.

    shown      she .41   he .33   " she" .05   the .02        she: .46, and of two spellings both were seen
    not shown  .19 in all, none of them above .02             he: .33 to .35, they: 0 to .06, if "the" began it

A server's tokenizer is not known, so a word may be several tokens; any shown token that the word begins with may be its first,
even one that is a word itself ("He" of *Her*), until an answer of the run shows the longer word as one token.

Servers show log-probabilities in two shapes: lists side by side (completions, as they were first), and one list of tokens
(chat, and completions of some servers).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from undertow.models.base import CONTENT_FILTER, PAPER_TOP, UnsupportedQueryError
from undertow.models.generation.prompt_encoder import OPEN_THOUGHT
from undertow.models.generation.step_readout import Step, answer_of, places_that_count, steps_that_count
from undertow.models.tokens.option_tokens import PIECE_SPACE
from undertow.types import PAPER, TEXT, Answer, GenerateQuery, Option

HIDDEN_NATS = -1000.0
"""Servers write a number below this (-9999, or the smallest float) for a hidden token."""
ROUNDING_NATS = 0.01
ROUNDING_PROB = 1e-6
"""Tolerance: rounded probabilities may add up to 1 though a token is hidden."""
MAX_PROB = 1.02
"""Largest sum of a step's probabilities; beyond it a token is repeated or the numbers are not probabilities."""
SPENT = "the answer has no text: the model spent all its tokens before it wrote any, as models that reason first do"
READ_TEXT = f"read replies with --protocol {TEXT}"
THINKS = f"the answer begins with {OPEN_THOUGHT}, so its first words are no answer; {READ_TEXT}"
OTHER_TOKENS = (
    f"the log-probabilities are of other tokens than the answer's, such as those of the model's reasoning; {READ_TEXT}"
)
TOKEN_IDS = (
    "the log-probabilities name tokens by number (token_id:...); start the server so that it names them by text (vLLM: without "
    f"--return-tokens-as-token-ids), or {READ_TEXT}"
)
UNDECIDED = f"the log-probabilities are of the answer's first tokens only, which do not decide it; {READ_TEXT}"
STOP, LENGTH, FILTERED, FAILED = "stop", "length", "content_filter", "error"
FINISH_REASONS: Mapping[str, str] = {
    **dict.fromkeys((STOP, "eos", "eos_token", "end_turn", "stop_sequence", "complete"), STOP),
    **dict.fromkeys((LENGTH, "max_tokens", "model_length"), LENGTH),
    **dict.fromkeys((FILTERED, "content_filtered", "guardrail_intervened", "refusal", "error_toxic"), FILTERED),
    **dict.fromkeys(("safety", "prohibited_content", "blocklist", "recitation", "spii"), FILTERED),
    **dict.fromkeys((FAILED, "abort", "insufficient_system_resource"), FAILED),
}
"""Why an answer ended, by the words of servers in lower case: OpenAI, TGI, Anthropic, Cohere, Mistral, Bedrock, Gemini."""
BYTES, TOKEN_ID, BYTE_TOKEN = "bytes:", re.compile(r"token_id:\d+"), re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPECIAL = re.compile(r"\s*<[^<>]*>\s*")
"""A token such as <|im_end|>, which the text may lack."""
HALF = "\N{REPLACEMENT CHARACTER}"
"""What servers show for a part of a character."""

Claim: TypeAlias = tuple[int, tuple[int, ...]]
"""The option that a shown token spells, -1 for none, and the longer options that it may begin."""


class IncompleteResponseError(Exception):
    """A response is incomplete; the message says what it lacks. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """One decoded token as a server shows it.

    Attributes:
        token: its text.
        logprob_nats: its log-probability.
        top: the most probable tokens there with theirs.
        by_text: whether `top` came by text, so that of tokens with equal text one is left.
        spelling: bytes of the token.
    """

    token: str
    logprob_nats: float
    top: tuple[tuple[str, float], ...]
    by_text: bool = False
    spelling: bytes = b""

    def most_probable(self, n: int) -> list[tuple[str, float]]:
        """The most probable tokens that were really shown, `n` at most, with their probabilities."""
        ranked = sorted(self.top, key=lambda pair: pair[1], reverse=True)
        return [(text, math.exp(nats)) for text, nats in ranked[:n] if nats > HIDDEN_NATS]

    def pairs_with_own(self, n: int) -> list[tuple[str, float]]:
        """The same with the decoded token, where it comes on top of their number."""
        pairs = self.most_probable(n)
        if self.token not in {text for text, _ in pairs} and self.logprob_nats > HIDDEN_NATS:
            pairs.append((self.token, math.exp(self.logprob_nats)))
        return pairs

    def hidden_probs(self, n: int) -> tuple[float, float]:
        """Probability that is not shown where `n` tokens were requested: of all hidden tokens, and of one at most."""
        # A decoded token outside the most probable ones comes on top of their number, and tokens above it may be hidden.
        least = min((prob for _, prob in self.most_probable(n)), default=1.0)
        total = sum(prob for _, prob in self.pairs_with_own(n))
        return max(ROUNDING_PROB, 1.0 - total), 1.0 if self.lacks_token(n) else least

    def lacks_token(self, n: int) -> bool:
        """Whether a token may be lost to another of equal text: it can be any, and as probable as can be."""
        return self.by_text and len(self.top) < n

    @property
    def is_sure(self) -> bool:
        """Whether one token has all of the probability."""
        nats = max(self.logprob_nats, *(nats for _, nats in self.top))
        return math.exp(nats) >= 1.0 - ROUNDING_PROB


@dataclass(frozen=True, slots=True)
class WantedWords:
    """What is looked for in an answer.

    Attributes:
        words: of the options [option]; "" for one that is no single word, or counts with an earlier one.
        top: number of top tokens requested per step.
    """

    words: tuple[str, ...]
    top: int
    protocol: str


@dataclass(frozen=True, slots=True)
class ServedStep(Step):
    """A step; `shared` is the probability of shown tokens that may begin longer options, by claim."""

    shared: Mapping[Claim, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedMass:
    """Probability in an answer that belongs to one option or another, as long as their tokens are not known.

    Attributes:
        words, groups: of the options [option].
        probs: mean over the steps that count, by claim.
    """

    words: tuple[str, ...]
    groups: tuple[str, ...]
    probs: Mapping[Claim, float]

    def undecided(self, whole: Collection[str]) -> list[tuple[int, list[int], float]]:
        """The claims (option, options of other groups that it may begin, probability) that remain if these words are one token."""
        claims = []
        for (own, longer), prob in self.probs.items():
            # What two options of one group share is that group's, whichever has it.
            group = self.groups[own] if own >= 0 else None
            rest = [at for at in longer if self.words[at] not in whole and self.groups[at] != group]
            if rest:
                claims.append((own, rest, prob))
        return claims

    def with_bounds(self, answer: Answer, whole: Collection[str]) -> Answer:
        """The answer with this probability in the bounds of each option that may have it, and in the sure part of none."""
        nats, ceilings = list(answer.logprobs_nats), list(answer.upper_bound_prob)
        claims = self.undecided(whole)
        for own, longer, prob in claims:
            if own >= 0:
                left = math.exp(nats[own]) - prob
                nats[own] = math.log(left) if left > 0 else -math.inf
            for at in {own, *longer} - {-1}:
                ceilings[at] += prob
        return replace(
            answer,
            logprobs_nats=tuple(nats),
            upper_bound_prob=tuple(ceilings),
            truncated_prob=answer.truncated_prob + sum(prob for *_, prob in claims),
        )


@dataclass(slots=True)
class LogprobCoverage:
    """What the server showed in the answers of a run.

    Attributes:
        spreads: whether the probability of any step was on more than one token.
        words, whole: words that were looked for, and those that were shown as one token.
        fewest: smallest number of tokens shown of a step, by the number requested.
    """

    spreads: bool = False
    words: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    fewest: dict[int, int] = field(default_factory=dict)

    def add(self, steps: Sequence[TopLogprobs], wanted: WantedWords) -> None:
        """One more answer."""
        if not steps:
            return
        self.spreads = self.spreads or not all(step.is_sure for step in steps)
        words = {word for word in wanted.words if word}
        self.words |= words
        self.whole |= words & {text.strip() for step in steps for text, _ in step.pairs_with_own(wanted.top)}
        fewest = min(len(step.most_probable(wanted.top)) for step in steps)
        self.fewest[wanted.top] = min(fewest, self.fewest.get(wanted.top, fewest))

    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know of it."""
        notes = [
            f"of {requested} requested tokens, the server shows as few as {fewest} of a step"
            for requested, fewest in sorted(self.fewest.items())
            if fewest < requested
        ]
        pieces = sorted(self.words - self.whole)
        if pieces:
            notes.append(f"never shown as one token, so possibly several: {', '.join(pieces)}")
        return tuple(notes)


def words_of(prompt: GenerateQuery) -> tuple[str, ...] | UnsupportedQueryError:
    """The word of each option [option], or why the options cannot be distinguished."""
    owner: dict[str, str] = {}
    words = []
    for option in prompt.options:
        word = option.fills[0].strip()
        if owner.get(word, option.group) != option.group:
            return UnsupportedQueryError(f"{word!r} is an option of {owner[word]} and one of {option.group}")
        words.append("" if word in owner or len(word.split()) != 1 else word)
        owner[word] = option.group
    return tuple(words)


def answer_in(body: Mapping[str, Any], max_tokens: int) -> tuple[Mapping[str, Any], str, str]:
    """The answer in a response, its text, and why it ended: a value of `FINISH_REASONS`, or as the server says.

    Raises:
        IncompleteResponseError: there is none, or the server failed before its end.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise IncompleteResponseError("a response without an answer")
    choice, text = choices[0], text_of(choices[0])
    finish = finish_reason(choice.get("finish_reason"))
    if text and not finish and _n_counted(body) >= max_tokens:
        finish = LENGTH
    if finish == FAILED:
        raise IncompleteResponseError("an answer that ended with an error of the server")
    if not text and finish not in (STOP, LENGTH, FILTERED):
        raise IncompleteResponseError("a response with nothing in it")
    return choice, text, finish


def finish_reason(given: Any) -> str:
    """Why an answer ended, in OpenAI's word if the server's is known; "" if it does not say.

    "FinishReason.MAX_TOKENS" -> "length"; "content_filter: PROHIBITED_CONTENT" -> "content_filter"; {"type": "stop"} -> "stop"
    """
    reason = str((given.get("type") if isinstance(given, Mapping) else given) or "")
    words = re.findall(r"[a-z_]+", reason.casefold())
    return next((FINISH_REASONS[word] for word in words if word in FINISH_REASONS), reason)


def n_written(body: Mapping[str, Any], max_tokens: int) -> int:
    """Tokens of an answer that was cut off: `max_tokens`, or fewer where the server counts fewer, since the context was full."""
    return n_tokens if 0 < (n_tokens := _n_counted(body)) < max_tokens else max_tokens


def _n_counted(body: Mapping[str, Any]) -> int:
    """Tokens of an answer as the server counts them; 0 if it does not."""
    usage = body.get("usage")
    n_tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return n_tokens if isinstance(n_tokens, int) else 0


def text_of(choice: Mapping[str, Any]) -> str:
    """What the model wrote, without thinking parts; "" for nothing. Half a character, which no file can store, is a question mark.

    Raises:
        IncompleteResponseError: it is no text.
    """
    message = choice.get("message")
    holder, name = (message, "content") if isinstance(message, Mapping) else (choice, "text")
    text = holder.get(name) or holder.get("refusal") or ""
    if isinstance(text, list) and all(isinstance(part, Mapping) for part in text):
        written = [part for part in text if part.get("type") not in ("thinking", "reasoning")]
        parts = [part.get("refusal" if part.get("type") == "refusal" else "text") for part in written]
        text = "".join(parts) if all(isinstance(part, str) for part in parts) else None
    if not isinstance(text, str):
        raise IncompleteResponseError("an answer that is not text")
    return text.encode("utf-8", "replace").decode()


def refusal_in(finish: str, text: str) -> UnsupportedQueryError | None:
    """Why an answer that ended like this has no probabilities, if so."""
    if finish == FILTERED:
        return UnsupportedQueryError(f"{CONTENT_FILTER} stopped the answer")
    return UnsupportedQueryError(SPENT) if finish == LENGTH and not text else None


def top_logprobs_of(choice: Mapping[str, Any]) -> list[TopLogprobs]:
    """The tokens of an answer with what was shown of each; none, if nothing was.

    Raises:
        IncompleteResponseError: a piece is missing, or is not what it should be.
    """
    given = choice.get("logprobs")
    if not isinstance(given, Mapping):
        return []
    try:
        content = given.get("content") or given.get("refusal")
        if content:
            return [
                _top_logprobs(one["token"], one["logprob"], one["top_logprobs"], one.get("bytes")) for one in content
            ]
        if not given.get("tokens") or given.get("top_logprobs") is None:
            return []
        columns = given["tokens"], given["token_logprobs"], given["top_logprobs"]
        return [_top_logprobs(*row) for row in zip(*columns, strict=True)]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise IncompleteResponseError("log-probabilities with pieces missing or too many") from error


def _top_logprobs(token: Any, nats: Any, top: Any, spelling: Any = None) -> TopLogprobs:
    listed = (
        top.items() if isinstance(top, Mapping) else [(one["token"], one["logprob"], one.get("bytes")) for one in top]
    )
    rows = [(token, nats, spelling), *((*row, None)[:3] for row in listed)]
    if len(rows) == 1 or not all(isinstance(row[0], str) and float(row[1]) < ROUNDING_NATS for row in rows):
        raise ValueError("no token, or no log-probability")
    read = [(*_decoded(text, given), min(float(value), 0.0)) for text, value, given in rows]
    pairs = [(text.replace(PIECE_SPACE, " "), value) for text, _, value in read]
    step = TopLogprobs(*pairs[0], tuple(pairs[1:]), by_text=isinstance(top, Mapping), spelling=read[0][1])
    if sum(prob for _, prob in step.pairs_with_own(len(step.top))) > MAX_PROB:
        raise ValueError("more than all of the probability")
    return step


def _decoded(token: str, given: Any) -> tuple[str, bytes]:
    r"""A token's text and bytes, `given` if the server lists them; a text such as bytes:\xc3\xa9, <0xC3> or token_id:7 is decoded."""
    plain = token.encode("utf-8", "replace")
    is_listed = isinstance(given, list) and given and all(isinstance(one, int) and 0 <= one < 256 for one in given)
    spelling = bytes(given) if is_listed else plain
    if byte := BYTE_TOKEN.fullmatch(token):
        spelling = bytes.fromhex(byte[1])
    elif token.startswith(BYTES) and "\\x" in token:
        rest = plain.removeprefix(BYTES.encode())
        spelling = re.sub(rb"\\x([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), rest)
    elif not (TOKEN_ID.fullmatch(token) and spelling != plain):
        return token, spelling
    return spelling.decode("utf-8", "replace"), spelling


def without_end(steps: Sequence[TopLogprobs], text: str, finish: str) -> Sequence[TopLogprobs]:
    """Without the token that ended the answer, which some servers list: no text has it.

    tokens  "Yes"  "."  ""             text "Yes."
    tokens  "Yes"  "."  "<|im_end|>"   text "Yes."
    """
    if not steps or finish != STOP:
        return steps
    tokens = [step.token for step in steps]
    ends = not tokens[-1] or _letters(*tokens[:-1]) == _letters(text) != _letters(*tokens)
    return steps[:-1] if ends else steps


def _letters(*texts: str) -> str:
    """All but the space in them, which some servers strip from each token."""
    return "".join("".join(texts).split())


def has_token_ids(steps: Sequence[TopLogprobs]) -> bool:
    """Whether any token is named by its number instead of its text."""
    return any(TOKEN_ID.fullmatch(text) for step in steps for text, _ in ((step.token, 0.0), *step.top))


def rest_of(steps: Sequence[TopLogprobs], text: str) -> str | None:
    """The part of a text that follows its shown tokens, "" if they spell all of it; None if they spell something else.

    Space does not count, as some servers strip it, nor do special tokens that the text lacks; where a token is a part of a character,
    only ASCII counts.

        tokens  "The"                            text "The word is she."   ->   " word is she."
        tokens  "Hmm"  " he"  "</think>"  "She"  text "She"                ->   None
    """
    if has_token_ids(steps):
        return None
    plain = [step for step in steps if not (SPECIAL.fullmatch(step.token) and step.token.strip() not in text)]
    by_text = ["".join(step.token for step in some) for some in (steps, plain)]
    by_bytes = [b"".join(step.spelling for step in some).decode("utf-8", "replace") for some in (steps, plain)]
    for spelled in (*by_text, *(one.replace(PIECE_SPACE, " ") for one in by_bytes)):
        in_ascii = HALF in spelled + text
        letters = _letters(spelled.encode("utf-8", "replace").decode())
        letters = "".join(letter for letter in letters if letter.isascii() or not in_ascii)
        places = [at for at, letter in enumerate(text) if not letter.isspace() and (letter.isascii() or not in_ascii)]
        n = len(letters)
        if letters == "".join(text[at] for at in places[:n]):
            return text[places[n - 1] + 1 if n else 0 :] if n < len(places) else ""
    return None


def place_that_decides(steps: Sequence[ServedStep], rest: str, options: Sequence[Option]) -> int | None:
    """The index of the step that counts whatever the probabilities in the rest of the text; None if these count too."""
    behind = [Step(piece, ()) for piece in re.findall(r"\s*(?:\w+|[^\w\s])", rest)]
    places = places_that_count([*steps, *behind], options)
    return places[0] if len(places) == 1 and places[0] < len(steps) else None


def is_one_hot(written: Sequence[TopLogprobs]) -> bool:
    """Whether all of several steps have all of the probability on one token, as after sampling at temperature 0."""
    return len(written) > 1 and all(step.is_sure for step in written)


def first_token_bounds(query: GenerateQuery, written: Sequence[TopLogprobs], text: str) -> Answer:
    """A reply, and bounds on the probability of each option from its first token.

    A token that is the whole first word of one option alone commits the reply to it; any other may lead to every option. Spellings
    of a word are one option.

        shown     Yes .62   yes .03   No .20   Based .10      Yes: .65 to .80, No: .20 to .35
    """
    words = [option.fills[0].strip().casefold() for option in query.options]
    firsts = {word: next(iter(word.split()), "") for word in words}
    n_words = Counter(firsts.values())
    if not written or not words or is_one_hot(written):
        return Answer((math.nan,) * len(words), math.nan, text=text)
    pairs = [(token.strip().casefold(), prob) for token, prob in written[0].pairs_with_own(len(written[0].top))]
    low_probs = {
        word: sum(prob for token, prob in pairs if token == first and n_words[first] == 1)
        for word, first in firsts.items()
    }
    total = min(sum(low_probs.values()), 1.0)
    lows = [low_probs[word] for word in words]
    return Answer(
        tuple(math.log(low) if low > 0 else -math.inf for low in lows),
        1.0 - total,
        text=text,
        upper_bound_prob=(1.0 - total,) * len(lows),
        truncated_prob=1.0 - total,
    )


def step_of(step: TopLogprobs, following: TopLogprobs | None, wanted: WantedWords, *, ended: bool) -> ServedStep:
    """The distribution of one step, as far as it was shown; `following` is the next step, `ended` whether the answer ended instead."""
    pairs = step.pairs_with_own(wanted.top)
    if wanted.protocol == PAPER:
        pairs = sorted(pairs, key=lambda pair: pair[1], reverse=True)[:PAPER_TOP]
    by_word = [[prob for text, prob in pairs if text.strip() == word] for word in wanted.words]
    probs = tuple(sum(own) if word else math.nan for word, own in zip(wanted.words, by_word, strict=True))
    if wanted.protocol == PAPER:
        return ServedStep(step.token, probs)
    n_seen = (0,) * len(by_word) if step.lacks_token(wanted.top) else tuple(map(len, by_word))
    truncated_prob, least_prob = step.hidden_probs(wanted.top)
    return ServedStep(
        token=step.token,
        probs=probs,
        n_seen=n_seen,
        truncated_prob=truncated_prob,
        least_prob=least_prob,
        shared=_shared_probs(step, pairs, wanted, following, ended=ended),
    )


def _shared_probs(
    step: TopLogprobs,
    pairs: Sequence[tuple[str, float]],
    wanted: WantedWords,
    following: TopLogprobs | None,
    *,
    ended: bool,
) -> Mapping[Claim, float]:
    """Probability of the shown tokens that may begin longer options; of the decoded one, what may go on to them."""
    shared = defaultdict[Claim, float](float)
    for text, prob in pairs:
        piece = text.strip()
        rests = {at: word[len(piece) :] for at, word in enumerate(wanted.words) if piece and word.startswith(piece)}
        own = next((at for at, rest in rests.items() if not rest), -1)
        rests.pop(own, None)
        if not rests:
            continue
        shares: Mapping[tuple[int, ...], float] = {tuple(rests): 1.0}
        if text == step.token:
            shares = _shares_going_on(rests, wanted.top, following, ended=ended)
        for longer, share in shares.items():
            shared[own, longer] += prob * share
    return shared


def _shares_going_on(
    rests: Mapping[int, str], top: int, following: TopLogprobs | None, *, ended: bool
) -> Mapping[tuple[int, ...], float]:
    """Upper bound of the share of a decoded token that goes on to each of these rests of options, by the options that it may spell."""
    starts = {rest[:size] for rest in rests.values() for size in range(1, len(rest) + 1)}
    if following is None:  # the end was at least as probable as each of the tokens that go on
        return {tuple(rests): len(starts) / (len(starts) + 1) if ended else 1.0}
    pairs, shares = following.pairs_with_own(top), defaultdict[tuple[int, ...], float](float)
    for text, prob in pairs:
        if text in starts:
            shares[tuple(at for at, rest in rests.items() if rest.startswith(text))] += prob
    hidden_prob, least_prob = following.hidden_probs(top)
    shares[tuple(rests)] += min(hidden_prob, least_prob * len(starts - {text for text, _ in pairs}))
    return shares


def add_spaces(steps: Sequence[ServedStep], text: str) -> Sequence[ServedStep]:
    """With the space before each token that the text has, where a server strips it; as they are, where they do not fit.

    tokens  "was"  "she"  "."   text "was she."   ->   "was"  " she"  "."
    """
    if "".join(step.token for step in steps).strip() == text.strip():
        return steps
    at, with_spaces = 0, []
    for step in steps:
        token = step.token.lstrip()
        start = len(text) - len(text[at:].lstrip())
        if not text.startswith(token, start):
            return steps
        end = start + len(token)
        with_spaces.append(replace(step, token=text[at:end]))
        at = end
    return with_spaces


def served_answer(
    prompt: GenerateQuery, steps: Sequence[ServedStep], text: str, words: tuple[str, ...]
) -> tuple[Answer, SharedMass]:
    """What the steps of this text say of the options, were each word one token; and what words of several tokens may have."""
    answer = answer_of(prompt, steps, text)
    if not answer.upper_bound_prob:
        return answer, SharedMass(words, (), {})
    counted = cast(Sequence[ServedStep], steps_that_count(steps, prompt.options))
    shared = defaultdict[Claim, float](float)
    for step in counted:
        for claim, prob in step.shared.items():
            shared[claim] += prob / len(counted)
    return answer, SharedMass(words, tuple(option.group for option in prompt.options), shared)
