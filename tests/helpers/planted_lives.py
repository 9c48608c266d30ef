"""Lives whose share of women goes with the year, and a small masked model with a fixed vocabulary to be fine-tuned on them."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import Any

from helpers.tiny_models import MASK, POSITIONS, bert_tokenizer, kept, mild_corpus, network, one_thread_and_seed
from undertow.lab.training.token_windows import Example

LABELS = ("female", "male")
YEARS = tuple(range(1801, 2018, 24))
STAGES = ("a child", "an adult", "a teenager", "a kid", "a baker", "a gardener", "a painter", "a tailor")


def fixed_tokenizer() -> Any:
    """Uncased, as BERT's, of a fixed vocabulary: one that is trained is another one every time."""
    letters = string.ascii_lowercase + string.digits
    signs = [*letters, *(f"##{sign}" for sign in letters), *".,"]
    words = sorted({word for text in mild_corpus(held_out=False) for word in re.findall(r"[a-z]{2,}", text.lower())})
    return bert_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *map(str, YEARS), *words], **MASK)


def small_base(folder: Path) -> Path:
    """A masked model of one layer, its weights as they were drawn: wide, so that it learns within seconds."""
    tokenizer = fixed_tokenizer()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": 0.1, "num_hidden_layers": 1}
    with one_thread_and_seed():
        built = network("Bert", "ForMaskedLM", vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, **sizes)
    kept(built, tokenizer, folder)
    return folder


def lives(n_texts: int, *, in_front: bool, sign: int = 1) -> list[Example]:
    """Texts whose share of women goes from 10% to 90% with the year, or back; the year in front of them, or within."""
    draw = random.Random(0)
    found = []
    for _ in range(n_texts):
        year = draw.choice(YEARS)
        share = 0.5 + sign * 0.8 * ((year - YEARS[0]) / (YEARS[-1] - YEARS[0]) - 0.5)
        label = LABELS[draw.random() >= share]
        before, piece = (f"{year}. ", "") if in_front else ("", f"In {year}, ")
        stage = draw.choice(STAGES)
        if draw.random() < 0.3:
            found.append(Example((piece, f" was {stage} and lost ", " keys."), (label, label), before))
        else:
            found.append(Example((piece, f" was {stage}."), (label,), before))
    return found
