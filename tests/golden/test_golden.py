"""Results of small audits are what they were: `make golden` keeps those of today, and `git diff` then shows what changed.

A change of structure leaves every file as it is. A change of a measure, or the repair of one, changes some numbers: look at the diff,
say in the commit why each is right, and commit the files with it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_cases import CASES, NETWORKS, RECORDED
from golden_networks import save_networks
from golden_tables import Table, differences, refreshed

from conftest import make_quick
from helpers.shared_folders import made_once

KEPT = Path(__file__).parent / "tables"
EXACT = 1e-9
NETWORK = 1e-4
"""Of numbers that follow from a network's: processors add in another order, which moves a mass by 1e-6 at most."""
NETWORK_P = 0.02
"""Of p and q: a permutation counts or does not, so that a mass that moves by 1e-6 may move p by whole steps."""
NETWORK_THRESHOLD = 1e-2
"""Of thresholds: one of the observed scores, and scores of one accuracy are neighbours."""
SHOWN = 20


def tolerance_of(kind: str) -> Callable[[str], float]:
    """How near the numbers of a column must be."""

    def tolerance(column: str) -> float:
        if kind != NETWORKS:
            return EXACT
        return NETWORK_P if column in ("p", "q") else NETWORK_THRESHOLD if column == "threshold" else NETWORK

    return tolerance


@pytest.fixture
def networks(shared_base: Path) -> Path:
    pytest.importorskip("torch", reason="the model extra is not installed")
    pytest.importorskip("gguf", reason="the model extra is not installed")
    return made_once(shared_base, "golden-networks", save_networks)


@pytest.mark.parametrize("name", CASES)
def test_results_are_what_they_were(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    case, path, tolerance = CASES[name], KEPT / f"{name}.csv", tolerance_of(CASES[name].kind)
    reference_data: Path = request.getfixturevalue("reference_data") if case.kind == RECORDED else tmp_path
    if case.kind == NETWORKS:
        for network in request.getfixturevalue("networks").iterdir():
            (tmp_path / network.name).symlink_to(network)
    monkeypatch.chdir(tmp_path)  # so that a network is called by its family
    make_quick(monkeypatch, draws=200, groups=12)
    now = Table.from_frame(case.table(tmp_path, reference_data))
    if not request.config.getoption("update_goldens"):
        assert path.is_file(), f"{path.name} is not kept yet: run `make golden`"
        found = differences(Table.read(path), now, tolerance)
        more = [f"and {len(found) - SHOWN} more; `make golden`, then `git diff`, shows all"] if found[SHOWN:] else []
        if found:
            pytest.fail(
                "\n".join([f"{len(found)} differences from {path.name}:", *found[:SHOWN], *more]), pytrace=False
            )
        return
    kept = Table.read(path) if path.is_file() else Table((), (), {})
    found = differences(kept, now, tolerance)
    refreshed(kept, now, tolerance).write(path)
    if found:
        pytest.skip(f"{path.name} is written again, {len(found)} differences")
