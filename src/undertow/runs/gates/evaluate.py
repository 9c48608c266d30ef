"""Evaluate rules on the results of a run, or on their change against a baseline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow.errors import UndertowError, short_traceback
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
    closest,
    read_rules,
)
from undertow.types import Result

if TYPE_CHECKING:
    from undertow.runs.folder.storage import Record

PASSED, FAILED, SKIPPED, ERROR = "passed", "failed", "skipped", "error"
OUTCOMES = (PASSED, FAILED, SKIPPED, ERROR)
DETECTABLE, CLEARLY_SIGNIFICANT = "detectable_slope", 0.01
"""A number of `extras` that a slope has whose p is this or more: below, nobody needs to know what such a run could find."""
OF_OTHERS = (LOW, HIGH, MAGNITUDE_LOW, MAGNITUDE_HIGH, P, Q, DETECTABLE)
"""Numbers that say something of other sentences, which takes clusters enough."""
MAX_NAMED = 8
"""Names that a sentence lists before it stops."""
CLASS, ALL = "description_class", "all"
_NAMED: Mapping[str, str] = {
    LOW: "the low end of the 95% interval of",
    HIGH: "the high end of the 95% interval of",
    N: "the number of items behind",
    N_MISSING: "the number of missing items of",
    MISSING_PERCENT: "the missing share of",
}
"""What numbers are called in a sentence, where it is not by their names."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The outcome of one rule for one result, or for no result where none matches.

    Attributes:
        rule: the rule.
        outcome: one of `OUTCOMES`.
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
    """The outcomes of all rules for one run.

    Attributes:
        folder: the run folder, as the user named it.
        audit, model, run_key: from its manifest.
        judged: outcomes in the order of the rules and results.
        limitations: what the run states that it cannot detect, whatever the answers are.
    """

    folder: Path
    audit: str
    model: str
    run_key: str
    judged: tuple[RuleResult, ...]
    limitations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateReport:
    """The outcomes of all rules for all runs.

    Attributes:
        rules: the rules.
        runs: at least one.
        baseline: the baseline of changes; None if no rule needs one.
    """

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


Progress: TypeAlias = Callable[[int, int], None]
"""Called with (tables measured, tables in all) while a run is compared with the baseline."""


def silent(done: int, total: int) -> None:
    """No progress is shown."""


@short_traceback
def gate(
    runs: Sequence[str | Path],
    rules: str | Path,
    baseline: str | Path | None = None,
    progress: Progress = silent,
) -> GateReport:
    """Judge run folders by the rules of a file.

    Args:
        runs: run folders, each by itself.
        rules: the TOML file.
        baseline: a run folder that rules with `against = "baseline"` compare each run with.
        progress: called with (tables measured, tables in all) while a run is compared.

    Raises:
        UndertowError: rules or a run cannot be read, a run is named twice, a rule needs a baseline and none is given, no rule
            needs the one that is, or it cannot be compared with a run.
    """
    from undertow.runs.folder.storage import read_record

    read = read_rules(Path(rules))
    folders = [Path(run) for run in runs]
    if not folders:
        raise UndertowError("no run is named; give the folder of one")
    for folder in folders:
        if folders.count(folder) > 1:
            raise UndertowError(f"{folder}: is named twice; name each run once")
    base = Path(baseline) if baseline is not None else None
    _check_baseline(read, base)
    held = read_record(base) if base is not None else None
    judged = [_Run.from_records(folder, read_record(folder), base, held, progress).judged(read) for folder in folders]
    return GateReport(read, tuple(_with_unasked(read, judged)), base)


def _check_baseline(rules: Rules, baseline: Path | None) -> None:
    needing = [rule for rule in rules.rules if rule.against == BASELINE]
    if baseline is None:
        for rule in needing:
            if not rule.optional:
                raise UndertowError(
                    f"{rules.where(rule)}: judges the change against a baseline, and none is given; name a run folder with "
                    "--baseline, or make the rule optional"
                )
    elif not needing:
        raise UndertowError(
            f"{rules.path}: no rule judges a change against the baseline {baseline}; leave --baseline out, or write "
            f"against = {BASELINE!r} in a rule"
        )


def _with_unasked(rules: Rules, runs: Sequence[RunReport]) -> Iterator[RunReport]:
    """A rule for an audit that none of the runs is of has tested nothing, and the first run is told so."""
    audits = dict.fromkeys(run.audit for run in runs)
    unasked = []
    for rule in rules.rules:
        if rule.audit and rule.audit not in audits:
            said = f"is for runs of {rule.audit!r}{closest(rule.audit, audits)}, and there are those of {', '.join(audits)}"
            unasked.append(_nothing(rules, rule, said))
    first = runs[0]
    together = sorted((*first.judged, *unasked), key=lambda one: one.rule.number)
    yield replace(first, judged=tuple(together))
    yield from runs[1:]


def _nothing(rules: Rules, rule: Rule, reason: str) -> RuleResult:
    """The result of a rule without matches: it fails unless the rule is optional."""
    return RuleResult(rule, SKIPPED if rule.optional else ERROR, printable(f"{rules.where(rule)}: {reason}"))


class _MissingError(Exception):
    """The number is missing; the message says why."""


class _UnfitError(Exception):
    """A result cannot have the number of a rule; the message says why."""


class _FewError(Exception):
    """A rule needs more clusters than there are; the message gives the number."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of a rule: a result, or its change against the baseline.

    Attributes:
        result: the result; for a change, the difference.
        group: its group, with the model.
        null_value: its null value.
        start: its value in the baseline; NaN without a baseline.
        start_null_value: its null value there.
        since: the baseline, in words; "" without a baseline.
        n_clusters: number of clusters; NaN if unknown.
    """

    result: Result
    group: Mapping[str, str]
    null_value: float
    start: float = math.nan
    start_null_value: float = math.nan
    since: str = ""
    n_clusters: float = math.nan

    def number(self, of: str) -> float:
        """The number that a rule judges.

        Raises:
            _MissingError: it is NaN, or there is none.
            _UnfitError: no result of this kind has one.
            _FewError: it says something of other sentences, and there are too few clusters for that.
        """
        from undertow.runs.compare.equivalence import fewest_clusters

        if of in OF_OTHERS and self.n_clusters < fewest_clusters():
            clusters = "1 cluster" if self.n_clusters == 1 else f"{self.n_clusters:.0f} clusters"
            raise _FewError(f"{clusters}, this rule needs {fewest_clusters()}")
        number = self._magnitude(of) if of in MAGNITUDES else self._plain(of)
        if not math.isfinite(number):
            raise _MissingError(self.result.note or self._reason(of))
        return number

    def _plain(self, of: str) -> float:
        result = self.result
        if of == MISSING_PERCENT:
            n_items = result.n + result.n_missing
            return 100 * result.n_missing / n_items if n_items else math.nan
        return float(getattr(result, of)) if of in NUMBERS else result.extras.get(of, math.nan)

    def _magnitude(self, of: str) -> float:
        """Distance from the null value; for a change, the growth of that distance."""
        result = self.result
        if not math.isfinite(result.value):
            return math.nan
        if math.isnan(self.null_value) or (self.since and math.isnan(self.start_null_value)):
            raise _UnfitError(f"has no null value, so it has no {of}; check another number")
        ends = [result.value] if of == MAGNITUDE else [result.low, result.value, result.high]
        if self.since:
            ends = [self.start + end for end in ends]
        if not all(map(math.isfinite, ends)):
            return math.nan
        far = [end - self.null_value for end in ends]
        farness = max(map(abs, far))
        if of == MAGNITUDE_LOW:
            farness = 0.0 if min(far) <= 0.0 <= max(far) else min(map(abs, far))
        return farness - abs(self.start - self.start_null_value) if self.since else farness

    def _reason(self, of: str) -> str:
        if of in (LOW, HIGH, MAGNITUDE_LOW, MAGNITUDE_HIGH) and math.isfinite(self.result.value):
            return "it has no interval"
        if of in (P, Q):
            return "it is not tested"
        if of == MISSING_PERCENT:
            return "it has no items"
        return "the run does not say why"

    def what(self, of: str, levels: Sequence[str]) -> str:
        """What is judged, in words."""
        model = self.group.get("model", "")
        others = [level for level in levels if level not in (model, f"model={model}")]
        about = f" ({', '.join(others)})" if others else ""
        what = f"{self.result.measure.replace('_', ' ')}{about}{f' of {model}' if model else ''}"
        if of in MAGNITUDES:
            return what
        if self.since:
            what = f"the change of {what} against {self.since}"
        return what if of == VALUE else f"{_NAMED.get(of, f'{of} of')} {what}"

    def around(self, of: str) -> tuple[str, str]:
        """The text before the number, and the text after it."""
        unit = f" {self.result.unit}" if self.result.unit else ""
        if of not in MAGNITUDES:
            return "is", {VALUE: unit, LOW: unit, HIGH: unit, MISSING_PERCENT: " percent"}.get(of, "")
        before = {MAGNITUDE: "is", MAGNITUDE_LOW: "is at least", MAGNITUDE_HIGH: "is up to"}[of]
        distance = f"from its null value ({formatted(self.null_value)})"
        behind = f"farther {distance} than in {self.since}" if self.since else distance
        by = "" if of == MAGNITUDE else f", by {'the interval of the change' if self.since else 'its interval'}"
        return before, f"{unit} {behind}{by}"


@dataclass(frozen=True, slots=True)
class _Run:
    """One run, and its changes against the baseline where there is one.

    Attributes:
        folder: the run folder.
        record: its contents.
        results: its results, as targets.
        changes: the differences, as targets; None without a baseline.
    """

    folder: Path
    record: Record
    results: Sequence[_Target]
    changes: Sequence[_Target] | None

    @classmethod
    def from_records(
        cls, folder: Path, record: Record, base: Path | None, baseline: Record | None, progress: Progress
    ) -> _Run:
        results = [
            _Target(result, result.group, result.null_value, n_clusters=clusters_behind(record, result))
            for result in record.results
        ]
        changes = None if base is None or baseline is None else _changes((base, folder), (baseline, record), progress)
        return cls(folder, record, results, changes)

    def judged(self, rules: Rules) -> RunReport:
        manifest = self.record.manifest
        audit = str(manifest["audit"])
        chosen = [rule for rule in rules.rules if rule.audit in ("", audit)]
        judged = [one for rule in chosen for one in self._judged(rules, rule)]
        notes = manifest["design"].get("limitations", [])
        limitations = tuple(printable(str(note)) for note in notes) if isinstance(notes, list) else ()
        return RunReport(
            self.folder, audit, str(manifest["model"]), str(manifest["run_key"]), tuple(judged), limitations
        )

    def _judged(self, rules: Rules, rule: Rule) -> Iterator[RuleResult]:
        among = self.changes if rule.against else self.results
        if among is None:
            yield _nothing(rules, rule, "judges the change against a baseline, and none is given")
            return
        matching, unmatched = _matching(rule, among, str(self.folder))
        if unmatched:
            yield _nothing(rules, rule, unmatched)
        if rule.of not in NUMBERS and matching:
            details = dict.fromkeys(name for subject in matching for name in subject.result.extras)
            known_elsewhere = rule.of == DETECTABLE and any(_measures_drift(one) for one in matching)
            if rule.of not in details and not known_elsewhere:
                hint = closest(rule.of, (*NUMBERS, *details))
                known = f"; use {_listed((*NUMBERS, *details), len(NUMBERS) + MAX_NAMED)}"
                said = f"of is {rule.of!r}, which {rule.measure} of {self.folder} has not{hint}{known}"
                yield RuleResult(rule, ERROR, printable(f"{rules.where(rule)}: {said}"))
                return
        constant = [key for key in ("model", "challenge") if len({one.group.get(key, "") for one in self.results}) == 1]
        for subject, levels in zip(matching, labels([subject.group for subject in matching], constant), strict=True):
            yield _judge(rules, rule, subject, levels)


def _measures_drift(subject: _Target) -> bool:
    """Whether a result is tested for drift, or would be with more clusters."""
    return "n_w" in subject.result.extras and subject.result.measure.startswith("slope")


def _judge(rules: Rules, rule: Rule, subject: _Target, levels: Sequence[str]) -> RuleResult:
    """Judge one result by one rule."""
    label, group = printable("-".join(levels)), dict(subject.group)
    what = subject.what(rule.of, levels)
    try:
        number = subject.number(rule.of)
    except _UnfitError as error:
        return RuleResult(rule, ERROR, printable(f"{rules.where(rule)}: {what} {error}"), label, group)
    except _FewError as error:
        # Whatever the rule lets by: asking less must not pass a gate.
        said = f"{rules.where(rule)}: {rule.of if rule.of in MAGNITUDES else ''}{' of ' if rule.of in MAGNITUDES else ''}{what}"
        return RuleResult(rule, ERROR, printable(f"{said} cannot be judged: {error}"), label, group)
    except _MissingError as error:
        if rule.of == DETECTABLE and subject.result.p < CLEARLY_SIGNIFICANT and math.isinf(rule.at_least):
            sentence = f"{what} is not needed, since it was found with p {formatted(subject.result.p)}"
            return RuleResult(
                rule, PASSED, printable(f"{sentence}; rule {rule.name!r} allows {rule.allowed}"), label, group
            )
        outcome, consequence = (SKIPPED, "lets that by") if rule.allow_missing else (FAILED, "needs it")
        lacking = f"{rule.of} of {what}" if rule.of in MAGNITUDES else what
        return RuleResult(
            rule,
            outcome,
            printable(f"{lacking} is missing ({str(error).rstrip('.')}), and rule {rule.name!r} {consequence}"),
            label,
            group,
        )
    outcome = PASSED if rule.holds(number) else FAILED
    before, behind = subject.around(rule.of)
    said = f"{what} {before} {formatted(number, (rule.at_least, rule.at_most))}{behind}"
    return RuleResult(
        rule, outcome, printable(f"{said}, and rule {rule.name!r} allows {rule.allowed}"), label, group, number
    )


def _matching(rule: Rule, among: Sequence[_Target], run: str) -> tuple[list[_Target], str]:
    """The results that match a rule, and the part of the rule that matched none; "" if all parts matched."""
    what = f"change of {rule.measure!r}" if rule.against else f"measure {rule.measure!r}"
    measures = dict.fromkeys(subject.result.measure for subject in among)
    of_measure = [subject for subject in among if subject.result.measure == rule.measure]
    if not of_measure:
        return [], f"{run} has no {what}{closest(rule.measure, measures)}; it has {_listed(measures)}"
    rule = _of_one_class(rule, of_measure)
    for key, wanted in rule.where.items():
        keys = dict.fromkeys(key for subject in of_measure for key in subject.group)
        if key not in keys:
            return [], f"where.{key} is no key of {rule.measure} in {run}{closest(key, keys)}; it has {_listed(keys)}"
        levels = dict.fromkeys(subject.group.get(key, "") for subject in of_measure)
        for level in wanted:
            if level not in levels:
                hint = closest(level, levels)
                return _where(rule, of_measure), (
                    f"where.{key} is {level!r}, which {rule.measure} of {run} has not{hint}; it has {_listed(levels)}"
                )
    matching = _where(rule, of_measure)
    for key, wanted in rule.where.items():
        for level in wanted:
            if not any(subject.group.get(key, "") == level for subject in matching):
                return (
                    matching,
                    f"{run} has no {rule.measure} with {key} {level!r} and the other levels of the rule together",
                )
    return matching, ""


def _of_one_class(rule: Rule, among: Sequence[_Target]) -> Rule:
    """A rule on all classes of task descriptions together is on the only one, where a run asked one; baselines are none."""
    levels = {subject.group.get(CLASS, "") for subject in among}
    classes = [level for level in levels if not level.startswith("(")]
    wanted = rule.where.get(CLASS, ())
    if ALL not in wanted or len(classes) != 1:
        return rule
    return replace(rule, where={**rule.where, CLASS: tuple(classes[0] if one == ALL else one for one in wanted)})


def _where(rule: Rule, among: Sequence[_Target]) -> list[_Target]:
    return [one for one in among if all(one.group.get(key, "") in wanted for key, wanted in rule.where.items())]


def _listed(names: Sequence[str] | Mapping[str, Any], most: int = MAX_NAMED) -> str:
    texts = [name or "''" for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return (", ".join(texts[:most]) or "none") + more


def _changes(folders: tuple[Path, Path], records: tuple[Record, Record], progress: Progress) -> list[_Target]:
    """The differences, with null values from the runs, and the model where there is only one.

    Raises:
        UndertowError: the two cannot be compared.
    """
    from undertow.runs.compare import compare

    baseline, candidate = records
    since, name = (str(folder) for folder in folders)
    models = {result.group["model"] for result in candidate.results if "model" in result.group}
    model = {"model": models.pop()} if len(models) == 1 else {}
    changes = compare(baseline, candidate, names=(since, name), progress=progress, margin=0.0).differences
    return [
        _Target(
            result=_tested(difference),
            group=model | dict(difference.group),
            null_value=_null_value(candidate, difference),
            # On the items that both runs answered, and so not always the value that the baseline itself has.
            start=difference.extras.get("baseline", math.nan),
            start_null_value=_null_value(baseline, difference),
            since=since,
            n_clusters=difference.extras.get(N_CLUSTERS, clusters_behind(candidate, difference)),
        )
        for difference in changes
    ]


def _tested(difference: Result) -> Result:
    """Give a change of exactly 0, which is not tested, p and q of 1."""
    has_interval = math.isfinite(difference.low)
    return replace(difference, p=1.0, q=1.0) if difference.value == 0 and has_interval else difference


N_CLUSTERS = "n_clusters"
"""A number of `extras`."""
CROSSED = ("pair", "soc_code")
"""Columns of items that are in clusters in two ways."""


def clusters_behind(record: Record, result: Result) -> float:
    """Number of clusters of a result, from its extras or its rows; NaN if unknown.

    For two clusterings, the smaller number that exceeds one.
    """
    if N_CLUSTERS in result.extras:
        return float(result.extras[N_CLUSTERS])
    rows = record.observations
    for key, level in result.group.items():
        own = rows[key].astype(str) == level if key in rows else None
        if own is not None and own.any():
            rows = rows[own]
    if "missing_reason" in rows:
        rows = rows[rows["missing_reason"].fillna("") == ""]
    columns = CROSSED if all(name in rows for name in CROSSED) else ("cluster",)
    counts = [rows[name].nunique() for name in columns if name in rows]
    return float(min((count for count in counts if count > 1), default=max(counts, default=math.nan)))


def _null_value(record: Record, difference: Result) -> float:
    """The null value of a difference's result; NaN if the run has none."""
    for result in record.results:
        if result.measure == difference.measure and all(
            result.group.get(key, level) == level for key, level in difference.group.items() if key != "model"
        ):
            return result.null_value
    return math.nan
