"""Concat, Slice, Split, Reshape, Tile and Silence: ops that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.copy import copy, copy_runs, reorder
from layermem.backends.cuda.eltwise import sum_blobs
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import Concat, Partition, Reshape, Silence, Slice, Split, Tile

# -- Concat, Slice, Split ----------------------------------------------------------------------------------------------


def run_of(op: Partition, i: int) -> tuple[int, int, int, int]:
    """Part i within the whole: (runs, elements of a run, pitch of the whole, offset in bytes)."""
    outer, total, inner = op.whole.around(op.along)
    return outer, op.parts[i].shape[op.along] * inner, total * inner, FLOAT * op.starts[i] * inner


def copy_parts(op: Partition, call: CudaCall, whole: str, part: str) -> Iterator[Launch]:
    """Each part into its place of the whole."""
    for i in range(len(op.parts)):
        outer, run, pitch, offset = run_of(op, i)
        yield from copy_runs(
            call[whole] + offset, call[f"{part}{i}"], outer, run, pitch, run, call.accumulates(whole)
        )  # fmt: skip


def copy_from_whole(op: Partition, call: CudaCall, part: str, whole: str) -> Iterator[Launch]:
    """Each part that the op has from its place of the whole."""
    for i in range(len(op.parts)):
        role = f"{part}{i}"
        if role in call:
            outer, run, pitch, offset = run_of(op, i)
            yield from copy_runs(call[role], call[whole] + offset, outer, run, run, pitch, call.accumulates(role))


@kernel(Concat, "forward")
def concat_forward(op: Concat, call: CudaCall) -> Iterator[Launch]:
    yield from copy_parts(op, call, "y0", "x")


@kernel(Concat, "backward")
def concat_backward(op: Concat, call: CudaCall) -> Iterator[Launch]:
    yield from copy_from_whole(op, call, "dx", "dy0")


@kernel(Slice, "forward")
def slice_forward(op: Slice, call: CudaCall) -> Iterator[Launch]:
    yield from copy_from_whole(op, call, "y", "x0")


@kernel(Slice, "backward")
def slice_backward(op: Slice, call: CudaCall) -> Iterator[Launch]:
    yield from copy_parts(op, call, "dx0", "dy")


@kernel(Split, "forward")
def split_forward(op: Split, call: CudaCall) -> Iterator[Launch]:
    for i in range(op.tops):
        yield from copy(call[f"y{i}"], call["x0"], op.x.count)


@kernel(Split, "backward")
def split_backward(op: Split, call: CudaCall) -> Iterator[Launch]:
    gradients = [call[f"dy{i}"] for i in range(op.tops)]
    if call.accumulates("dx0"):
        gradients = [call["dx0"], *gradients]
    if len(gradients) == 1:
        yield from copy(call["dx0"], gradients[0], op.x.count)
    else:
        yield sum_blobs(call["dx0"], gradients, op.x.count)


# -- Reshape, Tile, Silence --------------------------------------------------------------------------------------------


@kernel(Reshape, "forward")
def reshape_forward(op: Reshape, call: CudaCall) -> Iterator[Launch]:
    yield from reorder(call["y0"], op.y, call["x0"], op.x)


@kernel(Reshape, "backward")
def reshape_backward(op: Reshape, call: CudaCall) -> Iterator[Launch]:
    yield from reorder(call["dx0"], op.x, call["dy0"], op.y, call.accumulates("dx0"))


@kernel(Tile, "forward")
def tile_forward(op: Tile, call: CudaCall) -> Iterator[Launch]:
    outer, size, inner = op.x.around(op.along)
    run = size * inner
    for i in range(op.tiles):
        yield from copy_runs(call["y0"] + FLOAT * i * run, call["x0"], outer, run, op.tiles * run, run)


@kernel(Tile, "backward")
def tile_backward(op: Tile, call: CudaCall) -> Iterator[Launch]:
    _, size, inner = op.x.around(op.along)
    v = vector_width(size * inner)
    yield launch(
        "shape", f"sum_runs_v{v}", "SumRunsArgs", ceil_div(op.x.count, THREADS * v), y=call["dx0"], x=call["dy0"],
        by_run=divider(size * inner), count=op.x.count, terms=op.tiles, accumulate=call.accumulates("dx0"),
    )  # fmt: skip


@kernel(Silence, "forward")
def silence(op: Silence, call: CudaCall) -> Iterator[Launch]:
    return iter(())
