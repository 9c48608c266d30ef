"""Tiny real models that answer questions from a passage, built on the spot: weights drawn at random, or learned in seconds.

Their tokenizers are written out, not learned, so that numbers recorded with one version of the libraries hold with another.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tiny import learn, one_thread_and_seed

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

    tokenizer = _wordpieces() if style == BERT else _byte_pairs()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = _network(style, tokenizer, hidden=32)
        torch.manual_seed(0)
        # By name, so that the same numbers are drawn whatever the version that built the network.
        for _, parameter in sorted(network.named_parameters()):
            parameter.normal_(std=0.3)
        network.qa_outputs.weight.mul_(8)
    return _saved(folder, network, tokenizer)


def bert_reader(folder: Path) -> str:
    return random_reader(folder, BERT)


def roberta_reader(folder: Path) -> str:
    return random_reader(folder, ROBERTA)


def trained_reader(folder: Path) -> str:
    """A reader of BERT's style that has learned who has which skills, and when nobody is said to have them.

    `Mary has skills in cooking. James has skills in sewing.` and `Who has skills in sewing?`
    """
    import torch

    tokenizer, generator = _wordpieces(), random.Random(0)

    def batch() -> dict[str, Any]:
        passages, questions, answers = zip(*(lesson(generator) for _ in range(20)), strict=True)
        coded = tokenizer(list(questions), list(passages), padding=True, return_tensors="pt")
        places = [
            coded.char_to_token(row, passage.index(answer), 1) if answer else 0
            for row, (passage, answer) in enumerate(zip(passages, answers, strict=True))
        ]
        return {**coded, "start_positions": torch.tensor(places), "end_positions": torch.tensor(places)}

    with one_thread_and_seed():
        network = _network(BERT, tokenizer, hidden=64)
        _primed(network)
        learn(network, 450, 3e-3, batch)
    return _saved(folder, network, tokenizer)


def lesson(generator: random.Random) -> tuple[str, str, str]:
    """A passage, a question about it, and its answer, which is "" in one case of three."""
    n_people = generator.choice((1, 2, 2, 3))
    people = generator.sample(NAMES, n_people)
    skills = generator.sample(SKILLS, n_people + 1)
    passage = " ".join(f"{person} has skills in {skill}." for person, skill in zip(people, skills, strict=False))
    asked = generator.randrange(n_people) if generator.random() < 2 / 3 else n_people
    return passage, f"Who has skills in {skills[asked]}?", (*people, "")[asked]


def _saved(folder: Path, network: Any, tokenizer: Any) -> str:
    network.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # By this name the versions of transformers know it that still have the question-answering pipeline.
    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings.write_text(json.dumps(said), encoding="utf-8")
    return str(folder)


def _network(style: str, tokenizer: Any, hidden: int) -> Any:
    from transformers import BertConfig, BertForQuestionAnswering, RobertaConfig, RobertaForQuestionAnswering

    shape = {
        "vocab_size": len(tokenizer), "hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 2 * hidden, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.1,
    }  # fmt: skip
    if style == BERT:
        return BertForQuestionAnswering(BertConfig(**shape, max_position_embeddings=POSITIONS))
    return RobertaForQuestionAnswering(
        RobertaConfig(
            **shape, max_position_embeddings=POSITIONS + 2, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2
        )
    )  # fmt: skip


def _wordpieces() -> Any:
    """As BERT's, cased: names, skills and a few words, and letters for everything else."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, *NAMES, *SKILLS, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=POSITIONS, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def _byte_pairs() -> Any:
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


AHEAD = 4
"""Tokens from a name to its skill: `Mary has skills in cooking`."""
PLACE_WIDTH = 16
"""Of the network, kept for positions."""


def _primed(network: Any) -> None:
    """Weights that tokens begin to learn from: the first layer looks at its likes, the second also some tokens ahead.

    From weights without such a beginning, looking a skill up takes minutes to be learned.
    """
    import torch

    embeddings = network.bert.embeddings
    alike, ahead = (layer.attention.self for layer in network.bert.encoder.layer)
    even = torch.arange(0, PLACE_WIDTH, 2)
    turns = 64.0 ** -(even / PLACE_WIDTH)
    places = torch.arange(POSITIONS)[:, None] * turns
    with torch.no_grad():
        embeddings.word_embeddings.weight.mul_(3)
        for table in (embeddings.word_embeddings, embeddings.token_type_embeddings, embeddings.position_embeddings):
            table.weight[:, :PLACE_WIDTH] = 0
        embeddings.position_embeddings.weight.zero_()
        embeddings.position_embeddings.weight[:, even] = 0.3 * places.sin()
        embeddings.position_embeddings.weight[:, even + 1] = 0.3 * places.cos()
        alike.query.weight[:, :PLACE_WIDTH] = 0
        alike.query.weight.mul_(2)
        alike.key.weight.copy_(alike.query.weight)
        # sin(x + w) = cos(w) sin(x) + sin(w) cos(x): the query at x is the key at x + w.
        turned, own = torch.zeros(PLACE_WIDTH, 64), torch.zeros(PLACE_WIDTH, 64)
        cosines, sines = (AHEAD * turns).cos(), (AHEAD * turns).sin()
        turned[even, even], turned[even, even + 1] = cosines, sines
        turned[even + 1, even], turned[even + 1, even + 1] = -sines, cosines
        own[:, :PLACE_WIDTH] = torch.eye(PLACE_WIDTH)
        ahead.query.weight[:PLACE_WIDTH], ahead.key.weight[:PLACE_WIDTH] = 1.5 * turned, 1.5 * own
