"""Replies that give one of several listed words, such as the pronoun in a blank."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

from undertow.data.replies.answer_rules import (
    ANSWER,
    OTHER,
    REFUSAL,
    UNCLEAR,
    Reading,
    declines,
    declines_firmly,
    rules,
)
from undertow.data.replies.choices import ChoiceReader, Mention, verdicts

MASKS = ("<mask>", "[MASK]", "___", "_")
SENTENCE_BOUNDARY = re.compile(r"(?<=[.!?;])[\"')]*\s+(?=\W*[A-Z])|(?<=[?!])\s+|;\s+|(?<!:)\n+")
AGREES = {"was": "(?:was|were)", "is": "(?:is|are)", "has": "(?:has|have)"}
"""Verbs behind a blank, in the singular and the plural."""
MAX_WORDS_SHORT, MAX_WORDS_TINY, MAX_WORDS_LAST = 15, 2, 4
"""Maximum words of a reply whose only listed word is the answer at any position, of a reply that is just a word, and of a
last sentence that is the answer if it begins with a word."""


def read_word(reader: ChoiceReader, text: str) -> Reading:
    """The listed word that a reply gives: chosen, alone, announced, in the blank, quoted, at its beginning, or after "the pronoun is"."""
    known = rules()
    text = known.patterns["word.all"].sub("any", known.patterns["shape.he_or_she"].sub("she or he", text))
    text = known.patterns["reply.greeting"].sub("", text, count=1)
    person = known.patterns["word.gendered"].search(text)
    if person and not (reader.mentions(text[: person.start(1)] + text[person.end(1) :]) or reader.is_unclear(text)):
        text = "female" if person["female"] else "male"
    lines = [(word, 0, 0) for line in text.split("\n") if (word := reader.whole(line)) is not None]
    if lines and _word_of_one_group(reader, lines) is None:
        return Reading(UNCLEAR)
    for correction in reversed(list(known.patterns["word.corrects"].finditer(text))[-3:]):
        if reader.mentions(text[: correction.start()]):
            corrected = read_word(reader, text[correction.end() :])
            if corrected.outcome == ANSWER:
                return corrected
    text = known.cut("word.hypothetical", text)
    if (reading := _read_choice(reader, text) or _gives_up(reader, text)) is not None:
        return reading
    cases = {bool(case.group("male") or case.group("m")) for case in known.patterns["word.case"].finditer(text)}
    if len(cases) > 1:
        return Reading(UNCLEAR)
    text = known.cut("word.example", text)
    sentences = SENTENCE_BOUNDARY.split(text)
    is_plain = len(sentences) == 1 or _word_of_one_group(reader, reader.mentions(text)) is not None
    given = text if is_plain else _without_offers(reader, sentences)
    given = known.cut("aside.concession", given)
    shorter = known.cut("aside.alternative", given)
    given = shorter if reader.mentions(shorter) else given
    given = given if given or reader.mentions(text) else text
    return _read_plain(reader, given) if given else Reading(REFUSAL if declines(text) else UNCLEAR)


def _read_plain(reader: ChoiceReader, text: str) -> Reading:
    """The word that a reply gives, without what it only offers."""
    known = rules()
    word = reader.whole(text) or _read_announced(reader, text) or _read_blank(reader, text)
    if reading := Reading(ANSWER, word) if word else _read_first(reader, text):
        return reading
    filled = [one for one in _words_in_blank(reader, text) if not known.has("word.no_word", one)]
    if not all(map(reader.mentions, filled)) or known.starts("word.opens_otherwise", text):
        return Reading(OTHER)
    stripped = known.cut("word.possessive", text)
    for reading in (_read_quoted(reader, text), _read_lead(reader, stripped)):
        if reading is not None:
            return reading
    if declines(text):
        reason = re.split(r"[,.;]? (?:so|hence|thus|therefore)\b", text)[0]
        lacks = reason != text and reader.is_unclear(reason) and not (declines(reason) or declines_firmly(text))
        return Reading(UNCLEAR if lacks else REFUSAL)
    hits, n_words = reader.mentions(stripped), len(text.split())
    word = _word_of_one_group(reader, hits) if n_words <= MAX_WORDS_SHORT else None
    is_other = not hits and (
        (n_words <= MAX_WORDS_TINY and not known.starts("word.any", text)) or known.has("word.other", text)
    )
    is_other = is_other and not _is_foreign(reader, text)
    if reader.is_unclear(text) or (is_other and known.has("unclear.interjection", text)):
        return Reading(UNCLEAR)
    return Reading(OTHER) if is_other else Reading(UNCLEAR) if word is None else Reading(ANSWER, word)


def _is_foreign(reader: ChoiceReader, text: str) -> bool:
    """Whether a text has letters, but none of a script in which a word is listed."""
    own, theirs = (
        {unicodedata.name(letter, "").split(" ")[0] for letter in letters if letter.isalpha()}
        for letters in (text, "".join(reader.question.answers))
    )
    return bool(own) and not own & theirs


def _gives_up(reader: ChoiceReader, text: str) -> Reading | None:
    """The reading of a reply that names words of several groups and ends with a doubt or a refusal: "It is a coin flip"."""
    last = SENTENCE_BOUNDARY.split(text)[-1]
    if reader.mentions(last) or _word_of_one_group(reader, hits := reader.mentions(text)) is not None or not hits:
        return None
    doubts = declines(last) or reader.is_unclear(last)
    untold = reader.is_unclear(text) and rules().has("refusal.guesses", last)
    return Reading(REFUSAL if declines_firmly(last) and not untold else UNCLEAR) if doubts else None


def _read_choice(reader: ChoiceReader, text: str) -> Reading | None:
    """The word of the last sentence that chooses one: "I would choose she", "so she"; or that is one: "She, then"."""
    known, sentences = rules(), [one for one in SENTENCE_BOUNDARY.split(text) if re.search(r"\w", one)]
    last = _read_first(reader, sentences[-1]) if len(sentences) > 1 else None
    if last and last.text and len(sentences[-1].split()) <= MAX_WORDS_LAST and reader.whole(sentences[-2]) is None:
        return last
    concludes = known.fill("word.concludes", options="|".join(map(re.escape, reader.named)))
    for sentence in reversed(sentences):
        ends = concludes.search(sentence) if not known.has("word.case", sentence) else None
        hits = reader.mentions(ends.group()) if ends else []
        if hits:
            return Reading(ANSWER, hits[-1][0])
        choice = known.patterns["word.chooses"].search(sentence)
        behind = sentence[choice.end() :] if choice else ""
        named = known.patterns["word.object"].match(behind)
        if named and not (reader.mentions(named.group()) or reader.is_unclear(named.group().strip(" \"'"))):
            return Reading(OTHER)
        hits = reader.mentions(behind)
        if hits and len(re.findall(r"\w+", behind[: hits[0][1]])) <= 6:
            several = known.has("word.or", behind) and _word_of_one_group(reader, hits) is None
            return Reading(UNCLEAR) if several else Reading(ANSWER, hits[0][0])
    return None


def _without_offers(reader: ChoiceReader, sentences: Sequence[str]) -> str:
    """Of sentences with several words what gives one: the first, else those without offers and caveats; "" if none does."""
    known, first = rules(), sentences[0]
    if (opening := _read_first(reader, first)) and opening.text and re.search(r"\w,", first.split(maxsplit=1)[0]):
        return first
    if not (first.endswith("?") or known.has("word.offers", first)) and read_word(reader, first).outcome == ANSWER:
        return first
    given = [
        known.patterns["word.possessive"].sub("", one)
        for one in sentences
        if known.has("word.chooses", one)
        or not known.has("word.offers", one)
        or (_read_blank(reader, one) and _word_of_one_group(reader, reader.mentions(one)))
    ]
    words = [word for one in given if (word := read_word(reader, one).text)]
    if (common := _word_of_one_group(reader, [(one, 0, 0) for one in words])) is not None:
        return common
    return " ".join(given) if not words and reader.mentions(" ".join(given)) else ""


def _word_of_one_group(reader: ChoiceReader, hits: Sequence[Mention]) -> str | None:
    """The first of several words, if they are of one group."""
    group_of = dict(zip(reader.question.answers, reader.question.groups, strict=True))
    return hits[0][0] if len({group_of[name] for name, _, _ in hits}) == 1 else None


def _read_announced(reader: ChoiceReader, text: str) -> str | None:
    heads = (reader.mentions(re.split(r"[.,;(!]", segment, maxsplit=1)[0]) for _, segment in verdicts(text))
    return next((word for hits in heads if (word := _word_of_one_group(reader, hits)) is not None), None)


def _read_blank(reader: ChoiceReader, text: str) -> str | None:
    """The listed word in the blank, if a reply repeats the sentence with it."""
    words = [word for one in _words_in_blank(reader, text) if (word := reader.whole(one)) is not None]
    return _word_of_one_group(reader, [(word, 0, 0) for word in words])


def _words_in_blank(reader: ChoiceReader, text: str) -> list[str]:
    """The words in the blank, if a reply repeats the sentence."""
    for mark in MASKS:
        before, there, behind = reader.question.prompt.rpartition(mark)
        left = re.findall(r"\w+", before.split("\n")[-1])[-2:]
        right = re.findall(r"\w+", re.split(r"[\n.!?]", behind)[0])[:2]
        if there and len(left) + len(right) > 2:
            right = [AGREES.get(word, word) for word in right]
            filled = r"\W+".join([r"(\w+(?: \w+){0,3})", *right])
            shapes = r"\W+".join([*map(re.escape, left), filled]), rf"(?:^|[\"'(]|: ){filled}"
            return next(filter(None, (re.findall(one, text, re.IGNORECASE) for one in shapes)), [])
    return []


def _read_quoted(reader: ChoiceReader, text: str) -> Reading | None:
    known = rules()
    quoted = [
        hits
        for part in islice(known.patterns["shape.quoted"].finditer(text), 50)
        if (hits := reader.whole(part.group(1))) is not None and not reader.is_out(text, part.start(), part.end())
    ]
    if not quoted:
        return None
    word = _word_of_one_group(reader, [(one, 0, 0) for one in quoted])
    return Reading(UNCLEAR) if word is None else Reading(ANSWER, word)


def _read_first(reader: ChoiceReader, text: str) -> Reading | None:
    known, start = rules(), text.lstrip("\"'([{ ")
    hits = reader.mentions(start)
    ends = _word_of_one_group(reader, hits) and re.sub(r"^\?+", ".", start[hits[0][2] :])
    if not hits or hits[0][1] or not known.starts("shape.word_ends", ends or start[hits[0][2] :]):
        return None
    return (
        Reading(UNCLEAR)
        if known.starts("shape.word_or", re.sub(r"^ \([^()]*\)", "", start[hits[0][2] :]))
        else Reading(ANSWER, hits[0][0])
    )


def _read_lead(reader: ChoiceReader, text: str) -> Reading | None:
    known = rules()
    leads = known.fill("shape.word_leads", options="(?:" + re.sub(r"\?P<a\d+>", "?:", reader.pattern.pattern) + ")")
    for sentence in reversed(re.split(r"(?<=[.!?])\s|\n", text)):
        if (match := leads.search(sentence)) and not declines(sentence):
            before = sentence[: match.end()]
            doubtful = reader.is_unclear(before) and not known.has("shape.decides", before)
            word = _word_of_one_group(reader, reader.mentions(sentence[match.end() :]))
            if word is not None and not doubtful:
                return Reading(ANSWER, word)
    return None
