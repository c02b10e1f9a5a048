"""A batch of images in bytes, with what is still to be done to them: what an input layer may hand to a device.

    y = (x - mean) * scale, mirrored where `mirrored` says so        x [N,C,H,W] uint8 -> y [N,C,H,W] float32

It takes a quarter of the bytes of y, in the host's memory and over the link.  NumPy takes it for the array y, so that a
device without a kernel for it needs no other code; a device with one computes the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class ByteImages:
    """pixels     [N,C,H,W], cropped
    mirrored   [N] bool, left to right
    means      [C] float32, subtracted from each channel
    scale      by which the difference is multiplied
    """

    pixels: npt.NDArray[np.uint8]
    mirrored: npt.NDArray[np.bool_]
    means: npt.NDArray[np.float32]
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = transformed(self.pixels, self.means[:, None, None], self.scale)
        values[self.mirrored] = values[self.mirrored, :, :, ::-1]
        return values if dtype is None else values.astype(dtype, copy=False)


def transformed(
    pixels: npt.NDArray[Any], mean: npt.NDArray[np.float32], scale: float, out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """(pixels - mean) * scale in float32, each result rounded once."""
    values = np.empty(pixels.shape, np.float32) if out is None else out
    np.subtract(pixels, mean, out=values)
    if scale != 1:
        values *= np.float32(scale)
    return values
