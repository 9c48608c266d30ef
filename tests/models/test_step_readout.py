"""The rule of McMilin 2024 (AAAI), appendix B.3, by hand; and what was not shown lies within the bounds that are given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.models.generation.step_readout import Step, answer_of, steps_that_count
from undertow.types import Answer, GenerateQuery, Option

NAN = math.nan
WORDS = ("she", "her", "he")
Floats = tuple[float, ...]
OPTIONS = Option("female", ("she",)), Option("female", ("her",)), Option("male", ("he",))
PROMPT = GenerateQuery("Who?", OPTIONS)


def probs(answer: Answer) -> list[float]:
    return [math.exp(value) for value in answer.logprobs_nats]


def answered(*steps: Step) -> Answer:
    return answer_of(PROMPT, steps, "".join(step.token for step in steps))


THE, SHE, HE = (Step(" The", (0.1, 0.2, 0.3)), Step(" she", (0.6, 0.05, 0.3)), Step(" he", (0.2, 0.0, 0.6)))
END = Step(".", (0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([THE, SHE, END], (0.6, 0.05, 0.3), id="exactly one: its step"),
        pytest.param([THE], (0.1, 0.2, 0.3), id="one step, no word"),
        pytest.param([THE, END], (0.05, 0.1, 0.15), id="none: the sum over steps by their number"),
        pytest.param([SHE, HE, END], (0.8 / 3, 0.05 / 3, 0.3), id="two words"),
        pytest.param([SHE, Step(" her", (0.1, 0.7, 0.1))], (0.35, 0.375, 0.2), id="two words of one group"),
        pytest.param([SHE, END, SHE], (0.4, 0.1 / 3, 0.2), id="one word twice"),
    ],
)
def test_the_steps_that_count(steps: list[Step], expected: tuple[float, ...]) -> None:
    answer = answered(*steps)
    assert probs(answer) == pytest.approx(expected)
    assert answer.other_prob == pytest.approx(1 - sum(expected))
    assert (answer.missing_reason, answer.upper_bound_prob, answer.truncated_prob) == ("", (), 0.0)
    assert answer.text == "".join(step.token for step in steps)


@pytest.mark.parametrize(
    ("token", "counts"), [("\nshe", True), ("she", True), ("She", False), ("she.", False), ("", False)]
)
def test_a_token_says_a_word_but_for_the_space_around_it(token: str, counts: bool) -> None:
    step, before = Step(token, (0.5, 0.0, 0.1)), Step(" is:", (0.1, 0.2, 0.3))
    chosen = steps_that_count([before, step], OPTIONS)
    assert list(chosen) == ([step] if counts else [before, step])


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ((" T", "he", "y"), False),
        (("T", "he"), False),
        ((" s", "he"), True),
        ((" s", "h", "e", "ll"), False),
        ((" he", "aven"), False),
        ((" he", "r", "."), True),
        ((" he", "'s"), True),
        ((" (", "he", ")"), True),
        ((" it", " he "), True),
    ],
)
def test_a_piece_of_a_longer_word_says_nothing(tokens: tuple[str, ...], said: bool) -> None:
    steps = [Step(token, (0.1, 0.2, 0.3)) for token in tokens]
    assert (len(steps_that_count(steps, OPTIONS)) == 1) == said


def test_where_tokens_are_known_by_number_their_text_does_not_matter() -> None:
    """An uncased vocabulary says *she* where *She* was asked about."""
    lower = Step(" she", (0.5, 0.0, 0.1), spells=True)
    upper = (Option("female", ("SHE",)), Option("male", ("HE",)))
    assert list(steps_that_count([THE, lower], upper)) == [lower]
    assert len(steps_that_count([THE, Step(" she", (0.5, 0.0, 0.1), spells=False)], OPTIONS)) == 2


@pytest.mark.parametrize("bad", [(NAN, NAN, NAN), (NAN, math.inf, 0.0)])
def test_a_probability_that_is_not_a_number_is_missing(bad: tuple[float, ...]) -> None:
    answer = answered(Step("the", bad), THE)
    assert "not a number" in answer.missing_reason
    assert answer.logprobs_nats == ()


ALONE, WHOLE = (0.5, 0.0, 0.4), Step("one", (0.2, 0.3, 0.5))
HIDING = Step("the", (0.1, 0.0, 0.2), (1, 0, 1), 0.2, 0.05)
BESIDE, COUNTS = (
    Step("one", (0.0, 0.0, 0.3), (0, 0, 2), 0.06, 0.04),
    Step(" she", (0.9, 0.0, 0.0), (1, 0, 0), 0.02, 0.01),
)


@pytest.mark.parametrize(
    ("steps", "ceilings", "truncated_prob"),
    [
        pytest.param(
            [Step("she", ALONE, (1, 0, 1), 0.015, 0.1)], (0.015,) * 3, 0.015, id="no higher than what is hidden"
        ),
        pytest.param([Step("she", ALONE, (3, 2, 2), 0.05, 0.01)], (0.0,) * 3, 0.05, id="more spellings than two"),
        pytest.param([Step("she", (0.5, NAN, 0.0), (1, 0, 0), 0.4, 0.1)], (0.1, 0.0, 0.2), 0.4, id="an option unseen"),
        pytest.param([HIDING, BESIDE], ((0.05 + 0.06) / 2, (0.1 + 0.06) / 2, 0.05 / 2), 0.13, id="their mean"),
        pytest.param([HIDING, COUNTS], (0.01, 0.02, 0.02), 0.02, id="of the step that counts alone"),
        pytest.param([HIDING, WHOLE], (0.025, 0.05, 0.025), 0.1, id="beside one that was shown whole"),
    ],
)
def test_ceilings(steps: list[Step], ceilings: Floats, truncated_prob: float) -> None:
    answer = answered(*steps)
    assert answer.upper_bound_prob == pytest.approx(ceilings)
    assert answer.truncated_prob == pytest.approx(truncated_prob)
    assert len(steps) > 1 or probs(answer) == pytest.approx(steps[0].probs, nan_ok=True)


@dataclass(frozen=True)
class Whole:
    """A step's whole distribution [token], in which words have one or two spellings; the most probable tokens are shown."""

    texts: Sequence[str]
    probs: Sequence[float]
    n_shown: int

    def mass(self, word: str) -> float:
        return math.fsum(prob for text, prob in zip(self.texts, self.probs, strict=True) if text.strip() == word)

    def shown(self) -> Step:
        ranked = sorted(zip(self.probs, self.texts, strict=True), reverse=True)
        seen = ranked[: self.n_shown]
        own = [[prob for prob, text in seen if text.strip() == word] for word in WORDS]
        return Step(
            token=ranked[0][1],
            probs=tuple(math.fsum(probs) for probs in own),
            n_seen=tuple(map(len, own)),
            truncated_prob=math.fsum(prob for prob, _ in ranked[self.n_shown :]),
            least_prob=seen[-1][0],
        )


@st.composite
def wholes(draw: st.DrawFn) -> list[Whole]:
    """Steps of an answer, from peaked to flat, of a model whose words have one or two spellings."""
    spellings = [*WORDS, *(f" {word}" for word in WORDS if draw(st.booleans()))]
    texts = [*spellings, *(f"t{number}" for number in range(draw(st.integers(0, 5))))]
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        weights = draw(st.lists(st.sampled_from([0, 1, 2, 3, 10, 300]), min_size=len(texts), max_size=len(texts)))
        weights[draw(st.integers(0, len(texts) - 1))] += 1
        total = sum(weights)
        steps.append(Whole(texts, [weight / total for weight in weights], draw(st.integers(1, len(texts)))))
    return steps


@settings(max_examples=150)
@given(wholes())
def test_the_truth_lies_between_what_was_seen_and_the_ceilings(whole: list[Whole]) -> None:
    shown = [step.shown() for step in whole]
    answer = answered(*shown)
    chosen = steps_that_count(shown, OPTIONS)
    counted = [step for step, own in zip(whole, shown, strict=True) if any(own is one for one in chosen)]
    truth = [math.fsum(step.mass(word) for step in counted) / len(counted) for word in WORDS]
    low, ceilings = probs(answer), answer.upper_bound_prob
    for at in range(len(WORDS)):
        assert low[at] - 1e-12 <= truth[at] <= low[at] + ceilings[at] + 1e-12
    # A group may have no more than was hidden in all; nor may all groups.
    for members in ((0, 1), (2,), (0, 1, 2)):
        seen, hidden = sum(low[at] for at in members), sum(ceilings[at] for at in members)
        mass = math.fsum(truth[at] for at in members)
        assert seen - 1e-12 <= mass <= seen + min(hidden, answer.truncated_prob) + 1e-12
    assert answer.other_prob + 1e-12 >= 1 - math.fsum(truth)
