"""Copies within the arena: unchanged, or into the memory order of another tensor.

4-D tensors are stored channels-last, so a blob and its flattened form hold the same elements in different orders.
"""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Tensor
from layermem.utils.units import aligned

FLOAT = 4  # bytes


def copy_rows(
    rows: int, width: int, *, itemsize: int, out: int, out_pitch: int, x: int, x_pitch: int, accumulate: bool
) -> Launch:
    """Copy rows of elements of `itemsize` bytes, with pitches in elements; 16-bit elements are not converted."""
    if itemsize == FLOAT:
        return launch(
            "copy_rows", rows, width, out=out, out_pitch=out_pitch, x=x, x_pitch=x_pitch, accumulate=accumulate
        )
    assert not accumulate, "what is in 16 bits is not added to (KernelRegistry.takes)"
    return launch(
        "copy_bytes", rows, itemsize * width, out=out, out_pitch=itemsize * out_pitch, x=x, x_pitch=itemsize * x_pitch
    )


def copy_unless_shared(call: CpuCall, out: str, x: str) -> list[Launch]:
    """Copy `x` to `out`, or do nothing if they share their bytes."""
    if call[out] == call[x] and not call.accumulates(out):
        return []
    if call.itemsize(out) != FLOAT and not call.accumulates(out):
        return [
            copy_rows(
                1,
                call.count(out),
                itemsize=call.itemsize(out),
                out=call[out],
                out_pitch=0,
                x=call[x],
                x_pitch=0,
                accumulate=False,
            )
        ]
    return [
        launch(
            "pointwise",
            "scale",
            call.count(out),
            out=call[out],
            a=call[x],
            alpha=1.0,
            accumulate=call.accumulates(out),
            storage=call.storage,
        )
    ]


def reorder_workspace_bytes(to: Tensor, source: Tensor) -> int:
    """Bytes of a copy in Caffe's order, which is needed if neither side has it."""
    return aligned(to.nbytes) if to.interleaved and source.interleaved and not to.ordered_like(source) else 0


def reorder(out: int, to: Tensor, x: int, source: Tensor, workspace: int, accumulate: bool = False) -> list[Launch]:
    """Move the elements of `source`, at address x, into the memory order of `to`, at address out."""
    if to.ordered_like(source):
        return [launch("pointwise", "scale", to.count, out=out, a=x, alpha=1.0, accumulate=accumulate)]
    launches: list[Launch] = []
    in_order = x  # address of the elements in Caffe's order
    if source.interleaved:
        n, c, h, w = source.shape
        if not to.interleaved:
            return [launch("transpose", n, h * w, c, out=out, x=x, accumulate=accumulate)]
        in_order = workspace
        launches.append(launch("transpose", n, h * w, c, out=in_order, x=x))
    n, c, h, w = to.shape
    return [*launches, launch("transpose", n, c, h * w, out=out, x=in_order, accumulate=accumulate)]


def operand_workspace_bytes(source: Tensor, to: Tensor) -> int:
    """Bytes that `reorder_operand` uses: a copy in the order of `to`, and the workspace to make it."""
    return 0 if source.ordered_like(to) else aligned(to.nbytes) + reorder_workspace_bytes(to, source)


def reorder_operand(call: CpuCall, role: str, source: Tensor, to: Tensor, offset: int) -> tuple[int, list[Launch]]:
    """The address of `role` in the order of `to`, and the launches for it: a copy in the workspace, from byte `offset`
    on, unless the operand already has that order."""
    if source.ordered_like(to):
        return call[role], []
    copy = call.workspace + offset
    return copy, reorder(copy, to, call[role], source, copy + aligned(to.nbytes))
