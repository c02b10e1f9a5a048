"""A device that leaves out the waits of one row: what a schedule with a missing `after` does."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.backends.base import Bound
from layermem.backends.cuda import CudaDevice
from layermem.schedule.ir import Instruction


class ForgetfulDevice(CudaDevice):
    name = "cuda"

    def __init__(self, forgotten: int, graph: bool = False):
        super().__init__(graph=graph)
        self.forgotten = forgotten

    def order_streams(self, instructions: Sequence[Instruction], calls: Sequence[Bound]) -> Sequence[Bound]:
        kept = [
            instruction._replace(after=()) if instruction.tick == self.forgotten else instruction
            for instruction in instructions
        ]
        return super().order_streams(kept, calls)
