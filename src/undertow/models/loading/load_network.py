"""Loading a network of transformers, and the one check that every weight that it reads came from its files.

The only module that calls `from_pretrained` of a network; a test holds the families to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from undertow._files import first_line, json_of, whole_file
from undertow.errors import UndertowError
from undertow.models.backend.execution import chosen_device
from undertow.models.backend.onednn import with_packed_weights
from undertow.models.loading.weights import Weights
from undertow.types import ModelIdentity

Model = TypeVar("Model")

WRAPPERS = r"^((_orig_mod|module|_forward_module)\.)+|(?<=\.)_orig_mod\."
"""What torch.compile, DistributedDataParallel and Lightning Fabric put into the names of weights."""
LAYERS = re.compile(r"(num_|n_)?((hidden|encoder|decoder)_)?layers?")
"""Entries of a configuration that count layers; a layer has a weight at least."""
TOKENIZER = re.compile(r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|.*\.(model|tiktoken)")
"""Files that a tokenizer is read from."""
HEADS = r"lm_head\."
"""How names begin that are of the head, where a network's body has no name of its own."""
FLOATS = ("F64", "F32", "F16", "BF16")
"""Types that weights are trained in."""
MAX_CONFIG_BYTES = 16 * 2**20
N_SAMPLED = 4096
"""Numbers of each weight that its fingerprint is taken of."""
N_NAMED = 3


def load_checked(  # noqa: PLR0913 - what is loaded, how, and what becomes of it
    identity: ModelIdentity,
    weights: Weights,
    device: str,
    *,
    kind: Any,
    trained_to: str,
    tokenizer: Any,
    wrap: Callable[[Any], Model],
) -> Model:
    """Load a network whole, put it on its device, pack its weights, and wrap it.

    Args:
        identity: who it is.
        weights: its files.
        device: that the user asked for; see `chosen_device`.
        kind: the class of transformers that loads it, such as `AutoModelForCausalLM`.
        trained_to: what the family needs it for, to be said of one that lacks its head.
        tokenizer: whose tokens it must know.
        wrap: makes the model of the network, and tries it in doing so.

    Raises:
        UndertowError: a weight is not in the files or has another shape than the configuration says, or a token has none.
    """
    import torch

    chosen = chosen_device(device)
    network, notes = load_network(identity.name, weights, kind, trained_to, dtype=getattr(torch, identity.dtype))
    _check_tokens(identity.name, network, tokenizer, from_gguf="gguf_file" in weights.options)
    _check_numbers(identity.name, network)
    network.weights_digest = fingerprint(network)
    network = network.eval().to(chosen)
    model: Any = with_packed_weights(network, lambda: wrap(network))
    model.notes = (*notes, *model.notes)
    return model  # type: ignore[no-any-return]


def load_network(
    name: str, weights: Weights, kind: Any, trained_to: str, *, new_head: bool = False, **options: Any
) -> tuple[Any, tuple[str, ...]]:
    """A network all of whose weights came from its files, and what was done to make them fit.

    Args:
        name: of the model, for messages.
        weights: its files.
        kind: the class of transformers that loads it.
        trained_to: what it is needed for.
        new_head: whether its head is drawn at random on purpose.
        options: for `from_pretrained`.

    Raises:
        UndertowError: names weights that are missing or of another shape, and the likely cause.
    """
    _check_config(name, weights)
    given = {"use_safetensors": True, "output_loading_info": True, **options, **weights.options}
    notes: tuple[str, ...] = ()
    try:
        network, loaded = kind.from_pretrained(weights.location, **given)
        wrapper, mapping = _wrapper(network, loaded["missing_keys"], sorted(loaded["unexpected_keys"]))
        if mapping:
            del network
            network, loaded = kind.from_pretrained(weights.location, key_mapping=mapping, **given)
            notes = (
                f"names of its weights hold {wrapper}, from a wrapper that it was saved in, and were read without it",
            )
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UndertowError(_other_shapes(name, weights, kind)) from error
    body = f"{network.base_model_prefix}."
    lacking = sorted(key for key in loaded["missing_keys"] if key.startswith(body) or not new_head)
    if lacking:
        raise UndertowError(_lacking(name, weights, network, lacking, sorted(loaded["unexpected_keys"]), trained_to))
    unread = _unread(network, sorted(loaded["unexpected_keys"])) + _unread_of_gguf(network, weights)
    if unread:
        raise UndertowError(
            f"{name}: its files hold {len(unread)} weights within its network that its configuration has no place for "
            f"({_named(unread)}), so they are of another network; put it right, or fetch the model again"
        )
    if weights.adapter is not None:
        network = _with_adapter(name, network, weights.adapter)
        notes = (*notes, f"a LoRA adapter merged into {weights.location}")
    return network, notes


def _wrapper(network: Any, missing: Collection[str], unexpected: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What a wrapper put into the names of weights, and the patterns that take it out; nothing unless all weights are found so."""
    if not missing or not unexpected:
        return "", {}
    names = [re.sub(WRAPPERS, "", key) for key in unexpected]
    base = f"{network.base_model_prefix}."
    silent = [*(network._keys_to_ignore_on_load_unexpected or ()), "(?!)"]  # never listed as unexpected
    wanted = [
        key
        for key in missing
        if key not in network.all_tied_weights_keys and not any(re.search(one, key) for one in silent)
    ]
    last = max(wanted, key=len, default="")  # the longest name tells a prefix best
    prefixes = {
        name.removesuffix(one)
        for name in names
        for one in (last, last.removeprefix(base))
        if last and f".{name}".endswith(f".{one}")
    }
    for prefix in sorted(prefixes, key=len):
        there = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        if all(key in there or key.removeprefix(base) in there for key in wanted):
            match = re.search(WRAPPERS, unexpected[0])
            held = [one for one in (match[0] if match else "", prefix) if one]
            mapping = {WRAPPERS: "", f"^{re.escape(prefix)}": ""} if prefix else {WRAPPERS: ""}
            return " and ".join(map(repr, held)), mapping if held else {}
    return "", {}


def _unread(network: Any, unexpected: Sequence[str]) -> list[str]:
    """Weights of the files that belong into the network and that it does not read: of its layers, or beside others of a module.

    What belongs to a head or a pooler that the network lacks is none of them, nor are masks that old versions saved.
    """
    modules = {key: module for key, module in network.named_modules() if key}
    base = f"{network.base_model_prefix}."

    def is_within(key: str) -> bool:
        owner, _, leaf = key.rpartition(".")
        if owner in modules and next(modules[owner].parameters(recurse=False), None) is not None:
            return True
        layers = re.search(r"^(.+?)\.\d+\.", key)
        return leaf == "weight" and layers is not None and layers[1] in modules

    return [key for key in unexpected if any(map(is_within, {key, base + key, key.removeprefix(base)}))]


def _unread_of_gguf(network: Any, weights: Weights) -> list[str]:
    """Weights of a GGUF file that transformers passes over: of no name or layer that it has, or biases of a network without."""
    if "gguf_file" not in weights.options:
        return []
    import gguf

    reader = gguf.GGUFReader(str(Path(weights.location) / weights.options["gguf_file"]))
    architecture = reader.fields["general.architecture"].contents()
    kinds = {said: kind for kind, said in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in kinds:
        return []
    known = {gguf.TENSOR_NAMES[one].format(bid="N", xid="N") for one in gguf.MODEL_TENSORS[kinds[architecture]]}
    endings = ("weight", "bias") if any(key.endswith(".bias") for key in network.state_dict()) else ("weight",)
    n_layers = network.config.get_text_config().num_hidden_layers

    def is_read(key: str) -> bool:
        stem, _, ending = re.sub(r"\.\d+\.", ".N.", key).rpartition(".")
        layer = re.match(r"blk\.(\d+)\.", key)
        return stem in known and ending in endings and (layer is None or int(layer[1]) < n_layers)

    return sorted(one.name for one in reader.tensors if not is_read(one.name))


def _named(keys: Sequence[str]) -> str:
    return ", ".join(keys[:N_NAMED]) + (" and others" if len(keys) > N_NAMED else "")


def _lacking(  # noqa: PLR0913, PLR0917 - all that the cause is told from
    name: str, weights: Weights, network: Any, lacking: Sequence[str], unexpected: Sequence[str], trained_to: str
) -> str:
    n_weights = len(network.state_dict())
    are = "is" if len(lacking) == 1 else "are"
    said = f"{name}: {len(lacking)} of its {n_weights} weights {are} not in its files ({_named(lacking)})"
    left_out = _not_in_index(Path(weights.location))
    head = HEADS if network.base_model is network else rf"(?!{network.base_model_prefix}\.)"
    if any("lora_" in key for key in unexpected):
        cause = "they are those of a LoRA adapter: name the adapter's own folder (adapter_config.json), which names its base"
    elif left_out:
        cause = f"model.safetensors.index.json does not list {left_out}; fetch or save the model again"
    elif len(unexpected) * 2 > n_weights or (unexpected and len(lacking) * 2 > n_weights):
        cause = f"they hold {unexpected[0]} instead, so they are of another network than config.json says; put the two right"
    elif all(re.match(head, key) for key in lacking):
        cause = f"its head was not saved; name a model that was trained to {trained_to}, and save it with its head"
    else:
        cause = "they are not complete; fetch or save the model again"
    return f"{said}: {cause}"


def _not_in_index(folder: Path) -> str:
    """A file of weights that the index of a folder does not list; "" where there is none."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return ""
    listed = set(index_files(index))
    return next((path.name for path in sorted(folder.glob("*.safetensors")) if path.name not in listed), "")


def index_files(index: Path) -> Collection[str]:
    """The files that an index of weights lists.

    Raises:
        UndertowError: it is corrupt, or names a file outside its folder.
    """
    try:
        names = set(json_of(whole_file(index, MAX_CONFIG_BYTES, "an index of weights"))["weight_map"].values())
        strange = sorted(str(one) for one in names if not isinstance(one, str) or Path(one).name != one)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UndertowError(f"{index}: is no index of weights; fetch or save the model again") from error
    if strange:
        raise UndertowError(
            f"{index}: names {strange[0]!r}, which is not a file of its own folder; fetch or save the model again"
        )
    return names


def _check_config(name: str, weights: Weights) -> None:
    """Refuse, before anything is built, what no network of these files can be.

    Raises:
        UndertowError: there are more layers than weights, weights are packed in an unknown way, or lie in another folder.
    """
    from safetensors import safe_open
    from transformers import PreTrainedConfig
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    if "gguf_file" in weights.options:
        return
    folder = Path(weights.location)
    config, _ = PreTrainedConfig.get_config_dict(weights.location, **weights.options)
    packed = config.get("quantization_config")
    method = packed.get("quant_method") if isinstance(packed, dict) else packed
    if packed is not None and str(method) not in AUTO_QUANTIZER_MAPPING:
        raise UndertowError(
            f"{name}: config.json has a quantization_config of the method {method!r}, which transformers does not read; name a model "
            "whose weights are as they were trained"
        )
    named = config.get("transformers_weights")
    if named is not None and Path(str(named)).name != named:
        raise UndertowError(f"{name}: config.json names weights outside its folder ({named!r}); save the model again")
    if not folder.is_dir():
        return
    for index in sorted(folder.glob("*.safetensors.index*.json")):
        index_files(index)
    n_weights = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            keys = list(file.keys())
            kinds = {key: file.get_slice(key).get_dtype() for key in keys if packed is None and key.endswith(".weight")}
        n_weights += len(keys)
        whole = [key for key, dtype in kinds.items() if dtype not in FLOATS]
        if whole:
            raise UndertowError(
                f"{name}: {len(whole)} of its weights are packed as {kinds[whole[0]]} ({_named(whole)}), and config.json has no "
                "quantization_config that says how; save the model again with it, or as it was trained"
            )
    for key, number in _numbers(config):
        if LAYERS.fullmatch(key) and number > n_weights:
            raise UndertowError(
                f"{name}: config.json says {key} {number:,}, and its files hold {n_weights:,} weights; put config.json right, or "
                "fetch the model again"
            )


def _numbers(config: Any) -> Iterator[tuple[str, float]]:
    """Numbers of a configuration with their names, those of its parts too."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, (int, float)):
            yield key, value


def _other_shapes(name: str, weights: Weights, kind: Any) -> str:
    """Which weight has another shape than the configuration says."""
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig

    mend = "put config.json right, or fetch the model again"
    with torch.device("meta"):
        network = kind.from_config(AutoConfig.from_pretrained(weights.location, **weights.options))
    wanted = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    for path in sorted(Path(weights.location).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                shape = tuple(file.get_slice(key).get_shape())
                if wanted.get(key, shape) != shape:
                    return f"{name}: {key} has the shape {shape}, and config.json says {wanted[key]}; {mend}"
    return f"{name}: its weights have other shapes than config.json says; {mend}"


def _with_adapter(name: str, network: Any, folder: Path) -> Any:
    """The network with a LoRA adapter merged into it.

    Raises:
        UndertowError: a weight of the adapter is missing, or has no place in the network.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    try:
        adapted = PeftModel.from_pretrained(network, str(folder), use_safetensors=True)
    except (RuntimeError, ValueError) as error:
        raise UndertowError(
            f"{name}: its weights do not fit its base ({first_line(error)}); name the base that it was trained on in its "
            "adapter_config.json"
        ) from error
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as file:
        there = set(file.keys())
    wanted = set(get_peft_model_state_dict(adapted))
    for keys, what in ((wanted - there, "are not in its file"), (there - wanted, "have no place in its base")):
        if keys:
            raise UndertowError(
                f"{name}: {len(keys)} weights of the adapter {what} ({', '.join(islice(sorted(keys), N_NAMED))}); "
                "name the base that it was trained on in its adapter_config.json, or save it again"
            )
    return adapted.merge_and_unload()


def _check_tokens(name: str, network: Any, tokenizer: Any, *, from_gguf: bool) -> None:
    """Refuse a tokenizer with tokens that the network has no weights for.

    Transformers gives that of a GGUF file special tokens that the file lacks; no text is spelled with them.
    """
    n_known = int(network.get_input_embeddings().weight.shape[0])
    unused = set(tokenizer.get_added_vocab()) if from_gguf else set()
    match = {token: number for token, number in tokenizer.get_vocab().items() if token not in unused}
    token, number = max(match.items(), key=lambda one: one[1])
    if number >= n_known:
        raise UndertowError(
            f"{name}: its tokenizer has the token {token!r} (number {number:,}), and the network has weights for {n_known:,} tokens; "
            "resize its embedding (resize_token_embeddings), train it, and save both again"
        )


def _check_numbers(name: str, network: Any) -> None:
    for key, tensor in network.state_dict().items():
        if tensor.is_floating_point() and tensor.isnan().any():
            raise UndertowError(f"{name}: {key} has values that are not numbers (NaN); fetch or save the model again")


def load_tokenizer(name: str, weights: Weights) -> Any:
    """The tokenizer beside a network's weights.

    Raises:
        UndertowError: there is none, or the network cannot be loaded either.
    """
    from transformers import AutoTokenizer

    _check_config(name, weights)  # whose entries the tokenizer's class is chosen by
    folder = Path(weights.location)
    if "gguf_file" not in weights.options and folder.is_dir():
        files = (path.name for path in folder.iterdir())
        if not any(TOKENIZER.fullmatch(one) for one in files):
            raise UndertowError(
                f"{name}: holds no tokenizer (tokenizer.json); put that of the model there with tokenizer.save_pretrained"
            )
    return AutoTokenizer.from_pretrained(weights.location, **weights.options)


def fingerprint(network: Any) -> str:
    """What tells the weights that answer from others: two loads of the same files have the same one (16 hex digits).

    It is that of a version of transformers, which may lay weights out otherwise.
    """
    import torch
    import transformers

    digest = hashlib.sha256()
    for key, tensor in sorted(network.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sampled = flat[:: max(1, -(-flat.numel() // N_SAMPLED))].contiguous().cpu()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(sampled.view(torch.uint8).numpy().tobytes())
    return f"transformers {transformers.__version__}: {digest.hexdigest()[:16]}"
