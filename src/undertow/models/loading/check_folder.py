"""Check the files of a model folder before a library is imported that trusts them."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping
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
N_NAMED = 3


def check_folder(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder whose configuration or index cannot be that of its weights; says how to put it right."""
    for index in sorted(folder.glob("model.safetensors.index*.json")):
        _check_index(index)
    tensors = folder_tensors(folder)
    packed = packed_weights(tensors)
    if packed and config.get("quantization_config") is None:
        raise UndertowError(
            f"{folder}: {len(packed)} of its weights are packed as {tensors[packed[0]]['dtype']} ({shorten_list(packed, N_NAMED)}), and "
            "config.json has no quantization_config that says how; save the model again with it, or as it was trained"
        )
    largest = max((n for entry in tensors.values() for n in entry["shape"]), default=0)
    for key, number in _config_numbers(config):
        has_rows = EXPERTS_OR_LABELS.fullmatch(key)
        most = len(tensors) if LAYERS.fullmatch(key) else max(len(tensors), largest) if has_rows else number
        if LAYERS.fullmatch(key) and number < (0 if "coder" in key else 1):
            raise UndertowError(f"{folder}: config.json says {key} {number:,}; correct it, or fetch the model again")
        if number > most:
            raise UndertowError(
                f"{folder}: config.json says {key} {number:,}, and its files hold {len(tensors):,} weights"
                f"{f' of up to {largest:,} rows' if has_rows else ''}; correct config.json, or fetch the model again"
            )


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
