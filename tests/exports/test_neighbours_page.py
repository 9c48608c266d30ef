"""docs/neighbours.md: its commands run in their order, on answers that are made up here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from lm_eval_log import docs_of, write_log
from undertow.imports.columns import read_names

PAGE = (ROOT / "docs/neighbours.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("undertow ")
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("undertow ")
]


def prepare(folder: Path) -> None:
    """What other tools would have left, as soon as there is something that they could have been asked."""
    if (folder / "tasks").is_dir() and not (folder / "logs").is_dir():
        docs = [doc for task in docs_of(folder / "tasks").values() for doc in task]
        write_log(
            folder / "tasks", folder / "logs", {doc["item"]: [-1.0 - at % 7, -2.0, -3.0] for at, doc in enumerate(docs)}
        )
    rows = [f"m,date,{at},{1900 + at},{at + 5},{60 - at}" for at in range(5)]
    (folder / "masses.csv").write_text("\n".join(["model,w_name,w_index,w,female,male", *rows, ""]), encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "names.toml").write_text(toml, encoding="utf-8")
    rows = [f"m,{1900 + at},s,{0.1 + at / 50:.2f},{0.6 - at / 50:.2f}" for at in range(5)]
    (folder / "answers.csv").write_text("\n".join(["checkpoint,year,sentence,p_she,p_he", *rows, ""]), encoding="utf-8")


@pytest.mark.soak
@pytest.mark.slow
def test_commands_of_the_page_run(cli: Cli, tmp_path: Path) -> None:
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        prepare(tmp_path)
        done = cli(*shlex.split(command))
        assert (done.returncode, done.stderr) == (0, ""), command


def test_the_mapping_of_the_page_is_one(tmp_path: Path) -> None:
    prepare(tmp_path)
    names = read_names(tmp_path / "names.toml")
    assert names.unit == "probability"
    assert set(names.groups) == {"female", "male"}
