from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import TOLERANCE_NATS, answers, blank, change_json, encoder_inputs
from helpers.file_refusal import assert_refused
from helpers.tiny_models import (
    POSITIONS,
    byte_level_tokenizer,
    kept,
    sentencepiece_tokenizer,
    small_bart,
    wordpiece_tokenizer,
)
from helpers.tiny_models import network as network_of
from undertow.errors import UndertowError
from undertow.models.base import PAPER_TOP, BatchLimits, EncodedQuery, UnsupportedQueryError
from undertow.models.families import seq2seq
from undertow.types import EXACT, PAPER, ClozeQuery, GenerateQuery, Option, ScoredQuery

torch = pytest.importorskip("torch", reason="the model extra is not installed")

opened = partial(answering.opened, seq2seq)
SHE_OR_HE = (Option("f", ("she",)), Option("m", ("he",)))


@pytest.fixture(scope="module")
def t5(network: Callable[[str], str]) -> Any:
    return opened(network("trained_t5"))


@pytest.fixture(scope="module")
def bart(network: Callable[[str], str]) -> Any:
    return opened(network("trained_bart"))


@pytest.fixture(scope="module", params=["t5", "bart"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def next_logprobs(model: Any, source: list[int], written: list[int]) -> Any:
    """Log-probability of each token of the vocabulary after what was written [token]."""
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([written])).logits
    return logits[0, -1].double().log_softmax(-1)


def spelled(model: Any, before: str, fill: str) -> list[int]:
    """The tokens of a fill in running text: with the space before it, if there is one, and as the text begins, if it does."""
    bare = "" if before.endswith(" ") or not before else before[-1]
    text = f" {fill}" if before.endswith(" ") else bare + fill
    n_before = len(model.tokenizer(bare, add_special_tokens=False)["input_ids"])
    return list(model.tokenizer(text, add_special_tokens=False)["input_ids"][n_before:])


@cache
def steps_by_hand(model: Any, query: ClozeQuery, option: Option) -> list[tuple[float, bool]]:
    """Log-probability of each token of an option, and whether it is among the five most probable."""
    steps = []
    if isinstance(model.network.config.decoder_start_token_id, int) and model.tokenizer.mask_token is None:
        marks = sentinels(query.pieces)
        source, written = sentinel_source(model, query.pieces), [0]
    else:
        marks = []
        source, written = model.tokenizer(query.display_text(model.tokenizer.mask_token))["input_ids"], [2, 0]
    for number, (before, fill) in enumerate(zip(query.pieces, option.fills, strict=False)):
        if marks:
            written += model.tokenizer(marks[number], add_special_tokens=False)["input_ids"]
        else:
            written += model.tokenizer(before.rstrip(), add_special_tokens=False)["input_ids"]
        for token in spelled(model, before, fill):
            logprobs = next_logprobs(model, source, written)
            steps.append((float(logprobs[token]), token in logprobs.topk(PAPER_TOP).indices))
            written.append(token)
    return steps


def sentinels(pieces: Sequence[str]) -> list[str]:
    return [f"<extra_id_{number}>" for number in range(len(pieces) - 1)]


def sentinel_source(model: Any, pieces: Sequence[str]) -> list[int]:
    """The string with sentinels in it, without the space that the tokenizer sees behind one where the text has none."""
    marks = sentinels(pieces)
    ids = list(model.tokenizer("".join(map("".join, zip(pieces, [*marks, ""], strict=True))))["input_ids"])
    for mark, after in zip(marks, pieces[1:], strict=True):
        behind = ids.index(model.tokenizer.convert_tokens_to_ids(mark)) + 1
        if not after.startswith(" ") and model.tokenizer.convert_ids_to_tokens(ids[behind]) == "▁":
            del ids[behind]
    return ids


def other_prob_by_hand(model: Any, query: ClozeQuery, protocol: str) -> float:
    firsts = {
        spelled(model, query.pieces[0], option.fills[0])[0]: steps_by_hand(model, query, option)[0]
        for option in query.options
    }
    return 1 - sum(math.exp(value) for value, among in firsts.values() if among or protocol == EXACT)


def by_hand(model: Any, query: ClozeQuery, protocol: str = EXACT) -> list[float]:
    return [
        sum(value if among or protocol == EXACT else -math.inf for value, among in steps_by_hand(model, query, option))
        for option in query.options
    ]


QUERIES = {
    "one piece": blank("In 1801, ", " was a child and lost her keys.", "she", "he", "they"),
    "initial": blank("", " was a kid in Peru and had his tea.", "She", "He", "They"),
    "several pieces": blank("In Kenya, ", " was an adult.", "she", "hirself", "theirs", "shelf"),
    "two blanks": ClozeQuery(
        ("In 1849, ", " was a teenager and lost ", " keys."),
        (Option("f", ("she", "her")), Option("m", ("he", "his")), Option("x", ("they", "theirs")), Option("a", ("zie", "hir"))),
    ),
    "bracket": blank("The weaver (", " had her tea) went to Japan.", "she", "he", "hirself"),
    "quote": blank('The baker of Peru said "', ' lost their prize."', "She", "He", "They", "Zie"),
    "last": blank("The weaver (she had her tea) went to ", ".", "Japan", "Iceland", "Peru", "Narnia"),
}  # fmt: skip


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_log_probabilities_are_those_of_plain_forward_passes(protocol: str, model: Any, tmp_path: Path) -> None:
    found = answers(model, list(QUERIES.values()), tmp_path / "s", protocol)
    for (name, query), answer in zip(QUERIES.items(), found, strict=True):
        assert answer.missing_reason == "", name
        assert answer.logprobs_nats == pytest.approx(by_hand(model, query, protocol), abs=TOLERANCE_NATS), name
        assert answer.other_prob == pytest.approx(other_prob_by_hand(model, query, protocol), abs=1e-5), name
    if protocol == PAPER:
        inside = {math.isfinite(value) for answer in found for value in answer.logprobs_nats}
        assert inside == {True, False}
    lengths = {len(steps_by_hand(model, query, option)) for query in QUERIES.values() for option in query.options}
    assert {1, 2, 3} <= lengths


@pytest.mark.parametrize("name", ["one piece", "initial", "bracket", "quote", "last"])
def test_one_blank_of_bart_is_the_fill_mask_pipeline(name: str, bart: Any, tmp_path: Path) -> None:
    from transformers import pipeline

    query = QUERIES[name]
    fill_mask = pipeline("fill-mask", model=bart.network, tokenizer=bart.tokenizer, top_k=len(bart.tokenizer))
    scores = {choice["token"]: choice["score"] for choice in fill_mask(query.display_text(bart.tokenizer.mask_token))}
    tokens = {option: spelled(bart, query.pieces[0], option.fills[0]) for option in query.options}
    words = {option: ids[0] for option, ids in tokens.items() if len(ids) == 1}
    assert len(words) > 1
    (answer,) = answers(bart, [replace(query, options=tuple(words))], tmp_path / "s")
    assert np.exp(answer.logprobs_nats) == pytest.approx(
        [scores[token] for token in words.values()], rel=TOLERANCE_NATS
    )


def encoded(model: Any, query: ScoredQuery) -> EncodedQuery:
    (found,) = model.encode([query])
    assert isinstance(found, EncodedQuery)
    return found


def pieces(model: Any, tokens: Sequence[int]) -> list[str]:
    return list(model.tokenizer.convert_ids_to_tokens(list(tokens)))


def test_what_t5_is_fed_token_by_token(t5: Any) -> None:
    query = ClozeQuery(
        ("In Kenya, ", " was a kid (", " tea)."), (Option("f", ("she", "her")), Option("x", ("they", "hir")))
    )
    found = encoded(t5, query)
    source = "▁In ▁Kenya , <extra_id_0> ▁was ▁a ▁kid ▁ ( <extra_id_1> ▁tea ) . </s>"
    decoder = ["<pad> <extra_id_0> ▁she <extra_id_1> he <pad>", "<pad> <extra_id_0> ▁they <extra_id_1> h i"]
    reads = [[(1, "▁she"), (3, "he"), (4, "r")], [(1, "▁they"), (3, "h"), (4, "i"), (5, "r")]]
    assert [" ".join(pieces(t5, path.source)) for path in found.paths] == [source, source]
    assert [" ".join(pieces(t5, path.tokens)) for path in found.paths] == decoder
    assert [[(at, *pieces(t5, [token])) for at, token in path.reads] for path in found.paths] == reads
    last = encoded(t5, blank("The weaver went to ", ".", "Japan", "Peru"))  # no space where the text has none
    assert " ".join(pieces(t5, last.paths[0].source)) == "▁The ▁weaver ▁went ▁to <extra_id_0> . </s>"
    assert last.paths[0].tokens == last.paths[1].tokens  # one row, read at two tokens


@pytest.mark.parametrize(
    ("name", "mode", "used"),
    [
        ("tiny-UL2", "auto", ("NLU", "S2S", "denoising, modes NLU and S2S")),
        ("tiny-UL2", "NLG", ("NLG", "NLG", "denoising, mode NLG")),
        ("tiny-UL2", "none", ("", "", "denoising")),
        ("tiny-Flan-ul2", "auto", ("", "", "denoising")),
        ("tiny", "auto", ("", "", "denoising")),
    ],
)
def test_the_modes_of_ul2(name: str, mode: str, used: tuple[str, ...], t5: Any, tmp_path: Path) -> None:
    blanks, prompts, scoring_method = used

    def begun(one: str) -> list[str]:
        return ["▁", "[", *one, "]"] if one else []

    model = opened(str(shutil.copytree(t5.identity.name, tmp_path / name)), mode=mode)
    assert model.identity.scoring_method == scoring_method
    plain = opened(model.identity.name, mode="none")
    assert (model.identity.key(EXACT) == plain.identity.key(EXACT)) == (not blanks)
    assert model.identity.key(EXACT) != model.identity.key(PAPER)
    noted = [note for note in model.notes if "UL2" in note and f"[{blanks}]" in note and f"[{prompts}]" in note]
    assert bool(noted) == bool(blanks)
    query = blank("In Kenya, ", " was a kid.", "she", "he")
    prompt = GenerateQuery("In Kenya, she was", query.options, 2)
    with encoder_inputs(model) as read:
        read_blank, answered = answers(model, [query, prompt], tmp_path / "s")
    sentence, text = (pieces(model, tokens) for tokens in read)
    assert sentence == [*begun(blanks), *["▁In", "▁Kenya", ",", "<extra_id_0>", "▁was", "▁a", "▁kid", ".", "</s>"]]
    assert text == [
        *begun(prompts),
        *["▁In", "▁Kenya", ",", "▁she", "▁was"],
        *(["<extra_id_0>"] if prompts else []),
        "</s>",
    ]
    prefix = f"[{blanks}] " if blanks else ""
    with_mode = ClozeQuery((prefix + query.pieces[0], query.pieces[1]), query.options)
    assert read_blank.logprobs_nats == pytest.approx(by_hand(t5, with_mode), abs=TOLERANCE_NATS)
    assert answered.missing_reason == ""


@pytest.mark.parametrize(("kind", "mode"), [("t5", "nlu"), ("t5", 3), ("bart", "NLU")])
def test_a_mode_that_is_unknown_or_another_familys_is_refused(
    kind: str, mode: Any, network: Callable[[str], str]
) -> None:
    with pytest.raises(UndertowError, match="mode"):
        opened(network(f"trained_{kind}"), mode=mode)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (blank("In 1801, ", " was.", "she", ""), "an option adds nothing"),
        (blank("In 1801, s", " was.", "he", "it"), "joins an option with the word beside it"),
        (blank("In 1801, ", "r keys.", "he", "it"), "joins an option with the word beside it"),
        (
            replace(QUERIES["one piece"], options=(SHE_OR_HE[0], Option("m", ("she",)))),
            "an option of f and one of m alike",
        ),
        (blank("In 1801, ", " was" * POSITIONS, "she", "he"), f"longer than the {POSITIONS} tokens"),
    ],
    ids=["nothing", "joined before", "joined after", "alike", "too long"],
)
def test_what_cannot_be_asked_has_a_reason(query: ScoredQuery, reason: str, model: Any, tmp_path: Path) -> None:
    known = QUERIES["one piece"]
    found, _ = model.encode([query, known])
    assert isinstance(found, UnsupportedQueryError)
    assert reason in str(found)
    refused_one, asked = answers(model, [query, known], tmp_path / "s")
    assert reason in refused_one.missing_reason
    assert refused_one.logprobs_nats == ()
    assert asked.logprobs_nats == pytest.approx(by_hand(model, known), abs=TOLERANCE_NATS)


def test_each_text_goes_through_the_encoder_once(model: Any, tmp_path: Path) -> None:
    queries = list(QUERIES.values())
    texts = ("They was a kid in Japan and had", "He was an adult in 1873 and had")
    prompts = [GenerateQuery(text, SHE_OR_HE, 3) for text in (*texts, texts[0])]
    prompts.append(GenerateQuery(texts[0], SHE_OR_HE[:1], 4))
    model = opened(model.identity.name)
    model.limits = BatchLimits(70, 0)
    with encoder_inputs(model) as read:
        answers(model, [*queries, *prompts], tmp_path / "s")
    assert len(read) == len(queries) + len(texts)
    assert set(Counter(read).values()) == {1}


def test_at_the_start_of_a_text_a_decoder_that_writes_it_whole_writes_both_forms(bart: Any, tmp_path: Path) -> None:
    query = blank("", " was a child in 1825.", "they", "she")
    (answer,) = answers(bart, [query], tmp_path / "s")
    ids = bart.tokenizer(query.display_text(bart.tokenizer.mask_token))["input_ids"]
    start = ids.index(bart.tokenizer.mask_token_id)
    probs = next_logprobs(bart, ids, [bart.opening, *ids[:start]]).exp()
    for word, nats, spaced in zip(("they", "she"), answer.logprobs_nats, answer.spaced_nats, strict=True):
        (own,), (with_space,) = (
            bart.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f" {word}")
        )
        assert math.exp(nats) == pytest.approx(float(probs[own] + probs[with_space]), abs=1e-6)
        assert math.exp(spaced) == pytest.approx(float(probs[with_space]), abs=1e-6)


def test_mbart_begins_with_its_language(tmp_path: Path) -> None:
    """Its texts end with their language, and its decoder begins with it; no token of its own opens a text."""
    from tokenizers import processors

    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["en_XX"]})
    ends = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("</s>", "en_XX")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s> en_XX", special_tokens=ends
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = opened(kept(small_bart(tokenizer, 32, name="MBart", init_std=0.3), tokenizer, tmp_path / "m"))
    assert model.head_apart
    query = QUERIES["one piece"]
    ids = model.tokenizer(query.display_text(model.tokenizer.mask_token), return_tensors="pt")["input_ids"]
    assert pieces(model, ids[0].tolist())[-2:] == ["</s>", "en_XX"]
    place = ids[0].tolist().index(model.tokenizer.mask_token_id)
    with torch.inference_mode():
        logprobs = model.network(ids).logits[0, place].double().log_softmax(-1)
    words = [spelled(model, query.pieces[0], option.fills[0])[0] for option in query.options]
    asked = GenerateQuery("They was a kid in Japan and had", SHE_OR_HE, 4)
    answer, written = answers(model, [query, asked], tmp_path / "s")
    assert answer.logprobs_nats == pytest.approx(logprobs[words].tolist(), abs=TOLERANCE_NATS)
    assert pieces(model, encoded(model, query).paths[0].tokens[:1]) == ["en_XX"]
    source, decoder = list(model.tokenizer(asked.prompt)["input_ids"]), [ends[1][1]]
    while len(decoder) <= 4 and decoder[-1] != 2:
        decoder.append(int(next_logprobs(model, source, decoder).argmax()))
    assert written.text == model.tokenizer.decode(decoder[1:], skip_special_tokens=True)


@pytest.mark.parametrize(("name", "tied"), [("T5", True), ("T5", False), ("UMT5", False)])
def test_what_goes_into_the_head_is_scaled_only_where_the_head_is_the_embedding(
    name: str, tied: bool, tmp_path: Path
) -> None:
    """T5 1.1, Flan-T5, UL2 and umT5 have a head of their own; scaled, their distributions would be far too flat."""
    network = untrained_t5(name)
    if not tied:
        network.lm_head.weight = torch.nn.Parameter(torch.randn(200, 16))
        network._tied_weights_keys = {key: tie for key, tie in network._tied_weights_keys.items() if "head" not in key}
    folder = kept(network, sentencepiece_tokenizer(), tmp_path / "m")
    change_json(Path(folder) / "config.json", tie_word_embeddings=tied, scale_decoder_outputs=None)
    model = opened(folder)
    query = blank("In Kenya, ", " was a kid.", "she", "he", "they")
    fed, words = encoded(model, query).paths[0], [spelled(model, "In ", word)[0] for word in ("she", "he", "they")]
    with torch.inference_mode():
        seen = model.network.encoder(input_ids=torch.tensor([fed.source]))[0]
        hidden = model.network.decoder(input_ids=torch.tensor([fed.tokens]), encoder_hidden_states=seen)[0][0, -1]
        head = network.shared.weight if tied else network.lm_head.weight
        logits = head @ hidden * (16**-0.5 if tied else 1)
    (answer,) = answers(model, [query], tmp_path / "s")
    assert answer.logprobs_nats == pytest.approx(logits.log_softmax(-1)[words].tolist(), abs=TOLERANCE_NATS)


def untrained_t5(name: str = "T5") -> Any:
    sizes = {"vocab_size": 200, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return network_of(name, "ForConditionalGeneration", **sizes, decoder_start_token_id=0)


@pytest.mark.parametrize("with_mask", [False, True])
def test_what_fills_no_gaps_answers_prompts(with_mask: bool, tmp_path: Path) -> None:
    """A mask token in the vocabulary is not enough: the network was never trained to fill one."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = wordpiece_tokenizer()
    if not with_mask:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]")
    model = opened(kept(untrained_t5(), tokenizer, tmp_path / "m"))
    (unsupported,) = model.encode([QUERIES["one piece"]])
    assert "neither sentinels" in str(unsupported)
    (written,) = answers(model, [GenerateQuery("They was a kid in Japan and had", SHE_OR_HE, 4)], tmp_path / "s")
    assert not written.missing_reason


def test_what_reads_sound_is_refused(network: Callable[[str], str], tmp_path: Path) -> None:
    """Though it is called what these are called."""
    folder = shutil.copytree(network("small_t5_folder"), tmp_path / "m")
    change_json(folder / "config.json", model_type="whisper", architectures=["WhisperForConditionalGeneration"])
    assert_refused((f"{folder}: ", "whisper"), opened, str(folder))
