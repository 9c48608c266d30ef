"""Killed at any moment (SIGKILL), the same command ends as if it had not been: no answer is lost, and nothing differs by a byte.

Moments are drawn with a seed, which a failure names. Audits are forked from an interpreter that has read their packages.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faulty_proxy import Asked, Reply, serving
from undertow.places import store_file
from undertow.records import MANIFEST, UNFINISHED
from undertow.sharing import DRAFT_PREFIX
from warm import COLD, LIGHT, LIMIT_S, OF_MODELS, WarmStart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="a forked command is found in /proc"),
]
SEED = int(os.environ.get("UNDERTOW_CRASH_SEED", "20261122"))
TEXTS = ["--documents", "16", "--wordings", "1"]
TOY = ["-m", "toy:pause=0.05"]
COMMANDS = {
    "spurious-correlation": ["--w", "date", "--limit", "300", *TOY],
    "task-specification": ["--limit", "40", *TOY],
    "bias-diagnosis": [*TEXTS, *TOY],
    "bias-identification": [*TEXTS, *TOY],
    "bias-extraction": [*TEXTS, *TOY],
    "bias-rephrasing": [*TEXTS, *TOY],
    "occupation-checklist": ["--pairs", "1", "--occupations", "3", *TOY],
}
"""Every audit, small."""
NEXT_TO_NOTHING_S = 0.001


@dataclass
class Audit:
    """An audit that is killed and taken up, in a folder and a cache of its own.

    Attributes:
        words: the command, without its folder.
        place: where its folder and cache are.
        starts: forks it.
        whole: results.json of a run that nobody killed.
        n_whole: answers that it took.
    """

    words: list[str]
    place: Path
    starts: WarmStart
    whole: bytes = b""
    n_whole: int = 0
    killed_while: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.place / "killed" / "run"

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    def run(self, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
        folder.parent.mkdir(exist_ok=True)
        environment = os.environ | {"UNDERTOW_CACHE": str(cache)}
        words = ["run", *self.words, "--out", str(folder), "--json"]
        done = self.starts.run(words, folder.parent, environment)
        assert done is not None, "an interpreter with several threads cannot fork"
        return done

    def run_whole(self) -> None:
        done = self.run(self.place / "whole" / "run", self.place / "whole cache")
        assert done.returncode == 0, done.stderr
        self.whole = (self.place / "whole" / "run" / "results.json").read_bytes()
        self.n_whole = json.loads(done.stdout)["counts"]["computed"]
        assert self.n_whole > 0

    def stored(self) -> int:
        """Answers on the disk; read by a connection that cannot write."""
        path = self.cache / store_file().name
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as reader:
                n = int(reader.execute("SELECT count(*) FROM answers").fetchone()[0])
            reader.close()
        except sqlite3.OperationalError:
            return 0  # not made yet
        return n

    def drafts(self) -> list[Path]:
        return list(self.folder.parent.glob(f"{DRAFT_PREFIX}*"))

    def kill(self, phase: str, draw: random.Random) -> bool:
        """Start it and kill it in this phase, if it is not over by then; says whether it was killed."""
        kept, finished = self.stored(), (self.folder / MANIFEST).is_file()
        drafts = set(self.drafts())
        told: list[subprocess.CompletedProcess[str]] = []
        waiter = threading.Thread(target=lambda: told.append(self.run(self.folder, self.cache)))
        self.folder.parent.mkdir(exist_ok=True)
        before = children(self.starts)
        waiter.start()
        pid = first_of(lambda: children(self.starts) - before, waiter)
        if pid:
            reached, then_s = PHASES[phase]
            first_of(lambda: reached(self, kept, drafts), waiter)
            time.sleep(draw.uniform(0, then_s))
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid.pop(), signal.SIGKILL)
        waiter.join(LIMIT_S)
        assert not waiter.is_alive()
        assert told[0].returncode in (0, -signal.SIGKILL), told[0].stderr
        assert self.stored() >= kept, f"answers were lost: {self.stored()} of {kept}"
        assert not finished or (self.folder / MANIFEST).is_file() or (self.folder / UNFINISHED).is_file()
        if told[0].returncode:
            self.killed_while.append(phase)
        return bool(told[0].returncode)

    def resume(self) -> None:
        """The same command, to its end."""
        kept, finished = self.stored(), (self.folder / MANIFEST).is_file()
        done = self.run(self.folder, self.cache)
        assert (done.returncode, done.stderr) == (0, "")
        assert (self.folder / "results.json").read_bytes() == self.whole
        if not finished:
            assert json.loads(done.stdout)["counts"]["computed"] == self.n_whole - kept
        assert self.stored() == self.n_whole
        assert [one.name for one in self.folder.parent.iterdir()] == ["run"]
        assert {one.name for one in self.folder.iterdir()} == {
            one.name for one in (self.place / "whole" / "run").iterdir()
        }
        # Whoever only reads leaves the log and its index where they are.
        beside = {f"{store_file().name}{ending}" for ending in ("", "-wal", "-shm")}
        assert {one.name for one in self.cache.iterdir()} <= beside


def first_of(happens: Callable[[], Any], waiter: threading.Thread) -> Any:
    """What happens first: this, or the command's end."""
    while waiter.is_alive():
        if found := happens():
            return found
        time.sleep(NEXT_TO_NOTHING_S)
    return None


def children(start: WarmStart) -> set[int]:
    waiting = start._waiting
    if waiting is None:
        return set()
    listed = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    return set(map(int, listed.read_text().split()))


def _writing(audit: Audit, kept: int, before: set[Path]) -> bool:
    return bool(set(audit.drafts()) - before)


def _drawing(audit: Audit, kept: int, before: set[Path]) -> bool:
    return any((draft / "run" / "observations.parquet").is_file() for draft in set(audit.drafts()) - before)


def _telling(audit: Audit, kept: int, before: set[Path]) -> bool:
    return any((draft / "run" / "figures").is_dir() for draft in set(audit.drafts()) - before)


def _moving(audit: Audit, kept: int, before: set[Path]) -> bool:
    fresh = set(audit.drafts()) - before
    return any((draft / "run" / MANIFEST).is_file() or not (draft / "run").is_dir() for draft in fresh)


PHASES: dict[str, tuple[Callable[[Audit, int, set[Path]], bool], float]] = {
    "starting": (lambda audit, kept, before: True, 0.5),
    "asking": (lambda audit, kept, before: audit.stored() > kept, 0.15),
    "measuring": (lambda audit, kept, before: audit.stored() >= audit.n_whole, 0.1),
    "writing": (_writing, 0.05),
    "drawing": (_drawing, 0.2),
    "telling": (_telling, 0.1),
    "moving": (_moving, 0.01),
}
"""When a phase is reached, and how long after that the process is killed at the latest [s]."""


@pytest.fixture(scope="module")
def light() -> Iterator[WarmStart]:
    start = WarmStart(LIGHT)
    yield start
    start.end()


@contextmanager
def named(seed: str) -> Iterator[random.Random]:
    """Failures say which moments they were."""
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"moments drawn by the seed {seed!r} (UNDERTOW_CRASH_SEED={SEED})")
        raise


def killed_and_taken_up(audit: Audit, phases: list[str], seed: str, measured: Callable[[str], None]) -> None:
    with named(f"{SEED} {seed}") as draw:
        audit.run_whole()
        for phase in phases:
            audit.kill(phase, draw)
        # A machine that is in a hurry may be through before it is killed; not every time.
        assert len(audit.killed_while) > len(phases) // 2, audit.killed_while
        audit.resume()
    measured(f"{len(audit.killed_while)} kills of {seed}, while {', '.join(audit.killed_while)}")


@pytest.mark.parametrize(
    ("probe", "phases"),
    [
        ("spurious-correlation", ["asking", "measuring", "drawing"]),
        pytest.param("task-specification", ["asking", "writing", "moving"], marks=pytest.mark.soak),
        pytest.param("bias-rephrasing", ["asking"], marks=pytest.mark.soak),
        ("occupation-checklist", ["asking"]),
    ],
)
def test_a_few_moments(
    probe: str, phases: list[str], light: WarmStart, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    audit = Audit([probe, *COMMANDS[probe]], tmp_path, light)
    killed_and_taken_up(audit, phases, probe, measured)


@pytest.mark.soak
@pytest.mark.parametrize("probe", COMMANDS)
def test_five_moments_of_every_audit(
    probe: str, light: WarmStart, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """35 of 50: each audit in the order of its phases, so that every one has something left to do."""
    chosen = sorted(random.Random(f"{SEED} {probe}").sample(list(PHASES), 5), key=list(PHASES).index)
    killed_and_taken_up(Audit([probe, *COMMANDS[probe]], tmp_path, light), chosen, probe, measured)


# Families, and engines.


def causal(folder: Path) -> list[str]:
    from tiny import saved, tiny_gpt2

    return ["spurious-correlation", "--w", "date", "--limit", "900", "-m", saved(folder, tiny_gpt2())]


def masked(folder: Path) -> list[str]:
    from transformers import BertConfig, BertForMaskedLM

    from tiny import POSITIONS, wordpiece_tokenizer

    tokenizer = wordpiece_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=POSITIONS, initializer_range=0.3,
    )  # fmt: skip
    return [
        "spurious-correlation",
        "--w",
        "date",
        "--limit",
        "900",
        "-m",
        drawn(folder, BertForMaskedLM, config, tokenizer),
    ]


def seq2seq(folder: Path) -> list[str]:
    from transformers import T5Config, T5ForConditionalGeneration

    from tiny import sentencepiece_tokenizer

    tokenizer = sentencepiece_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer) + 4, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = drawn(folder, T5ForConditionalGeneration, config, tokenizer)
    return ["spurious-correlation", "--w", "date", "--limit", "600", "-m", model]


def drawn(folder: Path, architecture: Any, config: Any, tokenizer: Any) -> str:
    """A network whose weights are drawn at random."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        architecture(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def heavy() -> Iterator[WarmStart]:
    pytest.importorskip("torch", reason="the model extra is not installed")
    start = WarmStart(OF_MODELS)
    yield start
    start.end()


@pytest.mark.soak
@pytest.mark.parametrize("family", [causal, masked, seq2seq])
def test_three_moments_of_each_family_with_weights(
    family: Callable[[Path], list[str]], heavy: WarmStart, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    audit = Audit(family(tmp_path / "network"), tmp_path, heavy)
    killed_and_taken_up(audit, ["asking", "measuring", "drawing"], family.__name__, measured)


def replied(asked: Asked) -> Reply:
    """Three pronouns by a number that hangs on the prompt alone."""
    share = 0.2 + 0.4 * zlib.crc32(asked.prompt.encode()) / 2**32
    shown = {"she": share, "he": 0.8 - share, "they": 0.1, "the": 0.02}
    listed = [{"token": one, "logprob": math.log(prob), "bytes": list(one.encode())} for one, prob in shown.items()]
    step = listed[0] | {"top_logprobs": listed}
    choice = {"text": "she", "index": 0, "logprobs": {"content": [step], "refusal": None}, "finish_reason": "length"}
    return Reply({"object": "text_completion", "model": "scripted", "choices": [choice]}, after_s=0.02)


@pytest.mark.soak
def test_three_moments_of_a_model_behind_a_server(
    light: WarmStart, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    pytest.importorskip("openai", reason="the api extra is not installed")
    with serving(replied) as seen:
        words = ["--w", "date", "--limit", "120", "--prompts", "A", "--base-url", seen.url, "-m", "openai:scripted"]
        audit = Audit(["spurious-correlation", *words], tmp_path, light)
        killed_and_taken_up(audit, ["asking", "asking", "writing"], "openai", measured)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_three_moments_of_a_run_in_workers(light: WarmStart, tmp_path: Path, measured: Callable[[str], None]) -> None:
    """The process that has the cluster is killed: the cluster ends with it, and what its workers had answered is kept."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    words = ["spurious-correlation", "--w", "date", "--limit", "600", "-m", "toy:pause=0.4"]
    audit = Audit(words, tmp_path, light)
    with named(f"{SEED} ray") as draw:
        audit.run_whole()
        audit.words += ["--engine", "ray", "--workers", "2"]
        killed = 0
        for _ in range(3):
            kept = audit.stored()
            environment = os.environ | {"UNDERTOW_CACHE": str(audit.cache)}
            audit.folder.parent.mkdir(exist_ok=True)
            line = [sys.executable, "-c", COLD, "run", *audit.words, "--out", str(audit.folder), "--json"]
            with subprocess.Popen(
                line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process:
                while process.poll() is None and audit.stored() <= kept:
                    time.sleep(0.01)
                time.sleep(draw.uniform(0, 0.3))
                process.kill()
            killed += process.returncode == -signal.SIGKILL
            assert audit.stored() >= kept
        assert killed > 1
        assert gone(audit.cache), "processes of the clusters are left"
        audit.words = audit.words[:-4]
        audit.resume()
    measured(f"{killed} kills of a run in workers, while asking")


def gone(cache: Path) -> bool:
    """Whether no process that was started with this cache is left; a cluster notices within minutes that its head is gone."""
    mark, until = f"UNDERTOW_CACHE={cache}\0".encode(), time.monotonic() + 200
    while time.monotonic() < until:
        left = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes():
                    left.append(process)
            except OSError:
                continue  # it has ended meanwhile, or is another user's
        if not left:
            return True
        time.sleep(0.2)
    return False


# A draft that is left.


def test_a_draft_is_kept_while_its_process_lives_and_removed_when_it_is_gone(tmp_path: Path) -> None:
    """By the lock that a living process has on it, not by its age."""
    code = """
import sys
from pathlib import Path
from undertow.sharing import DRAFT_PREFIX, draft_folder
with draft_folder(Path(sys.argv[1]), DRAFT_PREFIX) as draft:
    print(draft.name, flush=True)
    sys.stdin.read()
"""
    from undertow.records import check_place

    line = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        name = process.stdout.readline().strip()
        check_place(tmp_path / "another", "key")
        assert [one.name for one in tmp_path.iterdir()] == [name]
        process.kill()
    check_place(tmp_path / "another", "key")
    assert list(tmp_path.iterdir()) == []
