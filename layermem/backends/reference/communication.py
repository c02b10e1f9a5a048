"""Ops of all ranks: distributed/collectives.py moves bytes between their memories; NumPy adds rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.backends.registry import StepContext
from layermem.distributed import collectives
from layermem.ops import AllGather, Communication, NormOfRows, ReduceScatter, RowSquares

Addresses = Mapping[str, int]  # addresses of operands, by role


def reduce_workspace_bytes(op: ReduceScatter, roles: Collection[str]) -> int:
    return collectives.reduce_workspace_bytes(op.bounds, op.ranks.rank)


def reduce(op: ReduceScatter, at: Addresses, context: StepContext, workspace_bytes: int) -> None:
    """Compute own rows of the sums, on every device whose memory is the host's."""
    count = range(len(op.tensors))
    collectives.reduce_scatter(
        context["transport"],
        op.bounds,
        [at[f"x{i}"] for i in count],
        [at.get(f"y{i}", 0) for i in count],
        at.get("workspace", 0),
        workspace_bytes,
        continues=op.continues,
    )


def gather(op: AllGather, at: Addresses, context: StepContext) -> None:
    """Fetch the rows of the other ranks."""
    collectives.all_gather(context["transport"], op.bounds, [at[f"x{i}"] for i in range(len(op.tensors))])


def note_order(op: Communication, order: Array | None) -> None:
    """Write the buffer that keeps the ops of all ranks in one order (graph/sharing.py)."""
    if order is not None:
        order[...] = op.bucket


@kernel(ReduceScatter, "reduce", workspace=reduce_workspace_bytes)
def reduce_scatter(op: ReduceScatter, call: ReferenceCall) -> None:
    reduce(op, _addresses(call), call.context, call["workspace"].nbytes if "workspace" in call else 0)
    note_order(op, call.arrays.get("order"))


@kernel(AllGather, "gather")
def all_gather(op: AllGather, call: ReferenceCall) -> None:
    gather(op, _addresses(call), call.context)
    note_order(op, call.arrays.get("order"))


@kernel(AllGather, "collect")
def collect(op: AllGather, call: ReferenceCall) -> None:
    whole = {}
    for i, bounds in enumerate(op.bounds):
        begin, end = bounds[op.ranks.rank : op.ranks.rank + 2]
        y = whole[f"x{i}"] = call[f"y{i}"]
        if begin < end:
            y.reshape(-1)[begin:end] = call[f"x{i}"].reshape(-1)
    gather(op, {role: int(y.ctypes.data) for role, y in whole.items()}, call.context)
    note_order(op, call.arrays.get("order"))


def _addresses(call: ReferenceCall) -> Addresses:
    return {role: int(array.ctypes.data) for role, array in call.arrays.items()}


@kernel(RowSquares, "forward")
def row_squares(op: RowSquares, call: ReferenceCall) -> None:
    rows = np.reshape(call["x0"], (-1, op.row_elements))
    call["y0"][...] = [np.sum(np.square(row, dtype=np.float64)) for row in rows]


@kernel(NormOfRows, "forward")
def norm_of_rows(op: NormOfRows, call: ReferenceCall) -> None:
    total = 0.0
    for squares in call.all("x"):
        for square in squares.tolist():
            total += square
    call["y0"][...] = np.sqrt(total)
