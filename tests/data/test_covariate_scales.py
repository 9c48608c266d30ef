from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data
from undertow.data.templates.covariates import evenly_spaced, numbers_of

SHUFFLED = ["2015", "1800", "2005", "1990", "2010", "2000"]
YEARS = tuple(sorted(SHUFFLED))


def w_file(folder: Path, values: list[str], name: str = "year.txt") -> str:
    return written(folder, "\n".join(values), name)


def toml_of(folder: Path, lists: str) -> str:
    return written(folder, f'templates = ["In {{w}} {{blank}} won."]\nwords = "pronouns"\n{lists}', "own.toml")


def test_numbers_are_read_as_decimal_numbers_and_nothing_else() -> None:
    assert numbers_of(["1800", "-5", "+2.5", ".5", "1e3", "007"]) == (1800, -5, 2.5, 0.5, 1000, 7)
    for text in ("1900s", "1,800", "nan", "inf", "1_000", "٣", "1e999", "0x10", "--1", ".", "1e"):
        assert numbers_of(["1800", text]) == (), text


@pytest.mark.parametrize(
    ("values", "is_even"),
    [
        (["1801", "1808", "1815", "1823"], True),  # the package's own, in whole years
        (["0.1", "0.2", "0.3"], True), (["1", "10", "100"], False), (["1900", "1930", "1950", "1970"], False),
        (["1", "2", "4"], False), (["1800", "1802", "1805", "1807"], True), (["1800", "1801", "1803"], False),
        (["30", "20", "10"], True), (["1", "3", "2"], False), (["0.25", "0.5", "1.0"], False), (["10", "12.5", "15"], True),
    ],
)  # fmt: skip
def test_steps_are_even_as_far_as_the_decimals_allow(values: list[str], is_even: bool) -> None:
    assert evenly_spaced(values) is is_even


@pytest.mark.parametrize("how", ["file", "toml", "table"])
def test_the_order_of_numbers_in_a_file_decides_nothing(how: str, tmp_path: Path) -> None:
    def read(values: list[str]) -> data.Covariate:
        if how == "file":
            return data.load_covariate(w_file(tmp_path, values))
        listed = f"[{', '.join(values)}]"
        lists = f"[w]\nyear = {listed}" if how == "toml" else f"[w.year]\nvalues = {listed}"
        return data.load(toml_of(tmp_path, lists)).covariates[0]

    found = [read(values) for values in (SHUFFLED, list(YEARS), SHUFFLED[::-1])]
    for one in found:
        assert (one.name, one.values, one.scale, one.unit) == ("year", YEARS, "value", "year")
        assert one.axis == one.numbers == (1800, 1990, 2000, 2005, 2010, 2015)
        assert one.is_uneven
        assert [place["w_value"] for place in one.places()] == list(one.numbers)
        assert [place["w_index"] for place in one.places()] == list(range(6))
    assert [len(one.notes) for one in found] == [1, 0, 1]


def test_an_index_of_numbers_in_no_order_is_refused_and_one_with_uneven_steps_is_told(tmp_path: Path) -> None:
    path = w_file(tmp_path, SHUFFLED)
    assert_refused((path, "'year'"), lambda: data.load_covariate(path, scale="index"))
    assert_refused(("year",), data.load, toml_of(tmp_path, f"[w.year]\nvalues = {SHUFFLED}\nscale = 'index'"))
    plain = toml_of(tmp_path, f"[w]\nyear = {SHUFFLED}")
    assert_refused(("year",), lambda: data.load(plain, scale="index"))
    found = data.load_covariate(w_file(tmp_path, list(YEARS)), scale="index")
    assert (found.scale, found.axis, len(found.notes)) == ("index", (0, 1, 2, 3, 4, 5), 1)
    assert ("5" in found.notes[0], "190" in found.notes[0]) == (True, True)
    falling = data.load_covariate(w_file(tmp_path, ["30", "20", "10"], "price.txt"), scale="index")
    assert (falling.values, falling.order, falling.notes) == (("30", "20", "10"), "numbers, largest first", ())


def test_the_order_of_a_list_of_words_is_its_authors_or_that_of_the_file(tmp_path: Path) -> None:
    lists = """
    [w]
    town = ["Rome", "Bonn", "Oslo"]
    [w.job]
    values = ["nurse", "cook", "smith"]
    order = "share of women, largest first"
    [w.colour]
    values = ["red", "blue", "green"]
    scale = "none"
    """
    found = {one.name: one.design_entry() for one in data.load(toml_of(tmp_path, lists)).covariates}
    common = {"unit": "", "uneven": False}
    assert found == {
        "town": {"order": "as listed", "scale": "index", **common},
        "job": {"order": "share of women, largest first", "scale": "index", **common},
        "colour": {"order": "in no order", "scale": "none", **common},
    }
    assert data.load_covariate(w_file(tmp_path, ["Rome", "Bonn", "Oslo"], "town.txt")).order == "as listed"


WRONG: list[tuple[str, str]] = [
    ("[w.job]\nvalues = ['a', 'b', 'c']\nscale = 'value'", "'a'"),
    ("[w.job]\nvalues = ['a', 'b', 'c']\nscale = 'none'\norder = 'by size'", "none"),
    ("[w.job]\nvalues = ['a', 'b', 'c']\nscale = 'vlaue'", "did you mean 'value'"),
    ("[w.job]\nvalues = ['a', 'b', 'c']\norders = 'by size'", "did you mean 'order'"),
    ("[w.job]\nvalues = []", "must have 1 or more"),
    ("[w.job]\norder = 'by size'", "values"), ("[w.job]\nvalues = ['a', 'b', 'c']\norder = ''", "order"),
    ("[w.job]\nvalues = ['a', 'b']", "3"), ("[w.job]\nvalues = [1, 2.0, 2]", "one number"), ("[w]\njob = 'a'", "list"),
]  # fmt: skip


@pytest.mark.parametrize(("lists", "named"), WRONG)
def test_a_list_that_contradicts_itself_is_refused(lists: str, named: str, tmp_path: Path) -> None:
    assert_refused(("job", named), data.load, toml_of(tmp_path, lists))


def test_a_scale_that_is_not_known_or_that_no_list_can_have_is_refused() -> None:
    place, date = data.load_covariate("place"), data.load_covariate("date", scale="value")
    assert_refused(("--w-scale", "'indx'", "did you mean 'index'"), lambda: data.load_covariate("place", scale="indx"))
    assert_refused(("--w-scale", "place"), data.check_scaled, [place], "value")
    data.check_scaled([place, date], "value")


def test_items_say_where_their_value_stands_and_the_digest_is_that_of_the_text_where_that_is_its_place() -> None:
    chosen = data.load("mgc")
    items: dict[str, Any] = {
        scale: chosen.items([data.load_covariate("date", scale=scale)]) for scale in ("index", "value", "none")
    }
    for scale, of_scale in items.items():
        assert of_scale[60].factors["w_value"] == (1808 if scale == "value" else 1)
        assert type(of_scale[60].factors["w_value"]) is float
    assert [item.id for item in items["index"]] == [item.id for item in items["value"]]
    digests = {scale: data.challenge_digest(of_scale) for scale, of_scale in items.items()}
    assert digests["index"] == digests["none"] != digests["value"]


DIGESTS = {"mgc": "02e8616b3e060a8d", "mgt": "c2679837ef5e3d9c", "mgt-icml": "de1fc0caa940f6a4"}


@pytest.mark.parametrize("name", DIGESTS)
def test_digests_of_the_published_sets_stay_what_they_are(name: str) -> None:
    assert data.challenge_digest(data.load(name).items()).startswith(DIGESTS[name])
