"""Resolve a model name to weight files and a revision.

The name is a hub id, a local folder, a GGUF file or a registry name; nothing is loaded. Code from a model repository is never run:
`trust_remote_code` is passed as False in the one place that builds the loading options, and nothing else sets it.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from undertow._files import is_folder, is_plain_file, parse_json, path_exists, read_file
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest
from undertow.models.loading.check_folder import MAX_CONFIG_BYTES, WEIGHTS, check_folder
from undertow.models.loading.download import PACKAGES, file_digest, pulled_file
from undertow.models.loading.gguf_header import GgufHeader, read_header
from undertow.models.loading.library_contexts import NEEDS_EXTRA, first_line_without_secrets, silence_hub
from undertow.types import ModelIdentity, digest

GGUF = ".gguf"
GGUF_PREFIX = "gguf:"
"""Prefix of the path of a GGUF file of any name."""
HUB_PATIENCE_S = 10.0
ADAPTER_CONFIG = "adapter_config.json"
"""The configuration file of a PEFT adapter."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
OPTIONS: Mapping[str, Any] = {"trust_remote_code": False}
NOT_READ = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".md", ".png")
"""Files that a local folder's revision ignores: other weight formats and documentation."""


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files of a model.

    Attributes:
        location, options: first argument of `from_pretrained`, and its keyword arguments.
        source: origin of the weights, for `ModelIdentity`.
        revision: hub commit, or SHA-256 of the files.
        config: its config.json; {} of a GGUF file.
        adapter: folder of a LoRA adapter that belongs to them.
        snapshot: folder of the hub's cache that they are loaded into.
    """

    location: str
    options: dict[str, Any]
    source: str
    revision: str
    config: Mapping[str, Any] = field(default_factory=dict)
    adapter: Path | None = None
    snapshot: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder that holds them once they are loaded."""
        return self.snapshot or Path(self.location)

    @property
    def gguf(self) -> Path | None:
        """The GGUF file that holds them, if one does."""
        return Path(self.location) / self.options["gguf_file"] if "gguf_file" in self.options else None

    def identity(self, request: ModelRequest, family: str, scoring_method: str) -> ModelIdentity:
        """The identity of the model in a family."""
        return ModelIdentity(request.name, family, self.source, self.revision, request.dtype, scoring_method)


def resolve_weights(request: ModelRequest, architectures: Sequence[str]) -> WeightFiles | None:
    """The weights, if they are of one of these architectures (class name endings); None if of others.

    Raises:
        UndertowError: the model does not exist, or cannot be identified.
    """
    path = path_of(request.name)
    if request.revision and (is_gguf(request.name) or path_exists(path)):
        raise UndertowError(f"{request.name}: is a path and has no revisions; leave --revision out")
    if is_gguf(request.name):
        if "ForCausalLM" not in architectures:  # transformers reads causal models from GGUF files
            return None
        if request.name in PACKAGES:
            return _gguf(pulled_file(request.name), PACKAGES[request.name].source)
        return resolve_gguf(path)
    if is_folder(path):
        if not is_plain_file(path / ADAPTER_CONFIG):
            return _folder(path, architectures)
        others = sorted(one.name for one in path.glob("*.safetensors") if one.name != ADAPTER_WEIGHTS)
        if others:
            raise UndertowError(
                f"{path}: holds an adapter ({ADAPTER_CONFIG}) and weights of its own ({others[0]}), so it is "
                "ambiguous; move one of them to another folder"
            )
        return _adapter(request, path, architectures)
    if path_exists(path):
        raise UndertowError(f"{path}: is neither a model folder nor a .gguf file; name one of these, or a hub id")
    if request.name.startswith((".", "/", "~")) or request.name.count("/") > 1 or "\\" in request.name:
        raise UndertowError(f"{request.name}: there is no such folder or file; check the path")
    return _hub(request, architectures)


def is_gguf(name: str) -> bool:
    """Whether a model name is a GGUF file, whose weights are unpacked on loading."""
    return name in PACKAGES or name.startswith(GGUF_PREFIX) or Path(name).suffix.lower() == GGUF


def path_of(name: str) -> Path:
    """The path of a name, with a leading ~ expanded.

    Raises:
        UndertowError: the home folder does not exist.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UndertowError(f"{name}: there is no such home folder; check the path") from error


def resolve_gguf(path: Path) -> WeightFiles:
    """The weights in a GGUF file.

    Raises:
        UndertowError: there is no such file, or it is of another format.
    """
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such GGUF file; check the path")
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UndertowError(f"{path}: is not a GGUF file (its first bytes are not 'GGUF'); fetch it again")
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    return _gguf(path, path.name)


@lru_cache(maxsize=1)
def _gguf_header(path: Path, digest: str) -> GgufHeader:
    """The header of a file with this digest."""
    return read_header(path)


def read_gguf(weights: WeightFiles) -> GgufHeader:
    """The header of a GGUF file, which is read once.

    Raises:
        UndertowError: it declares what the file does not hold.
    """
    assert weights.gguf is not None
    try:
        return _gguf_header(weights.gguf, weights.revision)
    except ValueError as error:
        raise UndertowError(f"{weights.gguf}: is corrupt ({error}); download it again") from error
    except OSError as error:
        raise UndertowError(f"{weights.gguf}: cannot be read ({error.strerror}); check the file") from error


def _gguf(path: Path, source: str) -> WeightFiles:
    options = {**OPTIONS, "gguf_file": path.name}
    return WeightFiles(str(path.parent), options, source, file_digest(path))


def _adapter(request: ModelRequest, path: Path, architectures: Sequence[str]) -> WeightFiles | None:
    """A LoRA adapter with the weights of its base, if these are of one of the architectures."""
    config = path / ADAPTER_CONFIG
    try:
        settings = parse_json(read_file(config, MAX_CONFIG_BYTES, "an adapter's configuration"), unique_names=False)
        kind, base = settings["peft_type"], settings["base_model_name_or_path"]
        if not base or not isinstance(base, str):
            raise ValueError("no base")
    except (ValueError, KeyError, TypeError) as error:
        raise UndertowError(
            f"{config}: names no base; write the model that it was trained on as its base_model_name_or_path"
        ) from error
    if kind != "LORA":
        raise UndertowError(
            f"{path}: holds an adapter of the kind {kind}; only LoRA adapters are read, so merge it into its base"
        )
    file = path / ADAPTER_WEIGHTS
    if not is_plain_file(file):
        raise UndertowError(f"{path}: holds no {ADAPTER_WEIGHTS}; save the adapter with save_pretrained")
    beside = path / base
    try:
        name = str(beside) if not path_exists(path_of(base)) and path_exists(beside) else base
        is_adapter = is_plain_file(path_of(name) / ADAPTER_CONFIG)
        revision = str(settings.get("revision") or "")
        weights = None if is_adapter else resolve_weights(replace(request, name=name, revision=revision), architectures)
    except UndertowError as error:
        raise UndertowError(
            f"{request.name}: is a LoRA adapter of {base}, and its base cannot be loaded: {error}"
        ) from error
    if is_adapter:
        raise UndertowError(
            f"{path}: is a LoRA adapter of {base}, which is an adapter too; merge that into its base, and name the merged model"
        )
    if weights is None:
        return None
    digests = {"base": weights.revision, **{one.name: file_digest(one) for one in (config, file)}}
    return replace(weights, source=path.name, revision=digest(digests), adapter=path)


def _folder(path: Path, architectures: Sequence[str]) -> WeightFiles | None:
    if not (path / "config.json").is_file():
        raise UndertowError(f"{path}: holds no config.json, so it is not a model folder; name the folder that holds it")
    config = _config(path / "config.json", architectures)
    if config is None:
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix not in NOT_READ)
    if not any(file.suffix == ".safetensors" for file in files):
        raise UndertowError(f"{path}: holds no .safetensors weights; save the model with save_pretrained")
    weights = str(config.get("transformers_weights") or WEIGHTS)
    if not any(is_plain_file(path / name) for name in (weights, f"{weights}.index.json")):
        raise UndertowError(
            f"{path}: holds no {weights}, which is the name that weights are read by; save the model with save_pretrained"
        )
    check_folder(path, config)
    revision = digest({str(file.relative_to(path)): file_digest(file) for file in files})
    return WeightFiles(str(path), {**OPTIONS, "local_files_only": True}, path.name, revision, config)


def _hub(request: ModelRequest, architectures: Sequence[str]) -> WeightFiles | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UndertowError(f"{request.name}: to read models from the hub, {NEEDS_EXTRA}")
    from huggingface_hub import errors, hf_hub_download

    name, revision = request.name, request.revision or None
    near = "".join(f" (did you mean {one!r}?)" for one in difflib.get_close_matches(name, PACKAGES, n=1))
    reasons: dict[type[Exception], str] = {  # the narrower first
        errors.HFValidationError: f"there is no model called {name!r}; see `undertow list models`, or name a hub id or folder",
        errors.GatedRepoError: f"{name}: its owner asks you to accept terms first; do so on the hub and set HF_TOKEN",
        errors.RevisionNotFoundError: f"{name}: has no revision {request.revision!r}; check the branch, tag or commit",
        errors.RepositoryNotFoundError: f"there is no model called {name!r} on the hub{near}; see `undertow list models`, or check the id",
        errors.LocalEntryNotFoundError: f"{name}: there is no folder of this name here, and the hub cannot be reached{near}; check the "
        "name (`undertow list models`) and the network",
        errors.EntryNotFoundError: f"{name}: has no config.json on the hub, so it is not a transformers model",
    }
    silence_hub()
    try:
        offline = not _hub_answers(name, revision)
        file = Path(hf_hub_download(name, "config.json", revision=revision, local_files_only=offline))
    except Exception as error:  # the hub's HTTP library, and so what it raises, differs between its versions
        why = first_line_without_secrets(error)
        failed = f"{name}: the hub request failed ({why}); check the network and try again"
        raise UndertowError(next((one for kind, one in reasons.items() if isinstance(error, kind)), failed)) from error
    config = _config(file, architectures)
    if config is None:
        return None
    commit = file.parent.name
    options = {**OPTIONS, "revision": commit, "local_files_only": offline}
    return WeightFiles(name, options, name, commit, config, snapshot=file.parent)


def _hub_answers(name: str, revision: str | None) -> bool:
    """Whether the hub answers at all; one request, since a download retries for half a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision), timeout=HUB_PATIENCE_S)
    except (HfHubHTTPError, HFValidationError):
        return True  # the download reports the error
    except Exception:  # noqa: BLE001 - the hub's HTTP library, and so what it raises, differs between its versions
        return False
    return True


def _config(file: Path, architectures: Sequence[str]) -> Mapping[str, Any] | None:
    """A configuration of one of these architectures; None of others."""
    try:
        content = read_file(file, MAX_CONFIG_BYTES, "a model's configuration")
        config: Mapping[str, Any] = parse_json(content, unique_names=False)  # transformers takes the last of two
        given = config["architectures"]
        if not given or not isinstance(given, list):
            raise ValueError("no list of architectures")
    except (ValueError, KeyError, TypeError) as error:
        raise UndertowError(
            f"{file}: names no architectures, so the kind of model is unknown; fetch or save the model again"
        ) from error
    if not any(str(name).endswith(tuple(architectures)) for name in given):
        return None
    if config.get("configuration_files"):
        raise UndertowError(f"{file}: names other configuration files, which are not read; save the model again")
    weights = config.get("transformers_weights")
    if weights is not None and Path(str(weights)).name != weights:
        raise UndertowError(f"{file}: names weights outside its folder ({weights!r}); save the model again")
    return config
