"""Orders of backward ops that hold fewer bytes: an op that leaves more bytes than it frees runs as late as it can.

    crop.backward reads 300 MiB and writes 630, which pool.backward adds to much later

    net's order   concat.backward  crop.backward  ...the lower levels of a U-Net...  pool.backward     630 held between
    delayed       concat.backward  ...the lower levels of a U-Net...  crop.backward  pool.backward     300 held between

An op is delayed until just before the first op that touches its results, or writes its operands, so every op reads the
same values, and sums are added in the same order.  An update between the two places is delayed too, if that saves more
bytes than its gradient takes.  Ops that read recomputable buffers stay: later, the parameters for a recomputation may
have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.graph.ops import BACKWARD, UPDATE, Graph, Op
from layermem.planning.plan import ops_in_order


def delay_growth(graph: Graph, order: Sequence[str]) -> list[str]:
    """The order of a plan, recomputations included, with backward ops delayed if that holds fewer bytes."""
    return [op.name for op in _Delays(graph).delay(ops_in_order(graph, tuple(order)))]


class _Delays:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.needed: set[str] = set()  # buffers that a later op touches

    def delay(self, ops: Sequence[Op]) -> list[Op]:
        """Place the ops from the last to the first, so that all later ops already have their places."""
        later: list[Op] = []  # from the last op on
        for op in reversed(ops):
            after, moved = self._place(op, later)
            if moved:
                later = [each for each in later if all(each is not update for update in moved)]
            later[after:after] = [*reversed(moved), op]
            self.needed.update(op.touches)
        return later[::-1]

    def _place(self, op: Op, later: Sequence[Op]) -> tuple[int, list[Op]]:
        """The number of later ops that stay after `op`, and the updates that are delayed with it."""
        growth = self._growth(op)
        if not self._may_move(op, BACKWARD) or growth <= 0:
            return len(later), []
        moved: list[Op] = []
        for passed in range(len(later)):
            other = later[len(later) - 1 - passed]
            if not any(self._conflict(each, other) for each in (op, *moved)):
                continue
            growth -= self._bytes(b for b in other.reads)
            if not self._may_move(other, UPDATE) or growth <= 0:
                return len(later) - passed, moved
            moved.append(other)
        return len(later), []

    def _may_move(self, op: Op, kind: str) -> bool:
        return op.kind == kind and not any(buffer in self.graph.recomputable for buffer in op.reads)

    def _growth(self, op: Op) -> int:
        """Bytes that `op` begins to hold, less those that are free after it."""
        begun = (b for b in op.writes if b in self.needed and self.graph.producer[b].name == op.name)
        return self._bytes(begun) - self._bytes(b for b in (*op.reads, *op.updates) if b not in self.needed)

    def _bytes(self, buffers: Iterable[str]) -> int:
        known = (self.graph.buffers[name] for name in buffers)
        return sum(buffer.nbytes for buffer in known if not buffer.persistent)

    def _conflict(self, op: Op, other: Op) -> bool:
        """Whether the two ops have to stay in their order."""
        written = {*op.writes, *op.updates}
        return not (written.isdisjoint(other.touches) and {*other.writes, *other.updates}.isdisjoint(op.touches))
