"""Embed and BatchReindex: rows of a table, chosen by index."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel, whole_batch
from layermem.backends.cuda.copy import copy, reorder
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.labels import labels
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import BatchReindex, Embed, Gather, Tensor
from layermem.utils.units import aligned

WARPS = 8  # per block
COLUMNS = 1024  # per warp


def gather(op: Gather, call: CudaCall, y: int, table: int, index: int, bias: int = 0) -> Launch:
    v, elements = vector_width(op.width), op.count * op.width
    return launch(
        "gather",
        f"gather_rows_v{v}",
        "GatherArgs",
        ceil_div(elements, THREADS * v),
        y=y,
        table=table,
        bias=bias,
        index=labels(call, index, op.rows),
        by_width=divider(op.width),
        elements=elements,
    )


def scatter(op: Gather, call: CudaCall, table: int, y: int, index: int, accumulate: bool) -> Launch:
    grid = ceil_div(op.rows, WARPS), ceil_div(op.width, COLUMNS)
    return launch(
        "gather",
        "scatter_rows",
        "ScatterArgs",
        grid,
        table=table,
        y=y,
        index=labels(call, index, op.rows),
        rows=op.rows,
        width=op.width,
        count=op.count,
        accumulate=accumulate,
    )


# -- Embed -------------------------------------------------------------------------------------------------------------
#
# Kernels read consecutive indices and rows of y: a blob of four axes in another order is copied into the workspace.


def indices(op: Gather) -> Tensor:
    return Tensor((op.count,))


def chosen(op: Gather) -> Tensor:
    return Tensor((op.count, op.width))


def in_order(blob: Tensor, rows: Tensor, address: int, workspace: Workspace) -> tuple[int, list[Launch]]:
    """The address of `blob` in the order of `rows`, and the launches that copy it there."""
    if blob.ordered_like(rows):
        return address, []
    copy = workspace.take(rows.nbytes)
    return copy, list(reorder(copy, rows, address, blob))


def embed_workspace_bytes(op: Embed, roles: Collection[str]) -> int:
    workspace = Workspace()
    in_order(op.index, indices(op), 0, workspace)
    in_order(op.y, chosen(op), 0, workspace)
    if "dw1" in roles:
        workspace.take(bias_columns(op).part_bytes())
    return workspace.nbytes


@kernel(Embed, "forward", workspace=embed_workspace_bytes)
def embed_forward(op: Embed, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    index, copies = in_order(op.index, indices(op), call["x0"], workspace)
    yield from copies
    if op.y.ordered_like(chosen(op)):
        yield gather(op, call, call["y0"], call["w0"], index, call["w1"])
        return
    y = workspace.take(FLOAT * op.y.count)
    yield gather(op, call, y, call["w0"], index, call["w1"])
    yield from reorder(call["y0"], op.y, y, chosen(op))


def bias_columns(op: Embed) -> Columns:
    return Columns(op.count, op.width).within(op.batch_slice)


def of_whole_batch(op: Embed) -> Embed:
    return replace(
        op, index=whole_batch(op.index, op.batch_slice), y=whole_batch(op.y, op.batch_slice), batch_slice=None
    )


def embed_carry_bytes(op: Embed, role: str) -> int:
    """Bytes of the carry.  For the table: all indices and dy, because its rows are updated one by one."""
    if role == "dw1":
        return bias_columns(op).carry_bytes()
    whole = of_whole_batch(op)
    return aligned(FLOAT * whole.count) + aligned(FLOAT * whole.count * whole.width)


def table_gradient(op: Embed, call: CudaCall, dy: int, index: int) -> Iterator[Launch]:
    """Compute dw0 from the rows of y at `dy`; the last slice of a batch uses the rows of all slices."""
    accumulate, batch_slice = call.accumulates("dw0"), op.batch_slice
    if batch_slice is None:
        yield scatter(op, call, call["dw0"], dy, index, accumulate)
        return
    whole, first = of_whole_batch(op), op.count // batch_slice.count * batch_slice.first
    indices_of_all = call.carry("dw0")
    rows_of_all = indices_of_all + aligned(FLOAT * whole.count)
    yield from copy(indices_of_all + FLOAT * first, index, op.count)
    yield from copy(rows_of_all + FLOAT * first * op.width, dy, op.count * op.width)
    if batch_slice.is_last:
        yield scatter(whole, call, call["dw0"], rows_of_all, indices_of_all, accumulate)


@kernel(Embed, "wgrad", workspace=embed_workspace_bytes, carry=embed_carry_bytes)
def embed_wgrad(op: Embed, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    index, copies = in_order(op.index, indices(op), call["x0"], workspace)
    dy, more_copies = in_order(op.y, chosen(op), call["dy0"], workspace)
    yield from more_copies
    if call.sums("dw0"):
        yield from copies
        yield from table_gradient(op, call, dy, index)
    if call.sums("dw1"):
        at = bias_columns(op)
        memory = call.carry("dw1", workspace.take(at.part_bytes()))
        yield from channel_sums(at, call["dw1"], dy, call.accumulates("dw1"), memory)


# -- BatchReindex ------------------------------------------------------------------------------------------------------


@kernel(BatchReindex, "forward")
def batch_reindex_forward(op: BatchReindex, call: CudaCall) -> Iterator[Launch]:
    yield gather(op, call, call["y0"], call["x0"], call["x1"])


@kernel(BatchReindex, "backward")
def batch_reindex_backward(op: BatchReindex, call: CudaCall) -> Iterator[Launch]:
    yield scatter(op, call, call["dx0"], call["dy0"], call["x1"], call.accumulates("dx0"))
