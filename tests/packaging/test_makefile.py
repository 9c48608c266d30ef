"""The Makefile's way of setting up, with a stand-in for Python: what it says, what it repeats, what it never trusts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")

# Behaves like Python as far as the Makefile can see; files beside it say how it should fail.
STAND_IN = """#!/bin/sh
echo "$*" >> "{home}/calls"
case "$*" in
  *version_info*) if [ -e "{home}/old" ]; then exit 1; fi ;;
  *ensurepip*) if [ -e "{home}/no-venv" ]; then exit 1; fi ;;
  --version) echo "Python 3.9.2" ;;
  "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  *"pip install"*) if [ -e "{home}/cut-off" ]; then exit 1; fi ;;
esac
"""


class Checkout:
    """A folder with the Makefile in it, and what its stand-in Python was called with."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        home.mkdir()
        folder.mkdir()
        for name in ("Makefile", "constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, folder / name)
        self.python = home / "python"
        self.python.write_text(STAND_IN.format(home=home))
        self.python.chmod(0o755)

    def make(self, *arguments: str, python: str = "") -> subprocess.CompletedProcess[str]:
        """Run make as from a fresh shell: an outer make would hand its own flags down."""
        outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON"}
        env = {name: value for name, value in os.environ.items() if name not in outer}
        command = [str(MAKE), f"PYTHON={python or self.python}", *arguments]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def installs(self) -> int:
        """How often the package was installed."""
        return self.calls().count("pip install")

    def calls(self) -> str:
        """Everything that the stand-in was asked."""
        log = self.home / "calls"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout", tmp_path / "home")


def test_a_second_install_does_nothing(checkout: Checkout) -> None:
    assert checkout.make("install").returncode == 0
    assert checkout.make("install").returncode == 0
    assert checkout.installs() == 1


def test_the_install_is_constrained_and_has_the_models(checkout: Checkout) -> None:
    checkout.make("install")
    assert "-c constraints.txt -e .[models,api,ray,app,docs,dev]" in checkout.calls()


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_changed_needs_are_installed_again(changed: str, checkout: Checkout) -> None:
    checkout.make("install")
    stamp = checkout.folder / ".venv" / ".undertow-installed"
    later = stamp.stat().st_mtime + 10
    os.utime(checkout.folder / changed, (later, later))
    assert checkout.make("install").returncode == 0
    assert checkout.installs() == 2


def test_an_install_cut_short_is_not_taken_for_complete(checkout: Checkout) -> None:
    (checkout.home / "cut-off").touch()
    assert checkout.make("install").returncode != 0
    (checkout.home / "cut-off").unlink()
    assert checkout.make("install").returncode == 0
    assert checkout.installs() == 2


def test_a_broken_environment_is_made_anew(checkout: Checkout) -> None:
    broken = checkout.folder / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert checkout.make("install").returncode == 0
    assert "-m venv --clear .venv" in checkout.calls()


def test_an_old_python_is_refused_in_one_sentence(checkout: Checkout) -> None:
    (checkout.home / "old").touch()
    done = checkout.make("install")
    assert done.returncode != 0
    assert "Undertow needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert not (checkout.folder / ".venv").exists()


def test_a_missing_python_is_named(checkout: Checkout) -> None:
    done = checkout.make("install", python="no-such-python")
    assert done.returncode != 0
    assert "no 'no-such-python' here" in done.stderr


def test_a_python_without_venv_is_named(checkout: Checkout) -> None:
    (checkout.home / "no-venv").touch()
    done = checkout.make("install")
    assert done.returncode != 0
    assert "python3-venv" in done.stderr


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("demo", ".venv/bin/undertow demo"),
        ("test", ".venv/bin/undertow pull smollm2"),
        ("test", ".venv/bin/pytest"),
        ("check", ".venv/bin/lint-imports"),
        ("docs", ".venv/bin/mkdocs build"),
        ("bench", "sh benchmarks/run.sh"),
    ],
)
def test_each_job_sets_up_first(target: str, command: str, checkout: Checkout) -> None:
    plan = checkout.make("--dry-run", target).stdout
    assert 0 <= plan.find("pip install") < plan.find(command)


def test_help_lists_the_jobs(checkout: Checkout) -> None:
    text = checkout.make().stdout
    for target in ("install", "demo", "test", "fast", "check", "docs", "bench", "clean"):
        assert f"make {target} " in text
    assert checkout.installs() == 0
