"""Writes a picture of a net as SVG: tooltips are `title` elements, and every name is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from layermem.report.decisions import FREED, FUSED, KEPT, OFFLOADED, RECOMPUTED
from layermem.report.net_layout import (
    GAP_OF_TEXTS,
    LINE,
    MARGIN,
    PADDING,
    RIGHT_SIZE,
    STRIPE,
    NetLayout,
    Placed,
    Point,
    Route,
    clip,
    text_width,
)
from layermem.report.net_picture import NetPicture
from layermem.utils.text import count_text, printable
from layermem.utils.units import format_bytes

INK, GREY, PAPER = "#1f2630", "#5b6572", "#ffffff"
COLOURS = {  # fill of boxes and colour of wires, distinct in greyscale too; wires also differ by dashes
    KEPT: ("#bcd9f5", "#1f66b0", ""),
    RECOMPUTED: ("#ffd98a", "#b36a00", "7 4"),
    OFFLOADED: ("#dfc6f2", "#7a35ad", "2 3"),
    FREED: ("#f1f2f4", "#8b95a1", ""),
}
MEANINGS = {
    KEPT: "stays in the arena for the backward pass",
    RECOMPUTED: "freed, and computed again before it is read",
    OFFLOADED: "copied to host memory, and back",
    FREED: "not read after the forward pass",
}
HUES = {  # hues of families; the first three as in Caffe's draw_net.py
    "convolution": "#ff5050",
    "pooling": "#ff9900",
    "inner product": "#cc33ff",
    "normalization": "#2aa198",
    "other": "#6495ed",
    "input": "#4f9d5d",
    "loss": "#1f2630",
}
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SIZE, TITLE_SIZE = 12.5, 17
LEGEND_LINE, LEGEND_INDENT = 19, 70
WIDER_FONT = 1.1  # DejaVu Sans, where the first fonts are missing, in widths of text_width()
STYLE = f"""
text {{ font: {SIZE}px {FONT}; fill: {INK}; }}
.right {{ font-size: {SIZE * RIGHT_SIZE:g}px; fill: {GREY}; text-anchor: end; }}
.top {{ font-size: {SIZE * RIGHT_SIZE:g}px; }}
.box {{ stroke: {INK}; stroke-width: 0.8; }}
.in-place {{ stroke-dasharray: 5 3; stroke-width: 1.6; }}
.reference {{ stroke: {GREY}; stroke-width: 0.6; }}
.wire {{ fill: none; stroke-width: 1.7; }}
.frame {{ fill: none; stroke: {GREY}; stroke-width: 1.2; stroke-dasharray: 10 4; }}
"""


def _add_wire(net: Element, route: Route, *, down: bool) -> None:
    _, colour, dashes = COLOURS[route.wire.decision]
    curve, end = _curve(route.points, down), f"url(#{route.wire.decision})"
    path = SubElement(net, "path", {"class": "wire", "d": curve, "stroke": colour, "marker-end": end})
    if dashes:
        path.set("stroke-dasharray", dashes)
    _add(path, "title", route.wire.tooltip)


def svg_text(picture: NetPicture, layout: NetLayout) -> str:
    """The picture as the text of an SVG file."""
    legend = _legend_lines(picture)
    head = MARGIN + TITLE_SIZE + LEGEND_LINE * (len(legend) + 1.5)
    marked = max((LEGEND_INDENT + text_width(text) for _, text in legend), default=0.0)
    titles = max(
        1.4 * text_width(picture.title),
        text_width(picture.subtitle),
        marked,
        sum(map(_family_width, _families(picture))),
    )
    width, height = max(layout.width, WIDER_FONT * titles + 2 * MARGIN), layout.height + head
    root = Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        width=_number(width),
        height=_number(height),
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="img",
    )
    _add(root, "title", f"{picture.title}: {picture.subtitle}")
    _add(root, "style", STYLE, escape=False)
    _add_markers(SubElement(root, "defs"))
    SubElement(root, "rect", width="100%", height="100%", fill=PAPER)
    _add_head(root, picture, legend)
    net = SubElement(root, "g", transform=f"translate({_number(max(0.0, (width - layout.width) / 2))} {_number(head)})")
    for frame in layout.frames:
        _add_frame(net, frame.x, frame.y, frame.width, frame.height, frame.text, frame.tooltip)
    for route in layout.routes:
        _add_wire(net, route, down=layout.down)
    for placed in layout.boxes:
        _add_box(net, placed)
    indent(root, " ")
    return tostring(root, encoding="unicode") + "\n"


# -- the net -------------------------------------------------------------------------------------------------------


def _add_box(parent: Element, placed: Placed) -> None:
    box = placed.box
    group = SubElement(parent, "g", transform=f"translate({_number(placed.x)} {_number(placed.y)})")
    _add(group, "title", box.tooltip)
    classes = "box" + " in-place" * box.in_place + " reference" * box.reference
    rounding = _number(min(placed.height / 2, 16.0) if box.ends else 3)
    SubElement(
        group,
        "rect",
        {"class": classes, "width": _number(placed.width), "height": _number(placed.height)},
        rx=rounding,
        fill=COLOURS[box.decision][0],
    )
    left, right = STRIPE + 2 * PADDING, placed.width - PADDING * (2 if box.ends else 1)
    y = float(PADDING)
    for line in box.layers:
        if line.family:
            bar = {"x": _number(PADDING), "y": _number(y + 2), "width": _number(STRIPE), "height": _number(LINE - 4)}
            SubElement(group, "rect", bar, fill=HUES[line.family])
        _add_line(group, line.left, line.right, left if line.family else PADDING * 2, right, y, "")
        y += LINE
    for line in box.tops:
        _add_line(group, line.left, line.right, left, right, y, "top")
        y += LINE


def _add_line(parent: Element, text: str, more: str, left: float, right: float, y: float, name: str) -> None:
    """Add text on the left, and on the right as much of `more` as fits; `name` in the text has priority."""
    baseline = _number(y + LINE - 4.5)
    text = clip(text, right - left)
    rest = (right - left - text_width(text) - GAP_OF_TEXTS / 2) / RIGHT_SIZE
    element = _add(parent, "text", text, x=_number(left), y=baseline)
    if name:
        element.set("class", name)
    if more and rest > 3 * text_width("x"):
        _add(parent, "text", clip(more, rest), x=_number(right), y=baseline).set("class", "right")


def _curve(points: Sequence[Point], down: bool) -> str:
    """An SVG path with curves between ranks and straight lines across ranks that the wire crosses."""
    (x, y), *rest = points
    text = [f"M{_number(x)} {_number(y)}"]
    for index, (nx, ny) in enumerate(rest):
        if index % 2:
            text.append(f"L{_number(nx)} {_number(ny)}")
        elif down:
            middle = _number((y + ny) / 2)
            text.append(f"C{_number(x)} {middle} {_number(nx)} {middle} {_number(nx)} {_number(ny)}")
        else:
            middle = _number((x + nx) / 2)
            text.append(f"C{middle} {_number(y)} {middle} {_number(ny)} {_number(nx)} {_number(ny)}")
        x, y = nx, ny
    return "".join(text)


def _add_frame(parent: Element, x: float, y: float, width: float, height: float, text: str, tooltip: str) -> None:
    group = SubElement(parent, "g")
    _add(group, "title", tooltip)
    SubElement(
        group,
        "rect",
        {"class": "frame"},
        x=_number(x),
        y=_number(y),
        width=_number(width),
        height=_number(height),
        rx="6",
    )
    _add(group, "text", text, x=_number(x + width + 5), y=_number(y + SIZE + 2)).set("font-weight", "bold")


def _add_markers(defs: Element) -> None:
    for decision, (_, colour, _) in COLOURS.items():
        marker = SubElement(
            defs,
            "marker",
            id=decision,
            viewBox="0 0 8 8",
            refX="7.5",
            refY="4",
            markerWidth="7",
            markerHeight="7",
            markerUnits="userSpaceOnUse",
            orient="auto",
        )
        SubElement(marker, "path", d="M0 0L8 4L0 8z", fill=colour)


# -- title and legend ----------------------------------------------------------------------------------------------


def _legend_lines(picture: NetPicture) -> list[tuple[str, str]]:
    """(decision or other mark, text) of each line of the legend."""
    lines = []
    for decision, meaning in MEANINGS.items():
        if decision in picture.totals:
            count, nbytes = picture.totals[decision]
            lines.append((decision, f"{decision}: {count_text(count, 'blob')}, {format_bytes(nbytes)}; {meaning}"))
    if picture.in_place:
        lines.append(("in place", f"in place: {picture.in_place} blobs written over a blob that no op reads any more"))
    if FUSED in picture.totals:
        count, _ = picture.totals[FUSED]
        lines.append((FUSED, f"fused: {count} layers run in the op of another, in one box; no blob lies between them"))
    return lines


def _add_head(root: Element, picture: NetPicture, legend: Sequence[tuple[str, str]]) -> None:
    y = float(MARGIN)
    title = _add(root, "text", picture.title, x=_number(MARGIN), y=_number(y))
    title.set("style", f"font-size: {TITLE_SIZE}px; font-weight: bold")
    y += LEGEND_LINE
    _add(root, "text", picture.subtitle, x=_number(MARGIN), y=_number(y))
    for mark, text in legend:
        y += LEGEND_LINE
        sample = {"x": _number(MARGIN), "y": _number(y - 11), "width": "26", "height": "14"}
        fill = COLOURS[mark][0] if mark in COLOURS else PAPER
        SubElement(root, "rect", sample, fill=fill, rx="2").set(
            "class", "box in-place" if mark == "in place" else "box"
        )
        if mark == FUSED:
            half = {**sample, "height": "7"}
            SubElement(root, "rect", half, fill=PAPER).set("class", "box")
        elif mark in COLOURS:
            _, colour, dashes = COLOURS[mark]
            wire = SubElement(
                root, "path", {"class": "wire", "stroke": colour}, d=f"M{MARGIN + 32} {_number(y - 4)}h30"
            )
            wire.set("stroke-dasharray", dashes or "none")
        _add(root, "text", text, x=_number(MARGIN + LEGEND_INDENT), y=_number(y))
    y += LEGEND_LINE
    x = float(MARGIN)
    for family in _families(picture):
        hue = HUES[family]
        SubElement(root, "rect", x=_number(x), y=_number(y - 11), width=_number(STRIPE), height="14", fill=hue)
        _add(root, "text", family, x=_number(x + STRIPE + 4), y=_number(y))
        x += _family_width(family)


def _families(picture: NetPicture) -> list[str]:
    """The families of its layers, in the order of the legend."""
    used = {line.family for box in picture.boxes for line in box.layers}
    return [family for family in HUES if family in used]


def _family_width(family: str) -> float:
    return STRIPE + 22 + text_width(family)


def _add(parent: Element, tag: str, text: str, *, escape: bool = True, **attributes: str) -> Element:
    element = SubElement(parent, tag, attributes)
    element.text = printable(text) if escape else text
    return element


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
