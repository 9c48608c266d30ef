from __future__ import annotations

import json
import locale
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from helpers.answering import TOLERANCE_NATS, answers
from helpers.sampled_cases import briefly
from helpers.shared_folders import made_once
from undertow import audits, models
from undertow.audits.base import Sampling
from undertow.data.documents.task_wordings import TASKS
from undertow.models.base import BatchLimits, ModelRequest
from undertow.runs.folder.storage import MANIFEST

RUNS: dict[str, dict[str, Any]] = {
    "spurious-correlation": {"challenge": "mgt", "w": "date", "date_count": 5, "limit": 40},
    "occupation-checklist": {"n_pairs": 3, "n_occupations": 3},
    "task-specification": {"limit": 80},
    **{task: {"n_documents": 6, "wordings": 2} for task in TASKS},
}
"""Every audit, of the toy, small."""
ALL, SOME, WITH_FIGURES = tuple(RUNS), tuple(RUNS)[:2], ("spurious-correlation", "task-specification")
OF_THE_MOMENT = ("created", "timing", "machine")
"""Entries of a manifest that tell when and where."""

AUDITS = """
import json, locale, sys
from pathlib import Path
import undertow
from undertow.runs import pipeline
locale.setlocale(locale.LC_ALL, "")
if not json.loads(sys.argv[3]):
    pipeline.write_report = lambda *_: lambda folder: None
for name, options in json.loads(sys.argv[1]):
    undertow.audit(name, "toy", seed=3, out=Path(sys.argv[2]) / name, **options)
"""
"""Runs audits in the order given; figures and page have tests of their own, and take most of the time."""


def ran(folder: Path, names: Sequence[str], changed: Mapping[str, str], *, told: bool = False) -> Path:
    """Folders of these audits, made one after the other by a process of its own that has nothing in its cache."""
    folder.mkdir(parents=True)
    chosen = json.dumps([(name, RUNS[name]) for name in names])
    line = [sys.executable, "-c", AUDITS, chosen, str(folder / "runs"), json.dumps(told)]
    environment = os.environ | {"UNDERTOW_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"} | dict(changed)
    done = subprocess.run(line, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "runs"


def lasting(folder: Path) -> Mapping[str, Any]:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    # What another audit has asked before is not asked again.
    manifest["counts"] = {name: n for name, n in manifest["counts"].items() if name not in ("computed", "tokens")}
    return {name: entry for name, entry in manifest.items() if name not in OF_THE_MOMENT}


def assert_same(one: Path, other: Path) -> None:
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    for first, second in ((folder, other / folder.name) for folder in one.iterdir()):
        written = [
            path for path in first.rglob("*") if path.suffix in (".json", ".csv", ".svg") and path.name != MANIFEST
        ]
        for path in written:
            assert path.read_bytes() == (second / path.relative_to(first)).read_bytes(), path
        observed, again = (pd.read_parquet(folder / "observations.parquet") for folder in (first, second))
        pd.testing.assert_frame_equal(observed, again, check_exact=True)
        assert lasting(first) == lasting(second)


def installed(name: str) -> bool:
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        return False
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return True


OTHERS: Sequence[dict[str, str]] = (
    {"PYTHONHASHSEED": "4711", "LC_ALL": "C", "TZ": "Asia/Kathmandu"},
    {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    {"PYTHONHASHSEED": "12345", "TZ": "Pacific/Kiritimati"},
    {"LC_ALL": "tr_TR.UTF-8"},
    {"LC_ALL": "de_DE.UTF-8"},
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "told", "changed"),
    briefly([(SOME, False, OTHERS[0]), *((ALL, False, one) for one in OTHERS), (WITH_FIGURES, True, OTHERS[0])]),
)
def test_another_process_place_order_hash_seed_locale_and_time_zone_change_no_byte(
    names: Sequence[str], told: bool, changed: dict[str, str], shared_base: Path, tmp_path: Path
) -> None:
    """Figures and tables of the page, too, which are left out where they would take most of the time."""
    assert set(RUNS) == set(audits.names())
    if not installed(changed.get("LC_ALL", "C")):
        pytest.skip(f"locale {changed['LC_ALL']} is not installed")

    def make(folder: Path) -> None:
        ran(folder / "a", names, {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}, told=told)

    once = made_once(shared_base, f"same-again-{len(names)}-{told}", make) / "a" / "runs"
    assert_same(once, ran(tmp_path / "another place" / "with a ü", names[::-1], changed, told=told))


@pytest.mark.slow
@pytest.mark.parametrize("network_name", briefly(["tiny_llama", "trained_bert", "trained_t5"]))
def test_threads_budgets_and_trees_change_the_last_digits_only(
    network_name: str, network: Callable[[str], str], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    audit = audits.load("spurious-correlation")
    settings = audit.Settings(challenge="mgt", w="date", date_count=6)
    queries = [item.query for item in next(audit.items(settings, Sampling(12, 0)))]
    model: Any = models.resolve(ModelRequest(network(network_name))).open()
    as_it_is, n_before = model.limits, torch.get_num_threads()
    assert (as_it_is.tree_depth > 0) == (network_name == "tiny_llama")
    ways = ((1, as_it_is), (1, BatchLimits(60, as_it_is.tree_depth)), (2, BatchLimits(300, 0)), (1, BatchLimits(1, 0)))
    read: list[NDArray[np.float64]] = []
    try:
        for n_threads, model.limits in ways:
            torch.set_num_threads(n_threads)
            found = answers(model, queries, tmp_path / f"{len(read)}.sqlite")
            read.append(np.array([answer.logprobs_nats for answer in found]))
    finally:
        torch.set_num_threads(n_before)
    assert np.isfinite(read).all()
    assert np.ptp(read[0], axis=0).max() > 100 * TOLERANCE_NATS
    assert np.abs(np.array(read) - read[0]).max() < TOLERANCE_NATS
