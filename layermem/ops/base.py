"""The base types of op records: tensors, windows, and the record type itself.

An op record says *what* is computed, completely: geometry, parameters, epilogue.  It is a frozen value without
addresses, so that a layer emits it, fusion rewrites it, a backend looks up its kernel under (record type, step), and
tests and benchmarks build it by hand.  Records speak of operands by *role*:

    x0 x1 ..   bottoms          y0 y1 ..   tops            w0 w1 ..   parameters
    dx0 ..     and gradients     dy0 ..     gradients          dw0 ..     gradients
    any other name              a stash: what forward saves only for its backward
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "uint8": 1, "bfloat16": 2, "float16": 2}
FP32 = "fp32"  # as users write it
NARROW = {"bf16": "bfloat16", "fp16": "float16"}  # 16-bit element types by their names for users (graph/storage.py)
LARGEST_ZERO = {  # the largest number that becomes zero where it is stored, to nearest even
    "float32": 0.0,
    "float64": 0.0,
    "bfloat16": 2.0**-134,
    "float16": 2.0**-25,
}
SCALED = ("fp16",)  # types with too few exponents for gradients, which a loss scale multiplies
CARRY = ".carry"  # role "dw0.carry": partial sums of dw0 that slices of a batch pass on (OpRecord)
OPEN = ".open"  # role "dw0.open": an incomplete sum that they also pass on
WHOLE = ".whole"  # role "x1.whole": the blob of the whole batch, next to a slice's x1
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
        """This shape with another element type."""
        return replace(self, dtype=dtype)

    def __str__(self) -> str:
        return "x".join(str(d) for d in self.shape) or "scalar"


@dataclass(frozen=True)
class Window:
    """A sliding window along one axis; sizes in elements."""

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
        """Number of positions of a convolution window."""
        return (self.size + 2 * self.pad - self.extent) // self.stride + 1


@dataclass(frozen=True)
class TapRange:
    """One axis of a tap: y[first + i] is x[start + i stride] for 0 <= i < count; all other y read the pad."""

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

    def split(self, count: int) -> list[BatchSlice]:
        """These items in `count` slices of one size."""
        each = self.count // count
        return [BatchSlice(self.first + i * each, each, self.items) for i in range(count)]

    def moved(self, by: int) -> BatchSlice:
        """A slice of as many items that begins `by` times their number later."""
        return replace(self, first=self.first + by * self.count)

    def fraction_of(self, number: int) -> int:
        """These items' fraction of `number`, which is proportional to the number of items of the batch."""
        return number * self.count // self.items

    def span(self, nbytes: int) -> tuple[int, int]:
        """The byte range [begin, end) of these items in a blob of the whole batch that takes `nbytes`."""
        return nbytes * self.first // self.items, nbytes * (self.first + self.count) // self.items

    def rows_of(self, tensor: Tensor) -> Tensor:
        """The tensor that holds these items, for a blob whose tensor for the whole batch is `tensor`."""
        rows, *others = tensor.shape
        return replace(tensor, shape=(self.fraction_of(rows), *others))

    def __str__(self) -> str:
        """ "items 8..15 of 64"."""
        return f"items {self.first}..{self.first + self.count - 1} of {self.items}"


def first_index(batch_slice: BatchSlice | None, count: int) -> int:
    """The index, in the whole batch, of the first of `count` elements or rows, which are those of a slice."""
    return 0 if batch_slice is None else batch_slice.first * count // batch_slice.count


@dataclass(frozen=True)
class Averages:
    """Running averages that a forward op moves by the statistics of its batch: w = kept w + statistics.

    roles   roles of the parameters that hold them, which no solver updates
    kept    factor of the old average; with 0 the old value has no effect, even if it is NaN
    """

    roles: tuple[str, ...]
    kept: float


@dataclass(frozen=True)
class Along:
    """The roles of a step's operands along an axis on which it may run in pieces.  A piece of the step reads and writes
    its piece of each operand, except for these roles:

    sums       results that are sums along the axis, carried from piece to piece in rising order
    whole      operands that each piece reads as they are, and results that depend on no piece
    counted    operands of which a piece reads its own piece and, as "x1.whole", all of it
    scattered  operands whose pieces are not ranges of the whole, so that they exist either whole or in pieces
    refusal    the reason why the step cannot run in pieces, or ""
    """

    sums: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    counted: tuple[str, ...] = ()
    scattered: frozenset[str] = frozenset()
    refusal: str = ""


@dataclass(frozen=True)
class OpRecord:
    """Base of all op records.

    batch_slice   the items of the batch that this op computes, where a step runs in slices; all other fields describe
                  these items only.  None: the whole batch.  Results have the bits of the whole batch: a kernel that
                  chooses its algorithm by the number of items uses `batch_slice.items`.

    A result that is summed over the items (a weight gradient, a loss) is carried from slice to slice, in rising order:
    for a role "dw0", the role "dw0.carry" names bytes that the first slice writes, the others update, and the last one
    turns into dw0.  If these bytes hold the result of the items so far, a slice may end within a sum that must be
    complete before it is added; "dw0.open" then names the bytes of that sum.  A device may make several results from
    the carry of one of them.
    """

    batch_slice: BatchSlice | None = field(default=None, kw_only=True)

    def over_items(self, step: str) -> Along:
        """Return how a step is split over the items of the batch; parameters are whole."""
        return MIXES

    def over_rows(self, step: str) -> Along:
        """Return how a step is split over the rows of a weight matrix, which are outputs."""
        return Along(refusal="has an op that needs all rows at once")

    @property
    def indices(self) -> tuple[str, ...]:
        """Roles of results that are indices: integers, which a 16-bit type would round (graph/storage.py)."""
        return ()

    @property
    def averages(self) -> tuple[Averages, ...]:
        """The running averages that forward moves.  Ranks compute batches at the same time and move them by the
        statistics of all batches; they cannot share an op that changes a parameter in forward in another way."""
        return ()

    def of_one_batch(self: R) -> R:
        """Return this record with old averages dropped: forward leaves only the contribution of its batch."""
        return self

    def of_slice(self: R, batch_slice: BatchSlice, whole: R) -> R:
        """Return the record of one slice of `whole`; `self`: that of a step of `batch_slice.count` items."""
        return replace(self, batch_slice=batch_slice)

    @property
    def family(self) -> str:
        return type(self).__name__

    @property
    def refusal(self) -> str:
        """The reason why no device runs this op, although it can be planned; empty for ops that run."""
        return ""

    @property
    def fusion(self) -> str | None:
        """The name of the fused form, which a device lists in `Device.fusions`; None for the op of a single layer."""
        return None


PIECES = Along()  # each item or row independently
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

    relu_dtype   element type in which the output y of the ReLU is stored.  Masks and gradients use the sign of y after
                 it is rounded to this type, whether an op reads y or recomputes it
    """

    relu_dtype: str = field(default="float32", kw_only=True)

    @property
    def largest_zero(self) -> float:
        """The largest value of y that is stored as zero; y is positive above it."""
        return LARGEST_ZERO[self.relu_dtype]

    def of_slice(self: S, batch_slice: BatchSlice, whole: S) -> S:
        return replace(self, batch_slice=batch_slice, relu_dtype=whole.relu_dtype)


class ReadsLabels(OpRecord):
    """An op that reads labels or indices from a blob, and fails where one of them is out of range."""

    @property
    def classes(self) -> int:
        """Labels are 0 .. classes - 1."""
        raise NotImplementedError

    def bad_label(self, label: str) -> str:
        """The error text for a `label` out of range, with its remedy."""
        return (
            f"reads label {label}, but has scores for {self.classes} classes: 0 to {self.classes - 1}; "
            "fix the data, or set ignore_label"
        )


def epilogue_name(base: str, *, residual: bool, relu: bool) -> str:
    """Return "Conv+residual+relu" or a shorter form."""
    return base + "+residual" * residual + "+relu" * relu


def roles(prefix: str, count: int) -> tuple[str, ...]:
    """roles("x", 3) -> ("x0", "x1", "x2")"""
    return tuple(f"{prefix}{i}" for i in range(count))


def loss_over_items(step: str, normalizer: int | None) -> Along:
    """OpRecord.over_items of a loss that is divided by `normalizer`, or by the number of labels that count."""
    return replace(LOSS if step == "forward" else PIECES, counted=("x1",) if normalizer is None else ())
