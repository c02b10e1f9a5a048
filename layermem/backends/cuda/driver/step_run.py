"""Runs the calls of a step in every iteration: one by one, or captured as a CUDA graph after the first run; calls that
wait for other ranks run on a separate thread.

Batches arrive through two sets of pinned buffers: while the GPU reads one, the host fills the other.  Images in bytes
are also copied to the GPU in the same step, on the stream H2D, as soon as their target bytes are free (`free_from`);
the next step uses them, unless another run has used the arena in between.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from layermem.backends.base import Bound, NextBatch
from layermem.backends.comm_thread import CommCalls
from layermem.backends.cuda.driver.context import Driver, Event, Stream
from layermem.backends.cuda.driver.graph import GraphCapture
from layermem.backends.cuda.driver.host_io import HostIO, InputStager
from layermem.schedule.ir import COMPUTE


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Defer garbage collection: freeing device memory while a stream is captured would break the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class StepRun(list[Bound]):
    """The calls of all instructions of a step, started together.

    stagers   the stagers of the step's input layers
    graph     whether to capture the step, as one graph for each of the two buffer indices.  A step that communicates
              cannot be captured
    free_from   input layer -> tick from which its next batch may be copied to the GPU.  A captured step, or one that
                waits for other ranks, copies it at its start
    """

    def __init__(
        self,
        driver: Driver,
        host_io: HostIO,
        calls: Sequence[Bound],
        stagers: Sequence[InputStager],
        graph: bool,
        free_from: Mapping[str, int],
    ):
        super().__init__(calls)
        self._threads = calls if isinstance(calls, CommCalls) else None
        self.driver, self.host_io, self.stagers, self.graph = driver, host_io, stagers, graph
        self._free_from = {} if graph or self._threads is not None else free_from
        self._free = {tick: driver.events() for tick in self._free_from.values()}  # recorded then, on every stream
        self._warm = False
        self.graphs: dict[int, GraphCapture] = {}  # by buffer index

    def start(self) -> None:
        """Queue the whole step on the streams."""
        if self._threads is not None:
            self._threads.run()
            return
        if not (self.graph and self._warm):
            for tick, call in enumerate(self):
                if tick in self._free:
                    self.driver.record(self._free[tick])
                call()
            self._warm = True
            return
        if self.host_io.buffer_index not in self.graphs:
            self.graphs[self.host_io.buffer_index] = self._capture()
        self.graphs[self.host_io.buffer_index].launch()

    def _capture(self) -> GraphCapture:
        capture = GraphCapture(self.driver.streams, COMPUTE, self.driver.event)
        self.driver.capture = capture
        try:
            with garbage_collection_disabled(), capture:
                for call in self:
                    call()
        finally:
            self.driver.capture = None
        return capture

    def stage_next_batch(self, next_batch: NextBatch | None) -> None:
        """Copy the next batch into the other buffers while the GPU works, and switch to them."""
        self.host_io.buffer_index ^= 1
        batch = next_batch() if next_batch is not None and self.stagers else None
        if batch is not None:
            for stager in self.stagers:
                stager.stage(batch[stager.layer], self.host_io.buffer_index)
                if stager.layer in self._free_from:
                    stager.upload(self._free[self._free_from[stager.layer]])


def wait_for(stream: Stream, event: Event) -> Callable[[], None]:
    return lambda: stream.wait_for_event(event)


def record_event(stream: Stream, event: Event) -> Callable[[], None]:
    return lambda: event.record(stream)
