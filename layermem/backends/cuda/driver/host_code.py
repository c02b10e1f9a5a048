"""Code that runs on the host in the middle of a step: operands to pinned memory, the code, results back.

All of it runs in the order of the compute stream, whose end the host awaits before it calls the code.  Ops share one
staging buffer, as large as the largest of them needs: copies that read it end before the next op writes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from layermem.backends.base import Bound, sequence
from layermem.backends.cuda.driver.context import Array, Driver
from layermem.backends.cuda.driver.host_io import HostIO
from layermem.backends.cuda.driver.memory import DeviceSpan, HostBytes
from layermem.backends.registry import StepContext
from layermem.ops import Python
from layermem.schedule.ir import COMPUTE
from layermem.utils.units import aligned


class HostCode:
    """Runs the Python layers of one device."""

    def __init__(self, driver: Driver, host_io: HostIO):
        self.driver, self.host_io = driver, host_io
        self._bytes: HostBytes | None = None
        self._nbytes = 0

    def bind(
        self, op: Python, step: str, spans: Mapping[str, DeviceSpan], accumulated: Collection[str], context: StepContext
    ) -> Bound:
        """Return a call that runs `step` of the op; the first one allocates the staging buffer."""
        self._reserve(op.staging_bytes(spans))
        bound: list[Bound] = []

        def run() -> None:
            if not bound:
                bound.append(self._bind(op, step, spans, accumulated, context))
            bound[0]()

        return run

    def _bind(
        self, op: Python, step: str, spans: Mapping[str, DeviceSpan], accumulated: Collection[str], context: StepContext
    ) -> Bound:
        staging = self._staging(op, spans)
        written = [role for role in spans if op.is_written(step, role)]
        read = [role for role in spans if role not in written or role in accumulated]
        move = self.host_io.move
        before = sequence([move(spans[role], staging[role], context, inwards=False) for role in read])
        after = sequence([move(spans[role], staging[role], context, inwards=True) for role in written])

        def run() -> None:
            before()
            self.driver.streams[COMPUTE].synchronize()
            parts = {role: staging[role].copy() for role in accumulated}
            op.run(step, staging)
            for role, part in parts.items():
                np.add(part, staging[role], out=staging[role])
            after()

        return run

    def _staging(self, op: Python, spans: Mapping[str, DeviceSpan]) -> dict[str, Array]:
        """A part of the staging buffer for each operand, with Caffe's axes."""
        if self._bytes is None:
            self._bytes = self.driver.pinned(self._nbytes)
        arrays: dict[str, Array] = {}
        begin = 0
        for role, span in spans.items():
            raw = self._bytes[begin : begin + span.nbytes]
            arrays[role] = raw.view(np.float32).reshape(op.tensor(role).shape)
            begin += aligned(span.nbytes)
        return arrays

    def _reserve(self, nbytes: int) -> None:
        if nbytes > self._nbytes:
            self._bytes, self._nbytes = None, nbytes
