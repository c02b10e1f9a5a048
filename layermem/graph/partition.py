"""Ops in pieces along an axis: the transform behind slices of the batch (slices.py) and bands of rows (bands.py).

An axis states how the operands of an op lie along it (ops.Along), and what a piece of an op and of a buffer is.  For
the ops of a region the transform makes

    pieces    buffers that only the ops of one piece touch, each with its own residency: conv1@2/2
    views     ranges of a buffer that crosses the border of the region and stays whole: the first piece to run writes
              the buffer, and the others update it
    carries   partial sums along the axis, passed from piece to piece in rising order (Carries)
    order     prefix        a layer after the region has a backward: the forward of all pieces runs first, in falling
                            order, and their backward follows the backward of the rest, in rising order
              alternating   no layer after the region has one: forward and backward of a piece, then of the next one
              staged        an op of the region reads a sum of another one: all pieces of a stage run before the next

or it raises an InputError that names an op.  Results have the bits of the whole op, because each sum has one order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from layermem.errors import InputError
from layermem.graph.device import Device
from layermem.graph.ops import BACKWARD, DIFF, FORWARD, STASH, UPDATE, Buffer, BufferOverlay, Graph, Op, unique
from layermem.graph.train import with_updates_placed
from layermem.ops import CARRY, OPEN, WHOLE, Along, BatchSlice, Fill, OpRecord, Tensor

PIECE, VIEW, UNCUT = "piece", "view", "uncut"  # how a piece of an op uses a buffer


@dataclass(frozen=True)
class Choices:
    """The functions that choose among partitions by their bytes: those of planning/partition_choices.py, which states
    their arguments."""

    most_part_bytes: Callable[[int, int, int], int]
    part_items: Callable[[int, int, int], int]
    runs_in_parts: Callable[[int, int], bool]
    sums_once: Callable[[int, Sequence[int | None]], bool]


class Axis:
    """An axis of one graph; a subclass defines its pieces.

    intervals        ranges of the axis in rising order, one for each piece
    sums_in_results  sums are carried in the result itself: each piece except the first adds to it
    remedy           what users can do instead if an op is refused
    """

    intervals: Sequence[BatchSlice]
    sums_in_results = False
    remedy = ""

    def along(self, op: Op) -> Along:
        """How the operands of `op` lie along the axis."""
        raise NotImplementedError

    def lies(self, op: Op, role: str, crosses: bool) -> str:
        """Whether a piece of `op` has a PIECE or a VIEW of the buffer of `role`, or the whole buffer, UNCUT.
        `crosses`: ops outside the region touch it.  InputError, which refuses the op, if none is possible."""
        raise NotImplementedError

    def name(self, name: str, number: int) -> str:
        """The name of a piece of the op or buffer `name`."""
        return name

    def buffer(self, whole: Buffer, number: int) -> Buffer:
        """The buffer of piece `number` of `whole`."""
        raise NotImplementedError

    def view(self, whole: Buffer, number: int) -> BatchSlice:
        """The range of a buffer that stays whole which a piece uses."""
        return self.intervals[number]

    def piece(self, op: Op, number: int, again: bool) -> Op:
        """`op`, or its recomputation if `again`, with the name, record and work of a piece, on the same operands."""
        raise NotImplementedError

    def refusal(self, op: Op, what: str, remedy: str = "") -> InputError:
        return InputError(f"{what}; {remedy or self.remedy}", layer=op.layers[0] if op.layers else op.name)


@dataclass(frozen=True)
class Carries:
    """The partial sums that the pieces of an op pass on in separate memory (ops.OpRecord).

    sums      roles of the results
    sizes     bytes by role, such as "dw0.carry"; a device may compute several results from one carry
    in_place  the sums whose carry is the incomplete result itself
    begins    the sums that start with the old value of the result, to which the op adds: the first piece reads it
    """

    sums: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    in_place: Sequence[str] = ()
    begins: Sequence[str] = ()

    def has(self, role: str, interval: BatchSlice) -> bool:
        """Whether a piece has the operand of `role`: only the last piece has the result of a sum."""
        return role not in self.sums or interval.is_last or (interval.is_first and role in self.begins)

    def accumulates(self, roles: Iterable[str], interval: BatchSlice) -> list[str]:
        """The roles of `roles`, to which the whole op adds, that a piece adds to.  A carry in place of a sum starts
        with the sum's old value, so its role is among them."""
        own = [role for role in roles if not role.endswith(CARRY) and (interval.is_last or role not in self.sums)]
        return [*own, *(role + CARRY for role in own if role in self.in_place)]


def stages(ops: Iterable[Op], along: Callable[[Op], Along]) -> list[list[Op]]:
    """`ops` in their order, cut before each op that reads a sum of another op of the stage."""
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

    nodes   nodes of the region
    late    ops of these nodes that run once, after the pieces, and sum over all of them
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
        self.alternates = not self.staged and not any(op.kind == BACKWARD and op.node >= nodes.stop for op in outside)
        self.crossing = {b for op in outside for b in op.touches}
        self.sums = {op.name: self._sums(op) for op in inside}
        self.summed = {op.roles[role] for op in inside for role in self.sums[op.name] if role in op.roles}
        self.made = {b for op in inside for b in (*op.writes, *op.updates)}
        self.pieces: dict[str, list[Buffer]] = {}  # by the buffer that they divide
        self.border: set[str] = set()  # buffers that pieces touch views of
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
        if sums and op.kind == FORWARD and not self.alternates and not self.staged:
            raise self.axis.refusal(
                op,
                "sums over the batch in forward, while layers behind the slices have a backward",
                "end the slices before it, or slice the whole step",
            )
        return sums

    def _sort_buffers(self, op: Op) -> None:
        """Record which buffers of `op` are divided into pieces, and which are touched through views."""
        along = self.axis.along(op)
        for role, name in op.roles.items():
            if role in self.sums[op.name] or role in along.counted or role in along.whole:
                continue
            if name in self.summed:
                raise self.axis.refusal(op, f"reads '{name}', which is complete only after the last slice")
            lies = self.axis.lies(op, role, name in self.crossing)
            if lies == VIEW and role in along.scattered:
                raise self.axis.refusal(op, f"has '{name}', which stays whole, but its items lie apart")
            if lies == PIECE and name not in self.pieces:
                buffer, numbers = self.whole.buffers[name], range(len(self.axis.intervals))
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
        """Piece `number` of `op`; `runs_first`: no other piece of it runs earlier."""
        form = self._form(op, number, runs_first)
        if self.sums[op.name] or not self.border.isdisjoint((*op.writes, *op.updates)):
            return form
        if op.recompute is not None:
            return replace(form, recompute=self._form(op.recompute, number, runs_first, again=True))
        return replace(form, recompute=form) if self.staged and self._is_pure(op) else form

    def _is_pure(self, op: Op) -> bool:
        """Whether a piece of backward `op` may run again in each stage that reads its results."""
        writes_alone = op.writes and not (op.updates or any(self.whole.buffers[b].kind != DIFF for b in op.writes))
        return op.kind == BACKWARD and bool(writes_alone)

    def _form(self, op: Op, number: int, runs_first: bool, again: bool = False) -> Op:
        """One form of an op, first run or recomputation, on a piece."""
        interval, form = self.axis.intervals[number], self.axis.piece(op, number, again)
        sums = self._carries(op, form.record)
        roles = self._roles(op, number, sums)
        viewed = [role for role, b in op.roles.items() if b in self.border and not role.endswith(WHOLE)]
        continued = self.sums[op.name] if self.axis.sums_in_results and not interval.is_first else []
        adding = sums.accumulates([role for role in op.accumulates if role in roles], interval)
        results = {op.roles[role] for role in continued}
        started = [b for b in op.writes if b in results or (b in self.border and not runs_first)]
        finished = self._finished(op, sums) if interval.is_last else {}
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
            nbytes=form.nbytes + self._more_traffic(op, roles, touched, sums, interval.is_last),
            turns=op.turns if self.staged else (*op.turns, number),  # in stages, pieces share the runs of a node
        )

    def _carries(self, op: Op, record: OpRecord) -> Carries:
        """The carries of the pieces of `op`, whose record is like `record`."""
        if self.axis.sums_in_results or not self.sums[op.name]:
            return Carries()
        device, batch_slice, sizes = self.device, op.record.batch_slice, dict[str, int]()
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
        if batch_slice is None:
            begins = [role for role in in_place if role in op.accumulates]
            self._carry(op, sizes, begins)
        else:  # parts of a piece continue with the carries of pieces
            begins = self.sums[op.name] if batch_slice.is_first and not batch_slice.is_last else []
            known = {role: self.whole.buffers[b].nbytes for role, b in op.roles.items() if role.endswith((CARRY, OPEN))}
            if known != sizes:
                raise self.axis.refusal(op, "carries something else than its parts")
        return Carries(self.sums[op.name], sizes, in_place, begins)

    def _carry(self, op: Op, sizes: Mapping[str, int], begins: Sequence[str]) -> None:
        """Declare the carries.  A sum that starts with the value of a gradient needs that gradient complete."""
        before = self.backward[: self.backward.index(op)] if begins else []
        for gradient in (op.roles[role] for role in begins):
            if any(gradient in (*each.writes, *each.updates) for each in before):
                raise self.axis.refusal(op, f"adds to the gradient '{gradient}' of another layer in the slices")
        kind = STASH if op.kind == FORWARD else DIFF
        for role, nbytes in sizes.items():
            name = f"{op.name}.{role}"
            self.carried[name] = Buffer(name, kind, Tensor((nbytes,), "uint8"), nbytes)

    def _roles(self, op: Op, number: int, sums: Carries) -> dict[str, str]:
        interval, along = self.axis.intervals[number], self.axis.along(op)
        roles = {role: f"{op.name}.{role}" for role in sums.sizes}
        for role, buffer in op.roles.items():
            is_made_once = role in along.whole and buffer not in op.reads  # by a separate op
            if sums.has(role, interval) and not is_made_once:
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
        """The buffers that a piece reads, updates and writes.  Another piece has written the buffers `started`."""
        interval = self.axis.intervals[number]
        carried = [roles[role] for suffix in (CARRY, OPEN) for role in sums.sizes if role.endswith(suffix)]
        begins = [roles[role] for role in sums.begins if role in roles and interval.is_first]
        there = set(roles.values()).difference(begins)

        def named(buffers: Iterable[str]) -> list[str]:
            return [b for b in (self._name(b, number) for b in buffers) if b in there]

        goes_on = [] if interval.is_first else [b for b in carried if b not in finished]
        updates = unique((*named(op.updates), *started, *goes_on))
        reads = unique((*named(op.reads), *begins, *finished))
        writes = [*named(b for b in op.writes if b not in started), *(carried if interval.is_first else [])]
        return tuple(b for b in reads if b not in updates), updates, unique(writes)

    def _finished(self, op: Op, sums: Carries) -> dict[str, BufferOverlay]:
        """Overlays of results on carries that hold the complete result after the last piece."""
        found = {}
        for role in sums.in_place if not sums.begins else ():
            result, carry = self.whole.buffers[op.roles[role]], op.roles.get(role + CARRY, f"{op.name}.{role}{CARRY}")
            if sums.sizes[role + CARRY] == result.nbytes:
                found[carry] = BufferOverlay(result.name, carry, "gradient")
        return found

    def _more_traffic(
        self, op: Op, roles: Mapping[str, str], touched: tuple[tuple[str, ...], ...], sums: Carries, is_last: bool
    ) -> int:
        """Bytes that a piece moves for its sums and carries, less the bytes that `op` would move for them."""

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
        """The graph of these ops, some of which are pieces."""
        buffers: dict[str, Buffer] = {}
        for name, buffer in self.whole.buffers.items():
            if name not in self.pieces or name in self.crossing:
                buffers[name] = buffer
            buffers |= {piece.name: piece for piece in self.pieces.get(name, ())}
        fused = tuple(fused_updates)
        return replace(self.whole, buffers=buffers | self.carried, ops=tuple(ops), fused_updates=fused)

    def in_order(self) -> Graph:
        """The graph of all ops: inputs of the region, its pieces, the rest of forward and backward, the updates."""
        (before, after), (first, rest) = self._forward_around(), self._backward_around()
        late = {op.name for op in rest if op.name in self.late}
        before, after, first, rest = ([self._once(op, late) for op in ops] for ops in (before, after, first, rest))
        rising = range(len(self.axis.intervals))
        if self.staged:
            forward, backward = ([op for stage in each for op in self.run(stage, rising)] for each in self.stages)
            ops = [*before, *forward, *after, *first, *backward, *rest]
        elif self.alternates:
            ops = [*before, *first, *self.run([*self.forward, *self.backward], rising), *after, *rest]
        else:
            forward = self.run(self.forward, rising[::-1])
            ops = [*before, *forward, *after, *first, *self.run(self.backward, rising), *rest]
        together = {op.name for op in ops if op.record.batch_slice is not None} if self.staged else set()
        ops = with_updates_placed([*ops, *self.whole.of_kind(UPDATE)], together)
        offers = [op for op in self.whole.fused_updates if not any(name in self.region for name in op.covers)]
        return self.graph(ops, [self._once(op, late) for op in offers])

    def run(self, ops: Sequence[Op], numbers: Sequence[int]) -> list[Op]:
        """All of `ops` piece by piece, in this order of the pieces."""
        return [self.piece(op, number, number == numbers[0]) for number in numbers for op in ops]

    def _forward_around(self) -> tuple[list[Op], list[Op]]:
        """Forward ops that run once: those before the pieces, and those after them, which need their output."""
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
        """Backward ops that run once, before the pieces (of later layers, and fills with loss weights) and after."""
        position = self.whole.position
        start = position[self.backward[0].name] if self.backward else len(position)
        outside = [op for op in self.whole.of_kind(BACKWARD) if op.name not in self.region]
        early = {op.name for op in outside if position[op.name] < start or isinstance(op.record, Fill)}
        return [op for op in outside if op.name in early], [op for op in outside if op.name not in early]

    def _once(self, op: Op, late: set[str]) -> Op:
        """An op that runs once.  An op of the region's nodes belongs to the piece whose forward runs last; an op of
        `late` belongs to the last piece."""
        if self.staged or op.node not in self.nodes or (op.kind == FORWARD and not op.reads):
            return op
        is_late = not late.isdisjoint((op.name, *op.covers))
        return op.of_turn(len(self.axis.intervals) - 1 if is_late or self.alternates else 0)
