"""Concat, Slice, Split, Reshape, Tile and Silence: ops that only move elements."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, kernel
from layermem.backends.cuda.copy import copy, copy_runs, reorder
from layermem.backends.cuda.eltwise import sum_blobs
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.ops import Concat, Partition, Reshape, Silence, Slice, Split, Tile

# -- Concat, Slice, Split ----------------------------------------------------------------------------------------------


def run_of(op: Partition, i: int) -> tuple[int, int, int, int]:
    """Part i within the whole: (runs, elements of a run, pitch of the whole, offset in elements)."""
    outer, total, inner = op.whole.around(op.along)
    return outer, op.parts[i].shape[op.along] * inner, total * inner, op.starts[i] * inner


def copy_parts(op: Partition, call: CudaCall, whole: str, part: str) -> Iterator[Launch]:
    """Copy each part to its place in the whole."""
    for i in range(len(op.parts)):
        outer, run, pitch, offset = run_of(op, i)
        yield from copy_runs(
            call[whole] + call.itemsize * offset,
            call[f"{part}{i}"],
            outer,
            run,
            pitch,
            run,
            call.accumulates(whole),
            call.storage,
        )


def copy_from_whole(op: Partition, call: CudaCall, part: str, whole: str) -> Iterator[Launch]:
    """Copy each part that the op has from its place in the whole."""
    for i in range(len(op.parts)):
        role = f"{part}{i}"
        if role in call:
            outer, run, pitch, offset = run_of(op, i)
            yield from copy_runs(
                call[role],
                call[whole] + call.itemsize * offset,
                outer,
                run,
                run,
                pitch,
                call.accumulates(role),
                call.storage,
            )


@kernel(Concat, "forward", narrow=r"x\d+|y0")
def concat_forward(op: Concat, call: CudaCall) -> Iterator[Launch]:
    yield from copy_parts(op, call, "y0", "x")


@kernel(Concat, "backward", narrow=r"dx\d+|dy0")
def concat_backward(op: Concat, call: CudaCall) -> Iterator[Launch]:
    yield from copy_from_whole(op, call, "dx", "dy0")


@kernel(Slice, "forward", narrow=r"x0|y\d+")
def slice_forward(op: Slice, call: CudaCall) -> Iterator[Launch]:
    yield from copy_from_whole(op, call, "y", "x0")


@kernel(Slice, "backward", narrow=r"dx0|dy\d+")
def slice_backward(op: Slice, call: CudaCall) -> Iterator[Launch]:
    yield from copy_parts(op, call, "dx0", "dy")


@kernel(Split, "forward", narrow=r"x0|y\d+")
def split_forward(op: Split, call: CudaCall) -> Iterator[Launch]:
    for i in range(op.tops):
        yield from copy(call[f"y{i}"], call["x0"], op.x.count, storage=call.storage)


@kernel(Split, "backward", narrow=r"dx0|dy\d+")
def split_backward(op: Split, call: CudaCall) -> Iterator[Launch]:
    gradients = [call[f"dy{i}"] for i in range(op.tops)]
    if call.accumulates("dx0"):
        gradients = [call["dx0"], *gradients]
    if len(gradients) == 1:
        yield from copy(call["dx0"], gradients[0], op.x.count, storage=call.storage)
    else:
        yield sum_blobs(call["dx0"], gradients, op.x.count, call.suffix)


# -- Reshape, Tile, Silence --------------------------------------------------------------------------------------------


@kernel(Reshape, "forward", narrow="x0|y0")
def reshape_forward(op: Reshape, call: CudaCall) -> Iterator[Launch]:
    yield from reorder(call["y0"], op.y, call["x0"], op.x, storage=call.storage)


@kernel(Reshape, "backward", narrow="dx0|dy0")
def reshape_backward(op: Reshape, call: CudaCall) -> Iterator[Launch]:
    yield from reorder(call["dx0"], op.x, call["dy0"], op.y, call.accumulates("dx0"), call.storage)


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
        "shape",
        f"sum_runs_v{v}",
        "SumRunsArgs",
        ceil_div(op.x.count, THREADS * v),
        y=call["dx0"],
        x=call["dy0"],
        by_run=divider(size * inner),
        count=op.x.count,
        terms=op.tiles,
        accumulate=call.accumulates("dx0"),
    )


@kernel(Silence, "forward")
def silence(op: Silence, call: CudaCall) -> Iterator[Launch]:
    return iter(())
