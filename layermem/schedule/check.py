"""Proves that a schedule is safe.  This file shares no code with the scheduler: it reads only the instructions.

It goes through the instructions once and follows every value from the op that wrote it:

    order       which instructions are complete when one starts: those before it in its stream, those it waits for, and
                all that these waited for; a step starts when the previous one is complete
    bytes       which residency holds each byte; an instruction may overwrite bytes only if every access to them is
                complete.  Views of different items do not share bytes
    values      the value in each residency, per item if ops view items: an op must read exactly the values that it
                reads in the graph's order, and a recomputation the values of the first run
    overlays    an output on top of an input only where the op permits it, and at the same offset
    persistent  a buffer that outlives the step starts and ends at one offset, the same in all schedules that share the
                arena, and no other schedule writes there
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layermem.graph.ops import Graph, Op
from layermem.ops import BatchSlice
from layermem.schedule.ir import Instruction, Residency, Schedule
from layermem.schedule.validate import structural_errors

SHOWN = 10  # violations that an error quotes
Value = tuple[str, str]  # (op, buffer), or ("", buffer) for the initial value of a persistent buffer
Part = tuple[str, int]  # a buffer, and the first of the items that ops view; 0 without views
Ints = npt.NDArray[np.int64]


class UnsafeSchedule(Exception):
    """A schedule breaks a rule; the message says at which tick, which bytes, and why."""


def check(*schedules: Schedule) -> None:
    """Raise UnsafeSchedule with all violations, if there are any; several schedules share one arena."""
    broken = [sentence for schedule in schedules for sentence in violations(schedule)]
    broken += conflicts(schedules)
    if broken:
        more = f" (and {len(broken) - SHOWN} more)" if len(broken) > SHOWN else ""
        raise UnsafeSchedule("; ".join(broken[:SHOWN]) + more)


def violations(schedule: Schedule) -> list[str]:
    """Return a sentence for every rule that one schedule breaks."""
    return structural_errors(schedule) or _Verifier(schedule).verify()


def conflicts(schedules: Sequence[Schedule]) -> list[str]:
    """Return a sentence for every persistent buffer whose offset differs between schedules, or that another schedule
    overwrites."""
    sentences = []
    known: dict[str, Residency] = {}
    own = [persistent_residencies(schedule) for schedule in schedules]
    for schedule, residencies in zip(schedules, own):
        for name, r in residencies.items():
            first = known.setdefault(name, r)
            if (first.host, first.offset) != (r.host, r.offset):
                sentences.append(f"'{name}' outlives a step, but has other bytes in {schedule.graph.name} than before")
    for host in (False, True):
        fixed = sorted((r.offset, r.offset + r.nbytes, name) for name, r in known.items() if r.host == host)
        begins, ends = [begin for begin, _, _ in fixed], [end for _, end, _ in fixed]
        for schedule, residencies in zip(schedules, own):
            for r in schedule.residencies:
                if r.host != host or not r.nbytes:
                    continue
                for _, _, name in fixed[bisect_right(ends, r.offset) : bisect_left(begins, r.offset + r.nbytes)]:
                    if name not in residencies and name != r.buffer:  # its own are checked tick by tick
                        where = f"'{r.buffer}' of {schedule.graph.name}"
                        sentences.append(f"{where} lies on '{name}', which outlives the step")
    return sentences


def persistent_residencies(schedule: Schedule) -> dict[str, Residency]:
    """The residency of each persistent buffer between steps: in the host arena if it has one there."""
    residencies: dict[str, Residency] = {}
    for r in schedule.residencies:
        buffer = schedule.graph.buffers.get(r.buffer)
        whole_step = r.begin == 0 and r.end == len(schedule.instructions)
        if whole_step and buffer is not None and buffer.persistent and (r.host or r.buffer not in residencies):
            residencies[r.buffer] = r
    return residencies


@dataclass
class _Arena:
    """The bytes, cut into pieces where residencies begin or end, with the holder and the last accesses of each
    piece."""

    edges: list[int]
    holder: Ints  # residency id, -1 free
    touched: dict[str, Ints]  # stream -> tick of the last access
    spans: dict[tuple[int, tuple[int, int] | None], slice]  # residency id, bounds -> its pieces

    @staticmethod
    def over(residencies: Iterable[Residency], streams: Iterable[str], parts: _Parts) -> _Arena:
        edges = sorted({r.offset + edge for r in residencies for edge in (r.nbytes, *parts.edges(r.buffer))})
        return _Arena(edges, np.full(len(edges), -1), {s: np.full(len(edges), -1) for s in streams}, {})

    def span(self, r: Residency, bounds: tuple[int, int] | None = None) -> slice:
        """The pieces of a residency, or of its bytes within `bounds`."""
        if (r.id, bounds) not in self.spans:
            begin, end = (r.offset + at for at in bounds or (0, r.nbytes))
            self.spans[r.id, bounds] = slice(bisect_left(self.edges, begin), bisect_left(self.edges, end))
        return self.spans[r.id, bounds]

    def others(self, r: Residency, span: slice) -> list[int]:
        """The residencies other than `r` that hold bytes of `span`."""
        held = self.holder[span]
        foreign = held[held != r.id]
        return sorted({*foreign.tolist()} - {-1}) if foreign.size else []


class _Parts:
    """The items of buffers that ops access by views: each part of a buffer is followed separately."""

    def __init__(self, graph: Graph):
        self.buffers = graph.buffers
        self.parts_of: dict[str, list[Part]] = {}  # results of all()
        self.views: dict[str, dict[int, BatchSlice]] = {}
        for op in graph.ops:
            for buffer, items in op.view_of.items():
                self.views.setdefault(buffer, {})[items.first] = items

    def broken(self) -> list[str]:
        """Sentences about buffers whose views overlap, or do not hold all items."""
        sentences = []
        for buffer, views in self.views.items():
            in_order = [views[first] for first in sorted(views)]
            ends = [items.first + items.count for items in in_order]
            if [items.first for items in in_order] != [0, *ends[:-1]] or not in_order[-1].is_last:
                sentences.append(f"the views of '{buffer}' are not a partition of its items")
        return sentences

    def edges(self, buffer: str) -> list[int]:
        """Offsets within the buffer at which its parts begin."""
        nbytes = self.buffers[buffer].nbytes if buffer in self.buffers else 0
        return [items.span(nbytes)[0] for items in self.views.get(buffer, {}).values()] or [0]

    def bounds(self, op: Op | None, buffer: str) -> tuple[int, int] | None:
        """The bytes of `buffer` that an op accesses; None for all."""
        items = op.view_of.get(buffer) if op is not None and op.views else None
        return None if items is None else items.span(self.buffers[buffer].nbytes)

    def bounds_of(self, buffer: str, first: int) -> tuple[int, int] | None:
        """The bytes of the part of `buffer` that begins with item `first`; None if there is only one part."""
        items = self.views.get(buffer, {}).get(first)
        return None if items is None else items.span(self.buffers[buffer].nbytes)

    def of(self, op: Op, buffers: Iterable[str]) -> list[Part]:
        """The parts of `buffers` that an op accesses."""
        if not op.views:
            return [part for buffer in buffers for part in self.all(buffer)]
        parts: list[Part] = []
        for buffer in buffers:
            if buffer in op.view_of:
                parts.append((buffer, op.view_of[buffer].first))
            else:
                parts += self.all(buffer)
        return parts

    def all(self, buffer: str) -> list[Part]:
        if buffer not in self.parts_of:
            self.parts_of[buffer] = [(buffer, first) for first in self.views.get(buffer, (0,))]
        return self.parts_of[buffer]


class _Verifier:
    """The state of all bytes and values after each instruction."""

    def __init__(self, schedule: Schedule):
        self.schedule, self.graph = schedule, schedule.graph
        self.sentences: list[str] = []
        self.streams = sorted({instruction.stream for instruction in schedule.instructions})
        self.done: list[dict[str, int]] = []  # per tick: stream -> last tick that is complete before it starts
        self.last: dict[str, int] = {}  # stream -> its last tick so far
        kinds = {host: [r for r in schedule.residencies if r.host == host] for host in (False, True)}
        self.parts = _Parts(self.graph)
        self.sentences += self.parts.broken()
        self.arena = {host: _Arena.over(of_kind, self.streams, self.parts) for host, of_kind in kinds.items()}
        self.value: dict[tuple[int, int], Value] = {}  # (residency, first item of a part) -> its value
        self.written_by: dict[int, Instruction] = {}
        self.expected, self.final = _values_in_order(self.graph, self.parts)
        self.ran: set[str] = set()
        self.persistent = persistent_residencies(schedule)
        for r in self.persistent.values():
            arena = self.arena[r.host]
            for other in arena.others(r, arena.span(r)):
                names = f"'{r.buffer}' and {self._names(np.array([other]))}"
                self.sentences.append(f"{names} have persistent offsets on the same bytes")
            self.value.update({(r.id, first): ("", r.buffer) for _, first in self.parts.all(r.buffer)})
            arena.holder[arena.span(r)] = r.id

    def verify(self) -> list[str]:
        """Return all violations as sentences."""
        for instruction in self.schedule.instructions:
            self._follow(instruction)
        self._finish()
        return self.sentences

    def _follow(self, instruction: Instruction) -> None:
        done = self._complete_before(instruction)
        self.done.append(done)
        self.last[instruction.stream] = instruction.tick
        started = self._started(instruction)
        for rid in instruction.reads:
            if self.schedule.residencies[rid].buffer not in started:
                self._read(instruction, self.schedule.residencies[rid], done)
        for rid in instruction.writes:
            self._write(instruction, self.schedule.residencies[rid], done)
        if instruction.op is not None:
            self._op(instruction, instruction.op)
        else:
            self._copy(instruction)

    def _finish(self) -> None:
        self.sentences += [f"'{op.name}' never runs" for op in self.graph.ops if op.name not in self.ran]
        used = {r.buffer for r in self.schedule.residencies}
        for name in (b.name for b in self.graph.persistent() if b.name in used):
            r = self.persistent.get(name)
            if r is None:
                self.sentences.append(f"'{name}' outlives the step, but has no bytes of its own for the whole of it")
            elif any(self.value.get((r.id, part[1])) != self.final[part] for part in self.parts.all(name)) or not (
                self._holds(r)
            ):
                self.sentences.append(f"'{name}' is not at its persistent offset at the end of the step")

    def _say(self, instruction: Instruction, text: str) -> None:
        self.sentences.append(f"tick {instruction.tick} ({instruction.kind} {instruction.what}) {text}")

    # -- order -------------------------------------------------------------------------------------------------

    def _complete_before(self, instruction: Instruction) -> dict[str, int]:
        before = [self.last[instruction.stream]] if instruction.stream in self.last else []
        if before and not instruction.after:
            return {**self.done[before[0]], instruction.stream: before[0]}
        done: dict[str, int] = {}
        for tick in (*before, *instruction.after):
            for stream, when in {**self.done[tick], self.schedule.instructions[tick].stream: tick}.items():
                done[stream] = max(done.get(stream, -1), when)
        return done

    # -- bytes -------------------------------------------------------------------------------------------------

    def _read(self, instruction: Instruction, r: Residency, done: dict[str, int]) -> None:
        self._inside(instruction, r)
        arena = self.arena[r.host]
        span = arena.span(r, self.parts.bounds(instruction.op, r.buffer))
        if instruction.op is None and r.buffer in self.parts.views:  # copies only the parts that hold a value
            parts = (self.parts.bounds_of(r.buffer, first) for first in self._written_parts(r.id, r.buffer))
            read = np.concatenate([arena.holder[arena.span(r, bounds)] for bounds in parts] or [arena.holder[:0]])
        else:
            read = arena.holder[span]
        foreign = read[read != r.id]
        if foreign.size:
            self._say(instruction, f"reads '{r.buffer}', but its bytes hold {self._names(foreign)}")
        writer = self.written_by.get(r.id)
        if writer is not None and writer.tick > done.get(writer.stream, -1):
            self._say(instruction, f"reads '{r.buffer}' without waiting for tick {writer.tick}, which writes it")
        arena.touched[instruction.stream][span] = instruction.tick

    def _write(self, instruction: Instruction, r: Residency, done: dict[str, int]) -> None:
        self._inside(instruction, r)
        arena = self.arena[r.host]
        span = arena.span(r, self.parts.bounds(instruction.op, r.buffer))
        for stream in self.streams:
            if stream == instruction.stream:
                continue
            latest = int(arena.touched[stream][span].max(initial=-1))
            if latest > done.get(stream, -1):
                self._say(
                    instruction, f"writes bytes of '{r.buffer}' without waiting for tick {latest} to release them"
                )
        for other in arena.others(r, span):
            self._overwrite(instruction, r, self.schedule.residencies[other])
        arena.holder[span] = r.id
        arena.touched[instruction.stream][span] = instruction.tick
        self.written_by[r.id] = instruction

    def _overwrite(self, instruction: Instruction, new: Residency, old: Residency) -> None:
        """Check a write of `new` over bytes of `old`: `old` must have ended, or the overlay must be permitted."""
        whole = new.begin == old.begin == 0 and new.end == old.end == len(self.schedule.instructions)
        if new.over == old.id and instruction.op is not None:
            permitted = any((o.out, o.over) == (new.buffer, old.buffer) for o in instruction.op.overlays)
            same = (new.offset, new.nbytes) == (old.offset, old.nbytes)
            if not (permitted and same and (whole or old.end <= instruction.tick + 1)):
                self._say(instruction, f"lays '{new.buffer}' over '{old.buffer}' where that is not permitted")
        elif old.end > instruction.tick and not (whole and self._chain(new) == self._chain(old)):
            self._say(instruction, f"writes '{new.buffer}' over '{old.buffer}', which is resident until tick {old.end}")

    def _chain(self, r: Residency) -> int:
        """The first residency of a chain of overlays, in which residencies of the whole step share bytes."""
        while r.over is not None:
            r = self.schedule.residencies[r.over]
        return r.id

    def _inside(self, instruction: Instruction, r: Residency) -> None:
        if not r.begin <= instruction.tick < r.end:
            self._say(instruction, f"touches '{r.buffer}' outside its residency [{r.begin}, {r.end})")

    def _holds(self, r: Residency) -> bool:
        arena = self.arena[r.host]
        return bool((arena.holder[arena.span(r)] == r.id).all())

    def _names(self, holders: Ints) -> str:
        names = [f"'{self.schedule.residencies[h].buffer}'" if h >= 0 else "nothing" for h in np.unique(holders)]
        return " and ".join(names[:3])

    # -- values ------------------------------------------------------------------------------------------------

    def _copy(self, instruction: Instruction) -> None:
        source, target = instruction.reads[0], instruction.writes[0]
        written = self._written_parts(source, instruction.what)
        for first in written:
            self.value[target, first] = self.value[source, first]
        if not written:
            self._say(instruction, "copies it before anything wrote it")

    def _written_parts(self, rid: int, buffer: str) -> list[int]:
        """First items of the parts of a buffer that hold a value; between two slices that write it, some parts do
        not."""
        return [first for _, first in self.parts.all(buffer) if (rid, first) in self.value]

    def _op(self, instruction: Instruction, op: Op) -> None:
        done = {instruction.what, *op.covers}
        first = not done & self.ran
        self.ran |= done
        if first != (op is self.graph.by_name[instruction.what]):
            self._say(
                instruction,
                "is recomputed before it ran at all" if first else "runs a second time, not as its recomputation",
            )
        at = {op.roles[role]: rid for role, rid in instruction.roles.items() if role in op.roles}
        inputs, outputs = self.expected[instruction.what]
        started = self._started(instruction)
        for part in self.parts.of(op, (*op.reads, *op.updates)):
            if part[0] in started:
                continue
            wanted = inputs.get(part) if first else outputs.get(part, inputs.get(part))
            if wanted is None or self.value.get((at[part[0]], part[1])) != wanted:
                self._say(instruction, f"reads '{part[0]}', which does not hold {self._story(wanted)}")
        for part in self.parts.of(op, (*op.writes, *op.updates)):
            self.value[at[part[0]], part[1]] = outputs[part]

    def _started(self, instruction: Instruction) -> set[str]:
        """Buffers among an op's updates whose viewed items it is the first to write, so that it reads no value of
        them."""
        op = instruction.op
        if op is None or not op.views:
            return set()
        written: dict[str, str] = {}  # a buffer -> the first role that has it; later roles add to it
        for role in op.roles:
            written.setdefault(op.roles[role], role)
        added = {buffer for buffer, role in written.items() if role in op.accumulates}
        inputs, _ = self.expected[instruction.what]
        viewed = (b for b in op.updates if b in op.view_of and b not in added)
        return {b for b in viewed if (b, op.view_of[b].first) not in inputs}

    def _story(self, value: Value | None) -> str:
        if value is None:
            return "anything yet"
        return f"what '{value[0]}' left there" if value[0] else "what it held when the step began"


Values = dict[Part, Value]


def _values_in_order(graph: Graph, parts: _Parts) -> tuple[dict[str, tuple[Values, Values]], Values]:
    """Per op, the values that it reads and writes in the graph's order; then the final values of buffers."""
    now: Values = {part: ("", b.name) for b in graph.persistent() for part in parts.all(b.name)}
    in_order = {}
    for op in graph.ops:
        inputs = {part: now[part] for part in parts.of(op, (*op.reads, *op.updates)) if part in now}
        outputs = {part: (op.name, part[0]) for part in parts.of(op, (*op.writes, *op.updates))}
        now.update(outputs)
        in_order[op.name] = (inputs, outputs)
    for op in graph.fused_updates:  # values before the first covered op that reads a buffer, and after the last
        ins, outs = zip(*(in_order[name] for name in op.covers))
        read, written = parts.of(op, (*op.reads, *op.updates)), parts.of(op, (*op.writes, *op.updates))
        inputs = {b: next(each[b] for each in ins if b in each) for b in read}
        left: Values = {b: value for each in outs for b, value in each.items()}
        in_order[op.name] = (inputs, {b: left[b] for b in written})
    return in_order, now
