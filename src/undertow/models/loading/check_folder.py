"""Check the files of a model folder before a library is imported that trusts them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from undertow._files import is_plain_file, parse_json, read_file
from undertow.errors import UndertowError, shorten_list

LAYERS = re.compile(r"(num_|n_)?((hidden|encoder|decoder)_)?layers?")
"""Configuration entries that count layers; a layer has at least one weight."""
EXPERTS_OR_LABELS = re.compile(r"num_labels|(num|n)_\w*experts")
"""Configuration entries that count what has a row of a weight, or a weight."""
FLOATS = ("F64", "F32", "F16", "BF16")
"""Data types of unquantized weights."""
WEIGHTS = "model.safetensors"
"""The file of weights where there is one alone."""
LABELS = ("label2id", "id2label", "task_specific_params")
"""Configuration entries whose keys are words of a user."""
MAX_CONFIG_BYTES = 16 * 2**20
MAX_TABLE_BYTES = 100 * 2**20
"""The format's own limit of a table of tensors."""
MAX_TOKENIZER_BYTES = 128 * 2**20
N_NAMED = 3


def check_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder whose configuration, index or tokenizer cannot be that of its weights; says how to put it right."""
    for index in sorted(folder.glob("model.safetensors.index*.json")):
        _check_index(index)
    tensors = folder_tensors(folder)
    packed = packed_weights(tensors)
    if packed and config.get("quantization_config") is None:
        raise UndertowError(
            f"{folder}: {len(packed)} of its weights are packed as {tensors[packed[0]]['dtype']} ({shorten_list(packed, N_NAMED)}), and "
            "config.json has no quantization_config that says how; save the model again with it, or as it was trained"
        )
    quantization = config.get("quantization_config", {})
    if quantization is not None and not isinstance(quantization, dict):
        raise UndertowError(
            f"{folder}: config.json has the quantization_config {quantization!r}, which is not a table; save the model again"
        )
    largest = max((n for entry in tensors.values() for n in entry["shape"]), default=0)
    for key, number in _config_numbers(config):
        if isinstance(number, float) and (math.isnan(number) or (key == "vocab_size" and math.isinf(number))):
            raise UndertowError(
                f"{folder}: {key} in config.json is {number}, not a finite number; correct it, or fetch the model again"
            )
        has_rows = EXPERTS_OR_LABELS.fullmatch(key)
        most = len(tensors) if LAYERS.fullmatch(key) else max(len(tensors), largest) if has_rows else number
        if LAYERS.fullmatch(key) and number < (0 if "coder" in key else 1):
            raise UndertowError(f"{folder}: config.json says {key} {number:,}; correct it, or fetch the model again")
        if number > most:
            raise UndertowError(
                f"{folder}: config.json says {key} {number:,}, and its files hold {len(tensors):,} weights"
                f"{f' of up to {largest:,} rows' if has_rows else ''}; correct config.json, or fetch the model again"
            )
    tokenizer, file = None, folder / "tokenizer.json"
    with suppress(OSError, ValueError):  # its library reports a file of another form
        if is_plain_file(file) and file.stat().st_size <= MAX_TOKENIZER_BYTES:
            tokenizer = parse_json(file.read_bytes(), unique_names=False)
    _check_template(folder, tokenizer)
    rows = max((entry["shape"][0] for entry in tensors.values() if len(entry["shape"]) == 2), default=0)
    tokens = {} if packed else _read_tokens(tokenizer)
    n_embeddings = max([rows, *(int(number) for key, number in _config_numbers(config) if key == "vocab_size")])
    if rows and max(tokens.values(), default=0) >= n_embeddings:
        raise UndertowError(tokens_error(str(folder), tokens, n_embeddings))


def packed_weights(tensors: Mapping[str, Any]) -> list[str]:
    """Names of weights and biases that are no floating-point numbers; a mask of the attention is called a bias, and has more axes."""
    return [
        key
        for key, entry in tensors.items()
        if (key.endswith(".weight") or (key.endswith(".bias") and len(entry["shape"]) == 1))
        and entry["dtype"] not in FLOATS
    ]


def _check_index(index: Path) -> None:
    """Refuse an index whose files are not there, or are not the only ones that hold a weight."""
    folder, names = index.parent, sorted(index_files(index))
    absent = [name for name in names if not is_plain_file(folder / name)]
    if absent:
        raise UndertowError(f"{index}: {shorten_list(absent, N_NAMED)} is not in its folder; fetch the model again")
    if WEIGHTS not in names and (folder / WEIGHTS).is_file():
        raise UndertowError(
            f"{folder}: holds {WEIGHTS} and {index.name}, so it is ambiguous; move one of them to another folder"
        )
    holders: dict[str, str] = {}
    for name in names:
        for key in read_tensor_table(folder / name):
            if key in holders:
                raise UndertowError(
                    f"{folder}: {holders[key]} and {name} both hold {key}; fetch or save the model again"
                )
            holders[key] = name


def read_tensor_table(path: Path) -> dict[str, Any]:
    """The table of a safetensors file: for each tensor its `dtype`, `shape` and `data_offsets`.

    Raises:
        UndertowError: the file is missing, not regular, or no safetensors file.
    """
    try:
        if not is_plain_file(path):
            raise ValueError("no regular file")
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > min(MAX_TABLE_BYTES, path.stat().st_size - 8):
                raise ValueError("its table is longer than the file")
            table: dict[str, Any] = parse_json(file.read(size))
        table.pop("__metadata__", None)
        end = 0
        for key, entry in table.items():
            if not (isinstance(entry["dtype"], str) and all(n >= 0 for n in entry["shape"])):
                raise ValueError(key)
            end = max(end, entry["data_offsets"][1])
        if end > path.stat().st_size - 8 - size:
            raise ValueError("its weights are longer than the file")
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise UndertowError(f"{path}: is not a safetensors file, or a corrupt one; download it again") from error
    return table


def folder_tensors(folder: Path) -> dict[str, Any]:
    """The tables of all safetensors files of a folder; refuses corrupt ones."""
    tables = map(read_tensor_table, sorted(folder.glob("*.safetensors")))
    return {key: entry for table in tables for key, entry in table.items()}


def _read_tokens(content: Any) -> dict[str, int]:
    """Numbers of the tokens in a tokenizer.json; {} if it is of another form."""
    try:
        vocabulary = content["model"]["vocab"]
        listed = vocabulary if isinstance(vocabulary, dict) else {row[0]: at for at, row in enumerate(vocabulary)}
        # Special tokens do not occur in texts: Gemma 3 has one beyond its embedding.
        added = ((one["content"], one["id"]) for one in content.get("added_tokens") or () if not one["special"])
        return {token: number for token, number in [*listed.items(), *added] if isinstance(number, int)}
    except (KeyError, TypeError, AttributeError, IndexError):
        return {}


def _check_template(folder: Path, content: Any) -> None:
    """Refuse a template whose tokens the file does not list: its library ends in a panic, which it prints itself."""
    try:
        processor = content["post_processor"]
        missing = [
            piece["SpecialToken"]["id"]
            for step in (processor, *(processor.get("processors") or ()))
            if step.get("type") == "TemplateProcessing"
            for piece in (*step["single"], *step["pair"])
            if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in step["special_tokens"]
        ]
    except (KeyError, TypeError, AttributeError):
        return
    if missing:
        raise UndertowError(
            f"{folder}: the template of its tokenizer.json holds {missing[0]!r}, which its special_tokens do not; save the tokenizer again"
        )


def tokens_error(name: str, numbers: Mapping[str, int], n_embeddings: int) -> str:
    """The error for a tokenizer with tokens that the network has no weights for."""
    token, number = max(numbers.items(), key=lambda one: one[1])
    return (
        f"{name}: its tokenizer has the token {token!r} (number {number:,}), and the network has weights for {n_embeddings:,} tokens; "
        "resize its embedding (resize_token_embeddings), train it, and save both again"
    )


def index_files(index: Path) -> Collection[str]:
    """The files that an index of weights lists.

    Raises:
        UndertowError: the index is corrupt, or names a file outside its folder.
    """
    try:
        names = set(parse_json(read_file(index, MAX_CONFIG_BYTES, "an index of weights"))["weight_map"].values())
        strange = sorted(str(one) for one in names if not isinstance(one, str) or Path(one).name != one)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UndertowError(f"{index}: is not an index of weights; fetch or save the model again") from error
    if strange:
        raise UndertowError(
            f"{index}: names {strange[0]!r}, which is not a file of its own folder; fetch or save the model again"
        )
    return names


def _config_numbers(config: Any) -> Iterator[tuple[str, float]]:
    """Numbers of a configuration with their names, those of its parts too."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict) and key not in LABELS:
            yield from _config_numbers(value)
        elif isinstance(value, (int, float)):
            yield key, value
