"""The page: promises first, then the machine, then a section for each part, made of the JSON record.

Knows plain records (what `json.load` gives) and who tells each part; knows nothing about how they were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parts import PARTS
from rows import ROWS
from telling import Promise, promises_table

TITLE = "Undertow beside other tools, and beside the machine"


def in_order(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Records of parts in the order of the page; those of parts that are no more are left out."""
    return {name: parts[name] for name in PARTS if name in parts}


def promises(record: Mapping[str, Any]) -> list[Promise]:
    """Of all parts that there are."""
    return [promise for name, entry in record["parts"].items() for promise in PARTS[name].promises(entry)]


def table(record: Mapping[str, Any]) -> str:
    """The whole record as a Markdown page."""
    parts = record["parts"]
    races = {name: entry for name, entry in parts.items() if name in ROWS}
    sections = [f"## {name}\n\n{PARTS[name].section(entry, races)}\n\n{_taken(entry)}" for name, entry in parts.items()]
    return "\n\n".join([f"# {TITLE}", promises_table(promises(record)), _machines(record), *sections]) + "\n"


def _machines(record: Mapping[str, Any]) -> str:
    """What the parts were taken on; where they differ in it, which on what."""
    taken = {name: entry["taken"] for name, entry in record["parts"].items()}
    packages = sorted({package for one in taken.values() for package in one["versions"]})
    versions = {
        package: "/".join(sorted({one["versions"][package] for one in taken.values() if package in one["versions"]}))
        for package in packages
    }
    return "\n".join(
        [
            f"- Machine: {_shared({name: _machine(one['machine']) for name, one in taken.items()})}.",
            f"- Versions: {', '.join(f'{package} {version}' for package, version in versions.items())}.",
            f"- Undertow's code (SHA-256): {_shared({name: one['code_sha256'][:12] for name, one in taken.items()})}.",
        ]
    )


def _shared(said: Mapping[str, str]) -> str:
    """What all parts say, or what each says, with its parts."""
    parts_of: dict[str, list[str]] = {}
    for name, one in said.items():
        parts_of.setdefault(one, []).append(name)
    if len(parts_of) == 1:
        return next(iter(parts_of))
    return "; ".join(f"{one} ({', '.join(names)})" for one, names in parts_of.items())


def _machine(machine: Mapping[str, Any]) -> str:
    return f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}"


def _taken(entry: Mapping[str, Any]) -> str:
    taken = entry["taken"]
    before, after = taken["load_average"]["before"][0], taken["load_average"]["after"][0]
    threads = f", {entry['threads']} torch threads in each process" if "threads" in entry else ""
    return (
        f"Taken {taken['created']}, in {taken['seconds']:.0f} s; load average (1 minute) {before:.2f} before, "
        f"{after:.2f} after{threads}."
    )
