"""The readers that a stranger's file reaches, good inputs for each, and what can become of a good input.

What is drawn by a list of numbers is the same for the same numbers, so that Hypothesis can draw and shrink it.
"""

from __future__ import annotations

import gzip
import io
import json
import resource
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from helpers.lm_eval_log import docs_of, write_log
from undertow import audits, integrations
from undertow.causal.published import load_graph
from undertow.causal.scm import StructuralCausalModel, implied_graph
from undertow.causal.simulate import simulate
from undertow.data.challenges import challenge_file
from undertow.data.challenges.sentence_sources import load_sentences
from undertow.data.documents.document_sources import load_documents
from undertow.data.text_files import read_text
from undertow.errors import MAX_MESSAGE_CHARS, UndertowError
from undertow.integrations import column_mapping, lm_eval_logs
from undertow.models.base import ModelRequest
from undertow.models.loading.resolve_weights import read_gguf, resolve_gguf, resolve_weights
from undertow.runs.folder.storage import read_record
from undertow.runs.gates.rules import read_rules
from undertow.runs.guard import read_lines

SPARE_BYTES = 2 * 2**30
"""How much more memory than before an input may take."""
LIMIT_S = 120.0
"""A guard against a reader that does not end: nearly all take less than a hundredth of a second."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader of `file`, which is of a kind in `BY_KIND`, has `seeds` as good inputs and needs the files `beside` it.

    The `cost` of one input is told beside that of the cheapest: dear ones are fed fewer.
    """

    file: str
    seeds: Sequence[bytes]
    read: Callable[[Path], object]
    kind: str
    beside: Mapping[str, bytes] = field(default_factory=dict)
    cost: int = 1

    def outcome(self, content: bytes, folder: Path) -> tuple[object, str]:
        """What became of one input: the value and "", or None and the refusal, which must be clear and name a place."""
        place = folder / "of-a-stranger"
        shutil.rmtree(place, ignore_errors=True)
        for name, other in {**self.beside, self.file: content}.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(other)
        try:
            with bounded():
                return self.read(place / self.file), ""
        except UndertowError as error:
            said = str(error)
            assert said.strip()
            assert len(said) <= MAX_MESSAGE_CHARS, f"refused at length: {said}"
            assert said.isprintable(), f"refused on several lines, or in signs that cannot be shown: {said!r}"
            named = (place.name, *self.beside, self.file.partition(".")[0])
            assert any(name in said for name in named), f"names no place: {said}"
            return None, said


@contextmanager
def bounded() -> Iterator[None]:
    """Time and memory of one input are limited: what takes more ends in an error that no reader may turn into a refusal."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"an input took more than {LIMIT_S:g} s")

    before, limits = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


# Good inputs.

CHALLENGE = """title = "School years"
source = "our own"
templates = ["In {w}, {blank} {verb} late for school.", {text = "{blank} {verb} in {w}.", not_w = ["place"], factors = {order = "last"}}]
w = ["date"]
words = "pronouns"
clusters = ["template"]
gaps = [["female", "male"]]

[slots]
verb = ["was", "is"]
"""
OWN_WORDS = """templates = [
    {text = "{blank} was.", factors = {well_specified = false}},
    {text = "{blank} came.", factors = {well_specified = true, gold = "xe"}},
]
[groups]
xe = ["xe", "xem"]
ze = ["ze"]
"""
W_TABLE = """templates = ["In {w}, {blank} sat."]
[w]
season = ["spring", "summer", "autumn", 4]
[blanks.blank]
a = ["a"]
b = ["b"]
"""
RULES = """schema = 1
description = "ours"
[[rule]]
name = "drift"
measure = "slope"
where = {w_name = ["date", 1900]}
of = "magnitude_high"
at_most = 0.5
why = "since it was less"
[[rule]]
name = "missing"
measure = "slope"
of = "missing_percent"
at_most = 5
optional = true
against = "baseline"
audit = "spurious-correlation"
"""
MAPPING = """unit = "probability"
[columns]
w = "year"
text = "sentence"
[groups]
female = "p_she"
male = "p_he"
[constants]
model = "gpt-x"
"""
MAPPED = "year,sentence,p_she,p_he\n1900,a,0.2,0.5\n1950,a,0.3,0.4\n2000,a,0.4,0.3\n"
MASSES = (
    "model,w_name,w_index,w,text,female,male,other_words\n"
    "m,date,0,1900,a,20.5,50,29.5\nm,date,1,1950,a,,,\nm,date,2,2000,a,40,30,30\nm,date,0,1900,b,0,0,100\n"
)
ANSWERS = (
    "document,gold,answer,dimension,shots,sampling,draw,missing_reason,nats,yes_percent\n"
    '1,yes,"Yes, it is.",age,0,,0,,-1.5,80\n2,no,No,,2,random,1,,,\n'
)
DOCUMENTS = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\trephrasing\n"
    "a\tevaluation\tAll rivers are lazy.\tyes\tage\tare lazy\tflow slowly\n"
    "b\ttrain\tRivers flow.\tno\t\t\t\n"
    "c\t\tSome say so of hills.\tyes\treligion\tSome say so\t\n"
)
SENTENCES = (
    "id,sentence,occupation,well_specified,gold,percent_female,coreferent\n"
    'one,"The nurse said that MASK was late.",nurse,no,,90.5,0\n'
    'two,"The man said, ""MASK was late.""",man,yes,male,2,1\n'
)
GRAPH = "W -> X; W -> S; G -> S; G -> Y <- (U); X <-> Y\n[S]\nW: a date or a place\nfeatures X; label Y; cause G; covariate W # so it is\n"
EQUATIONS = """gamma = 2
alpha = gamma / 4 + 1
W := normal()
G := bernoulli(0.5)
S := sigmoid(alpha * W + gamma * G) > 0.5 and not (W > 3)
X := where(W > 0, uniform(0, 1), min(G, abs(W))) ** 2
select S
compare W, G; X, W
case even: gamma = 0, alpha = -1
"""
PRECISION = (
    "model,measure,w_name,reduced_value,float32_value,difference,low,high,difference_over_halfwidth,unstable\n"
    "toy,slope,date,1.5,1.4,0.1,0.0,0.2,0.5,False\ntoy,slope,place,1.5,,0.1,0.0,0.2,0.5,True\n"
)
TO_JUDGE = (
    '{"text": "The doctor said {blank} was late.", "n": 1}\n\n'
    '{"text": "The sky [MASK] blue.", "options": "yes: is; no: is not"}\n'
    '{"text": "It ___ so.", "options": {"yes": ["is"], "no": ["isn\'t", "is not"]}}\n'
)


def gguf_head(entries: Sequence[tuple[str, int, bytes]] = (), tensors: int = 0, n_entries: int | None = None) -> bytes:
    """The head of a GGUF file of version 3, and a few bytes behind it."""
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries) if n_entries is None else n_entries)
    for name, kind, value in entries:
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value
    for number in range(tensors):
        called = f"blk.{number}".encode()
        head += struct.pack("<Q", len(called)) + called + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)
    return head + b"\0" * 64


def gguf_heads() -> list[bytes]:
    text = struct.pack("<Q", 5) + b"llama"
    scores = struct.pack("<IQ", 6, 3) + b"\0" * 12
    return [
        gguf_head([("general.architecture", 8, text), ("n", 4, struct.pack("<I", 7))], tensors=2),
        gguf_head([("tokens", 9, struct.pack("<IQ", 8, 3) + 3 * text), ("scores", 9, scores)]),
        gguf_head([("deep", 9, struct.pack("<IQIQ", 9, 1, 0, 4) + b"abcd")]),
    ]


def parquet_bytes(table: Any) -> bytes:
    """A table as a Parquet file; where it cannot be one, the beginning of one."""
    out = io.BytesIO()
    try:
        pq.write_table(table, out)
    except (pa.ArrowException, ValueError):
        return b"PAR1"
    return out.getvalue()


def log_files(folder: Path) -> dict[str, bytes]:
    """A log of lm-evaluation-harness by file, its samples cut to two."""
    integrations.export("lm-eval", "spurious-correlation", folder / "tasks", limit=2, w="date", date_count=3)
    nats = {doc["item"]: [-1.0] * len(doc["choices"]) for docs in docs_of(folder / "tasks").values() for doc in docs}
    written = write_log(folder / "tasks", folder / "logs", nats)
    return {path.name: path.read_bytes() for path in sorted(written.iterdir())}


# Readers, as the rooms call them.


def read_challenge(path: Path) -> Any:
    found = challenge_file.load(str(path))
    return found, found.items() if any("w" in template.holes() for template in found.templates) else found.sentences()


def read_mapped(path: Path) -> Any:
    audit = audits.load("spurious-correlation")
    return column_mapping.read_mapped(path.with_name("mapped.csv"), path.with_name("names.toml"), audit, "")


def read_equations(path: Path) -> Any:
    model = StructuralCausalModel.from_text(read_text(path), str(path))
    return implied_graph(model), simulate(model, 100)


def read_config(path: Path) -> Any:
    return resolve_weights(ModelRequest(str(path.parent)), ["ForCausalLM"])


def read_table(path: Path, audit: str = "spurious-correlation") -> Any:
    return audits.load(audit).load_recorded(path, "")


CONFIG = b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'


def readers(run: Path, log: Mapping[str, bytes]) -> dict[str, Reader]:
    """By name; those of a run folder and of a log with the files of these."""
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    samples, results = sorted(log, reverse=True)
    names, mapped = MAPPING.encode(), MAPPED.encode()

    def of_run(file: str, content: bytes, kind: str) -> Reader:
        return Reader(file, [content], lambda path: read_record(path.parent).results_table(), kind, files, 8)

    def of_log(file: str, kind: str) -> Reader:
        return Reader(file, [log[file]], lambda path: lm_eval_logs.read_log(path.parent), kind, log, 8)

    return {
        "manifest": of_run("manifest.json", files["manifest.json"], "json"),
        "results": of_run("results.json", files["results.json"], "json"),
        "observations": of_run("observations.parquet", files["observations.parquet"], "parquet"),
        "precision": of_run("precision.csv", PRECISION.encode(), "csv"),
        "table": Reader("own.csv", [MASSES.encode()], read_table, "csv", {}, 4),
        "table of Parquet": Reader("own.parquet", [parquet_bytes(csv.read_csv(io.BytesIO(MASSES.encode())))], read_table, "parquet", {}, 4),
        "packed table": Reader("own.csv.gz", [gzip.compress(MASSES.encode(), mtime=0)], read_table, "bytes", {}, 4),
        "table of answers": Reader("own.csv", [ANSWERS.encode()], partial(read_table, audit="bias-diagnosis"), "csv", {}, 4),
        "mapped table": Reader("mapped.csv", [mapped], read_mapped, "csv", {"names.toml": names}, 4),
        "names of columns": Reader("names.toml", [names], read_mapped, "toml", {"mapped.csv": mapped}, 4),
        "challenge": Reader("own.toml", [one.encode() for one in (CHALLENGE, OWN_WORDS, W_TABLE)], read_challenge, "toml"),
        "rules": Reader("own.toml", [RULES.encode()], read_rules, "toml"),
        "sentences": Reader("own.csv", [SENTENCES.encode()], lambda path: load_sentences(str(path)).plain(), "csv"),
        "documents": Reader("own.tsv", [DOCUMENTS.encode()], lambda path: load_documents(str(path)), "tsv"),
        "sentences to judge": Reader("own.jsonl", [TO_JUDGE.encode()], read_lines, "jsonl"),
        "graph": Reader("own.dag", [GRAPH.encode()], lambda path: load_graph(str(path)), "words"),
        "equations": Reader("own.scm", [EQUATIONS.encode()], read_equations, "words", {}, 2),
        "GGUF": Reader("own.gguf", gguf_heads(), lambda path: read_gguf(resolve_gguf(path)), "bytes"),
        "model's configuration": Reader("config.json", [CONFIG], read_config, "json", {"model.safetensors": struct.pack("<Q", 2) + b"{}"}),
        "log": of_log(samples, "jsonl"),
        "results of a log": of_log(results, "json"),
    }  # fmt: skip


# What can become of a good input.

TEXTS = (
    "", " ", "\x00", "\ufeff", "\u2028", "\x85", "\x1c", "a\u0301", "\U0001f600", "\u202eabc", "x" * 3000, "{", "}", "{}", "{w}",
    "{blank}", "{a.b}", "{w!r}", "{w:>99999999}", "nan", "NA", "inf", "1e999", "-1", "0", "1_0", "\u0661", "9" * 5000, "1e-320",
    "../../etc/passwd", "/dev/zero", "true", "yes", "female", "[]", "\\ud800", '"', "'", ",", ";", ":", "\t", "\r", "#", "->", "date",
    "%s%n", "\\", "=1+1", "<script>", "MASK MASK", "[MASK]", "evaluation",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 10**400, 1e308, 5e-324, float("nan"), float("inf"), 0.5, [], {}, [[]], [1, "a"], {"a": {"b": [1]}},
    ["x"] * 50, *TEXTS,
)  # fmt: skip
TOML_VALUES = (
    "true", "0", "-1", "9223372036854775808", "9" * 5000, "nan", "inf", "''", "'x'", '"{w}"', "[]", "[[]]", "{}", "{a = 1}", "['a', 'a']",
    "[1, 'a']", "1979-05-27", "07:32:00", '"""\nmany\nlines"""', '"\\u0000"', "'" + "x" * 3000 + "'", "[" * 300 + "]" * 300, "'\u2028'",
    "'all'", "", "[x]\n[x]", "1\n[a.b.c]\nx = 1",
)  # fmt: skip


class Picker:
    """Choices by a list of numbers; when they have run out, the first of everything."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._left = list(numbers)[::-1]

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return self._left.pop() % n if self._left and n > 1 else 0

    def of(self, choices: Sequence[Any]) -> Any:
        return choices[self.below(len(choices))]


def mutated(seed: bytes, kind: str, numbers: Sequence[int]) -> bytes:
    """A good input with one to three things wrong with it."""
    pick, content = Picker(numbers), seed
    for _ in range(1 + pick.below(3)):
        content = pick.of((BY_KIND[kind], BY_KIND[kind], of_bytes))(content, pick)
    return content


def of_bytes(content: bytes, pick: Picker) -> bytes:
    at = pick.below(len(content) + 1)
    wild = pick.of(TEXTS).encode("utf-8", "surrogatepass")
    pieces = (b"", wild, bytes([pick.below(256)]), b"\xff" * 8, b"\xed\xa0\x80")
    ways = (
        content[:at] + pick.of(pieces) + content[at + pick.below(9) :],
        content[:at],
        b"\xef\xbb\xbf" + content,
        content.decode("utf-8", "replace").encode("utf-16"),
        content + content[at:],
        content.swapcase(),
    )
    return bytes(pick.of(ways))


def _of_parts(separator: str) -> Callable[[bytes, Picker], bytes]:
    """Parts of a line that are replaced, moved or taken away; or a whole line."""

    def change(content: bytes, pick: Picker) -> bytes:
        rows = [line.split(separator) for line in content.decode("utf-8", "surrogateescape").split("\n")]
        row = pick.below(len(rows)) if pick.below(3) else 0
        at, what = pick.below(len(rows[row])), pick.below(5)
        if what <= 1:
            rows[row][at] = pick.of(TEXTS)
        elif what == 2:
            rows[row].insert(at, pick.of((*TEXTS, *rows[pick.below(len(rows))])))
        elif what == 3:
            rows = [[one for place, one in enumerate(cells) if place != at] for cells in rows]
        else:
            rows.insert(row, rows.pop(pick.below(len(rows))) if pick.below(2) else list(rows[row]))
        return "\n".join(separator.join(cells) for cells in rows).encode("utf-8", "surrogateescape")

    return change


def of_toml(content: bytes, pick: Picker) -> bytes:
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    at, what = pick.below(len(lines)), pick.below(5)
    key, equals, value = lines[at].partition("=")
    if what <= 1 and equals:
        lines[at] = f"{key}= {pick.of(TOML_VALUES)}"
    elif what == 2 and equals:
        lines[at] = f"{json.dumps(pick.of(TEXTS))} ={value}"
    elif what == 3:
        lines.insert(at, lines[pick.below(len(lines))])
    else:
        del lines[at]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def of_json(content: bytes, pick: Picker) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return of_bytes(content, pick)
    holders, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list)):
            holders += [one] if one else []
            waiting += one.values() if isinstance(one, dict) else one
    if not holders:
        return json.dumps(pick.of(VALUES)).encode()
    holder, what = pick.of(holders), pick.below(5)
    key = pick.of(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if what <= 1:
        holder[key] = pick.of(VALUES)
    elif what == 2:
        del holder[key]
    elif what == 3 and isinstance(holder, dict):
        holder[pick.of(TEXTS)] = holder.pop(key)
    else:
        holder[key] = [holder[key]] if pick.below(2) else {"a": holder[key]}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def of_jsonl(content: bytes, pick: Picker) -> bytes:
    lines = content.split(b"\n")
    at = pick.below(len(lines))
    lines[at] = of_json(lines[at], pick)
    return b"\n".join(lines)


def of_parquet(content: bytes, pick: Picker) -> bytes:
    """A table with other columns, types or names; what is no table is changed as bytes."""
    try:
        table = pq.read_table(io.BytesIO(content))
        at = pick.below(table.num_columns)
        name, n = table.column_names[at], table.num_rows
    except (pa.ArrowException, OSError, ValueError, IndexError):
        return of_bytes(content, pick)
    cells = (
        pa.scalar(None, pa.null()), pick.of(TEXTS).encode("utf-8", "replace").decode(), pick.of((0, -1, 2**62, 0.5, float("inf"))), [1, 2],
        {"a": 1}, b"\xff", True, pa.scalar(2**62, pa.timestamp("s")), pa.scalar(1, pa.decimal128(30, 3)),
    )  # fmt: skip
    what = pick.below(5)
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        other = pick.of(TEXTS).encode("utf-8", "replace").decode()
        table = table.rename_columns([other if one == name else one for one in table.column_names])
    elif what == 2:
        table = table.append_column(name, table.column(at))
    elif what == 3:
        said = (b"", b"{", b"[]", b'{"columns": 1}', b"{}", b'{"index_columns": ["x"]}')
        table = table.replace_schema_metadata({b"pandas": pick.of(said)})
    else:
        column = pa.repeat(pick.of(cells), n)
        is_coded = pick.below(3) == 1 and not pa.types.is_nested(column.type)  # Arrow makes no dictionaries of lists
        table = table.set_column(at, name, column.dictionary_encode() if is_coded else column)
    return parquet_bytes(table)


BY_KIND: Mapping[str, Callable[[bytes, Picker], bytes]] = {
    "csv": _of_parts(","), "tsv": _of_parts("\t"), "words": _of_parts(" "), "toml": of_toml, "json": of_json, "jsonl": of_jsonl,
    "parquet": of_parquet, "bytes": of_bytes,
}  # fmt: skip
"""Ways to go wrong, beside those of any bytes."""
