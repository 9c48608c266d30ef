"""Arrays in, arrays out: lines, trends, intervals over clusters, permutation tests, multiplicity and power.

A number that the data do not determine is NaN, without a warning.
"""

from undertow.stats.context import only_points, point_estimates
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, percentile_interval
from undertow.stats.regression.least_squares import Line, fit_line, fit_rows
from undertow.stats.significance.false_discovery import benjamini_hochberg

__all__ = [
    "MIN_CLUSTERS",
    "Line",
    "benjamini_hochberg",
    "fit_line",
    "fit_rows",
    "only_points",
    "percentile_interval",
    "point_estimates",
]
