"""What tests/soak_page.py makes of what pytest writes of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import soak_page

CASES = """<testsuites><testsuite>
<testcase classname="tests.reliability.test_one" name="test_kept" time="90"><properties>
<property name="measured" value="3 kills of a, while asking" /><property name="other" value="no" /></properties></testcase>
<testcase classname="tests.reliability.test_one" name="test_left" time="0"><skipped message="no card | here" /></testcase>
<testcase classname="tests.test_two" name="test_broken[a]" time="30"><failure message="assert 1 == 2&#10;more" /></testcase>
{inputs}
</testsuite></testsuites>"""
INPUT = (
    '<testcase classname="tests.test_two" name="test_fed[{n}]" time="1"><properties>'
    '<property name="measured" value="1,{n}00 inputs guided by coverage, `{n}`" /></properties></testcase>'
)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "soak.xml"
    path.write_text(CASES.format(inputs="\n".join(INPUT.format(n=n) for n in range(5))), encoding="utf-8")
    return path


def test_a_row_for_each_file_with_its_figures(written: Path) -> None:
    page = soak_page.page(soak_page.read(written), datetime(2026, 5, 4, tzinfo=UTC))
    assert "**6 passed, 1 skipped, 1 failed**, in 2 minutes" in page
    assert "| `reliability/test_one.py` | 1 | 1 | 0 | 1.5 | 3 kills of a, while asking |" in page
    assert "| `test_two.py` | 5 | 0 | 1 | 0.6 | 6,000 inputs guided by coverage (5 tests) |" in page
    assert "- `reliability/test_one.py::test_left`: no card | here" in page
    assert "- `test_two.py::test_broken[a]`: assert 1 == 2\n" in page
    assert "; 2026-05-04; " in page


def test_the_last_run_of_a_test_counts(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_page, "PAGE", tmp_path / "soak.md")
    assert soak_page.main([str(written)]) == 1
    again = tmp_path / "again.xml"
    again.write_text(
        '<testsuite><testcase classname="tests.test_two" name="test_broken[a]" time="6" /></testsuite>',
        encoding="utf-8",
    )
    assert soak_page.main([str(written), str(again)]) == 0
    assert "**7 passed, 1 skipped, 0 failed**" in (tmp_path / "soak.md").read_text(encoding="utf-8")
