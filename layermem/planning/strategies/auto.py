"""The default under a budget: reuse everywhere, then offloading and recomputation mixed for the least predicted time.

    0  updates are fused into the weight gradients if that saves memory (planning/fused_updates.py)
    1  reuse alone, if it fits
    2  recomputation for several budgets between the user's and no limit, from the dynamic program; of each plan, the
       fewest kept values are offloaded that make it fit, the longest gaps first, and the carries of slices last
    3  the same with optimizer state, then parameters, on the host
    4  nested recomputation, and offloads chosen together with it, each by what it adds to the time, in the net's order
       and with backward ops delayed (planning/nested_search.py); first all copies hold the bytes that hide them, then
       only as far as the budget has spare bytes
    5  the other strategies that declare themselves candidates, so no prediction is worse than theirs
    6  from the quickest plans for each choice of state on the host, offloads that turned out unnecessary are removed
       one by one while the time falls; offloads of state from all gaps of a buffer, or from one gap within the step

Where copies may gain time, step 4 runs first, while the chains of step 2 are solved.  With a link so fast that copies
are hidden, step 2 ends without recomputation; with a slow link, without copies.
Updates whose state is copied are not launched together (planning/joined_updates.py), which counts in all steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice
from math import inf

from layermem import _native
from layermem.graph.ops import COMPUTE, Graph, Op, Use, uses_of
from layermem.planning.costs import Costs
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import LowerSetPlanner, lower_set_planner
from layermem.planning.nested_search import NestedPlanner, nested_planner
from layermem.planning.offloading import (
    COPY_LEADS,
    OFFLOADED_STATE,
    HostBudget,
    activations,
    carried_sums,
    copy_limit_within,
    long_gaps,
    offload_state,
    with_copy_limit,
)
from layermem.planning.plan import Decision, Gap, Plan, ops_in_order
from layermem.planning.recomputation import forward_ops, segments_to_plan
from layermem.planning.registry import PlanEvaluator, candidates_of_auto, strategy
from layermem.planning.settings import SETTINGS
from layermem.utils.parallel import begin_thread, map_both


@strategy(
    "auto",
    description="reuse, offload and recomputation mixed for the least predicted time that fits the budget",
    order=100,
    fuses_updates=True,
    combines_others=True,
)
def auto(graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    graph = with_fused_updates(graph)
    keep_all = replace(segments_to_plan(graph, [forward_ops(graph)], "auto", hints=hints), base="liveness")
    if budget_bytes is None or evaluator.live_bytes(keep_all) <= budget_bytes:
        return keep_all
    search = _Search(graph, costs, budget_bytes, evaluator, hints)
    search.run(keep_all)
    return search.best_plan()


class _Search:
    """The plans that were tried for one budget.

    best_seconds         seconds of the quickest plan that fits, with unjoined_seconds(); plans that cannot be quicker
                         are skipped
    good_enough_seconds  a bound near which plans are not improved further
    """

    def __init__(self, graph: Graph, costs: Costs, budget_bytes: int, evaluator: PlanEvaluator, hints: Hints):
        self.graph, self.costs, self.budget_bytes = graph, costs, budget_bytes
        self.evaluator, self.hints = evaluator, hints
        self.tried: list[tuple[int, Plan]] = []  # with live bytes
        self.fitting: list[tuple[float, Plan]] = []  # with seconds
        self.mixed: list[Plan] = []  # results of _try_mixed_plans()
        self.best_seconds = inf
        self._op_seconds: dict[int, float] = {}  # by id() of ops of the graph
        self.host_is_empty = HostBudget(graph, hints).is_empty
        self.good_enough_seconds = SETTINGS.negligible_ratio * self.seconds_of(graph.ops)

    def run(self, keep_all: Plan) -> None:
        bases = [_Base(self, keep_all)]
        for kinds in OFFLOADED_STATE:  # often all that it takes, and quickly tried
            for plan in islice(bases[0].offloading_plans(kinds), 1):
                self.try_plan(plan)
        if self._may_mix():
            self._mix_beside_chains()
        bases += [_Base(self, replace(plan, base="recompute")) for plan in self._recomputing_plans()]
        for kinds in OFFLOADED_STATE:
            for base in bases:
                for plan in base.offloading_plans(kinds):
                    self.try_plan(plan)
        for entry in candidates_of_auto():
            if self.best_seconds > self.good_enough_seconds:
                plan = entry.make(self.graph, self.costs, self.budget_bytes, self.evaluator, self.hints)
                self.try_plan(replace(plan, base=entry.name))

    def best_plan(self) -> Plan:
        """The quickest plan, without unnecessary offloads; if none fits, the plan of the fewest bytes."""
        if not self.fitting:
            return replace(min(self.tried, key=lambda entry: entry[0])[1], strategy="auto")
        graph, budget_bytes, evaluator = self.graph, self.budget_bytes, self.evaluator
        quickest, *others = self.quickest_plans()
        best_seconds, best = _remove_offloads(graph, quickest, budget_bytes, evaluator)
        limit = best_seconds + unjoined_seconds(best, graph, self.costs)
        others = [plan for plan in others if self.ops_seconds(plan) < limit]  # else not quicker without copies
        without = map_both(lambda plan: _remove_offloads(graph, plan, budget_bytes, evaluator), others)
        every = [(best_seconds, best), *without]
        quickest = min(every, key=lambda entry: entry[0] + unjoined_seconds(entry[1], graph, self.costs))[1]
        return replace(quickest, strategy="auto")

    def _mix_beside_chains(self) -> None:
        """Try mixed plans while the chains of step 2 are solved."""
        planner = nested_planner(self.graph, self.costs, self.evaluator, self.hints)
        planner.prepare(self.budget_bytes, self.evaluator)
        chains = begin_thread(lambda: [*map(self._chain_within, self._mix_requests())])
        self._try_mixed_plans(planner)
        chains()

    def _may_mix(self) -> bool:
        """Whether copies in addition to recomputation may gain time; if not, mixed plans are skipped, and the chains of
        step 2 are solved when they are needed."""
        link_bytes = self.costs.rates.h2d * self.good_enough_seconds
        is_slow_link = link_bytes < SETTINGS.least_link_share * self.budget_bytes
        return self.best_seconds > self.good_enough_seconds and not is_slow_link

    def _try_mixed_plans(self, planner: NestedPlanner) -> None:
        """Try mixed plans before the bases: if they are quick, bases that recompute too long to beat them are skipped.
        If they are not, other plans may become quicker once offloads are removed."""
        recomputing = planner.plan_within(self.budget_bytes, "auto", self.evaluator)
        if recomputing is not None:
            self.try_plan(replace(recomputing, base="nested"))
        states: Sequence[Collection[str]] = OFFLOADED_STATE
        if self.hints.copy_limit_bytes is None:
            found = self._mixed_plans(planner, states, limits_copies=False)
            if found:
                states = (min(found, key=lambda entry: entry[0])[1],)
        if self.best_seconds > SETTINGS.nearly_ratio * self.good_enough_seconds:  # or a limit gains little
            self._mixed_plans(planner, states, limits_copies=True)
        if not self.is_quick():
            self.best_seconds = inf

    def _mixed_plans(
        self, planner: NestedPlanner, states: Sequence[Collection[str]], *, limits_copies: bool
    ) -> list[tuple[float, Collection[str]]]:
        """Try the mixed plan of each choice of state on the host; return the seconds of those that exist, in order.
        The first choice decides whether backward ops are delayed."""
        limit_bytes = copy_limit_within(self.budget_bytes, self.evaluator, self.hints) if limits_copies else None

        def search(choice: tuple[Collection[str], bool]) -> Plan | None:
            kinds, delayed = choice
            return planner.plan_with_offloads(
                self.budget_bytes, kinds, limit_seconds, "auto", delayed=delayed, copy_limit_bytes=limit_bytes
            )

        plans: list[tuple[float, Collection[str]]] = []
        orders = [False, True] if planner.has_delays else [False]
        for some_states in (states[:1], states[1:]):
            limit_seconds = SETTINGS.nearly_ratio * self.best_seconds
            choices = [(kinds, delayed) for kinds in some_states for delayed in orders]
            found = dict(zip(choices, map_both(search, choices)))
            for kinds in some_states:
                of_state = [
                    (self.evaluator.estimate_seconds(plan), delayed, plan)
                    for delayed in orders
                    if (plan := found[kinds, delayed]) is not None
                ]
                if not of_state:
                    continue
                seconds, delayed, plan = min(of_state, key=lambda entry: entry[:2])
                orders = orders if delayed else [False]
                self.mixed.append(replace(plan, base="nested"))
                self.try_plan(self.mixed[-1])
                plans.append((seconds, kinds))
        return plans

    def try_plan(self, plan: Plan) -> None:
        plan = with_copy_limit(plan, self.budget_bytes, self.evaluator, self.hints)
        live_bytes = self.evaluator.live_bytes(plan)
        self.tried.append((live_bytes, plan))
        if live_bytes <= self.budget_bytes:
            seconds = self.evaluator.estimate_seconds(plan)
            self.fitting.append((seconds, plan))
            self.best_seconds = min(self.best_seconds, seconds + unjoined_seconds(plan, self.graph, self.costs))

    def quickest_plans(self) -> list[Plan]:
        """The quickest plan that fits, for each search and choice of state on the host.  If offloads take long, also
        plans that are nearly as quick: a plan that needs fewer bytes can omit more of its offloads."""
        starts: dict[tuple[bool, bool, frozenset[str]], list[tuple[float, Plan]]] = {}
        for seconds, plan in sorted(self.fitting, key=lambda entry: entry[0]):
            state = frozenset(gap.buffer for gap in plan.decisions if gap.use == -1)
            is_mixed = any(plan is mixed for mixed in self.mixed)
            near = starts.setdefault((is_mixed, plan.copy_limit_bytes is None, state), [])
            may_add = len(near) < SETTINGS.removal_starts and not self.is_quick()
            if not near or (may_add and seconds <= SETTINGS.nearly_ratio * near[0][0]):
                near.append((seconds, plan))
        limit = SETTINGS.hopeless_ratio * self.best_seconds if self.is_quick() else inf
        plans: dict[Hashable, Plan] = {}  # the order of decisions counts: offloads are removed in it
        for seconds, plan in (entry for near in starts.values() for entry in near):
            if seconds <= limit:
                plans.setdefault((plan.order, *plan.decisions.items(), plan.copy_limit_bytes, plan.copy_lead), plan)
        return [*plans.values()]

    def ops_seconds(self, plan: Plan) -> float:
        """Seconds of the plan without its copies."""
        return self.seconds_of(op for op in ops_in_order(self.graph, plan.order) if op.stream == COMPUTE)

    def seconds_of(self, ops: Iterable[Op]) -> float:
        return sum(self._op_seconds.get(id(op)) or self._op_seconds.setdefault(id(op), self.costs.op(op)) for op in ops)

    def is_quick(self) -> bool:
        """Whether the best plan takes little more than its ops alone."""
        return self.best_seconds <= SETTINGS.hopeless_ratio * self.good_enough_seconds

    def fits(self, plan: Plan) -> bool:
        return self.evaluator.live_bytes(plan) <= self.budget_bytes

    @cached_property
    def _lower_sets(self) -> LowerSetPlanner:
        return lower_set_planner(self.graph, self.costs, "extended", self.evaluator, self.hints)

    def _mix_requests(self) -> list[int]:
        """Bytes of activations and gradients between those that the budget leaves and those that need no recomputation;
        computed after the plan for the budget itself is known."""
        self._lower_sets.plan_within(self.budget_bytes, "auto", self.evaluator)
        most_bytes = self.evaluator.live_bytes(Plan("auto", tuple(op.name for op in self.graph.ops)))
        steps = ((most_bytes - self.budget_bytes) * step // SETTINGS.chains for step in range(1, SETTINGS.chains))
        requests = [self.budget_bytes + step - self._lower_sets.persistent_bytes for step in steps]
        if not self.host_is_empty:
            return requests
        # Without copies, a plan that recomputes less than the one for the budget does not fit.
        available_bytes = self.budget_bytes - self._lower_sets.persistent_bytes
        return [request for request in requests if SETTINGS.least_model_ratio * request <= available_bytes]

    def _chain_within(self, request: int) -> _native.ChainReport | None:
        return self._lower_sets.solve(request, step_seconds=SETTINGS.chain_step_seconds)

    def _recomputing_plans(self) -> Iterator[Plan]:
        """Plans that recompute, from as much as the budget requires to little."""
        if self.best_seconds <= self.good_enough_seconds:
            return
        planner = self._lower_sets
        plan = planner.plan_within(self.budget_bytes, "auto", self.evaluator)
        if plan is None and self.host_is_empty:
            return  # no copies make one fit, and `nested` finds the plan that needs the fewest bytes
        yield plan or planner.min_memory_plan("auto", self.evaluator)
        for request in self._mix_requests():
            chain = self._chain_within(request)
            if chain is None:
                continue
            yield (plan := planner.plan(chain, "auto"))
            if self.host_is_empty and not self.fits(plan):
                return  # nor do those that recompute still less


class _Base:
    """A plan without copies, and the gaps that may be offloaded from it."""

    def __init__(self, search: _Search, plan: Plan):
        self.search, self.plan = search, plan
        self.ops = ops_in_order(search.graph, plan.order)
        self.seconds = search.seconds_of(self.ops)

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        return uses_of(self.ops)

    @cached_property
    def gaps(self) -> list[Gap]:
        """Gaps of activations that are worth a copy, the longest first, then the gaps of carried sums."""
        graph = self.search.graph
        return [*long_gaps(self.uses, activations(graph)), *long_gaps(self.uses, carried_sums(graph))]

    def offloading_plans(self, kinds: Collection[str]) -> Iterator[Plan]:
        """For each copy lead, the plan that fits with the fewest offloaded activations, the longest gaps first, and
        with the state of `kinds` on the host; the plan with all of them offloaded if none fits."""
        search = self.search
        if search.best_seconds <= max(self.seconds, search.good_enough_seconds):
            return
        if search.host_is_empty:
            if not kinds:
                yield self._with({}, (), COPY_LEADS[0] if search.fits(self.plan) else 0.0)
            return
        host = HostBudget(search.graph, search.hints)
        state = offload_state(search.graph, self.uses, kinds, host)
        gaps = [gap for gap in self.gaps if host.reserve(gap.buffer)]
        fewest_bytes = self._with(state, gaps, 0.0)
        if not search.fits(fewest_bytes):
            yield fewest_bytes
            return
        buffers, costs = search.graph.buffers, search.costs
        spent = [*accumulate(costs.prefetch(buffers[gap.buffer].nbytes) for gap in (*state, *gaps))]
        for copy_lead in COPY_LEADS:
            # Keep the gaps that can be prefetched over the link in less time than the best plan takes.
            quick_enough = gaps[: max(0, bisect_left(spent, search.best_seconds) - len(state))]
            plan = self._with(state, (), copy_lead)
            fewest = search.evaluator.fewest_offloads(plan, quick_enough, search.budget_bytes)
            if fewest is not None:
                yield self._with(state, quick_enough[:fewest], copy_lead)

    def _with(self, state: Mapping[Gap, Decision], gaps: Sequence[Gap], copy_lead: float) -> Plan:
        decisions = {**state, **dict.fromkeys(gaps, Decision.OFFLOAD)}
        return replace(self.plan, decisions=decisions, copy_lead=copy_lead)


def unjoined_seconds(plan: Plan, graph: Graph, costs: Costs) -> float:
    """Seconds that the updates with copied state add: each has its own launch, whereas others are joined
    (joined_updates.py)."""
    copied = {gap.buffer for gap in plan.decisions}
    unjoined = (op for op in graph.ops if op.joins and not copied.isdisjoint(op.touches))
    return sum(costs.op(op) - costs.op(op, joined=True) for op in unjoined)


def _remove_offloads(graph: Graph, plan: Plan, budget_bytes: int, evaluator: PlanEvaluator) -> tuple[float, Plan]:
    """Remove unnecessary offloads while the estimate does not rise; return that estimate and the plan."""
    attempts = max(0, SETTINGS.removal_ops // len(plan.order))
    state = {gap.buffer for gap in plan.decisions if gap.use == -1}
    groups: dict[object, list[Gap]] = {}  # gaps that are removed together: all gaps of offloaded state
    within: list[list[Gap]] = []  # single gaps of such a buffer within the step
    for gap, decision in plan.decisions.items():
        if decision is Decision.OFFLOAD:
            groups.setdefault(gap.buffer if gap.buffer in state else gap, []).append(gap)
            is_large = graph.buffers[gap.buffer].nbytes * SETTINGS.large_divisor >= budget_bytes
            if gap.buffer in state and gap.use != -1 and is_large:
                within.append([gap])
    by_size = sorted((*groups.values(), *within), key=lambda gaps: -graph.buffers[gaps[0].buffer].nbytes)
    decisions, seconds = evaluator.without_offloads(plan, by_size[:attempts], budget_bytes)
    return seconds, replace(plan, decisions=decisions)
