"""What every op record shares: tensors, windows, and the record type itself.

An op record says *what* is computed, completely: geometry, parameters, epilogue.  It is a frozen value without
addresses, so that a layer emits it, fusion rewrites it, a backend looks up its kernel under (record type, step), and
tests and benchmarks build it by hand.  Records speak of operands by *role*:

    x0 x1 ..   bottoms          y0 y1 ..   tops            w0 w1 ..   parameters
    dx0 ..     their gradients  dy0 ..     theirs          dw0 ..     theirs
    any other name              a stash: what forward saves only for its backward
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "uint8": 1, "bfloat16": 2, "float16": 2}
FP32 = "fp32"  # as the word of users
NARROW = {"bf16": "bfloat16", "fp16": "float16"}  # element types of 16 bits by the word of users (graph/storage.py)
LARGEST_ZERO = {  # the largest number that becomes zero where it is stored, to nearest even
    "float32": 0.0,
    "float64": 0.0,
    "bfloat16": 2.0**-134,
    "float16": 2.0**-25,
}
SCALED = ("fp16",)  # those with too few exponents for gradients: these are multiplied by a loss scale
CARRY = ".carry"  # "dw0.carry" is the role of what slices of a batch carry of dw0 (OpRecord)
OPEN = ".open"  # "dw0.open" that of what they carry beside it
WHOLE = ".whole"  # "x1.whole" that of the whole batch's blob beside a slice's x1
R = TypeVar("R", bound="OpRecord")
S = TypeVar("S", bound="EndsInRelu")
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
class BatchSlice:
    """Items first .. first + count - 1 of a batch of `items`."""

    first: int
    count: int
    items: int

    @property
    def is_first(self) -> bool:
        return self.first == 0

    @property
    def is_last(self) -> bool:
        return self.first + self.count == self.items

    def in_parts(self, count: int) -> list[BatchSlice]:
        """These items in `count` equal parts."""
        each = self.count // count
        return [BatchSlice(self.first + i * each, each, self.items) for i in range(count)]

    def moved(self, by: int) -> BatchSlice:
        """As many items, `by` times their number behind these."""
        return replace(self, first=self.first + by * self.count)

    def share(self, number: int) -> int:
        """The part of `number` that falls to these items, of what is alike for all items."""
        return number * self.count // self.items

    def span(self, nbytes: int) -> tuple[int, int]:
        """Where these items begin and end in a blob of the whole batch of so many bytes."""
        return nbytes * self.first // self.items, nbytes * (self.first + self.count) // self.items

    def rows_of(self, tensor: Tensor) -> Tensor:
        """The tensor of these items of a blob of the whole batch."""
        rows, *others = tensor.shape
        return replace(tensor, shape=(self.share(rows), *others))

    def __str__(self) -> str:
        """ "items 8..15 of 64"."""
        return f"items {self.first}..{self.first + self.count - 1} of {self.items}"


@dataclass(frozen=True)
class Averages:
    """Running averages that a forward op moves by the statistics of its batch: w = kept w + statistics.

    roles   their roles in the op, of parameters that nothing learns
    kept    what is kept of an old average; 0 leaves nothing of it, whatever it holds
    """

    roles: tuple[str, ...]
    kept: float


@dataclass(frozen=True)
class Along:
    """How the operands of a step lie along an axis on which it may run in pieces.  A piece of the step has its piece
    of each operand, but for these roles:

    sums     results that are sums along the axis, carried from piece to piece in rising order
    whole    operands that each piece reads as they are, and results that depend on no piece
    counted  operands of which a piece reads its own part and, as "x1.whole", all
    refusal  why the step cannot run in pieces, "" where it can
    """

    sums: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    counted: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class OpRecord:
    """Base of all op records.

    part   which items of the batch this op computes, where a step runs in slices; the rest of the record speaks of
           these items alone.  None: the whole batch.  Results are the bits of the whole batch: a kernel that chooses
           its algorithm by the number of items chooses by `part.items`.

    A result that is summed over the items (a weight gradient, a loss) is carried from slice to slice, in rising order:
    for a role "dw0", the role "dw0.carry" names bytes that the first slice writes, that the others update, and that
    the last one turns into dw0.  Where those are the result of the items so far, and a slice may end within a sum that
    must not be added to it before it is complete, "dw0.open" names the bytes of that sum.  A device may make several
    results from what is carried of one of them.
    """

    part: BatchSlice | None = field(default=None, kw_only=True)

    def over_items(self, step: str) -> Along:
        """How a step is split over the items of the batch; parameters are whole."""
        return MIXES

    def over_rows(self, step: str) -> Along:
        """How a step is split over the rows of a weight matrix, which are outputs."""
        return Along(refusal="has an op that needs all rows at once")

    @property
    def indices(self) -> tuple[str, ...]:
        """Roles of results that are indices: whole numbers, which 16 bits would round (graph/storage.py)."""
        return ()

    @property
    def averages(self) -> tuple[Averages, ...]:
        """The running averages that forward moves.  Ranks, which compute batches at the same time, move them by the
        statistics of all; they cannot share an op that changes a parameter in forward in another way."""
        return ()

    def of_one_batch(self: R) -> R:
        """This record where nothing is kept of old averages: forward leaves what its batch adds to them."""
        return self

    def of_slice(self: R, part: BatchSlice, whole: R) -> R:
        """This record, of the step with a batch of `part.count`, as that of one slice of `whole`."""
        return replace(self, part=part)

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


PIECES = Along()  # each item, or row, by itself
WEIGHTS = Along(frozenset({"dw0", "dw1"}))  # gradients of parameters are sums
LOSS = Along(frozenset({"y0"}))
MIXES = Along(refusal="mixes the items of a batch, and cannot be sliced")


class PerItem(OpRecord):
    """An op that computes each item of the batch by itself."""

    def over_items(self, step: str) -> Along:
        return PIECES


@dataclass(frozen=True)
class EndsInRelu(OpRecord):
    """An op that may end in a ReLU, or clear a gradient as the backward of one does.

    stored   the element type in which y, what the ReLU makes, is stored.  For a mask and for a gradient y is positive
             where it is so as it is stored, whether an op looks at y or computes it
    """

    stored: str = field(default="float32", kw_only=True)

    @property
    def largest_zero(self) -> float:
        """What y is above where it is positive."""
        return LARGEST_ZERO[self.stored]

    def of_slice(self: S, part: BatchSlice, whole: S) -> S:
        return replace(self, part=part, stored=whole.stored)


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


def loss_over_items(step: str, normalizer: int | None) -> Along:
    """OpRecord.over_items of a loss that is divided by `normalizer`, or by the number of labels that count."""
    return replace(LOSS if step == "forward" else PIECES, counted=("x1",) if normalizer is None else ())
