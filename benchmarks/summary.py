"""What the rounds come to: rates, ratios, memory, and the table that is made of the JSON record.

Knows plain records (what `json.load` gives); knows nothing about how they were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

Cells = Sequence[object]
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
    parts = ["# Undertow beside other tools", _machine(record), _promises(record)]
    for row in record["rows"]:
        parts += [_about(record, row), _contenders(row), _comparisons(row), *_searches(row)]
    return "\n\n".join(parts) + "\n"


def _machine(record: dict[str, Any]) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))
    before, after = record["load_average"]["before"][0], record["load_average"]["after"][0]
    return "\n".join(
        [
            f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['system']}.",
            f"- Load average (1 minute): {before:.2f} before, {after:.2f} after; {record['threads']} torch threads each.",
            f"- Versions: {versions}.",
            f"- Taken {record['created']}.",
        ]
    )


def _promises(record: dict[str, Any]) -> str:
    heads = ["row", "beside", "times the rate, median", "min to max", "promised", ""]
    rows: list[Cells] = []
    for row in record["rows"]:
        for one in row["comparisons"]:
            ratio, target = one["rate_ratio"], one["target_ratio"]
            verdict = _kept(ratio["median"] >= target) if target else ""
            rows.append(
                [
                    row["row"],
                    one["peer"],
                    f"{ratio['median']:.2f}",
                    _span(ratio),
                    f"{target:g}" if target else "",
                    verdict,
                ]
            )
    return _grid(heads, rows)


def _about(record: dict[str, Any], row: dict[str, Any]) -> str:
    drawn, equality, model = row["drawn"], row["equality"], row["model"]
    levels = drawn["levels"]
    which_levels = ", ".join(levels) if drawn["unit"] == drawn["of"] else f"over {len(levels)} {drawn['of']}s"
    sample = f"of {row['n_items_in_set']:,}: a sample (seed {record['seed']}) of {drawn['n']} {drawn['unit']}s, {which_levels}"
    which = "all of the set" if row["n_items"] == row["n_items_in_set"] else sample
    return (
        f"## {row['row']}\n\nModel: {model['source']}, {model['dtype']}, the same weights for all. "
        f"An item is {row['about']}. {row['n_items']:,} items, {which}. "
        f"Rounds, in which the contenders take turns: {record['rounds']}. "
        f"Numbers compared before any time was reported: at most {equality['tolerance']:g} {equality['unit']} apart is allowed."
    )


def _contenders(row: dict[str, Any]) -> str:
    heads = ["contender", "batch size", "items/s, median", "min to max", *MEMORY.values()]
    rows: list[Cells] = []
    for one in row["contenders"]:
        rate, memory = spread(one["items_per_s"]), one["memory"]
        span = f"{rate['min']:.1f} to {rate['max']:.1f}"
        sizes = [f"{memory[name]:.0f}" for name in MEMORY]
        rows.append([one["name"], one["batch_size"] or "its own", f"{rate['median']:.1f}", span, *sizes])
    return _grid(heads, rows)


def _comparisons(row: dict[str, Any]) -> str:
    heads = [
        "engine beside",
        "rate ratio, median",
        "min to max",
        "memory ratio",
        "largest difference",
        "parted at ties",
    ]
    rows: list[Cells] = []
    for one in row["comparisons"]:
        ratio = one["rate_ratio"]
        numbers = [f"{one['memory_ratio']:.2f}", f"{one['largest_difference']:.1e}", one["n_ties"]]
        rows.append([one["peer"], f"{ratio['median']:.2f}", _span(ratio), *numbers])
    verdicts = [_verdict(one) for one in row["comparisons"] if one["target_ratio"]]
    return "\n\n".join([_grid(heads, rows), *verdicts])


def _span(ratio: dict[str, float]) -> str:
    return f"{ratio['min']:.2f} to {ratio['max']:.2f}"


def _verdict(comparison: dict[str, Any]) -> str:
    target, rate = comparison["target_ratio"], comparison["rate_ratio"]["median"]
    said = f"Promised beside {comparison['peer']}: {target:g} times the rate (median): {_kept(rate >= target)}"
    memory = f"; no more memory: {_kept(comparison['memory_ratio'] <= 1)}" if comparison["no_more_memory"] else ""
    return f"{said}{memory}."


def _kept(promise: bool) -> str:
    return "kept" if promise else "not kept"


def _searches(row: dict[str, Any]) -> list[str]:
    return [
        f"Batch size of {one['contender']}, on {one['n_items']} items beforehand, the better of {one['passes']} passes (items/s): "
        + ", ".join(f"{size}: {rate:.1f}" for size, rate in one["items_per_s"].items())
        + f". Best: {one['best']}."
        for one in row["searches"]
    ]


def _grid(heads: Cells, rows: Sequence[Cells]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
