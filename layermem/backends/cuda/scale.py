"""Scale and Bias: one kernel over x; gradients of the operand as sums over the axes that it does not span."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import Columns, channel_sums
from layermem.backends.cuda.launch import THREADS, Addresses, Launch, ceil_div, kernel, launch, width, workspace_bytes
from layermem.backends.cuda.shape import copy
from layermem.backends.cuda.strided_index import memory_order, merge_axes, select_axes, strided_index, strides
from layermem.layers import Tensor


def operand_of(layer: Any) -> Tensor:
    return layer.bottoms[1] if layer.operand == "x1" else layer.params[0].tensor


def spanned(layer: Any) -> list[int]:
    """Caffe's axes of x that the operand spans."""
    return [axis for axis in range(len(layer.bottoms[0].shape)) if axis not in layer.summed]


def operand_axes(layer: Any) -> list[tuple[int, int]]:
    """The axes of x in memory, with the operand's strides; 0 for those that it does not span."""
    x, step = layer.bottoms[0], dict(zip(spanned(layer), strides(operand_of(layer)), strict=True))
    return [(x.shape[axis], step.get(axis, 0)) for axis in memory_order(len(x.shape))]


def scale(layer: Any, y: int, x: int, factor: int, bias: int, accumulate: bool = False) -> Launch:
    axes = merge_axes(operand_axes(layer))
    count, (last, run) = layer.bottoms[0].count, axes[-1] if axes else (1, 0)
    v = width(last) if run in (0, 1) else 1
    return launch(
        "scale", f"scale_v{v}", "ScaleArgs", ceil_div(count, THREADS * v), y=y, x=x, factor=factor, bias=bias,
        operand=strided_index(axes), count=count, accumulate=accumulate,
    )  # fmt: skip


def columns(layer: Any) -> Columns | None:
    """x as [outer][operand][inner], if the operand lies so in memory."""
    axes = merge_axes(operand_axes(layer))
    if all(stride == 0 for _, stride in axes):
        return Columns(layer.bottoms[0].count, 1)
    outer = axes.pop(0)[0] if axes[0][1] == 0 else 1
    inner = axes.pop()[0] if axes[-1][1] == 0 else 1
    return Columns(outer, axes[0][0], inner) if len(axes) == 1 and axes[0][1] == 1 else None


def operand_sums(layer: Any, b: Addresses, role: str, *, times_x: bool) -> Iterator[Launch]:
    """The gradient `role`: sums of dy, or of dy x."""
    at, x, kind = columns(layer), b["x0"] if times_x else 0, "_product" if times_x else ""
    if at is not None:
        yield from channel_sums(at, b[role], b["dy0"], b.accumulates(role), b["workspace"], kind=kind, b=x)
        return
    operand, blob, axes = operand_of(layer), layer.bottoms[0], spanned(layer)
    in_memory = [axes[i] for i in memory_order(len(operand.shape))]
    rest = [axis for axis in memory_order(len(blob.shape)) if axis in layer.summed]
    yield launch(
        "reduction", f"reduce_sum{kind}", "ReduceSumArgs", operand.count, y=b[role], x=b["dy0"], b=x,
        outer=strided_index(select_axes(blob, in_memory)), inner=strided_index(select_axes(blob, rest)),
        terms=blob.count // operand.count, accumulate=b.accumulates(role), factor=1.0,
    )  # fmt: skip


@kernel("Scale.forward")
def scale_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield scale(layer, b["y0"], b["x0"], b[layer.operand], b[layer.bias] if layer.bias else 0)


@kernel("Bias.forward")
def bias_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield scale(layer, b["y0"], b["x0"], 0, b[layer.operand])


@kernel("Scale.backward")
def scale_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    factor, bias = f"d{layer.operand}", f"d{layer.bias}"
    if factor in b:
        yield from operand_sums(layer, b, factor, times_x=True)
    if bias in b:
        yield from operand_sums(layer, b, bias, times_x=False)
    if "dx0" in b:  # last: it may lie on dy or x
        yield scale(layer, b["dx0"], b["dy0"], b[layer.operand], 0, b.accumulates("dx0"))


@kernel("Bias.backward")
def bias_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    operand = f"d{layer.operand}"
    if operand in b:
        yield from operand_sums(layer, b, operand, times_x=False)
    if "dx0" in b:
        yield from copy(b["dx0"], b["dy0"], layer.bottoms[0].count, b.accumulates("dx0"))


@workspace_bytes("Scale.backward", "Bias.backward")
def backward_bytes(layer: Any, roles: Collection[str]) -> int:
    at = columns(layer)
    sums = {f"d{layer.operand}", f"d{layer.bias}"} & set(roles)
    return at.part_bytes() if at is not None and sums else 0
