"""A solver's events as Caffe's log lines, for programs that parse Caffe's logs.

    I0704 20:49:42.009958  4711 solver.cpp:239] Iteration 100 (52.1 iter/s, 1.92s/100 iters), loss = 0.2137
    I0704 20:49:42.009958  4711 solver.cpp:258]     Train net output #0: loss = 0.2137 (* 1 = 0.2137 loss)

Numbers have six significant digits, as C++ streams print them.  Each line names the place in Caffe that prints it,
since programs search for it.    source  Caffe solver.cpp, sgd_solver.cpp, net.cpp; glog's prefix of a line
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

DONE = "Optimization Done."
NOTES = "layermem.py:1"  # the place of lines that Caffe does not print
Line = tuple[str, str]  # the place in Caffe's code, and the text
MAX_VALUES, FIRST_VALUES = 1000, 10  # an output of more values than these has a line for the first ones alone


class Log:
    """Writes the lines of every event to `stream`, with glog's prefix: severity, date, time, process, place."""

    def __init__(self, stream: TextIO | None = None, *, now: Callable[[], datetime] = datetime.now):
        self.stream, self.now = stream if stream is not None else sys.stderr, now

    def __call__(self, event: Event) -> None:
        for place, text in lines(event):
            self.write(text, place)

    def write(self, text: str, place: str = NOTES, severity: str = "I") -> None:
        """Write one line; severities are I, W, E and F, as in glog."""
        self.stream.write(f"{severity}{self.prefix(place)}{printable(text)}\n")
        self.stream.flush()

    def prefix(self, place: str) -> str:
        """Return what glog writes between the severity and the text of a line."""
        return f"{self.now():%m%d %H:%M:%S.%f} {os.getpid():5d} {place}] "


def lines(event: Event) -> Iterator[Line]:
    """Yield the lines of an event; none for events that Caffe does not log."""
    if isinstance(event, events.Note | events.Budgeted):
        yield NOTES, event.text
    elif isinstance(event, events.Solving):
        yield "solver.cpp:289", f"Solving {event.net}"
        yield "solver.cpp:290", f"Learning Rate Policy: {event.policy}"
    elif isinstance(event, events.RateDropped):
        yield "sgd_solver.cpp:50", f"MultiStep Status: Iteration {event.iteration}, step = {event.step}"
    elif isinstance(event, events.Displayed):
        yield from _displayed(event)
    elif isinstance(event, events.Testing):
        yield "solver.cpp:347", f"Iteration {event.iteration}, Testing net (#{event.index})"
    elif isinstance(event, events.Tested):
        if event.loss is not None:
            yield "solver.cpp:401", f"Test loss: {number(event.loss)}"
        yield from _outputs("Test", "solver.cpp:414", event.outputs)
    elif isinstance(event, events.Saving):
        kind, *places = ("HDF5 file", 474, 296) if event.hdf5 else ("binary proto file", 464, 284)
        yield f"solver.cpp:{places[0]}", f"Snapshotting to {kind} {event.model}"
        yield f"sgd_solver.cpp:{places[1]}", f"Snapshotting solver state to {kind} {event.state}"
    elif isinstance(event, events.Restored):
        yield "solver.cpp:296", f"Restoring previous solver status from {event.path}"
        yield "sgd_solver.cpp:336", "SGDSolver: restoring history"
    elif isinstance(event, events.FinalLoss):
        yield "solver.cpp:327", f"Iteration {event.iteration}, loss = {number(event.loss)}"
    elif isinstance(event, events.Finished):
        yield ("solver.cpp:311", "Optimization stopped early.") if event.early else ("solver.cpp:332", DONE)


def number(value: float) -> str:
    return f"{value:g}"


def _displayed(event: events.Displayed) -> Iterator[Line]:
    speed = event.done / event.seconds if event.seconds else 0.0
    pace = f"{number(speed)} iter/s, {number(event.seconds)}s/{event.interval} iters"
    yield "solver.cpp:239", f"Iteration {event.iteration} ({pace}), loss = {number(event.loss)}"
    if event.items and event.seconds:
        yield NOTES, f"    {event.items / event.seconds:,.0f} items/s"
    yield from _outputs("Train", "solver.cpp:258", event.outputs)
    yield "sgd_solver.cpp:112", f"Iteration {event.iteration}, lr = {number(event.rate)}"


def _outputs(phase: str, place: str, outputs: Sequence[Output]) -> Iterator[Line]:
    """One line per element, numbered across all outputs; of a large output the first ones and their number."""
    first = 0
    for output in outputs:
        values = np.ravel(output.values)
        shown = FIRST_VALUES if len(values) > MAX_VALUES else len(values)
        for index, value in enumerate(values[:shown], start=first):
            part = f" (* {number(output.weight)} = {number(output.weight * value)} loss)" if output.weight else ""
            yield place, f"    {phase} net output #{index}: {output.name} = {number(value)}{part}"
        if shown < len(values):
            yield (
                NOTES,
                f"    {phase} net output '{output.name}' has {len(values) - shown:,} more values, left out; a "
                "layer of type Silence that reads it keeps it out of the log",
            )
        first += len(values)
