"""Rows and files in the form of CAD's full file. No text of CAD stands here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

COLUMNS = (
    "id", "info_id", "info_subreddit", "info_subreddit_id", "info_id.parent", "info_id.link", "info_thread.id",
    "info_order", "info_image.saved", "annotation_Primary", "annotation_Secondary", "annotation_Context",
    "annotation_Target", "annotation_Target_top.level.category", "annotation_highlighted", "meta_author",
    "meta_created_utc", "meta_date", "meta_day", "meta_permalink", "split", "subreddit_seen", "meta_text",
)  # fmt: skip
NA = '"NA"'
Row = dict[str, str]
NAMES = {
    "entry": "info_id",
    "primary": "annotation_Primary",
    "target": "annotation_Target_top.level.category",
    "marked": "annotation_highlighted",
    "text": "meta_text",
}
"""Columns by the short names that tests call them by."""


def row(**cells: str) -> Row:
    """A row of these cells; all others are NA."""
    return dict.fromkeys(COLUMNS, NA) | {NAMES.get(name, name): cell for name, cell in cells.items()}


def table(rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> bytes:
    lines = ["\t".join(columns), *("\t".join(one[name] for name in columns) for one in rows)]
    return ("\n".join(lines) + "\n").encode()
