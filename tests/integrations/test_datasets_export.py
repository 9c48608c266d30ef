"""The dataset folder: its table, its card, whose texts it says they are; and, where the library is, that it loads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from undertow import audits, integrations
from undertow.audits.base import Sampling

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
