"""Evaluate rules on the results of a run, or on their change against a baseline."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError, closest, counted, short_traceback, shorten_list
from undertow.report.formatting import inline_markdown
from undertow.runs.gates.gate_formatting import formatted, labels, printable
from undertow.runs.gates.rules import (
    BASELINE,
    HIGH,
    LOW,
    MAGNITUDE,
    MAGNITUDE_HIGH,
    MAGNITUDE_LOW,
    MAGNITUDES,
    MISSING_PERCENT,
    N_MISSING,
    NUMBERS,
    VALUE,
    N,
    P,
    Q,
    Rule,
    Rules,
    read_rules,
)
from undertow.types import Progress, Result, no_progress

if TYPE_CHECKING:
    from undertow.runs.folder.storage import Record

PASSED, FAILED, SKIPPED, ERROR = "passed", "failed", "skipped", "error"
OUTCOMES = (PASSED, FAILED, SKIPPED, ERROR)
DETECTABLE, CLEARLY_SIGNIFICANT = "detectable_slope", 0.01
"""An extra of slopes with p of this or more; for smaller p the detectable slope is not computed."""
OF_OTHERS = (LOW, HIGH, MAGNITUDE_LOW, MAGNITUDE_HIGH, P, Q, DETECTABLE)
"""Numbers that generalise to other sentences, so they need enough clusters."""
OF_ALL_KINDS = (
    *("auroc", "auroc_difference", "auroc_by_occupations", "auroc_range"),
    *("balanced_accuracy", "held_out_balanced_accuracy", "yes_auroc"),
)
"""Measures for which the clusters of the smaller kind count."""
WELL_SPECIFIED = {
    **dict.fromkeys(("tpr", "hardest_tpr", "mean_movement"), False),
    **dict.fromkeys(("tnr", "hardest_tnr", "coreference_agreement"), True),
}
"""The kind of measures of one kind."""
MAX_NAMED, MAX_ROWS = 8, 100
"""Maximum number of names in a sentence, and of rows of a Markdown table."""
CLASS, ALL = "description_class", "all"
SENTENCES: Mapping[str, str] = {
    VALUE: "{name} is {number}{unit}",
    LOW: "the low end of the 95% interval of {name} is {number}{unit}",
    HIGH: "the high end of the 95% interval of {name} is {number}{unit}",
    MAGNITUDE: "{name} is {number}{unit} from its null value ({null})",
    MAGNITUDE_LOW: "{name} is at least {number}{unit} from its null value ({null}), by its interval",
    MAGNITUDE_HIGH: "{name} is up to {number}{unit} from its null value ({null}), by its interval",
    N: "the number of items of {name} is {number}",
    N_MISSING: "the number of missing items of {name} is {number}",
    MISSING_PERCENT: "the missing share of {name} is {number} percent",
}
"""A judged number in words."""
SENTENCES_OF_CHANGES: Mapping[str, str] = {
    MAGNITUDE: "{name} is {number}{unit} farther from its null value ({null}) than in {since}",
    MAGNITUDE_LOW: "{name} is at least {number}{unit} farther from its null value ({null}) than in {since}, by the interval of the change",
    MAGNITUDE_HIGH: "{name} is up to {number}{unit} farther from its null value ({null}) than in {since}, by the interval of the change",
}
NEARER = {"farther from": "nearer to", "at least": "up to", "up to": "at least"}
"""The words of a change by which a distance shrinks."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The outcome of one rule for one result, or for no result if none matches.

    Attributes:
        sentence: the number and what the rule allows, or why it could not be judged.
        label: distinguishes the results of this rule; "" without a result.
        group: group of the result; {} without a result.
        number: the judged number; NaN if missing.
    """

    rule: Rule
    outcome: str
    sentence: str
    label: str = ""
    group: Mapping[str, str] = field(default_factory=dict)
    number: float = math.nan

    @property
    def name(self) -> str:
        """The rule's name and the result's label: the name of a test."""
        return printable(f"{self.rule.name}[{self.label}]" if self.label else self.rule.name)

    @property
    def message(self) -> str:
        """The sentence, then the rule's `why`, each on lines of its own."""
        return "\n".join([self.sentence, *map(printable, self.rule.why.splitlines())])

    def as_json(self) -> dict[str, Any]:
        """Plain values, for JSON; what is missing or infinite is None."""
        rule = self.rule
        numbers = {"number": self.number, "at_least": rule.at_least, "at_most": rule.at_most}
        return {
            "rule": rule.name,
            "outcome": self.outcome,
            "sentence": self.sentence,
            "measure": rule.measure,
            "group": dict(self.group),
            "of": rule.of,
            "against": rule.against,
            **{name: number if math.isfinite(number) else None for name, number in numbers.items()},
            "why": rule.why,
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """The outcomes of all rules for one run, in the order of the rules and results, and effects that the run cannot detect."""

    folder: Path
    audit: str
    model: str
    run_key: str
    judged: tuple[RuleResult, ...]
    limitations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateReport:
    """The outcomes of all rules for all runs; `baseline` is None if no rule needs one."""

    rules: Rules
    runs: tuple[RunReport, ...]
    baseline: Path | None = None

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in self.counts.items())
        folders = ", ".join(repr(str(run.folder)) for run in self.runs)
        return f"{type(self).__name__}(rules={str(self.rules.path)!r}, runs=[{folders}], {counts})"

    @property
    def counts(self) -> dict[str, int]:
        """Number of rule results by outcome."""
        counts = Counter(one.outcome for run in self.runs for one in run.judged)
        return {outcome: counts[outcome] for outcome in OUTCOMES}

    @property
    def status(self) -> int:
        """Exit status: 0 if all rules hold, 1 if one does not, 2 if one could not be judged and none failed."""
        counts = self.counts
        return 1 if counts[FAILED] else 2 if counts[ERROR] else 0

    def to_markdown(self) -> str:
        """The verdict and a table of all outcomes, the failed ones first, for the summary of a pull request."""
        verdict = {0: "all rules hold", 1: "a rule fails", 2: "a rule could not be judged"}[self.status]
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in self.counts.items() if n)
        order = (FAILED, ERROR, SKIPPED, PASSED)
        judged = [(str(run.folder), one) for run in self.runs for one in run.judged]
        rows = [
            (
                one.outcome,
                one.name,
                f"{one.rule.of} of {one.rule.measure}",
                formatted(one.number) if math.isfinite(one.number) else "",
                one.rule.allowed,
                folder,
            )
            for folder, one in sorted(judged, key=lambda pair: order.index(pair[1].outcome))
        ]
        head = ("outcome", "rule", "number", "value", "allowed", "run")
        cells = [head, ("---", "---", "---", "---:", "---", "---"), *rows[:MAX_ROWS]]
        lines = [f"| {' | '.join(map(inline_markdown, row))} |" for row in cells]
        more = [f"{len(rows) - MAX_ROWS:,} more rows; --json has all of them."] if len(rows) > MAX_ROWS else []
        notes = [f"Note: {inline_markdown(note)}" for run in self.runs for note in run.limitations]
        return "\n".join([f"**Undertow: {verdict}** ({counts})", "", *lines, "", *more, *notes]).rstrip()

    def as_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        runs = [
            {
                "folder": str(run.folder),
                "audit": run.audit,
                "model": run.model,
                "outcomes": [one.as_json() for one in run.judged],
                "limitations": list(run.limitations),
            }
            for run in self.runs
        ]
        return {
            "rules": str(self.rules.path),
            "baseline": str(self.baseline) if self.baseline is not None else "",
            "counts": self.counts,
            "status": self.status,
            "runs": runs,
        }


@short_traceback
def gate(
    runs: str | PathLike[str] | Sequence[str | PathLike[str]],
    rules: str | Path,
    baseline: str | PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> GateReport:
    """Judge run folders by the rules of a file.

    Args:
        runs: a run folder or a finished run, or several, each by itself.
        rules: the TOML file.
        baseline: a run folder that rules with `against = "baseline"` compare the runs of its audit with.
        progress: called with (tables measured, tables in all) while a run is compared.

    Raises:
        UndertowError: rules or a run cannot be read, a run is named twice, the baseline is missing, unused, or not comparable with a
            run.
    """
    from undertow.runs.folder.storage import read_record

    read = read_rules(Path(rules))
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | PathLike) else runs)]
    if not folders:
        raise UndertowError("no run is named; give the folder of one")
    for folder in folders:
        if folders.count(folder) > 1:
            raise UndertowError(f"{folder}: is named twice; name each run once")
    base = Path(baseline) if baseline is not None else None
    records = {folder: read_record(folder) for folder in folders}
    before = read_baseline(read, base, set(map(_audit, records.values())))
    first, *others = [_run_report(read, folder, record, before, progress) for folder, record in records.items()]
    # The first one also reports rules for audits of which there is no run.
    audits = dict.fromkeys(run.audit for run in (first, *others))
    there = f"and there are those of {', '.join(audits)}"
    unused = [
        _nothing(read, rule, f"is for runs of {rule.audit!r}{closest(rule.audit, audits)}, {there}")
        for rule in read.rules
        if rule.audit and rule.audit not in audits
    ]
    own = sorted((*first.judged, *unused), key=lambda one: read.rules.index(one.rule))
    return GateReport(read, (replace(first, judged=tuple(own)), *others), base)


def read_baseline(rules: Rules, baseline: Path | None, audits: Collection[str]) -> tuple[Path, Record] | None:
    """The baseline of runs of `audits`, and its record; None without one. Refuses a baseline that the rules lack or do not use."""
    from undertow.runs.folder.storage import read_record

    needing = [rule for rule in rules.rules if rule.against == BASELINE]
    required = [rule for rule in needing if not rule.optional]
    if baseline is None and required:
        raise UndertowError(
            f"{rules.where(required[0])}: judges the change against a baseline, and none is given; name a run folder with "
            "--baseline, or make the rule optional"
        )
    if baseline is not None and not needing:
        raise UndertowError(
            f"{rules.path}: no rule judges a change against the baseline {baseline}; leave --baseline out, or write "
            f"against = {BASELINE!r} in a rule"
        )
    if baseline is None:
        return None
    record = read_record(baseline)
    own = _audit(record)
    if own not in audits:
        raise UndertowError(
            f"{baseline}: is a run of {own!r}, and the runs to judge are of {', '.join(map(repr, sorted(audits)))}; name a baseline of "
            "one of these audits"
        )
    for rule in needing:
        if rule.audit in audits and rule.audit != own:
            raise UndertowError(
                f"{rules.where(rule)}: judges the change of {rule.audit!r} against a baseline, and {baseline} is a run of {own!r}; "
                "remove the rule, or name a baseline of its audit"
            )
    return baseline, record


def _nothing(rules: Rules, rule: Rule, reason: str) -> RuleResult:
    """The result of a rule without matches: it fails unless the rule is optional."""
    return RuleResult(rule, SKIPPED if rule.optional else ERROR, printable(f"{rules.where(rule)}: {reason}"))


@dataclass(frozen=True, slots=True)
class Check:
    """The subject of a rule: a result, or its change against the baseline.

    Attributes:
        result: the result; for a change, the difference.
        n_clusters: number of clusters; NaN if unknown.
        start: its value in the baseline; NaN without a baseline.
        start_null_value: its null value there.
        since: the baseline, in words; "" without a baseline.
    """

    result: Result
    group: Mapping[str, str]
    null_value: float
    n_clusters: float
    start: float = math.nan
    start_null_value: float = math.nan
    since: str = ""

    def number(self, of: str) -> float:
        """The number that a rule judges; NaN if missing."""
        result = self.result
        if of == MISSING_PERCENT:
            n_items = result.n + result.n_missing
            return 100 * result.n_missing / n_items if n_items else math.nan
        if of not in MAGNITUDES:
            return float(getattr(result, of)) if of in NUMBERS else result.extras.get(of, math.nan)
        # Distance from the null value; for a change, the growth of that distance.
        ends = [result.value] if of == MAGNITUDE else [result.low, result.value, result.high]
        far = [(self.start if self.since else 0.0) + end - self.null_value for end in ends]
        if not all(map(math.isfinite, far)):
            return math.nan
        farness = max(map(abs, far))
        if of == MAGNITUDE_LOW:
            farness = 0.0 if min(far) <= 0.0 <= max(far) else min(map(abs, far))
        return farness - abs(self.start - self.start_null_value) if self.since else farness

    def reason(self, of: str) -> str:
        """Reason of a missing number."""
        if self.result.note:
            return self.result.note.rstrip(".")
        if of in (LOW, HIGH, MAGNITUDE_LOW, MAGNITUDE_HIGH) and math.isfinite(self.result.value):
            return "it has no interval"
        reasons = {P: "it is not tested", Q: "it is not tested", MISSING_PERCENT: "it has no items"}
        return reasons.get(of, "the run does not say why")

    def name(self, of: str, levels: Sequence[str]) -> str:
        """The subject in words."""
        model = self.group.get("model", "")
        others = [level for level in levels if level not in (model, f"model={model}")]
        about = f" ({', '.join(others)})" if others else ""
        name = f"{self.result.measure.replace('_', ' ')}{about}{f' of {model}' if model else ''}"
        return f"the change of {name} against {self.since}" if self.since and of not in MAGNITUDES else name

    def sentence(self, rule: Rule, number: float, name: str) -> str:
        """The number in words."""
        kinds = {**SENTENCES, **(SENTENCES_OF_CHANGES if self.since else {})}
        sentence = kinds.get(rule.of, "{of} of {name} is {number}")
        digits = formatted(number, (rule.at_least, rule.at_most))
        if self.since and rule.of in MAGNITUDES and number < 0:
            sentence = re.sub("|".join(NEARER), lambda match: NEARER[match[0]], sentence)
            digits = digits.removeprefix("-")
        return sentence.format(
            name=name,
            of=rule.of,
            number=digits,
            unit=f" {self.result.unit}" if self.result.unit else "",
            null=formatted(self.null_value) if math.isfinite(self.null_value) else "",
            since=self.since,
        )


def _audit(record: Record) -> str:
    return str(record.manifest["audit"])


def _run_report(
    rules: Rules, folder: Path, record: Record, baseline: tuple[Path, Record] | None, progress: Progress
) -> RunReport:
    """Judge a run; rules on the change that name no audit are left out if the baseline is of another audit."""
    manifest, audit = record.manifest, _audit(record)
    is_compared = baseline is None or _audit(baseline[1]) == audit
    own = [one for one in rules.rules if one.audit == audit or (not one.audit and (is_compared or not one.against))]
    results = [Check(one, one.group, one.null_value, clusters_behind(record, one)) for one in record.results]
    changes = None
    if baseline is not None and any(rule.against for rule in own):
        changes = _changes(baseline, (folder, record), progress)
    same = [key for key in ("model", "challenge") if len({one.group.get(key, "") for one in results}) == 1]
    judged: list[RuleResult] = []
    for rule in own:
        among = changes if rule.against else results
        if among is None:
            judged.append(_nothing(rules, rule, "judges the change against a baseline, and none is given"))
        else:
            judged += _apply_rule(rules, rule, among, str(folder), same)
    notes = manifest["design"].get("limitations", [])
    limitations = tuple(printable(str(note)) for note in notes) if isinstance(notes, list) else ()
    return RunReport(folder, audit, str(manifest["model"]), str(manifest["run_key"]), tuple(judged), limitations)


def _apply_rule(
    rules: Rules, rule: Rule, among: Sequence[Check], folder: str, left_out: Sequence[str]
) -> Iterator[RuleResult]:
    matching, unmatched = _matching(rule, among, folder)
    if unmatched:
        yield _nothing(rules, rule, unmatched)
    details = dict.fromkeys(name for check in matching for name in check.result.extras)
    # A slope with a number of W values is tested for drift, or would be with more clusters.
    may_have = rule.of == DETECTABLE and "n_w" in details and rule.measure.startswith("slope")
    if matching and rule.of not in (*NUMBERS, *details) and not may_have:
        known = (*NUMBERS, *details)
        message = f"of is {rule.of!r}, which {rule.measure} of {folder} has not{closest(rule.of, known)}"
        message = f"{rules.where(rule)}: {message}; use {shorten_list(known, len(NUMBERS) + MAX_NAMED)}"
        yield RuleResult(rule, ERROR, printable(message))
        return
    for check, levels in zip(matching, labels([check.group for check in matching], left_out), strict=True):
        yield _judge(rules, rule, check, levels)


def _judge(rules: Rules, rule: Rule, check: Check, levels: Sequence[str]) -> RuleResult:
    from undertow.runs.compare.equivalence import fewest_clusters

    of, name = rule.of, check.name(rule.of, levels)
    subject = name if of == VALUE else f"{of} of {name}"
    allows = f"rule {rule.name!r} allows {rule.allowed}"
    number, judged = check.number(of), math.nan
    has_no_null = math.isnan(check.null_value) or (bool(check.since) and math.isnan(check.start_null_value))
    if of in OF_OTHERS and check.n_clusters < fewest_clusters():
        # Even if the rule would pass: a smaller run must not pass a gate.
        clusters = counted(round(check.n_clusters), "cluster")
        clusters += " of one kind" if check.result.measure in OF_ALL_KINDS else ""
        outcome = ERROR
        message = f"{rules.where(rule)}: {subject} cannot be judged: {clusters}, this rule needs {fewest_clusters()}"
    elif of in MAGNITUDES and has_no_null and math.isfinite(check.result.value):
        outcome = ERROR
        message = f"{rules.where(rule)}: {name} has no null value, so it has no {of}; check another number"
    elif math.isfinite(number):
        outcome, judged = PASSED if rule.accepts(number) else FAILED, number
        message = f"{check.sentence(rule, number, name)}, and {allows}"
    elif of == DETECTABLE and check.result.p < CLEARLY_SIGNIFICANT and math.isinf(rule.at_least):
        outcome = PASSED
        message = f"{subject} is not needed, because p is {formatted(check.result.p)}; {allows}"
    else:
        outcome, so = (SKIPPED, "lets that by") if rule.allow_missing else (FAILED, "needs it")
        message = f"{subject} is missing ({check.reason(of)}), and rule {rule.name!r} {so}"
    return RuleResult(rule, outcome, printable(message), printable("-".join(levels)), dict(check.group), judged)


def _matching(rule: Rule, among: Sequence[Check], run: str) -> tuple[list[Check], str]:
    """The results that match a rule, and a message on the part without a match; "" if all parts match."""
    measure = [check for check in among if check.result.measure == rule.measure]
    if not measure:
        measures = dict.fromkeys(check.result.measure for check in among)
        what = "change of" if rule.against else "measure"
        hint = closest(rule.measure, measures)
        return [], f"{run} has no {what} {rule.measure!r}{hint}; it has {shorten_list(measures, MAX_NAMED)}"
    where = _where(rule, measure)
    matching = [one for one in measure if all(one.group.get(key, "") in levels for key, levels in where.items())]
    wanted = [(key, level) for key, levels in where.items() for level in levels]
    for key, level in wanted:
        keys = dict.fromkeys(key for check in measure for key in check.group)
        if key not in keys:
            message = f"where.{key} is not a key of {rule.measure} in {run}{closest(key, keys)}"
            return [], f"{message}; it has {shorten_list(keys, MAX_NAMED)}"
        levels = dict.fromkeys(check.group.get(key, "") for check in measure)
        if level not in levels:
            message = f"where.{key} is {level!r}, which {rule.measure} of {run} has not{closest(level, levels)}"
            return matching, f"{message}; it has {shorten_list(levels, MAX_NAMED)}"
    for key, level in wanted:
        if not any(check.group.get(key, "") == level for check in matching):
            return matching, f"{run} has no {rule.measure} with {key} {level!r} and the rule's other levels together"
    return matching, ""


def _where(rule: Rule, measure: Sequence[Check]) -> dict[str, tuple[str, ...]]:
    """The levels of a rule; for all description classes, the only class if a run has one."""
    classes = {check.group.get(CLASS, "") for check in measure}
    classes = {level for level in classes if not level.startswith("(")}  # without baselines
    if ALL not in rule.where.get(CLASS, ()) or len(classes) != 1:
        return rule.where
    return rule.where | {CLASS: tuple(min(classes) if one == ALL else one for one in rule.where[CLASS])}


def _changes(baseline: tuple[Path, Record], candidate: tuple[Path, Record], progress: Progress) -> list[Check]:
    """The differences, with null values from the runs, and the model if there is only one."""
    from undertow.runs.compare import compare
    from undertow.runs.compare.equivalence import Margins

    (since, before), (folder, after) = baseline, candidate
    models = {result.group["model"] for result in after.results if "model" in result.group}
    model = {"model": models.pop()} if len(models) == 1 else {}
    compared = compare(before, after, names=(str(since), str(folder)), progress=progress, margins=Margins(0.0))
    return [
        Check(
            # A change of exactly 0 is not tested: its p and q are 1.
            result=replace(one, p=1.0, q=1.0) if one.value == 0 and math.isfinite(one.low) else one,
            group=model | dict(one.group),
            null_value=_null_value(after, one),
            n_clusters=clusters_behind(after, one),
            # On the common items, so it may differ from the baseline's own value.
            start=one.extras.get("baseline", math.nan),
            start_null_value=_null_value(before, one),
            since=str(since),
        )
        for one in compared.differences
    ]


def clusters_behind(record: Record, result: Result) -> float:
    """Number of clusters of a result, from its extras or its rows; NaN if unknown.

    For two kinds of items, that of the smaller kind; for two clusterings, the smaller number that exceeds one.
    """
    by_kind = result.measure in OF_ALL_KINDS or result.measure in WELL_SPECIFIED
    known = float(result.extras.get("n_clusters", math.nan))
    if math.isfinite(known) and not by_kind:
        return known
    import numpy as np

    from undertow.runs.compare.differences import CROSSED

    rows = record.observations
    own = np.ones(len(rows), dtype=np.bool_)
    for key, level in result.group.items():
        if key in rows and (has := own & (rows[key].astype(str) == level).to_numpy()).any():
            own = has
    rows = rows[own]
    answered = rows[rows["missing_reason"].fillna("") == ""] if "missing_reason" in rows else rows
    kind = next((name for name in ("well_specified", "gold") if name in rows), "")
    if by_kind and kind:
        own_kind = WELL_SPECIFIED.get(result.measure)
        kinds = rows[kind].astype(str).unique().tolist() if own_kind is None else [str(own_kind)]
        counts = [answered.loc[answered[kind].astype(str) == one, "cluster"].nunique() for one in kinds]
        return float(np.fmin(known, min(counts, default=math.nan)))
    columns = CROSSED if all(name in rows for name in CROSSED) else ("cluster",)
    counts = [answered[name].nunique() for name in columns if name in rows]
    return float(min((count for count in counts if count > 1), default=max(counts, default=math.nan)))


def _null_value(record: Record, difference: Result) -> float:
    """The null value of a difference's result; NaN if the run has none."""
    for result in record.results:
        if result.measure == difference.measure and all(
            result.group.get(key, level) == level for key, level in difference.group.items() if key != "model"
        ):
            return result.null_value
    return math.nan
