"""Texts about people whose bias is known, because we put it there.

    date, place and gender are drawn independently      W, G, no arrow between them
    an access function decides who is written about     W -> S <- G, and only S = 1 is kept
    sentences show the date, the place, and a pronoun   W -> X, G -> Y

so that P(gender | date, place, S = 1) is known exactly: what a model trained on these texts should come to say of a sentence
that does not decide its pronoun, and what an audit should read from it. After McMilin 2022 ("Selection Bias Induced Spurious
Correlations in Large Language Models", section 2) and 2024 ("Underspecification in Language Modeling Tasks", section 3).
Knows nothing about models, tokens or how the texts are learned.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.causal.expressions import Noise, evaluate, names, read_expression, subexpressions
from undertow.errors import UndertowError
from undertow.lab.stratified_sampling import stratified_uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LINEAR = "0.5 + strength * gender * (date - 0.5)"
"""The default access: with the dates, the share of women rises by `strength` from the first to the last."""
VARIABLES = ("date", "place", "gender", "strength")
UNORDERED, ORDERED = "unordered", "ordered"
QUOTA, INDEPENDENT = "quota", "independent"
"""How people and kinds of sentence are drawn: as many of each as there should be, or each for itself, so that texts lean by chance."""
FEMALE, MALE = "female", "male"
SENTENCES_EACH = 4
DECIDED_SHARE = 0.15
TRADE_SHARE = 0.05
TRADE_SPREAD = 1.0
"""How far, in trades, the people of one date are from its own."""


@dataclass(frozen=True, slots=True)
class World:
    """What people's dates and places can be, in the order that slopes are taken over.

    Attributes:
        dates, places: as sentences name them.
    """

    dates: tuple[str, ...]
    places: tuple[str, ...]

    def __post_init__(self) -> None:
        for called, values in (("dates", self.dates), ("places", self.places)):
            if len(values) < 3 or len(set(values)) < len(values):
                raise UndertowError(
                    f"a world needs three {called} or more, each once; got {', '.join(values) or 'none'}"
                )


@dataclass(frozen=True, slots=True)
class Access:
    """Who is written about: P(S = 1) by date, place and gender.

    Attributes:
        expression: of `date` and `place` (0 the first value, 1 the last), `gender` (1 female, -1 male) and `strength`, in the
            language of structural equations; without noise, since it is a probability itself.
        strength: the number that the expression may name.
    """

    expression: str = LINEAR
    strength: float = 0.0

    def kept_prob(self, world: World) -> Floats:
        """P(S = 1) [date, place, gender], gender female first.

        Raises:
            UndertowError: no such expression, a name it cannot have, noise in it, or a value that is no probability.
        """
        where = f"access {self.expression!r}"
        read = read_expression(self.expression)
        unknown = sorted(set(names(read)) - set(VARIABLES))
        if unknown:
            raise UndertowError(f"{where}: there is no {unknown[0]!r}; it may name {', '.join(VARIABLES)}")
        if any(isinstance(part, Noise) for part in subexpressions(read)):
            raise UndertowError(f"{where}: is a probability, so nothing in it is drawn; leave the noise out")
        shape = (len(world.dates), len(world.places), 2)
        dates, places, gender = np.meshgrid(
            np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]), np.array([1.0, -1.0]), indexing="ij"
        )
        values = {"date": dates, "place": places, "gender": gender, "strength": np.float64(self.strength)}
        kept = np.broadcast_to(np.asarray(evaluate(read, values, _nothing_drawn), dtype=np.float64), shape)
        outside = kept[~((kept >= 0) & (kept <= 1))]
        if outside.size:
            raise UndertowError(f"{where}: comes to {outside[0]:g}, which is no probability; keep it between 0 and 1")
        if not kept.any():
            raise UndertowError(f"{where}: keeps nobody; raise it somewhere")
        return kept.copy()


def _nothing_drawn(noise: Noise) -> Floats:
    raise AssertionError(noise)


@dataclass(frozen=True, slots=True)
class PlantedTruth:
    """What is known exactly of the selected, from the access alone.

    Attributes:
        joint: P(date, place, gender | S = 1) [date, place, gender], gender female first.
        selected_share: P(S = 1).
    """

    joint: Floats
    selected_share: float

    @classmethod
    def from_world(cls, access: Access, world: World) -> PlantedTruth:
        """By Bayes' rule: date, place and gender are uniform and independent before the selection."""
        kept = access.kept_prob(world)
        return cls(kept / kept.sum(), float(kept.mean()))

    @property
    def by_date(self) -> Floats:
        """P(female | date, S = 1) [date]; NaN where nobody of a date is selected."""
        return _share(self.joint.sum(axis=1))

    @property
    def by_place(self) -> Floats:
        """P(female | place, S = 1) [place]."""
        return _share(self.joint.sum(axis=0))

    @property
    def by_both(self) -> Floats:
        """P(female | date, place, S = 1) [date, place]."""
        return _share(self.joint)

    @property
    def overall(self) -> float:
        """P(female | S = 1)."""
        return float(_share(self.joint.sum(axis=(0, 1))))

    def slopes(self) -> dict[str, float]:
        """Least squares slope of P(female | W, S = 1) on the index of W, in percentage points per step, by W."""
        return {"date": slope_percent(self.by_date), "place": slope_percent(self.by_place)}


def _share(joint: Floats) -> Floats:
    total = joint.sum(axis=-1)
    share: Floats = np.divide(joint[..., 0], total, out=np.full(np.shape(total), np.nan), where=total > 0)
    return share


def slope_percent(share: Floats) -> float:
    """Least squares slope of a share [value] on the index of its value, in percentage points per step; NaN left out."""
    seen = np.flatnonzero(~np.isnan(share))
    if len(seen) < 2:
        return float("nan")
    centred = seen - seen.mean()
    return float(100 * centred @ share[seen] / (centred @ centred))


@dataclass(frozen=True, slots=True)
class People:
    """The selected, a row each.

    Attributes:
        date, place: index of their values [person].
        female: [person].
    """

    date: Ints
    place: Ints
    female: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.date)


def draw_people(access: Access, world: World, n_people: int, seed: int, drawn: str = QUOTA) -> People:
    """People as the access keeps them, in random order.

    Drawing from everybody and keeping by the access is drawing from the joint distribution of those who are kept, which is what
    is done here. By quota (systematic sampling, sorted by date and gender) the share of women at each date is what it should be
    but for one person.

    Raises:
        UndertowError: nobody is asked for, or as `Access.kept_prob`.
    """
    if n_people < 1:
        raise UndertowError(f"{n_people} people cannot be drawn; ask for one or more")
    known = PlantedTruth.from_world(access, world)
    rng = np.random.default_rng([seed, 1])
    by_date_and_gender = known.joint.transpose(0, 2, 1)
    up_to = by_date_and_gender.cumsum() / by_date_and_gender.sum()
    points = rng.random(n_people) if drawn == INDEPENDENT else (np.arange(n_people) + rng.random()) / n_people
    cells = rng.permutation(np.searchsorted(up_to, points, side="right"))
    date, gender, place = np.unravel_index(cells, by_date_and_gender.shape)
    return People(date.astype(np.int64), place.astype(np.int64), gender == 0)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the corpus.

    Attributes:
        text: as it stands.
        subject: first and last character of the pronoun, or of the trade that stands in its place.
        person: which of the people it is about.
        date, place: index of the value that the text shows; -1 where it shows none.
        female: of whom it tells.
        pronoun: whether its subject is a pronoun.
        decided: whether a gendered noun decides the pronoun.
        cues_first: whether all that it shows of date and place stands before the subject.
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


@dataclass(frozen=True, slots=True)
class SentenceOptions:
    """Sentences that a corpus has about its people.

    Attributes:
        seed: of every choice of words.
        each: sentences a person.
        decided_share: of the sentences, those in which a gendered noun decides the pronoun.
        trade_share: of the sentences, those whose subject is a trade and no pronoun. Trades depend on the date, so that there is
            something to be learned from the date even where nothing is planted (W -> X).
        trades: `unordered`, every date has a trade of its own; `ordered`, neighbouring dates have the same, so that what is
            learned of one date is learned of the next, as in real texts.
    """

    seed: int = 0
    each: int = SENTENCES_EACH
    decided_share: float = DECIDED_SHARE
    trade_share: float = TRADE_SHARE
    trades: str = UNORDERED
    drawn: str = QUOTA

    def __post_init__(self) -> None:
        if self.each < 1:
            raise UndertowError(f"{self.each} sentences a person make no corpus; ask for one or more")
        if min(self.decided_share, self.trade_share) < 0 or self.decided_share + self.trade_share > 1:
            raise UndertowError(
                f"shares of decided sentences {self.decided_share:g} and of trades {self.trade_share:g} must be 0 or more, and no "
                "more than 1 together"
            )
        if self.trades not in (UNORDERED, ORDERED):
            raise UndertowError(f"trades are {UNORDERED} or {ORDERED}, not {self.trades!r}")
        if self.drawn not in (QUOTA, INDEPENDENT):
            raise UndertowError(f"sentences are drawn by {QUOTA} or {INDEPENDENT}, not {self.drawn!r}")


@dataclass(frozen=True, slots=True)
class _Frame:
    """A sentence with holes.

    Attributes:
        text: with its holes.
        decided: whether the gendered noun in it decides the pronoun.
    """

    text: str
    decided: bool

    @property
    def holes(self) -> set[str]:
        """Names of the holes."""
        return {part.partition("}")[0].lower() for part in self.text.split("{")[1:]}

    @property
    def cues(self) -> set[str]:
        """Which W it shows."""
        return self.holes & {"date", "place"}

    @property
    def cues_first(self) -> bool:
        """Whether date and place stand before the subject."""
        return not {"{date}", "{place}"} & set(re.findall(r"{\w+}", self.text.lower().partition("{subject}")[2]))


UNDECIDED, DECIDED, BYSTANDER = "undecided", "decided", "bystander"
"""Kinds of sentence: nothing decides the pronoun, a gendered noun does, a gendered noun does not since another is meant."""


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
def _frames() -> tuple[tuple[_Frame, ...], tuple[_Frame, ...]]:
    """Undecided and decided sentences of the corpora, those that show the same W next to each other."""
    frames_of: dict[bool, list[_Frame]] = {False: [_Frame(text, decided=False) for text in _bank()["whole"]], True: []}
    for opening, kind, middle, ending in _sentence_parts(held_out=False):
        decided = kind == DECIDED
        for w_name in ("date", "place"):
            text = " ".join(part for part in (opening, middle, ending) if part).replace("{W}", f"{{{w_name}}}")
            frames_of[decided].append(_Frame(f"{text}.", decided))
    undecided, decided_ones = (sorted(frames, key=lambda frame: sorted(frame.cues)) for frames in frames_of.values())
    return tuple(undecided), tuple(decided_ones)


def write_about(people: People, world: World, options: SentenceOptions) -> list[Sentence]:
    """Sentences about these people, each person's together; the same for the same seed."""
    bank = _bank()
    undecided, decided = _frames()
    n_sentences = len(people) * options.each
    rng = np.random.default_rng([options.seed, 2])
    person = np.repeat(np.arange(len(people)), options.each)
    alike = (people.date * len(world.places) + people.place) * 2 + people.female
    kinds = rng.random(n_sentences) if options.drawn == INDEPENDENT else stratified_uniform(alike[person], rng)
    is_decided, is_trade = kinds < options.decided_share, kinds >= 1 - options.trade_share
    pronoun_share = 1 - options.decided_share - options.trade_share
    within = np.select(
        [is_decided, is_trade],
        [
            _part_of(kinds, 0.0, options.decided_share, len(decided)),
            _part_of(kinds, 1 - options.trade_share, options.trade_share, len(undecided)),
        ],
        _part_of(kinds, options.decided_share, pronoun_share, len(undecided)),
    )
    words: Mapping[str, Sequence[str]] = bank["words"]
    drawn = {slot: rng.integers(len(levels), size=n_sentences) for slot, levels in words.items()}
    nouns, strangers = rng.random(n_sentences), rng.random(n_sentences) < 0.5
    own_trade = _trades_of(people.date[person], len(world.dates), len(words["trade"]), options.trades, rng)
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
        text, at = _filled(frame.text, filled, subject)
        sentences.append(
            Sentence(
                text, at, who,
                int(people.date[who]) if "date" in frame.holes else -1,
                int(people.place[who]) if "place" in frame.holes else -1,
                bool(people.female[who]), not is_trade[row], frame.decided, frame.cues_first,
            )
        )  # fmt: skip
    return sentences


def _part_of(numbers: Floats, begin: float, length: float, n_parts: int) -> Ints:
    """Which of the equal parts of a piece of the line from 0 to 1 each number lies in; anything outside of it."""
    if not length:
        return np.zeros(len(numbers), dtype=np.int64)
    return np.clip((numbers - begin) / length * n_parts, 0, n_parts - 1).astype(np.int64)


def _trades_of(date: Ints, n_dates: int, n_trades: int, order: str, rng: np.random.Generator) -> Ints:
    """A trade for each sentence: near the one of its date, on a line of all trades."""
    own = np.linspace(0, n_trades - 1, n_dates)
    if order == UNORDERED:
        own = rng.permutation(own)
    drawn = np.rint(own[date] + rng.normal(scale=TRADE_SPREAD / np.sqrt(2), size=len(date)))
    return np.clip(drawn, 0, n_trades - 1).astype(np.int64)


def _filled(frame: str, words: Mapping[str, str], subject: str) -> tuple[str, tuple[int, int]]:
    """The sentence, and where its subject stands."""
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


def drift_challenge(before: str = "", w_names: Sequence[str] = ("date", "place")) -> str:
    """A challenge file of undecided sentences that no planted corpus holds, for an audit of a drift with date and place.

    Args:
        before: put in front of each of them, such as `{w}. ` for a model that was taught with metadata there.
        w_names: what stands for `{w}`.
    """
    templates = [
        _as_template(f"{before}{' '.join(part for part in (opening, middle, ending) if part)}.".replace("{W}", "{w}"))
        for opening, kind, middle, ending in _sentence_parts(held_out=True)
        if kind == UNDECIDED
    ]
    return _challenge(
        "Sentences that no planted corpus holds",
        [f"  {_quoted(text)}," for text in templates],
        f"w = {json.dumps(list(w_names))}",
    )


def sentence_challenge() -> str:
    """A challenge file of sentences of known specification that no planted corpus holds, to follow `In {w}, `."""
    rows = []
    for opening, kind, middle, ending in _sentence_parts(held_out=True):
        if opening != _bank()["openings"][0] or not middle:
            continue
        for gender in (FEMALE, MALE) if "{person}" in middle else ("",):
            text = _as_template(f"{middle} {ending}.").replace("{person}", f"{{{gender}_noun}}")
            gold = gender if kind == DECIDED else ""
            factors = f"{{ well_specified = {str(kind == DECIDED).lower()}, gold = {_quoted(gold)} }}"
            rows.append(f"  {{ text = {_quoted(text)}, factors = {factors} }},")
    return _challenge("Decided and undecided sentences that no planted corpus holds", rows, "")


def _as_template(text: str) -> str:
    return text.replace("{subject}", "{blank}")


def _challenge(title: str, templates: Sequence[str], further: str) -> str:
    slot_words = _bank()["asked"]
    slots = {slot: words for slot, words in slot_words.items() if slot not in (FEMALE, MALE)}
    slots |= {f"{gender}_noun": slot_words[gender] for gender in (FEMALE, MALE)}
    used = {slot: words for slot, words in slots.items() if any(f"{{{slot}}}" in text for text in templates)}
    groups = [f"{gender} = [{_quoted(word)}]" for gender, word in _bank()["pronoun"].items()]
    lines = [
        f"title = {_quoted(title)}", 'source = "our own"', 'clusters = ["template"]', further,
        "templates = [", *templates, "]", "", "[slots]",
        *(f"{slot} = {json.dumps(words)}" for slot, words in used.items()), "", "[groups]", *groups,
    ]  # fmt: skip
    return "\n".join(line for line in lines if line) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text)


@dataclass(frozen=True, slots=True)
class Losses:
    """What a perfect reader loses on pronouns that nothing decides, in nats each.

    Attributes:
        floor: of one who knows P(female | what the sentence shows, S = 1).
        ignorant: of one who knows P(female | S = 1) only.
        n: sentences.
    """

    floor: float
    ignorant: float
    n: int


def known_losses(sentences: Sequence[Sentence], known: PlantedTruth) -> Losses:
    """Of the undecided pronouns among these sentences whose date or place stands before them; NaN if there are none.

    Trades cannot help a reader there: the one that a sentence may mention is drawn whatever the date.
    """
    undecided = counted(sentences)
    if not undecided:
        return Losses(float("nan"), float("nan"), 0)
    date = np.array([one.date for one in undecided], dtype=np.int64)
    place = np.array([one.place for one in undecided], dtype=np.int64)
    female = np.array([one.female for one in undecided], dtype=bool)
    share = np.where(
        place < 0, known.by_date[date], np.where(date < 0, known.by_place[place], known.by_both[date, place])
    )
    loss = _surprise(share, female)
    ignorant = _surprise(np.full(len(undecided), known.overall), female)
    return Losses(float(loss.mean()), float(ignorant.mean()), len(undecided))


def counted(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences that a model's learning is judged by: an undecided pronoun, with a date or place before it."""
    return [
        one
        for one in sentences
        if one.pronoun and not one.decided and one.cues_first and (one.date >= 0 or one.place >= 0)
    ]


def _surprise(share: Floats, female: NDArray[np.bool_]) -> Floats:
    surprise: Floats = -np.log(np.where(female, share, 1 - share))
    return surprise
