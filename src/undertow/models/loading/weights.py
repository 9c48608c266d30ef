"""Where a Hugging Face style model's weights are, and which exact weights they are.

Resolves a hub id, a local folder, a GGUF file or a name of the catalog to files and a revision, without loading
anything, and says in one sentence what is wrong where that fails. Code from a model repository is never run:
`trust_remote_code` is passed as False in the one place that builds the loading options, and nothing else sets it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from undertow._files import first_line, is_plain_file, json_of, whole_file
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest
from undertow.models.loading.download import PULLABLE, pulled_file
from undertow.models.loading.gguf_header import check_header
from undertow.types import ModelIdentity, digest

NEEDS_EXTRA = "install the model extra: pip install 'undertow[models]'"
GGUF = ".gguf"
GGUF_PREFIX = "gguf:"
"""Before the path of a GGUF file of any name."""
GGUF_ARCHITECTURE = "ForCausalLM"
"""GGUF is llama.cpp's format; what transformers reads from it are causal models."""
HUB_PATIENCE_S = 10.0
ADDRESS = re.compile(r"(\w+://)(?:[^\s/'\"]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
"""An address: its beginning, host and path; not who asks, nor what is behind the path."""
ADAPTER_CONFIG = "adapter_config.json"
"""What a folder of PEFT holds in place of a config.json."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MAX_CONFIG_BYTES = 16 * 2**20
NOT_READ = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".md", ".png")
"""What a local folder's revision leaves out: other formats of the weights, and pages for people."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Files that a model is loaded from.

    Attributes:
        location: what `from_pretrained` takes.
        options: keyword arguments for it.
        source: for the model card.
        revision: hub commit, or SHA-256 of the files.
        adapter: folder of a LoRA adapter that belongs to them.
    """

    location: str
    options: dict[str, Any]
    source: str
    revision: str
    adapter: Path | None = None

    def identity(self, request: ModelRequest, family: str, scoring_method: str) -> ModelIdentity:
        """Who a model of these files is, for the family that reads it so."""
        return ModelIdentity(
            name=request.name,
            family=family,
            source=self.source,
            revision=self.revision,
            dtype=request.dtype,
            scoring_method=scoring_method,
        )


def find_weights(request: ModelRequest, architectures: Sequence[str]) -> Weights | None:
    """The weights, if they are of one of these architectures (class name endings); None if of others.

    Raises:
        UndertowError: there is no such model here, or it cannot be identified.
    """
    path = path_of(request.name)
    is_gguf = path.suffix.lower() == GGUF
    local = request.name in PULLABLE or is_gguf or path.exists()
    if local and request.revision:
        raise UndertowError(f"{request.name}: has no revisions, its files are what they are; leave --revision out")
    if request.name in PULLABLE:
        if GGUF_ARCHITECTURE not in architectures:
            return None
        return _gguf(pulled_file(request.name), PULLABLE[request.name].source)
    if is_gguf:
        return find_gguf(path) if GGUF_ARCHITECTURE in architectures else None
    if path.is_dir():
        if not (path / ADAPTER_CONFIG).is_file():
            return _folder(path, architectures)
        others = sorted(one.name for one in path.glob("*.safetensors") if one.name != ADAPTER_WEIGHTS)
        if others:
            raise UndertowError(
                f"{path}: holds an adapter ({ADAPTER_CONFIG}) and weights of its own ({others[0]}), so it cannot be told which are "
                "meant; move one of them to another folder"
            )
        return _adapter(request, path, architectures)
    if path.exists():
        raise UndertowError(f"{path}: is neither a model folder nor a .gguf file; name one of these, or a hub id")
    if request.name.startswith((".", "/", "~")) or request.name.count("/") > 1 or "\\" in request.name:
        raise UndertowError(f"{request.name}: there is no such folder or file; check the path")
    return _hub(request, architectures)


def is_gguf(name: str) -> bool:
    """Whether what a user calls a model is a GGUF file, whose weights are unpacked when it is loaded."""
    return name in PULLABLE or name.startswith(GGUF_PREFIX) or Path(name).suffix.lower() == GGUF


def path_of(name: str) -> Path:
    """The path that a name is, a leading ~ written out, which no shell does after a prefix.

    Raises:
        UndertowError: there is no such home folder.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UndertowError(f"{name}: there is no such home folder; check the path") from error


def find_gguf(path: Path) -> Weights:
    """The weights in a GGUF file.

    Raises:
        UndertowError: there is no such file, or it is of another format.
    """
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such GGUF file; check the path")
    _check_gguf(path)
    return _gguf(path, path.name)


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UndertowError(f"{path}: is not a GGUF file (its first bytes are not 'GGUF'); fetch it again")
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error


def check_head(weights: Weights) -> None:
    """Refuse a GGUF file whose head announces what the file has no room for, before a package believes it.

    Raises:
        UndertowError: says what is announced.
    """
    if "gguf_file" not in weights.options:
        return
    path = Path(weights.location) / weights.options["gguf_file"]
    try:
        with path.open("rb") as file:
            check_header(file, path.stat().st_size)
    except ValueError as error:
        raise UndertowError(f"{path}: cannot be loaded ({error}); it is corrupt, so fetch it again") from error
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error


def _gguf(path: Path, source: str) -> Weights:
    options = _options() | {"gguf_file": path.name}
    return Weights(str(path.parent), options, source, _file_digest(path))


def _adapter(request: ModelRequest, path: Path, architectures: Sequence[str]) -> Weights | None:
    """A LoRA adapter with the weights of its base, if these are of one of the architectures.

    Raises:
        UndertowError: it is of another kind or not complete, or its base is not to be had.
    """
    config = path / ADAPTER_CONFIG
    try:
        said = json_of(whole_file(config, MAX_CONFIG_BYTES, "an adapter's configuration"), named_once=False)
        kind, base = said["peft_type"], said["base_model_name_or_path"]
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
    name = str(beside) if not path_of(base).exists() and beside.exists() else base
    if (path_of(name) / ADAPTER_CONFIG).is_file():
        raise UndertowError(
            f"{path}: is a LoRA adapter of {base}, which is an adapter too; merge that into its base, and name the merged model"
        )
    if importlib.util.find_spec("peft") is None:
        raise UndertowError(f"{path}: to read LoRA adapters, {NEEDS_EXTRA}")
    try:
        weights = find_weights(replace(request, name=name, revision=str(said.get("revision") or "")), architectures)
    except UndertowError as error:
        raise UndertowError(
            f"{request.name}: is a LoRA adapter of {base}, and its base is not to be had: {error}"
        ) from error
    if weights is None:
        return None
    digests = {"base": weights.revision, **{one.name: _file_digest(one) for one in (config, file)}}
    return replace(weights, source=path.name, revision=digest(digests), adapter=path)


def _folder(path: Path, architectures: Sequence[str]) -> Weights | None:
    config = path / "config.json"
    if not config.is_file():
        raise UndertowError(f"{path}: holds no config.json, so it is not a model folder; name the folder that holds it")
    if not _is_of(config, architectures):
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix not in NOT_READ)
    if not any(file.suffix == ".safetensors" for file in files):
        raise UndertowError(f"{path}: holds no .safetensors weights; save the model with save_pretrained")
    revision = digest({str(file.relative_to(path)): _file_digest(file) for file in files})
    return Weights(str(path), _options() | {"local_files_only": True}, path.name, revision)


def _hub(request: ModelRequest, architectures: Sequence[str]) -> Weights | None:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UndertowError(f"{request.name}: to read models from the hub, {NEEDS_EXTRA}")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name, revision = request.name, request.revision or None
    near = "".join(f" (did you mean {one!r}?)" for one in difflib.get_close_matches(name, PULLABLE, n=1))
    _hush_hub()
    try:
        offline = not _hub_answers(name, revision)
        config = Path(hf_hub_download(name, "config.json", revision=revision, local_files_only=offline))
    except HFValidationError as error:
        raise UndertowError(
            f"there is no model called {name!r}; see `undertow list models`, or name a hub id or folder"
        ) from error
    except GatedRepoError as error:
        raise UndertowError(
            f"{name}: its owner asks you to accept terms first; do so on the hub and set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise UndertowError(f"{name}: has no revision {request.revision!r}; check the branch, tag or commit") from error
    except RepositoryNotFoundError as error:
        raise UndertowError(
            f"there is no model called {name!r} on the hub{near}; see `undertow list models`, or check the id"
        ) from error
    except LocalEntryNotFoundError as error:
        raise UndertowError(
            f"{name}: there is no folder of this name here, and the hub cannot be reached{near}; check the name (`undertow list models`) "
            "and the network"
        ) from error
    except EntryNotFoundError as error:
        raise UndertowError(f"{name}: has no config.json on the hub, so it is no transformers model") from error
    except Exception as error:  # the hub's HTTP library, and so what it raises, differs between its versions
        raise UndertowError(
            f"{name}: the hub could not be asked ({_first_line(error)}); check the network and try again"
        ) from error
    if not _is_of(config, architectures):
        return None
    commit = config.parent.name
    return Weights(name, _options() | {"revision": commit, "local_files_only": offline}, name, commit)


def _hub_answers(name: str, revision: str | None) -> bool:
    """Whether the hub says anything, be it no. Asked once: a download asks for half a minute before it gives up."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision), timeout=HUB_PATIENCE_S)
    except (HfHubHTTPError, HFValidationError):
        return True  # the download says which
    except Exception:  # noqa: BLE001 - the hub's HTTP library, and so what it raises, differs between its versions
        return False
    return True


def _is_of(config: Path, architectures: Sequence[str]) -> bool:
    try:
        content = whole_file(config, MAX_CONFIG_BYTES, "a model's configuration")
        given = json_of(content, named_once=False)["architectures"]  # transformers takes the last of two
        if not given or not isinstance(given, list):
            raise ValueError("no list of architectures")
    except (ValueError, KeyError, TypeError) as error:
        raise UndertowError(
            f"{config}: names no architectures, so the kind of model is unknown; fetch or save the model again"
        ) from error
    return any(str(name).endswith(tuple(architectures)) for name in given)


def _options() -> dict[str, Any]:
    return {"trust_remote_code": False}


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error


@contextmanager
def parsed_once(options: dict[str, Any]) -> Iterator[None]:
    """Load a GGUF file without parsing it again for configuration, tokenizer and weights, which takes most of the time.

    transformers opens the file three times, and asks for the same map of names once for every module. And the reader takes the
    file's hundred thousand strings from a `memmap`, whose every slice is ten times slower than one of the array behind it.
    """
    if "gguf_file" not in options:
        yield
        return
    import gguf
    import numpy as np

    reader, names = gguf.GGUFReader, gguf.get_tensor_name_map

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if isinstance(value, np.memmap) else value)

    gguf.GGUFReader, gguf.get_tensor_name_map = cache(Reader), cache(names)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, names


@contextmanager
def loading_errors(name: str) -> Iterator[None]:
    """Turn whatever a model library says while it loads into one sentence, and keep its chatter off the terminal."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            silence_libraries()
            yield
    except ImportError as error:
        raise UndertowError(
            f"{name}: a package that it needs is missing ({_first_line(error)}); {NEEDS_EXTRA}"
        ) from error
    except UndertowError:
        raise
    except MemoryError as error:
        raise UndertowError(
            f"{name}: does not fit into memory; free some, or choose a smaller model or --dtype bfloat16"
        ) from error
    except Exception as error:  # the loading libraries raise whatever their parsers meet in a corrupt file
        raise UndertowError(
            f"{name}: cannot be loaded ({type(error).__name__}: {_first_line(error)}); it may be corrupt, so fetch it again, "
            "or of a kind that transformers does not read"
        ) from error


def silence_libraries() -> None:
    """Keep the libraries that load and save weights from talking."""
    import torch  # noqa: F401 - first, so that a missing extra is noticed before anything else
    from transformers.utils import logging

    _hush_hub()
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _hush_hub() -> None:
    from huggingface_hub.utils import disable_progress_bars
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()
    disable_progress_bars()


def _first_line(error: BaseException) -> str:
    """What a library says, without the passwords and signatures of the addresses in it."""
    return first_line(error, lambda line: ADDRESS.sub(r"\1\2", line))
