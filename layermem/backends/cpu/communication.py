"""Ops of all ranks: distributed/collectives.py moves bytes between their memories; native code adds rows."""

from __future__ import annotations

from functools import partial

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.backends.reference import communication
from layermem.ops import AllGather, Communication, NormOfRows, ReduceScatter, RowSquares


def _note_order(op: Communication, call: CpuCall) -> Launch:
    return partial(communication.note_order, op, call.arrays.get("order"))


@kernel(ReduceScatter, "reduce", workspace=communication.reduce_workspace_bytes)
def reduce_scatter(op: ReduceScatter, call: CpuCall) -> list[Launch]:
    nbytes = call.count("workspace") if "workspace" in call else 0
    return [partial(communication.reduce, op, call.addresses, call.context, nbytes), _note_order(op, call)]


@kernel(AllGather, "gather")
def all_gather(op: AllGather, call: CpuCall) -> list[Launch]:
    return [partial(communication.gather, op, call.addresses, call.context), _note_order(op, call)]


@kernel(AllGather, "collect")
def collect(op: AllGather, call: CpuCall) -> list[Launch]:
    launches: list[Launch] = []
    for i, bounds in enumerate(op.bounds):
        begin, end = bounds[op.ranks.rank : op.ranks.rank + 2]
        if begin < end:
            x, y = call.arrays[f"x{i}"].reshape(-1), call.arrays[f"y{i}"].reshape(-1)[begin:end]
            launches.append(partial(y.__setitem__, slice(None), x))
    whole = {f"x{i}": call[f"y{i}"] for i in range(len(op.tensors))}
    return [*launches, partial(communication.gather, op, whole, call.context), _note_order(op, call)]


@kernel(RowSquares, "forward")
def row_squares(op: RowSquares, call: CpuCall) -> list[Launch]:
    rows = op.x.count // op.row_elements
    return [launch("row_squares", rows, op.row_elements, out=call["y0"], x=call["x0"])]


@kernel(NormOfRows, "forward")
def norm_of_rows(op: NormOfRows, call: CpuCall) -> list[Launch]:
    squares = call.numbered("x")
    return [launch("norm_of_rows", [call.count(f"x{i}") for i in range(len(squares))], out=call["y0"], squares=squares)]
