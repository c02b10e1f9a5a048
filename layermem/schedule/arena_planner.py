"""Plans several graphs in one arena: a training step with its updates and the test nets of its solver.

    host arena     | h0 | h1 |                  state that a plan offloads
    device arena   | w0 | w1 | h2 |             persistent buffers lie at the bottom, at one offset for all graphs
                                  | train       above them each graph uses the rest by its own plan;
                                  | test        they run one after the other

The training graph has the plan of a strategy.  The others reuse bytes by lifetime, or as the strategy declares
(StrategyEntry.other_graphs): under `caffe` they share nothing, as in Caffe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar, cast

from layermem.graph.ops import Graph, uses_of
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.plan import Decision, Gap, Plan, ops_in_order
from layermem.planning.registry import NativeLayout
from layermem.planning.strategies import STRATEGIES, get_strategy
from layermem.schedule.ir import Instruction
from layermem.schedule.layout import OVERLAY_BITS, Layout
from layermem.schedule.program import PersistentOffsets, Program
from layermem.utils.units import aligned

T = TypeVar("T")
OffloadedState = frozenset[str]  # persistent buffers on the host between steps
KEPT = 6  # programs: those of deep nets are large


class ArenaPlanner:
    """Graphs that share an arena; the first one trains.  It is the PlanEvaluator of strategies
    (planning/registry.py)."""

    def __init__(self, graphs: Sequence[Graph], costs: Costs):
        self.graphs, self.costs = tuple(graphs), costs
        self.layouts = [Layout(graph, costs) for graph in graphs]
        self._persistent_bytes = {b.name: aligned(b.nbytes) for graph in graphs for b in graph.persistent()}
        self._unused = [self._persistent_bytes.keys() - {b for op in graph.ops for b in op.touches} for graph in graphs]
        self._measured: tuple[Plan | None, int] = (None, 0)  # strategies often measure a plan twice
        self._cache: dict[str, object] = {}
        self.programs = RecentPrograms()
        # by everything that determines them
        self._others_live_bytes: dict[tuple[OffloadedState, str, float, int | None], int] = {}

    @cached_property
    def less_fused(self) -> ArenaPlanner | None:
        """The planner of the same graphs with fewer fusions (Graph.less_fused); None if no fusion is optional."""
        if self.graphs[0].less_fused is None:
            return None
        return ArenaPlanner([graph.less_fused or graph for graph in self.graphs], self.costs)

    # -- answers to strategies ---------------------------------------------------------------------------------

    def live_bytes(self, plan: Plan) -> int:
        measured = self._measured
        if plan is not measured[0]:
            offloaded_state = self._offloaded_state(plan) if len(self.graphs) > 1 else frozenset()
            live_bytes = self._live_bytes(0, plan, offloaded_state)
            self._measured = measured = plan, max(live_bytes, self._live_bytes_of_others(plan, offloaded_state))
        return measured[1]

    def fewest_offloads(self, plan: Plan, gaps: Sequence[Gap], budget_bytes: int) -> int | None:
        if len(self.graphs) > 1 and self._live_bytes_of_others(plan, self._offloaded_state(plan)) > budget_bytes:
            return None
        return self.layouts[0].fewest_offloads(plan, gaps, budget_bytes - self._bytes_of_others(0, frozenset()))

    def without_offloads(
        self, plan: Plan, groups: Sequence[Sequence[Gap]], budget_bytes: int
    ) -> tuple[dict[Gap, Decision], float]:
        own_bytes = budget_bytes - self._bytes_of_others(0, frozenset())

        def rest(removed: Sequence[int]) -> dict[Gap, Decision]:
            gone = {gap for number in removed for gap in groups[number]}
            return {gap: decision for gap, decision in plan.decisions.items() if gap not in gone}

        def others_fit(removed: list[int]) -> bool:
            tried = replace(plan, decisions=rest(removed))
            return self._live_bytes_of_others(tried, self._offloaded_state(tried)) <= budget_bytes

        fits_beside = others_fit if len(self.graphs) > 1 else None
        removed, seconds = self.layouts[0].without_offloads(plan, groups, own_bytes, fits_beside)
        return rest(removed), seconds

    def estimate_seconds(self, plan: Plan) -> float:
        return self.layouts[0].estimate_seconds(plan)

    def native_layout(self) -> NativeLayout:
        layout = self.layouts[0]
        return NativeLayout(layout.native, layout.ops, layout.ids, OVERLAY_BITS, self._bytes_of_others(0, frozenset()))

    def cached(self, key: str, make: Callable[[], T]) -> T:
        if key not in self._cache:
            self._cache[key] = make()
        return cast(T, self._cache[key])

    # -- plans and offsets of all graphs -----------------------------------------------------------------------

    def plans(self, train: Plan) -> list[Plan]:
        """`train`, and for each other graph a plan with the same state on the host."""
        other = self._strategy_of_others(train)
        offloaded_state = self._offloaded_state(train)
        plans = [train]
        for index, graph in enumerate(self.graphs[1:], start=1):
            plan = get_strategy(other).make(graph, self.costs, None, self, Hints())
            decisions = dict(plan.decisions)
            for buffer, uses in uses_of(ops_in_order(graph, plan.order)).items():
                if buffer in offloaded_state:
                    decisions |= {Gap(buffer, number): Decision.OFFLOAD for number in range(-1, len(uses))}
            limit_bytes = train.copy_limit_bytes
            if limit_bytes is not None:  # includes persistent buffers of other graphs
                other_bytes = self._bytes_of_others(index, offloaded_state)
                limit_bytes = max(0, limit_bytes + self._bytes_of_others(0, offloaded_state) - other_bytes)
            plans.append(replace(plan, decisions=decisions, copy_lead=train.copy_lead, copy_limit_bytes=limit_bytes))
        return plans

    def key_of(self, plan: Plan) -> Hashable:
        """Everything of `plan` that determines the plans of all graphs and their schedules."""
        other = self._strategy_of_others(plan) if len(self.graphs) > 1 else ""
        copies = plan.copy_lead, plan.copy_limit_bytes
        return plan.order, frozenset(plan.decisions.items()), plan.overlays, copies, other

    @staticmethod
    def _strategy_of_others(train: Plan) -> str:
        return STRATEGIES[train.strategy].other_graphs if train.strategy in STRATEGIES else "liveness"

    def persistent_offsets(self, plan: Plan) -> PersistentOffsets:
        """Offsets of the persistent buffers of all graphs under `plan`, from the bottom up."""
        offloaded_state = self._offloaded_state(plan)
        device: dict[str, int] = {}
        host: dict[str, int] = {}
        device_bytes = host_bytes = 0
        for name, nbytes in self._persistent_bytes.items():
            if name in offloaded_state:
                host[name], host_bytes = host_bytes, host_bytes + nbytes
            else:
                device[name], device_bytes = device_bytes, device_bytes + nbytes
        return PersistentOffsets(device, device_bytes, host, host_bytes)

    def _offloaded_state(self, plan: Plan) -> OffloadedState:
        gaps = (gap for gap, decision in plan.decisions.items() if gap.use == -1 and decision is Decision.OFFLOAD)
        return frozenset(gap.buffer for gap in gaps if self.graphs[0].buffers[gap.buffer].persistent)

    def live_profile(self, plan: Plan) -> list[int]:
        """Bytes in use while each op runs, of the training step and then of other graphs; their maximum is
        live_bytes()."""
        offloaded_state = self._offloaded_state(plan)
        profile: list[int] = []
        for index, each in enumerate(self.plans(plan)):
            others = self._bytes_of_others(index, offloaded_state)
            profile.extend(nbytes + others for nbytes in self.layouts[index].live_profile(each))
        return profile

    # -- live bytes --------------------------------------------------------------------------------------------

    def _live_bytes(self, index: int, plan: Plan, offloaded_state: OffloadedState) -> int:
        """The most bytes in use while graph `index` runs, including persistent buffers that only other graphs use."""
        return self.layouts[index].live_bytes(plan) + self._bytes_of_others(index, offloaded_state)

    def _bytes_of_others(self, index: int, offloaded_state: OffloadedState) -> int:
        """Bytes on the device of persistent buffers that graph `index` does not use."""
        return sum(self._persistent_bytes[name] for name in self._unused[index] if name not in offloaded_state)

    def _live_bytes_of_others(self, train: Plan, offloaded_state: OffloadedState) -> int:
        key = (offloaded_state, train.strategy, train.copy_lead, train.copy_limit_bytes)
        if key not in self._others_live_bytes:
            plans = enumerate(self.plans(train)[1:], start=1)
            live_bytes = (self._live_bytes(index, plan, offloaded_state) for index, plan in plans)
            self._others_live_bytes[key] = max(live_bytes, default=0)
        return self._others_live_bytes[key]


class RecentPrograms:
    """The last programs of one arena by their plans, and those with fragmentation also by their targets: if several
    strategies make the same plan, it is placed and checked once.

    For example, if nothing is offloaded, strategies with copies make the same plan as plain reuse.  A placement without
    fragmentation is optimal for its plan, so it is reused for every target of the search for offsets.  All targets
    below the live bytes of a schedule are equivalent: the search then minimizes the bytes.
    """

    def __init__(self) -> None:
        self._programs: dict[tuple[Hashable, int | None], Program] = {}
        self._checked: deque[tuple[Instruction, ...]] = deque(maxlen=KEPT)  # instructions of training steps that passed

    def get(self, key: Hashable, target_bytes: int, plan: Plan, make: Callable[[], Program]) -> Program:
        """Return the cached program for `key` if it meets `target_bytes` or cannot be improved; otherwise make and
        cache it.  The result has `plan`, which may differ from the cached one in the name of its strategy."""
        least = self._programs.get((key, 0))
        target_bytes = 0 if least is not None and _is_for_least(least, target_bytes) else target_bytes
        program = self._programs.pop((key, None), None) or self._programs.pop((key, target_bytes), None) or make()
        target_bytes = 0 if _is_for_least(program, target_bytes) else target_bytes
        if len(self._programs) >= KEPT:
            del self._programs[next(iter(self._programs))]
        serves_all = program.arena_bytes == program.max_live_bytes
        self._programs[key, None if serves_all else target_bytes] = program  # the most recent one is last
        train = program.train  # the cached plan may differ in the name of its strategy
        return replace(program, schedules=(replace(train, plan=plan), *program.schedules[1:]))

    def check(self, program: Program, check: Callable[[], None]) -> None:
        """Run `check` unless it has passed for the same instructions."""
        instructions = program.train.instructions
        if not any(instructions is each for each in self._checked):
            check()
            self._checked.append(instructions)


def _is_for_least(program: Program, target_bytes: int) -> bool:
    """Whether the search for offsets minimizes the bytes, because no placement reaches the target."""
    return all(target_bytes <= schedule.max_live_bytes for schedule in program.schedules)
