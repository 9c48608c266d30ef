from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from markdown_it import MarkdownIt

import undertow
from conftest import make_quick
from helpers.command_line import in_process
from helpers.shared_folders import made_once
from undertow.app.annotators.annotation import AnnotationStore
from undertow.report.page_data import ReportTable
from undertow.report.paper_table import PaperTable
from undertow.runs import pipeline
from undertow.runs.folder.annotations import ANNOTATIONS

FORGED = "* FORGED"
SMALL = ("--challenge", "simplified", "--date-count", "2")
SIGNS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2J", "\x9b2J", "\u202e", "\t")
MARKED = "\n\n# head\n| a | b |\n|---|---|\n```\n- **bold** [x](y) `c` <b>d</b> &lt; ~~e~~ _f_"
PATH = "p\n* FORGED\x1b[2J\u2028* FORGED"
"""What a file or folder may be called."""
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
EQUATIONS = """gamma = 1
W := normal()
G := bernoulli(0.5)
S := W + gamma * G > 1
select S
compare W, G
case sum\u2028* FORGED\x9b2J: gamma = 2
"""
GRAPH = "W -> X; W -> S <- G; G -> Y; [S]\nW: a date\x9b2J\u202e and forged\n"
ENDS = ("w_first_female", "w_last_female", "w_first_male", "w_last_male")
RULES = '[[rule]]\nname = "r"\nmeasure = "slope"\nof = "size"\nat_most = -1\nwhere = {pronoun = [PRONOUN]}\n'


def written(folder: Path, harm: str, only: Sequence[str] = ()) -> dict[str, str]:
    """What these commands print and write where every name ends so, by place; of all commands if none is named."""
    challenge, rules = CHALLENGE, RULES
    for name in ("TITLE", "SOURCE", "SEASON", "SPRING", "XE", "WORD"):
        challenge = challenge.replace(name, json.dumps(f"{name.lower()}{harm}"))
    (folder / "c.toml").write_text(challenge, encoding="utf-8")
    one_word = challenge.replace(json.dumps(f"word{harm}"), '"xe"')
    (folder / "one.toml").write_text(one_word, encoding="utf-8")
    (folder / "rules.toml").write_text(rules.replace("PRONOUN", json.dumps(f"male{harm}")), encoding="utf-8")
    rows = [
        {"model": model, "challenge": f"c{harm}", "w_name": f"w{harm}", "w_index": at, "w": f"{at}{harm}", "cluster": cluster,
         f"female{harm}": 30.0 + at * len(model) % 7, f"male{harm}": 40.0 - at % 4}
        for model in ("m", f"n{harm}") for cluster in "ab" for at in range(9)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "t.parquet")
    called = PATH if harm == HARM else "p"
    ends = [
        (f"{model}{harm}", f"job{job}{harm}", participant, kind, 1, 20.0 + job, 21.0 + job + 8 * (kind == "unspecified"), 40.0, 35.0)
        for model in ("m", "n") for job in range(6)
        for participant, kind in (("someone", "unspecified"), ("man", "male"), ("woman", "female"))
    ]  # fmt: skip
    people = ["model", "occupation", "participant", "participant_class", "coreferent"]
    pd.DataFrame(ends, columns=[*people, *ENDS]).to_parquet(folder / "ends.parquet")
    (folder / f"{called}.scm").write_text(
        EQUATIONS if harm == HARM else EQUATIONS.replace("\u2028* FORGED\x9b2J", ""), encoding="utf-8"
    )
    (folder / f"{called}.dag").write_text(GRAPH, encoding="utf-8")
    sentence, options = f"The man said that ___ was late{harm}.", {f"yes{harm}": ["he"], "no": ["she"]}
    line = {"text": sentence, "options": options, f"key{harm}": harm}
    (folder / "lines.jsonl").write_text(json.dumps(line), encoding="utf-8")
    run = ("run", "spurious-correlation", "-m", "toy", "--challenge", "c.toml")
    export = ("export", "inspect", "spurious-correlation", "--challenge")
    few = ("--n-documents", "2", "--wordings", "1")
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
        "check as Markdown": ("gate", "scored", "--rules", "rules.toml", "--format", "markdown"),
        "table": ("table", "scored"),
        "table in Markdown": ("table", "scored", "--format", "markdown"),
        "table in LaTeX": ("table", "scored", "--format", "latex"),
        "table as CSV": ("table", "scored", "--format", "csv"),
        "cite": ("cite", "scored"),
        "show": ("show", "scored"),
        "lm-eval": ("export", "lm-eval", "spurious-correlation", "--challenge", "c.toml", "--out", "lm-eval"),
        "inspect": (*export, "one.toml", "--out", f"{called}-inspect"),
        "report": ("report", "scored", "--graph", f"{called}.dag"),
        "rescored": ("score", "scored", "--out", f"{called}-scored"),
        "report elsewhere": ("report", f"{called}-scored"),
        "graph": ("graph", f"{called}.dag", "--out", f"{called}.svg"),
        "graph --json": ("graph", f"{called}.dag", "--json"),
        "simulate": ("simulate", f"{called}.scm", "--draws", "2000", "--out", "simulated"),
        "simulate --json": ("simulate", f"{called}.scm", "--draws", "2000", "--json"),
        "guard": ("guard", sentence, "-m", "toy", "--options", "a: he; b: she", *SMALL),
        "guard lines": ("guard", "--file", "lines.jsonl", "-m", "toy", *SMALL),
        "power --csv": ("power", "c.toml", "--csv"),
        "challenge --csv": ("challenge", "c.toml", "--csv"),
        "corpus": ("lab", "corpus", f"{called}.jsonl", "--people", "200"),
        "ends": ("score", "ends.parquet", "--audit", "task-specification", "--out", "ends"),
        "scaling": ("scaling", "ends", "--size", f"m{harm}=1e6"),
        "scaling --json": ("scaling", "ends", "--json"),
        "rephrase": ("run", "bias-rephrasing", "-m", "toy", *few, "--out", "rephrased"),
        "datasets": ("export", "datasets", "spurious-correlation", "--challenge", "c.toml", "--out", "datasets"),
    }
    found = {}
    for name, command in commands.items():
        if only and name not in only:
            continue
        with pytest.MonkeyPatch.context() as patch:
            make_quick(patch, page=name == "run")
            if name == "report elsewhere":  # is about the folder's name; that of `report` has figures
                patch.setattr("undertow.runs.score.write_report", pipeline.write_report)
            done = in_process(folder, *command)
        assert done.returncode == (2 if name.startswith("check") else 0), done.stderr
        found[name] = done.stdout + done.stderr
    if only:
        return found | _files(folder)
    judged = {"item": "x", "category": "correct", "note": harm, "annotator": f"me{harm}", "time": "now"}
    item = next(iter(AnnotationStore(folder / "rephrased", "me").rephrasings))
    (folder / "rephrased" / ANNOTATIONS).write_text(json.dumps(judged | {"item": item}) + "\n", encoding="utf-8")
    refused = {
        "lab verify": ("lab", "verify", "--out", f"{called}-lab"),
        "cache prune": ("cache", "prune", "-m", f"m{harm}"),
    }
    for name, command in {"annotate": ("annotate", "rephrased", "--summary"), **refused}.items():
        done = in_process(folder, *command)
        assert done.returncode == (1 if name in refused else 0), done.stderr
        found[name] = done.stdout + done.stderr
    scored = undertow.load_run(folder / "scored")
    return found | _files(folder) | {"notebook": scored._repr_html_()}


def _files(folder: Path) -> dict[str, str]:
    texts = {}
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".csv", ".json", ".jsonl", ".yaml", ".md", ".xml"):
            with path.open(encoding="utf-8", newline="") as file:
                texts[str(path.relative_to(folder))] = file.read()
    return texts


@pytest.fixture(scope="session")
def harmed(shared_base: Path) -> Mapping[str, str]:
    def make(folder: Path) -> None:
        (folder / "w").mkdir()
        texts = written(folder / "w", HARM)
        (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")

    texts: dict[str, str] = json.loads((made_once(shared_base, "harmed", make) / "texts.json").read_text("utf-8"))
    return texts


OUTPUTS = {
    "terminal": [
        "run", "dry run", "challenge", "power", "score", "compare", "check", "lm-eval", "inspect", "report", "rescored", "report elsewhere",
        "graph", "simulate", "guard", "corpus", "ends", "scaling", "annotate", "lab verify", "cache prune", "table", "show",
    ],
    "JSON for machines": [
        "challenge --json", "score --json", "check --json", "graph --json", "simulate --json", "guard lines", "scaling --json",
    ],
    "CSV for machines": ["power --csv", "challenge --csv", "simulated/correlations.csv", "table as CSV"],
    "run folder": ["scored/manifest.json", "scored/results.json", "scored/results.csv", "scored/report.html", "run/report.html"],
    "comparison": ["compared/comparison.json", "compared/comparison.csv", "compared/comparison.html"],
    "JUnit": ["junit.xml"],
    "Markdown": ["lm-eval/README.md", "datasets/README.md", "table in Markdown", "check as Markdown"],
    "LaTeX": ["table in LaTeX", "cite"],
    "task of Inspect": ["p*-inspect/README.md", "p*-inspect/items.jsonl"],
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
            assert "<b>d</b>" not in text or not place.endswith((".html", "notebook")), place
            assert "forged" in text.lower() or place.endswith(".yaml"), place


def test_what_is_data_is_kept(harmed: Mapping[str, str]) -> None:
    assert json.loads(harmed["scored/results.json"])["model"] == f"m, n{HARM}"
    items = [
        json.loads(line) for name, text in harmed.items() if name.endswith(".jsonl") for line in text.split("\n")[:-1]
    ]
    assert {group for item in items for group in item.get("groups", ())} == {f"xe{HARM}", "ze"}
    for name in ("scored/results.csv", "compared/comparison.csv"):
        rows = list(csv.reader(io.StringIO(harmed[name])))
        assert len(rows) == len(harmed[name].splitlines())
        assert len({len(row) for row in rows}) == 1
    told = [one.attrib["message"] for one in ET.fromstring(harmed["junit.xml"]).iter() if "message" in one.attrib]
    assert told
    assert not any("\n" in message for message in told)


DRIFT = ("run", "spurious-correlation")
UNKNOWN: Sequence[tuple[str, ...]] = [
    ("x",), ("list", "x"), (*DRIFT, "--x"), ("score", "t.csv", "--x"), (*DRIFT, "-m", "x"), (*DRIFT, "-m", "toy", "--challenge", "x"),
    (*DRIFT, "-m", "toy", "--graph", "x"),
]  # fmt: skip


@pytest.mark.parametrize("command", UNKNOWN)
@pytest.mark.parametrize("sign", [*SIGNS[:-1], "\x1b]0;x\x07"])
def test_a_command_an_option_and_a_name_that_there_are_not_are_quoted_on_one_line(
    command: tuple[str, ...], sign: str, tmp_path: Path
) -> None:
    done = in_process(tmp_path, *command[:-1], f"{command[-1]}{sign}{FORGED}")
    assert done.returncode == (1 if "-m" in command else 2)
    assert FORGED in done.stderr
    assert done.stderr.replace("\n", "").isprintable()
    assert not [line for line in done.stderr.splitlines() if line.startswith(FORGED)]


def test_names_mark_nothing_in_markdown(harmed: Mapping[str, str], tmp_path: Path) -> None:
    """The same headings, lists, tables and emphasis as where they are plain."""
    pages = ("lm-eval/README.md", "datasets/README.md", "table in Markdown", "check as Markdown")
    plain = written(tmp_path, "PLAIN", only=("lm-eval", "datasets", "score", *pages))
    read = MarkdownIt("gfm-like", {"linkify": False}).parse
    for name in pages:
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


def test_names_are_no_commands_in_latex() -> None:
    harm = r"\input{/etc/passwd} $x$ %c # _a_ & ^ ~ `b` [1] \\"
    text = ReportTable(harm, [harm, "n"], [(harm, "1"), ("[2] x", "2")], f"{harm}\n\n{harm}")
    lines = PaperTable("t", pd.DataFrame(), text).to_latex().splitlines()
    assert len(lines) == 13
    safe = r"\textbackslash{}input\{/etc/passwd\} \$x\$ \%c \# \_a\_ \& \textasciicircum{} \textasciitilde{} "
    safe += r"\textasciigrave{}b\textasciigrave{} [1] \textbackslash{}\textbackslash{}"
    assert lines[2] == rf"\caption{{{safe}  {safe}}}"
    assert lines[6:10] == [rf"{safe} & n \\", r"\midrule", rf"{safe} & 1 \\", r"{}[2] x & 2 \\"]
