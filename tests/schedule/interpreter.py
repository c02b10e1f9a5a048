"""Runs a schedule on symbols instead of numbers, in every order of rows that its `after` edges permit to matter.

A brute-force twin of schedule/check.py.  Memory is a dictionary of cells of 64 bytes; a value is known by the op that
made it and the values it was made from, so a wrong input, a torn value or a forgotten `after` gives another one.

    one run   rows are executed one by one, in an order that respects streams and `after`
    all runs  for each row, the run in which it comes as early as it can: everything it must wait for goes first, in
              order, then the row, then the rest; so each pair of rows that are not ordered meets both ways round
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layermem.graph.ops import Graph, Op
from layermem.schedule.ir import Instruction, Residency, Schedule

CELL = 64
GARBAGE = "garbage"


def wrong_runs(schedule: Schedule) -> list[str]:
    """What goes wrong in some permitted order of the rows; empty if nothing ever does."""
    found: list[str] = []
    for order in orders(schedule):
        found += _Run(schedule).run(order)
        if found:
            break
    return found


def orders(schedule: Schedule) -> Iterator[list[Instruction]]:
    rows = list(schedule.instructions)
    yield rows
    ancestors: list[set[int]] = []
    last: dict[str, int] = {}
    for row in rows:
        direct = {last[row.stream]} if row.stream in last else set()
        direct |= set(row.after)
        ancestors.append(direct.union(*(ancestors[tick] for tick in direct if tick < row.tick)))
        last[row.stream] = row.tick
    for row in rows:
        first = [each for each in rows if each.tick in ancestors[row.tick]]
        if len(first) != row.tick:  # else it is the order of the rows
            rest = [each for each in rows if each.tick not in ancestors[row.tick] and each.tick != row.tick]
            yield [*first, row, *rest]


def final_values(graph: Graph) -> dict[str, object]:
    """What the persistent buffers hold after a step in the graph's own order."""
    return _in_order(graph)[1]


class _Run:
    """One order of the rows.  `cells` maps (host?, cell number) to (value, which part of it)."""

    def __init__(self, schedule: Schedule):
        self.schedule, self.graph = schedule, schedule.graph
        self.cells: dict[tuple[bool, int], tuple[object, int]] = {}
        self.inputs, self.final = _in_order(self.graph)
        self.persistent = _homes(schedule)
        for r in self.persistent:
            self._store(r, ("start", r.buffer))

    def run(self, order: Iterable[Instruction]) -> list[str]:
        ran: set[str] = set()
        wrong: list[str] = []
        for row in order:
            if row.op is None:
                value = self._load(self.schedule.residencies[row.reads[0]])
                self._store(self.schedule.residencies[row.writes[0]], value)
                continue
            values = self._compute(row, row.op)
            if row.op is self.graph.by_name[row.what] and values != self.inputs[row.what]:
                wrong.append(f"row {row.tick} ({row.what}) reads other values than in the graph's order")
            ran.add(row.what)
        wrong += [f"{op.name} never ran" for op in self.graph.ops if op.name not in ran]
        homes = {r.buffer for r in self.persistent}
        for name in self.final:
            if name not in homes and any(name in op.touches for op in self.graph.ops):
                wrong.append(f"{name} has no home")
        for r in self.persistent:
            if self._load(r) != self.final[r.buffer]:
                wrong.append(f"{r.buffer} is not back home")
        return wrong

    def _compute(self, row: Instruction, op: Op) -> dict[str, object]:
        """Run one op: its workspace and its outputs are garbage before it reads, but for lawful overlays."""
        at = {op.roles[role]: self.schedule.residencies[rid] for role, rid in row.roles.items() if role in op.roles}
        if "workspace" in row.roles:
            self._store(self.schedule.residencies[row.roles["workspace"]], GARBAGE)
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
    """The value that `op` leaves in `buffer`.  A replay gives what the first run gave, if it reads what that read; a
    stash that it reads must be the one that its other inputs lead to."""
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
    """Per op, the values that it reads when the graph's ops run in their own order; and how persistent ones end."""
    now: dict[str, object] = {name: ("start", name) for name, b in graph.buffers.items() if b.persistent}
    inputs = {}
    for op in graph.ops:
        inputs[op.name] = {name: now[name] for name in (*op.reads, *op.updates)}
        now.update({name: result(graph, op, name, inputs[op.name]) for name in (*op.updates, *op.writes)})
    return inputs, {name: now[name] for name, b in graph.buffers.items() if b.persistent}


def _homes(schedule: Schedule) -> list[Residency]:
    """Where persistent buffers lie between steps: in the host arena if they are there for the whole step."""
    homes: dict[str, Residency] = {}
    for r in schedule.residencies:
        buffer = schedule.graph.buffers.get(r.buffer)
        whole = (r.begin, r.end) == (0, len(schedule.instructions))
        if buffer is not None and buffer.persistent and whole and (r.buffer not in homes or r.host):
            homes[r.buffer] = r
    return list(homes.values())
