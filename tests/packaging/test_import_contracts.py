"""The package keeps the import contracts of pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_package_keeps_its_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    source = ROOT / "src"
    done = subprocess.run(
        [*command, "--config", str(ROOT / "pyproject.toml")],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(contracts)} kept, 0 broken" in done.stdout
