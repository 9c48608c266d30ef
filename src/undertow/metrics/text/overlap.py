"""Overlap of an answer with a reference text: token F1, BLEU-4 and METEOR.

The measures of extraction and rephrasing in Bauer et al. 2022 ("Analyzing the Limits of Self-Supervision in Handling Bias in
Language"), section 4.3: token F1, BLEU-4 (Papineni et al. 2002, by sacrebleu) and METEOR (Lavie and Agarwal 2007, by nltk).
Scores single texts. Downloads nothing.
"""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.stats.arrays import Floats

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

DEBIAN_WORDNET = "/usr/share/wordnet"
"""Where Debian's package wordnet-base puts the files of WordNet."""

_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_N_LEXICOGRAPHER_FILES = 45
_REMEMBERED = 100_000
"""Size of the caches of words and of pairs of texts."""


@dataclass(frozen=True, slots=True)
class Meteor:
    """METEOR as this machine can compute it, and a clause for the report on the implementation and its matches.

    The score of (answer, reference) is in 0 to 1: 1 - 0.5 / n^3 for two equal texts of n words, 0 without common words.
    """

    score: Callable[[str, str], float]
    used: str


def words(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits of any script, with the apostrophes inside them.

    Accents and vowel signs are part of their letter, however they are encoded; a typographic apostrophe is a plain one.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    # Lower case first, because it can decompose a letter.
    plain = unicodedata.normalize("NFC", text.lower()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return _word().findall(plain)


@lru_cache(_REMEMBERED)
def token_f1(answer: str, reference: str) -> float:
    """F1 of the two bags of words, in 0 to 1; a common word counts with its smaller frequency.

    1 if both texts have no words, 0 if one has none.
    """
    own, wanted = Counter(words(answer)), Counter(words(reference))
    if not own and not wanted:
        return 1.0
    return 2 * (own & wanted).total() / (own.total() + wanted.total())


def same_text(answer: str, reference: str) -> bool:
    """Whether two texts are equal, ignoring case and surrounding punctuation and white space.

    Annotators may include the full stop after a span or not.
    """
    return _bare(answer) == _bare(reference)


def bleu_stats(answers: Sequence[str], references: Sequence[str]) -> Floats:
    """Sufficient statistics of BLEU-4 for each pair of texts, by sacrebleu (tokenizer 13a, case kept).

    Returns:
        Length of the answer, length of the reference, matched n-grams of order 1 to 4, n-grams of order 1 to 4 in the
        answer [text, 10]. Their sums over texts give corpus BLEU, see `undertow.stats.classification.agreement.corpus_bleu`.
    """
    rows = [_pair_stats(answer, reference) for answer, reference in zip(answers, references, strict=True)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 10)


@lru_cache(_REMEMBERED)
def _pair_stats(answer: str, reference: str) -> tuple[int, ...]:
    score = _bleu().sentence_score(answer, [reference])
    return score.sys_len, score.ref_len, *score.counts, *score.totals


def meteor_scorer() -> Meteor:
    """METEOR over `words`: exact matches, then Porter stems, then WordNet synonyms if WordNet is installed.

    Searches WordNet in nltk's data, then in the folder of Debian's wordnet-base, without changing `nltk.data.path`. Loading it takes
    some seconds, once.
    """
    import nltk  # type: ignore[import-untyped]
    from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]
    from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]

    synonyms, matches = _synonyms()
    stems = SimpleNamespace(stem=lru_cache(_REMEMBERED)(PorterStemmer().stem))

    @lru_cache(_REMEMBERED)
    def score(answer: str, reference: str) -> float:
        return float(single_meteor_score(words(reference), words(answer), stemmer=stems, wordnet=synonyms))

    return Meteor(score, f"METEOR by nltk {nltk.__version__}, {matches}")


def _bare(text: str) -> str:
    plain = text.strip().casefold()
    kept = [at for at, letter in enumerate(plain) if unicodedata.category(letter)[0] not in "PZC"]
    return plain[kept[0] : kept[-1] + 1] if kept else plain


@cache
def _word() -> re.Pattern[str]:
    """Pattern of a word of any script, including combining marks, which `re` does not count as parts of words."""
    marks = (code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("M"))
    # Consecutive code points have the same difference to their index in the list.
    runs = [[code for _, code in run] for _, run in groupby(enumerate(marks), lambda pair: pair[1] - pair[0])]
    combining = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)
    letters = rf"[^\W_](?:[^\W_]|[{combining}])*"
    return re.compile(rf"{letters}(?:'{letters})*")


@cache
def _bleu() -> BLEU:
    from sacrebleu.metrics.bleu import BLEU

    # The effective order changes sentence scores, which are not used, but not the counts; without it each call logs a warning.
    return BLEU(tokenize="13a", lowercase=False, effective_order=True)


def _synonyms() -> tuple[SimpleNamespace, str]:
    from nltk.corpus.reader.wordnet import WordNetError  # type: ignore[import-untyped]

    reason = "no WordNet on this machine"
    for place, read in _wordnets():
        try:
            wordnet = read()
        except (OSError, LookupError, ValueError, AssertionError, WordNetError):
            reason = f"the WordNet in {place} cannot be read"
            continue
        known = SimpleNamespace(synsets=lru_cache(_REMEMBERED)(wordnet.synsets))
        return known, f"exact, stem and WordNet {wordnet.get_version()} matches"
    return SimpleNamespace(synsets=lambda _word: ()), f"exact and stem matches ({reason})"


def _wordnets() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every WordNet on this machine: where it is, and how it is read."""
    import nltk.data  # type: ignore[import-untyped]

    def read_nltk_data() -> Any:
        from nltk.corpus import wordnet  # type: ignore[import-untyped]

        wordnet.ensure_loaded()
        return wordnet

    with suppress(LookupError):
        nltk.data.find("corpora/wordnet")
        yield "nltk's data", read_nltk_data
    if Path(DEBIAN_WORDNET, "data.noun").is_file():
        yield DEBIAN_WORDNET, lambda: _read_debian(DEBIAN_WORDNET)


@lru_cache(maxsize=1)
def _read_debian(folder: str) -> Any:
    """Debian's WordNet, without two files that nltk requires and METEOR does not need."""
    import nltk.data
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            """Files of the folder; for `lexnames`, the names of WordNet's sources, placeholders."""
            if file == "lexnames":
                return io.StringIO("".join(f"{number} unnamed 0\n" for number in range(_N_LEXICOGRAPHER_FILES)))
            # Opened here, because nltk opens only files within `nltk.data.path`.
            return nltk.data.SeekableUnicodeStreamReader(Path(folder, file).open("rb"), self.encoding(file))

        def map_wn(self, version: str = "wordnet") -> None:
            """No map to another version, which would need `index.sense`."""

    searched = list(nltk.data.path)
    nltk.data.path.append(folder)
    try:
        # Not None, because nltk would warn that other languages are missing.
        return Reader(folder, omw_reader=False)
    finally:
        nltk.data.path[:] = searched
