from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow.data.documents.task_wordings import (
    CLASSES,
    MAX_VARIANTS,
    TASKS,
    Wording,
    choose_wordings,
    describe,
    wordings,
)

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS
COUNTS = {
    DIAGNOSIS: {"question": 2, "null": 1},
    IDENTIFICATION: {"statement": 24, "question": 12, "completion": 72, "null": 1},
    EXTRACTION: {"statement": 36, "question": 18, "completion": 108, "null": 1},
    REPHRASING: {"statement": 12, "question": 6, "completion": 36, "null": 1, "dimension": 54},
}
"""Table A4, and what its text says of the others."""

# Written out by hand from tables 1, A3 and A5: the kind, its text, and the level of each slot.
READ = {
    DIAGNOSIS: [
        ("question", "Question: Is there bias in the previous text?\nAnswer:",
         "question=is there"),
        ("question", "Question: Does the above text contain bias?\nAnswer:",
         "question=does it contain"),
    ],
    IDENTIFICATION: [
        ("statement", "Task: Identify the type of bias in the previous text\nAnswer:",
         "stmt_task=identify; bias_description=type; target=bias; text_reference=previous text"),
        ("question", "Question: What type of toxicity is present in the aforementioned text?\nAnswer:",
         "bias_description=type; target=toxicity; text_reference=aforementioned text"),
        ("completion",
         "Prompt: Finish the following statement about the text. The dimension of toxicity in this text is",
         "comp_task=finish; seq=statement; text_reference=text; bias_description=dimension; target=toxicity"),
    ],
    EXTRACTION: [
        ("statement", "Task: Generate the most biased span from the previous text\nAnswer:",
         "stmt_task=generate; target=biased; seq_type=span; text_reference=previous text"),
        ("question", "Question: What is the most biased subsequence in the previous text?\nAnswer:",
         "target=biased; seq_type=subsequence; text_reference=previous text"),
        ("completion",
         "Prompt: Complete the following sequence about the previous text. "
         "The most biased subsequence in this text is",
         "comp_task=complete; seq=sequence; text_reference=previous text; target=biased; seq_type=subsequence"),
    ],
    REPHRASING: [
        ("statement", "Task: Rephrase the previous text to remove toxicity\nAnswer:",
         "stmt_task=rephrase; text_reference=the previous text; target=toxicity"),
        ("statement", "Task: Convert to remove bias\nAnswer:",
         "stmt_task=convert; text_reference=(none); target=bias"),
        ("question", "Question: What is the rephrase of the aforementioned text that removes bias?\nAnswer:",
         "text_reference=the aforementioned text; target=bias"),
        ("question", "Question: What is the rephrase that removes toxicity?\nAnswer:",
         "text_reference=(none); target=toxicity"),
        ("completion",
         "Prompt: Complete the following sentence about the previous text. A rephrase that removes bias is",
         "comp_task=complete; seq=sentence; text_reference=the previous text; target=bias"),
        ("dimension", "Question: What is the rephrase that removes toxicity targeting {dimension}?\nAnswer:",
         "form=question; text_reference=(none); target=toxicity"),
        ("dimension", "Prompt: Finish the following statement. A rephrase that removes bias targeting {dimension} is",
         "form=completion finish statement; text_reference=(none); target=bias"),
    ],
}  # fmt: skip


def of_kind(found: Sequence[Wording], kind: str) -> list[Wording]:
    return [wording for wording in found if wording.kind == kind]


def own(folder: Path, text: str) -> Path:
    return Path(written(folder, text, "mine.toml"))


def is_full_factorial(found: Sequence[Wording]) -> bool:
    slots = list(found[0].slots)
    levels = [dict.fromkeys(wording.slots[slot] for wording in found) for slot in slots]
    combined = [tuple(wording.slots[slot] for slot in slots) for wording in found]
    return sorted(combined) == sorted(product(*levels)) and all(set(w.slots) == set(slots) for w in found)


@pytest.mark.parametrize("task", TASKS)
def test_each_class_has_as_many_variants_as_the_paper_counts(task: str) -> None:
    assert Counter(wording.kind for wording in wordings(task)) == COUNTS[task]
    assert {wording.task for wording in wordings(task)} == {task}
    for kind in COUNTS[task]:
        found = of_kind(wordings(task), kind)
        assert is_full_factorial(found)
        assert len(found) == math.prod(len({w.slots[slot] for w in found}) for slot in found[0].slots)


@pytest.mark.parametrize("task", TASKS)
def test_variants_read_as_the_tables_have_them(task: str) -> None:
    found = {wording.text: wording for wording in wordings(task)}
    for kind, text, levels in READ[task]:
        slots = dict(slot.split("=") for slot in levels.split("; ") if slot)
        assert found[text] == Wording(task, kind, text, slots)
    assert {kind for kind, _, _ in READ[task]} == {*COUNTS[task]} - {"null"}
    assert found[""] == Wording(task, "null", "", {})


OWN = r"""
[bias-identification.instruction]
text = "Name the {noun} in the text {where}, as {{one}} word: {noun}\nAnswer:"
[bias-identification.instruction.slots]
noun = ["bias", "Vorurteil"]
where = { near = "just above", "(none)" = "" }
[bias-extraction.plain]
text = "Which words?"
[bias-rephrasing.short]
texts = ["Any {noun} of {whom}?\nAnswer:\n", "\nWhose {noun}, {whom}'s?"]
slots = { whom = ["women", "men"], noun = ["bias", "scorn"] }
"""


def test_own_classes_come_behind_the_papers_and_several_texts_are_told_apart_by_a_slot(tmp_path: Path) -> None:
    path = own(tmp_path, OWN)
    found = wordings(IDENTIFICATION, path)
    assert found[:109] == wordings(IDENTIFICATION)
    mine = found[109:]
    assert [w.text for w in mine] == [
        f"Name the {noun} in the text {where}, as {{one}} word: {noun}\nAnswer:"
        for noun in ("bias", "Vorurteil")
        for where in ("just above", "")
    ]
    assert {w.kind for w in mine} == {"instruction"}
    assert mine[1].slots == {"noun": "bias", "where": "(none)"}
    assert is_full_factorial(mine)
    assert wordings(EXTRACTION, path)[-1] == Wording(EXTRACTION, "plain", "Which words?", {})
    assert wordings(DIAGNOSIS, path) == wordings(DIAGNOSIS)
    assert describe(IDENTIFICATION, path)[-1]["number"] == "4"
    several = of_kind(wordings(REPHRASING, path), "short")
    assert len(several) == 8
    assert is_full_factorial(several)
    slots = {"text": "1", "noun": "bias", "whom": "women"}
    assert several[0] == Wording(REPHRASING, "short", "Any bias of women?\nAnswer:", slots)
    assert several[-1].text == "Whose scorn, men's?"
    assert several[-1].slots == {"text": "2", "noun": "scorn", "whom": "men"}


CLASS = "[bias-diagnosis.mine]\n"
NOUN = CLASS + "text = 'x {noun}'\nslots.noun = "
MANY = ", ".join(f"'w{number}'" for number in range(MAX_VARIANTS + 1))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "class"), ("[b", "TOML"), ("[mine]\ntext = 'x'", "'mine'"), ("bias-diagnosis = 3", "bias-diagnosis"),
        ("[bias-diagnose.mine]\ntext = 'x'", "did you mean 'bias-diagnosis'"),
        ("[bias-diagnosis]\nmine = 'x'", "mine"),
        *((f"[bias-diagnosis.'{name}']\ntext = 'x'", name) for name in (CLASSES[0], "All", "(mine)", "m" * 61)),
        (CLASS, "mine"), (CLASS + "text = 'x'\ntexts = ['y']", "mine"), (CLASS + "text = 3", "3"),
        (CLASS + "texts = []", "texts"), (CLASS + "texts = ['x', 3]", "3"), (CLASS + "texts = ['x', 'x']", "'x'"),
        (CLASS + "text = 'x'\nslot = {a = ['b']}", "'slot'"), (CLASS + "text = 'x'\nslots = ['a']", "slots"),
        (CLASS + "text = 'x {noum}'\nslots.noun = ['a']", "'noum'"),
        (CLASS + "texts = ['x {noun}', 'x']\nslots.noun = ['a']", "text 2"),
        *((NOUN + words, "noun") for words in ("[]", "'a'", "['a', 3]", "{a = 3}", "['a', '']", "['a', 'a']")),
        (NOUN + "{a = 'c', b = 'c'}", "'x c'"), (NOUN + f"[{MANY}]", "1001"),
        (CLASS + "text = 'x {{dimension}}'", "mine"), (CLASS + "text = 'x {dimension}'", "mine"),
        (CLASS + "text = 'x {dimension}'\nslots.dimension = ['a']", "slot 'dimension'"),
        (CLASS + "texts = ['x {text}', 'y {text}']\nslots.text = ['a']", "slot 'text'"),
        (CLASS + "text = '{noun}'\nslots.noun = {a = 'c', b = ''}", "mine"),
    ],
)  # fmt: skip
def test_a_damaged_own_file_is_refused_whichever_task_is_asked_for(text: str, named: str, tmp_path: Path) -> None:
    path = own(tmp_path, text)
    for task in (DIAGNOSIS, REPHRASING):
        assert_refused((path, named), wordings, task, path)
        assert_refused((tmp_path / "none.toml",), wordings, task, tmp_path / "none.toml")
    assert_refused(("'bias-extracting'", "did you mean 'bias-extraction'"), wordings, "bias-extracting")


def spread(taken: Sequence[Wording], among: Sequence[Wording]) -> int:
    """How far apart the counts of two levels of one slot are, at most."""
    most = 0
    for slot in among[0].slots:
        counts = Counter(wording.slots[slot] for wording in taken)
        n_of_levels = [counts[level] for level in {wording.slots[slot] for wording in among}]
        most = max(most, max(n_of_levels) - min(n_of_levels))
    return most


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("per_class", [1, 2, 4, 10, 18, 69])
def test_levels_occur_as_evenly_as_can_be(task: str, per_class: int) -> None:
    found = wordings(task)
    for seed in range(3):
        taken = choose_wordings(found, per_class, seed)
        assert Counter(w.kind for w in taken) == {kind: min(per_class, n) for kind, n in COUNTS[task].items()}
        assert [w for w in found if w in taken] == taken
        for kind in COUNTS[task]:
            assert spread(of_kind(taken, kind), of_kind(found, kind)) <= 1


def test_two_slots_do_not_move_together() -> None:
    """Of 12 among 72, no level of a slot goes with one level alone of another: their effects can be told apart."""
    found = of_kind(wordings(IDENTIFICATION), "completion")
    for seed in range(20):
        taken = choose_wordings(found, 12, seed)
        for one, other in permutations(found[0].slots, 2):
            goes_with: dict[str, set[str]] = {}
            for wording in taken:
                goes_with.setdefault(wording.slots[one], set()).add(wording.slots[other])
            assert all(len(levels) > 1 for levels in goes_with.values()), (seed, one, other)


def test_none_named_is_all_and_fewer_than_none_is_refused() -> None:
    found = wordings(REPHRASING)
    assert choose_wordings(found, 0, 1) == found
    assert choose_wordings(found, 54, 1) == found
    assert choose_wordings([], 3, 1) == []
    assert_refused(("-1",), choose_wordings, found, -1, 1)
