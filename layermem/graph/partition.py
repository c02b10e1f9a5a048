"""Ops in pieces along an axis: the one transform behind slices of the batch (slices.py) and bands of rows (bands.py).

An axis says how the operands of an op lie along it (ops.Along), and what a piece of an op and of a buffer is.  For the
ops of a region the transform makes

    pieces    buffers that the ops of one piece alone touch, each with a residency of its own: conv1@2/2
    views     of a buffer that crosses the border of the region and stays whole: the first piece to run writes it, and
              the others update it
    carries   of what is summed along the axis, from piece to piece in rising order (Carries)
    order     prefix        what is behind the region has a backward: the forward of all pieces runs first, in falling
                            order, and their backward after that of the rest, in rising order
              interleaved   nothing behind the region has one: forward and backward of a piece, then of the next one
              staged        an op of the region reads what another one sums: all pieces of a stage run before the next

or it refuses an op by name.  Results have the bits of the whole op, because each sum has one order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from layermem.errors import InputError
from layermem.graph import op_builder
from layermem.graph.ops import BACKWARD, DIFF, FORWARD, STASH, UPDATE, Buffer, BufferOverlay, Graph, Op, unique
from layermem.graph.train import with_updates_placed
from layermem.ops import CARRY, OPEN, WHOLE, Along, BatchSlice, Fill, OpRecord, Tensor

PIECE, VIEW, UNCUT = "piece", "view", "uncut"  # what a piece of an op has of a buffer


class Device(op_builder.Device, Protocol):
    """What pieces need of a device, beside what the training graph needs."""

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None: ...

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int: ...

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool: ...


class Axis:
    """An axis of one graph; each axis says what its pieces are.

    parts            ranges of the axis in rising order, one for each piece
    sums_in_results  sums are carried in the result itself, to which each piece but the first one adds
    remedy           what users can do instead, where an op is refused
    """

    parts: Sequence[BatchSlice]
    sums_in_results = False
    remedy = ""

    def along(self, op: Op) -> Along:
        """How the operands of `op` lie along the axis."""
        raise NotImplementedError

    def lies(self, op: Op, role: str, crosses: bool) -> str:
        """What a piece of `op` has of the buffer of `role`; `crosses`: ops outside the region touch it.  InputError,
        which refuses the op, where it can have none."""
        raise NotImplementedError

    def name(self, name: str, number: int) -> str:
        """The name of a piece."""
        return name

    def buffer(self, whole: Buffer, number: int) -> Buffer:
        """The buffer of a piece."""
        raise NotImplementedError

    def view(self, whole: Buffer, number: int) -> BatchSlice:
        """What a piece has of a buffer that stays whole."""
        return self.parts[number]

    def piece(self, op: Op, number: int, again: bool) -> Op:
        """`op`, or what it runs `again`, with the name, record and work of a piece; operands are the whole op's."""
        raise NotImplementedError

    def refusal(self, op: Op, what: str, remedy: str = "") -> InputError:
        return InputError(f"{what}; {remedy or self.remedy}", layer=op.layers[0] if op.layers else op.name)


@dataclass(frozen=True)
class Carries:
    """What the pieces of an op carry of its sums, in memory of its own (ops.OpRecord).

    sums      roles of the results
    sizes     bytes by role, such as "dw0.carry"; a device may make several results from what is carried of one
    in_place  those of the sums whose carry is the result itself, incomplete
    begins    those that begin with what the result holds, as the op adds to it: the first piece reads the result
    """

    sums: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    in_place: Sequence[str] = ()
    begins: Sequence[str] = ()

    def has(self, role: str, part: BatchSlice) -> bool:
        """Whether a piece has the operand of `role`: only the last one has the result of a sum."""
        return role not in self.sums or part.is_last or (part.is_first and role in self.begins)

    def accumulates(self, roles: Iterable[str], part: BatchSlice) -> list[str]:
        """To which of `roles`, to which the whole op adds, a piece adds.  What is carried in place of a sum began with
        what that held, which the role of the carry says."""
        own = [role for role in roles if not role.endswith(CARRY) and (part.is_last or role not in self.sums)]
        return [*own, *(role + CARRY for role in own if role in self.in_place)]


def stages(ops: Iterable[Op], along: Callable[[Op], Along]) -> list[list[Op]]:
    """`ops` in their order, cut where one reads what another op of the stage sums."""
    found: list[list[Op]] = [[]]
    results: set[str] = set()
    for op in ops:
        if results.intersection(op.reads):
            found.append([])
            results.clear()
        found[-1].append(op)
        results.update(op.roles[role] for role in along(op).sums if role in op.roles)
    return found


class Partition:
    """The ops `region` of one graph in pieces.

    nodes   those of the region
    late    ops of these nodes that run once, behind the pieces: they sum over all
    """

    def __init__(
        self,
        whole: Graph,
        axis: Axis,
        region: Collection[str],
        device: Device,
        nodes: range = range(0),
        late: Collection[str] = (),
    ):
        self.whole, self.axis, self.region, self.device = whole, axis, region, device
        self.nodes, self.late = nodes, late
        inside = [op for op in whole.ops if op.name in region]
        outside = [op for op in whole.ops if op.name not in region]
        self.forward, self.backward = ([op for op in inside if op.kind == kind] for kind in (FORWARD, BACKWARD))
        self.stages = [stages(ops, axis.along) for ops in (self.forward, self.backward)]
        self.staged = max(map(len, self.stages)) > 1
        self.interleaved = not self.staged and not any(op.kind == BACKWARD and op.node >= nodes.stop for op in outside)
        self.crossing = {b for op in outside for b in op.touches}
        self.sums = {op.name: self._sums(op) for op in inside}
        self.summed = {op.roles[role] for op in inside for role in self.sums[op.name] if role in op.roles}
        self.made = {b for op in inside for b in (*op.writes, *op.updates)}
        self.pieces: dict[str, list[Buffer]] = {}  # by the buffer that they have together
        self.border: set[str] = set()  # buffers of which pieces touch views
        for op in inside:
            self._sort_buffers(op)
        self.buffers = {**whole.buffers, **{each.name: each for made in self.pieces.values() for each in made}}
        self.carried: dict[str, Buffer] = {}

    # -- how operands lie ----------------------------------------------------------------------------------------------

    def _sums(self, op: Op) -> list[str]:
        """Roles of `op` whose result is a sum along the axis."""
        along = self.axis.along(op)
        if along.refusal:
            raise self.axis.refusal(op, along.refusal)
        sums = [role for role in unique(role.removesuffix(CARRY) for role in op.roles) if role in along.sums]
        if sums and op.kind == FORWARD and not self.interleaved and not self.staged:
            raise self.axis.refusal(
                op,
                "sums over the batch in forward, while layers behind the slices have a backward",
                "end the slices before it, or slice the whole step",
            )
        return sums

    def _sort_buffers(self, op: Op) -> None:
        """Note what pieces of `op` have of its buffers."""
        along = self.axis.along(op)
        for role, name in op.roles.items():
            if role in self.sums[op.name] or role in along.counted or role in along.whole:
                continue
            if name in self.summed:
                raise self.axis.refusal(op, f"reads '{name}', which is there only when all slices have run")
            lies = self.axis.lies(op, role, name in self.crossing)
            if lies == PIECE and name not in self.pieces:
                buffer, numbers = self.whole.buffers[name], range(len(self.axis.parts))
                self.pieces[name] = [self.axis.buffer(buffer, number) for number in numbers]
            elif lies == VIEW:
                self.border.add(name)
        for role in along.counted:
            name = op.roles[role]
            if name in self.made or self.axis.lies(op, role, True) != VIEW:
                raise self.axis.refusal(
                    op,
                    f"counts all labels in '{name}', which is made slice by slice",
                    "give it a normalization of BATCH_SIZE or FULL, or slice other layers",
                )
            self.border.add(name)

    # -- one op --------------------------------------------------------------------------------------------------------

    def piece(self, op: Op, number: int, runs_first: bool) -> Op:
        """Piece `number` of `op`; `runs_first`: no other piece of it runs before."""
        form = self._form(op, number, runs_first)
        if self.sums[op.name] or not self.border.isdisjoint((*op.writes, *op.updates)):
            return form
        if op.recompute is not None:
            return replace(form, recompute=self._form(op.recompute, number, runs_first, again=True))
        return replace(form, recompute=form) if self.staged and self._is_pure(op) else form

    def _is_pure(self, op: Op) -> bool:
        """Whether a piece of `op` in backward may run for each of the stages that read what it writes."""
        writes_alone = op.writes and not (op.updates or any(self.whole.buffers[b].kind != DIFF for b in op.writes))
        return op.kind == BACKWARD and bool(writes_alone)

    def _form(self, op: Op, number: int, runs_first: bool, again: bool = False) -> Op:
        """One form of an op, first run or recomputation, on a piece."""
        part, form = self.axis.parts[number], self.axis.piece(op, number, again)
        sums = self._carries(op, form.record)
        roles = self._roles(op, number, sums)
        viewed = [role for role, b in op.roles.items() if b in self.border and not role.endswith(WHOLE)]
        continued = self.sums[op.name] if self.axis.sums_in_results and not part.is_first else []
        adding = sums.accumulates([role for role in op.accumulates if role in roles], part)
        results = {op.roles[role] for role in continued}
        started = [b for b in op.writes if b in results or (b in self.border and not runs_first)]
        finished = self._finished(op, sums) if part.is_last else {}
        reads, updates, writes = touched = self._touched(op, roles, sums, number, started, finished)
        over = [each for each in finished.values() if not self.whole.buffers[each.out].persistent]
        return replace(
            form,
            roles=roles,
            reads=reads,
            writes=writes,
            updates=updates,
            views={role: self.axis.view(self.whole.buffers[op.roles[role]], number) for role in viewed},
            accumulates=unique((*adding, *continued)),
            overlays=(*self._overlays(form, number), *over),
            recompute=None,
            workspace_bytes=self.device.workspace_bytes(form.record, op.step, roles.keys()),
            nbytes=form.nbytes + self._more_traffic(op, roles, touched, sums, part.is_last),
            turns=op.turns if self.staged else (*op.turns, number),  # in stages, pieces share the runs of a node
        )

    def _carries(self, op: Op, record: OpRecord) -> Carries:
        """What pieces of `op`, like `record`, carry of its sums."""
        if self.axis.sums_in_results or not self.sums[op.name]:
            return Carries()
        device, part, sizes = self.device, op.record.part, dict[str, int]()
        for role in self.sums[op.name]:
            nbytes = device.carry_bytes(record, op.step, role)
            if nbytes is None:
                result = op.roles.get(role, role)
                what = f"cannot be sliced on device {device.title}, which has no sum of '{result}' by slices"
                raise self.axis.refusal(op, what)
            sizes |= {role + CARRY: nbytes, role + OPEN: device.open_bytes(record, op.step, role)}
        sizes = {role: size for role, size in sizes.items() if size}
        own = [role for role in self.sums[op.name] if role + CARRY in sizes]
        in_place = [each for each in own if device.sums_in_place(record, op.step, each, each in op.accumulates)]
        if part is None:
            begins = [role for role in in_place if role in op.accumulates]
            self._carry(op, sizes, begins)
        else:  # parts of a piece go on with what pieces carry
            begins = self.sums[op.name] if part.is_first and not part.is_last else []
            known = {role: self.whole.buffers[b].nbytes for role, b in op.roles.items() if role.endswith((CARRY, OPEN))}
            if known != sizes:
                raise self.axis.refusal(op, "carries something else than its parts")
        return Carries(self.sums[op.name], sizes, in_place, begins)

    def _carry(self, op: Op, sizes: Mapping[str, int], begins: Sequence[str]) -> None:
        """Declare what is carried.  A sum that begins with what a gradient holds needs it complete."""
        before = self.backward[: self.backward.index(op)] if begins else []
        for gradient in (op.roles[role] for role in begins):
            if any(gradient in (*each.writes, *each.updates) for each in before):
                raise self.axis.refusal(op, f"adds to the gradient '{gradient}' of another layer in the slices")
        kind = STASH if op.kind == FORWARD else DIFF
        for role, nbytes in sizes.items():
            name = f"{op.name}.{role}"
            self.carried[name] = Buffer(name, kind, Tensor((nbytes,), "uint8"), nbytes)

    def _roles(self, op: Op, number: int, sums: Carries) -> dict[str, str]:
        part, along = self.axis.parts[number], self.axis.along(op)
        roles = {role: f"{op.name}.{role}" for role in sums.sizes}
        for role, buffer in op.roles.items():
            is_made_once = role in along.whole and buffer not in op.reads  # by an op of its own
            if sums.has(role, part) and not is_made_once:
                roles[role] = self._name(buffer, number)
            if role in along.counted:
                roles[role + WHOLE] = buffer
        return roles

    def _name(self, buffer: str, number: int) -> str:
        return self.pieces[buffer][number].name if buffer in self.pieces else buffer

    def _touched(
        self,
        op: Op,
        roles: Mapping[str, str],
        sums: Carries,
        number: int,
        started: Sequence[str],
        finished: Collection[str],
    ) -> tuple[tuple[str, ...], ...]:
        """What a piece reads, updates and writes.  Another piece has written what is `started`."""
        part = self.axis.parts[number]
        carried = [roles[role] for suffix in (CARRY, OPEN) for role in sums.sizes if role.endswith(suffix)]
        begins = [roles[role] for role in sums.begins if role in roles and part.is_first]
        there = set(roles.values()).difference(begins)

        def named(buffers: Iterable[str]) -> list[str]:
            return [b for b in (self._name(b, number) for b in buffers) if b in there]

        goes_on = [] if part.is_first else [b for b in carried if b not in finished]
        updates = unique((*named(op.updates), *started, *goes_on))
        reads = unique((*named(op.reads), *begins, *finished))
        writes = [*named(b for b in op.writes if b not in started), *(carried if part.is_first else [])]
        return tuple(b for b in reads if b not in updates), updates, unique(writes)

    def _finished(self, op: Op, sums: Carries) -> dict[str, BufferOverlay]:
        """The carries that hold the result itself when the last piece has been added, which may lie there."""
        found = {}
        for role in sums.in_place if not sums.begins else ():
            result, carry = self.whole.buffers[op.roles[role]], op.roles.get(role + CARRY, f"{op.name}.{role}{CARRY}")
            if sums.sizes[role + CARRY] == result.nbytes:
                found[carry] = BufferOverlay(result.name, carry, "gradient")
        return found

    def _more_traffic(
        self, op: Op, roles: Mapping[str, str], touched: tuple[tuple[str, ...], ...], sums: Carries, is_last: bool
    ) -> int:
        """Bytes that a piece moves of sums, and of what it carries of them, less those that `op` would."""

        def accesses(touched: tuple[tuple[str, ...], ...], buffer: str) -> int:
            reads, updates, writes = touched
            return reads.count(buffer) + 2 * updates.count(buffer) + writes.count(buffer)

        whole = op.reads, op.updates, op.writes
        results = [self.whole.buffers[b] for b in unique(op.roles[role] for role in sums.sums if role in op.roles)]
        more = sum(each.nbytes * (accesses(touched, each.name) - accesses(whole, each.name)) for each in results)
        carried = ((size, 1 if is_last else accesses(touched, roles[role])) for role, size in sums.sizes.items())
        return more + sum(size * count for size, count in carried)

    def _overlays(self, form: Op, number: int) -> tuple[BufferOverlay, ...]:
        return tuple(
            BufferOverlay(self._name(each.out, number), self._name(each.over, number), each.kind)
            for each in form.overlays
            if each.out in self.pieces and each.over in self.pieces
        )

    # -- the graph -----------------------------------------------------------------------------------------------------

    def graph(self, ops: Iterable[Op], fused_updates: Iterable[Op] = ()) -> Graph:
        """The graph of these ops, of which some are pieces."""
        buffers: dict[str, Buffer] = {}
        for name, buffer in self.whole.buffers.items():
            if name not in self.pieces or name in self.crossing:
                buffers[name] = buffer
            buffers |= {piece.name: piece for piece in self.pieces.get(name, ())}
        fused = tuple(fused_updates)
        return replace(self.whole, buffers=buffers | self.carried, ops=tuple(ops), fused_updates=fused)

    def in_order(self) -> Graph:
        """The graph of all ops: what the region needs, its pieces, the rest of forward and backward, and updates."""
        (before, after), (first, rest) = self._forward_around(), self._backward_around()
        late = {op.name for op in rest if op.name in self.late}
        before, after, first, rest = ([self._once(op, late) for op in ops] for ops in (before, after, first, rest))
        rising = range(len(self.axis.parts))
        if self.staged:
            forward, backward = ([op for stage in each for op in self.run(stage, rising)] for each in self.stages)
            ops = [*before, *forward, *after, *first, *backward, *rest]
        elif self.interleaved:
            ops = [*before, *first, *self.run([*self.forward, *self.backward], rising), *after, *rest]
        else:
            forward = self.run(self.forward, rising[::-1])
            ops = [*before, *forward, *after, *first, *self.run(self.backward, rising), *rest]
        together = {op.name for op in ops if op.record.part is not None} if self.staged else set()
        ops = with_updates_placed([*ops, *self.whole.of_kind(UPDATE)], together)
        offers = [op for op in self.whole.fused_updates if not any(name in self.region for name in op.covers)]
        return self.graph(ops, [self._once(op, late) for op in offers])

    def run(self, ops: Sequence[Op], numbers: Sequence[int]) -> list[Op]:
        """All of `ops` piece by piece, in this order of the pieces."""
        return [self.piece(op, number, number == numbers[0]) for number in numbers for op in ops]

    def _forward_around(self) -> tuple[list[Op], list[Op]]:
        """Forward ops that run once, before the pieces and after them: later layers, and what needs their output."""
        before: list[Op] = []
        after: list[Op] = []
        late = {b for op in self.forward for b in op.writes}
        for op in self.whole.of_kind(FORWARD):
            if op.name in self.region:
                continue
            if op.node >= self.nodes.stop or not late.isdisjoint(op.reads):
                after.append(op)
                late.update(op.writes)
            else:
                before.append(op)
        return before, after

    def _backward_around(self) -> tuple[list[Op], list[Op]]:
        """The same of backward ops: those of later layers and the weights of losses come before the pieces."""
        position = self.whole.position
        start = position[self.backward[0].name] if self.backward else len(position)
        outside = [op for op in self.whole.of_kind(BACKWARD) if op.name not in self.region]
        early = {op.name for op in outside if position[op.name] < start or isinstance(op.record, Fill)}
        return [op for op in outside if op.name in early], [op for op in outside if op.name not in early]

    def _once(self, op: Op, late: set[str]) -> Op:
        """An op that runs once.  One of the region's nodes is of the piece whose forward runs last; a sum behind the
        pieces, one of `late`, is of the last one."""
        if self.staged or op.node not in self.nodes or (op.kind == FORWARD and not op.reads):
            return op
        is_late = not late.isdisjoint((op.name, *op.covers))
        return op.of_turn(len(self.axis.parts) - 1 if is_late or self.interleaved else 0)
