"""Times of the calls of a step by events of the GPU, on the stream of each call."""

from __future__ import annotations

from layermem.backends.base import Bound, Stopwatch, sequence
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.driver.step_run import record_event


class EventStopwatch(Stopwatch):
    def __init__(self, driver: Driver, count: int):
        super().__init__(count)
        self.driver = driver
        self._events = [(driver.event(timed=True), driver.event(timed=True)) for _ in range(count)]

    def around(self, tick: int, stream: str, call: Bound) -> Bound:
        on = self.driver.streams[stream]
        begin, end = (record_event(on, event) for event in self._events[tick])
        return sequence([begin, call, end])

    def times(self) -> list[tuple[float, float]]:
        origin = self._events[0][0]
        return [(1e-3 * origin.time_till(begin), 1e-3 * origin.time_till(end)) for begin, end in self._events]
