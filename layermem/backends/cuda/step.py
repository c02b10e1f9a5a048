"""A step's calls as they are run again and again: one by one, or captured as a graph once they have all run.

Batches arrive through two sets of pinned buffers in turn: while the card works on one, the host fills the other.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from layermem.backends.base import Ahead, Bound
from layermem.backends.cuda.graph import Recording
from layermem.schedule.ir import COMPUTE

if TYPE_CHECKING:
    from layermem.backends.cuda.driver import Driver
    from layermem.backends.cuda.host_io import Door, FeedDoor


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Memory of the card that is freed while a stream is captured would break the capture: garbage waits."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class StepRun(list[Bound]):
    """The calls of all rows, and what runs them as one step.

    feeds   the doors of the step's input layers
    graph   whether to capture it; each of the door's two turns then has a graph of its own
    """

    def __init__(self, driver: Driver, door: Door, calls: Sequence[Bound], feeds: Sequence[FeedDoor], graph: bool):
        super().__init__(calls)
        self.driver, self.door, self.feeds, self.graph = driver, door, feeds, graph
        self._warm = False
        self.graphs: dict[int, Recording] = {}  # by turn

    def start(self) -> None:
        """Put the whole step on the streams."""
        if not (self.graph and self._warm):
            for call in self:
                call()
            self._warm = True
            return
        if self.door.turn not in self.graphs:
            self.graphs[self.door.turn] = self._captured()
        self.graphs[self.door.turn].launch()

    def _captured(self) -> Recording:
        recording = Recording(self.driver.streams, COMPUTE, self.driver.event)
        self.driver.recording = recording
        try:
            with nothing_collected(), recording:
                for call in self:
                    call()
        finally:
            self.driver.recording = None
        return recording

    def stage(self, ahead: Ahead | None) -> None:
        """While the card works: the next batch into the buffers of the other turn, which is then the next."""
        self.door.turn ^= 1
        batch = ahead() if ahead is not None and self.feeds else None
        if batch is not None:
            for feed in self.feeds:
                feed.stage(batch[feed.layer], self.door.turn)
