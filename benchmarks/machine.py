"""What the numbers were taken on, as far as it bears on them: no names of machines, users or folders."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import psutil  # type: ignore[import-untyped]

from undertow.provenance import circumstances


def describe(packages: Sequence[str]) -> dict[str, Any]:
    """When, on what and with which versions, those of `packages` among them."""
    known = circumstances()
    machine = {
        "system": _system(),
        "processor": known["machine"]["processor"],
        "cores": known["machine"]["cores"],
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }
    versions = known["versions"] | {package: version(package) for package in packages}
    return {
        "created": known["created"],
        "machine": machine,
        "versions": versions,
        "code_sha256": known["code_sha256"],
    }


def load_average() -> list[float]:
    """How busy the machine was over the last 1, 5 and 15 minutes: a busy one makes every rate too low."""
    return [round(load, 2) for load in os.getloadavg()]


def _system() -> str:
    try:
        return f"{platform.system()}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except (OSError, KeyError):
        return platform.system()
