"""A training step shared by ranks (distributed/ranks.py): makes the graph of one rank from the graph of one machine.

    one machine, iter_size 1    conv1.wgrad > conv1.w0.diff > conv1.w0.update

    iter_size M                 conv1.wgrad > conv1.w0.part > conv1.w0.accumulate > conv1.w0.diff      M times, and then
                                conv1.w0.diff > conv1.w0.update, zero

    N ranks, M = N              conv1.wgrad > conv1.w0.part > reduce.3 > conv1.w0.diff > conv1.w0.update > gather.3
    N ranks, M > N              conv1.wgrad > conv1.w0.part > reduce.3 > conv1.w0.diff      M / N times, and then
                                conv1.w0.diff > conv1.w0.update > gather.3, zero

part     the gradient of one micro-batch, computed from zero
diff     the sum over micro-batches, in their order, of the rows that a rank owns, like its optimizer state
bucket   parameters of about BUCKET_BYTES, from the last layer to the first: reduce.3 and gather.3 belong to one bucket

reduce, update and gather run on the communication stream while the rest of the backward pass runs.  All ranks must run
reduces and gathers in one order, whatever their plans: each touches the buffer ORDER, so no plan can reorder them.  It
is the order of the parameters in the net, which does not depend on slices, devices or budgets.

Running averages (OpRecord.averages): the op of each rank writes the statistics of its batch.  Each rank collects the
statistics of all ranks, and moves its averages batch by batch (averages.py).

clip_gradients, loss scale: the squares of a row are summed by its rank; the sums of all rows are collected and added in
the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.averages import Groups, agree, changes_alone, leaving_statistics, moved_by, movers_of
from layermem.graph.device import Device
from layermem.graph.net import Net
from layermem.graph.op_builder import priced, role_map
from layermem.graph.ops import (
    COMM,
    COMPUTE,
    DIFF,
    FORWARD,
    GRADIENT,
    HISTORY,
    STASH,
    UPDATE,
    BandOf,
    Buffer,
    Graph,
    Op,
    unique,
)
from layermem.graph.rewrite import offer_updates
from layermem.graph.train import HOLD
from layermem.ops import (
    ACCUMULATE,
    AllGather,
    Communication,
    CopyOut,
    GradientNorm,
    MovingAverage,
    NormOfRows,
    OpRecord,
    ReduceScatter,
    RowSquares,
    Tensor,
    Update,
)
from layermem.ops.communication import own_rows, rows_of

BUCKET_BYTES = 4 << 20
ORDER = "comm.order"
STATISTICS = "statistics"


def shared_graphs(graphs: Sequence[Graph], net: Net, device: Device, ranks: Ranks) -> tuple[Graph, ...]:
    """Turn the graphs of one machine into those of one of `ranks`: the training step, and the graph of updates after it
    (train.update_graph) if a rank has several micro-batches.  Other graphs do not change."""
    if ranks.micro_batches == 1:
        return tuple(graphs)
    step, *others = graphs
    shared = [_Sharing(step, net, device, ranks).step()]
    if ranks.sub_steps > 1:
        shared.append(_Sharing(others.pop(0), net, device, ranks).updates())
    return *shared, *others


def communication_of(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """The communication ops of these graphs in order, as text; ranks with different ones would deadlock."""
    found = []
    for graph in graphs:
        for op in graph.ops:
            if isinstance(op.record, Communication):
                found.append(f"{op.name} {' '.join(map(str, op.record.tensors))}")
    return tuple(found)


def check_shareable(net: Net, ranks: Ranks) -> None:
    """Raise InputError for a train net whose micro-batches depend on each other, since ranks compute them in parallel;
    for a file that every rank would write; for data from user code, which cannot skip other ranks' batches."""
    groups: Groups = {}
    for layer in net.layers if ranks.size > 1 else ():
        if any(param.carried for node in layer.nodes for param in node.layer.params):
            what = (
                "carries its state from batch to batch, and ranks compute batches at the same time; use expose_hidden: "
                "true with a state that begins each batch, or train on one rank"
            )
        elif any(changes_alone(node) for node in layer.nodes):
            what = (
                "changes a parameter in forward, from batch to batch, and ranks compute batches at the same time; "
                "train on one rank"
            )
        elif not all(agree(node, groups) for node in layer.nodes):
            what = (
                "shares a part of its averages with another layer, or moves them by another fraction; share all of "
                "them, with one fraction, or none"
            )
        elif layer.type == "HDF5Output":
            what = "writes a file in training, of which each rank has some rows; move it to the TEST phase"
        elif layer.type == "Python" and not layer.bottoms:
            what = (
                "gets its data from a Python class, which cannot go past the batches of other ranks; use a data layer, "
                "or train on one rank"
            )
        else:
            continue
        raise InputError(what, path=str(net.path), line=layer.line, layer=layer.name)


class _Sharing:
    """Collects ops with their places: a place counts the ops of the graph, without its updates, that come before."""

    def __init__(self, graph: Graph, net: Net, device: Device, ranks: Ranks):
        self.graph, self.device, self.ranks = graph, device, ranks
        self.buffers = dict(graph.buffers)
        self.update_ops = self._in_order(net)
        norms = [op for op in graph.ops if isinstance(op.record, GradientNorm)] if self.update_ops else []
        self.norm = norms[0] if norms else None
        self.norm_outputs = [op for op in graph.ops if self.norm and self._hands_over(op, self.norm)]
        self.removed = {op.name for op in graph.ops if isinstance(op.record, (Update, GradientNorm))}
        self.removed |= {op.name for op in self.norm_outputs}
        self.base = [op for op in graph.ops if op.name not in self.removed and op.name != HOLD]
        self.stream = COMM if ranks.size > 1 else COMPUTE
        self.added: list[tuple[int, Op]] = []
        self.ordered = False  # whether an op has written ORDER

    def _in_order(self, net: Net) -> list[Op]:
        """The updates, from the last parameter of the net to the first."""
        number = {name: i for i, name in enumerate(net.params)}

        def key(op: Op) -> tuple[int, int]:
            buffer = self.graph.buffers[op.roles["w0"]]
            band = buffer.band_of
            return (number[buffer.name], 0) if band is None else (number[band.whole.name], band.first)

        found = [op for op in self.graph.ops if isinstance(op.record, Update)]
        return sorted(found, key=key, reverse=True)

    # -- graphs ------------------------------------------------------------------------------------------------

    def step(self) -> Graph:
        ranks, parts = self.ranks, {op.roles["dw0"]: _part(op.roles["dw0"]) for op in self.update_ops}
        ready = {op.name: self._updates_at(op) for op in self.update_ops}
        final = {diff: self._last_touch(diff) for diff in parts}
        for diff, part in parts.items():
            whole = self.buffers.pop(diff)
            self.buffers[part] = replace(whole, name=part, band_of=None)
        self.base = [_renamed(op, parts) for op in self.base]
        if ranks.size == 1:
            for op in reversed(self.update_ops):
                self._accumulate(op, parts[op.roles["dw0"]], final[op.roles["dw0"]])
            return self._graph()
        self._collect_statistics()
        buckets = self._buckets()
        for number, bucket in enumerate(buckets):
            diffs = [op.roles["dw0"] for op in bucket]
            self._reduce(number, bucket, [parts[diff] for diff in diffs], max(final[diff] for diff in diffs))
            if number and ranks.sub_steps == 1 and not self.norm:
                self._update_bucket(number - 1, buckets[number - 1], ready)
        if ranks.sub_steps == 1:
            if self.norm:
                self._norm_of(self.norm)
            for number, bucket in list(enumerate(buckets))[0 if self.norm else len(buckets) - 1 :]:
                self._update_bucket(number, bucket, ready)
        return self._graph()

    def updates(self) -> Graph:
        zeroes, self.base = self.base, []
        for op in self.update_ops:
            self._own_sum(op, persistent=True)
        if self.norm:
            self._norm_of(self.norm)
        at = dict.fromkeys((op.name for op in self.update_ops), 0)
        if self.ranks.size == 1:
            for op in reversed(self.update_ops):
                self._add(0, op)
        else:
            for number, bucket in enumerate(self._buckets()):
                self._update_bucket(number, bucket, at)
        for op in zeroes:
            if op.roles["y0"] in self.buffers:
                self._add(0, priced(op, self.buffers, self.device))
        return self._graph()

    def _graph(self) -> Graph:
        places = sorted(range(len(self.added)), key=lambda i: self.added[i][0])  # stable: in the order of addition
        ops, begin = [], 0
        for i in places:
            at, op = self.added[i]
            ops += [*self.base[begin:at], op]
            begin = max(begin, at)
        ops += [*self.base[begin:], *(op for op in self.graph.ops if op.name == HOLD)]
        used = {b for op in ops for b in op.touches}
        buffers = {b.name: b for b in self.buffers.values() if b.name in used}
        shared = replace(self.graph, buffers=buffers, ops=tuple(ops), fused_updates=(), slices=self.graph.slices)
        return offer_updates(shared, self.device)

    # -- places ------------------------------------------------------------------------------------------------

    def _updates_at(self, update: Op) -> int:
        """The number of other ops before `update` in the graph; no op after them reads the parameter."""
        count = 0
        for op in self.graph.ops:
            if op.name == update.name:
                break
            count += op.name not in self.removed and op.name != HOLD
        return count

    def _last_touch(self, buffer: str) -> int:
        return max((i + 1 for i, op in enumerate(self.base) if buffer in op.touches), default=0)

    def _add(self, at: int, op: Op) -> None:
        self.added.append((at, op))

    def _add_in_order(self, at: int, op: Op) -> None:
        """Add an op that all ranks run, not before earlier ops that were added with this function."""
        order = {"order": ORDER}
        if not self.ordered:
            self._declare(ORDER, DIFF, Tensor((1,)))
            op = replace(op, roles={**op.roles, **order}, writes=(*op.writes, ORDER))
        else:
            op = replace(op, roles={**op.roles, **order}, updates=(*op.updates, ORDER))
            at = max(at, *(place for place, each in self.added if ORDER in each.touches))
        self.ordered = True
        self._add(at, op)

    # -- ops ---------------------------------------------------------------------------------------------------

    def _declare(self, name: str, kind: str, tensor: Tensor, persistent: bool = False, **more: object) -> str:
        nbytes = self.device.nbytes(tensor)
        self.buffers[name] = Buffer(name, kind, tensor, nbytes, persistent, **more)  # type: ignore[arg-type]
        return name

    def _make(
        self,
        name: str,
        kind: str,
        record: OpRecord,
        step: str,
        *,
        reads: Mapping[str, str] = {},
        writes: Mapping[str, str] = {},
        updates: Mapping[str, str] = {},
        stream: str = COMM,
        flops: int = 0,
    ) -> Op:
        roles = {**reads, **updates, **writes}
        op = Op(
            name,
            kind,
            record,
            step,
            roles,
            unique(reads.values()),
            unique(writes.values()),
            unique(updates.values()),
            flops=flops,
            stream=stream,
        )
        return priced(op, self.buffers, self.device)

    def _accumulate(self, update: Op, part: str, at: int) -> None:
        """Add the micro-batches' gradients on one rank."""
        assert isinstance(update.record, Update)
        diff, tensor = update.roles["dw0"], self.buffers[part].tensor
        self._declare(diff, GRADIENT, tensor, persistent=True, band_of=self.graph.buffers[diff].band_of)
        record = Update(ACCUMULATE, update.record.parameter, tensor)
        name = f"{update.name.removesuffix('.update')}.accumulate"
        op = self._make(
            name,
            UPDATE,
            record,
            "update",
            reads={"dw0": part},
            updates={"w0": diff},
            stream=update.stream,
            flops=tensor.count,
        )
        self._add(at, replace(op, share_of=update.share_of))

    def _collect_statistics(self) -> None:
        """Let each op that moves averages write its batch's statistics; all ranks' statistics move the averages."""
        places = movers_of(self.base)
        own: dict[str, str] = {}  # average -> statistics of this rank's batch
        for names, movers in places.items():
            for name in names:
                rows = (len(movers.ops),) if len(movers.ops) > 1 else ()
                own[name] = self._declare(f"{name}.batch", STASH, Tensor((*rows, *self.buffers[name].tensor.shape)))
        if not own:
            return
        begun: set[str] = set()
        for index, op in enumerate(self.base):
            for each, names in moved_by(op):
                op = leaving_statistics(op, own, names, begun, places[names].row(op, each))
                begun.update(names)
                self.base[index] = priced(op, self.buffers, self.device)
        size, at = self.ranks.size, 1 + max(i for i, op in enumerate(self.base) if op.kind == FORWARD)
        whole = {
            average: self._declare(f"{average}.batches", STASH, Tensor((size, *self.buffers[batch].tensor.shape)))
            for average, batch in own.items()
        }
        record = AllGather(self.ranks, 0, tuple(self.buffers[each].tensor for each in whole.values()))
        collect = self._make(
            f"{STATISTICS}.collect",
            FORWARD,
            record,
            "collect",
            reads=role_map("x", [*own.values()]),
            writes=role_map("y", [*whole.values()]),
        )
        self._add(at, collect)  # ordered on all ranks too: plans run forward ops before the first update
        for names, movers in places.items():
            average = MovingAverage(movers.kept, self.buffers[names[0]].tensor.count, size, len(movers.ops))
            name, reads = f"{names[0].rpartition('.')[0]}.average", role_map("x", [whole[each] for each in names])
            self._add(at, self._make(name, FORWARD, average, "average", reads=reads, updates=role_map("w", names)))

    def _buckets(self) -> list[list[Op]]:
        """The updates in buckets, in the order of their gradients."""
        buckets: list[list[Op]] = []
        filled = BUCKET_BYTES
        for op in self.update_ops:
            if filled >= BUCKET_BYTES:
                buckets.append([])
                filled = 0
            buckets[-1].append(op)
            filled += self.buffers[op.roles["w0"]].nbytes
        return buckets

    def _own_sum(self, update: Op, *, persistent: bool) -> str | None:
        """Declare the sum of the own rows of a gradient; None if this rank has no rows of it."""
        diff = update.roles["dw0"]
        tensor = self.graph.buffers[update.roles["w0"]].tensor
        if self.ranks.size == 1:
            return self._declare(diff, GRADIENT, tensor, persistent, band_of=self.graph.buffers[diff].band_of)
        own = own_rows(tensor, self.ranks)
        self.buffers.pop(diff, None)
        if own.count == 0:
            return None
        first = self.ranks.own(rows_of(tensor)).start
        rows = _rows_of_band(replace(self.graph.buffers[diff], persistent=persistent), first)
        return self._declare(diff, GRADIENT, own, persistent, band_of=rows)

    def _reduce(self, number: int, bucket: Sequence[Op], parts: Sequence[str], at: int) -> None:
        continues = self.ranks.sub_steps > 1
        tensors = tuple(self.buffers[part].tensor for part in parts)
        sums = {f"y{i}": self._own_sum(op, persistent=continues) for i, op in enumerate(bucket)}
        own = {role: name for role, name in sums.items() if name is not None}
        record = ReduceScatter(self.ranks, number, tensors, continues)
        op = self._make(
            f"reduce.{number}",
            UPDATE,
            record,
            "reduce",
            reads=role_map("x", parts),
            updates=own if continues else {},
            writes={} if continues else own,
        )
        self._add_in_order(at, op)

    def _update_bucket(self, number: int, bucket: Sequence[Op], at: Mapping[str, int]) -> None:
        """Update the own rows, and gather all weights from their owners."""
        place = max([at[op.name] for op in bucket])
        behind = max((i for i, op in self.added if op.name == f"reduce.{number}"), default=0)
        norm = max((i for i, op in self.added if isinstance(op.record, NormOfRows)), default=0)
        place = max(place, behind, norm)
        for op in bucket:
            if op.roles["dw0"] in self.buffers:
                self._add(place, self._own_update(op))
        weights = [op.roles["w0"] for op in bucket]
        record = AllGather(self.ranks, number, tuple(self.buffers[w].tensor for w in weights))
        gather = self._make(f"gather.{number}", UPDATE, record, "gather", updates=role_map("x", weights))
        self._add_in_order(place, gather)

    def _own_update(self, op: Op) -> Op:
        assert isinstance(op.record, Update)
        tensor = self.buffers[op.roles["w0"]].tensor
        own, first = own_rows(tensor, self.ranks), self.ranks.own(rows_of(tensor)).start
        for role, name in op.roles.items():
            if role.startswith("h"):
                whole = self.graph.buffers[name]
                self._declare(name, HISTORY, own, persistent=True, band_of=_rows_of_band(whole, first))
        shared = replace(
            op,
            record=replace(op.record, tensor=own, first_row=first),
            stream=COMM,
            flops=op.flops * own.count // tensor.count,
        )
        moved = sum(self.buffers[b].nbytes * (1 + (b in op.updates)) for b in op.touches if b != op.roles["w0"])
        return replace(shared, nbytes=moved + 2 * self.buffers[op.roles["dw0"]].nbytes)

    @staticmethod
    def _hands_over(op: Op, norm: Op) -> bool:
        """Whether `op` copies the result of `norm` to the host."""
        return isinstance(op.record, CopyOut) and norm.roles["y0"] in op.reads

    def _norm_of(self, whole: Op) -> None:
        """Compute the norm of all gradients from the squares of their rows."""
        at = max((place for place, _ in self.added), default=0)
        norm_persists = self.graph.buffers[whole.roles["y0"]].persistent  # it shares its bytes with no other buffer
        own: dict[str, str] = {}  # parameter -> squares of the own rows
        for op in reversed(self.update_ops):
            if op.roles["dw0"] in self.buffers:
                own[op.roles["w0"]] = self._squares(op.roles["dw0"], at, norm_persists)
        squares = self._all_squares(own, at) if self.ranks.size > 1 else [*own.values()]
        norm = self._declare(whole.roles["y0"], DIFF, Tensor(()), norm_persists)
        record = NormOfRows(sum(self.buffers[name].tensor.count for name in squares))
        reads, stream = role_map("x", squares), self.stream
        self._add(
            at, self._make(whole.name, UPDATE, record, "forward", reads=reads, writes={"y0": norm}, stream=stream)
        )
        for op in self.norm_outputs:
            self._add(at, op)

    def _squares(self, diff: str, at: int, norm_persists: bool) -> str:
        """Compute the sums of the squares of the rows of a gradient."""
        tensor = self.buffers[diff].tensor
        name = self._declare(f"{diff}.squares", DIFF, Tensor((rows_of(tensor),)), norm_persists)
        record, count, stream = RowSquares(tensor), 2 * tensor.count, self.stream
        op = self._make(
            name, UPDATE, record, "forward", reads={"x0": diff}, writes={"y0": name}, stream=stream, flops=count
        )
        self._add(at, op)
        return name

    def _all_squares(self, own: Mapping[str, str], at: int) -> list[str]:
        """Collect the squares of all ranks, by parameter, from the `own` squares of each."""
        tensors = {op.roles["w0"]: self.buffers[op.roles["w0"]].tensor for op in reversed(self.update_ops)}
        squares = [
            self._declare(f"{name}.all_squares", DIFF, Tensor((rows_of(tensor),))) for name, tensor in tensors.items()
        ]
        record = AllGather(self.ranks, 0, tuple(self.buffers[name].tensor for name in squares))
        reads = {f"x{i}": own[name] for i, name in enumerate(tensors) if name in own}
        op = self._make("squares.collect", UPDATE, record, "collect", reads=reads, writes=role_map("y", squares))
        self._add_in_order(at, op)
        return squares


def _part(diff: str) -> str:
    return ".part".join(diff.rsplit(".diff", 1))  # a band of rows has a suffix


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    """`op` with its buffers renamed."""
    if not any(b in names for b in op.touches):
        return op

    def named(buffers: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(b, b) for b in buffers)

    return replace(
        op,
        roles={role: names.get(b, b) for role, b in op.roles.items()},
        reads=named(op.reads),
        writes=named(op.writes),
        updates=named(op.updates),
        overlays=tuple(replace(o, out=names.get(o.out, o.out), over=names.get(o.over, o.over)) for o in op.overlays),
    )


def _rows_of_band(whole: Buffer, first: int) -> BandOf:
    """Rows from `first` on of a buffer, which may itself be a band of rows."""
    if whole.band_of is None:
        return BandOf(whole, first)
    return BandOf(whole.band_of.whole, whole.band_of.first + first)
