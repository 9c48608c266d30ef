"""The effect of reduced precision: a float32 sample, the error of its results, and findings that could change.

See docs/decisions/021.
"""

from undertow.runs.dtype_check.rescore_sample import Float32Check, rescore_sample
from undertow.runs.dtype_check.stability import block_of, flag_unstable, precision_text, table_of, unknown_effects

__all__ = [
    "Float32Check",
    "block_of",
    "flag_unstable",
    "precision_text",
    "rescore_sample",
    "table_of",
    "unknown_effects",
]
