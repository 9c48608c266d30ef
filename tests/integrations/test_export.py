from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.file_refusal import assert_refused
from helpers.lm_eval_log import docs_of
from undertow import audits, integrations
from undertow.audits.base import Sampling
from undertow.cli.export import FORMATS
from undertow.integrations.export_format import ExportRequest
from undertow.integrations.item_codec import read_carried
from undertow.integrations.lm_eval import context_and_choices
from undertow.types import ClozeQuery, Option

SMALL: dict[str, Any] = {"w": "date", "date_count": 3}


def test_a_folder_is_written_whole_and_says_what_it_is(in_folder: Path) -> None:
    exported = integrations.export("lm-eval", "spurious-correlation", "out", limit=6, seed=3, **SMALL)
    assert (exported.folder, exported.format, exported.audit) == (Path("out"), "lm-eval", "spurious-correlation")
    marked = json.loads((in_folder / "out/undertow-export.json").read_text())
    assert marked["options"] == {"w": "date", "date_count": 3}
    assert (marked["items"], marked["seed"], marked["limit"]) == (exported.n_items, 3, 6)
    assert marked["command"] == (
        "undertow export lm-eval spurious-correlation --seed 3 --limit 6 --w date --date-count 3 --out out"
    )
    assert [path.name for path in in_folder.iterdir()] == ["out"]
    options: dict[str, Any] = {"w": ["date", "place"], "date_count": 3, "chat": True, "prompts": "A"}
    integrations.export("inspect", "spurious-correlation", "a b", limit=9, **options)
    assert json.loads((in_folder / "a b/undertow-export.json").read_text())["command"] == (
        "undertow export inspect spurious-correlation --limit 9 --w date,place --date-count 3"
        " --prompts A --chat --out 'a b'"
    )


def test_an_export_is_replaced_only_where_that_is_asked_for_and_anything_else_never(in_folder: Path) -> None:
    integrations.export("lm-eval", "spurious-correlation", "out", limit=6, **SMALL)
    (in_folder / "out/left.yaml").write_text("task: old")
    assert_refused(
        ("out", "--overwrite"), integrations.export, "datasets", "spurious-correlation", "out", limit=6, **SMALL
    )
    integrations.export("datasets", "spurious-correlation", "out", limit=6, overwrite=True, **SMALL)
    assert sorted(path.name for path in (in_folder / "out").iterdir()) == ["README.md", "data", "undertow-export.json"]
    (in_folder / "mine").mkdir()
    (in_folder / "mine/thesis.tex").write_text("x")
    for place in ("mine", "mine/thesis.tex"):
        assert_refused(
            (place,), integrations.export, "lm-eval", "spurious-correlation", place, limit=6, overwrite=True, **SMALL
        )
    assert (in_folder / "mine/thesis.tex").read_text() == "x"


def test_a_place_that_is_taken_meanwhile_is_left_alone(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = integrations.load("lm-eval")

    def write(asked: ExportRequest, folder: Path, place: Path) -> tuple[list[str], list[str]]:
        place.mkdir()
        (place / integrations.MARK).write_text("another's")
        return ["a name"], []

    monkeypatch.setattr(chosen, "write", write)
    assert_refused(
        ("out", "--overwrite"), integrations.export, "lm-eval", "spurious-correlation", "out", limit=6, **SMALL
    )
    assert [path.name for path in in_folder.iterdir()] == ["out"]
    assert (in_folder / "out" / integrations.MARK).read_text() == "another's"


@pytest.mark.parametrize(
    ("format_name", "audit", "options", "named"),
    [
        ("lm-eval", "occupation-checklist", {}, "occupation-checklist"),
        ("lm-eval", "bias-identification", {"limit": 4}, "lm-eval"),
        ("inspect", "bias-extraction", {"limit": 4}, "Inspect"),
        ("lm-eval", "spurious-correlation", {"prompts": "A", "limit": 6}, "--prompts"),
        ("lm-eval", "spurious-correlation", {"chat": True}, "--chat"),
        ("lm-eval", "spurious-correlation", {"date_count": "3"}, "date_count"),
        ("datasets", "bias-diagnosis", {"challenge": "cad"}, "abusive"),
        ("datasets", "bias-diagnosis", {"challenge": "."}, "abusive"),
        ("lm-eval", "no-such-audit", {}, "'no-such-audit'"),
        ("lm-evil", "spurious-correlation", {}, "did you mean 'lm-eval'"),
    ],
)
def test_an_audit_that_a_format_cannot_hold_is_refused(
    format_name: str, audit: str, options: dict[str, Any], named: str, in_folder: Path
) -> None:
    (in_folder / "cad_v1_1.tsv").write_text("x")
    assert_refused((named,), integrations.export, format_name, audit, "out", **options)
    assert [path.name for path in in_folder.iterdir()] == ["cad_v1_1.tsv"]
    assert integrations.names() == list(FORMATS) == ["datasets", "inspect", "lm-eval"]


AUDITS = [
    ("spurious-correlation", {"w": "date"}), ("spurious-correlation", {"prompts": "A", "w": "date"}),
    ("task-specification", {"entropy_baseline": True}),
    ("bias-diagnosis", {}), ("bias-identification", {}), ("bias-extraction", {}), ("bias-rephrasing", {}),
    ("occupation-checklist", {"n_pairs": 1, "n_occupations": 2}),
]  # fmt: skip


def exported(folder: Path, audit: str, **options: Any) -> tuple[pd.DataFrame, str]:
    integrations.export("datasets", audit, folder, **options)
    return pd.read_parquet(folder / "data/test.parquet"), (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("audit", "options"), AUDITS)
def test_every_question_is_a_row_whose_factors_are_columns(audit: str, options: dict[str, Any], tmp_path: Path) -> None:
    frame, card = exported(tmp_path / "out", audit, limit=40, **options)
    loaded = audits.load(audit)
    items = next(loaded.items(loaded.Settings(**options), Sampling(40, 0)))
    assert list(frame["item"]) == [item.id for item in items]
    assert list(frame["cluster"]) == [item.cluster for item in items]
    for factor, level in items[0].factors.items():
        name = f"factor_{factor}" if factor == "text" else factor
        assert frame[name].iloc[0] == level
        assert re.search(rf"\b{name}\b", card), name
    assert list(frame.columns[:5]) == ["item", "kind", "text", "options", "groups"]


def head_of(card: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_the_card_says_what_it_is_and_whose_the_texts_are(reference_data: Path, tmp_path: Path) -> None:
    _, card = exported(tmp_path / "a", "spurious-correlation", limit=30, w="date")
    head = head_of(card)
    assert (head["license"], head["size_categories"]) == ("apache-2.0", ["n<1K"])
    data_files = [{"split": "test", "path": "data/test.parquet"}]
    assert head["configs"] == [{"config_name": "default", "data_files": data_files}]
    assert "Word groups: female: she; male: he; neutral: they." in card
    winogender: dict[str, Any] = {"challenge": "winogender", "data_dir": str(reference_data / "winogender")}
    _, card = exported(tmp_path / "b", "task-specification", limit=8, **winogender)
    assert head_of(card)["license"] == "mit"
    assert "Rudinger, Naradowsky, Leonard and Van Durme 2018" in card
    # a user's own: no licence is claimed, and a title cannot break out of the head
    (tmp_path / "own.toml").write_text(
        'title = "a: \\"b\\"\\n---\\n# c"\ntemplates = ["In {w}, {blank} ran."]\nw = ["date"]\nwords = "pronouns"\n',
        encoding="utf-8",
    )
    (tmp_path / "w.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    own: dict[str, Any] = {"challenge": str(tmp_path / "own.toml"), "w": str(tmp_path / "w.txt")}
    _, card = exported(tmp_path / "c", "spurious-correlation", limit=3, **own)
    assert head_of(card)["license"] == "unknown"
    assert head_of(card)["pretty_name"] == 'a: "b"\n---\n# c (spurious-correlation)'
    assert "w.txt" in card


@pytest.mark.slow
def test_the_library_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    frame, _ = exported(tmp_path / "out", "task-specification", limit=20)
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["test"]
    assert loaded["test"].num_rows == len(frame)
    assert loaded["test"].column_names == list(frame.columns)
    assert loaded["test"][0]["options"] == list(frame["options"].iloc[0])


def blank(*pieces: str, fills: tuple[tuple[str, ...], ...] = (("she",), ("he",))) -> ClozeQuery:
    return ClozeQuery(pieces, tuple(Option("g", one) for one in fills))


@pytest.mark.parametrize(
    ("query", "context", "choices"),
    [
        (blank("In 1801, ", " was a child."), "In 1801,", [" she was a child.", " he was a child."]),
        (blank("", " was a child."), "", ["she was a child.", "he was a child."]),
        (blank(" ", " was."), "", [" she was.", " he was."]),
        (blank('"', ' was," they said.'), '"', ['she was," they said.', 'he was," they said.']),
        (blank("Passage:\n", " ran."), "Passage:", ["\nshe ran.", "\nhe ran."]),
        (
            blank("So ", " ", " late.", fills=(("she", "was"), ("they", "were"))),
            "So",
            [" she was late.", " they were late."],
        ),
    ],
)
def test_a_space_before_the_blank_goes_with_the_word(query: ClozeQuery, context: str, choices: list[str]) -> None:
    assert context_and_choices(query) == (context, choices)
    assert [context + choice for choice in choices] == query.texts()


def test_a_task_for_each_w_list_asks_what_a_run_asks(tmp_path: Path) -> None:
    exported = integrations.export("lm-eval", "spurious-correlation", tmp_path / "out", limit=60)
    assert list(exported.names) == ["undertow_mgc_date", "undertow_mgc_place"]
    audit = audits.load("spurious-correlation")
    items = next(audit.items(audit.Settings(), Sampling(60, 0)))
    docs = docs_of(tmp_path / "out")
    assert exported.n_items == len(items) == sum(map(len, docs.values()))
    assert [doc["item"] for task in exported.names for doc in docs[task]] == [item.id for item in items]
    found = [read_carried(doc["undertow"]) for task in exported.names for doc in docs[task]]
    assert [one.item for one in found] == items
    assert found[0].origin.design == {**audit.design(audit.Settings()), "protocol": "exact"}
    first = docs["undertow_mgc_date"][0]
    assert first["context"] == "In 1801,"
    assert first["groups"] == ["female", "male", "neutral"]
    assert [choice.split()[0] for choice in first["choices"]] == ["she", "he", "they"]


def test_the_yaml_names_columns_and_data_and_holds_no_code(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    folder = tmp_path / 'a "strange" höuse'
    integrations.export("lm-eval", "spurious-correlation", folder, limit=6, w="place")
    text = (folder / "undertow_mgc_place.yaml").read_text(encoding="utf-8")
    assert "!function" not in text
    task = yaml.safe_load(text)
    (data,) = task["dataset_kwargs"]["data_files"].values()
    assert Path(data) == folder / "undertow_mgc_place.jsonl"
    assert Path(data).is_file()
    doc = json.loads(Path(data).read_text(encoding="utf-8").splitlines()[0])
    assert {task["doc_to_text"], task["doc_to_choice"]} <= set(doc)
    assert (task["task"], task["tag"]) == ("undertow_mgc_place", "undertow")
    assert (task["output_type"], task["target_delimiter"], task["num_fewshot"]) == ("multiple_choice", "", 0)
