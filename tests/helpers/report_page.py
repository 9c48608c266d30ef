"""Parts of a report's page that tests of its sections look at."""

from __future__ import annotations

import re
from typing import Any

MANIFEST: dict[str, Any] = {
    "model": "m",
    "protocol": "exact",
    "command": "c",
    "python": "p",
    "created": "now",
    "seed": 7,
    "versions": {},
    "machine": {},
}
"""Of a run of which only its page is looked at."""


def section(html: str, name: str) -> str:
    """One section of a page, by its id."""
    (found,) = re.findall(rf'<section id="{name}".*?</section>\n', html, re.DOTALL)
    return str(found)
