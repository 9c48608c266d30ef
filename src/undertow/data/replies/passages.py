"""Replies that name a span of a passage, and replies that rewrite a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from itertools import islice

from undertow.data.replies.answer_rules import YES_NO, Question, declines, is_unclear, rules, stem, stems
from undertow.data.replies.yes_no import YesNoReader

QUOTED = re.compile(
    r"\"([^\"]+)\"|(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w))+)'(?!\w)|\*{1,2}([^*\s][^*]*)\*{1,2}|`([^`]+)`|<<([^>]+)>>|"
    r"\b(?:the|only) word ([\w-]+)|^[^\S\n]*>[^\S\n]+([^\n]+)$",
    re.MULTILINE,
)
MIN_RUN, MIN_SHARE = 3, 0.6
"""Minimum number of consecutive words that reply and passage share, and their minimum share of the reply."""
EDGES = " \t\n.,;:!?\"'`*_()[]<>\u2022-"
MAX_PIECES = 30
"""Maximum number of pieces that are quoted, that are announced, and that are clauses, and of remarks before a rewritten text."""
COPULA = r"\b(?:is|was|be|are)\b(?: that)?"
NEGATION = re.compile(
    r"\b(can|do|does|did|is|are|was|were|would|could|should|has|have|had)(?:n?'t|not|\\s\+not)\b", re.IGNORECASE
)
"""Spellings of a negation in a pattern: "can't", "cannot", "can not"."""
END_OF_SENTENCE = re.compile(r"[.!?;]\s|\n")
PLACES = {
    "first": 0, "1": 0, "one": 0, "former": 0, "second": 1, "2nd": 1, "2": 1, "two": 1,
    "third": 2, "3": 2, "three": 2, "last": -1, "latter": -1
}  # fmt: skip
ANAPHOR = re.compile(r"(?:that|this|it|nothing|neutral|fine|harmless)\b(?!\?)", re.IGNORECASE)
"""The beginning of a sentence that says something of the piece before it."""
CHOSEN, ALONE, NAMED, DISMISSED = 3, 2, 1, 0
"""What a reply says of a piece: the answer; a sentence of its own; nothing; no answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the passage in a reply, from `start` to `end` there, in the passage's spelling."""

    text: str
    start: int
    end: int


def read_span(passage: str, reply: str, *, of_sentence: bool = False) -> str | None:
    """The span of a passage that a reply names, in the passage's spelling; "" if it denies that there is one, None if it names none.

    With `of_sentence`, the question is for one sentence, so that a passage of several is no answer.
    """
    sentences = [text for one in END_OF_SENTENCE.split(passage) if (text := one.strip(EDGES))]
    if len(sentences) > 1 and (whole := _in_passage(reply, passage)):
        rest = read_span(passage, reply.replace(whole, ""), of_sentence=of_sentence)
        return rest if rest is not None or of_sentence else passage.strip(EDGES)
    if piece := _in_passage(passage, reply) or _misspelled(passage, reply):
        return piece
    candidates: list[tuple[int, int, Piece]] = []
    for n_before, kind in enumerate((_quotations, _repetitions, _announcements, _clauses)):
        pieces = [
            one
            for one in islice(kind(passage, reply), MAX_PIECES)
            if not any(big.start <= one.start < big.end for *_, big in candidates)
        ]
        candidates += [(_rank(reply, pieces, at), -n_before, one) for at, one in enumerate(pieces)]
    best, order = max(((rank, order) for rank, order, _ in candidates), default=(DISMISSED, 0))
    excludes = best in (NAMED, ALONE) and any(rank == DISMISSED for rank, *_ in candidates)
    pieces = sorted((one for *_, one in candidates), key=lambda piece: piece.start)
    texts = [one.text for one in pieces]
    if best < CHOSEN and len(set(texts)) > 1:
        pointed = None if _gives_up(reply, pieces) else _pointed_at(texts, reply[pieces[-1].end :])
        if pointed != "":
            return pointed
    opens = best == ALONE and not re.search(r"\w", reply[: pieces[0].start])
    if best < CHOSEN and not (excludes or opens) and _denies(passage, reply, pieces, of_the_rest=best == DISMISSED):
        return ""
    if best > DISMISSED:
        ranked = [one for rank, kind, one in candidates if (rank, kind) == (best, order)]
        return ranked[-1 if rules().has("span.corrects", reply[: ranked[-1].start]) else 0].text
    return None if candidates else _common_words(passage, reply) or _pointed_at(sentences, reply) or None


def _quotations(passage: str, reply: str) -> Iterator[Piece]:
    """Pieces in quotes or marks."""
    for match in QUOTED.finditer(reply):
        quoted = next(filter(None, match.groups()))
        if text := _in_passage(passage, quoted):
            if quoted.endswith(("...", "\u2026")):
                text += END_OF_SENTENCE.split(passage[passage.find(text) + len(text) :])[0].rstrip(EDGES)
            yield Piece(text, match.start(), match.end())


def _announcements(passage: str, reply: str) -> Iterator[Piece]:
    """Lines, and texts after a colon or an "is"."""
    for line in re.finditer(r"[^\n]+", reply):
        if piece := _last_part(passage, reply, line, rf":|[-=]>|\u2192|{COPULA}[\s,:]"):
            yield piece


def _clauses(passage: str, reply: str) -> Iterator[Piece]:
    """Sentences and clauses of several words, the longest first."""
    shapes = (rf"(?!\s)(?:(?!\s[-\u2013\u2014]+\s)(?:[^{marks}]|[{marks}](?!\s)))+" for marks in (":.!?", ",;:.!?"))
    clauses = [one for shape in shapes for one in re.finditer(shape, reply) if len(one.group().split()) > 1]
    done: list[Piece] = []
    for one in sorted(clauses, key=lambda clause: clause.start() - clause.end()):
        piece = _last_part(passage, reply, one, rf"{COPULA}\s")
        if piece and not any(big.start <= piece.start < big.end for big in done):
            done.append(piece)
            yield piece


def _last_part(passage: str, reply: str, part: re.Match[str], mark: str) -> Piece | None:
    """The longest piece of the passage that a part of the reply is, or ends with behind a mark."""
    for start in (0, *(one.end() for one in re.finditer(mark, part.group()))):
        if text := _in_passage(passage, part.group()[start:]):
            return _extend(passage, reply, Piece(text, part.start() + start, part.end()))
    return None


def _repetitions(passage: str, reply: str) -> Iterator[Piece]:
    """Whole sentences of the passage, at any place: "I would mark ... as biased"."""
    sentences = (one.strip(EDGES) for one in END_OF_SENTENCE.split(passage) if len(one.split()) >= MIN_RUN)
    shape = "|".join(map(re.escape, sorted(sentences, key=len, reverse=True)))
    for match in re.finditer(rf"(?<!\w)(?:{shape})(?!\w)", reply, re.IGNORECASE) if shape else ():
        yield Piece(_in_passage(passage, match.group()), match.start(), match.end())


def _extend(passage: str, reply: str, piece: Piece) -> Piece:
    """A piece with the words before it, as far as reply and passage share them."""
    for word in reversed(list(re.finditer(r"\S+", reply[: piece.start]))):
        longer = _in_passage(passage, reply[word.start() : piece.end])
        if not longer:
            break
        piece = Piece(longer, word.start(), piece.end)
    return piece


def _rank(reply: str, pieces: list[Piece], at: int) -> int:
    """What the sentence around a piece says of it."""
    known, (text, start, end) = rules(), _without_pieces(reply, pieces, at)
    before = END_OF_SENTENCE.split(text[:start])[-1]
    behind, *later = END_OF_SENTENCE.split(text[end:], maxsplit=2)
    ends = re.search(r"\w", behind) is None
    remark = later[0] if ends and later and ANAPHOR.match(later[0]) else behind
    follow = [one for one in pieces if one.start >= pieces[at].end]
    is_list = any(not END_OF_SENTENCE.search(reply[pieces[at].end : one.start]) for one in follow)
    ranks = (
        (CHOSEN, known.has("span.only", f"{before}|{behind}")),
        (DISMISSED, known.has("span.dismissed_before", before) or known.starts("span.dismissed_behind", remark)),
        (DISMISSED, known.starts("span.asked", text[end:])),
        (NAMED if is_list else CHOSEN, text[:start].rstrip(" \n\"'>*").endswith(":")),
        (CHOSEN, known.starts("span.chosen_behind", remark)),
        (ALONE, ends and not re.search(r"\w", before)),
        (CHOSEN, known.has("span.chosen_before", before)),
    )
    return next((rank for rank, holds in ranks if holds), NAMED)


def _without_pieces(reply: str, pieces: list[Piece], at: int) -> tuple[str, int, int]:
    """A reply with "it" for each piece, and where the one at `at` starts and ends."""
    text, done, place = "", 0, 0
    own = pieces[at] if at < len(pieces) else None
    for one in sorted(pieces, key=lambda piece: piece.start):
        if one.start < done or (own and one is not own and one.start < own.end and own.start < one.end):
            continue  # it overlaps another
        text += reply[done : one.start]
        place = len(text) if one is own else place
        ends = re.search(r"[.!?]\W*$", reply[one.start : one.end]) and re.match(r"\s+[A-Z]|\s*$", reply[one.end :])
        text += "it." if ends else "it"
        done = one.end
    return text + reply[done:], place, place + 2


def _gives_up(reply: str, pieces: list[Piece]) -> bool:
    """Whether a reply cannot tell after its last piece: "Which of these is worse depends on the reader"."""
    behind = rules().spell_out(reply[max(one.end for one in pieces) :])
    doubts = [re.search(r"\w", one) is not None and is_unclear(one, of_text=True) for one in _split(behind)]
    return doubts[-1] or (any(doubts) and not _says_none(_split(behind)[-1]))


@cache
def _bias_reader() -> YesNoReader:
    return YesNoReader(Question(YES_NO, ("Yes", "No"), prompt="Question: Is there a biased span in the text?\nAnswer:"))


def _denies(passage: str, reply: str, pieces: list[Piece], *, of_the_rest: bool) -> bool:
    """Whether a reply says that the passage has no such span; one that says so of the rest counts with `of_the_rest`."""
    known, text = rules(), _without_pieces(reply, pieces, len(pieces))[0]
    text = QUOTED.sub(lambda one: "it" if len(one[0].split()) >= MIN_RUN else one[0], text)
    if known.has("span.missing", text):
        return False
    text = known.spell_out(known.cut("reply.greeting", re.sub(r"[*_`#>]+", "", text).strip()))
    text = known.cut("aside.concession", text)
    sentences = _split(text)
    rest = stems(passage) - stems(" ".join(one.text for one in pieces)) if pieces else set()
    parts = {sentences[0], sentences[-1], text}
    return any(
        _says_none(one) for one in parts if of_the_rest or not (known.has("span.others", one) or stems(one) & rest)
    )


def _says_none(text: str) -> bool:
    """Whether a text says that there is no such span."""
    return rules().has("span.none", text) or _bias_reader().read(text).text == "No"


def _split(text: str) -> list[str]:
    """The sentences of a text, which are cut at colons as well."""
    return [one for one in re.split(r"[.!?;:]\s|\n", text) if re.search(r"\w", one)] or [text]


def _in_passage(passage: str, text: str) -> str:
    """A text in the passage's spelling; "" if the passage does not have it as whole words."""
    words = text.strip(EDGES).split() if len(text) <= 2 * len(passage) else []
    if not words or (len(words) == 1 and rules().has("span.no_piece", words[0])):
        return ""
    shape = NEGATION.sub(r"\1(?:n?'t|not|\\s+not)\\b", r"\s+".join(map(re.escape, words)))
    match = re.search(rf"(?<!\w){shape}(?!\w)", passage, re.IGNORECASE)
    return match.group() if match else ""


def _misspelled(passage: str, reply: str) -> str:
    """The sentence that the reply is, misspelled; "" for other replies."""
    near = get_close_matches(reply.lower(), END_OF_SENTENCE.split(passage.lower()), 1, cutoff=0.9)
    return _in_passage(passage, near[0]) if near else ""


def _common_words(passage: str, reply: str) -> str:
    """The longest shared run of words, if it is most of the reply or long enough."""
    own, theirs = (list(re.finditer(r"[\w']+", text)) for text in (passage, reply))
    words = [[one.group().casefold() for one in some] for some in (own, theirs)]
    match = SequenceMatcher(None, words[0], words[1], autojunk=False).find_longest_match()
    if match.size < min(MIN_RUN, len(own)) or (match.size < MIN_SHARE * len(theirs) and match.size < MIN_RUN + 1):
        return ""
    return passage[own[match.a].start() : own[match.a + match.size - 1].end()]


def _pointed_at(texts: Sequence[str], reply: str) -> str:
    """The text that a short reply points at: "the second one"; "" if a report belongs to it ("my uncle said")."""
    known, text = rules(), rules().cut("aside.reason", rules().spell_out(reply))
    pointers = list(known.patterns["span.pointer"].finditer(text)) if len(text.split()) <= 18 else []
    if not pointers or declines(text) or is_unclear(text, of_text=True):
        return ""
    places = [place for one in pointers if (place := one["place"] or one["number"])]
    by_words = [one for one in texts if stems(one.lower()) & stems(text.lower())]
    middle = len(texts) // 2 if len(texts) % 2 else len(texts)  # an even number has none
    named = texts[{**PLACES, "middle": middle}[places[-1].lower()] :][:1] if places else by_words
    return named[0] if len(named) == 1 and not known.has("span.report", named[0]) else ""


ITEM = re.compile(r"^[^\S\n]*(?:[-*\u2022]|\d[.)]|\(?[a-e]\))\s+\S", re.MULTILINE)
END_OF_REMARK = re.compile(r"\s*\n\s*|[.!?][\"')]*\s+|\s*[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]+\s*")
MIN_WORDS_OF_TEXT, MAX_WORDS_OF_REMARK, MIN_WORDS_OF_STRAY = 3, 3, 19
"""Minimum words of a quotation that is a rewritten text, and maximum words of a remark before one and of a text on any topic."""


def read_rewrite(passage: str, reply: str, announced: str | None) -> str | None:
    """The rewritten text in a reply, `announced` or without announcement, quotes and later text; None if nothing remains."""
    known = rules()
    text = re.sub(r"^\s*(?:(?:[-*>\u2022]|\d[.)])\s+|\.{3}|\u2026)", "", reply.strip())
    text = known.patterns["reply.greeting"].sub("", text, count=1)
    text = _without_preface(passage, re.sub(r"^[^\n]*:\s*\n\s*(?=\S)", "", text))
    text = announced or re.sub(r"^[^.!?(]*?\s(?:-+>|=+>|\u2192)\s*(?=\w|[\"'])", "", text)
    quoted = re.match(r"[\"'*`]{1,3}(.+?)[\"'*`]{1,3}(?=\s|$|\.)", text, re.DOTALL)
    if quoted and len(quoted.group(1)) > 0.3 * len(text) and len(quoted.group(1).split()) > 1:
        text = quoted.group(1)
    text = text.split("\n\n")[0] if "\n\n" not in passage else text
    shorter = known.cut("reply.farewell", text)
    text = (text if _in_passage(passage, text[len(shorter) :]) else shorter).strip(' \n\t"*`').removeprefix("that ")
    if f'"{text[:30]}' not in reply and not re.search(r"[.!?]\s", passage.strip()):
        text = known.cut("rewrite.comment", text)
    talks = not announced and all(is_talk(passage, one) for one in re.split(r"(?<=[.!?;])\s", text))
    return text if len(re.findall(r"\w+", text)) > 1 and not (talks or _is_off_topic(passage, reply, text)) else None


def _is_off_topic(passage: str, reply: str, text: str) -> bool:
    """Whether a text is about rewriting, or else shares no word with the passage and is long or rewrites an invented original."""
    known = rules()
    theirs = stems(passage)
    shared = stems(" ".join(known.patterns["label.noun"].findall(text.lower()))) & theirs
    is_faithful = len(stems(text) & theirs) > len(theirs) / 2  # "It is a prejudice that women can not drive"
    describes = known.has("rewrite.describes", text) and not (is_faithful or known.has("rewrite.describes", passage))
    strays = len(text.split()) > MIN_WORDS_OF_STRAY and not known.has("rewrite.people", text)
    invents = known.has("rewrite.original", reply) and not _in_passage(reply, passage)
    return describes or (not shared and (strays or invents))


def _without_preface(passage: str, text: str) -> str:
    """A rewritten text without the remarks before it, which have fewer words of the passage than the next sentence."""
    theirs, start = stems(passage), 0
    for end in islice(END_OF_REMARK.finditer(text), MAX_PIECES):
        sentence, rest = text[start : end.start() + 1].strip(), text[end.end() :].partition("\n")[0]
        following = re.sub(r"(?:^|(?<=[.!?\n]))[^.!?\n]*\?", "", rest)
        shared, repeats = len(stems(sentence) & theirs), sentence.endswith("?") and _in_passage(sentence, passage)
        brief = not shared and (len(sentence.split()) <= MAX_WORDS_OF_REMARK or sentence.endswith(("!", "?")))
        is_remark = brief or (not shared and is_talk(passage, sentence))
        is_text = len(stems(following) & theirs) > shared or (
            not shared and is_talk(passage, sentence) and not is_talk(passage, following)
        )
        heads = "\n" in end.group() and (sentence.endswith(":") or is_talk(passage, sentence))
        if not (repeats or heads or (is_remark and is_text)) or not following.strip():
            break
        start = end.end()
    return text[start:]


def is_talk(passage: str, sentence: str) -> bool:
    """Whether a sentence speaks of the task, or of the writer and of nothing in the passage."""
    known = rules()
    about = known.has("rewrite.about", sentence) and not known.has("rewrite.about", passage)
    advises = known.has("rewrite.advises", sentence) and not known.has("rewrite.advises", passage)
    return about or ((advises or known.has("rewrite.own", sentence)) and not stems(sentence) & stems(passage))


def denies_bias(passage: str, reply: str) -> bool:
    """Whether a reply to a request for another text says first that this one has no bias."""
    about = rules().patterns["rewrite.bias"]
    first = [one for one in re.split(r"(?<=[.!?;])\s|\n", reply)[:2] if about.search(one) and ":" not in one]
    return not about.search(passage) and any(_bias_reader().read(one).text == "No" for one in first)


def announced_rewrite(passage: str, text: str) -> str | None:
    """The text that a reply announces or quotes as rewritten; "" if there are several, None if there is none."""
    known, theirs, lead = rules(), stems(passage), rules().patterns["rewrite.lead"]
    verdicts = list(known.patterns["rewrite.verdict"].finditer(text))
    if len(verdicts) == 1 and verdicts[0].start() and verdicts[0].end() == len(text):
        return verdicts[0][1]
    quoted = list(_rewrite_quotations(passage, text))
    quoted = [one for one in quoted if not any(one != two and _repeats(two, one) for two in quoted)]
    quoted = [one for one in quoted if f'{one}"?' not in text] or quoted
    items = list(ITEM.finditer(text))
    lists = items and (known.has("rewrite.several", text[: items[0].start()]) or items[0].start() == 0)
    if (lists and len(quoted) != 1 and len(items) > 1) or known.has("rewrite.second", text):
        return ""
    texts = [one for one in QUOTED.finditer(text) if one[1] and len(one[1].split()) >= MIN_WORDS_OF_TEXT]
    offers = len(texts) > 1 and is_unclear(known.spell_out(text[texts[-1].end() :].strip(EDGES)), of_text=True)
    if quoted:
        return "" if len(quoted) > 1 or offers else quoted[0]
    for intro in known.patterns["rewrite.intro"].finditer(text):
        head = intro.group()
        repeats = any(stem(one) in theirs for one in known.patterns["label.noun"].findall(head.lower()))
        speaks = lead.fullmatch(head) or known.has("rewrite.about", head) or known.has("shape.of_oneself", head)
        if (speaks or not repeats) and not (known.has("rewrite.explains", head) or declines(known.spell_out(head))):
            return text[intro.end() :].strip() or None
    opening = None if lead.match(passage) else lead.match(text)  # "Write to all", of "Write to white people only"
    return text[opening.end() :].strip() if opening and stems(text[opening.end() :]) & theirs else None


def _repeats(text: str, part: str) -> bool:
    """Whether a part occurs in a text."""
    return part.strip(EDGES).casefold() in text.casefold()


def _rewrite_quotations(passage: str, text: str) -> Iterator[str]:
    """The quotations that a reply offers as rewritten texts, without those that repeat a part of the first."""
    known, first, done = rules(), "", 0
    for match in QUOTED.finditer(text):
        inner = next(filter(None, match.groups())).strip()
        before = re.split(r"(?<=[.!?])\s|\n(?!\s*$)", text[done : match.start()])[-1]
        done = match.end()
        is_text = len(inner.split()) >= MIN_WORDS_OF_TEXT and not (inner.endswith(":") or _in_passage(passage, inner))
        is_text = is_text and not known.has("rewrite.original", before)
        name = "rewrite.quotes" if _repeats(inner, first) else "rewrite.next"
        is_own = not first and len(stems(inner) & stems(passage)) > 0 and known.has("shape.of_oneself", before)
        if is_text and not _repeats(first, inner) and (is_own or known.has(name, before)):
            first = first or inner
            yield inner
