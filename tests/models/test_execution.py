from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from undertow.models.backend.execution import oom_errors, tokens_per_pass
from undertow.models.base import OutOfMemoryError


def network_on(device: str) -> Any:
    return type("Network", (), {"device": torch.device(device)})()


def linear(tokens: int) -> int:
    return 10**9 + tokens * 2**20


def squared(tokens: int) -> int:
    return 10**9 + tokens**2 * 2**10


@pytest.mark.parametrize(
    ("gib", "memory_bytes", "expected"),
    [(80, linear, 8192), (8, linear, 4096), (4, linear, 1024), (0.1, linear, 400), (16, squared, 2048)],
)
def test_a_card_is_given_what_it_has_room_for_beside_the_weights(
    gib: float, memory_bytes: Any, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert tokens_per_pass(network_on("cuda:1"), memory_bytes, processor=400, gpu=8192) == expected
    assert tokens_per_pass(network_on("cpu"), memory_bytes, processor=400, gpu=8192) == 400


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"),
        MemoryError(),
        RuntimeError("not enough memory"),
    ],
)
def test_memory_that_runs_out_is_told_from_other_trouble(error: Exception) -> None:
    with pytest.raises(OutOfMemoryError, match="out of memory"), oom_errors():
        raise error
    with pytest.raises(RuntimeError, match="shapes"), oom_errors():
        raise RuntimeError("shapes do not fit")
