"""What a run of the task specification audit holds."""

from undertow.audits.record_schema import RecordSchema, columns
from undertow.audits.shared.sentence_schema import REQUIRED, SENTENCE_COLUMNS, WordDesign

OWN_COLUMNS = columns("sentence", empty="expected", numbers="coreferent percent_female", truth="well_specified")
SCHEMA = RecordSchema(WordDesign, SENTENCE_COLUMNS | OWN_COLUMNS, (*REQUIRED, "part", "sentence"), shares_only=True)
