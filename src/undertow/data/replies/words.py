"""Replies that give a listed word, such as a pronoun for a blank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from undertow.data.replies.answer_rules import rules
from undertow.data.replies.choices import ChoiceReader, Mention, verdicts
from undertow.data.replies.reply_question import ANSWER, OTHER, REFUSAL, UNCLEAR, Reading, declines

MASKS = ("<mask>", "[MASK]", "___", "_")
SHORT_WORDS, TINY_WORDS = 15, 2
"""Maximum words of a reply whose only listed word is the answer at any position, and of a reply that is just a word."""


def read_word(reader: ChoiceReader, text: str) -> Reading:
    """The listed word that a reply gives: alone, announced, in the blank, quoted, at its beginning, or after "the pronoun is"."""
    text = rules().patterns["shape.he_or_she"].sub("she or he", text)
    text = rules().patterns["reply.greeting"].sub("", text, count=1)
    text = rules().cut("aside.concession", text)
    shorter = rules().cut("aside.alternative", text)
    text = shorter if reader.mentions(shorter) else text
    word = reader.whole(text) or _read_announced(reader, text) or _read_blank(reader, text)
    if word is not None:
        return Reading(ANSWER, word)
    for given in (_read_quoted(reader, text), _first(reader, text), _led_to(reader, text)):
        if given is not None:
            return given
    if declines(text):
        return Reading(REFUSAL)
    hits, n_words = reader.mentions(text), len(text.split())
    if not rules().has("unclear.cues", text):
        word = _of_one_group(reader, hits)
        if word is not None and n_words <= SHORT_WORDS:
            return Reading(ANSWER, word)
        if not hits and n_words <= TINY_WORDS and not rules().has("unclear.interjection", text):
            return Reading(OTHER)
    return Reading(UNCLEAR)


def _of_one_group(reader: ChoiceReader, hits: Sequence[Mention]) -> str | None:
    """The first of several words, if they are of one group."""
    group_of = dict(zip(reader.question.answers, reader.question.groups, strict=True))
    return hits[0][0] if len({group_of[name] for name, _, _ in hits}) == 1 else None


def _read_announced(reader: ChoiceReader, text: str) -> str | None:
    heads = (reader.mentions(re.split(r"[.,;(!]", segment, maxsplit=1)[0]) for _, segment in verdicts(text))
    return next((word for hits in heads if (word := _of_one_group(reader, hits)) is not None), None)


def _read_blank(reader: ChoiceReader, text: str) -> str | None:
    """The word in the blank, if a reply repeats the sentence with it."""
    for mark in MASKS:
        before, there, behind = reader.question.prompt.rpartition(mark)
        left, right = re.findall(r"\w+", before.split("\n")[-1])[-2:], re.findall(r"\w+", behind.split("\n")[0])[:2]
        if there and len(left) + len(right) > 2:
            shape = r"\W+".join([*map(re.escape, left), r"(\w+)", *map(re.escape, right)])
            if match := re.search(shape, text, re.IGNORECASE):
                return reader.whole(match.group(1))
    return None


def _read_quoted(reader: ChoiceReader, text: str) -> Reading | None:
    known = rules()
    quoted = [
        hits
        for part in known.patterns["shape.quoted"].finditer(text)
        if (hits := reader.whole(part.group(1))) is not None and not reader.is_out(text, part.start(), part.end())
    ]
    if not quoted:
        return None
    word, last = (
        _of_one_group(reader, [(one, 0, 0) for one in quoted]),
        known.patterns["shape.last_quoted"].search(text),
    )
    word = word or (reader.whole(last.group(1)) if last else None)
    return Reading(UNCLEAR) if word is None else Reading(ANSWER, word)


def _first(reader: ChoiceReader, text: str) -> Reading | None:
    known, start = rules(), text.lstrip("\"'([{ ")
    hits = reader.mentions(start)
    if not hits or hits[0][1] or not known.starts("shape.word_ends", start[hits[0][2] :]):
        return None
    return Reading(UNCLEAR) if known.starts("shape.word_or", start[hits[0][2] :]) else Reading(ANSWER, hits[0][0])


def _led_to(reader: ChoiceReader, text: str) -> Reading | None:
    known = rules()
    leads = known.fill("shape.word_leads", options="(?:" + re.sub(r"\?P<a\d+>", "?:", reader.pattern.pattern) + ")")
    for sentence in reversed(re.split(r"(?<=[.!?])\s|\n", text)):
        if (match := leads.search(sentence)) and not declines(sentence):
            before = sentence[: match.end()]
            doubtful = known.has("unclear.cues", before) and not known.has("shape.decides", before)
            if (word := _of_one_group(reader, reader.mentions(sentence[match.end() :]))) is not None and not doubtful:
                return Reading(ANSWER, word)
    return None
