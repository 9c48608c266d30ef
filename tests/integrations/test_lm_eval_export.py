"""Tasks of lm-evaluation-harness: their text, and that they ask what a run asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.lm_eval_log import docs_of
from undertow import audits, integrations
from undertow.audits.base import Sampling
from undertow.integrations.item_codec import read_carried
from undertow.integrations.lm_eval import context_and_choices
from undertow.types import ClozeQuery, Option


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
