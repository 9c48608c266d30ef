"""The site of the documentation builds; a warning is an error, as `strict` in mkdocs.yml says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

pytest.importorskip("mkdocs", reason="mkdocs, of the extra docs, is not installed")


@pytest.mark.soak
@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    options = ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mkdocs", "build", *options]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stdout + done.stderr
    assert "undertow.audit" in (tmp_path / "reference" / "python.html").read_text(encoding="utf-8")
