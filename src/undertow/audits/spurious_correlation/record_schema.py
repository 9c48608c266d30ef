"""What a run of the spurious correlation audit holds."""

from undertow.audits.record_schema import RecordSchema
from undertow.audits.shared.sentence_schema import REQUIRED, SENTENCE_COLUMNS, WordDesign

SCHEMA = RecordSchema(WordDesign, SENTENCE_COLUMNS, (*REQUIRED, "w_value", "other_words"))
