"""A table of trained models as a lab hands it in: what was planted is known, and so is every error that was added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

STEEPNESS = {"date": 1.2, "place": 0.8}
"""Planted slope for each unit of strength."""


def model_rows(name: str, architecture: str, strength: float, **changed: Any) -> list[dict[str, Any]]:
    """The two rows of a model that is read exactly, each with an audit's interval of ±0.1; biases are found, others are not."""
    rows = []
    for w_name, steepness in STEEPNESS.items():
        slope = steepness * strength
        row: dict[str, Any] = {"model": name, "architecture": architecture, "w_name": w_name, "strength": strength}
        row |= {"training_seed": 0, "selected": strength != 0, "found": slope != 0, "converged": True}
        row |= {"p": 0.001 if slope else 0.5, "q": 0.002 if slope else 0.6}
        row |= {"pronoun_loss_nats": 0.501, "floor_nats": 0.5, "ignorant_nats": 0.5 + 0.1 * abs(strength)}
        row |= {"auroc_delta": 0.5 + 0.2 * abs(strength), "auroc_entropy": 0.6}
        row |= dict.fromkeys(("planted_slope", "population_slope", "measured_slope", "learned_slope"), slope) | changed
        for area in ("auroc_delta", "auroc_entropy"):
            row |= {f"{area}_low": row[area] - 0.05, f"{area}_high": row[area] + 0.05}
        rows.append({"low": row["measured_slope"] - 0.1, "high": row["measured_slope"] + 0.1} | row)
    return rows


def lab(
    strengths: Sequence[float] = (0, 0.5, 1, 2),
    n_seeds: int = 3,
    architectures: Sequence[str] = ("masked", "causal"),
    noise: float = 0.03,
) -> pd.DataFrame:
    """Models of every architecture, strength and seed, whose readings err by the training seed alone.

    Three seeds err by -noise, 0 and noise, so that their line is exactly that of what was planted.
    """
    rows: list[dict[str, Any]] = []
    for architecture in architectures:
        for at, strength in enumerate(strengths):
            for seed in range(n_seeds):
                name = f"{architecture}-{strength:g}-{seed}"
                for place, row in enumerate(model_rows(name, architecture, strength, training_seed=seed)):
                    error = noise * ((at + seed + place) % 3 - 1)
                    rows.append(row | {end: row[end] + error for end in ("measured_slope", "low", "high")})
    return pd.DataFrame(rows)


def drift_lab(strengths: Sequence[float] = (-0.65, 0, 0.35, 0.65), n_seeds: int = 3) -> pd.DataFrame:
    """Models whose dates are biased, either way, and whose places never are."""
    return along_dates(lab(strengths, n_seeds))


def along_dates(frame: pd.DataFrame) -> pd.DataFrame:
    """The same models with nothing planted along places, where they err as before and nothing is found."""
    places = frame["w_name"] == "place"
    errors = {end: frame[end] - frame["planted_slope"] for end in ("measured_slope", "low", "high")}
    none = dict.fromkeys(("strength", "planted_slope", "learned_slope", "population_slope"), 0.0)
    none |= {"p": 0.5, "q": 0.6, "found": False}
    return frame.assign(**{name: frame[name].mask(places, value) for name, value in (errors | none).items()})
