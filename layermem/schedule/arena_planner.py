"""Several graphs in one arena: a train step, and beside it its updates and the test nets of its solver.

homes    buffers that outlive a step lie at the bottom of the arena, or of the host's, at the same offsets for all
beside   the train graph has the plan of a strategy; the others share what they can by last use, or under `caffe`
         nothing, as it does
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layermem.graph.ops import Graph, uses_of
from layermem.planning.base import Decision, Gap, Hints, Plan, ops_in_order
from layermem.planning.costs import Costs
from layermem.planning.strategies import get_strategy
from layermem.schedule.ir import Schedule
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import PersistentOffsets, place
from layermem.schedule.simulate import Timeline, simulate
from layermem.utils.units import aligned

OffloadedState = frozenset[str]  # buffers whose home is the host


@dataclass(frozen=True)
class Program:
    """Schedules over one arena; the first is the train step.  `persistent`: offsets of the buffers that outlive it."""

    schedules: tuple[Schedule, ...]
    persistent: PersistentOffsets
    arena_bytes: int
    host_bytes: int
    costs: Costs

    @property
    def train(self) -> Schedule:
        return self.schedules[0]

    @property
    def max_live_bytes(self) -> int:
        return max(schedule.max_live_bytes for schedule in self.schedules)

    def timeline(self) -> Timeline:
        return simulate(self.train, self.costs)


class ArenaPlanner:
    """Graphs that share an arena, the first one trains; answers what strategies ask about a plan of it (plan.Peak)."""

    def __init__(self, graphs: Sequence[Graph], costs: Costs):
        self.graphs, self.costs = tuple(graphs), costs
        self.layouts = [Layout(graph, costs) for graph in graphs]
        self._persistent_bytes = {b.name: aligned(b.nbytes) for graph in graphs for b in graph.persistent()}
        self._unused = [self._persistent_bytes.keys() - {b for op in graph.ops for b in op.touches} for graph in graphs]
        self._measured: tuple[Plan | None, int] = (None, 0)
        self._notes: dict[str, Any] = {}
        self._others_live_bytes: dict[
            tuple[OffloadedState, str, float], int
        ] = {}  # what others need -> their most bytes in use

    def __call__(self, plan: Plan) -> int:
        return self.place(plan).arena_bytes

    def cached(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._notes:
            self._notes[key] = make()
        return self._notes[key]

    def live_bytes(self, plan: Plan) -> int:
        if plan is not self._measured[0]:  # strategies often ask twice
            offloaded_state = self._offloaded_state(plan) if len(self.graphs) > 1 else frozenset()
            self._measured = (
                plan,
                max(self._live_bytes(0, plan, offloaded_state), self._other_graphs_live_bytes(plan, offloaded_state)),
            )
        return self._measured[1]

    def estimate_seconds(self, plan: Plan) -> float:
        return self.layouts[0].seconds(plan)

    def place(self, plan: Plan, target: int = 0) -> Program:
        """All schedules under `plan`; placement stops searching once it is down to `target` bytes."""
        plans = self._plans(plan)
        persistent = self.persistent_offsets(plan)
        schedules = tuple(
            place(layout.graph, each, lower(layout, each), persistent=persistent, target=target)
            for layout, each in zip(self.layouts, plans)
        )
        arena, host = (max(getattr(s, peak) for s in schedules) for peak in ("peak_bytes", "host_peak_bytes"))
        return Program(schedules, persistent, arena, host, self.costs)

    def persistent_offsets(self, plan: Plan) -> PersistentOffsets:
        """Where the buffers live that outlive a step, under `plan`."""
        return self._persistent_offsets(self._offloaded_state(plan))

    # -- bytes in use ------------------------------------------------------------------------------------------

    def _live_bytes(self, index: int, plan: Plan, offloaded_state: OffloadedState) -> int:
        """Most bytes in use while graph `index` runs, the homes of others included."""
        others = sum(self._persistent_bytes[name] for name in self._unused[index] if name not in offloaded_state)
        return self.layouts[index].live_bytes(plan) + others

    def _other_graphs_live_bytes(self, plan: Plan, offloaded_state: OffloadedState) -> int:
        key = (offloaded_state, plan.strategy, plan.copy_lead)
        if key not in self._others_live_bytes:
            plans = enumerate(self._plans(plan)[1:], start=1)
            self._others_live_bytes[key] = max(
                (self._live_bytes(index, each, offloaded_state) for index, each in plans), default=0
            )
        return self._others_live_bytes[key]

    # -- homes -------------------------------------------------------------------------------------------------

    def _offloaded_state(self, plan: Plan) -> OffloadedState:
        gaps = (gap for gap, decision in plan.decisions.items() if gap.use == -1 and decision is Decision.OFFLOAD)
        return frozenset(gap.buffer for gap in gaps if self.graphs[0].buffers[gap.buffer].persistent)

    def _plans(self, train: Plan) -> list[Plan]:
        """`train`, and a plan for each other graph with the same homes."""
        name, offloaded_state = "caffe" if train.strategy == "caffe" else "liveness", self._offloaded_state(train)
        plans = [train]
        for graph in self.graphs[1:]:
            plan = get_strategy(name).make(graph, self.costs, None, self, Hints())
            decisions = dict(plan.decisions)
            for buffer, uses in uses_of(ops_in_order(graph, plan.order)).items():
                if buffer in offloaded_state:
                    decisions |= {Gap(buffer, number): Decision.OFFLOAD for number in range(-1, len(uses))}
            plans.append(replace(plan, decisions=decisions, copy_lead=train.copy_lead))
        return plans

    def _persistent_offsets(self, offloaded_state: OffloadedState) -> PersistentOffsets:
        """Offsets from the bottom up."""
        places: tuple[dict[str, int], dict[str, int]] = ({}, {})
        floors = [0, 0]
        for name, nbytes in self._persistent_bytes.items():
            host = name in offloaded_state
            places[host][name] = floors[host]
            floors[host] += nbytes
        return PersistentOffsets(places[0], floors[0], places[1], floors[1])
