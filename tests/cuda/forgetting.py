"""A device that leaves out the waits of one row: what a schedule with a missing `after` does."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.backends.base import Bound
from layermem.backends.cuda import CudaDevice
from layermem.schedule.ir import Row


class ForgetfulDevice(CudaDevice):
    name = "cuda"

    def __init__(self, forgotten: int, graph: bool = False):
        super().__init__(graph=graph)
        self.forgotten = forgotten

    def in_streams(self, rows: Sequence[Row], calls: Sequence[Bound]) -> Sequence[Bound]:
        kept = [row._replace(after=()) if row.tick == self.forgotten else row for row in rows]
        return super().in_streams(kept, calls)
