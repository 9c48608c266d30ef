from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import TOLERANCE_NATS, alike, encoder_inputs, told
from helpers.reference_answers import NatsAfter, Rules, Tokens, chosen
from helpers.sampled_cases import briefly
from helpers.tiny_models import byte_level_tokenizer, kept, sentencepiece_tokenizer, small_bart, small_t5
from helpers.tiny_tokenizers import CHAT_TEMPLATE
from undertow.models.base import BatchLimits
from undertow.models.families import seq2seq
from undertow.models.generation.prompt_encoder import EncodedPrompt
from undertow.types import (
    BEST_SPAN,
    EXACT,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    ConstrainedGenerateQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Option,
    Query,
)

torch = pytest.importorskip("torch", reason="the model extra is not installed")

CONTEXT = 80
SHORT = 24

DOCUMENTS = (
    "In 1801, she was a child and lost her keys.",
    "The weaver (he had his tea) went to Peru.",
    "They had tea.",
)
TASKS = (" The child was", " In Kenya,", ' The baker said "', "")
STAGES = (" a child", " a", " an adult", " a teenager", " a child and a kid", " Peru")
SHOTS = tuple(f"{document} a child " for document in DOCUMENTS)
PASSAGES = (*DOCUMENTS, "a kid, a kid, a child", "  her tea, her tea  ", "Ωtea Ω", "tea")


def tiny_t5(context_tokens: int = CONTEXT) -> tuple[Any, Any]:
    """With a head of its own."""
    tokenizer = sentencepiece_tokenizer()
    tokenizer.model_max_length = context_tokens
    return decided(small_t5(tokenizer, 32, tie_word_embeddings=False)), tokenizer


def tiny_bart(context_tokens: int = CONTEXT) -> tuple[Any, Any]:
    """With a bias over the vocabulary, by which texts end now and then."""
    tokenizer = byte_level_tokenizer()
    network = decided(small_bart(tokenizer, 32, context_tokens))
    with torch.no_grad():
        network.final_logits_bias.normal_(generator=torch.Generator().manual_seed(1))
        network.final_logits_bias[0, 2] = 8.0
    return network, tokenizer


def decided(network: Any) -> Any:
    """Weights drawn wide, so that much depends on what was read, and some tokens are far more probable than others."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.5, generator=generator)
    return network


BUILDERS = {"t5": tiny_t5, "bart": tiny_bart}
GIVEN: Mapping[str, Tokens] = {"t5": (0,), "bart": (2, 0)}
END = {"t5": 1, "bart": 2}


@cache
def nats_after(network: Any, source: Tokens, decoder: Tokens) -> Any:
    """Log-probabilities of all tokens after what the decoder wrote [token]: one text, one forward pass, no cache."""
    fed = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([decoder])}
    with torch.inference_mode():
        return network(**fed, use_cache=False).logits[0, -1].double().log_softmax(-1).numpy()


@dataclass(frozen=True, slots=True)
class Built:
    """A model as Undertow opens it."""

    kind: str
    folder: str
    model: Any

    def fresh(self, **settings: str) -> Any:
        """The same, loaded again, to be tampered with."""
        return opened(self.folder, **settings)

    def nats_after(self, source: Tokens, written: Tokens) -> Any:
        return nats_after(self.model.network, source, (*GIVEN[self.kind], *written))

    def after(self, query: MultipleChoiceQuery | ConstrainedGenerateQuery) -> NatsAfter:
        return partial(self.nats_after, self.source_of(query))

    def rules_of(self, query: ConstrainedGenerateQuery) -> Rules:
        return Rules(query, self.spelled(query.passage), self.ends(query), self.after(query))

    def source_of(self, query: MultipleChoiceQuery | ConstrainedGenerateQuery) -> Tokens:
        text = query.display_text()
        return tuple(self.model.tokenizer(f"[user] {text}\n[it]\n" if query.chat else text)["input_ids"])

    def spelled(self, text: str) -> Tokens:
        return tuple(self.model.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decoded(self, tokens: Sequence[int]) -> str:
        text: str = self.model.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def ends(self, query: ConstrainedGenerateQuery) -> set[int]:
        pieces = {token: self.decoded([token]) for token in range(len(self.model.tokenizer))} if query.line_ends else {}
        return {END[self.kind], *(token for token, text in pieces.items() if {"\n", "\r"} & set(text))}


opened = partial(answering.opened, seq2seq)


def built(kind: str, folder: Path, context_tokens: int = CONTEXT) -> Built:
    network, tokenizer = BUILDERS[kind](context_tokens)
    # What the tokenizer puts around a text, a template has to say.
    first = "<s>" if kind == "bart" else ""
    tokenizer.chat_template = first + CHAT_TEMPLATE + "{% if add_generation_prompt %}</s>{% endif %}"
    return Built(kind, kept(network, tokenizer, folder), opened(str(folder)))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built("t5", tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module", params=BUILDERS)
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(request.param, tmp_path_factory.mktemp(request.param))


def choices(**settings: Any) -> list[MultipleChoiceQuery]:
    return [MultipleChoiceQuery(document + task, STAGES, **settings) for document in DOCUMENTS for task in TASKS]


def test_labels_have_the_probabilities_of_one_label_at_a_time(one: Built) -> None:
    queries = [
        *choices()[::3],
        *choices(shots=SHOTS[:1])[:3],
        *choices(chat=True)[:3],
        *(replace(query, labels=(" child", " Peru", " keys"), first_token=True) for query in choices()[:3]),
        MultipleChoiceQuery(DOCUMENTS[0], ("tea ", "  went", "unheard of")),
    ]
    for query, answer in zip(queries, told(one.model, queries), strict=True):
        labels = [one.spelled(label.strip())[: 1 if query.first_token else None] for label in query.labels]
        written, values, other_prob = chosen(labels, one.after(query), {END[one.kind]})
        assert answer.text == query.labels[labels.index(written)].strip()
        assert answer.logprobs_nats == pytest.approx(
            values,
            abs=TOLERANCE_NATS,
            rel=1e-5,  # single precision of some -40 nats
        )
        assert answer.other_prob == pytest.approx(other_prob, abs=TOLERANCE_NATS)
    assert {1, 2} < {len(one.spelled(label.strip())) for label in STAGES}


def writings(
    passages: Sequence[str] = PASSAGES, tasks: Sequence[str] = TASKS[:2], **settings: Any
) -> list[ConstrainedGenerateQuery]:
    return [ConstrainedGenerateQuery(passage + task, passage, **settings) for passage in passages for task in tasks]


@pytest.mark.parametrize("constraint", [UNCONSTRAINED, PASSAGE_TOKENS, SPAN])
def test_greedy_answers_are_those_of_one_token_at_a_time(constraint: str, one: Built) -> None:
    queries = [
        *writings(tasks=TASKS[:1], constraint=constraint),
        *writings(PASSAGES[2:4], constraint=constraint, shots=SHOTS[:1]),
        *writings(PASSAGES[2:4], constraint=constraint, chat=True),
        *writings(("her tea\n had\nhis", "tea\n"), constraint=constraint, line_ends=True),
    ]
    found = zip(queries, told(one.model, queries), strict=True)
    lengths = [
        (len(one.rules_of(query).check(answer, one.decoded)), len(one.spelled(query.passage)))
        for query, answer in found
    ]
    assert any(n < most for n, most in lengths) or (constraint == UNCONSTRAINED and one.kind == "t5")


def test_the_best_span_is_the_best_of_all_spans(one: Built) -> None:
    passages = ("a kid, a kid, a child", "tea", "  her tea\nher tea  ", "He was an adult in Peru.")
    queries = [
        *writings(passages, TASKS[::2], constraint=BEST_SPAN),
        *writings(passages[2:3], constraint=BEST_SPAN, line_ends=True),
        ConstrainedGenerateQuery("They", "had tea", BEST_SPAN, shots=SHOTS[:2], chat=True),
    ]
    found = told(one.model, queries)
    for query, answer in zip(queries, found, strict=True):
        one.rules_of(query).check(answer, one.decoded)
    greedy = told(one.model, [replace(query, constraint=SPAN) for query in queries])
    gains = [better.logprobs_nats[0] - other.logprobs_nats[0] for better, other in zip(found, greedy, strict=True)]
    assert max(gains) > 0.1


def mixture() -> list[Query]:
    """Of every sort, some of them about the same texts."""
    return [
        *choices(),
        *writings(DOCUMENTS[1:], constraint=UNCONSTRAINED),
        *writings(DOCUMENTS[2:], TASKS, constraint=PASSAGE_TOKENS),
        *writings(PASSAGES[2:], constraint=SPAN, temperature=1.0, top_k=5),
        *writings(PASSAGES[2:4], TASKS[:3], constraint=BEST_SPAN),
        *(replace(query, labels=(" tea", " keys and tea", " keys")) for query in choices()[:4]),
        *choices(shots=SHOTS * 3)[:2],
        MultipleChoiceQuery("He", (" a child", " a kid"), first_token=True),  # with one first token
        *(GenerateQuery(text, (Option("f", ("she",)), Option("m", ("he",))), 3) for text in DOCUMENTS[:2]),
    ]


@pytest.mark.parametrize("budget", briefly([60, 1]))
def test_batches_and_order_do_not_matter(budget: int, one: Built) -> None:
    model = one.fresh()
    model.limits = BatchLimits(budget, 0)
    queries = mixture()
    order = np.random.default_rng(budget).permutation(len(queries))
    shuffled = told(model, [queries[at] for at in order])
    back = {int(at): answer for at, answer in zip(order, shuffled, strict=True)}
    alike([back[at] for at in range(len(queries))], told(one.model, queries))
    packs = [pack for section in model.sections(queries) for pack in section]
    assert sorted(place for pack in packs for place in pack) == list(range(len(queries)))
    assert [sorted(pack) for pack in packs] == [sorted(some) for some in model.answer(queries, EXACT)]
    assert len(packs) > 8


def test_texts_of_a_pack_fit_the_budget_with_their_answers() -> None:
    """Ten tokens, an opening and four written ones are 15 to a row: four rows in 60."""
    reader: Any = SimpleNamespace(network=None, limits=BatchLimits(60, 0))
    query = GenerateQuery("What?", (Option("f", ("she",)),), 4)
    prompts = [EncodedPrompt(at, query, (at, *range(9))) for at in range(9)]
    texts = seq2seq.EncoderDecoderTexts(reader, reader, (0,))
    assert [len(pack) for pack in texts.packs(prompts, ())] == [4, 4, 1]


@pytest.mark.parametrize(("mode", "sentinel"), [("S2S", False), ("NLU", True), ("NLG", True)])
def test_the_modes_of_ul2_go_around_the_prompt_and_before_the_answer(mode: str, sentinel: bool, t5: Built) -> None:
    """In two of its modes it writes the sentinel of the gap first, so this is given."""
    model = t5.fresh(mode=mode)
    texts = ("She had", "In Kenya,")
    queries: list[Query] = [
        *(MultipleChoiceQuery(text, STAGES) for text in texts),
        ConstrainedGenerateQuery(texts[0], "had tea", SPAN),
    ]
    with encoder_inputs(model) as read:
        found = told(model, queries)
    (mark,) = t5.spelled("<extra_id_0>")
    frame = [t5.model.tokenizer(f"[{mode}] {text} <extra_id_0>")["input_ids"] for text in texts]
    assert sorted(read) == sorted(map(tuple, [*frame, frame[0]]))  # once for the labels, and once for the span
    before = (mark,) if sentinel else ()
    for source, answer in zip(frame, found, strict=False):
        for label, value in zip(STAGES[-2:], answer.logprobs_nats[-2:], strict=True):
            tokens = t5.spelled(label.strip())
            written = [(*before, *tokens[:at]) for at in range(len(tokens))]
            nats = sum(
                float(t5.nats_after(tuple(source), text)[token]) for text, token in zip(written, tokens, strict=True)
            )
            assert value == pytest.approx(nats, abs=TOLERANCE_NATS, rel=1e-5)
    first = t5.nats_after(tuple(frame[0]), before)
    had, tea = t5.spelled("had tea")
    assert found[2].text.split()[0] == ("had" if first[had] > first[tea] else "tea")


@pytest.mark.parametrize("kind", BUILDERS)
def test_examples_are_left_out_from_the_front(kind: str, tmp_path: Path) -> None:
    short = built(kind, tmp_path / "short", SHORT)
    assert short.model.context_tokens == SHORT
    shots = ("She had tea and lost her keys. ", "He had tea. ", "They had tea and lost her prize. ", "tea ")
    queries: list[MultipleChoiceQuery | ConstrainedGenerateQuery] = []
    for prompt in ("was " * n_words for n_words in (1, 8, 12, 19, 30)):
        queries.append(MultipleChoiceQuery(prompt, STAGES, shots))
        queries += [ConstrainedGenerateQuery(prompt, "had tea", one, shots=shots) for one in (SPAN, BEST_SPAN)]
    found = told(short.model, queries)
    dropped = set()
    for query, answer in zip(queries, found, strict=True):
        kept = [replace(query, shots=shots[n:]) for n in range(len(shots) + 1)]
        n_expected = next((n for n, one in enumerate(kept) if len(short.source_of(one)) <= SHORT), None)
        dropped.add(n_expected)
        if n_expected is None:
            assert f"longer than the {SHORT} tokens that the model reads, without any example" in answer.missing_reason
        else:
            assert answer.n_dropped_shots == n_expected
            alike([replace(answer, n_dropped_shots=0)], told(short.model, [kept[n_expected]]))
    assert len(dropped) > 3


@pytest.mark.parametrize("kind", BUILDERS)
def test_an_answer_has_the_context_to_itself(kind: str, tmp_path: Path) -> None:
    """The decoder has places of its own: prompt and answer may be as long as they can, each."""
    short = built(kind, tmp_path / "short", SHORT)
    n_given = len(GIVEN[kind])
    for n_words, fits in ((SHORT - n_given, True), (SHORT - n_given + 1, False)):
        passage = " ".join(["was"] * n_words)
        n_tokens = len(short.spelled(passage))
        assert n_tokens == n_words or kind == "bart"
        passage = short.decoded(short.spelled(passage)[:n_words])
        for constraint in (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN):
            (answer,) = told(short.model, [ConstrainedGenerateQuery("was " * 10, passage, constraint)])
            assert (not answer.missing_reason) == fits
            if not fits:
                assert f"longer than the {SHORT} tokens" in answer.missing_reason
