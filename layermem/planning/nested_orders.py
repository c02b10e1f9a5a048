"""Orders with little recomputation that the native planner of nested recomputation finds within a budget.

walks   eviction with the future known, and the plans of others     native/planning/nested/nested_planner.h
blocks  the dynamic program over blocks between bottlenecks         native/planning/nested/chain_program.h
polish  simulated annealing of the best order of each               native/planning/nested/polish.h
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from layermem import _native
from layermem.planning.settings import SETTINGS
from layermem.utils.parallel import run_both

SEED = 0


@dataclass(frozen=True)
class Polished:
    """An order, and what polish made of it."""

    start: list[int]
    order: list[int]


@dataclass(frozen=True)
class OrderSearch:
    """A graph, what may be recomputed in it, and how many edits polish tries."""

    planner: _native.NestedPlanner
    graph: _native.LayoutGraph
    evictable: Sequence[int]
    dropped: Sequence[int]
    overlays: int
    polish_steps: int
    work_percent: int = 100

    def of_walks(
        self, budget_bytes: int, starts: Sequence[Sequence[int]], known: Polished | None = None
    ) -> Polished | None:
        """The best order that walks and `starts` lead to, or None; `known`: such an answer, to be used again."""
        found = self.planner.plan(budget_bytes, starts, self.work_percent)
        if found is None:
            return None
        if known is not None and known.start == found.order:
            return known
        order = self._polished(found.order, budget_bytes, self.polish_steps) if found.recompute_seconds else found.order
        return Polished(found.order, order)

    def of_blocks(self, budget_bytes: int, other: Sequence[int] | None) -> list[int] | None:
        """The best order of the dynamic program, or None: also where that of `other` recomputes much less."""
        other_seconds = inf if other is None else self.recompute_seconds(other)
        found = self.planner.plan_blocks(budget_bytes, SETTINGS.much_longer_seconds * other_seconds)
        if found is None:
            return None
        fewer = SETTINGS.fewer_edits if found.recompute_seconds >= other_seconds else 1
        return self._polished(found.order, budget_bytes, self.polish_steps // fewer)

    def best(self, budget_bytes: int, starts: Sequence[Sequence[int]]) -> list[int] | None:
        """The best order of both, no worse than any of `starts` that fits, or None."""
        found = self.planner.plan(budget_bytes, starts, self.work_percent)
        walks = None if found is None else found.order
        if found is not None and not found.recompute_seconds:
            return walks
        polished = run_both(
            lambda: None if walks is None else self._polished(walks, budget_bytes, self.polish_steps),
            lambda: self.of_blocks(budget_bytes, walks),
        )
        return min((order for order in polished if order is not None), key=self.recompute_seconds, default=None)

    def recompute_seconds(self, order: Sequence[int]) -> float:
        return _native.EditableOrder(self.graph, order, self.overlays).recompute_seconds

    def _polished(self, order: Sequence[int], budget_bytes: int, steps: int) -> list[int]:
        return _native.polish_order(
            self.graph, order, self.evictable, self.dropped, self.overlays, budget_bytes, steps, SEED, SETTINGS.native
        )
