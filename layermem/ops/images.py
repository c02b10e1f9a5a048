"""A batch of images in bytes with the transformation that remains: an input layer may pass it to a device.

    y = (x - mean) * scale, mirrored where `mirrored` is set        x [N,C,h,w] uint8 -> y [N,C,h,w] float32

It takes a quarter of the bytes of y, in the host's memory and over the link.  It converts to the array y wherever NumPy
reads it, so that a device without a kernel for it needs no other code; a device with one computes the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class ByteImages:
    """pixels     [N,C,h,w], cropped
    corners    [N,2] int32: row and column at which the crop begins
    mirrored   [N] bool: left and right are exchanged
    mean       float32: [C,1,1], or an image [C,H,W] that is cropped like the others
    scale      factor of the difference
    """

    pixels: npt.NDArray[np.uint8]
    corners: npt.NDArray[np.int32]
    mirrored: npt.NDArray[np.bool_]
    mean: npt.NDArray[np.float32]
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = np.empty(self.shape, np.float32)
        height, width = self.shape[2:]
        for out, x, (top, left), mirrored in zip(values, self.pixels, self.corners, self.mirrored):
            mean = self.mean if self.mean.shape[1:] == (1, 1) else self.mean[:, top : top + height, left : left + width]
            transformed(x, mean, self.scale, out[:, :, ::-1] if mirrored else out)
        return values if dtype is None else values.astype(dtype, copy=False)


def transformed(
    pixels: npt.NDArray[Any], mean: npt.NDArray[np.float32], scale: float, out: npt.NDArray[np.float32]
) -> None:
    """out = (pixels - mean) * scale, each result rounded once."""
    np.subtract(pixels, mean, out=out)
    if scale != 1:
        out *= np.float32(scale)
