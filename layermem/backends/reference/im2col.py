"""Im2col: tap by tap."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import Im2col
from layermem.ops.im2col import TapRange

Slices = tuple[slice, ...]


def taps(op: Im2col) -> Iterator[tuple[Slices, Slices]]:
    """For each tap: where y has it, and where x does."""
    for tap in range(op.taps):
        into, source = [slice(None), slice(tap, None, op.taps)], [slice(None), slice(None)]
        for window, place, out in zip((op.rows, op.columns), divmod(tap, op.columns.kernel), op.y.shape[2:]):
            part = TapRange.of(window, place, out)
            into.append(slice(part.first, part.first + part.count))
            source.append(slice(part.start, part.start + part.count * window.stride, window.stride))
        if all(s.start < s.stop for s in into[2:]):
            yield tuple(into), tuple(source)


@kernel(Im2col, "forward")
def im2col_forward(op: Im2col, call: ReferenceCall) -> None:
    call["y0"][...] = 0
    for into, source in taps(op):
        call["y0"][into] = call["x0"][source]


@kernel(Im2col, "backward")
def im2col_backward(op: Im2col, call: ReferenceCall) -> None:
    call["dx0"][...] = 0
    for into, source in taps(op):
        call["dx0"][source] += call["dy0"][into]
