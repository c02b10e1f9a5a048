"""Lower bounds for every plan: the least bytes under any budget, and the least seconds within a budget.

Both bounds examine each op o of the step, at the time of its first run.  They hold for any order of the ops, for any
number of recomputations, and for offload within a host budget (0: no offload), persistent buffers included.  They hold
for the given graph only: batch slices make another graph, with other bounds.

bytes     The bytes in use hold the operands of o (less overlays), the persistent buffers that are not on the host, and
          the values that must be held to run the rest of the step: ops after o need values from before it, and each
          value is either held, or recomputed from values for which the same holds.  The least bytes of such a set are a
          minimum cut.  With a host budget of None, only the operands remain.

seconds   With B bytes of budget and W in use by o, the rest of such a set lies in B - W bytes, or on the host.  Each
          choice of held values implies which ops run again; the least seconds for a price per byte are also a minimum
          cut, and a bound for every price (Lagrangian relaxation).  At the ops of the highest of these bounds, branch
          and bound over the recomputed ops holds each value whole or not at all.  The bound includes both directions of
          the link: offloaded values were copied out during the ops before o, and return during the ops after it.

An op runs again after o only if its own operands fit next to the persistent buffers and the gradients that are live
from o to the last op that uses its result; otherwise its outputs are held.  native/planning/bounds/step_bounds.h has
the full argument, with its sources.  A plan may not reach the bounds, which ignore fragmentation, bytes that two ops o
need at the same time, and values between two ops of a chain that are live together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from layermem import _native
from layermem.graph.ops import COMPUTE, Graph, Op
from layermem.planning.costs import Costs, Rates
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.registry import PlanEvaluator
from layermem.utils.parallel import begin_thread
from layermem.utils.units import aligned

Form = tuple[float, int, list[int], list[int], list[int], list[tuple[int, int]]]  # arguments of StepBounds.add_op

NO_SECONDS = Costs(Rates(flops=1.0, memory=1.0, d2h=1.0, h2d=1.0, launch=0.0))  # for callers that need only bytes


def least_bytes(graph: Graph, host_budget_bytes: int | None = None) -> int:
    """Bytes of the device below which no plan of `graph` can go, with so many bytes of the host (None: no limit)."""
    return _step(graph, NO_SECONDS).least_bytes(_host_bytes(host_budget_bytes))


def least_seconds(graph: Graph, costs: Costs, budget_bytes: int, host_budget_bytes: int | None = None) -> float:
    """Seconds below which no plan of `graph` can be, by the model of `costs`, within `budget_bytes` of the device and
    `host_budget_bytes` of the host (None: no limit); infinite if no plan fits."""
    return least_seconds_of(graph, costs, [budget_bytes], host_budget_bytes)[0]


def least_seconds_of(
    graph: Graph, costs: Costs, budgets_bytes: Sequence[int], host_budget_bytes: int | None = None
) -> list[float]:
    """The results of least_seconds() for several budgets, in little more than the time of one."""
    step = _step(graph, costs)
    return step.least_seconds(list(budgets_bytes), _host_bytes(host_budget_bytes))


def least_seconds_once(
    graph: Graph, costs: Costs, budget_bytes: int, host_budget_bytes: int | None, evaluator: PlanEvaluator
) -> Callable[[], float]:
    """Start least_seconds() in a thread, once per graph and budget; return the function that waits for its result."""
    key = f"least seconds {graph.fingerprint} {budget_bytes} {host_budget_bytes}"
    bound = partial(least_seconds, graph, costs, budget_bytes, host_budget_bytes)
    return evaluator.cached(key, lambda: begin_thread(bound))


def is_sliced(graph: Graph) -> bool:
    """Whether ops of `graph` compute parts of a batch, so that its bounds are not those of the whole batch."""
    return any(op.record.batch_slice is not None for op in graph.ops)


def _host_bytes(host_budget_bytes: int | None) -> int | None:
    return None if host_budget_bytes is None else aligned(host_budget_bytes)


def _step(graph: Graph, costs: Costs) -> _native.StepBounds:
    """Make the native `graph`, with the fused updates that save memory, or with those that it already runs.

    A fused update counts at most the seconds of the ops that it covers if a plan may run these instead."""
    step, fused = _native.StepBounds(costs.rates.d2h, costs.rates.h2d), with_fused_updates(graph)
    ids = {name: step.add_buffer(aligned(b.nbytes), b.persistent) for name, b in fused.buffers.items()}

    def alone(op: Op) -> float:
        # Communication runs at the same time as other ops; all updates may share one launch.
        return costs.op(op, joined=bool(op.joins)) if op.stream == COMPUTE else 0.0

    def form(op: Op) -> Form:
        reads, updates, writes = ([ids[b] for b in names] for names in (op.reads, op.updates, op.writes))
        overlays = [(ids[o.out], ids[o.over]) for o in op.overlays if o.out in ids and o.over in ids]
        covered = [alone(graph.by_name[name]) for name in op.covers if name in graph.by_name]
        seconds = min(alone(op), sum(covered)) if covered else alone(op)
        return (seconds, aligned(op.workspace_bytes), reads, updates, writes, overlays)

    for op in fused.ops:
        step.add_op(form(op), None if op.recompute is None else form(op.recompute))
    return step
