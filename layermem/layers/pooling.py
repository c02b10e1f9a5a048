"""Pooling: the maximum, the mean, or a random element of each window.

x [N,C,H,W] -> y [N,C,Ho,Wo],  Ho = ceil((H + 2 pad - kernel) / stride) + 1  (round_mode FLOOR, or ceil_mode: false
                     as forks write it, rounds down)
memory  MAX and STOCHASTIC stash the index of their element within its window, one byte per output up to 256 taps; AVE
        stashes nothing.  Backward reads dy and that index: neither x nor y outlives forward
source  Caffe pooling_layer.cpp, with its clipping at the border: the last window starts inside the image or its
        left padding, and a mean divides by the window clipped to the padded image

A second top of MAX is its mask: the index of the maximum within the plane H x W, as a number; no gradient flows through
it.  STOCHASTIC takes element i of a window with probability x_i / sum x, so its bottom must not be negative; it draws
as Dropout does (dropout.py), one word for each element of y, so that a recomputation draws the same.  In TEST it is
sum x^2 / sum x, or 0 where the sum of x is not positive.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from zlib import crc32

from layermem.errors import InputError
from layermem.layers.base import CAFFE_VALUE_BYTES, Layer, Message, Step, Tensor, Window, layer, roles
from layermem.ops import Pool, StochasticPool
from layermem.proto.schema import TEST

MAX, AVE, STOCHASTIC = 0, 1, 2


def pooled_size(window: Window, ceil: bool, padded: bool) -> int:
    """Number of windows along one axis, with Caffe's rounding and, where any axis is padded, its clipping."""
    span = window.size + 2 * window.pad - window.kernel
    out = (-(-span // window.stride) if ceil else span // window.stride) + 1
    outside = (out - 1) * window.stride >= window.size + window.pad
    if outside and padded:
        out -= 1
    elif outside and out > 0:  # Caffe would pool an empty window
        raise InputError(
            f"has a last window that lies outside its bottom of {window.size}; use round_mode: FLOOR or less stride"
        )
    return out


@layer("Pooling")
class Pooling(Layer):
    family, window_block = "pooling", "pooling_param"
    bottom_forms = ("N,C,H,W",)
    record: Pool
    top_range = (1, 2)

    def setup(self) -> None:
        p = self.param.pooling_param
        if len(self.param.top) > 1 and p.pool != MAX:
            raise InputError("has 2 tops; only pool: MAX has a mask: remove the second 'top:' line")
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"pools a bottom of {len(x.shape)} axes ({x}); Pooling takes 4, N x C x H x W: Reshape it")
        n, c, h, w = x.shape
        windows = self._windows(p, h, w)
        if p.HasField("ceil_mode") and p.HasField("round_mode"):
            raise InputError("gives both ceil_mode and round_mode; keep round_mode")
        ceil = p.ceil_mode if p.HasField("ceil_mode") else p.round_mode == 0
        padded = any(window.pad for window in windows)
        out = [pooled_size(window, ceil, padded) for window in windows]
        if min(out) < 1:
            raise InputError(f"has a window larger than its padded bottom of {h} x {w}; use a smaller kernel")
        y = Tensor((n, c, out[0], out[1]))
        self.tops = (y, y)[: len(self.param.top)]
        if p.pool != STOCHASTIC:
            self.record = Pool("MAX" if p.pool == MAX else "AVE", x, y, *windows)
        else:
            if padded:
                raise InputError("pads with pool: STOCHASTIC, which draws from the image alone; use pad: 0")
            stream, average = crc32(self.name.encode()), self.phase == TEST
            self.record = StochasticPool("STOCHASTIC", x, y, *windows, stream, average)
            self.recompute_kind = "exact" if average else "seeded"
        if p.pool == MAX or self.recompute_kind == "seeded":
            self.stash = {"argmax": self.record.argmax}

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the index of each maximum, unless a second top holds it."""
        kept = self.param.pooling_param.pool != AVE and len(self.tops) == 1
        return CAFFE_VALUE_BYTES * self.tops[0].count if kept else 0

    def _windows(self, p: Message, h: int, w: int) -> tuple[Window, Window]:
        if p.global_pooling:
            return Window(h, h), Window(w, w)
        kernel, stride, pad = (
            pair(p, "kernel", "kernel_size", 0),
            pair(p, "stride", "stride", 1),
            pair(p, "pad", "pad", 0),
        )
        for axis in range(2):
            if kernel[axis] < 1 or stride[axis] < 1:
                raise InputError(
                    "needs kernel_size (or kernel_h and kernel_w) and stride of at least 1; set them, or global_pooling"
                )
            if pad[axis] >= kernel[axis]:
                raise InputError(f"pads by {pad[axis]}, not less than its kernel of {kernel[axis]}: use a smaller pad")
        return Window(h, kernel[0], stride[0], pad[0]), Window(w, kernel[1], stride[1], pad[1])

    def forward(self) -> Step:
        writes = (*roles("y", len(self.tops)), *self.stash)
        return Step("forward", ("x0",), writes, flops=self.tops[0].count * self.record.taps)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        op = self.record
        if "dx0" not in wants or (isinstance(op, StochasticPool) and op.average):
            return ()
        record = Pool("MAX", op.x, op.y, op.rows, op.columns) if isinstance(op, StochasticPool) else None
        return (Step("backward", ("dy0", *self.stash), ("dx0",), flops=self.bottoms[0].count, record=record),)


def pair(p: Message, stem: str, both: str, default: int) -> tuple[int, int]:
    """(h, w) of a size that prototxt gives once (`both`) or per axis (stem_h, stem_w)."""
    if p.HasField(f"{stem}_h") or p.HasField(f"{stem}_w"):
        return getattr(p, f"{stem}_h"), getattr(p, f"{stem}_w")
    size = getattr(p, both) if p.HasField(both) else default
    return size, size
