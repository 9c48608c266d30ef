"""The environment that the benchmark makes for itself: pinned, made once, made again after a cut."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_peers_are_pinned_beside_the_constraints() -> None:
    def pins(path: str) -> dict[str, str]:
        lines = [line for line in (ROOT / path).read_text().splitlines() if line and not line.startswith("#")]
        return dict(line.lower().split("==") for line in lines)

    peers, own = pins("benchmarks/requirements.txt"), pins("constraints.txt")
    assert {"lm_eval", "minicons"} <= peers.keys()
    assert peers.keys().isdisjoint(own)


# Behaves like Python as far as run.sh can see: logs its calls, makes an environment of copies of itself.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "{home}/calls"
case "$*" in
  "-m venv"*) mkdir -p .venv-bench/bin && cp "$0" .venv-bench/bin/python && cp "$0" .venv-bench/bin/undertow ;;
  *"pip install"*) if [ -e "{home}/cut-off" ]; then exit 1; fi ;;
esac
"""


class Checkout:
    """A folder with what run.sh reads, and what its stand-in Python was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a checkout"
        self.home = folder / "home"
        self.home.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "benchmarks/run.sh", "benchmarks/requirements.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes((ROOT / name).read_bytes())
        self.python = self.home / "python"
        self.python.write_text(STAND_IN.format(home=self.home))
        self.python.chmod(0o755)

    def run(self, *arguments: str) -> int:
        """Exit code of run.sh."""
        line = ["sh", str(self.folder / "benchmarks" / "run.sh"), *arguments]
        return subprocess.run(line, env={"PATH": "/usr/bin:/bin", "PYTHON": str(self.python)}, check=False).returncode

    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_environment_is_made_once(checkout: Checkout) -> None:
    assert checkout.run() == checkout.run() == 0
    installs = [call for call in checkout.calls() if "pip install" in call]
    assert [call.split("-c constraints.txt ")[1] for call in installs] == [
        "torch",
        "-e .[models]",
        "-r benchmarks/requirements.txt",
    ]


def test_an_install_cut_short_is_done_again(checkout: Checkout) -> None:
    (checkout.home / "cut-off").touch()
    assert checkout.run() != 0
    assert not any("bench.py" in call for call in checkout.calls())
    (checkout.home / "cut-off").unlink()
    assert checkout.run() == 0
    assert checkout.calls()[-1] == "python benchmarks/bench.py"


def test_changed_pins_are_installed(checkout: Checkout) -> None:
    checkout.run()
    with (checkout.folder / "benchmarks" / "requirements.txt").open("a") as file:
        file.write("another==1.0\n")
    before = len(checkout.calls())
    assert checkout.run() == 0
    assert sum("pip install" in call for call in checkout.calls()[before:]) == 3


def test_arguments_reach_the_benchmark_as_they_are(checkout: Checkout) -> None:
    checkout.run("--full", "--results", "a folder")
    assert checkout.calls()[-2:] == ["undertow pull smollm2", "python benchmarks/bench.py --full --results a folder"]
