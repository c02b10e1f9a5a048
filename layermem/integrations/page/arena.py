"""The training step of a page: instructions on streams, and residencies in the arena.

unit           seconds of one unit of time: all times are whole numbers of it
instructions   stream, kind, what (name), layer, recompute (1 or 0);
               start: delta to the end of the previous one on its stream; duration; after: counts and ticks back
buffers        name, kind, shape, bytes, layer
residencies    buffer; begin: delta; number of ticks; offset in units of `align`; maker: tick of the first
               instruction that writes it, relative to its begin, or -1 if none does; over: ids back, 0 for none;
               from and to: its times, from the start of its first instruction to the end of its last one
"""

from __future__ import annotations

from layermem.graph.ops import FORWARD
from layermem.integrations.page.columns import Strings, deltas
from layermem.integrations.page.net import LayerIndex
from layermem.report.memory import KINDS, spans
from layermem.report.plan_report import PlanReport, kind_of
from layermem.schedule.ir import STREAMS, Schedule, used_streams
from layermem.utils.units import ALIGN

RESOLUTION = 20_000_000  # units of time in a step
NO_MAKER = -1


def arena_page(report: PlanReport, index: LayerIndex) -> dict[str, object]:
    """The section `arena` of a page."""
    schedule, timeline = report.program.train, report.timeline
    unit = timeline.seconds / RESOLUTION or 1.0
    starts = [round(second / unit) for second in timeline.start]
    ends = [round(second / unit) for second in timeline.end]
    names, shapes = Strings(), Strings()
    kinds = Strings()
    turn = next((r.tick for r in schedule.instructions if r.op is not None and r.kind != FORWARD), None)
    return {
        "unit": unit,
        "align": ALIGN,
        "seconds": timeline.seconds,
        "peak_bytes": schedule.peak_bytes,
        "peak_tick": schedule.peak_tick,
        "max_live_bytes": schedule.max_live_bytes,
        "arena_bytes": report.peak_bytes,
        "budget_bytes": report.budget_bytes,
        "backward_tick": turn,
        "streams": used_streams(schedule),
        "buffer_kinds": KINDS,
        "instructions": _instructions(schedule, index, names, kinds, starts, ends),
        **_residencies(report, index, names, shapes, unit, starts, ends),
        "kinds": kinds.values,
        "names": names.values,
        "shapes": shapes.values,
    }


def _instructions(
    schedule: Schedule, index: LayerIndex, names: Strings, kinds: Strings, starts: list[int], ends: list[int]
) -> dict[str, object]:
    free = dict.fromkeys(STREAMS, 0)
    waits = []
    for instruction, start, end in zip(schedule.instructions, starts, ends):
        waits.append(start - free[instruction.stream])
        free[instruction.stream] = end
    each = schedule.instructions
    return {
        "stream": [STREAMS.index(i.stream) for i in each],
        "kind": [kinds.add(i.kind) for i in each],
        "what": [names.add(i.what) for i in each],
        "layer": [index.of_op(i.op) if i.op is not None else index.of_buffer(i.what) for i in each],
        "recompute": [int(i.is_recompute) for i in each],
        "start": waits,
        "duration": [end - start for start, end in zip(starts, ends)],
        "waits": [len(i.after) for i in each],
        "after": [i.tick - tick for i in each for tick in i.after],
    }


def _residencies(
    report: PlanReport,
    index: LayerIndex,
    names: Strings,
    shapes: Strings,
    unit: float,
    starts: list[int],
    ends: list[int],
) -> dict[str, object]:
    schedule = report.program.train
    shown = spans(schedule, report.timeline)
    makers: dict[int, int] = {}
    for instruction in schedule.instructions:
        for rid in instruction.writes:
            makers.setdefault(rid, instruction.tick)
    buffers = Strings()
    kept: list[list[int]] = []  # name, kind, shape, bytes, layer of each buffer
    rows: list[list[int]] = []
    position = {span.residency.id: i for i, span in enumerate(shown)}
    for i, span in enumerate(shown):
        r = span.residency
        number = buffers.add(r.buffer)
        if number == len(kept):
            buffer = schedule.graph.buffers.get(r.buffer)
            shape = "×".join(map(str, buffer.tensor.shape)) or "scalar" if buffer is not None else ""
            kind = KINDS.index(kind_of(schedule.graph, r))
            kept.append([names.add(r.buffer), kind, shapes.add(shape), r.nbytes, index.of_buffer(r.buffer)])
        maker = makers[r.id] - r.begin if r.id in makers else NO_MAKER
        over = i - position[r.over] if r.over in position else 0
        begin, end = round(span.begin / unit) - starts[r.begin], round(span.end / unit) - ends[r.end - 1]
        rows.append([number, r.begin, r.end - r.begin, r.offset // ALIGN, maker, over, begin, end])
    columns = [list(column) for column in zip(*rows)] or [[] for _ in range(8)]
    columns[1] = deltas(columns[1])
    fields = ("buffer", "begin", "ticks", "offset", "maker", "over", "from", "to")
    return {
        "buffers": dict(zip(("name", "kind", "shape", "bytes", "layer"), map(list, zip(*kept)))),
        "residencies": dict(zip(fields, columns)),
    }
