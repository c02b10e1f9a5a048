"""LstmUnit: one step of an LSTM after its inner products.  Carry: copies net state to a blob and back."""

from __future__ import annotations

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.copy import copy_unless_shared
from layermem.backends.cpu.support.launch import launch
from layermem.ops import Carry, LstmUnit


@kernel(LstmUnit, "forward")
def lstm_unit_forward(op: LstmUnit, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "lstm_unit_forward",
            items=op.items,
            cells=op.cells,
            next_c=call["y0"],
            h=call["y1"],
            c=call["x0"],
            gates=call["x1"],
            cont=call["x2"],
        )
    ]


@kernel(LstmUnit, "backward")
def lstm_unit_backward(op: LstmUnit, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "lstm_unit_backward",
            items=op.items,
            cells=op.cells,
            dc=call["dx0"],
            dgates=call["dx1"],
            c=call["x0"],
            gates=call["x1"],
            cont=call["x2"],
            d_next_c=call["dy0"],
            dh=call["dy1"],
            accumulate_dc=call.accumulates("dx0"),
            accumulate_dgates=call.accumulates("dx1"),
        )
    ]


@kernel(Carry, "load")
def carry_load(op: Carry, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "y0", "w0")


@kernel(Carry, "store")
def carry_store(op: Carry, call: CpuCall) -> list[Launch]:
    return copy_unless_shared(call, "w0", "x0")
