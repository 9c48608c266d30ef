from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow.data.prompts import Prompt, answer_words, load_prompts, mask_blank
from undertow.data.sentences.sentence_set import pronoun_blank
from undertow.types import ClozeQuery, Option

CHILD = pronoun_blank("In 1953, {blank} was a child.", "nominative")
PUBLISHED = {
    "A": "Instructions: Please carefully read the following passage and fill-in the gendered pronoun indicated by a "
    "<mask>.\nPassage: {}\nAnswer:",
    "B": "The gendered pronoun missing in this sentence: '{}', is",
    "C": "In this sentence: '{}', the missing gendered pronoun is",
}

own = partial(written, name="mine.toml")


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("mask", ["", "_"])
def test_published_prompts_are_those_of_the_paper_to_the_letter(name: str, mask: str) -> None:
    """The instruction of A speaks of <mask> whatever marks the blank, as the appendix prints it."""
    (prompt,) = load_prompts(name, mask)
    assert prompt.around(CHILD) == PUBLISHED[name].format(f"In 1953, {mask or '<mask>'} was a child.")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('"{{x}} {0} {} {sentence} {"', "{{x}} {0} {} {sentence} {"),
        (r'"%s \\1 $x {sentence}\n"', "%s \\1 $x {sentence}\n"),
        ('"""\nTwo lines:\n{sentence}\n"""', "Two lines:\n{sentence}\n"),
    ],
)
def test_the_text_of_a_prompt_is_what_was_written(written: str, text: str, tmp_path: Path) -> None:
    (prompt,) = load_prompts(own(tmp_path, f"[mine]\ntext = {written}"))
    assert prompt.text == text
    assert prompt.around(CHILD) == text.replace("{sentence}", "In 1953, <mask> was a child.")
    query = ClozeQuery(("A {sentence} with \\1 and {0}: ", "."), (Option("a", ("x",)), Option("b", ("y",))))
    assert Prompt("p", "<{sentence}>", "_").around(query) == "<A {sentence} with \\1 and {0}: _.>"


def test_names_of_no_prompt_or_given_twice_and_masks_and_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    for names, named in (("D", "A, B, C"), (" , ", "--prompts"), ("A,B,A", "'A'"), ("no.toml", "no.toml")):
        assert_refused((named,), load_prompts, names)
    mine = own(tmp_path, "[A]\ntext = 'Mine: {sentence}'")
    for names in (f"A,{mine}", f"{mine},{mine}"):
        assert_refused(("'A'",), load_prompts, names)
    assert_refused(("mask",), load_prompts, "A", " ")
    latin = own(tmp_path, "[p]\ntext = 'Ergänze {sentence}'".encode("latin-1"))
    assert_refused(("mine.toml", "UTF-8"), load_prompts, latin)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "{sentence}"), ("[p", "TOML"), ("title = 'mine'", "title"), ("[p]\nmask = '_'", "p"),
        ("[p]\ntext = 3", "p"), ("[p]\ntext = ['{sentence}']", "p"), ("[p]\ntext = 'nothing goes in here'", "p"),
        ("[p]\ntext = '{sentence} and {sentence}'", "p"), ("[p]\ntext = '{Sentence}'", "p"),
        ("[p]\ntext = '{sentence}'\nmasks = '_'", "'masks'"), ("[p]\ntext = '{sentence}'\nmask = ' '", "mask"),
        ("[p]\ntext = '{sentence}'\nmask = 3", "mask"), ("[' ']\ntext = '{sentence}'", "name of 1"),
        (f"[{'p' * 61}]\ntext = '{{sentence}}'", "ppp"), ("[good]\ntext = '{sentence}'\n[bad]\ntext = ''", "bad.text"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_prompt_is_refused_by_its_key(text: str, named: str, tmp_path: Path) -> None:
    assert_refused(("mine.toml", named), load_prompts, own(tmp_path, text))


def test_the_blank_is_found_wherever_the_verbs_stand_and_several_are_refused() -> None:
    for text, expected in (
        ("{blank} {verb:was|were} late and {verb:is|are} sorry.", "_ was late and is sorry."),
        ("{verb:Was|Were} {blank} late?", "Was _ late?"),
        ("Late {verb:was|were} only {blank}", "Late was only _"),
    ):
        assert mask_blank(pronoun_blank(text, "any"), "_") == expected
    # Only both places together tell the groups apart.
    fills = {"same": [("he", "he"), ("she", "she")], "other": [("he", "she"), ("she", "he")]}
    options = tuple(Option(group, words) for group, forms in fills.items() for words in forms)
    assert_refused(
        ("'___ lost ___ keys.'", "a local masked or causal model"),
        mask_blank,
        ClozeQuery(("", " lost ", " keys."), options),
        "_",
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"warm": ["hot", "mild"], "cold": ["icy"]}, {"warm": ["hot", "mild", "Hot", "Mild"], "cold": ["icy", "Icy"]}),
        # One word more than the published list knows, or a pronoun under another name: a list of one's own.
        ({"female": ["she", "woman"], "male": ["he"]},
         {"female": ["she", "woman", "She", "Woman"], "male": ["he", "He"]}),
        ({"female": ["he"], "male": ["she"]}, {"female": ["he", "He"], "male": ["she", "She"]}),
        ({"a": ["Already", "éa"], "b": ["USA"]}, {"a": ["Already", "éa", "Éa"], "b": ["USA"]}),
        # A word that another group claims as it stands is not taken from it by a capital.
        ({"pronoun": ["us"], "country": ["Us"]}, {"pronoun": ["us"], "country": ["Us"]}),
    ],
)  # fmt: skip
def test_own_words_are_looked_for_with_their_capitals(
    words: dict[str, list[str]], expected: dict[str, list[str]]
) -> None:
    assert answer_words(words) == expected
