"""Write docs/development/validity-tables.md: how often each claim errs, and how often each interval covers the truth.

Audits whose truth is known are simulated and go through the functions that measure real ones. `--audits` makes a shorter run, and
`--only drift` renews one section and keeps the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.validity import bias_in_text, checklist, comparisons, detection, drift

PAGE = Path(__file__).parents[2] / "docs" / "development" / "validity-tables.md"
HEAD = """# Validity tables

`make validity` writes this page; [Statistical validity](../validity.md) summarises it. Audits whose truth is known are
simulated and passed through the functions that measure real ones. A cell of a table is a share of audits; each section
gives their number. A claim should err in at most 5% of audits, and a 95% interval should miss the truth in at most 5%.
A dash means that the tool gives no number.
"""
SECTIONS = {
    "drift": drift.section,
    "comparisons": comparisons.section,
    "checklist": checklist.section,
    "detection": detection.section,
    "bias-in-text": bias_in_text.section,
}
BREAK = "\n## "


def main() -> None:
    """Write the page, or one section of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=2_000)
    parser.add_argument("--only", choices=SECTIONS)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    old = given.out.read_text(encoding="utf-8").split(BREAK)[1:] if given.only else []
    kept = {text.partition("\n")[0]: BREAK + text.rstrip("\n") + "\n" for text in old}
    parts = [HEAD]
    for name, section in SECTIONS.items():
        text = section(given.audits)
        title = next(text)
        if given.only in (None, name):
            parts.append("\n".join([f"{BREAK}{title}\n", *text]))
        else:
            parts.append(kept[title])
    given.out.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
