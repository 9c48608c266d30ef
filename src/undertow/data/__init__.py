"""Data sets: templates, word groups, covariates, challenge sets, sentences, documents.

An invalid name, option or file raises `UndertowError`, which names the line or key of a file.
"""

from undertow.data.challenges.challenge_file import load, load_text, names, pack_text, word_list
from undertow.data.challenges.challenge_set import ChallengeSet, Words, challenge_digest
from undertow.data.challenges.sentence_sources import SUMMARIES, is_sentences, load_sentences, single
from undertow.data.documents.document_set import DIMENSIONS, Document, DocumentSet
from undertow.data.documents.document_sources import (
    DOCUMENT_SUMMARIES,
    documents_table,
    is_documents,
    load_documents,
    may_offend,
)
from undertow.data.documents.task_wordings import TASKS, Wording, describe, wordings
from undertow.data.occupations.question_templates import CHECKLIST_SUMMARIES, checklist_table
from undertow.data.prompts import AnswerMode, Prompt, answer_words, are_pronouns, load_prompts, mask_blank
from undertow.data.sentences.sentence_set import Injection, Sentence, SentenceSet
from undertow.data.templates.covariates import (
    AS_LISTED,
    INDEX,
    NO_W,
    NONE,
    VALUE,
    Covariate,
    CovariateList,
    Dates,
    check_covariates,
    check_scale,
    check_scaled,
    crossed,
    list_text,
    load_covariate,
)

__all__ = [
    "AS_LISTED", "CHECKLIST_SUMMARIES", "DIMENSIONS", "DOCUMENT_SUMMARIES", "INDEX", "NONE", "NO_W", "SUMMARIES", "TASKS", "VALUE",
    "AnswerMode", "ChallengeSet", "Covariate", "CovariateList", "Dates", "Document", "DocumentSet", "Injection", "Prompt", "Sentence",
    "SentenceSet", "Wording", "Words", "answer_words", "are_pronouns", "challenge_digest", "check_covariates", "check_scale",
    "check_scaled", "checklist_table", "crossed", "describe", "documents_table", "is_documents", "is_sentences", "list_text", "load",
    "load_covariate", "load_documents", "load_prompts", "load_sentences", "load_text", "mask_blank", "may_offend", "names", "pack_text",
    "single", "word_list", "wordings",
]  # fmt: skip
