"""A training graph in native form: residencies under a plan, live bytes, seconds.

source  native/planning/liveness/layout.h explains how residencies follow from an order and its decisions
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from layermem import _native
from layermem.graph.ops import COMM, Graph, Op
from layermem.planning.costs import Costs
from layermem.planning.plan import NO_LIMIT_BYTES, Decision, Gap, Plan
from layermem.utils.units import aligned

OVERLAY_BITS = {"inplace": 1, "forward": 2, "gradient": 4, "intra": 8}
DECISIONS = (Decision.KEEP, Decision.OFFLOAD, Decision.RECOMPUTE)  # in the order of the native enumeration
ORDERS_CACHED = 32  # prepared orders: strategies vary the decisions of few orders


class OrderResidency(NamedTuple):
    """One residency of a buffer on the device, in positions of the plan's order: used in [begin, end).

    release      position before whose op the bytes are free again: `end`, or later if a copy or comm op must finish
    prefetch_at  position before whose op a prefetch is issued; None: the op at `begin` writes the bytes itself
    offloads     a copy to the host is issued after the last use
    whole_step   resident from the first tick to the last
    """

    buffer: str
    begin: int
    end: int
    release: int
    prefetch_at: int | None
    offloads: bool
    whole_step: bool


def may_overlay(out: OrderResidency, over: OrderResidency) -> bool:
    """Whether `out` may start on the bytes of `over`, at the op where `out` begins and `over` ends."""
    return out.prefetch_at is None and not over.offloads and out.whole_step == over.whole_step


class Layout:
    """`graph` under `costs`, evaluated for many plans."""

    def __init__(self, graph: Graph, costs: Costs):
        self.graph, self.costs = graph, costs
        self.native = _native.LayoutGraph()
        self.names = list(graph.buffers)
        self.ids: dict[str, int] = {}
        for name, buffer in graph.buffers.items():
            copies = costs.offload(buffer.nbytes), costs.prefetch(buffer.nbytes)
            self.ids[name] = self.native.add_buffer(name, aligned(buffer.nbytes), buffer.persistent, *copies)
        self.ops = {name: self._add(op) for name, op in graph.by_name.items()}
        self._orders: dict[int, tuple[tuple[str, ...], _native.LayoutOrder]] = {}  # by id() of a plan's order
        self._lock = threading.Lock()  # guards the orders: plans may be evaluated in two threads

    def _add(self, op: Op) -> int:
        recompute = self._add(op.recompute) if op.recompute is not None else -1
        overlays = [(self.ids[o.out], self.ids[o.over], OVERLAY_BITS[o.kind]) for o in op.overlays]
        return self.native.add_op(
            op.name,
            self._ids(op.reads),
            self._ids(op.updates),
            self._ids(op.writes),
            overlays,
            aligned(op.workspace_bytes),
            self.costs.op(op),
            recompute,
            op.stream == COMM,
        )

    def _ids(self, names: Sequence[str]) -> list[int]:
        return [self.ids[name] for name in names]

    def live_bytes(self, plan: Plan) -> int:
        """The most aligned bytes in use at one tick."""
        return self._measure(plan, timed=False)[0]

    def live_profile(self, plan: Plan) -> list[int]:
        """Aligned bytes in use at each position of the plan's order."""
        order, limit_bytes = self._prepared(plan.order), _copy_limit(plan)
        return order.live_profile(_decisions(plan), _overlay_mask(plan), plan.copy_lead, limit_bytes)

    def estimate_seconds(self, plan: Plan) -> float:
        """Seconds of a step, as if all bytes that a copy frees were needed at once."""
        return self._measure(plan, timed=True)[1]

    def fewest_offloads(self, plan: Plan, gaps: Sequence[Gap], budget_bytes: int) -> int | None:
        """The number of `gaps`, counted from the first, that have to be offloaded in addition to the plan's decisions
        so that it fits; None if all are not enough."""
        order, limit_bytes = self._prepared(plan.order), _copy_limit(plan)
        offloads = cast("dict[tuple[str, int], object]", dict.fromkeys(gaps, Decision.OFFLOAD))
        copies = plan.copy_lead, limit_bytes, budget_bytes
        return order.fewest_offloads(_decisions(plan), offloads, _overlay_mask(plan), *copies)

    def without_offloads(
        self,
        plan: Plan,
        groups: Sequence[Sequence[Gap]],
        budget_bytes: int,
        fits_beside: Callable[[list[int]], bool] | None,
    ) -> tuple[list[int], float]:
        """The numbers of the groups of offloads that the plan can drop, and the estimated seconds of the rest."""
        at = {gap: i for i, gap in enumerate(plan.decisions)}
        positions = [[at[gap] for gap in group] for group in groups]
        order, limit_bytes = self._prepared(plan.order), _copy_limit(plan)
        copies = plan.copy_lead, limit_bytes, budget_bytes
        return order.without_offloads(_decisions(plan), positions, _overlay_mask(plan), *copies, fits_beside)

    def _measure(self, plan: Plan, *, timed: bool) -> tuple[int, float]:
        order, limit_bytes = self._prepared(plan.order), _copy_limit(plan)
        return order.measure(_decisions(plan), _overlay_mask(plan), plan.copy_lead, timed, limit_bytes)

    def residencies(self, plan: Plan) -> list[OrderResidency]:
        """All residencies on the device, buffer by buffer."""
        order, limit_bytes = self._prepared(plan.order), _copy_limit(plan)
        spans = order.residencies(_decisions(plan), plan.copy_lead, limit_bytes, _overlay_mask(plan))
        return [
            OrderResidency(self.names[buffer], begin, end, release, None if issue < 0 else issue, offloads, whole_step)
            for buffer, begin, end, release, issue, offloads, whole_step in spans
        ]

    def comm_releases(self, plan: Plan) -> dict[int, int]:
        """Per position of a comm op, the position before which its workspace is free again."""
        return dict(self._prepared(plan.order).comm_releases(plan.copy_lead))

    def _prepared(self, order: tuple[str, ...]) -> _native.LayoutOrder:
        """The native form of an order, shared by plans that derive from each other."""
        with self._lock:
            known = self._orders.pop(id(order), None)
            if known is None:
                ops = [self.ops[name] for name in order]
                known = order, _native.LayoutOrder(self.native, ops, self.ids, DECISIONS)
                if len(self._orders) >= ORDERS_CACHED:
                    del self._orders[next(iter(self._orders))]
            self._orders[id(order)] = known  # the most recent one is last
            return known[1]


def _copy_limit(plan: Plan) -> int:
    return NO_LIMIT_BYTES if plan.copy_limit_bytes is None else plan.copy_limit_bytes


def _overlay_mask(plan: Plan) -> int:
    return sum(OVERLAY_BITS[kind] for kind in plan.overlays)


def _decisions(plan: Plan) -> dict[tuple[str, int], object]:
    return cast("dict[tuple[str, int], object]", dict(plan.decisions))
