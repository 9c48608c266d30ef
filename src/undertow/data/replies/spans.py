"""Pieces of a passage, and rewritten texts, in free replies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from undertow.data.replies.answer_rules import rules

QUOTED = re.compile(r"\"([^\"]+)\"|(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w))+)'(?!\w)|\*\*([^*]+)\*\*|`([^`]+)`|<<([^>]+)>>")
MIN_RUN, MIN_SHARE = 3, 0.6
"""Minimum number of consecutive words that reply and passage share, and their minimum share of the reply."""
EDGES = " \t\n.,;:!?\"'`*_()[]<>\u2022-"


def read_span(passage: str, reply: str) -> str | None:
    """The span of a passage that a reply names, in the passage's spelling; "" if it denies that there is one, None if it names none."""
    pieces = [hit for piece in _candidates(reply) if (hit := _piece(passage, piece))]
    smaller = [one for one in pieces if len(one) < 0.95 * len(passage.strip(EDGES))]
    if smaller or pieces:
        return (smaller or pieces)[0]
    if hit := _piece(passage, reply):
        return hit
    common = _common_words(passage, reply)
    if common:
        return common
    return "" if rules().has("span.none", rules().spell_out(reply)) else None


def _candidates(reply: str) -> Iterator[str]:
    """Quoted or marked texts, then texts after a colon or an "is", then lines."""
    for match in QUOTED.finditer(reply):
        yield next(group for group in match.groups() if group is not None)
    for line in reply.splitlines():
        if ":" in line:
            yield line.rpartition(":")[2]
    yield from reply.splitlines()
    for match in re.finditer(r"\b(?:is|was|be|are)\b(?: that)?[\s,:]+([^\n]+)", reply):
        yield match.group(1)
    yield from sorted((one for one in re.split(r"[,;:.!?]\s", reply) if len(one.split()) > 1), key=len, reverse=True)


def _piece(passage: str, text: str) -> str:
    """A text in the passage's spelling; "" if the passage does not have it as whole words."""
    words = re.findall(r"\S+", text.strip(EDGES))
    if not words:
        return ""
    shape = r"\s+".join(map(re.escape, words))
    match = re.search(rf"(?<!\w){shape}(?!\w)", passage, re.IGNORECASE)
    return match.group() if match else ""


def _common_words(passage: str, reply: str) -> str:
    """The longest shared run of words, if it is most of the reply, or several words of a short quotation."""
    own, theirs = (list(re.finditer(r"[\w']+", text)) for text in (passage, reply))
    words = [[one.group().casefold() for one in some] for some in (own, theirs)]
    match = SequenceMatcher(None, words[0], words[1], autojunk=False).find_longest_match()
    if match.size < min(MIN_RUN, len(own)) or (match.size < MIN_SHARE * len(theirs) and match.size < MIN_RUN + 1):
        return ""
    return passage[own[match.a].start() : own[match.a + match.size - 1].end()]


def read_rewrite(passage: str, reply: str) -> str | None:
    """The rewritten text in a reply, without announcement, quotes and later text; None if nothing remains."""
    known = rules()
    text = re.sub(r"^\s*(?:[-*>\u2022]|\d[.)])\s+", "", reply.strip())
    text = known.patterns["reply.greeting"].sub("", text, count=1)
    shorter = known.patterns["span.preamble"].sub("", text, count=1).strip()
    announced = shorter != text and bool(shorter)
    text = shorter or text
    quoted = re.match(r"[\"'*`]{1,3}(.+?)[\"'*`]{1,3}(?=\s|$|\.)", text, re.DOTALL)
    inner = [one for match in QUOTED.finditer(text) if len((one := next(filter(None, match.groups()))).split()) > 2]
    if quoted and (announced or len(quoted.group(1)) > 0.3 * len(text)) and len(quoted.group(1).split()) > 1:
        text = quoted.group(1)
    elif (
        inner
        and not announced
        and len(inner) == 1
        and len(text.split()) < 3 * len(inner[0].split()) + 12
        and inner[0].casefold() not in passage.casefold()
    ):
        text = inner[0]
    text = text.split("\n\n")[0] if "\n\n" not in passage else text
    cut = known.patterns["reply.farewell"].sub("", text).strip()
    text = (cut or text).strip().strip('"*`').strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    return text if re.search(r"\w", text) else None
