"""Plots the curves of a training from the records of its log: OUT.png, .svg or .pdf with matplotlib, or OUT.html, a
page (page/)."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.integrations.page.data import log_page
from layermem.integrations.page.html import page_html
from layermem.integrations.page.timeline import check_plot, is_page
from layermem.integrations.page.training import training_page
from layermem.report.curves_picture import curves_picture
from layermem.report.records import Record
from layermem.utils.files import write_atomically


def draw_curves(records: Sequence[Record], path: str) -> None:
    """Plot the curves of the `records` of one training to the file `path`."""
    check_plot(path)
    if is_page(path):
        section = training_page("", records)
        write_atomically(path, page_html(log_page(str(section["title"]), section)))
        return
    from layermem.report.curves_image import paint_curves

    paint_curves(curves_picture(records), path)
