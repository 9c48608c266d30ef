"""Find a challenge set by name and read its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from undertow._files import is_plain_file, toml_table
from undertow._schemas import Schema, Text, Texts, check, distinct
from undertow.data.challenges.challenge_set import ChallengeSet, Words
from undertow.data.sentences.sentence_set import BOUNDS, check_group_names
from undertow.data.templates.covariates import MIN_VALUES, Covariate, CovariateList, load_covariate
from undertow.data.templates.template import Template
from undertow.data.text_files import RESOURCES, error_place, first_repeat, read_text, read_toml
from undertow.errors import UndertowError, closest
from undertow.types import RESERVED_COLUMNS, Factor

DEFAULT_BLANK = "blank"
MAX_PER_FACTOR = 2**63


def _checked_values(values: list[str]) -> list[str]:
    if (twice := first_repeat(values)) is not None:
        raise ValueError(f"W value {twice!r} is listed more than once; list each value once")
    if (missing := next((value for value in values if value in ("nan", "inf", "-inf")), None)) is not None:
        raise ValueError(f"W value {missing!r} is not a finite number; remove it")
    if len(values) < MIN_VALUES:
        raise ValueError(f"has {len(values)} W values, but a slope needs at least {MIN_VALUES}")
    return values


def _column_value(level: Any) -> Any:
    if not isinstance(level, Factor):
        raise ValueError(f"must be a text or a number, not {level!r}")
    if not isinstance(level, str) and not abs(level) < MAX_PER_FACTOR:  # not a number is not below anything
        raise ValueError("is too large or not finite; write a smaller number, or a text")
    return level


class TemplateEntry(Schema):
    """A template in a challenge file, optionally with its factors."""

    text: Text
    only_w: Texts = Field(default_factory=list)
    not_w: Texts = Field(default_factory=list)
    factors: dict[str, Annotated[Any, AfterValidator(_column_value)]] = Field(default_factory=dict)


class ControlEntry(Schema):
    """A sentence that determines its blank."""

    text: Text
    gold: Text


class ListEntry(Schema):
    """A W list in a challenge file."""

    values: Annotated[list[Annotated[Text, BeforeValidator(str)]], Field(min_length=1), AfterValidator(_checked_values)]
    order: Text = ""
    scale: Text = ""


def _w_by_name(given: Any) -> Any:
    """Names of lists as keys without an entry."""
    names = [given] if isinstance(given, str) else given
    if isinstance(names, Mapping) and names:
        return {name: entry if isinstance(entry, Mapping) else {"values": entry} for name, entry in names.items()}
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("must name W lists, or be a table of lists such as [w] season = [...]")
    return dict.fromkeys(distinct(names))


def _check_word_list(name: str) -> str:
    if name not in word_lists():
        raise ValueError(f"there is no word list {name!r}{closest(name, word_lists())}; use {', '.join(word_lists())}")
    return name


Groups = Annotated[dict[str, Texts], Field(min_length=2)]
Entry = Annotated[TemplateEntry, BeforeValidator(lambda given: {"text": given} if isinstance(given, str) else given)]


class ChallengeFile(Schema):
    """A challenge file."""

    title: Text | None = None
    source: str = ""
    limits: Texts = Field(default_factory=list)
    templates: Annotated[list[Entry], Field(min_length=1)]
    w: Annotated[dict[str, ListEntry | None], BeforeValidator(_w_by_name)] = Field(
        default_factory=lambda: dict.fromkeys(["date"])
    )
    words: Annotated[str, AfterValidator(_check_word_list)] | None = None
    groups: Groups | None = None
    blanks: Annotated[dict[str, Groups], Field(min_length=1)] | None = None
    slots: dict[str, Texts] = Field(default_factory=dict)
    clusters: Texts | None = None
    gaps: Annotated[list[Annotated[list[str], Field(min_length=2, max_length=2)]], Field(min_length=1)] | None = None
    controls: list[ControlEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_kind_of_words(self) -> ChallengeFile:
        ways = [key for key in ("words", "groups", "blanks") if getattr(self, key) is not None]
        if len(ways) != 1:
            raise ValueError(f"needs exactly one of words, groups or blanks, but has {' and '.join(ways) or 'none'}")
        return self

    @model_validator(mode="after")
    def _distinct_templates(self) -> ChallengeFile:
        if (twice := first_repeat(template.text for template in self.templates)) is not None:
            raise ValueError(f"template {twice!r} is listed more than once; write each once")
        return self


def names() -> list[str]:
    """Built-in challenge sets: published sets, then packs."""
    return [*sorted(path.stem for path in (RESOURCES / "sets").glob("*.toml")), *packs()]


def packs() -> dict[str, Path]:
    """The ready challenge files: one per file of `resources/packs`, by name."""
    return {path.stem: path for path in sorted((RESOURCES / "packs").glob("*.toml"))}


def pack_text(name: str) -> str:
    """The text of a ready challenge file.

    Raises:
        UndertowError: there is no such pack.
    """
    if name not in packs():
        raise UndertowError(f"there is no pack {name!r}{closest(name, packs())}; use {', '.join(packs())}")
    return read_text(packs()[name])


def load_text(text: str, where: str) -> ChallengeSet:
    """The challenge set of the text of a challenge file, with its sentences checked.

    Raises:
        UndertowError: the text is invalid, or its sentences cannot be generated.
    """
    chosen = _challenge(Path(where).stem, toml_table(text, where), ("", ""), where)
    chosen.items()
    chosen.control_items()
    return chosen


def load(name: str, words: str = "", scale: str = "", others: Iterable[str] = ()) -> ChallengeSet:
    """A challenge set by name, or from a user's `.toml` file.

    Args:
        name: one of `names()`, or the path of a file.
        words: a word list to use instead of the set's own.
        scale: as in `load_covariate`; "" for each list's own.
        others: further names for the error message.
    """
    if name in names():
        # A file of words may change, so it is read each time.
        return (_remembered if words in ("", *word_lists()) else _built_in)(name, words, scale)
    path = Path(name)
    if is_plain_file(path):
        if path.suffix.lower() != ".toml":
            raise UndertowError(f"{path}: is not a challenge file; use a .toml, .csv or .tsv file")
        return _challenge(path.stem, read_toml(path), (words, scale), where=str(path))
    known = [*names(), *others]
    raise UndertowError(
        f"there is no challenge called {name!r} and no such file: use {', '.join(known)}"
        f", or a .toml, .csv or .tsv file{closest(name, known)}"
    )


def _built_in(name: str, words: str, scale: str) -> ChallengeSet:
    table = read_toml(packs().get(name, RESOURCES / "sets" / f"{name}.toml"))
    return _challenge(name, table, (words, scale), where=f"challenge {name!r}")


_remembered = cache(_built_in)


@cache
def word_lists() -> dict[str, dict[str, list[str]]]:
    """The word lists of the package: forms by group, by list name."""
    return read_toml(RESOURCES / "words.toml")


def word_list(name: str) -> dict[str, list[str]]:
    """A word list of the package, or of a TOML file with one list of words for each group: forms by group.

    Raises:
        UndertowError: there is no such list or file, or the file has no word groups.
    """
    if name in word_lists():
        return word_lists()[name]
    path = Path(name)
    if not is_plain_file(path):
        raise UndertowError(
            f"there is no word list and no file {name!r}{closest(name, word_lists())}; use {', '.join(word_lists())}, or a .toml file"
        )
    groups = read_toml(path)
    for group, forms in groups.items():
        if not isinstance(forms, list) or not forms or not all(isinstance(one, str) and one.strip() for one in forms):
            raise UndertowError(f'{path}: {group} must be a list of words, such as {group} = ["she", "her"]')
    if len(groups) < 2:
        raise UndertowError(f"{path}: needs at least two groups of words")
    return groups


def _challenge(name: str, table: Mapping[str, Any], chosen: tuple[str, str], where: str) -> ChallengeSet:
    words_name, scale = chosen
    if words_name:
        replaced = ("groups", "blanks", "words")
        table = {key: value for key, value in table.items() if key not in replaced} | {"groups": word_list(words_name)}
    with error_place(where):
        _check_places(table)
    given = check(ChallengeFile, table, where)
    covariates = tuple(_covariate(w_name, entry, scale, where) for w_name, entry in given.w.items())
    templates = tuple(
        Template(entry.text, tuple(entry.only_w), tuple(entry.not_w), entry.factors) for entry in given.templates
    )
    slots = {slot: tuple(levels) for slot, levels in given.slots.items()}
    with error_place(where):
        words = _words_of_blanks(given.blanks or {DEFAULT_BLANK: given.groups or word_lists()[given.words or ""]})
        check_group_names(words.groups)
        _check_names(words, slots, templates)
        for template in templates:
            _check_holes(template, words, slots)
        unused = next((slot for slot in slots if not any(slot in template.holes() for template in templates)), None)
        if unused is not None:
            raise UndertowError(f"slot {unused!r} is used by no template; write {{{unused}}} in one or remove it")
        known = ["template", *slots, *dict.fromkeys(factor for template in templates for factor in template.factors)]
        strange = next((factor for factor in given.clusters or () if factor not in known), None)
        if strange is not None:
            raise UndertowError(f"clusters names {strange!r}, which is not a factor; known are {', '.join(known)}")
        return ChallengeSet(
            name=name,
            title=name if given.title is None else given.title,
            source=given.source,
            templates=templates,
            slots=slots,
            words=words,
            covariates=covariates,
            cluster_by=("template", *slots) if given.clusters is None else tuple(given.clusters),
            gaps=_gaps(given.gaps, words.groups),
            controls=_controls(given.controls, words, of_file=not words_name),
            limits=tuple(given.limits),
        )


def _check_places(table: Mapping[str, Any]) -> None:
    """Refuse keys after a `[table]`, which TOML assigns to that table: `clusters` would become a word group."""
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    for outer, part in list(inner.items()):
        inner |= {f"{outer}.{name}": value for name, value in part.items() if isinstance(value, dict)}
    for name, part in inner.items():
        for key in sorted(ChallengeFile.model_fields.keys() & part.keys()):
            if name != "slots" or f"{{{key}}}" not in str(table.get("templates")):
                raise UndertowError(f"{key} is in [{name}]; write it above the first [table]")


def _words_of_blanks(blanks: Mapping[str, Mapping[str, Sequence[str]]]) -> Words:
    """Match forms over the blanks by position: the second form of a group has the second word in every blank."""
    first = next(iter(blanks.values()))
    for blank, groups in blanks.items():
        if {group: len(forms) for group, forms in groups.items()} != {g: len(forms) for g, forms in first.items()}:
            raise UndertowError(f"blank {blank!r} must have the groups of the first, with as many words")
    columns = blanks.values()
    forms = tuple((group, words) for group in first for words in zip(*(one[group] for one in columns), strict=True))
    owners: dict[tuple[str, ...], str] = {}
    for group, words in forms:
        if owners.setdefault(words, group) != group:
            raise UndertowError(f"{' '.join(words)!r} is in the groups {owners[words]!r} and {group!r}; choose one")
    return Words(tuple(blanks), forms)


def _check_names(words: Words, slots: Mapping[str, Any], templates: tuple[Template, ...]) -> None:
    # A factor is a column, so its levels are all texts or all numbers.
    are_texts: dict[str, bool] = {}
    mixed = [
        name
        for template in templates
        for name, level in template.factors.items()
        if are_texts.setdefault(name, isinstance(level, str)) != isinstance(level, str)
    ]
    owners = dict.fromkeys(RESERVED_COLUMNS | {"template", "pronoun"}, "a column of every table")
    parts = {"blank": words.blanks, "slot": slots, "factor": are_texts, "group": words.groups}
    for kind, name in ((kind, name) for kind, names in parts.items() for name in names):
        if name in owners:
            raise UndertowError(f"{kind} {name!r} has the name of {owners[name]}; rename it")
        if kind != "group" and not name.isidentifier():
            raise UndertowError(f"{kind} {name!r} must be a plain name, of letters, digits and _")
        if kind == "group" and name.endswith(BOUNDS):
            raise UndertowError(f"group {name!r} ends like a column of bounds; rename it")
        owners[name] = f"a {kind}"
    if mixed:
        raise UndertowError(f"factor {mixed[0]!r} is both text and number; choose one")


def _check_holes(template: Template, words: Words, slots: Mapping[str, Any]) -> None:
    holes = template.holes()
    if not any(blank in holes for blank in words.blanks):
        wanted = " or ".join(f"{{{blank}}}" for blank in words.blanks)
        raise UndertowError(f"template {template.text!r} has no blank to fill; write {wanted} in it")
    known = ["w", *words.blanks, *slots]
    if (strange := next((hole for hole in holes if hole not in known), None)) is not None:
        raise UndertowError(
            f"template {template.text!r} has the unknown placeholder {{{strange}}}; "
            f"known are {', '.join(known)}{closest(strange, known)}"
        )


def _controls(entries: Sequence[ControlEntry], words: Words, *, of_file: bool) -> tuple[tuple[Template, str], ...]:
    """The control sentences, without those of groups that another word list lacks."""
    controls = []
    for entry in entries:
        template = Template(entry.text)
        _check_holes(template, words, {})
        if "w" in template.holes():
            raise UndertowError(f"control {entry.text!r} has a place for W; remove {{w}} from control sentences")
        if entry.gold in words.groups:
            controls.append((template, entry.gold))
        elif of_file:
            raise UndertowError(
                f"gold {entry.gold!r} of control {entry.text!r} is not one of the groups {', '.join(words.groups)}"
                f"{closest(entry.gold, words.groups)}"
            )
    return tuple(controls)


def _covariate(name: str, entry: ListEntry | None, scale: str, where: str) -> Covariate:
    if entry:
        written = CovariateList(name, tuple(entry.values), f"{where}: w.{name}", entry.order, entry.scale)
        return written.to_covariate(scale)
    with error_place(f"{where}: w"):
        return load_covariate(name, scale=scale)


def _gaps(chosen: Sequence[Sequence[str]] | None, groups: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if chosen is None:
        if {"female", "male"} <= set(groups):
            return (("female", "male"),)
        return tuple((groups[0], other) for other in groups[1:])
    for first, second in chosen:
        if first == second or not {first, second} <= set(groups):
            raise UndertowError(f"gaps must be pairs of {', '.join(groups)}, not {[first, second]!r}")
    return tuple((first, second) for first, second in chosen)
