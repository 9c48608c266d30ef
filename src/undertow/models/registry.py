"""Resolve a model name, or a network in memory: each family in `families/` is tried in turn."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields, replace
from functools import cache, partial
from types import ModuleType
from typing import Any

from undertow._files import first_line, is_plain_file, parse_json
from undertow._folders import notify
from undertow._plugins import plugins
from undertow.errors import LOGGER, UndertowError, closest
from undertow.models import families as families_folder
from undertow.models.backend.dtype import AUTO, slow_dtype_warning, supported_dtype
from undertow.models.base import DTYPES, IN_MEMORY, ModelHandle, ModelRequest
from undertow.models.loading.resolve_weights import path_of
from undertow.types import ModelIdentity

ENTRY_POINTS = "undertow.models"
_notify_once = cache(notify)
DEVICES = ("auto", "cpu", "cuda", "hpu", "mps", "npu", "xpu")
"""Devices of torch and its plug-ins; loading checks that the device exists."""
EXTERNAL_FAMILIES = {"replay": "undertow.runs.folder.replay"}
"""Families outside this package, imported on use."""


def families() -> dict[str, str]:
    """Model families by name, each with a summary."""
    return {name: str(_module(name).SUMMARY) for name in _names()}


def settings() -> dict[str, Field[Any]]:
    """Fields of all families' `Settings`, by name. Loads no model library."""
    return {option.name: option for name in reversed(_names()) for option in _settings_of(name)}


def families_with_setting(setting: str) -> list[str]:
    """Families with a setting of this name."""
    return [name for name in _names() if any(option.name == setting for option in _settings_of(name))]


def _settings_of(name: str) -> Sequence[Field[Any]]:
    own = getattr(_module(name), "Settings", None)
    return fields(own) if own is not None else ()


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of model families by name; whole numbers where an option is a float become floats.

    Raises:
        UndertowError: no family has such an option, or the value is of another type.
    """
    known, checked = settings(), dict(given)
    for name, value in given.items():
        if name not in known:
            raise UndertowError(
                f"no model family has the option {name!r}{closest(name, known)}; there is {', '.join(known)}"
            )
        kind = type(known[name].default)
        if kind is float and type(value) is int and abs(value) < 2**53:
            checked[name] = float(value)
        elif type(value) is not kind:
            raise UndertowError(f"option {name} must be of type {kind.__name__}, not {value!r}")
    return checked


def refuse_unused(given: Iterable[str], handles: Sequence[ModelHandle]) -> None:
    """Refuse an option that the family of none of these models has."""
    families, names = {one.identity.family for one in handles}, ", ".join(one.identity.name for one in handles)
    for name in given:
        supported = families_with_setting(name)
        if not families & {*supported}:
            raise UndertowError(
                f"--{name.replace('_', '-')} is for models of the family {' or '.join(supported)}, and none of {names} is; "
                "leave it out, or check the names"
            )


def resolve(request: ModelRequest) -> ModelHandle:
    """Resolve a model without loading its weights.

    Raises:
        UndertowError: the model does not exist, no family supports it, or an option of it is not known or of another type.
    """
    if request.settings:
        request = replace(request, settings=checked_settings(request.settings))
    if request.dtype not in (AUTO, *DTYPES):
        raise UndertowError(f"dtype {request.dtype!r} is not known; use {', '.join(DTYPES)}, or {AUTO}")
    kind, colon, number = request.device.partition(":")
    if kind not in DEVICES or bool(colon) != number.isdecimal():
        raise UndertowError(
            f"device {request.device!r} is not known; use {', '.join(DEVICES)}, or cuda:1 for the second"
        )
    if not request.name.strip():
        raise UndertowError("the model has no name; give one with -m, for example -m smollm2")
    if request.network is not None:
        handle = resolve_network(in_dtype(request.network, request.dtype), request.tokenizer, request.name)
    else:
        handle = _resolve_name(request)
    name = request.label or handle.identity.name
    identity = replace(handle.identity, name=name, system_prompt=request.system_prompt)
    return replace(handle, identity=identity, open=partial(_open, identity, handle.open))


def _resolve_name(request: ModelRequest) -> ModelHandle:
    # A name that is a family, or a prefix of the form `family:`, selects it without importing the others.
    own, names = request.name.partition(":")[0], _names()
    for name in [own] if own in names else names:
        # The identity holds the dtype that the model runs in: no family gets `auto`.
        with_dtype = replace(request, dtype=supported_dtype(request.dtype, name, request.device))
        handle: ModelHandle | None = _module(name).resolve(with_dtype)
        if handle is not None:
            if warning := slow_dtype_warning(request.dtype, name, request.device):
                _notify_once(warning)
            return handle
    config = path_of(request.name) / "config.json"
    known = parse_json(config.read_bytes(), unique_names=False)["architectures"] if is_plain_file(config) else []
    which = f" ({', '.join(map(str, known))})" if known else ""
    raise UndertowError(
        f"{request.name}: no model family supports its architecture{which}; `undertow list models` shows what is supported"
    )


def _open(identity: ModelIdentity, load: Callable[[], Any]) -> Any:
    """The model; with a system prompt, which its chats take from its identity."""
    if identity.source != IN_MEMORY:
        LOGGER.info("load %s", identity.name)
    model = load()
    if identity.system_prompt:
        if not getattr(model, "SYSTEM_PROMPTS", False):
            raise UndertowError(f"--system: {identity.name} takes no system prompt; leave it out")
        model.identity = replace(model.identity, system_prompt=identity.system_prompt)
    return model


def resolve_network(network: Any, tokenizer: Any, name: str = "") -> ModelHandle:
    """The handle of a loaded network of transformers; its class determines the family.

    Opening the model puts the network into evaluation mode, and a causal one may get attention that takes blocks; weights and
    gradients stay as they are. `undertow.models.backend.execution.preserve` undoes both, as `undertow.audit` does.

    Args:
        network: on its device. Adapters of PEFT are read with their base.
        tokenizer: its tokenizer.
        name: name of the model in reports; by default that of its configuration or class, and that it is in memory.

    Raises:
        UndertowError: no family reads such a network, or its adapter is a learned prompt.
    """
    if getattr(getattr(network, "active_peft_config", None), "is_prompt_learning", False):
        raise UndertowError(
            f"{type(network).__name__}: its adapter is a learned prompt, which cannot be read with its base; "
            "give the base alone, or a network with LoRA"
        )
    network = network.get_base_model() if hasattr(network, "get_base_model") else network
    for family in _names():
        model = getattr(_module(family), "MODEL", None)
        if model is not None and type(network).__name__.endswith(model.ARCHITECTURES):
            identity = model.identify(network, tokenizer, name or name_of(network))
            return ModelHandle(identity, partial(model.from_network, network, tokenizer, identity), model.CAPABILITIES)
    raise UndertowError(
        f"{type(network).__name__}: no model family supports such a network; `undertow list models` shows what is supported"
    )


def name_of(network: Any) -> str:
    """Name of a network in memory: its source, or its class."""
    return f"{network.config.name_or_path or type(network).__name__} ({IN_MEMORY})"


def in_dtype(network: Any, dtype: str) -> Any:
    """The network, or a copy of it in another precision.

    Raises:
        UndertowError: memory does not hold the copy, or the network is quantized.
    """
    if str(network.dtype) == f"torch.{dtype}":
        return network
    try:
        return copy.deepcopy(network).to(getattr(importlib.import_module("torch"), dtype))
    except (RuntimeError, ValueError) as error:
        raise UndertowError(f"the network in memory cannot be copied to {dtype} ({first_line(error)})") from error


@cache
def built_in_families() -> list[str]:
    """Names of the families of this package."""
    return sorted([*EXTERNAL_FAMILIES, *(name for _, name, _ in pkgutil.iter_modules(families_folder.__path__))])


def _names() -> list[str]:
    """Built-in families first, so a plug-in cannot replace one."""
    return [*built_in_families(), *_added()]


def _module(name: str) -> ModuleType:
    if name in built_in_families():
        return importlib.import_module(EXTERNAL_FAMILIES.get(name, f"undertow.models.families.{name}"))
    return _added()[name]


def _added() -> dict[str, ModuleType]:
    """The families of installed packages; unusable ones are reported on standard error and skipped."""
    return dict(plugins(ENTRY_POINTS, _checked, tuple(built_in_families())))


def _checked(value: str, module: object) -> ModuleType:
    lacking = [name for name in ("SUMMARY", "resolve") if not hasattr(module, name)]
    if lacking or not isinstance(module, ModuleType):
        raise UndertowError(f"{value} has no {' and no '.join(lacking) or 'module'}")
    return module
