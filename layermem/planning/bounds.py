"""What no plan can do better: least bytes for any budget, least seconds for this one.

bytes     some tick runs each op, so all that the op touches is in use at once (less what may lie over an input)

seconds   Look at the first run of an op o.  What it touches is in use (W bytes).  A value made before o and read after
          it is then in use too, or is recomputed, or comes back over the link.  With S bytes of such values at least
          D = W + S - B have to give way; recomputing x of them costs c(x), cheapest per byte first, and bringing the
          others back keeps the link busy for (D - x) / rate, beside the ops.  So a step takes at least
              min over x of max(T + c(x), (D - x) / rate),      T the time of every op once.
          What is not recomputed is on the host while o runs, so x is at least D less the host budget.
          Any o gives a valid bound; the largest of some dozen is taken.  Fractions of values are allowed, and the
          offload on the way out is free, so the bound is not always reachable.

source  the knapsack argument for recomputation is the classical one (Dantzig 1957); "before" and "after" are the
        ancestors and descendants of o, so the bound holds for any order of ops, not only for the graph's own
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from layermem.graph.ops import Graph, Op
from layermem.planning.costs import Costs
from layermem.planning.fused_updates import with_fused_updates
from layermem.utils.units import aligned

LOOKED_AT = 48  # ops whose first run is examined, fewer in nets of thousands of ops
OPS_GONE_THROUGH = 150_000


def least_bytes(graph: Graph) -> int:
    """Bytes below which no plan of `graph` can go."""
    graph = with_fused_updates(graph)
    forms = (form for op in graph.ops for form in (op, op.recompute) if form is not None)
    return max((_in_use(graph, form) for form in forms), default=0)


def least_seconds(graph: Graph, costs: Costs, budget_bytes: int, host_budget_bytes: int | None = None) -> float:
    """Seconds below which no plan of `graph` can be, by the model of `costs`, within `budget_bytes` of the device and
    `host_budget_bytes` of the host (None: no limit)."""
    host_bytes = inf if host_budget_bytes is None else aligned(host_budget_bytes)
    graph = with_fused_updates(graph)
    all_ops = sum(costs.op(op) for op in graph.ops)
    before, after = _dependencies(graph)
    best = all_ops
    for op in _peak_ops(graph):
        items = _passing(graph, op, before(op), after(op), costs)
        give_way = _in_use(graph, op) + sum(nbytes for nbytes, _ in items) - budget_bytes
        if give_way > 0:
            best = max(best, _cheapest(items, give_way, all_ops, costs.rates.h2d, host_bytes))
    return best


def _in_use(graph: Graph, op: Op) -> int:
    """Aligned bytes that are in use while `op` runs, with every output that may lie over an input laid there."""
    nbytes = sum(aligned(graph.buffers[b].nbytes) for b in op.touches) + aligned(op.workspace_bytes)
    taken: set[str] = set()
    for overlay in op.overlays:
        if not {overlay.out, overlay.over} & taken:
            taken |= {overlay.out, overlay.over}
            nbytes -= aligned(graph.buffers[overlay.out].nbytes)
    return nbytes


def _peak_ops(graph: Graph) -> list[Op]:
    """Ops at which most bytes are between their first write and their last read, in the graph's own order."""
    first: dict[str, int] = {}
    end: dict[str, int] = {}  # first position after its last use
    for position, op in enumerate(graph.ops):
        for buffer in op.touches:
            first.setdefault(buffer, position)
            end[buffer] = position + 1
    change = [0] * (len(graph.ops) + 1)
    for buffer, position in first.items():
        change[position] += graph.buffers[buffer].nbytes
        change[end[buffer]] -= graph.buffers[buffer].nbytes
    by_bytes, live_bytes = [], 0
    for position, op in enumerate(graph.ops):
        live_bytes += change[position]
        by_bytes.append((-live_bytes, position, op))
    return [op for _, _, op in sorted(by_bytes)[: min(LOOKED_AT, 1 + OPS_GONE_THROUGH // len(graph.ops))]]


def _dependencies(graph: Graph) -> tuple[Callable[[Op], set[str]], Callable[[Op], set[str]]]:
    """Functions from an op to the names of its ancestors, and of its descendants, itself left out."""
    parents: dict[str, set[str]] = {op.name: set() for op in graph.ops}
    children: dict[str, set[str]] = {op.name: set() for op in graph.ops}
    written: dict[str, str] = {}
    for op in graph.ops:
        for buffer in (*op.reads, *op.updates):
            if buffer in written:
                parents[op.name].add(written[buffer])
                children[written[buffer]].add(op.name)
        for buffer in (*op.writes, *op.updates):
            written[buffer] = op.name

    def reached(op: Op, edges: dict[str, set[str]]) -> set[str]:
        found: set[str] = set()
        stack = [op.name]
        while stack:
            new = edges[stack.pop()] - found
            found |= new
            stack += new
        return found

    return (lambda op: reached(op, parents)), (lambda op: reached(op, children))


def _passing(graph: Graph, op: Op, before: set[str], after: set[str], costs: Costs) -> list[tuple[int, float]]:
    """(bytes, seconds to recompute them) of what is made before `op` and read after it; what one op makes is one."""
    made: dict[str, list[int]] = {}
    other: list[tuple[int, float]] = []
    for name, buffer in graph.buffers.items():
        if name in op.touches or not any(reader.name in after for reader in graph.readers[name]):
            continue
        producer = graph.producer.get(name)
        if producer is None:
            if buffer.persistent:
                other.append((aligned(buffer.nbytes), inf))
        elif producer.name in before:
            if producer.recompute is not None and name in producer.recompute.writes:
                made.setdefault(producer.name, []).append(aligned(buffer.nbytes))
            else:
                other.append((aligned(buffer.nbytes), inf))
    for name, sizes in made.items():
        recompute = graph.by_name[name].recompute
        assert recompute is not None
        other.append((sum(sizes), costs.op(recompute)))
    return [item for item in other if item[0]]


def _cheapest(
    items: list[tuple[int, float]], give_way: float, all_ops: float, rate: float, host_bytes: float = inf
) -> float:
    """min over x >= give_way - host_bytes of max(all_ops + c(x), (give_way - x) / rate), c filled with the cheapest
    items per byte first."""
    spent = 0.0
    for nbytes, seconds in sorted(items, key=lambda item: item[1] / item[0]):
        beyond_host = give_way - host_bytes
        if seconds == inf or (beyond_host <= 0 and all_ops + spent >= give_way / rate):
            break
        per_byte = seconds / nbytes
        # where all_ops + spent + per_byte x = (give_way - x) / rate
        balanced = (give_way / rate - all_ops - spent) / (per_byte + 1 / rate)
        x = min(float(nbytes), give_way, max(0.0, balanced, beyond_host))
        spent += per_byte * x
        give_way -= x
    return max(all_ops + spent, give_way / rate)
