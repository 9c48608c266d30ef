from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from conftest import Cli
from helpers.cli_refusal import said
from helpers.file_refusal import assert_refused
from undertow import data
from undertow.data.challenges.challenge_draft import parse_w
from undertow.stats.regression import power_analysis

OPTIONS = (
    *("--title", "Age by the year", "--group", "older: old, elderly", "--group", "younger: young, youthful"),
    *("--sentence", "In {w}, the cook was ___.", "--sentence", "In {w}, we met a ___ driver."),
    *("--w", "year: 1900, 1910, ..., 2020"),
)
CONTROLS = ("--control", "older: At the age of 91 she is ___.", "--control", "younger: At the age of 12 she is ___.")


@pytest.fixture(autouse=True)
def few_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_analysis, "N_SERIES", 1)


def test_options_answer_all_questions_and_the_reader_takes_the_file(cli: Cli, tmp_path: Path) -> None:
    told = said(cli("init", "age.toml", *OPTIONS, *CONTROLS))
    assert "Written: age.toml\n26 texts and 2 control sentences.\n" in told
    assert "nothing can be found with 2 sentences" in told
    assert "2 of 2 right would be no better than chance with 2 groups: write at least 6 control sentences" in told
    assert told.rstrip().endswith("Next: undertow run spurious-correlation -m smollm2 --challenge age.toml")
    chosen = data.load(str(tmp_path / "age.toml"))
    assert chosen.title == "Age by the year"
    assert chosen.covariates[0].values == tuple(str(year) for year in range(1900, 2021, 10))
    assert (chosen.covariates[0].unit, chosen.covariates[0].scale) == ("year", "value")
    assert [(template.text, gold) for template, gold in chosen.controls] == [
        ("At the age of 91 she is {blank}.", "older"),
        ("At the age of 12 she is {blank}.", "younger"),
    ]


MORE_CONTROLS = tuple(
    argument
    for age in (5, 95)
    for who in ("girl", "boy")
    for argument in ("--control", f"{'older' if age > 50 else 'younger'}: The {who} turned {age} and is ___.")
)


def test_its_power_is_what_undertow_power_says(cli: Cli, tmp_path: Path) -> None:
    sentences = [argument for word in "abcdefgh" for argument in ("--sentence", f"In {{w}}, {word} was ___.")]
    made = json.loads(said(cli("init", *OPTIONS, *sentences, *CONTROLS, *MORE_CONTROLS, "--json")))
    assert (made["file"], made["texts"], made["controls"], made["notes"]) == ("challenge.toml", 130, 6, [])
    power = json.loads(cli("power", "challenge.toml", "--json").stdout)["lists"][0]
    assert (made["lists"][0]["change"], made["lists"][0]["slope"]) == (power["change"], power["slope"])
    assert (
        f"{power['change']:.3g} percentage points" in cli("init", "--overwrite", *OPTIONS, *sentences, *CONTROLS).stdout
    )


def test_questions_are_asked_and_asked_again(cli: Cli, tmp_path: Path) -> None:
    answers = [
        *("Cooks", "older: old", "younger young", "younger: young", ""),
        *("The cook was ___.", "In {w}, the cook was ___.", ""),
        *("spring", "season: spring, summer, autumn, winter", "the year"),
        *("oldest: She is ___.", "older: She is 91, so she is ___.", ""),
    ]
    done = cli("init", typed="\n".join([*answers, ""]))
    assert done.returncode == 0, done.stderr
    for error in (
        "group 'younger young': write a name, a colon and words",
        "sentence 'The cook was ___.' has no place for W",
        "W 'spring': write values with commas",
        "control 'oldest: She is ___.': begin with the group",
    ):
        assert error in done.stderr
    assert "No control sentence determines younger" in done.stdout
    table = tomllib.loads((tmp_path / "challenge.toml").read_text(encoding="utf-8"))
    assert table["w"]["season"] == {"values": ["spring", "summer", "autumn", "winter"], "order": "the year"}
    assert table["controls"] == [{"text": "She is 91, so she is {blank}.", "gold": "older"}]


def test_no_file_is_replaced_without_asking(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "challenge.toml"
    path.write_text("mine", encoding="utf-8")
    done = cli("init", *OPTIONS, "--no-controls")
    assert (done.returncode, path.read_text(encoding="utf-8")) == (1, "mine")
    assert "exists already; name another file, or add --overwrite" in done.stderr
    refused = cli("init", *OPTIONS, typed="n\n")
    assert (refused.returncode, path.read_text(encoding="utf-8")) == (1, "mine")
    assert "Replace it?" in refused.stderr
    told = said(cli("init", *OPTIONS, "--no-controls", "--overwrite"))
    assert "There are no control sentences to check whether a model reads" in told


def test_an_end_of_the_input_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("init", typed="Cooks\nolder: old\n")
    assert done.returncode == 1
    assert "the questions were not all answered, so nothing was written" in done.stderr
    assert not (tmp_path / "challenge.toml").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--sentence", "In {w}, the {job} was ___."), "has the unknown placeholder {job}"),
        (("--group", "older: old", "--group", "younger: old"), "'old' is in the groups"),
        (("--group", "old: old", "--group", "old: elderly", "--group", "young: young"), "'old' is given twice"),
        (("--order", "the year"), "the order of year is known"),
        (("--control", "older: In {w} she is ___."), "has a place for W"),
    ],
)
def test_answers_that_make_no_challenge_are_refused(
    option: tuple[str, ...], told: str, cli: Cli, tmp_path: Path
) -> None:
    given = list(OPTIONS)
    if option[0] in ("--sentence", "--group"):
        while option[0] in given:
            at = given.index(option[0])
            del given[at : at + 2]
    done = cli("init", *given, *option, *(() if option[0] == "--control" else ("--no-controls",)))
    assert done.returncode == 1
    assert told in done.stderr
    assert not (tmp_path / "challenge.toml").exists()


def test_a_pack_is_copied_as_it_is(cli: Cli, tmp_path: Path) -> None:
    assert "312 texts and 12 control sentences." in said(cli("init", "--pack", "age"))
    assert data.challenge_digest(data.load(str(tmp_path / "age.toml")).items()) == data.challenge_digest(
        data.load("age").items()
    )
    assert "did you mean 'age'?" in cli("init", "--pack", "ages").stderr
    assert "leave the other options out" in cli("init", "--pack", "age", "--title", "x").stderr


def test_the_dots_stand_for_even_steps() -> None:
    assert parse_w("dose: 0.5, 1.0, ..., 3").values == ("0.5", "1.0", "1.5", "2.0", "2.5", "3")
    assert parse_w("1, 2, ..., 5, 9").values == ("1", "2", "3", "4", "5", "9")
    assert parse_w("1, 2, 3").name == "value"
    for wrong in ("a, b, ..., c", "1, 2, ..., 4.5", "1, ..., 3, 4", "1, 1, ..., 3", "1, 2, ..."):
        assert_refused(("two numbers before the dots",), parse_w, wrong)
