"""Im2col: the windows of an image as channels."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import PIECES, Along, OpRecord, Tensor, Window
from layermem.ops.frames import image_frames, outer_taps


@dataclass(frozen=True)
class Im2col(OpRecord):
    """x [N,C,H,W] -> y [N, C kh kw, Ho, Wo]: channel (c kh + r) kw + s of y is tap (r, s) of channel c, 0 in the pad.

    outer   windows over further axes, before the rows; x and y then hold the frames of their items (frames.py), and the
            taps of all axes are numbered in that order

    forward   y0 from x0        backward   dx0 from dy0
    """

    x: Tensor
    y: Tensor
    rows: Window
    columns: Window
    outer: tuple[Window, ...] = ()

    @property
    def image_taps(self) -> int:
        """Taps of one image: rows times columns."""
        return self.rows.kernel * self.columns.kernel

    @property
    def taps(self) -> int:
        return self.image_taps * outer_taps(self.outer)

    @property
    def items(self) -> int:
        """Number of images of a frame."""
        return self.x.shape[0] // image_frames(self.outer)

    def over_items(self, step: str) -> Along:
        return Along(scattered=frozenset({"x0", "dx0", "y0", "dy0"})) if self.outer else PIECES
