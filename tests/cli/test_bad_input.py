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

from conftest import Cli
from helpers.cli_refusal import refused
from helpers.sampled_cases import briefly
from helpers.workplace import Workplace, shared
from undertow._folders import cache_file

RUN = ["run", "spurious-correlation"]
TOY = [*RUN, "-m", "toy", "--w", "date"]
SMALL = ["--w", "date", "--limit", "90", "--json"]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "spurious-corelation", "-m", "toy"], ["'spurious-corelation'", "'spurious-correlation'"]),
        ([*RUN, "-m", "toy", "--challenge", "mcg"], ["'mcg'", "mgc, mgt, mgt-icml", "winogender"]),
        ([*RUN, "-m", "smolm2"], ["did you mean 'smollm2'", "no folder of this name"]),
        (["challenge", "undertow-statement"], ["did you mean 'undertow-statements'", "occupations", "bias-diagnosis"]),
        ([*RUN, "-m", "toy", "--w", "dates"], ["'dates'", "'date'"]),
        ([*RUN, "-m", "toy", "--w", " , "], ["--w"]),
        ([*RUN, "-m", "toy", "--words", "pronuns"], ["'pronouns'"]),
        ([*RUN, "-m", " "], ["model"]),
        ([*RUN, "-m", "toy:slop=1"], ["'slop'", "slope"]),
        ([*TOY, "--limit", "-1"], ["limit -1"]),
        ([*TOY, "--dtype", "int3"], ["'int3'", "float32"]),
        ([*TOY, "--device", "cuda:x"], ["'cuda:x'"]),
        ([*TOY, "--seed", "-1"], ["seed -1"]),
        ([*TOY, "--date-count", "2"], ["date count 2", "at least 3"]),
        ([*TOY, "--protocol", "rough"], ["'rough'", "exact"]),
        (["challenge", "mgc", "--w", "time"], ["'time'", "date, place, subreddit"]),
        (["cache", "prune", "--all", "-m", "toy"], ["what to delete"]),
    ],
)
def test_unknown_name_or_value_is_refused(arguments: list[str], words: list[str], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [[*TOY, "--nosuch"], [*TOY, "--seed", "x"], RUN, ["run"], ["nosuch"], ["challenge"]]
)
def test_misused_command_says_how_it_is_used(arguments: list[str], cli: Cli) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")


# Models: folders and hub ids.

LLAMA = '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (None, "./model"),
        ({}, "config.json"),
        ({"config.json": '{"architectures": []}'}, "architectures"),
        ({"config.json": "[" * 99_999}, "architectures"),
        ({"config.json": '{"architectures": ["ViTForImageClassification"]}'}, "undertow list models"),
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


@pytest.fixture
def filled(shared_base: Path, cache: Path, tmp_path: Path) -> None:
    """A finished run of the toy, `filled`, and its answers, in this test's own folders."""

    def make(work: Workplace) -> None:
        assert work.json(*TOY, "--limit", "90", "--out", "filled")["counts"]["computed"] == 90

    folder = shared(shared_base, "filled", make).folder
    shutil.copytree(folder / "filled", tmp_path / "filled")
    shutil.copy(folder / "cache" / cache_file().name, cache)


def cells_overwritten(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET notes = 'x', identity = 'y'")
        database.execute("UPDATE answers SET probs = x'0011223344556677'")
    database.close()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("damage", briefly([cells_overwritten, partial(os.truncate, length=9000)]))
def test_damaged_store_is_named_and_moved_aside_by_what_asks(
    damage: Callable[[Path], None], cli: Cli, tmp_path: Path
) -> None:
    damage(cache_file())
    corrupt = cache_file().read_bytes()
    refused(cli("cache", "info"), str(cache_file()), "corrupt")
    assert cache_file().read_bytes() == corrupt
    done = cli(*TOY, "--limit", "90", "--out", "again", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"undertow: {cache_file()}: ")
    assert "answers.sqlite.corrupt" in done.stderr
    assert cache_file().with_name("answers.sqlite.corrupt").read_bytes() == corrupt
    assert json.loads(done.stdout)["counts"]["computed"] == 90
    assert (tmp_path / "again/results.json").read_bytes() == (tmp_path / "filled/results.json").read_bytes()


def test_cache_that_is_a_file_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = cli(*TOY, "--limit", "90", env={"UNDERTOW_CACHE": str(tmp_path / "file")})
    refused(done, str(tmp_path / "file"), "UNDERTOW_CACHE")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_onto_a_full_disk_is_one_sentence(cli_process: Cli) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = cli_process("challenge", "mgc", "--csv", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    done.stdout = ""
    refused(done, "the output", "No space left on device")
