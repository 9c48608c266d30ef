from __future__ import annotations

import ast
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from helpers import tiny_models as tiny
from helpers.answering import change_json
from helpers.sampled_cases import paired
from undertow import models
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest
from undertow.models.loading import load_network
from undertow.models.loading.resolve_weights import WeightFiles

pytest.importorskip("torch", reason="the model extra is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LLAMA = "causal with a head of its own"
FAMILIES = {
    "causal": "tiny_gpt2", LLAMA: "tiny_llama", "causal with convolutions": "tiny_lfm2",
    "causal with experts": "tiny_mixtral",
    "masked": "small_base", "seq2seq": "small_t5_folder",
    "extractive_qa": "bert_reader", "token_classifier": "labeller",
}  # fmt: skip
Changed = Callable[..., Path]
Tensors = dict[str, Any]
Change = Callable[[Tensors], Tensors]


@pytest.fixture
def folder_of(network: Callable[[str], str]) -> Callable[[str], Path]:
    return lambda family: Path(network(FAMILIES[family]))


@pytest.fixture
def changed(folder_of: Callable[[str], Path], tmp_path: Path) -> Changed:
    """A copy of a family's network: other weights, other entries of its configuration."""

    def copy(family: str, change: Change = dict, **config: Any) -> Path:
        from safetensors.torch import load_file, save_file

        folder = tmp_path / "model"
        shutil.copytree(folder_of(family), folder)
        save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})
        change_json(folder / "config.json", **config)
        return folder

    return copy


def open_model(folder: Path) -> Any:
    return models.resolve(ModelRequest(str(folder))).open()


def refused(folder: Path) -> str:
    with pytest.raises(UndertowError) as caught:
        open_model(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def middle(tensors: Tensors) -> str:
    return sorted(tensors)[len(tensors) // 2]


def inner(tensors: Tensors) -> str:
    """A weight of a layer."""
    return next(one for one in sorted(tensors) if ".0." in one and one.endswith(".weight"))


def renamed(pattern: str, other: str) -> Change:
    return lambda tensors: {re.sub(pattern, other, name): tensor for name, tensor in tensors.items()}


def made(
    tensor: Callable[[Any], Any], name: Callable[[str], str] = str, of: Callable[[Tensors], str] = inner
) -> Change:
    """One of the weights made into another, which takes its place or, by another name, stands beside it."""

    def change(tensors: Tensors) -> Tensors:
        return tensors | {name(of(tensors)): tensor(tensors[of(tensors)])}

    return change


def beside(pattern: str, other: str) -> Change:
    return made(lambda one: one.clone(), lambda name: re.sub(pattern, other, name))


def twice(one: str, other: str) -> tuple[Change, tuple[str, ...]]:
    """All weights behind one prefix, and others behind another."""

    def change(tensors: Tensors) -> Tensors:
        others = {name: tensor + 1 for name, tensor in tensors.items()}
        return renamed("^", one)(tensors) | renamed("^", other)(others)

    return change, ("more than once", one, other)


WITHIN = "hold 1 weights within its network"
FOR_EACH_FAMILY: dict[str, tuple[Change, tuple[str, ...]]] = {
    "another shape": (made(lambda one: one.new_zeros([n + 1 for n in one.shape]), of=middle), ("has the shape",)),
    "an adapter's": (renamed("^(.*)$", r"base_model.model.\1.lora_A.weight"), ("those of a LoRA adapter",)),
}
"""What is wrong with the weights: how it comes, and what is said of it."""
FOR_SOME: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a scale": (made(lambda one: one[:1].clone(), "{}_scale".format), (WITHIN,)),
    "another layer": (beside(r"\.0\.(.*)", r".7.\1"), (WITHIN,)),
    "packed": (made(lambda one: one.char()), ("packed as I8",)),
    "not numbers": (made(lambda one: one * math.nan), ("not numbers",)),
    **{
        ending: (beside("weight$", ending), (ending,))
        for ending in ("lora_A.default.weight", "lora_A.weight", "lora_magnitude_vector")
    },
    "student and teacher": twice("student.", "teacher."),
    "wrapped twice": twice("module.", "_orig_mod."),
}
"""The same of what does not depend on the family."""


@pytest.mark.parametrize(
    ("wrong", "family"), [*itertools.product(FOR_EACH_FAMILY, FAMILIES), *paired(FOR_SOME, FAMILIES)]
)
def test_weights_that_are_not_those_of_the_network_are_refused(wrong: str, family: str, changed: Changed) -> None:
    change, words = (FOR_EACH_FAMILY | FOR_SOME)[wrong]
    said = refused(changed(family, change))
    for word in words:
        assert word in said


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_weight_is_named(family: str, changed: Changed, folder_of: Callable[[str], Path]) -> None:
    from safetensors.torch import load_file

    lost = middle(load_file(folder_of(family) / WEIGHTS))
    said = refused(changed(family, lambda tensors: {name: one for name, one in tensors.items() if name != lost}))
    assert lost in said
    assert "fetch or save the model again" in said


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_another_network_are_called_so(
    family: str, changed: Changed, folder_of: Callable[[str], Path]
) -> None:
    folder = changed(family)
    shutil.copy(folder_of("masked" if family.startswith("causal") else "causal") / WEIGHTS, folder / WEIGHTS)
    assert "of another network than config.json says" in refused(folder)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (r"experts\.1\.", "experts.9."),
        (r"experts\.1\.w2", "experts.1.w2.more"),
        (r"experts\.0\.", "experts.first."),
        (r"^model(?=\.layers\.0\.block_sparse_moe\.experts\.1\.)", "model.model"),
        (r"experts\.3\.", "experts.4."),
    ],
)
def test_experts_in_another_order_are_refused(pattern: str, other: str, changed: Changed) -> None:
    said = refused(changed("causal with experts", renamed(pattern, other)))
    assert re.search("not numbered from 0|are not in its files|other shapes", said)


def test_weights_of_which_some_were_saved_in_a_wrapper_are_refused(changed: Changed) -> None:
    def some(tensors: Tensors) -> Tensors:
        first, second, *others = sorted(tensors)
        more = {f"_orig_mod.{first}": tensors[first], "of_another_network": tensors[second]}
        return {name: tensors[name] for name in others} | more

    said = refused(changed("causal", some))
    assert all(part in said for part in ("2 of its", "attn.c_attn.bias", "attn.c_attn.weight"))


@pytest.mark.parametrize("lost", [None, "bert.encoder.layer.0.output.dense.weight"])
def test_only_the_head_may_be_new_where_a_network_is_trained_further(lost: str | None, changed: Changed) -> None:
    from transformers import AutoModelForTokenClassification

    folder = changed("masked", lambda tensors: {name: one for name, one in tensors.items() if name != lost})
    weights = WeightFiles(str(folder), {}, folder.name, "")
    arguments = (str(folder), weights, AutoModelForTokenClassification, "fill masks")
    if lost is None:
        assert load_network.load_network(*arguments, new_head=True)
    else:
        with pytest.raises(UndertowError, match=lost):
            load_network.load_network(*arguments, new_head=True)


@pytest.mark.parametrize("family", [LLAMA, "masked", "extractive_qa", "token_classifier"])
def test_a_backbone_without_its_head_is_called_so(family: str, changed: Changed) -> None:
    heads = ("lm_head.", "cls.", "qa_outputs.", "classifier.")
    bare = changed(family, lambda tensors: {name: one for name, one in tensors.items() if not name.startswith(heads)})
    assert "its head was not saved" in refused(bare)


@pytest.mark.parametrize(
    ("wrapper", "family"),
    paired(
        ["_orig_mod.", "module.", "module._orig_mod.", "_fsdp_wrapped_module.", "model.", "model.model.", "student."],
        FAMILIES,
    ),
)
def test_weights_that_were_saved_in_a_wrapper_are_read_and_it_is_said(
    family: str, wrapper: str, changed: Changed, folder_of: Callable[[str], Path]
) -> None:
    wrapped = open_model(changed(family, renamed("^", wrapper)))
    assert wrapped.network.weights_digest == open_model(folder_of(family)).network.weights_digest
    assert any(repr(wrapper) in note for note in wrapped.notes)


@pytest.mark.parametrize(
    ("family", "tied"),
    [
        ("causal", "lm_head.weight"),
        ("masked", "cls.predictions.decoder.weight"),
        ("seq2seq", "decoder.embed_tokens.weight"),
    ],
)
@pytest.mark.parametrize("by", [0, 1])
def test_weights_that_are_tied_and_differ_are_read_and_it_is_said(
    family: str, tied: str, by: int, changed: Changed, folder_of: Callable[[str], Path]
) -> None:
    import torch

    embedding = open_model(folder_of(family)).network.get_input_embeddings().weight.detach()
    opened = open_model(changed(family, lambda tensors: tensors | {tied: embedding + by}))
    assert torch.equal(opened.network.state_dict()[tied], embedding + by)
    assert torch.equal(opened.network.get_input_embeddings().weight, embedding)
    assert any(tied in note for note in opened.notes) == bool(by)


@pytest.mark.parametrize(
    "wrapper", ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module._orig_mod."]
)
def test_a_part_that_was_wrapped_is_read_and_it_is_said(
    wrapper: str, changed: Changed, folder_of: Callable[[str], Path]
) -> None:
    opened = open_model(changed(LLAMA, renamed(r"layers\.1\.", f"layers.1.{wrapper}")))
    assert opened.network.weights_digest == open_model(folder_of(LLAMA)).network.weights_digest
    assert any(wrapper in note for note in opened.notes)


def test_a_shard_that_the_index_does_not_list_is_named(changed: Changed) -> None:
    from safetensors.torch import load_file, save_file

    folder = changed(LLAMA)
    tensors = load_file(folder / WEIGHTS)
    first, rest = (dict(list(tensors.items())[half]) for half in (slice(0, 10), slice(10, None)))
    (folder / WEIGHTS).unlink()
    for name, part in (("model-1.safetensors", first), ("model-2.safetensors", rest)):
        save_file(part, folder / name, {"format": "pt"})
    index, of_first = folder / INDEX, dict.fromkeys(first, "model-1.safetensors")
    whole = {"metadata": {}, "weight_map": of_first | dict.fromkeys(rest, "model-2.safetensors")}
    index.write_text(json.dumps(whole), encoding="utf-8")
    open_model(folder)
    change_json(index, weight_map=of_first)
    assert f"{INDEX} does not list model-2.safetensors" in refused(folder)
    cut = (folder / "model-2.safetensors").read_bytes()[:-100]
    index.write_text(json.dumps(whole), encoding="utf-8")
    (folder / "model-2.safetensors").write_bytes(cut)
    assert f"{folder}/model-2.safetensors: is not a safetensors file, or a corrupt one" in refused(folder)
    key = next(iter(first))
    save_file({**rest, key: first[key] + 1}, folder / "model-2.safetensors", {"format": "pt"})
    assert f"model-1.safetensors and model-2.safetensors both hold {key}" in refused(folder)
    save_file(rest, folder / "model-2.safetensors", {"format": "pt"})
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    assert f"holds {WEIGHTS} and {INDEX}, so it is ambiguous" in refused(folder)
    (folder / WEIGHTS).unlink()
    for outside in ("../model/model-2.safetensors", "/etc/passwd", 3):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, outside)}), encoding="utf-8")
        assert "not a file of its own folder" in refused(folder)
    for corrupt in ("[]", "{", '{"weight_map": 3}'):
        index.write_text(corrupt, encoding="utf-8")
        assert "is not an index of weights" in refused(folder)


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "weights.safetensors", "whole/model.safetensors"])
def test_weights_of_another_name_are_not_read(name: str, changed: Changed) -> None:
    folder = changed("causal")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / WEIGHTS).rename(folder / name)
    assert f"holds no {WEIGHTS}" in refused(folder)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1,000,000,000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers 0"),
        ({"num_hidden_layers": "2"}, "Validation error for field 'num_hidden_layers': "),
        ({"hidden_size": 4 * 10**8}, "has the shape"),
        ({"quantization_config": {"quant_method": "mystery"}}, "'mystery'"),
        ({"transformers_weights": "../x.safetensors"}, "'../x.safetensors'"),
        ({"configuration_files": ["config.4.0.0.json"]}, "names other configuration files"),
    ],
)
def test_a_configuration_that_the_files_cannot_be_of_is_refused_before_anything_is_built(
    config: dict[str, Any], said: str, changed: Changed
) -> None:
    assert said in refused(changed(LLAMA, **config))


def test_a_panic_of_the_tokenizer_is_one_sentence(
    folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: Any) -> Any:
        raise panic("no entry found for key")

    monkeypatch.setattr("undertow.models.huggingface.load_tokenizer", fail)
    assert "cannot be loaded (PanicException: no entry found for key)" in refused(folder_of("masked"))


@pytest.mark.parametrize("opening", [10**40, -1, 10**6, "x"])
def test_a_decoder_that_begins_with_no_token_of_its_own_is_refused(opening: object, changed: Changed) -> None:
    assert "decoder_start_token_id" in refused(changed("seq2seq", decoder_start_token_id=opening))


def test_a_folder_without_a_tokenizer_and_one_with_tokens_beyond_the_embedding_are_refused(changed: Changed) -> None:
    from transformers import AutoTokenizer

    folder = changed("causal")
    fill_embedding(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    open_model(folder)
    tokenizer.add_tokens(["<picture>"], special_tokens=True)  # no text is spelled with it
    tokenizer.save_pretrained(folder)
    open_model(folder)
    tokenizer.add_tokens(["<one more>"])
    tokenizer.save_pretrained(folder)
    assert "'<one more>'" in refused(folder)
    tokenizer.add_tokens([f"<new {number}>" for number in range(40)])
    tokenizer.save_pretrained(folder)
    assert "'<new 39>'" in refused(folder)
    (folder / "tokenizer.json").unlink()
    assert "holds no tokenizer" in refused(folder)
    change_json(folder / "tokenizer_config.json", tokenizer_class="ByT5Tokenizer")
    assert "reads bytes or characters (ByT5Tokenizer)" in refused(folder)
    (folder / "tokenizer_config.json").unlink()
    assert "holds no tokenizer" in refused(folder)


@pytest.mark.parametrize(
    ("family", "file", "change", "said"),
    [
        ("masked", "tokenizer_config.json", {"model_max_length": ""}, "cannot be loaded"),
        ("masked", "tokenizer_config.json", {"mask_token": "<new mask>"}, "'<new mask>'"),
        ("masked", "tokenizer_config.json", {"unk_token": ""}, "has no token ''"),
        ("causal", "tokenizer_config.json", {"bos_token": "<new start>"}, "'<new start>'"),
    ],
)
def test_a_setting_that_fails_with_the_first_text_is_refused_on_loading(
    family: str, file: str, change: dict[str, Any], said: str, changed: Changed
) -> None:
    folder = changed(family)
    fill_embedding(folder)
    change_json(folder / file, **change)
    assert said in refused(folder)


def fill_embedding(folder: Path) -> None:
    """Give the tokenizer a token for each row of the embedding."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    n_rows = open_model(folder).network.get_input_embeddings().weight.shape[0]
    tokenizer.add_tokens([f"<fits {number}>" for number in range(n_rows - len(tokenizer))])
    tokenizer.save_pretrained(folder)


@pytest.fixture
def adapter(folder_of: Callable[[str], Path], tmp_path: Path) -> Path:
    peft = pytest.importorskip("peft", reason="the model extra is not installed")
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder_of(LLAMA))
    recipe = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.get_peft_model(base, recipe).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_read_with_its_base(adapter: Path, folder_of: Callable[[str], Path]) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = folder_of(LLAMA)
    opened, alone = open_model(adapter), open_model(base)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter)).eval()
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.allclose(opened.network(tokens).logits, plain(tokens).logits, atol=1e-5)
        assert not torch.allclose(opened.network(tokens).logits, alone.network(tokens).logits, atol=1e-2)
    assert opened.identity.revision != alone.identity.revision
    assert any("adapter" in note for note in opened.notes)


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("adapted", [["lm_head"], ["wte"], ["lm_head", "c_attn"]])
def test_an_adapter_of_a_tied_weight_changes_that_layer_alone(
    adapted: list[str], folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    import torch

    peft = pytest.importorskip("peft", reason="the model extra is not installed")
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder_of("causal"))
    recipe = peft.LoraConfig(r=4, lora_alpha=16, target_modules=adapted, init_lora_weights=False)
    plain = peft.get_peft_model(base, recipe).eval()
    plain.save_pretrained(tmp_path / "adapter")
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        assert torch.allclose(open_model(tmp_path / "adapter").network(tokens).logits, plain(tokens).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"base_model_name_or_path": "./nowhere"}, "its base cannot be loaded"),
        ({"peft_type": "IA3"}, "of the kind IA3"),
        ({"target_modules": ["c_attn"]}, "do not fit its base"),
        ({"modules_to_save": ["lm_head"]}, "do not fit its base"),
        ({"base_model_name_or_path": "x" * 3000}, "File name too long"),
    ],
)
def test_an_adapter_that_cannot_be_read_is_refused(config: dict[str, Any], said: str, adapter: Path) -> None:
    change_json(adapter / "adapter_config.json", **config)
    assert said in refused(adapter)


@pytest.mark.parametrize("base", [{}, {"base_model_name_or_path": None}, {"base_model_name_or_path": ""}])
def test_an_adapter_that_names_no_base_is_refused(base: dict[str, str | None], adapter: Path) -> None:
    path = adapter / "adapter_config.json"
    change_json(path, base_model_name_or_path=None)  # takes the key away
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | base), encoding="utf-8")
    assert "names no base" in refused(adapter)


def test_an_adapter_of_an_adapter_and_one_beside_weights_are_refused(adapter: Path, changed: Changed) -> None:
    path, folder = adapter / "adapter_config.json", changed(LLAMA)
    shutil.copy(path, folder)
    assert "weights of its own" in refused(folder)
    change_json(path, base_model_name_or_path=str(adapter))
    assert "which is an adapter too" in refused(adapter)


def test_an_adapter_that_is_not_complete_is_refused(adapter: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole = load_file(adapter / "adapter_model.safetensors")
    name = sorted(whole)[0]
    save_file({one: tensor for one, tensor in whole.items() if one != name}, adapter / "adapter_model.safetensors")
    assert name in refused(adapter)
    elsewhere = name.replace("layers.0", "layers.7")
    save_file(whole | {elsewhere: whole[name].clone()}, adapter / "adapter_model.safetensors")
    assert elsewhere in refused(adapter)
    save_file({key: one.char() for key, one in whole.items()}, adapter / "adapter_model.safetensors")
    assert "packed as I8" in refused(adapter)
    (adapter / "adapter_model.safetensors").unlink()
    assert "holds no adapter_model.safetensors" in refused(adapter)


def test_no_other_module_loads_a_network() -> None:
    package = Path(models.__file__).parent.parent
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in package.rglob("*.py")]
    loaded_by = {
        (name, ast.unparse(node.value))
        for name, source in sources
        if "from_pretrained" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr == "from_pretrained"
    }
    assert {name for name, what in loaded_by if what not in {"AutoTokenizer", "AutoConfig"}} == {"load_network.py"}


def test_another_value_is_another_fingerprint(changed: Changed, folder_of: Callable[[str], Path]) -> None:
    other = open_model(changed("causal", lambda tensors: tensors | {middle(tensors): tensors[middle(tensors)] + 1}))
    assert other.network.weights_digest != open_model(folder_of("causal")).network.weights_digest


def test_two_loads_that_differ_end_the_run(
    folder_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"w": "date", "date_count": 6, "out": tmp_path / "run"}
    undertow.audit("spurious-correlation", str(folder_of("causal")), **asked, limit=36)
    honest = load_network.fingerprint
    monkeypatch.setattr("undertow.models.huggingface.fingerprint", lambda network: honest(network)[:-1] + "x")
    with pytest.raises(UndertowError, match="its weights differ from an earlier load of the same files"):
        undertow.audit("spurious-correlation", str(folder_of("causal")), **asked, overwrite=True, limit=72)
    monkeypatch.setattr("undertow.models.huggingface.fingerprint", lambda network: "transformers 99: 0")
    undertow.audit("spurious-correlation", str(folder_of("causal")), **asked, overwrite=True, limit=72)


@pytest.fixture
def gguf_of(folder_of: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A Llama with its tokenizer as a GGUF file, its tensors changed."""
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def write(change: Change = dict) -> Path:
        network = AutoModelForCausalLM.from_pretrained(folder_of(LLAMA))
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, network.config.num_hidden_layers)
        tensors = change(
            {
                names.get_name(one, try_suffixes=(".weight",)): tensor.detach().numpy()
                for one, tensor in network.state_dict().items()
            }
        )
        options = {"n_layers": tensors.pop("layers", 2), "rope": tensors.pop("rope", None)}
        tokenizer = AutoTokenizer.from_pretrained(folder_of(LLAMA))
        tiny.write_gguf(tmp_path / "m.gguf", tensors, tokenizer, n_rows=network.config.vocab_size, **options)
        return tmp_path / "m.gguf"

    return write


@pytest.mark.parametrize("moved", ["output_norm.weight", "blk.0.ffn_up.weight"])
@pytest.mark.parametrize("place", [0, 32, -32])
def test_tensors_that_share_numbers_or_leave_some_are_refused(
    moved: str, place: int, gguf_of: Callable[..., Path]
) -> None:
    path = gguf_of()
    content = path.read_bytes()
    at = content.index(moved.encode()) + len(moved)
    at += 4 + 8 * int.from_bytes(content[at : at + 4], "little") + 4
    offset = int.from_bytes(content[at : at + 8], "little")
    path.write_bytes(content[:at] + (place and offset + place).to_bytes(8, "little") + content[at + 8 :])
    assert re.search(f"share numbers|the end of {moved}", refused(path))
    one_less = (int.from_bytes(content[8:16], "little") - 1).to_bytes(8, "little")
    path.write_bytes(content[:8] + one_less + content[16:])
    assert "bytes follow its last tensor" in refused(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict, ""),
        (lambda tensors: {one: tensor for one, tensor in tensors.items() if one != "output.weight"}, ""),  # tied
        (renamed("^output.weight", "outpux.weight"), "(outpux.weight)"),
        (renamed("blk.1.attn_([qk])", r"bxk.1.attn_\1"), "2 of its 21 weights"),
        (renamed("^", "model."), "21 of its 21 weights"),
        (lambda tensors: tensors | renamed(".1.", ".2.")(tensors), "9 weights within its network"),
        (lambda tensors: tensors | {"blk.0.attn_q.bias": tensors["output_norm.weight"]}, "(blk.0.attn_q.bias)"),
        (lambda tensors: tensors | {"output_norm.weight": tensors["output_norm.weight"][1:]}, "other shapes"),
        (lambda tensors: tensors | {"layers": 10**9}, "1,000,000,000 layers"),
        (
            lambda tensors: tensors | {"rope_freqs.weight": tensors["output_norm.weight"]},
            "rope_freqs.weight does not fit",
        ),
        (lambda tensors: tensors | {"rope": ("yarn", 4.0)}, "scales its positions (yarn)"),
    ],
)
def test_a_gguf_file_whose_tensors_are_not_those_of_its_network_is_refused(
    change: Change, said: str, gguf_of: Callable[..., Path]
) -> None:
    path = gguf_of(change)
    if said:
        assert said in refused(path)
    else:
        assert open_model(path).network.weights_digest


LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("scaling", [{"rope_type": "linear", "factor": 4.0}, {"rope_type": "llama3", **LLAMA_3}])
def test_positions_are_scaled_as_a_gguf_file_says(
    scaling: dict[str, Any], folder_of: Callable[[str], Path], gguf_of: Callable[..., Path]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(folder_of(LLAMA))
    plain.config.rope_parameters = {**plain.config.rope_parameters, **scaling}
    scaled = LlamaForCausalLM(plain.config).eval()
    scaled.load_state_dict(plain.state_dict())
    factors = (plain.model.rotary_emb.inv_freq / scaled.model.rotary_emb.inv_freq).numpy()
    tensors = {"rope": ("linear", 4.0)} if scaling["rope_type"] == "linear" else {"rope_freqs.weight": factors}
    read, tokens = open_model(gguf_of(lambda whole: whole | tensors)).network, torch.arange(20, 40)[None]
    with torch.no_grad():
        assert torch.allclose(scaled(tokens).logits, plain(tokens).logits, atol=1e-2) is False
        inv_freq = read.model.rotary_emb.inv_freq
        assert torch.allclose(inv_freq, scaled.model.rotary_emb.inv_freq, rtol=1e-6)
