"""Concat, Slice, Split, Reshape, Tile and Silence: ops that move elements without arithmetic."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import MAX_ARRAYS, CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.copy import copy_rows, copy_unless_shared, reorder, reorder_workspace_bytes
from layermem.backends.cpu.support.launch import Axis, launch, query
from layermem.ops import Concat, Partition, Reshape, Silence, Slice, Split, Tensor, Tile


@kernel(Concat, "forward", narrow=r"x\d+|y0")
def concat_forward(op: Concat, call: CpuCall) -> list[Launch]:
    return gather(op, call, "y0", "x")


@kernel(Concat, "backward", narrow=r"dx\d+|dy0")
def concat_backward(op: Concat, call: CpuCall) -> list[Launch]:
    return scatter(op, call, "dy0", "dx")


@kernel(Slice, "forward", narrow=r"x0|y\d+")
def slice_forward(op: Slice, call: CpuCall) -> list[Launch]:
    return scatter(op, call, "x0", "y")


@kernel(Slice, "backward", narrow=r"dx0|dy\d+")
def slice_backward(op: Slice, call: CpuCall) -> list[Launch]:
    return gather(op, call, "dx0", "dy")


def gather(op: Partition, call: CpuCall, whole: str, stem: str) -> list[Launch]:
    """Copy the parts, roles `stem`0 .., into `whole`."""
    rows, size, inner = op.whole.around(op.along)
    return [
        copy_rows(
            rows,
            width,
            itemsize=call.itemsize(whole),
            out=call[whole] + offset,
            out_pitch=size * inner,
            x=call[part],
            x_pitch=width,
            accumulate=call.accumulates(whole),
        )
        for part, width, offset in copied_parts(op, call, stem, call.itemsize(whole))
        if not (op.view and call[whole] == call[part] and not call.accumulates(whole))
    ]


def scatter(op: Partition, call: CpuCall, whole: str, stem: str) -> list[Launch]:
    """Copy `whole` into its parts, roles `stem`0 .."""
    rows, size, inner = op.whole.around(op.along)
    return [
        copy_rows(
            rows,
            width,
            itemsize=call.itemsize(whole),
            out=call[part],
            out_pitch=width,
            x=call[whole] + offset,
            x_pitch=size * inner,
            accumulate=call.accumulates(part),
        )
        for part, width, offset in copied_parts(op, call, stem, call.itemsize(whole))
        if not (op.view and call[whole] == call[part] and not call.accumulates(part))
    ]


def copied_parts(op: Partition, call: CpuCall, stem: str, itemsize: int) -> list[tuple[str, int, int]]:
    """(role, elements of a row, bytes before its first row in the whole) of the parts in this op."""
    _, _, inner = op.whole.around(op.along)
    sizes = [(f"{stem}{i}", part.shape[op.along], op.starts[i]) for i, part in enumerate(op.parts)]
    return [(role, size * inner, itemsize * start * inner) for role, size, start in sizes if role in call]


@kernel(Split, "forward", narrow=r"x0|y\d+")
def split_forward(op: Split, call: CpuCall) -> list[Launch]:
    tops = [f"y{i}" for i in range(op.tops) if f"y{i}" in call]
    return [launch for top in tops for launch in copy_unless_shared(call, top, "x0")]


def split_blobs(op: Split) -> str:
    """Pattern of the blobs that may be in 16 bits, if the native kernel runs."""
    return r"dx0|dy\d+" if op.tops < MAX_ARRAYS else ""


@kernel(Split, "backward", narrow=split_blobs, adds_narrow=True)
def split_backward(op: Split, call: CpuCall) -> Launches:
    dys = [call[f"dy{i}"] for i in range(op.tops) if f"dy{i}" in call]
    if call.accumulates("dx0"):
        dys.append(call["dx0"])
    if len(dys) > MAX_ARRAYS:
        return None
    if len(dys) == 1:
        return copy_unless_shared(call, "dx0", "dy0")
    return [
        launch(
            "eltwise_sum", call.count("dx0"), y=call["dx0"], xs=dys, coefficients=[1.0] * len(dys), storage=call.storage
        )
    ]


def reshape_workspace_bytes(op: Reshape, roles: Collection[str]) -> int:
    return reorder_workspace_bytes(op.y, op.x)


def forward_blobs(op: Reshape) -> str:
    """Pattern of the blobs that may be in 16 bits, if both sides have one order."""
    return "x0|y0" if op.view else ""


def backward_blobs(op: Reshape) -> str:
    return "dx0|dy0" if op.view else ""


@kernel(Reshape, "forward", workspace=reshape_workspace_bytes, narrow=forward_blobs)
def reshape_forward(op: Reshape, call: CpuCall) -> list[Launch]:
    return reshape(op, call, "y0", "x0", op.y, op.x)


@kernel(Reshape, "backward", workspace=reshape_workspace_bytes, narrow=backward_blobs, adds_narrow=True)
def reshape_backward(op: Reshape, call: CpuCall) -> list[Launch]:
    return reshape(op, call, "dx0", "dy0", op.x, op.y)


def reshape(op: Reshape, call: CpuCall, out: str, x: str, to: Tensor, source: Tensor) -> list[Launch]:
    if op.view:
        return copy_unless_shared(call, out, x)
    return reorder(call[out], to, call[x], source, call.workspace, call.accumulates(out))


@kernel(Tile, "forward")
def tile_forward(op: Tile, call: CpuCall) -> list[Launch]:
    outer, size, inner = op.x.around(op.along)
    tiles, width = op.tiles, size * inner
    return [
        launch(
            "copy_block",
            [outer, tiles, width],
            out=call["y0"],
            out_strides=[tiles * width, width, 1],
            x=call["x0"],
            x_strides=[width, 0, 1],
        )
    ]


def tiles_axis(op: Tile) -> Axis:
    outer, size, inner = op.x.around(op.along)
    return (outer, op.tiles, size * inner)


def tile_backward_workspace_bytes(op: Tile, roles: Collection[str]) -> int:
    return query("reduce_workspace_bytes", tiles_axis(op))


@kernel(Tile, "backward", workspace=tile_backward_workspace_bytes)
def tile_backward(op: Tile, call: CpuCall) -> list[Launch]:
    accumulate = call.accumulates("dx0")
    return [
        launch(
            "reduce",
            tiles_axis(op),
            "plain",
            y=call["dx0"],
            x=call["dy0"],
            factor=1,
            accumulate=accumulate,
            workspace=call.workspace,
        )
    ]


@kernel(Silence, "forward")
def silence(op: Silence, call: CpuCall) -> list[Launch]:
    return []
