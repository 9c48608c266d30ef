"""Pronoun schemas: two people and one pronoun, whose referent only the end of the sentence determines.

Each schema has a professional and a participant; the participant is *the man*, *the woman*, *someone* or the schema's
own. A sentence determines its pronoun only if that is the participant's and the participant is a man or a woman.
McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5.1 and appendices A.2 and A.3, after
Rudinger et al. 2018, "Gender Bias in Coreference Resolution".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from undertow._schemas import Text
from undertow.data.sentences.sentence_set import FEMALE, MALE, PRONOUNS, Sentence, SentenceSet, pronoun_blank
from undertow.data.templates.template import starts_sentence
from undertow.data.text_files import RESOURCES, TableRow, read_records, read_rows
from undertow.errors import UndertowError

MAN, WOMAN, SOMEONE, OTHER = "man", "woman", "someone", "other"
UNSPECIFIED = "unspecified"
DECIDED = {MAN: MALE, WOMAN: FEMALE}

_PARTICIPANT = "{participant}"
_JOINTS = re.compile(
    r"because|since|as|although|though|so|if|whether|until|till|after|before|when|while|whenever|once|but|and|unless|"
    r"otherwise|said"
)
"""Words that open a clause which can be used alone: `The doctor said that {blank} ...`."""
_JOINTS_OF_A_NOUN = re.compile(r"because|although|though|so|if|whether|while|when|unless|said|and")
"""Before a possessive the others may be prepositions, as in *after her shift*."""
_LEANING = re.compile(r"\b(it|its|one|ones|there|them)\b", re.IGNORECASE)
"""Words that refer to something in the removed part."""
_SPEECH_VERB = re.compile(r"said|says|explained|warned|added|admitted|thought|knew|realized|confirmed|promised|\{.*")
"""A verb of speech, or its addressee, before a *that* which opens such a clause, unlike *the violin that*."""


def _without_braces(name: str) -> str:
    if set(name) & set("{}"):
        raise ValueError(f"{name!r} has a brace, which marks a placeholder here; write it without")
    return name


class Schema(TableRow):
    """One sentence of a schema set, with placeholders for people and pronoun, as a row of a table of schemas.

    Attributes:
        occupation: the professional, without an article.
        participant: the schema's own participant, a noun phrase with its article.
        coreferent: referent of the pronoun: 0 the professional, 1 the participant.
        case: case of the pronoun, a key of `PRONOUNS`.
        template: with `{occupation}`, `{participant}` (the whole noun phrase) and `{blank}`.
        percent_female: share of women in the occupation; None for that of `own_shares`.
    """

    occupation: Annotated[Text, AfterValidator(_without_braces)]
    participant: Annotated[Text, AfterValidator(_without_braces)]
    coreferent: Literal["0", "1"]
    case: Literal["nominative", "accusative", "possessive", "any"]
    template: str
    percent_female: Annotated[float, Field(ge=0, le=100)] | None = None

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        for hole in ("{occupation}", _PARTICIPANT, "{blank}"):
            if self.template.count(hole) != 1:
                raise ValueError(f"the template needs {hole} once")
        try:
            pronoun_blank(self.template.replace("{occupation}", "x").replace(_PARTICIPANT, "y"), self.case)
        except UndertowError as error:
            raise ValueError(str(error)) from error
        return self


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """Schemas and their source."""

    name: str
    title: str
    source: str
    schemas: tuple[Schema, ...]
    percent_female: dict[str, float]
    notes: tuple[str, ...] = ()


def extend(source: SchemaSource) -> SentenceSet:
    """Every schema with four participants: a man, a woman, someone, and its own."""
    sentences = [
        _extend_schema(source, schema, participant_class)
        for schema in source.schemas
        for participant_class in (MAN, WOMAN, SOMEONE, OTHER)
    ]
    return _set(source, source.name, source.title, sentences)


def simplify(source: SchemaSource) -> SentenceSet:
    """One person only: `The female doctor said that {blank} ...`, the same with *male*, and with neither.

    It uses the schemas whose pronoun is the professional's and whose participant can be removed: the pronoun opens a
    clause, and nothing in that clause names either person or refers to an earlier thing (*it*, *one*).
    """
    sentences = [
        _sentence(source, schema, (sex, sex), f"The {who} said that {clause}", gold)
        for schema in source.schemas
        if schema.coreferent == "0" and (clause := _clause(schema.template, schema.case))
        for who, sex, gold in (
            (f"female {schema.occupation}", FEMALE, FEMALE),
            (f"male {schema.occupation}", MALE, MALE),
            (schema.occupation, UNSPECIFIED, None),
        )
    ]
    name = "simplified" if source.name == "undertow-schemas" else f"simplified-{source.name}"
    return _set(source, name, f"{source.title}, one person only", sentences)


@cache
def own() -> SchemaSource:
    """The built-in schemas."""
    return SchemaSource(
        name="undertow-schemas",
        title="Undertow schemas: the referent of a pronoun, determined by world knowledge",
        source="written for this project; occupations as in Rudinger et al. 2018",
        schemas=tuple(row for _, row in read_records(RESOURCES / "schemas" / "undertow-schemas.tsv", Schema)),
        percent_female=own_shares(),
    )


@cache
def own_shares() -> dict[str, float]:
    """Share of women in each of the 60 occupations, in percent (BLS 2015 and 2016, by Rudinger et al. 2018)."""
    rows = read_rows(RESOURCES / "schemas" / "occupations.tsv")
    return {row["occupation"]: float(row["percent_female"]) for _, row in rows}


def _set(source: SchemaSource, name: str, title: str, sentences: Sequence[Sentence]) -> SentenceSet:
    words: dict[str, dict[str, None]] = {}
    for case in dict.fromkeys(schema.case for schema in source.schemas):
        for group, forms in PRONOUNS[case].items():
            words.setdefault(group, {}).update(dict.fromkeys(forms))
    return SentenceSet(
        name=name,
        title=title,
        source=source.source,
        words={group: tuple(forms) for group, forms in words.items()},
        sentences=tuple(sentences),
        notes=source.notes,
    )


def _sentence(source: SchemaSource, schema: Schema, kind: tuple[str, str], text: str, gold: str | None) -> Sentence:
    participant_class, participant = kind
    share = source.percent_female.get(schema.occupation)
    return Sentence(
        id=f"{schema.occupation}/{participant_class}/{schema.coreferent}",
        query=pronoun_blank(text, schema.case),
        factors={
            "occupation": schema.occupation,
            "participant": participant,
            "participant_class": participant_class,
            "coreferent": int(schema.coreferent),
            "pronoun_case": schema.case,
            **({} if share is None else {"percent_female": share}),
            "well_specified": gold is not None,
        },
        cluster=schema.occupation,
        gold=gold,
    )


def _extend_schema(source: SchemaSource, schema: Schema, participant_class: str) -> Sentence:
    article = "a" if schema.participant.split(" ", 1)[0] in ("a", "an") else "the"
    phrases = {OTHER: schema.participant, SOMEONE: SOMEONE}
    phrase = phrases.get(participant_class, f"{article} {participant_class}")
    text = schema.template.replace("{occupation}", schema.occupation)
    # With a capital where it opens the sentence.
    opens = starts_sentence(text.partition(_PARTICIPANT)[0], first=True)
    text = text.replace(_PARTICIPANT, phrase[:1].upper() + phrase[1:] if opens else phrase)
    gold = DECIDED.get(participant_class) if schema.coreferent == "1" else None
    return _sentence(source, schema, (participant_class, phrase), text, gold)


def _clause(template: str, case: str) -> str:
    """The clause that the blank opens, if it makes sense without the participant; else ""."""
    before, _, after = template.partition("{blank}")
    *_, last_but_one, last = ["", "", *re.findall(r"\{?[a-z]+\}?", before.lower())]
    reports_speech = last == "that" and _SPEECH_VERB.fullmatch(last_but_one)
    joints = _JOINTS_OF_A_NOUN if case == "possessive" else _JOINTS
    if not (reports_speech or joints.fullmatch(last)) or "{" in after.replace("{verb:", "") or _LEANING.search(after):
        return ""
    return f"{{blank}}{after}"
