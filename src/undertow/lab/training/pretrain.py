"""Small models from scratch: a tokenizer and a masked or a causal network, learned from one corpus on a processor in seconds.

    texts ----> tokenizer ----> network drawn from the seed ----> batches in an order drawn from the seed ----> folder

Each text has one word that matters more than the others, its target: a masked model has to find it, a causal one has it
counted more. The same corpus, recipe and seed give the same weights to the last bit on one machine and one thread,
also where the training was killed and taken up again from its checkpoint. Until it is done, all is in a folder beside:

    FOLDER.unfinished/checkpoint.safetensors    network, optimizer, step and losses
    FOLDER.unfinished/model/                    the trained network while it is written; renamed to FOLDER when it is whole

Knows torch, transformers and tokenizers, all imported when a model is trained; knows nothing about why these texts.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow._files import parse_json, read_file
from undertow.errors import UndertowError
from undertow.lab.stratified_sampling import stratified_uniform
from undertow.models.loading.library_contexts import silence_libraries
from undertow.models.loading.load_network import load_network
from undertow.models.loading.weight_files import WeightFiles
from undertow.types import Floats

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]

MASKED, CAUSAL = "masked", "causal"
ARCHITECTURES = (MASKED, CAUSAL)
PADDING, UNKNOWN, BEGIN, END, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PADDING, UNKNOWN, BEGIN, END, MASK)
TOKENIZER_TEXTS = 20_000
LOGGED_STEPS = 50
CHECKPOINT_STEPS = 4 * LOGGED_STEPS
SORTED_TOGETHER = 32
"""Batches whose texts are put in order of length among themselves, so that little is padded."""
MAX_BYTES = 16 * 2**20
DONE = "training.json"
UNFINISHED = ".unfinished"
CHECKPOINT, DRAFT, MODEL = "checkpoint.safetensors", "checkpoint.new", "model"


class DivergedError(UndertowError):
    """A loss that is no number any more: the same texts, recipe and seed end so again."""


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One text to learn.

    Attributes:
        text: as it is.
        target: first and last character of the word that matters.
        kind: texts of one kind come evenly over each pass, so that what is learned last is like all that there is. A number from 0 on.
    """

    text: str
    target: tuple[int, int]
    kind: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """A text with one blank, to tell whether a network has learned what fills it.

    Attributes:
        before, after: the text around the blank.
        options: words that may stand there, one token each.
        right: which of them does.
    """

    before: str
    after: str
    options: tuple[str, ...]
    right: int


_COUNTED = ("width", "layers", "heads", "inner", "vocabulary", "positions", "batch", "steps")
_ABOVE_NOTHING = ("learning_rate", "embedding_rate", "spread")


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    """How a network is built and trained.

    Attributes:
        architecture: `masked` (BERT) or `causal` (Llama).
        seed: of the first weights, the order of the texts and what is masked.
        width, layers, heads, inner: of the network.
        vocabulary: tokens, at most.
        positions: tokens that it can read, at most.
        batch, steps: texts a step, and steps.
        learning_rate: at its highest, after the warm-up; it falls to 0 along a cosine.
        embedding_rate: how many times as fast the embeddings learn: each is seen in a few texts of a batch only.
        warmup: steps.
        target_masked, other_masked: shares of the targets and of other tokens that a masked model has to find.
        other_weight: how much another token counts beside a target.
        spread: standard deviation of the first weights. With the usual 0.02 most small networks stay on a plateau.
    """

    architecture: str
    seed: int = 0
    width: int = 64
    layers: int = 2
    heads: int = 4
    inner: int = 128
    vocabulary: int = 800
    positions: int = 64
    batch: int = 128
    steps: int = 930
    learning_rate: float = 2e-3
    embedding_rate: float = 5.0
    warmup: int = 60
    target_masked: float = 1.0
    other_masked: float = 0.0
    other_weight: float = 0.02
    spread: float = 0.1

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UndertowError(f"a network is {' or '.join(ARCHITECTURES)}, not {self.architecture!r}")
        for name, fine, must in (
            ("seed", 0 <= self.seed < 2**32, "a whole number from 0 to 4294967295"),
            *((name, getattr(self, name) >= 1, "1 or more") for name in _COUNTED),
            ("warmup", self.warmup >= 0, "0 or more"),
            *((name, 0 < getattr(self, name) < math.inf, "above 0") for name in _ABOVE_NOTHING),
            ("target_masked", 0 < self.target_masked <= 1, "a share above 0"),
            ("other_masked", 0 <= self.other_masked <= 1, "a share from 0 to 1"),
            ("other_weight", 0 <= self.other_weight < math.inf, "0 or more"),
        ):
            if not fine:
                raise UndertowError(f"{name} {getattr(self, name)} trains nothing; make it {must}")
        if self.width % self.heads:
            raise UndertowError(f"width {self.width} cannot be shared by {self.heads} heads; make it a multiple")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A network in its folder.

    Attributes:
        folder: to be named as a model.
        losses: mean loss over the last steps before, in nats a text [(step, loss)].
    """

    folder: Path
    losses: tuple[tuple[int, float], ...]


def train(
    lessons: Sequence[TrainingExample],
    recipe: PretrainConfig,
    folder: Path,
    progress: Progress = lambda done, total: None,
) -> TrainedModel:
    """Train a network on the texts and save it, or take up or return what is there already from the same texts and recipe.

    A corrupt checkpoint counts as none: to train again is a matter of seconds, and gives the same weights.

    Raises:
        DivergedError: a loss that is no number any more.
        UndertowError: no texts, a text longer than the network reads, or a folder that holds something else or is corrupt.
    """
    if not lessons:
        raise UndertowError("there are no texts to train on; give at least one")
    kept = _CheckpointDir(folder, {"recipe": asdict(recipe), "corpus_sha256": _digest(lessons)})
    done = kept.finished()
    if done is not None:
        return done
    corpus = _Corpus.from_examples(lessons, recipe)
    with _one_thread():
        training = _Training(corpus, recipe, kept)
        losses = training.run(progress)
    silence_libraries()
    kept.finish(training.network, corpus.tokenizer, losses)
    return TrainedModel(folder, tuple(losses))


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


def _digest(lessons: Sequence[TrainingExample]) -> str:
    digest = hashlib.sha256()
    for lesson in lessons:
        digest.update(f"{lesson.text}\0{lesson.target}\0{lesson.kind}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Where a training was left: steps done, losses so far, and tensors by name."""

    step: int
    losses: list[tuple[int, float]]
    tensors: Mapping[str, torch.Tensor]


class _CheckpointDir:
    """What is on disk of a training: each file is whole or not there, and the network's folder too."""

    def __init__(self, folder: Path, what: Mapping[str, Any]) -> None:
        self._folder, self._what = folder, what
        whole = folder.absolute()
        self._work = whole.with_name(f"{whole.name}{UNFINISHED}")

    def finished(self) -> TrainedModel | None:
        """The network, if it is there."""
        place = self._folder / DONE
        if place.is_file():
            try:
                said = parse_json(read_file(place, MAX_BYTES, "a record"))
                losses = tuple((int(step), float(loss)) for step, loss in said["losses"])
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                raise UndertowError(f"{place}: is corrupt; name another folder, or remove this one") from error
            self._check(self._folder, said)
            self._tidy()
            return TrainedModel(self._folder, losses)
        for path, own in ((self._folder, set[str]()), (self._work, {CHECKPOINT, DRAFT, MODEL})):
            if path.exists() and (not path.is_dir() or _names(path) - own):
                raise UndertowError(f"{path}: holds something else; name another folder, or remove it")
        return None

    def standing(self) -> _Checkpoint | None:
        """The checkpoint, if there is one that can be read."""
        from safetensors import SafetensorError, safe_open

        place = self._work / CHECKPOINT
        if not place.is_file():
            return None
        try:
            with safe_open(place, framework="pt") as file:
                said = parse_json((file.metadata() or {})["state"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            step, losses = int(said["step"]), [(int(at), float(loss)) for at, loss in said["losses"]]
        except (SafetensorError, ValueError, TypeError, KeyError, OverflowError):
            return None
        self._check(self._work, said)
        return _Checkpoint(step, losses, tensors)

    def keep(self, standing: _Checkpoint) -> None:
        """A checkpoint that replaces the one before at once or not at all."""
        from safetensors.torch import save_file

        self._work.mkdir(parents=True, exist_ok=True)
        state = {**self._what, "step": standing.step, "losses": standing.losses}
        save_file(dict(standing.tensors), self._work / DRAFT, metadata={"state": json.dumps(state)})
        (self._work / DRAFT).replace(self._work / CHECKPOINT)

    def finish(self, network: Any, tokenizer: Any, losses: Sequence[tuple[int, float]]) -> None:
        """The network in its folder, all of it at once.

        No times are in it: its files are its revision, which is to be that of every network with these weights.
        """
        fresh = self._work / MODEL
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        network.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        (fresh / DONE).write_text(json.dumps({**self._what, "losses": losses}, indent=1), encoding="utf-8")
        if self._folder.is_dir():
            # Empty, or it would have been refused. Not every system renames over a folder.
            self._folder.rmdir()
        fresh.rename(self._folder)
        self._tidy()

    def _tidy(self) -> None:
        if self._work.is_dir() and _names(self._work) <= {CHECKPOINT, DRAFT, MODEL}:
            shutil.rmtree(self._work, ignore_errors=True)

    def _check(self, path: Path, said: Mapping[str, Any]) -> None:
        if {key: said.get(key) for key in self._what} != self._what:
            raise UndertowError(
                f"{path}: holds a network of another corpus or recipe; name another folder, or remove it"
            )


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@dataclass(frozen=True, slots=True)
class _Corpus:
    """The texts in tokens.

    Attributes:
        tokenizer: trained on them.
        tokens: padded [text, position].
        lengths: [text].
        targets: whether a token belongs to its text's target [text, position].
        kinds: [text].
    """

    tokenizer: Any
    tokens: torch.Tensor
    lengths: Ints
    targets: torch.Tensor
    kinds: Ints

    @classmethod
    def from_examples(cls, lessons: Sequence[TrainingExample], recipe: PretrainConfig) -> _Corpus:
        import torch

        tokenizer = trained_tokenizer([lesson.text for lesson in lessons[:TOKENIZER_TEXTS]], recipe)
        coded = tokenizer.backend_tokenizer.encode_batch([lesson.text for lesson in lessons])
        lengths = np.array([len(one.ids) for one in coded], dtype=np.int64)
        longest = int(lengths.max())
        if longest > recipe.positions:
            text = lessons[int(lengths.argmax())].text
            raise UndertowError(
                f"the text that begins {text[:40]!r} has {longest} tokens, and the network reads {recipe.positions}; make texts "
                "shorter or positions more"
            )
        tokens = np.zeros((len(lessons), longest), dtype=np.int64)
        targets = np.zeros((len(lessons), longest), dtype=bool)
        for row, (one, lesson) in enumerate(zip(coded, lessons, strict=True)):
            tokens[row, : len(one.ids)] = one.ids
            begin, end = lesson.target
            targets[row, : len(one.ids)] = [last > begin and first < end for first, last in one.offsets]
        kinds = np.array([lesson.kind for lesson in lessons], dtype=np.int64)
        return cls(tokenizer, torch.from_numpy(tokens), lengths, torch.from_numpy(targets), kinds)


def trained_tokenizer(texts: Sequence[str], recipe: PretrainConfig) -> Any:
    """An uncased tokenizer of whole words, and of characters for other words.

    A masked network's texts begin and end with marks of their own; a causal one's begin with one, so that their first word has a
    probability.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(_vocabulary(texts, recipe.vocabulary), unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [(mark, SPECIAL.index(mark)) for mark in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}" if recipe.architecture == MASKED else f"{BEGIN} $A", special_tokens=ends
    )
    marks = {"unk_token": UNKNOWN, "pad_token": PADDING}
    if recipe.architecture == MASKED:
        marks |= {"cls_token": BEGIN, "sep_token": END, "mask_token": MASK}
    else:
        marks |= {"bos_token": BEGIN, "eos_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=recipe.positions, **marks)


def _vocabulary(texts: Sequence[str], n_tokens: int) -> dict[str, int]:
    """Special tokens, characters as beginnings and as continuations of words, then the most frequent words.

    Counted here: the trainers of `tokenizers` break ties differently in every process.
    """
    from tokenizers import normalizers, pre_tokenizers

    lower, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    counts = Counter(word for text in texts for word, _ in split.pre_tokenize_str(lower.normalize_str(text)))
    characters = sorted({character for word in counts for character in word})
    known = [*SPECIAL, *characters, *(f"##{character}" for character in characters)]
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    return {token: number for number, token in enumerate([*known, *words[: max(n_tokens - len(known), 0)]])}


def _network(recipe: PretrainConfig, n_tokens: int) -> Any:
    import torch
    from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

    shared = {
        "vocab_size": n_tokens, "hidden_size": recipe.width, "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads, "intermediate_size": recipe.inner, "max_position_embeddings": recipe.positions,
        "initializer_range": recipe.spread, "pad_token_id": SPECIAL.index(PADDING),
    }  # fmt: skip
    # What others draw is not changed by these draws.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.seed)
        if recipe.architecture == MASKED:
            return BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **shared))
        marks = {"bos_token_id": SPECIAL.index(BEGIN), "eos_token_id": SPECIAL.index(END)}
        return LlamaForCausalLM(
            LlamaConfig(num_key_value_heads=recipe.heads, tie_word_embeddings=True, **shared, **marks)
        )


class _Training:
    """The loop, and what is needed to take it up again."""

    def __init__(self, corpus: _Corpus, recipe: PretrainConfig, kept: _CheckpointDir) -> None:
        import torch

        self.corpus, self.recipe, self.kept = corpus, recipe, kept
        self.network = _network(recipe, len(corpus.tokenizer)).train()
        embeddings = [self.network.get_input_embeddings().weight]
        others = [one for one in self.network.parameters() if all(one is not known for known in embeddings)]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": embeddings, "lr": recipe.learning_rate * recipe.embedding_rate},
                {"params": others, "lr": recipe.learning_rate},
            ],
            weight_decay=0.0,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)

    def _rate(self, step: int) -> float:
        rising = min((step + 1) / self.recipe.warmup, 1.0) if self.recipe.warmup else 1.0
        return rising * 0.5 * (1 + math.cos(math.pi * min(step / self.recipe.steps, 1.0)))

    def run(self, progress: Progress) -> list[tuple[int, float]]:
        """All steps that are left: losses."""
        import torch

        first, losses = self._taken_up()
        running: list[float] = []
        order = self._order()
        for _ in range(first):
            next(order)
        for step in range(first, self.recipe.steps):
            loss = self._loss(next(order), step)
            if not torch.isfinite(loss):
                raise DivergedError(
                    f"the loss is no number any more at step {step}; lower the learning rate and train again"
                )
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            running.append(loss.item())
            logged = (step + 1) % LOGGED_STEPS == 0 or step + 1 == self.recipe.steps
            if logged:
                losses.append((step + 1, float(np.mean(running))))
                running.clear()
            if (step + 1) % CHECKPOINT_STEPS == 0 and step + 1 < self.recipe.steps:
                self._save(step + 1, losses)
            if logged:
                progress(step + 1, self.recipe.steps)
        return losses

    def _order(self) -> Iterator[Ints]:
        """Texts of each step: all of them once before any comes again, kinds mixed evenly, those of one step of about one length."""
        rng = np.random.default_rng([self.recipe.seed, 3])
        n_texts, batch = len(self.corpus.lengths), self.recipe.batch
        while True:
            everything = np.argsort(stratified_uniform(self.corpus.kinds, rng), kind="stable")
            for begin in range(0, n_texts, batch * SORTED_TOGETHER):
                near = everything[begin : begin + batch * SORTED_TOGETHER]
                near = near[np.argsort(self.corpus.lengths[near], kind="stable")]
                batches = [near[at : at + batch] for at in range(0, len(near), batch)]
                for number in rng.permutation(len(batches)):
                    yield batches[number]

    def _loss(self, texts: Ints, step: int) -> torch.Tensor:
        """Summed over the tokens that count, in nats a text."""
        import torch

        width = int(self.corpus.lengths[texts].max())
        tokens = self.corpus.tokens[texts, :width]
        targets = self.corpus.targets[texts, :width]
        seen = tokens != SPECIAL.index(PADDING)
        if self.recipe.architecture == CAUSAL:
            counted, wanted = seen[:, 1:], tokens[:, 1:]
            hidden = self.network.base_model(tokens, attention_mask=seen.long())[0][:, :-1][counted]
            logits, targets = self.network.lm_head(hidden), targets[:, 1:][counted]
            wanted = wanted[counted]
        else:
            draws = torch.rand(
                tokens.shape, generator=torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + step)
            )
            masked = torch.where(targets, draws < self.recipe.target_masked, draws < self.recipe.other_masked)
            masked &= tokens >= len(SPECIAL)
            given = tokens.masked_fill(masked, SPECIAL.index(MASK))
            hidden = self.network.base_model(given, attention_mask=seen.long())[0][masked]
            logits, wanted, targets = self.network.cls(hidden), tokens[masked], targets[masked]
        each = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
        return (each * torch.where(targets, 1.0, self.recipe.other_weight)).sum() / len(texts)

    def _save(self, step: int, losses: list[tuple[int, float]]) -> None:
        tensors = {f"network.{name}": one.detach().clone() for name, one in self.network.named_parameters()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": one.detach().clone() for name, one in state.items()}
        self.kept.keep(_Checkpoint(step, losses, tensors))

    def _taken_up(self) -> tuple[int, list[tuple[int, float]]]:
        """The step to go on with, and the losses so far."""
        import torch

        standing = self.kept.standing()
        if standing is None:
            return 0, []
        tensors = standing.tensors
        with torch.no_grad():
            for name, one in self.network.named_parameters():
                one.copy_(tensors[f"network.{name}"])
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, one in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":
                number, _, key = rest.partition(".")
                state.setdefault(int(number), {})[key] = one
        plan = self.optimizer.state_dict()
        self.optimizer.load_state_dict({"state": state, "param_groups": plan["param_groups"]})
        # The schedule is a function of the step alone.
        self.schedule.last_epoch = standing.step
        for group, base in zip(self.optimizer.param_groups, self.schedule.base_lrs, strict=True):
            group["lr"] = base * self._rate(standing.step)
        return standing.step, standing.losses


def option_losses(folder: Path, questions: Sequence[Question], batch: int = 512) -> Floats:
    """What a trained network loses on each question in nats, where only the options count [question].

    A masked network reads the whole text with its blank masked, a causal one what stands before it.

    Raises:
        UndertowError: an option that is not one token of the network.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    silence_libraries()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    causal = AutoConfig.from_pretrained(folder).architectures[0].endswith("ForCausalLM")
    kind, weights = (
        AutoModelForCausalLM if causal else AutoModelForMaskedLM,
        WeightFiles(str(folder), {}, folder.name, ""),
    )
    network = load_network(str(folder), weights, kind, "fill blanks")[0].eval()
    words = {word for question in questions for word in question.options}
    numbers = {word: _token(tokenizer, word) for word in sorted(words)}
    losses = np.empty(len(questions))
    for begin in range(0, len(questions), batch):
        some = questions[begin : begin + batch]
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


def _token(tokenizer: Any, word: str) -> int:
    tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(tokens) != 1 or tokens[0] == tokenizer.unk_token_id:
        raise UndertowError(f"{word!r} is not one token of this network; train it on texts that hold the word")
    return int(tokens[0])
