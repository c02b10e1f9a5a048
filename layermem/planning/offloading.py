"""Common parts of the strategies that copy to the host: the gaps to offload, and the start of the copies.

    uses of an activation     w . r . . . . . . . . r . .      w written and r read in forward, then r in backward
    gap that crosses                |OFFLOAD-------|           from its last forward use to its first backward use

Copies run on separate streams.  A longer lead over the op that waits for a copy hides more of it, but holds bytes
longer.  If a plan fits only without a lead, its copies hold spare bytes of the budget (Plan.copy_limit_bytes), and ops
wait for the other copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from layermem.graph.ops import DATA, DIFF, FORWARD, HISTORY, PARAMETER, STASH, Graph, Use, unique
from layermem.ops import CARRY, OPEN
from layermem.planning.hints import Hints
from layermem.planning.plan import Decision, Gap, Plan
from layermem.planning.registry import PlanEvaluator
from layermem.planning.settings import SETTINGS
from layermem.utils.units import ALIGN, aligned

COPY_LEADS = (1.0, 0.5, 0.0)  # shares of a copy's duration, tried in this order
OFFLOADED_STATE: tuple[tuple[str, ...], ...] = ((), (HISTORY,), (HISTORY, PARAMETER))  # kinds on the host, in turn


def copy_limit_within(budget_bytes: int, evaluator: PlanEvaluator, hints: Hints) -> int:
    """Live bytes of the graph up to which copies hold bytes: the rest of the budget, unless hints state less."""
    limit_bytes = budget_bytes - evaluator.native_layout().other_bytes
    return limit_bytes if hints.copy_limit_bytes is None else min(limit_bytes, hints.copy_limit_bytes)


def with_copy_limit(plan: Plan, budget_bytes: int, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    """The plan with a copy limit in place of a short lead, if it is quicker."""
    if plan.copy_lead == COPY_LEADS[0] or not plan.decisions:
        return plan
    limit_bytes = copy_limit_within(budget_bytes, evaluator, hints)
    limited = replace(plan, copy_lead=COPY_LEADS[0], copy_limit_bytes=limit_bytes)
    is_quicker = evaluator.estimate_seconds(limited) < evaluator.estimate_seconds(plan)
    return limited if is_quicker and evaluator.live_bytes(limited) <= budget_bytes else plan


def with_longest_copy_lead(plan: Plan, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    """The plan with the longest copy lead that fits; if none fits, or without a budget, the one of fewest bytes."""
    if budget_bytes is not None:
        for copy_lead in COPY_LEADS:
            tried = replace(plan, copy_lead=copy_lead)
            if evaluator.live_bytes(tried) <= budget_bytes:
                return with_copy_limit(tried, budget_bytes, evaluator, hints)
    return replace(plan, copy_lead=0.0)


class HostBudget:
    """The remainder of the user's host budget, if there is one; ops share their host workspace, running one by one."""

    def __init__(self, graph: Graph, hints: Hints):
        self.graph, self.remaining_bytes = graph, hints.host_budget_bytes
        if self.remaining_bytes is not None:
            workspace = max((aligned(op.host_workspace_bytes) for op in graph.ops), default=0)
            self.remaining_bytes = max(0, self.remaining_bytes - workspace)

    @property
    def is_empty(self) -> bool:
        """Whether no bytes are left to offload."""
        return self.remaining_bytes is not None and self.remaining_bytes < ALIGN

    def reserve(self, buffer: str) -> bool:
        """Reserve the bytes of a copy of `buffer`; False if fewer remain."""
        if self.remaining_bytes is None:
            return True
        nbytes = aligned(self.graph.buffers[buffer].nbytes)
        if nbytes > self.remaining_bytes:
            return False
        self.remaining_bytes -= nbytes
        return True


def activations(graph: Graph) -> list[str]:
    """Activations, stashes and batches."""
    return [b.name for b in graph.buffers.values() if b.kind in (DATA, STASH)]


def carried_sums(graph: Graph) -> list[str]:
    """The sums that backward slices of the batch carry: the parameter gradients so far."""
    carried = (b for op in graph.ops for role, b in op.roles.items() if role.endswith((CARRY, OPEN)))
    return [*unique(b for b in carried if graph.buffers[b].kind == DIFF)]


def crossing_gaps(graph: Graph, buffers: Collection[str], host: HostBudget) -> dict[Gap, Decision]:
    """OFFLOAD for the gap of each buffer between a forward op and a backward op, if there is one.

    The longest gaps come first, because they free their bytes longest, which matters if the host budget is small.
    """
    kinds = [op.kind for op in graph.ops]
    crossing = []
    for gap in long_gaps(graph.uses, buffers):
        before, after = graph.uses[gap.buffer][gap.use : gap.use + 2]
        if kinds[before.position] == FORWARD and kinds[after.position] != FORWARD:
            crossing.append(gap)
    return {gap: Decision.OFFLOAD for gap in crossing if host.reserve(gap.buffer)}


def long_gaps(uses: Mapping[str, list[Use]], buffers: Iterable[str]) -> list[Gap]:
    """Gaps of `buffers` that keep bytes, longest first, without those too short for a round trip."""
    gaps = []
    for buffer in buffers:
        own = uses.get(buffer, [])
        for number in range(len(own) - 1):
            length = own[number + 1].position - own[number].position
            if own[number + 1].reads and length > SETTINGS.short_gap_ops:
                gaps.append((-length, Gap(buffer, number)))
    return [gap for _, gap in sorted(gaps)]


def offload_state(
    graph: Graph, uses: Mapping[str, list[Use]], kinds: Collection[str], host: HostBudget
) -> dict[Gap, Decision]:
    """OFFLOAD for the last gaps of the persistent buffers of `kinds`, so that they are on the host between steps, and
    for all their other gaps except the shortest: uses in close succession share one residency."""
    names = [b.name for b in graph.persistent() if b.kind in kinds and b.name in uses and host.reserve(b.name)]
    gaps = [*(Gap(name, -1) for name in names), *long_gaps(uses, names)]
    return dict.fromkeys(gaps, Decision.OFFLOAD)
