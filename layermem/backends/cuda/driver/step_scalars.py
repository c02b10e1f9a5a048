"""Copies the scalars of a step to the GPU: one small copy, before the first kernel that reads them.

They are in a variable of the module cuda/step_scalars.cu, one for each stream that runs kernels, so the order of the
stream suffices.  A captured step contains the copy as a node, and its pinned bytes are written before each launch, so
no node of the graph changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.step_scalars import MODULE, NAME, pack_step_scalars, step_scalars_bytes
from layermem.backends.registry import StepContext
from layermem.graph.ops import COMM
from layermem.schedule.ir import COMPUTE

STREAMS = (COMPUTE, COMM)  # streams with kernels


class StreamScalars:
    """The scalars of one stream, at device address `address`."""

    def __init__(self, driver: Driver, address: int, stream: str):
        self.driver, self.address = driver, address
        self.is_new_step = True
        self._staging = driver.pinned(step_scalars_bytes())
        self._copy = driver.copy_in(address, self._staging, stream)

    def upload(self, context: StepContext) -> None:
        """Queue a copy of this step's scalars, unless an earlier kernel of the step has done so."""
        if not self.is_new_step:
            return
        self.is_new_step = False
        self.driver.on_host(lambda: self._write(context))
        self._copy()

    def _write(self, context: StepContext) -> None:
        self._staging[:] = np.frombuffer(pack_step_scalars(context), np.uint8)


def scalars_by_stream(driver: Driver) -> Mapping[str, StreamScalars]:
    first, size = driver.variable(MODULE, NAME), step_scalars_bytes()
    return {stream: StreamScalars(driver, first + i * size, stream) for i, stream in enumerate(STREAMS)}
