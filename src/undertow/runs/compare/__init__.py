"""Compare two runs item by item, with clustered intervals of every difference, or refuse with the reason.

See docs/comparing.md and docs/decisions/023.
"""

from undertow.runs.compare.differences import Comparison, compare

__all__ = ["Comparison", "compare"]
