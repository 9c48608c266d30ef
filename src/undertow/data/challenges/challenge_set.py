"""Challenge sets: templates x slots x W values, as items of a factorial design.

A set is a TOML file; the published ones are in `resources/sets` in the same format that users write.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from undertow.data.sentences.sentence_set import Sentence, SentenceSet, check_size
from undertow.data.templates.covariates import Covariate, check_covariates
from undertow.data.templates.template import Template
from undertow.errors import UndertowError
from undertow.types import Factor, Item, canonical_json, query_json, to_utf8


@dataclass(frozen=True, slots=True)
class Words:
    """The words that may fill the blanks, by group.

    Attributes:
        blanks: names of the blanks; nearly always the single `blank`.
        forms: (group, words) pairs, one word for each blank, in the order they are listed.
    """

    blanks: tuple[str, ...]
    forms: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Group names, in the order they are listed."""
        return tuple(dict.fromkeys(group for group, _ in self.forms))


@dataclass(frozen=True, slots=True)
class ChallengeSet:
    """Templates, slots and word groups, before they are crossed with W values.

    Attributes:
        name: file name without its ending.
        title, source: for the report.
        slots: levels of each slot, by its name.
        covariates: the default W lists.
        cluster_by: factors whose levels together define a cluster of the intervals and tests.
        gaps: pairs of groups whose slopes are compared, first minus second.
        controls: sentences that decide their blank, each with the group that it decides for.
        limits: what the set cannot show, for the report.
    """

    name: str
    title: str
    source: str
    templates: tuple[Template, ...]
    slots: Mapping[str, tuple[str, ...]]
    words: Words
    covariates: tuple[Covariate, ...]
    cluster_by: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]
    controls: tuple[tuple[Template, str], ...] = ()
    limits: tuple[str, ...] = ()

    def listed_words(self) -> dict[str, list[str]]:
        """The words of each group; those of several blanks are one entry, with commas if no sentence has two of them."""
        blanks = set(self.words.blanks)
        between = " " if any(len(blanks & set(template.holes())) > 1 for template in self.templates) else ", "
        return {
            group: [between.join(form) for owner, form in self.words.forms if owner == group]
            for group in self.words.groups
        }

    def items(self, covariates: Sequence[Covariate] = ()) -> list[Item]:
        """Every cell of the design, by W list, then W value, then template and slots."""
        for template in self.templates:
            if "w" not in template.holes():
                raise UndertowError(
                    f"challenge {self.name!r}: template {template.text!r} has no place for W; write {{w}} in it, "
                    "or put W in front of every sentence with --inject 'In {w}: '"
                )
        chosen = covariates or self.covariates
        check_covariates(chosen)
        check_size(self.name, self.n_items(chosen))
        return [item for covariate in chosen for item in self._of_covariate(covariate)]

    def n_items(self, covariates: Sequence[Covariate]) -> int:
        """Number of cells of the design with these W lists."""
        return sum(
            len(covariate.values) * self._n_cells(template)
            for covariate in covariates
            for template in self.templates
            if all(map(template.serves, covariate.names))
        )

    def sentences(self) -> SentenceSet:
        """Every template and slot as a sentence that any W can be put into."""
        for template in self.templates:
            if "w" in template.holes():
                raise UndertowError(
                    f"challenge {self.name!r}: template {template.text!r} has its own place for W, so none can be put in "
                    "front of it; leave {w} out of it, or use it without --inject"
                )
            if template.only_w or template.not_w:
                raise UndertowError(
                    f"challenge {self.name!r}: template {template.text!r} chooses its W lists, but any W is put into sentences "
                    "without a place for it; leave only_w and not_w out"
                )
        check_size(self.name, sum(map(self._n_cells, self.templates)))
        return SentenceSet(
            name=self.name,
            title=self.title,
            source=self.source,
            words={group: tuple(forms) for group, forms in self.listed_words().items()},
            sentences=tuple(
                replace(
                    one,
                    factors={name: level for name, level in one.factors.items() if name != "gold"},
                    gold=str(one.factors["gold"]) if one.factors.get("gold") else None,
                )
                for index, template in enumerate(self.templates)
                for slots in self._slot_cells(template)
                for one in [self._sentence(index, template, slots)]
            ),
        )

    def control_items(self) -> list[Item]:
        """The control sentences, each with its group as `gold`."""
        return [
            Item(
                id="/".join([self.name, "control", str(number)]),
                query=template.fill({}, self.words.blanks, self.words.forms),
                factors={"challenge": self.name},
                cluster=str(number),
                gold=gold,
            )
            for number, (template, gold) in enumerate(self.controls)
        ]

    def _sentence(self, index: int, template: Template, slots: dict[str, str], w: str = "") -> Sentence:
        factors: dict[str, Factor] = {"template": template.text, **slots, **template.factors}
        return Sentence(
            id="/".join([f"template {index}", *slots.values()]),
            query=template.fill(slots | {"w": w}, self.words.blanks, self.words.forms),
            factors=factors,
            cluster=" | ".join(str(factors.get(factor, "")) for factor in self.cluster_by),
        )

    def _of_covariate(self, covariate: Covariate) -> Iterator[Item]:
        cells = [
            (index, template, slots)
            for index, template in enumerate(self.templates)
            if all(map(template.serves, covariate.names))
            for slots in self._slot_cells(template)
        ]
        if not cells:
            raise UndertowError(f"challenge {self.name!r}: no template serves the W list {covariate.name!r}")
        for place in covariate.places():
            w_name, w = str(place["w_name"]), str(place["w"])
            for cell in cells:
                one = self._sentence(*cell, w)
                factors = {"challenge": self.name, **place, **one.factors}
                yield Item("/".join([self.name, w_name, w, one.id]), one.query, factors, one.cluster)

    def _n_cells(self, template: Template) -> int:
        holes = set(template.holes())
        return math.prod(len(levels) for slot, levels in self.slots.items() if slot in holes)

    def _slot_cells(self, template: Template) -> Iterator[dict[str, str]]:
        used = [slot for slot in self.slots if slot in template.holes()]
        for levels in itertools.product(*(self.slots[slot] for slot in used)):
            yield dict(zip(used, levels, strict=True))


def challenge_digest(items: Sequence[Item]) -> str:
    """SHA-256 over all items: runs with equal digests have equal items (64 hex digits).

    `w_value` is left out where it repeats `w_index`.
    """
    whole = hashlib.sha256()
    for item in items:
        factors = dict(item.factors)
        if factors.get("w_value") == factors.get("w_index"):
            factors.pop("w_value", None)
        parts = canonical_json(item.id), query_json(item.query), canonical_json(factors), canonical_json(item.cluster)
        whole.update(to_utf8(f"[{','.join(parts)}]"))
    return whole.hexdigest()
