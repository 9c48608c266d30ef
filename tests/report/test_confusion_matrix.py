"""The figure of labels: every count is in its cell, and a row without counts is no row of zeros."""

from __future__ import annotations

import pytest

from undertow.report.figures.confusion_matrix import draw_confusion


@pytest.mark.parametrize(
    ("counts", "gold", "shown"),
    [
        ([[120, 44, 3], [0, 80, 0]], ["Yes", "No"], ["72%", "120", "26%", "44", "1.8%", "3", "0", "100%", "80", "0"]),
        ([[999, 1, 0]], ["a"], ["99.9%", "999", "0.1%", "1", "0"]),
        ([[0, 0, 0], [1, 1, 0]], ["age", "race"], ["50%", "1", "50%", "1", "0"]),
    ],
    ids=["percent of the row above its count", "nearly all is not all", "a row of nothing has no shares"],
)
def test_confusion_cells_hold_counts_and_shares_of_their_row(
    counts: list[list[int]], gold: list[str], shown: list[str]
) -> None:
    drawing = draw_confusion(counts, gold, ["Yes", "No", "no answer"], "T")
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    heads = texts.index("right label")
    assert texts[:heads] == shown
    assert texts[heads + 2 :] == [f"{sum(row):,}" for row in counts], "the total of each row"
    for row, label in zip(counts, gold, strict=True):
        assert all(f"({count})" in drawing.alt for count in row if count)
        assert label in drawing.alt
