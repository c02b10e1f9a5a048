"""Nested recomputation for a graph file: any value may be computed any number of times.

    order    every value once, in topological order, then every gradient from the last value back
    search   from that order and from the plan by lower sets (native/planning/nested/nested_planner.h)

An action is one of native lower-set plans: ("forward" | "recompute", node) or ("backward", step).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layermem import _native
from layermem.integrations.graph_files.value_graph import ValueGraph
from layermem.planning.settings import SETTINGS

Action = tuple[str, int]


def edits_of(count: int) -> int:
    """The number of edits that annealing tries in a graph of `count` values."""
    large = SETTINGS.large_graph_values
    return min(SETTINGS.graph_edits * large // max(large, count), SETTINGS.graph_edits_per_value * count)


@dataclass(frozen=True)
class NestedResult:
    """A plan with its exact peak and its recomputation cost."""

    actions: tuple[Action, ...]
    peak_bytes: int
    cost_recomputed: int


class NestedProblem:
    """The values of a graph file in the form of the native planner of nested recomputation."""

    def __init__(self, values: ValueGraph):
        self.values, count = values, len(values.variables)
        self.graph = _native.LayoutGraph()
        for kind in ("data", "gradient"):
            for node, nbytes in enumerate(values.bytes):
                self.graph.add_buffer(f"{kind} {node}", nbytes, False, 0.0, 0.0)
        self.order: list[int] = []  # op ids: node v at index v, step s at count + s
        for node, cost in enumerate(values.costs):
            name, reads, seconds = f"forward {node}", values.before[node], float(cost)
            again = self.graph.add_op(name, reads, [], [node], [], 0, seconds)
            self.order.append(self.graph.add_op(name, reads, [], [node], [], 0, seconds, again))
        for node in reversed(range(count)):
            gradients = [count + reader for reader in sorted(set(values.after[node]))]
            reads = [*values.step_data(node), *gradients]
            self.order.append(self.graph.add_op(f"backward {node}", reads, [], [count + node], [], 0, 0.0))
        self.index = {op: i for i, op in enumerate(self.order)}
        self.evictable = list(range(count))
        self.native = _native.NestedPlanner(self.graph, self.order, self.evictable, [], count, 0, SETTINGS.native)

    def plan(self, budget_bytes: int, starts: Iterable[Sequence[Action]] = ()) -> NestedResult | None:
        """The plan with the least recomputation found within the budget, at most that of each start."""
        steps_share, edits = SETTINGS.graph_steps_share, edits_of(len(self.evictable))
        found = self.native.plan(budget_bytes, [self._ops(start) for start in starts], steps_share, edits)
        return None if found is None else self._result(found.order)

    def minimum(self) -> NestedResult:
        """The plan with the fewest bytes found."""
        return self._result(self.native.minimum().order)

    def _ops(self, actions: Sequence[Action]) -> list[int]:
        first_step = len(self.evictable)
        return [self.order[first_step + i if kind == "backward" else i] for kind, i in actions]

    def _result(self, order: Sequence[int]) -> NestedResult:
        actions: list[Action] = []
        done: set[int] = set()
        for op in order:
            i = self.index[op]
            if i >= len(self.evictable):
                actions.append(("backward", i - len(self.evictable)))
            else:
                actions.append(("recompute" if i in done else "forward", i))
            done.add(i)
        cost = sum(self.values.costs[i] for kind, i in actions if kind == "recompute")
        return NestedResult(tuple(actions), self.graph.measure(order, [], 0, 1.0)[0], cost)
