"""What commands say of a finished run: its findings, what these rest on, and its tables.

Knows runs and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from undertow.cli.terminal import one_line, say, say_json, say_table
from undertow.types import NOT_SEEN, UndertowError

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audit import Run
    from undertow.causal.grounds import Grounds
    from undertow.types import Finding

REASONS_SHOWN = 5


def say_run(run: Run, *, as_json: bool, asked: bool = True) -> None:
    """The run for people, or for machines as JSON; `asked` is false where no model was asked just now.

    Raises:
        UndertowError: a model has no number; says which, and why.
    """
    _say_run(run, as_json=as_json, asked=asked)
    silent = _without_numbers(run)
    if silent:
        told = "; ".join(f"{model} ({reason})" for model, reason in silent.items())
        raise UndertowError(f"nothing was measured of {told}; {run.folder} says what was asked")


def _say_run(run: Run, *, as_json: bool, asked: bool) -> None:
    from undertow.report.words import reading_caveats

    grounds = run.grounds
    if as_json:
        findings = [_plain_finding(finding, grounds) for finding in run.findings]
        counts = run.manifest.get("counts", {})
        answer = {"folder": str(run.folder), "report": str(run.report), "counts": counts, "findings": findings}
        answer |= {"reading": run.manifest["reading"]} if "reading" in run.manifest else {}
        if "precision" in run.manifest:
            answer["precision"] = run.manifest["precision"]
        if grounds is not None:
            answer["graph"] = grounds.as_plain()
        say_json(answer)
        return
    counts = run.manifest.get("counts", {})
    if "computed" in counts and asked:
        say(
            f"Asked {counts['items']:,} items ({counts['computed']:,} of {counts['queries']:,} queries computed now, "
            f"{counts['unscored']:,} unscored)."
        )
    notes = reading_caveats(run.manifest)
    notes += [one_line(note) for note in run.manifest["design"].get("w_notes", ())]
    notes += [note for note in run.manifest.get("notes", ()) if NOT_SEEN in note]
    for line in (
        *notes,
        *(f"  {n_items:,} unscored: {one_line(reason)}" for reason, n_items in _reasons(run.observations)),
    ):
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


def _without_numbers(run: Run) -> dict[str, str]:
    """Models that were asked and of which no result has a value, each with why."""
    found = {}
    for model, rows in run.observations.groupby(run.observations["model"].astype(str), sort=False):
        own = [one for one in run.record.results if one.group.get("model") == model]
        reasons = _reasons(rows)
        if reasons and (rows["unscored"] != "").all():
            found[str(model)] = reasons[0][0]
        elif own and not any(math.isfinite(one.value) for one in own):
            found[str(model)] = next((one.note.rstrip(".") for one in own if one.note), "no result has a value")
    return found


def _reasons(observations: pd.DataFrame) -> list[tuple[str, int]]:
    """Why items are unscored, each with how many are; the most frequent ones."""
    if "unscored" not in observations:
        return []
    reasons = Counter(map(str, observations["unscored"]))
    reasons.pop("", None)
    return reasons.most_common(REASONS_SHOWN)
