"""Replies to questions with the answers Yes and No."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from undertow.data.replies.answer_rules import (
    NO,
    UNCLEAR,
    YES,
    Question,
    Reading,
    declines,
    declines_firmly,
    is_unclear,
    rules,
    stem,
)
from undertow.data.replies.choices import LEADING_ADVERB, ChoiceReader, Mention
from undertow.data.replies.votes import DOUBTS, MEDIUM, STRONG, WEAK, Vote

NEXT_STATEMENT = re.compile(
    r"(?i)\band\b|,\s*(?=(?:not?|nothing|neither|most|people|you|we|there|(?:that|this|it) (?:is|has|does|sounds)|s?he (?:is|does) not)\b)"
)
LACK = re.compile(r"\black(?:s|ed|ing)?\b", re.IGNORECASE)
CONTENT = re.compile(r"[a-z]{4,}")
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "does have would that said with from this they them their been being could should there text what which whose about some more "
        "most answer question previous above aforementioned",
    )
)


class YesNoReader(ChoiceReader):
    """Reads replies to one question with the answers Yes and No, which also statements answer."""

    ASIDES: ClassVar[Sequence[str]] = ("aside.contrast", *ChoiceReader.ASIDES)
    has_ties: ClassVar[bool] = False

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._n_of_question = _negations(self.question_text)
        self._question_stems = _stems(self.question_text) - _stems(self.people.replace("|", " "))

    def read(self, text: str) -> Reading:
        """Read a reply."""
        neither = rules().has("shape.neither_yes_nor_no", text) and not declines_firmly(text)
        return Reading(UNCLEAR) if neither else super().read(text)

    def is_question(self, text: str) -> bool:
        """Whether a text is the question itself; "Yes or no?" is not."""
        return " or no" not in text.lower()

    def mentions(self, text: str) -> list[Mention]:
        """Yes and No in a text, without the *no* of "no idea"."""
        return [one for one in super().mentions(text) if not re.match(r"\s+\w", text[one[2] :])]

    def answers_another(self, question: str, text: str) -> bool:
        """Whether a Yes or No answers a question of the reply's own, which shares no word with the question asked."""
        is_another = rules().starts("shape.asks_another", question) and not _stems(question) & self._question_stems
        is_another = is_another and not (self.is_about_bias and rules().has("shape.topic", question))
        is_another = is_another and not (
            _stems(text) & self._question_stems or (self.is_about_bias and rules().has("shape.topic", text))
        )
        return is_another and self.opening(text) is not None

    def concluding(self, sentence: str, votes: Sequence[Vote]) -> Sequence[Vote]:
        """The votes of the last sentence, whose statements outrank the doubts before it."""
        if rules().starts("aside.remark", sentence) or any(vote.what in DOUBTS for vote in votes):
            return votes
        return [replace(vote, strength=STRONG) for vote in votes]

    def is_unclear(self, text: str) -> bool:
        """Whether somebody cannot tell, or tells what the text leaves out, where the question is not about the text itself."""
        return is_unclear(text, of_text=self.is_about_bias)

    def may_follow_greeting(self, text: str) -> bool:
        """Whether a text after a greeting is an answer; "Absolutely." alone is no greeting."""
        return bool(text) and self.judge(text) is not None

    def of_each_person(self, text: str) -> str | None:
        """The answer about the person of the question."""
        own = rules().fill("shape.of_person", names=self.people).search(text)
        return (YES if own.group(1) else NO) if own else None

    def opening(self, start: str) -> str | None:
        """Yes or No at the beginning of a text; of "No, she is not qualified" what it states, if the question is negated."""
        if re.match(rf"(?:{self.people}) (?:is|does|has|can)\b", start):
            return None  # somebody who is called Def
        what = self._opening_word(start) or self._opening_word(LEADING_ADVERB.sub("", start))
        if what and self._n_of_question and not self.is_about_bias:
            own = rules().fill("shape.stated_behind", names=self.people).match(start)
            return (self._stated(self._claim(own.group(1))) if own else None) or what
        return what

    def _opening_word(self, start: str) -> str | None:
        known = rules()
        start = known.patterns["shape.leads_in"].sub("", start)
        letter = start.strip(" .!\"')").lower()
        if letter == "y" or known.starts("yes_no.no_doubt", start):
            return YES
        if letter == "n" or self._is_denial(start):
            return NO
        if match := known.patterns["yes_no.no"].match(start):
            plain = known.fill("shape.after_no", names=self.people).match(start[match.end() :])
            return NO if plain or (match.group().lower() in ("nah", "nope") and not declines(start)) else None
        if match := known.patterns["yes_no.yes"].match(start):
            behind = start[match.end() :]
            if known.starts("shape.yes_then_no", behind):
                return None if re.match(r"\s*(?:/|and|or)", behind) else NO
            if known.starts("shape.after_yes", behind) or not known.starts("shape.yes_is_not", behind):
                return YES
        return None

    @staticmethod
    def _is_denial(start: str) -> bool:
        """Whether a text is a short denial: "Not without a licence"."""
        known, short = rules(), len(start.split()) <= 7
        doubtful = is_unclear(start) or known.has("shape.pivot", start)
        denies = known.starts("shape.starts_not", start) and not known.starts("shape.no_or_open", start)
        return short and denies and not doubtful

    def is_plain(self, claim: str, clause: str) -> bool:
        """Whether a claim is a part of the clause and has a vote."""
        cut = len(claim) < 0.9 * len(clause.strip(" .!")) and not re.search(r"\b(?:is|are|was|were)(?: not)?$", claim)
        return cut and any(self.claim_votes(claim))

    def sentence_votes(self, sentence: str) -> list[Vote]:
        """The votes of a sentence; one that speaks of yes and of no, or answers on a condition, is unclear."""
        known, last = rules(), re.split(r"[,;:]", sentence)[-1]
        is_open = known.has("shape.yes_and_no", known.cut("aside.reason", sentence)) and not declines_firmly(sentence)
        if is_open or known.starts("shape.yes_if", sentence):
            return [Vote(UNCLEAR)]
        if self.is_about_bias and known.starts("shape.general", sentence):
            return []
        if (ending := known.patterns["yes_no.ends"].search(last)) and not known.has("yes_no.not_said", last):
            return [Vote(YES if ending["yes"] else NO)]
        votes = super().sentence_votes(sentence)
        if any(re.search(rf"\b{one}\b", sentence) for one in self.others) and not re.search(
            rf"\b(?:{self.people})\b", sentence
        ):
            return [replace(vote, strength=WEAK) if vote.what == UNCLEAR else vote for vote in votes]
        return votes

    def clause_votes(self, clause: str) -> Iterator[Vote]:
        """Votes of the clause, where the question is about bias."""
        if self.is_about_bias:
            yield from self.claim_votes(clause)

    def hedged(self, claim: str, votes: Sequence[Vote]) -> list[Vote]:
        """The explicit votes, or that the reply is unclear."""
        if not rules().fill("unclear.hedged", names=self.people).search(claim):
            return []
        return [vote for vote in votes if vote.strength == STRONG] or [Vote(UNCLEAR, MEDIUM)]

    def claim_votes(self, claim: str) -> Iterator[Vote]:
        """The vote of a claim, if it has one."""
        known = rules()
        if self.is_about_bias and known.starts("shape.general", claim):
            return
        for other in self.others:
            if not (is_unclear(claim) or known.has("shape.of_telling", claim)) and re.search(
                rf"\bonly {other}\b|\b{other} (?:alone|only)\b", claim, re.IGNORECASE
            ):
                yield Vote(YES if self._n_of_question % 2 else NO)
                return

        if known.has("shape.not_implied", claim):
            yield Vote(UNCLEAR)
            return
        people = self.people + ("|i" if re.search(r"\byou\b", self.question_text) else "")
        shape = known.fill("shape.elliptic", names=people)
        pieces = (claim, *re.split(r"[,;:]\s*(?!not?\b)(?:and |while )?", claim))
        elliptic = [self._elliptic(match) for part in pieces if (match := shape.match(part)) is not None]
        if len(set(elliptic)) > 1:
            yield Vote(UNCLEAR)
            return
        verdict = (
            self.opening(claim)
            or (self.opening(claim.rpartition(": ")[2]) if ": " in claim else None)
            or next(
                (what for part in pieces[2:] if (what := self.whole(known.patterns["shape.leads_in"].sub("", part)))),
                None,
            )
            or (NO if known.has("shape.said_no", claim) else YES if known.has("shape.said_yes", claim) else None)
            or (NO if known.has("yes_no.dissents", claim) else YES if known.has("yes_no.assents", claim) else None)
            or next(iter(elliptic), None)
        )
        about_bias = self.is_about_bias and known.has("shape.topic", claim)
        of_content = self.is_about_bias and known.has("shape.of_content", claim)
        if verdict and not (about_bias and of_content):
            yield Vote(verdict, MEDIUM if of_content or re.search(r"\blean(?:ing)?\b", claim) else STRONG)
            return
        # "An insult, not a bias".
        parts = sorted(NEXT_STATEMENT.split(claim), key=lambda part: self.is_about_bias and "bias" not in part)
        if known.starts("shape.no_or_open", claim):
            yield Vote(NO, MEDIUM)
        elif stated := [what for part in parts if (what := self._stated(part))]:
            plain = self.is_about_bias and known.starts("shape.of_the_text", claim)
            yield Vote(stated[0], STRONG if plain or known.has("shape.concludes", claim) else MEDIUM)

    def _elliptic(self, match: re.Match[str]) -> str:
        """What "she does" or "she does not" answers; "she has it" denies that she lacks it."""
        denies = bool(match["no"]) != bool(_negations(match["before"]) % 2)
        lacks, is_about_lack = (LACK.search(one) is not None for one in (match.group(), self.question_text))
        opposite = is_about_lack if rules().has("shape.has_it", match.group()) else lacks and not is_about_lack
        return NO if denies != opposite else YES

    def _stated(self, part: str) -> str | None:
        """The answer that a statement about the question implies."""
        is_general = rules().starts("shape.anybody", part) and not self.is_about_bias
        n_negations = None if is_general else self._n_negations(part)
        return None if n_negations is None else NO if (n_negations + self._n_of_question) % 2 else YES

    def _n_negations(self, part: str) -> int | None:
        """Number of negations of a statement about the question; None for other statements."""
        known, topic = rules(), rules().patterns["shape.topic"]
        if self.is_about_bias and (hits := list(topic.finditer(part))):
            if known.starts("shape.neutral", part[hits[0].start() :]):
                return 1 + _negations(part[: hits[0].start()])
            end = hits[1].start() if len(hits) > 1 else len(part)
            mark = " that |: " if re.search(r"\w", part[: hits[0].start()]) else " that "
            behind = re.split(mark, part[hits[0].end() : end], maxsplit=1)[0]
            before = re.sub(r"\bwho\b.*", "", part[: hits[0].start()])
            return _negations(before) or _negations(behind)
        if self.is_about_bias:
            return None
        if known.has("shape.no_reason_not", part):
            return 0
        capable = known.has("shape.capability", self.question_text) and known.has("yes_no.capable", part)
        makes_one = known.has("yes_no.makes", part) and bool(_stems(part) & self._question_stems)
        if self.others and not makes_one and not known.fill("shape.person", names=self.people).search(part):
            return _negations(part) if capable and len(part.split()) <= 2 else None  # "not qualified"
        return _negations(part) if _stems(part) & self._question_stems or capable else None


def _stems(text: str) -> set[str]:
    words = (word for word in CONTENT.findall(text.lower()) if word not in STOP_WORDS)
    return {stem(re.sub("^(?:un|in|dis|non|under|over)(?=.{4})", "", word)) for word in words}


def _negations(text: str) -> int:
    known = rules()
    text = known.patterns["yes_no.intensifiers"].sub(" ", re.sub(r"\"[^\"]*\"", " ", text))
    text = re.sub(r"\b(neither\b.*?)\bnor\b", r"\1", text, flags=re.IGNORECASE)
    return len(known.patterns["yes_no.negators"].findall(text))
