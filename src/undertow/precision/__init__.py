"""What reduced precision costs a run: a sample read again in float32, the error of its results, and findings that could change.

docs/decisions/021 says how and why. Knows probes, and models by finding them; how a model is asked it is told.
"""

from undertow.precision.again import Again, Reduced, read_again
from undertow.precision.judged import block_of, judged, table_of, unknown_of
from undertow.precision.told import precision_told

__all__ = ["Again", "Reduced", "block_of", "judged", "precision_told", "read_again", "table_of", "unknown_of"]
