"""Paints the curves of curves_picture.py with matplotlib, as PNG, SVG or PDF."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from layermem.report.curves_picture import CurvesPicture, Panel
from layermem.utils.files import write_atomically

DPI = 140
INK = "#333333"


def paint_curves(picture: CurvesPicture, path: str) -> None:
    figure = Figure(figsize=(9, 0.7 + 3 * len(picture.panels)), layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(len(picture.panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, picture.panels):
        _paint_panel(axes, panel)
        for iteration in picture.resumed:
            axes.axvline(iteration, color=INK, linewidth=0.8, linestyle=":")
    every[-1].set_xlabel("iteration" + (" (dotted: resumed)" if picture.resumed else ""))
    every[0].set_title(picture.title, loc="left", fontsize=11, parse_math=False)
    file, form = io.BytesIO(), Path(path).suffix[1:].lower()
    metadata = {"Software": "layermem"} if form == "png" else {"Creator": "layermem"}
    figure.savefig(file, format=form, dpi=DPI, metadata=metadata)
    write_atomically(path, file.getvalue())


def _paint_panel(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        axes.plot(
            line.xs,
            line.ys,
            color=line.colour,
            label=line.name,
            linewidth=0.7 if line.faint else 1.5,
            alpha=0.45 if line.faint else 1.0,
            marker="o" if line.marked else None,
            markersize=3.5,
        )
    if panel.logarithmic:
        axes.set_yscale("log")
    axes.set_ylabel(panel.label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.lines:
        legend = axes.legend(frameon=False, fontsize=8.5)
        for text in legend.get_texts():
            text.set_parse_math(False)
