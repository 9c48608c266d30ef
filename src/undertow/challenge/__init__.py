"""WHAT is asked: templates, word groups, W values, challenge sets, sentences. Pure text and tables, no model."""

from undertow.challenge.catalog import load, names
from undertow.challenge.checklist_tables import CHECKLIST_SUMMARIES, checklist_table
from undertow.challenge.descriptions import TASKS, Wording, describe, wordings
from undertow.challenge.design import ChallengeSet, Words, challenge_digest
from undertow.challenge.document_sources import (
    DOCUMENT_SUMMARIES,
    documents_table,
    is_documents,
    load_documents,
    may_offend,
)
from undertow.challenge.documents import DIMENSIONS, Document, DocumentSet
from undertow.challenge.prompts import Answering, Prompt, are_pronouns, load_prompts, masked, watched
from undertow.challenge.scales import INDEX, NONE, VALUE, check_scale
from undertow.challenge.sentences import Injection, Sentence, SentenceSet
from undertow.challenge.sources import SUMMARIES, is_sentences, sentences
from undertow.challenge.spectra import (
    AS_LISTED,
    NO_W,
    Dates,
    Listed,
    Spectrum,
    check_scaled,
    check_spectra,
    spectrum,
    told_list,
)
from undertow.challenge.tables import single

__all__ = [
    "AS_LISTED",
    "CHECKLIST_SUMMARIES",
    "DIMENSIONS",
    "DOCUMENT_SUMMARIES",
    "INDEX",
    "NONE",
    "NO_W",
    "SUMMARIES",
    "TASKS",
    "VALUE",
    "Answering",
    "ChallengeSet",
    "Dates",
    "Document",
    "DocumentSet",
    "Injection",
    "Listed",
    "Prompt",
    "Sentence",
    "SentenceSet",
    "Spectrum",
    "Wording",
    "Words",
    "are_pronouns",
    "challenge_digest",
    "check_scale",
    "check_scaled",
    "check_spectra",
    "checklist_table",
    "describe",
    "documents_table",
    "is_documents",
    "is_sentences",
    "load",
    "load_documents",
    "load_prompts",
    "masked",
    "may_offend",
    "names",
    "sentences",
    "single",
    "spectrum",
    "told_list",
    "watched",
    "wordings",
]
