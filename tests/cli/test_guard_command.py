from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from helpers.cli_refusal import refused
from helpers.planted_guard import DECIDED, NOMINATIVE, UNDECIDED, planted_table
from helpers.shared_folders import contents
from helpers.workplace import Workplace, shared
from undertow._folders import cache_file
from undertow.runs.guard import AT_ONCE, Line, Verdict, check_out, write_verdicts

TOY = ["guard", "-m", "toy"]
PLANTED = ["--challenge", "planted.csv"]
FILE = [*TOY, *PLANTED, "--file", "sentences.jsonl", "--options", NOMINATIVE]
KEYS = [
    "text", "unspecified", "chance_percent", "advice", "rests_on", "percent", "scores",
    "other_words_percent", "missing_reason", "notes",
]  # fmt: skip
LINES: list[dict[str, Any]] = [
    {"text": UNDECIDED, "id": 7, "tags": ["a", {"b": None}]},
    {"text": "The door stood [MASK].", "options": "open: open; shut: shut", "note": "Türe 门"},
    {"text": DECIDED.replace("{blank}", "___"), "options": {"female": ["her"], "male": ["his"], "neutral": ["their"]}},
    {"verdict": "mine", "text": "The cook said that {blank} was late."},
]


@pytest.fixture(scope="module")
def work(shared_base: Path) -> Workplace:
    """A folder with sentences that the toy tells apart, and a file of sentences to judge with their verdicts."""

    def make(work: Workplace) -> None:
        planted_table(work.folder)
        lines = "\n\n   \n".join(json.dumps(line, ensure_ascii=False) for line in LINES)
        (work.folder / "sentences.jsonl").write_text(f"\ufeff{lines}\n", encoding="utf-8")
        assert work(*FILE, "--out", "verdicts.jsonl").stdout == ""

    return shared(shared_base, "check-text", make)


@pytest.fixture(scope="module")
def verdicts(work: Workplace) -> list[dict[str, Any]]:
    text = (work.folder / "verdicts.jsonl").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


def test_a_verdict_is_one_json_object(work: Workplace) -> None:
    verdict = work.json(*TOY, UNDECIDED, *PLANTED, "--options", NOMINATIVE)
    assert list(verdict) == KEYS
    assert (verdict["text"], verdict["unspecified"], verdict["missing_reason"]) == (UNDECIDED, True, "")
    assert verdict["chance_percent"] > 75


def test_every_line_comes_back_with_its_own_keys(verdicts: list[dict[str, Any]], work: Workplace) -> None:
    assert len(verdicts) == len(LINES)
    for line, given in zip(verdicts, LINES, strict=True):
        assert {key: value for key, value in line.items() if key != "verdict"} == {
            key: value for key, value in given.items() if key != "verdict"
        }
        assert list(line["verdict"]) == KEYS
    assert "Türe 门" in (work.folder / "verdicts.jsonl").read_text(encoding="utf-8")
    printed = work(*FILE).stdout
    assert [json.loads(line) for line in printed.removesuffix("\n").split("\n")] == verdicts


def test_a_file_that_was_stopped_half_way_is_no_file(tmp_path: Path) -> None:
    """So that the same command can be given again."""
    lines = [Line({}, UNDECIDED, NOMINATIVE)] * (AT_ONCE + 1)
    out = tmp_path / "verdicts.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write_verdicts(StoppedGuard(), lines, out)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    check_out(out)


class StoppedGuard:
    """Someone presses Ctrl-C while it asks for the second time."""

    calls = 0

    def check(self, sentences: list[tuple[str, str]]) -> list[Verdict]:
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt
        return [Verdict(text, None, math.nan, "", "", {}, {}, math.nan, "") for text, _ in sentences]


GOOD = b'{"text": "The cook said ___ ran."}\n'
TO_OUT = ["--file", "s.jsonl", "--out", "verdicts.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "content", "words"),
    [
        ([], GOOD, ["--file"]),
        ([UNDECIDED, "--file", "s.jsonl"], GOOD, ["--file"]),
        ([UNDECIDED, "--inject", "Once"], GOOD, ["{w}"]),
        ([UNDECIDED, "--options", "she, he"], GOOD, ["she, he"]),
        (["--file", "s.jsonl", "--out", "mine.jsonl"], GOOD, ["mine.jsonl", "--out"]),
        (TO_OUT, GOOD + b'\n{"text": "The cook ran."}\n', ["s.jsonl", "line 3"]),
        (TO_OUT, GOOD + b'{"text": "a ___", "options": {"one": "she", "other": "he"}}\n', ["s.jsonl", "group 'one'"]),
        (TO_OUT, GOOD + b'{"text": "a ___", "option": "she; he"}\n', ["s.jsonl", "line 2", "'option'", "'options'"]),
        (TO_OUT, GOOD + b'{"text": "a \xff ___"}\n', ["s.jsonl", "byte 47"]),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_asked_or_written(
    arguments: list[str], content: bytes, words: list[str], cli: Cli, tmp_path: Path
) -> None:
    files = {"s.jsonl": content, "mine.jsonl": b"mine"}
    for name, held in files.items():
        (tmp_path / name).write_bytes(held)
    refused(cli(*TOY, *arguments), *words)
    assert contents(tmp_path) == files
    assert not cache_file().exists()
