from __future__ import annotations

from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data
from undertow.data.sentences.schemas import Schema, SchemaSource, own, own_shares, simplify

FORMS = {"female": ("she", "her"), "male": ("he", "him", "his"), "neutral": ("they", "them", "their")}


def source(*schemas: tuple[str, str, str, str, str]) -> SchemaSource:
    names = HEADER.split("\t")
    made = [Schema.model_construct(None, **dict(zip(names, cells, strict=True))) for cells in schemas]
    shares = {"potter": 30.5, "roofer": 2.0}
    return SchemaSource("rooftops", "Rooftops", "this test", tuple(made), shares, ("written here",))


def clause(template: str) -> str:
    """What the potter alone says by the rule; "" where the schema is not taken."""
    found = simplify(source(("potter", "the buyer", "0", "nominative", template))).sentences
    chosen = [one for one in found if one.factors["participant"] == "unspecified"]
    return chosen[0].query.display_text().removeprefix("The potter said that ") if chosen else ""


@pytest.mark.parametrize(
    "template",
    [
        "The {occupation} hid from {participant} because {blank} owed money.",
        "{participant} waved to the {occupation}, but {blank} slept.",
        "The {occupation} sang to {participant} while {blank} {verb:was|were} at work.",
        "The {occupation} told {participant} that {blank} had two kilns.",
        "The {occupation} assured {participant} and added that {blank} had won.",
        "The {occupation} met {participant} because {blank} had itemized a theme.",
        "{participant} asked the {occupation} whether {blank} glazed. He nodded.",
    ],
)
def test_a_clause_that_can_be_said_alone_is_taken(template: str) -> None:
    whole = template.replace("{blank}", "___").replace("{verb:was|were}", "___")
    assert clause(template) == whole[whole.index("___") :]


@pytest.mark.parametrize(
    ("word", "template"),
    [
        ("that", "The {occupation} gave {participant} the vase that {blank} had made."),
        ("which", "The {occupation} sold {participant} a vase, which {blank} had made."),
        ("so that", "The {occupation} helped {participant} so that {blank} could leave."),
        ("an object", "The {occupation} left {participant} because the rain made {blank} sad."),
        ("for", "The {occupation} praised {participant} for {blank} new mugs."),
        ("it", "The {occupation} hid a vase from {participant} because {blank} loved it."),
        ("its", "{participant} watched the {occupation} as {blank} broke its handle."),
        ("one", "The {occupation} denied {participant} a vase because {blank} had only one."),
        ("ones", "{participant} sold the {occupation} mugs when {blank} had no other ones."),
        ("there", "The {occupation} met {participant} in Rome because {blank} lived there."),
        ("them", "The {occupation} bought mugs from {participant} but {blank} broke them."),
        ("before both", "{blank} was glad when the {occupation} met {participant}."),
        ("names the participant", "The {occupation} paused because {blank} had seen {participant}."),
        ("names the occupation", "{participant} slept while {blank} {verb:was|were} the {occupation}."),
    ],
)
def test_a_clause_that_leans_on_what_is_dropped_is_not_taken(word: str, template: str) -> None:
    assert clause(template) == "", word


def test_only_schemas_of_the_occupation_with_a_clause_are_taken_in_their_order() -> None:
    van = "The {occupation} phoned {participant} because {blank} van was slow."
    chosen = simplify(
        source(
            ("roofer", "the buyer", "0", "possessive", van),
            ("potter", "the buyer", "0", "nominative", "The {occupation} woke {participant} when {blank} fell."),
            ("roofer", "the buyer", "1", "possessive", van),
            ("roofer", "the guest", "0", "possessive", "The {occupation} left {participant} after {blank} shift."),
        )
    )
    assert (chosen.name, chosen.title) == ("simplified-rooftops", "Rooftops, one person only")
    assert (chosen.source, chosen.notes) == ("this test", ("written here",))
    assert chosen.words == {"female": ("her", "she"), "male": ("his", "he"), "neutral": ("their", "they")}
    assert [sentence.cluster for sentence in chosen.sentences] == ["roofer"] * 3 + ["potter"] * 3
    assert chosen.sentences[0].query.texts()[1] == "The female roofer said that his van was slow."


def test_the_package_s_own_name_one_person_and_nobody_else() -> None:
    participants = {schema.occupation: schema.participant for schema in own().schemas}
    for sentence in data.load_sentences("simplified").sentences:
        sex = sentence.factors["participant_class"]
        who = sentence.cluster if sex == "unspecified" else f"{sex} {sentence.cluster}"
        opening, text = f"The {who} said that ___", sentence.query.display_text()
        assert text.startswith(opening)
        rest = text.removeprefix(opening)
        assert not set("{}$") & set(rest)
        assert participants[sentence.cluster].removeprefix("the ") not in rest.split()
        assert sentence.cluster not in rest
        assert sentence.gold == (None if sex == "unspecified" else sex)
        assert sentence.factors["well_specified"] is (sex != "unspecified")
        assert sentence.factors["percent_female"] == own_shares()[sentence.cluster]


def test_the_published_table_has_three_sentences_of_48_occupations(reference_data: Path) -> None:
    chosen = data.load_sentences(str(reference_data / "simplified" / "simplified_sentences.tsv"))
    assert (chosen.name, chosen.source, chosen.words) == ("simplified", "simplified_sentences.tsv", FORMS)
    occupations = {sentence.factors["occupation"] for sentence in chosen.sentences}
    assert len({sentence.id for sentence in chosen.sentences}) == len(chosen.sentences) == 144
    assert len(occupations) == 48
    assert occupations <= set(own_shares())
    # The table tells no case, so every form may fill a blank.
    expected = [(group, (form,)) for group, forms in FORMS.items() for form in forms]
    for sentence in chosen.sentences:
        occupation, sex, coreferent = sentence.id.split("_")
        decided = {"coreferent": 0, "well_specified": sex != "unspecified", "percent_female": own_shares()[occupation]}
        assert sentence.factors == {"occupation": occupation, "participant": sex, "participant_class": sex, **decided}
        assert (sentence.cluster, coreferent) == (occupation, "0")
        assert sentence.gold == (None if sex == "unspecified" else sex)
        assert not any("MASK" in piece for piece in sentence.query.pieces)
        assert [(option.group, option.fills) for option in sentence.query.options] == expected


HEADER = "occupation\tparticipant\tcoreferent\tcase\ttemplate"
ROWS = [
    "potter\tthe pupil\t0\tnominative\tThe {occupation} thanked {participant} because {blank} felt better.",
    "potter\tthe pupil\t1\tpossessive\t{participant} left the {occupation} alone with {blank} own clay.",
]


def test_schemas_are_extended_and_simplified(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join([HEADER, *ROWS, ""]), "mine.tsv")
    chosen = data.load_sentences(path)
    assert (chosen.name, len(chosen.sentences)) == ("mine", 8)
    decided = [sentence.factors["well_specified"] for sentence in chosen.sentences]
    assert decided == [False] * 4 + [True] * 2 + [False] * 2
    assert chosen.sentences[4].query.texts()[1] == "The man left the potter alone with his own clay."
    assert chosen.sentences[4].gold == "male"
    assert "percent_female" not in chosen.sentences[0].factors
    simple = data.load_sentences(f"simplified:{path}").sentences
    assert [sentence.query.texts()[0] for sentence in simple] == [
        f"The {who} said that she felt better." for who in ("female potter", "male potter", "potter")
    ]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([], "no rows"), ([ROWS[0].replace("nominative", "dative")], "line 2: case holds 'dative'"),
        ([ROWS[0], ROWS[1].replace("{blank} ", "")], "line 3: the template needs {blank}"),
        ([ROWS[0].replace("\t0\t", "\t2\t")], "line 2: coreferent"), ([ROWS[0].replace("the pupil", "")], "line 2"),
        ([ROWS[0], ROWS[0]], "'potter' with coreferent 0"),
    ],
)  # fmt: skip
def test_a_damaged_table_of_schemas_is_refused(rows: list[str], named: str, tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join([HEADER, *rows, ""]), "mine.tsv")
    assert_refused((path, named), data.load_sentences, path)
