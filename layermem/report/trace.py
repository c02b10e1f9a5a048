"""A simulated step for a trace viewer (ui.perfetto.dev, chrome://tracing): three streams, waits, bytes in use.

    X  a row of the schedule, on the track of its stream; its arguments name what it reads and writes, with offsets
    s, f  an arrow from a row to one of another stream that waits for it
    C  bytes of the arena in use

Times are microseconds.    source  the Trace Event Format that Chrome's viewer documents
"""

from __future__ import annotations

import json
from typing import Any

from layermem.report.memory import in_use, spans
from layermem.report.plan_report import PlanReport
from layermem.schedule.ir import STREAMS
from layermem.schedule.text import place_of

PROCESS = 1
MICRO = 1e6


def trace_text(report: PlanReport) -> str:
    """The trace of one training step as JSON."""
    events = [*_names(report), *_rows(report), *_arrows(report), *_memory(report)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, allow_nan=False)


def _event(kind: str, name: str, stream: str = STREAMS[0], **more: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "pid": PROCESS, "tid": STREAMS.index(stream) + 1, **more}


def _names(report: PlanReport) -> list[dict[str, Any]]:
    title = f"{report.job.title} under {report.strategy}"
    names = [_event("M", "process_name", args={"name": title})]
    for stream in STREAMS:
        names.append(_event("M", "thread_name", stream, args={"name": stream}))
        names.append(_event("M", "thread_sort_index", stream, args={"sort_index": STREAMS.index(stream)}))
    return names


def _rows(report: PlanReport) -> list[dict[str, Any]]:
    schedule, times = report.program.train, report.timeline
    rows = []
    for row, start, end in zip(schedule.instructions, times.start, times.end):
        places = {
            "row": row.tick,
            "reads": [place_of(schedule.residencies[r]) for r in row.reads],
            "writes": [place_of(schedule.residencies[r]) for r in row.writes],
        }
        name = f"{row.what} again" if row.is_recompute else row.what if row.op is not None else f"{row.kind} {row.what}"
        rows.append(
            _event("X", name, row.stream, cat=row.kind, ts=start * MICRO, dur=(end - start) * MICRO, args=places)
        )
    return rows


def _arrows(report: PlanReport) -> list[dict[str, Any]]:
    """From the end of each awaited row to the start of the one that waits."""
    schedule, times = report.program.train, report.timeline
    arrows: list[dict[str, Any]] = []
    for row in schedule.instructions:
        for tick in row.after:
            same = {"cat": "wait", "id": len(arrows)}
            awaited = schedule.instructions[tick].stream
            # A flow binds to the slice that holds its time: a little before the awaited row's end.
            middle = (times.start[tick] + times.end[tick]) / 2
            arrows.append(_event("s", "wait", awaited, ts=middle * MICRO, **same))
            arrows.append(_event("f", "wait", row.stream, bp="e", ts=times.start[row.tick] * MICRO, **same))
    return arrows


def _memory(report: PlanReport) -> list[dict[str, Any]]:
    seconds, counts = in_use(spans(report.program.train, report.timeline))
    return [
        _event("C", "bytes in use", ts=moment * MICRO, args={"bytes": nbytes})
        for moment, nbytes in zip(seconds, counts)
    ]
