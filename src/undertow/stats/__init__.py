"""Arrays in, arrays out: lines, trends, intervals over clusters, permutation tests, multiplicity and power.

This room knows nothing about models, items or tables, and imports nothing else of the package. Wrong shapes
raise `ValueError`; a number that the data cannot give is NaN, and never a warning.
"""

from undertow.stats.bootstrap import FEWEST_CLUSTERS, percentile_interval
from undertow.stats.line import Line, fit_line, fit_rows
from undertow.stats.multiplicity import benjamini_hochberg
from undertow.stats.permutation import LabelOrders, label_orders
from undertow.stats.points import only_points, point_estimates

__all__ = [
    "FEWEST_CLUSTERS",
    "LabelOrders",
    "Line",
    "benjamini_hochberg",
    "fit_line",
    "fit_rows",
    "label_orders",
    "only_points",
    "percentile_interval",
    "point_estimates",
]
