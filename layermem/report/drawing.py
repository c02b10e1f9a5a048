"""Draws a net with the decisions of its plan: draw_net(report, "net.svg"); or without a plan: message_drawing.

net_picture.py computes the contents of the picture, net_layout.py the positions, and net_svg.py writes it.
"""

from __future__ import annotations

from pathlib import Path

from layermem.errors import ArgumentError, InputError
from layermem.proto.schema import Message
from layermem.report.net_picture import message_picture, net_picture
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


def message_drawing(message: Message, form: str, *, rankdir: str = "LR", rates: bool = False) -> bytes:
    """The layers of a NetParameter, without shapes and a plan, as a picture in the format `form`: svg, png, pdf, ..."""
    if rankdir not in DIRECTIONS:
        raise ArgumentError(f"unknown rankdir '{rankdir}' (choose from {', '.join(DIRECTIONS)})")
    if not message.layer:
        raise ArgumentError(f"net '{message.name}' has no layers to draw; give a net with layers")
    _check_igraph()
    from layermem.report.net_layout import arrange
    from layermem.report.net_svg import svg_text

    picture = message_picture(message, rates=rates)
    layout = arrange(picture, down=rankdir == "TB")
    if form == "svg":
        return svg_text(picture, layout).encode()
    from layermem.report.net_image import painted

    return painted(picture.title, layout, form)


def check_drawing(path: str) -> None:
    """Raise InputError, before any work, for a picture that cannot be drawn."""
    if Path(path).suffix.lower() != ".svg":
        raise InputError("is no name of an SVG file; use a name that ends in .svg", path=path)
    try:
        _check_igraph()
    except InputError as error:
        raise error.at(path=path) from None


def _check_igraph() -> None:
    try:
        import igraph  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("needs igraph; install it: pip install 'layermem[plot]'") from None
