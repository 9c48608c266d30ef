"""Where models run: in this process, or in workers of a cluster. No part of what is asked, nor of what is answered.

Knows the names of engines and which models they are for; knows nothing about audits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from undertow import models
from undertow.errors import UndertowError
from undertow.inference.ray_engine import Cluster, check_address, check_ray
from undertow.inference.runner import Engine, local_engine
from undertow.inference.versions import versions_that_answer
from undertow.models.base import DTYPES, ModelHandle, ModelRequest
from undertow.types import ModelIdentity

LOCAL, RAY = "local", "ray"
"""Engines: this process, or workers of a Ray cluster."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Where a user wants models to run.

    Attributes:
        name: `here` or `ray`.
        address, workers: as in `run`.
    """

    name: str = LOCAL
    address: str = ""
    workers: int = 0

    def check(self) -> None:
        """Refuse what cannot be, before anything is looked for.

        Raises:
            UndertowError: an engine that is not known or not installed, or options that belong to another one.
        """
        if self.name not in (LOCAL, RAY):
            raise UndertowError(f"engine {self.name!r} is not known; use {LOCAL} or {RAY}")
        for option, given in (("address", self.address), ("workers", self.workers)):
            if given and self.name != RAY:
                raise UndertowError(f"--{option} is for --engine {RAY}; add that, or leave it out")
        if self.workers < 0:
            raise UndertowError(f"workers {self.workers} is negative; leave it out to have one on every GPU or machine")
        if self.name == RAY:
            check_ray()
            check_address(self.address)

    def check_models(self, cards: Sequence[ModelIdentity], device: str) -> None:
        """Refuse models that it is not for.

        Raises:
            UndertowError: a model that its server runs, or one GPU for all workers.
        """
        if self.name != RAY:
            return
        served = [card for card in cards if card.family in models.takers("concurrency")]
        if served:
            raise UndertowError(
                f"{served[0].name} is run by its server, so workers would gain nothing; leave --engine out, and raise --concurrency"
            )
        if ":" in device:
            raise UndertowError(
                f"device {device!r} cannot be that of every worker: each has a GPU of its own; use {device.partition(':')[0]}"
            )

    def opened(self, device: str) -> AbstractContextManager[Cluster | None]:
        """The cluster, which is joined when there is something to ask; None for this process."""
        if self.name != RAY:
            return nullcontext()
        return Cluster(self.address, self.workers, device != "cpu", versions=versions_that_answer)

    @property
    def options(self) -> dict[str, Any]:
        """Those that are not at their defaults, under the names that command line and Python share."""
        given = {"engine": self.name, "address": self.address, "workers": self.workers}
        return {name: value for name, value in given.items() if value not in (LOCAL, "", 0)}


def engine_of(cluster: Cluster | None, request: ModelRequest, found: ModelHandle) -> Engine:
    """Where a model is asked: in this process, or by workers, which find it by themselves."""
    if cluster is None:
        return local_engine
    # On another machine `auto` might be another precision.
    dtype = found.identity.dtype if found.identity.dtype in DTYPES else request.dtype
    return cluster.engine(partial(models.resolve, replace(request, dtype=dtype)))
