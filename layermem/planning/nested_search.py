"""The native planner of nested recomputation (layermem._native.NestedPlanner) on a training graph.

    orders     every forward op, then every other one, in the graph's own order, phase by phase (phases.py); the same
               with the backward ops delayed that hold more bytes after than before (op_order.py)
    evictable  buffers that a second run of their op writes and that no op updates
    starts     the plan of `recompute`, so that the result recomputes no more than that plan
    search     eviction, a dynamic program over blocks, and annealing of the best plan of all
    offloads   activations in any gap; state between steps and in all but short gaps

The search counts the bytes of the plan (LayoutGraph), overlays and workspace included.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from layermem import _native
from layermem.graph.ops import FORWARD, Graph
from layermem.planning.costs import Costs
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import LowerSetPlanner, lower_set_planner
from layermem.planning.offloading import HostBudget, activations
from layermem.planning.op_order import delay_growth
from layermem.planning.phases import forward_first
from layermem.planning.plan import INTRA, NO_LIMIT_BYTES, Decision, Gap, Plan
from layermem.planning.recomputation import matches
from layermem.planning.registry import MINIMUM_MEMORY, PlanEvaluator
from layermem.planning.settings import SETTINGS
from layermem.utils.parallel import run_both

UNLIMITED_BYTES = 2**62  # of the host, if the user names no budget


def nested_planner(graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints) -> NestedPlanner:
    """A planner of `graph` with its fused updates, prepared once for all budgets."""
    graph = with_fused_updates(graph)
    key = f"nested {graph.fingerprint} {hints}"
    return evaluator.cached(key, lambda: NestedPlanner(graph, costs, evaluator, hints))


class NestedPlanner:
    """Translates a training graph for the native planner; plans carry the names of ops."""

    def __init__(self, graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints):
        self.graph, self.costs, self.hints = graph, costs, hints
        layout = evaluator.native_layout()
        self.ids, self.other_bytes = layout.ops, layout.other_bytes
        self.buffers, self.buffer_names = layout.buffers, {number: name for name, number in layout.buffers.items()}
        self.names = {number: name for name, number in layout.ops.items()}
        own = forward_first(graph, graph.of_kind(FORWARD))
        delayed = delay_growth(graph, own)
        # A search drops the values that hints name at one point, the start of backward; alternating slices have many.
        self.uses_walks = len(graph.phases) == 1 or not hints.recompute
        backward = next((i for i, name in enumerate(own) if graph.by_name[name].kind != FORWARD), len(own))
        updated = {buffer for op in graph.ops for buffer in op.updates}
        evictable = {
            buffer: producer
            for buffer, producer in graph.recomputable.items()
            if buffer not in updated and not matches(producer, hints.keep)
        }
        forward = ((buffer, op) for buffer, op in evictable.items() if op.kind == FORWARD)
        dropped = [buffer for buffer, op in forward if matches(op, hints.recompute)]
        self.evictable = [layout.buffers[buffer] for buffer in evictable]
        self.dropped = [layout.buffers[buffer] for buffer in dropped]
        self.overlays = sum(layout.overlay_bits[kind] for kind in INTRA)

        def native(order: Sequence[str]) -> _native.NestedPlanner:
            ids = [self.ids[name] for name in order]
            return _native.NestedPlanner(
                layout.graph, ids, self.evictable, self.dropped, backward, self.overlays, SETTINGS.native
            )

        self.has_delays = delayed != own
        self.native = native(own)
        self.delayed = native(delayed) if self.has_delays else self.native
        large = SETTINGS.large_step_ops
        self.edits = min(SETTINGS.edits * large // max(large, len(own)), SETTINGS.edits_per_op * len(own))
        self._least: Plan | None = None
        self._starts: dict[int, list[list[int]]] = {}  # by budget: orders of `recompute`
        self._found: dict[int, list[int] | None] = {}  # by budget: the order of plan_within()

    def plan_within(self, budget_bytes: int, name: str, evaluator: PlanEvaluator) -> Plan | None:
        """The plan with the least recomputation that was found within the budget; None if there is none."""
        if budget_bytes == MINIMUM_MEMORY:
            return None
        if not self.uses_walks:
            start = self._lower_set_planner(evaluator).plan_within(budget_bytes, name, evaluator)
            return start and Plan(name, start.order, {}, INTRA)
        if budget_bytes not in self._found:
            self.prepare(budget_bytes, evaluator)
            starts = self._starts[budget_bytes]
            found = self.delayed.plan(budget_bytes - self.other_bytes, starts, edits=self.edits)
            self._found[budget_bytes] = None if found is None else found.order
        order = self._found[budget_bytes]
        return None if order is None else self._plan(order, name)

    def prepare(self, budget_bytes: int, evaluator: PlanEvaluator) -> None:
        """Evict within a budget and plan `recompute` at the same time: both are preparations of plan_within()."""
        if budget_bytes in self._starts or not self.uses_walks:
            return
        lower_sets = self._lower_set_planner(evaluator)
        start, _ = run_both(
            lambda: lower_sets.plan_within(budget_bytes, "", evaluator),
            lambda: self.delayed.walk(budget_bytes - self.other_bytes),
        )
        orders = (delay_growth(self.graph, start.order), start.order) if start is not None else ()
        self._starts[budget_bytes] = [[self.ids[op] for op in order] for order in orders]

    def plan_with_offloads(
        self,
        budget_bytes: int,
        kinds: Collection[str],
        limit_seconds: float,
        name: str,
        *,
        delayed: bool = False,
        copy_limit_bytes: int | None = None,
    ) -> Plan | None:
        """The quickest plan found within the budget, with recomputation, offloads of activations, and the state of
        `kinds` on the host between steps.  None if there is none, if the host budget is too small for any of it, if
        hints require recomputation in steps of several phases, or if no plan comes near `limit_seconds`.  `delayed`:
        run late the backward ops that op_order.py delays; `copy_limit_bytes`: limit of the plan."""
        host = HostBudget(self.graph, self.hints)
        used = self.graph.uses
        state = [b.name for b in self.graph.persistent() if b.kind in kinds and b.name in used and host.reserve(b.name)]
        host_bytes = UNLIMITED_BYTES if host.remaining_bytes is None else host.remaining_bytes
        if (kinds and not state) or not (state or host_bytes) or not self.uses_walks:
            return None
        start = self._found.get(budget_bytes)
        found = (self.delayed if delayed else self.native).plan_with_offloads(
            budget_bytes - self.other_bytes,
            [start] if start else [],
            [self.buffers[buffer] for buffer in activations(self.graph)],
            [self.buffers[buffer] for buffer in state],
            host_bytes,
            SETTINGS.short_gap_ops,
            limit_seconds,
            NO_LIMIT_BYTES if copy_limit_bytes is None else copy_limit_bytes,
        )
        if found is None:
            return None
        decisions = {Gap(self.buffer_names[buffer], use): Decision.OFFLOAD for buffer, use in found.offloads}
        return Plan(name, tuple(self.names[op] for op in found.order), decisions, INTRA, 1.0, copy_limit_bytes)

    def min_memory_plan(self, name: str, evaluator: PlanEvaluator) -> Plan:
        """The plan that needs the fewest bytes."""
        if self._least is None:
            plans = [self._plan(self.delayed.minimum().order, name)] if self.uses_walks else []
            if not plans or self._may_need_less(evaluator.live_bytes(plans[0]), evaluator):
                plans.append(self._lower_set_planner(evaluator).min_memory_plan(name, evaluator))
            self._least = min(plans, key=evaluator.live_bytes)
        return Plan(name, self._least.order, {}, INTRA)

    def _may_need_less(self, nbytes: int, evaluator: PlanEvaluator) -> bool:
        """Whether a plan of lower sets may need notably fewer bytes.  If none of the smallest family does, one of a
        larger family seldom does."""
        small = lower_set_planner(self.graph, self.costs, "approx", evaluator, self.hints)
        if small.is_near_bound(nbytes) or not small.may_need_less(nbytes, evaluator):
            return False
        return self._lower_set_planner(evaluator).may_need_less(nbytes, evaluator)

    def _lower_set_planner(self, evaluator: PlanEvaluator) -> LowerSetPlanner:
        return lower_set_planner(self.graph, self.costs, "extended", evaluator, self.hints)

    def _plan(self, order: Sequence[int], name: str) -> Plan:
        return Plan(name, tuple(self.names[op] for op in order), {}, INTRA)
