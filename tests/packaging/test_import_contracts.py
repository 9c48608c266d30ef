"""The import contracts of pyproject.toml: kept by the package, and broken by each import that they are there to stop."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "undertow"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

BAD_IMPORTS = [
    ("types", "types.py", "import undertow.stats"),
    ("types", "types.py", "import pandas"),
    ("places", "places.py", "import undertow.types"),
    ("places", "provenance.py", "from undertow.types import UndertowError"),
    ("outside", "outside.py", "import undertow.challenge.reading"),
    ("outside", "outside.py", "import undertow.sharing"),
    ("challenge", "challenge/design.py", "import undertow.models.base"),
    ("challenge", "challenge/design.py", "def late() -> None:\n    import torch"),
    ("models", "models/base.py", "import undertow.challenge"),
    ("models", "models/toy.py", "import undertow.probes"),
    ("scoring", "scoring/plan.py", "import undertow.models.causal"),
    ("scoring", "scoring/plan.py", "from undertow.challenge import load"),
    ("stats", "stats/line.py", "import undertow.types"),
    ("measures", "measures/__init__.py", "import undertow.scoring.plan"),
    ("causal", "causal/__init__.py", "import undertow.challenge"),
    ("probes", "probes/__init__.py", "import undertow.models.base"),
    ("probes", "probes/base.py", "def late() -> None:\n    import undertow.causal.graphs"),
    ("records", "records.py", "import undertow.places"),
    ("records", "records.py", "def late() -> None:\n    import undertow.comparing.runs"),
    ("checking", "checking.py", "from undertow.audit import run"),
    ("subjects", "subjects.py", "import undertow.models.base"),
    ("annotation", "web/annotation.py", "import undertow.models.base"),
    ("web", "web/app.py", "import undertow.cli"),
    ("gradio", "web/app.py", "import gradio"),
    ("named_graphs", "named_graphs.py", "import undertow.models.base"),
    ("finetuning", "finetuning.py", "import undertow.probes"),
    ("lab", "lab/build.py", "import undertow.cli"),
    ("doctor", "doctor.py", "import undertow.probes"),
    ("comparing", "comparing/pairing.py", "import undertow.models.base"),
    ("gates", "gates/judging.py", "import undertow.probes"),
    ("exports", "exports/base.py", "import undertow.models.base"),
    ("imports", "imports/columns.py", "import undertow.measures"),
    ("notebook", "notebook.py", "import undertow.probes"),
    ("precision", "precision/again.py", "import undertow.scoring.ask"),
    ("report", "report/page.py", "import torch"),
    ("report", "report/page.py", "import undertow.measures"),
    ("report", "report/page.py", "import undertow.causal.graphs"),
    ("audit", "audit/__init__.py", "import undertow.cli"),
    ("cli", "__init__.py", "import undertow.cli"),
    ("torch", "audit/__init__.py", "import torch"),
    ("torch", "a_new_room.py", "import transformers"),
    ("light", "scoring/plan.py", "import torch"),
    ("light", "models/toy.py", "import undertow.models.causal"),
    ("light", "models/openai.py", "import torch"),
    ("torch", "audit/__init__.py", "import openai"),
    ("ray", "scoring/ask.py", "def late() -> None:\n    import ray"),
]


def lint(package_parent: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Run the linter over the `undertow` package in a folder, for all contracts or for those named."""
    options = [option for contract in contracts for option in ("--contract", contract)]
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    return subprocess.run(
        [*command, "--config", str(ROOT / "pyproject.toml"), *options],
        cwd=package_parent,
        env=os.environ | {"PYTHONPATH": str(package_parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_keeps_its_contracts() -> None:
    done = lint(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


@pytest.mark.parametrize(("contract", "file", "line"), BAD_IMPORTS)
def test_a_bad_import_is_caught(contract: str, file: str, line: str, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "undertow", ignore=shutil.ignore_patterns("__pycache__"))
    edited = tmp_path / "undertow" / file
    before = edited.read_text() if edited.exists() else ""
    edited.write_text(f"{before}\n{line}\n")
    done = lint(tmp_path, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "0 kept, 1 broken" in done.stdout, done.stdout + done.stderr


def test_every_contract_has_a_bad_import() -> None:
    assert {contract["id"] for contract in CONTRACTS} == {contract for contract, _, _ in BAD_IMPORTS}


def test_every_room_has_a_rule() -> None:
    """A new room is not left without a contract of its own; the shells are covered by the one on cli."""
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    ruled = {module.removeprefix("undertow.") for contract in CONTRACTS for module in contract["source_modules"]}
    assert rooms - {"__init__", "__main__", "cli"} <= ruled
