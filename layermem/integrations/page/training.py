"""The training of a page: the curves of a log, and facts about its run.

source     the name of the log
title      title of the net; status: running, done, stopped, diverged or failed; message: the error, or null
iteration, max_iter, seconds   progress of the run; remaining_seconds: to its end, at its pace of now, or null
quiet_seconds   if the log has not grown for so long, the run may have been killed
facts      [label, text]
charts     title, logarithmic, and curves: name, iterations x, values y (null: not finite), colour (a number), and
           whether it is faint, behind its running mean; as curves_picture.py makes them
resumed    iterations at which a run resumed from a snapshot; snapshots: their iterations; notes: texts of the log
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import isfinite

from layermem.report.curves_picture import Panel, curves_picture
from layermem.report.read_log import current_start, last_training
from layermem.report.records import Record
from layermem.utils.units import format_bytes, format_seconds

NOTES = 20  # the last notes of a log
RUNNING = "running"
SPEED = "seconds per iteration"
POINTS = 2000  # most points of a curve; a longer one shows every n-th point
PACE = 50  # records whose mean pace the remaining time goes by
QUIET_SECONDS = 60.0  # lower limit of quiet_seconds, which is a multiple of the longest wait:
QUIET_WAITS = 5


def training_page(path: str, records: Sequence[Record]) -> dict[str, object]:
    """The section `training` of a page: the last training of the log `path`."""
    last = last_training(records)
    start = current_start(last)
    end = last[-1] if last and last[-1]["event"] == "end" else {}
    picture = curves_picture(last)
    charts = [_chart(panel) for panel in picture.panels if panel.lines]
    return {
        "source": os.path.basename(path),
        "title": str(start.get("net", "")),
        "status": end.get("status", RUNNING),
        "message": end.get("message"),
        "iteration": next((r["iteration"] for r in reversed(last) if isinstance(r.get("iteration"), int)), None),
        "max_iter": start.get("max_iter"),
        "seconds": next((r["seconds"] for r in reversed(last) if "seconds" in r), None),
        "remaining_seconds": None if end else _remaining_seconds(start, last),
        "quiet_seconds": _quiet_seconds(start, last),
        "facts": list(_facts(start, end)),
        "charts": [*charts, *_speed(last)],
        "resumed": list(picture.resumed),
        "snapshots": sorted({r["iteration"] for r in last if r["event"] == "snapshot"}),  # type: ignore[type-var]
        "notes": [str(record.get("text")) for record in last if record["event"] in ("note", "budget")][-NOTES:],
    }


def _chart(panel: Panel) -> dict[str, object]:
    colours = list(dict.fromkeys(line.colour for line in panel.lines))
    curves = [
        {
            "name": line.name,
            "x": [int(x) for x in line.xs],
            "y": [float(y) if isfinite(y) else None for y in line.ys],
            "colour": colours.index(line.colour),
            "faint": line.faint,
        }
        for line in panel.lines
    ]
    return {"title": panel.label, "logarithmic": panel.logarithmic, "curves": curves}


def _speed(records: Iterable[Record]) -> Iterator[dict[str, object]]:
    """Seconds per iteration between one recorded iteration and the next of the same run."""
    x: list[int] = []
    y: list[float] = []
    timed = [record for record in records if record["event"] in ("start", "train")]
    for before, after in pairwise(timed):
        if before["event"] == after["event"] == "train":
            first, second = before.get("iteration"), after.get("iteration")
            begin, stop = before.get("seconds"), after.get("seconds")  # logs of other programs may lack them
            if not (isinstance(first, int) and isinstance(second, int) and second > first):
                continue
            if isinstance(begin, int | float) and isinstance(stop, int | float):
                x.append(second)
                y.append((stop - begin) / (second - first))
    step = -(-len(x) // POINTS)
    if x:
        curve = {"name": "train", "x": x[::step], "y": y[::step], "colour": 0, "faint": False}
        yield {"title": SPEED, "logarithmic": False, "curves": [curve]}


def _remaining_seconds(start: Record, records: Sequence[Record]) -> float | None:
    """Seconds until the last iteration, at the mean pace of the last PACE records of the last run, tests included."""
    begin = max((place for place, record in enumerate(records) if record["event"] == "start"), default=0)
    known: list[tuple[int, float]] = []
    for record in records[begin:]:
        iteration, seconds = record.get("iteration"), record.get("seconds")
        if record["event"] == "train" and isinstance(iteration, int) and isinstance(seconds, int | float):
            known.append((iteration, float(seconds)))
    most = start.get("max_iter")
    if len(known) < 2 or not isinstance(most, int):
        return None
    (first, before), (last, now) = known[-PACE:][0], known[-1]
    return (now - before) / (last - first) * max(most - last - 1, 0) if last > first else None


def _quiet_seconds(start: Record, records: Iterable[Record]) -> float:
    moments = [0.0 if record["event"] == "start" else record.get("seconds") for record in records]
    known = [moment for moment in moments if isinstance(moment, int | float)]
    waits = [after - before for before, after in pairwise(known)]
    step, every = start.get("predicted_seconds"), start.get("every")
    if isinstance(step, int | float) and isinstance(every, int):
        waits.append(step * every)
    return max(QUIET_SECONDS, QUIET_WAITS * max(waits, default=0.0))


def _facts(start: Record, end: Record) -> Iterator[list[str]]:
    for label, name in (("device", "device"), ("strategy", "strategy"), ("solver", "solver_file"), ("began", "time")):
        if start.get(name):
            yield [label, str(start[name])]
    for label, record, name in (
        ("budget", start, "budget_bytes"),
        ("predicted peak", start, "predicted_peak_bytes"),
        ("measured peak", end, "measured_peak_bytes"),
        ("max RSS", end, "max_resident_bytes"),
    ):
        nbytes = record.get(name)
        if isinstance(nbytes, int):
            yield [label, f"{format_bytes(nbytes)} ({nbytes:,} bytes)"]
    seconds = start.get("predicted_seconds")
    if isinstance(seconds, int | float):
        yield ["predicted", f"{format_seconds(seconds)} per step"]
