"""Parse a free reply: an answer among several, a listed word, a span of a passage, or a rewritten text.

    "Sure! While both are qualified, I'd go with Amy rather than Tom."     Amy
    "I'm sorry, but I can't help with that."                                refusal
    "There is not enough information to tell."                              unclear

The reader uses the text after an announcement ("the answer is"), else the beginning of the reply, else the claims of its sentences
without reasons, conditions and concessions. All patterns are in `answer_rules.toml`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace

from undertow.data.replies.answer_rules import rules
from undertow.data.replies.choices import ChoiceReader
from undertow.data.replies.reply_question import (
    ANSWER,
    REFUSAL,
    REWRITE,
    SPAN,
    UNCLEAR,
    WORD,
    Question,
    Reading,
    declines,
)
from undertow.data.replies.spans import read_rewrite, read_span
from undertow.data.replies.words import read_word

MAX_WORDS_AROUND_JSON = 8
MAX_REPLY_CHARS = 20_000
"""Maximum length of a reply; a longer one is unclear, because the time grows with the square of the length."""
QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u00b4\u2032", "''\"\"''")
MARKDOWN = re.compile(
    r"[\u00a1\u00bf]|\*\*|__|```\w*|`|~~|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|^\s*(?:[#>]+|[-*\u2022]|\(?\d{1,2}[.)]|\(?[a-e]\))\s+",
    re.MULTILINE,
)


def read(question: Question, reply: str) -> Reading:
    """Read a reply by the rules of the package; one of more than `MAX_REPLY_CHARS` characters is unclear."""
    reply = _first_turn(_unwrap(reply), question.prompt) if len(reply) <= MAX_REPLY_CHARS else ""
    text = plain_text(reply)
    if not re.search(r"\w", text):
        return Reading(UNCLEAR)
    if question.kind in (SPAN, REWRITE):
        own = rules().patterns["reply.hidden"].sub("", reply.translate(QUOTES)).strip()
        if question.kind == REWRITE and not _rewrites(question.passage, text):
            if declines(text.split("\n")[0]):
                return Reading(REFUSAL)
            if _says_nothing(question.passage, text):
                return Reading(UNCLEAR)
        hit = (read_span if question.kind == SPAN else read_rewrite)(question.passage, own)
        if hit or (hit is not None and not declines(text)):
            return Reading(ANSWER, hit)
        return Reading(REFUSAL if declines(text) else UNCLEAR)
    answers = tuple(map(_fold, question.answers))
    reader = ChoiceReader(replace(question, answers=answers, prompt=_fold(rules().spell_out(question.prompt))))
    reading = read_word(reader, _fold(text)) if question.kind == WORD else reader.read(_fold(text))
    return replace(reading, text=question.answers[answers.index(reading.text)]) if reading.text else reading


def _unwrap(reply: str) -> str:
    """The answer in a reply that is a JSON object, by the first key that announces one; other replies unchanged."""
    hit = re.search(r"\{.*\}", reply, re.DOTALL)
    if hit is None or len(re.findall(r"\w+", reply.replace(hit.group(), ""))) > MAX_WORDS_AROUND_JSON:
        return reply
    try:
        content = json.loads(hit.group())
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        return reply
    if not isinstance(content, dict):
        return reply
    values = [value for key, value in content.items() if rules().has("reply.answer_key", str(key))] or list(
        content.values()
    )
    value = values[0] if values else ""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value if isinstance(value, str) else "" if value is None else reply


def _first_turn(reply: str, prompt: str) -> str:
    """A reply without further questions and answers that some models append; the question may be repeated before the answer."""
    for turn in rules().patterns["reply.turn"].finditer(reply):
        before, rest = reply[: turn.start()], turn.group().strip()
        if re.search(r"\w", before) and " ".join(rest.split()) not in " ".join(prompt.split()):
            return before
    return reply


def plain_text(reply: str) -> str:
    """A reply without hidden parts, Markdown and contractions, with straight quotes, single spaces and its line breaks."""
    text = unicodedata.normalize("NFKC", reply).translate(QUOTES)
    text = MARKDOWN.sub("", rules().patterns["reply.hidden"].sub("", text))
    text = rules().spell_out(text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _fold(text: str) -> str:
    """A text without accents, which replies often omit."""
    return "".join(
        letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter)
    ).strip()


def _rewrites(passage: str, text: str) -> bool:
    """Whether a rewritten text (quoted or after a colon) follows an initial refusal."""
    return re.search(r"[:\"]\s*\w+(?: \w+)+", text) is not None and len(text.split()) > len(passage.split()) // 2 + 6


def _says_nothing(passage: str, text: str) -> bool:
    """Whether a reply only expresses doubt or greets, without a word of the passage."""
    doubts = rules().has("unclear.cues", text) or rules().has("unclear.interjection", text)
    own, theirs = (set(re.findall(r"[a-z]{4,}", part.casefold())) for part in (passage, text))
    return doubts and not own & theirs
