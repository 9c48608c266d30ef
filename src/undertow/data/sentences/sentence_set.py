"""Sentences with a blank but without W, and the injection of W.

An `Injection` puts a value of W before or after a sentence. Sets, injections and W lists can be combined freely.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from undertow.data.templates.covariates import NO_W, Covariate, check_covariates
from undertow.data.templates.template import Template
from undertow.data.text_files import error_place, first_repeat
from undertow.errors import UndertowError
from undertow.types import RESERVED_COLUMNS, ClozeQuery, Factor, Item, Option

FEMALE, MALE, NEUTRAL = "female", "male", "neutral"
PRONOUNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "nominative": {FEMALE: ("she",), MALE: ("he",), NEUTRAL: ("they",)},
    "accusative": {FEMALE: ("her",), MALE: ("him",), NEUTRAL: ("them",)},
    "possessive": {FEMALE: ("her",), MALE: ("his",), NEUTRAL: ("their",)},
    "any": {FEMALE: ("she", "her"), MALE: ("he", "him", "his"), NEUTRAL: ("they", "them", "their")},
}
"""Pronouns of each case, by word group; `any` for sentences without a stated case."""
UNKNOWN_CASE = "any"
KNOWN_FACTORS = frozenset(
    {"well_specified", "occupation", "participant", "participant_class", "coreferent", "pronoun_case", "percent_female"}
)
"""Factors that measures know."""
BOUNDS = (".low", ".high")
"""Suffixes of the columns with the bounds of a group's mass, which are not allowed in names of word groups."""
NO_NAMES = frozenset({"", "nan", "NaN", "NA", "N/A", "n/a", "None", "null", "NULL", "<NA>"})
"""Texts that readers of tables take for an empty cell."""
MAX_SENTENCES = 1_000_000
"""Maximum size of a set; every slot and list multiplies it."""
_VERB = re.compile(r"\{verb:([^{}|]+)\|([^{}|]+)\}")


def check_group_names(names: Collection[str]) -> None:
    """Refuse ambiguous names of word groups."""
    for name in names:
        others = [f"{one}-{other}" for one in names for other in names if name.startswith(f"{one}-")]
        if name in NO_NAMES or name != name.strip():
            reason = "which tables read as an empty cell"
        elif name in others:
            reason = "as the lead of one over another is"
        else:
            continue
        raise UndertowError(f"a word group cannot be called {name!r}, {reason}; rename it")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with a blank.

    Attributes:
        id: readable name, unique in its set.
        factors: its levels in the design.
        cluster: name of the cluster of dependent sentences, for example the occupation.
        gold: the word group that the sentence determines; None if there is none or it is unknown.
    """

    id: str
    query: ClozeQuery
    factors: Mapping[str, Factor]
    cluster: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class SentenceSet:
    """A set of sentences with unique ids.

    Attributes:
        name: name in results.
        title, source: texts for the report.
        words: forms of each word group, in report order; a sentence may use some of them.
    """

    name: str
    title: str
    source: str
    words: Mapping[str, tuple[str, ...]]
    sentences: tuple[Sentence, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (twice := first_repeat(sentence.id for sentence in self.sentences)) is not None:
            raise UndertowError(f"{self.name}: has two sentences called {twice!r}; give each once")
        with error_place(self.name):
            check_group_names(self.words)
        for name in self.words:
            of_sentences = any(name in sentence.factors for sentence in self.sentences)
            if name in RESERVED_COLUMNS | KNOWN_FACTORS or name.endswith(BOUNDS) or of_sentences:
                raise UndertowError(f"{self.name}: word group {name!r} has the name of a column; rename it")
        if len({"well_specified" in sentence.factors for sentence in self.sentences}) > 1:
            raise UndertowError(f"{self.name}: give well_specified for all sentences or for none")
        for sentence in self.sentences:
            factors, where = sentence.factors, f"{self.name}, {sentence.id}"
            if not isinstance(factors.get("well_specified", True), bool):
                raise UndertowError(
                    f"{where}: well_specified is {factors['well_specified']!r}; it must be true or false"
                )
            if factors.get("coreferent", 0) not in (0, 1):
                raise UndertowError(f"{where}: coreferent is {factors['coreferent']!r}; it must be 0 or 1")
            share = factors.get("percent_female", 0.0)
            if isinstance(share, (str, bool)) or not 0 <= share <= 100:
                raise UndertowError(f"{where}: percent_female is {share!r}; it must be a number from 0 to 100")
            if sentence.gold is not None and sentence.gold not in self.words:
                raise UndertowError(f"{where}: gold {sentence.gold!r} is not one of the groups {', '.join(self.words)}")

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the word groups."""
        return tuple(self.words)

    def with_words(self, words: Mapping[str, Sequence[str]]) -> SentenceSet:
        """The set with every word of a list as an option of each blank; verbs agree as with the first word of the group.

        Raises:
            UndertowError: the list has other groups than this set.
        """
        if unlike := words.keys() ^ self.words.keys():
            raise UndertowError(
                f"{self.name}: the word list and the sentences differ in group {min(unlike)!r}; the list needs the groups "
                f"{', '.join(self.words)}"
            )
        sentences = []
        for sentence in self.sentences:
            verbs = {option.group: option.fills[1:] for option in reversed(sentence.query.options)}
            options = [Option(group, (word, *verbs[group])) for group, own in words.items() for word in own]
            sentences.append(replace(sentence, query=replace(sentence.query, options=tuple(options))))
        return replace(self, words={group: tuple(own) for group, own in words.items()}, sentences=tuple(sentences))

    def plain(self) -> list[Item]:
        """Every sentence without W."""
        nowhere: dict[str, Factor] = {"w_name": NO_W, "w_index": 0, "w_value": 0.0, "w": ""}
        return [self._item(sentence, sentence.query, nowhere) for sentence in self.sentences]

    def inject(self, injection: Injection, covariates: Sequence[Covariate]) -> list[Item]:
        """Every sentence with every value, ordered by W list, value and sentence.

        Raises:
            UndertowError: two W lists have one name, or there are too many sentences.
        """
        check_covariates(covariates)
        check_size(self.name, sum(len(covariate.values) for covariate in covariates) * len(self.sentences))
        queries = [sentence.query for sentence in self.sentences]
        return [
            self._item(sentence, query, place)
            for covariate in covariates
            for place in covariate.places()
            for sentence, query in zip(self.sentences, injection.into(queries, str(place["w"])), strict=True)
        ]

    def _item(self, sentence: Sentence, query: ClozeQuery, place: Mapping[str, Factor]) -> Item:
        return Item(
            id="/".join(filter(None, [self.name, str(place["w_name"]), str(place["w"]), sentence.id])),
            query=query,
            factors={"challenge": self.name, **place, "sentence": sentence.id, **sentence.factors},
            cluster=sentence.cluster,
            gold=sentence.gold,
        )


def check_size(name: str, n_sentences: int) -> None:
    """Refuse a set that is too large, before its sentences are generated; `--limit` samples from the whole set."""
    if n_sentences > MAX_SENTENCES:
        raise UndertowError(
            f"challenge {name!r}: has {n_sentences:.3g} sentences, but at most {MAX_SENTENCES:,} are allowed; remove some"
        )


@dataclass(frozen=True, slots=True)
class Injection:
    """Template that adds a value of W to a sentence without a place for it."""

    before: Template
    after: Template

    @classmethod
    def parse(cls, text: str) -> Injection:
        """Parse a template such as `In {w}: ` (in front), or `{text} It was {w}.`, where `{text}` is the sentence.

        Raises:
            UndertowError: it has no `{w}`, more than one `{text}`, or another placeholder.
        """
        holes = Template(text).holes()
        if unknown := [hole for hole in holes if hole not in ("w", "text")]:
            raise UndertowError(
                f"injection {text!r}: has the unknown placeholder {{{unknown[0]}}}; use {{w}} and {{text}}"
            )
        if "w" not in holes:
            raise UndertowError(f"injection {text!r}: has no place for the value; write {{w}} in it")
        if holes.count("text") > 1:
            raise UndertowError(f"injection {text!r}: has the sentence more than once; write {{text}} once")
        sides: list[str] = ["", ""]
        side = 0
        for literal, hole in Template(text).parts():
            sides[side] += literal.replace("{", "{{").replace("}", "}}") + ("{w}" if hole == "w" else "")
            side = 1 if hole == "text" else side
        # A template without {text} goes in front of the sentence.
        return cls(Template(sides[0]), Template(sides[1]))

    def into(self, queries: Sequence[ClozeQuery], value: str) -> list[ClozeQuery]:
        """The sentences with a value; their own words are unchanged."""
        before, after = (side.text_with({"w": value}) for side in (self.before, self.after))
        return [
            ClozeQuery((before + query.pieces[0], *query.pieces[1:-1], query.pieces[-1] + after), query.options)
            for query in queries
        ]


def pronoun_blank(text: str, case: str) -> ClozeQuery:
    """A sentence with `{blank}` for a pronoun of this case; `{verb:was|were}` agrees with it, the second with *they*.

    Errors are those of `group_blank`.
    """
    forms = [(group, form) for group, forms in PRONOUNS[case].items() for form in forms]
    return group_blank(text, forms, plural=NEUTRAL)


def group_blank(text: str, forms: Sequence[tuple[str, str]], plural: str = "") -> ClozeQuery:
    """A sentence with `{blank}` for (group, word) pairs; verbs in braces agree with the group `plural`.

    Raises:
        UndertowError: it has no blank, an unknown placeholder, or a word in two groups.
    """
    verbs = [(f"verb_{number}", *match.groups()) for number, match in enumerate(_VERB.finditer(text))]
    names = iter(verbs)
    template = Template(_VERB.sub(lambda _: "{" + next(names)[0] + "}", text))
    holes = template.holes()
    if "blank" not in holes:
        raise UndertowError(f"{text!r}: has no blank to fill; write {{blank}} where the word goes")
    if strange := [hole for hole in holes if hole != "blank" and hole not in {name for name, _, _ in verbs}]:
        raise UndertowError(f"{text!r}: has the unknown placeholder {{{strange[0]}}}; only {{blank}} is allowed")
    filled = [(group, (word, *(many if group == plural else one for _, one, many in verbs))) for group, word in forms]
    return template.fill({}, ["blank", *(name for name, _, _ in verbs)], filled)
