"""The pages around the code agree with it: one version everywhere, links that lead somewhere, the licence in full."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_one_version() -> None:
    version = PROJECT["version"]
    assert metadata.version("undertow") == version
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["license"] == "Apache-2.0"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert missing == []


def test_decisions_are_numbered_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    pages = sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    assert all(re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", name) for name in pages), pages
    assert [name for name in pages if f"({name})" not in index] == []
    numbers = [name[:3] for name in pages]
    assert len(set(numbers)) == len(numbers)
