"""Where models run: in this process, or in Ray workers. The engine never changes queries or answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from undertow import models
from undertow.errors import UndertowError
from undertow.inference.ray_engine import Cluster, check_address, check_ray
from undertow.inference.runner import Engine, local_engine
from undertow.inference.versions import versions_that_answer
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
        """Refuse invalid options before any model is resolved.

        Raises:
            UndertowError: the engine is unknown or not installed, or an option belongs to another engine.
        """
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
        """Refuse models that the engine does not support.

        Raises:
            UndertowError: a server runs the model, it is in memory, or all workers would share one GPU.
        """
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
