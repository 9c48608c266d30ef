"""Small models from scratch: a tokenizer and a masked or a causal network, learned from one corpus on a processor in seconds.

    texts ----> tokenizer ----> network drawn from the seed ----> batches in an order drawn from the seed ----> folder

Each text has one word that matters more than the others, its target: a masked model has to find it, a causal one has it
counted more. The same corpus, configuration and seed give the same weights to the last bit on one machine and one thread.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError
from undertow.lab.planted_population import stratified_uniform
from undertow.lab.training.checkpoint_folder import CheckpointFolder, TrainedModel
from undertow.lab.training.training_config import MASKED, PretrainConfig
from undertow.lab.training.training_loop import Progress, fit
from undertow.models.base import Ints
from undertow.models.loading.library_contexts import silence_libraries
from undertow.models.loading.load_network import load_network
from undertow.models.loading.resolve_weights import WeightFiles
from undertow.types import Floats

if TYPE_CHECKING:
    import torch

PADDING, UNKNOWN, BEGIN, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PADDING, UNKNOWN, BEGIN, END, MASK)
TOKENIZER_TEXTS, QUESTIONS_AT_ONCE = 20_000, 512
SORTED_TOGETHER = 32
"""Batches whose texts are put in order of length among themselves, so that little is padded."""
OTHER_WEIGHT = 0.02
"""Weight of other tokens than targets in the loss of a causal model; a masked one has to find targets alone."""
SPREAD = 0.1
"""Standard deviation of the first weights. With the usual 0.02 most small networks stay on a plateau."""
DONE = "training.json"


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One text to learn.

    Attributes:
        target: first and last character of the word that matters.
        kind: texts of one kind come evenly over each pass, so that what is learned last is like all that there is. A number from 0 on.
    """

    text: str
    target: tuple[int, int]
    kind: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """A text with one blank, to tell whether a network has learned what fills it."""

    before: str
    after: str
    options: tuple[str, ...]
    right: int


def train(
    lessons: Sequence[TrainingExample],
    config: PretrainConfig,
    folder: Path,
    progress: Progress = lambda done, total, loss: None,
) -> TrainedModel:
    """Train a network on the texts and save it, or take up or return what is there already from the same texts and configuration.

    Raises:
        DivergedError: a loss that is not a number.
        UndertowError: a text longer than the network reads, or a folder that holds something else or is corrupt.
    """
    settings = config.settings()
    digest = hashlib.sha256()
    for lesson in lessons:
        digest.update(f"{lesson.text}\0{lesson.target}\0{lesson.kind}\0".encode())
    kept = CheckpointFolder(folder, DONE, {"data_sha256": digest.hexdigest(), **settings})
    done = kept.finished()
    if done is not None:
        return done
    corpus = _Corpus.from_examples(lessons, config)
    with _one_thread():
        network = _network(config, len(corpus.tokenizer))
        loss_of = corpus.masked_loss if config.architecture == MASKED else corpus.causal_loss
        batches = corpus.batches(config)
        resumed_at, losses = fit(network, batches, config, lambda texts: loss_of(network, texts), kept, progress)
    silence_libraries()
    record = {"recipe": settings, "n_steps": config.max_steps, "losses_nats": losses}
    return kept.finish(network, corpus.tokenizer, record, resumed_at)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums come out the same whatever the machine has, and networks so small are no faster with more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class _Corpus:
    """The texts in tokens."""

    tokenizer: Any  # trained on them
    tokens: torch.Tensor  # padded [text, position]
    lengths: Ints  # [text]
    targets: torch.Tensor  # whether a token belongs to its text's target [text, position]
    kinds: Ints  # [text]

    @classmethod
    def from_examples(cls, lessons: Sequence[TrainingExample], config: PretrainConfig) -> _Corpus:
        import torch

        tokenizer = train_tokenizer([lesson.text for lesson in lessons[:TOKENIZER_TEXTS]], config)
        coded = tokenizer.backend_tokenizer.encode_batch([lesson.text for lesson in lessons])
        lengths = np.array([len(one.ids) for one in coded], dtype=np.int64)
        longest = int(lengths.max())
        if longest > config.positions:
            text = lessons[int(lengths.argmax())].text
            raise UndertowError(f"text {text[:40]!r} has {longest} tokens; shorten it, or set positions to {longest}")
        tokens = np.zeros((len(lessons), longest), dtype=np.int64)
        targets = np.zeros((len(lessons), longest), dtype=bool)
        for row, (one, lesson) in enumerate(zip(coded, lessons, strict=True)):
            tokens[row, : len(one.ids)] = one.ids
            begin, end = lesson.target
            targets[row, : len(one.ids)] = [last > begin and first < end for first, last in one.offsets]
        kinds = np.array([lesson.kind for lesson in lessons], dtype=np.int64)
        return cls(tokenizer, torch.from_numpy(tokens), lengths, torch.from_numpy(targets), kinds)

    def batches(self, config: PretrainConfig) -> Iterator[Ints]:
        """Texts of each step: all of them once before any comes again, kinds mixed evenly, those of one step of about one length."""
        rng = np.random.default_rng([config.seed, 3])
        pool = config.batch_size * SORTED_TOGETHER
        while True:
            everything = np.argsort(stratified_uniform(self.kinds, rng), kind="stable")
            for begin in range(0, len(everything), pool):
                near = everything[begin : begin + pool]
                near = near[np.argsort(self.lengths[near], kind="stable")]
                batches = [near[at : at + config.batch_size] for at in range(0, len(near), config.batch_size)]
                for number in rng.permutation(len(batches)):
                    yield batches[number]

    def masked_loss(self, network: Any, texts: Ints) -> torch.Tensor:
        """Of targets, each masked, summed, in nats a text."""
        import torch

        tokens, targets = self._pad(texts)
        masked = targets & (tokens >= len(SPECIAL))
        given = tokens.masked_fill(masked, SPECIAL.index(MASK))
        hidden = network.base_model(given, attention_mask=(tokens != SPECIAL.index(PADDING)).long())[0][masked]
        return torch.nn.functional.cross_entropy(network.cls(hidden), tokens[masked], reduction="none").sum() / len(
            texts
        )

    def causal_loss(self, network: Any, texts: Ints) -> torch.Tensor:
        """Of every token, in which others than targets count little, summed, in nats a text."""
        import torch

        tokens, targets = self._pad(texts)
        seen = tokens != SPECIAL.index(PADDING)
        counted = seen[:, 1:]
        hidden = network.base_model(tokens, attention_mask=seen.long())[0][:, :-1][counted]
        each = torch.nn.functional.cross_entropy(network.lm_head(hidden), tokens[:, 1:][counted], reduction="none")
        return (each * torch.where(targets[:, 1:][counted], 1.0, OTHER_WEIGHT)).sum() / len(texts)

    def _pad(self, texts: Ints) -> tuple[torch.Tensor, torch.Tensor]:
        width = int(self.lengths[texts].max())
        return self.tokens[texts, :width], self.targets[texts, :width]


def train_tokenizer(texts: Sequence[str], config: PretrainConfig) -> Any:
    """An uncased tokenizer of whole words, and of characters for other words.

    A masked network's texts begin and end with marks of their own; a causal one's begin with one, so that their first word has a
    probability.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    # Words are counted here: the trainers of `tokenizers` break ties differently in every process.
    lower, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts = Counter(word for text in texts for word, _ in split.pre_tokenize_str(lower.normalize_str(text)))
    characters = sorted({character for word in counts for character in word})
    known = [*SPECIAL, *characters, *(f"##{character}" for character in characters)]
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    tokens = [*known, *words[: max(config.vocabulary - len(known), 0)]]
    tokenizer = Tokenizer(models.WordPiece({token: at for at, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = lower, split
    tokenizer.decoder = decoders.WordPiece()
    ends = [(mark, SPECIAL.index(mark)) for mark in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}" if config.architecture == MASKED else f"{BEGIN} $A", special_tokens=ends
    )
    marks = {"unk_token": UNKNOWN, "pad_token": PADDING}
    if config.architecture == MASKED:
        marks |= {"cls_token": BEGIN, "sep_token": END, "mask_token": MASK}
    else:
        marks |= {"bos_token": BEGIN, "eos_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=config.positions, **marks)


def _network(config: PretrainConfig, n_tokens: int) -> Any:
    import torch
    from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

    shared = {
        "vocab_size": n_tokens, "hidden_size": config.width, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "intermediate_size": config.inner, "max_position_embeddings": config.positions,
        "initializer_range": SPREAD, "pad_token_id": SPECIAL.index(PADDING),
    }  # fmt: skip
    # What others draw is not changed by these draws.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        if config.architecture == MASKED:
            return BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **shared))
        marks = {"bos_token_id": SPECIAL.index(BEGIN), "eos_token_id": SPECIAL.index(END)}
        return LlamaForCausalLM(
            LlamaConfig(num_key_value_heads=config.heads, tie_word_embeddings=True, **shared, **marks)
        )


def option_losses(folder: Path, questions: Sequence[Question]) -> Floats:
    """Cross-entropy of a trained network on each question in nats, over the options only [question].

    A masked network reads the whole text with its blank masked, a causal one the text before the blank.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    silence_libraries()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    causal = AutoConfig.from_pretrained(folder).architectures[0].endswith("ForCausalLM")
    kind = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    network = load_network(str(folder), WeightFiles(str(folder), {}, folder.name, ""), kind, "fill blanks")[0].eval()
    numbers = {}
    for word in sorted({word for question in questions for word in question.options}):
        (number, *more) = tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id]
        if more or number == tokenizer.unk_token_id:
            raise UndertowError(f"{word!r} is not one token of this network; train it on texts that hold the word")
        numbers[word] = int(number)
    losses = np.empty(len(questions))
    for begin in range(0, len(questions), QUESTIONS_AT_ONCE):
        some = questions[begin : begin + QUESTIONS_AT_ONCE]
        texts = [one.before if causal else f"{one.before}{tokenizer.mask_token}{one.after}" for one in some]
        coded = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
        tokens, seen = coded["input_ids"], coded["attention_mask"]
        places = seen.sum(1) - 1 if causal else (tokens == tokenizer.mask_token_id).long().argmax(1)
        with torch.inference_mode():
            logits = network(input_ids=tokens, attention_mask=seen).logits[torch.arange(len(some)), places].double()
        for row, question in enumerate(some):
            options = logits[row, [numbers[word] for word in question.options]]
            losses[begin + row] = -float(options.log_softmax(0)[question.right])
    return losses
