"""On a GPU every family gives the numbers that it gives on the processor; `make gpu` runs this and the goldens there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers.answering import alike, answers, blank, opened
from helpers.planted_lives import LABELS, lives
from undertow import models
from undertow.inference import doctor
from undertow.lab.training.finetune import finetune
from undertow.lab.training.training_config import FinetuneConfig
from undertow.models.backend.dtype import BFLOAT16, CUDA, free_bytes
from undertow.models.backend.execution import AGREEMENT_NATS
from undertow.models.base import ModelRequest
from undertow.models.families import causal, extractive_qa, masked, seq2seq, token_classifier
from undertow.runs.folder.provenance import circumstances
from undertow.types import (
    BEST_SPAN,
    EXACT,
    PAPER,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    ConstrainedGenerateQuery,
    ContinuationQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Option,
    Query,
    SpanQuery,
)

torch = pytest.importorskip("torch", reason="the model extra is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU here; where there is one, `make gpu` runs these", allow_module_level=True)

PASSAGE = "The cats of the house sat by the sea, and she said no to him."
FEMALE_MALE = (Option("female", ("she",)), Option("male", ("he",)))
BLANKS: list[Query] = [
    replace(blank(f"In {year}, ", f" was {who}."), options=FEMALE_MALE)
    for year in range(1900, 1950)
    for who in ("a child", "an adult")
]
CONTINUATION = ContinuationQuery("In 1801,", (" he was a child.", " she was a child.", " they were."))
CHOICES: list[Query] = [
    MultipleChoiceQuery(f"{PASSAGE}\nIt is about", (" sea", " cats", " cats of the sea"), shots=shots)
    for shots in ((), (f"{PASSAGE}\n",))
]
WRITTEN: list[Query] = [
    *(ConstrainedGenerateQuery("Said:", PASSAGE, how) for how in (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)),
    ConstrainedGenerateQuery("Said:", PASSAGE, PASSAGE_TOKENS, temperature=0.7, top_k=5, seed=3),
]
PROMPTS: list[Query] = [
    GenerateQuery(f"In {year}, who was a child?", FEMALE_MALE, max_tokens=8) for year in (1900, 1901, 1950)
]
QUESTION = SpanQuery("Mary met James. Susan has skills in cooking.", "Who met James?", ("Mary", "Susan"))
PROMPTED = [*CHOICES, *WRITTEN, *PROMPTS]
CASES: dict[str, tuple[Any, Sequence[Query]]] = {
    "roomy_llama": (causal, [*BLANKS, CONTINUATION, *PROMPTED]),
    "tiny_gemma2": (causal, [*BLANKS, CONTINUATION]),
    "tiny_gpt_neo": (causal, [*BLANKS, *PROMPTED]),
    "tiny_bloom": (causal, [*BLANKS, *PROMPTED]),
    "trained_bert": (masked, BLANKS),
    "trained_roberta": (masked, BLANKS),
    "trained_t5": (seq2seq, [*BLANKS, *PROMPTED]),
    "trained_bart": (seq2seq, [*BLANKS, *PROMPTED]),
    "labeller": (token_classifier, BLANKS),
    "bert_reader": (extractive_qa, [QUESTION]),
}

Network = Callable[[str], str]


@pytest.mark.parametrize("builder", CASES)
def test_a_family_gives_the_numbers_of_the_processor(builder: str, network: Network, tmp_path: Path) -> None:
    family, queries = CASES[builder]
    on_gpu, on_cpu = (opened(family, network(builder), device=device) for device in (CUDA, "cpu"))
    assert (on_gpu.network.device.type, on_cpu.network.device.type) == (CUDA, "cpu")
    assert on_gpu.identity == on_cpu.identity
    for some, protocol in [(queries, EXACT), ([query for query in queries if query in PROMPTS], PAPER)]:
        store = tmp_path / protocol
        given = [
            answers(model, some, store.with_suffix(f".{at}"), protocol) for at, model in enumerate((on_gpu, on_cpu))
        ]
        alike(given[0], given[1])


@pytest.mark.model
def test_the_default_model_has_its_golden_values(smollm2: Any, tmp_path: Path) -> None:
    on_gpu = models.resolve(ModelRequest("smollm2", device=CUDA)).open()
    queries = [*BLANKS, CONTINUATION, *PROMPTED]
    given = answers(on_gpu, queries, tmp_path / "gpu")
    assert given[len(BLANKS)].logprobs_nats[:2] == pytest.approx((-21.9001, -18.8021), abs=2e-3)
    alike(given, answers(smollm2, queries, tmp_path / "cpu"), 2e-3)


@pytest.mark.parametrize("builder", ["roomy_llama", "trained_bert", "trained_t5"])
def test_the_best_precision_of_a_gpu_is_chosen_and_its_numbers_are_near(
    builder: str, network: Network, tmp_path: Path
) -> None:
    found = models.resolve(ModelRequest(network(builder), dtype="auto"))
    assert found.identity.dtype == (BFLOAT16 if torch.cuda.is_bf16_supported(including_emulation=False) else "float32")
    reduced, exact = found.open(), opened(CASES[builder][0], network(builder))
    assert reduced.network.device.type == CUDA
    pairs = zip(*(answers(one, BLANKS, tmp_path / one.identity.dtype) for one in (reduced, exact)), strict=True)
    gaps = [np.abs(np.subtract(one.logprobs_nats, other.logprobs_nats)).max() for one, other in pairs]
    assert max(gaps) <= AGREEMENT_NATS[BFLOAT16]


def test_a_pack_that_has_no_room_is_read_in_halves(tmp_path: Path) -> None:
    """A vocabulary of 200,000 tokens: the logits of a pack take more than the GPU has left."""
    from helpers.tiny_models import saved, tiny_llama

    folder = saved(tmp_path / "wide", tiny_llama(vocab_size=200_000, max_position_embeddings=512))
    model = opened(causal, folder, device=CUDA)
    given = answers(model, BLANKS, tmp_path / "all")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    whole = torch.cuda.get_device_properties(0).total_memory
    taken = torch.cuda.memory_reserved()
    answers(model, BLANKS, tmp_path / "peak")
    needed = torch.cuda.max_memory_reserved() - taken
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((taken + 0.6 * needed) / whole)
    try:
        alike(answers(model, BLANKS, tmp_path / "halves"), given)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_network_in_memory_is_read_where_it_is(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    folder = network("trained_bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tables = []
    for device in (CUDA, "cpu"):
        monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / f"cache-{device}"))
        inside = transformers.AutoModelForMaskedLM.from_pretrained(folder).to(device)
        settings: dict[str, Any] = {"w": {"year": list(range(1900, 1960, 10))}, "tokenizer": tokenizer, "limit": 60}
        made = undertow.audit("spurious-correlation", inside, out=tmp_path / device, **settings)
        assert inside.device.type == device
        tables.append(made.results["value"].to_numpy())
    assert tables[0] == pytest.approx(tables[1], abs=1e-4, nan_ok=True)


class StopError(Exception):
    """What ends a training."""


def _stop_at_7(done: int, total: int, loss: float) -> None:
    if done == 7:
        raise StopError


@pytest.mark.parametrize("fused", [False, True])
def test_a_training_goes_on_from_its_checkpoint(network: Network, tmp_path: Path, fused: bool) -> None:
    """Near to what it would have been: a GPU adds in another order each time."""
    config = FinetuneConfig(
        LABELS, max_steps=9, batch_size=16, save_steps=4, learning_rate=3e-3, held_out=0.1, device=CUDA, fused=fused
    )
    base, texts = Path(network("small_base")), lives(200, in_front=True)
    whole = finetune(base, texts, config, tmp_path / "whole")
    with pytest.raises(StopError):
        finetune(base, texts, config, tmp_path / "cut", _stop_at_7)
    cut = finetune(base, texts, config, tmp_path / "cut")
    assert (whole.resumed_at, cut.resumed_at) == (0, 4)
    assert cut.training.loss_nats == pytest.approx(whole.training.loss_nats, abs=1e-3)


def test_a_gpu_is_named(network: Network) -> None:
    name = torch.cuda.get_device_name()
    opened(masked, network("trained_bert"), device=CUDA)
    assert doctor.machine(CUDA).endswith(f" and {name}")
    assert circumstances("auto")["machine"]["gpu"] == name
    free = free_bytes(CUDA, CUDA)
    assert 0 < (free or 0) <= torch.cuda.get_device_properties(0).total_memory
