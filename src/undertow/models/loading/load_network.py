"""Load a network of transformers whose weights all come from its files, and fingerprint them.

The only module that calls `from_pretrained` of a network, as a test checks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from undertow._files import first_line
from undertow.errors import UndertowError, counted, shorten_list
from undertow.models.loading.check_folder import N_NAMED, packed_weights, read_tensor_table
from undertow.models.loading.check_weights import body_prefix, check_complete, shape_error, wrapper_prefix
from undertow.models.loading.load_gguf import gguf_config, gguf_tokenizer, gguf_weights, is_convertible, scale_positions
from undertow.models.loading.resolve_weights import ADAPTER_WEIGHTS, WeightFiles

TOKENIZER = re.compile(r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|.*\.(model|tiktoken)")
"""Files of a tokenizer's vocabulary."""
BYTE_READER = re.compile(r'"tokenizer_class":\s*"((?:ByT5|Canine|Perceiver)Tokenizer)"')
"""A tokenizer without a vocabulary file, in its settings."""
N_SAMPLED = 4096
"""Numbers of each weight in its fingerprint."""


def load_network(
    name: str, weights: WeightFiles, kind: Any, trained_to: str, *, new_head: bool = False, **options: Any
) -> tuple[Any, tuple[str, ...]]:
    """Load a network all of whose weights come from its files; also returns notes on how they were fitted.

    `kind` is the class of transformers that loads it, `trained_to` what it is needed for, and `options` are keywords for
    `from_pretrained`; with `new_head` a random head is intended.

    Raises:
        UndertowError: names weights that are missing or of another shape, and the likely cause.
    """
    _check_quantization(name, weights)
    keywords = {"use_safetensors": True, "output_loading_info": True, **options, **weights.options}
    notes: tuple[str, ...] = ()
    try:
        if is_convertible(weights):
            network, loaded = _load_gguf(weights, kind, options["dtype"])
            scale_positions(name, weights, network)
        else:
            network, loaded = kind.from_pretrained(weights.location, **keywords)
        wrapper, mapping = wrapper_prefix(name, network, loaded["missing_keys"], sorted(loaded["unexpected_keys"]))
        if mapping:
            del network
            network, loaded = kind.from_pretrained(weights.location, key_mapping=mapping, **keywords)
        elif weights.gguf is None and (prefix := body_prefix(network, weights)):
            wrapper = repr(prefix)
        if wrapper:
            notes = (
                f"names of its weights hold {wrapper}, from a wrapper that it was saved in, and were read without it",
            )
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UndertowError(shape_error(name, weights, kind)) from error
    check_complete(name, weights, network, loaded, trained_to=trained_to, new_head=new_head)
    # The configuration ties these to others, and the files hold other numbers for them, as transformers reads silently.
    tied = network.get_expanded_tied_weights_keys(all_submodels=False).keys()
    if untied := sorted(tied - network.all_tied_weights_keys.keys()):
        notes = (
            *notes,
            f"{shorten_list(untied, N_NAMED)} has numbers of its own in its files, though config.json ties it to others; they were read",
        )
    if weights.adapter is not None:
        network = _with_adapter(name, network, weights.adapter)
        notes = (*notes, f"a LoRA adapter merged into {weights.location}")
    return network, notes


def _check_quantization(name: str, weights: WeightFiles) -> None:
    """Refuse weights that are packed in a way that transformers does not read."""
    quantization = weights.config.get("quantization_config")
    if quantization is None:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    method = quantization.get("quant_method")
    if str(method) not in AUTO_QUANTIZER_MAPPING:
        raise UndertowError(
            f"{name}: config.json has a quantization_config of the method {method!r}, which transformers does not read; name a model "
            "whose weights are as they were trained"
        )


def _load_gguf(weights: WeightFiles, kind: Any, dtype: Any) -> tuple[Any, Any]:
    """A network of a GGUF file, and which of its weights were not found."""
    import torch

    config, entries = gguf_config(weights)
    with torch.device("meta"):
        network = kind.from_config(config, dtype=dtype)
    tensors = gguf_weights(weights, network, entries, dtype)
    own_kind, config = type(network), network.config
    del network
    loaded: tuple[Any, Any] = own_kind.from_pretrained(
        None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
    )
    return loaded


def _with_adapter(name: str, network: Any, folder: Path) -> Any:
    """The network with a LoRA adapter merged into it."""
    from peft import PeftModel, get_peft_model_state_dict
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch.nn import Parameter

    tensors = read_tensor_table(folder / ADAPTER_WEIGHTS)
    saved = tensors.keys()
    packed = packed_weights({key: tensors[key] for key in sorted(saved)})
    if packed:
        raise UndertowError(
            f"{name}: {counted(len(packed), 'weight')} of the adapter packed as {tensors[packed[0]]['dtype']} "
            f"({shorten_list(packed, N_NAMED)}), and nothing says how; save it again as it was trained"
        )
    try:
        adapted = PeftModel.from_pretrained(network, str(folder), use_safetensors=True)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UndertowError(
            f"{name}: its weights do not fit its base ({first_line(error)}); name the base that it was trained on in its "
            "adapter_config.json"
        ) from error
    wanted = set(get_peft_model_state_dict(adapted))
    for keys, what in ((wanted - saved, "missing from its file"), (saved - wanted, "without a place in its base")):
        if keys:
            raise UndertowError(
                f"{name}: {counted(len(keys), 'weight')} of the adapter {what} ({shorten_list(sorted(keys), N_NAMED)}); "
                "name the base that it was trained on in its adapter_config.json, or save it again"
            )
    # Merged into a tied weight, an adapter of the head would change the embedding too.
    uses = Counter(id(one) for _, one in adapted.named_parameters(remove_duplicate=False))
    layers: list[Any] = [one.get_base_layer() for one in adapted.modules() if isinstance(one, BaseTunerLayer)]
    for layer in layers:
        if uses[id(layer.weight)] > 1:
            layer.weight = Parameter(layer.weight.detach().clone(), requires_grad=False)
    return adapted.merge_and_unload()


def load_tokenizer(name: str, weights: WeightFiles) -> Any:
    """The tokenizer beside a network's weights.

    Raises:
        UndertowError: there is no tokenizer, or the network cannot be loaded either.
    """
    from transformers import AutoTokenizer

    if is_convertible(weights):
        return gguf_tokenizer(weights)
    folder = Path(weights.location)
    if (
        weights.gguf is None
        and folder.is_dir()
        and not any(TOKENIZER.fullmatch(path.name) for path in folder.iterdir())
    ):
        settings = folder / "tokenizer_config.json"
        kind = BYTE_READER.search(settings.read_text(encoding="utf8", errors="replace") if settings.is_file() else "")
        if kind is not None:
            raise UndertowError(
                f"{name}: its tokenizer reads bytes or characters ({kind[1]}); such models are not supported"
            )
        raise UndertowError(
            f"{name}: holds no tokenizer (tokenizer.json); put that of the model there with tokenizer.save_pretrained"
        )
    tokenizer = AutoTokenizer.from_pretrained(weights.location, **weights.options)
    tokenizer(["a b"])  # some settings that are wrong show with the first text
    try:
        _ = tokenizer.unk_token_id
    except RecursionError as error:  # transformers looks for the number of the unknown token among its tokens, for ever
        raise UndertowError(
            f"{name}: its tokenizer has no token {tokenizer.unk_token!r}, which stands for unknown words; save the tokenizer again"
        ) from error
    return tokenizer


def fingerprint(network: Any, *, whole: bool = False) -> str:
    """A fingerprint of the loaded weights, of some numbers or of the whole: equal for equal files (16 hex digits).

    Includes the version of transformers, which may change the layout of weights.
    """
    import torch
    import transformers

    digest = hashlib.sha256()
    for key, tensor in sorted(network.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sampled = flat[:: 1 if whole else max(1, -(-flat.numel() // N_SAMPLED))].contiguous().cpu()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(sampled.view(torch.uint8).numpy().tobytes())
    return f"transformers {transformers.__version__}: {digest.hexdigest()[:16]}"


VOLATILE = ("_name_or_path", "transformers_version", "_attn_implementation", "_attn_implementation_autoset")
"""Keys of a configuration about the origin or the computation of a network, not its identity."""


def settings_of(config: Any) -> Any:
    """Values of a network's configuration that differ from the defaults, as JSON."""

    def lasting(value: Any) -> Any:
        is_table = isinstance(value, dict)
        return {key: lasting(one) for key, one in value.items() if key not in VOLATILE} if is_table else value

    return lasting(json.loads(config.to_json_string(use_diff=True)))


def adapters_of(network: Any) -> list[Any]:
    """The state of each layer with adapters of PEFT, which its weights do not hold: which are active, and how strong."""

    def has_adapters(module: Any) -> bool:
        # Properties if PEFT put the layer in; networks of transformers have methods of these names.
        kinds = (getattr(type(module), name, None) for name in ("disable_adapters", "active_adapters"))
        return all(isinstance(one, property) for one in kinds)

    return [
        [
            name,
            bool(one.disable_adapters),
            [str(adapter) for adapter in one.active_adapters],
            sorted((str(adapter), str(scale)) for adapter, scale in dict(getattr(one, "scaling", {})).items()),
        ]
        for name, one in network.named_modules()
        if has_adapters(one)
    ]


def spelling_of(tokenizer: Any) -> list[Any]:
    """All settings of a tokenizer that affect its tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return [
        sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str(),
        str(tokenizer.chat_template or ""),
        tokenizer.padding_side,
        sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items()),
    ]
