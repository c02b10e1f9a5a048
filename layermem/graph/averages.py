"""Running averages of a step that ranks share (sharing.py): the ops that move them, and the statistics that ops write.

    one machine    bn.forward moves bn.w0 by its batch
    N ranks        bn.forward > bn.w0.batch > statistics.collect > bn.w0.batches > bn.average moves bn.w0

Layers may share averages, as the two branches of a siamese net do.  For each batch, the ops of these layers move them
in turn: bn.w0.batch has a row for each op, and bn.average reads all rows of one batch before the rows of the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from layermem.graph.net import Node
from layermem.graph.ops import Op, unique
from layermem.graph.slices import whole_name
from layermem.ops import Averages, BatchSlice

Names = tuple[str, ...]  # averages that move together
Groups = dict[str, tuple[Names, float]]  # average -> the averages that move with it, and the factor of the old value


@dataclass
class Movers:
    """The ops that move some averages, in order; slices count as one op.  `kept` is the factor of the old average."""

    kept: float
    ops: list[str] = field(default_factory=list)

    def row(self, op: Op, averages: Averages) -> BatchSlice | None:
        """The row of the statistics buffers that `op` writes; None if it is the only mover."""
        return BatchSlice(self.ops.index(_mover(op, averages)), 1, len(self.ops)) if len(self.ops) > 1 else None


def movers_of(ops: Iterable[Op]) -> dict[Names, Movers]:
    """The movers of all averages that `ops` move, by the names of averages that move together."""
    found: dict[Names, Movers] = {}
    for op in ops:
        for each, names in moved_by(op):
            movers = found.setdefault(names, Movers(each.kept))
            if _mover(op, each) not in movers.ops:
                movers.ops.append(_mover(op, each))
    return found


def moved_by(op: Op) -> list[tuple[Averages, Names]]:
    """The averages that an op moves, each with the names of its buffers."""
    named = ((each, tuple(op.roles.get(role, "") for role in each.roles)) for each in op.record.averages)
    return [(each, names) for each, names in named if names[0] in op.updates]


def _mover(op: Op, averages: Averages) -> str:
    return f"{whole_name(op.name)} {averages.roles[0]}"


def leaving_statistics(
    op: Op, own: Mapping[str, str], averages: Names, begun: Collection[str], row: BatchSlice | None
) -> Op:
    """`op` without its updates of `averages`: it writes the statistics of its batch to the buffers `own` instead.

    begun   averages whose statistics an earlier op has written in part
    row     the row of these buffers that it writes; None for whole buffers
    """
    roles = {role: own[b] if b in averages else b for role, b in op.roles.items()}
    views = {role: row for role, b in op.roles.items() if b in averages and row is not None}
    updates = (own[b] if b in averages else b for b in op.updates if b not in averages or b in begun)
    writes = (own[b] for b in averages if b not in begun)
    return replace(
        op,
        record=op.record.of_one_batch(),
        roles=roles,
        views={**op.views, **views},
        updates=tuple(updates),
        writes=unique((*op.writes, *writes)),
    )


def changes_alone(node: Node) -> bool:
    """Whether forward of a layer changes a parameter that is no running average."""
    step = node.layer.forward()
    of_averages = {role for each in (step.record or node.layer.record).averages for role in each.roles}
    changed = {*step.writes, *step.updates} - of_averages
    return any(f"w{i}" in changed for i in range(len(node.params)))


def agree(node: Node, groups: Groups) -> bool:
    """Whether the averages of a layer move as in the layers before it that share them; adds them to `groups`."""
    step = node.layer.forward()
    for each in (step.record or node.layer.record).averages:
        names = tuple(node.params[int(role[1:])] for role in each.roles)
        if any(groups.setdefault(name, (names, each.kept)) != (names, each.kept) for name in names):
            return False
    return True
