"""Scale and Bias: one launch over x; gradients of the operand are sums over the axes that it does not span."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda.base import CudaCall, kernel, whole_batch
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch, vector_width
from layermem.backends.cuda.support.strided_index import memory_order, merge_axes, select_axes, strided_index, strides
from layermem.ops import Bias, Scale, Tensor


def spanned(op: Scale | Bias) -> list[int]:
    """Caffe's axes of x that the operand spans."""
    return [axis for axis in range(len(op.x.shape)) if axis not in op.summed]


def operand_of(op: Scale | Bias) -> Tensor:
    """The operand with the axes that it spans."""
    return Tensor(tuple(op.x.shape[axis] for axis in spanned(op)))


def operand_axes(op: Scale | Bias) -> list[tuple[int, int]]:
    """The axes of x in memory, with the operand's strides; 0 for those that it does not span."""
    step = dict(zip(spanned(op), strides(operand_of(op)), strict=True))
    return [(op.x.shape[axis], step.get(axis, 0)) for axis in memory_order(len(op.x.shape))]


def scale(op: Scale | Bias, y: int, x: int, factor: int, bias: int, accumulate: bool = False) -> Launch:
    axes = merge_axes(operand_axes(op))
    last, run = axes[-1] if axes else (1, 0)
    v = vector_width(last) if run in (0, 1) else 1
    return launch(
        "scale",
        f"scale_v{v}",
        "ScaleArgs",
        ceil_div(op.x.count, THREADS * v),
        y=y,
        x=x,
        factor=factor,
        bias=bias,
        operand=strided_index(axes),
        count=op.x.count,
        accumulate=accumulate,
    )


@kernel(Scale, "forward")
def scale_forward(op: Scale, call: CudaCall) -> Iterator[Launch]:
    yield scale(op, call["y0"], call["x0"], call[op.operand], call[op.bias] if op.bias else 0)


@kernel(Bias, "forward")
def bias_forward(op: Bias, call: CudaCall) -> Iterator[Launch]:
    yield scale(op, call["y0"], call["x0"], 0, call[op.operand])


# -- backward ----------------------------------------------------------------------------------------------------------


def columns(op: Scale | Bias) -> Columns | None:
    """x as [outer][operand][inner], if the operand lies like that in memory.  For a slice of a batch: the whole batch
    if the sums are over items, otherwise a share of its columns, because one item alone may lie differently."""
    batch_slice = op.batch_slice
    if batch_slice is None:
        return columns_of(op)
    if 0 in op.summed:
        at = columns_of(op)
        return None if at is None else at.within(batch_slice)
    at = columns_of(replace(op, x=whole_batch(op.x, batch_slice)))
    return None if at is None else replace(at, columns=batch_slice.fraction_of(at.columns), alike=at.columns)


def columns_of(op: Scale | Bias) -> Columns | None:
    axes = merge_axes(operand_axes(op))
    if all(stride == 0 for _, stride in axes):
        return Columns(op.x.count, 1)
    outer = axes.pop(0)[0] if axes[0][1] == 0 else 1
    inner = axes.pop()[0] if axes[-1][1] == 0 else 1
    return Columns(outer, axes[0][0], inner) if len(axes) == 1 and axes[0][1] == 1 else None


def operand_sums(op: Scale | Bias, call: CudaCall, role: str, *, times_x: bool) -> Iterator[Launch]:
    """Sum dy, or dy x, for the gradient `role` or its carry."""
    at, x, kind = columns(op), call["x0"] if times_x else 0, "_product" if times_x else ""
    dw, dy, accumulate = call[role], call["dy0"], call.accumulates(role)
    if at is not None:
        yield from channel_sums(at, dw, dy, accumulate, call.carry(role, call.workspace), kind=kind, b=x)
        return
    operand, axes = operand_of(op), spanned(op)
    outer = [axes[i] for i in memory_order(len(operand.shape))]
    inner = [axis for axis in memory_order(len(op.x.shape)) if axis in op.summed]
    yield launch(
        "reduction",
        f"reduce_sum{kind}",
        "ReduceSumArgs",
        operand.count,
        y=dw,
        x=dy,
        b=x,
        outer=strided_index(select_axes(op.x, outer)),
        inner=strided_index(select_axes(op.x, inner)),
        terms=op.x.count // operand.count,
        accumulate=accumulate,
        factor=1.0,
    )


def backward_workspace_bytes(op: Scale | Bias, roles: Collection[str]) -> int:
    at = columns(op)
    sums = {f"d{op.operand}", f"d{op.bias}" if isinstance(op, Scale) else ""} & set(roles)
    return at.part_bytes() if at is not None and sums else 0


def carry_bytes(op: Scale | Bias, role: str) -> int | None:
    """Bytes of the carry; None if a block sums each element of the operand over separate axes."""
    at = columns(op)
    return None if at is None else at.carry_bytes()


@kernel(Scale, "backward", workspace=backward_workspace_bytes, carry=carry_bytes)
def scale_backward(op: Scale, call: CudaCall) -> Iterator[Launch]:
    factor, bias = f"d{op.operand}", f"d{op.bias}"
    if call.sums(factor):
        yield from operand_sums(op, call, factor, times_x=True)
    if op.bias and call.sums(bias):
        yield from operand_sums(op, call, bias, times_x=False)
    if "dx0" in call:  # last, because it may overlay dy or x
        yield scale(op, call["dx0"], call["dy0"], call[op.operand], 0, call.accumulates("dx0"))


@kernel(Bias, "backward", workspace=backward_workspace_bytes, carry=carry_bytes)
def bias_backward(op: Bias, call: CudaCall) -> Iterator[Launch]:
    operand = f"d{op.operand}"
    if call.sums(operand):
        yield from operand_sums(op, call, operand, times_x=False)
    if "dx0" in call:
        yield from copy(call["dx0"], call["dy0"], op.x.count, call.accumulates("dx0"))
