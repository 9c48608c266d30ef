from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import networkx as nx
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


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also a package and a module of its own, which the contract does not compare; imports inside functions included."""
    graph = grimp.build_graph("undertow", exclude_type_checking_imports=True, cache_dir=None)
    imports = [(name, other) for name in graph.modules for other in graph.find_modules_directly_imported_by(name)]
    assert [sorted(one) for one in nx.strongly_connected_components(nx.DiGraph(imports)) if len(one) > 1] == []
