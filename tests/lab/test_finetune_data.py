"""From texts to masked examples: which words are masked, what stands in front, what is left out, what is said of bad files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from undertow.errors import UndertowError
from undertow.lab.training import finetune_data
from undertow.lab.training.finetune_data import Masker, labels_of, mask_all, read, word_groups
from undertow.lab.training.training_config import FinetuneConfig, FinetuneOptions

ICML = word_groups("icml")
MASK = Masker(ICML)


def masked(text: str, words: Any = None) -> tuple[str, tuple[str, ...]] | None:
    example = (Masker(words) if words else MASK)(text)
    return (example.masked_text("_"), example.labels) if example else None


def written(folder: Path, *lines: object) -> Path:
    path = folder / "lives.jsonl"
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "shown", "labels"),
    [
        ("She was a painter.", "_ was a painter.", ("female",)),
        ("HIS brother saw her.", "_ _ saw _.", ("male", "male", "female")),
        ("A woman's wish, himself.", "A _'s wish, _.", ("female", "male")),
        ("He-man (she)", "_-man (_)".replace("man", "_"), ("male", "male", "female")),
        ("\nhe\tHer  \u00a0him\n", "\n_\t_  \u00a0_\n", ("male", "female", "male")),
    ],
)
def test_every_listed_word_becomes_one_mask(text: str, shown: str, labels: tuple[str, ...]) -> None:
    assert masked(text) == (shown, labels)


@pytest.mark.parametrize("text", ["The shepherd met them there.", "mankind, human, hers, he_x, actors", "", "Ѕhe"])
def test_other_words_are_left_alone(text: str) -> None:
    """Pieces of words, words with an underscore or a letter more, and letters of another script."""
    assert masked(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('ze = "ze"\nxe = ["xe"]\n', "ze must be a list of words"),
        ('ze = ["ze", "zir"]\nxe = ["xe", "Ze"]\n', r"own\.toml: 'Ze' is of groups ze and xe"),
    ],
)
def test_groups_of_words_are_lists_and_no_word_is_of_two(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UndertowError, match=said):
        word_groups(str(path))
    path.write_text('ze = ["ze"]\nxe = ["xe", "xem"]\n')
    assert labels_of(str(path)) == ("ze", "xe")
    with pytest.raises(UndertowError, match="'They' is of groups a and b"):
        Masker({"a": ["they", "she"], "b": ["They"]})
    with pytest.raises(UndertowError, match="two groups"):
        Masker({"a": ["they"]})


def test_objects_without_words_or_values_are_left_out_and_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"text": "She was a painter.", "year": 1801.0, "place": "Peru"},
        {"text": "They painted.", "year": 1801, "place": "Peru"},
        "",
        {"text": "He was a painter.", "year": None, "place": "Peru"},
        {"text": "He was a painter.", "year": 1802, "place": " "},
        {"text": None, "year": 1802, "place": "Peru"},
        {"text": "He was a baker.", "year": 0, "place": "Peru"},
    )
    found = mask_all(read(str(path)), ICML, FinetuneOptions(metadata_fields=("year",), required_fields=("place",)))
    assert [one.before for one in found.examples] == ["1801. ", "0. "]
    assert (found.n_objects, found.n_without_words, found.n_without_metadata) == (6, 2, 2)
    plain = mask_all(read(str(path)), ICML, FinetuneOptions(required_fields=("year", "place")))
    assert [one.pieces for one in plain.examples] == [one.pieces for one in found.examples]
    assert len(mask_all(read(str(path)), ICML, FinetuneOptions()).examples) == 4
    assert len(mask_all(read(str(path)), ICML, FinetuneOptions(max_texts=2)).examples) == 2


@pytest.mark.parametrize("none", [float("nan"), -float("inf"), Decimal("nan"), pd.NaT, pd.NA, None, ""])
def test_a_value_that_is_none_is_left_out_and_counted_like_null(none: Any) -> None:
    rows = [("row 1", {"text": "She was a painter.", "year": none}), ("row 2", {"text": "He was.", "year": 1801})]
    for wanted in (FinetuneOptions(metadata_fields=("year",)), FinetuneOptions(required_fields=("year",))):
        found = mask_all(rows, ICML, wanted)
        assert [one.labels for one in found.examples] == [("male",)]
        assert (found.n_objects, found.n_without_words, found.n_without_metadata) == (2, 0, 1)
    found = mask_all([("row 1", {"text": none})], ICML, FinetuneOptions())
    assert (found.examples, found.n_without_words) == ((), 1)


@pytest.mark.parametrize("value", [{"a": 1}, np.array([1.0, 2.0])])
def test_what_is_neither_text_nor_number_is_refused(value: Any) -> None:
    with pytest.raises(UndertowError, match="row 1: field 'year' must be text or a number"):
        mask_all([("row 1", {"text": "She was.", "year": value})], ICML, FinetuneOptions(metadata_fields=("year",)))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"text": "She was."}', '{"text": "He was"'], "line 2: "),
        (['{"text": "She was."}', "", "[1]"], r"line 3: .*'\[1\]'"),
        (['{"text": "She was."}', '{"body": "He was."}'], "line 2: .*'text'.*'body'"),
        (['{"text": "She \\ud800"}'], "line 1: .*'text'"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(UndertowError, match=rf"lives\.jsonl, {said}"):
        mask_all(read(str(path)), ICML, FinetuneOptions())


def test_a_field_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": "She was.", "year": 1}, {"text": "He was.", "place": 1})
    with pytest.raises(UndertowError, match=r"line 2: has no field 'year'; its fields are 'text', 'place'"):
        mask_all(read(str(path)), ICML, FinetuneOptions(metadata_fields=("year",)))
    for fields in (("text",), ("date", "place", "date")):
        with pytest.raises(UndertowError, match=f"'{fields[-1]}'"):
            FinetuneOptions(metadata_fields=fields)
    with pytest.raises(UndertowError, match=r"no\.jsonl"):
        list(read(str(tmp_path / "no.jsonl")))


def test_a_file_is_looked_at_before_a_base_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(base: object, out: object, revision: str) -> None:
        raise UndertowError("the base was looked for")

    monkeypatch.setattr(finetune_data, "check_ends", asked)
    monkeypatch.setattr(finetune_data, "LOOKED_AT", 3)
    good, bad = {"text": "She was."}, '{"text"'
    for lines, said in (
        ([good, good, bad], "line 3: is not JSON"),
        ([], "is empty"),
        ([{"text": "They."}], "none of 1 texts"),
        ([{"text": "They."}] * 3, "the base was looked for"),
        ([good, good, good, bad], "the base was looked for"),
    ):
        with pytest.raises(UndertowError, match=said):
            finetune_data.finetune(
                "base", str(written(tmp_path, *lines)), tmp_path / "out", FinetuneConfig(labels_of("icml"))
            )


# The data sets of the paper: their layout as published, and the package that reads them, played by a stand-in.


def wikibio_row(text: str, **fields: str) -> dict[str, Any]:
    table = {"column_header": list(fields), "row_number": [1] * len(fields), "content": list(fields.values())}
    return {"input_text": {"table": table, "context": "someone\n"}, "target_text": text}


def play(monkeypatch: pytest.MonkeyPatch, rows: Iterator[dict[str, Any]]) -> list[Any]:
    asked: list[Any] = []

    def load_dataset(name: str, **options: Any) -> Iterator[dict[str, Any]]:
        asked.append((name, options))
        return rows

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_data_sets_of_the_hub_give_text_and_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        wikibio_row("she was a painter .", birth_date="15 july 1953", birth_place="bamako , mali\n", name="someone"),
        wikibio_row("he was a painter .", birth_date="unknown", birth_place="lima"),
        wikibio_row("he was a baker .", birth_place="lima"),
        wikibio_row("he was a baker .", birth_date="c. 1801 or 1802", birth_place="", name="someone"),
        wikibio_row("he was a baker .", birth_date="12345", birth_place="lima"),
    ]
    asked = play(monkeypatch, iter(rows))
    found = mask_all(read("wikibio"), ICML, FinetuneOptions(metadata_fields=("birth_date", "birth_place")))
    assert [one.masked_text("_") for one in found.examples] == ["1953. bamako , mali. _ was a painter ."]
    assert found.n_without_metadata == 4
    assert asked == [
        ("michaelauli/wiki_bio", {"revision": "refs/convert/parquet", "split": "train", "streaming": True})
    ]
    play(monkeypatch, iter(rows))
    dated = mask_all(read("wikibio"), ICML, FinetuneOptions(metadata_fields=("birth_date",)))
    assert [one.before for one in dated.examples] == ["1953. ", "1801. "]
    asked = play(monkeypatch, iter([{"content": "My sister has a cat.", "summary": "Cat.", "subreddit": "aww"}]))
    found = mask_all(read("reddit-tldr"), ICML, FinetuneOptions(metadata_fields=("subreddit",)))
    assert [one.masked_text("_") for one in found.examples] == ["aww. My _ has a cat."]
    assert asked[0][0] == "webis/tldr-17"


def test_a_hub_that_fails_is_told_with_the_row_it_failed_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield wikibio_row("she was a painter .")
        raise ConnectionError("no route\nto the host")

    play(monkeypatch, failing())
    with pytest.raises(UndertowError, match=r"cannot be read from the hub after 1 rows \(ConnectionError: no route\)"):
        mask_all(read("wikibio"), ICML, FinetuneOptions())
    play(monkeypatch, iter([{"text": "another layout"}]))
    with pytest.raises(UndertowError, match=r"after 1 rows \(KeyError: 'input_text'\)"):
        mask_all(read("wikibio"), ICML, FinetuneOptions())
