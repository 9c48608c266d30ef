"""What every refusal of the command line looks like: one clear sentence, a non-zero exit, nothing else; and what goes well."""

from __future__ import annotations

import subprocess


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Nothing on standard output, one line on standard error that holds the words, an exit status that says so."""
    assert done.returncode in (1, 2), (done.returncode, done.stdout)
    assert done.stdout == ""
    assert done.stderr.startswith("undertow: "), done.stderr
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a command prints that goes well and complains of nothing."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
