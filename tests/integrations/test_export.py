"""What is exported and what is refused, whatever the form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.file_refusal import assert_refused
from undertow import audits, integrations
from undertow.audits.base import Sampling
from undertow.cli.export import FORMATS
from undertow.integrations.export_format import ExportRequest
from undertow.integrations.item_codec import carried_texts
from undertow.types import Item

SMALL: dict[str, Any] = {"w": "date", "date_count": 3}


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


# What every question carries.


def asked(*items: Item) -> ExportRequest:
    return ExportRequest(
        "spurious-correlation", {"w": "date"}, 1, 9, "f00", {"groups": ["a"]}, len(items), items, "undertow export ..."
    )


def test_a_question_without_options_to_compare_is_not_carried() -> None:
    audit = audits.load("bias-identification")
    items = next(audit.items(audit.Settings(), Sampling(4, 0)))
    with pytest.raises(TypeError, match="Choice"):
        carried_texts(asked(items[0]))
