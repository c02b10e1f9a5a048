"""A schedule as text: what tests compare and people read.

# mlp3 train   strategy liveness   peak 1328 KiB   max live 1328 KiB   host 256 KiB
tick stream   verb      what         reads                  writes       after
   1 compute  forward   ip1          data@0 ip1.w0@1280     ip1@512
   2 d2h      offload   data         data@0                 host@0       1
"""

from __future__ import annotations

from layermem.schedule.ir import Residency, Schedule
from layermem.utils.units import format_bytes


def place_of(r: Residency) -> str:
    return f"{'host' if r.host else r.buffer}@{r.offset}"


def table(schedule: Schedule) -> list[tuple[str, ...]]:
    """The rows as cells, under their headings."""
    cells: list[tuple[str, ...]] = [("tick", "stream", "verb", "what", "reads", "writes", "after")]
    for instruction in schedule.instructions:
        what = instruction.what + (" again" if instruction.is_recompute else "")
        reads = " ".join(place_of(schedule.residencies[r]) for r in instruction.reads if r not in instruction.writes)
        writes = " ".join(place_of(schedule.residencies[r]) for r in instruction.writes)
        after = " ".join(str(tick) for tick in instruction.after)
        cells.append((str(instruction.tick), instruction.stream, instruction.kind, what, reads, writes, after))
    return cells


def heading(schedule: Schedule) -> str:
    parts = [
        f"# {schedule.graph.name}",
        f"strategy {schedule.plan.strategy}",
        f"peak {format_bytes(schedule.peak_bytes)}",
        f"max live {format_bytes(schedule.max_live_bytes)}",
    ]
    if schedule.host_peak_bytes:
        parts.append(f"host {format_bytes(schedule.host_peak_bytes)}")
    return "   ".join(parts)


def text(schedule: Schedule) -> str:
    cells = table(schedule)
    widths = [max(len(instruction[i]) for instruction in cells) for i in range(6)]
    lines = [heading(schedule)]
    for instruction in cells:
        tick, *rest = instruction
        columns = [tick.rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(rest, widths[1:])), instruction[6]]
        lines.append(" ".join(columns).rstrip())
    return "\n".join(lines) + "\n"
