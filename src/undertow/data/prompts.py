"""Instruction prompts: a sentence with its blank marked, and an instruction to fill it.

The published prompts are in `prompts.toml`, in the format that users write. McMilin 2024, "Underspecification in Language
Modeling Tasks" (AAAI), appendices A.1 and B.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter

from undertow._schemas import Schema, Text, check
from undertow.data.challenges.challenge_file import word_lists
from undertow.data.sentences.sentence_set import PRONOUNS
from undertow.data.text_files import RESOURCES, first_repeat, read_toml
from undertow.errors import UndertowError, closest
from undertow.types import ClozeQuery, GenerateQuery, Item, Option

HOLE = "{sentence}"
MASK = "<mask>"
MAX_NAME_CHARS = 60
NEEDS_BLANKS = "use a model that reads blanks (a local masked or causal model) without --prompts"
"""How to ask sentences that fit no prompt."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """An instruction to fill the blank of a sentence."""

    name: str
    text: str
    mask: str = MASK

    def around(self, query: ClozeQuery) -> str:
        """The prompt with a sentence."""
        return self.text.replace(HOLE, mask_blank(query, self.mask))


def _with_hole(text: str) -> str:
    if text.count(HOLE) != 1:
        raise ValueError(f"has {HOLE} {text.count(HOLE)} times; write it once, where the sentence goes")
    return text


def _short_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise ValueError(f"give it a name of 1 to {MAX_NAME_CHARS} letters")
    return name


def _not_empty(prompts: dict[str, PromptEntry]) -> dict[str, PromptEntry]:
    if not prompts:
        raise ValueError(f'has no prompt; write [name] and text = "... {HOLE} ..."')
    return prompts


class PromptEntry(Schema):
    """A prompt as its file has it."""

    text: Annotated[str, AfterValidator(_with_hole)]
    mask: Text = MASK


_FILE = TypeAdapter(
    Annotated[dict[Annotated[str, AfterValidator(_short_name)], PromptEntry], AfterValidator(_not_empty)]
)


@dataclass(frozen=True, slots=True)
class AnswerMode:
    """Format of prompts and of their answers."""

    prompts: tuple[Prompt, ...]
    max_tokens: int = 20
    chat: bool = False

    def items(self, items: Sequence[Item], words: Mapping[str, Sequence[str]]) -> list[Item]:
        """Every item with every prompt, prompt by prompt; answers are searched for the words of these groups."""
        options = tuple(Option(group, (word,)) for group, forms in words.items() for word in forms)
        return [self._item(item, prompt, options) for prompt in self.prompts for item in items]

    def _item(self, item: Item, prompt: Prompt, options: tuple[Option, ...]) -> Item:
        if not isinstance(item.query, ClozeQuery):
            raise TypeError(f"a prompt needs a sentence with a blank, not {type(item.query).__name__}")
        query = GenerateQuery(prompt.around(item.query), options, self.max_tokens, self.chat)
        return Item(
            f"{item.id}/prompt {prompt.name}", query, {**item.factors, "prompt": prompt.name}, item.cluster, item.gold
        )


def load_prompts(names: str, mask: str = "") -> tuple[Prompt, ...]:
    """Prompts by name, comma-separated: those of the paper, or `.toml` files with prompts of your own, for example `A,B,mine.toml`.

    `mask` marks the blank, instead of each prompt's own mark.
    """
    published = _prompts(RESOURCES / "prompts.toml")
    if mask and not mask.strip():
        raise UndertowError(f"mask {mask!r} is empty; give a text for the blank, such as {MASK}")
    chosen: list[Prompt] = []
    for name in filter(None, map(str.strip, names.split(","))):
        if name.endswith(".toml"):
            chosen += _prompts(Path(name)).values()
        elif name in published:
            chosen.append(published[name])
        else:
            raise UndertowError(
                f"there is no prompt {name!r}{closest(name, published)}; use {', '.join(published)} or a .toml file"
            )
    if not chosen:
        raise UndertowError(f"prompts {names!r} names none; write for example --prompts A,B,C")
    if (twice := first_repeat(prompt.name for prompt in chosen)) is not None:
        raise UndertowError(f"prompts {names!r} has two called {twice!r}; give each once, with its own name")
    return tuple(Prompt(prompt.name, prompt.text, mask or prompt.mask) for prompt in chosen)


def _prompts(path: Path) -> dict[str, Prompt]:
    entries = check(_FILE, read_toml(path), str(path))
    return {name: Prompt(name, entry.text, entry.mask) for name, entry in entries.items()}


def mask_blank(query: ClozeQuery, mask: str) -> str:
    """A sentence with its blank marked; words that agree with the blank have the form of the first option.

    pieces  "The nurse said that ", " ", " late."     fills  (she, was) (he, was) (they, were)
                                  ^    ^-- was, as with the first: groups share this word
                                  +------- <mask>: no two groups share a word here
    """
    fills = list(query.options[0].fills)
    forms = [{(option.fills[place], option.group) for option in query.options} for place in range(len(fills))]
    blanks = [place for place, pairs in enumerate(forms) if len({fill for fill, _ in pairs}) == len(pairs)]
    if len(blanks) != 1:
        raise UndertowError(
            f"{query.display_text()!r}: has {len(blanks)} blanks, and a prompt marks one; {NEEDS_BLANKS}"
        )
    fills[blanks[0]] = mask
    return query.text(tuple(fills))


def answer_words(words: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Words to look for in an answer, by group: the published list for pronouns, else these words and their capitals."""
    pronouns = {group: {form for cases in PRONOUNS.values() for form in cases[group]} for group in PRONOUNS["any"]}
    if all(set(forms) <= pronouns.get(group, set()) for group, forms in words.items()):
        return {group: list(word_lists()["aaai"][group]) for group in words}
    owners = {form: group for group, forms in words.items() for form in forms}
    words_by_group: dict[str, list[str]] = {}
    for group, forms in words.items():
        capitals = [form[:1].upper() + form[1:] for form in forms]
        words_by_group[group] = list(
            dict.fromkeys(form for form in [*forms, *capitals] if owners.setdefault(form, group) == group)
        )
    return words_by_group


def are_pronouns(words: Mapping[str, Sequence[str]]) -> bool:
    """Whether all words are among the pronouns and gendered words of the published lists."""
    known = {form for forms in PRONOUNS.values() for group in forms.values() for form in group}
    known |= {form for name in ("aaai", "icml") for forms in word_lists()[name].values() for form in forms}
    return all(form.lower() in known for forms in words.values() for form in forms)
