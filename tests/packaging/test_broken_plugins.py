"""A broken package of somebody else's is named in one line and left out; everything else works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Cli

RUN = ("run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90", "--out", "run")


def install(folder: Path, group: str, name: str, code: str) -> None:
    """Install a package `somebody` with one module and one entry point."""
    info = folder / "somebody-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {code}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("group", "target", "code", "words"),
    [
        ("undertow.models", "somebody", "import nonexistent_package", "ModuleNotFoundError"),
        ("undertow.models", "somebody", "SUMMARY = 'x'", "has no resolve"),
        ("undertow.audits", "somebody:Broken", "raise RuntimeError('a\\nb')", "RuntimeError"),
        ("undertow.audits", "somebody:Broken", "class Broken: pass", "must be a subclass"),
        (
            "undertow.audits",
            "somebody:Broken",
            "from undertow.audits.base import Audit\nclass Broken(Audit): pass",
            "has no name",
        ),
        ("undertow.metrics", "somebody:spread", "spread = 1", "is not a metric"),
        (
            "undertow.metrics",
            "somebody:spread",
            "from undertow.metrics.metric import metric\n"
            "@metric('spread', title='S', meaning='m', audits=['spurious-correlation'])\n"
            "def spread(frame, design):\n    return 1 / 0",
            "ZeroDivisionError",
        ),
    ],
)
def test_broken_package_is_named_once_and_left_out(  # noqa: PLR0917 - parameters and fixtures
    group: str, target: str, code: str, words: str, cli_process: Cli, tmp_path: Path
) -> None:
    install(tmp_path / "packages", group, "broken", target)
    (tmp_path / "packages" / "somebody.py").write_text(code, encoding="utf-8")
    path = f"{tmp_path / 'packages'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    named = 0
    for command in (RUN, ("list", "audits")):
        done = cli_process(*command, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        lines = [line for line in done.stderr.splitlines() if "left out" in line]
        assert len(lines) <= 1
        assert all(words in line for line in lines)
        named += len(lines)
    assert named
