"""Tiny real models that answer questions from a passage, built on the spot: weights drawn at random, or learned in seconds.

Their tokenizers are written out, not learned, so that numbers recorded with one version of the libraries hold with another.
"""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

from helpers.tiny_models import MASKED, bert_tokenizer, kept, network, sentencepiece_tokenizer, small_t5

NAMES = (
    "Mary", "James", "Linda", "Robert", "Susan", "John", "Karen", "David", "Nancy", "Peter", "Anna", "Mark", "Ruth", "Paul",
    "Emma", "Brian", "Alice", "Frank", "Diane", "Henry", "Julia", "Oscar", "Laura", "Simon",
)  # fmt: skip
SKILLS = (
    "cooking", "welding", "farming", "coding", "sewing", "fishing", "teaching", "writing", "driving", "painting", "nursing",
    "singing",
)  # fmt: skip
WORDS = ("Who", "has", "skills", "in", "and", "met", "Where", "does", "live", "lives", "is", "The", "the")
BERT, ROBERTA = "bert", "roberta"
STYLES = (BERT, ROBERTA)
POSITIONS = 64


def random_reader(folder: Path, style: str) -> str:
    """A reader of either style with weights drawn at random, wide enough that its answers differ."""
    import torch

    tokenizer = wordpieces() if style == BERT else byte_pair_tokenizer()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = _network(style, tokenizer, hidden=32)
        torch.manual_seed(0)
        # By name, so that the same numbers are drawn whatever the version that built the network.
        for _, parameter in sorted(network.named_parameters()):
            parameter.normal_(std=0.3)
        network.qa_outputs.weight.mul_(8)
    return _saved(folder, network, tokenizer)


bert_reader = partial(random_reader, style=BERT)
roberta_reader = partial(random_reader, style=ROBERTA)


def labeller(folder: Path) -> None:
    """A network that labels words, its weights as they were drawn."""
    from transformers import BertForTokenClassification

    from helpers.planted_lives import small_base

    small_base(folder)
    labels = {0: "female", 1: "male"}
    BertForTokenClassification.from_pretrained(
        folder, id2label=labels, label2id={"female": 0, "male": 1}
    ).save_pretrained(folder)


def small_t5_folder(folder: Path) -> None:
    """A T5 with its tokenizer, its weights as they were drawn."""
    tokenizer = sentencepiece_tokenizer()
    kept(small_t5(tokenizer), tokenizer, folder)


def lesson(generator: random.Random) -> tuple[str, str, str]:
    """A passage, a question about it, and its answer, which is "" in one case of three."""
    n_people = generator.choice((1, 2, 2, 3))
    people = generator.sample(NAMES, n_people)
    skills = generator.sample(SKILLS, n_people + 1)
    passage = " ".join(f"{person} has skills in {skill}." for person, skill in zip(people, skills, strict=False))
    asked = generator.randrange(n_people) if generator.random() < 2 / 3 else n_people
    return passage, f"Who has skills in {skills[asked]}?", (*people, "")[asked]


def _saved(folder: Path, network: Any, tokenizer: Any) -> str:
    kept(network.eval(), tokenizer, folder)
    # By this name the versions of transformers know it that still have the question-answering pipeline.
    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings.write_text(json.dumps(said), encoding="utf-8")
    return str(folder)


def _network(style: str, tokenizer: Any, hidden: int) -> Any:
    sizes = MASKED | {"vocab_size": len(tokenizer), "hidden_size": hidden, "intermediate_size": 2 * hidden}
    if style == BERT:
        return network("Bert", "ForQuestionAnswering", **sizes, max_position_embeddings=POSITIONS)
    own = {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "pad_token_id": 1, "eos_token_id": 2}
    return network("Roberta", "ForQuestionAnswering", **sizes | own)


def wordpieces() -> Any:
    """As BERT's, cased: names, skills and a few words, and letters for everything else."""
    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return bert_tokenizer(
        [*pieces, *NAMES, *SKILLS, *WORDS], lowercase=False, model_max_length=POSITIONS, model_input_names=inputs
    )


def byte_pair_tokenizer() -> Any:
    """As RoBERTa's: a word and the space before it are one token, and nothing says which text a token is of."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges: dict[tuple[str, str], None] = {}
    for word in (*NAMES, *SKILLS, *WORDS):
        spelled = f"Ġ{word}"
        merges |= {(spelled[:at], spelled[at]): None for at in range(1, len(spelled))}
    pieces += [first + second for first, second in merges]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", cls_token="<s>",
        sep_token="</s>", model_max_length=POSITIONS, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
