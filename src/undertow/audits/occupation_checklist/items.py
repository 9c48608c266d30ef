"""Items of the occupation checklist: names crossed with attributes, then with occupations and the granted attributes.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", section "Dataset Construction".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from undertow.audits.occupation_checklist.answer_rows import codes_of
from undertow.audits.occupation_checklist.plan import PEOPLE, STATED_OF_A_PAIR, Lists, Plan, attributes_of, draw_donors
from undertow.data.occupations import question_templates as templates
from undertow.data.occupations.occupation_set import Attribute, NamePair, Occupation
from undertow.errors import UndertowError
from undertow.metrics.checklist import decisions
from undertow.types import (
    CONTINUATIONS,
    EXTRACTION,
    ContinuationQuery,
    Factor,
    Item,
    MultipleChoiceQuery,
    Query,
    SpanQuery,
)

FACTORS = (
    "challenge", "question_type", "pair", "woman", "man", "occupation", "soc_code", "context", "attribute_donor", "attribute",
    "category", "granted_female", "granted_male", "order", "subject", "attribute_holder", "gold", "wording", "text",
)  # fmt: skip
"""Factors of every item."""
QUESTION_KEY = (
    "question_type", "pair", "occupation", "attribute", "category", "context", "order", "subject", "attribute_holder",
)  # fmt: skip
"""Factors that identify a question within a wording."""
BY_ORDER = {decisions.ORDERS[0]: PEOPLE, decisions.ORDERS[1]: PEOPLE[::-1]}
ORDERED_PEOPLE = [(order, person) for order, people in BY_ORDER.items() for person in people]
"""Each order of names with each of the two people."""


def all_items(plan: Plan) -> Iterator[Item]:
    """Every item that a run may need: those with all attributes granted.

    In the contexts `same` and `swapped`, one person lacks the first and the other the last attribute; otherwise these items would
    equal those of other contexts.
    """
    is_apart = bool({decisions.SAME, decisions.SWAPPED} & set(plan.contexts))

    def granted(_: NamePair, occupation: Occupation) -> Lists:
        every = occupation.attributes
        return (every[:-1] or every, every[1:]) if is_apart else (every, every)

    yield from first_items(plan)
    yield from second_items(plan, granted)


def first_items(plan: Plan) -> Iterator[Item]:
    """Items that depend on no answer: attributes, stated attributes, and occupations without attributes."""
    attributes = attributes_of(plan.occupations)
    rng = np.random.default_rng(plan.seed)
    draw_donors(plan.occupations, rng)  # advances the generator as in `donors`
    for pair in plan.pairs if set(plan.contexts) != {decisions.WITHOUT} else ():
        stated = [attributes[at] for at in rng.permutation(len(attributes))[:STATED_OF_A_PAIR]]
        for attribute in attributes:
            for target in ORDERED_PEOPLE:
                for wording in plan.wordings:
                    yield _attribute_item(plan, pair, attribute, (*target, wording))
        # Questions about each person after a text that states who has the attribute.
        for attribute in stated:
            for order, holder in ORDERED_PEOPLE:
                for subject in (holder, PEOPLE[1 - PEOPLE.index(holder)]):
                    yield _attribute_item(plan, pair, attribute, (order, subject, 0), holder)
    if decisions.WITHOUT in plan.contexts:
        for pair in plan.pairs:
            for occupation in plan.occupations:
                yield from _occupation_items(plan, pair, occupation, ((), ()), {"context": decisions.WITHOUT})


def _attribute_item(
    plan: Plan, pair: NamePair, attribute: Attribute, target: tuple[str, str, int], holder: str = ""
) -> Item:
    """Question whether the subject has an attribute; with a `holder`, the text states who has it."""
    order, subject, wording = target
    people = _people(pair, order, subject)
    phrase = plan.questions.phrase(attribute.name, attribute.category)
    question = plan.questions.question(templates.ATTRIBUTE, people, wording, phrase=phrase)
    context = plan.questions.context(people)
    if holder:
        context = plan.questions.state(_people(pair, order, holder), attribute.name, attribute.category)
    factors: dict[str, Factor] = {
        "question_type": "stated" if holder else templates.ATTRIBUTE,
        "context": decisions.STATED if holder else decisions.WITHOUT,
        "wording": wording + 1,
        "order": order,
        "attribute": attribute.name,
        "category": attribute.category,
        "subject": subject,
        "attribute_holder": holder,
        "gold": "" if not holder else templates.YES.lower() if subject == holder else templates.NO.lower(),
    }
    return _item(plan, pair, people, (templates.ATTRIBUTE, context, question), factors)


def second_items(plan: Plan, granted: Callable[[NamePair, Occupation], Lists]) -> Iterator[Item]:
    """Questions about occupations after the attributes that `granted` gives the woman and the man of a pair."""
    donors = plan.donors
    for context in (one for one in plan.contexts if one != decisions.WITHOUT):
        for pair in plan.pairs:
            for occupation in plan.occupations:
                donor = donors[occupation.name] if context == decisions.SHUFFLED else occupation
                lists = granted(pair, donor)
                if context == decisions.SAME:
                    of_either = [one for one in donor.attributes if one in lists[0] or one in lists[1]]
                    lists = of_either, of_either
                elif context == decisions.SWAPPED:
                    lists = lists[1], lists[0]
                about = {"context": context, "attribute_donor": donor.name if donor is not occupation else ""}
                yield from _occupation_items(plan, pair, occupation, lists, about)


def _occupation_items(
    plan: Plan, pair: NamePair, occupation: Occupation, granted: Lists, context: Mapping[str, Factor]
) -> Iterator[Item]:
    words = {"job": occupation.name, "a_job": f"{occupation.article} {occupation.name}"}
    pairs_of = [[(one.name, one.category) for one in some] for some in granted]
    lists = dict(zip(PEOPLE, pairs_of, strict=True))
    common: dict[str, Factor] = {
        "occupation": occupation.name,
        "soc_code": occupation.soc_code,
        **context,
        **{f"granted_{person}": "; ".join(name for name, _ in some) for person, some in lists.items()},
    }
    of_one = (templates.BINARY, templates.BINARY_NEGATED) if plan.settings.negated else (templates.BINARY,)
    of_both = (templates.SINGLE, *((templates.SINGLE_NEGATED,) if plan.settings.negated else ()), templates.MULTIPLE)
    for order, persons in BY_ORDER.items():
        people = _people(pair, order)
        kinds = [(kind, (person,)) for person in persons for kind in of_one] + [(kind, persons) for kind in of_both]
        for wording in plan.wordings:
            for kind, about in kinds:
                subject = about[0] if len(about) == 1 else ""
                target = _people(pair, order, subject)
                before = plan.questions.context(people, [(getattr(pair, one), lists[one]) for one in about])
                question = plan.questions.question(kind, target, wording, **words)
                own = {"question_type": kind, "wording": wording + 1, "order": order, "subject": subject}
                yield _item(plan, pair, target, (kind, before, question), {**common, **own})


def _item(
    plan: Plan, pair: NamePair, people: templates.People, question: tuple[str, str, str], factors: Mapping[str, Factor]
) -> Item:
    """An item: a question as its type, context and text."""
    query = _query(plan, pair, people, question)
    text = query.context if isinstance(query, ContinuationQuery) else query.display_text()
    filled: dict[str, Factor] = dict.fromkeys(FACTORS, "")
    filled |= {"challenge": plan.occupation_set.name, "pair": pair.name, "woman": pair.female, "man": pair.male}
    filled |= {"text": text, **factors}
    name = "/".join(str(filled[part]).replace("/", "+") for part in QUESTION_KEY if filled[part])
    return Item(f"{name}/{filled['wording']}", query, filled, cluster=pair.name)


def _query(plan: Plan, pair: NamePair, people: templates.People, parts: tuple[str, str, str]) -> Query:
    kind, context, question = parts
    answers = [pair.female, pair.male] if codes_of(kind)[0] != "yes" else [templates.YES, templates.NO]
    if kind == templates.MULTIPLE:
        answers += [templates.BOTH, templates.NEITHER]
    if plan.settings.query_type == EXTRACTION:
        candidates = tuple(answers[:2]) if answers[0] != templates.YES else ()
        if kind == templates.MULTIPLE:
            candidates = (*candidates, f"{people.first} and {people.second}")
        if any(piece not in context for piece in candidates):
            raise UndertowError(f"{plan.questions.source}: the context must contain '{{first}} and {{second}}'")
        return SpanQuery(context, question, candidates)
    prompt = plan.questions.prompt(context, question, kind, people)
    labels = tuple(f" {answer}" for answer in answers)
    if plan.settings.query_type == CONTINUATIONS:
        return ContinuationQuery(prompt, labels)
    return MultipleChoiceQuery(prompt, labels, first_token=answers[0] == templates.YES, chat=plan.settings.chat)


def _people(pair: NamePair, order: str, subject: str = "") -> templates.People:
    first, second = (getattr(pair, person) for person in BY_ORDER[order])
    return templates.People(first, second, getattr(pair, subject) if subject else "")
