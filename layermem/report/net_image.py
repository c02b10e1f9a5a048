"""Paints the picture of a net with matplotlib, in any format that it writes: PNG, PDF, JPEG, ...

Frames of repeated stages are left out: only pictures with a plan have them, and these are SVG.
"""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from layermem.errors import ArgumentError
from layermem.report.net_layout import (
    GAP_OF_TEXTS,
    LINE,
    MARGIN,
    PADDING,
    RIGHT_SIZE,
    STRIPE,
    NetLayout,
    Placed,
    clip,
    text_width,
)
from layermem.report.net_svg import COLOURS, GREY, HUES, INK, SIZE, TITLE_SIZE
from layermem.utils.text import printable

DPI = 96
POINTS = 72 / DPI  # in a pixel of the layout
MAX_PIXELS = 2**15  # of a side


def painted(title: str, layout: NetLayout, form: str) -> bytes:
    """The picture as a file of the format `form`."""
    width, height = layout.width, layout.height + MARGIN
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI * min(1.0, MAX_PIXELS / max(width, height)))
    known = sorted(FigureCanvasAgg(figure).get_supported_filetypes())
    if form not in known:
        raise ArgumentError(f"no picture can be written as '{form}' (choose from {', '.join(known)})")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(layout.height, -MARGIN))
    axes.set_axis_off()
    axes.text(MARGIN, 0, printable(title), fontsize=TITLE_SIZE * POINTS, color=INK, parse_math=False)
    colours = [COLOURS[route.wire.decision][1] for route in layout.routes]
    axes.add_collection(LineCollection([route.points for route in layout.routes], colors=colours, linewidths=1.3))
    for placed in layout.boxes:
        _paint_box(axes, placed)
    handle = io.BytesIO()
    figure.savefig(handle, format=form)
    return handle.getvalue()


def _paint_box(axes: Axes, placed: Placed) -> None:
    box, x, y = placed.box, placed.x, placed.y
    body = Rectangle((x, y), placed.width, placed.height, facecolor=COLOURS[box.decision][0], edgecolor=INK, zorder=2)
    body.set(linewidth=0.6, linestyle="dashed" if box.in_place else "solid")
    axes.add_patch(body)
    left, right = x + STRIPE + 2 * PADDING, x + placed.width - PADDING
    for number, line in enumerate((*box.layers, *box.tops)):
        top = y + PADDING + LINE * number
        if line.family:
            axes.add_patch(Rectangle((x + PADDING, top + 2), STRIPE, LINE - 4, facecolor=HUES[line.family], zorder=3))
        name = clip(printable(line.left), right - left)
        rest = clip(printable(line.right), (right - left - text_width(name) - GAP_OF_TEXTS) / RIGHT_SIZE)
        for at, text, size, colour, side in ((left, name, 1.0, INK, "left"), (right, rest, RIGHT_SIZE, GREY, "right")):
            written = axes.text(at, top + LINE - 4.5, text, fontsize=SIZE * size * POINTS, color=colour, zorder=3)
            written.set(horizontalalignment=side, parse_math=False)
