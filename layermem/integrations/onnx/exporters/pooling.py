"""Pooling: Caffe's rounding and clipping by explicit pads.

In Caffe the last window may extend beyond the padded image, and a mean then divides by the part of the window inside.
The ONNX pads make each window whole: `pad` at the front, and at the end as much as the last window needs.  A mean is
exact
    with all pads counted     if no window ends beyond Caffe's own pad
    with no pads counted      if Caffe has no pad
    after a Pad operator      otherwise: Caffe's pad is then part of the image, and pixels beyond it are not counted
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layermem import ops
from layermem.integrations.onnx.graph import Link, Piece
from layermem.integrations.onnx.registry import exports
from layermem.layers.base import Window


def pad_behind(window: Window, out: int) -> int:
    """The pad at the end that the last of `out` windows needs."""
    return max(0, (out - 1) * window.stride + window.kernel - window.size - window.pad)


def pool_attributes(windows: Sequence[Window], before: Sequence[int], behind: Sequence[int]) -> dict[str, Any]:
    return {
        "kernel_shape": [window.kernel for window in windows],
        "strides": [window.stride for window in windows],
        "pads": [*before, *behind],
    }


@exports("Pooling", operators="MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Pad")
def pooling(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Pool)
    windows = record.windows
    whole = all((w.size, w.stride, w.pad) == (w.kernel, 1, 0) for w in windows)
    before = [window.pad for window in windows]
    behind = [pad_behind(window, out) for window, out in zip(windows, record.y.shape[2:])]
    if isinstance(record, ops.StochasticPool):
        _expected(piece, pool_attributes(windows, before, behind))
    elif whole and len(piece.outputs) == 1:
        piece.emit("GlobalMaxPool" if record.method == "MAX" else "GlobalAveragePool", piece.inputs[0], top=0)
    elif record.method == "MAX":
        _largest(piece, record, pool_attributes(windows, before, behind))
    else:
        _mean(piece, windows, before, behind)


def _largest(piece: Piece, record: ops.Pool, attributes: dict[str, Any]) -> None:
    if len(piece.outputs) == 1:
        piece.emit("MaxPool", piece.inputs[0], top=0, **attributes)
        return
    places = piece.temporary("places")  # indices into the whole blob; Caffe's are within the plane
    piece.emit_many("MaxPool", piece.inputs[0], outputs=[piece.outputs[0], places], **attributes)
    plane = piece.constant("plane", record.rows.size * record.columns.size, "int64")
    piece.chain(places, Link("Mod", (plane,)), Link("Cast", (), {"to": 1}), top=1)


def _mean(piece: Piece, windows: Sequence[Window], before: Sequence[int], behind: Sequence[int]) -> None:
    beyond = [max(0, pad - window.pad) for pad, window in zip(behind, windows)]
    if not any(beyond):
        attributes = pool_attributes(windows, before, behind)
        piece.emit("AveragePool", piece.inputs[0], top=0, count_include_pad=1, **attributes)
        return
    image = piece.inputs[0]
    if any(before):
        image = piece.emit("Pad", image, piece.constant("pads", [0, 0, *before] * 2, "int64"))
    attributes = pool_attributes(windows, [0, 0], beyond)
    piece.emit("AveragePool", image, top=0, count_include_pad=0, **attributes)


def _expected(piece: Piece, attributes: dict[str, Any]) -> None:
    """Write STOCHASTIC in TEST: sum x^2 / sum x, or 0 where the sum of x is not positive."""
    x = piece.inputs[0]
    mean = piece.emit("AveragePool", x, **attributes)
    squares = piece.emit("AveragePool", piece.emit("Mul", x, x), **attributes)
    zero, one = piece.constant("zero", 0), piece.constant("one", 1)
    positive = piece.emit("Greater", mean, zero)
    share = piece.emit("Div", squares, piece.emit("Where", positive, mean, one))
    piece.emit("Where", positive, share, zero, top=0)
