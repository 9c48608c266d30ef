from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import Cli
from helpers.answering import n_stored
from helpers.cli_refusal import refused
from helpers.command_line import UNDERTOW, started
from helpers.faulty_proxy import wait_until

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
        ([*RUN, "-m", "toy:slop=1"], ["'slop'", "slope"]),
        ([*TOY, "--limit", "-1"], ["limit -1"]),
        ([*TOY, "--dtype", "int3"], ["'int3'", "float32"]),
        ([*TOY, "--device", "cuda:x"], ["'cuda:x'"]),
        ([*TOY, "--seed", "-1"], ["seed -1"]),
        ([*TOY, "--protocol", "rough"], ["'rough'", "exact"]),
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


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (None, "./model"),
        ({}, "config.json"),
        ({"config.json": '{"architectures": []}'}, "architectures"),
        ({"config.json": '{"architectures": ["ViTForImageClassification"]}'}, "undertow list models"),
        ({"config.json": '{"architectures": ["LlamaForCausalLM"]}', "pytorch_model.bin": "x"}, ".safetensors"),
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


@slow
def test_ctrl_c_keeps_the_answers_and_says_so(tmp_path: Path) -> None:
    arguments = ["run", "spurious-correlation", "-m", "toy:pause=0.3", "--w", "date", "--out", "run"]
    with started(tmp_path, *arguments) as command:
        wait_until(lambda: n_stored() > 0)
        command.send_signal(signal.SIGINT)
        said, complained = command.communicate(timeout=240)
    assert (said, command.returncode) == ("", 130)
    assert complained == "undertow: stopped; all answers so far are cached; run the same command again to continue\n"
    assert n_stored() > 0
    assert not (tmp_path / "run").exists()


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    piped = f"{shlex.join(UNDERTOW)} challenge mgt-icml | head -2"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
