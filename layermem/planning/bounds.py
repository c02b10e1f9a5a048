"""What no plan can do better: least bytes for any budget, least seconds for this one.

Both look at single ops o of the step while they run for the first time, and hold for any order of the ops, with each of
them recomputed any number of times; for offload within a host budget (0: nothing leaves), persistent buffers included;
and for the graph as it is: batch slices make another graph, with bounds of its own.

bytes     What o touches is in use (less what may lie over an input), beside the persistent buffers that the host does
          not take, and beside what must be held to run the rest of the step: the ops after o need values from before
          it, and a value is either held, or recomputed from values of which the same is true.  The least bytes of such
          a set are a minimum cut.  With a host budget of None, only the operands remain.

seconds   With B bytes of budget and W in use by o, the rest of such a set lies in B - W bytes, or on the host.  Each
          choice of values to hold implies which ops run again; the least seconds for a price per byte are a minimum cut
          too, and a bound for every price (Lagrangian relaxation).  At the ops of the highest of these bounds, branch
          and bound over which ops run again holds each value whole or not at all.  To that come the link's two
          directions: what is away while o runs came out beside the ops before it, and comes back beside those after it.

An op runs again after o only if its own operands fit beside the persistent buffers and the gradients that are live at
all times from o to the last op that profits; otherwise its outputs are held.  native/planning/bounds/step_bounds.h has
the argument in full, with its sources.  What the bounds leave out: that two ops o have to be served at once, that what
lies between two ops of a chain is in use together, and fragmentation; so they are not always reachable.
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

Form = tuple[float, int, list[int], list[int], list[int], list[tuple[int, int]]]  # as StepBounds.add_op takes it

NO_SECONDS = Costs(Rates(flops=1.0, memory=1.0, d2h=1.0, h2d=1.0, launch=0.0))  # where only bytes matter


def least_bytes(graph: Graph, host_budget_bytes: int | None = None) -> int:
    """Bytes of the device below which no plan of `graph` can go, with `host_budget_bytes` of the host (None: no
    limit)."""
    return _step(graph, NO_SECONDS).least_bytes(_host_bytes(host_budget_bytes))


def least_seconds(graph: Graph, costs: Costs, budget_bytes: int, host_budget_bytes: int | None = None) -> float:
    """Seconds below which no plan of `graph` can be, by the model of `costs`, within `budget_bytes` of the device and
    `host_budget_bytes` of the host (None: no limit); infinite if no plan fits."""
    return least_seconds_of(graph, costs, [budget_bytes], host_budget_bytes)[0]


def least_seconds_of(
    graph: Graph, costs: Costs, budgets_bytes: Sequence[int], host_budget_bytes: int | None = None
) -> list[float]:
    """least_seconds() of each budget, for little more than the time of one."""
    step = _step(graph, costs)
    return step.least_seconds(list(budgets_bytes), _host_bytes(host_budget_bytes))


def least_seconds_once(
    graph: Graph, costs: Costs, budget_bytes: int, host_budget_bytes: int | None, evaluator: PlanEvaluator
) -> Callable[[], float]:
    """What waits for least_seconds() of the graph that `evaluator` is for: begun in a thread, and computed once."""
    key = f"least seconds {graph.fingerprint} {budget_bytes} {host_budget_bytes}"
    bound = partial(least_seconds, graph, costs, budget_bytes, host_budget_bytes)
    return evaluator.cached(key, lambda: begin_thread(bound))


def is_sliced(graph: Graph) -> bool:
    """Whether ops of `graph` compute parts of a batch: then its bounds are not those of the whole batch."""
    return any(op.record.part is not None for op in graph.ops)


def _host_bytes(host_budget_bytes: int | None) -> int | None:
    return None if host_budget_bytes is None else aligned(host_budget_bytes)


def _step(graph: Graph, costs: Costs) -> _native.StepBounds:
    """`graph` in native code: with the fused updates that save memory, or with those that it runs already.

    A fused update counts as no longer than the ops that it covers, where a plan may run these instead."""
    step, fused = _native.StepBounds(costs.rates.d2h, costs.rates.h2d), with_fused_updates(graph)
    ids = {name: step.add_buffer(aligned(b.nbytes), b.persistent) for name, b in fused.buffers.items()}

    def alone(op: Op) -> float:
        # What ranks do together runs beside; updates may all join one launch.
        return costs.op(op, joined=bool(op.joins)) if op.stream == COMPUTE else 0.0

    def form(op: Op) -> Form:
        reads, updates, writes = ([ids[b] for b in names] for names in (op.reads, op.updates, op.writes))
        overlays = [(ids[o.out], ids[o.over]) for o in op.overlays if o.out in ids and o.over in ids]
        apart = [alone(graph.by_name[name]) for name in op.covers if name in graph.by_name]
        seconds = min(alone(op), sum(apart)) if apart else alone(op)
        return (seconds, aligned(op.workspace_bytes), reads, updates, writes, overlays)

    for op in fused.ops:
        step.add_op(form(op), None if op.recompute is None else form(op.recompute))
    return step
