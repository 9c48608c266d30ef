"""Options of the audits that put W into sentences, and their instruction prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Self

from undertow import data
from undertow.errors import UndertowError
from undertow.types import BLANK, GENERATION, TEXT, Item, option

if TYPE_CHECKING:
    import pandas as pd

ANSWER_TOKENS, REPLY_TOKENS = 20, 128
"""Default token limits of an answer with step probabilities, and of a free reply."""


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """Options of the audits that put W into sentences and compare word groups."""

    challenge: str = ""
    data_dir: str = option("", "Folder with the two published files of winogender.")
    options: str = option("", "Word groups for a .csv or .tsv file: 'yes: is; no: is not'; pronouns if not given.")
    w: str = option("", "W lists, comma-separated: date, place, subreddit, or a file with one value a line.")
    inject: str = ""
    date_start: int = option(1801, "First year of the date list.")
    date_stop: int = option(2016, "Last year of the date list.")
    date_count: int = option(30, "Number of evenly spaced years in the date list.")
    prompts: str = option(
        "", "Instruction prompts: A, B and C of the paper, comma-separated, or a .toml file of your own."
    )
    prompt_mask: str = option("", "Marker of the blank in a prompt; that of the prompt (<mask>) if not given.")
    chat: bool = option(False, "Use the chat template of the model.")
    max_new_tokens: int = option(
        0, "Maximum number of tokens of an answer to a prompt; 0 for 20, or 128 under protocol text."
    )

    def list_names(self) -> list[str]:
        """The W lists that `--w` names."""
        names = [name.strip() for name in self.w.split(",") if name.strip()]
        if not names:
            raise UndertowError("--w names no W list; write for example --w date,place")
        return names

    def adapt(self, capabilities: Mapping[str, Sequence[str]], prompts: str) -> Self:
        """Settings for a model with these capabilities: `prompts` if it supports no blanks, none if it supports no prompts.

        Raises:
            UndertowError: an option for prompts is set, but the audit uses no prompts.
        """
        if capabilities.get(GENERATION) == (TEXT,):
            max_new_tokens = token_limit(self.max_new_tokens, TEXT)
            return replace(self, prompts=self.prompts or prompts, max_new_tokens=max_new_tokens)
        if self.prompts and (GENERATION in capabilities or BLANK not in capabilities):
            return self
        if self.prompts:
            return replace(self, prompts="", prompt_mask="", chat=False, max_new_tokens=0)
        if BLANK not in capabilities and GENERATION in capabilities:
            return replace(self, prompts=prompts)
        given = {"--prompt-mask": self.prompt_mask, "--chat": self.chat, "--max-new-tokens": self.max_new_tokens}
        for name in (name for name, value in given.items() if value):
            raise UndertowError(f"{name} is for prompts; add --prompts A,B,C, or leave it out")
        return self


def token_limit(max_new_tokens: int, protocol: str = "") -> int:
    """The token limit of `--max-new-tokens` under a protocol."""
    return max_new_tokens or (REPLY_TOKENS if protocol == TEXT else ANSWER_TOKENS)


def in_prompts(items: list[Item], words: Mapping[str, Sequence[str]], settings: SentenceSettings) -> list[Item]:
    """The items in every prompt; unchanged without prompts."""
    if not settings.prompts:
        return items
    answer_words = data.answer_words(words)
    prompted = answer_mode(settings).items(items, answer_words)
    for form in (form for forms in answer_words.values() for form in forms):
        if len(form.split()) != 1:
            raise UndertowError(
                f"{shorten(form, 40)!r} is several words, and a prompt asks for one; {data.prompts.NEEDS_BLANKS}, or single words"
            )
    return prompted


def answer_mode(settings: SentenceSettings) -> data.AnswerMode:
    """How prompts are presented and answered."""
    if settings.max_new_tokens < 0:
        raise UndertowError(f"--max-new-tokens must be at least 0, got {settings.max_new_tokens}")
    prompts = data.load_prompts(settings.prompts, settings.prompt_mask)
    return data.AnswerMode(prompts, token_limit(settings.max_new_tokens), settings.chat)


def n_prompts(settings: SentenceSettings) -> int:
    """Number of prompts for each sentence."""
    return len(answer_mode(settings).prompts) if settings.prompts else 1


def design_of(words: Mapping[str, Sequence[str]], settings: SentenceSettings) -> dict[str, Any]:
    """Facts about words and prompts for the design."""
    if not settings.prompts:
        return {"words": {group: list(forms) for group, forms in words.items()}, "prompts": {}}
    answer = answer_mode(settings)
    return {
        "words": data.answer_words(words),
        "prompts": {prompt.name: prompt.text for prompt in answer.prompts},
        "chat": settings.chat,
        "max_new_tokens": answer.max_tokens,
        "prompt_masks": {prompt.name: prompt.mask for prompt in answer.prompts},
    }


def words_text(design: Mapping[str, Any]) -> str:
    """The word groups with their words."""
    return "; ".join(f"{group}: {', '.join(forms)}" for group, forms in design["words"].items())


def example_texts(frame: pd.DataFrame, n: int) -> list[str]:
    """`n` of the texts, evenly spaced over the run."""
    if "text" not in frame:
        return []
    return list(dict.fromkeys(frame["text"].iloc[:: max(len(frame) // n, 1)].astype(str)))[:n]


def prompts_text(design: Mapping[str, Any]) -> list[str]:
    """Sentences of the report about the prompts; [] without prompts."""
    chat = " inside the model's own chat template" if design.get("chat") else ""
    sentences = [f"Prompt {name}{chat}: {text}" for name, text in design.get("prompts", {}).items()]
    masks = dict(design.get("prompt_masks", {}))
    if len(set(masks.values())) == 1:
        return [*sentences, f"In the prompts, {next(iter(masks.values()))} marks the blank."]
    return sentences + [f"In prompt {name}, {mask} marks the blank." for name, mask in masks.items()]


def odd_prompts(design: Mapping[str, Any]) -> list[str]:
    """A caveat if the paper's prompts were used with words that are not pronouns."""
    used = [name for name in design.get("prompts", {}) if name in ("A", "B", "C")]
    if not used or data.are_pronouns(design["words"]):
        return []
    return [
        f"Prompt{'s' if used[1:] else ''} {', '.join(used)} ask{'' if used[1:] else 's'} for a gendered pronoun, but some of the listed "
        "words are not; use a prompt of your own."
    ]
