"""Plots the curves of a training from the records of its log: OUT.png, .svg or .pdf with matplotlib, OUT.html with
plotly."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from layermem.errors import InputError
from layermem.report.curves_picture import curves_picture
from layermem.report.records import Record
from layermem.utils.files import check_ending, check_folder

ENDINGS = (".png", ".svg", ".pdf", ".html")


def check_curves(path: str) -> None:
    """InputError, before any work, for a plot that could not be drawn."""
    check_ending(path, ENDINGS, "a plot")
    check_folder(path)
    package = "plotly" if path.lower().endswith(".html") else "matplotlib"
    if find_spec(package) is None:
        raise InputError(f"needs {package}; install it: pip install 'layermem[plot]'", path=path)


def draw_curves(records: Sequence[Record], path: str) -> None:
    """Plot the curves of `records`, those of one training, to the file `path`."""
    check_curves(path)
    picture = curves_picture(records)
    if path.lower().endswith(".html"):
        from layermem.report.curves_html import paint_curves as paint
    else:
        from layermem.report.curves_image import paint_curves as paint
    paint(picture, path)
