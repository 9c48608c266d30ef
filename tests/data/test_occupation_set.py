from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, rows_of, written
from undertow.data.occupations.occupation_set import (
    CATEGORIES,
    Attribute,
    NamePair,
    Occupation,
    OccupationSet,
    article_of,
    load_occupations,
    load_pairs,
)


def by_name(found: OccupationSet) -> dict[str, Occupation]:
    return {one.name: one for one in found.occupations}


def test_the_packages_own_are_the_reference_table_and_its_map_with_known_shares_and_sources(
    reference_data: Path,
) -> None:
    found, folder = load_occupations(), reference_data / "onet"
    assert [(one.name, one.soc_code, one.basis) for one in found.occupations] == [
        (row["occupation"], row["soc_code"], row["basis"]) for row in rows_of(folder / "occupation_soc_map.tsv")
    ]
    assert [(one.name, each.category, each.name) for one in found.occupations for each in one.attributes] == [
        (row["occupation"], row["category"], row["element_name"]) for row in rows_of(folder / "top5.tsv")
    ]
    assert (found.name, len(found.occupations)) == ("onet-occupations", 62)
    assert len({one.soc_code for one in found.occupations}) == 55
    for one in found.occupations:
        assert Counter(each.category for each in one.attributes) == dict.fromkeys(CATEGORIES, 5), one.name
    published = rows_of(reference_data / "winogender/occupations-stats.tsv")
    shares = {row["occupation"]: float(row["bls_pct_female"]) for row in published}
    known = {one.name: one.female_percent for one in found.occupations if not math.isnan(one.female_percent)}
    assert known == {one.name: shares[one.name] for one in found.occupations if one.name in shares}
    assert len(known) == 24
    told = (("O*NET 30.2", "CC BY 4.0", "modified"), ("politician, senator",), ("Labor",))
    for note, words in zip(found.notes, told, strict=True):
        assert all(word in note for word in words)


A = (
    "nurse; university lecturer; European envoy; user researcher; one-man band; unit head; UX designer; herald; "
    "NASA engineer; 12-hour carer; ukulele player; PhD student; 看護師; !; 180 pilot; U-boat captain"
)
AN = (
    "accountant; X-ray technician; honest broker; hour counter; heir; HR manager; undertaker; urban planner; EMT; "
    "uninsured driver; émigré; 8-year-old; 11-year-old; HTML author"
)
OWN_AN = "accountant architect assistant_professor astronaut athlete attendant engineer executive investigator"


def test_articles() -> None:
    for article, names in (("a", A), ("an", AN)):
        assert {name: article_of(name) for name in names.split("; ")} == dict.fromkeys(names.split("; "), article)
    own = [one.name.replace(" ", "_") for one in load_occupations().occupations if one.article == "an"]
    assert own == OWN_AN.split()


LONG = (
    "occupation,soc_code,attribute,category,female_percent,article\n"
    "usher,39-3031.00,Patience,ability,60.5,\n"
    "usher,,Counting,,,\n"
    "usher,,Counting,Knowledge,60.5,an\n"
    "potière,,\"Clay, fired\",knowledge,,une\n"
    "hermit,,,,100,\n"
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.csv", LONG),
        ("own.csv", "\ufeff" + LONG.replace("\n", "\r\n").replace("è", "e\u0300")),
        ("own.tsv", LONG.replace('"Clay, fired"', "Clay| fired").replace(",", "\t").replace("|", ",")),
    ],
)
def test_a_table_of_ones_own(name: str, text: str, tmp_path: Path) -> None:
    found = load_occupations(written(tmp_path, text, name))
    usher, potter, hermit = found.occupations
    assert usher == Occupation(
        "usher",
        "39-3031.00",
        (Attribute("Patience", "ability"), Attribute("Counting", "skill"), Attribute("Counting", "knowledge")),
        60.5,
        "an",
    )
    assert (potter.name, potter.soc_code, potter.article) == ("potière", "potière", "une")
    assert potter.attributes == (Attribute("Clay, fired", "knowledge"),)
    assert math.isnan(potter.female_percent)
    assert (hermit.attributes, hermit.female_percent, hermit.article) == ((), 100.0, "a")
    assert (found.name, found.title, found.source) == ("own", f"occupations of {name}", name)
    assert found.notes == ("1 of 3 occupations have no attributes: hermit",)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("usher,39-3032.00,Seating,,,", "soc_code of 'usher'"), ("usher,,Seating,,61,", "female_percent of 'usher'"),
        ("usher,,Seating,,,a", "article of 'usher'"), ("usher,,patience,ability,,", "'patience' of 'usher'"),
        ("usher,,,,,", "'usher'"), ("Usher,,Seating,,,", "'Usher'"), ("hermit,,,skill,,", "category"),
        ("hermit,,Silence,skil,,", "category holds 'skil'"), ("hermit,,,,100.1,", "female_percent"),
        *((f"hermit,,,,{share},", "female_percent") for share in ("-1", "nan", "40 %")),
        (" ,,Silence,,,", "occupation"), ("All,,Silence,,,", "'All'"), ("(none),,Silence,,,", "'(none)'"),
        ("her\x00mit,,,,,", "zero byte"), ("her\x1bmit,,,,,", "'\\x1b'"), ("hermit", "1 cell"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_by_its_line(row: str, named: str, tmp_path: Path) -> None:
    first = "occupation,soc_code,attribute,category,female_percent,article\nusher,39-3031.00,Patience,ability,60.5,an\n"
    path = written(tmp_path, f"{first}{row}\n", "own.csv")
    assert_refused((f"{path}, line 3", named), load_occupations, path)
    path = written(tmp_path, "Occupation\tskill\nusher\tx\n")
    assert_refused((path, "did you mean 'Occupation'"), load_occupations, path)
    path = written(tmp_path, "occupation\tcategory\nusher\tskill\n")
    assert_refused((path, "'attribute'"), load_occupations, path)


def release(folder: Path, codes: tuple[str, ...]) -> str:
    columns = "O*NET-SOC Code\tElement Name\tScale ID\tData Value\n"
    for name, prefix in (("Skills.txt", "S"), ("Knowledge.txt", "K"), ("Abilities.txt", "A")):
        rows = (f"{code}\t{prefix}{n}\tIM\t{5 - n / 2}\n" for code in codes for n in range(8))
        (folder / name).write_text(columns + "".join(rows))
    return str(folder)


def test_attributes_of_a_release_for_the_packages_own(tmp_path: Path) -> None:
    folder = release(tmp_path, ("29-1141.00", "25-1011.00", "11-1011.00"))
    found = load_occupations("", folder)
    assert list(by_name(found)) == ["assistant professor", "executive", "nurse", "politician", "professor", "senator"]
    nurse = by_name(found)["nurse"]
    assert [one.name for one in nurse.attributes] == [f"{prefix}{n}" for prefix in "SKA" for n in range(5)]
    assert nurse.female_percent == by_name(load_occupations())["nurse"].female_percent
    assert found.name == f"onet-occupations-{tmp_path.name}"
    assert found.title == "6 occupations with their top 5 skills, knowledge and abilities"
    credit, proxies, left_out, shares = found.notes
    for note, word in ((credit, "O*NET"), (proxies, "politician, senator"), (left_out, "accountant (13-2011.00")):
        assert word in note
    assert "Bureau of Labor Statistics" in shares


def test_attributes_of_a_release_for_ones_own(tmp_path: Path) -> None:
    folder = release(tmp_path, ("29-1141.00", "29-1171.00"))
    path = written(tmp_path, "occupation\tsoc_code\tmine\nhead nurse\t29-11xx\t1\n")
    found = load_occupations(path, folder)
    (nurse,) = found.occupations
    assert (nurse.soc_code, len(nurse.attributes)) == ("29-11xx", 15)
    assert found.source == f"O*NET text release in {tmp_path.name} (CC BY 4.0), modified; occupations of own.tsv"
    assert found.notes[1:] == ("column 'mine' is not used",)
    path = written(tmp_path, "occupation\tsoc_code\tskill\nhead nurse\t29-1141.00\tCare\n")
    assert_refused((path, "'head nurse'"), load_occupations, path, folder)
    path = written(tmp_path, "occupation\nhead nurse\n")
    assert_refused((path, "'head nurse'"), load_occupations, path, folder)


def test_the_packages_own_pairs_are_those_of_the_word_lists(reference_data: Path) -> None:
    lists = [(reference_data / "names" / f"{sex}.txt").read_text().split() for sex in ("female", "male")]
    pairs = load_pairs()
    assert pairs == [NamePair(*names) for names in zip(*lists, strict=True)]
    assert pairs[0].name == "Mary/James"
    assert len({pair.name for pair in pairs}) == 70
    assert not {pair.female for pair in pairs} & {pair.male for pair in pairs}


def test_a_table_of_pairs_of_ones_own(tmp_path: Path) -> None:
    text = '\ufefffemale,male\r\n"Zoë",Jose\u0301\r\n\r\n" Ann ",Johann\r\n'
    assert load_pairs(written(tmp_path, text, "pairs.csv")) == [NamePair("Zoë", "José"), NamePair("Ann", "Johann")]
    text = "female\tmale\nAnn\tPaul\nAnn\tJohn\n芳\t伟\nMary Jo\tPeter  O’Neil\n"
    pairs = load_pairs(written(tmp_path, text))
    assert [pair.name for pair in pairs] == ["Ann/Paul", "Ann/John", "芳/伟", "Mary Jo/Peter O’Neil"]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("\tJames", "female"), ("Mary\t ", "male"), ("Kim\tkim", "'Kim'"), ("Zoë\tZoe\u0308", "'Zoë'"),
        ("mary\tJAMES", "of line 2"), ("Ann\tMary Ann", "'Ann'"), ("Jean Paul\tPaul", "'Paul'"), ("A/B\tC", "'A/B'"),
        ("Ma\x07ry\tPaul", "'\\x07'"), ("Mary", "1 cell"), ("Ma\0ry\tPaul", "zero byte"),
    ],
)  # fmt: skip
def test_a_bad_pair_is_refused_by_its_line_and_other_columns_by_name(row: str, named: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"female\tmale\nMary\tJames\n{row}\n")
    assert_refused((f"{path}, line 3", named), load_pairs, path)
    assert_refused((path, "'male'"), load_pairs, written(tmp_path, "female\nMary\n"))
    assert_refused((path, "'males'"), load_pairs, written(tmp_path, "female\tmale\tmales\na\tb\tc\n"))
    assert_refused((".tsv",), load_pairs, written(tmp_path, "female\tmale\na\tb\n", "pairs.txt"))
    assert_refused(("is empty; its first line",), load_pairs, written(tmp_path, ""))
