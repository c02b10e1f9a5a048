"""Shows a plan or a net in a notebook: a table and a picture of the arena, in one piece of HTML.

The picture is the one of `plan --plot`, drawn as inline SVG, so that it needs no library and no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from layermem.graph.net import Net
from layermem.report.net_table import HEADINGS, net_rows, net_values
from layermem.report.plan_report import PlanReport
from layermem.report.summary import plan_facts
from layermem.report.timeline_picture import KIND_NAMES, ArenaBox, ArenaPicture, arena_picture
from layermem.utils.units import format_bytes, format_seconds

WIDTH, HEIGHT, MARGIN = 760, 320, 22  # of the picture in pixels; below it, a line of text
VISIBLE = 0.4  # pixels: smaller boxes are left out
MAX_ROWS = 200  # layers of a net's table


def plan_html(report: PlanReport) -> str:
    """The facts of a plan and a picture of its arena."""
    shown = plan_facts(report)
    if not report.feasible:
        shown.insert(0, ("budget", f"{format_bytes(report.budget_bytes or 0)} is below the minimum: nothing fits"))
    rows = "".join(_row(fact) for fact in shown)
    return f"<b>{escape(report.job.title)}</b><table>{rows}</table>{arena_svg(arena_picture(report))}"


def net_html(net: Net, report: PlanReport | None) -> str:
    """A table of a net's layers and, with a plan, a picture of its arena."""
    layers, total = net_rows(net_values(net))
    more = _row([f"... {len(layers) - MAX_ROWS:,} more layers"]) if len(layers) > MAX_ROWS else ""
    heads = "".join(f"<th>{escape(heading.lstrip('>'))}</th>" for heading in HEADINGS)
    body = "".join(_row(row) for row in layers[:MAX_ROWS]) + more + _row(total)
    picture = "" if report is None else arena_svg(arena_picture(report))
    return f"<b>{escape(net.name)}</b>{picture}<table><tr>{heads}</tr>{body}</table>"


def arena_svg(picture: ArenaPicture) -> str:
    """Time to the right, addresses upwards; the name of each box appears under the pointer."""
    top = max(picture.peak_bytes, picture.budget_bytes or 0) or 1
    boxes = "".join(_rectangle(box, picture.seconds or 1.0, top) for box in picture.boxes)
    lines = _level(picture.peak_bytes, top, "")
    if picture.budget_bytes is not None:
        lines += _level(picture.budget_bytes, top, ' stroke-dasharray="6 4"')
    kinds = [kind for kind in KIND_NAMES if any(box.kind == kind for box in picture.boxes)]
    legend = " ".join(
        f'<tspan fill="{colour}">&#9632;</tspan> {escape(name)}'
        for name, colour in (KIND_NAMES[kind] for kind in kinds)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 2 * MARGIN}" '
        f'font-family="sans-serif" font-size="12"><text y="14">{escape(picture.title)}, '
        f"{format_seconds(picture.seconds)}</text>"
        f'<g transform="translate(0,{MARGIN})">{boxes}{lines}</g>'
        f'<text y="{HEIGHT + 2 * MARGIN - 6}">{legend}</text></svg>'
    )


def _rectangle(box: ArenaBox, seconds: float, top: int) -> str:
    width, height = (box.end - box.begin) / seconds * WIDTH, box.nbytes / top * HEIGHT
    if width < VISIBLE or height < VISIBLE:
        return ""
    x, y = box.begin / seconds * WIDTH, HEIGHT - (box.offset + box.nbytes) / top * HEIGHT
    edge = ' stroke="white" stroke-width="0.4"' if min(width, height) > 2 else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{KIND_NAMES[box.kind][1]}"{edge}><title>{escape(box.description)}</title></rect>'


def _level(nbytes: int, top: int, dash: str) -> str:
    y = HEIGHT - nbytes / top * HEIGHT
    line = f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#333333"{dash}/>'
    return f"{line[:-2]}><title>{format_bytes(nbytes)}</title></line>"


def _row(cells: Iterable[object] | Sequence[str]) -> str:
    return "<tr>" + "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in cells) + "</tr>"
