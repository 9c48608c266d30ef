"""A field of a run folder that was changed is refused by its name, or changes nothing: never a traceback."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from helpers.command_line import in_process
from helpers.json_edits import edited

ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "spurious-correlation": ({"w": "date", "date_count": 9, "limit": 90}, "slope"),
    "task-specification": ({"date_count": 2, "limit": 60}, "auroc"),
    "occupation-checklist": ({"limit": 40}, "consistency"),
    "bias-diagnosis": ({"n_documents": 6}, "f1"),
    "bias-identification": ({"n_documents": 4, "wordings": 2}, "exact_match"),
}  # fmt: skip
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder that holds two runs of an audit, `run` and `other`, and rules."""
    made: dict[str, Path] = {}

    def make(audit: str) -> Path:
        if audit not in made:
            made[audit] = tmp_path_factory.mktemp(audit)
            options, measure = ASKED[audit]
            for seed, name in enumerate(("run", "other")):
                undertow.audit(audit, "toy", **options, seed=seed, out=made[audit] / name)
            rule = f'[[rule]]\nname = "r"\nmeasure = "{measure}"\nof = "value"\nat_most = 1000\nwhy = "w"\n'
            (made[audit] / "rules.toml").write_text(rule)
        return made[audit]

    return make


@pytest.mark.parametrize("n_edits", [15, pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
@pytest.mark.parametrize("audit", ASKED)
def test_an_edit_of_a_run_folder_is_refused_in_a_sentence_or_changes_nothing(
    audit: str, n_edits: int, folder_of: Folder, tmp_path: Path
) -> None:
    choice = random.Random(n_edits)
    whole = folder_of(audit)
    commands = (
        ("report", "run"),
        ("gate", "run", "--rules", "rules.toml"),
        ("compare", "other", "run", "--out", "compared"),
    )
    refused = 0
    for number in range(n_edits):
        here = tmp_path / str(number)
        shutil.copytree(whole, here)
        path = here / "run" / choice.choice(("manifest.json", "results.json"))
        document = json.loads(path.read_text(encoding="utf-8"))
        told = edited(document, choice)
        path.write_text(json.dumps(document), encoding="utf-8")
        done = in_process(here, *choice.choice(commands))
        assert done.returncode in {0, 1, 2}, f"{path.name}, {told}: {done.stderr}"
        if done.returncode == 1 and done.stderr.strip():
            assert len(done.stderr.strip().splitlines()) == 1, f"{path.name}, {told}: {done.stderr}"
        refused += "is corrupt" in done.stderr
        shutil.rmtree(here)
    assert refused > n_edits / 4


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("manifest.json", ("counts",), -1, "counts"),
        ("manifest.json", ("counts", "items"), {}, "counts.items"),
        ("manifest.json", ("counts", "items"), 10**400, "counts.items"),
        ("manifest.json", ("model_identity",), None, "model_identity"),
        ("manifest.json", ("model_identity", "scoring_method"), ..., "model_identity.scoring_method"),
        ("manifest.json", ("design", "gaps"), [["female"]], "design.gaps.0"),
        ("manifest.json", ("design", "groups", 0), ..., "design.groups"),
        ("manifest.json", ("design", "controls", "toy", 0, "other_words"), ..., "other_words"),
        ("results.json", ("results", 0, "group", "w_name"), 3, "results.0.group.w_name"),
        ("results.json", ("results", 0, "value"), "12", "results.0.value"),
        ("results.json", ("results", 0, "value"), 0.5, "changed afterwards"),
        ("results.json", ("results", 0, "group", "w_name"), ..., "changed afterwards"),
    ],
)
def test_a_changed_field_is_named(  # noqa: PLR0917 - a column each
    name: str, place: tuple[Any, ...], value: object, said: str, folder_of: Folder, tmp_path: Path
) -> None:
    run = shutil.copytree(folder_of("spurious-correlation") / "run", tmp_path / "run")
    document = json.loads((run / name).read_text(encoding="utf-8"))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    (run / name).write_text(json.dumps(document), encoding="utf-8")
    done = in_process(tmp_path, "report", "run")
    assert done.returncode == 1
    assert said in done.stderr
    assert name in done.stderr
