"""A simulated or a measured step as a trace (ui.perfetto.dev, chrome://tracing): streams, waits, live bytes.

    X     an instruction, on the track of its stream; its arguments are its tick, reads and writes, with offsets
    s, f  an arrow from an instruction to an instruction of another stream that waits for it
    C     live bytes

Times are in microseconds.    source  Trace Event Format, as documented for Chrome's viewer
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from layermem.report.memory import live_bytes, spans
from layermem.report.plan_report import PlanReport
from layermem.schedule.ir import STREAMS, Schedule, used_streams
from layermem.schedule.simulate import Timeline
from layermem.schedule.text import place_of

PROCESS = 1
MICRO = 1e6
Event = dict[str, object]


def trace_text(report: PlanReport, measured: Sequence[tuple[float, float]] | None = None) -> str:
    """The trace of one training step as JSON, simulated, or with the begin and end of each instruction in seconds."""
    schedule = report.program.train
    times = report.timeline if measured is None else _timeline(measured)
    events = [*_names(report), *_instructions(schedule, times), *_arrows(schedule, times), *_memory(schedule, times)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, allow_nan=False)


def _timeline(measured: Sequence[tuple[float, float]]) -> Timeline:
    start, end = (tuple(moments) for moments in zip(*measured, strict=True))
    return Timeline(start, end, max(end), sum(end) - sum(start))


def _event(kind: str, name: str, stream: str = STREAMS[0], **more: object) -> Event:
    return {"ph": kind, "name": name, "pid": PROCESS, "tid": STREAMS.index(stream) + 1, **more}


def _names(report: PlanReport) -> list[Event]:
    title = f"{report.job.title} under {report.strategy}"
    names = [_event("M", "process_name", args={"name": title})]
    for stream in used_streams(report.program.train):
        names.append(_event("M", "thread_name", stream, args={"name": stream}))
        names.append(_event("M", "thread_sort_index", stream, args={"sort_index": STREAMS.index(stream)}))
    return names


def _instructions(schedule: Schedule, times: Timeline) -> list[Event]:
    result = []
    for instruction, start, end in zip(schedule.instructions, times.start, times.end):
        places = {
            "tick": instruction.tick,
            "reads": [place_of(schedule.residencies[r]) for r in instruction.reads],
            "writes": [place_of(schedule.residencies[r]) for r in instruction.writes],
        }
        name = instruction.what if instruction.op is not None else f"{instruction.kind} {instruction.what}"
        if instruction.is_recompute:
            name += " (recompute)"
        times_us = {"ts": start * MICRO, "dur": (end - start) * MICRO}
        result.append(_event("X", name, instruction.stream, cat=instruction.kind, **times_us, args=places))
    return result


def _arrows(schedule: Schedule, times: Timeline) -> list[Event]:
    """Arrows from the end of each awaited instruction to the start of the waiting one."""
    arrows: list[Event] = []
    for instruction in schedule.instructions:
        for tick in instruction.after:
            same: Event = {"cat": "wait", "id": len(arrows)}
            awaited = schedule.instructions[tick].stream
            # A flow binds to the slice that contains its time, so it starts in the middle of the awaited one.
            middle = (times.start[tick] + times.end[tick]) / 2
            arrows.append(_event("s", "wait", awaited, ts=middle * MICRO, **same))
            arrows.append(
                _event("f", "wait", instruction.stream, bp="e", ts=times.start[instruction.tick] * MICRO, **same)
            )
    return arrows


def _memory(schedule: Schedule, times: Timeline) -> list[Event]:
    seconds, counts = live_bytes(spans(schedule, times))
    return [
        _event("C", "live bytes", ts=moment * MICRO, args={"bytes": nbytes}) for moment, nbytes in zip(seconds, counts)
    ]
