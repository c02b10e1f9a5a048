"""Reduction and ArgMax: many elements become few."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import operand_workspace_bytes, reorder, reorder_operand
from layermem.backends.cpu.support.launch import Axis, launch, query
from layermem.ops import ArgMax, Reduction, Tensor
from layermem.utils.units import aligned

TERMS = {"SUM": "plain", "MEAN": "plain", "ASUM": "absolute", "SUMSQ": "square"}


def reduced_axis(op: Reduction) -> Axis:
    """All axes from `along` on as one: in memory they lie between the axes before and, for an image, the channels."""
    shape, along = op.x.shape, op.along
    if len(shape) != 4 or along < 2:
        return (prod(shape[:along]), prod(shape[along:]), 1)
    n, c, h, w = shape
    return (n, h * w, c) if along == 2 else (n * h, w, c)


def sums(op: Reduction) -> Tensor:
    """The top in the order in which the sums are computed: the order of x, whose axes before `along` the top has."""
    if len(op.x.shape) == 4:
        return Tensor((*op.y.shape, *(1,) * (4 - op.along)))
    return Tensor((op.y.count,))


def reduction_workspace_bytes(op: Reduction, roles: Collection[str]) -> int:
    return query("reduce_workspace_bytes", reduced_axis(op)) + operand_workspace_bytes(op.y, sums(op))


@kernel(Reduction, "forward", workspace=reduction_workspace_bytes)
def reduction_forward(op: Reduction, call: CpuCall) -> list[Launch]:
    axis, reordered = reduced_axis(op), not sums(op).ordered_like(op.y)
    y = call.workspace + query("reduce_workspace_bytes", axis) if reordered else call["y0"]
    bound = launch("reduce", axis, TERMS[op.operation], y=y, x=call["x0"], factor=op.factor, workspace=call.workspace)
    return [bound, *(reorder(call["y0"], op.y, y, sums(op), 0) if reordered else [])]


@kernel(Reduction, "backward", workspace=reduction_workspace_bytes)
def reduction_backward(op: Reduction, call: CpuCall) -> list[Launch]:
    axis, accumulate = reduced_axis(op), call.accumulates("dx0")
    dy, before = reorder_operand(call, "dy0", op.y, sums(op), query("reduce_workspace_bytes", axis))
    term = TERMS[op.operation]
    bound = launch(
        "reduce_backward", axis, term, dx=call["dx0"], x=call["x0"], dy=dy, factor=op.factor, accumulate=accumulate
    )
    return [*before, bound]


# -- ArgMax ------------------------------------------------------------------------------------------------------------
#
# The kernel searches rows of x if its elements are adjacent, otherwise of a copy in the workspace.


def search_axis(op: ArgMax) -> tuple[int, int, int]:
    """(outer, size, inner) of the axis in memory, or of whole items in Caffe's order."""
    return (op.x.shape[0], prod(op.x.shape[1:]), 1) if op.along is None else op.x.around(op.along)


def items(op: ArgMax) -> Tensor:
    return Tensor((op.x.shape[0], search_axis(op)[1]))


def copy_workspace_bytes(op: ArgMax) -> int:
    if op.along is None:
        return operand_workspace_bytes(op.x, items(op))
    return aligned(op.x.nbytes) if search_axis(op)[2] > 1 else 0


def places_and_values(op: ArgMax) -> Tensor | None:
    """The top if it has both places and values, in the order in which they are computed; else None."""
    return Tensor(op.y.shape[:3]) if op.along is None and op.with_values else None


def argmax_workspace_bytes(op: ArgMax, roles: Collection[str]) -> int:
    both = places_and_values(op)
    reordered = operand_workspace_bytes(op.y, both) if both is not None else 0
    return query("top_k_workspace_bytes", op.top_k) + copy_workspace_bytes(op) + reordered


@kernel(ArgMax, "forward", workspace=argmax_workspace_bytes)
def argmax_forward(op: ArgMax, call: CpuCall) -> list[Launch]:
    outer, size, inner = search_axis(op)
    rows, before = searched_rows(op, call)
    both, k = places_and_values(op), op.top_k
    if both is None:
        index, value = (0, call["y0"]) if op.with_values else (call["y0"], 0)
        search = launch(
            "top_k",
            rows=outer * inner,
            size=size,
            k=k,
            index=index,
            value=value,
            x=rows,
            inner=inner,
            workspace=call.workspace,
        )
        return [*before, search]
    reordered = not both.ordered_like(op.y)
    y = call.workspace + query("top_k_workspace_bytes", k) + copy_workspace_bytes(op) if reordered else call["y0"]
    search = launch(
        "top_k",
        rows=outer,
        size=size,
        k=k,
        index=y,
        value=y + 4 * k,
        x=rows,
        inner=inner,
        pitch=2 * k,
        workspace=call.workspace,
    )
    return [*before, search, *(reorder(call["y0"], op.y, y, both, 0) if reordered else [])]


def searched_rows(op: ArgMax, call: CpuCall) -> tuple[int, list[Launch]]:
    """The address of the rows that are searched, and the launches that copy them there."""
    offset = query("top_k_workspace_bytes", op.top_k)
    if op.along is None:
        return reorder_operand(call, "x0", op.x, items(op), offset)
    outer, size, inner = search_axis(op)
    if inner == 1:
        return call["x0"], []
    copy = call.workspace + offset
    return copy, [launch("transpose", outer, size, inner, out=copy, x=call["x0"])]
