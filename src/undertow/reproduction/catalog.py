"""The catalog of artefacts, and the numbers that the papers print."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError, closest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Design:
    """An audit with its options; `recorded` names the file with its published outputs, "" if none were published."""

    audit: str
    options: Mapping[str, Any]
    recorded: str = ""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A table or a figure of a paper.

    Attributes:
        id: paper and number, such as `000:figure-3b`.
        title: title of the table or figure.
        make: name of the function in `undertow.reproduction.contents` that makes it; "" if it cannot be made.
        settings: arguments of that function.
        why: the reason why it cannot be made.
        differs: why computed numbers may differ from the published ones.
    """

    id: str
    title: str
    make: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    differs: str = ""

    @property
    def paper(self) -> str:
        """Authors, year, title and venue."""
        title: str = _catalog()["papers"][self.id.partition(":")[0]]["title"]
        return title

    @property
    def label(self) -> str:
        """Its number in the paper, such as `Figure 3b`."""
        kind, _, number = self.id.partition(":")[2].partition("-")
        return f"{kind.capitalize()} {number.upper() if number.startswith('a') else number}"

    @property
    def designs(self) -> list[Design]:
        """Designs of its runs."""
        names = [self.settings.get("design", ""), *str(self.settings.get("designs", "")).split(",")]
        return [design(str(name)) for name in names if name]

    @property
    def needs(self) -> str:
        """Required models and files."""
        if self.why:
            return f"cannot be made: {self.why}"
        recorded = [one.recorded for one in self.designs if one.recorded]
        if not self.designs:
            return "the CAD documents" if self.make == "label_counts" else "nothing"
        if self.designs[0].audit == "bias-rephrasing":
            return "a model, and rephrasings of CAD's texts"
        return "a model" + (f", or the published outputs ({recorded[0]})" if recorded else "")


@cache
def _catalog() -> dict[str, Any]:
    return tomllib.loads(resources.files("undertow.reproduction").joinpath("catalog.toml").read_text(encoding="utf-8"))


def design(name: str) -> Design:
    """A design by name."""
    return Design(**_catalog()["designs"][name])


def artefacts() -> dict[str, Artefact]:
    """Every table and figure of the five papers, by id, in the papers' order."""
    return {name: Artefact(name, **entry) for name, entry in _catalog()["artefacts"].items()}


def paper_name(model: str) -> str:
    """What the papers call a model of the published outputs; its own name if they have none."""
    return str(_catalog()["recorded_models"].get(model, {}).get("name", model))


def recorded_facts(model: str) -> dict[str, str | float]:
    """Parameters, objective and post-training of a model of the published outputs; {} of any other model."""
    return dict(_catalog()["recorded_models"].get(model, {}).get("facts", {}))


def get_artefact(name: str) -> Artefact:
    """An artefact by id; raises `UndertowError` if there is none."""
    known = artefacts()
    if name not in known:
        raise UndertowError(
            f"there is no table or figure {name!r}{closest(name, known)}; undertow reproduce without a name lists all"
        )
    return known[name]


def published(artefact: str) -> pd.DataFrame:
    """The numbers of a published table as text: `row, subrow, column, value, sd`; empty if there are none."""
    import pandas as pd

    with resources.files("undertow.reproduction").joinpath("published.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    return table[table["artefact"] == artefact].drop(columns="artefact").reset_index(drop=True)
