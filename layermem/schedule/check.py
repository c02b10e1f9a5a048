"""Is a schedule safe?  This file shares no code with those that make schedules; it believes only the rows.

It walks the rows once and follows every value from the op that made it:
    order      which rows are certainly complete before a row starts: those before it in its stream, those it waits
               for, and all that these had waited for
    bytes      which residency holds each byte; a row may take bytes over only if all who touched them are done
    values     what each residency holds: an op must read exactly the values that it would read in the graph's order,
               and a replay those that the first run saw
    overlays   an output on top of an input only where the op permits it, and at the same offset
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from layermem.graph.ops import Graph, Op
from layermem.schedule.ir import Residency, Row, Schedule

Value = tuple[object, ...]


class UnsafeSchedule(Exception):
    """A schedule breaks a rule; the message says which row, which bytes, and why."""


def check(schedule: Schedule) -> None:
    """Raise UnsafeSchedule, with all violations, if there is one."""
    found = violations(schedule)
    if found:
        more = f" (and {len(found) - 10} more)" if len(found) > 10 else ""
        raise UnsafeSchedule("; ".join(found[:10]) + more)


def violations(schedule: Schedule) -> list[str]:
    """Every broken rule as a sentence."""
    checker = _Checker(schedule)
    for row in schedule.rows:
        checker.row(row)
    checker.finish()
    return checker.found


@dataclass
class _Arena:
    """Bytes cut at every offset where a residency begins or ends; who holds each piece, and who touched it last."""

    edges: list[int]
    holder: np.ndarray  # residency id, -1 free
    touched: dict[str, np.ndarray]  # stream -> tick of the last access

    @staticmethod
    def over(residencies: Iterable[Residency], streams: list[str]) -> _Arena:
        edges = sorted({edge for r in residencies for edge in (r.offset, r.offset + r.nbytes)})
        return _Arena(edges, np.full(len(edges), -1), {s: np.full(len(edges), -1) for s in streams})

    def span(self, r: Residency) -> slice:
        return slice(bisect_left(self.edges, r.offset), bisect_left(self.edges, r.offset + r.nbytes))


class _Checker:
    def __init__(self, schedule: Schedule):
        self.schedule, self.graph = schedule, schedule.graph
        self.found: list[str] = []
        self.streams = sorted({row.stream for row in schedule.rows})
        self.done: list[dict[str, int]] = []  # per row: stream -> last tick certainly complete before it starts
        self.last: dict[str, int] = {}
        kinds = {host: [r for r in schedule.residencies if r.host == host] for host in (False, True)}
        self.arena = {host: _Arena.over(of_kind, self.streams) for host, of_kind in kinds.items()}
        self.value: dict[int, Value] = {}  # residency -> what it holds
        self.written_by: dict[int, Row] = {}
        self.expected = _values_in_order(self.graph)
        self.ran: set[str] = set()
        for r in schedule.residencies:
            self._sane(r)
            buffer = self.graph.buffers.get(r.buffer)
            if buffer is not None and buffer.persistent and r.begin == 0 and r.end == len(schedule.rows):
                self.value[r.id] = ("start", r.buffer)
                self.arena[r.host].holder[self.arena[r.host].span(r)] = r.id

    def say(self, row: Row, text: str) -> None:
        self.found.append(f"row {row.tick} ({row.verb} {row.what}) {text}")

    def _sane(self, r: Residency) -> None:
        limit = self.schedule.host_peak if r.host else self.schedule.peak
        if not 0 <= r.begin < r.end <= len(self.schedule.rows):
            self.found.append(f"residency {r.id} of '{r.buffer}' has the impossible ticks [{r.begin}, {r.end})")
        if r.offset < 0 or r.offset % 256 or r.offset + r.nbytes > limit:
            self.found.append(f"residency {r.id} of '{r.buffer}' lies at {r.offset}+{r.nbytes}, arena {limit} bytes")
        buffer = self.graph.buffers.get(r.buffer)
        if buffer is not None and r.nbytes < buffer.nbytes:
            self.found.append(f"residency {r.id} of '{r.buffer}' has {r.nbytes} bytes, its buffer {buffer.nbytes}")

    # -- order -------------------------------------------------------------------------------------------------

    def row(self, row: Row) -> None:
        done = dict(self.done[self.last[row.stream]]) if row.stream in self.last else {}
        if row.stream in self.last:
            done[row.stream] = self.last[row.stream]
        for tick in row.after:
            if not 0 <= tick < row.tick:
                self.say(row, f"waits for row {tick}, which does not come before it")
                continue
            other = self.schedule.rows[tick]
            for stream, when in {**self.done[tick], other.stream: tick}.items():
                done[stream] = max(done.get(stream, -1), when)
        self.done.append(done)
        self.last[row.stream] = row.tick
        self._read(row, done)
        self._write(row, done)
        if row.op is not None:
            self._op(row, row.op)
        else:
            self._copy(row)

    # -- bytes -------------------------------------------------------------------------------------------------

    def _read(self, row: Row, done: dict[str, int]) -> None:
        for rid in row.reads:
            r = self.schedule.residencies[rid]
            self._inside(row, r)
            arena = self.arena[r.host]
            span = arena.span(r)
            strangers = arena.holder[span] != rid
            if strangers.any():
                self.say(row, f"reads '{r.buffer}', but its bytes hold {self._names(arena.holder[span][strangers])}")
            writer = self.written_by.get(rid)
            if writer is not None and not self._complete(writer, row, done):
                self.say(row, f"reads '{r.buffer}' without waiting for row {writer.tick}, which writes it")
            arena.touched[row.stream][span] = row.tick

    def _write(self, row: Row, done: dict[str, int]) -> None:
        for rid in row.writes:
            r = self.schedule.residencies[rid]
            self._inside(row, r)
            arena = self.arena[r.host]
            span = arena.span(r)
            for stream in self.streams:
                if stream != row.stream and r.nbytes:
                    latest = int(arena.touched[stream][span].max(initial=-1))
                    if latest > done.get(stream, -1):
                        self.say(row, f"writes bytes of '{r.buffer}' without waiting for row {latest} to leave them")
            held = arena.holder[span]
            strangers = held[(held != rid) & (held >= 0)]
            for other in dict.fromkeys(strangers.tolist()):
                self._takes(row, r, self.schedule.residencies[other])
            arena.holder[span] = rid
            arena.touched[row.stream][span] = row.tick
            self.written_by[rid] = row

    def _takes(self, row: Row, new: Residency, old: Residency) -> None:
        """`row` writes `new` over bytes that `old` held: is that stay over, or is this a permitted overlay?"""
        if new.over == old.id and row.op is not None:
            permitted = any((o.out, o.over) == (new.buffer, old.buffer) for o in row.op.overlays)
            whole = old.end == len(self.schedule.rows)
            if (
                permitted
                and new.offset == old.offset
                and new.nbytes == old.nbytes
                and (whole or old.end <= row.tick + 1)
            ):
                return
            self.say(row, f"lays '{new.buffer}' over '{old.buffer}' where that is not permitted")
        elif old.end > row.tick and not self._same_chain(new, old):
            self.say(row, f"writes '{new.buffer}' over '{old.buffer}', which stays until row {old.end}")

    def _same_chain(self, new: Residency, old: Residency) -> bool:
        """Whole-run versions of one block follow each other round the step."""
        return self._chain(new) == self._chain(old) and new.begin == old.begin == 0

    def _chain(self, r: Residency) -> int:
        while r.over is not None:
            r = self.schedule.residencies[r.over]
        return r.id

    def _inside(self, row: Row, r: Residency) -> None:
        if not r.begin <= row.tick < r.end:
            self.say(row, f"touches '{r.buffer}' outside its stay [{r.begin}, {r.end})")

    def _complete(self, writer: Row, row: Row, done: dict[str, int]) -> bool:
        return writer.tick == row.tick or writer.tick <= done.get(writer.stream, -1)

    def _names(self, holders: np.ndarray) -> str:
        names = [f"'{self.schedule.residencies[h].buffer}'" if h >= 0 else "nothing" for h in np.unique(holders)]
        return " and ".join(names[:3])

    # -- values ------------------------------------------------------------------------------------------------

    def _copy(self, row: Row) -> None:
        (source,), (target,) = row.reads, row.writes
        a, b = self.schedule.residencies[source], self.schedule.residencies[target]
        if a.buffer != b.buffer or a.host == b.host:
            self.say(row, f"copies '{a.buffer}' to '{b.buffer}'")
        if source not in self.value:
            self.say(row, f"copies '{a.buffer}' before anything wrote it")
        self.value[target] = self.value.get(source, ("nothing",))

    def _op(self, row: Row, op: Op) -> None:
        first = op.name not in self.ran and not row.again
        original = self.graph.by_name[row.what]
        if not first and original.replay is not op:
            self.say(row, "runs a second time although it cannot be repeated")
        if first and original is not op:
            self.say(row, "runs as a replay before it ran at all")
        inputs, outputs = self.expected[row.what]
        held = {op.roles[role]: rid for role, rid in row.roles.items() if role in op.roles}
        for buffer in (*op.reads, *op.updates):
            rid = held.get(buffer)
            if rid is None or rid not in row.reads:
                self.say(row, f"does not list '{buffer}' among what it reads")
                continue
            wanted = inputs.get(buffer) if first else inputs.get(buffer, outputs.get(buffer))
            if not first and buffer in outputs and self.value.get(rid) == outputs[buffer]:
                wanted = outputs[buffer]
            if self.value.get(rid) != wanted:
                self.say(row, f"reads '{buffer}', which does not hold what {self._story(wanted)} left there")
        for buffer in (*op.writes, *op.updates):
            rid = held.get(buffer)
            if rid is None or rid not in row.writes:
                self.say(row, f"does not list '{buffer}' among what it writes")
                continue
            self.value[rid] = outputs[buffer]
        if op.workspace and "workspace" not in row.roles:
            self.say(row, f"has no workspace, but needs {op.workspace} bytes")
        self.ran.add(row.what)

    def _story(self, value: Value | None) -> str:
        return f"'{value[0]}'" if value else "an earlier op"

    def finish(self) -> None:
        for op in self.graph.ops:
            if op.name not in self.ran:
                self.found.append(f"'{op.name}' never runs")
        self._parameters_end_at_home()

    def _parameters_end_at_home(self) -> None:
        """A persistent buffer must end the step, whole, where the next step will look for it."""
        final = {b: ("start", b) for b in self.graph.buffers}
        for op in self.graph.ops:
            for buffer in (*op.writes, *op.updates):
                final[buffer] = self.expected[op.name][1][buffer]  # type: ignore[assignment]
        for r in self.schedule.residencies:
            known = self.graph.buffers.get(r.buffer)
            home = r.begin == 0 and r.end == len(self.schedule.rows)
            if known is None or not known.persistent or not home:
                continue
            holders = self.arena[r.host].holder[self.arena[r.host].span(r)]
            if self.value.get(r.id) != final[r.buffer] or (r.nbytes and (holders != r.id).any()):
                self.found.append(f"parameter '{r.buffer}' is not back home at the end of the step")


def _values_in_order(graph: Graph) -> dict[str, tuple[dict[str, Value], dict[str, Value]]]:
    """Per op, the values it reads and leaves when the graph's ops run in their own order."""
    now: dict[str, Value] = {b.name: ("start", b.name) for b in graph.buffers.values() if b.persistent}
    found = {}
    for op in graph.ops:
        inputs = {b: now[b] for b in (*op.reads, *op.updates) if b in now}
        outputs: dict[str, Value] = {b: (op.name, b) for b in (*op.writes, *op.updates)}
        now.update(outputs)
        found[op.name] = (inputs, outputs)
    return found
