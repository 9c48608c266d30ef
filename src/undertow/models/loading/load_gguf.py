"""Configuration, tokenizer and weights of a GGUF file.

transformers parses the file once for each of the three, slowly; here its tables of names and its conversions work on a header that
was read once. Only the tokenizer reads its own part again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from undertow.models.loading.gguf_header import GgufHeader
from undertow.models.loading.resolve_weights import WeightFiles, read_gguf

TOKENS = "tokenizer.ggml.tokens"


def is_convertible(header: GgufHeader) -> bool:
    """Whether transformers converts this architecture by its tables, rather than by a reader of its own."""
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    architecture = header.entries.get("general.architecture")
    return architecture in GGUF_SUPPORTED_ARCHITECTURES and architecture not in GGUF_CONFIG_ARCHS


def gguf_config(header: GgufHeader) -> tuple[Any, dict[str, Any]]:
    """The configuration of the network, and its entries."""
    from transformers import CONFIG_MAPPING
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.gguf"
        summary.write_bytes(header.summary)
        entries: dict[str, Any] = load_gguf_checkpoint(str(summary))["config"]
    if TOKENS in header.entries:
        entries.setdefault("vocab_size", len(header.entries[TOKENS]))
    return CONFIG_MAPPING[entries["model_type"]].from_dict(dict(entries)), entries


def gguf_tokenizer(weights: WeightFiles) -> Any:
    """The tokenizer, of the class that belongs to the network; files beside this one have no part in it."""
    from transformers import TOKENIZER_MAPPING, PreTrainedTokenizerFast

    config, _ = gguf_config(read_gguf(weights))
    kind = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
    if not issubclass(kind, PreTrainedTokenizerFast):
        kind = PreTrainedTokenizerFast
    return kind(name_or_path=weights.location, gguf_file=weights.options["gguf_file"])


def gguf_weights(weights: WeightFiles, network: Any, entries: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """The weights of a network by name, unpacked.

    Args:
        weights: the file.
        network: any network of this configuration, which may lie on the device `meta`.
        entries: entries of its configuration.
        dtype: their type.
    """
    import numpy as np
    import torch
    from gguf import GGMLQuantizationType, dequantize, quant_shape_to_byte_shape
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        get_gguf_hf_weights_map,
    )

    header = read_gguf(weights)
    processor = TENSOR_PROCESSORS.get(header.entries["general.architecture"], TensorProcessor)(config=entries)
    names: dict[str, str] = {}
    for part, prefix in ((network.base_model, f"{network.base_model_prefix}."), (network, "")):
        # Without children: for each module of a network transformers computes a map of all names.
        alone = SimpleNamespace(config=network.config, state_dict=part.state_dict, named_children=lambda: iter(()))
        names |= get_gguf_hf_weights_map(alone, processor, qual_name=prefix)
    assert weights.gguf is not None
    content = np.asarray(np.memmap(weights.gguf, mode="r"))
    in_order = sorted(header.tensors, key=lambda tensor: tensor.offset)
    end, before, packed = 0, "", []
    for one in in_order:
        shape = quant_shape_to_byte_shape(one.shape, GGMLQuantizationType(one.kind))
        packed.append(content[one.offset :][: int(np.prod(shape))])
        if packed[-1].size < np.prod(shape):
            raise ValueError(f"it ends before the end of {one.name}")
        if one.offset < end:
            raise ValueError(f"{before} and {one.name} share numbers")
        end, before = one.offset + packed[-1].size, one.name
        packed[-1] = packed[-1].reshape(shape)
    parsed: dict[str, Any] = {"config": entries, "tensors": {}}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy computes without Python's lock
        unpacked = pool.map(dequantize, packed, [GGMLQuantizationType(one.kind) for one in in_order])
        for one, numbers in zip(in_order, unpacked, strict=True):
            result = processor.process(
                weights=numbers, name=one.name, tensor_key_mapping=names, parsed_parameters=parsed
            )
            if result.name in names:
                own = np.require(result.weights, requirements=["C", "W"])
                parsed["tensors"][names[result.name]] = torch.from_numpy(own).to(dtype)
    tensors: dict[str, Any] = parsed["tensors"]
    return tensors
