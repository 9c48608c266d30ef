"""Names, words and values of a file that end lines, move cursors or mark up text: no output takes them for something that it says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from markdown_it import MarkdownIt

import undertow
from helpers.command_line import in_process

FORGED = "* FORGED"
SIGNS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2J", "\x9b2J", "\u202e", "\t")
MARKED = "\n\n# head\n| a | b |\n|---|---|\n```\n- **bold** [x](y) `c` <b>d</b> &lt; ~~e~~ _f_"
HARM = "".join(f"{sign}{FORGED}" for sign in SIGNS) + MARKED
CHALLENGE = """
title = TITLE
source = SOURCE
templates = ["In {w}, {one} SANG for friends."]
gaps = [[XE, "ze"]]
[w]
SEASON = [SPRING, "summer", "autumn", "winter"]
[blanks.one]
XE = [WORD, "xem"]
ze = ["ze", "zir"]
"""
RULES = '[[rule]]\nname = "r"\nmeasure = "slope"\nof = "size"\nat_most = -1\nwhere = {pronoun = [PRONOUN]}\n'


def written(folder: Path, harm: str) -> dict[str, str]:
    """What is printed and written where every name ends so, by its place."""
    folder.mkdir()
    challenge, rules = CHALLENGE, RULES
    for name in ("TITLE", "SOURCE", "SEASON", "SPRING", "XE", "WORD"):
        challenge = challenge.replace(name, json.dumps(f"{name.lower()}{harm}"))
    (folder / "c.toml").write_text(challenge, encoding="utf-8")
    (folder / "rules.toml").write_text(rules.replace("PRONOUN", json.dumps(f"male{harm}")), encoding="utf-8")
    rows = [
        {"model": model, "challenge": f"c{harm}", "w_name": f"w{harm}", "w_index": at, "w": f"{at}{harm}", "cluster": cluster,
         f"female{harm}": 30.0 + at * len(model) % 7, f"male{harm}": 40.0 - at % 4}
        for model in ("m", f"n{harm}") for cluster in "ab" for at in range(9)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "t.parquet")
    run = ("run", "spurious-correlation", "-m", "toy", "--challenge", "c.toml")
    commands = {
        "run": (*run, "--out", "run"),
        "dry run": (*run, "--dry-run"),
        "challenge": ("challenge", "c.toml"),
        "challenge --json": ("challenge", "c.toml", "--json"),
        "power": ("power", "c.toml"),
        "score": ("score", "t.parquet", "--audit", "spurious-correlation", "--out", "scored"),
        "score --json": ("score", "t.parquet", "--audit", "spurious-correlation", "--out", "scored", "--json"),
        "compare": ("compare", "scored", "--out", "compared"),
        "check": ("gate", "scored", "run", "--rules", "rules.toml", "--junit", "junit.xml"),
        "check --json": ("gate", "scored", "--rules", "rules.toml", "--json"),
        "lm-eval": ("export", "lm-eval", "spurious-correlation", "--challenge", "c.toml", "--out", "lm-eval"),
        "datasets": ("export", "datasets", "spurious-correlation", "--challenge", "c.toml", "--out", "datasets"),
    }
    found = {}
    for name, command in commands.items():
        done = in_process(folder, *command)
        assert done.returncode == (2 if name.startswith("check") else 0), done.stderr
        found[name] = done.stdout + done.stderr
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".csv", ".json", ".jsonl", ".yaml", ".md", ".xml"):
            with path.open(encoding="utf-8", newline="") as file:
                found[str(path.relative_to(folder))] = file.read()
    scored = undertow.load_run(folder / "scored")
    return found | {"notebook": scored._repr_html_()}


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return written(tmp_path_factory.mktemp("harmed") / "w", HARM)


OUTPUTS = {
    "terminal": ["run", "dry run", "challenge", "power", "score", "compare", "check", "lm-eval"],
    "JSON for machines": ["challenge --json", "score --json", "check --json"],
    "run folder": ["scored/manifest.json", "scored/results.json", "scored/results.csv", "scored/report.html", "run/report.html"],
    "comparison": ["compared/comparison.json", "compared/comparison.csv", "compared/comparison.html"],
    "JUnit": ["junit.xml"],
    "Markdown": ["lm-eval/README.md", "datasets/README.md"],
    "export": ["lm-eval/*.jsonl", "lm-eval/*.yaml"],
    "notebook": ["notebook"],
}  # fmt: skip


@pytest.mark.parametrize("output", OUTPUTS)
def test_no_name_begins_a_line_or_moves_a_cursor(output: str, harmed: Mapping[str, str]) -> None:
    for place in OUTPUTS[output]:
        texts = [text for name, text in harmed.items() if PurePath(name).match(place)]
        assert texts, place
        for text in texts:
            assert not [line for line in text.splitlines() if line.lstrip().startswith(FORGED)], place
            assert not {sign for sign in text if not sign.isprintable()} - {"\n", "\t"}, place
            assert "forged" in text.lower() or place.endswith(".yaml"), place


def test_what_is_data_is_kept(harmed: Mapping[str, str]) -> None:
    assert json.loads(harmed["scored/results.json"])["model"] == f"m, n{HARM}"
    items = [
        json.loads(line) for name, text in harmed.items() if name.endswith(".jsonl") for line in text.split("\n")[:-1]
    ]
    assert {group for item in items for group in item["groups"]} == {f"xe{HARM}", "ze"}
    for name in ("scored/results.csv", "compared/comparison.csv"):
        rows = list(csv.reader(io.StringIO(harmed[name])))
        assert len(rows) == len(harmed[name].splitlines())
        assert len({len(row) for row in rows}) == 1
    told = [one.attrib["message"] for one in ET.fromstring(harmed["junit.xml"]).iter() if "message" in one.attrib]
    assert told
    assert not any("\n" in message for message in told)


def test_names_mark_nothing_in_markdown(harmed: Mapping[str, str], tmp_path: Path) -> None:
    """The same headings, lists, tables and emphasis as where they are plain."""
    plain = written(tmp_path / "plain", "PLAIN")
    read = MarkdownIt("gfm-like", {"linkify": False}).parse
    for name in ("lm-eval/README.md", "datasets/README.md"):
        shapes = [
            [
                (part.type, part.tag)
                for one in read(text[name].rpartition("\n---\n")[2])
                for part in (one, *(one.children or ()))
                if part.type != "text"
            ]
            for text in (harmed, plain)
        ]
        assert shapes[0] == shapes[1], name
