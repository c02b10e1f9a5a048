"""A device that omits the waits of one instruction, as a schedule with an incomplete `after` would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layermem.backends.base import Bound
from layermem.backends.cuda import CudaDevice
from layermem.schedule.ir import Instruction


class MissingWaitDevice(CudaDevice):
    name = "cuda"

    def __init__(self, missing_wait: int, graph: bool = False):
        super().__init__(graph=graph)
        self.missing_wait = missing_wait

    def order_streams(
        self,
        instructions: Sequence[Instruction],
        calls: Sequence[Bound],
        cancel: Bound | None = None,
        free_from: Mapping[str, int] = {},
    ) -> Sequence[Bound]:
        kept = [
            instruction._replace(after=()) if instruction.tick == self.missing_wait else instruction
            for instruction in instructions
        ]
        return super().order_streams(kept, calls, cancel, free_from)
