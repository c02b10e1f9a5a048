"""Recomputation in the given order of a graph: outputs in memory where it is full run again before a later read.

    order     a b c d e      the peak, over the budget, is at c; a is in memory from its run to e
    move      a b c d a e    a is dropped after its last read before c, and runs again before e

A move splits the residency of one output that nothing reads at the peak.  Inputs that are gone by then either stay
until that run, or run again before it, in turn.  Of all moves at the peak, the one that removes the most bytes over the
budget per cost is made, until nothing is over it; then runs that turned out needless are removed.  The answer depends
on the graph and the budget alone.

source  the retention intervals of Bartan et al., "Moccasin: Efficient Tensor Rematerialization for Neural Networks",
        ICML 2023, chosen greedily instead of by constraint programming
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

from layermem.planning.graph_files.node_link import NodeLinkGraph, last_reads, run_sequence

POWERS = (1.0, 0.5, 0.0)  # of the cost of a move, each tried
MAX_RUNS = 3  # of all nodes together, in numbers of nodes; more is given up


def plan_order(graph: NodeLinkGraph, budget_bytes: int) -> list[int] | None:
    """The cheapest sequence found whose peak is within `budget_bytes`; None if none was found."""
    found = [_plan(graph, budget_bytes, power) for power in POWERS]
    fitting = [_without_needless_runs(graph, each, budget_bytes) for each in found if each is not None]
    return min(fitting, key=lambda sequence: run_sequence(graph, sequence)[1], default=None)


def _plan(graph: NodeLinkGraph, budget_bytes: int, power: float) -> list[int] | None:
    """The moves with the most bytes per cost to that power; None if none is left, or after too many."""
    sequence = list(graph.order)
    over_bytes, peak = _over(graph, sequence, budget_bytes)
    while over_bytes:
        best: tuple[float, int, int, list[int]] | None = None
        for cost, tried in _moves(graph, sequence, peak):
            left_bytes, next_peak = _over(graph, tried, budget_bytes)
            if left_bytes < over_bytes:
                entry = ((left_bytes - over_bytes) / (cost + 1) ** power, left_bytes, next_peak, tried)
                best = min(best or entry, entry)
        if best is None or len(sequence) > MAX_RUNS * len(graph.bytes):
            return None
        _, over_bytes, peak, sequence = best
    return sequence


def _over(graph: NodeLinkGraph, sequence: Sequence[int], budget_bytes: int) -> tuple[int, int]:
    """Bytes over the budget, summed over all runs, and the run at the peak."""
    change = [0] * (len(sequence) + 1)
    for position, until in enumerate(last_reads(graph, sequence)):
        nbytes = graph.bytes[sequence[position]]
        change[position] += nbytes
        change[until + 1] -= nbytes
    live = [*accumulate(change)]
    return sum(each - budget_bytes for each in live if each > budget_bytes), live.index(max(live))


def _moves(graph: NodeLinkGraph, sequence: list[int], peak: int) -> Iterator[tuple[int, list[int]]]:
    """(cost, sequence) of every move that drops an output at the run `peak`."""
    until = last_reads(graph, sequence)
    read_now = set(graph.reads[sequence[peak]])
    for position in range(peak):
        node = sequence[position]
        if until[position] <= peak or node in read_now:
            continue
        later = next(p for p in range(peak + 1, len(sequence)) if node in graph.reads[sequence[p]])
        yield graph.cost[node], [*sequence[:later], node, *sequence[later:]]
        held = {sequence[p] for p in range(later) if until[p] >= later and p != position}
        chain = _chain(graph, node, held)
        if len(chain) > 1:
            yield sum(graph.cost[v] for v in chain), [*sequence[:later], *chain, *sequence[later:]]


def _chain(graph: NodeLinkGraph, node: int, held: set[int]) -> list[int]:
    """`node` after all that it reads and that is not held, in an order in which they can run."""
    chain: list[int] = []
    stack = [node]
    while stack:
        node = stack[-1]
        missing = [v for v in graph.reads[node] if v not in held and v not in chain]
        if missing:
            stack.append(missing[0])
            continue
        stack.pop()
        if node not in chain:
            chain.append(node)
    return chain


def _without_needless_runs(graph: NodeLinkGraph, sequence: list[int], budget_bytes: int) -> list[int]:
    """The sequence without runs that it can do without, the costliest first."""
    runs = Counter(sequence)
    by_cost = sorted((p for p, v in enumerate(sequence) if runs[v] > 1), key=lambda p: -graph.cost[sequence[p]])
    removed: set[int] = set()
    for position in by_cost:
        if runs[sequence[position]] == 1:
            continue
        tried = [v for p, v in enumerate(sequence) if p != position and p not in removed]
        with suppress(ValueError):  # a node reads what has not run
            if run_sequence(graph, tried)[0] <= budget_bytes:
                removed.add(position)
                runs[sequence[position]] -= 1
    return [v for p, v in enumerate(sequence) if p not in removed]
