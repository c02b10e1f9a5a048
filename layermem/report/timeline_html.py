"""Paints the plots of timeline.py with plotly, as self-contained pages."""

from __future__ import annotations

from html import escape  # plotly reads some tags in texts: names are none

from plotly.graph_objects import Bar, Figure, Scatter
from plotly.subplots import make_subplots

from layermem.report.timeline import EDGED, INK, KIND_NAMES, ArenaPicture, Curve, MemoryPicture, scale_of
from layermem.utils.files import write_atomically
from layermem.utils.units import format_bytes


def paint_arena(picture: ArenaPicture, path: str) -> None:
    _write(arena_figure(picture), path)


def arena_figure(picture: ArenaPicture) -> Figure:
    figure = Figure()
    top = max(picture.peak_bytes, picture.budget_bytes or 0)
    x_scale, x_unit = scale_of(picture.seconds, seconds=True)
    y_scale, y_unit = scale_of(top, seconds=False)
    for kind, (name, colour) in KIND_NAMES.items():
        boxes = [b for b in picture.boxes if b.kind == kind]
        edges = [0.4 * (b.nbytes >= EDGED * top) for b in boxes]
        if boxes:
            figure.add_trace(
                Bar(
                    x=[(b.begin + b.end) / 2 / x_scale for b in boxes],
                    width=[(b.end - b.begin) / x_scale for b in boxes],
                    base=[b.offset / y_scale for b in boxes],
                    y=[b.nbytes / y_scale for b in boxes],
                    hovertext=[escape(b.description, quote=False) for b in boxes],
                    hoverinfo="text",
                    name=name,
                    marker={"color": colour, "line": {"color": "white", "width": edges}},
                )
            )
    if picture.turn is not None:
        figure.add_vline(picture.turn / x_scale, line={"dash": "dot", "width": 1, "color": INK},
                         annotation_text="backward begins", annotation_position="top right")  # fmt: skip
    _line(figure, picture.peak_bytes / y_scale, f"peak {format_bytes(picture.peak_bytes)}", "solid", "bottom right")
    if picture.budget_bytes is not None:
        _line(
            figure, picture.budget_bytes / y_scale, f"budget {format_bytes(picture.budget_bytes)}", "dash", "top right"
        )
    figure.update_layout(title=escape(picture.title, quote=False), barmode="overlay", template="simple_white")
    figure.update_xaxes(title=f"predicted time [{x_unit}]", range=[0, picture.seconds / x_scale])
    figure.update_yaxes(title=f"address in the arena [{y_unit}]", range=[0, 1.06 * top / y_scale])
    return figure


def paint_memory(picture: MemoryPicture, path: str) -> None:
    figure = make_subplots(1, 2, column_widths=[0.6, 0.4], subplot_titles=["", "time over memory"])
    x_scale, x_unit = scale_of(max(c.xs[-1] for c in picture.memory), seconds=True)
    y_scale, y_unit = scale_of(max(max(c.ys) for c in picture.memory), seconds=False)
    for curve in picture.memory:
        figure.add_trace(_memory(curve, x_scale, y_scale), 1, 1)
    for curve in picture.trade:
        figure.add_trace(_trade(curve, y_scale), 1, 2)
    figure.add_trace(_bound(picture.bound, y_scale), 1, 2)
    if picture.budget_bytes is not None:
        dashed = {"dash": "dash", "width": 1, "color": INK}
        text = f"budget {format_bytes(picture.budget_bytes)}"
        figure.add_hline(picture.budget_bytes / y_scale, line=dashed, annotation_text=text, row=1, col=1)
        figure.add_vline(picture.budget_bytes / y_scale, line=dashed, annotation_text=text, row=1, col=2)
    title = escape(picture.title, quote=False)
    figure.update_layout(title=title, template="simple_white", legend_title="strategy, peak")
    figure.update_xaxes(title=f"predicted time [{x_unit}]", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title=f"live bytes [{y_unit}]", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(title=f"memory [{y_unit}]", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(title="predicted time above the baseline [%]", row=1, col=2)
    _write(figure, path)


def _memory(curve: Curve, x_scale: float, y_scale: float) -> Scatter:
    line = {"shape": "hv", "color": curve.colour, "width": 1.5}
    return Scatter(x=_scaled(curve.xs, x_scale), y=_scaled(curve.ys, y_scale), name=curve.name, mode="lines", line=line)


def _trade(curve: Curve, scale: float) -> Scatter:
    return Scatter(
        x=_scaled(curve.xs, scale), y=[100 * y for y in curve.ys], name=curve.name, mode="lines+markers",
        line={"color": curve.colour, "width": 1.5, "shape": "hv"}, showlegend=False,
    )  # fmt: skip


def _bound(curve: Curve, scale: float) -> Scatter:
    line = {"color": curve.colour, "width": 1, "dash": "dot"}
    return Scatter(x=_scaled(curve.xs, scale), y=[100 * y for y in curve.ys], name=curve.name, mode="lines", line=line)


def _scaled(values: tuple[float, ...], scale: float) -> list[float]:
    return [value / scale for value in values]


def _line(figure: Figure, y: float, text: str, dash: str, place: str) -> None:
    style = {"dash": dash, "width": 1, "color": INK}
    figure.add_hline(y, line=style, annotation_text=text, annotation_position=place)


def _write(figure: Figure, path: str) -> None:
    write_atomically(path, figure.to_html(include_plotlyjs=True, full_html=True, default_height="96vh").encode())
