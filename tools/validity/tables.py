"""Tables of the page, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence


def share(value: float) -> str:
    """A share with three decimals; a dash where the tool gives no number."""
    return "–" if math.isnan(value) else f"{value:.3f}".lstrip("0") if value < 1 else "1.00"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)])
