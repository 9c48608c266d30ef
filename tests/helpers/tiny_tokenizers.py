"""Tokenizers of different kinds, and small causal networks that speak them: real ones, built on the spot, weights at random."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from helpers.tiny_models import byte_pairs, tiny_llama
from undertow.types import ModelIdentity

CORPUS = [
    "The cats of the house sat by the sea. Task: What is said in the previous text? Answer: gender",
    "Question: What is it about: political affiliation, race, religion, gender or political?\nAnswer: race",
    "They were the cats, the cats of old, and they said no. Yes, Yeah \N{GRINNING FACE} caf\N{LATIN SMALL LETTER E WITH ACUTE}\n",
] * 20
START, END, UNKNOWN = "<s>", "</s>", "<unk>"
SPELLED_OUT = ("religion", "affiliation", "previous", "house", "they", "old")
"""Words that are not one piece of a word, where the pieces are chosen here: training picks others on every run."""
METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"
Kind = Callable[[], Any]


def byte_level(*, trim_offsets: bool = False) -> Any:
    """As GPT-2's: a word brings the space before it along; no token begins a text."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = byte_pairs(CORPUS, 340, [START, END])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END)


def word_pieces() -> Any:
    """As BERT's, capitals kept: no spaces, a token at both ends of a text, and characters that it cannot spell."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.BertPreTokenizer()
    words = {word for text in CORPUS for word, _ in splitter.pre_tokenize_str(text)}
    letters = {letter for word in words for letter in word}
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(letters | words - {*SPELLED_OUT})]
    pieces += [f"##{letter}" for letter in sorted(letters) if letter.isalpha()]
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(pieces[:4])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", eos_token="[SEP]"
    )


def unigram() -> Any:
    """As T5's: pieces by their probability, a space written as a sign, and one put before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Metaspace()
    counts = Counter(word for text in CORPUS for word, _ in splitter.pre_tokenize_str(text))
    letters = sorted({letter for word in counts for letter in word})
    whole = sorted(word for word in counts if len(word) > 1 and word.strip(METASPACE) not in SPELLED_OUT)
    pieces = [(word, math.log(counts[word] / counts.total())) for word in whole]
    vocabulary = [(special, 0.0) for special in (UNKNOWN, START, END)] + pieces + [(letter, -9.0) for letter in letters]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([UNKNOWN, START, END])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END, unk_token=UNKNOWN)


def sentence_pieces() -> Any:
    """As Llama 2's: a sign before every text, two spaces one token, bytes for what has no piece, nothing split beforehand."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    byte_names = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token=UNKNOWN))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[UNKNOWN, START, END, *byte_names], limit_alphabet=40, show_progress=False
    )
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    vocabulary = model["vocab"] | {2 * METASPACE: len(model["vocab"])}
    merges = [(METASPACE, METASPACE), *map(tuple, model["merges"])]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(METASPACE), normalizers.Replace(" ", METASPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 1)])
    tokenizer.add_special_tokens([UNKNOWN, START, END])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END, unk_token=UNKNOWN)


KINDS: dict[str, Kind] = {
    "byte-level": byte_level,
    # Tokens stand where their letters do, so that a space of its own stands nowhere.
    "trimmed byte-level": lambda: byte_level(trim_offsets=True),
    "word pieces": word_pieces,
    "unigram": unigram,
    "sentence pieces": sentence_pieces,
}
CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[it]\n{% endif %}"
)


def llama_for(tokenizer: Any, context_tokens: int = 256) -> Any:
    """A small network over the tokenizer's vocabulary, drawn wide, so that attention matters and texts end now and then."""
    import torch

    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    network = tiny_llama(vocab_size=len(tokenizer), max_position_embeddings=context_tokens, **ends)
    return drawn(network, torch.Generator().manual_seed(0))


def drawn(network: Any, generator: Any) -> Any:
    """The network with weights drawn again."""
    import torch

    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return network.eval()


def model_of(network: Any, tokenizer: Any) -> Any:
    """The network as the package opens it."""
    from undertow.models.families.causal import CausalModel

    identity = ModelIdentity(
        "small", "causal", "drawn", f"{type(network).__name__} {len(tokenizer)}", "float32", "likelihood"
    )
    return CausalModel.from_network(network, tokenizer, identity)
