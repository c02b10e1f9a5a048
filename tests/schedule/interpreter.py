"""Runs a schedule on symbols instead of numbers, in every order of instructions that can matter.

A brute-force oracle of schedule/check.py.  Memory is a dictionary of cells of 64 bytes; a value is identified by the op
that computed it and the values it was computed from, so a wrong input, a torn value or a missing `after` gives another.

    one run   instructions execute one by one, in an order that respects streams and `after`
    all runs  for each instruction, the run in which it comes as early as possible: first everything that it must wait
              for, in order, then the instruction, then the rest; so each pair of unordered instructions occurs in both
              orders
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layermem.graph.ops import Graph, Op
from layermem.schedule.ir import Instruction, Residency, Schedule

CELL = 64
GARBAGE = "garbage"


def wrong_runs(schedule: Schedule) -> list[str]:
    """The errors of some permitted order of the instructions; empty if there are none in any order."""
    found: list[str] = []
    for order in orders(schedule):
        found += _Run(schedule).run(order)
        if found:
            break
    return found


def orders(schedule: Schedule) -> Iterator[list[Instruction]]:
    instructions = list(schedule.instructions)
    yield instructions
    ancestors: list[set[int]] = []
    last: dict[str, int] = {}
    for instruction in instructions:
        direct = {last[instruction.stream]} if instruction.stream in last else set()
        direct |= set(instruction.after)
        ancestors.append(direct.union(*(ancestors[tick] for tick in direct if tick < instruction.tick)))
        last[instruction.stream] = instruction.tick
    for instruction in instructions:
        first = [each for each in instructions if each.tick in ancestors[instruction.tick]]
        if len(first) != instruction.tick:  # otherwise it is the order of the instructions
            rest = [
                each
                for each in instructions
                if each.tick not in ancestors[instruction.tick] and each.tick != instruction.tick
            ]
            yield [*first, instruction, *rest]


def final_values(graph: Graph) -> dict[str, object]:
    """The values of persistent buffers after a step in the graph's own order."""
    return _in_order(graph)[1]


class _Run:
    """One order of the instructions.  `cells` maps (host?, cell number) to (value, part of the value)."""

    def __init__(self, schedule: Schedule):
        self.schedule, self.graph = schedule, schedule.graph
        self.cells: dict[tuple[bool, int], tuple[object, int]] = {}
        self.inputs, self.final = _in_order(self.graph)
        self.persistent = _between_steps(schedule)
        for r in self.persistent:
            self._store(r, ("start", r.buffer))

    def run(self, order: Iterable[Instruction]) -> list[str]:
        ran: set[str] = set()
        wrong: list[str] = []
        for instruction in order:
            if instruction.op is None:
                value = self._load(self.schedule.residencies[instruction.reads[0]])
                self._store(self.schedule.residencies[instruction.writes[0]], value)
                continue
            values = self._compute(instruction, instruction.op)
            if instruction.op is self.graph.by_name[instruction.what] and values != self.inputs[instruction.what]:
                wrong.append(
                    f"instruction {instruction.tick} ({instruction.what}) reads other values than in the graph's order"
                )
            ran.add(instruction.what)
        wrong += [f"{op.name} never ran" for op in self.graph.ops if op.name not in ran]
        between_steps = {r.buffer for r in self.persistent}
        for name in self.final:
            if name not in between_steps and any(name in op.touches for op in self.graph.ops):
                wrong.append(f"{name} has no residency between steps")
        for r in self.persistent:
            if self._load(r) != self.final[r.buffer]:
                wrong.append(f"{r.buffer} is not back at its offset")
        return wrong

    def _compute(self, instruction: Instruction, op: Op) -> dict[str, object]:
        """Run one op: its workspace and its outputs are garbage before it reads, except for permitted overlays."""
        at = {
            op.roles[role]: self.schedule.residencies[rid]
            for role, rid in instruction.roles.items()
            if role in op.roles
        }
        if "workspace" in instruction.roles:
            self._store(self.schedule.residencies[instruction.roles["workspace"]], GARBAGE)
        for buffer in op.writes:
            spared = {o.over for o in op.overlays if o.out == buffer}
            if not any(at[over][4:7] == at[buffer][4:7] for over in spared):  # size, offset, host or not
                self._store(at[buffer], GARBAGE)
        values = {buffer: self._load(at[buffer]) for buffer in (*op.reads, *op.updates)}
        for buffer in (*op.updates, *op.writes):
            self._store(at[buffer], result(self.graph, op, buffer, values))
        return values

    def _cells(self, r: Residency) -> list[tuple[bool, int]]:
        first = r.offset // CELL
        return [(r.host, first + i) for i in range(-(-(r.offset + r.nbytes) // CELL) - first)]

    def _store(self, r: Residency, value: object) -> None:
        for part, cell in enumerate(self._cells(r)):
            self.cells[cell] = (value, part)

    def _load(self, r: Residency) -> object:
        held = [self.cells.get(cell, (GARBAGE, 0)) for cell in self._cells(r)]
        value = held[0][0] if held else GARBAGE
        whole = all(each == (value, part) for part, each in enumerate(held))
        return value if whole and value != GARBAGE else GARBAGE


def result(graph: Graph, op: Op, buffer: str, values: dict[str, object]) -> object:
    """The value that `op` leaves in `buffer`.  A recomputation gives the value of the first run if it reads the same
    values; a stash that it reads must belong to its other inputs."""
    if GARBAGE in values.values():
        return GARBAGE
    original = graph.by_name[op.name]
    inputs = {name: values[name] for name in original.reads if name in values}
    if op is not original:
        stashed = {name: values[name] for name in op.reads if name not in original.reads}
        if any(value != _made(op.name, name, inputs) for name, value in stashed.items()):
            return GARBAGE
        return _made(op.name, buffer, inputs)
    if buffer in op.updates:
        inputs = {**inputs, buffer: values[buffer]}
    return _made(op.name, buffer, inputs)


def _made(op: str, buffer: str, inputs: dict[str, object]) -> object:
    return hash((op, buffer, tuple(sorted(inputs.items(), key=lambda item: item[0]))))


def _in_order(graph: Graph) -> tuple[dict[str, dict[str, object]], dict[str, object]]:
    """Per op, the values that it reads in the graph's own order; then the final values of persistent buffers."""
    now: dict[str, object] = {name: ("start", name) for name, b in graph.buffers.items() if b.persistent}
    inputs = {}
    for op in graph.ops:
        inputs[op.name] = {name: now[name] for name in (*op.reads, *op.updates)}
        now.update({name: result(graph, op, name, inputs[op.name]) for name in (*op.updates, *op.writes)})
    return inputs, {name: now[name] for name, b in graph.buffers.items() if b.persistent}


def _between_steps(schedule: Schedule) -> list[Residency]:
    """The residencies of persistent buffers between steps: in the host arena if they are there for the whole step."""
    residencies: dict[str, Residency] = {}
    for r in schedule.residencies:
        buffer = schedule.graph.buffers.get(r.buffer)
        whole = (r.begin, r.end) == (0, len(schedule.instructions))
        if buffer is not None and buffer.persistent and whole and (r.buffer not in residencies or r.host):
            residencies[r.buffer] = r
    return list(residencies.values())
