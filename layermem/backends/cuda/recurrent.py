"""LstmUnit: one thread per cell.  Carry: copies."""

from __future__ import annotations

from collections.abc import Iterator

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import Carry, LstmUnit


@kernel(LstmUnit, "forward")
def lstm_unit_forward(op: LstmUnit, call: CudaCall) -> Iterator[Launch]:
    yield launch(
        "recurrent",
        "lstm_unit_forward",
        "LstmUnitArgs",
        ceil_div(op.count, THREADS),
        next_c=call["y0"],
        h=call["y1"],
        c=call["x0"],
        gates=call["x1"],
        cont=call["x2"],
        by_cells=divider(op.cells),
        count=op.count,
    )


@kernel(LstmUnit, "backward")
def lstm_unit_backward(op: LstmUnit, call: CudaCall) -> Iterator[Launch]:
    yield launch(
        "recurrent",
        "lstm_unit_backward",
        "LstmUnitBackwardArgs",
        ceil_div(op.count, THREADS),
        dc=call["dx0"],
        dgates=call["dx1"],
        c=call["x0"],
        gates=call["x1"],
        cont=call["x2"],
        d_next_c=call["dy0"],
        dh=call["dy1"],
        by_cells=divider(op.cells),
        count=op.count,
        accumulate_dc=call.accumulates("dx0"),
        accumulate_dgates=call.accumulates("dx1"),
    )


@kernel(Carry, "load")
def carry_load(op: Carry, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["y0"], call["w0"], op.x.count)


@kernel(Carry, "store")
def carry_store(op: Carry, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["w0"], call["x0"], op.x.count)
