"""Write docs/soak.md: what the last `make soak` ran, and what it measured.

    python tests/soak_page.py build/soak.xml [MORE.xml ...]

Each file is what `pytest --junitxml` writes of a run. A test in several of them counts as in the last that has it.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

from undertow import __version__

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "soak.md"
ALIKE = 4
"""So many figures of one file that differ in their last word and first number alone are told as one."""


@dataclass(frozen=True)
class Ran:
    """One test: its file, name, time [s], what it measured, and how it ended if it did not pass."""

    file: str
    name: str
    took_s: float
    measured: tuple[str, ...]
    skipped: str = ""
    failed: str = ""


def read(path: Path) -> list[Ran]:
    """The tests of one file of pytest's."""
    return [_ran(case) for case in ElementTree.parse(path).iter("testcase")]


def _ran(case: ElementTree.Element) -> Ran:
    def said(*kinds: str) -> str:
        found = [part for kind in kinds if (part := case.find(kind)) is not None]
        return found[0].get("message", "") or found[0].tag if found else ""

    measured = [one.get("value", "") for one in case.iter("property") if one.get("name") == "measured"]
    file = case.get("classname", "").removeprefix("tests.").replace(".", "/") + ".py"
    return Ran(
        file,
        case.get("name", ""),
        float(case.get("time", 0)),
        tuple(measured),
        said("skipped"),
        said("failure", "error"),
    )


def machine() -> str:
    """The processor, as the system names it, and how many of its cores there are for us."""
    listed = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", listed.read_text(encoding="utf-8")) if listed.is_file() else []
    return f"{len(names)} cores of {names[0]}" if names else platform.processor() or platform.machine()


def revision() -> str:
    """The commit that was run, and whether files were changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "tests")
    return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def figures(ran: Iterable[Ran]) -> list[str]:
    """What was measured; of many alike, their sum and number."""
    alike: dict[str, list[str]] = {}
    for one in ran:
        for said in one.measured:
            alike.setdefault(re.sub(r"^[\d,]+|`[^`]*`", "", said), []).append(said)
    told: list[str] = []
    for kind, lines in alike.items():
        starts = [re.match(r"[\d,]+", line) for line in lines]
        if len(lines) < ALIKE or not all(starts):
            told += lines
            continue
        total = sum(int(start.group().replace(",", "")) for start in starts if start)
        told.append(f"{total:,}{kind.rstrip(' ,')} ({len(lines)} tests)")
    return told


def page(ran: Sequence[Ran], when: datetime, n_runs: int = 1) -> str:
    """The page, in Markdown."""
    files: dict[str, list[Ran]] = {}
    for one in ran:
        files.setdefault(one.file, []).append(one)
    n_skipped, n_failed = sum(bool(one.skipped) for one in ran), sum(bool(one.failed) for one in ran)
    lines = [
        "# The last long run",
        "",
        "What the last `make soak` ran and measured, written by it: the tests that repeat at length what",
        "[Reliability](reliability.md) lists, with the figures that they count.",
        "",
        f"Undertow {__version__}, commit {revision()}; {when:%Y-%m-%d}; Python {platform.python_version()} on "
        f"{platform.system()}, {machine()}.",
        "",
        f"**{len(ran) - n_skipped - n_failed:,} passed, {n_skipped} skipped, {n_failed} failed**, in "
        f"{sum(one.took_s for one in ran) / 60:.0f} minutes, several at a time."
        + (
            f" Of {n_runs} runs: what failed was mended and run again, and counts as it ended then."
            if n_runs > 1
            else ""
        ),
        "",
        "| tests | passed | skipped | failed | minutes | measured |",
        "|---|---|---|---|---|---|",
    ]
    for file in sorted(files):
        of_file = files[file]
        skipped, failed = sum(bool(one.skipped) for one in of_file), sum(bool(one.failed) for one in of_file)
        took = sum(one.took_s for one in of_file) / 60
        told = "<br>".join(line.replace("|", "\\|") for line in figures(of_file))
        lines.append(f"| `{file}` | {len(of_file) - skipped - failed} | {skipped} | {failed} | {took:.1f} | {told} |")
    for title, ends in (("Skipped", "skipped"), ("Failed", "failed")):
        told_ends = [(one, getattr(one, ends)) for one in ran if getattr(one, ends)]
        if told_ends:
            lines += ["", f"## {title}", ""]
            lines += [f"- `{one.file}::{one.name}`: {said.splitlines()[0]}" for one, said in told_ends]
    return "\n".join(lines) + "\n"


def main(paths: Sequence[str]) -> int:
    """Write the page; 1 where something failed."""
    last = {(one.file, one.name): one for path in paths for one in read(Path(path))}
    when = datetime.fromtimestamp(max(Path(path).stat().st_mtime for path in paths)).astimezone()
    PAGE.write_text(page(list(last.values()), when, len(paths)), encoding="utf-8")
    return int(any(one.failed for one in last.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
