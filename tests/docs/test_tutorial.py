"""Pages for newcomers: the commands that they tell a reader to type run, and print what the page says."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT
from helpers import command_line
from helpers.planted_lives import YEARS, small_base
from helpers.tiny_models import trained_t5
from helpers.tiny_qa_models import random_reader

TUTORIAL = ROOT / "docs/tutorial.md"
HOW_TO = ROOT / "docs/how-to"
OF_THE_DEFAULT_MODEL = (
    "causal", "spurious-correlation", "task-specification", "occupation-checklist", "bias-diagnosis", "bias-identification",
    "bias-extraction", "bias-rephrasing",
)  # fmt: skip
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+)(?![\w.]*\w)%?")
LEFT_OUT = "..."
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
"""Nobody listens there: a command that needs a network fails at once."""
PHASE = re.compile(r"^undertow: (?:load|score|answer|statistics|figures|prepare) .*\n", re.MULTILINE)
"""What a command says while it works."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block of a page, and what the page says just before it."""

    language: str
    text: str
    before: str


def steps(page: Path, *, after: str = "") -> list[Step]:
    """The blocks of a page in order, from the place where it has these words on."""
    text = page.read_text(encoding="utf-8")
    last, found = text.index(after), []
    for match in FENCE.finditer(text, last):
        found.append(Step(match[1], match[2], text[last : match.start()]))
        last = match.end()
    return found


def follow(page: Path, folder: Path, *, after: str = "", compared: bool = True) -> None:
    """Do what the page says in this folder, and compare what it prints.

    A text after commands is what they print. Another one is in the report that the page has named last.
    """
    printed = None
    for step in steps(page, after=after):
        if step.language in {"toml", "csv"}:
            (folder / named(r"as `([\w.-]+)`:", step)).write_text(step.text, encoding="utf-8")
        elif step.language in {"sh", "python"}:
            printed = run(step, folder)
        elif printed is not None:
            if compared:
                assert_says(printed, step.text)
            printed = None
        elif compared:
            report = folder / named(r"`([\w/.-]+\.html)`", step)
            assert_says(shown(report), f"{LEFT_OUT}\n{step.text}{LEFT_OUT}")


def named(pattern: str, step: Step) -> str:
    found = re.findall(pattern, step.before)
    assert found, f"the page names no file before:\n{step.text}"
    return str(found[-1])


def run(step: Step, folder: Path) -> str:
    """What the commands of a block print. None may fail but where the page looks at its exit status."""
    if step.language == "python":
        printed = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            exec(compile(step.text, "the page", "exec"), {})
        return printed.getvalue()
    said = ""
    status = 0
    for line in step.text.splitlines():
        program, *arguments = shlex.split(line)
        if program == "echo":
            said += " ".join(arguments).replace("$?", str(status)) + "\n"
            continue
        assert program == "undertow", line
        done = command_line.in_process(folder, *arguments, env=NO_NETWORK)
        said, status = said + PHASE.sub("", done.stderr) + done.stdout, done.returncode
        assert status == 0 or "$?" in step.text, f"{line}\n{said}"
    return said


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
    """The same words, and numbers that differ by at most 0.01, or by one of the last digit shown."""
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
@pytest.mark.timeout(1800)
@pytest.mark.page
@pytest.mark.resamples
def test_tutorial_prints_what_it_says_without_a_network(smollm2_found: object, tmp_path: Path) -> None:
    follow(TUTORIAL, tmp_path, after="## 1.")


@pytest.mark.resamples
def test_concepts_page_has_the_numbers_of_the_tool(tmp_path: Path) -> None:
    follow(ROOT / "docs/concepts.md", tmp_path)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", ["masked", "seq2seq", "extractive-and-labelled"])
def test_how_to_page_of_a_family_runs_on_a_small_network(
    page: str, network: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page == "masked":
        trained_bert = tmp_path / "my-bert"
        trained_bert.symlink_to(network("trained_bert"))  # type: ignore[operator]
    elif page == "seq2seq":
        # Its tokenizer is told that there is room for a prompt: a T5 has no last position.
        settings = Path(trained_t5(tmp_path / "my-t5")) / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 256}))
    else:
        # The reader has room for whole passages, spelled letter by letter.
        monkeypatch.setattr("helpers.tiny_qa_models.POSITIONS", 384)
        random_reader(tmp_path / "my-reader", "bert")
        small_base(tmp_path / "my-bert")
        lives = [
            {"text": f"{word} was {stage}.", "birth_date": year}
            for year in YEARS
            for word in ("She", "He")
            for stage in ("a child", "a teenager", "an adult")
        ]
        (tmp_path / "lives.jsonl").write_text("".join(f"{json.dumps(life)}\n" for life in lives), encoding="utf-8")
    follow(HOW_TO / f"{page}.md", tmp_path)
    for name in ("pointed", "labels") if page == "extractive-and-labelled" else ():
        results = json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))["results"]
        assert results
        assert not any(one["n_missing"] for one in results), name


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.timeout(900)
@pytest.mark.page
@pytest.mark.resamples
@pytest.mark.parametrize("page", OF_THE_DEFAULT_MODEL)
def test_how_to_page_of_the_default_model_prints_what_it_says(page: str, smollm2_found: object, tmp_path: Path) -> None:
    follow(HOW_TO / f"{page}.md", tmp_path)


def test_chat_api_page_tells_what_a_server_would_be_asked(tmp_path: Path) -> None:
    """The other commands of the page need a server, and tests of servers have one."""
    dry, quoted = steps(HOW_TO / "chat-api.md")[:2]
    assert_says(run(dry, tmp_path), quoted.text)
    assert not list(tmp_path.iterdir())
    elsewhere = {"papers", "scripts"}  # their commands have tests of their own
    tried = {"masked", "seq2seq", "chat-api", "extractive-and-labelled", *OF_THE_DEFAULT_MODEL}
    assert {page.stem for page in HOW_TO.glob("*.md")} - elsewhere == tried
