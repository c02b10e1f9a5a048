"""The arena in predicted time: when each residency holds its bytes, and how many are in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from layermem.report.plan_report import kind_of
from layermem.schedule.ir import Residency, Schedule
from layermem.schedule.simulate import Timeline
from layermem.utils.units import aligned

KINDS = ("parameter", "history", "gradient", "stash", "data", "diff", "workspace")  # from the bottom of a plot up


class Span(NamedTuple):
    """A residency on the device from `begin` to `end`, in seconds from the start of the step."""

    residency: Residency
    kind: str
    begin: float
    end: float


def spans(schedule: Schedule, timeline: Timeline) -> list[Span]:
    """When each residency on the device holds its bytes; one that is laid over another ends it."""
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


def in_use(found: Iterable[Span]) -> tuple[list[float], list[int]]:
    """Seconds at which the bytes in use change, and how many there are from each on."""
    change: dict[float, int] = {0.0: 0}
    for span in found:
        nbytes = aligned(span.residency.nbytes)
        change[span.begin] = change.get(span.begin, 0) + nbytes
        change[span.end] = change.get(span.end, 0) - nbytes
    seconds = sorted(change)
    counts, total = [], 0
    for moment in seconds:
        total += change[moment]
        counts.append(total)
    return seconds, counts
