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
from layermem.planning.base import Fate, Gap, Hints, Plan, ops_in_order
from layermem.planning.costs import Costs
from layermem.planning.strategies import get_strategy
from layermem.schedule.ir import Schedule
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import Homes, place
from layermem.schedule.simulate import Timeline, simulate
from layermem.utils.units import aligned

Away = frozenset[str]  # buffers whose home is the host


@dataclass(frozen=True)
class Program:
    """Schedules over one arena; the first is the train step.  `homes`: where the buffers live that outlive a step."""

    schedules: tuple[Schedule, ...]
    homes: Homes
    arena_bytes: int
    host_bytes: int
    costs: Costs

    @property
    def train(self) -> Schedule:
        return self.schedules[0]

    @property
    def max_live(self) -> int:
        return max(schedule.max_live for schedule in self.schedules)

    def timeline(self) -> Timeline:
        return simulate(self.train, self.costs)


class Together:
    """Graphs that share an arena, the first one trains; answers what strategies ask about a plan of it (plan.Peak)."""

    def __init__(self, graphs: Sequence[Graph], costs: Costs):
        self.graphs, self.costs = tuple(graphs), costs
        self.layouts = [Layout(graph, costs) for graph in graphs]
        self._homes = {b.name: aligned(b.nbytes) for graph in graphs for b in graph.persistent()}
        self._unused = [self._homes.keys() - {b for op in graph.ops for b in op.touches} for graph in graphs]
        self._measured: tuple[Plan | None, int] = (None, 0)
        self._notes: dict[str, Any] = {}
        self._beside: dict[tuple[Away, str, float], int] = {}  # what others need -> their most bytes in use

    def __call__(self, plan: Plan) -> int:
        return self.place(plan).arena_bytes

    def remembered(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._notes:
            self._notes[key] = make()
        return self._notes[key]

    def live(self, plan: Plan) -> int:
        if plan is not self._measured[0]:  # strategies often ask twice
            away = self._away(plan) if len(self.graphs) > 1 else frozenset()
            self._measured = plan, max(self._live(0, plan, away), self._live_beside(plan, away))
        return self._measured[1]

    def estimate(self, plan: Plan) -> float:
        return self.layouts[0].seconds(plan)

    def place(self, plan: Plan, target: int = 0) -> Program:
        """All schedules under `plan`; placement stops searching once it is down to `target` bytes."""
        plans = self._plans(plan)
        homes = self.homes(plan)
        schedules = tuple(
            place(layout.graph, each, lower(layout, each), homes=homes, target=target)
            for layout, each in zip(self.layouts, plans)
        )
        arena, host = (max(getattr(s, peak) for s in schedules) for peak in ("peak", "host_peak"))
        return Program(schedules, homes, arena, host, self.costs)

    def homes(self, plan: Plan) -> Homes:
        """Where the buffers live that outlive a step, under `plan`."""
        return self._places(self._away(plan))

    # -- bytes in use ------------------------------------------------------------------------------------------

    def _live(self, index: int, plan: Plan, away: Away) -> int:
        """Most bytes in use while graph `index` runs, the homes of others included."""
        others = sum(self._homes[name] for name in self._unused[index] if name not in away)
        return self.layouts[index].live(plan) + others

    def _live_beside(self, plan: Plan, away: Away) -> int:
        key = (away, plan.strategy, plan.ahead)
        if key not in self._beside:
            plans = enumerate(self._plans(plan)[1:], start=1)
            self._beside[key] = max((self._live(index, each, away) for index, each in plans), default=0)
        return self._beside[key]

    # -- homes -------------------------------------------------------------------------------------------------

    def _away(self, plan: Plan) -> Away:
        gaps = (gap for gap, fate in plan.fates.items() if gap.use == -1 and fate is Fate.OFFLOAD)
        return frozenset(gap.buffer for gap in gaps if self.graphs[0].buffers[gap.buffer].persistent)

    def _plans(self, train: Plan) -> list[Plan]:
        """`train`, and a plan for each other graph with the same homes."""
        name, away = "caffe" if train.strategy == "caffe" else "liveness", self._away(train)
        plans = [train]
        for graph in self.graphs[1:]:
            plan = get_strategy(name).make(graph, self.costs, None, self, Hints())
            fates = dict(plan.fates)
            for buffer, uses in uses_of(ops_in_order(graph, plan.order)).items():
                if buffer in away:
                    fates |= {Gap(buffer, number): Fate.OFFLOAD for number in range(-1, len(uses))}
            plans.append(replace(plan, fates=fates, ahead=train.ahead))
        return plans

    def _places(self, away: Away) -> Homes:
        """Offsets from the bottom up."""
        places: tuple[dict[str, int], dict[str, int]] = ({}, {})
        floors = [0, 0]
        for name, nbytes in self._homes.items():
            host = name in away
            places[host][name] = floors[host]
            floors[host] += nbytes
        return Homes(places[0], floors[0], places[1], floors[1])
