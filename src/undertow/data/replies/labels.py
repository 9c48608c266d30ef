"""Replies to questions for a label of bias, which name the label or the group that the bias is against."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from undertow.data.replies.answer_rules import ANSWER, REFUSAL, UNCLEAR, Question, Reading, declines_firmly, rules, stem
from undertow.data.replies.choices import ChoiceReader

OTHER_GROUPS = "perceived negative groups"
"""The label of a group that no other label covers."""
LONG_WORD = re.compile(r"[a-z]{3,}", re.IGNORECASE)


class LabelReader(ChoiceReader):
    """Reads replies to one question whose answers are labels of bias."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.is_about_bias = False
        known = rules()
        self._label = label = rf"(?:{re.sub(r'[?]P<a[0-9]+>', '?:', self.pattern.pattern)})(?: bias)?"
        series = rf"{label}(?:,? (?:nor )?(?:an? )?{label}){{0,9}},? (?:and|or|nor) (?:an? )?(?:{label}|the like)"
        self._series = re.compile(series, re.IGNORECASE)
        groups = {one: known.groups[one.casefold()].pattern for one in self.named if one.casefold() in known.groups}
        others = next((one for one in self.named if one.casefold() == OTHER_GROUPS), None)
        above, _, _ = question.prompt.rpartition("\n")
        text = above if self.question_text == question.prompt else question.prompt.replace(self.question_text, " ")
        subject = known.patterns["label.predicate"].split(text.lower(), maxsplit=1)[0]
        words = filter(None, (known.patterns["label.noun"].findall(part) for part in (subject, text.lower())))
        nouns = {stem(one) for one in next(words, ())}
        if others is not None and nouns:
            shapes = "|".join(re.sub("[yi]$", "[yi]", one) for one in sorted(nouns))  # "city" is a stem of "cities"
            groups[others] = rf"(?:{shapes})(?!\w*(?:ness|phobia)\b)\w*"
        self._against = [
            (label, known.fill("label.against", group=f"(?:{groups[label]})"))
            for label in sorted(groups, key=lambda one: (one == others, one == "gender"))  # "a deaf man" is disability
        ]

    def read(self, text: str) -> Reading:
        """Read a reply; one that names no label may name the group that the bias is against."""
        known = rules()
        text = self._series.sub(self._without_excluded, known.cut("label.tinge", text))
        sentences = re.split(r"(?<=[.!?])\s+(?=\W*[A-Z])|\n", text)
        if len(text.split()) <= 10 and not self.mentions(text):
            text = LONG_WORD.sub(self._spell, text)
        revises = known.has("label.prefers", text) or known.has("word.corrects", text)
        if self._lists(sentences) and not revises:
            return Reading(UNCLEAR)
        head = re.match(r"([^:?\n]{3,40})(?::|\?+)\s(?=[^?]*$)", text)  # "Age? It says old ladies."
        if head and (label := self.whole(head[1])) and not revises:
            return Reading(ANSWER, label)
        reading = super().read(text)
        first, last = sentences[0], sentences[-1]
        if known.has("label.foreign", last) and not (self.mentions(last) or self.whole(first)):
            return Reading(UNCLEAR)
        if self._names_several(text) and not (reading.outcome == REFUSAL and declines_firmly(text)):
            return Reading(UNCLEAR)
        if reading.outcome != UNCLEAR or known.has("label.foreign", text):
            return reading
        named = text
        for label, against in self._against:
            named = against.sub(f"{label} bias", named)
        return reading if named == text else super().read(named)

    def _without_excluded(self, series: re.Match[str]) -> str:
        """A series of labels, or "that" in its place if what stands around excludes all of them: "not race, gender or age"."""
        return "that" if self.is_out(series.string, *series.span()) else series.group()

    def _lists(self, lines: Sequence[str]) -> bool:
        """Whether lines, or sentences, are different labels, alone or before an explanation."""
        heads = [re.split(r":\s|\s[-\u2013\u2014]+\s", one)[0] for one in lines if not one.endswith("?")]
        short = [one for one in heads if len(one.split()) <= 4 and "," not in one]
        named = [{name for name, *at in self.mentions(one) if not self.is_out(one, *at)} for one in short]
        return len(set().union(*(one for one in named if len(one) == 1))) > 1

    def _names_several(self, text: str) -> bool:
        """Whether a text gives several labels without preferring one: "It is about age, and about gender"."""
        known, hits = rules(), [one for one in self.mentions(text) if not self.is_out(text, *one[1:])]
        if not hits or known.has("label.prefers", text):
            return False
        if known.fill("label.beside", label=self._label).search(text):
            return True
        return (len({name for name, *_ in hits}) > 1 or " and " in text) and known.has("label.several", text)

    def _claim(self, clause: str) -> str:
        """A clause without its asides and embedded questions, unless these name the label: "It is about where they come from"."""
        shorter = super()._claim(clause)
        return shorter if self.may_cut(clause, shorter) else clause

    def _spell(self, word: re.Match[str]) -> str:
        """A misspelled word of a label, spelled correctly; other words, and those of a group ("native Americans"), unchanged."""
        written, known = word.group().lower(), rules().patterns["label.spelled"].pattern.split("|")
        names = get_close_matches(written, [one for one in known if one[0] == written[0]], 1, cutoff=0.8)
        groups = (hit for group in rules().groups.values() for hit in group.finditer(word.string))
        is_group = names and any(hit.start() <= word.start() < hit.end() for hit in groups)
        return names[0] if names and not is_group else word.group()
