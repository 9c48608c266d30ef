from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import answers, blank, change_json, found_as
from undertow import data
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import estimate
from undertow.models import resolve
from undertow.models.base import BatchLimits, EncodedQuery, ModelRequest, UnsupportedQueryError
from undertow.models.families import causal
from undertow.types import EXACT, ClozeQuery, ContinuationQuery, Option, ScoredQuery

torch = pytest.importorskip("torch", reason="the model extra is not installed")
TOLERANCE_NATS = 2e-3

QUERIES: list[ScoredQuery] = [
    ContinuationQuery("In 1801,", (" he was a child.", " she was a child.", " they was a child.")),
    ClozeQuery(("In 1801, ", " was a child."), (Option("f", ("she",)), Option("m", ("he",)))),
    ClozeQuery(
        ("In 1801, ", " was grown up and lost ", " keys."), (Option("f", ("she", "her")), Option("m", ("he", "his")))
    ),
    ClozeQuery(("", " was a child in 1801."), (Option("f", ("She",)), Option("m", ("He",)))),
    ContinuationQuery("The capital of Iceland is", (" Reykjavik", " Oslo, they said.")),
]


def one_at_a_time(model: Any, query: ScoredQuery) -> list[float]:
    """Log-likelihood of each option by the plainest means: one text, one forward, full logits."""
    if isinstance(query, ClozeQuery):
        context, texts = query.pieces[0].rstrip(), [query.text(option.fills) for option in query.options]
    else:
        context, texts = query.context, [query.context + more for more in query.continuations]
    values = []
    for text in texts:
        start, tokens = (model.tokenizer(part)["input_ids"] for part in (context, text))
        if not start:
            start, tokens = [model.tokenizer.bos_token_id], [model.tokenizer.bos_token_id, *tokens]
        with torch.inference_mode():
            logprobs = model.network(torch.tensor([tokens])).logits[0].double().log_softmax(-1)
        values.append(sum(float(logprobs[at - 1, tokens[at]]) for at in range(len(start), len(tokens))))
    return values


@pytest.mark.model
def test_the_default_model_has_its_golden_values_and_reads_alike_in_every_way(smollm2: Any, tmp_path: Path) -> None:
    expected = [one_at_a_time(smollm2, query) for query in QUERIES]
    assert expected[0] == pytest.approx((-21.9001, -18.8021, -26.6075), abs=TOLERANCE_NATS)
    limits = smollm2.limits
    assert limits.tree_depth > 1000
    try:
        ways = {"tree": limits, "small trees": BatchLimits(20, 1000), "batches": BatchLimits(400, 0)}
        for name, other in ways.items():
            smollm2.limits = other
            for answer, values in zip(answers(smollm2, QUERIES, tmp_path / name), expected, strict=True):
                assert answer.logprobs_nats == pytest.approx(values, abs=TOLERANCE_NATS), name
    finally:
        smollm2.limits = limits


Network = Callable[[str], str]
opened = partial(answering.opened, causal)


@pytest.mark.parametrize(
    ("builder", "reads_trees"),
    [
        *((name, True) for name in ("tiny_llama", "tiny_gpt2", "tiny_gemma2")),
        *((name, False) for name in ("tiny_bloom", "tiny_mamba", "tiny_lfm2", "tiny_gpt_neo", "tiny_gpt_neo_short")),
    ],
)
def test_every_architecture_reads_as_one_text_at_a_time(
    builder: str, reads_trees: bool, network: Network, tmp_path: Path
) -> None:
    model = opened(network(builder))
    assert (model.limits.tree_depth > 0) == reads_trees, model.notes
    if builder == "tiny_gemma2":  # texts longer than its sliding window are no trees
        assert model.limits.tree_depth == 8
        assert not model.head_apart  # softcapping after the head was noticed
    if not reads_trees:
        assert any("read in plain batches" in note for note in model.notes)
    with AnswerCache(tmp_path / "dry") as store:
        estimated = estimate(found_as(model), QUERIES, store, EXACT)
    assert min(estimated.memory_bytes, estimated.n_tokens) > 0
    # Enough texts for packs as wide as they come.
    queries = [*QUERIES, *(item.query for item in data.load("mgc").items()[:60] if isinstance(item.query, ClozeQuery))]
    found = answers(model, queries, tmp_path / "s")
    for query, answer in list(zip(queries, found, strict=True))[::4]:
        assert answer.logprobs_nats == pytest.approx(one_at_a_time(model, query), abs=TOLERANCE_NATS)


def test_a_cap_below_the_tolerance_of_a_reduced_precision_is_noticed(network: Network, tmp_path: Path) -> None:
    """Which the networks of Gemma 2 have: their head alone would give other numbers."""
    folder = shutil.copytree(network("tiny_gemma2"), tmp_path / "m")
    change_json(folder / "config.json", final_logit_softcapping=30.0)
    model = opened(str(folder), "bfloat16")
    assert not model.head_apart
    assert opened(network("tiny_llama"), "bfloat16").head_apart


def test_other_prob_mass_is_what_the_first_tokens_leave(network: Network, tmp_path: Path) -> None:
    model = opened(network("tiny_llama"))
    query = blank("In 1953, ", " was a child.", "she", "he", "they")
    (answer,) = answers(model, [query], tmp_path / "s")
    firsts = [model.tokenizer(f" {word}")["input_ids"][0] for word in ("she", "he", "they")]
    with torch.inference_mode():
        probs = model.network(torch.tensor([model.tokenizer("In 1953,")["input_ids"]])).logits[0, -1].softmax(-1)
    assert answer.other_prob == pytest.approx(1 - float(probs[sorted(set(firsts))].sum()), abs=1e-4)


def test_a_token_that_spans_the_end_of_the_context_is_read_whole(network: Network) -> None:
    model = opened(network("tiny_llama"))
    query = ContinuationQuery("In 1953, sh", ("e was", "f was"))
    (encoded,) = model.encode([query])
    assert isinstance(encoded, EncodedQuery)
    starts = {path.tokens[: path.reads[0][0] + 1] for path in encoded.paths}
    assert len(starts) == 1  # both options are conditioned on the same tokens
    whole = model.tokenizer("In 1953, she was")["input_ids"]
    assert [*encoded.paths[0].tokens, encoded.paths[0].reads[-1][1]] == whole


def test_a_model_that_looks_ahead_is_refused(network: Network) -> None:
    with pytest.raises(UndertowError, match="depend on later tokens, so it is not a causal model"):
        opened(network("tiny_bert_head"))


def test_a_head_that_refuses_is_tried_another_way(network: Network, tmp_path: Path) -> None:
    """Mamba keeps its residual in float32, which a bfloat16 head does not take."""
    model = opened(network("tiny_mamba"), dtype="bfloat16")
    assert all(not answer.missing_reason for answer in answers(model, QUERIES, tmp_path / "s"))


def copied(network: Network, to: Path) -> str:
    """A llama of the test's own."""
    return str(shutil.copytree(network("tiny_llama"), to / "m"))


@pytest.mark.parametrize("template", ["<s> $A", "$A </s>", "<s> $A </s>"])
def test_tokens_around_a_text_are_no_part_of_it(template: str, network: Network, tmp_path: Path) -> None:
    """Special tokens, which the tokenizer puts around every text as a BERT-like one does."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    plain, folder = opened(network("tiny_llama")), copied(network, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer._tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.save_pretrained(folder)
    around = opened(folder)
    assert around.closing_tokens == template.count("</s>")
    assert any("begins every text with <s>" in note for note in around.notes) == template.startswith("<s>")
    for one, other in zip(plain.encode(QUERIES), around.encode(QUERIES), strict=True):
        assert isinstance(one, EncodedQuery)
        assert isinstance(other, EncodedQuery)
        of_one, of_other = ([[token for _, token in path.reads] for path in some.paths] for some in (one, other))
        assert of_one == of_other
        assert other.paths[0].tokens[0] == 0 or not template.startswith("<s>")


def test_forms_that_are_the_same_tokens_count_once(network: Network, tmp_path: Path) -> None:
    from tokenizers import normalizers
    from transformers import AutoTokenizer

    folder = copied(network, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer._tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(folder)
    model = opened(folder)
    both = ClozeQuery(("In 1801, ", " was."), (Option("f", ("she",)), Option("f", ("She",)), Option("m", ("he",))))
    clash = ClozeQuery(("In 1801, ", " was."), (Option("polite", ("Sie",)), Option("she", ("sie",))))
    found = answers(model, [both, clash], tmp_path / "s")
    assert np.isnan(found[0].logprobs_nats).tolist() == [False, True, False]
    assert found[1].missing_reason == "this tokenizer spells an option of polite and one of she alike"


def test_what_cannot_be_asked_has_a_reason(network: Network, tmp_path: Path) -> None:
    model = opened(network("tiny_llama"))
    long, empty = model.encode([ContinuationQuery("a " * 200, ("b",)), ContinuationQuery("In 1801,", ("", " he"))])
    assert isinstance(long, UnsupportedQueryError)
    assert "longer than the 64 tokens" in str(long)
    assert isinstance(empty, UnsupportedQueryError)
    found = answers(model, [ContinuationQuery("a " * 200, ("b",)), QUERIES[0]], tmp_path / "s")
    assert (found[0].missing_reason, found[1].missing_reason) == (str(long), "")


def test_revision_is_that_of_the_files(network: Network, tmp_path: Path) -> None:
    folder = Path(copied(network, tmp_path))
    before, again = (resolve(ModelRequest(str(folder))).identity for _ in range(2))
    (folder / "tokenizer_config.json").write_text((folder / "tokenizer_config.json").read_text() + " ")
    assert before == again
    assert before.revision != resolve(ModelRequest(str(folder))).identity.revision
