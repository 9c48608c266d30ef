"""The configuration of a run, checked: an audit with its options, the models, and the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from undertow import audits, models
from undertow.audits.base import Audit
from undertow.data.text_files import closest
from undertow.errors import UndertowError
from undertow.models.base import FLOAT32, ModelRequest
from undertow.runs.folder.model_info import expand_patterns
from undertow.types import digest


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The configuration of a run, without its models.

    Attributes:
        audit: name of the audit.
        options: the audit's own options, by name.
        protocol: "" for the audit's default.
        seed: of everything random.
        limit: ask about so many items, counted as `undertow run AUDIT --help` says; 0 for all.
        model_info: path of a file with facts about models; "" for none.
        graph: a causal graph by name, file or text; "" for none.
        float32_sample: in reduced precision, number of items to score again in float32; 0 for a tenth.
    """

    audit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""
    seed: int = 0
    limit: int = 0
    model_info: str = ""
    graph: str = ""
    float32_sample: int = 0


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The models of a run, and how to load them.

    Attributes:
        names: names that the user gave; a pattern stands for several.
        revision, dtype, device, settings: as in `undertow.models.base.ModelRequest`.
    """

    names: Sequence[str]
    revision: str = ""
    dtype: str = FLOAT32
    device: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def each(self) -> list[ModelRequest]:
        """One request for each model.

        Raises:
            UndertowError: as `undertow.runs.folder.model_info.expand_patterns`, or one revision for several models.
        """
        names = expand_patterns(self.names)
        if self.revision and len(names) > 1:
            raise UndertowError(f"revision {self.revision!r} is given for {len(names)} models; run them one by one")
        return [ModelRequest(name, self.revision, self.dtype, self.device, self.settings) for name in names]


@dataclass(frozen=True, slots=True)
class OutputDir:
    """The place of the run folder.

    Attributes:
        folder: the run folder; None for the default.
        overwrite: whether to replace another run there.
    """

    folder: Path | None = None
    overwrite: bool = False


def names_of(model: str | Path | Sequence[str | Path]) -> list[str]:
    """One model or several, as names."""
    return [str(model)] if isinstance(model, (str, Path)) else [str(name) for name in model]


def check_float32_sample(float32_sample: int, dtype: str) -> None:
    """Refuse an invalid `float32_sample`.

    Raises:
        UndertowError: the number is negative, or the run is in float32 already.
    """
    if float32_sample < 0:
        raise UndertowError(
            f"--float32-sample {float32_sample} is negative; leave it out to score a tenth of the items again"
        )
    if float32_sample and dtype == FLOAT32:
        raise UndertowError(
            "--float32-sample is for runs in reduced precision; leave it out, or add --dtype bfloat16 or auto"
        )


def resolve_config(job: RunConfig) -> tuple[Audit, Any, str]:
    """The audit of a run, its settings and its protocol, checked.

    Raises:
        UndertowError: there is no such audit, option or protocol.
    """
    audit = audits.load(job.audit)
    options = _checked_options(job, {option.name: type(option.default) for option in fields(audit.Settings)})
    protocol = job.protocol or audit.protocols[0]
    if protocol not in audit.protocols:
        raise UndertowError(f"{job.audit} does not support protocol {protocol!r}; use {', '.join(audit.protocols)}")
    if job.limit < 0:
        raise UndertowError(f"limit {job.limit} is negative; leave it out for all items")
    if job.seed < 0:
        raise UndertowError(f"seed {job.seed} is negative; use 0 or more")
    return audit, audit.Settings(**options), protocol


def sorted_options(audit: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The audit's own options, and those of model families.

    Raises:
        UndertowError: an option belongs to neither, or a value has another type.
    """
    known = {option.name for option in fields(audits.load(audit).Settings)}
    own = {name: value for name, value in options.items() if name in known}
    rest = {name: value for name, value in options.items() if name not in known}
    if not rest:
        return own, {}
    families = {name: type(option.default) for name, option in models.settings().items()}
    for name in rest:
        if name not in families:
            known_options = [*known_in_order(audit), *families]
            raise UndertowError(
                f"{audit} has no option {name!r}; it has {', '.join(known_options)}{closest(name, known_options)}"
            )
    checked = _of_types(rest, families, "model")
    for name, value in checked.items():
        if isinstance(value, str) and "@" in urlsplit(value).netloc:
            raise UndertowError(
                f"model: option {name} holds a name or password, which would be written down; leave it out of the address"
            )
    return own, checked


def known_in_order(audit: str) -> list[str]:
    """The audit's own options, in the order of its settings."""
    return [option.name for option in fields(audits.load(audit).Settings)]


def _checked_options(job: RunConfig, types: Mapping[str, type]) -> dict[str, Any]:
    """The audit's own options; a list of names may be given as one, or as text with commas."""
    for name in job.options:
        if name not in types:
            raise UndertowError(f"{job.audit} has no option {name!r}; it has {', '.join(types)}{closest(name, types)}")
    return _of_types(job.options, types, job.audit)


def _of_types(given: Mapping[str, Any], types: Mapping[str, type], whose: str) -> dict[str, Any]:
    checked = {}
    for name, value in given.items():
        plain = float(value) if types[name] is float and type(value) is int else _as_text(value)
        if type(plain) is not types[name]:
            raise UndertowError(f"{whose}: option {name} must be of type {types[name].__name__}, not {value!r}")
        checked[name] = plain
    return checked


def _as_text(value: Any) -> Any:
    """A list of names as the command line has it, and a path as text."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def changed_of(job: RunConfig, requests: ModelSelection) -> dict[str, Any]:
    """Options that are not at their defaults, under the names that command line and Python share."""
    common = {name: getattr(requests, name) for name in ("revision", "dtype", "device")}
    common |= {
        name: getattr(job, name) for name in ("protocol", "seed", "limit", "model_info", "graph", "float32_sample")
    }
    defaults = asdict(ModelRequest("")) | asdict(RunConfig(job.audit))
    own = {name: _as_text(value) for name, value in job.options.items()}
    families = models.settings() if requests.settings else {}
    of_family = {name: value for name, value in requests.settings.items() if value != families[name].default}
    return own | of_family | {name: value for name, value in common.items() if value != defaults[name]}


def key_of_run(request_key: str, seed: int) -> str:
    """Runs with the same key ask the same of the same model, and measure it the same way."""
    return digest([request_key, seed])


def folder_name(job: RunConfig, requests: Sequence[ModelRequest], run_key: str) -> str:
    """The name of a run folder for which none was given."""
    more = f"-and-{len(requests) - 1}-more" if requests[1:] else ""
    return f"{job.audit}_{safe_name(requests[0].name)}{more}_{run_key[:8]}"


def safe_name(name: str) -> str:
    """A name as a part of a folder's name."""
    return "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in name).strip("-.")[:60]
