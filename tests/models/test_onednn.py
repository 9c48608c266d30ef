from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from transformers import AutoModelForCausalLM

from helpers.tiny_models import network as network_of
from helpers.tiny_models import tiny_llama
from undertow.models.backend import onednn

TOLERANCE = 1e-4
pytestmark = pytest.mark.skipif(not onednn.can_pack(torch.float32), reason="this build of torch has no oneDNN")
WIDE = {"hidden_size": 128, "intermediate_size": 256}
T5 = {"d_model": 128, "d_ff": 256, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
llama = partial(tiny_llama, **WIDE, num_key_value_heads=4)
BUILDERS = {
    "llama": llama,
    "tied": partial(llama, tie_word_embeddings=True),
    "gpt2": partial(network_of, "GPT2", "LMHeadModel", hidden_size=128, n_positions=64),
    "bert": partial(network_of, "Bert", "ForMaskedLM", **WIDE),
    "t5": partial(network_of, "T5", "ForConditionalGeneration", **T5),
}


def logits(network: Any) -> torch.Tensor:
    tokens = torch.arange(10, 28).reshape(2, 9)
    more = {"decoder_input_ids": tokens[:, :4]} if network.config.is_encoder_decoder else {}
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=tokens, **more).logits
    return found


@pytest.mark.parametrize("name", BUILDERS)
def test_packed_numbers_are_those_of_the_network_and_can_be_undone(name: str) -> None:
    torch.manual_seed(0)
    network = BUILDERS[name]().eval()
    n_parameters, size = network.num_parameters(), onednn.weight_bytes(network)
    expected = logits(network)
    restore = onednn.accelerate(network)
    assert sum(parameter.is_mkldnn for parameter in network.parameters()) >= 8
    assert (logits(network) - expected).abs().max() < TOLERANCE
    assert (network.num_parameters(), onednn.weight_bytes(network)) == (n_parameters, size)
    restore()
    assert torch.equal(logits(network), expected)
    assert onednn.weight_bytes(network) == size


def test_a_layer_adds_the_bias_that_it_has_and_goes_with_its_network() -> None:
    network = BUILDERS["gpt2"]().eval()
    onednn.accelerate(network)
    layer, rows = network.transformer.h[0].mlp.c_fc, torch.ones(1, 128)
    before = layer(rows)
    layer.bias = torch.nn.Parameter(layer.bias + 1)
    assert torch.allclose(layer(rows), before + 1)
    weight = ref(layer.weight)
    del network, layer
    assert weight() is None


def test_weights_that_were_mapped_from_a_file_leave_it(tmp_path: Path) -> None:
    """One embedding that still lies in the file would keep all of it in memory."""
    llama().save_pretrained(tmp_path)
    network = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    expected = logits(network)
    onednn.accelerated(network, lambda _: None)
    held = sum(parameter.untyped_storage().nbytes() for parameter in network.parameters() if not parameter.is_mkldnn)
    assert held == sum(parameter.nbytes for parameter in network.parameters() if not parameter.is_mkldnn)
    assert (logits(network) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", ["tied", "bert"])
def test_such_a_head_is_multiplied_with_in_blocks_of_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "COLUMNS_AT_ONCE", 100)  # of 320
    network = BUILDERS[name]().eval()
    expected = logits(network)
    restore = onednn.accelerate(network)
    widths = []
    plain = torch.nn.functional.linear

    def watched(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        widths.append(len(weight))
        return plain(rows, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    assert (logits(network) - expected).abs().max() < TOLERANCE
    assert widths[-4:] == [100, 100, 100, 20]
    restore()
    assert torch.equal(logits(network), expected)


def test_bfloat16_is_packed_where_the_processor_has_instructions_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    network = llama().eval().to(torch.bfloat16)
    expected = logits(network).float()
    restore = onednn.accelerate(network)
    packed = [parameter.is_mkldnn for parameter in network.parameters()]
    assert any(packed) == torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert (logits(network).float() - expected).abs().max() < 0.05
    restore()
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    onednn.accelerate(network)
    assert not any(parameter.is_mkldnn for parameter in network.parameters())


def test_a_network_that_looks_at_its_weights_itself_is_unpacked() -> None:
    """Some multiply with a weight by their own code, which knows no packed one."""
    network = llama().eval()
    expected = logits(network)

    def wrap(network: Any) -> str:
        torch.nn.functional.linear(torch.ones(1, 128), network.model.layers[0].mlp.gate_proj.weight)
        return "wrapped"

    assert onednn.accelerated(network, wrap) == "wrapped"
    assert torch.equal(logits(network), expected)
