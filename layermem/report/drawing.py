"""Draws a net with the decisions of its plan: draw_net(report, "net.svg").

net_picture.py computes the contents of the picture, net_layout.py the positions, and net_svg.py writes it.
"""

from __future__ import annotations

from pathlib import Path

from layermem.errors import InputError
from layermem.report.net_picture import net_picture
from layermem.report.plan_report import PlanReport
from layermem.utils.files import write_atomically

DIRECTIONS = ("TB", "LR")  # top to bottom, left to right


def draw_net(report: PlanReport, path: str, *, rankdir: str = "TB", fold: bool = False) -> None:
    """Write the net of `report` with the decisions of its plan to the SVG file `path`.

    rankdir   TB: from top to bottom; LR: from left to right
    fold      draw each repeated stage once, with the number of its repetitions
    """
    check_drawing(path)
    if rankdir not in DIRECTIONS:
        raise InputError(f"unknown rankdir '{rankdir}' (choose from {', '.join(DIRECTIONS)})")
    from layermem.report.net_layout import arrange
    from layermem.report.net_svg import svg_text

    picture = net_picture(report, fold=fold)
    write_atomically(path, svg_text(picture, arrange(picture, down=rankdir == "TB")).encode())


def check_drawing(path: str) -> None:
    """Raise InputError, before any work, for a picture that cannot be drawn."""
    if Path(path).suffix.lower() != ".svg":
        raise InputError("is no name of an SVG file; use a name that ends in .svg", path=path)
    try:
        import igraph  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("needs igraph; install it: pip install 'layermem[plot]'", path=path) from None
