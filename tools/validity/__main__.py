"""How often each claim errs, and how often each interval holds the truth: `make validity` writes docs/validity.md.

Audits whose truth is known are simulated and go through the functions that measure real ones. `--audits` makes a shorter run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from tools.validity import checklist, drift

PAGE = Path(__file__).parents[2] / "docs" / "validity.md"
HEAD = """# How far a claim holds

`make validity` writes this page: {audits:,} simulated audits a cell, whose truth is known, through the functions that measure
real ones. A claim should err in at most 5 of 100 audits, and an interval should leave out the truth in as many. Rates near .05
have a Monte Carlo error of {error:.3f}. A dash: the tool gives no number, and says why.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    head = HEAD.format(audits=given.audits, error=math.sqrt(0.05 * 0.95 / given.audits))
    parts = [head, *(part for section in (drift.section, checklist.section) for part in section(given.audits))]
    given.out.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
