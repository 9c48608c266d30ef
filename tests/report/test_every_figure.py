from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from helpers.checklist_results import aspects, gap, ranking, shares
from helpers.figure_checks import assert_readable
from helpers.figure_data import NAN, asked, checkpoints, cloud, compared, equal, fit, gridded, panels, point
from helpers.lab_results import calibration, failed, mirrored, power
from helpers.sampled_cases import briefly
from helpers.specification_rows import curve, followed, scored
from helpers.specification_rows import drawn as occupations_of
from helpers.trained_models import lab
from helpers.wording_rows import drawn as sensitivity
from helpers.wording_rows import effects, row, slots
from undertow.causal.describe import GraphShape
from undertow.report.figures.causal_graph import draw_graph
from undertow.report.figures.checkpoints import draw_trajectory
from undertow.report.figures.confusion_matrix import draw_confusion
from undertow.report.figures.covariate_curve import spectrum
from undertow.report.figures.forest_plot import ForestRow, draw_differences
from undertow.report.figures.model_grid import model_grid
from undertow.report.figures.model_sizes import slope_against_size
from undertow.report.figures.scatter import Panel, draw_simulation
from undertow.report.figures.specification import over_w, roc
from undertow.report.formatting import plain
from undertow.report.page_data import Drawing
from undertow.report.style import figure_width, image_bytes

NAMES = {
    "markup": '<b>"$x^2$"</b>&\n\x1b東\u0378',  # no font has the last sign, so that the SVG keeps the text
    "long": "a-name-without-an-end-" * 9,
    "empty": "",
}
Made = Drawing | Figure


def figure_of(made: Made) -> Figure:
    return made.figure if isinstance(made, Drawing) else made


def simulation(name: str = "W", scale: float = 1.0) -> Drawing:
    return draw_simulation("d", name, [name] * 2, [(f"{name} 0", panels(scale, (name, "G")))])


OF_A_NAME: dict[str, Callable[[str], Made]] = {
    "spectrum": lambda name: spectrum(
        asked([name, "b", "c"], [name]), [name], title=name, lines=[fit(name, np.arange(10.0, 13))], x_label=name[:60]
    ),
    "slope against size": lambda name: slope_against_size(
        [point(name, objective=name, post_training=name)], title=name, gap=name
    ),
    "grid of models": lambda name: model_grid({(name, name): asked(groups=[name])}, [name], {}, title=name),
    "trajectory": lambda name: draw_trajectory("d", checkpoints(groups=[name, "b"], measures=[name]), name),
    "occupations": lambda name: occupations_of(scored([name, "nurse"], [1.0, 2.0]), title=name),
    "sentences over W": lambda name: over_w(
        followed({"one": (f"The {name} said that ___ ran.", True)}, ["a", "b"]), "female", title=name[:60]
    ),
    "ROC": lambda name: roc([curve(name[:40], 0.7, 0.6, 0.8), curve("other", 0.6)], title=name[:60]),
    "power": lambda name: power(lab([0, 1], 1, [name])),
    "aspects": lambda name: aspects(shares(name, "m")),
    "ranking": lambda name: ranking([gap(name, 2.0, 0.01), gap("b", 1.0)], {name: 3.0, "b": 50.0}),
    "confusion": lambda name: draw_confusion([[1, 2], [3, 4]], [name, "b"], [name, "b"], name),
    "differences": lambda name: draw_differences(
        [ForestRow(name, 1.0, 0.5, 1.5, significant=True)], title=name, unit="%"
    ),
    "graph": lambda name: draw_graph(GraphShape(["X", "Y"], [("X", "Y")], meanings={"X": name}), name),
    "sensitivity": lambda name: sensitivity(
        pd.DataFrame([row(name, "a", 1.0, name, model=name), row("statement", "", 2.0)]), name
    )[0],
    "slots": lambda name: slots(effects(level=name + effects()["level"]))[0],
    "simulation": simulation,
}


@pytest.mark.parametrize("name", briefly(["markup", "long", "empty"]))
@pytest.mark.parametrize("kind", OF_A_NAME)
def test_figure_with_any_name_is_readable_and_shows_it_as_text(kind: str, name: str) -> None:
    made = OF_A_NAME[kind](NAMES[name])
    assert_readable(figure_of(made))
    if name == "markup":
        root = ET.fromstring(image_bytes(figure_of(made), "svg"))
        assert not [element for element in root.iter() if element.tag.endswith("}b")]
        assert plain(NAMES[name]) in "".join(root.itertext())


@pytest.mark.parametrize("name", briefly(["usual", "long"]))
@pytest.mark.parametrize("kind", OF_A_NAME)
def test_figure_is_readable_in_a_journal_s_column(kind: str, name: str) -> None:
    with figure_width(3.3):
        assert_readable(figure_of(OF_A_NAME[kind](NAMES.get(name, "gpt2"))))


ODD: dict[str, Callable[[], Made]] = {
    "a calibration that did not converge": lambda: calibration(failed(mirrored(lab([1, 2], 2)), "masked-2-0")),
    "a curve over thirty years": lambda: spectrum(
        pd.DataFrame({"w": [str(year) for year in range(1801, 2011, 7)], "w_index": range(30), "she": range(30)}),
        ["she"],
        title="t",
        lines=[fit("she", np.ones(30), 0.91, 1.0)],
    ),
    "twenty models alike": lambda: compared(equal(20, [135e6])),
    "a grid of many groups": lambda: gridded(
        {("gpt2", ""): asked(groups=[f"group of words {n}" for n in range(14)])},
        [f"group of words {n}" for n in range(14)],
        lines={("gpt2", ""): [fit("group of words 0", np.linspace(10, 14, 5))]},
    ),
    "a huge trajectory": lambda: draw_trajectory(
        "d", checkpoints(steps=[0, 10**9]).assign(value=3e12, low=-1e12, high=math.inf), "t"
    ),
    "eighteen differences": lambda: draw_differences(
        [ForestRow(f"{'a long name ' * 9}{at}", at - 5.0, at - 6.0, at - 3.0, significant=at > 6) for at in range(18)],
        title="A title " * 20,
        unit="percent",
        n_all=40,
    ),
    "a simulation of huge numbers": lambda: simulation(scale=1e40),
    "a simulation of what does not vary": lambda: draw_simulation(
        "d", "T", ["one"], [("row", [Panel("c", "d", cloud(9, NAN, 0.0), cloud(9, NAN, 0.0))])]
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_figure_of_odd_data_is_readable(what: str) -> None:
    made = ODD[what]()
    assert_readable(figure_of(made))
    assert "nan" not in (made.alt if isinstance(made, Drawing) else "")
