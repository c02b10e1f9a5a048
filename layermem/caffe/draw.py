"""`caffe.draw`: a net as a picture, as `layermem draw` makes it, without shapes and without a plan."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from google.protobuf import text_format

from layermem.proto.filter import filter_net
from layermem.proto.read import read_net_text
from layermem.proto.schema import Message
from layermem.report.drawing import message_drawing
from layermem.utils.files import write_atomically


def draw_net(
    caffe_net: Message, rankdir: str, ext: str = "png", phase: int | None = None, display_lrm: bool = False
) -> bytes:
    """Return a picture of the layers of a NetParameter, of both phases by default.

    rankdir      LR from left to right, TB from top to bottom
    ext          svg, or a format of matplotlib: png, pdf, jpg, ...
    display_lrm  show the lr_mult of layers
    """
    file = read_net_text(text_format.MessageToString(caffe_net), "<NetParameter>")
    net = file if phase is None else filter_net(file, phase)
    return message_drawing(net.message, ext, rankdir=rankdir, rates=display_lrm)


def draw_net_to_file(
    caffe_net: Message,
    filename: str | PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Write a picture of a net, in the format that the end of the name says."""
    ext = Path(filename).suffix[1:].lower()
    write_atomically(filename, draw_net(caffe_net, rankdir, ext, phase, display_lrm))
