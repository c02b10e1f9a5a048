"""Computes the plot of a training's curves from the records of its log.

    panel 1   losses: of each iteration, their running mean, and of the tests
    panel 2   the other outputs of nets, such as accuracies; it has their names
    panel 3   the learning rate, if it changes

curves_image.py and the page (page/training.py) paint it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layermem.report.read_log import Curve, curves
from layermem.report.records import Record, Value

MAX_POINTS = 4000  # most points of a line; longer ones show every n-th point
WINDOWS = 50  # a running mean covers 1/50 of the points, if that is at least two
NAMED = 2  # most outputs that name their panel
LOG_RANGE = 300  # ratio of losses above which the axis is logarithmic
COLOURS = ("#3d85c6", "#cf5c36", "#4f9d5d", "#8e5ea2", "#d9a441", "#2a9d9d", "#c2185b", "#795548")


@dataclass(frozen=True)
class CurveLine:
    """One line of a panel; values that are not finite are gaps.  A `faint` line lies behind its running mean."""

    name: str
    xs: np.ndarray
    ys: np.ndarray
    colour: str
    marked: bool = False  # with a mark at each point
    faint: bool = False


@dataclass(frozen=True)
class Panel:
    label: str
    lines: tuple[CurveLine, ...]
    logarithmic: bool = False


@dataclass(frozen=True)
class CurvesPicture:
    """The panels of a plot; `resumed` are the iterations at which a run resumed from a snapshot."""

    title: str
    panels: tuple[Panel, ...]
    resumed: tuple[int, ...]


def curves_picture(records: Sequence[Record]) -> CurvesPicture:
    """The content of the plot; without any iteration and test, its panel of losses is empty."""
    starts = [record for record in records if record["event"] == "start"]
    every = curves(records)
    weights = _loss_weights(starts)
    parts = [curve for curve in every if curve.kind == "output" and _is_weighted(curve, weights)]
    objectives = {curve.net for curve in every if curve.kind == "loss"}
    single_parts = [
        curve
        for curve in parts
        # The output is the loss itself.
        if curve.net in objectives and sum(other.net == curve.net for other in parts) == 1
    ]
    losses = [curve for curve in every if curve.kind == "loss" or (curve in parts and curve not in single_parts)]
    others = [curve for curve in every if curve.kind == "output" and curve not in parts]
    rates = [curve for curve in every if curve.kind == "learning_rate" and len({*curve.values}) > 1]
    single = len({curve.net for curve in every if curve.net != "train"}) < 2
    panels = [_panel("loss", losses, single, smooth=True)]
    names = list(dict.fromkeys(curve.name for curve in others))
    label = " and ".join(names) if len(names) <= NAMED and "loss" not in names else "outputs"
    panels += [_panel(label, others, single)] if others else []
    panels += [_panel("learning rate", rates, single)] if rates else []
    resumed = tuple(
        record["iteration"]
        for record in starts
        if record.get("resumed_from") is not None and isinstance(record["iteration"], int)
    )
    return CurvesPicture(_title(starts, records), tuple(panels), resumed)


def _loss_weights(starts: Sequence[Record]) -> dict[str, Value]:
    weights = starts[-1].get("loss_weights") if starts else None
    return weights if isinstance(weights, dict) else {}


def _is_weighted(curve: Curve, weights: dict[str, Value]) -> bool:
    """Whether an output is a term of the loss of its net."""
    of_net = weights.get(curve.net)
    return isinstance(of_net, dict) and bool(of_net.get(curve.name.partition("[")[0]))


def _panel(label: str, shown: Sequence[Curve], single: bool, *, smooth: bool = False) -> Panel:
    lines: list[CurveLine] = []
    for number, curve in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        xs = np.array(curve.iterations, float)
        ys = np.array([np.nan if value is None else value for value in curve.values])
        net = "test" if single and curve.net != "train" else curve.net
        name = f"{net} {curve.name.replace('_', ' ') if curve.kind != 'output' else curve.name}"
        window = len(xs) // WINDOWS
        if smooth and curve.net == "train" and window >= 2:
            lines.append(_line(name, xs, ys, colour, faint=True))
            lines.append(_line(f"mean of {window}", xs[window - 1 :], running_mean(ys, window), colour))
        else:
            lines.append(_line(name, xs, ys, colour, marked=curve.net != "train"))
    values = np.concatenate([line.ys[np.isfinite(line.ys)] for line in lines]) if lines else np.zeros(0)
    wide = smooth and len(values) > 0 and values.min() > 0 and values.max() > LOG_RANGE * values.min()
    return Panel(label, tuple(lines), bool(wide))


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each window of `window` consecutive values."""
    means: np.ndarray = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)
    return means


def _line(
    name: str, xs: np.ndarray, ys: np.ndarray, colour: str, *, marked: bool = False, faint: bool = False
) -> CurveLine:
    step = max(1, -(-len(xs) // MAX_POINTS))
    chosen = sorted({*range(0, len(xs), step), len(xs) - 1} - {-1})
    return CurveLine(name, xs[chosen], ys[chosen], colour, marked, faint)


def _title(starts: Sequence[Record], records: Sequence[Record]) -> str:
    if not starts:
        return ""
    start, end = starts[-1], records[-1]
    title = f"{start.get('net')} on {start.get('device')}"
    if end["event"] == "end":
        title += f": {end.get('status')} at iteration {end.get('iteration')}"
    return title
