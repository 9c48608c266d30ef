"""Every kind of folder, table and record that is read back: how to make one, which of its files to edit, and what reads it.

Readers are called in this process, without the command line, which adds nothing but time; a sample goes through `commands`.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import undertow
from helpers import inspect_log, lm_eval_log, readers
from helpers import tiny_models as tiny
from undertow import audits, integrations
from undertow.app.annotators.annotation import summary
from undertow.app.run_browser import readable
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.lab.build import PLAN, Attempt, BuiltModel, read_attempts, read_built, read_plan, recipe_digest
from undertow.lab.experiment_plan import Plan, PlannedModel
from undertow.lab.lab_folder import write_lab_json
from undertow.lab.training.checkpoint_folder import CheckpointFolder
from undertow.lab.training.finetune import RECORD
from undertow.lab.training.training_config import MASKED
from undertow.metrics.text.judgements import CATEGORIES
from undertow.models import resolve
from undertow.models.base import ModelRequest
from undertow.runs.compare.compare_folders import COMPARISON, JSON, CompareOptions, Runs
from undertow.runs.finished_run import audit_of, observations_of
from undertow.runs.folder.annotations import ANNOTATIONS
from undertow.runs.folder.storage import read_record
from undertow.runs.folder.whole_folder import check_place
from undertow.runs.pipeline import write_report
from undertow.types import EXACT, ClozeQuery, Option

FIGURES_OF, TEXT_OF = 100, 10
"""One edit in so many has its figures drawn and its report written, too, which take far longer than all else."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How to make one in a folder that is there, which of its files are edited, what reads it, and commands that do."""

    make: Callable[[Path], None]
    files: Sequence[str]
    read: Callable[[Path, random.Random], object]
    commands: Sequence[tuple[str, ...]]


CARRIED = re.compile(rb'"undertow": ("\{(?:[^"\\]|\\.)*")')
"""The question that a sample of a log carries, as text."""


def edit(path: Path, choice: random.Random) -> None:
    """One edit of a file: of a field, a cell or a byte; of a log as often one of a question that a sample carries."""
    content, pick = path.read_bytes(), readers.Picker([choice.getrandbits(32) for _ in range(16)])
    held = list(CARRIED.finditer(content))
    if held and pick.below(2):
        one = pick.of(held)
        question = readers.of_json(json.loads(one[1]).encode(), pick).decode("utf-8", "surrogatepass")
        path.write_bytes(content[: one.start(1)] + json.dumps(question).encode() + content[one.end(1) :])
    else:
        path.write_bytes(readers.BY_KIND.get(path.suffix[1:], readers.of_bytes)(content, pick))


# Runs.

RUN_FILES = ("manifest.json", "results.json")
RULES = '[[rule]]\nname = "r"\nmeasure = "{}"\nof = "value"\nat_most = 1000\nwhy = "w"\n'


def read_run(folder: Path, choice: random.Random) -> object:
    """All that commands and pages take from a run."""
    record = read_record(folder / "run")
    audit, observations = audit_of(record), observations_of(record)
    run = undertow.load_run(folder / "run")
    said: list[Any] = [
        repr(run),
        run._repr_html_(),
        repr(readable(run.results, record.results)),
        audit.tables(observations),
    ]
    if choice.randrange(TEXT_OF) == 0:
        said.append(run.tables)
    if choice.randrange(FIGURES_OF) == 0:
        with tempfile.TemporaryDirectory() as scratch:
            write_report(audit, observations, record)(Path(scratch))
    if (folder / "other").is_dir():
        runs = Runs.from_folders([folder / "other", folder / "run"])
        said += [runs.names, runs.pairs(within=False)]
    if (folder / "rules.toml").is_file():
        said.append(undertow.gate([folder / "run"], folder / "rules.toml"))
    return said


def run_of(audit: str, measure: str, options: Mapping[str, Any], models: Any = "toy", replay: bool = False) -> Kind:
    def make(folder: Path) -> None:
        given = models(folder) if callable(models) else models
        for seed, name in enumerate(("run", "other")):
            undertow.audit(audit, given, **options, seed=seed, out=folder / name)
        (folder / "rules.toml").write_text(RULES.format(measure))

    commands = [
        ("report", "run"),
        ("gate", "run", "--rules", "rules.toml"),
        ("gate", "other", "--rules", "rules.toml", "--baseline", "run"),
        ("compare", "other", "run", "--out", "compared"),
        ("score", "run", "--out", "scored"),
        ("scaling", "run", "other"),
    ]
    if replay:
        w = ("--w", "date", "--date-count", str(options["date_count"]), "--limit", str(options["limit"]))
        commands += [("run", audit, "-m", "replay:run", *w, "--out", "again"), ("power", "mgc", "--like", "run")]
    return Kind(make, [f"run/{name}" for name in RUN_FILES], read_run, commands)


def scored(folder: Path) -> None:
    (folder / "t.csv").write_text(TABLES["spurious-correlation"], encoding="utf-8")
    for seed, name in enumerate(("run", "other")):
        undertow.score(
            folder / "t.csv", audit="spurious-correlation", seed=seed, graph="unspecified", out=folder / name
        )
    (folder / "rules.toml").write_text(RULES.format("slope"))


def compared(folder: Path) -> None:
    run_of("spurious-correlation", "slope", DRIFT).make(folder)
    undertow.compare(folder / "other", folder / "run").write(folder / "compared")


def read_compared(folder: Path, choice: random.Random) -> None:
    del choice
    key = Runs.from_folders([folder / "other", folder / "run"]).key(CompareOptions())
    check_place(folder / "compared", key, COMPARISON)


# Recorded tables.


def _masses() -> str:
    lines = ["model,w_name,w_index,w,cluster,female,male,other_words"]
    lines += [
        f"m,date,{at},{1900 + 10 * at},c{cluster},{20 + at + cluster % 3},{50 - at},{30 - cluster % 3}"
        for cluster in range(6)
        for at in range(6)
    ]
    return "\n".join([*lines, ""])


def _ends() -> str:
    lines = [
        "model,occupation,participant,participant_class,coreferent,w_first_female,w_last_female,w_first_male,w_last_male"
    ]
    for job in range(6):
        for participant, kind in (("someone", "unspecified"), ("man", "male"), ("woman", "female")):
            first = 20 + job + (0 if kind == "unspecified" else 5)
            last = first + (9 if kind == "unspecified" else 1)
            lines.append(f"m,job{job},{participant},{kind},1,{first},{last},{50 - job},{45 - job}")
    return "\n".join([*lines, ""])


def _answers(gold: Sequence[str], answers: Sequence[str], passage: str = "") -> str:
    head = "model,document,gold,answer,dimension,shots,sampling,draw,cluster" + (",passage" if passage else "")
    lines = [head]
    for model in ("m", "n"):
        for at in range(8):
            more = f",{passage}" if passage else ""
            dimension = ("age", "religion")[at % 2]
            lines.append(
                f"{model},{at},{gold[at % len(gold)]},{answers[at % len(answers)]},{dimension},0,,0,c{at // 2}{more}"
            )
    return "\n".join([*lines, ""])


def _checklist() -> str:
    lines = ["model,question_type,woman,man,occupation,context,attribute,subject,order,answer"]
    for woman, man in (("Mary", "James"), ("Linda", "Robert"), ("Anna", "John")):
        for job in ("nurse", "pilot"):
            lines.append(f"m,attribute,{woman},{man},{job},,skill of a {job},{woman},,Yes")
            lines.append(f"m,attribute,{woman},{man},{job},,skill of a {job},{man},,No")
            lines.append(f"m,binary,{woman},{man},{job},without attributes,,{woman},,Yes")
            lines.append(f"m,single,{woman},{man},{job},without attributes,,,,{woman}")
    return "\n".join([*lines, ""])


TABLES = {
    "spurious-correlation": _masses(),
    "task-specification": _ends(),
    "bias-diagnosis": _answers(("yes", "no"), ("Yes", "No", "no")),
    "bias-identification": _answers(("age", "religion"), ("age", "religion", "age")),
    "bias-extraction": _answers(("are lazy", "so rude"), ("are lazy", "lazy", ""), "All rivers are lazy and so rude"),
    "bias-rephrasing": _answers(("flow slowly", "are calm"), ("flow slowly", "calm", "no"), "are lazy"),
    "occupation-checklist": _checklist(),
}


def table_of(audit: str) -> Kind:
    def make(folder: Path) -> None:
        (folder / "t.csv").write_text(TABLES[audit], encoding="utf-8")

    def read(folder: Path, choice: random.Random) -> object:
        chosen = audits.load(audit)
        observations, _ = chosen.load_recorded(folder / "t.csv", "")
        results = chosen.measure(observations, 0)
        if choice.randrange(FIGURES_OF) == 0:
            list(chosen.draw(observations, results))
        if choice.randrange(TEXT_OF) == 0:
            chosen.report_text(observations, results)
        return chosen.findings(observations, results)

    return Kind(make, ["t.csv"], read, [("score", "t.csv", "--audit", audit, "--out", "scored")])


# Logs.


def log_of(harness: str, write: Callable[[Path, Path], None], files: Sequence[str]) -> Kind:
    """What these files of a harness say of a few questions that it was given."""

    def make(folder: Path) -> None:
        integrations.export(harness, "spurious-correlation", folder / "asked", w="date", date_count=3, limit=9)
        write(folder / "asked", folder / "logs")

    def read(folder: Path, choice: random.Random) -> object:
        del choice
        logs = sorted((folder / "logs").iterdir())
        with tempfile.TemporaryDirectory() as scratch:
            return [undertow.score(one, out=f"{scratch}/{one.name}") for one in logs]

    scored = ("score", f"logs/{Path(files[0]).parts[0]}", "--out", "scored")
    return Kind(make, [f"logs/{name}" for name in files], read, [scored])


def write_lm_eval(asked: Path, logs: Path) -> None:
    nats = {doc["item"]: [-1.0, -1.5, -2.0] for docs in lm_eval_log.docs_of(asked).values() for doc in docs}
    lm_eval_log.write_log(asked, logs, nats)


def write_inspect(asked: Path, logs: Path) -> None:
    logs.mkdir()
    for name, write_one in (("json", inspect_log.write_json), ("eval", inspect_log.write_eval)):
        write_one(inspect_log.log_of(asked), logs / f"log.{name}")


LM_EVAL_FILES = (f"toy/samples_undertow_mgc_date_{lm_eval_log.DATE}.jsonl", f"toy/results_{lm_eval_log.DATE}.json")


# Networks.

NETWORK_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
QUERY = ClozeQuery(("In 1801, ", " was a child."), (Option("female", ("she",)), Option("male", ("he",))))


def read_network(folder: Path, choice: random.Random) -> object:
    del choice
    handle = resolve(ModelRequest(str(folder / "net"), device="cpu"))
    with tempfile.TemporaryDirectory() as scratch, AnswerCache(Path(scratch) / "answers.sqlite") as store:
        return run_queries(handle, [QUERY], store, EXACT, lambda done, total: None)


def network_of(builder: str, *, sharded: bool = False) -> Kind:
    files = [*NETWORK_FILES, *(["model.safetensors.index.json"] if sharded else [])]

    def make(folder: Path) -> None:
        tiny.save(builder, folder / "net")
        if sharded:
            from transformers import AutoModelForCausalLM

            network = AutoModelForCausalLM.from_pretrained(folder / "net")
            (folder / "net/model.safetensors").unlink()
            network.save_pretrained(folder / "net", max_shard_size="40KB")

    command = ("guard", "The doctor told the man that ___ was late.", "-m", "net", "--challenge", "simplified")
    small = ("--w", "date", "--date-count", "2", "--limit", "4", "--out", "out")
    run = ("run", "spurious-correlation", "-m", "net", *small)
    return Kind(make, [f"net/{name}" for name in files], read_network, [command, run])


# The lab.

SUBJECTS = (PlannedModel(MASKED, 0.65, 7, people=15_000), PlannedModel(MASKED, 0.0, 8, people=15_000))


def lab(folder: Path) -> None:
    """Two models as their records tell of them, without their networks, which nothing reads here."""
    (folder / "models").mkdir()
    write_lab_json(folder / PLAN, Plan, SUBJECTS)
    for subject in SUBJECTS:
        learned = {"date": 0.2, "place": 0.1}
        attempt = Attempt(steps=subject.config.max_steps, loss_nats=0.4, learned=learned, seconds=3.0, failure="")
        planted = {"date": 0.3, "place": 0.2}
        built = BuiltModel(subject, planted, planted, 0.4, 0.3, 0.6, (attempt,), recipe_digest(subject))
        write_lab_json(folder / "models" / f"{subject.name}.planted.json", BuiltModel, built)


def read_lab(folder: Path, choice: random.Random) -> object:
    del choice
    plan = read_plan(folder)
    return read_attempts(folder, plan), read_built(folder, plan)


IDENTITY: dict[str, Any] = {"base_revision": "0" * 64, "data_sha256": "1" * 64, "max_steps": 5, "learning_rate": 0.1}
IDENTITY["labels"] = ["a", "b"]


def finetuned(folder: Path) -> None:
    (folder / "tuned").mkdir()
    record = {"identity": IDENTITY, "n_steps": 5, "losses_nats": [[1, 0.5]], "words": {"female": 3}}
    (folder / "tuned" / RECORD).write_text(json.dumps(record), encoding="utf-8")


def judged(folder: Path) -> None:
    REPHRASING.make(folder)
    rows = read_record(folder / "run").observations
    from undertow.app.annotators.annotation import AnnotationStore

    book = AnnotationStore(folder / "run", "me")
    for at, item in enumerate(list(book.rephrasings)[: len(rows)]):
        book.judge(item, list(CATEGORIES)[at % len(CATEGORIES)], "a note")


DRIFT: dict[str, Any] = {"w": "date", "date_count": 9, "limit": 90}
REPHRASING = run_of("bias-rephrasing", "token_f1", {"n_documents": 2, "wordings": 1})


def reduced(folder: Path) -> str:
    tiny.save("tiny_llama", folder / "net")
    return str(folder / "net")


KINDS: Mapping[str, Kind] = {
    "spurious-correlation": run_of("spurious-correlation", "slope", DRIFT, replay=True),
    "task-specification": run_of("task-specification", "auroc", {"date_count": 2, "limit": 60}),
    "occupation-checklist": run_of("occupation-checklist", "consistency", {"limit": 40}),
    "bias-diagnosis": run_of("bias-diagnosis", "f1", {"n_documents": 4}),
    "bias-identification": run_of("bias-identification", "exact_match", {"n_documents": 2, "wordings": 2}),
    "bias-extraction": run_of("bias-extraction", "token_f1", {"n_documents": 2, "wordings": 1}),
    "bias-rephrasing": REPHRASING,
    "several models": run_of("spurious-correlation", "slope", DRIFT, ["toy", "toy:slope=2"]),
    "reduced precision": run_of("spurious-correlation", "slope", DRIFT | {"dtype": "bfloat16"}, reduced),
    "scored with a graph": Kind(
        scored, [f"run/{name}" for name in RUN_FILES], read_run, [("report", "run"), ("report", "run", "--graph", "unspecified")]
    ),
    "comparison": Kind(
        compared, [f"compared/{JSON}"], read_compared, [("compare", "other", "run", "--out", "compared")]
    ),
    **{f"table of {audit}": table_of(audit) for audit in TABLES},
    "log of lm-eval": log_of("lm-eval", write_lm_eval, LM_EVAL_FILES),
    "log of Inspect": log_of("inspect", write_inspect, ("log.json", "log.eval")),
    "causal network": network_of("tiny_gpt2", sharded=True),
    "masked network": network_of("trained_bert"),
    "encoder-decoder": network_of("trained_t5"),
    "lab": Kind(
        lab,
        [PLAN, *(f"models/{subject.name}.planted.json" for subject in SUBJECTS)],
        read_lab,
        [("lab", "verify", "--out", ".", "--jobs", "1")],
    ),
    "fine-tuned model": Kind(
        finetuned, [f"tuned/{RECORD}"], lambda folder, _: CheckpointFolder(folder / "tuned", RECORD, IDENTITY).finished(), []
    ),
    "judgements": Kind(
        judged, [f"run/{ANNOTATIONS}"], lambda folder, _: summary(folder / "run"), [("annotate", "run", "--summary")]
    ),
}  # fmt: skip
