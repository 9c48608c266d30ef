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
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from undertow.data.replies.answer_rules import (
    ANSWER,
    CHOICE,
    OTHER,
    REFUSAL,
    REWRITE,
    SPAN,
    UNCLEAR,
    WORD,
    YES_NO,
    Question,
    Reading,
    declines,
    rules,
)
from undertow.data.replies.choices import ChoiceReader, Mention, verdicts
from undertow.data.replies.labels import LabelReader
from undertow.data.replies.passages import announced_rewrite, read_rewrite, read_span
from undertow.data.replies.yes_no import YesNoReader

MASKS = ("<mask>", "[MASK]", "___", "_")
WORD_SENTENCE = re.compile(r"(?<=[.!?;])[\"')]*\s+(?=\W*[A-Z])|;\s+|(?<!:)\n+")
MAX_WORDS_BETWEEN = 4
"""Maximum number of words between "I would choose" and the word."""
SHORT_WORDS, TINY_WORDS = 15, 2
"""Maximum words of a reply whose only listed word is the answer at any position, and of a reply that is just a word."""


def read_word(reader: ChoiceReader, text: str) -> Reading:
    """The listed word that a reply gives: alone, announced, in the blank, quoted, at its beginning, or after "the pronoun is"."""
    text = rules().patterns["shape.he_or_she"].sub("she or he", text)
    text = rules().patterns["reply.greeting"].sub("", text, count=1)
    if (word := _chosen(reader, text)) is not None:
        return Reading(ANSWER, word)
    if _of_one_group(reader, reader.mentions(text)) is None and len(sentences := WORD_SENTENCE.split(text)) > 1:
        whole, text = text, _committed(reader, sentences)
        if not text:
            return Reading(REFUSAL if declines(whole) else UNCLEAR)
    text = rules().cut("aside.concession", text)
    shorter = rules().cut("aside.alternative", text)
    text = shorter if reader.mentions(shorter) else text
    word = reader.whole(text) or _read_announced(reader, text) or _read_blank(reader, text)
    if word is not None:
        return Reading(ANSWER, word)
    for given_word in (_read_quoted(reader, text), _first(reader, text), _led_to(reader, rules().cut("word.possessive", text))):
        if given_word is not None:
            return given_word
    if declines(text):
        return Reading(REFUSAL)
    hits, n_words = reader.mentions(rules().cut("word.possessive", text)), len(text.split())
    if not rules().has("unclear.cues", text):
        word = _of_one_group(reader, hits)
        if word is not None and n_words <= SHORT_WORDS:
            return Reading(ANSWER, word)
        other = n_words <= TINY_WORDS or rules().starts("word.other", text)
        if not hits and other and not rules().has("unclear.interjection", text):
            return Reading(OTHER)
    return Reading(UNCLEAR)


def _chosen(reader: ChoiceReader, text: str) -> str | None:
    """The word after the last "I would choose"."""
    known = rules()
    for sentence in reversed(WORD_SENTENCE.split(text)):
        choice = known.patterns["word.chooses"].search(sentence)
        behind = sentence[choice.end() :] if choice else ""
        hits = reader.mentions(behind)
        if hits and len(behind[: hits[0][1]].split()) <= MAX_WORDS_BETWEEN and not known.has("word.or", behind):
            return hits[0][0]
    return None


def _committed(reader: ChoiceReader, sentences: Sequence[str]) -> str:
    """What gives one of several words: the first sentence, else those that neither offer words nor add a caveat."""
    known, first = rules(), sentences[0]
    if not known.has("word.offers", first) and read_word(reader, first).outcome == ANSWER:
        return first
    given = [known.patterns["word.possessive"].sub("", one) for one in sentences if not known.has("word.offers", one)]
    text = " ".join(given)
    words = [word for one in given if (word := read_word(reader, one).text)]
    if (word := _of_one_group(reader, [(one, 0, 0) for one in words])) is not None:
        return word
    if words:
        return next((one for one in reversed(given) if known.has("word.announces", one)), "")
    return text if reader.mentions(text) else ""


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
            filled = r"\W+".join([r"(\w+)", *map(re.escape, right)])
            shape = r"\W+".join([*map(re.escape, left), filled])
            given = re.findall(shape, text, re.IGNORECASE) or re.findall(rf"^\W*{filled}", text, re.IGNORECASE)
            words = [word for one in given if (word := reader.whole(one)) is not None]
            return _of_one_group(reader, [(word, 0, 0) for word in words])
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


MAX_PEOPLE = 4
"""Maximum number of answers to a choice of people: two, both, and neither. Others choose a label."""
MAX_WORDS_AROUND_JSON = 8
MAX_REPLY_CHARS = 20_000
"""Maximum length of a reply; a longer one is unclear, because the time grows with the square of the length."""
QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u00b4\u2032", "''\"\"\"\"\"''")
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
        return _read_text(question, text, own)
    reader = _reader(question)
    reading = read_word(reader, _fold(text)) if question.kind == WORD else reader.read(_fold(text))
    at = reader.question.answers.index(reading.text) if reading.text else 0
    return replace(reading, text=question.answers[at]) if reading.text else reading


def _read_text(question: Question, text: str, own: str) -> Reading:
    """The span or rewritten text that a reply gives; `own` is the reply with its marks."""
    if question.kind == SPAN:
        hit = read_span(question.passage, own, of_sentence=" sentence " in question.prompt)
    else:
        hit = announced_rewrite(question.passage, own)
        if hit is None and rules().has("rewrite.none", text):
            return Reading(ANSWER)
        if hit is None and (missing := _missing_rewrite(question.passage, text)) is not None:
            return missing
        hit = read_rewrite(question.passage, own)
    if hit or (hit is not None and not declines(text)):
        return Reading(ANSWER, hit)
    return Reading(REFUSAL if declines(text) else UNCLEAR)


def _missing_rewrite(passage: str, text: str) -> Reading | None:
    """Refusal or doubt of a reply that announces no rewritten text; None for other replies."""
    known, first = rules(), text.split("\n")[0]
    if declines(first) and known.has("rewrite.request", first):
        return Reading(REFUSAL)
    asks = text.endswith("?") and known.starts("shape.asks", text) and re.search(r"\byou\b", text)
    if asks or known.starts("rewrite.doubts", text):
        return Reading(UNCLEAR)
    doubts = known.has("unclear.cues", text) or known.has("unclear.interjection", text)
    words, theirs = ({one[:5] for one in re.findall(r"[a-z]{4,}", part.casefold())} for part in (passage, text))
    return Reading(UNCLEAR) if doubts and (not words & theirs or known.has("rewrite.task", text)) else None


@lru_cache(maxsize=64)
def _reader(question: Question) -> ChoiceReader:
    """One reader for all replies to a question."""
    answers = tuple(map(_fold, question.answers))
    kinds = {YES_NO: YesNoReader, CHOICE: LabelReader if len(answers) > MAX_PEOPLE else ChoiceReader}
    reader = kinds.get(question.kind, ChoiceReader)
    return reader(replace(question, answers=answers, prompt=_fold(rules().spell_out(question.prompt))))


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
