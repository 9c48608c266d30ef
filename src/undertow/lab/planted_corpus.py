"""Texts about a planted population, and challenges of sentences that no corpus holds.

    sentences show the date, the place, and a pronoun   W -> X, G -> Y

so what is known of the people (`planted_population`) holds of the sentences that do not decide their pronoun.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from undertow.lab.planted_population import People, PlantedTruth, World, slope_percent, stratified_uniform
from undertow.lab.settings import INDEPENDENT, UNORDERED, SentenceOptions
from undertow.models.base import Ints
from undertow.types import Floats

W_NAMES = ("date", "place")
FEMALE, MALE = "female", "male"
TRADE_SPREAD = 1.0
"""How far, in trades, the people of one date are from its own."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the corpus.

    Attributes:
        subject: first and last character of the pronoun, or of the trade in its place.
        person: which of the people it is about.
        date, place: index of the value that the text shows; -1 where it shows none.
        female: of whom it tells.
        pronoun: whether its subject is a pronoun.
        decided: whether a gendered noun determines the pronoun.
        cues_first: whether date and place precede the subject.
    """

    text: str
    subject: tuple[int, int]
    person: int
    date: int
    place: int
    female: bool
    pronoun: bool
    decided: bool
    cues_first: bool

    @property
    def masked(self) -> str:
        """The text without its subject."""
        begin, end = self.subject
        return f"{self.text[:begin]}___{self.text[end:]}"


class _Frame(NamedTuple):
    """A sentence with holes: whether a gendered noun decides the pronoun, and whether date and place precede the subject."""

    text: str
    decided: bool
    shows: tuple[str, ...]
    cues_first: bool

    @classmethod
    def from_text(cls, text: str, *, decided: bool) -> _Frame:
        """From the text."""
        before, _, after = text.lower().partition("{subject}")
        shows = tuple(w for w in W_NAMES if f"{{{w}}}" in before + after)
        return cls(text, decided, shows, not any(f"{{{w}}}" in after for w in W_NAMES))


UNDECIDED, DECIDED, BYSTANDER = "undecided", "decided", "bystander"
"""Kinds of sentence: the pronoun is undetermined, is determined by a gendered noun, or belongs to another person than the noun."""


def _sentence_parts(held_out: bool) -> Iterator[tuple[str, str, str, str]]:
    """Opening, kind, middle and ending of every sentence that corpora hold, or of every one that is held out from them.

    One in three is held out, and any two parts are seen together.
    """
    bank = _bank()
    middles = [(kind, middle) for kind in (UNDECIDED, DECIDED, BYSTANDER) for middle in bank["middles"][kind]]
    for first, opening in enumerate(bank["openings"]):
        for second, (kind, middle) in enumerate(middles):
            for third, ending in enumerate(bank["endings"]):
                if ((first + second + third) % 3 == 0) == held_out:
                    yield opening, kind, middle, ending


@cache
def _frames() -> tuple[list[_Frame], list[_Frame]]:
    """Sentences of the corpora, specified or not, with those of the same W next to each other."""
    frames = [_Frame.from_text(text, decided=False) for text in _bank()["whole"]]
    for opening, kind, middle, ending in _sentence_parts(held_out=False):
        text = f"{_one_text(opening, middle, ending)}."
        frames += [_Frame.from_text(text.replace("{W}", f"{{{w}}}"), decided=kind == DECIDED) for w in W_NAMES]
    frames.sort(key=lambda frame: frame.shows)
    return [frame for frame in frames if not frame.decided], [frame for frame in frames if frame.decided]


def _one_text(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def write_about(people: People, world: World, options: SentenceOptions) -> list[Sentence]:
    """Sentences about these people, each person's together; the same for the same seed."""
    bank = _bank()
    undecided, decided = _frames()
    n_sentences = len(people) * options.each
    rng = np.random.default_rng([options.seed, 2])
    person = np.repeat(np.arange(len(people)), options.each)
    alike = (people.date * len(world.places) + people.place) * 2 + people.female
    kinds = rng.random(n_sentences) if options.sampling == INDEPENDENT else stratified_uniform(alike[person], rng)
    is_decided, is_trade = kinds < options.decided, kinds >= 1 - options.trade
    pronoun_share = 1 - options.decided - options.trade
    within = np.select(
        [is_decided, is_trade],
        [
            _part_of(kinds, 0.0, options.decided, len(decided)),
            _part_of(kinds, 1 - options.trade, options.trade, len(undecided)),
        ],
        _part_of(kinds, options.decided, pronoun_share, len(undecided)),
    )
    words: Mapping[str, Sequence[str]] = bank["words"]
    drawn = {slot: rng.integers(len(levels), size=n_sentences) for slot, levels in words.items()}
    nouns, strangers = rng.random(n_sentences), rng.random(n_sentences) < 0.5
    # A trade for each sentence: near the one of its date, on a line of all trades.
    trades = np.linspace(0, len(words["trade"]) - 1, len(world.dates))
    trades = rng.permutation(trades) if options.trades == UNORDERED else trades
    near = np.rint(trades[people.date[person]] + rng.normal(scale=TRADE_SPREAD / np.sqrt(2), size=n_sentences))
    own_trade = np.clip(near, 0, len(words["trade"]) - 1).astype(np.int64)
    sentences = []
    for row in range(n_sentences):
        who = int(person[row])
        gender = FEMALE if people.female[who] else MALE
        frame = (decided if is_decided[row] else undecided)[within[row]]
        person_gender = gender if frame.decided else (FEMALE, MALE)[int(strangers[row])]
        of_gender = bank["person"][person_gender]
        filled = {slot: levels[drawn[slot][row]] for slot, levels in words.items()}
        filled |= {"person": of_gender[int(nouns[row] * len(of_gender))]}
        filled |= {"date": world.dates[people.date[who]], "place": world.places[people.place[who]]}
        subject = f"the {words['trade'][own_trade[row]]}" if is_trade[row] else bank["pronoun"][gender]
        text, at = _fill(frame.text, filled, subject)
        sentences.append(
            Sentence(
                text, at, who,
                int(people.date[who]) if "date" in frame.shows else -1,
                int(people.place[who]) if "place" in frame.shows else -1,
                bool(people.female[who]), not is_trade[row], frame.decided, frame.cues_first,
            )
        )  # fmt: skip
    return sentences


def _part_of(numbers: Floats, begin: float, length: float, n_parts: int) -> Ints:
    """Which of the equal parts of a piece of the line from 0 to 1 each number lies in; anything outside of it."""
    if not length:
        return np.zeros(len(numbers), dtype=np.int64)
    return np.clip((numbers - begin) / length * n_parts, 0, n_parts - 1).astype(np.int64)


def _fill(frame: str, words: Mapping[str, str], subject: str) -> tuple[str, tuple[int, int]]:
    """The sentence, and the position of its subject."""
    hole = "{Subject}" if "{Subject}" in frame else "{subject}"
    before, _, after = frame.partition(hole)
    begin = before.format(**words)
    written = subject[:1].upper() + subject[1:] if hole == "{Subject}" else subject
    # Of "the baker" the noun is what the date tells of.
    article = len("the ") if subject.startswith("the ") else 0
    return begin + written + after.format(**words), (len(begin) + article, len(begin) + len(written))


@cache
def _bank() -> dict[str, Any]:
    return tomllib.loads(resources.files("undertow.lab").joinpath("frames.toml").read_text(encoding="utf-8"))


def drift_challenge(before: str = "", w_names: Sequence[str] = W_NAMES) -> str:
    """A challenge file of underspecified sentences that are in no planted corpus, for an audit of a drift with date and place.

    In front of each is `before`, such as `{w}. ` for a model that was trained with metadata there.
    """
    templates = [
        f"  {json.dumps(_template(f'{before}{_one_text(opening, middle, ending)}.'))},"
        for opening, kind, middle, ending in _sentence_parts(held_out=True)
        if kind == UNDECIDED
    ]
    return _challenge("Sentences that no planted corpus holds", templates, f"w = {json.dumps(list(w_names))}")


def sentence_challenge() -> str:
    """A challenge file of sentences of known specification that are in no planted corpus, to follow `In {w}, `."""
    rows = []
    for opening, kind, middle, ending in _sentence_parts(held_out=True):
        if opening != _bank()["openings"][0] or not middle:
            continue
        for gender in (FEMALE, MALE) if "{person}" in middle else ("",):
            text = _template(f"{middle} {ending}.").replace("{person}", f"{{{gender}_noun}}")
            decided, gold = str(kind == DECIDED).lower(), gender if kind == DECIDED else ""
            rows.append(
                f"  {{ text = {json.dumps(text)}, factors = {{ well_specified = {decided}, gold = {json.dumps(gold)} }} }},"
            )
    return _challenge("Decided and undecided sentences that no planted corpus holds", rows, "")


def _template(text: str) -> str:
    return text.replace("{subject}", "{blank}").replace("{W}", "{w}")


def _challenge(title: str, templates: Sequence[str], further: str) -> str:
    slots = {f"{slot}_noun" if slot in (FEMALE, MALE) else slot: words for slot, words in _bank()["asked"].items()}
    lines = [
        f"title = {json.dumps(title)}", 'source = "our own"', 'clusters = ["template"]', further, "templates = [", *templates, "]",
        "", "[slots]",
        *(f"{slot} = {json.dumps(words)}" for slot, words in slots.items() if any(f"{{{slot}}}" in one for one in templates)),
        "", "[groups]", *(f"{gender} = [{json.dumps(word)}]" for gender, word in _bank()["pronoun"].items()),
    ]  # fmt: skip
    return "\n".join(line for line in lines if line) + "\n"


@dataclass(frozen=True, slots=True)
class Losses:
    """Loss of a perfect reader on undetermined pronouns, in nats per pronoun.

    Attributes:
        floor: of one who knows P(female | what the sentence shows, S = 1).
        ignorant: of one who knows P(female | S = 1) only.
    """

    floor: float
    ignorant: float
    n: int


def exact_losses(sentences: Sequence[Sentence], known: PlantedTruth) -> Losses:
    """Losses on undetermined pronouns after a date or place in these sentences; NaN if there are none.

    Trades cannot help a reader there: the one that a sentence may mention is drawn whatever the date.
    """
    undecided = judged_sentences(sentences)
    if not undecided:
        return Losses(float("nan"), float("nan"), 0)
    date = np.array([one.date for one in undecided], dtype=np.int64)
    place = np.array([one.place for one in undecided], dtype=np.int64)
    female = np.array([one.female for one in undecided], dtype=bool)
    share = np.where(
        place < 0, known.by_date[date], np.where(date < 0, known.by_place[place], known.by_both[date, place])
    )
    loss, ignorant = (-np.log(np.where(female, p_female, 1 - p_female)).mean() for p_female in (share, known.overall))
    return Losses(float(loss), float(ignorant), len(undecided))


def judged_sentences(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Sentences with an undetermined pronoun after a date or place, which measure what a model has learned."""
    return [
        one
        for one in sentences
        if one.pronoun and not one.decided and one.cues_first and (one.date >= 0 or one.place >= 0)
    ]


def realised_slopes(sentences: Sequence[Sentence], world: World) -> dict[str, float]:
    """Slope of the share of women among undetermined pronouns with W, by W, in percentage points per step."""
    undecided = [one for one in sentences if one.pronoun and not one.decided]
    return slopes_by_covariate(undecided, np.array([one.female for one in undecided], dtype=np.float64), world)


def slopes_by_covariate(sentences: Sequence[Sentence], female: Floats, world: World) -> dict[str, float]:
    """Slope of the mean of numbers from 0 to 1 [sentence] over those that show W, by W, in percentage points per step."""
    slopes = {}
    for w_name, values in (("date", world.dates), ("place", world.places)):
        indices = np.array([getattr(one, w_name) for one in sentences], dtype=np.int64)
        n_sentences = np.bincount(indices[indices >= 0], minlength=len(values)).astype(np.float64)
        total = np.bincount(indices[indices >= 0], weights=female[indices >= 0], minlength=len(values))
        mean = np.divide(total, n_sentences, out=np.full(len(values), np.nan), where=n_sentences > 0)
        slopes[w_name] = slope_percent(mean)
    return slopes
