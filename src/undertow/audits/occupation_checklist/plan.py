"""Design of the occupation checklist: options, and the sample of names, occupations and contexts.

Zhang, "Taxonomy-based CheckList for Large Language Model Evaluation", section "Dataset Construction".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from undertow.types import CHOICE, CONTINUATIONS, EXTRACTION, option

QUERY_TYPES = (CHOICE, CONTINUATIONS, EXTRACTION)
"""Query types: a prompt with its possible answers, these as continuations, or a passage."""
LIKELIHOOD, GREEDY = "likelihood", "greedy"
BY_MODEL, AT_RANDOM = "model", "random"
STATED_OF_A_PAIR = 2
"""Number of stated attributes per pair of names."""
CONTEXT_NAMES = {context.partition(" ")[0]: context for context in decisions.CONTEXTS}
PEOPLE = decisions.CHOICES[:2]
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
    max_new_tokens: int = option(0, "Maximum number of tokens of a reply under protocol text; 0 for 256.")


@dataclass(frozen=True, slots=True)
class Plan:
    """Design of a run: questions, pairs of names, occupations and contexts."""

    settings: Settings
    questions: templates.Questions
    occupation_set: OccupationSet
    pairs: Sequence[NamePair]
    occupations: Sequence[Occupation]
    seed: int

    @classmethod
    def from_settings(cls, settings: Settings, sampling: Sampling) -> Plan:
        """Sample the design."""
        _check(settings)
        questions = templates.load_questions(settings.question_file)
        occupation_set = load_occupations(settings.occupation_file, settings.onet)
        if settings.wordings > len(questions.wordings):
            raise UndertowError(f"--wordings {settings.wordings}: {questions.source} has {len(questions.wordings)}")
        rng = np.random.default_rng(sampling.seed)
        pairs = _draw_sample(load_pairs(settings.name_pair_file), settings.n_pairs, "n_pairs", rng)
        occupations = _select_occupations(occupation_set, settings.occupation_names)
        if not settings.occupation_names:
            occupations = _draw_sample(occupations, settings.n_occupations, "n_occupations", rng)
        whole = cls(settings, questions, occupation_set, pairs, occupations, sampling.seed)
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
            n_attributes = len(attributes_of(self._spread(n))) if set(self.contexts) != {decisions.WITHOUT} else 0
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
        return draw_donors(self.occupations, np.random.default_rng(self.seed))


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


def _select_occupations(occupation_set: OccupationSet, only: str) -> list[Occupation]:
    by_name = {one.name.casefold(): one for one in occupation_set.occupations}
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip()))
    if only and not names:
        raise UndertowError(f"--occupation-names {only!r}: write names with commas, as in nurse,pilot")
    for name in names:
        if name.casefold() not in by_name:
            raise UndertowError(
                f"--occupation-names {only!r}: {occupation_set.name} has no occupation {name!r}"
                f"{closest(name, [one.name for one in occupation_set.occupations])}; "
                "`undertow challenge occupations` prints those of the package"
            )
    return [by_name[name.casefold()] for name in names] or list(occupation_set.occupations)


def _draw_sample(whole: Sequence[Any], n: int, name: str, rng: np.random.Generator) -> list[Any]:
    """A random sample of `n`, in the original order; all if n is 0, or a default larger than their number."""
    if n > len(whole) and n != getattr(Settings(), name):
        raise UndertowError(f"--{name.replace('_', '-')} {n}: there are {len(whole)}; give that or less, or 0 for all")
    if not 0 < n < len(whole):
        return list(whole)
    return [whole[at] for at in sorted(rng.permutation(len(whole))[:n])]


def draw_donors(occupations: Sequence[Occupation], rng: np.random.Generator) -> dict[str, Occupation]:
    """Donor of attributes for each occupation, from another SOC code, each code donating once; {} with one code."""
    by_code = {one.soc_code: one for one in reversed(occupations)}
    if len(by_code) < 2:
        return {}
    codes = [list(by_code)[at] for at in rng.permutation(len(by_code))]
    donor_of = dict(zip(codes, [*codes[1:], codes[0]], strict=True))
    return {one.name: by_code[donor_of[one.soc_code]] for one in occupations}


def attributes_of(occupations: Sequence[Occupation]) -> list[Attribute]:
    """The attributes of all occupations, each once."""
    return list(dict.fromkeys(one for occupation in occupations for one in occupation.attributes))
