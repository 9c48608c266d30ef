"""Compare two runs: pair them item by item, with clustered intervals of every difference, or refuse with the reason.

See docs/comparing.md; docs/decisions/023 gives the reasons.
"""

from undertow.runs.compare.differences import Comparison, compare

__all__ = ["Comparison", "compare"]
