"""Host I/O: copies input batches to the device and outputs back, through pinned staging buffers.

Blobs are NCHW on the host, as in Caffe, and channels-last on the device.  Where the order differs, the transposing
kernel reads or writes the pinned buffer itself, so that it is also the copy across the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from layermem.backends.base import Bound, sequence
from layermem.backends.cuda.copy import reorder
from layermem.backends.cuda.driver.context import Array, Driver
from layermem.backends.cuda.driver.memory import DeviceSpan
from layermem.backends.cuda.launch import Launch
from layermem.backends.registry import StepContext
from layermem.ops import Tensor
from layermem.schedule.ir import COMPUTE

BindLaunches = Callable[[Iterable[Launch], StepContext], Bound]


class HostIO:
    """Inputs and outputs of one device, all on its compute stream.

    bind_launches   turns launches into a call
    buffer_index    which of the two pinned buffers of each input the current step reads
    """

    def __init__(self, driver: Driver, bind_launches: BindLaunches):
        self.driver, self.bind_launches = driver, bind_launches
        self.buffer_index = 0
        self._pending_outputs: list[tuple[dict[str, Array], str, Array]] = []
        self._new_stagers: list[InputStager] = []

    def feed(self, layer: str, spans: Sequence[DeviceSpan], context: StepContext) -> Bound:
        """A call that copies this step's batch of an input layer to its tops."""
        stager = InputStager(self, layer, spans, context)
        self._new_stagers.append(stager)
        return stager.run

    def take_new_stagers(self) -> list[InputStager]:
        """The stagers made since the last call."""
        stagers, self._new_stagers = self._new_stagers, []
        return stagers

    def copy_out(self, blob: str, span: DeviceSpan, context: StepContext) -> Bound:
        """A call that copies a blob to the host; `collect_outputs` puts it into the context's results."""
        staging = self.pinned(span)
        move = self.move(span, staging, context, inwards=False)

        def expect() -> None:
            self._pending_outputs.append((context["results"], blob, staging))

        def run() -> None:
            move()
            self.driver.on_host(expect)

        return run

    def collect_outputs(self) -> None:
        """Put the outputs of a completed run into its results."""
        for results, blob, staging in self._pending_outputs:
            results[blob] = staging.copy()
        self._pending_outputs.clear()

    def pinned(self, span: DeviceSpan) -> Array:
        """Pinned memory for a blob, with Caffe's axes."""
        return self.driver.pinned(span.nbytes).view(np.float32).reshape(span.blob.shape)

    def move(self, span: DeviceSpan, staging: Array, context: StepContext, *, inwards: bool) -> Bound:
        """A call that copies between a blob on the device and its staging buffer."""
        tensor = span.blob
        if not tensor.interleaved:  # memory is in Caffe's order already
            if inwards:
                return self.driver.copy_in(span.address, staging, COMPUTE)
            return self.driver.copy_out(staging, span.address, COMPUTE)
        host, plain = int(staging.ctypes.data), Tensor((tensor.count,))
        if inwards:
            return self.bind_launches(reorder(span.address, tensor, host, plain), context)
        return self.bind_launches(reorder(host, plain, span.address, tensor), context)


class InputStager:
    """Double buffering of an input layer: two sets of pinned buffers, and the copies from each to the tops."""

    def __init__(self, host_io: HostIO, layer: str, spans: Sequence[DeviceSpan], context: StepContext):
        self.host_io, self.layer, self.context = host_io, layer, context
        self.buffers = [[host_io.pinned(span) for span in spans] for _ in range(2)]
        self.moves = [
            sequence([host_io.move(span, buffer, context, inwards=True) for span, buffer in zip(spans, buffers)])
            for buffers in self.buffers
        ]
        self._staged: tuple[int, Sequence[Array]] | None = None  # buffer index and arrays of a batch staged early

    def run(self) -> None:
        self.host_io.driver.on_host(self._fill)
        self.moves[self.host_io.buffer_index]()

    def stage(self, arrays: Sequence[Array], buffer_index: int) -> None:
        """Copy a batch to the buffers `buffer_index`, which no pending copy reads."""
        for buffer, array in zip(self.buffers[buffer_index], arrays, strict=True):
            buffer[...] = array
        self._staged = buffer_index, arrays

    def _fill(self) -> None:
        """Copy the context's batch to the buffers of this step, unless it was staged before."""
        batch, index = self.context["batch"][self.layer], self.host_io.buffer_index
        staged, self._staged = self._staged, None
        if staged is None or staged[0] != index or any(a is not b for a, b in zip(staged[1], batch, strict=True)):
            self.stage(batch, index)
            self._staged = None
