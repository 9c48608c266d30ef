"""Configuration, tokenizer and weights of a GGUF file.

transformers parses the file once for each of the three, slowly; here its tables of names and its conversions work on a header that
was read once. Only the tokenizer reads its own part again.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from undertow.errors import UndertowError
from undertow.models.loading.gguf_header import DEFAULT_ALIGNMENT
from undertow.models.loading.resolve_weights import WeightFiles, read_gguf

TOKENS = "tokenizer.ggml.tokens"
ROTARY_FACTORS = "rope_freqs.weight"
"""The tensor that divides the frequencies of rotary positions, as in Llama 3."""


def is_convertible(weights: WeightFiles) -> bool:
    """Whether transformers converts a GGUF file of this architecture by its tables, rather than by a reader of its own."""
    if weights.gguf is None:
        return False
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    architecture = read_gguf(weights).entries.get("general.architecture")
    return architecture in GGUF_SUPPORTED_ARCHITECTURES and architecture not in GGUF_CONFIG_ARCHS


def gguf_config(weights: WeightFiles) -> tuple[Any, dict[str, Any]]:
    """The configuration of the network in a GGUF file, and its entries."""
    from transformers import CONFIG_MAPPING
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    header = read_gguf(weights)
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

    config, _ = gguf_config(weights)
    kind = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
    if not issubclass(kind, PreTrainedTokenizerFast):
        kind = PreTrainedTokenizerFast
    return kind(name_or_path=weights.location, gguf_file=weights.options["gguf_file"])


def gguf_weights(weights: WeightFiles, network: Any, entries: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """The weights of a network by name, unpacked, in this type; the network of this configuration may lie on the device `meta`."""
    import numpy as np
    import torch
    from gguf import GGMLQuantizationType, dequantize, quant_shape_to_byte_shape
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

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
    if content.size - end > header.entries.get("general.alignment", DEFAULT_ALIGNMENT):
        raise ValueError(f"{content.size - end:,} bytes follow its last tensor")
    tensors: dict[str, Any] = {}
    parsed = {"config": entries, "tensors": tensors}
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy computes without Python's lock
        tasks = zip(packed, in_order, strict=True)

        def unpacked() -> Iterator[tuple[Any, Any]]:
            """Numbers of each tensor; no more tensors are unpacked ahead than there are threads."""
            ahead = deque[tuple[Any, Any]]()
            for content, one in tasks:
                ahead.append((one, pool.submit(dequantize, content, GGMLQuantizationType(one.kind))))
                if len(ahead) > torch.get_num_threads():
                    yield ahead.popleft()
            yield from ahead

        for one, numbers in unpacked():
            result = processor.process(
                weights=numbers.result(), name=one.name, tensor_key_mapping=names, parsed_parameters=parsed
            )
            if result.name in names:
                own = np.require(result.weights, requirements=["C", "W"])
                tensors[names[result.name]] = torch.from_numpy(own).to(dtype)
    return tensors


def scale_positions(name: str, weights: WeightFiles, network: Any) -> None:
    """Divide the frequencies of rotary positions by the factors in the file, which transformers ignores.

    Raises:
        UndertowError: the file scales them in another way, or its factors do not fit.
    """
    import numpy as np
    import torch
    from gguf import GGMLQuantizationType

    header = read_gguf(weights)
    rope = f"{header.entries['general.architecture']}.rope"
    kind, old = header.entries.get(f"{rope}.scaling.type", "none"), header.entries.get(f"{rope}.scale_linear", 1.0)
    factors = torch.tensor([float(header.entries.get(f"{rope}.scaling.factor", 1.0) if kind == "linear" else old)])
    for one in header.tensors:
        if one.name == ROTARY_FACTORS:
            is_float = one.kind == GGMLQuantizationType.F32
            assert weights.gguf is not None
            numbers = np.fromfile(weights.gguf, "<f4", int(np.prod(one.shape)) if is_float else 0, offset=one.offset)
            factors = factors * torch.from_numpy(numbers)
    if kind in {"none", "linear"} and bool((factors == 1).all()):
        return
    rotary = [
        (module, key)
        for module in network.modules()
        for key, _ in module.named_buffers(recurse=False)
        if key.endswith("inv_freq")
    ]
    plain = [module.inv_freq for module, key in rotary if key in {"inv_freq", "original_inv_freq"}]
    if kind not in {"none", "linear"} or not plain or len(plain) < len(rotary):
        raise UndertowError(
            f"{name}: scales its positions ({kind}) in a way that transformers does not read from a GGUF file; name the folder of the model"
        )
    if any(len(factors) not in {1, len(one)} for one in plain) or not bool((factors.isfinite() & (factors > 0)).all()):
        raise UndertowError(f"{name}: {ROTARY_FACTORS} does not fit its network; download it again")
    for module, key in rotary:
        setattr(module, key, getattr(module, key) / factors)
