"""A training graph as the native layout sees it: when buffers are resident, bytes in use, seconds of a step."""

from __future__ import annotations

from typing import Any, NamedTuple

from layermem import _native
from layermem.graph.ops import Graph, Op
from layermem.planning.base import Decision, Plan
from layermem.planning.costs import Costs
from layermem.utils.units import aligned

KINDS = {"inplace": 1, "forward": 2, "gradient": 4, "intra": 8}
DECISION_CODES = {Decision.KEEP: 0, Decision.OFFLOAD: 1, Decision.RECOMPUTE: 2}


class Stay(NamedTuple):
    """One stretch of residence; `first` and `last` are positions in the order.

    `release` is the position before whose row the bytes are free again (after `last`, later where a copy carries them
    off); `issue` the position before whose row a prefetch stands (None: `first` writes the bytes itself).
    """

    buffer: str
    first: int
    last: int
    release: int
    issue: int | None
    offloads: bool
    whole: bool  # resident for the whole run


def may_overlay(out: Stay, over: Stay) -> bool:
    """Whether `out` may begin on the bytes of `over`, at the op where the one begins and the other ends."""
    return out.issue is None and not over.offloads and out.whole == over.whole


class Layout:
    """`graph` under `costs`, to be asked about many plans."""

    def __init__(self, graph: Graph, costs: Costs):
        self.graph, self.costs = graph, costs
        self.native = _native.LayoutGraph()
        self.names = list(graph.buffers)
        self.ids: dict[str, int] = {}
        for name, buffer in graph.buffers.items():
            copies = costs.offload(buffer.nbytes), costs.prefetch(buffer.nbytes)
            self.ids[name] = self.native.add_buffer(name, aligned(buffer.nbytes), buffer.persistent, *copies)
        self.ops = {name: self._add(op) for name, op in graph.by_name.items()}
        self._order: tuple[tuple[str, ...], list[int]] = ((), [])

    def _add(self, op: Op) -> int:
        replay = self._add(op.recompute) if op.recompute is not None else -1
        lists = [[self.ids[b] for b in names] for names in (op.reads, op.updates, op.writes)]
        overlays = [(self.ids[o.out], self.ids[o.over], KINDS[o.kind]) for o in op.overlays]
        return int(self.native.add_op(op.name, *lists, overlays, aligned(op.workspace), self.costs.op(op), replay))

    def live_bytes(self, plan: Plan) -> int:
        """Most aligned bytes in use at one tick."""
        return int(self.native.measure(*self._asked(plan))[0])

    def seconds(self, plan: Plan) -> float:
        """Seconds of a step, as if all bytes that a copy frees were wanted at once (layout.h)."""
        return float(self.native.measure(*self._asked(plan), timed=True)[1])

    def stays(self, plan: Plan) -> list[Stay]:
        """All stretches of residence, buffer by buffer."""
        return [
            Stay(self.names[buffer], first, last, release, None if issue < 0 else issue, offloads, whole)
            for buffer, first, last, release, issue, offloads, whole in self.native.residencies(*self._asked(plan))
        ]

    def _asked(self, plan: Plan) -> tuple[Any, ...]:
        if plan.order is not self._order[0]:  # strategies vary the fates of one order
            self._order = plan.order, [self.ops[name] for name in plan.order]
        order = self._order[1]
        ids, offload = self.ids, DECISION_CODES[Decision.OFFLOAD]
        decisions = [
            (
                ids[buffer],
                use,
                offload if decision is Decision.OFFLOAD else DECISION_CODES[decision],
            )  # a name is looked up faster than a hash
            for (buffer, use), decision in plan.decisions.items()
        ]
        return order, decisions, sum(KINDS[kind] for kind in plan.overlays), plan.copy_lead
