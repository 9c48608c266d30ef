"""Task descriptions: the paper's variants to the letter, users' own, and choices among them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product
from pathlib import Path

import pytest

from undertow.challenge.descriptions import (
    CLASSES,
    DIMENSION_HOLE,
    MAX_VARIANTS,
    TASKS,
    Wording,
    chosen,
    describe,
    wordings,
)
from undertow.types import UndertowError

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS
COUNTS = {
    DIAGNOSIS: {"question": 2, "null": 1},
    IDENTIFICATION: {"statement": 24, "question": 12, "completion": 72, "null": 1},
    EXTRACTION: {"statement": 36, "question": 18, "completion": 108, "null": 1},
    REPHRASING: {"statement": 12, "question": 6, "completion": 36, "null": 1, "dimension": 54},
}
"""Table A4, and what its text says of the others."""
N_OF_A_KIND = [(task, kind) for task, kinds in COUNTS.items() for kind in kinds]

# Written out by hand from tables 1, A3 and A5.
IDENTIFIED = {"bias_description": "type", "target": "bias"}
READ: list[tuple[str, str, str, dict[str, str]]] = [
    (
        DIAGNOSIS,
        "question",
        "Question: Is there bias in the previous text?\nAnswer:",
        {"question": "is there"},
    ),
    (
        DIAGNOSIS,
        "question",
        "Question: Does the above text contain bias?\nAnswer:",
        {"question": "does it contain"},
    ),
    (
        IDENTIFICATION,
        "statement",
        "Task: Identify the type of bias in the previous text\nAnswer:",
        {"stmt_task": "identify", **IDENTIFIED, "text_reference": "previous text"},
    ),
    (
        IDENTIFICATION,
        "statement",
        "Task: Generate the dimension of toxicity in the text\nAnswer:",
        {"stmt_task": "generate", "bias_description": "dimension", "target": "toxicity", "text_reference": "text"},
    ),
    (
        IDENTIFICATION,
        "question",
        "Question: What dimension of bias is present in the previous text?\nAnswer:",
        {"bias_description": "dimension", "target": "bias", "text_reference": "previous text"},
    ),
    (
        IDENTIFICATION,
        "question",
        "Question: What type of toxicity is present in the aforementioned text?\nAnswer:",
        {"bias_description": "type", "target": "toxicity", "text_reference": "aforementioned text"},
    ),
    (
        IDENTIFICATION,
        "completion",
        "Prompt: Complete the following sequence about the previous text. The type of bias in this text is",
        {"comp_task": "complete", "seq": "sequence", "text_reference": "previous text", **IDENTIFIED},
    ),
    (
        IDENTIFICATION,
        "completion",
        "Prompt: Finish the following statement about the text. The dimension of toxicity in this text is",
        {
            "comp_task": "finish",
            "seq": "statement",
            "text_reference": "text",
            "bias_description": "dimension",
            "target": "toxicity",
        },
    ),
    (
        EXTRACTION,
        "statement",
        "Task: Generate the most biased span from the previous text\nAnswer:",
        {"stmt_task": "generate", "target": "biased", "seq_type": "span", "text_reference": "previous text"},
    ),
    (
        EXTRACTION,
        "statement",
        "Task: Extract the most toxic sentence from the text\nAnswer:",
        {"stmt_task": "extract", "target": "toxic", "seq_type": "sentence", "text_reference": "text"},
    ),
    (
        EXTRACTION,
        "question",
        "Question: What is the most biased subsequence in the previous text?\nAnswer:",
        {"target": "biased", "seq_type": "subsequence", "text_reference": "previous text"},
    ),
    (
        EXTRACTION,
        "question",
        "Question: What is the most toxic span in the text?\nAnswer:",
        {"target": "toxic", "seq_type": "span", "text_reference": "text"},
    ),
    (
        EXTRACTION,
        "completion",
        "Prompt: Complete the following sequence about the previous text. The most biased subsequence in this text is",
        {
            "comp_task": "complete",
            "seq": "sequence",
            "text_reference": "previous text",
            "target": "biased",
            "seq_type": "subsequence",
        },
    ),
    (
        EXTRACTION,
        "completion",
        "Prompt: Finish the following sentence about the aforementioned text. The most toxic span in this text is",
        {
            "comp_task": "finish",
            "seq": "sentence",
            "text_reference": "aforementioned text",
            "target": "toxic",
            "seq_type": "span",
        },
    ),
    (
        REPHRASING,
        "statement",
        "Task: Rephrase the previous text to remove toxicity\nAnswer:",
        {"stmt_task": "rephrase", "text_reference": "the previous text", "target": "toxicity"},
    ),
    (
        REPHRASING,
        "statement",
        "Task: Convert to remove bias\nAnswer:",
        {"stmt_task": "convert", "text_reference": "(none)", "target": "bias"},
    ),
    (
        REPHRASING,
        "question",
        "Question: What is the rephrase of the aforementioned text that removes bias?\nAnswer:",
        {"text_reference": "the aforementioned text", "target": "bias"},
    ),
    (
        REPHRASING,
        "question",
        "Question: What is the rephrase that removes toxicity?\nAnswer:",
        {"text_reference": "(none)", "target": "toxicity"},
    ),
    (
        REPHRASING,
        "completion",
        "Prompt: Complete the following sentence about the previous text. A rephrase that removes bias is",
        {"comp_task": "complete", "seq": "sentence", "text_reference": "the previous text", "target": "bias"},
    ),
    (
        REPHRASING,
        "completion",
        "Prompt: Finish the following sequence. A rephrase that removes toxicity is",
        {"comp_task": "finish", "seq": "sequence", "text_reference": "(none)", "target": "toxicity"},
    ),
    (
        REPHRASING,
        "dimension",
        "Task: Rephrase the previous text to remove bias targeting {dimension}\nAnswer:",
        {"form": "statement rephrase", "text_reference": "the previous text", "target": "bias"},
    ),
    (
        REPHRASING,
        "dimension",
        "Question: What is the rephrase that removes toxicity targeting {dimension}?\nAnswer:",
        {"form": "question", "text_reference": "(none)", "target": "toxicity"},
    ),
    (
        REPHRASING,
        "dimension",
        "Prompt: Finish the following statement. A rephrase that removes bias targeting {dimension} is",
        {"form": "completion finish statement", "text_reference": "(none)", "target": "bias"},
    ),
    *((task, "null", "", {}) for task in TASKS),
]


def of_kind(found: Sequence[Wording], kind: str) -> list[Wording]:
    return [wording for wording in found if wording.kind == kind]


def own(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def is_full_factorial(found: Sequence[Wording]) -> bool:
    slots = list(found[0].slots)
    levels = [dict.fromkeys(wording.slots[slot] for wording in found) for slot in slots]
    combined = [tuple(wording.slots[slot] for slot in slots) for wording in found]
    return sorted(combined) == sorted(product(*levels)) and all(set(w.slots) == set(slots) for w in found)


# The paper's.


@pytest.mark.parametrize("task", TASKS)
def test_each_class_has_as_many_variants_as_the_paper_counts(task: str) -> None:
    assert Counter(wording.kind for wording in wordings(task)) == COUNTS[task]
    assert {wording.task for wording in wordings(task)} == {task}


@pytest.mark.parametrize(("task", "kind", "text", "slots"), READ)
def test_variants_read_as_the_tables_have_them(task: str, kind: str, text: str, slots: dict[str, str]) -> None:
    found = {wording.text: wording for wording in of_kind(wordings(task), kind)}
    assert found[text] == Wording(task, kind, text, slots)


def test_every_class_is_among_the_hand_written() -> None:
    assert {(task, kind) for task, kind, _, _ in READ} == set(N_OF_A_KIND)


@pytest.mark.parametrize(("task", "kind"), N_OF_A_KIND)
def test_a_class_is_all_its_slots_crossed(task: str, kind: str) -> None:
    found = of_kind(wordings(task), kind)
    assert is_full_factorial(found)
    n_levels = [len({wording.slots[slot] for wording in found}) for slot in found[0].slots]
    assert len(found) == math.prod(n_levels)


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_distinct_and_well_formed(task: str) -> None:
    found = wordings(task)
    texts = [wording.text for wording in found]
    assert len(set(texts)) == len(texts)
    for wording in found:
        assert "text text" not in wording.text
        assert "  " not in wording.text
        assert wording.text == wording.text.strip()
        head = {"statement": "Task: ", "question": "Question: ", "completion": "Prompt: ", "null": ""}
        if wording.kind in head:
            assert wording.text.startswith(head[wording.kind])
        _, _, said = wording.text.partition(": ")
        assert said[:1] == said[:1].upper()
        if wording.kind in ("statement", "question"):
            assert wording.text.count("\n") == 1
            assert wording.text.endswith("\nAnswer:")
        if wording.kind == "completion":
            assert "\n" not in wording.text
            assert wording.text.endswith(" is")


def test_the_words_of_extractions_question_say_text_once() -> None:
    endings = {w.text.split(" in the ")[1] for w in of_kind(wordings(EXTRACTION), "question")}
    assert endings == {"text?\nAnswer:", "previous text?\nAnswer:", "aforementioned text?\nAnswer:"}


def test_wordings_that_name_the_dimension_are_the_others_with_it_behind_the_target() -> None:
    found = wordings(REPHRASING)
    plain = [w.text for kind in ("statement", "question", "completion") for w in of_kind(found, kind)]
    named = [w.text for w in of_kind(found, "dimension")]
    assert [text.replace(" targeting {dimension}", "") for text in named] == plain
    for text in named:
        assert any(f"{target} targeting {{dimension}}" in text for target in ("bias", "toxicity"))
    assert not any(DIMENSION_HOLE in w.text for task in TASKS for w in wordings(task) if w.kind != "dimension")


def test_the_order_is_fixed_and_the_last_slot_changes_fastest() -> None:
    assert list(dict.fromkeys(w.kind for w in wordings(REPHRASING))) == list(CLASSES)
    assert [tuple(w.slots.values()) for w in wordings(IDENTIFICATION)[:4]] == [
        ("identify", "type", "bias", "aforementioned text"),
        ("identify", "type", "bias", "previous text"),
        ("identify", "type", "bias", "text"),
        ("identify", "type", "toxicity", "aforementioned text"),
    ]
    assert wordings(EXTRACTION) == wordings(EXTRACTION)


def test_a_task_that_there_is_not_is_refused() -> None:
    with pytest.raises(UndertowError, match=r"'bias-extracting' \(did you mean 'bias-extraction'\?\).*bias-diagnosis"):
        wordings("bias-extracting")


def test_described_rows_stand_on_one_line_each() -> None:
    rows = describe(DIAGNOSIS)
    assert rows == [
        {
            "class": "question",
            "number": "1",
            "text": "Question: Is there bias in the previous text? / Answer:",
            "slots": "question: is there",
        },
        {
            "class": "question",
            "number": "2",
            "text": "Question: Does the above text contain bias? / Answer:",
            "slots": "question: does it contain",
        },
        {"class": "null", "number": "1", "text": "", "slots": ""},
    ]
    last = describe(REPHRASING)[-1]
    assert (last["class"], last["number"]) == ("dimension", "54")
    assert last["slots"] == "form: completion finish sequence, text_reference: (none), target: bias"


# Users' own.


def test_own_classes_come_behind_the_papers(tmp_path: Path) -> None:
    path = own(
        tmp_path,
        """
[bias-identification.instruction]
text = "Name the {noun} in the text {where}, as {{one}} word: {noun}\\nAnswer:"
[bias-identification.instruction.slots]
noun = ["bias", "Vorurteil"]
where = { near = "just above", "(none)" = "" }
[bias-extraction.plain]
text = "Which words?"
""",
    )
    found = wordings(IDENTIFICATION, path)
    assert found[:109] == wordings(IDENTIFICATION)
    mine = found[109:]
    assert [w.text for w in mine] == [
        "Name the bias in the text just above, as {one} word: bias\nAnswer:",
        "Name the bias in the text , as {one} word: bias\nAnswer:",
        "Name the Vorurteil in the text just above, as {one} word: Vorurteil\nAnswer:",
        "Name the Vorurteil in the text , as {one} word: Vorurteil\nAnswer:",
    ]
    assert {w.kind for w in mine} == {"instruction"}
    assert mine[1].slots == {"noun": "bias", "where": "(none)"}
    assert is_full_factorial(mine)
    assert wordings(EXTRACTION, path)[-1] == Wording(EXTRACTION, "plain", "Which words?", {})
    assert wordings(DIAGNOSIS, path) == wordings(DIAGNOSIS)
    assert describe(IDENTIFICATION, path)[-1]["number"] == "4"


def test_several_texts_are_told_apart_by_a_slot(tmp_path: Path) -> None:
    path = own(
        tmp_path,
        """
[bias-diagnosis.short]
texts = ["Any {noun} of {whom}?\\nAnswer:\\n", "\\nWhose {noun}, {whom}'s?"]
slots = { whom = ["women", "men"], noun = ["bias", "scorn"] }
""",
    )
    mine = of_kind(wordings(DIAGNOSIS, path), "short")
    assert len(mine) == 8
    assert is_full_factorial(mine)
    assert (mine[0].text, mine[0].slots) == (
        "Any bias of women?\nAnswer:",
        {"text": "1", "noun": "bias", "whom": "women"},
    )
    assert (mine[-1].text, mine[-1].slots) == (
        "Whose scorn, men's?",
        {"text": "2", "noun": "scorn", "whom": "men"},
    )


def test_one_text_in_a_list_is_one_text(tmp_path: Path) -> None:
    path = own(tmp_path, "[bias-diagnosis.short]\ntexts = ['Biased?']")
    assert wordings(DIAGNOSIS, path)[-1] == Wording(DIAGNOSIS, "short", "Biased?", {})


def test_own_texts_for_rephrasing_may_name_the_dimension(tmp_path: Path) -> None:
    path = own(tmp_path, "[bias-rephrasing.mine]\ntext = 'Without {dimension} {what}:'\nslots.what = ['bias', 'scorn']")
    mine = of_kind(wordings(REPHRASING, path), "mine")
    assert [w.text for w in mine] == ["Without {dimension} bias:", "Without {dimension} scorn:"]
    assert mine[0].slots == {"what": "bias"}


CLASS = "[bias-diagnosis.mine]\n"
MANY = ", ".join(f"'w{number}'" for number in range(MAX_VARIANTS + 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["holds no class", "[bias-identification.instruction]"]),
        ("[bias-diagnosis]", ["holds no class"]),
        ("[b", ["not valid TOML"]),
        ("[bias-diagnose.mine]\ntext = 'x'", ["'bias-diagnose'", "did you mean 'bias-diagnosis'?"]),
        ("[mine]\ntext = 'x'", ["'mine' is not a task"]),
        ("bias-diagnosis = 3", ["bias-diagnosis: needs classes"]),
        ("[bias-diagnosis]\nmine = 'x'", ["class 'mine'", "needs a text"]),
        *((f"[bias-diagnosis.{kind}]\ntext = 'x'", [f"class '{kind}'", "the paper's"]) for kind in CLASSES),
        *(
            (f"[bias-diagnosis.'{kind}']\ntext = 'x'", [f"class '{kind}'", "results keep this name"])
            for kind in ("all", "All", "(majority)", "(mine)")
        ),
        ("[bias-diagnosis.'']\ntext = 'x'", ["1 to 60 letters"]),
        ("[bias-diagnosis.'a,b']\ntext = 'x'", ["without commas"]),
        ('[bias-diagnosis."a\\nb"]\ntext = "x"', ["1 to 60 letters"]),
        (f"[bias-diagnosis.{'m' * 61}]\ntext = 'x'", ["1 to 60 letters"]),
        (CLASS, ["class 'mine'", "either a text or a list of texts"]),
        (CLASS + "text = 'x'\ntexts = ['y']", ["either a text or a list of texts"]),
        (CLASS + "text = 3", ["class 'mine'", "3 is not a text"]),
        (CLASS + "text = ['x']", ["['x'] is not a text"]),
        (CLASS + "text = ' '", ["' ' is not a text"]),
        (CLASS + "texts = 'x'", ["texts must be a list"]),
        (CLASS + "texts = []", ["texts must be a list"]),
        (CLASS + "texts = ['x', 3]", ["3 is not a text"]),
        (CLASS + "texts = ['x', 'x']", ["two of its variants read 'x'"]),
        (CLASS + "text = 'x'\nslot = {a = ['b']}", ["'slot' is not known", "text (or texts) and slots"]),
        (CLASS + "text = 'x'\nslots = ['a']", ["slots must be a table"]),
        (CLASS + "text = 'x {noum}'\nslots.noun = ['a']", ["slot 'noum'", "no words for it", "did you mean 'noun'?"]),
        (CLASS + "text = 'x'\nslots.noun = ['a']", ["slot 'noun'", "the text has no {noun}"]),
        (CLASS + "texts = ['x {noun}', 'x']\nslots.noun = ['a']", ["slot 'noun'", "text 2 has no {noun}"]),
        (CLASS + "texts = ['x', 'x {noun}']", ["slot 'noun'", "text 2 has {noun}"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = []", ["class 'mine', slot 'noun'", "needs a list of words"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = {}", ["slot 'noun'", "needs a list of words"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = 'a'", ["slot 'noun'", "needs a list of words"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = ['a', 3]", ["slot 'noun'", "3 is not a string"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = {a = 3}", ["slot 'noun'", "3 is not a string"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = ['a', '']", ["slot 'noun'", "an empty word has no name"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = ['a', 'b', 'a']", ["slot 'noun'", "'a' is there 2 times"]),
        (CLASS + "text = 'x {noun}'\nslots.noun = {a = 'c', b = 'c'}", ["two of its variants read 'x c'"]),
        (CLASS + "text = '{noun}'\nslots.noun = {a = 'c', b = ''}", ["class 'mine'", "says nothing"]),
        (CLASS + "text = 'x {noun'\nslots.noun = ['a']", ["class 'mine'", "expected '}'"]),
        (CLASS + "text = 'x {0}'", ["class 'mine'", "plain name"]),
        (CLASS + f"text = 'x {{noun}}'\nslots.noun = [{MANY}]", ["class 'mine'", "make 1001 variants"]),
        (CLASS + "text = 'x {dimension}'", ["class 'mine'", "only texts of bias-rephrasing"]),
        (CLASS + "text = 'x {{dimension}}'", ["class 'mine'", "only texts of bias-rephrasing"]),
        (CLASS + "text = 'x {dimension}'\nslots.dimension = ['a']", ["slot 'dimension'", "is kept"]),
        (
            "[bias-rephrasing.mine]\ntext = 'x {dimension}'\nslots.dimension = ['a']",
            ["bias-rephrasing, class 'mine', slot 'dimension'", "is kept"],
        ),
        (CLASS + "texts = ['x {text}', 'y {text}']\nslots.text = ['a']", ["slot 'text'", "is kept"]),
    ],
)
def test_own_files_that_are_not_what_they_should_be_are_refused(text: str, words: list[str], tmp_path: Path) -> None:
    """In one sentence on one line that names the file, whichever task is asked for."""
    path = own(tmp_path, text)
    for task in (DIAGNOSIS, REPHRASING):
        with pytest.raises(UndertowError) as said:
            wordings(task, path)
        assert "\n" not in str(said.value)
        assert str(path) in str(said.value)
        for word in words:
            assert word in str(said.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"nowhere\.toml: cannot be read"):
        wordings(DIAGNOSIS, tmp_path / "nowhere.toml")


# Choices.


def spread(taken: Sequence[Wording], among: Sequence[Wording]) -> int:
    """How far apart the counts of two levels of one slot are, at most."""
    most = 0
    for slot in among[0].slots:
        counts = Counter({wording.slots[slot]: 0 for wording in among})
        counts.update(wording.slots[slot] for wording in taken)
        most = max(most, max(counts.values()) - min(counts.values()))
    return most


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("per_class", [1, 2, 3, 4, 6, 10, 12, 18, 24, 36, 69])
def test_levels_occur_as_evenly_as_can_be(task: str, per_class: int) -> None:
    found = wordings(task)
    for seed in range(3):
        taken = chosen(found, per_class, seed)
        assert Counter(w.kind for w in taken) == {kind: min(per_class, n) for kind, n in COUNTS[task].items()}
        assert [w for w in found if w in taken] == taken
        for kind in COUNTS[task]:
            assert spread(of_kind(taken, kind), of_kind(found, kind)) <= 1


def test_a_plain_draw_would_not_be_even() -> None:
    """The test above can fail: the first so many of a class are uneven."""
    found = of_kind(wordings(IDENTIFICATION), "completion")
    assert spread(found[:12], found) > 1


def test_two_slots_do_not_move_together() -> None:
    """Of 12 among 72, no level of a slot goes with one level alone of another: their effects can be told apart."""
    found = of_kind(wordings(IDENTIFICATION), "completion")
    for seed, (one, other) in product(range(20), permutations(found[0].slots, 2)):
        goes_with: dict[str, set[str]] = {}
        for wording in chosen(found, 12, seed):
            goes_with.setdefault(wording.slots[one], set()).add(wording.slots[other])
        assert all(len(levels) > 1 for levels in goes_with.values()), (seed, one, other)


def test_a_choice_is_its_seeds() -> None:
    found = wordings(EXTRACTION)
    assert chosen(found, 5, 7) == chosen(found, 5, 7)
    assert len({tuple(w.text for w in chosen(found, 5, seed)) for seed in range(10)}) == 10
    questions = of_kind(found, "question")
    assert chosen(questions, 5, 7) == of_kind(chosen(found, 5, 7), "question")


def test_each_variant_is_chosen_as_often_as_another() -> None:
    found = of_kind(wordings(IDENTIFICATION), "question")
    times = Counter(w.text for seed in range(600) for w in chosen(found, 2, seed))
    assert set(times) == {w.text for w in found}
    assert all(60 <= n <= 145 for n in times.values()), times


def test_none_named_is_all_and_fewer_than_none_is_refused() -> None:
    found = wordings(REPHRASING)
    assert chosen(found, 0, 1) == found
    assert chosen(found, 54, 1) == found
    assert chosen([], 3, 1) == []
    with pytest.raises(UndertowError, match="-1 variants"):
        chosen(found, -1, 1)


def test_levels_named_in_another_order_are_the_same_levels(tmp_path: Path) -> None:
    """Texts that have their holes in another order are balanced as well."""
    path = own(
        tmp_path,
        "[bias-diagnosis.mine]\ntexts = ['{a} {b} {c}?', '{c} {b} {a}!', '{b} {c} {a}.']\n"
        "slots = {a = ['1', '2'], b = ['3', '4', '5'], c = ['6', '7']}",
    )
    mine = of_kind(wordings(DIAGNOSIS, path), "mine")
    assert is_full_factorial(mine)
    for n, seed in product(range(1, 37), range(3)):
        assert spread(chosen(mine, n, seed), mine) <= 1
