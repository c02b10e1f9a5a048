"""The arena over predicted time: the interval of each residency, and the live bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from layermem.report.plan_report import kind_of
from layermem.schedule.ir import Residency, Schedule
from layermem.schedule.simulate import Timeline
from layermem.utils.units import aligned

KINDS = ("parameter", "history", "gradient", "state", "stash", "data", "diff", "workspace")  # from the bottom of a plot


class Span(NamedTuple):
    """A residency on the device from `begin` to `end`, in seconds from the start of the step."""

    residency: Residency
    kind: str
    begin: float
    end: float


def spans(schedule: Schedule, timeline: Timeline) -> list[Span]:
    """The intervals of all residencies on the device; a residency ends where another one overlays it."""
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    for instruction in schedule.instructions:
        for rid in (*instruction.reads, *instruction.writes):
            begin[rid] = min(begin.get(rid, timeline.seconds), timeline.start[instruction.tick])
            end[rid] = max(end.get(rid, 0.0), timeline.end[instruction.tick])
    for r in schedule.residencies:
        if r.begin == 0 and r.end == len(schedule.instructions):
            begin[r.id], end[r.id] = 0.0, timeline.seconds
    for r in schedule.residencies:
        if r.over is not None and r.id in begin:
            end[r.over] = min(end.get(r.over, timeline.seconds), begin[r.id])
    return [
        Span(r, kind_of(schedule.graph, r), begin[r.id], end[r.id])
        for r in schedule.residencies
        if not r.host and r.id in begin and end[r.id] > begin[r.id]
    ]


def live_bytes(intervals: Iterable[Span]) -> tuple[list[float], list[int]]:
    """The times at which the live bytes change, and the live bytes from each of them on."""
    change: dict[float, int] = {0.0: 0}
    for span in intervals:
        nbytes = aligned(span.residency.nbytes)
        change[span.begin] = change.get(span.begin, 0) + nbytes
        change[span.end] = change.get(span.end, 0) - nbytes
    seconds = sorted(change)
    counts, total = [], 0
    for moment in seconds:
        total += change[moment]
        counts.append(total)
    return seconds, counts
