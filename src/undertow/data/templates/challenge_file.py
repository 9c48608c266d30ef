"""Find a challenge set by name and read its file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from undertow._files import is_plain_file
from undertow.data.sentences.sentence_set import BOUNDS
from undertow.data.templates.challenge_set import ChallengeSet, Words
from undertow.data.templates.covariates import Covariate, CovariateList, check_values, load_covariate
from undertow.data.templates.template import Template
from undertow.data.text_files import closest, read_toml, repeated
from undertow.errors import UndertowError
from undertow.types import Factor

KEYS = {"title", "source", "templates", "w", "words", "slots", "groups", "blanks", "clusters", "gaps"}
W_KEYS = {"values", "order", "scale"}
TEMPLATE_KEYS = {"text", "only_w", "not_w", "factors"}
DEFAULT_BLANK = "blank"
MAX_PER_FACTOR = 2**63
RESERVED_COLUMNS = {
    "item", "model", "challenge", "prompt", "w_name", "w_index", "w_value", "w", "cluster", "text", "template", "pronoun",
    "other_words", "missing_reason", "options", "logprobs_nats", "part", "sentence", "expected", "answer", "upper_bound_prob",
    "truncated_prob",
}  # fmt: skip
"""Columns of every observation table, so no slot, factor or group can be called so."""


def names() -> list[str]:
    """The challenge sets that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _sets().iterdir() if path.name.endswith(".toml"))


def load(name: str, words: str = "", scale: str = "", others: Iterable[str] = ()) -> ChallengeSet:
    """A challenge set by name, or from a user's `.toml` file.

    Args:
        name: one of `names()`, or the path of a file.
        words: a word list of the package to use instead of the set's own.
        scale: of its W lists, as `undertow.data.templates.covariates.load_covariate` takes it; "" for each list's own.
        others: names that the caller knows besides, for the error.

    Raises:
        UndertowError: no such set, a file that does not describe one, or a scale that its W lists cannot have.
    """
    if name in names():
        table = tomllib.loads(_sets().joinpath(f"{name}.toml").read_text(encoding="utf-8"))
        return _challenge(name, table, (words, scale), where=f"challenge {name!r}")
    path = Path(name)
    if is_plain_file(path):
        return _challenge(path.stem, read_toml(path), (words, scale), where=str(path))
    known = [*names(), *others]
    raise UndertowError(
        f"there is no challenge called {name!r} and no such file: use {', '.join(known)}"
        f", or a .toml, .csv or .tsv file{closest(name, known)}"
    )


def _sets() -> Any:
    return resources.files("undertow.data").joinpath("resources", "sets")


@cache
def word_lists() -> dict[str, dict[str, list[str]]]:
    """The word lists of the package: forms by group, by list name."""
    return tomllib.loads(
        resources.files("undertow.data").joinpath("resources", "words.toml").read_text(encoding="utf-8")
    )


def _challenge(name: str, table: Mapping[str, Any], chosen: tuple[str, str], where: str) -> ChallengeSet:
    words_name, scale = chosen
    unknown = sorted(set(table) - KEYS)
    if unknown:
        raise UndertowError(
            f"{where}: unknown key {unknown[0]!r}; a challenge file has {', '.join(sorted(KEYS))}{closest(unknown[0], KEYS)}"
        )
    _check_places(table, where)
    templates = _templates(table, where)
    slots = {slot: _texts(levels, f"{where}: slot {slot!r}") for slot, levels in _table(table, "slots", where).items()}
    words = _words(table, words_name, where)
    _check_names(words, slots, templates, where)
    _check_factors(templates, where)
    for template in templates:
        _check_holes(template, words, slots, where)
    unused = [slot for slot in slots if not any(slot in template.holes() for template in templates)]
    if unused:
        raise UndertowError(
            f"{where}: slot {unused[0]!r} is used by no template; write {{{unused[0]}}} in one or remove it"
        )
    return ChallengeSet(
        name=name,
        title=_text(table.get("title", name), f"{where}: title"),
        source=_text(table.get("source", ""), f"{where}: source", may_be_empty=True),
        templates=templates,
        slots=slots,
        words=words,
        covariates=_covariates(table, scale, where),
        cluster_by=_cluster_by(table, slots, templates, where),
        gaps=_gaps(table, words, where),
    )


def _check_places(table: Mapping[str, Any], where: str) -> None:
    """TOML takes a key below a `[table]` for one of that table, so that `clusters` would become a word group."""
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    inner |= {
        f"{of}.{name}": value for of, part in inner.items() for name, value in part.items() if isinstance(value, dict)
    }
    for name, part in inner.items():
        for key in sorted(KEYS & part.keys()):
            if name != "slots" or f"{{{key}}}" not in str(table.get("templates")):
                raise UndertowError(
                    f"{where}: {key} stands in [{name}], but is a key of the file; write it above the first [table]"
                )


def _templates(table: Mapping[str, Any], where: str) -> tuple[Template, ...]:
    given = table.get("templates")
    if not isinstance(given, list) or not given:
        raise UndertowError(f'{where}: needs templates, for example templates = ["In {{w}}, {{blank}} was a child."]')
    templates = tuple(_template(entry, f"{where}: template {number}") for number, entry in enumerate(given, 1))
    twice = repeated(template.text for template in templates)
    if twice is not None:
        raise UndertowError(f"{where}: template {twice!r} stands there more than once; write each once")
    return templates


def _template(entry: Any, where: str) -> Template:
    if isinstance(entry, str):
        return Template(_text(entry, where))
    if not isinstance(entry, dict):
        raise UndertowError(f"{where}: must be a text, or a table with text, not {entry!r}")
    unknown = sorted(set(entry) - TEMPLATE_KEYS)
    if unknown:
        raise UndertowError(f"{where}: unknown key {unknown[0]!r}; a template has {', '.join(sorted(TEMPLATE_KEYS))}")
    factors = entry.get("factors", {})
    if not isinstance(factors, dict) or any(not isinstance(level, Factor) for level in factors.values()):
        raise UndertowError(f"{where}: factors must be a table of names with a text or number each")
    for name, level in factors.items():
        if not isinstance(level, str) and not abs(level) < MAX_PER_FACTOR:  # not a number is not below anything
            raise UndertowError(
                f"{where}: factor {name!r} is no number that a column can hold; write a smaller one, or a text"
            )
    return Template(
        text=_text(entry.get("text"), f"{where}: text"),
        only_w=_texts(entry["only_w"], f"{where}: only_w") if "only_w" in entry else (),
        not_w=_texts(entry["not_w"], f"{where}: not_w") if "not_w" in entry else (),
        factors=factors,
    )


def _words(table: Mapping[str, Any], words_name: str, where: str) -> Words:
    ways = [key for key in ("words", "groups", "blanks") if key in table]
    if words_name:
        ways, table = ["words"], {"words": words_name}
    if len(ways) != 1:
        raise UndertowError(
            f"{where}: needs exactly one of words, groups or blanks, but has {' and '.join(ways) or 'none'}"
        )
    if ways == ["words"]:
        return _words_by_name(table["words"], where)
    if ways == ["groups"]:
        return _words_of_blanks({DEFAULT_BLANK: _table(table, "groups", where)}, where)
    return _words_of_blanks(_table(table, "blanks", where), where)


def _words_by_name(name: Any, where: str) -> Words:
    if not isinstance(name, str) or name not in word_lists():
        known = ", ".join(word_lists())
        raise UndertowError(
            f"{where}: there is no word list called {name!r}; use {known}{closest(str(name), word_lists())}"
        )
    return _words_of_blanks({DEFAULT_BLANK: word_lists()[name]}, where)


def _words_of_blanks(blanks: Mapping[str, Any], where: str) -> Words:
    """Forms are matched over the blanks by position: the second form of a group fills every blank with its second word."""
    if not blanks:
        raise UndertowError(f"{where}: blanks is empty; name at least one blank")
    columns: dict[str, dict[str, tuple[str, ...]]] = {}
    for blank, groups in blanks.items():
        if not isinstance(groups, dict) or len(groups) < 2:
            raise UndertowError(f"{where}: blank {blank!r} needs at least two groups of words to choose between")
        columns[blank] = {group: _texts(forms, f"{where}: group {group!r}") for group, forms in groups.items()}
    first = next(iter(columns.values()))
    for blank, groups in columns.items():
        shape, expected = ({g: len(forms) for g, forms in table.items()} for table in (groups, first))
        if shape != expected:
            raise UndertowError(
                f"{where}: blank {blank!r} must have the same groups, with as many words each, as the first"
            )
    forms = tuple(
        (group, tuple(columns[blank][group][number] for blank in columns))
        for group in first
        for number in range(len(first[group]))
    )
    owners: dict[tuple[str, ...], str] = {}
    for group, words in forms:
        if owners.setdefault(words, group) != group:
            raise UndertowError(
                f"{where}: {' '.join(words)!r} stands in group {owners[words]!r} and in group {group!r}; choose one"
            )
    return Words(tuple(columns), forms)


def _check_names(words: Words, slots: Mapping[str, Any], templates: tuple[Template, ...], where: str) -> None:
    factors = [factor for template in templates for factor in template.factors]
    owners = dict.fromkeys(RESERVED_COLUMNS, "a column of every table")
    for kind, given in (
        ("blank", words.blanks),
        ("slot", slots),
        ("factor", dict.fromkeys(factors)),
        ("group", words.groups),
    ):
        for name in given:
            if name in owners:
                raise UndertowError(f"{where}: {kind} {name!r} has the name of {owners[name]}; call it something else")
            if kind != "group" and not name.isidentifier():
                raise UndertowError(f"{where}: {kind} {name!r} must be a plain name, of letters, digits and _")
            if kind == "group" and name.endswith(BOUNDS):
                raise UndertowError(
                    f"{where}: group {name!r} is called like the bounds of another's mass; call it something else"
                )
            owners[name] = f"a {kind}"


def _check_factors(templates: tuple[Template, ...], where: str) -> None:
    """A factor is a column, so its levels are all texts or all numbers."""
    kinds: dict[str, bool] = {}
    for template in templates:
        for name, level in template.factors.items():
            if kinds.setdefault(name, isinstance(level, str)) != isinstance(level, str):
                raise UndertowError(
                    f"{where}: factor {name!r} is a text in one template and a number in another; choose one"
                )


def _check_holes(template: Template, words: Words, slots: Mapping[str, Any], where: str) -> None:
    try:
        holes = template.holes()
    except UndertowError as error:
        raise UndertowError(f"{where}: {error}") from error
    if not any(blank in holes for blank in words.blanks):
        wanted = " or ".join(f"{{{blank}}}" for blank in words.blanks)
        raise UndertowError(
            f"{where}: template {template.text!r} has no blank for the model to fill; write {wanted} in it"
        )
    for hole in holes:
        if hole != "w" and hole not in words.blanks and hole not in slots:
            known = ["w", *words.blanks, *slots]
            raise UndertowError(
                f"{where}: template {template.text!r} has a hole {{{hole}}} that nothing fills; "
                f"known are {', '.join(known)}{closest(hole, known)}"
            )


def _covariates(table: Mapping[str, Any], scale: str, where: str) -> tuple[Covariate, ...]:
    given = table.get("w", ["date"])
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list):
        return tuple(_named(name, scale, where) for name in _texts(given, f"{where}: w"))
    if not isinstance(given, dict) or not given:
        raise UndertowError(f"{where}: w must name W lists, or be a table of lists such as [w] season = [...]")
    return tuple(_listed(name, entry, f"{where}: w.{name}").to_covariate(scale) for name, entry in given.items())


def _listed(name: str, entry: Any, where: str) -> CovariateList:
    """A W list of a file: its values alone, or a table of values, order and scale."""
    table = entry if isinstance(entry, dict) else {"values": entry}
    unknown = sorted(set(table) - W_KEYS)
    if unknown:
        raise UndertowError(
            f"{where}: unknown key {unknown[0]!r}; a W list has values, order and scale{closest(unknown[0], W_KEYS)}"
        )
    values = _texts([str(value) for value in _list(table.get("values"), f"{where}: values")], where)
    check_values(values, where)
    said = {key: _text(table[key], f"{where}: {key}") for key in ("order", "scale") if key in table}
    return CovariateList(name, values, where, **said)


def _named(name: str, scale: str, where: str) -> Covariate:
    try:
        return load_covariate(name, scale=scale)
    except UndertowError as error:
        raise UndertowError(f"{where}: w: {error}") from error


def _cluster_by(
    table: Mapping[str, Any], slots: Mapping[str, Any], templates: tuple[Template, ...], where: str
) -> tuple[str, ...]:
    known = [
        "template",
        *slots,
        *dict.fromkeys(factor for template in templates for factor in template.factors),
    ]
    if "clusters" not in table:
        return ("template", *slots)
    chosen = _texts(table["clusters"], f"{where}: clusters")
    for factor in chosen:
        if factor not in known:
            raise UndertowError(f"{where}: clusters names {factor!r}, which is no factor; known are {', '.join(known)}")
    return chosen


def _gaps(table: Mapping[str, Any], words: Words, where: str) -> tuple[tuple[str, str], ...]:
    groups = words.groups
    if "gaps" not in table:
        if {"female", "male"} <= set(groups):
            return (("female", "male"),)
        return tuple((groups[0], other) for other in groups[1:])
    pairs = []
    for pair in _list(table["gaps"], f"{where}: gaps"):
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(groups):
            raise UndertowError(
                f"{where}: gaps must be pairs of different groups out of {', '.join(groups)}, not {pair!r}"
            )
        pairs.append((str(pair[0]), str(pair[1])))
    return tuple(pairs)


def _table(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UndertowError(f"{where}: {key} must be a table, written [{key}]")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UndertowError(f"{where}: must be a list with at least one entry")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    texts = tuple(_text(entry, where) for entry in _list(value, where))
    twice = repeated(texts)
    if twice is not None:
        raise UndertowError(f"{where}: {twice!r} stands there more than once")
    return texts


def _text(value: Any, where: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or (not value.strip() and not may_be_empty):
        raise UndertowError(f"{where}: must be a text that is not empty, not {value!r}")
    return value
