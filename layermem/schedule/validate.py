"""Does a schedule say what rows and residencies may say at all?  check.py follows the values of those that do.

residency   a stay inside the step, at an aligned offset inside its arena, at least as large as its buffer
copy        one buffer from the device to the host on stream d2h, or back on h2d
op          an op of the graph on stream compute, with all its roles on residencies of the right buffers on the
            device; what the row reads and writes is what the op reads and writes, and its workspace
"""

from __future__ import annotations

from collections.abc import Iterator

from layermem.graph.ops import Op
from layermem.schedule.ir import COMPUTE, D2H, H2D, Residency, Row, Schedule

ALIGNMENT = 256
COPIES = {"offload": (D2H, False, True), "prefetch": (H2D, True, False)}  # verb -> stream, from host?, to host?


def malformed(schedule: Schedule) -> list[str]:
    """Every ill-formed residency and row as a sentence."""
    found = [sentence for r in schedule.residencies for sentence in _residency(schedule, r)]
    if [r.id for r in schedule.residencies] != list(range(len(schedule.residencies))):
        found.append("residencies are not numbered by their places")
    if [row.tick for row in schedule.rows] != list(range(len(schedule.rows))):
        found.append("rows are not numbered by their places")
    for row in schedule.rows:
        found += [f"row {row.tick} ({row.verb} {row.what}) {sentence}" for sentence in _row(schedule, row)]
    return found


def _residency(schedule: Schedule, r: Residency) -> Iterator[str]:
    who, limit = f"residency {r.id} of '{r.buffer}'", schedule.host_peak if r.host else schedule.peak
    if not 0 <= r.begin < r.end <= len(schedule.rows):
        yield f"{who} has the impossible ticks [{r.begin}, {r.end})"
    if r.offset % ALIGNMENT:
        yield f"{who} lies at {r.offset}, which is no multiple of {ALIGNMENT}"
    if r.offset < 0 or r.offset + r.nbytes > limit:
        yield f"{who} lies at {r.offset}+{r.nbytes}, outside an arena of {limit} bytes"
    buffer = schedule.graph.buffers.get(r.buffer)
    if buffer is not None and r.nbytes < buffer.nbytes:
        yield f"{who} has {r.nbytes} bytes, its buffer {buffer.nbytes}"
    if r.over is not None and not 0 <= r.over < r.id:
        yield f"{who} claims the bytes of residency {r.over}, which does not come before it"


def _row(schedule: Schedule, row: Row) -> Iterator[str]:
    for tick in row.after:
        if not 0 <= tick < row.tick:
            yield f"waits for row {tick}, which does not come before it"
    unknown = [i for i in (*row.reads, *row.writes, *row.roles.values()) if not 0 <= i < len(schedule.residencies)]
    if unknown:
        yield f"names residency {unknown[0]}, which does not exist"
    elif row.op is None:
        yield from _copy(schedule, row)
    elif row.what not in schedule.graph.by_name:
        yield "is not an op of the graph"
    else:
        yield from _op(schedule, row, row.op)


def _copy(schedule: Schedule, row: Row) -> Iterator[str]:
    if row.verb not in COPIES or (len(row.reads), len(row.writes)) != (1, 1):
        yield "is neither an op nor a copy of one residency to another"
        return
    source, target = schedule.residencies[row.reads[0]], schedule.residencies[row.writes[0]]
    if (row.stream, source.host, target.host) != COPIES[row.verb]:
        yield f"copies from the {_arena(source)} to the {_arena(target)} on stream {row.stream}"
    if not source.buffer == target.buffer == row.what or source.nbytes != target.nbytes:
        yield f"copies {source.nbytes} bytes of '{source.buffer}' to {target.nbytes} of '{target.buffer}'"


def _arena(r: Residency) -> str:
    return "host" if r.host else "device"


def _op(schedule: Schedule, row: Row, op: Op) -> Iterator[str]:
    original = schedule.graph.by_name[row.what]
    if op is not original and op is not original.replay:
        yield "runs something else than the op of that name"
        return
    if row.stream != COMPUTE:
        yield f"runs on stream {row.stream}"
    wanted = {**op.roles, **({"workspace": None} if op.workspace else {})}
    if row.roles.keys() != wanted.keys():
        yield f"gives the roles {' '.join(sorted(row.roles))}, but its kernel takes {' '.join(sorted(wanted))}"
        return
    at: dict[str, int] = {}
    for role, rid in row.roles.items():
        r, buffer = schedule.residencies[rid], wanted[role]
        if r.host:
            yield f"finds '{r.buffer}' in the host arena"
        if buffer is None and r.nbytes < op.workspace:
            yield f"has a workspace of {r.nbytes} bytes, but needs {op.workspace}"
        elif buffer is not None and (r.buffer != buffer or at.setdefault(buffer, rid) != rid):
            yield f"takes '{r.buffer}' for its {role}, which is '{buffer}'"
    scratch = [row.roles["workspace"]] if op.workspace else []
    for what, listed, buffers in (
        ("reads", row.reads, (*op.reads, *op.updates)),
        ("writes", row.writes, (*op.updates, *op.writes)),
    ):
        true = {*(at[b] for b in buffers if b in at), *(scratch if what == "writes" else ())}
        if {*listed} != true:
            names = " ".join(sorted(schedule.residencies[rid].buffer for rid in {*listed} ^ true))
            yield f"is wrong about what it {what}: {names}"
