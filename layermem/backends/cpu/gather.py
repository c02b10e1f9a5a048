"""Embed and BatchReindex: rows of a table, chosen by index."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.copy import operand_workspace_bytes, reorder, reorder_operand
from layermem.backends.cpu.support import slices
from layermem.backends.cpu.support.launch import launch
from layermem.ops import CARRY, BatchReindex, Embed, Gather, Tensor

# -- Embed -------------------------------------------------------------------------------------------------------------
#
# Kernels read consecutive indices and rows of y: a blob of four axes, which has another order, is copied to the
# workspace.


def indices(op: Gather) -> Tensor:
    return Tensor((op.count,))


def chosen(op: Gather) -> Tensor:
    return Tensor((op.count, op.width))


def index_bytes(op: Embed) -> int:
    return operand_workspace_bytes(op.index, indices(op))


def forward_workspace_bytes(op: Embed, roles: Collection[str]) -> int:
    return index_bytes(op) + operand_workspace_bytes(op.y, chosen(op))


def wgrad_workspace_bytes(op: Embed, roles: Collection[str]) -> int:
    sums_bias = "dw1" in roles or "dw1" + CARRY in roles
    bias = slices.column_sums_workspace_bytes(op, op.count, op.width) if sums_bias else 0
    return forward_workspace_bytes(op, roles) + bias


def wgrad_carry_bytes(op: Embed, role: str) -> int:
    """Rows of dw0 are summed in place."""
    if role == "dw1":
        return slices.column_sums_carry_bytes(op, op.count, op.width)
    return op.rows * op.width * slices.FLOAT


@kernel(Embed, "forward", workspace=forward_workspace_bytes)
def embed_forward(op: Embed, call: CpuCall) -> list[Launch]:
    index, before = reorder_operand(call, "x0", op.index, indices(op), 0)
    in_order = chosen(op).ordered_like(op.y)
    y = call["y0"] if in_order else call.workspace + index_bytes(op)
    gather = launch(
        "gather_rows",
        rows=op.rows,
        width=op.width,
        count=op.count,
        out=y,
        table=call["w0"],
        index=index,
        bias=call["w1"],
    )
    after = [] if in_order else reorder(call["y0"], op.y, y, chosen(op), 0)
    return [*before, naming_layer(call, gather), *after]


def wgrad_in_place(op: Embed, role: str) -> bool:
    return role == "dw0" or slices.column_sums_in_place(op, op.count, op.width)


@kernel(Embed, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes, in_place=wgrad_in_place)
def embed_wgrad(op: Embed, call: CpuCall) -> list[Launch]:
    dy, launches = reorder_operand(call, "dy0", op.y, chosen(op), index_bytes(op))
    if "dw0" in call or "dw0" + CARRY in call:
        index, before = reorder_operand(call, "x0", op.index, indices(op), 0)
        out, accumulate, copies = slices.sum_in_place(op, call, "dw0", op.rows * op.width)
        scatter = launch(
            "scatter_rows",
            rows=op.rows,
            width=op.width,
            count=op.count,
            out=out,
            x=dy,
            index=index,
            accumulate=accumulate,
        )
        launches += [*before, *copies, naming_layer(call, scatter)]
    if "dw1" in call or "dw1" + CARRY in call:
        workspace = call.workspace + forward_workspace_bytes(op, ())
        launches += slices.column_sums(op, call, "dw1", op.count, op.width, dy, call.accumulates("dw1"), workspace)
    return launches


# -- BatchReindex ------------------------------------------------------------------------------------------------------


@kernel(BatchReindex, "forward")
def batch_reindex_forward(op: BatchReindex, call: CpuCall) -> list[Launch]:
    gather = launch(
        "gather_rows", rows=op.rows, width=op.width, count=op.count, out=call["y0"], table=call["x0"], index=call["x1"]
    )
    return [naming_layer(call, gather)]


@kernel(BatchReindex, "backward")
def batch_reindex_backward(op: BatchReindex, call: CpuCall) -> list[Launch]:
    scatter = launch(
        "scatter_rows",
        rows=op.rows,
        width=op.width,
        count=op.count,
        out=call["dx0"],
        x=call["dy0"],
        index=call["x1"],
        accumulate=call.accumulates("dx0"),
    )
    return [naming_layer(call, scatter)]
