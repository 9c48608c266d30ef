"""Whether the table of what can go wrong names tests that there are, and leaves none of their files out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/reliability"
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
SOAK = (ROOT / "docs/soak.md").read_text(encoding="utf-8")


@cache
def named_in(file: str) -> dict[str, bool]:
    """Names of the tests of a file, and whether `make soak` alone runs them."""
    path = ROOT / "tests" / file if "/" in file else TESTS / file
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        one.name: any(ast.unparse(mark) == "pytest.mark.soak" for mark in one.decorator_list)
        for one in body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    }


def cells() -> list[str]:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (?!what can go wrong)", line)]
    assert all(row.count(" | ") == 3 for row in rows)
    return [row.split(" | ")[2] for row in rows]


def test_every_row_names_tests_that_there_are() -> None:
    assert len(cells()) > 60
    for cell in cells():
        named = re.findall(r"`((?:\w+/)?\w+\.py)(?:::(\w+))?`", cell)
        assert named, cell
        for file, name in named:
            assert not name or name in named_in(file), (file, name)
        for file, name in named:
            said = f"`{file}::{name}` (soak)" in cell
            assert not name or said is named_in(file)[name], (file, name)


def test_no_file_of_them_is_left_out() -> None:
    files = {path.name for path in TESTS.glob("test_*.py")}
    assert len(files) >= 14
    assert files - set(re.findall(r"\w+\.py", PAGE)) == set()


def test_what_is_left_to_the_long_run_was_run_and_passed() -> None:
    """Each file with tests that `make soak` alone runs has a row on the page that it writes, without a failure."""
    rows = dict(re.findall(r"^\| `reliability/(\w+\.py)` \| (\d+ \| \d+ \| \d+) \|", SOAK, re.MULTILINE))
    longest = {file.name for file in TESTS.glob("test_*.py") if "mark.soak" in file.read_text(encoding="utf-8")}
    assert len(longest) >= 10
    assert longest <= rows.keys()
    for file in longest:
        passed, _, failed = map(int, rows[file].split(" | "))
        assert (passed > 0, failed) == (True, 0), file
