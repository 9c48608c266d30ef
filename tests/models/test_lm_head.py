from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.models.backend import lm_head
from undertow.models.backend.lm_head import in_slices, read_at, read_in_columns, takes_columns
from undertow.models.backend.onednn import can_pack, packed_weight

TOLERANCE_NATS = {torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocabulary", "bias"), [(9000, False), (4096, True), (40, True)])
def test_columns_are_put_together_to_whole_rows(vocabulary: int, bias: bool, dtype: torch.dtype) -> None:
    if not can_pack(dtype):
        pytest.skip(f"this processor does not gain by packed weights in {dtype}")
    torch.manual_seed(0)
    head = torch.nn.Linear(64, vocabulary, bias=bias, dtype=dtype)
    # Some far from all others, so that blocks differ in size by many orders.
    head.weight.data[::97] *= 20
    rows = torch.randn(1200, 64, dtype=dtype)
    rng = np.random.default_rng(0)
    row_of_read, tokens = rng.integers(0, 1200, 3000), rng.integers(0, vocabulary, 3000)
    with torch.inference_mode():
        found = read_in_columns(rows, row_of_read, tokens, head)
        expected = read_at(
            row_of_read, tokens, lambda places: in_slices(rows[torch.from_numpy(places)], vocabulary, head), rows.device
        )
    assert found == pytest.approx(expected, abs=TOLERANCE_NATS[dtype], rel=1e-2 if dtype == torch.bfloat16 else 1e-6)
    assert found.max() <= TOLERANCE_NATS[dtype]


def test_only_a_plain_product_over_many_rows_is_read_in_columns() -> None:
    class Scaled(torch.nn.Linear):
        def forward(self, *rows: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(*rows)

    plain = torch.nn.Linear(16, 64)
    assert takes_columns(plain, lm_head.MIN_ROWS) == can_pack(torch.float32)
    assert not takes_columns(plain, lm_head.MIN_ROWS - 1)
    assert not takes_columns(Scaled(16, 64), lm_head.MIN_ROWS)
    assert not takes_columns(torch.nn.Linear(16, 64, dtype=torch.float16), lm_head.MIN_ROWS)
    if can_pack(torch.float32):
        plain.weight = torch.nn.Parameter(packed_weight(plain.weight.detach()), requires_grad=False)
        assert not takes_columns(plain, lm_head.MIN_ROWS)
