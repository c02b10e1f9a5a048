"""A solver's events as Caffe's log lines, for programs that parse Caffe's logs.

    I0704 20:49:42.009958  4711 solver.py:1] Iteration 100 (52.1 iter/s, 1.92s/100 iters), loss = 0.2137
    I0704 20:49:42.009958  4711 solver.py:1]     Train net output #0: loss = 0.2137 (* 1 = 0.2137 loss)

Numbers have six significant digits, as C++ streams print them.    source  Caffe solver.cpp, sgd_solver.cpp, net.cpp
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TextIO

import numpy as np

from layermem.report import events
from layermem.report.events import Event, Output
from layermem.utils.text import printable

MOST_VALUES, FIRST_VALUES = 1000, 10  # an output of more values than these has a line for the first ones alone


class Log:
    """Writes the lines of every event to `stream`, with glog's prefix: severity, date, time, process, source."""

    def __init__(self, stream: TextIO | None = None, *, now: Callable[[], datetime] = datetime.now):
        self.stream, self.now = stream if stream is not None else sys.stderr, now

    def __call__(self, event: Event) -> None:
        for line in lines(event):
            self.write(line)

    def write(self, line: str) -> None:
        self.stream.write(f"I{self.now():%m%d %H:%M:%S.%f} {os.getpid():5d} solver.py:1] {printable(line)}\n")
        self.stream.flush()


def lines(event: Event) -> Iterator[str]:
    """Yield the lines of an event; none for events that Caffe does not log."""
    if isinstance(event, events.Note):
        yield event.text
    elif isinstance(event, events.Solving):
        yield f"Solving {event.net}"
        yield f"Learning Rate Policy: {event.policy}"
    elif isinstance(event, events.Displayed):
        yield from _displayed(event)
    elif isinstance(event, events.Testing):
        yield f"Iteration {event.iteration}, Testing net (#{event.index})"
    elif isinstance(event, events.Tested):
        if event.loss is not None:
            yield f"Test loss: {number(event.loss)}"
        yield from _outputs("Test", event.outputs)
    elif isinstance(event, events.Saving):
        kind = "HDF5 file" if event.hdf5 else "binary proto file"
        yield f"Snapshotting to {kind} {event.model}"
        yield f"Snapshotting solver state to {kind} {event.state}"
    elif isinstance(event, events.Restored):
        yield f"Restoring previous solver status from {event.path}"
    elif isinstance(event, events.FinalLoss):
        yield f"Iteration {event.iteration}, loss = {number(event.loss)}"
    elif isinstance(event, events.Finished):
        yield "Optimization stopped early." if event.early else "Optimization Done."


def number(value: float) -> str:
    return f"{value:g}"


def _displayed(event: events.Displayed) -> Iterator[str]:
    speed = event.done / event.seconds if event.seconds else 0.0
    pace = f"{number(speed)} iter/s, {number(event.seconds)}s/{event.interval} iters"
    yield f"Iteration {event.iteration} ({pace}), loss = {number(event.loss)}"
    yield from _outputs("Train", event.outputs)
    yield f"Iteration {event.iteration}, lr = {number(event.rate)}"


def _outputs(phase: str, outputs: Sequence[Output]) -> Iterator[str]:
    """One line per element, numbered across all outputs; of a large output the first ones and their number."""
    first = 0
    for output in outputs:
        values = np.ravel(output.values)
        shown = FIRST_VALUES if len(values) > MOST_VALUES else len(values)
        for index, value in enumerate(values[:shown], start=first):
            part = f" (* {number(output.weight)} = {number(output.weight * value)} loss)" if output.weight else ""
            yield f"    {phase} net output #{index}: {output.name} = {number(value)}{part}"
        if shown < len(values):
            yield (
                f"    {phase} net output '{output.name}' has {len(values) - shown:,} more values, left out; a "
                "layer of type Silence that reads it keeps it out of the log"
            )
        first += len(values)
