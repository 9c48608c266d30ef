"""The configuration of a run: an audit with its options, the models, and where they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from undertow import audits, models
from undertow.audits.base import Audit, Sampling, preset_options
from undertow.data.in_memory import Table, save_challenge, save_lists
from undertow.data.text_files import read_text
from undertow.errors import UndertowError, closest
from undertow.inference.engines import LOCAL, EngineChoice
from undertow.models.base import FLOAT32, ModelRequest, Network, split_label
from undertow.runs.folder.model_info import expand_patterns
from undertow.runs.folder.provenance import command_line, python_call
from undertow.types import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A run as Python, the command line and the manifest describe it.

    Attributes:
        audit: name of the audit.
        options: the audit's own options, by name.
        models: names that the user gave; a pattern matches several folders, and `label=NAME` sets a label for reports.
        model_options: options of model families, by name.
        revision, dtype, device: as in `undertow.models.base.ModelRequest`.
        protocol: "" for the audit's default.
        seed: of everything random.
        limit: maximum number of items, counted as `undertow run AUDIT --help` says; 0 for all.
        model_info: path of a file with facts about models; "" for none.
        system: path of a text file with the system message of every chat; "" for none.
        graph: a causal graph by name, file or text; "" for none.
        float32_sample: in reduced precision, number of items to score again in float32; 0 for a tenth.
        engine, ray_address, workers: as in `undertow.inference.engines.EngineChoice`.
        network, tokenizer: a network in memory, labelled by `models`; None for models by name.
    """

    audit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[str] = ()
    model_options: Mapping[str, Any] = field(default_factory=dict)
    revision: str = ""
    dtype: str = FLOAT32
    device: str = "auto"
    protocol: str = ""
    seed: int = 0
    limit: int = 0
    model_info: str = ""
    system: str = ""
    graph: str = ""
    float32_sample: int = 0
    engine: str = LOCAL
    ray_address: str = ""
    workers: int = 0
    network: Any = field(default=None, repr=False)
    tokenizer: Any = field(default=None, repr=False)

    @classmethod
    def from_keywords(
        cls, audit: str, model: str | Path | Network | Sequence[str | Path], keywords: Mapping[str, Any]
    ) -> RunConfig:
        """The configuration from the arguments of `undertow.audit`.

        Raises:
            UndertowError: an option belongs neither to the audit nor to a model family, or a value has another type.
        """
        keywords = dict(keywords)
        in_memory = {name: keywords.pop(name, default) for name, default in (("tokenizer", None), ("model_name", ""))}
        if isinstance(keywords.get("challenge"), (Mapping, Table)):
            keywords["challenge"] = str(save_challenge(keywords["challenge"]))
        if isinstance(keywords.get("w"), Mapping):
            keywords["w"] = save_lists(keywords["w"])
        if preset := keywords.pop("preset", ""):
            challenge = keywords.get("challenge") or getattr(audits.load(audit).Settings(), "challenge", "")
            chosen = {name: value for name, value in keywords.items() if value != COMMON.get(name)}
            keywords |= preset_options(str(preset), audit, str(challenge)) | chosen
        common = {name: value for name, value in keywords.items() if name in COMMON}
        common |= {name: str(common.get(name, "")) for name in ("model_info", "system", "graph")}
        common = _typed(common, {name: type(default) for name, default in COMMON.items()}, audit)
        own, of_family = _split_options(audit, {name: keywords[name] for name in keywords if name not in COMMON})
        if isinstance(model, Network):
            names = [in_memory["model_name"] or models.name_of(model)]
            common |= _of_network(model, in_memory["tokenizer"], common, of_family)
        else:
            names = _names(model)
            if any(in_memory.values()):
                raise UndertowError(
                    "tokenizer and model_name are for a network in memory; remove them for a model by name"
                )
        config = cls(audit=audit, options=own, models=names, model_options=of_family, **common)
        if config.float32_sample and config.dtype == FLOAT32:
            raise UndertowError(
                "--float32-sample is for runs in reduced precision; remove it, or add --dtype bfloat16 or auto"
            )
        return config

    def resolve(self) -> tuple[Audit, Any, str]:
        """The audit, its settings and its protocol.

        Raises:
            UndertowError: there is no such audit, option or protocol, or a number is negative.
        """
        audit = audits.load(self.audit)
        types = {option.name: type(option.default) for option in fields(audit.Settings)}
        for name in self.options:
            if name not in types:
                raise UndertowError(
                    f"{self.audit} has no option {name!r}; it has {', '.join(types)}{closest(name, types)}"
                )
        settings = audit.Settings(**_typed(self.options, types, self.audit))
        protocol = self.protocol or audit.protocols[0]
        if protocol not in audit.protocols:
            known = ", ".join(audit.protocols)
            raise UndertowError(f"{self.audit} does not support protocol {protocol!r}; use {known}")
        for name, number in (("limit", self.limit), ("seed", self.seed), ("float32-sample", self.float32_sample)):
            if number < 0:
                raise UndertowError(f"{name} {number} is negative; use 0 or more")
        return audit, settings, protocol

    @property
    def sampling(self) -> Sampling:
        """The size and the seed of the sample of items."""
        return Sampling(self.limit, self.seed)

    @property
    def engine_choice(self) -> EngineChoice:
        """The engine that the user chose."""
        return EngineChoice(self.engine, self.ray_address, self.workers)

    def requests(self) -> list[ModelRequest]:
        """A request for each model; errors are those of `expand_patterns`, repeated names, and one revision for several models."""
        system_prompt = _read_system(Path(self.system)) if self.system else ""
        if self.network is not None:
            (name,), device = self.models, str(self.network.device)
            request = ModelRequest(name, "", self.dtype, device, {}, self.network, self.tokenizer)
            return [replace(request, system_prompt=system_prompt)]
        given = [split_label(text) for text in self.models]
        labels = {name: label for label, name in given if label}
        for name, n_times in Counter(name for _, name in given).items():
            if n_times > 1 and (own := [label for label, one in given if one == name and label]):
                raise UndertowError(
                    f"model {name!r} is given {n_times} times, labelled {' and '.join(own)}; give it once, with one label"
                )
        names = expand_patterns([name for _, name in given])
        if patterns := labels.keys() - {*names}:
            (pattern, *_) = patterns
            raise UndertowError(
                f"{labels[pattern]}={pattern}: a label is for one model, and this is a pattern; remove the label"
            )
        if twice := [one for one, n in Counter(labels.get(name, name) for name in names).items() if n > 1]:
            raise UndertowError(f"two models have the name {twice[0]!r}; give each its own label")
        if self.revision and len(names) > 1:
            raise UndertowError(f"revision {self.revision!r} is given for {len(names)} models; run them one by one")
        request = ModelRequest(
            "", self.revision, self.dtype, self.device, self.model_options, system_prompt=system_prompt
        )
        return [replace(request, name=name, label=labels.get(name, "")) for name in names]

    def changed(self) -> dict[str, Any]:
        """Options that differ from their defaults, by the names of command line and Python."""
        own = {name: _as_text(value) for name, value in self.options.items()}
        families = models.settings() if self.model_options else {}
        of_family = {name: value for name, value in self.model_options.items() if value != families[name].default}
        common = {name: value for name, default in COMMON.items() if (value := getattr(self, name)) != default}
        return own | of_family | common

    @property
    def command(self) -> str:
        """The command line of the run; "" for a network in memory, which no command can repeat."""
        if self.network is not None:
            return ""
        named = [part for model in self.models for part in ("-m", model)]
        return command_line(["run", self.audit, *named], self.changed())

    @property
    def python(self) -> str:
        """The Python call of the run."""
        model = self.models[0] if len(self.models) == 1 else list(self.models)
        if self.network is not None:
            in_memory = f"{self.audit!r}, model=network, tokenizer=tokenizer, model_name={model!r}"
            return python_call("audit", in_memory, self.changed())
        return python_call("audit", f"{self.audit!r}, model={model!r}", self.changed())

    def folder_name(self, requests: Sequence[ModelRequest], run_key: str) -> str:
        """Default name of the run folder, with the challenge set if one is given by its name or file."""
        more = f"-and-{len(requests) - 1}-more" if requests[1:] else ""
        given = self.options.get("challenge")
        challenge = safe_name(Path(given).stem) if isinstance(given, str | Path) else ""
        parts = [self.audit, safe_name(requests[0].report_name) + more, challenge, run_key[:8]]
        return "_".join(filter(None, parts))


COMMON = {
    option.name: option.default
    for option in fields(RunConfig)
    if option.name not in ("audit", "options", "models", "model_options", "network", "tokenizer")
}
"""Options of every audit, and their defaults."""


def _names(model: object) -> list[str]:
    """Names of models."""
    names = [model] if isinstance(model, str | Path | Mapping) or not isinstance(model, Iterable) else list(model)
    wrong = [name for name in names if not isinstance(name, str | Path)]
    if wrong:
        raise UndertowError(
            "model must be a name, a path, a list of these, or one loaded transformers network with its tokenizer, not "
            f"{type(wrong[0]).__name__}"
        )
    return [str(name) for name in names]


def _of_network(
    network: Any, tokenizer: Any, common: Mapping[str, Any], of_family: Mapping[str, Any]
) -> dict[str, Any]:
    """Model options of a network in memory."""
    if tokenizer is None:
        raise UndertowError("a network in memory needs its tokenizer; give it as tokenizer=...")
    own = {"revision": "", "dtype": str(network.dtype).removeprefix("torch."), "device": "auto"}
    allowed = {name: [value, COMMON[name]] for name, value in own.items()}
    allowed |= {name: [models.settings()[name].default] for name in of_family}
    for name, value in {**common, **of_family}.items():
        if value not in allowed.get(name, [value]):
            raise UndertowError(f"{name} {value!r} is for a model by name; leave it out with a network in memory")
    return {**own, "network": network, "tokenizer": tokenizer}


MAX_SYSTEM_BYTES = 2**16
"""64 KiB, of a system prompt."""


def _read_system(path: Path) -> str:
    """The system message in a text file."""
    text = read_text(path).strip()
    n_bytes = len(text.encode())
    if not 0 < n_bytes <= MAX_SYSTEM_BYTES:
        what = f"holds {n_bytes:,} bytes, and a system prompt at most {MAX_SYSTEM_BYTES:,}" if text else "is empty"
        raise UndertowError(f"{path}: {what}; write the system message there, or leave --system out")
    return text


def _split_options(audit: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The audit's own options, and those of model families."""
    known = [option.name for option in fields(audits.load(audit).Settings)]
    own = {name: value for name, value in options.items() if name in known}
    rest = {name: value for name, value in options.items() if name not in known}
    if not rest:
        return own, {}
    families = {name: type(option.default) for name, option in models.settings().items()}
    for name in rest:
        if name not in families:
            names = [*known, *COMMON, *families]
            raise UndertowError(f"{audit} has no option {name!r}; it has {', '.join(names)}{closest(name, names)}")
    checked = _typed(rest, families, "model")
    for name, value in checked.items():
        if isinstance(value, str) and "@" in urlsplit(value).netloc:
            raise UndertowError(
                f"model: option {name} contains a user name or password, which the manifest would store; remove it from the address"
            )
    return own, checked


def _typed(given: Mapping[str, Any], types: Mapping[str, type], whose: str) -> dict[str, Any]:
    checked = {}
    for name, value in given.items():
        plain, number = _as_text(value), {int: Integral, float: Real}.get(types[name])
        if number is not None and isinstance(plain, number) and not isinstance(plain, bool):
            plain = types[name](plain)  # of numpy, too
        if type(plain) is not types[name]:
            raise UndertowError(f"{whose}: option {name} must be of type {types[name].__name__}, not {value!r}")
        checked[name] = plain
    return checked


def _as_text(value: Any) -> Any:
    """A list of names joined by commas, and a path as text."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def key_of_run(request_key: str, seed: int) -> str:
    """Key of a run: equal for equal questions, models and measures."""
    return digest([request_key, seed])


def safe_name(name: str, allowed: str = "-.") -> str:
    """A name as a part of a folder's name, of letters, digits and these signs."""
    return "".join(sign if sign.isalnum() or sign in allowed else "-" for sign in name).strip("-.")[:60]
