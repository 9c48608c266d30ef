from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from helpers.answering import TOLERANCE_NATS, alike, answers, told
from helpers.reference_answers import NatsAfter, Rules, Tokens, chosen, drawn_p
from helpers.sampled_cases import briefly, paired
from helpers.tiny_models import tiny_bloom, tiny_gemma2, tiny_gpt2, tiny_gpt_neo, tiny_mamba
from helpers.tiny_tokenizers import CHAT_TEMPLATE, KINDS, byte_level, drawn, llama_for, model_of
from undertow.inference.work_units import QueryRunner, WorkUnit
from undertow.models.backend.tree_attention import TreeKVCache
from undertow.models.base import PrefixTree
from undertow.models.generation import backends, generator
from undertow.types import (
    BEST_SPAN,
    EXACT,
    PAPER,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    Answer,
    ConstrainedGenerateQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Option,
    Query,
    query_digest,
)

torch = pytest.importorskip("torch", reason="the model extra is not installed")
transformers = pytest.importorskip("transformers")

SMILE = "\N{GRINNING FACE}"
Asked = MultipleChoiceQuery | ConstrainedGenerateQuery
CONSTRAINTS = (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
DIMENSIONS = (" gender", " race", " political", " political affiliation", " religion")
DOCUMENTS = (
    "The cats of the house sat by the sea, and they said no.",
    "They were the cats, the cats of old, the cats.",
    "Yes, said the sea.",
)
TASKS = (
    "\nTask: What is said in the text?\nAnswer:",
    "\nTask: What is it about?\nAnswer:",
    "\nQuestion: What is said?\nAnswer:",
    "\nThe text is about",
    "",
)
SHOTS = tuple(f"{document}\nAnswer: race\n" for document in DOCUMENTS)


@cache
def tokenizer_of(kind: str) -> Any:
    tokenizer = KINDS[kind]()
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@cache
def network_of(kind: str) -> Any:
    return llama_for(tokenizer_of(kind))


def model(kind: str = "byte-level") -> Any:
    """A model that was asked nothing yet."""
    return model_of(network_of(kind), tokenizer_of(kind))


@contextmanager
def noting(network: Any) -> Iterator[list[int]]:
    """Tokens of every forward pass of the network, padding and repeats among them."""
    fed: list[int] = []
    hook = network.register_forward_pre_hook(
        lambda _, args, inputs: fed.append(int((inputs["input_ids"] if "input_ids" in inputs else args[0]).numel())),
        with_kwargs=True,
    )
    try:
        yield fed
    finally:
        hook.remove()


def after(asked: Any, prompt: Sequence[int]) -> NatsAfter:
    """Log-probabilities of all tokens after a text [token]: one text, one forward pass, no cache."""

    @cache
    def nats(written: Tokens) -> Any:
        with torch.inference_mode():
            logits = asked.network(input_ids=torch.tensor([[*prompt, *written]]), use_cache=False).logits
        return logits[0, -1].double().log_softmax(-1).numpy()

    return nats


def spelled(asked: Any, text: str) -> list[int]:
    """A text as this model begins one, without what closes it."""
    tokens: list[int] = asked.tokenizer(text)["input_ids"]
    return tokens[:-1] if tokens[-1:] == [asked.tokenizer.eos_token_id] else tokens


def in_chat(asked: Any, text: str) -> list[int]:
    said: list[int] = asked.tokenizer(f"[user] {text}\n[it]\n", add_special_tokens=False)["input_ids"]
    return said


def chosen_by_hand(asked: Any, query: MultipleChoiceQuery, protocol: str = EXACT) -> tuple[str, list[float], float]:
    """The greedy label, all log-probabilities, and the other probability: by texts that are tokenised whole."""
    text = query.display_text()
    if query.chat:
        prompt = in_chat(asked, text)
        whole = [
            [*prompt, *asked.tokenizer(label.strip(), add_special_tokens=False)["input_ids"]] for label in query.labels
        ]
    else:
        prompt = spelled(asked, text)
        whole = [spelled(asked, text + label) for label in query.labels]
    start = next(
        (at for at, tokens in enumerate(zip(prompt, *whole, strict=False)) if len(set(tokens)) > 1),
        min(map(len, (prompt, *whole))),
    )
    labels = [tuple(tokens[start : start + 1] if query.first_token else tokens[start:]) for tokens in whole]
    ends, early = {asked.tokenizer.eos_token_id}, protocol == PAPER
    written, values, other_prob = chosen(labels, after(asked, prompt[:start]), ends, early=early)
    found = query.labels[labels.index(written)] if written in labels else decoded(asked, written)
    return found.strip(), values, other_prob


def prompt_and_passage(asked: Any, query: ConstrainedGenerateQuery) -> tuple[list[int], Tokens]:
    """Both as they are in one whole text."""
    if query.chat:
        passage = asked.tokenizer(query.passage, add_special_tokens=False)["input_ids"]
        return in_chat(asked, query.display_text()), tuple(passage)
    prompt = spelled(asked, query.display_text())
    gap = "" if query.display_text()[-1:].isspace() else " "
    whole = spelled(asked, query.display_text() + gap + query.passage)
    assert whole[: len(prompt)] == prompt
    return prompt, tuple(whole[len(prompt) :])


def ends_for(asked: Any, query: ConstrainedGenerateQuery) -> set[int]:
    ends = {asked.tokenizer.eos_token_id}
    if query.line_ends:
        texts = {token: asked.tokenizer.decode([token]) for token in range(len(asked.tokenizer))}
        ends |= {token for token, text in texts.items() if text.lstrip(" ")[:1] in ("\n", "\r") and text.strip(" ")}
    return ends


def breaks_line(asked: Any, query: ConstrainedGenerateQuery, written: Tokens) -> bool:
    """Whether the last token says something and breaks the line, which ends the answer."""
    return query.line_ends and bool({"\n", "\r"} & set(asked.tokenizer.decode(list(written[-1:]))))


def rules_of(asked: Any, query: ConstrainedGenerateQuery) -> Rules:
    prompt, passage = prompt_and_passage(asked, query)
    ends = ends_for(asked, query)
    return Rules(query, passage, ends, after(asked, prompt), lambda written: breaks_line(asked, query, written))


def decoded(asked: Any, tokens: Sequence[int]) -> str:
    text: str = asked.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def check(asked: Any, queries: Sequence[Asked], protocol: str = EXACT) -> list[Answer]:
    """Ask, and compare every answer with the plainest way to come to it."""
    found = told(asked, queries, protocol)
    for query, answer in zip(queries, found, strict=True):
        if isinstance(query, MultipleChoiceQuery):
            text, values, other_prob = chosen_by_hand(asked, query, protocol)
            assert (answer.text, answer.missing_reason, answer.n_dropped_shots) == (text, "", 0)
            assert answer.logprobs_nats == pytest.approx(values, abs=TOLERANCE_NATS)
            assert answer.other_prob == pytest.approx(other_prob, abs=TOLERANCE_NATS)
        else:
            rules = rules_of(asked, query)
            assert len(rules.check(answer, partial(decoded, asked))) <= len(rules.passage)
    return found


def choices(**settings: Any) -> list[MultipleChoiceQuery]:
    """Prompts that share documents, of several lengths."""
    return [MultipleChoiceQuery(document + task, DIMENSIONS, **settings) for document in DOCUMENTS for task in TASKS]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_probabilities_of_whole_texts(kind: str) -> None:
    """And by protocol paper an end may come within a label."""
    asked = model(kind)
    queries = [
        *choices()[::2],
        *(
            MultipleChoiceQuery(query.prompt, (" political affiliation", " race", " gender"), SHOTS[:1], first_token=True)
            for query in choices()[:3]
        ),
        *choices(shots=SHOTS, chat=True)[::4],
        MultipleChoiceQuery("It is what they said, p", ("olitical", "olitical affiliation", "ast", " race")),
        MultipleChoiceQuery("Again and again and again, it is what they said, p", ("olitical", "olitical affiliation", "ast", " race")),
        MultipleChoiceQuery("What?\nAnswer: ", ("gender", "race", "religion")),
    ]  # fmt: skip
    found = check(asked, queries)
    assert not asked.refusal
    assert len({answer.text for answer in found[:8]}) > 1
    by_paper = {f" {answer.text}" for answer in check(asked, choices(), PAPER)}
    assert kind == "sentence pieces" or by_paper - {*DIMENSIONS}


PASSAGES = (
    *DOCUMENTS,
    f"the cats {SMILE} said {SMILE}{SMILE} caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "  the sea, the sea  ",
    "the cats\n\nsaid no\nto the sea",
    f"{SMILE}",
    "no no no no no no",
)


def writings(
    passages: Sequence[str] = PASSAGES, tasks: Sequence[str] = TASKS[:3], **settings: Any
) -> list[ConstrainedGenerateQuery]:
    return [ConstrainedGenerateQuery(passage + task, passage, **settings) for passage in passages for task in tasks]


def fits(asked: Any, query: ConstrainedGenerateQuery) -> bool:
    """Whether the passage begins with a token of its own behind the prompt."""
    prompt = spelled(asked, query.display_text())
    return spelled(asked, query.display_text() + " " + query.passage)[: len(prompt)] == prompt


@pytest.mark.parametrize(("constraint", "kind"), paired(CONSTRAINTS, KINDS))
def test_greedy_answers_and_best_spans_are_those_of_one_text_at_a_time(constraint: str, kind: str) -> None:
    short = ("the cats, the cats of the sea", f"no {SMILE} no", "Yes\nno", "the cats said")
    queries = writings(
        short if constraint == BEST_SPAN else PASSAGES[::2], TASKS[:1] + TASKS[3:4], constraint=constraint
    )
    queries += writings(short[3:], constraint=constraint, shots=SHOTS[:2])
    queries += writings(short[3:], constraint=constraint, chat=True)
    check(model(kind), queries)


LINE_KINDS = ("byte-level", "sentence pieces", "unigram")
LINES = ("the cats\nsaid no\n\nto the sea", "no\nno\nno\nno", "\nYes\n", "They\r\nwere the\r\ncats")


@pytest.mark.parametrize(("constraint", "kind"), paired(CONSTRAINTS, LINE_KINDS))
def test_a_line_break_ends_an_answer_where_it_is_told_to(constraint: str, kind: str) -> None:
    asked = model(kind)
    tasks = [f"{task} {number}:" for task in TASKS[:2] for number in range(2)]
    queries = [query for query in writings(LINES, tasks, constraint=constraint, line_ends=True) if fits(asked, query)]
    assert len(queries) >= 12
    found = check(asked, queries)
    plain = told(asked, [replace(query, line_ends=False) for query in queries])
    if kind == "byte-level":
        assert [one.text for one in plain] != [one.text for one in found]


def test_a_span_is_over_where_a_token_says_something_and_breaks_the_line() -> None:
    """To a network that finds everything equally probable, such a token alone needs no end after it."""
    tokenizer = tokenizer_of("sentence pieces")
    network = llama_for(tokenizer)
    with torch.no_grad():
        network.lm_head.weight.zero_()
    asked = model_of(network, tokenizer)
    query = ConstrainedGenerateQuery("What?\nAnswer:", "race?\nAnswer: race race", BEST_SPAN, line_ends=True)
    over, going_on = told(asked, [query, replace(query, line_ends=False)])
    one_nats = -math.log(len(tokenizer))
    assert over.text == "?"
    assert over.logprobs_nats == pytest.approx((one_nats,), abs=TOLERANCE_NATS)
    assert going_on.logprobs_nats == pytest.approx((2 * one_nats,), abs=TOLERANCE_NATS)


@cache
def decided() -> Any:
    """A model whose distributions are far from even, so that a temperature makes a difference."""
    tokenizer = tokenizer_of("byte-level")
    network = llama_for(tokenizer)
    with torch.no_grad():
        network.lm_head.weight.mul_(4.0)
    return model_of(network, tokenizer)


N_DRAWS = 500
DRAWN = [
    ConstrainedGenerateQuery("The sea.\nAnswer:", "cats", UNCONSTRAINED, temperature=0.7, top_k=8),
    ConstrainedGenerateQuery("The sea.\nAnswer:", "cats", UNCONSTRAINED, temperature=1.5),
    ConstrainedGenerateQuery("The sea.\nAnswer:", "cats said", PASSAGE_TOKENS, temperature=0.7, top_k=50),
    ConstrainedGenerateQuery("The sea.\nAnswer:", "the cats said the sea", SPAN, temperature=2.0, top_k=2),
    ConstrainedGenerateQuery("The sea.\nAnswer:", "no\ncats", PASSAGE_TOKENS, temperature=2.0, line_ends=True),
]


@pytest.mark.parametrize("query", DRAWN, ids=lambda query: f"{query.constraint}-{query.temperature}-{query.top_k}")
def test_answers_are_drawn_as_often_as_they_are_probable(query: ConstrainedGenerateQuery) -> None:
    asked = decided()
    found = told(asked, [replace(query, seed=seed) for seed in range(N_DRAWS)])
    texts = [answer.text for answer in found]
    assert drawn_p(texts, rules_of(asked, query).outcomes(partial(decoded, asked))) > 1e-3
    # And the test would notice another temperature.
    warmer = replace(query, temperature=query.temperature * 2)
    assert drawn_p(texts, rules_of(asked, warmer).outcomes(partial(decoded, asked))) < 1e-4


LETTERS = tuple(Option(letter, (letter,)) for letter in "acns")


def mixture() -> list[MultipleChoiceQuery | ConstrainedGenerateQuery | GenerateQuery]:
    """Choices, prompts and answers of every sort, about documents of several lengths."""
    return [
        *choices(),
        *choices(shots=SHOTS[:1])[::2],
        *choices(chat=True)[::3],
        *writings(DOCUMENTS),
        *writings(DOCUMENTS, constraint=PASSAGE_TOKENS, line_ends=True),
        *writings(DOCUMENTS, constraint=SPAN, shots=SHOTS[:1]),
        *writings(DOCUMENTS[:2], constraint=BEST_SPAN),
        *writings(DOCUMENTS, constraint=SPAN, temperature=0.7, top_k=50),
        *(GenerateQuery(document + task, LETTERS, 4) for document in DOCUMENTS for task in TASKS[:2]),
        ConstrainedGenerateQuery("", "the cats"),
    ]


@cache
def reference() -> tuple[Answer, ...]:
    return tuple(told(model(), mixture()))


def test_one_by_one_and_in_any_order() -> None:
    asked = model()
    alike([told(asked, [query])[0] for query in mixture()[::3]], reference()[::3])
    order = random.Random(0).sample(range(len(mixture())), len(mixture()))
    alike(told(asked, [mixture()[at] for at in order]), [reference()[at] for at in order])
    alike(told(asked, mixture()), reference())


@pytest.mark.parametrize("room", briefly([90, 1]))
def test_over_many_packs(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "CPU_FORWARD_TOKENS", room)
    monkeypatch.setattr(backends, "CPU_TREE_TOKENS", 2 * room)
    asked = model()
    packs = [pack for section in asked.sections(mixture()) for pack in section]
    assert len(packs) > 10
    assert sorted(place for pack in packs for place in pack) == list(range(len(mixture())))
    alike(told(asked, mixture()), reference())


def test_in_plain_batches() -> None:
    asked = model()
    asked._refusal = "told so"
    alike(told(asked, mixture()), reference())
    assert not asked.tree.trunk.n_columns


def test_a_prompt_longer_than_a_pass_is_fed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "CPU_FORWARD_TOKENS", 16)
    asked = model()
    assert not asked.refusal  # its checks are behind it
    with noting(asked.network) as fed:
        told(asked, choices()[:1])
    assert len(fed) > 1
    assert max(fed) == 16
    check(asked, choices()[:1])


def many(n_tasks: int = 12) -> list[MultipleChoiceQuery]:
    """Two long documents and a short one, each with the same tasks."""
    long = [" ".join([document] * 3) for document in DOCUMENTS[:2]]
    tasks = [f"\nTask {number}: What is it about?\nAnswer:" for number in range(n_tasks)]
    return [MultipleChoiceQuery(document + task, DIMENSIONS) for document in (*long, DOCUMENTS[2]) for task in tasks]


def test_what_prompts_share_is_fed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all packs, and whatever else is in them, all but the last token of what begins one."""
    monkeypatch.setattr(backends, "CPU_FORWARD_TOKENS", 150)
    asked = model()
    assert not asked.refusal  # its checks are behind it
    prompts, _ = asked.split_queries(many())
    paths = [(*prompt.tokens, *prefix) for prompt in prompts for prefix in prompt.nodes]
    n_nodes = len(PrefixTree.from_paths(paths).tokens)
    n_packs = sum(map(len, asked.sections(many())))
    assert n_packs > 4
    with noting(asked.network) as fed:
        told(asked, many())
    assert len(fed) == n_packs
    assert sum(fed) <= n_nodes + n_packs
    assert max(fed) <= 150
    assert sum(fed) < sum(len(prompt.tokens) for prompt in prompts) / 2


def test_a_run_that_broke_off_in_the_middle_of_a_pass_leaves_a_cache_that_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = model()
    assert not asked.refusal  # its checks are behind it
    told(asked, mixture()[:20])
    feed, n_calls = TreeKVCache.feed, 0

    def failing(self: Any, *given: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        logits = feed(self, *given)
        if n_calls == 4:
            raise KeyboardInterrupt
        return logits

    monkeypatch.setattr(TreeKVCache, "feed", failing)
    with pytest.raises(KeyboardInterrupt):
        told(asked, writings(DOCUMENTS))
    monkeypatch.setattr(TreeKVCache, "feed", feed)
    alike(told(asked, mixture()), reference())


def architecture(build: Callable[[], Any]) -> Any:
    tokenizer = byte_level()
    network = build()
    network.resize_token_embeddings(len(tokenizer))
    return model_of(drawn(network, torch.Generator().manual_seed(0)), tokenizer)


@pytest.mark.parametrize(
    ("build", "in_tree"),
    [(tiny_gpt2, True), (tiny_gemma2, True), (tiny_mamba, False), (tiny_bloom, False), (tiny_gpt_neo, False)],
    ids=["gpt2", "gemma2", "mamba", "bloom", "gpt-neo"],
)
def test_every_architecture_answers_as_one_text_at_a_time(build: Callable[[], Any], in_tree: bool) -> None:
    asked = architecture(build)
    assert (not asked.refusal) == in_tree
    queries: list[Asked] = []
    for word in ("sea", "cats", "cats of old"):
        queries += [MultipleChoiceQuery(f"The {word}.{task}", DIMENSIONS) for task in ("\nAnswer:", " It is")]
        queries += writings(("the sea, the cats",), (f"The {word}.\nAnswer:",), constraint=BEST_SPAN)
        for constraint in (UNCONSTRAINED, PASSAGE_TOKENS, SPAN):
            passage, text = "the sea, said the cats", f"The {word}.\nAnswer:"
            queries.append(ConstrainedGenerateQuery(text, passage, constraint, line_ends=True))
    check(asked, queries)


def test_a_window_that_some_prompts_outgrow_keeps_these_out_of_the_tree() -> None:
    asked = architecture(tiny_gemma2)
    assert asked.prompt_depth == 8
    queries = [MultipleChoiceQuery(text, (" no", " cats")) for text in ("The sea.", DOCUMENTS[0])]
    check(asked, queries)
    assert list(map(len, asked.sections(queries))) == [1, 1]


def test_a_network_without_an_end_writes_to_the_end_of_its_room() -> None:
    """In plain batches, too, where the first token of the vocabulary is a token like any other."""
    tokenizer = tokenizer_of("byte-level")
    network = llama_for(tokenizer)
    queries: list[Query] = [*writings(DOCUMENTS), *writings(DOCUMENTS, constraint=SPAN), *choices()[:1]]
    with torch.no_grad():
        favourite = int(network(torch.tensor([tokenizer(DOCUMENTS[0] + TASKS[0])["input_ids"]])).logits[0, -1].argmax())
        network.lm_head.weight[0] = 1.05 * network.lm_head.weight[favourite]
    found = []
    for refusal in ("", "told so"):
        asked = model_of(network, tokenizer)
        asked.stops.ends = frozenset()
        asked._refusal = refusal
        found.append(told(asked, queries))
    alike(found[0], found[1])
    for query, answer in zip(writings(DOCUMENTS), found[0], strict=False):
        rules = replace(rules_of(asked, query), ends=set())
        assert len(rules.check(answer, partial(decoded, asked))) == len(rules.passage)
    assert found[0][-1].logprobs_nats[2] == -math.inf  # *political* could go on, and cannot end


def refuse(columns: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    "wrong",
    [lambda columns: [*columns][::-1], lambda columns: [max(0, one - 1) for one in columns], refuse],
    ids=["turned", "one off", "none"],
)
def test_a_cache_that_keeps_what_it_should_not_is_found_out(
    wrong: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = TreeKVCache.keep_path
    monkeypatch.setattr(TreeKVCache, "keep_path", lambda self, path, columns: keep(self, path, wrong(columns)))
    asked = model()
    assert asked.refusal
    alike(told(asked, mixture()[::3]), reference()[::3])


def test_a_network_that_says_no_numbers_has_no_answers() -> None:
    asked = model_of(llama_for(tokenizer_of("byte-level")), tokenizer_of("byte-level"))
    assert not asked.refusal
    with torch.no_grad():
        asked.network.lm_head.weight.fill_(math.nan)
    queries: list[Query] = [
        choices()[0],
        *(ConstrainedGenerateQuery("The sea.", "the cats", one) for one in CONSTRAINTS),
    ]
    queries.append(ConstrainedGenerateQuery("The sea.", "the cats", SPAN, temperature=1.0))
    assert {one.missing_reason for one in told(asked, queries)} == {"the model gave a probability that is not a number"}


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "CPU_FORWARD_TOKENS", 90)
    monkeypatch.setattr(backends, "CPU_TREE_TOKENS", 200)
    answered: list[Tokens] = []
    plain = generator.PromptModel.answer_pack

    def watched(self: Any, pack: Any, protocol: str) -> Any:
        if len(answered) == stop_at:
            raise KeyboardInterrupt
        answered.append(tuple(prompt.tokens for prompt in pack))
        return plain(self, pack, protocol)

    monkeypatch.setattr(generator.PromptModel, "answer_pack", watched)
    stop_at = -1
    whole = answers(model(), mixture(), tmp_path / "whole")
    as_planned = list(answered)
    assert len(as_planned) == sum(map(len, model().sections(mixture()))) - 1  # one prompt cannot be asked
    alike(whole, reference())
    answered.clear()
    for stop_at in (3, 8):
        with pytest.raises(KeyboardInterrupt):
            answers(model(), mixture(), tmp_path / "cut")
        assert len(answered) == stop_at
    stop_at = -1
    done = len(answered)
    again = answers(model(), mixture(), tmp_path / "cut")
    assert len(answered) - done <= len(as_planned)
    assert list(map(repr, again)) == list(map(repr, whole))  # to the last bit: a section that was cut off is done again


def test_sections_say_the_same_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, though a pack begins with what the one before left: each section is told to forget that."""
    monkeypatch.setattr(backends, "CPU_FORWARD_TOKENS", 90)
    monkeypatch.setattr(backends, "CPU_TREE_TOKENS", 200)
    monkeypatch.setattr(generator, "SECTION", 3)
    distinct = {query_digest(query): query for query in mixture()}
    said = []
    for backwards in (False, True):
        asker, answers = QueryRunner(model(), dict(distinct), EXACT), dict[str, Answer]()
        portions = [portion for portion in asker.work_units(frozenset()) if isinstance(portion, WorkUnit)]
        assert len(portions) > 4
        for portion in reversed(portions) if backwards else portions:
            for arrived in asker.answers(portion):
                answers |= arrived.answers
        said.append({digest: repr(answers[digest]) for digest in distinct})
    assert said[0] == said[1]


def test_a_pack_costs_the_tokens_of_its_tree_and_the_memory_of_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tokens together, 3 and 4 apart, and 6 of labels behind either; keys and values of 8 floats of 2 heads in 2 layers."""
    asked = model()
    asked._refusal = ""
    labelled = [MultipleChoiceQuery(f"The sea.{task}", DIMENSIONS) for task in ("\nAnswer:", " It is")]
    prompts, _ = asked.split_queries(labelled)
    cost = asked.pack_cost(prompts)
    assert (cost.n_tokens, cost.n_passes) == (23, 1)
    of_cache, of_step = 4 * 23 * 2 * 8 * 2 * 2, 3 * 4 * 2 * 340 + 4 * 23**2
    assert cost.memory_bytes == asked.memory_bytes(1) + of_cache + of_step
    four_heads = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4)  # each with keys of its own
    monkeypatch.setattr(asked.network, "config", four_heads)
    assert asked.pack_cost(prompts).memory_bytes == asked.memory_bytes(1) + 2 * of_cache + of_step
    written, _ = asked.split_queries([ConstrainedGenerateQuery("The sea.", "the cats")])
    assert asked.pack_cost(written).n_passes == len(written[0].passage.tokens) + 1
    asked._refusal = "told so"
    assert asked.pack_cost(prompts).n_tokens == 7 + 6 + 8 + 6
