"""Pages for newcomers: what they tell a reader to type is typed, in order, and what they say is printed is printed."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT
from planted_lives import YEARS, small_base
from tiny import trained_bert, trained_t5
from tiny_readers import random_reader

TUTORIAL = ROOT / "docs/tutorial.md"
HOW_TO = ROOT / "docs/how-to"
OF_THE_DEFAULT_MODEL = (
    "causal", "spurious-correlation", "task-specification", "occupation-checklist", "bias-diagnosis", "bias-identification",
    "bias-extraction", "bias-rephrasing",
)  # fmt: skip
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+)(?![\w.]*\w)%?")
LEFT_OUT = "..."
PROMISED_S = 15 * 60.0
NO_WAY_OUT = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
"""Where nobody listens: what reaches for a network fails at once, and does not pass by accident."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block of a page, and what the page says just before it."""

    language: str
    text: str
    before: str


def steps(page: Path, *, after: str = "") -> list[Step]:
    """Blocks of a page in order, from the place where it has these words on."""
    text = page.read_text(encoding="utf-8")
    begin = text.index(after)
    found, last = [], begin
    for match in FENCE.finditer(text, begin):
        found.append(Step(match[1], match[2], text[last : match.start()]))
        last = match.end()
    return found


def follow(page: Path, folder: Path, *, after: str = "") -> float:
    """Do what the page says, in this folder, and compare; the seconds that its commands took.

    A text after commands is what they print. Another one is in the report that the page has named last.
    """
    took_s, printed, report = 0.0, None, None
    for step in steps(page, after=after):
        if step.language in {"toml", "csv"}:
            (folder / named(r"as `([\w.-]+)`:", step)).write_text(step.text, encoding="utf-8")
        elif step.language in {"sh", "python"}:
            begun_s = time.monotonic()
            printed = run(step, folder)
            took_s += time.monotonic() - begun_s
        elif printed is not None:
            assert_says(printed, step.text)
            printed = None
        else:
            report = folder / named(r"`([\w/.-]+\.html)`", step)
            assert_says(shown(report), f"{LEFT_OUT}\n{step.text}{LEFT_OUT}")
    return took_s


def named(pattern: str, step: Step) -> str:
    found = re.findall(pattern, step.before)
    assert found, f"the page names no file before:\n{step.text}"
    return str(found[-1])


def run(step: Step, folder: Path) -> str:
    """Output of both kinds, from a shell that finds this interpreter's `undertow`.

    No command may fail but where the page looks at its exit status.
    """
    tools = Path(sys.executable).parent
    environment = os.environ | NO_WAY_OUT | {"HF_HUB_OFFLINE": "1", "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = (
        [sys.executable, "-c", step.text]
        if step.language == "python"
        else ["bash", "-c" if "$?" in step.text else "-ec", step.text]
    )
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, f"{step.text}\n{done.stdout}"
    return done.stdout


def shown(report: Path) -> str:
    """The words of a page, a line for each paragraph or entry of a list; a term and what is said of it are one."""
    text = re.sub(r"<(style|script|svg)\b.*?</\1>", "", report.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"<(?:li|p|dt|h\d|tr)\b[^>]*>", "\n", re.sub(r"\s+", " ", text))
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def assert_says(printed: str, quoted: str) -> None:
    """Every quoted line is there, in this order; none is left out but where the page says so."""
    there, gaps = iter(tidy(printed)), False
    for line in tidy(quoted):
        if line == LEFT_OUT:
            gaps = True
            continue
        for candidate in there:
            if agree(line, candidate):
                break
            assert gaps, f"the page says\n  {line}\nwhere there is\n  {candidate}"
        else:
            raise AssertionError(f"the page says\n  {line}\nand from there on there is no such line in\n{printed}")
        gaps = False
    assert gaps or next(there, None) is None, f"the page leaves out the end of\n{printed}"


def tidy(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def agree(quoted: str, printed: str) -> bool:
    """The same words, and numbers as near as the tests of the default model ask: 0.01, or one of the last digit shown."""
    if NUMBER.sub("#", quoted) != NUMBER.sub("#", printed):
        return False
    return all(near(*pair) for pair in zip(NUMBER.findall(quoted), NUMBER.findall(printed), strict=True))


def near(quoted: str, printed: str) -> bool:
    told, found = (float(re.sub("[,%]", "", number).replace("−", "-")) for number in (quoted, printed))
    digits = len(quoted.rstrip("%").partition(".")[2])
    if not digits and not quoted.endswith("%"):
        return told == found
    return found == pytest.approx(told, abs=max(0.01, 1.001 * 10**-digits))


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(2 * PROMISED_S)  # so that the promise fails, and not the limit
def test_the_tutorial_does_what_it_says_without_a_network(smollm2_found: object, tmp_path: Path) -> None:
    assert follow(TUTORIAL, tmp_path, after="## 1.") < PROMISED_S


def test_numbers_to_check_by_hand_are_those_of_the_tool(tmp_path: Path) -> None:
    assert follow(ROOT / "docs/concepts.md", tmp_path) > 0


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(PROMISED_S)
def test_commands_for_masked_models_run_on_one_made_here(tmp_path: Path) -> None:
    trained_bert(tmp_path / "my-bert")
    assert follow(HOW_TO / "masked.md", tmp_path) > 0


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(PROMISED_S)
def test_commands_for_seq2seq_models_run_on_one_made_here(tmp_path: Path) -> None:
    """Its tokenizer is told that there is room for a prompt: a T5 has no last position."""
    settings = Path(trained_t5(tmp_path / "my-t5")) / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 256}))
    assert follow(HOW_TO / "seq2seq.md", tmp_path) > 0


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(PROMISED_S)
def test_commands_for_extractive_and_labelled_models_run_on_ones_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has room for whole passages, spelled letter by letter; every question is answered."""
    monkeypatch.setattr("tiny_readers.POSITIONS", 384)
    random_reader(tmp_path / "my-reader", "bert")
    small_base(tmp_path / "my-bert")
    lives = [
        {"text": f"{word} was {stage}.", "birth_date": year}
        for year in YEARS
        for word in ("She", "He")
        for stage in ("a child", "a teenager", "an adult")
    ]
    (tmp_path / "lives.jsonl").write_text("".join(f"{json.dumps(life)}\n" for life in lives), encoding="utf-8")
    assert follow(HOW_TO / "extractive-and-labelled.md", tmp_path) > 0
    for run_folder in ("pointed", "labels"):
        results = json.loads((tmp_path / run_folder / "results.json").read_text(encoding="utf-8"))["results"]
        assert results
        assert not any(one["n_unscored"] for one in results), run_folder


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.timeout(PROMISED_S)
@pytest.mark.parametrize("page", OF_THE_DEFAULT_MODEL)
def test_commands_for_the_default_model_print_what_the_page_says(
    page: str, smollm2_found: object, tmp_path: Path
) -> None:
    assert follow(HOW_TO / f"{page}.md", tmp_path) > 0


def test_what_a_server_would_be_asked_is_told_without_one(tmp_path: Path) -> None:
    """The other commands of the page need a server, and tests of servers have one."""
    dry, quoted = steps(HOW_TO / "chat-api.md")[:2]
    assert "--dry-run" in dry.text
    assert_says(run(dry, tmp_path), quoted.text)
    assert not list(tmp_path.iterdir())


def test_every_page_for_a_task_is_tried() -> None:
    tried = {"masked", "seq2seq", "chat-api", "extractive-and-labelled", *OF_THE_DEFAULT_MODEL}
    assert {page.stem for page in HOW_TO.glob("*.md")} == tried


@pytest.mark.parametrize(
    ("quoted", "printed"),
    [
        ("falls by 21.2 points", "falls by 21.4 points"),
        ("(600 of 600 asked)", "(599 of 600 asked)"),
        ("q .029", "q .041"),
        ("slope -2.36", "slope +2.36"),
        ("rises by 3.0", "falls by 3.0"),
    ],
)
def test_a_page_that_says_something_else_is_found_out(quoted: str, printed: str) -> None:
    assert_says(printed, printed)
    with pytest.raises(AssertionError, match="the page says"):
        assert_says(printed, quoted)


def test_lines_are_left_out_only_where_the_page_says_so() -> None:
    assert_says("one\ntwo\nthree", "one\n...\nthree")
    assert_says("one\ntwo\nthree", "one\n...")
    for quoted in ("one\nthree", "two\nthree", "one\ntwo", "...\nthree\n...\none"):
        with pytest.raises(AssertionError):
            assert_says("one\ntwo\nthree", quoted)
