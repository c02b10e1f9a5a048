"""The records of a run, one for each event: `train --log` writes them, and curves are drawn from them.

    {"event": "start", "format": 1, "net": "LeNet x64", "seed": 7, ...}
    {"event": "train", "iteration": 20, "loss": 0.21, "learning_rate": 0.01, "outputs": {"loss": 0.21}, ...}
    {"event": "test", "iteration": 100, "test_net": 0, "outputs": {"accuracy": 0.98}, ...}
    {"event": "budget", "iteration": 100, "before_bytes": 2147483648, "budget_bytes": 1073741824, ...}
    {"event": "end", "status": "done", ...}

`layermem docs logs` describes every field; it is the contract with programs that read logs.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

import numpy as np

from layermem import __version__
from layermem.report import events
from layermem.report.events import Event, Output
from layermem.report.plan_report import PlanReport

FORMAT = 1  # version of the records; readers refuse a newer one
MAX_VALUES = 100  # larger outputs, such as the scores of every image, are left out
LIBRARIES = ("numpy", "protobuf", "lmdb", "h5py", "pillow")

Value = float | int | str | bool | None | list["Value"] | dict[str, "Value"]
Record = dict[str, Value]
Sink = Callable[[Record], None]


class Recorder:
    """Called with the events of a solver; passes a record of each to `sink`.

    every   record only iterations that it divides
    clock   returns seconds; records count from the start of the run
    """

    def __init__(self, sink: Sink, *, every: int = 1, clock: Callable[[], float] = time.monotonic):
        self.sink, self.every, self.clock = sink, every, clock
        self._begin = clock()
        self._iteration = 0

    def start(self, report: PlanReport, **run: Value) -> None:
        """Write the first record: the plan, the versions, and facts about the `run`: its seed, files and iterations."""
        iteration = run.get("iteration", 0)
        assert isinstance(iteration, int)
        self._begin, self._iteration = self.clock(), iteration
        self.sink({**start_record(report), "every": self.every, **run})

    def __call__(self, event: Event) -> None:
        values = values_of(event)
        if isinstance(event, events.Stepped):
            self._iteration = event.iteration
            if (event.iteration - 1) % self.every:
                return
        if values is not None:
            self._write(values)

    def end(self, status: str, **values: Value) -> None:
        """Write the last record: the reason why the run ended (done, stopped, diverged or failed), and its `values`."""
        self._write({"event": "end", "status": status, "iteration": self._iteration, **values})

    def _write(self, values: Record) -> None:
        self.sink({**values, "seconds": round(self.clock() - self._begin, 6)})


def start_record(report: PlanReport) -> Record:
    """The values of a plan for the first record of a run, with the versions of the program and its libraries."""
    job, train = report.job, report.job.nets[0]
    return {
        "event": "start",
        "format": FORMAT,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "net": job.title,
        "net_file": None if train.path is None else str(train.path),
        "device": report.device,
        **plan_record(report),
        "versions": {"layermem": __version__, "python": platform.python_version(), **_library_versions()},
    }


def plan_record(report: PlanReport) -> Record:
    """The values of a plan that another budget changes."""
    graph, hints = report.job.graphs[0], report.job.hints
    return {
        "strategy": report.strategy,
        "slices": graph.slices or None,
        "not_fused": list(report.not_fused),
        "budget_bytes": report.budget_bytes,
        "found_for_bytes": report.found_for_bytes,
        "host_budget_bytes": hints.host_budget_bytes,
        "predicted_peak_bytes": report.peak_bytes,
        "predicted_host_bytes": report.program.host_bytes,
        "predicted_seconds": report.seconds,
        "fingerprint": graph.fingerprint,
    }


def values_of(event: Event) -> Record | None:
    """The record of an event without its time; None for events that are not recorded."""
    if isinstance(event, events.Stepped):
        return {
            "event": "train",
            "iteration": event.iteration - 1,
            "loss": number(event.loss),
            "average_loss": number(event.average_loss),
            "learning_rate": number(event.rate),
            "outputs": _outputs(event.outputs),
        }
    if isinstance(event, events.Tested):
        loss = None if event.loss is None else number(event.loss)
        outputs = _outputs(event.outputs)
        return {
            "event": "test",
            "iteration": event.iteration,
            "test_net": event.index,
            "loss": loss,
            "outputs": outputs,
        }
    if isinstance(event, events.Saved):
        return {"event": "snapshot", "iteration": event.iteration, "model": event.model, "state": event.state}
    if isinstance(event, events.Budgeted):
        return {
            "event": "budget",
            "iteration": event.iteration,
            "before_bytes": event.before_bytes,
            "refusal": event.refusal,
            "text": event.text,
            **plan_record(event.report),
        }
    if isinstance(event, events.Note):
        return {"event": "note", "text": event.text}
    return None


def number(value: float) -> float | None:
    """`value`, with the digits that it has in single precision if that is its origin; None for NaN and infinities,
    which JSON lacks."""
    value = float(value)
    if not math.isfinite(value):
        return None
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _outputs(outputs: tuple[Output, ...]) -> dict[str, Value]:
    shown = (output for output in outputs if output.values.size <= MAX_VALUES)
    return {output.name: _values(output.values) for output in shown}


def _values(values: np.ndarray) -> Value:
    numbers: list[Value] = [number(value) for value in np.ravel(values)]
    return numbers[0] if len(numbers) == 1 else numbers


def _library_versions() -> Mapping[str, Value]:
    from importlib.metadata import PackageNotFoundError, version  # slow to load: only for runs with a log

    found: dict[str, Value] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
