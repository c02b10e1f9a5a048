"""Im2col: the windows of an image as channels, so that a convolution of its top is a 1 x 1 one.

    x [N,C,H,W] -> y [N, C kh kw, Ho, Wo],  Ho = floor((H + 2 pad - extent) / stride) + 1,
    extent = dilation (kernel - 1) + 1
memory  stashes nothing; backward reads dy only
source  Caffe im2col_layer.cpp, im2col.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor, Window, layer
from layermem.layers.convolution import sizes


@layer("Im2col")
class Im2col(Layer):
    record: ops.Im2col

    def setup(self) -> None:
        p, x = self.param.convolution_param, self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); Im2col takes N x C x H x W: Reshape it first")
        if self.axis(p.axis) != 1:
            raise InputError(f"has its channels in axis {p.axis}; layermem has them in axis 1: remove 'axis'")
        rows, columns = (
            Window(size, kernel, stride, pad, dilation)
            for size, kernel, stride, pad, dilation in zip(
                x.shape[2:],
                sizes(p, "kernel", "kernel_size", None),
                sizes(p, "stride", "stride", 1),
                sizes(p, "pad", "pad", 0),
                sizes(p, "dilation", "dilation", 1),
                strict=True,
            )
        )
        if min(rows.size + 2 * rows.pad - rows.extent, columns.size + 2 * columns.pad - columns.extent) < 0:
            raise InputError(
                f"has windows of {rows.extent} x {columns.extent} on a bottom of {x.shape[2]} x {x.shape[3]}; "
                "use a smaller kernel or a larger pad"
            )
        taps = rows.kernel * columns.kernel
        y = Tensor((x.shape[0], x.shape[1] * taps, rows.floor_out, columns.floor_out))
        self.tops = (y,)
        self.record = ops.Im2col(x, y, rows, columns)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("backward", ("dy0",), ("dx0",), flops=self.tops[0].count),) if "dx0" in wants else ()
