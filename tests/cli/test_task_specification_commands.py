"""`undertow run task-specification` as a user types it: what it asks, writes, says, and what it does not do twice."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import shutil
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_commands import Workplace

from conftest import Cli
from refusal import refused
from test_checking import OCCUPATIONS, planted_percent, planted_table, unit
from undertow import challenge
from undertow.places import store_file
from undertow.report.words import MINUS

slow = pytest.mark.slow
pytestmark = pytest.mark.xdist_group("task specification")
RUN = ["run", "task-specification", "-m", "toy"]
PLANTED = [*RUN, "--challenge", "planted.csv"]
GROUPS = ["female", "male", "neutral"]
ENDS = (1901, 2016)
MEASURES = {
    "tpr", "tnr", "balanced_accuracy", "held_out_balanced_accuracy", "auroc", "auroc_difference", "coreference_agreement",
    "hardest_tpr", "hardest_tnr", "auroc_by_occupations", "occupation_effect", "interaction", "w_effect", "called_right",
}  # fmt: skip
SCORES = ["delta_female", "delta_male", "delta_neutral", "total_variation", "jensen_shannon", "entropy", "combined"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A folder with a cache of its own, and in it a table of sentences that the toy tells apart."""
    folder = tmp_path_factory.mktemp("work")
    planted_table(folder)
    return Workplace(folder)


@pytest.fixture(scope="module")
def own(work: Workplace) -> dict[str, Any]:
    """What the run on the package's own sentences prints with --json."""
    printed: dict[str, Any] = work.json(*RUN, "--out", "own")
    return printed


@pytest.fixture(scope="module")
def planted(work: Workplace) -> list[str]:
    """What the run on the planted table prints, line by line."""
    return work(*PLANTED, "--out", "planted").stdout.splitlines()


@pytest.fixture(scope="module")
def full(work: Workplace) -> list[str]:
    """What a run with all its parts prints: five dates, sentences without any, one occupation over thirty."""
    given = ["--plain", "--follow", "doctor", "--date-count", "5", "--limit", "200"]
    return work(*RUN, *given, "--out", "full").stdout.splitlines()


def table_of(work: Workplace, run: str, name: str = "sentences") -> pd.DataFrame:
    return pd.read_csv(work.folder / run / "tables" / f"{name}.csv", keep_default_na=False, na_values=[""])


def observed(work: Workplace, run: str) -> pd.DataFrame:
    return pd.read_parquet(work.folder / run / "observations.parquet")


def manifest_of(work: Workplace, run: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((work.folder / run / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def values_of(work: Workplace, run: str, measure: str) -> dict[str, float]:
    """A measure by score, of the whole set."""
    return {
        row["group"]["score"]: row["value"]
        for row in work.results(run)
        if row["measure"] == measure and not {"against", "occupations", "occupation"} & set(row["group"])
    }


def pairs_won(positive: np.ndarray[Any, Any], negative: np.ndarray[Any, Any]) -> float:
    """Share of pairs in which the first is larger, ties by half, rounding error apart."""
    gap = np.round(positive[:, None] - negative[None, :], 9)
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def moved(before: str) -> float:
    """How far the toy's female share moves between the two dates, by its own formula."""
    first, last = (planted_percent(before.replace("{w}", str(year)), year)["female"] for year in ENDS)
    return last - first


# The package's own sentences.


def test_a_run_prints_one_json_object(own: dict[str, Any], work: Workplace) -> None:
    assert (own["folder"], own["report"]) == ("own", "own/report.html")
    counts = {name: own["counts"][name] for name in ("items", "queries", "computed", "unscored")}
    assert counts == {"items": 960, "queries": 960, "computed": 960, "unscored": 0}
    assert len(own["findings"]) == 7
    assert all(set(finding) == {"text", "found", "strength"} for finding in own["findings"])
    assert (work.folder / "own/report.html").is_file()


def test_the_run_folder_holds_its_parts(own: dict[str, Any], work: Workplace) -> None:
    folder = work.folder / "own"
    names = ["figures", "manifest.json", "observations.parquet", "report.html", "results.csv", "results.json", "tables"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert sorted(path.name for path in (folder / "tables").iterdir()) == ["occupations.csv", "sentences.csv"]
    figures = {f"{kind}_toy_undertow-schemas_date.{form}" for kind in ("occupations", "roc") for form in ("png", "svg")}
    assert {path.name for path in (folder / "figures").iterdir()} == figures
    assert all((folder / "figures" / name).stat().st_size > 5000 for name in figures)
    manifest = manifest_of(work, "own")
    assert (manifest["probe"], manifest["model"], manifest["protocol"]) == ("task-specification", "toy", "exact")
    assert manifest["command"] == "undertow run task-specification -m toy"
    assert manifest["python"] == "undertow.run('task-specification', model='toy')"
    assert len(manifest["code_sha256"]) == 64


def test_every_sentence_is_asked_at_both_dates(own: dict[str, Any], work: Workplace) -> None:
    frame = observed(work, "own")
    assert len(frame) == 960
    sentences = {item.factors["sentence"]: item.query for item in challenge.sentences("undertow-schemas").plain()}
    for row in frame.sample(40, random_state=0).to_dict("records"):
        assert row["text"] == f"In {row['w']}: {sentences[row['sentence']].shown()}"  # type: ignore[union-attr]
    assert set(zip(frame["w_index"], frame["w"], strict=True)) == {(0, "1901"), (1, "2016")}
    assert frame[GROUPS].sum(axis=1).to_numpy() == pytest.approx(np.full(960, 100.0))
    # Where no verb has to agree, the shares of the toy are the planted ones to the last digit.
    exact = frame[(frame["pronoun_case"] == "nominative") & (frame["text"].str.count("___") == 1)]
    assert len(exact) > 100
    for row in exact.to_dict("records"):
        before = str(row["text"]).partition("___")[0].rstrip()
        assert [row[group] for group in GROUPS] == pytest.approx(list(planted_percent(before, int(row["w"])).values()))


def test_the_table_of_sentences_has_every_score(own: dict[str, Any], work: Workplace) -> None:
    frame, table = observed(work, "own"), table_of(work, "own")
    assert len(table) == 480
    assert set(SCORES) <= set(table)
    wide = frame.pivot_table(index="sentence", columns="w_index", values=GROUPS, sort=False).loc[table["sentence"]]
    first, last = (wide.xs(place, axis=1, level=1)[GROUPS].to_numpy() for place in (0, 1))
    for index, group in enumerate(GROUPS):
        assert table[f"delta_{group}"].to_numpy() == pytest.approx(np.abs(last - first)[:, index], abs=1e-9)
        assert table[f"mean_{group}"].to_numpy() == pytest.approx(((first + last) / 2)[:, index])
    assert table["total_variation"].to_numpy() == pytest.approx(np.abs(last - first).sum(axis=1) / 2, abs=1e-9)
    middle = (first + last) / 200
    assert table["entropy"].to_numpy() == pytest.approx(-100 * (middle * np.log(middle)).sum(axis=1) / math.log(3))
    assert table["combined"].between(0, 100).all()
    assert table[["slope_female", "entropy_plain"]].isna().all(axis=None)
    assert table["unscored"].isna().all()
    assert int((table["well_specified"] == True).sum()) == 120  # noqa: E712 - a column of booleans


def test_the_table_of_occupations_has_the_means_of_either_kind(own: dict[str, Any], work: Workplace) -> None:
    sentences, table = table_of(work, "own"), table_of(work, "own", "occupations")
    assert len(table) == 60
    assert (table["sentences"] == 8).all()
    assert table.set_index("cluster").loc["plumber", "percent_female"] == 0.7
    for kind, decided in (("specified", True), ("unspecified", False)):
        part = sentences[sentences["well_specified"] == decided]
        for score in SCORES:
            means = [part.loc[part["occupation"] == name, score].mean() for name in table["cluster"]]
            assert table[f"{score}_{kind}"].to_numpy() == pytest.approx(np.array(means), abs=1e-9)


def test_measures_are_those_of_the_scores(own: dict[str, Any], work: Workplace) -> None:
    rows, table = work.results("own"), table_of(work, "own")
    assert {row["measure"] for row in rows} == MEASURES
    assert all(row["group"]["model"] == "toy" and row["group"]["set"] == "undertow-schemas" for row in rows)
    decided = table["well_specified"].to_numpy(dtype=bool)
    for score, value in values_of(work, "own", "auroc").items():
        numbers = table[score].to_numpy()
        assert value == pytest.approx(pairs_won(numbers[~decided], numbers[decided]), abs=1e-9), score
    assert list(values_of(work, "own", "auroc")) == SCORES
    flagged = table["delta_female"].to_numpy() > 0.5
    assert values_of(work, "own", "tpr")["delta_female"] == pytest.approx(flagged[~decided].mean())
    assert values_of(work, "own", "tnr")["delta_female"] == pytest.approx((~flagged[decided]).mean())
    (effect,) = [row for row in rows if row["measure"] == "w_effect"]
    assert effect["value"] == pytest.approx(table["shift_female"].to_numpy()[~decided].mean())
    assert effect["low"] < effect["value"] < effect["high"]
    assert sum(row["measure"] == "called_right" for row in rows) == 2 * 60


def test_findings_say_what_was_measured_and_the_page_tells_them(own: dict[str, Any], work: Workplace) -> None:
    (effect,) = [row["value"] for row in work.results("own") if row["measure"] == "w_effect"]
    area = {score: f"{100 * value:.0f}%" for score, value in values_of(work, "own", "auroc").items()}
    texts = [finding["text"] for finding in own["findings"]]
    assert [finding["found"] for finding in own["findings"]] == [True, *[False] * 6]
    assert texts[0].startswith(
        f"In undecided sentences female mass moves by {effect:+.1f} points on average between 1901 and 2016 (95% interval +"
    )
    assert texts[1].startswith(
        f"On {area['total_variation']} of pairs, the movement between 1901 and 2016 (total variation)"
    )
    assert f"entropy alone does so on {area['entropy']} (" in texts[1]
    assert any(f"rank {area['combined']} of pairs rightly" in text for text in texts)
    assert any("the model prefers what it decides on in 50% of 120 sentences" in text for text in texts)
    page = (work.folder / "own/report.html").read_text(encoding="utf-8")
    for text in texts:
        assert escape(re.sub(r"(?<=[ (])-(?=[.\d])", MINUS, text)) in page
    for said in ("Task specification: toy", "Area under the ROC curve", "undertow run task-specification -m toy"):
        assert said in page
    assert page.count('src="data:image/svg+xml;base64,') == 2


# Sentences that the toy tells apart.


def test_detection_that_never_fails_is_found(planted: list[str], work: Workplace) -> None:
    """The toy moves *she* and *he* with the date, and *her* and *his* not: the table has the kinds so."""
    n_sentences = 2 * len(OCCUPATIONS)
    assert planted[0].startswith(f"Asked {2 * n_sentences} items (")
    assert planted[1].startswith("* On 100% of pairs, the movement between 1901 and 2016 (total variation) ranks")
    areas = values_of(work, "planted", "auroc")
    assert {score: areas[score] for score in ("delta_female", "total_variation", "combined")} == {
        "delta_female": 1.0,
        "total_variation": 1.0,
        "combined": 1.0,
    }
    assert areas["delta_neutral"] == 0.5
    for measure in ("tpr", "tnr", "balanced_accuracy", "held_out_balanced_accuracy"):
        assert values_of(work, "planted", measure)["total_variation"] == 1.0
    (effect,) = [row["value"] for row in work.results("planted") if row["measure"] == "w_effect"]
    expected = np.mean([moved(f"In {{w}}: The {who} said that") for who in OCCUPATIONS])
    assert effect == pytest.approx(expected)
    assert f"female mass moves by {expected:+.1f} points on average between 1901 and 2016" in "\n".join(planted)


# What was done is not done again.


def test_a_finished_run_opens_at_once_and_is_left_alone(
    own: dict[str, Any], planted: list[str], work: Workplace
) -> None:
    before = stamps(work.folder / "planted")
    assert len(before) > 10
    again = work(*PLANTED, "--out", "planted").stdout.splitlines()
    assert (
        again[0]
        == f"Asked {4 * len(OCCUPATIONS)} items (0 of {4 * len(OCCUPATIONS)} queries computed now, 0 unscored)."
    )
    assert again[1:] == planted[1:]
    assert stamps(work.folder / "planted") == before
    before = stamps(work.folder / "own")
    printed = work.json(*RUN, "--out", "own")
    assert printed["counts"] == own["counts"] | {"computed": 0, "tokens": 0}
    assert printed["findings"] == own["findings"]
    assert stamps(work.folder / "own") == before


def without_report(folder: Path) -> None:
    (folder / "report.html").unlink()


def of_other_code(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | {"code_sha256": "0" * 64}), encoding="utf-8")


def without_figures(folder: Path) -> None:
    shutil.rmtree(folder / "figures")


def damaged(folder: Path) -> None:
    (folder / "observations.parquet").write_bytes(b"PAR1")


def left_as_it_is(folder: Path) -> None:
    assert (folder / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("change", "more"),
    [
        (without_report, []),
        pytest.param(without_figures, [], marks=(slow, pytest.mark.soak)),
        pytest.param(of_other_code, [], marks=(slow, pytest.mark.soak)),
        pytest.param(damaged, [], marks=(slow, pytest.mark.soak)),
        pytest.param(left_as_it_is, ["--overwrite"], marks=slow),
    ],
)
def test_a_run_that_is_not_whole_or_of_other_code_is_made_anew(
    change: Any, more: list[str], planted: list[str], work: Workplace
) -> None:
    name = f"{change.__name__} copy"
    folder = work.folder / name
    shutil.copytree(work.folder / "planted", folder)
    change(folder)
    before = stamps(folder)
    said = work(*PLANTED, "--out", name, *more).stdout.splitlines()
    assert f"(0 of {4 * len(OCCUPATIONS)} queries computed now" in said[0]
    assert said[1:-1] == planted[1:-1]
    after = stamps(folder)
    # Every file is a new one, made from stored answers.
    files = [path.relative_to(folder) for path in after if path.is_file()]
    assert all(after[folder / path] != before.get(folder / path) for path in files)
    assert {path.name for path in files} >= {"report.html", "results.json", "sentences.csv"}
    for part in ("results.json", "results.csv", "tables/sentences.csv", "tables/occupations.csv"):
        assert (folder / part).read_bytes() == (work.folder / "planted" / part).read_bytes()
    assert manifest_of(work, name)["code_sha256"] == manifest_of(work, "planted")["code_sha256"]
    assert len(observed(work, name)) == 4 * len(OCCUPATIONS)


def test_another_run_is_not_put_in_its_place(cli: Cli, planted: list[str], work: Workplace) -> None:
    before = stamps(work.folder / "planted")
    done = cli(*PLANTED, "--threshold", "2", "--out", "planted", cwd=work.folder)
    refused(done, "planted: holds another run", "--overwrite")
    assert stamps(work.folder / "planted") == before


@slow
def test_score_and_report_make_the_same_again(own: dict[str, Any], work: Workplace) -> None:
    printed = work.json("score", "own", "--out", "scored")
    assert printed["findings"] == own["findings"]
    for part in ("results.json", "results.csv", "tables/sentences.csv", "tables/occupations.csv"):
        assert (work.folder / "scored" / part).read_bytes() == (work.folder / "own" / part).read_bytes()
    page = (work.folder / "scored/report.html").read_bytes()
    shutil.rmtree(work.folder / "scored/figures")
    shutil.rmtree(work.folder / "scored/tables")
    (work.folder / "scored/report.html").unlink()
    assert work("report", "scored").stdout == "scored/report.html\n"
    assert (work.folder / "scored/report.html").read_bytes() == page
    for path in (*(work.folder / "own/figures").iterdir(), *(work.folder / "own/tables").iterdir()):
        assert (work.folder / "scored" / path.parent.name / path.name).read_bytes() == path.read_bytes()


# All parts.


@slow
def test_more_dates_give_slopes_and_the_plain_sentence_its_entropy(full: list[str], work: Workplace) -> None:
    frame, table = observed(work, "full"), table_of(work, "full")
    years = ["1901", "1929", "1958", "1987", "2016"]
    parts = frame.groupby("part")["w"].unique().map(list).to_dict()
    assert parts["detect"] == years
    assert parts["plain"] == [""]
    assert len(table) == 40  # 200 items over five dates
    assert full[0].startswith(f"Asked {200 + 40 + 8 * 30} items (")
    wide = frame[frame["part"] == "detect"].pivot_table(
        index="sentence", columns="w_index", values="female", sort=False
    )
    lines = np.polyfit(np.arange(5), wide.loc[table["sentence"]].to_numpy().T, 1)[0]
    assert table["slope_female"].to_numpy() == pytest.approx(np.abs(lines) * 4, abs=1e-9)
    assert table["delta_female"].to_numpy() == pytest.approx((wide[4] - wide[0]).abs().loc[table["sentence"]], abs=1e-9)
    plain = frame[frame["part"] == "plain"].set_index("sentence").loc[table["sentence"]]
    shares = plain[GROUPS].to_numpy() / 100
    entropy = -100 * (shares * np.log(shares)).sum(axis=1) / math.log(3)
    assert table["entropy_plain"].to_numpy() == pytest.approx(entropy)
    assert not plain["text"].str.startswith("In ").any()
    assert {"slope_female", "slope_neutral", "entropy_plain"} <= set(values_of(work, "full", "auroc"))


@slow
def test_an_occupation_is_followed_over_thirty_dates(full: list[str], work: Workplace) -> None:
    frame = observed(work, "full")
    followed = frame[frame["part"] == "follow"]
    assert set(followed["occupation"]) == {"doctor"}
    assert followed["sentence"].nunique() == 8
    assert followed["w"].nunique() == 30
    assert (followed["w"].iloc[0], followed["w"].iloc[-1]) == ("1901", "2016")
    figures = {path.name for path in (work.folder / "full/figures").iterdir()}
    assert {"over-w_toy_undertow-schemas_date_doctor.svg", "over-w_toy_undertow-schemas_date_doctor.png"} <= figures
    assert "The share of female words in every sentence of one occupation." in (
        work.folder / "full/report.html"
    ).read_text(encoding="utf-8")
    # What is followed is shown, and counts in no measure.
    assert values_of(work, "full", "auroc").keys() == {
        *(score for score in SCORES if score != "combined"),  # too few occupations decide anything to fit it
        "slope_female",
        "slope_male",
        "slope_neutral",
        "entropy_plain",
    }
    assert {row["n"] for row in work.results("full") if row["measure"] == "auroc"} == {40}


@slow
def test_the_printed_command_repeats_the_run(full: list[str], work: Workplace) -> None:
    command = shlex.split(str(manifest_of(work, "full")["command"]))
    assert command[0] == "undertow"
    assert "--plain" in command
    said = work(*command[1:], "--out", "again").stdout.splitlines()
    assert "(0 of " in said[0]
    assert said[1:-1] == full[1:-1]
    for part in ("results.json", "tables/sentences.csv"):
        assert (work.folder / "again" / part).read_bytes() == (work.folder / "full" / part).read_bytes()
    assert manifest_of(work, "again")["run_key"] == manifest_of(work, "full")["run_key"]


# Other W, other ways in, other sentences.


@slow
def test_places_move_nothing(work: Workplace) -> None:
    said = work(*RUN, "--w", "place", "--limit", "400", "--out", "place").stdout
    assert "between Afghanistan and Iceland" in said
    frame, table = observed(work, "place"), table_of(work, "place")
    assert (frame["w_name"].unique().tolist(), frame["w"].nunique(), len(table)) == (["place"], 20, 20)
    # The toy's answers depend on a place by half a point of 80 at most, either way.
    assert table["delta_female"].max() <= 1.25
    assert table["delta_female"].max() > 0
    (effect,) = [row for row in work.results("place") if row["measure"] == "w_effect"]
    assert effect["low"] < 0 < effect["high"]


@slow
def test_two_lists_are_judged_apart(work: Workplace) -> None:
    printed = work.json(*PLANTED, "--w", "date,place", "--out", "two")
    rows = work.results("two")
    assert {row["group"]["w_name"] for row in rows} == {"date", "place"}
    areas = {
        row["group"]["w_name"]: row["value"]
        for row in rows
        if row["measure"] == "auroc" and row["group"]["score"] == "total_variation"
    }
    assert areas == {"date": 1.0, "place": 1.0}  # *her* does not move at all
    assert any(finding["text"].startswith("date: on 100% of pairs") for finding in printed["findings"])
    assert table_of(work, "two")["w_name"].value_counts().to_dict() == {
        "date": 2 * len(OCCUPATIONS),
        "place": 2 * len(OCCUPATIONS),
    }


@slow
def test_behind_the_sentence_a_date_moves_nothing(work: Workplace) -> None:
    """The toy reads what stands before the blank."""
    work(*PLANTED, "--inject", "{text} It was {w}.", "--out", "behind")
    frame, table = observed(work, "behind"), table_of(work, "behind")
    assert frame["text"].tolist()[0] == "The baker said that ___ was late. It was 1901."
    assert (frame["text"].str[-13:] == [f" It was {year}." for year in frame["w"]]).all()
    assert table["delta_female"].to_numpy() == pytest.approx(np.zeros(len(table)), abs=1e-9)
    assert values_of(work, "behind", "auroc")["total_variation"] == 0.5
    assert manifest_of(work, "behind")["settings"]["inject"] == "{text} It was {w}."


OWN_TABLE = [
    ["id", "sentence", "cluster", "well_specified", "mood"],
    ["a", "The door of the bank stood [MASK].", "bank", "no", "plain"],
    ["b", "The door that they opened stood [MASK].", "bank", "yes", "plain"],
    ["c", "The gate of the farm stood ___.", "farm", "No", "odd"],
    ["d", "The gate that they closed stood {blank}.", "farm", "TRUE", "odd"],
]


def test_a_table_of_ones_own_with_words_of_ones_own(work: Workplace) -> None:
    with (work.folder / "doors.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(OWN_TABLE)
    options = "open: open, ajar; shut: shut"
    printed = work.json(*RUN, "--challenge", "doors.csv", "--options", options, "--out", "doors")
    assert printed["counts"]["items"] == printed["counts"]["computed"] == 8
    odds = {word: math.exp(-1 - unit(f" {word}")) for word in ("open", "ajar", "shut")}
    expected = 100 * (odds["open"] + odds["ajar"]) / sum(odds.values())
    frame, table = observed(work, "doors"), table_of(work, "doors")
    assert frame["open"].to_numpy() == pytest.approx(np.full(8, expected))
    assert frame["shut"].to_numpy() == pytest.approx(np.full(8, 100 - expected))
    assert frame["unclaimed"].to_numpy() == pytest.approx(np.full(8, 100 * (1 - sum(odds.values()))))
    assert table[["sentence", "cluster", "well_specified", "mood"]].to_numpy().tolist() == [
        ["a", "bank", False, "plain"],
        ["b", "bank", True, "plain"],
        ["c", "farm", False, "odd"],
        ["d", "farm", True, "odd"],
    ]
    assert list(values_of(work, "doors", "auroc")) == [
        "delta_open",
        "delta_shut",
        "total_variation",
        "jensen_shannon",
        "entropy",
    ]  # two groups of sentences are too few to fit anything to
    assert set(values_of(work, "doors", "auroc").values()) == {0.5}
    assert len(table_of(work, "doors", "occupations")) == 2
    assert "open: open, ajar; shut: shut" in (work.folder / "doors/report.html").read_text(encoding="utf-8")


def test_of_sentences_of_unknown_kind_only_the_share_that_moves_is_told(work: Workplace) -> None:
    text = "sentence\n" + "".join(f"The {who} said that ___ was late.\n" for who in OCCUPATIONS)
    (work.folder / "unknown.csv").write_text(text, encoding="utf-8")
    printed = work.json(*RUN, "--challenge", "unknown.csv", "--threshold", "4.5", "--out", "unknown")
    rows = work.results("unknown")
    assert {row["measure"] for row in rows} == {"flagged"}
    # Among eight pronouns the planted movement of she is smaller than among three, but every sentence shows it.
    table = table_of(work, "unknown")
    shares = {row["group"]["score"]: (row["value"], row["n"], row["detail"]) for row in rows}
    assert shares["delta_female"] == ((table["delta_female"] > 4.5).mean(), len(OCCUPATIONS), {"threshold": 4.5})
    assert table["delta_female"].min() > 4.5
    assert shares["delta_neutral"][0] == 0.0
    (finding,) = printed["findings"]
    assert finding["found"] is True
    assert finding["text"].startswith(
        f"In 100% of {len(OCCUPATIONS)} sentences female mass moves by more than 4.5 points between 1901 and 2016"
    )
    assert finding["text"].endswith("; whether they decide their blank was not said.")
    assert [path.name for path in (work.folder / "unknown/tables").iterdir()] == ["sentences.csv"]
    assert "well_specified" not in table


OWN_CHALLENGE = """
title = "Who was late"
words = "pronouns"
w = ["date"]
clusters = ["who"]
[slots]
who = ["baker", "driver", "judge"]
[[templates]]
text = "The {who} said that {blank} was late."
factors = { well_specified = false }
[[templates]]
text = "The woman, a {who}, said that {blank} was late."
factors = { well_specified = true, gold = "female" }
"""


@slow
def test_a_challenge_file_without_a_place_for_w(work: Workplace) -> None:
    (work.folder / "late.toml").write_text(OWN_CHALLENGE, encoding="utf-8")
    printed = work.json(*RUN, "--challenge", "late.toml", "--out", "late")
    assert printed["counts"]["items"] == 12
    frame, table = observed(work, "late"), table_of(work, "late")
    assert frame["text"].iloc[0] == "In 1901: The baker said that ___ was late."
    assert table["well_specified"].tolist() == [False] * 3 + [True] * 3
    assert table["cluster"].tolist() == ["baker", "driver", "judge"] * 2
    expected = [
        moved(f"In {{w}}: {'The woman, a' if knows else 'The'} {who}{',' if knows else ''} said that")
        for knows, who in zip(table["well_specified"], table["cluster"], strict=True)
    ]
    assert table["delta_female"].to_numpy() == pytest.approx(np.array(expected))
    assert "Who was late" in (work.folder / "late/report.html").read_text(encoding="utf-8")
    assert len(table_of(work, "late", "occupations")) == 3


@slow
def test_w_goes_into_sentences_of_the_other_audit_too(work: Workplace) -> None:
    given = ["run", "spurious-correlation", "-m", "toy", "--challenge", "planted.csv", "--inject", "In {w}: "]
    work(*given, "--out", "drift")
    slopes = {row["group"]["pronoun"]: row["value"] for row in work.results("drift") if row["measure"] == "slope"}
    # Half of the sentences move: ten points a century of 0.80, over 29 steps of 215 years.
    planted_slope = 10 / 100 / 0.80 * 215 / 29 / 2
    assert slopes["female"] == pytest.approx(planted_slope, abs=0.03)
    assert slopes["male"] == pytest.approx(-planted_slope, abs=0.03)
    assert observed(work, "drift")["text"].iloc[0] == "In 1801: The baker said that ___ was late."
    schemas = ["run", "spurious-correlation", "-m", "toy", "--challenge", "undertow-schemas", "--inject", "In {w}: "]
    printed = work.json(*schemas, "--w", "place", "--limit", "100", "--out", "places")
    assert printed["counts"]["items"] == 100
    assert {row["group"]["challenge"] for row in work.results("places")} == {"undertow-schemas"}
    assert {row["group"]["w_name"] for row in work.results("places")} == {"place"}


# Sentences printed.


def test_sentences_are_printed_with_w_in_them(work: Workplace) -> None:
    lines = work("challenge", "undertow-schemas", "--inject", "In {w}: ", "--w", "place").stdout.splitlines()
    places = challenge.spectrum("place").values
    plain = [item.query.shown() for item in challenge.sentences("undertow-schemas").plain()]  # type: ignore[union-attr]
    assert lines[0] == "w_name\tw\ttext"
    assert lines[1:-1] == [f"place\t{place}\tIn {place}: {text}" for place in places for text in plain]
    assert lines[-1] == "9,600 texts; the blank takes female: she, her; male: he, his, him; neutral: they, their, them"


@slow
def test_sentences_with_one_person_are_printed_as_they_stand(work: Workplace) -> None:
    printed = work.json("challenge", "simplified")
    assert printed["challenge"] == "simplified"
    texts = [row["text"] for row in printed["items"]]
    assert len(texts) == len(set(texts)) == len(challenge.sentences("simplified").sentences)
    assert len(texts) % 3 == 0
    for start in range(0, len(texts), 3):
        rows = printed["items"][start : start + 3]
        who = rows[0]["occupation"]
        assert [row["participant_class"] for row in rows] == ["female", "male", "unspecified"]
        assert [row["well_specified"] for row in rows] == [True, True, False]
        rest = texts[start].removeprefix(f"The female {who} said that ___")
        assert texts[start : start + 3] == [f"The {sex}{who} said that ___{rest}" for sex in ("female ", "male ", "")]


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--challenge", "schemas"], ["no challenge called 'schemas'", "undertow-schemas"]),
        (["--inject", "Once: "], ["has no place for the value", "write {w}"]),
        pytest.param(["--inject", "{v} {w}: "], ["has a hole {v}"], marks=slow),
        pytest.param(["--w", ","], ["--w names no W list"], marks=slow),
        pytest.param(["--w", "date,date"], ["--w names two lists called 'date'", "name each once"], marks=slow),
        pytest.param(["--date-count", "1"], ["date count 1 is too small", "at least 2 years"], marks=slow),
        pytest.param(["--ends", "0"], ["--ends 0 is too small"], marks=slow),
        pytest.param(["--ends", "2"], ["--ends 2 needs 4 W values", "--date-count"], marks=slow),
        pytest.param(["--threshold", "-1"], ["--threshold -1.0 must be 0 or more"], marks=slow),
        (["--follow", "wizard"], ["--follow 'wizard' is no occupation of undertow-schemas", "technician"]),
        pytest.param(["--options", "a: b; c: d"], ["has word groups of its own", ".csv or .tsv"], marks=slow),
        pytest.param(["--data-dir", "."], ["is not read from a folder"], marks=slow),
        pytest.param(["--challenge", "nosuch.csv"], ["nosuch.csv: there is no such file of sentences"], marks=slow),
        pytest.param(["--challenge", "mgc"], ["'mgc'", "has its own place for W"], marks=slow),
        pytest.param(["--protocol", "paper"], ["toy", "no protocol 'paper'", "use exact"], marks=slow),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is(
    arguments: list[str], words: list[str], cli: Cli, tmp_path: Path
) -> None:
    refused(cli(*RUN, *arguments), *words)
    assert list(tmp_path.iterdir()) == []
    assert not store_file().exists()


def test_sentences_without_a_place_for_w_are_not_asked_about_drift(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "spurious-correlation", "-m", "toy", "--challenge", "undertow-schemas")
    refused(done, "'undertow-schemas' has no place for W in its sentences", "--inject 'In {w}: '")
    assert list(tmp_path.iterdir()) == []
