"""Im2col: a strided copy for each tap, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Im2col, TapRange
from layermem.ops.frames import frame_runs

FLOAT = 4  # bytes


def taps(op: Im2col) -> Iterator[tuple[list[int], int, int]]:
    """Yield, for each tap, the sizes of a copy [N, rows, columns, C], and the offsets of its first element in x and
    y."""
    _, c, height, width = op.x.shape
    _, channels, out_h, out_w = op.y.shape
    for run in frame_runs(op.outer, "taps"):
        images, of_x = run.count * op.items, run.image * op.items * height * width * c
        of_y = run.maps * op.items * out_h * out_w * channels + run.tap * op.image_taps
        for tap in range(op.image_taps):
            r, s = divmod(tap, op.columns.kernel)
            rows, columns = TapRange.of(op.rows, r, out_h), TapRange.of(op.columns, s, out_w)
            x = of_x + (rows.start * width + columns.start) * c
            y = of_y + (rows.first * out_w + columns.first) * channels + tap
            if rows.count and columns.count:
                yield [images, rows.count, columns.count, c], FLOAT * x, FLOAT * y


def x_strides(op: Im2col) -> list[int]:
    _, c, height, width = op.x.shape
    return [height * width * c, op.rows.stride * width * c, op.columns.stride * c, 1]


def y_strides(op: Im2col) -> list[int]:
    _, channels, out_h, out_w = op.y.shape
    return [out_h * out_w * channels, out_w * channels, channels, op.taps]


@kernel(Im2col, "forward")
def im2col_forward(op: Im2col, call: CpuCall) -> list[Launch]:
    padded = any(window.pad for window in (*op.outer, op.rows, op.columns))
    clear = [launch("pointwise", "fill", op.y.count, out=call["y0"], alpha=0.0)] if padded else []
    copies = [
        launch(
            "copy_block",
            shape,
            out=call["y0"] + y,
            out_strides=y_strides(op),
            x=call["x0"] + x,
            x_strides=x_strides(op),
        )
        for shape, x, y in taps(op)
    ]
    return [*clear, *copies]


@kernel(Im2col, "backward")
def im2col_backward(op: Im2col, call: CpuCall) -> list[Launch]:
    added = call.accumulates("dx0")
    clear = [] if added else [launch("pointwise", "fill", op.x.count, out=call["dx0"], alpha=0.0)]
    sums = [
        launch(
            "copy_block",
            shape,
            out=call["dx0"] + x,
            out_strides=x_strides(op),
            x=call["dy0"] + y,
            x_strides=y_strides(op),
            accumulate=True,
        )
        for shape, x, y in taps(op)
    ]
    return [*clear, *sums]
