from __future__ import annotations

import copy
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from helpers import tiny_models as tiny
from helpers.file_refusal import assert_refused
from undertow.data.in_memory import save_challenge, save_lists
from undertow.errors import UndertowError
from undertow.models.registry import in_dtype, resolve_network
from undertow.runs.pipeline import dry_run

pytestmark = pytest.mark.usefixtures("in_folder")
CHALLENGE: dict[str, Any] = {
    "templates": [{"text": "In {w}, {blank} was a child.", "factors": {"decided": False}}, "In {w}, {blank} ran."],
    "w": {"year": {"values": ["1801", "1850", "1900", "1953"]}},
    "groups": {"f": ["she"], "m": ["he"]},
}


@pytest.mark.parametrize(
    ("builder", "head", "dropout"),
    [
        ("tiny_llama", "CausalLM", {"attention_dropout": 0.1}),
        ("trained_bert", "MaskedLM", {"hidden_dropout_prob": 0.1}),
        ("trained_t5", "Seq2SeqLM", {"dropout_rate": 0.1}),
    ],
)
def test_a_network_in_memory_is_audited_as_its_folder_and_left_as_it_was(
    builder: str, head: str, dropout: dict[str, float], network: Callable[[str], str], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    import transformers

    folder = network(builder)
    mine = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, **dropout).train()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options: Any = {"challenge": CHALLENGE, "w": "year"}
    loss = sum(parameter.square().sum() for parameter in mine.parameters())
    loss.backward()
    before = {name: (one.clone(), one.grad.clone()) for name, one in mine.named_parameters()}
    attention, state = mine.config._attn_implementation, torch.get_rng_state()
    audit = "spurious-correlation"
    run = undertow.audit(audit, model=mine, tokenizer=tokenizer, model_name="mine", out=tmp_path / "mine", **options)
    by_name = undertow.audit(audit, model=folder, device="cpu", out=tmp_path / "named", **options)
    shared = ["measure", "pronoun", "value", "low", "high", "n"]
    pd.testing.assert_frame_equal(run.results[shared], by_name.results[shared], rtol=1e-4, atol=1e-4)
    assert run.results["value"].notna().any()
    assert (run.manifest["model"], run.manifest["command"]) == ("mine", "")
    assert run.manifest["python"].startswith(
        f"undertow.audit({audit!r}, model=network, tokenizer=tokenizer, model_name='mine'"
    )
    assert run.manifest["model_identity"]["source"] == "in memory"
    for name, one in mine.named_parameters():
        assert torch.equal(one, before[name][0])
        assert torch.equal(one.grad, before[name][1])
    assert all(module.training for module in mine.modules())
    assert mine.config._attn_implementation == attention
    assert torch.equal(torch.get_rng_state(), state)
    mine(**{name: torch.ones(1, 3, dtype=torch.int64) for name in ("input_ids", "labels")}).loss.backward()


@pytest.mark.page
def test_weights_in_reduced_precision_are_scored_again_in_float32(
    network: Callable[[str], str], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    import torch

    folder = network("tiny_llama")
    mine = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    run = undertow.audit("spurious-correlation", model=mine, tokenizer=tokenizer, challenge=CHALLENGE, w="year")
    assert run.manifest["model_identity"]["dtype"] == "bfloat16"
    assert run.manifest["model"] == f"{folder} (in memory)"
    assert run.manifest["precision"]["models"][0]["items"] > 0
    assert mine.dtype == torch.bfloat16
    page = run.report.read_text(encoding="utf-8")
    assert "<h2>Reproduce</h2>" in page
    assert "model=network, tokenizer=tokenizer" in page
    estimate = dry_run("spurious-correlation", mine, tokenizer=tokenizer, challenge=CHALLENGE, w="year")
    assert estimate.n_stored == estimate.n_distinct


def test_what_a_network_in_memory_decides_is_refused(network: Callable[[str], str]) -> None:
    transformers = pytest.importorskip("transformers", reason="the model extra is not installed")
    folder = network("tiny_llama")
    mine = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    audit = "spurious-correlation"
    assert_refused(("needs its tokenizer; give it as tokenizer=",), undertow.audit, audit, model=mine)
    with pytest.raises(UndertowError, match="dtype 'bfloat16' is for a model by name"):
        undertow.audit(audit, model=mine, tokenizer=tokenizer, dtype="bfloat16")
    with pytest.raises(UndertowError, match="mode 'NLU' is for a model by name"):
        undertow.audit(audit, model=mine, tokenizer=tokenizer, mode="NLU")
    assert_refused(("for a network in memory; remove them",), undertow.audit, audit, model="toy", tokenizer=tokenizer)
    assert_refused(("guard", type(mine).__name__), undertow.guard, mine)
    given: Any = {"model": mine, "challenge": CHALLENGE, "w": "year"}
    longer = copy.deepcopy(tokenizer)
    longer.add_tokens([f"token{at}" for at in range(mine.config.vocab_size)])
    assert_refused(("its tokenizer has the token 'token",), undertow.audit, audit, tokenizer=longer, **given)
    mine.model.norm.weight.data[0] = math.nan
    assert_refused(("model.norm.weight", "NaN"), undertow.audit, audit, tokenizer=tokenizer, **given)


def test_a_challenge_is_a_dict_or_a_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'templates = [{text = "In {w}, {blank} was a child.", factors = {decided = false}}, "In {w}, {blank} ran."]\n'
        'w.year.values = ["1801", "1850", "1900", "1953"]\ngroups = {f = ["she"], m = ["he"]}\n',
        encoding="utf-8",
    )
    options: Any = {"model": "toy:slope=2", "w": "year"}
    given: list[Any] = [file, CHALLENGE, tmp_path / "mine.csv"]
    by_file, by_dict = (
        undertow.audit("spurious-correlation", challenge=one, out=tmp_path / str(at), **options)
        for at, one in enumerate(given[:2])
    )
    pd.testing.assert_frame_equal(
        by_file.results.drop(columns="challenge"), by_dict.results.drop(columns="challenge"), check_exact=True
    )
    sentences = pd.DataFrame(
        {"sentence": ["[MASK] saw the nurse.", "The nurse said that [MASK] ran."], "well_specified": [True, False], "gold": ["f", None]}
    )  # fmt: skip
    sentences.to_csv(tmp_path / "mine.csv", index=False)
    asked: Any = {"model": "toy", "options": "f: she; m: he", "w": "date", "date_count": 4}
    runs = [
        undertow.audit("task-specification", challenge=one, out=tmp_path / f"table-{at}", **asked)
        for at, one in enumerate([given[2], sentences])
    ]
    assert list(runs[0].observations["text"]) == list(runs[1].observations["text"])
    assert list(runs[0].results["value"].dropna()) == list(runs[1].results["value"].dropna())


def test_a_saved_challenge_holds_what_was_given() -> None:
    given = {"título": 'a "quote", \\ and \x7f', "n": [1, 2.5, True], "inner": {"a b": {"c": ["😀\n"]}}}
    path = save_challenge(given)
    assert tomllib.loads(path.read_text(encoding="utf-8")) == given
    assert save_challenge(given) == path
    assert len(list(path.parent.iterdir())) == 1
    table = pd.DataFrame({"sentence": ["a", "b"], "coreferent": [1, None]})
    assert save_challenge(table).read_text(encoding="utf-8") == "sentence,coreferent\na,1\nb,\n"
    for value, says in (
        (pd.Timestamp(0), "write a text"),
        (math.nan, "inner.n is nan"),
        ("a \ud800", "lone surrogate"),
    ):
        assert_refused(("challenge", says), save_challenge, {"inner": {"n": value}})
    halved = pd.DataFrame({"sentence": ["a \ud800"]}, dtype=object)
    assert_refused(("challenge", "lone surrogate"), save_challenge, halved)


def test_values_of_w_are_given_as_a_dict_of_lists(tmp_path: Path) -> None:
    given: Any = {"year": [1900, "1950", 2000], "day": ["Monday", "Friday, late", "Sunday"]}
    run = undertow.audit("spurious-correlation", model="toy", w=given, limit=12, out=tmp_path / "run")
    asked = run.observations.groupby("w_name", sort=False)["w"].unique()
    assert {name: sorted(values) for name, values in asked.items()} == {
        "year": ["1900", "1950", "2000"], "day": ["Friday, late", "Monday", "Sunday"],
    }  # fmt: skip
    again = undertow.audit("spurious-correlation", model="toy", w=given, limit=12, out=tmp_path / "again")
    assert again.manifest["counts"]["computed"] == 0
    refused: list[tuple[Any, str]] = [
        ({"../x": ["a"]}, "cannot name a list"), ({5: ["a"]}, "cannot name a list"), ({"x": ["a", "b\nc"]}, "one line"),
        ({"x": "abc"}, "a list of values"), ({"x": {"a", "b"}}, "a list of values"), ({}, "is empty"),
    ]  # fmt: skip
    for wrong, says in refused:
        assert_refused((says,), save_lists, wrong)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT calls what transformers deprecates
def test_what_changes_answers_changes_the_identity(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="PEFT is not installed")

    mine, tokenizer = tiny.tiny_llama(), tiny.tiny_tokenizer(tmp_path)
    mine.config.name_or_path = "one"

    def key(network: Any = mine) -> str:
        return resolve_network(network, tokenizer, "mine").identity.revision

    plain = key()
    mine.config.name_or_path = "another"
    assert key() == plain
    mine.config.rms_norm_eps *= 2
    keys = [plain, key()]
    tokenizer.padding_side = "left" if tokenizer.padding_side == "right" else "right"
    keys.append(key())
    adapted = peft.get_peft_model(mine, peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False))
    keys.append(key(adapted))
    with adapted.disable_adapter():
        keys.append(key(adapted))
    assert key(adapted) == keys[3]
    for module in adapted.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.scaling["default"] *= 2
    keys.append(key(adapted))
    assert len(set(keys)) == 6
    prompts = peft.get_peft_model(
        tiny.tiny_llama(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    )
    assert_refused(("its adapter is a learned prompt",), resolve_network, prompts, tokenizer)


def test_a_network_that_cannot_be_copied_has_no_float32_check() -> None:
    class Quantized:
        dtype = "torch.float16"

        def to(self, _: Any) -> Any:
            raise ValueError("`.to` is not supported for 4-bit models")

    pytest.importorskip("torch", reason="the model extra is not installed")
    assert_refused(("cannot be copied to float32 (`.to` is not supported",), in_dtype, Quantized(), "float32")
