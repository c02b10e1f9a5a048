"""Im2col: the windows of an image as channels, so that a convolution of its top is a 1 x 1 one.

    x [N,C,H,W] -> y [N, C kh kw, Ho, Wo],  Ho = floor((H + 2 pad - extent) / stride) + 1,
    extent = dilation (kernel - 1) + 1

Channels are in `axis`, and all axes behind it are spatial, as in a Convolution.

memory  stashes nothing; backward reads dy only
source  Caffe im2col_layer.cpp, im2col.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, Window, layer
from layermem.layers.convolution import check_fit, windows_of
from layermem.layers.images import check_images, image_shape, stated_shape


@layer("Im2col")
class Im2col(Layer):
    """The bottom is images; those of other ranks are made as for a convolution, and `blob_shape` is the shape of the
    top."""

    family, window_block = "convolution", "convolution_param"
    record: ops.Im2col
    blob_shape: tuple[int, ...]

    def setup(self) -> None:
        p, x = self.param.convolution_param, self.bottoms[0]
        shape = stated_shape(self.param, x)
        axis = self.axis(p.axis, Tensor(shape))
        check_images(self.type, x, shape, axis)
        if axis == len(shape) - 1:
            raise InputError(
                f"has channels in axis {axis}, the last of its bottom; Im2col takes a spatial axis behind them: "
                "Reshape it first"
            )
        windows = windows_of(p, shape[axis + 1 :])
        check_fit(windows)
        rows, columns = (Window(1, 1), *windows)[-2:]
        outer, taps = tuple(windows[:-2]), prod(window.kernel for window in windows)
        self.blob_shape = (*shape[:axis], shape[axis] * taps, *(window.floor_out for window in windows))
        y = Tensor(image_shape(self.blob_shape, axis))
        self.tops = (y,)
        self.record = ops.Im2col(x, y, rows, columns, outer)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("backward", ("dy0",), ("dx0",), flops=self.tops[0].count),) if "dx0" in wants else ()
