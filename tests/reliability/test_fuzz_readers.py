"""Whatever a stranger's file holds, its reader gives a value or one clear sentence: no traceback, no hang, no flood.

Inputs are good ones with something wrong in them, as Hypothesis draws them: from a fixed seed, in `make soak` many from random ones.
A server's replies are corrupt in the same way in test_network.py, and the answer store in test_power_cut.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.readers import Reader, log_files, mutated, readers

N_SHORT, N_LONG = 20, 4000
"""Inputs to the cheapest reader."""
NUMBERS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=16)
NAMES = (
    "manifest", "results", "observations", "precision", "table", "table of Parquet", "packed table", "table of answers", "mapped table",
    "names of columns", "challenge", "rules", "sentences", "documents", "sentences to judge", "graph", "equations", "GGUF",
    "model's configuration", "log", "results of a log",
)  # fmt: skip


@pytest.fixture(scope="module")
def by_name(finished_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Reader]:
    run = finished_run("spurious-correlation", "toy", w="date", limit=90)
    found = readers(run, log_files(tmp_path_factory.mktemp("log")))
    assert tuple(found) == NAMES
    return found


@pytest.mark.parametrize("n", [N_SHORT, pytest.param(N_LONG, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(
    name: str, n: int, by_name: Mapping[str, Reader], tmp_path: Path, measured: Callable[[str], None]
) -> None:
    reader, n_read = by_name[name], 0
    for seed in reader.seeds:
        assert reader.outcome(seed, tmp_path)[1] == ""

    @settings(max_examples=max(5, n // reader.cost), database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(reader.seeds), NUMBERS)
    def fed(seed: bytes, numbers: list[int]) -> None:
        nonlocal n_read
        n_read += not reader.outcome(mutated(seed, reader.kind, numbers), tmp_path)[1]

    fed()
    measured(f"{max(5, n // reader.cost):,} corrupt inputs to the reader of: {name}; {n_read:,} read")
