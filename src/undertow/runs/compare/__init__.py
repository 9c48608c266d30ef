"""Two runs beside each other: paired item by item, with clustered intervals of every difference, or refused with the reason.

docs/comparing.md is for readers, docs/decisions/023 says why it is done so.
"""

from undertow.runs.compare.differences import Comparison, Progress, compare

__all__ = ["Comparison", "Progress", "compare"]
