"""WHAT is asked: templates, word groups, W values, challenge sets. Pure text and tables, no model."""

from undertow.challenge.catalog import load, names
from undertow.challenge.design import ChallengeSet, Words, challenge_digest
from undertow.challenge.spectra import Dates, Spectrum, spectrum

__all__ = ["ChallengeSet", "Dates", "Spectrum", "Words", "challenge_digest", "load", "names", "spectrum"]
