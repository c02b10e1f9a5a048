"""A solver's events on a terminal: a progress bar with iteration, loss and remaining time, and a line per test.

In a pipe, events are printed as Caffe's log lines (log.py).
"""

from __future__ import annotations

from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from layermem.report import events
from layermem.report.events import Event
from layermem.utils.text import printable


class Bar:
    """A context manager to be called with events, for iterations from `begin` to `total`."""

    def __init__(self, total: int, begin: int = 0, *, console: Console | None = None):
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console or Console(),
        )
        self.task = self.progress.add_task("train", total=total, completed=begin, loss="")

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.Stepped):
            self.progress.update(
                self.task, completed=event.iteration, description="train", loss=f"loss {event.loss:.4g}"
            )
        elif isinstance(event, events.Testing):
            self.progress.update(self.task, description=f"test {event.index}")
        else:
            if isinstance(event, events.Finished | events.Tested):
                self.progress.update(self.task, description="train")
            line = _line(event)
            if line:
                self.progress.console.print(printable(line), markup=False, highlight=False)


def _line(event: Event) -> str:
    """The line that an event leaves on the screen; empty for events that only move the bar."""
    if isinstance(event, events.Tested):
        values = "  ".join(f"{output.name} {float(np.mean(output.values)):.4g}" for output in event.outputs)
        return f"iteration {event.iteration}, test {event.index}:  {values}"
    if isinstance(event, events.Saving):
        return f"saving {event.state}"
    if isinstance(event, events.Restored):
        return f"resumed from {event.path} at iteration {event.iteration}"
    if isinstance(event, events.Note | events.Budgeted):
        return event.text
    if isinstance(event, events.Finished):
        return f"stopped at iteration {event.iteration}" if event.early else f"done after {event.iteration} iterations"
    return ""
