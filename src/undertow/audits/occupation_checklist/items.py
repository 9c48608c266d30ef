"""Items of the occupation checklist: names crossed with attributes, then with occupations and the granted attributes.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", section "Dataset Construction".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.audits.base import Sampling, split_names
from undertow.audits.shared.item_limit import MIN_SENTENCES, stratified_sample, too_few
from undertow.data.occupations import question_templates as templates
from undertow.data.occupations.occupation_set import (
    Attribute,
    NamePair,
    Occupation,
    OccupationSet,
    load_occupations,
    load_pairs,
)
from undertow.errors import UndertowError, closest, counted
from undertow.metrics.checklist import decisions
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
    digest,
    option,
)

QUERY_TYPES = (CHOICE, CONTINUATIONS, EXTRACTION)
"""Query types: a prompt with its possible answers, these as continuations, or a passage."""
LIKELIHOOD, GREEDY = "likelihood", "greedy"
BY_MODEL, AT_RANDOM = "model", "random"
STATED_OF_A_PAIR = 2
"""Number of stated attributes per pair of names."""
CONTEXT_NAMES = {context.partition(" ")[0]: context for context in decisions.CONTEXTS}
FACTORS = (
    "challenge", "question_type", "pair", "woman", "man", "occupation", "soc_code", "context", "attribute_donor", "attribute",
    "category", "granted_female", "granted_male", "order", "subject", "attribute_holder", "gold", "wording", "text",
)  # fmt: skip
"""Factors of every item."""
QUESTION_KEY = (
    "question_type", "pair", "occupation", "attribute", "category", "context", "order", "subject", "attribute_holder",
)  # fmt: skip
"""Factors that identify a question within a wording."""
PEOPLE = decisions.CHOICES[:2]
BY_ORDER = {decisions.ORDERS[0]: PEOPLE, decisions.ORDERS[1]: PEOPLE[::-1]}
ORDERED_PEOPLE = [(order, person) for order, people in BY_ORDER.items() for person in people]
"""Each order of names with each of the two people."""
Lists = tuple[Sequence[Attribute], Sequence[Attribute]]
"""Attributes of the woman and of the man."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The audit's own options."""

    n_pairs: int = option(10, "Number of pairs of names, sampled with the seed; 0 for all.")
    n_occupations: int = option(20, "Number of occupations, sampled with the seed; 0 for all.")
    occupation_names: str = option("", "Only these occupations, comma-separated, as in nurse,pilot.")
    name_pair_file: str = option(
        "", "Table of pairs of names of your own: columns female, male, or named by two other groups."
    )
    occupation_file: str = option(
        "", "Table of occupations and their attributes of your own: columns occupation, attribute, category."
    )
    onet: str = option("", "Folder of an O*NET text release: Skills.txt, Knowledge.txt, Abilities.txt.")
    contexts: str = option(
        "with,without,shuffled",
        "Attributes in the question, comma-separated: with (the granted ones), without, shuffled (of another "
        "occupation), same (those of either person for both), swapped (those of the other person).",
    )
    grants: str = option(
        BY_MODEL, "Who grants the attributes: model (by its answers) or random (each with probability 1/2)."
    )
    wordings: int = option(1, "Number of wordings of each question; 0 for all.")
    question_file: str = option("", "TOML file with questions of your own.")
    negated: bool = option(True, "Also ask negated questions.")
    decision: str = option(LIKELIHOOD, "How an answer is chosen: likelihood (of all answers) or greedy (decoding).")
    margin: float = option(0.0, "Smallest lead of the chosen answer over the next, in percentage points.")
    query_type: str = option(
        "", "Kind of query: choice, continuations or extraction; by default the first that the model supports."
    )
    chat: bool = option(False, "Use the chat template of the model.")


@dataclass(frozen=True, slots=True)
class Plan:
    """Design of a run: questions, pairs of names, occupations and contexts."""

    settings: Settings
    questions: templates.Questions
    given: OccupationSet
    pairs: Sequence[NamePair]
    occupations: Sequence[Occupation]
    seed: int

    @classmethod
    def from_settings(cls, settings: Settings, sampling: Sampling) -> Plan:
        """Sample the design."""
        _check(settings)
        questions = templates.load_questions(settings.question_file)
        given = load_occupations(settings.occupation_file, settings.onet)
        if settings.wordings > len(questions.wordings):
            raise UndertowError(f"--wordings {settings.wordings}: {questions.source} has {len(questions.wordings)}")
        rng = np.random.default_rng(sampling.seed)
        pairs = _draw_sample(load_pairs(settings.name_pair_file), settings.n_pairs, "n_pairs", rng)
        occupations = _select_occupations(given, settings.occupation_names)
        if not settings.occupation_names:
            occupations = _draw_sample(occupations, settings.n_occupations, "n_occupations", rng)
        whole = cls(settings, questions, given, pairs, occupations, sampling.seed)
        if not whole.contexts:
            raise UndertowError("--contexts shuffled: needs occupations of two SOC codes or more")
        return whole.fit_limit(sampling.limit) if sampling.limit else whole

    def fit_limit(self, limit: int) -> Plan:
        """Plan with fewer pairs and occupations, in balance, so that its items stay within the limit.

        It keeps at least six of each if the limit allows, else six pairs, the minimum for a claim. Beyond that, it maximises the smaller
        of the shares of pairs and of occupations that are kept.
        """
        sizes = dict(enumerate(self.sizes(), self.min_occupations))
        n_pairs, n_jobs = len(self.pairs), len(self.occupations)
        if n_pairs * sizes[n_jobs] <= limit:
            return self
        fitting = [(n, size) for n, size in sizes.items() if n == self.min_occupations or size <= limit]
        few = MIN_SENTENCES
        kept = max(
            ((max(1, min(n_pairs, limit // size)), n) for n, size in fitting),
            key=lambda n: (min(n) >= few, n[0] >= few, min(n[0] / n_pairs, n[1] / n_jobs), n[0] * n[1]),
        )
        pairs = [self.pairs[at] for at in stratified_sample([pair.name for pair in self.pairs], kept[0], self.seed)]
        return replace(self, pairs=pairs, occupations=self._spread(kept[1]))

    @property
    def min_occupations(self) -> int:
        """Minimum number of occupations: two if the shuffled context takes attributes from another one, else one."""
        return 2 if decisions.SHUFFLED in self.contexts else 1

    def _spread(self, n: int) -> list[Occupation]:
        """`n` of the occupations, from as many SOC codes as possible."""
        codes = [one.soc_code for one in self.occupations]
        return [self.occupations[at] for at in stratified_sample(codes, n, self.seed)]

    def sizes(self) -> list[int]:
        """Maximum number of items per pair of names, for each number of occupations from the minimum to all."""
        n_wordings, n_orders, n_people = len(self.wordings), len(decisions.ORDERS), len(PEOPLE)
        of_people, of_both = (2, 3) if self.settings.negated else (1, 2)
        of_job = n_orders * n_wordings * (n_people * of_people + of_both) * len(self.contexts)
        sizes = []
        for n in range(self.min_occupations, len(self.occupations) + 1):
            n_attributes = len(_attributes(self._spread(n))) if set(self.contexts) != {decisions.WITHOUT} else 0
            stated = 2 * min(n_attributes, STATED_OF_A_PAIR)
            sizes.append(n_orders * n_people * (n_attributes * n_wordings + stated) + of_job * n)
        return sizes

    @property
    def contexts(self) -> list[str]:
        """Contexts of the run; the shuffled one only if there are donors."""
        chosen = {CONTEXT_NAMES[name] for name in split_names(self.settings.contexts, tuple(CONTEXT_NAMES), "contexts")}
        has_donors = len({one.soc_code for one in self.occupations}) > 1
        return [one for one in decisions.CONTEXTS if one in chosen and (one != decisions.SHUFFLED or has_donors)]

    @property
    def wordings(self) -> range:
        """Indices of the wordings of the run."""
        return range(self.settings.wordings or len(self.questions.wordings))

    @property
    def donors(self) -> dict[str, Occupation]:
        """The occupation whose attributes each occupation gets in the shuffled context."""
        return _draw_donors(self.occupations, np.random.default_rng(self.seed))

    def all_items(self) -> Iterator[Item]:
        """Every item that a run may need: those with all attributes granted.

        In the contexts `same` and `swapped`, one person lacks the first and the other the last attribute; otherwise these items would
        equal those of other contexts.
        """
        is_apart = bool({decisions.SAME, decisions.SWAPPED} & set(self.contexts))

        def granted(_: NamePair, occupation: Occupation) -> Lists:
            every = occupation.attributes
            return (every[:-1] or every, every[1:]) if is_apart else (every, every)

        yield from self.first_items()
        yield from self.second_items(granted)

    def first_items(self) -> Iterator[Item]:
        """Items that depend on no answer: attributes, stated attributes, and occupations without attributes."""
        attributes = _attributes(self.occupations)
        rng = np.random.default_rng(self.seed)
        _draw_donors(self.occupations, rng)  # advances the generator as in `donors`
        for pair in self.pairs if set(self.contexts) != {decisions.WITHOUT} else ():
            stated = [attributes[at] for at in rng.permutation(len(attributes))[:STATED_OF_A_PAIR]]
            for attribute in attributes:
                for target in ORDERED_PEOPLE:
                    for wording in self.wordings:
                        yield self._attribute_item(pair, attribute, target, wording)
            # Questions about each person after a text that states who has the attribute.
            for attribute in stated:
                for order, holder in ORDERED_PEOPLE:
                    for subject in (holder, PEOPLE[1 - PEOPLE.index(holder)]):
                        yield self._attribute_item(pair, attribute, (order, subject), 0, holder)
        if decisions.WITHOUT in self.contexts:
            for pair in self.pairs:
                for occupation in self.occupations:
                    yield from self._occupation_items(pair, occupation, decisions.WITHOUT, ((), ()))

    def _attribute_item(
        self, pair: NamePair, attribute: Attribute, target: tuple[str, str], wording: int, holder: str = ""
    ) -> Item:
        """Question whether the subject has an attribute; with a `holder`, the text states who has it."""
        order, subject = target
        people = _people(pair, order, subject)
        phrase = self.questions.phrase(attribute.name, attribute.category)
        question = self.questions.question(templates.ATTRIBUTE, people, wording, phrase=phrase)
        context = self.questions.context(people)
        if holder:
            context = self.questions.state(_people(pair, order, holder), attribute.name, attribute.category)
        factors: dict[str, Factor] = {
            "question_type": "stated" if holder else templates.ATTRIBUTE,
            "context": decisions.STATED if holder else decisions.WITHOUT,
            "order": order,
            "attribute": attribute.name,
            "category": attribute.category,
            "subject": subject,
            "attribute_holder": holder,
            "gold": "" if not holder else templates.YES.lower() if subject == holder else templates.NO.lower(),
        }
        return self._item(pair, people, (templates.ATTRIBUTE, context, question), wording, factors)

    def second_items(self, granted: Callable[[NamePair, Occupation], Lists]) -> Iterator[Item]:
        """Questions about occupations with the granted attributes of each person before them.

        Args:
            granted: maps a pair and an occupation to the attributes granted to the woman and to the man.
        """
        donors = self.donors
        for context in (one for one in self.contexts if one != decisions.WITHOUT):
            for pair in self.pairs:
                for occupation in self.occupations:
                    donor = donors[occupation.name] if context == decisions.SHUFFLED else occupation
                    lists = granted(pair, donor)
                    if context == decisions.SAME:
                        of_either = [one for one in donor.attributes if one in lists[0] or one in lists[1]]
                        lists = of_either, of_either
                    elif context == decisions.SWAPPED:
                        lists = lists[1], lists[0]
                    yield from self._occupation_items(pair, occupation, context, lists, donor.name)

    def _occupation_items(
        self, pair: NamePair, occupation: Occupation, context: str, granted: Lists, donor: str = ""
    ) -> Iterator[Item]:
        words = {"job": occupation.name, "a_job": f"{occupation.article} {occupation.name}"}
        pairs_of = [[(one.name, one.category) for one in some] for some in granted]
        lists = dict(zip(PEOPLE, pairs_of, strict=True))
        common: dict[str, Factor] = {
            "context": context,
            "occupation": occupation.name,
            "soc_code": occupation.soc_code,
            "attribute_donor": donor if context == decisions.SHUFFLED else "",
            **{f"granted_{person}": "; ".join(name for name, _ in some) for person, some in lists.items()},
        }
        of_one = (templates.BINARY, templates.BINARY_NEGATED) if self.settings.negated else (templates.BINARY,)
        of_both = (
            (templates.SINGLE, templates.SINGLE_NEGATED, templates.MULTIPLE)
            if self.settings.negated
            else (templates.SINGLE, templates.MULTIPLE)
        )
        for order, persons in BY_ORDER.items():
            people = _people(pair, order)
            kinds = [(kind, (person,)) for person in persons for kind in of_one] + [(kind, persons) for kind in of_both]
            for wording in self.wordings:
                for kind, about in kinds:
                    subject = about[0] if len(about) == 1 else ""
                    target = _people(pair, order, subject)
                    before = self.questions.context(people, [(getattr(pair, one), lists[one]) for one in about])
                    question = self.questions.question(kind, target, wording, **words)
                    factors = common | {"question_type": kind, "order": order, "subject": subject}
                    yield self._item(pair, target, (kind, before, question), wording, factors)

    def _item(
        self,
        pair: NamePair,
        people: templates.People,
        formats: tuple[str, str, str],
        wording: int,
        factors: Mapping[str, Factor],
    ) -> Item:
        query = self._query(pair, people, *formats)
        text = query.context if isinstance(query, ContinuationQuery) else query.display_text()
        filled: dict[str, Factor] = dict.fromkeys(FACTORS, "")
        filled |= {"challenge": self.given.name, "pair": pair.name, "woman": pair.female, "man": pair.male}
        filled |= {"wording": wording + 1, "text": text, **factors}
        name = "/".join(str(filled[part]).replace("/", "+") for part in QUESTION_KEY if filled[part])
        return Item(f"{name}/{wording + 1}", query, filled, cluster=pair.name)

    def _query(self, pair: NamePair, people: templates.People, kind: str, context: str, question: str) -> Query:
        answers = [pair.female, pair.male] if codes_of(kind)[0] != "yes" else [templates.YES, templates.NO]
        if kind == templates.MULTIPLE:
            answers += [templates.BOTH, templates.NEITHER]
        if self.settings.query_type == EXTRACTION:
            candidates = tuple(answers[:2]) if answers[0] != templates.YES else ()
            if kind == templates.MULTIPLE:
                candidates = (*candidates, f"{people.first} and {people.second}")
            if any(piece not in context for piece in candidates):
                raise UndertowError(f"{self.questions.source}: the context must contain '{{first}} and {{second}}'")
            return SpanQuery(context, question, candidates)
        prompt = self.questions.prompt(context, question, kind, people)
        labels = tuple(f" {answer}" for answer in answers)
        if self.settings.query_type == CONTINUATIONS:
            return ContinuationQuery(prompt, labels)
        return MultipleChoiceQuery(prompt, labels, first_token=answers[0] == templates.YES, chat=self.settings.chat)


def codes_of(question_type: str) -> tuple[str, ...]:
    """Codes of the possible answers in the table."""
    if question_type in (templates.SINGLE, templates.SINGLE_NEGATED):
        return PEOPLE
    return decisions.CHOICES if question_type == templates.MULTIPLE else ("yes", "no")


def answer_row(item: Item, answer: Answer) -> dict[str, Any]:
    """Shares of the possible answers in percent, and the chosen answer.

    For an extractive model, the answer is Yes if the best span is more probable than no answer.
    """
    query, codes = item.query, codes_of(str(item.factors["question_type"]))
    row: dict[str, Any] = dict.fromkeys(("yes", *decisions.CHOICES), math.nan) | {
        "answer": "", "whole": False, "other_words": 100 * answer.other_prob, "missing_reason": answer.missing_reason,
    }  # fmt: skip
    if answer.missing_reason:
        return row
    nats = np.array(answer.logprobs_nats, dtype=np.float64)
    labels: tuple[str, ...] = ()
    if isinstance(query, SpanQuery):
        *pieces, none, best_piece = nats
        if np.isnan(none) and codes != PEOPLE:
            return row | {"missing_reason": "the model gives no probability that the passage has no answer"}
        nats = np.array([best_piece, none] if codes[0] == "yes" else [*pieces, none][: len(codes)])
    elif isinstance(query, (MultipleChoiceQuery, ContinuationQuery)):
        labels = query.labels if isinstance(query, MultipleChoiceQuery) else query.continuations
    text = answer.text.strip().casefold().removesuffix(".")
    answered = {label.strip().casefold(): code for label, code in zip(labels, codes, strict=False)}.get(text, "")
    if len(nats) == len(codes) and not np.isnan(nats).any() and np.isfinite(nats).any():
        shares = np.exp(nats - nats.max())
        percents = 100 * shares / shares.sum()
        second, first = np.sort(percents)[-2:]
        best = decisions.TIED if first - second <= decisions.NO_MARGIN else codes[int(nats.argmax())]
        row |= dict(zip(codes, percents.tolist(), strict=True)) | {"answer": answered or best}
    elif answered:
        # A server without probabilities of the answers: only the chosen answer is known.
        row |= {code: 100.0 * (code == answered) for code in codes} | {"whole": True, "answer": answered}
    else:
        return row | {"missing_reason": f"the answer {answer.text.strip()!r} {decisions.NONE_OF_THEM}"}
    row.pop("no", None)
    return row


def select_granted(
    items: Sequence[Item], scores: Scores, settings: Settings, seed: int
) -> Callable[[NamePair, Occupation], Lists]:
    """Granted attributes, by the mean probability of Yes over both orders; an attribute without an answer is not granted.

    With `--grants random`, each person has each attribute with probability 1/2, whatever the model answers and the design includes.
    """
    shares: dict[tuple[str, ...], list[float]] = {}
    for item, answer in zip(items, scores.answers, strict=True):
        if item.factors["question_type"] == templates.ATTRIBUTE and item.factors["wording"] == 1:
            answered = answer_row(item, answer)
            if settings.decision == GREEDY:
                answered["yes"] = 100.0 * (answered["answer"] == "yes") if answered["answer"] else math.nan
            key = tuple(str(item.factors[name]) for name in ("pair", "subject", "category", "attribute"))
            shares.setdefault(key, []).append(answered["yes"])

    def granted(pair: NamePair, person: str, attribute: Attribute) -> bool:
        if settings.grants == AT_RANDOM:
            return int(digest([seed, pair.name, person, attribute.category, attribute.name])[0], 16) < 8
        values = shares.get((pair.name, person, attribute.category, attribute.name), [math.nan])
        return bool(decisions.decide_yes(np.array(sum(values) / len(values) / 100), settings.margin) == 1)

    def lists(pair: NamePair, occupation: Occupation) -> Lists:
        woman, man = ([one for one in occupation.attributes if granted(pair, person, one)] for person in PEOPLE)
        return woman, man

    return lists


def _people(pair: NamePair, order: str, subject: str = "") -> templates.People:
    first, second = (getattr(pair, person) for person in BY_ORDER[order])
    return templates.People(first, second, getattr(pair, subject) if subject else "")


def limitations(settings: Settings, sampling: Sampling) -> list[str]:
    """Sentences if pairs or occupations are too few for a claim, with the smallest sufficient limit; else []."""
    few, sentences = MIN_SENTENCES, []
    whole, limited_plan = (Plan.from_settings(settings, one) for one in (Sampling(0, sampling.seed), sampling))
    if len(whole.pairs) < few:
        pairs = counted(len(whole.pairs), "pair")
        return [f"{pairs} of names are too few for a claim about others, which needs at least {few}."]
    n_codes = [len({one.soc_code for one in plan.occupations}) for plan in (whole, limited_plan)]
    if "shuffled" in settings.contexts and n_codes[0] < 2:
        sentences.append(
            "All occupations have the same SOC code, so the context shuffled is omitted: it needs attributes of another code."
        )
    if n_codes[0] < few:
        sentences.append(
            f"{counted(n_codes[0], 'SOC code')} of occupations are too few for a claim over all occupations, which needs at least {few}. "
            "Claims about single occupations are possible."
        )
    sizes = whole.sizes()
    if len(limited_plan.pairs) < few:
        sentences.append(too_few(f"{counted(len(limited_plan.pairs), 'pair')} of names", few * sizes[0]))
    elif n_codes[1] < few <= n_codes[0]:
        smallest = few * sizes[few - whole.min_occupations]
        sentences.append(too_few(counted(n_codes[1], "occupation"), smallest, "over all occupations"))
    return sentences


def _check(settings: Settings) -> None:
    for name in ("n_pairs", "n_occupations", "wordings", "margin"):
        number = getattr(settings, name)
        if not 0 <= number < math.inf:
            raise UndertowError(f"--{name.replace('_', '-')} must be at least 0, got {number}")
    for name, known in (
        ("decision", (LIKELIHOOD, GREEDY)),
        ("query_type", ("", *QUERY_TYPES)),
        ("grants", (BY_MODEL, AT_RANDOM)),
    ):
        value = getattr(settings, name)
        if value not in known:
            use = ", ".join(filter(None, known))
            raise UndertowError(f"--{name.replace('_', '-')} {value!r}: is unknown; use {use}")
    if settings.occupation_names and settings.n_occupations != Settings().n_occupations:
        raise UndertowError(
            f"--n-occupations {settings.n_occupations}: --occupation-names is given too; leave one of them out"
        )
    if settings.grants == AT_RANDOM and settings.contexts.replace(" ", "") == "without":
        raise UndertowError("--grants random: --contexts without has no attributes to grant; leave one out")
    if settings.margin >= 100:
        raise UndertowError(f"--margin must be below 100, got {settings.margin:g}")
    if settings.query_type in ("", CHOICE):
        return
    if settings.decision == GREEDY:
        raise UndertowError(f"--decision greedy: --query-type {settings.query_type} decodes nothing; leave one out")
    if settings.chat:
        raise UndertowError(f"--chat: --query-type {settings.query_type} has no prompts; leave one out")


def _select_occupations(given: OccupationSet, only: str) -> list[Occupation]:
    by_name = {one.name.casefold(): one for one in given.occupations}
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip()))
    if only and not names:
        raise UndertowError(f"--occupation-names {only!r}: write names with commas, as in nurse,pilot")
    for name in names:
        if name.casefold() not in by_name:
            raise UndertowError(
                f"--occupation-names {only!r}: {given.name} has no occupation {name!r}"
                f"{closest(name, [one.name for one in given.occupations])}; "
                "`undertow challenge occupations` prints those of the package"
            )
    return [by_name[name.casefold()] for name in names] or list(given.occupations)


def _draw_sample(whole: Sequence[Any], n: int, name: str, rng: np.random.Generator) -> list[Any]:
    """A random sample of `n`, in the original order; all if n is 0, or a default larger than their number."""
    if n > len(whole) and n != getattr(Settings(), name):
        raise UndertowError(f"--{name.replace('_', '-')} {n}: there are {len(whole)}; give that or less, or 0 for all")
    if not 0 < n < len(whole):
        return list(whole)
    return [whole[at] for at in sorted(rng.permutation(len(whole))[:n])]


def _draw_donors(occupations: Sequence[Occupation], rng: np.random.Generator) -> dict[str, Occupation]:
    """Donor of attributes for each occupation, from another SOC code, each code donating once; {} with one code."""
    by_code = {one.soc_code: one for one in reversed(occupations)}
    if len(by_code) < 2:
        return {}
    codes = [list(by_code)[at] for at in rng.permutation(len(by_code))]
    donor_of = dict(zip(codes, [*codes[1:], codes[0]], strict=True))
    return {one.name: by_code[donor_of[one.soc_code]] for one in occupations}


def _attributes(occupations: Sequence[Occupation]) -> list[Attribute]:
    return list(dict.fromkeys(one for occupation in occupations for one in occupation.attributes))
