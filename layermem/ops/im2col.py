"""Im2col: the windows of an image as channels."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor, Window


@dataclass(frozen=True)
class Im2col(OpRecord):
    """x [N,C,H,W] -> y [N, C kh kw, Ho, Wo]: channel (c kh + r) kw + s of y is tap (r, s) of channel c, 0 in the pad.

    forward   y0 from x0        backward   dx0 from dy0
    """

    x: Tensor
    y: Tensor
    rows: Window
    columns: Window

    @property
    def taps(self) -> int:
        return self.rows.kernel * self.columns.kernel


@dataclass(frozen=True)
class TapRange:
    """One axis of a tap: y[first + i] is x[start + i stride], 0 <= i < count; the other y lie in the pad."""

    first: int
    count: int
    start: int

    @classmethod
    def of(cls, window: Window, tap: int, out: int) -> TapRange:
        begin = tap * window.dilation - window.pad  # in x, of y[0]
        first = min(out, max(0, -(begin // window.stride)))
        end = min(out, max(first, (window.size - 1 - begin) // window.stride + 1))
        return cls(first, end - first, first * window.stride + begin)
