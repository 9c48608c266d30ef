"""The wheel as a user without the model extra has it: in an environment of its own, used outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NO_MODELS = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "huggingface_hub", "gguf", "accelerate", "tokenizers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def checked(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def built(folder: Path, *options: str) -> Path:
    """Build from a copy, so that the checkout stays as it is."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    checked([sys.executable, "-m", "build", *options, "--wheel", "--outdir", "dist", "."], cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def with_borrowed_packages(folder: Path) -> tuple[Path, Path]:
    """The environment reads other packages from ours, but for those of the model extra."""
    wheel = built(folder / "build", "--no-isolation")
    venv.create(folder / "env")
    python = folder / "env/bin/python"
    options = ["--quiet", "--no-deps", "--no-compile"]
    checked([sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)])
    own = Path(checked([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (own / "sitecustomize.py").write_text(NO_MODELS)
    (own / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return wheel, python.parent


def with_installed_packages(folder: Path) -> tuple[Path, Path]:
    """pip fetches what the wheel says that it needs."""
    wheel = built(folder / "build")
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env/bin"
    options = ["--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    checked([str(programs / "python"), "-m", "pip", "install", *options, str(wheel)])
    return wheel, programs


@pytest.mark.parametrize(
    "installed", [with_borrowed_packages, pytest.param(with_installed_packages, marks=pytest.mark.soak)]
)
def test_wheel_works_outside_the_checkout(
    installed: Callable[[Path], tuple[Path, Path]], tmp_path: Path, cache: Path
) -> None:
    wheel, programs = installed(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def ok(program: str, *arguments: str) -> str:
        return checked([str(programs / program), *arguments], cwd=work, env=environment)

    # It holds the package and nothing else.
    names = zipfile.ZipFile(wheel).namelist()
    package = ROOT / "src" / "undertow"
    shipped = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in shipped} <= set(names)
    folders = {"undertow", f"undertow-{metadata.version('undertow')}.dist-info"}
    assert {name.partition("/")[0] for name in names} == folders
    (licence,) = [name for name in names if name.endswith("/LICENSE")]
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()

    # Importing it needs no torch and loads no matplotlib; what is imported is the wheel's.
    loaded = "import undertow, sys; print({'torch', 'transformers', 'matplotlib'} & {*sys.modules}, undertow.__file__)"
    said = ok("python", "-c", loaded).split()
    assert said[0] == "set()"
    assert Path(said[1]).is_relative_to(tmp_path)

    # A run is made, measured anew and told anew; data of the package are found.
    asked = ("run", "spurious-correlation", "-m", "toy", "--challenge", "mgc", "--w", "date", "--limit", "120")
    assert json.loads(ok("undertow", *asked, "--out", "RUN", "--json"))["counts"]["items"] == 120
    ok("undertow", "score", "RUN", "--out", "AGAIN")
    assert (work / "AGAIN/results.json").read_bytes() == (work / "RUN/results.json").read_bytes()
    (work / "RUN/report.html").unlink()
    ok("undertow", "report", "RUN")
    assert (work / "RUN/report.html").stat().st_size > 10_000

    # A model with weights names the extra that it needs.
    command = (programs / "undertow", "run", "spurious-correlation", "-m", "smollm2", "--limit", "10", "--out", "R")
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "pip install 'undertow[models]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (work / "R").exists()
