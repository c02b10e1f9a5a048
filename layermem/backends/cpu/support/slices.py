"""Slices of a batch: the rows of an op, and the sums that slices carry from one to the next.

The role "R.carry" of a result R holds the sums of the whole batch's kernel, in its order.  Often they are the
incomplete R itself: they are "in place".  If R accumulates, such sums begin with the old contents of R.  So the first
slice of an op that accumulates R also has the role R, which it reads, and the last one accumulates both "R.carry" and
R.
"""

from __future__ import annotations

from typing import TypedDict

from layermem.backends.cpu.base import CpuCall, Launch
from layermem.backends.cpu.support.launch import Channels, launch, query
from layermem.errors import LayermemError
from layermem.ops import CARRY, WHOLE, OpRecord

FLOAT = 4  # bytes


class RowsOfBatch(TypedDict):
    """Arguments of native kernels: the first row of a launch, and the number of rows of the whole batch."""

    first: int
    of: int


def rows_of_batch(op: OpRecord, rows: int) -> RowsOfBatch:
    """The position of the `rows` rows (or images, positions, elements) of this op in the whole batch."""
    if op.batch_slice is None:
        return {"first": 0, "of": rows}
    each = rows // op.batch_slice.count
    return {"first": each * op.batch_slice.first, "of": each * op.batch_slice.items}


def is_slice(op: OpRecord) -> bool:
    return op.batch_slice is not None and op.batch_slice.count < op.batch_slice.items


def items_of_batch(op: OpRecord, items: int) -> int:
    return items if op.batch_slice is None else op.batch_slice.items


class Counted(TypedDict):
    """Arguments of native losses: the address and the number of the labels that the divisor counts."""

    counted: int
    of: int


def counted_labels(
    op: OpRecord, call: CpuCall, labels: int, normalizer: int | None, ignore_label: int | None
) -> Counted:
    """The labels of the whole batch, if a divisor depends on them; `labels` is the number in this op."""
    whole = rows_of_batch(op, labels)["of"]
    if not is_slice(op) or normalizer is not None or ignore_label is None:
        return {"counted": 0, "of": whole}
    return {"counted": call.require("x1" + WHOLE), "of": whole}


def copy(out: int, x: int, count: int) -> list[Launch]:
    return [launch("pointwise", "scale", count, out=out, a=x, alpha=1.0)] if out != x else []


def begin_in_place(op: OpRecord, call: CpuCall, role: str, count: int) -> tuple[bool, list[Launch]]:
    """Whether the sums in place of `role`, `count` floats, begin with its old contents, and the launches that copy
    these to the carry, in the first slice."""
    batch_slice, carry = op.batch_slice, role + CARRY
    assert batch_slice is not None
    if batch_slice.is_first:
        return role in call, copy(call[carry], call[role], count) if role in call else []
    if batch_slice.is_last and call.accumulates(role) and not call.accumulates(carry):
        raise LayermemError(
            f"an op of layer '{call.layer}' adds to '{role}' in slices that do not begin with it; give its first slice "
            f"'{role}' to read, and let its last one accumulate '{carry}'"
        )
    return False, []


def sum_in_place(op: OpRecord, call: CpuCall, role: str, count: int) -> tuple[int, bool, list[Launch]]:
    """The address at which `role`, `count` floats, is summed in place, whether to add to its contents, and the launches
    before."""
    if not is_slice(op) or op.batch_slice is None:
        return call[role], call.accumulates(role), []
    begun, before = begin_in_place(op, call, role, count)
    carried = call.require(role + CARRY)
    if not op.batch_slice.is_last:
        return carried, begun or not op.batch_slice.is_first, before
    return call.require(role), True, copy(call[role], carried, count)


# -- sums of columns: gradients of a bias ------------------------------------------------------------------------------


def column_sums_workspace_bytes(op: OpRecord, rows: int, columns: int) -> int:
    return 0 if is_slice(op) else query("column_sums_workspace_bytes", rows, columns)


def column_sums_carry_bytes(op: OpRecord, rows: int, columns: int) -> int:
    return query("column_sums_carry_bytes", rows, rows_of_batch(op, rows)["of"], columns)


def column_sums_in_place(op: OpRecord, rows: int, columns: int) -> bool:
    """Whether the sums begin with the values that they are added to."""
    return not query("column_sums_workspace_bytes", rows_of_batch(op, rows)["of"], columns)


def column_sums(
    op: OpRecord,
    call: CpuCall,
    role: str,
    rows: int,
    columns: int,
    x: int,
    accumulate: bool,
    workspace: int,
    storage: str = "",
) -> list[Launch]:
    """Compute `role` (+)= the sums over the rows at address x, which are stored in `storage`."""
    whole, begun, before = rows_of_batch(op, rows), False, list[Launch]()
    if is_slice(op) and column_sums_in_place(op, rows, columns):
        begun, before = begin_in_place(op, call, role, columns)
    sums = launch(
        "column_sums",
        rows,
        columns,
        out=call[role],
        x=x,
        accumulate=accumulate or begun,
        workspace=workspace,
        carry=call[role + CARRY],
        storage=storage,
        **whole,
    )
    return [*before, sums]


# -- sums over channels: gradients of Scale, Bias and PReLU ------------------------------------------------------------


def channel_sums(
    op: OpRecord, call: CpuCall, role: str, kind: str, outer: int, shape: Channels, out: int, accumulate: bool
) -> list[Launch]:
    """Add a slice's part of the sums `kind` over channels to the carry of `role`, if the op sums it; the last slice
    writes `out`."""
    if role + CARRY not in call:
        return []
    return [
        launch(
            "channel_sums",
            shape,
            kind,
            out=out,
            a=call["dy0"],
            x=call["x0"],
            accumulate=accumulate,
            carry=call[role + CARRY],
            **rows_of_batch(op, outer),
        )
    ]
