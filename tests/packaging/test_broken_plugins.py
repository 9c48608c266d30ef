from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Cli

RUN = ("run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90", "--out", "run")
BROKEN = {
    "absent": ("undertow.models", "", "import nonexistent_package", "ModuleNotFoundError"),
    "hookless": ("undertow.models", "", "SUMMARY = 'x'", "has no resolve"),
    "raising": ("undertow.audits", ":Broken", "raise RuntimeError('a\\nb')", "RuntimeError"),
    "foreign": ("undertow.audits", ":Broken", "class Broken: pass", "must be a subclass"),
    "nameless": (
        "undertow.audits",
        ":Broken",
        "from undertow.audits.base import Audit\nclass Broken(Audit): pass",
        "has no name",
    ),
    "number": ("undertow.metrics", ":spread", "spread = 1", "is not a metric"),
    "dividing": (
        "undertow.metrics",
        ":spread",
        "from undertow.metrics.metric import metric\n"
        "@metric('spread', title='S', meaning='m', audits=['spurious-correlation'])\n"
        "def spread(frame, design):\n    return 1 / 0",
        "the metric spread of another package is skipped: it failed (ZeroDivisionError",
    ),
}
"""Packages by name: group of the entry point, object in the module, its code, and what is said of it."""


def test_broken_packages_are_named_once_and_skipped(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are installed beside each other; a run and a listing work."""
    folder = tmp_path / "packages"
    for name, (group, target, code, _) in BROKEN.items():
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}{target}\n", encoding="utf-8")
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    named: set[str] = set()
    for command in (RUN, ("list", "audits")):
        done = cli(*command)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        lines = [line for line in done.stderr.splitlines() if "is skipped" in line]
        for line in lines:
            (name,) = [name for name in BROKEN if f"package {name} " in line] or ["dividing"]
            assert BROKEN[name][3] in line
            named.add(name)
        assert len(lines) == len(set(lines))
    assert named == set(BROKEN)
