"""Tiny real models, built on the spot: real configurations, real tokenizers, weights drawn at random or learned in seconds."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from string import ascii_letters
from typing import Any

MODULES_OF_BUILDERS = ("helpers.tiny_models", "helpers.tiny_qa_models", "helpers.planted_lives")


def save(builder: str, folder: Path) -> None:
    """Save the network that a builder of these modules makes: it is given the folder, or returns a network without weights."""
    modules = map(importlib.import_module, MODULES_OF_BUILDERS)
    build = next(getattr(module, builder) for module in modules if hasattr(module, builder))
    if "folder" in inspect.signature(build).parameters:
        build(folder)
    else:
        saved(folder, build())


def byte_pairs(texts: list[str], vocab_size: int, special_tokens: list[str], processor: Any = None) -> Any:
    """A trained byte-level tokenizer: a word brings the space before it along."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    how: dict[str, Any] = {"special_tokens": special_tokens, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, **how))
    if processor is not None:
        tokenizer.post_processor = processor
    return tokenizer


def tiny_tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    texts = ["In 1801, she was a child. In 1953, he was an adult; they were not."] * 20
    made = byte_pairs(texts, 320, ["<s>", "</s>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


def saved(folder: Path, network: Any) -> str:
    """The network in a folder with the tokenizer, its weights drawn again so that attention matters."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    network.save_pretrained(folder)
    tiny_tokenizer(folder)
    return str(folder)


def network(name: str, head: str = "ForCausalLM", **sizes: Any) -> Any:
    """A network by transformers' names of its architecture and head, of two small layers where it is told nothing else."""
    import transformers

    config = getattr(transformers, f"{name}Config")
    usual = {"vocab_size": 320, "bos_token_id": 0, "eos_token_id": 1}
    if not name.endswith(("T5", "Bart")):
        usual |= {"hidden_size": 32, "num_hidden_layers": 2} | ({} if name == "Mamba" else {"num_attention_heads": 4})
    return getattr(transformers, name + head)(config(**usual | sizes))


LLAMA: dict[str, Any] = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}


tiny_llama = partial(network, "Llama", **LLAMA)
roomy_llama = partial(tiny_llama, max_position_embeddings=512)
"""Has places for a prompt of the paper."""
tiny_gpt2 = partial(network, "GPT2", "LMHeadModel", n_positions=64)
tiny_gemma2 = partial(network, "Gemma2", **LLAMA, head_dim=8, sliding_window=8, final_logit_softcapping=0.5)
"""Scales its logits after the head, and attends within a sliding window in every other layer."""
tiny_mixtral = partial(network, "Mixtral", **LLAMA, num_local_experts=4)
"""Four experts, each of which has a name of its own in the files and none in the network."""
tiny_lfm2 = partial(network, "Lfm2", **LLAMA, layer_types=["conv", "full_attention"])
"""A short convolution in one layer, attention in the other."""
tiny_bloom = partial(network, "Bloom")
"""Its positions come from the mask, so a tree cannot be shown to it."""
tiny_bert_head = partial(network, "Bert", "LMHeadModel", intermediate_size=64)
"""Called a language model head, but sees what comes after."""
tiny_mamba = partial(network, "Mamba", state_size=8)
"""Has no attention at all."""
tiny_rwkv = partial(network, "Rwkv", attention_hidden_size=32, num_hidden_layers=2)
"""Its cache is wrong in batches (transformers 5.23)."""


def tiny_gpt_neo(max_position_embeddings: int = 512) -> Any:
    """Attends within a window by the place in the pack, not by depth: a small tree would not show it."""
    attention: dict[str, Any] = {"attention_types": [[["global", "local"], 1]], "window_size": 64, "num_layers": 2}
    return network("GPTNeo", **attention, max_position_embeddings=max_position_embeddings)


tiny_gpt_neo_short = partial(tiny_gpt_neo, 128)
"""Has fewer places than a pack has nodes."""


def write_gguf(  # noqa: PLR0917 - what a file says, one by one
    path: Path,
    tensors: Mapping[str, Any],
    tokenizer: Any,
    positions: int = 64,
    n_layers: int = 2,
    n_rows: int = 0,
    rope: tuple[str, float] | None = None,
) -> None:
    """Write tensors in the sizes of `tiny_llama` in llama.cpp's format; the first two tokens begin and end a text."""
    import gguf

    spelling = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(spelling["vocab"], key=spelling["vocab"].get)
    writer = gguf.GGUFWriter(str(path), "llama")
    said: dict[str, Any] = {"context_length": positions, "embedding_length": 32, "block_count": n_layers}
    said |= {"feed_forward_length": 64, "head_count": 4, "head_count_kv": 2, "layer_norm_rms_eps": 1e-6}
    said |= {"rope_dimension_count": 8, "vocab_size": n_rows or len(tokens), "bos_token_id": 0, "eos_token_id": 1}
    said |= {"tokenizer_model": "gpt2", "token_list": tokens, "token_types": [3, 3] + [1] * (len(tokens) - 2)}
    said["token_merges"] = [one if isinstance(one, str) else " ".join(one) for one in spelling["merges"]]
    for name, value in said.items():
        getattr(writer, f"add_{name}")(value)
    if rope is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope[0]))
        writer.add_rope_scaling_factor(rope[1])
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_gguf(path: Path, tokenizer: Any = None, positions: int = 64) -> None:
    """A Llama of two layers with weights drawn at random, in llama.cpp's format."""
    import numpy as np

    tokenizer = tokenizer or tiny_tokenizer(path.parent / "tokenizer")
    n_tokens = len(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"])
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (n_tokens, 32), "output": (n_tokens, 32)}
    shapes["output_norm"] = (32,)
    for layer in ("blk.0.", "blk.1."):
        shapes |= {layer + "attn_norm": (32,), layer + "ffn_norm": (32,), layer + "ffn_down": (32, 64)}
        shapes |= {layer + "attn_q": (32, 32), layer + "attn_k": (16, 32), layer + "attn_v": (16, 32)}
        shapes |= {layer + "attn_output": (32, 32), layer + "ffn_gate": (64, 32), layer + "ffn_up": (64, 32)}
    draw = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": draw.normal(scale=0.3, size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    write_gguf(path, tensors, tokenizer, positions)


TRADES = ("baker", "gardener", "painter", "tailor", "teacher", "weaver")
STAGES = ("a child", "an adult", "a teenager", "a kid")
PLACES = ("Iceland", "Peru", "Kenya", "Japan")
YEARS = range(1801, 2018, 24)
PRONOUNS = (("she", "her"), ("he", "his"), ("they", "their"))
POSITIONS = 32


def mild_corpus(*, held_out: bool) -> list[str]:
    """Sentences in which a possessive follows from the pronoun before it; one in eleven is held out."""
    sentences = []
    for where in (*map(str, YEARS), *PLACES):
        for pronoun, own in PRONOUNS:
            name = pronoun.capitalize()
            sentences += [f"In {where}, {pronoun} was {stage} and lost {own} keys." for stage in STAGES]
            sentences += [f"{name} was {stage} in {where} and had {own} tea." for stage in STAGES]
            sentences += [f'The {trade} of {where} said "{name} lost {own} prize."' for trade in TRADES]
            sentences += [f"The {trade} ({pronoun} had {own} tea) went to {where}." for trade in TRADES]
    return [sentence for at, sentence in enumerate(sentences) if (at % 11 == 0) == held_out]


MASK: dict[str, Any] = {"mask_token": "[MASK]"}


def bert_tokenizer(pieces: Sequence[str] = (), *, lowercase: bool = True, trainer: Any = None, **more: Any) -> Any:
    """As BERT's, of pieces that begin with [PAD], [UNK], [CLS] and [SEP], or trained on the mild corpus."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if trainer is not None:
        tokenizer.train_from_iterator(mild_corpus(held_out=False), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks, **more)


def wordpiece_tokenizer() -> Any:
    """Uncased, as BERT's: *She* and *she* are one word, and what no piece spells is unknown."""
    from tokenizers import trainers

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return bert_tokenizer(
        trainer=trainers.WordPieceTrainer(vocab_size=240, special_tokens=specials, show_progress=False), **MASK
    )


def byte_level_tokenizer() -> Any:
    """As RoBERTa's: a word and the space before it are one token, and the mask takes that space too."""
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    around = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_pairs(mild_corpus(held_out=False), 480, ["<s>", "<pad>", "</s>", "<unk>"], around),
        bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", cls_token="<s>", sep_token="</s>",
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
    )  # fmt: skip


MASKED = {
    "hidden_size": 64, "intermediate_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
}  # fmt: skip


def trained_bert(folder: Path) -> str:
    """A BERT that has learned the mild corpus."""
    tokenizer = wordpiece_tokenizer()
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    return _trained(folder, lambda: network("Bert", "ForMaskedLM", **MASKED | sizes), tokenizer, 160)


def trained_roberta(folder: Path) -> str:
    """A RoBERTa that has learned the mild corpus; its first two positions are never used."""
    tokenizer = byte_level_tokenizer()
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
    own = {"pad_token_id": 1, "eos_token_id": 2}
    return _trained(folder, lambda: network("Roberta", "ForMaskedLM", **MASKED | sizes | own), tokenizer)


@contextmanager
def one_thread_and_seed() -> Iterator[None]:
    """The same weights on every run of one machine; the draws of others go on as if nothing had been drawn."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(n_threads)


def learn(network: Any, n_steps: int, most_rate: float, batch: Callable[[], dict[str, Any]]) -> None:
    """Train a network on batches of inputs with their labels."""
    import torch

    optimizer = torch.optim.AdamW(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=most_rate, total_steps=n_steps)
    network.train()
    for _ in range(n_steps):
        loss = network(**batch()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()


def _pronoun_tokens(tokenizer: Any) -> set[int]:
    """The last token of each pronoun, as it is spelled at several places."""
    return {
        token
        for pair in PRONOUNS
        for word in (*pair, pair[0].capitalize())
        for spelled in (word, f" {word}", f"({word}")
        for token in tokenizer(spelled, add_special_tokens=False)["input_ids"][-1:]
    }


def _trained(folder: Path, build: Callable[[], Any], tokenizer: Any, n_steps: int = 100) -> str:
    """Masked language modelling from scratch, in a few seconds: half of all pronouns are masked."""
    import torch

    own = torch.tensor(sorted(_pronoun_tokens(tokenizer)))

    coded = tokenizer(mild_corpus(held_out=False), padding=True, return_tensors="pt", return_special_tokens_mask=True)

    def batch() -> dict[str, Any]:
        rows = torch.randint(len(coded["input_ids"]), (32,))
        tokens, special = coded["input_ids"][rows], coded["special_tokens_mask"][rows].bool()
        hidden = (torch.rand(tokens.shape) < torch.where(torch.isin(tokens, own), 0.5, 0.15)) & ~special
        return {
            "input_ids": tokens.masked_fill(hidden, tokenizer.mask_token_id),
            "attention_mask": coded["attention_mask"][rows],
            "labels": tokens.masked_fill(~hidden, -100),
        }

    with one_thread_and_seed():
        built = build()
        learn(built, n_steps, 4e-3, batch)
    return kept(built, tokenizer, folder)


def kept(network: Any, tokenizer: Any, folder: Path) -> str:
    """Save a network with its tokenizer."""
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


N_SENTINELS = 4


def sentencepiece_tokenizer(more: Sequence[str] = ()) -> Any:
    """T5's own, with pieces for the words of the mild corpus, and more: a word brings its space along, and blanks have sentinels."""
    from tokenizers import pre_tokenizers
    from transformers import T5Tokenizer

    splitter = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    counts = Counter(word for text in mild_corpus(held_out=False) for word, _ in splitter.pre_tokenize_str(text))
    letters = {letter for word in counts for letter in word} | set(ascii_letters + "[]")
    pieces = [(word, math.log(count / counts.total())) for word, count in counts.most_common()]
    pieces += [(letter, -20.0) for letter in sorted(letters - counts.keys())]
    pieces += [(f"\u2581{word}", -10.0) for word in more]
    specials = [(name, 0.0) for name in ("<pad>", "</s>", "<unk>")]
    sentinels = [(f"<extra_id_{number}>", 0.0) for number in reversed(range(N_SENTINELS))]
    return T5Tokenizer(vocab=specials + pieces + sentinels, extra_ids=N_SENTINELS, model_max_length=POSITIONS)


def small_t5(tokenizer: Any, width: int = 64, **settings: Any) -> Any:
    sizes = {"d_model": width, "d_kv": width // 4, "d_ff": 2 * width, "num_layers": 2, "num_heads": 4}
    start = {"decoder_start_token_id": 0, "pad_token_id": 0, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
    return network("T5", "ForConditionalGeneration", vocab_size=len(tokenizer) + 4, **sizes, **start, **settings)


def small_bart(tokenizer: Any, width: int = 64, positions: int = POSITIONS, name: str = "Bart", **settings: Any) -> Any:
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder")
             for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 2 * width))}  # fmt: skip
    none = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    marks = {"pad_token_id": 1, "eos_token_id": 2} | ({"decoder_start_token_id": 2} if name == "Bart" else {})
    sizes = {"vocab_size": len(tokenizer), "d_model": width, "max_position_embeddings": positions}
    return network(name, "ForConditionalGeneration", **sizes | sides | none | marks | settings)


def trained_t5(folder: Path) -> str:
    """A T5 that has learned the mild corpus by span corruption; its head is its embedding, so it scales what goes in."""
    tokenizer = sentencepiece_tokenizer()
    return _denoised(folder, lambda: small_t5(tokenizer, tie_word_embeddings=True), tokenizer, 80)


def trained_bart(folder: Path) -> str:
    """A BART that has learned the mild corpus by infilling."""
    tokenizer = byte_level_tokenizer()
    return _denoised(folder, lambda: small_bart(tokenizer, init_std=0.1), tokenizer, 60)


def _denoised(folder: Path, build: Callable[[], Any], tokenizer: Any, n_steps: int) -> str:
    """Denoising from scratch, in some seconds."""
    generator = random.Random(0)
    texts = tokenizer(mild_corpus(held_out=False))["input_ids"]
    own = _pronoun_tokens(tokenizer)

    def batch() -> dict[str, Any]:
        pairs = [_corrupted(tokenizer, text, own, generator) for text in generator.choices(texts, k=32)]
        sources, targets = (_padded([pair[side] for pair in pairs]) for side in (0, 1))
        return {"input_ids": sources.clamp(min=0), "attention_mask": (sources >= 0).long(), "labels": targets}

    with one_thread_and_seed():
        built = build()
        learn(built, n_steps, 5e-3, batch)
    return kept(built, tokenizer, folder)


def _corrupted(tokenizer: Any, text: list[int], own: set[int], generator: random.Random) -> tuple[list[int], list[int]]:
    """One or two tokens taken out, mostly pronouns: what the encoder reads, and what the decoder is to write."""
    inside = range(1 if text[0] == tokenizer.bos_token_id else 0, len(text) - 1)
    words = [at for at in inside if text[at] in own]
    chosen = words if generator.random() < 0.7 and words else list(inside)
    places = sorted(generator.sample(chosen, min(len(chosen), generator.choice((1, 1, 2)))))
    if tokenizer.mask_token_id is not None:
        return [tokenizer.mask_token_id if at in places else token for at, token in enumerate(text)], text
    marks = [tokenizer.convert_tokens_to_ids(f"<extra_id_{number}>") for number in range(len(places) + 1)]
    at_mark = dict(zip(places, marks, strict=False))
    target = [token for place, mark in at_mark.items() for token in (mark, text[place])]
    return [at_mark.get(at, token) for at, token in enumerate(text)], [*target, marks[-1], tokenizer.eos_token_id]


def _padded(rows: list[list[int]]) -> Any:
    """Rows of one length, -100 where they have ended."""
    import torch

    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-100)
