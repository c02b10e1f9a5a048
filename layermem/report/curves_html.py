"""Paints the curves of curves_picture.py with plotly, as a self-contained page."""

from __future__ import annotations

from html import escape  # plotly reads some tags in texts: names are none

import numpy as np
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from layermem.report.curves_picture import CurvesPicture, Line
from layermem.utils.files import write_atomically

INK = "#333333"


def paint_curves(picture: CurvesPicture, path: str) -> None:
    page = curves_figure(picture).to_html(include_plotlyjs=True, full_html=True, default_height="96vh")
    write_atomically(path, page.encode())


def curves_figure(picture: CurvesPicture) -> Figure:
    figure = make_subplots(len(picture.panels), 1, shared_xaxes=True, vertical_spacing=0.06)
    for row, panel in enumerate(picture.panels, start=1):
        for line in panel.lines:
            figure.add_trace(_scatter(line), row, 1)
        figure.update_yaxes(title=panel.label, type="log" if panel.logarithmic else "linear", row=row, col=1)
    for iteration in picture.resumed:
        figure.add_vline(iteration, line={"dash": "dot", "width": 1, "color": INK})
    note = " (dotted: resumed)" if picture.resumed else ""
    figure.update_xaxes(title=f"iteration{note}", row=len(picture.panels), col=1)
    figure.update_layout(title=escape(picture.title, quote=False), template="simple_white", showlegend=True)
    return figure


def _scatter(line: Line) -> Scatter:
    return Scatter(
        x=line.xs.tolist(), y=[float(y) if np.isfinite(y) else None for y in line.ys],
        name=escape(line.name, quote=False), mode="lines+markers" if line.marked else "lines",
        line={"color": line.colour, "width": 1 if line.faint else 2}, opacity=0.5 if line.faint else 1.0,
    )  # fmt: skip
