"""Where models run: in this process, or in Ray workers; and the versions of code and packages that determine their answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from undertow import models
from undertow.errors import UndertowError
from undertow.inference.ray_connection import check_address, check_ray
from undertow.inference.ray_engine import Cluster
from undertow.inference.runner import Engine, local_engine
from undertow.models.base import DTYPES, IN_MEMORY, ModelHandle, ModelRequest
from undertow.types import ModelIdentity

LOCAL, RAY = "local", "ray"
"""Engines: this process, or workers of a Ray cluster."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that a user chooses.

    Attributes:
        name: `local` or `ray`.
        address, workers: `ray_address` and `workers` of `undertow.audit`.
    """

    name: str = LOCAL
    address: str = ""
    workers: int = 0

    def check(self) -> None:
        """Refuse invalid options before any model is resolved."""
        if self.name not in (LOCAL, RAY):
            raise UndertowError(f"engine {self.name!r} is not known; use {LOCAL} or {RAY}")
        for option, given in (("ray-address", self.address), ("workers", self.workers)):
            if given and self.name != RAY:
                raise UndertowError(f"--{option} is for --engine {RAY}; add that, or leave it out")
        if self.workers < 0:
            raise UndertowError(f"workers {self.workers} is negative; leave it out to have one on every GPU or machine")
        if self.name == RAY:
            check_ray()
            check_address(self.address)

    def check_models(self, identities: Sequence[ModelIdentity], device: str) -> None:
        """Refuse models that the engine does not support: served ones, one in memory, or all on one GPU."""
        if self.name != RAY:
            return
        if any(identity.source == IN_MEMORY for identity in identities):
            raise UndertowError(
                f"--engine {RAY}: its workers load models from files, and this network is in memory; save it, or leave --engine out"
            )
        served = [identity for identity in identities if identity.family in models.families_with_setting("concurrency")]
        if served:
            raise UndertowError(
                f"{served[0].name} is run by its server, so workers would gain nothing; leave --engine out, and raise --concurrency"
            )
        if ":" in device:
            raise UndertowError(
                f"device {device!r} cannot be that of every worker: each has a GPU of its own; use {device.partition(':')[0]}"
            )

    def open_cluster(self, device: str) -> AbstractContextManager[Cluster | None]:
        """The cluster, which is joined when the first query is computed; None for this process."""
        if self.name != RAY:
            return nullcontext()
        return Cluster(self.address, self.workers, device != "cpu", versions=versions_that_answer)


def engine_of(cluster: Cluster | None, request: ModelRequest, handle: ModelHandle) -> Engine:
    """The engine of a model: this process, or workers that each resolve the model themselves."""
    if cluster is None:
        return local_engine
    # `auto` could mean another precision on another machine.
    dtype = handle.identity.dtype if handle.identity.dtype in DTYPES else request.dtype
    return cluster.engine(partial(models.resolve, replace(request, dtype=dtype)))


@cache
def code_sha256() -> str:
    """SHA-256 over the package's own files: the code behind a run (64 hex digits)."""
    package = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".pyo"):
            whole.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()


def versions_that_answer() -> dict[str, str]:
    """Versions that all workers of a run must share: this code, and the packages that run models."""
    own = f"{version('undertow')} (files {code_sha256()[:12]})"
    return {"undertow": own, **installed_versions(("torch", "transformers"))}


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    return {package: known for package in packages if (known := _version(package))}


@cache
def _version(package: str) -> str:
    """The version of an installed package, "" for others; reading one takes milliseconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
