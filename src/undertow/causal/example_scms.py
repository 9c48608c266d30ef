"""The papers' structural causal models, as example files of equations.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), equations 1 to 5: people are selected on W + G. McMilin,
"Selection Induced Collider Bias" (ICLR submission), equations 5 to 9: on W + G or on W - G, and beta on the arrow from W to X.
"""

from __future__ import annotations

from importlib import resources

from undertow.causal.scm import StructuralCausalModel

SUM, DIFFERENCE = "selected-on-sum", "selected-on-difference"
NAMES = (SUM, DIFFERENCE)


def text(name: str) -> str:
    """The equations of one of `NAMES`."""
    return resources.files("undertow.causal").joinpath("resources", f"{name}.scm").read_text(encoding="utf-8")


def load(name: str) -> StructuralCausalModel:
    """The model of one of `NAMES`."""
    return StructuralCausalModel.from_text(text(name), name)
