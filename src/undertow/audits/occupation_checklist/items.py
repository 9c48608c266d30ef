"""Items of the occupation checklist: names crossed with attributes, then with occupations and the granted attributes.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", section "Dataset Construction".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.audits.base import ItemBatches, Sampling, option
from undertow.audits.shared import item_limit
from undertow.data.occupations.name_pairs import NamePair, load_pairs
from undertow.data.occupations.occupation_set import Attribute, Occupation, OccupationSet, load_occupations
from undertow.data.occupations.question_templates import (
    ATTRIBUTE,
    BINARY,
    BINARY_NEGATED,
    BOTH,
    MULTIPLE,
    NEITHER,
    NO,
    SINGLE,
    SINGLE_NEGATED,
    YES,
    People,
    Questions,
    load_questions,
)
from undertow.data.text_files import closest
from undertow.errors import UndertowError
from undertow.metrics.checklist.decisions import (
    CHOICES,
    CONTEXTS,
    NO_MARGIN,
    NONE_OF_THEM,
    ORDERS,
    SAME,
    SHUFFLED,
    STATED,
    SWAPPED,
    TIED,
    WITH,
    WITHOUT,
    decide_yes,
)
from undertow.types import (
    CHOICE,
    CONTINUATIONS,
    EXTRACTION,
    Answer,
    ContinuationQuery,
    Factor,
    Item,
    MultipleChoiceQuery,
    Query,
    Scores,
    SpanQuery,
)

QUERY_TYPES = (CHOICE, CONTINUATIONS, EXTRACTION)
"""How a model may be asked, by the kind of query: a prompt with its possible answers, these as continuations, or a passage."""
LIKELIHOOD, GREEDY = "likelihood", "greedy"
STATED_OF_A_PAIR = 2
"""Attributes of each pair whose answer the text states."""
CONTEXT_NAMES: Mapping[str, str] = {
    "with": WITH, "without": WITHOUT, "shuffled": SHUFFLED, "same": SAME, "swapped": SWAPPED,
}  # fmt: skip
FACTORS = (
    "challenge", "question_type", "pair", "woman", "man", "occupation", "soc_code", "context", "attribute_donor", "attribute",
    "category", "granted_female", "granted_male", "order", "subject", "attribute_holder", "gold", "wording", "text",
)  # fmt: skip
"""Factors of every item."""
QUESTION_KEY = (
    "question_type", "pair", "occupation", "attribute", "category", "context", "order", "subject", "attribute_holder",
)  # fmt: skip
"""Factors that tell the questions of a wording apart."""
Lists = tuple[Sequence[Attribute], Sequence[Attribute]]
"""Attributes of the woman and of the man."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The audit's own options."""

    n_pairs: int = option(10, "Number of pairs of names, sampled with the seed; 0 for all.")
    n_occupations: int = option(20, "Number of occupations, sampled with the seed; 0 for all.")
    occupation_names: str = option("", "Only these occupations, comma-separated, as in nurse,pilot.")
    name_pair_file: str = option("", "Table of pairs of names of your own: columns female, male.")
    occupation_file: str = option(
        "", "Table of occupations and their attributes of your own: columns occupation, attribute, category."
    )
    onet: str = option("", "Folder of an O*NET text release: Skills.txt, Knowledge.txt, Abilities.txt.")
    contexts: str = option(
        "with,without,shuffled",
        "With the attributes granted, without any, with those of another occupation (shuffled), with what either was "
        "granted for both (same), or with each other's (swapped).",
    )
    wordings: int = option(1, "Ask so many wordings of each question; 0 for all.")
    question_file: str = option("", "TOML file with questions of your own.")
    negated: bool = option(True, "Ask the negated questions too.")
    decision: str = option(
        LIKELIHOOD, "Decide by the likelihood of all answers, or by what greedy decoding says: greedy."
    )
    margin: float = option(0.0, "Percentage points that a decision needs between its answer and the next.")
    query_type: str = option(
        "", "Kind of query: choice, continuations or extraction; by default the first that the model supports."
    )
    chat: bool = option(False, "Put prompts into the model's own chat template.")


def adapt_settings(settings: Settings, capabilities: Mapping[str, Any]) -> Settings:
    """Settings with the kind of query that this model answers."""
    if settings.query_type:
        return settings
    # A model that answers from a passage answers nothing else; a choice is decided greedily too.
    query_type = next((kind for kind in (EXTRACTION, CHOICE, CONTINUATIONS) if kind in capabilities), CHOICE)
    return replace(settings, query_type=query_type)


@dataclass(frozen=True, slots=True)
class Plan:
    """Design of a run: questions, pairs of names, occupations and contexts.

    Attributes:
        settings: as they were given.
        questions: in words.
        pairs, occupations: those that were drawn.
        given: the table that the occupations are from.
        contexts: those of the run.
        donors: whose attributes each occupation gets in the shuffled context.
        stated: attributes whose answer the text states, by pair.
    """

    settings: Settings
    questions: Questions
    pairs: Sequence[NamePair]
    occupations: Sequence[Occupation]
    given: OccupationSet
    contexts: Sequence[str]
    donors: Mapping[str, Occupation]
    stated: Mapping[str, Sequence[Attribute]]

    @classmethod
    def from_settings(cls, settings: Settings, sampling: Sampling) -> Plan:
        """Draw it.

        Raises:
            UndertowError: an option, a table or the questions are not what they must be.
        """
        _check(settings)
        questions = load_questions(settings.question_file)
        given = load_occupations(settings.occupation_file, settings.onet)
        if settings.wordings > len(questions.wordings):
            raise UndertowError(
                f"--wordings {settings.wordings}: {questions.source} has {len(questions.wordings)}; give that or less, or 0 for all"
            )
        rng = np.random.default_rng(sampling.seed)
        pairs = _draw_sample(load_pairs(settings.name_pair_file), settings.n_pairs, "n_pairs", rng)
        named = _select_occupations(given, settings.occupation_names)
        occupations = (
            named if settings.occupation_names else _draw_sample(named, settings.n_occupations, "n_occupations", rng)
        )
        whole = cls._with(settings, questions, given, (pairs, occupations), sampling.seed)
        return whole._fit_to_limit(sampling) if sampling.limit else whole

    @classmethod
    def _with(
        cls,
        settings: Settings,
        questions: Questions,
        given: OccupationSet,
        drawn: tuple[Sequence[NamePair], Sequence[Occupation]],
        seed: int,
    ) -> Plan:
        """The plan for these pairs and occupations: who lends attributes to whom, and which are stated."""
        (pairs, occupations), contexts = drawn, _contexts(settings.contexts)
        rng = np.random.default_rng(seed)
        donors = _donors(occupations, rng)
        if not donors:
            contexts = [one for one in contexts if one != SHUFFLED]
            if not contexts:
                raise UndertowError(
                    "--contexts shuffled: all occupations have one SOC code, so none can lend its attributes"
                )
        attributes = _attributes(occupations)
        stated = {
            pair.name: [attributes[at] for at in rng.permutation(len(attributes))[:STATED_OF_A_PAIR]] for pair in pairs
        }
        return cls(settings, questions, pairs, occupations, given, contexts, donors, stated)

    def _fit_to_limit(self, sampling: Sampling) -> Plan:
        """Plan with fewer pairs and occupations, in balance, so that its items stay within the limit."""
        sizes = self.sizes(sampling.seed)
        if len(self.pairs) * sizes[-1] <= sampling.limit:
            return self
        n_pairs, n_jobs = _fitting(sampling.limit, len(self.pairs), dict(enumerate(sizes, self.min_occupations)))
        chosen = item_limit.spread([pair.name for pair in self.pairs], n_pairs, sampling.seed)
        pairs = [self.pairs[at] for at in chosen]
        occupations = self._spread(n_jobs, sampling.seed)
        return self._with(self.settings, self.questions, self.given, (pairs, occupations), sampling.seed)

    @property
    def min_occupations(self) -> int:
        """The fewest that can be asked about: where attributes are lent, one lends to another."""
        return 2 if SHUFFLED in self.contexts else 1

    def _spread(self, n: int, seed: int) -> list[Occupation]:
        """So many of the occupations, of as many SOC codes as can be."""
        return [self.occupations[at] for at in item_limit.spread([one.soc_code for one in self.occupations], n, seed)]

    def sizes(self, seed: int) -> list[int]:
        """The most items of one pair of names with the fewest occupations, and with each number up to all of them."""
        settings, contexts = self.settings, [context for context in self.contexts if context != WITHOUT]
        n_wordings, n_orders, n_people = len(self.wordings), len(ORDERS), len(CHOICES[:2])
        of_people, of_both = (2, 3) if settings.negated else (1, 2)
        of_job = n_orders * n_wordings * (n_people * of_people + of_both) * len(self.contexts)
        sizes = []
        for n in range(self.min_occupations, len(self.occupations) + 1):
            n_attributes = len(_attributes(self._spread(n, seed))) if contexts else 0
            granted = n_orders * n_people * n_attributes * n_wordings
            stated = n_orders * n_people * 2 * min(n_attributes, STATED_OF_A_PAIR)
            sizes.append(granted + stated + of_job * n)
        return sizes

    @property
    def n_items(self) -> int:
        """How many items there are, at most."""
        return sum(1 for _ in self.all_items())

    @property
    def wordings(self) -> range:
        """Numbers of the wordings of the run."""
        return range(self.settings.wordings or len(self.questions.wordings))

    def all_items(self) -> Iterator[Item]:
        """Every item that a run may need: those with all attributes granted.

        Where both people get the same attributes or each other's, one of them lacks the first and the other the last: with all
        granted to both these contexts would ask what the others ask.
        """
        yield from self.first_items()
        yield from self.second_items(_all_but_one if {SAME, SWAPPED} & set(self.contexts) else _all_granted)

    # The first round: what does not depend on any answer.

    def first_items(self) -> Iterator[Item]:
        """Attributes, those that the text states, and occupations without attributes."""
        if any(context != WITHOUT for context in self.contexts):
            for pair in self.pairs:
                yield from self._attribute_items(pair)
                yield from self._stated_items(pair)
        if WITHOUT in self.contexts:
            for pair in self.pairs:
                for occupation in self.occupations:
                    yield from self._occupation_items(pair, occupation, WITHOUT, ((), ()))

    def _attribute_items(self, pair: NamePair) -> Iterator[Item]:
        for attribute in _attributes(self.occupations):
            for people, order, subject in _subjects_of(pair):
                for wording in self.wordings:
                    yield self._attribute_item(pair, attribute, (people, order, subject), wording)

    def _stated_items(self, pair: NamePair) -> Iterator[Item]:
        """Questions about each person after a text that states who has the attribute."""
        for attribute in self.stated[pair.name]:
            for people, order, holder in _subjects_of(pair):
                context = self.questions.stated(people, attribute.name, attribute.category)
                for subject, gold in ((holder, YES), (CHOICES[1 - CHOICES.index(holder)], NO)):
                    target = People(people.first, people.second, _name_of(pair, subject))
                    yield self._attribute_item(pair, attribute, (target, order, subject), 0, (context, gold, holder))

    def _attribute_item(
        self,
        pair: NamePair,
        attribute: Attribute,
        target: tuple[People, str, str],
        wording: int,
        stated: tuple[str, str, str] = ("", "", ""),
    ) -> Item:
        people, order, subject = target
        said, gold, holder = stated
        context = said or self.questions.context(people)
        phrase = self.questions.phrase(attribute.name, attribute.category)
        question = self.questions.question(ATTRIBUTE, people, wording, phrase=phrase)
        factors: dict[str, Factor] = {
            "question_type": "stated" if gold else ATTRIBUTE,
            "context": STATED if gold else WITHOUT,
            "attribute": attribute.name,
            "category": attribute.category,
            "subject": subject,
            "attribute_holder": holder,
            "gold": gold.lower(),
        }
        return self._item(pair, (people, order), (ATTRIBUTE, context, question), wording, factors)

    # The second round: what was granted goes before the questions.

    def second_items(self, granted: Callable[[NamePair, Occupation], Lists]) -> Iterator[Item]:
        """Occupations with what the model granted each person of the pair.

        Args:
            granted: from a pair and an occupation to those of its attributes that the woman, and the man, was granted.
        """
        for context in (one for one in self.contexts if one != WITHOUT):
            for pair in self.pairs:
                for occupation in self.occupations:
                    lender = self.donors[occupation.name] if context == SHUFFLED else occupation
                    lists = granted(pair, lender)
                    if context == SAME:
                        of_either = [one for one in lender.attributes if one in lists[0] or one in lists[1]]
                        lists = of_either, of_either
                    elif context == SWAPPED:
                        lists = lists[1], lists[0]
                    yield from self._occupation_items(pair, occupation, context, lists)

    def _occupation_items(
        self,
        pair: NamePair,
        occupation: Occupation,
        context: str,
        granted: Lists,
    ) -> Iterator[Item]:
        words = {"job": occupation.name, "a_job": f"{occupation.article} {occupation.name}"}
        lists = {
            person: [(one.name, one.category) for one in some] for person, some in zip(CHOICES, granted, strict=False)
        }
        lender = self.donors[occupation.name].name if context == SHUFFLED else ""
        common: dict[str, Factor] = {
            "context": context,
            "occupation": occupation.name,
            "soc_code": occupation.soc_code,
            "attribute_donor": lender,
            **{f"granted_{person}": "; ".join(name for name, _ in some) for person, some in lists.items()},
        }
        for order in ORDERS:
            people = _people(pair, order)
            named = [(person, _name_of(pair, person)) for person in _in_order(order)]
            whole = self.questions.context(people, [(name, lists[person]) for person, name in named])
            for wording in self.wordings:
                for person, name in named:
                    subject = People(people.first, people.second, name)
                    own = self.questions.context(people, [(name, lists[person])])
                    for kind in (BINARY, BINARY_NEGATED) if self.settings.negated else (BINARY,):
                        question = self.questions.question(kind, subject, wording, **words)
                        factors = common | {"question_type": kind, "subject": person}
                        yield self._item(pair, (subject, order), (kind, own, question), wording, factors)
                for kind in (SINGLE, SINGLE_NEGATED, MULTIPLE) if self.settings.negated else (SINGLE, MULTIPLE):
                    question = self.questions.question(kind, people, wording, **words)
                    yield self._item(
                        pair, (people, order), (kind, whole, question), wording, common | {"question_type": kind}
                    )

    def _item(
        self,
        pair: NamePair,
        target: tuple[People, str],
        said: tuple[str, str, str],
        wording: int,
        factors: Mapping[str, Factor],
    ) -> Item:
        people, order = target
        kind, context, question = said
        query = self._query(pair, people, kind, context, question)
        filled: dict[str, Factor] = dict.fromkeys(FACTORS, "")
        filled |= {
            "challenge": self.given.name,
            "pair": pair.name,
            "woman": pair.female,
            "man": pair.male,
            "order": order,
        }
        text = query.context if isinstance(query, ContinuationQuery) else query.display_text()
        filled |= {"wording": wording + 1, "text": text, **factors}
        name = "/".join(str(filled[part]).replace("/", "+") for part in QUESTION_KEY if filled[part])
        return Item(f"{name}/{wording + 1}", query, filled, cluster=pair.name)

    def _query(self, pair: NamePair, people: People, kind: str, context: str, question: str) -> Query:
        answers = answers_to(kind, pair)
        if self.settings.query_type == EXTRACTION:
            together = f"{people.first} and {people.second}"
            pieces = {BINARY: (), SINGLE: (pair.female, pair.male), MULTIPLE: (pair.female, pair.male, together)}
            candidates = pieces[BINARY if kind == ATTRIBUTE else kind.partition("_")[0]]
            if any(piece not in context for piece in candidates):
                raise UndertowError(
                    f"{self.questions.source}: the context must hold '{{first}} and {{second}}' for models that answer with a "
                    "piece of it"
                )
            return SpanQuery(context, question, candidates)
        prompt = self.questions.prompt(context, question, kind, people)
        labels = tuple(f" {answer}" for answer in answers)
        if self.settings.query_type == CONTINUATIONS:
            return ContinuationQuery(prompt, labels)
        is_binary = codes_of(kind) == codes_of(BINARY)
        return MultipleChoiceQuery(prompt, labels, first_token=is_binary, chat=self.settings.chat)


def answers_to(kind: str, pair: NamePair) -> tuple[str, ...]:
    """The possible answers to a kind of question, in the order of `codes_of`."""
    if kind in (SINGLE, SINGLE_NEGATED):
        return pair.female, pair.male
    return (pair.female, pair.male, BOTH, NEITHER) if kind == MULTIPLE else (YES, NO)


def codes_of(question_type: str) -> tuple[str, ...]:
    """What these answers are called in the table."""
    if question_type in (SINGLE, SINGLE_NEGATED):
        return CHOICES[:2]
    return CHOICES if question_type == MULTIPLE else ("yes", "no")


def answer_row(item: Item, answer: Answer) -> dict[str, Any]:
    """What one answer says: shares of the possible answers in percent, and which of them was said.

    A passage is answered Yes where its best piece is more probable than no answer.
    """
    question_type = str(item.factors["question_type"])
    codes = codes_of(question_type)
    row: dict[str, Any] = dict.fromkeys(("yes", *CHOICES), math.nan) | {
        "answer": "", "whole": False, "other_words": 100 * answer.other_prob, "missing_reason": answer.missing_reason,
    }  # fmt: skip
    if answer.missing_reason:
        return row
    nats = np.array(answer.logprobs_nats, dtype=np.float64)
    if isinstance(item.query, SpanQuery):
        *pieces, none, best = nats
        if np.isnan(none) and question_type not in (SINGLE, SINGLE_NEGATED):
            return row | {"missing_reason": "the model does not say how probable it is that the passage has no answer"}
        nats = np.array([best, none] if codes[0] == "yes" else [*pieces, none][: len(codes)])
    labels = _labels(item.query)
    text = answer.text.strip().casefold().removesuffix(".")
    if len(nats) == len(codes) and not np.isnan(nats).any() and np.isfinite(nats).any():
        shares = np.exp(nats - nats.max())
        row |= dict(zip(codes, (100 * shares / shares.sum()).tolist(), strict=True))
        best = TIED if _is_tied(row, codes) else codes[int(nats.argmax())]
        row["answer"] = codes[labels.index(text)] if text in labels else best
    elif text in labels:
        # A server that does not show how probable each answer is: what it said is all there is.
        at = labels.index(text)
        row |= {code: 100.0 * (place == at) for place, code in enumerate(codes)} | {"whole": True, "answer": codes[at]}
    else:
        return row | {"missing_reason": f"the answer {answer.text.strip()!r} {NONE_OF_THEM}"}
    row.pop("no", None)
    return row


def _is_tied(shares: Mapping[str, Any], codes: Sequence[str]) -> bool:
    """Whether several of the possible answers are the most probable."""
    *_, second, first = sorted(float(shares[code]) for code in codes)
    return first - second <= NO_MARGIN


def _labels(query: Query) -> list[str]:
    """The possible answers, in small letters; [] where answers are pieces of a text."""
    texts = (
        query.labels
        if isinstance(query, MultipleChoiceQuery)
        else query.continuations
        if isinstance(query, ContinuationQuery)
        else ()
    )
    return [text.strip().casefold() for text in texts]


def items(settings: Settings, sampling: Sampling) -> ItemBatches:
    """Yield the items that need no answer; then, given the granted attributes, the rest."""
    plan = Plan.from_settings(settings, sampling)
    items = list(plan.first_items())
    scores = yield items
    second = list(plan.second_items(_Grants.from_answers(items, scores, settings)))
    if second:
        yield second


@dataclass(frozen=True, slots=True)
class _Grants:
    """Attributes that the model granted: mean probability of Yes over both orders, by pair, attribute and person."""

    shares: Mapping[tuple[str, str, str, str], float]
    margin: float

    @classmethod
    def from_answers(cls, items: Sequence[Item], scores: Scores, settings: Settings) -> _Grants:
        shares: dict[tuple[str, str, str, str], list[float]] = {}
        for item, answer in zip(items, scores.answers, strict=True):
            factors = item.factors
            if factors["question_type"] == ATTRIBUTE and factors["wording"] == 1:
                said = answer_row(item, answer)
                yes = math.nan if not said["answer"] else 100.0 * (said["answer"] == "yes")
                key = tuple(str(factors[name]) for name in ("pair", "category", "attribute", "subject"))
                shares.setdefault((key[0], key[1], key[2], key[3]), []).append(
                    yes if settings.decision == GREEDY else said["yes"]
                )
        return cls({key: sum(values) / len(values) for key, values in shares.items()}, settings.margin)

    def __call__(self, pair: NamePair, occupation: Occupation) -> Lists:
        """What of an occupation's attributes the woman, and the man, was granted; what is not known is not granted."""
        each = [(attribute, self._is_granted(pair, attribute)) for attribute in occupation.attributes]
        woman, man = ([attribute for attribute, given in each if given[at]] for at in (0, 1))
        return woman, man

    def _is_granted(self, pair: NamePair, attribute: Attribute) -> tuple[bool, bool]:
        shares = [
            self.shares.get((pair.name, attribute.category, attribute.name, one), math.nan) for one in CHOICES[:2]
        ]
        woman, man = decide_yes(np.array(shares) / 100, self.margin) == 1
        return bool(woman), bool(man)


def _all_granted(pair: NamePair, occupation: Occupation) -> Lists:
    return occupation.attributes, occupation.attributes


def _all_but_one(pair: NamePair, occupation: Occupation) -> Lists:
    """Different attributes of each person and of both together."""
    attributes = occupation.attributes
    return attributes[:-1] or attributes, attributes[1:]


# Names.


def _people(pair: NamePair, order: str) -> People:
    first, second = (_name_of(pair, person) for person in _in_order(order))
    return People(first, second)


def _in_order(order: str) -> tuple[str, str]:
    return (CHOICES[0], CHOICES[1]) if order == ORDERS[0] else (CHOICES[1], CHOICES[0])


def _name_of(pair: NamePair, person: str) -> str:
    return pair.female if person == CHOICES[0] else pair.male


def _subjects_of(pair: NamePair) -> Iterator[tuple[People, str, str]]:
    """Both orders of names, and in each both subjects: people, order, subject."""
    for order in ORDERS:
        people = _people(pair, order)
        for person in _in_order(order):
            yield People(people.first, people.second, _name_of(pair, person)), order, person


# Drawing.


def _fitting(limit: int, n_pairs: int, sizes: Mapping[int, int]) -> tuple[int, int]:
    """Number of pairs of names and number of occupations within the limit.

    At least six of each where the limit allows, else six pairs, without which nothing can be claimed; then the smaller of the two shares
    that are kept of what there is is made as large as it can be.

    Args:
        limit: the most items.
        n_pairs: pairs that there are.
        sizes: the most items of a pair, by the number of occupations.
    """
    few, n_jobs = item_limit.MIN_SENTENCES, max(sizes)
    candidates = [
        (max(1, min(n_pairs, limit // size)), n) for n, size in sizes.items() if n == min(sizes) or size <= limit
    ]
    return max(
        candidates,
        key=lambda one: (
            min(one) >= few,
            one[0] >= few,
            min(one[0] / n_pairs, one[1] / n_jobs),
            one[0] * one[1],
        ),
    )


def limitations(settings: Settings, sampling: Sampling) -> list[str]:
    """Sentences on too few pairs, or occupations, for a claim, with the smallest limit that would do; none of enough."""
    few = item_limit.MIN_SENTENCES
    whole, limited_plan = (Plan.from_settings(settings, one) for one in (Sampling(0, sampling.seed), sampling))
    sentences = []
    if len(whole.pairs) < few:
        return [
            f"{item_limit.count_text(len(whole.pairs), 'pair')} of names cannot show anything of others: a claim needs at least {few}."
        ]
    if SHUFFLED in _contexts(settings.contexts) and not whole.donors:
        sentences.append(
            "All occupations have one SOC code, so none can lend its attributes: the context shuffled is left out."
        )
    n_codes = [len({one.soc_code for one in plan.occupations}) for plan in (whole, limited_plan)]
    if n_codes[0] < few:
        sentences.append(
            f"{item_limit.count_text(n_codes[0], 'SOC code')} of occupations cannot show anything of others: a claim over all occupations "
            f"needs at least {few}. Claims about single occupations can be made."
        )
    sizes = whole.sizes(sampling.seed)
    if len(limited_plan.pairs) < few:
        sentences.append(
            item_limit.too_few(f"{item_limit.count_text(len(limited_plan.pairs), 'pair')} of names", few * sizes[0])
        )
    elif n_codes[1] < few <= n_codes[0]:
        smallest = few * sizes[few - whole.min_occupations]
        sentences.append(
            item_limit.too_few(item_limit.count_text(n_codes[1], "occupation"), smallest, "over all occupations")
        )
    return sentences


def _check(settings: Settings) -> None:
    for name in ("n_pairs", "n_occupations", "wordings", "margin"):
        number = getattr(settings, name)
        if not (math.isfinite(number) and number >= 0):
            raise UndertowError(f"--{name.replace('_', '-')} {number}: give 0 or more")
    if settings.occupation_names and settings.n_occupations != Settings().n_occupations:
        raise UndertowError(
            f"--n-occupations {settings.n_occupations}: --occupation-names names the occupations; leave one of them out"
        )
    if settings.margin >= 100:
        raise UndertowError(f"--margin {settings.margin:g}: no two answers lie so far apart; give less than 100")
    for name, known in (("decision", (LIKELIHOOD, GREEDY)), ("query_type", ("", *QUERY_TYPES))):
        value = getattr(settings, name)
        if value not in known:
            raise UndertowError(
                f"--{name.replace('_', '-')} {value!r}: is unknown; use {', '.join(filter(None, known))}"
            )
    if settings.decision == GREEDY and settings.query_type not in ("", CHOICE):
        raise UndertowError(
            f"--decision greedy: nothing is decoded with --query-type {settings.query_type}; leave one out"
        )
    if settings.chat and settings.query_type not in ("", CHOICE):
        raise UndertowError(
            f"--chat: goes around prompts, and --query-type {settings.query_type} has none; leave one out"
        )


def _contexts(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    strange = [name for name in names if name not in CONTEXT_NAMES]
    if strange or not names:
        what = f"{strange[0]!r} is unknown" if strange else "is empty"
        raise UndertowError(f"--contexts {given!r}: {what}; use {', '.join(CONTEXT_NAMES)}")
    return [context for context in CONTEXTS if context in {CONTEXT_NAMES[name] for name in names}]


def _select_occupations(given: OccupationSet, only: str) -> list[Occupation]:
    """The occupations, or those that are named."""
    by_name = {one.name.casefold(): one for one in given.occupations}
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip()))
    if only and not names:
        raise UndertowError(
            f"--occupation-names {only!r}: names no occupation; write names with commas, as in nurse,pilot"
        )
    for name in names:
        if name.casefold() not in by_name:
            raise UndertowError(
                f"--occupation-names {only!r}: {given.name} has no occupation {name!r}"
                f"{closest(name, [one.name for one in given.occupations])}; "
                "`undertow challenge occupations` prints those of the package"
            )
    return [by_name[name.casefold()] for name in names] or list(given.occupations)


def _draw_sample(whole: Sequence[Any], n: int, option: str, rng: np.random.Generator) -> list[Any]:
    """So many of them, in their order; all where n is 0, or the default and larger."""
    if n > len(whole) and n != getattr(Settings(), option):
        raise UndertowError(
            f"--{option.replace('_', '-')} {n}: there are {len(whole)}; give that or less, or 0 for all"
        )
    if not 0 < n < len(whole):
        return list(whole)
    return [whole[at] for at in sorted(rng.permutation(len(whole))[:n])]


def _donors(occupations: Sequence[Occupation], rng: np.random.Generator) -> dict[str, Occupation]:
    """Whose attributes each occupation is lent: of another SOC code, every code lending to one; {} where there is one code."""
    by_code = {one.soc_code: one for one in reversed(occupations)}
    if len(by_code) < 2:
        return {}
    codes = [list(by_code)[at] for at in rng.permutation(len(by_code))]
    lender = dict(zip(codes, [*codes[1:], codes[0]], strict=True))
    return {one.name: by_code[lender[one.soc_code]] for one in occupations}


def _attributes(occupations: Sequence[Occupation]) -> list[Attribute]:
    """Each attribute once."""
    return list(dict.fromkeys(one for occupation in occupations for one in occupation.attributes))
