"""What the rounds come to: rates, ratios, memory, and the table that is made of the JSON record.

Knows plain records (what `json.load` gives); knows nothing about how they were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

Row = Sequence[object]
MEMORY = {
    "peak_mib": "peak MiB",
    "loaded_mib": "loaded MiB",
    "scoring_peak_mib": "peak while scoring MiB",
    "scoring_added_mib": "added by scoring MiB",
}
"""Columns of the table, by their name in the record."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def compare(engine: dict[str, Any], peer: dict[str, Any]) -> dict[str, Any]:
    """The engine beside one peer: the ratio of their rates round by round, and of their memory.

    Memory is the peak since loading ended, the model included: all load the same file by the same code.
    """
    ratios = [one / other for one, other in zip(engine["items_per_s"], peer["items_per_s"], strict=True)]
    return {
        "peer": peer["name"],
        "rate_ratio": spread(ratios),
        "rate_ratios": ratios,
        "memory_ratio": engine["memory"]["scoring_peak_mib"] / peer["memory"]["scoring_peak_mib"],
    }


def table(record: dict[str, Any]) -> str:
    """The whole record as a Markdown page."""
    parts = ["# Undertow beside other tools", _machine(record)]
    for job in record["jobs"]:
        parts += [_job(record, job), _contenders(job), _comparisons(job), _searches(job)]
    return "\n\n".join(parts) + "\n"


def _machine(record: dict[str, Any]) -> str:
    machine, model = record["machine"], record["model"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))
    before, after = record["load_average"]["before"][0], record["load_average"]["after"][0]
    return "\n".join(
        [
            f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['system']}.",
            f"- Load average (1 minute): {before:.2f} before, {after:.2f} after; {record['threads']} torch threads each.",
            f"- Model: {model['name']} ({model['source']}), {model['dtype']}, the same weights for all.",
            f"- Versions: {versions}.",
            f"- Taken {record['created']}.",
        ]
    )


def _job(record: dict[str, Any], job: dict[str, Any]) -> str:
    asked = f"{job['n_items']:,} items ({job['n_requests']:,} log-likelihood requests)"
    drawn = f"a seeded sample (seed {record['seed']}) of {len(job['w_values'])} W values: {', '.join(job['w_values'])}"
    which = "all of the set" if job["n_items"] == job["n_items_in_set"] else f"of {job['n_items_in_set']:,}: {drawn}"
    return (
        f"## {job['job']}\n\n{asked}, {which}. Rounds, in which the contenders take turns: {record['rounds']}; "
        f"an item is one sentence with its blank. Numbers compared before any time was reported: "
        f"at most {job['tolerance_nats']:g} nats apart is allowed."
    )


def _contenders(job: dict[str, Any]) -> str:
    heads = ["contender", "batch size", "items/s, median", "min to max", *MEMORY.values()]
    rows: list[Row] = []
    for one in job["contenders"]:
        rate, memory = spread(one["items_per_s"]), one["memory"]
        span = f"{rate['min']:.1f} to {rate['max']:.1f}"
        sizes = [f"{memory[name]:.0f}" for name in MEMORY]
        rows.append([one["name"], one["batch_size"] or "its own", f"{rate['median']:.1f}", span, *sizes])
    return _grid(heads, rows)


def _comparisons(job: dict[str, Any]) -> str:
    heads = ["engine beside", "rate ratio, median", "min to max", "memory ratio", "largest difference, nats"]
    rows: list[Row] = []
    for one in job["comparisons"]:
        ratio = one["rate_ratio"]
        span = f"{ratio['min']:.2f} to {ratio['max']:.2f}"
        numbers = [f"{one['memory_ratio']:.2f}", f"{one['largest_difference_nats']:.1e}"]
        rows.append([one["peer"], f"{ratio['median']:.2f}", span, *numbers])
    return _grid(heads, rows) + "\n\n" + "\n\n".join(_verdict(one) for one in job["comparisons"] if one["target_ratio"])


def _verdict(comparison: dict[str, Any]) -> str:
    target, rate = comparison["target_ratio"], comparison["rate_ratio"]["median"]
    memory = f"no more memory: {_kept(comparison['memory_ratio'] <= 1)}"
    return (
        f"Promised beside {comparison['peer']}: {target:g} times the rate (median): {_kept(rate >= target)}; {memory}."
    )


def _kept(promise: bool) -> str:
    return "kept" if promise else "not kept"


def _searches(job: dict[str, Any]) -> str:
    told = [
        f"Batch size of {one['contender']}, on {one['n_items']} items beforehand, the better of {one['passes']} passes (items/s): "
        + ", ".join(f"{size}: {rate:.1f}" for size, rate in one["items_per_s"].items())
        + f". Best: {one['best']}."
        for one in job["searches"]
    ]
    return "\n\n".join(told)


def _grid(heads: Row, rows: Sequence[Row]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
