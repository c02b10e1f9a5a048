"""Paints the plots of timeline_picture.py with matplotlib, as PNG, SVG or PDF."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from layermem.report.timeline_picture import EDGED, INK, KIND_NAMES, ArenaPicture, MemoryPicture, scale_of
from layermem.utils.files import write_atomically
from layermem.utils.units import format_bytes

DPI = 140
LETTER = 0.0058, 0.018  # width and height of a letter as shares of the axes


def _paint_boxes(axes: Axes, picture: ArenaPicture, top: float, x_scale: float, y_scale: float) -> None:
    """Paint the residencies of an arena of `top` bytes, with names where they fit."""
    for kind, (_, colour) in KIND_NAMES.items():
        boxes = [b for b in picture.boxes if b.kind == kind]
        for edge in (0.0, 0.3):
            patches = [
                Rectangle((b.begin / x_scale, b.offset / y_scale), (b.end - b.begin) / x_scale, b.nbytes / y_scale)
                for b in boxes
                if (b.nbytes >= EDGED * top) == (edge > 0)
            ]
            axes.add_collection(PatchCollection(patches, facecolor=colour, edgecolor="white", linewidth=edge))
    for b in picture.boxes:
        if b.end - b.begin > LETTER[0] * len(b.name) * picture.seconds and b.nbytes > LETTER[1] * top:
            middle = (b.begin + b.end) / 2 / x_scale, (b.offset + b.nbytes / 2) / y_scale
            axes.text(
                *middle, b.name, ha="center", va="center", fontsize=7, color="white", clip_on=True, parse_math=False
            )


def paint_arena(picture: ArenaPicture, path: str) -> None:
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    axes = figure.add_subplot()
    top = max(picture.peak_bytes, picture.budget_bytes or 0)
    x_scale, x_unit = scale_of(picture.seconds, seconds=True)
    y_scale, y_unit = scale_of(top, seconds=False)
    width, height = picture.seconds / x_scale, top / y_scale
    _paint_boxes(axes, picture, top, x_scale, y_scale)
    if picture.turn is not None:
        axes.axvline(picture.turn / x_scale, color=INK, linewidth=0.8, linestyle=":")
        axes.text(picture.turn / x_scale, height * 1.015, " backward begins", fontsize=8, color=INK)
    lines = [_level(axes, picture.peak_bytes / y_scale, f"peak {format_bytes(picture.peak_bytes)}", "solid")]
    if picture.budget_bytes is not None:
        lines.append(
            _level(axes, picture.budget_bytes / y_scale, f"budget {format_bytes(picture.budget_bytes)}", "dashed")
        )
    axes.set_xlim(0, width)
    axes.set_ylim(0, height * 1.06)
    axes.set_xlabel(f"predicted time [{x_unit}]")
    axes.set_ylabel(f"address in the arena [{y_unit}]")
    axes.set_title(picture.title, loc="left", fontsize=11, parse_math=False)
    present = {b.kind for b in picture.boxes}
    shown = [Patch(color=colour, label=name) for kind, (name, colour) in KIND_NAMES.items() if kind in present]
    axes.legend(
        handles=[*lines, *reversed(shown)], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9
    )
    _finish(figure, path)


def paint_memory(picture: MemoryPicture, path: str) -> None:
    figure = Figure(figsize=(14, 6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    x_scale, x_unit = scale_of(max(c.xs[-1] for c in picture.memory), seconds=True)
    y_scale, y_unit = scale_of(max(max(c.ys) for c in picture.memory), seconds=False)
    for curve in picture.memory:
        xs, ys = [x / x_scale for x in curve.xs], [y / y_scale for y in curve.ys]
        left.step(xs, ys, where="post", color=curve.colour, linewidth=1.2, label=curve.name)
    if picture.budget_bytes is not None:
        _level(left, picture.budget_bytes / y_scale, f"budget  {format_bytes(picture.budget_bytes)}", "dashed")
    left.set_xlim(left=0)
    left.set_ylim(bottom=0)
    left.set_xlabel(f"predicted time [{x_unit}]")
    left.set_ylabel(f"live bytes [{y_unit}]")
    left.set_title(picture.title, loc="left", fontsize=11, parse_math=False)
    left.legend(frameon=False, fontsize=8.5, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.1))
    _paint_trade(right, picture, y_scale, y_unit)
    _finish(figure, path)


def _paint_trade(axes: Axes, picture: MemoryPicture, scale: float, unit: str) -> None:
    """Paint overhead over budget as steps, because a plan that fits a budget fits any larger one."""
    for curve in picture.trade:
        xs, ys = [x / scale for x in curve.xs], [100 * y for y in curve.ys]
        axes.step(xs, ys, where="post", marker="o", markersize=3.5, linewidth=1.2, color=curve.colour, label=curve.name)
    xs, ys = [x / scale for x in picture.bound.xs], [100 * y for y in picture.bound.ys]
    axes.plot(xs, ys, color=INK, linewidth=1, linestyle=":", label=picture.bound.name)
    if picture.budget_bytes is not None:
        axes.axvline(picture.budget_bytes / scale, color=INK, linewidth=0.9, linestyle="dashed", label="budget")
    axes.set_xlim(left=0)
    axes.set_xlabel(f"memory [{unit}]")
    axes.set_ylabel("predicted time above the baseline [%]")
    axes.set_title("time over memory", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8.5)
    axes.grid(alpha=0.25)


def _level(axes: Axes, y: float, text: str, style: str) -> Line2D:
    return axes.axhline(y, color=INK, linewidth=0.9, linestyle=style, label=text)


def _finish(figure: Figure, path: str) -> None:
    for each in figure.axes:
        each.spines[["top", "right"]].set_visible(False)
    FigureCanvasAgg(figure)
    file, form = io.BytesIO(), Path(path).suffix[1:].lower()
    metadata = {"Software": "layermem"} if form == "png" else {"Creator": "layermem"}
    figure.savefig(file, format=form, dpi=DPI, metadata=metadata)
    write_atomically(path, file.getvalue())
