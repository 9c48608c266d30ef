"""The simulations of `make validity` run on the package of today."""

import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))
detection = pytest.importorskip("tools.validity.detection", reason="source archives have no tools")


def test_simulated_audits_give_an_interval_of_every_number_without_a_fit() -> None:
    cell = detection.cell(detection.NOISES["clusters"], detection.MIN_CLUSTERS, detection.EFFECT, n_audits=2)
    given = {key for key, outside in cell.outside.items() if math.isfinite(outside)}
    assert given == {key for key in detection.NAMES if "combined" not in key}
