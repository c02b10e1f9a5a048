"""The rules for a single residency or instruction; check.py then follows the values.

residency   ticks inside the step, an aligned offset inside its arena, at least as many bytes as its buffer
copy        one buffer from the device to the host on stream d2h, or back on h2d
op          an op of the graph on its stream, with all its roles on residencies of the right buffers on the device; the
            instruction reads and writes exactly the buffers of the op and its workspace, on the device and on the
            host; the items that it views exist in its buffers
"""

from __future__ import annotations

from collections.abc import Iterator

from layermem.graph.ops import Op
from layermem.schedule.ir import D2H, H2D, Instruction, Residency, Schedule

ALIGNMENT = 256
COPIES = {"offload": (D2H, False, True), "prefetch": (H2D, True, False)}  # kind -> stream, from host?, to host?


def structural_errors(schedule: Schedule) -> list[str]:
    """Return a sentence for every ill-formed residency and instruction."""
    sentences = [sentence for r in schedule.residencies for sentence in _residency(schedule, r)]
    if [r.id for r in schedule.residencies] != list(range(len(schedule.residencies))):
        sentences.append("residencies are not numbered by their places")
    if [instruction.tick for instruction in schedule.instructions] != list(range(len(schedule.instructions))):
        sentences.append("instructions are not numbered by their places")
    for instruction in schedule.instructions:
        sentences += [
            f"tick {instruction.tick} ({instruction.kind} {instruction.what}) {sentence}"
            for sentence in _instruction(schedule, instruction)
        ]
    return sentences


def _residency(schedule: Schedule, r: Residency) -> Iterator[str]:
    who, limit = f"residency {r.id} of '{r.buffer}'", schedule.host_peak_bytes if r.host else schedule.peak_bytes
    if not 0 <= r.begin < r.end <= len(schedule.instructions):
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


def _instruction(schedule: Schedule, instruction: Instruction) -> Iterator[str]:
    for tick in instruction.after:
        if not 0 <= tick < instruction.tick:
            yield f"waits for tick {tick}, which does not come before it"
    unknown = [
        i
        for i in (*instruction.reads, *instruction.writes, *instruction.roles.values())
        if not 0 <= i < len(schedule.residencies)
    ]
    if unknown:
        yield f"names residency {unknown[0]}, which does not exist"
    elif instruction.op is None:
        yield from _copy(schedule, instruction)
    elif instruction.what not in schedule.graph.by_name:
        yield "is not an op of the graph"
    else:
        yield from _op(schedule, instruction, instruction.op)


def _copy(schedule: Schedule, instruction: Instruction) -> Iterator[str]:
    if instruction.kind not in COPIES or (len(instruction.reads), len(instruction.writes)) != (1, 1):
        yield "is neither an op nor a copy of one residency to another"
        return
    source, target = schedule.residencies[instruction.reads[0]], schedule.residencies[instruction.writes[0]]
    if (instruction.stream, source.host, target.host) != COPIES[instruction.kind]:
        yield f"copies from the {_arena(source)} to the {_arena(target)} on stream {instruction.stream}"
    if not source.buffer == target.buffer == instruction.what or source.nbytes != target.nbytes:
        yield f"copies {source.nbytes} bytes of '{source.buffer}' to {target.nbytes} of '{target.buffer}'"


def _arena(r: Residency) -> str:
    return "host" if r.host else "device"


def _op(schedule: Schedule, instruction: Instruction, op: Op) -> Iterator[str]:
    original = schedule.graph.by_name[instruction.what]
    if op is not original and op is not original.recompute:
        yield "runs something else than the op of that name"
        return
    if instruction.stream != op.stream:
        yield f"runs on stream {instruction.stream}"
    workspaces = {"workspace": op.workspace_bytes, "host_workspace": op.host_workspace_bytes}
    workspaces = {role: nbytes for role, nbytes in workspaces.items() if nbytes}
    wanted = {**op.roles, **dict.fromkeys(workspaces)}
    if instruction.roles.keys() != wanted.keys():
        yield f"gives the roles {' '.join(sorted(instruction.roles))}, but its kernel takes {' '.join(sorted(wanted))}"
        return
    at: dict[str, int] = {}
    for role, rid in instruction.roles.items():
        r, buffer = schedule.residencies[rid], wanted[role]
        if r.host != (role == "host_workspace"):
            yield f"finds '{r.buffer}' in the {_arena(r)} arena"
        if buffer is None and r.nbytes < workspaces[role]:
            yield f"has a workspace of {r.nbytes} bytes, but needs {workspaces[role]}"
        elif buffer is not None and (r.buffer != buffer or at.setdefault(buffer, rid) != rid):
            yield f"takes '{r.buffer}' for its {role}, which is '{buffer}'"
    for role, items in op.views.items():
        r = schedule.residencies[instruction.roles[role]]
        buffer_bytes = schedule.graph.buffers[r.buffer].nbytes
        if not 0 <= items.first < items.first + items.count <= items.items or buffer_bytes % items.items:
            yield f"views {items} of '{r.buffer}', whose {buffer_bytes} bytes do not have them"
    workspace = [instruction.roles[role] for role in workspaces]
    for what, listed, buffers in (
        ("reads", instruction.reads, (*op.reads, *op.updates)),
        ("writes", instruction.writes, (*op.updates, *op.writes)),
    ):
        true = {*(at[b] for b in buffers if b in at), *(workspace if what == "writes" else ())}
        if {*listed} != true:
            names = " ".join(sorted(schedule.residencies[rid].buffer for rid in {*listed} ^ true))
            yield f"is wrong about what it {what}: {names}"
