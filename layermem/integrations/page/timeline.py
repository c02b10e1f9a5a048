"""Plots of a step: OUT.png, .svg or .pdf with matplotlib, or OUT.html, the page of a plan or of a comparison (page/).

draw_arena     the arena over the step of a plan
draw_memory    live bytes over the step, one line per strategy, and time over memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from layermem.errors import InputError
from layermem.integrations.page.data import comparison_page, plan_page
from layermem.integrations.page.html import page_html
from layermem.integrations.page.strategies import compared_page
from layermem.report.comparison import Trade
from layermem.report.plan_report import PlanReport
from layermem.report.timeline_picture import Points, arena_picture, memory_picture
from layermem.utils.files import check_ending, check_output, write_atomically

ENDINGS = (".png", ".svg", ".pdf", ".html")


def draw_arena(report: PlanReport, path: str) -> None:
    """Plot the arena over the training step of `report` to the file `path`."""
    check_plot(path)
    if is_page(path):
        write_atomically(path, page_html(plan_page(report)))
        return
    from layermem.report.timeline_image import paint_arena

    paint_arena(arena_picture(report), path)


def draw_memory(
    reports: Sequence[PlanReport], trades: Mapping[str, Trade], bound: Points, path: str, *, title: str
) -> None:
    """Plot the live bytes of each plan over its step, and overhead over bytes by strategy, with its lower bound."""
    check_plot(path)
    if is_page(path):
        write_atomically(path, page_html(comparison_page(title, compared_page(reports, trades, bound))))
        return
    from layermem.report.timeline_image import paint_memory

    curves = {name: trade.curve for name, trade in trades.items()}
    paint_memory(memory_picture(reports, curves, bound, title=title), path)


def check_plot(path: str) -> None:
    """Raise InputError, before any work, for a plot that cannot be drawn."""
    check_ending(path, ENDINGS, "a plot")
    check_output(path)
    if not is_page(path) and find_spec("matplotlib") is None:
        what = "needs matplotlib; give a name that ends in .html, which needs nothing, or pip install 'layermem[plot]'"
        raise InputError(what, path=path)


def is_page(path: str) -> bool:
    return path.lower().endswith(".html")
