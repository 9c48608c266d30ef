"""Labels by steps, as the paper decodes them and without early ends: by hand, and beside a loop over whole texts."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from undertow import models
from undertow.models.base import ModelRequest
from undertow.models.generation.constraints import END, LabelTrie, greedy_label
from undertow.types import EXACT, PAPER, Answer, MultipleChoiceQuery

LABELS = (" gender", " she", " she was", " she was a child", " he was an adult", " religion")


def test_an_end_within_a_label_wins_where_the_paper_lets_it_compete() -> None:
    """Labels 1, 2 3 and 2 3 4: after 2 the end has .6 and 3 has .3; after 2 3 the end has .4 and 4 has .5."""
    trie = LabelTrie.from_labels([(1,), (2, 3), (2, 3, 4)])
    nexts = {
        (): {1: math.log(0.3), 2: math.log(0.5), END: math.log(0.9)},
        (2,): {3: math.log(0.3), END: math.log(0.6)},
        (2, 3): {4: math.log(0.5), END: math.log(0.4)},
    }
    assert greedy_label(trie, nexts, ends_early=True) == ((2,), None)
    assert greedy_label(trie, nexts) == ((2, 3, 4), 2)
    nexts[2, 3] = {4: math.log(0.4), END: math.log(0.5)}
    assert greedy_label(trie, nexts) == ((2, 3), 1)
    nexts[2,] = {3: math.log(0.6), END: math.log(0.3)}
    assert greedy_label(trie, nexts, ends_early=True) == ((2, 3), 1), (
        "never at the first step, and at a whole label as ever"
    )


@pytest.mark.parametrize("builder", ["tiny_gpt2", "tiny_llama"])
def test_answers_are_those_of_a_loop_over_whole_texts(builder: str, network: Callable[[str], str]) -> None:
    """The loop knows no tree and no cache: it feeds the text so far, and takes the largest logit of what may come next."""
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = network(builder)
    tokenizer, plain = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    ends = [tokenizer.eos_token_id]
    spelled = [tokenizer(label, add_special_tokens=False)["input_ids"] for label in LABELS]

    def by_loop(prompt: str, *, early: bool) -> str:
        written: list[int] = []
        while True:
            following = {
                one[len(written)] for one in spelled if one[: len(written)] == written and len(one) > len(written)
            }
            may_end = written in spelled or (early and bool(written))
            if not following:
                break
            with torch.no_grad():
                tokens = torch.tensor([tokenizer(prompt)["input_ids"] + written])
                logits = plain(tokens).logits[0, -1]
            best = max(sorted(following), key=lambda token: float(logits[token]))
            if may_end and float(logits[ends].logsumexp(-1)) > float(logits[best]):
                break
            written.append(best)
        return str(tokenizer.decode(written)).strip()

    prompts = [f"In {year}, {word} was" for year in range(1900, 1960, 4) for word in ("she", "he")]
    queries = [MultipleChoiceQuery(prompt, LABELS) for prompt in prompts]
    model = models.resolve(ModelRequest(folder)).open()
    found = {}
    for protocol in (EXACT, PAPER):
        said: dict[int, Answer] = {}
        for some in model.answer(queries, protocol):
            said |= some
        found[protocol] = [said[at].text for at in range(len(queries))]
        assert found[protocol] == [by_loop(prompt, early=protocol == PAPER) for prompt in prompts]
    parts = set(found[PAPER]) - {label.strip() for label in LABELS}
    assert parts, "an end came early somewhere"
    assert not set(found[EXACT]) - {label.strip() for label in LABELS}
