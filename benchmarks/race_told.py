"""What a race comes to: ratios round by round, memory, and the section of the page that is made of its record.

Knows plain records (what `json.load` gives); knows nothing about how they were taken.
"""

from __future__ import annotations

from typing import Any

from telling import ROUNDS_WORDS, Cells, Promise, grid, middle, sample_words, span, spread

MEMORY = {
    "peak_mib": "peak MiB",
    "loaded_mib": "loaded MiB",
    "scoring_peak_mib": "peak while scoring MiB",
    "scoring_added_mib": "added by scoring MiB",
}
"""Columns of the table, by their name in the record."""


def compare(engine: dict[str, Any], peer: dict[str, Any]) -> dict[str, Any]:
    """The engine beside one peer: the ratio of their rates round by round, and of their memory.

    Memory is the peak since loading ended, the model included: all load the same file.
    """
    ratios = [one / other for one, other in zip(engine["items_per_s"], peer["items_per_s"], strict=True)]
    return {
        "peer": peer["name"],
        "rate_ratio": spread(ratios),
        "rate_ratios": ratios,
        "memory_ratio": engine["memory"]["scoring_peak_mib"] / peer["memory"]["scoring_peak_mib"],
    }


def promises(row: dict[str, Any]) -> list[Promise]:
    """A row's promises: a rate beside each peer that one was made about, and memory."""
    found = []
    for one in row["comparisons"]:
        target, ratio = one["target_ratio"], one["rate_ratio"]
        if target:
            what = f"{row['row']}: at least {target:g} times the rate of {one['peer']}"
            found.append(Promise(what, f"{middle(ratio)} times", ratio["median"] >= target))
        if one["no_more_memory"]:
            what = f"{row['row']}: no more memory than {one['peer']}"
            found.append(Promise(what, f"{one['memory_ratio']:.2f} times", one["memory_ratio"] <= 1))
    return found


def section(row: dict[str, Any]) -> str:
    """A row's part of the page."""
    return "\n\n".join([_about(row), _contenders(row), _comparisons(row), *_searches(row)])


def _about(row: dict[str, Any]) -> str:
    equality, model = row["equality"], row["model"]
    ties = (
        f" At most {equality['ties_allowed']:,} of the {row['n_items']:,} items ({equality['tie_percent']}%, one in any case) "
        "may part where rounding turns a tie."
        if equality["ties_allowed"]
        else ""
    )
    return (
        f"Model: {model['source']}, {model['dtype']}, the same weights for all. "
        f"An item is {row['about']}. {sample_words(row)}. {ROUNDS_WORDS}: {row['taken']['rounds']}. "
        f"Numbers compared before any time was reported: at most {equality['tolerance']:g} {equality['unit']} apart is allowed.{ties}"
    )


def _contenders(row: dict[str, Any]) -> str:
    heads = ["contender", "batch size", "items/s, median", "min to max", *MEMORY.values()]
    rows: list[Cells] = []
    for one in row["contenders"]:
        rate, memory = spread(one["items_per_s"]), one["memory"]
        sizes = [f"{memory[name]:.0f}" for name in MEMORY]
        rows.append([one["name"], one["batch_size"] or "its own", f"{rate['median']:.1f}", span(rate, 1), *sizes])
    return grid(heads, rows)


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
        rows.append([one["peer"], f"{ratio['median']:.2f}", span(ratio), *numbers])
    return grid(heads, rows)


def _searches(row: dict[str, Any]) -> list[str]:
    return [
        f"Batch size of {one['contender']}, on {one['n_items']} items beforehand, the better of {one['passes']} passes (items/s): "
        + ", ".join(f"{size}: {rate:.1f}" for size, rate in one["items_per_s"].items())
        + f". Best: {one['best']}."
        for one in row["searches"]
    ]
