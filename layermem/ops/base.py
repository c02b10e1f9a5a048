"""What every op record shares: tensors, windows, and the record type itself.

An op record says *what* is computed, completely: geometry, parameters, epilogue.  It is a frozen value without
addresses, so that a layer emits it, fusion rewrites it, a backend looks up its kernel under (record type, step), and
tests and benchmarks build it by hand.  Records speak of operands by *role*:

    x0 x1 ..   bottoms          y0 y1 ..   tops            w0 w1 ..   parameters
    dx0 ..     their gradients  dy0 ..     theirs          dw0 ..     theirs
    any other name              a stash: what forward saves only for its backward
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "uint8": 1}
MAX_COUNT = 2**31 - 1  # elements of one tensor, as in Caffe: kernels index with 32 bits


@dataclass(frozen=True)
class Tensor:
    """Shape (NCHW, as users see it) and element type of a blob, parameter or stash."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * ITEMSIZE[self.dtype]

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape in memory, C order: four axes are stored channels-last."""
        if len(self.shape) != 4:
            return self.shape
        n, c, h, w = self.shape
        return (n, h, w, c)

    @property
    def interleaved(self) -> bool:
        """Whether memory holds the elements in another order than Caffe's."""
        return len(self.shape) == 4 and self.shape[1] > 1 and self.shape[2] * self.shape[3] > 1

    def around(self, axis: int) -> tuple[int, int, int]:
        """(outer, size, inner) of `axis` in memory: `outer` blocks, each of `size` rows of `inner` elements."""
        at = {0: 0, 1: 3, 2: 1, 3: 2}[axis] if len(self.shape) == 4 else axis
        return prod(self.stored[:at]), self.stored[at], prod(self.stored[at + 1 :])

    def ordered_like(self, other: Tensor) -> bool:
        """Whether the same memory, read with Caffe's axes, holds the same sequence of elements in both shapes."""

        def order(t: Tensor) -> tuple[int, int] | None:
            return (t.shape[1], t.shape[2] * t.shape[3]) if t.interleaved else None

        return self.count == other.count and order(self) == order(other)

    def of(self, dtype: str) -> Tensor:
        """The same shape with another element type."""
        return replace(self, dtype=dtype)

    def __str__(self) -> str:
        return "x".join(str(d) for d in self.shape) or "scalar"


@dataclass(frozen=True)
class Window:
    """One axis of a sliding window: sizes in elements."""

    size: int
    kernel: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def floor_out(self) -> int:
        """Positions of a convolution window."""
        return (self.size + 2 * self.pad - self.extent) // self.stride + 1


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


@dataclass(frozen=True)
class OpRecord:
    """Base of all op records."""

    @property
    def family(self) -> str:
        return type(self).__name__

    @property
    def refusal(self) -> str:
        """Why no device runs this op, which can be planned all the same; empty for ops that run."""
        return ""

    @property
    def fusion(self) -> str | None:
        """The name of the fused form, which a device lists in `Device.fusions`; None for the op of a single layer."""
        return None


class ReadsLabels(OpRecord):
    """An op that reads labels or indices from a blob, and fails where one of them is out of range."""

    @property
    def classes(self) -> int:
        """Labels are 0 .. classes - 1."""
        raise NotImplementedError

    def bad_label(self, label: str) -> str:
        """What is wrong with a `label` out of range, and what to do."""
        return (
            f"reads label {label}, but has scores for {self.classes} classes: 0 to {self.classes - 1}; "
            "fix the data, or set ignore_label"
        )


def epilogue_name(base: str, *, residual: bool, relu: bool) -> str:
    """ "Conv+residual+relu" and its shorter forms."""
    return base + "+residual" * residual + "+relu" * relu


def roles(prefix: str, count: int) -> tuple[str, ...]:
    """roles("x", 3) -> ("x0", "x1", "x2")"""
    return tuple(f"{prefix}{i}" for i in range(count))
