"""Check that every weight of a network is from its files and has the shape of its configuration.

Otherwise, random initial weights would produce meaningless results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from undertow.errors import UndertowError, shorten_list
from undertow.models.loading.check_folder import N_NAMED, folder_tensors, index_files
from undertow.models.loading.resolve_weights import WeightFiles, read_gguf

WRAPPERS = (
    r"^((_orig_mod|module|_forward_module|_fsdp_wrapped_module)\.)+"
    r"|(?<=\.)((_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.)+"
)
"""What torch.compile, DistributedDataParallel, Lightning Fabric, FSDP and checkpointed activations add to names of weights."""
EXPERT = re.compile(r"(?P<stack>.*\bexperts\.)(?P<number>[^.]+)\.(?P<weight>.+)")
"""The name of a weight of one expert."""
HEADS = r"lm_head\."
"""Prefix of the head's weights in a network whose body has no prefix."""


def wrapper_prefix(
    name: str, network: Any, missing: Collection[str], unexpected: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """The prefix that a wrapper added to the names of weights, and patterns that remove it; empty unless they find all weights.

    Raises:
        UndertowError: the files hold the weights more than once.
    """
    holders: dict[str, list[str]] = {}
    for key in unexpected:
        holders.setdefault(re.sub(WRAPPERS, "", key), []).append(key)
    base = f"{network.base_model_prefix}."
    ignored = network._keys_to_ignore_on_load_unexpected or ()  # transformers does not list these as unexpected
    wanted = [
        key
        for key in missing
        if key not in network.all_tied_weights_keys and not any(re.search(one, key) for one in ignored)
    ]
    longest = max(wanted, key=len, default="")
    prefixes = {
        key.removesuffix(one)
        for key in holders
        for one in (longest, longest.removeprefix(base))
        if longest and f".{key}".endswith(f".{one}")
    }
    copies: dict[frozenset[str], str] = {}
    for prefix in sorted(prefixes, key=lambda one: (len(one), one)):
        spelled = [{prefix + key, prefix + key.removeprefix(base)} & holders.keys() for key in wanted]
        if all(spelled):
            read = frozenset(key for one in spelled for spelling in one for key in holders[spelling])
            copies.setdefault(read, prefix)
    if len(copies) > 1 or any(len(read) > len(wanted) for read in copies):
        same = sorted({key for read in copies for key in read if key.endswith(longest.removeprefix(base))})
        raise UndertowError(
            f"{name}: its files hold its weights more than once ({shorten_list(same, N_NAMED)}), and nothing says which are the model's; "
            "save the model again with one of them"
        )
    for prefix in copies.values():
        match = re.search(WRAPPERS, unexpected[0])
        prefixes_read = [one for one in (match[0] if match else "", prefix) if one]
        mapping = {WRAPPERS: "", f"^{re.escape(prefix)}": ""} if prefix else {WRAPPERS: ""}
        return " and ".join(map(repr, prefixes_read)), mapping if prefixes_read else {}
    return "", {}


def body_prefix(network: Any, weights: WeightFiles) -> str:
    """The prefix of the network's body, where all of its files' names have it once too often, as transformers reads silently."""
    prefix, state = f"{network.base_model_prefix}.", network.state_dict()
    names = folder_tensors(weights.folder)
    wrapped = [name for name in names if name not in state and name.removeprefix(prefix) in state]
    return prefix if wrapped and all(name.startswith(prefix) for name in names) else ""


def _check_experts(name: str, weights: WeightFiles) -> None:
    """Refuse experts that are not numbered from 0 on: transformers stacks them in the order of their names, whatever these are."""
    stacks: dict[tuple[str, str], set[str]] = {}
    for match in filter(None, map(EXPERT.fullmatch, folder_tensors(weights.folder))):
        stacks.setdefault((match["stack"], match["weight"]), set()).add(match["number"])
    for (stack, weight), numbers in sorted(stacks.items()):
        wanted = set(map(str, range(len(numbers))))
        if wanted != numbers and any(one[0].isdigit() for one in numbers):
            strange = sorted(numbers - wanted) or sorted(numbers)
            raise UndertowError(
                f"{name}: its files hold {stack}{strange[0]}.{weight}, and its experts are not numbered from 0 to {len(numbers) - 1}, "
                "so nothing says which is which; fetch or save the model again"
            )


def check_complete(  # noqa: PLR0913 - everything that the cause depends on
    name: str,
    weights: WeightFiles,
    network: Any,
    loaded: Mapping[str, Collection[str]],
    *,
    trained_to: str,
    new_head: bool,
) -> None:
    """Refuse a network that did not read all of its weights from the files, or files that hold others; names the likely cause.

    `loaded` has its `missing_keys` and `unexpected_keys`, as `from_pretrained` lists them; `trained_to` says what it is needed for, and
    `new_head` whether a random head is intended.
    """
    _check_experts(name, weights)
    body, unexpected = f"{network.base_model_prefix}.", sorted(loaded["unexpected_keys"])
    missing = sorted(key for key in loaded["missing_keys"] if key.startswith(body) or not new_head)
    if missing:
        n_weights = len(network.state_dict())
        are = "is" if len(missing) == 1 else "are"
        message = f"{name}: {len(missing)} of its {n_weights} weights {are} not in its files ({shorten_list(missing, N_NAMED)})"
        index = weights.folder / "model.safetensors.index.json"
        listed = set(index_files(index)) if index.is_file() else set()
        saved = sorted(path.name for path in weights.folder.glob("*.safetensors"))
        unlisted = next((file for file in saved if listed and file not in listed), "")
        head = HEADS if network.base_model is network else rf"(?!{network.base_model_prefix}\.)"
        if any("lora_" in key for key in unexpected):
            cause = "they are those of a LoRA adapter: name the adapter's own folder (adapter_config.json), which names its base"
        elif unlisted:
            cause = f"model.safetensors.index.json does not list {unlisted}; fetch or save the model again"
        elif len(unexpected) * 2 > n_weights or (unexpected and len(missing) * 2 > n_weights):
            cause = f"they hold {unexpected[0]} instead, so they are of another network than config.json says; put the two right"
        elif all(re.match(head, key) for key in missing):
            cause = f"its head was not saved; name a model that was trained to {trained_to}, and save it with its head"
        else:
            cause = "they are not complete; fetch or save the model again"
        raise UndertowError(f"{message}: {cause}")
    unread = _unread_weights(network, unexpected) + _unread_gguf_tensors(network, weights)
    if unread:
        correct = "" if weights.gguf else "correct config.json, or "
        raise UndertowError(
            f"{name}: its files hold {len(unread)} weights within its network that its configuration has no place for "
            f"({shorten_list(unread, N_NAMED)}), so they are of another network; {correct}fetch the model again"
        )


def _unread_weights(network: Any, unexpected: Sequence[str]) -> list[str]:
    """Weights of the files that belong to the network's layers or modules but are not read.

    Without heads and poolers that the network lacks, and without masks that old versions saved.
    """
    modules = {key: module for key, module in network.named_modules() if key}
    base = f"{network.base_model_prefix}."

    def is_within(key: str) -> bool:
        *owners, leaf = key.split(".")
        # Of an adapter too: q_proj.lora_A.weight.
        outer = (modules.get(".".join(owners[:n])) for n in range(1, len(owners) + 1))
        if any(one is not None and next(one.parameters(recurse=False), None) is not None for one in outer):
            return True
        layer = re.search(r"^(.+?)\.\d+(?=\.)", key)
        return layer is not None and layer[1] in modules and (leaf == "weight" or layer[0] not in modules)

    def spellings(key: str) -> set[str]:
        plain = re.sub(WRAPPERS, "", key)
        return {plain, base + plain, plain.removeprefix(base)}

    return [key for key in unexpected if any(map(is_within, spellings(key)))]


def _unread_gguf_tensors(network: Any, weights: WeightFiles) -> list[str]:
    """Weights of a GGUF file that transformers ignores: unknown names or layers, and biases of a network without biases."""
    if weights.gguf is None:
        return []
    import gguf

    header = read_gguf(weights)
    architecture = header.entries["general.architecture"]
    kinds = {architecture_name: kind for kind, architecture_name in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in kinds:
        return []
    known = {gguf.TENSOR_NAMES[one].format(bid="N", xid="N") for one in gguf.MODEL_TENSORS[kinds[architecture]]}
    endings = ("weight", "bias") if any(key.endswith(".bias") for key in network.state_dict()) else ("weight",)
    n_layers = network.config.get_text_config().num_hidden_layers

    def is_read(key: str) -> bool:
        stem, _, ending = re.sub(r"\.\d+\.", ".N.", key).rpartition(".")
        layer = re.match(r"blk\.(\d+)\.", key)
        return stem in known and ending in endings and (layer is None or int(layer[1]) < n_layers)

    return sorted(one.name for one in header.tensors if not is_read(one.name))


def shape_error(name: str, weights: WeightFiles, kind: Any) -> str:
    """The error for a weight whose shape differs from the configuration."""
    if weights.gguf:
        return f"{name}: its weights have other shapes than its entries say; download it again"
    import torch
    from transformers import AutoConfig

    fix = "correct config.json, or download the model again"
    with torch.device("meta"):
        network = kind.from_config(AutoConfig.from_pretrained(weights.location, **weights.options))
    wanted = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    for key, entry in folder_tensors(weights.folder).items():
        shape = tuple(entry["shape"])
        if wanted.get(key, shape) != shape:
            return f"{name}: {key} has the shape {shape}, and config.json says {wanted[key]}; {fix}"
    return f"{name}: its weights have other shapes than config.json says; {fix}"


def check_tokens(name: str, network: Any, tokenizer: Any, *, from_gguf: bool) -> None:
    """Refuse a tokenizer with tokens that the network has no weights for.

    No text is spelled with special tokens but those that begin and end it and the mask: Gemma 3 has another beyond its embedding,
    and transformers adds some to those of a GGUF file.
    """
    n_embeddings = int(network.get_input_embeddings().weight.shape[0])
    added = tokenizer.added_tokens_decoder.values()
    unused = set(tokenizer.get_added_vocab()) if from_gguf else {str(token) for token in added if token.special}
    used = {token: number for token, number in tokenizer.get_vocab().items() if token not in unused}
    around = [*tokenizer("a b")["input_ids"], tokenizer.bos_token_id, tokenizer.mask_token_id]
    used |= {str(tokenizer.convert_ids_to_tokens(number)): number for number in around if number is not None}
    token, number = max(used.items(), key=itemgetter(1))
    if number >= n_embeddings:
        raise UndertowError(
            f"{name}: its tokenizer has the token {token!r} (number {number:,}), and the network has weights for {n_embeddings:,} tokens; "
            "resize its embedding (resize_token_embeddings), train it, and save both again"
        )


def check_finite(name: str, network: Any) -> None:
    """Refuse weights that are not numbers."""
    for key, tensor in network.state_dict().items():
        # A sum without NaN is that of weights without NaN, and takes no array of truths; an infinite one may hide two that cancel.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and tensor.isnan().any():
            raise UndertowError(
                f"{name}: {key} has values that are not numbers (NaN); use weights from before they arose"
            )
