"""What a finding rests on beside its results: what was asked, the mass that no answer took, how the model was read."""

from __future__ import annotations

import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import report_page
from undertow.report.page_data import ReportText
from undertow.runs.folder.storage import Record
from undertow.runs.run_report import render_run
from undertow.types import Finding, Result

MANIFEST = report_page.MANIFEST | {"model_identity": {"name": "m", "scoring_method": "likelihood", "dtype": "float32"}}


def rows(model: str, *cells: tuple[int, float], prompt: str = "", w_name: str = "date") -> list[dict[str, Any]]:
    """Rows of a W index and a mass on other words, in clusters of their own index; NaN is missing."""
    shared = {"model": model, "challenge": "mgc", "prompt": prompt, "w_name": w_name}
    return [
        shared
        | {
            "w_index": at,
            "cluster": f"c{at}",
            "other_words": mass,
            "missing_reason": "it broke" if math.isnan(mass) else "",
        }
        for at, mass in cells
    ]


FRAME = pd.DataFrame(
    rows("m", (0, 10.0), (0, 20.0), (1, 40.0), (2, math.nan))
    + rows("m", (0, 90.0), w_name="place")
    + rows("m", (0, 60.0), prompt="A")
    + rows("other", (0, 5.0))
)


def of(model: str = "m", prompt: str = "", w_name: str = "date") -> Result:
    return Result("slope", {"model": model, "challenge": "mgc", "prompt": prompt, "w_name": w_name}, 1.0, n=3)


def basis(folder: Path, *results: Result, manifest: dict[str, Any] = MANIFEST, **parts: Any) -> dict[str, str]:
    """Rows under the one finding of a page, without those of its results."""
    told = ReportText("T", "lead", questions=[], examples=[], of_words=parts.get("of_words", True))
    finding = Finding("it drifts", True, 1.0, results=results)
    frame = parts.get("frame", FRAME)
    render_run(folder, Record(manifest, frame, results), told, [finding], list)
    html = (folder / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<details class="basis">.*?</dl>', html, re.DOTALL)
    pairs = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", "".join(found))
    return {name: unescape(text) for name, text in pairs if not name.startswith("Slope")}


def test_texts_that_several_models_were_asked_count_once(tmp_path: Path) -> None:
    frame = FRAME.assign(text=[f"t{at}" for at in (0, 1, 2, 3, 4, 0, 0)])
    render_run(tmp_path, Record(MANIFEST, frame, []), ReportText("T", "lead", questions=[], examples=[]), [], list)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<dd>5 texts in 3 clusters, 7 items from 2 models, 1 missing</dd>" in page


def test_a_finding_says_what_was_asked_and_what_nobody_claimed(tmp_path: Path) -> None:
    assert basis(tmp_path, of()) == {
        "asked": "4 texts in 3 clusters, 1 missing",
        # Every value of W counts the same: (15 + 40) / 2, where the mean over texts would be 23.3.
        "mass on other words": "27.5% on average went to words outside the listed words",
        "protocol": "exact; scored by likelihood, in float32",
    }
