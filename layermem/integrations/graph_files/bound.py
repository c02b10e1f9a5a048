"""A lower bound of the recomputation of any plan of a graph file within a budget.

During the step that forms the gradient of a value, its operands are in memory, and so are all gradients that exist
before it and are read after it.  A value that is computed before the step and read after it is either in memory too, or
computed at least once more.  The graph determines what comes before and after, for every order of a plan.  Therefore at
least the cheapest values per byte that make up for the bytes over the budget are recomputed; the bound is the largest
such sum of any step.

source  the knapsack argument is that of planning/bounds.py, here without a link
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from layermem.integrations.graph_files.value_graph import ValueGraph

ROUNDING = 1e-9


def least_recomputed(values: ValueGraph, budget_bytes: int) -> int:
    """A lower bound of the recomputation cost of every plan within `budget_bytes` of values and gradients."""
    count, most = len(values.variables), 0.0
    masks = _Masks(values)
    for node in range(count):
        fixed = masks.gradients_at(node)
        touched = masks.data[node]
        passing = masks.values_before[node] & masks.data_after[node] & ~touched
        in_use = sum(values.bytes[v] for mask in (fixed, touched, passing) for v in _members(mask))
        if in_use > budget_bytes:
            most = max(most, _cheapest(values, passing, in_use - budget_bytes))
    return ceil(most - ROUNDING)


class _Masks:
    """Sets of nodes as bits of integers, per node."""

    def __init__(self, values: ValueGraph):
        count = len(values.variables)
        self.data = [_mask(values.step_data(v)) for v in range(count)]  # values that its step reads
        self.readers = [_mask(values.after[v]) for v in range(count)]
        ancestors, self.data_after, self.gradients_after = [0] * count, [0] * count, [0] * count
        for v in range(count):
            ancestors[v] = 1 << v
            for u in values.before[v]:
                ancestors[v] |= ancestors[u]
                self.data_after[v] |= self.data_after[u] | self.data[u]  # read by steps after its own
                self.gradients_after[v] |= self.gradients_after[u] | self.readers[u]
        self.values_before, self.descendants = [0] * count, [0] * count
        for v in reversed(range(count)):
            for u in _members(self.data[v]):
                self.values_before[v] |= ancestors[u]  # computed before its step
            for w in values.after[v]:
                self.values_before[v] |= self.values_before[w]
                self.descendants[v] |= self.descendants[w] | 1 << w

    def gradients_at(self, v: int) -> int:
        """Gradients in memory while the gradient of v is formed."""
        return self.readers[v] | 1 << v | (self.descendants[v] & self.gradients_after[v])


def _mask(nodes: list[int]) -> int:
    return sum(1 << v for v in set(nodes))


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _cheapest(values: ValueGraph, items: int, give_way: int) -> float:
    """Cost of recomputing `give_way` bytes, with a fraction of the last value; of all items, if they have fewer
    bytes."""
    cost = 0.0
    with_bytes = [v for v in _members(items) if values.bytes[v]]
    for v in sorted(with_bytes, key=lambda v: values.costs[v] / values.bytes[v]):
        part = min(values.bytes[v], give_way)
        cost += values.costs[v] * part / values.bytes[v]
        give_way -= part
    return cost
