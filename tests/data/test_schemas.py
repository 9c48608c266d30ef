from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product, takewhile
from pathlib import Path

import undertow
from helpers.file_refusal import rows_of

SCHEMAS = Path(undertow.__file__).parent / "data" / "resources" / "schemas"
PARTICIPANTS = ("the man", "the woman", "someone")
PRONOUNS = {
    "nominative": ("she", "he", "they"),
    "accusative": ("her", "him", "them"),
    "possessive": ("her", "his", "their"),
}
THEIR_HOLES = {"$NOM_PRONOUN": "nominative", "$ACC_PRONOUN": "accusative", "$POSS_PRONOUN": "possessive"}
RUN_WORDS = 6  # so many words in a row would be a copy

VERB = re.compile(r"\{verb:(\w+)\|(\w+)\}")
HOLE = re.compile(r"\{[^{}]*\}")
GENDERED = (
    "she he her him his hers herself himself they them their theirs themselves man woman men women male female boy "
    "girl guy lady gentleman mother father husband wife bride groom son daughter sister brother aunt uncle sir mr mrs "
    "ms king queen actress waiter waitress hostess landlord landlady policeman fireman chairman foreman salesman"
)

Row = dict[str, str]


@cache
def schemas() -> list[Row]:
    return rows_of(SCHEMAS / "undertow-schemas.tsv")


def words(sentence: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", sentence.lower().replace("'", "").replace("’", ""))


def sentences(row: Row) -> Iterator[str]:
    """Every wording of a schema: participant, pronoun, and either form of a marked verb."""
    people = (*PARTICIPANTS, row["participant"])
    for participant, pronoun, form in product(people, PRONOUNS[row["case"]], (r"\1", r"\2")):
        text = VERB.sub(form, row["template"]).replace("{occupation}", row["occupation"])
        yield text.replace("{participant}", participant).replace("{blank}", pronoun)


def runs(sentence: str) -> set[tuple[str, ...]]:
    found = words(sentence)
    return {tuple(found[at : at + RUN_WORDS]) for at in range(len(found) - RUN_WORDS + 1)}


def test_every_occupation_has_one_whole_sentence_for_each_referent() -> None:
    names = [row["occupation"] for row in rows_of(SCHEMAS / "occupations.tsv")]
    assert len(names) == len(set(names)) == 60
    assert Counter((row["occupation"], row["coreferent"]) for row in schemas()) == Counter(product(names, ("0", "1")))
    assert len({row["template"] for row in schemas()}) == len(schemas()) == 120
    assert len({(row["occupation"], row["participant"]) for row in schemas()}) == 60
    for row in schemas():
        assert re.fullmatch(r"the [a-z]+", row["participant"])
        assert row["participant"] != f"the {row['occupation']}"
        lengths = {len(words(sentence)) for sentence in sentences(row)}
        assert 10 <= min(lengths) <= max(lengths) <= 25, row["template"]


def test_a_template_has_each_hole_once_and_verbs_that_agree() -> None:
    for row in schemas():
        template = row["template"]
        holes = Counter(hole for hole in HOLE.findall(template) if not VERB.fullmatch(hole))
        assert holes == {"{occupation}": 1, "{participant}": 1, "{blank}": 1}, template
        assert not set("{}|$_[]") & set(HOLE.sub("", template)), template
        assert not re.search(r"\{blank\} (was|were|is|are|has|have|does|do)\b", template), template
        if VERB.search(template):
            assert row["case"] == "nominative"
            assert re.search(r"\{blank\} \{verb:(\w+)\|(?!\1\})\w+\}", template), template
            assert len(VERB.findall(template)) == 1
    assert any(VERB.search(row["template"]) for row in schemas())


def test_nothing_but_the_participant_and_the_blank_is_gendered() -> None:
    for row in schemas():
        said = set(words(f"{HOLE.sub(' ', row['template'])} {row['participant']}"))
        assert not set(words(GENDERED)) & said, row["template"]


def test_cases_and_word_order_are_balanced_over_referents() -> None:
    for coreferent in ("0", "1"):
        some = [row for row in schemas() if row["coreferent"] == coreferent]
        assert Counter(row["case"] for row in some) == {"nominative": 36, "accusative": 12, "possessive": 12}
        templates = [row["template"] for row in some]
        assert sum(one.index("{occupation}") < one.index("{participant}") for one in templates) == 30


def test_only_the_end_decides() -> None:
    """The two sentences of an occupation share a beginning that names both people."""
    starts: dict[str, list[str]] = {}
    for row in schemas():
        starts.setdefault(row["occupation"], []).append(row["template"])
    for pair in starts.values():
        alike = takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False))
        assert {"{occupation}", "{participant}"} <= set(HOLE.findall("".join(one for one, _ in alike))), pair


def their_sentences(row: Row) -> Iterator[str]:
    """Every wording of a published sentence; *someone* takes the place of the article too."""
    text = row["sentence"].replace("$OCCUPATION", row["occupation"])
    (hole,) = (hole for hole in THEIR_HOLES if hole in text)
    for participant, pronoun in product((*PARTICIPANTS, f"the {row['participant']}"), PRONOUNS[THEIR_HOLES[hole]]):
        yield re.sub(r"\b(?:the|an?) \$PARTICIPANT", participant, text, flags=re.IGNORECASE).replace(hole, pronoun)


def test_no_run_of_words_and_no_participant_is_that_of_a_published_sentence(reference_data: Path) -> None:
    columns, path = ("occupation", "participant", "coreferent", "sentence"), reference_data / "winogender/templates.tsv"
    published = [dict(zip(columns, row.values(), strict=True)) for row in rows_of(path)]
    theirs = {run for row in published for sentence in their_sentences(row) for run in runs(sentence)}
    assert ("the", "technician", "told", "the", "customer", "that") in theirs
    assert ("the", "technician", "told", "someone", "that", "he") in theirs
    participants = {row["occupation"]: row["participant"] for row in published}
    for row in schemas():
        assert not [run for sentence in sentences(row) for run in runs(sentence) & theirs], row["template"]
        assert row["participant"] != f"the {participants[row['occupation']]}"
