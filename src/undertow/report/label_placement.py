"""Placement of labels beside points: the cheapest position that overlaps no other label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.patheffects import withStroke

from undertow.report.figures.covariate_curve import DPI
from undertow.report.layout import SMALL_SIZE, Sheet
from undertow.types import Floats

if TYPE_CHECKING:
    pass


_NAME_LINE_PX = 16.0
_ON_MARKER, _BY_MARKER, _ON_LINE = 60.0, 15.0, 14.0
_LED, _LED_ON_NAME, _LED_ON_LINE = 8.0, 90.0, 4.0
"""What it costs, in pixels of distance, that a name lies over a marker, beside another's, or over a line; that a
leader is needed, runs over a name, or along a line."""
_NEAR_PX, _LED_FROM_PX = 11.0, 6.0
"""How near another's marker a name seems to be its name, and how far from its own it needs a leader."""


class Spot(NamedTuple):
    """A model's place on the sheet, in pixels."""

    x: float
    y: float
    radius: float
    bar: tuple[float, float]  # lower and upper end
    room: tuple[float, float, float, float]  # left, lower, right and upper edge of where its name may stand
    name: str
    width: float  # of the name


def draw_names(sheet: Sheet, spots: Sequence[Spot], zero: float) -> None:
    """Write each name where it touches no other, with a line back to its point where it had to move."""
    halo = [withStroke(linewidth=2, foreground="white", alpha=0.8)]
    for spot, box in zip(spots, _name_boxes(spots, zero), strict=True):
        x, y = box[0] + 1, (box[1] + box[3]) / 2
        sheet.write(x, y, spot.name, size=SMALL_SIZE, va="center", zorder=6, path_effects=halo)
        end = _nearest(box[None], spot)[0]
        way = end - (spot.x, spot.y)
        if math.hypot(*way) > spot.radius + _LED_FROM_PX:
            start = end - way * (1 - spot.radius / math.hypot(*way))
            ends = np.array([start, end]) / (sheet.figure.get_size_inches() * DPI)
            look: dict[str, Any] = {"color": "#9a9a9a", "linewidth": 0.7, "transform": sheet.figure.transFigure}
            sheet.figure.axes[-1].plot(*ends.T, clip_on=False, zorder=2, **look)


def _name_boxes(spots: Sequence[Spot], zero: float) -> Floats:
    """Left, lower, right and upper edge of each name, given the height of the line at 0 [spot, edge]."""
    markers = np.array([(s.x - s.radius, s.y - s.radius, s.x + s.radius, s.y + s.radius) for s in spots])
    around = markers + np.array([-1, -1, 1, 1]) * _NEAR_PX
    at_zero = [(-np.inf, zero - 1, np.inf, zero + 1)] * 2  # counts twice: it runs through a whole name
    lines = np.array([*((s.x - 1, min(s.bar), s.x + 1, max(s.bar)) for s in spots), *at_zero])
    boxes, taken = np.zeros((len(spots), 4)), np.empty((0, 4))
    for place in sorted(range(len(spots)), key=lambda place: -spots[place].y):
        spot = spots[place]
        options, cost = _options(spot)
        ends = _nearest(options, spot)
        steps = _leader_steps(ends, spot)
        cost += np.hypot(*(ends - (spot.x, spot.y)).T)
        cost += _ON_MARKER * _touched(options, markers) + _ON_LINE * np.minimum(_touched(options, lines), 4)
        cost += _BY_MARKER * _touched(options, np.delete(around, place, axis=0))
        cost += sum(_LED_ON_NAME * _touched(step, taken) + _LED_ON_LINE * _touched(step, lines) for step in steps)
        cost[_touched(options, taken) > 0] = np.inf
        best = int(np.argmin(cost))
        boxes[place] = options[best]
        taken = np.vstack([taken, boxes[place]])
        lines = np.vstack([lines, *(step[best] for step in steps)])
    return boxes


def _options(spot: Spot) -> tuple[Floats, Floats]:
    """Boxes for a name within its room: beside its point, then everywhere; and what each costs on top [option]."""
    width, height, away = spot.width, _NAME_LINE_PX, spot.radius + 3
    beside = [
        (spot.x + away, spot.y - height / 2),
        (spot.x - away - width, spot.y - height / 2),
        (spot.x - width / 2, spot.y + away - 3),
        (spot.x - width / 2, spot.y - away - height + 3),
    ]
    left, lower, right, upper = spot.room
    across = np.arange(left, max(right - width, left) + 0.1, 12.0)
    up = np.arange(lower, upper - height, 8.0)
    anywhere = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    corners = np.vstack([beside, anywhere])
    boxes = np.hstack([corners, corners + np.array([width, height])])
    extra = np.concatenate([[0.0, 1.0, 2.0, 2.0], np.full(len(anywhere), _LED)])
    inside = (boxes[:, :2] >= (left, lower)).all(axis=1) & (boxes[:, 2:] <= (max(right, left + width), upper)).all(
        axis=1
    )
    return boxes[inside], extra[inside]


def _nearest(boxes: Floats, spot: Spot) -> Floats:
    """The point of each box that is nearest to the spot [box, axis]."""
    return np.clip((spot.x, spot.y), boxes[:, :2], boxes[:, 2:])


def _touched(boxes: Floats, others: Floats) -> Floats:
    """How many of the others each box touches [box]."""
    left, lower, right, upper = boxes.T[:, :, None]
    touching = (left < others[:, 2]) & (right > others[:, 0]) & (lower < others[:, 3]) & (upper > others[:, 1])
    return np.asarray(np.count_nonzero(touching, axis=1), dtype=np.float64)


def _leader_steps(ends: Floats, spot: Spot) -> list[Floats]:
    """Small boxes along the way from the spot to each end: [box, edge] for every step."""
    start = np.array([spot.x, spot.y])
    steps = [start + (ends - start) * share for share in np.linspace(0.15, 0.95, 6)]
    return [np.hstack([step - 1, step + 1]) for step in steps]
