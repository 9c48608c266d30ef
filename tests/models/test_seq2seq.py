"""Encoder-decoders: what is read is what plain forward passes say, one text and one token at a time, without any cache."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import (
    TOLERANCE_NATS,
    alike,
    answers,
    blank,
    change_json,
    check_the_head,
    encoder_inputs,
    found_as,
    other_head,
    some_batch,
    whole,
)
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
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import estimate
from undertow.models.backend import execution as device
from undertow.models.base import CHAT_TRAINED, PAPER_TOP, BatchLimits, EncodedQuery, UnsupportedQueryError
from undertow.models.families import seq2seq
from undertow.types import EXACT, PAPER, ClozeQuery, ContinuationQuery, GenerateQuery, Option, Query, ScoredQuery

torch = pytest.importorskip("torch", reason="the model extra is not installed")

KINDS = ("t5", "bart")


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model, as Undertow reads it."""

    kind: str
    folder: str
    model: Any

    def fresh(self) -> Any:
        """The same, loaded again, to be tampered with."""
        return opened(self.folder)


opened = partial(answering.opened, seq2seq)


@pytest.fixture(scope="module")
def t5(network: Callable[[str], str]) -> Trained:
    folder = network("trained_t5")
    return Trained("t5", folder, opened(folder))


@pytest.fixture(scope="module")
def bart(network: Callable[[str], str]) -> Trained:
    folder = network("trained_bart")
    return Trained("bart", folder, opened(folder))


@pytest.fixture(scope="module", params=KINDS)
def one(request: pytest.FixtureRequest) -> Trained:
    """Each of them in turn."""
    found: Trained = request.getfixturevalue(request.param)
    return found


# The reference: strings with marks in them, and full forward passes.


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


def by_hand(model: Any, query: ClozeQuery, protocol: str = EXACT) -> list[float]:
    return [
        sum(value if among or protocol == EXACT else -math.inf for value, among in steps_by_hand(model, query, option))
        for option in query.options
    ]


def other_prob_by_hand(model: Any, query: ClozeQuery, protocol: str) -> float:
    firsts = {
        spelled(model, query.pieces[0], option.fills[0])[0]: steps_by_hand(model, query, option)[0]
        for option in query.options
    }
    return 1 - sum(math.exp(value) for value, among in firsts.values() if among or protocol == EXACT)


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
def test_log_probabilities_are_those_of_plain_forward_passes(protocol: str, one: Trained, tmp_path: Path) -> None:
    found = answers(one.model, list(QUERIES.values()), tmp_path / "s", protocol)
    for (name, query), answer in zip(QUERIES.items(), found, strict=True):
        assert answer.missing_reason == "", name
        assert answer.logprobs_nats == pytest.approx(by_hand(one.model, query, protocol), abs=TOLERANCE_NATS), name
        assert answer.other_prob == pytest.approx(other_prob_by_hand(one.model, query, protocol), abs=1e-5), name
    if protocol == PAPER:
        inside = {math.isfinite(value) for answer in found for value in answer.logprobs_nats}
        assert inside == {True, False}
    lengths = {len(steps_by_hand(one.model, query, option)) for query in QUERIES.values() for option in query.options}
    assert {1, 2, 3} <= lengths


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in ("several pieces", "two blanks")])
def test_one_blank_of_bart_is_the_fill_mask_pipeline(name: str, bart: Trained, tmp_path: Path) -> None:
    from transformers import pipeline

    model = bart.model
    query = QUERIES[name]
    fill_mask = pipeline("fill-mask", model=model.network, tokenizer=model.tokenizer, top_k=len(model.tokenizer))
    scores = {choice["token"]: choice["score"] for choice in fill_mask(query.display_text(model.tokenizer.mask_token))}
    words = [option for option in query.options if len(spelled(model, query.pieces[0], option.fills[0])) == 1]
    assert len(words) > 1
    (answer,) = answers(model, [replace(query, options=tuple(words))], tmp_path / "s")
    tokens = [spelled(model, query.pieces[0], option.fills[0])[0] for option in words]
    assert answer.logprobs_nats == pytest.approx([math.log(scores[token]) for token in tokens], abs=TOLERANCE_NATS)
    assert answer.other_prob == pytest.approx(1 - sum(scores[token] for token in tokens), abs=1e-5)


def encoded(model: Any, query: ScoredQuery) -> EncodedQuery:
    (found,) = model.encode([query])
    assert isinstance(found, EncodedQuery)
    return found


def spaced(tokens: str) -> list[str]:
    return tokens.split(" ")


def pieces(model: Any, tokens: Sequence[int]) -> list[str]:
    return list(model.tokenizer.convert_ids_to_tokens(list(tokens)))


def test_what_t5_is_fed_token_by_token(t5: Trained) -> None:
    query = ClozeQuery(
        ("In Kenya, ", " was a kid (", " tea)."), (Option("f", ("she", "her")), Option("x", ("they", "hir")))
    )
    found = encoded(t5.model, query)
    source = spaced("▁In ▁Kenya , <extra_id_0> ▁was ▁a ▁kid ▁ ( <extra_id_1> ▁tea ) . </s>")
    decoder = [
        spaced("<pad> <extra_id_0> ▁she <extra_id_1> he <pad>"),
        spaced("<pad> <extra_id_0> ▁they <extra_id_1> h i"),
    ]
    reads = [[(1, "▁she"), (3, "he"), (4, "r")], [(1, "▁they"), (3, "h"), (4, "i"), (5, "r")]]
    assert [pieces(t5.model, path.source) for path in found.paths] == [source, source]
    assert [pieces(t5.model, path.tokens) for path in found.paths] == decoder
    assert [[(at, *pieces(t5.model, [token])) for at, token in path.reads] for path in found.paths] == reads


def test_no_space_is_put_behind_a_sentinel_where_the_text_has_none(t5: Trained) -> None:
    found = encoded(t5.model, blank("The weaver went to ", ".", "Japan", "Peru"))
    assert pieces(t5.model, found.paths[0].source) == spaced("▁The ▁weaver ▁went ▁to <extra_id_0> . </s>")
    assert found.paths[0].tokens == found.paths[1].tokens  # one row, read at two tokens


def test_what_bart_is_fed_token_by_token(bart: Trained) -> None:
    found = encoded(bart.model, blank("In Kenya, ", " was a kid.", "she", "hirs"))
    fill = pieces(bart.model, bart.model.tokenizer(" hirs", add_special_tokens=False)["input_ids"])
    assert len(fill) > 1
    assert pieces(bart.model, found.paths[0].source) == spaced("<s> In ĠKenya , <mask> Ġwas Ġa Ġkid . </s>")
    whole = [*spaced("</s> <s> In ĠKenya ,"), *fill[:-1]]
    assert pieces(bart.model, found.paths[1].tokens) == whole
    assert pieces(bart.model, found.paths[0].tokens) == [*whole[:5], *["</s>"] * (len(fill) - 1)]
    assert [at for at, _ in found.paths[0].reads] == [4]
    assert [at for at, _ in found.paths[1].reads] == list(range(4, 4 + len(fill)))


# UL2's modes.


def called(folder: str, name: Path) -> str:
    """The same model under another name."""
    shutil.copytree(folder, name)
    return str(name)


BARE = "▁In ▁Kenya , <extra_id_0> ▁was ▁a ▁kid . </s>"
ASKED = "▁In ▁Kenya , ▁she ▁was"


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
def test_the_modes_of_ul2(name: str, mode: str, used: tuple[str, ...], t5: Trained, tmp_path: Path) -> None:
    blanks, prompts, scoring_method = used

    def begun(one: str) -> list[str]:
        return ["▁", "[", *one, "]"] if one else []

    model = opened(called(t5.folder, tmp_path / name), mode=mode)
    assert model.identity.scoring_method == scoring_method
    plain = opened(model.identity.name, mode="none")
    assert (model.identity.key(EXACT) == plain.identity.key(EXACT)) == (not blanks)
    assert model.identity.key(EXACT) != model.identity.key(PAPER)
    assert any("UL2" in note and f"[{blanks}]" in note and f"[{prompts}]" in note for note in model.notes) == bool(
        blanks
    )
    query = blank("In Kenya, ", " was a kid.", "she", "he")
    prompt = GenerateQuery("In Kenya, she was", query.options, 2)
    with encoder_inputs(model) as read:
        read_blank, answered = answers(model, [query, prompt], tmp_path / "s")
    sentence, text = (pieces(model, tokens) for tokens in read)
    assert sentence == [*begun(blanks), *BARE.split()]
    assert text == [*begun(prompts), *ASKED.split(), *(["<extra_id_0>"] if prompts else []), "</s>"]
    prefix = f"[{blanks}] " if blanks else ""
    with_mode = ClozeQuery((prefix + query.pieces[0], query.pieces[1]), query.options)
    assert read_blank.logprobs_nats == pytest.approx(by_hand(t5.model, with_mode), abs=TOLERANCE_NATS)
    assert answered.missing_reason == ""


@pytest.mark.parametrize(("kind", "mode"), [("t5", "nlu"), ("t5", 3), ("bart", "NLU")])
def test_a_mode_that_is_unknown_or_another_familys_is_refused(
    kind: str, mode: Any, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(UndertowError, match="mode"):
        opened(request.getfixturevalue(kind).folder, mode=mode)


# What cannot be read.


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (blank("In 1801, ", " was.", "she", ""), "an option adds nothing"),
        (blank("In 1801, s", " was.", "he", "it"), "joins an option with the word beside it"),
        (blank("In 1801, ", "r keys.", "he", "it"), "joins an option with the word beside it"),
        (ContinuationQuery("In 1801,", (" she was", " he was")), "cannot be read going on with a text"),
        (blank("In 1801, ", " was" * POSITIONS, "she", "he"), f"longer than the {POSITIONS} tokens"),
    ],
    ids=["nothing", "joined before", "joined after", "continuations", "too long"],
)
def test_what_cannot_be_asked_has_a_reason(query: ScoredQuery, reason: str, one: Trained, tmp_path: Path) -> None:
    known = QUERIES["one piece"]
    # Continuations are refused by the engine before they get here, but for a caller of one's own.
    assert any(
        reason in str(found) for found in one.model.encode([query, known]) if isinstance(found, UnsupportedQueryError)
    )
    if isinstance(query, ClozeQuery):
        refused_one, asked = answers(one.model, [query, known], tmp_path / "s")
        assert reason in refused_one.missing_reason
        assert refused_one.logprobs_nats == ()
        assert asked.logprobs_nats == pytest.approx(by_hand(one.model, known), abs=TOLERANCE_NATS)


def test_the_longest_text_is_read_and_one_longer_is_not(bart: Trained, tmp_path: Path) -> None:
    n_around = len(bart.model.tokenizer("In 1801, she.")["input_ids"])
    longest, longer = (
        blank("In 1801," + " was" * (length - n_around) + " ", ".", "she", "he")
        for length in (POSITIONS, POSITIONS + 1)
    )
    assert len(encoded(bart.model, longest).paths[0].source) == POSITIONS
    found = answers(bart.model, [longest, longer], tmp_path / "s")
    assert found[0].logprobs_nats == pytest.approx(by_hand(bart.model, longest), abs=TOLERANCE_NATS)
    assert found[1].missing_reason == f"the text is longer than the {POSITIONS} tokens that the model reads"


def test_words_that_cannot_be_told_apart_or_seen_have_a_reason(one: Trained, tmp_path: Path) -> None:
    both = ClozeQuery(QUERIES["one piece"].pieces, (Option("f", ("she",)), Option("m", ("she",))))
    unseen = GenerateQuery(PROMPTS[-1], (Option("x", (" ",)), Option("y", ("\t",))))
    reasons = [answer.missing_reason for answer in answers(one.model, [both, unseen], tmp_path / "s")]
    assert "an option of f and one of m alike" in reasons[0]
    assert "this tokenizer knows none of the words" in reasons[1]


# The passes: the encoder once, the head apart, batches.


def test_each_text_goes_through_the_encoder_once(one: Trained, tmp_path: Path) -> None:
    queries = list(QUERIES.values())
    prompts = [GenerateQuery(text, PRONOUN_OPTIONS, 3) for text in (*PROMPTS, PROMPTS[0])]
    prompts.append(GenerateQuery(PROMPTS[0], PRONOUN_OPTIONS[:2], 4))
    model = one.fresh()
    model.limits = BatchLimits(70, 0)
    with encoder_inputs(model) as read:
        answers(model, [*queries, *prompts], tmp_path / "s")
    assert len(read) == len(queries) + len(PROMPTS)
    assert set(Counter(read).values()) == {1}


@pytest.mark.parametrize("rows_at_once", [7, 1000])
def test_the_head_says_of_single_rows_what_the_network_says(
    rows_at_once: int, one: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = one.fresh()
    if one.kind == "bart":  # T5's scaling is in the forward; BART's bias is trained by nobody, and must still count
        model.network.final_logits_bias.normal_(generator=torch.Generator().manual_seed(0))
    model = seq2seq.Seq2SeqModel.from_network(model.network, model.tokenizer, model.identity, modes=model.modes)
    monkeypatch.setattr(device, "LOGITS_AT_ONCE", rows_at_once * int(model.network.config.vocab_size))
    check_the_head(model, some_batch(model, 3), model.network.get_decoder())


def test_a_head_that_needs_its_neighbours_is_found_out_and_read_whole(one: Trained, tmp_path: Path) -> None:
    plain = one.fresh()
    plain.network.lm_head = other_head(plain.network.lm_head, "neighbours")
    model = seq2seq.Seq2SeqModel.from_network(plain.network, plain.tokenizer, plain.identity, modes=plain.modes)
    assert not model.head_apart
    batch = some_batch(model, 3)
    assert model.read_batch(batch) == pytest.approx(whole(model, batch), abs=TOLERANCE_NATS)
    queries = [QUERIES["several pieces"], QUERIES["two blanks"]]
    for query, answer in zip(queries, answers(model, queries, tmp_path / "s"), strict=True):
        assert answer.logprobs_nats == pytest.approx(by_hand(model, query), abs=TOLERANCE_NATS)
    model.head_apart = True
    assert not np.allclose(model.read_batch(batch), whole(model, batch), atol=0.1)


def test_batches_and_the_order_of_queries_do_not_matter(one: Trained, tmp_path: Path) -> None:
    model = one.fresh()
    queries: list[Query] = [*QUERIES.values(), *(GenerateQuery(text, PRONOUN_OPTIONS, 6) for text in PROMPTS)]
    model.limits = BatchLimits(60, 0)
    with AnswerCache(tmp_path / "dry") as store:
        assert estimate(found_as(model), queries, store, EXACT).n_passes > 2
    forwards = answers(model, queries, tmp_path / "forwards")
    backwards = answers(model, queries[::-1], tmp_path / "backwards")[::-1]
    model.limits = BatchLimits(10_000, 0)
    together = answers(model, queries, tmp_path / "together")
    alone = [answers(model, [query], tmp_path / f"alone {number}")[0] for number, query in enumerate(queries)]
    for found in (forwards, backwards, together):
        alike(found, alone)


# Prompts.

PRONOUN_OPTIONS = (
    Option("f", ("she",)), Option("f", ("She",)), Option("f", ("her",)), Option("m", ("he",)), Option("m", ("He",)),
    Option("m", ("his",)), Option("x", ("they",)), Option("x", ("They",)), Option("x", ("their",)),
)  # fmt: skip
PROMPTS = (
    "In 1801, {} was a child and lost her keys.",
    "In 1801, she was a child and lost {} keys.",
    "The weaver ({} had {} tea) went to Kenya.",
    'The baker of Peru said "{} lost {} prize."',
    "He was an adult in 1873 and had",
    "They was a kid in Japan and had",
)


def gapped(model: Any, text: str) -> str:
    """The prompt with the model's own marks for its gaps, so that there is something to write."""
    if model.tokenizer.mask_token:
        return text.replace("{}", model.tokenizer.mask_token)
    return text.format("<extra_id_0>", "<extra_id_1>")


@dataclass(frozen=True, slots=True)
class Written:
    """What the reference loop writes: tokens, and the logarithms of all probabilities at each step [step][token]."""

    tokens: list[int]
    logprobs: list[Any]


def written_by_hand(model: Any, prompt: str, max_tokens: int) -> Written:
    """Greedy decoding that computes everything again at each step."""
    start, end = {True: (2, 2), False: (0, 1)}[bool(model.tokenizer.mask_token)]
    source, decoder, logprobs = model.tokenizer(prompt)["input_ids"], [start], []
    while len(decoder) <= max_tokens:
        step = next_logprobs(model, source, decoder)
        token = int(step.argmax())
        if token == end:
            break
        decoder.append(token)
        logprobs.append(step)
    return Written(decoder[1:], logprobs)


def words_of(model: Any, tokens: Sequence[int]) -> list[str]:
    return [model.tokenizer.decode([token]).strip() for token in tokens]


def option_probs(model: Any, written: Written, options: Sequence[Option], protocol: str) -> list[float]:
    """The rule of the paper's appendix B.3, spelled out over the whole vocabulary."""
    fills = [option.fills[0] for option in options]
    said = [at for at, word in enumerate(words_of(model, written.tokens)) if word in fills]
    counted = said if len(said) == 1 else range(len(written.tokens))
    vocabulary = words_of(model, range(len(model.tokenizer)))
    totals = dict.fromkeys(fills, 0.0)
    for at in counted:
        top = set(written.logprobs[at].topk(PAPER_TOP).indices.tolist())
        for token, word in enumerate(vocabulary):
            if word in totals and (protocol == EXACT or token in top):
                totals[word] += math.exp(float(written.logprobs[at][token])) / len(counted)
    return [totals[fill] for fill in fills]


def logs(probs: Sequence[float]) -> list[float]:
    return [math.log(prob) if prob else -math.inf for prob in probs]


def check_prompts(model: Any, asked: Sequence[GenerateQuery], store: Path, protocol: str) -> list[Written]:
    """Ask, compare with the reference, and give what the reference wrote."""
    by_loop = []
    for query, answer in zip(asked, answers(model, asked, store, protocol), strict=True):
        loop = written_by_hand(model, query.prompt, query.max_tokens)
        expected = option_probs(model, loop, query.options, protocol)
        assert answer.text == model.tokenizer.decode(loop.tokens, skip_special_tokens=True)
        assert answer.logprobs_nats == pytest.approx(logs(expected), abs=TOLERANCE_NATS)
        assert answer.other_prob == pytest.approx(1 - sum(expected), abs=1e-5)
        by_loop.append(loop)
    return by_loop


@pytest.mark.parametrize("protocol", [EXACT, PAPER])
def test_prompts_are_answered_as_by_a_loop_without_a_cache(protocol: str, one: Trained, tmp_path: Path) -> None:
    model = one.model
    asked = [GenerateQuery(gapped(model, text), PRONOUN_OPTIONS, n) for text in PROMPTS for n in (2, 20)]
    loops = check_prompts(model, asked, tmp_path / "s", protocol)
    said = [
        sum(word in {option.fills[0] for option in PRONOUN_OPTIONS} for word in words_of(model, loop.tokens))
        for loop in loops
    ]
    assert 1 in said  # one step counts
    assert max(said) > 1  # all of them do
    ended = [len(loop.tokens) < query.max_tokens for loop, query in zip(loops, asked, strict=True)]
    assert set(ended) == {True, False}
    assert len({len(loop.tokens) for loop in loops}) > 2


def test_what_a_checkpoint_says_of_generation_changes_nothing(one: Trained, tmp_path: Path) -> None:
    folder = Path(called(one.folder, tmp_path / "m"))
    change_json(
        folder / "generation_config.json", num_beams=4, repetition_penalty=3.0, no_repeat_ngram_size=1, min_length=15,
        forced_bos_token_id=7, forced_eos_token_id=8, do_sample=True, temperature=3.0, length_penalty=2.0,
        early_stopping=True, suppress_tokens=[9, 10], max_length=4, top_k=2,
    )  # fmt: skip
    model = opened(str(folder))
    check_prompts(
        model, [GenerateQuery(gapped(model, text), PRONOUN_OPTIONS, 12) for text in PROMPTS], tmp_path / "s", EXACT
    )


def test_prompts_that_cannot_be_asked_have_a_reason(one: Trained, tmp_path: Path) -> None:
    fine = GenerateQuery(gapped(one.model, PROMPTS[1]), PRONOUN_OPTIONS, 3)
    long, many = replace(fine, prompt="was " * POSITIONS), replace(fine, max_tokens=POSITIONS + 1)
    found = answers(one.model, [replace(fine, chat=True), long, many, fine], tmp_path / "s")
    assert "has no chat template" in found[0].missing_reason
    assert f"longer than the {POSITIONS} tokens" in found[1].missing_reason
    assert f"longer than the {POSITIONS} tokens" in found[2].missing_reason
    assert found[3].missing_reason == ""
    (blank_one,) = one.model.answer([QUERIES["one piece"]], EXACT)
    assert isinstance(blank_one[0], UnsupportedQueryError)


def test_an_answer_that_ends_at_once_is_missing(one: Trained, tmp_path: Path) -> None:
    model = one.fresh()
    prompt = GenerateQuery(gapped(model, PROMPTS[1]), PRONOUN_OPTIONS, 3)
    (first, *_) = written_by_hand(model, prompt.prompt, 3).tokens
    model.stops.ends = frozenset({first})
    (answer,) = answers(model, [prompt], tmp_path / "s")
    assert "the answer is empty" in answer.missing_reason


def test_a_chat_template_goes_around_the_prompt(t5: Trained, tmp_path: Path) -> None:
    model = t5.fresh()
    model.tokenizer.chat_template = "{{ messages[0]['content'] }} was{% if add_generation_prompt %} </s>{% endif %}"
    model = seq2seq.Seq2SeqModel.from_network(model.network, model.tokenizer, model.identity, modes=model.modes)
    assert model.facts["post_training"] == CHAT_TRAINED
    chat, plain = (
        GenerateQuery(text, PRONOUN_OPTIONS, 3, chat=chat) for text, chat in (("she", True), ("she was", False))
    )
    with encoder_inputs(model) as read:
        answered = answers(model, [chat, plain], tmp_path / "s")
    assert [pieces(model, tokens) for tokens in read] == [["▁she", "▁was", "</s>"]]
    assert answered[0] == answered[1]


# Who they are.


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
    asked = GenerateQuery(PROMPTS[-1], PRONOUN_OPTIONS, 4)
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
    source, words = (
        encoded(model, query).paths[0].source,
        [spelled(model, "In ", word)[0] for word in ("she", "he", "they")],
    )
    start = list(encoded(model, query).paths[0].tokens)
    with torch.inference_mode():
        seen = model.network.encoder(input_ids=torch.tensor([source]))[0]
        hidden = model.network.decoder(input_ids=torch.tensor([start]), encoder_hidden_states=seen)[0][0, -1]
        head = network.shared.weight if tied else network.lm_head.weight
        logits = head @ hidden * (16**-0.5 if tied else 1)
    (answer,) = answers(model, [query], tmp_path / "s")
    assert answer.logprobs_nats == pytest.approx(logits.log_softmax(-1)[words].tolist(), abs=TOLERANCE_NATS)


def untrained_t5(name: str = "T5") -> Any:
    sizes = {"vocab_size": 200, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return network_of(name, "ForConditionalGeneration", **sizes, decoder_start_token_id=0)


def markless(folder: Path) -> str:
    from transformers import PreTrainedTokenizerFast

    backend = wordpiece_tokenizer().backend_tokenizer
    return kept(untrained_t5(), PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"), folder)


def mask_of_another_kind(folder: Path) -> str:
    """A mask token in the vocabulary of a network that was never trained to fill one."""
    return kept(untrained_t5(), wordpiece_tokenizer(), folder)


def listener(folder: Path) -> str:
    """Reads sound, and is called what these are called."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16}
    config = WhisperConfig(vocab_size=300, encoder_layers=1, decoder_layers=1, decoder_ffn_dim=16, **sizes,
                           pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=1)  # fmt: skip
    return kept(WhisperForConditionalGeneration(config), sentencepiece_tokenizer(), folder)


@pytest.mark.parametrize(
    ("build", "words"), [(markless, "sentinels"), (mask_of_another_kind, "mask token"), (listener, "whisper")]
)
def test_what_fills_no_gaps_is_refused(build: Any, words: str, tmp_path: Path) -> None:
    folder = build(tmp_path / "m")
    with pytest.raises(UndertowError, match=words) as refusal:
        opened(folder)
    assert str(refusal.value).startswith(f"{folder}: ")
    assert "\n" not in str(refusal.value)
