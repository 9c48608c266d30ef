"""Bad input: each is refused with one sentence that names the file or key, and nothing that was answered is lost."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from workplace import Workplace, shared

from broken_way import way
from conftest import SMOLLM2, Cli
from refusal import refused
from undertow.places import store_file

RUN = ["run", "spurious-correlation"]
TOY = [*RUN, "-m", "toy", "--w", "date"]
SMALL = ["--w", "date", "--limit", "90", "--json"]
slow = pytest.mark.slow
soak = pytest.mark.soak
pytestmark = pytest.mark.usefixtures("few_resamples", "untold")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "spurious-corelation", "-m", "toy"], ["'spurious-corelation'", "'spurious-correlation'"]),
        ([*RUN, "-m", "toy", "--challenge", "mcg"], ["'mcg'", "mgc, mgt, mgt-icml"]),
        ([*RUN, "-m", "toy", "--w", "dates"], ["'dates'", "'date'"]),
        ([*RUN, "-m", "toy", "--w", "date,date"], ["one list twice"]),
        ([*RUN, "-m", " "], ["model"]),
        ([*RUN, "-m", "toy:slop=1"], ["'slop'", "slope"]),
        ([*TOY, "--limit", "-1"], ["limit -1"]),
        ([*TOY, "--dtype", "int3"], ["'int3'", "float32"]),
        ([*TOY, "--device", "nosuch"], ["'nosuch'", "cpu", "cuda:1"]),
        ([*TOY, "--seed", "-1"], ["seed -1"]),
        ([*TOY, "--w", "x" * 300], ["x" * 300, "File name too long"]),
        (["store", "prune"], ["--all"]),
        (["store", "prune", "-m", "toy"], ["'toy'"]),
    ],
)
def test_unknown_name_or_value_is_refused(arguments: list[str], words: list[str], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[*TOY, "--nosuch"], [*TOY, "--seed", "x"], RUN, ["nosuch"]])
def test_misused_command_says_how_it_is_used(arguments: list[str], cli: Cli) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")


# A user's own files.

GOOD = """
templates = ["In {w}, {blank} was here."]
w = ["date"]
[groups]
xe = ["xe"]
ze = ["ze"]
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "templates"),
        ("templates = [", "TOML"),
        (GOOD.replace("{blank} ", ""), "{blank}"),
        (GOOD.replace('["date"]', '["no-such-list"]'), "'no-such-list'"),
    ],
)
def test_bad_challenge_file_is_refused_and_nothing_is_asked(text: str, word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    refused(cli("challenge", "own.toml"), word)
    refused(cli(*RUN, "-m", "toy", "--challenge", "own.toml"), word)
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]
    assert not store_file().exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"spring\nautumn\n", "2"), (b"a\nb\nc\n\nb\n", "line 5"), (b"a\xff\nb\nc\n", "UTF-8")],
)
def test_bad_list_of_values_is_refused(content: bytes, word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(content)
    refused(cli("challenge", "mgc", "--w", "own.txt"), "own.txt", word)


# Models: GGUF files.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.gguf", None),
        ("empty.gguf", b""),
        ("model.bin", b"weights"),
    ],
)
def test_file_that_is_no_gguf_is_refused(name: str, content: bytes | None, cli: Cli, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(cli(*RUN, "-m", name, *SMALL), name)


@pytest.mark.model
@slow
def test_cut_copy_of_the_default_model_is_refused(cli: Cli, smollm2_found: object, tmp_path: Path) -> None:
    with SMOLLM2.open("rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(50_000_000))
    refused(cli(*RUN, "-m", "cut.gguf", *SMALL), "cut.gguf", "fetch it again")


# Models: folders and hub ids.

LLAMA = '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (None, "./model"),
        ({}, "config.json"),
        ({"config.json": "[" * 99_999}, "architectures"),
        ({"config.json": '{"architectures": ["ViTForImageClassification"]}'}, "undertow ls models"),
        ({"config.json": LLAMA, "pytorch_model.bin": "x"}, ".safetensors"),
    ],
)
def test_folder_that_holds_no_model_is_refused(
    files: dict[str, str] | None, word: str, cli: Cli, tmp_path: Path
) -> None:
    if files is not None:
        (tmp_path / "model").mkdir()
        for name, text in files.items():
            (tmp_path / "model" / name).write_text(text, encoding="utf-8")
    refused(cli(*RUN, "-m", "./model", *SMALL), "model", word)


@slow
def test_no_network_is_one_sentence(cli_process: Cli, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the model extra is not installed")
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = cli_process(*RUN, "-m", "someone/no-such-model", *SMALL, env=environment)
    refused(done, "someone/no-such-model", "network")


@slow
def test_model_that_the_hub_does_not_have_is_named(cli_process: Cli, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the model extra is not installed")
    with way(lambda wire: wire.reply(b"{}", 404, {"X-Error-Code": "RepoNotFound"})) as there:
        hub = {"HF_ENDPOINT": there.url, "HF_HUB_CACHE": str(tmp_path / "hub"), "NO_PROXY": "127.0.0.1"}
        done = cli_process(*RUN, "-m", "someone/else", *SMALL, env=os.environ | hub)
    refused(done, "no model called 'someone/else' on the hub")


# The answer store.


@pytest.fixture
def filled(shared_base: Path, cache: Path, tmp_path: Path) -> None:
    """A finished run of the toy, `filled`, and its answers, in this test's own folders."""

    def make(work: Workplace) -> None:
        assert work.json(*TOY, "--limit", "90", "--out", "filled")["counts"]["computed"] == 90

    folder = shared(shared_base, "filled", make).folder
    shutil.copytree(folder / "filled", tmp_path / "filled")
    shutil.copy(folder / "cache" / store_file().name, cache)


def text_instead(path: Path) -> None:
    path.write_text("this is no database, and long enough to be looked at as one " * 20, encoding="utf-8")


def pages_overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))


def cells_overwritten(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET notes = 'x', card = 'y'")
        database.execute("UPDATE answers SET numbers = x'0011223344556677'")
    database.close()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "damage", [text_instead, pages_overwritten, partial(os.truncate, length=9000), cells_overwritten]
)
def test_damaged_store_is_named_and_moved_aside_by_what_asks(
    damage: Callable[[Path], None], cli: Cli, tmp_path: Path
) -> None:
    damage(store_file())
    damaged = store_file().read_bytes()
    refused(cli("store", "info"), str(store_file()), "damaged")
    assert store_file().read_bytes() == damaged
    done = cli(*TOY, "--limit", "90", "--out", "again", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"undertow: {store_file()}: ")
    assert "answers.sqlite.damaged" in done.stderr
    assert store_file().with_name("answers.sqlite.damaged").read_bytes() == damaged
    assert json.loads(done.stdout)["counts"]["computed"] == 90
    assert (tmp_path / "again/results.json").read_bytes() == (tmp_path / "filled/results.json").read_bytes()


def test_cache_that_is_a_file_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = cli(*TOY, "--limit", "90", env={"UNDERTOW_CACHE": str(tmp_path / "file")})
    refused(done, str(tmp_path / "file"), "UNDERTOW_CACHE")


def computed(done: subprocess.CompletedProcess[str]) -> int:
    assert (done.returncode, done.stderr) == (0, "")
    return int(json.loads(done.stdout)["counts"]["computed"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_onto_a_full_disk_is_one_sentence(cli_process: Cli) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = cli_process("challenge", "mgc", "--csv", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    done.stdout = ""
    refused(done, "the output", "No space left on device")
