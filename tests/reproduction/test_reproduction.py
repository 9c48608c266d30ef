"""Tables and figures of the papers by number: the catalog, published beside computed numbers, and models of several families."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import undertow
from conftest import ROOT, Cli
from helpers.answering import answers_only
from undertow import models
from undertow.audits.base import preset_options
from undertow.errors import UndertowError
from undertow.reproduction import artefacts, contents, reproduce
from undertow.reproduction.catalog import published
from undertow.runs.config import RunConfig

NUMBERS = {
    "000": "figure-1 figure-2 table-1 figure-3a figure-3b figure-3c table-2 figure-4 figure-5 figure-6 table-3 figure-7 figure-8 figure-9 "
    "figure-10 figure-11 figure-12 figure-13 figure-14 figure-15",
    "001": "figure-1 figure-2 table-1 figure-3 table-2 figure-4 figure-5 figure-6 figure-7 table-3 figure-8 figure-9 figure-10 figure-11",
    "002": "figure-1 table-1 table-2 table-3 table-4 table-5 table-6 table-7 table-8 table-9 table-10 "
    "table-a1 table-a2 table-a3 table-a4 table-a5 table-a6 table-a7 table-a8",
    "003": "figure-1 table-1 figure-2 table-2 table-3",
    "004": "table-1 table-2 table-3 figure-1",
}
"""Captions of the five papers."""


@pytest.fixture(autouse=True)
def one_format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are written as SVG alone, and the first one for phones too, but for the test that looks at all."""
    if "families" in request.fixturenames:
        monkeypatch.setattr("undertow.report.inline_svg.MAX_PHONE_FIGURES", 100)
    else:
        monkeypatch.setattr("undertow.report.style.FIGURE_FORMATS", ("svg",))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_table_and_figure_of_the_papers_is_listed_and_made_or_has_a_reason() -> None:
    assert list(artefacts()) == [
        f"{paper}:{number}" for paper, numbers in NUMBERS.items() for number in numbers.split()
    ]
    assert all(bool(one.make) != bool(one.why) for one in artefacts().values())
    known = {one.id for one in artefacts().values() if len(published(one.id))}
    assert known >= {"000:table-2", "000:table-3", "002:table-9", "003:table-2"}


def test_published_rates_stand_above_computed_ones_with_n(tmp_path: Path) -> None:
    # Four sentences that decide, of which one moves, and two that do not, which both do: TPR 1, TNR .75, and .875 in between.
    rows = [
        "set,model,prompt,occupation,participant,participant_class,coreferent,"
        "w_first_female,w_first_male,w_first_neutral,w_last_female,w_last_male,w_last_neutral"
    ]
    for at, (first, last) in enumerate([(50, 50), (50, 50), (50, 50), (50, 70)]):
        people, job = "man" if at % 2 else "woman", f"job{at}" if at else "doctor"
        rows.append(f"winogender,roberta-base,,{job},{people},{people},1,{first},{100 - first},0,{last},{100 - last},0")
    for at in range(2):
        rows.append(f"winogender,roberta-base,,{f'job{at}' if at else 'doctor'},someone,someone,1,50,50,0,80,20,0")
    rows += [row.replace("winogender,", "simplified,").replace(",1,", ",0,") for row in rows[1:]]
    with gzip.open(tmp_path / "specification_pronoun_mass.csv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
    page, *files = reproduce("000:table-3", recorded=tmp_path, out=tmp_path / "out")["000:table-3"]
    table = rows_of(page.parent / "000-table-3.csv")
    (of_paper,) = [row for row in table if row["model"] == "RoBERTa-base" and row["source"] == "published"]
    (own,) = [row for row in table if row["model"] == "RoBERTa-base" and row["words"] == "female"]
    names = ["winogender TPR", "winogender TNR", "winogender BA"]
    assert [of_paper[name] for name in names] == ["0.758", "0.775", "0.767"]
    assert [own[name] for name in names] == ["1.000", "0.750", "0.875"]
    assert (own["source"], own["winogender n"], of_paper["winogender n"]) == ("from published outputs", "6", "–")
    assert table.index(own) == table.index(of_paper) + 1
    assert {path.suffix for path in files} == {".csv", ".md", ".tex"}
    assert r"\toprule" in (page.parent / "000-table-3.tex").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert "a mixture of the female, the male and the neutral ones" in text
    assert "Computed from the published outputs: roberta-base (n = 12 items in 4 clusters)." in text
    assert "your models" not in text
    (page, *_) = reproduce("000:table-2", recorded=tmp_path, out=tmp_path / "out")["000:table-2"]
    assert "Computed from the published outputs: roberta-base (n = 4 items in 1 cluster)." in page.read_text(
        encoding="utf-8"
    )


@pytest.fixture
def families(network: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A masked model and one that answers prompts."""
    before = models.resolve
    monkeypatch.setattr(
        models, "resolve", lambda request: answers_only(request) if request.name == "server" else before(request)
    )
    return [network("trained_roberta"), "server"]


def test_models_of_several_families_stand_in_one_figure(families: list[str], tmp_path: Path) -> None:
    made = reproduce("000:figure-3c", families, out=tmp_path, limit=48)["000:figure-3c"]
    assert {path.suffix for path in made} == {".html", ".pdf", ".png", ".svg"}
    (run,) = (undertow.load_run(folder) for folder in (tmp_path / "runs").iterdir())
    prompts = run.observations.groupby("model")["prompt"].agg(lambda of: ",".join(sorted(set(of))))
    assert prompts.to_dict() == {families[0]: "", families[1]: "A,B,C"}
    assert run.manifest["protocol"] == "paper"
    assert set(run.manifest["design"]["words"]["female"]) >= {"she", "her", "female"}
    svg = next(path for path in made if path.suffix == ".svg").read_text(encoding="utf-8")
    assert "<text" in svg
    page = made[0].read_text(encoding="utf-8")
    assert "Computed from runs of your models with --limit 48: " in page
    assert "the published outputs" not in page
    assert "<img" not in page
    # Each figure for a wide page and for a phone, with the values that a pointer shows.
    assert page.count("<svg") == 2 * len([path for path in made if path.suffix == ".svg"])
    assert 'class="hover"' in page


def test_a_folder_without_the_published_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"mgc_pronoun_mass.csv.gz: there is no such file"):
        reproduce("000:figure-3b", recorded=tmp_path, out=tmp_path / "out")


def test_prompts_are_refused_where_no_model_takes_them(families: list[str], tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match="--prompts is for models that answer prompts"):
        undertow.audit("spurious-correlation", families[0], prompts="A", limit=48, out=tmp_path / "run")


def test_words_of_a_list_fill_every_blank_of_task_specification(tmp_path: Path) -> None:
    run = undertow.audit("task-specification", "toy", words="aaai", limit=24, out=tmp_path / "run")
    assert set(run.observations["options"].iloc[0]) == {
        *("She", "Her", "Female", "she", "her", "female"),
        *("He", "Him", "His", "Male", "he", "him", "his", "male", "They", "they"),
    }
    with pytest.raises(UndertowError, match=r"there is no word list and no file .*; use pronouns, aaai, icml"):
        undertow.audit("task-specification", "toy", words="aai", out=tmp_path / "other")


@pytest.mark.parametrize(
    ("challenge", "words", "last"), [("mgc", "aaai", "2016"), ("mgt", "icml", "2001"), ("mgt-icml", "icml", "2011")]
)
def test_the_preset_of_a_paper_sets_its_words_dates_and_protocol(
    challenge: str, words: str, last: str, tmp_path: Path
) -> None:
    run = undertow.audit(
        "spurious-correlation", "toy", preset="paper", challenge=challenge, w="date", limit=96, out=tmp_path / "run"
    )
    assert run.manifest["protocol"] == "paper"
    assert run.manifest["settings"]["words"] == words
    assert run.observations["w"].max() == last
    assert "--preset" not in run.manifest["command"]


def test_the_preset_of_the_tasks_of_bias_in_text_sets_shots_decoding_and_all_wordings() -> None:
    for audit in ("bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"):
        _, settings, protocol = RunConfig.from_keywords(audit, "toy", {"preset": "paper"}).resolve()
        assert settings.shots == "0,5,10,20"
        assert protocol == ("paper" if audit == "bias-identification" else "exact")
    assert preset_options("paper", "bias-diagnosis", "cad")["n_documents"] == 1209
    assert "n_documents" not in preset_options("paper", "bias-diagnosis", "own.csv")
    assert preset_options("paper", "bias-extraction", "cad") == {
        "wordings": 0, "shots": "0,5,10,20", "decoding": "unconstrained,document,span", "temperature": 0.7,
    }  # fmt: skip


def test_command_lists_all_and_names_what_it_needs(cli: Cli, tmp_path: Path) -> None:
    assert cli("reproduce").stdout.count("\n") == 1 + len(artefacts())
    for name, reason in (
        ("000:figure-3d", "there is no table or figure '000:figure-3d'"),
        ("003:table-2", "003:table-2 needs a model: name a model with -m"),
        ("001:figure-10", "a screenshot of a web page"),
    ):
        failed = cli("reproduce", name, "--out", str(tmp_path))
        assert (failed.returncode, reason in failed.stderr) == (1, True)


@pytest.mark.parametrize(
    "name",
    [
        "000:table-1",
        "001:table-3",
        "002:table-1",
        "002:table-a4",
        "002:table-a5",
        "003:figure-1",
        "004:table-1",
        "004:table-2",
    ],
)
def test_what_needs_no_model_is_made(name: str, tmp_path: Path) -> None:
    page, *files = reproduce(name, out=tmp_path)[name]
    assert artefacts()[name].title in page.read_text(encoding="utf-8")
    assert files


def test_simulated_selection_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer people than the million of the paper: selection alone makes X and Y correlate, in either direction."""
    monkeypatch.setattr(contents, "N_PEOPLE", 20_000)
    page, *files = reproduce("001:figure-6", out=tmp_path)["001:figure-6"]
    rows = rows_of(page.parent / "001-figure-6.csv")
    about = [row for row in rows if (row["case"], row["x"], row["y"]) == ("unspecified", "X", "Y")]
    found = {(row["model"], row["selection"]): float(row["r"]) for row in about}
    assert abs(found["selected-on-sum", "before"]) < 0.05
    assert found["selected-on-sum", "after"] < -0.2
    assert ".svg" in {file.suffix for file in files}


def test_task_descriptions_are_as_many_as_the_paper_has(tmp_path: Path) -> None:
    page, *_ = reproduce("002:table-a4", out=tmp_path)["002:table-a4"]
    assert all(row["published"] == row["here"] for row in rows_of(page.parent / "002-table-a4.csv"))


def test_published_outputs_give_the_published_slopes(reference_data: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(reference_data / "recorded/mgc_pronoun_mass.csv.gz", dtype=str, keep_default_na=False)
    some = rows[rows["model"].isin(["bert-base-uncased", "roberta-base"])]
    some.to_csv(tmp_path / "mgc_pronoun_mass.csv.gz", index=False)
    page, *_ = reproduce("000:figure-3b", recorded=tmp_path, out=tmp_path)["000:figure-3b"]
    (bert,) = [row for row in rows_of(page.parent / "000-figure-3b.csv") if row["model"] == "bert-base-uncased"]
    assert (bert["female slope"], bert["female r"]) == ("0.550", "0.934")
    assert "unknown size" not in page.with_name("000-figure-3b_models_date_mgc_female-male.svg").read_text("utf-8")


def test_figures_have_the_width_of_a_column(recorded: Path) -> None:
    made = reproduce("000:figure-12", recorded=recorded, width=3.3, out=recorded / "out")["000:figure-12"]
    (svg,) = (path for path in made if path.suffix == ".svg")
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', svg.read_text(encoding="utf-8"))
    assert width is not None
    assert float(width[1]) / 72 == pytest.approx(3.3, abs=0.01)


@pytest.mark.soak
def test_docs_have_the_index_of_the_published_outputs(cli: Cli, reference_data: Path, tmp_path: Path) -> None:
    given = {"recorded": "recorded", "data-dir": "winogender", "documents": "cad"}
    options = [part for name, place in given.items() for part in (f"--{name}", str(reference_data / place))]
    assert cli("reproduce", "--all", *options, "--out", str(tmp_path)).returncode == 0
    index, _, _ = (tmp_path / "index.md").read_text(encoding="utf-8").partition("\n\n")
    assert index in (ROOT / "docs/development/artefacts.md").read_text(encoding="utf-8")


def test_an_index_says_what_was_made_and_why_the_rest_was_not(
    cli: Cli, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = {name: artefacts()[name] for name in ("000:figure-10", "000:figure-11", "001:figure-10", "003:table-2")}
    for module in ("", ".writing", ".catalog"):
        monkeypatch.setattr(f"undertow.reproduction{module}.artefacts", lambda: some)
    assert cli("reproduce", "--all", "--recorded", str(recorded), "--out", str(recorded / "out")).returncode == 0
    rows = (recorded / "out/index.md").read_text(encoding="utf-8").splitlines()[2:6]
    assert [row.split(" | ")[-1].rstrip(" |") for row in rows] == [
        "1 figure",
        "shows denoising models, and none of these is one",
        "–",
        "needs a model: name a model with -m",
    ]
    page = (recorded / "out/index.html").read_text(encoding="utf-8")
    assert '<a href="000-figure-10/index.html">000:figure-10</a>' in page


def test_docs_list_every_artefact_with_what_it_needs() -> None:
    page = (ROOT / "docs/development/artefacts.md").read_text(encoding="utf-8").replace("\\`", "`")
    for one in artefacts().values():
        assert f"| {one.id} | {one.title} | {one.needs} |" in page


SENTENCES = (
    "set,model,prompt,occupation,participant,participant_class,coreferent,"
    "w_first_female,w_first_male,w_first_neutral,w_last_female,w_last_male,w_last_neutral\n"
) + "".join(
    f"winogender,{model},{prompt},job{at},{people},{people},{whose},{30 + 10 * at},{70 - 10 * at},0,{35 + 10 * at},{65 - 10 * at},0\n"
    for model, prompt in (("bert-base-uncased", ""), ("text-davinci-002", "A"))
    for at in range(3)
    for people in ("man", "someone")
    for whose in (0, 1)
)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / "specification_pronoun_mass.csv.gz", "wt", encoding="utf-8") as file:
        file.write(SENTENCES)
    return tmp_path


def test_figures_of_one_kind_of_model_show_these_alone_and_models_stand_side_by_side(recorded: Path) -> None:
    reasons: list[UndertowError] = []
    names = ["000:figure-5", "000:figure-10", "000:figure-11", "000:figure-12"]
    made = reproduce(names, recorded=recorded, out=recorded / "out", on_error=reasons.append)
    pictures = {name: [path.stem for path in paths if path.suffix == ".svg"] for name, paths in made.items()}
    assert list(pictures) == ["000:figure-5", "000:figure-10", "000:figure-12"]
    assert len(pictures["000:figure-5"]) == 3
    assert any("occupations-models" in stem for stem in pictures["000:figure-5"])
    assert ["bert" in stem for stem in pictures["000:figure-10"]] == [True]
    assert ["davinci" in stem for stem in pictures["000:figure-12"]] == [True]
    assert [str(reason) for reason in reasons] == ["000:figure-11: shows denoising models, and none of these is one"]


def test_all_fails_where_an_artefact_failed_and_skips_what_nobody_gave(
    cli: Cli, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = {name: artefacts()[name] for name in ("000:figure-3b", "000:figure-10", "001:figure-10", "003:table-2")}
    monkeypatch.setattr(undertow.reproduction, "artefacts", lambda: some)
    (recorded / "mgc_pronoun_mass.csv.gz").write_bytes(b"no table")
    failed = cli("reproduce", "--all", "--recorded", str(recorded), "--out", str(recorded / "out"))
    assert failed.returncode == 1
    assert "1 of 2 artefacts that these models and files allow failed; the first reason is" in failed.stderr
    assert "003:table-2 needs a model" in failed.stderr
    assert "000:figure-10" in failed.stdout


def test_words_come_from_a_file_in_either_audit(tmp_path: Path) -> None:
    words = tmp_path / "mine.toml"
    words.write_text('female = ["she"]\nmale = ["he"]\nneutral = ["ze", "xe"]\n', encoding="utf-8")
    for audit, challenge in (("spurious-correlation", "mgc"), ("task-specification", "undertow-schemas")):
        run = undertow.audit(audit, "toy", challenge=challenge, words=str(words), limit=48, out=tmp_path / audit)
        assert run.manifest["design"]["words"]["neutral"] == ["ze", "xe"]
    words.write_text('female = ["she"]\n', encoding="utf-8")
    with pytest.raises(UndertowError, match=r"mine.toml: needs at least two groups of words"):
        undertow.audit("spurious-correlation", "toy", words=str(words), out=tmp_path / "few")
