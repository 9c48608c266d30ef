"""What commands say of a finished run: its findings, what these rest on, and its tables.

Knows runs and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from undertow.cli.terminal import one_line, say, say_table, without_nan

if TYPE_CHECKING:
    from undertow.audit import Run
    from undertow.causal.grounds import Grounds
    from undertow.types import Finding

REASONS_SHOWN = 5


def say_run(run: Run, *, as_json: bool, asked: bool = True) -> None:
    """The run for people, or for machines as JSON; `asked` is false where no model was asked just now."""
    grounds = run.grounds
    if as_json:
        findings = [_plain_finding(finding, grounds) for finding in run.findings]
        counts = run.manifest.get("counts", {})
        answer = {"folder": str(run.folder), "report": str(run.report), "counts": counts, "findings": findings}
        if "precision" in run.manifest:
            answer["precision"] = without_nan(run.manifest["precision"])
        if grounds is not None:
            answer["graph"] = grounds.as_plain()
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    counts = run.manifest.get("counts", {})
    if "computed" in counts and asked:
        say(
            f"Asked {counts['items']:,} items ({counts['computed']:,} of {counts['queries']:,} queries computed now, "
            f"{counts['unscored']:,} unscored)."
        )
    notes = [one_line(note) for note in run.manifest["design"].get("w_notes", ())]
    for line in (*notes, *(f"  {n_items:,} unscored: {one_line(reason)}" for reason, n_items in _reasons(run))):
        say(line)
    precision = run.manifest.get("precision", {})
    for finding in run.findings:
        say(f"{'*' if finding.found else '-'} {finding.text}")
        if finding.text in precision.get("could_change", ()):
            say("  In float32 this could turn out otherwise.")
        if grounds is not None and grounds.doubt and finding.found and finding.rests:
            say(f"  {grounds.doubt}")
    for sentence in precision.get("said", ()):
        say(sentence)
    if grounds is not None:
        say_grounds(grounds)
    for shown in run.shown:
        say("")
        say(shown.title)
        say_table([dict(zip(shown.columns, row, strict=True)) for row in shown.rows])
        if shown.about:
            say(shown.about)
    say(f"Report: {one_line(run.report.resolve())}")


def _plain_finding(finding: Finding, grounds: Grounds | None) -> dict[str, Any]:
    plain: dict[str, Any] = {"text": finding.text, "found": finding.found, "strength": finding.strength}
    rests = finding.rests and finding.found
    return plain if grounds is None else {**plain, "rests_on": grounds.kind if rests else ""}


def say_grounds(grounds: Grounds) -> None:
    """What the findings rest on, but what the graph grants."""
    from undertow.causal.in_words import GRANTED

    name = f" {grounds.named.name}" if grounds.named.name else ""
    say("")
    say(f"Graph{name}: {grounds.named.graph.text().partition(chr(10))[0]}")
    say(grounds.tally)
    for row in grounds.assumptions:
        if not row.holds:
            say(f"  {GRANTED[row.holds]}: {row.claim} ({row.because})")


def _reasons(run: Run) -> list[tuple[str, int]]:
    """Why items of a run are unscored, each with how many are; the most frequent ones."""
    if "unscored" not in run.observations:
        return []
    reasons = Counter(map(str, run.observations["unscored"]))
    reasons.pop("", None)
    return reasons.most_common(REASONS_SHOWN)
