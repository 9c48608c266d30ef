"""WHAT is asked: templates, word groups, W values, challenge sets, sentences. Pure text and tables, no model."""

from undertow.challenge.catalog import load, names
from undertow.challenge.design import ChallengeSet, Words, challenge_digest
from undertow.challenge.prompts import Answering, Prompt, are_pronouns, load_prompts, masked, watched
from undertow.challenge.sentences import Injection, Sentence, SentenceSet
from undertow.challenge.sources import SUMMARIES, is_sentences, sentences
from undertow.challenge.spectra import NO_W, Dates, Spectrum, check_spectra, spectrum
from undertow.challenge.tables import single

__all__ = [
    "NO_W",
    "SUMMARIES",
    "Answering",
    "ChallengeSet",
    "Dates",
    "Injection",
    "Prompt",
    "Sentence",
    "SentenceSet",
    "Spectrum",
    "Words",
    "are_pronouns",
    "challenge_digest",
    "check_spectra",
    "is_sentences",
    "load",
    "load_prompts",
    "masked",
    "names",
    "sentences",
    "single",
    "spectrum",
    "watched",
]
