"""The native planner of lower sets (layermem._native.LowerSetPlanner) on the ops of a training graph.

    node        a forward op; in long nets, a group of consecutive ops between places where few bytes cross
    value       an activation or a stash, with the nodes that read it
    step        a backward op, with the exact values and gradients that it reads and writes
    lower set   nodes closed under "reads from": the nodes that have run when a segment ends
    answer      a chain of lower sets; recomputation.py turns the segments between them into a plan

The native model and the plan count bytes differently, so the request decreases until the plan itself fits.  A plan of
`sublinear`, or of a smaller family of lower sets, replaces it if it recomputes less within the same bytes, or needs
fewer bytes.

source  Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient
        Backpropagation", NeurIPS 2019
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil, inf

from layermem import _native
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, STASH, Graph, Op, unique
from layermem.planning.bounds import least_bytes
from layermem.planning.buffer_parts import BufferParts, carried_buffers
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.phases import with_later_slices
from layermem.planning.plan import Plan
from layermem.planning.recomputation import (
    Candidate,
    can_recompute,
    forward_ops,
    matches,
    recompute_seconds,
    seconds_again,
    segments_to_plan,
)
from layermem.planning.registry import PlanEvaluator
from layermem.planning.settings import SETTINGS
from layermem.planning.sublinear_search import sublinear_candidates
from layermem.utils.units import aligned

FAMILIES = ("approx", "extended", "exact")  # each includes the one before it
LAST_STEP_SECONDS = 1e-6  # of a question when no time remains


def lower_set_plan(
    name: str, family: str, graph: Graph, costs: Costs, budget_bytes: int | None, evaluator: PlanEvaluator, hints: Hints
) -> Plan:
    """The plan with the least recomputation that fits; if none fits, or without a budget, the one of fewest bytes."""
    keep_all = segments_to_plan(graph, [forward_ops(graph)], name, hints=hints)
    if budget_bytes is not None and evaluator.live_bytes(keep_all) <= budget_bytes:
        return keep_all
    planner = lower_set_planner(graph, costs, family, evaluator, hints)
    plan = planner.plan_within(budget_bytes, name, evaluator) if budget_bytes is not None else None
    return plan or planner.min_memory_plan(name, evaluator)


def lower_set_planner(
    graph: Graph,
    costs: Costs,
    family: str,
    evaluator: PlanEvaluator,
    hints: Hints,
    larger: LowerSetPlanner | None = None,
) -> LowerSetPlanner:
    """A planner of `graph`, prepared once for all budgets; it shares preparations with that of a `larger` family."""
    key = f"lower sets {graph.fingerprint} {family} {hints}"
    return evaluator.cached(key, lambda: LowerSetPlanner(graph, costs, family, hints, larger))


class LowerSetPlanner:
    """Translates a training graph for the native planner, and its answers into plans."""

    def __init__(self, graph: Graph, costs: Costs, family: str, hints: Hints, larger: LowerSetPlanner | None = None):
        self.graph, self.costs, self.hints, self.family = graph, costs, hints, family
        self.later = graph.later_slices
        self.groups: list[list[Op]] = group_ops(graph, hints) if larger is None else larger.groups
        self.parts: BufferParts = BufferParts(graph, self.later) if larger is None else larger.parts
        self.persistent_bytes = sum(aligned(b.nbytes) for b in graph.persistent())
        self.min_memory_candidates: list[Candidate] = []
        self.quick_candidates: list[Candidate] | None = None
        self._chains: dict[tuple[int, str, float], _native.ChainReport | None] = {}  # by request, objective and limit
        self._within: dict[int, Plan | None] = {}  # by budget, for strategies that start from this plan
        if larger is None:
            sets = SETTINGS.most_sets
            self.native = _native.LowerSetPlanner(self._step_graph(), family, "live", sets, ends=self._ends())
        else:
            self.native = larger.native

    def segments(self, lower_sets: Sequence[Iterable[int]]) -> list[list[Op]]:
        """The forward ops of V_1, V_2, ...; feeds go first, and an output goes with the op that makes its blob."""
        segment_of: dict[str, int] = {}
        before: set[int] = set()
        for i, members in enumerate(lower_sets):
            for node in set(members) - before:
                for op in self.groups[node]:
                    segment_of[op.name] = i
            before = set(members)
        segments: list[list[Op]] = [[] for _ in lower_sets] or [[]]  # no sets: no op can be recomputed
        for op in forward_ops(self.graph):
            if op.name in self.later:
                continue
            producers = [writer for b in op.reads for writer in self.parts.writers.get(b, ())]
            latest = max((segment_of.get(producer, 0) for producer in producers), default=0)
            segments[segment_of.get(op.name, latest)].append(op)
        return with_later_slices(self.graph, segments)

    def solve(
        self, budget_bytes: int, objective: str = "time", step_seconds: float = inf
    ) -> _native.ChainReport | None:
        """The chain with the least recomputation within these bytes of activations and gradients, or None.  With
        objective "memory" it is the chain with the most, whose few large segments may need fewer bytes than the model
        counts. After `step_seconds` the answer is the best chain of a smaller family, or None."""
        key = max(budget_bytes, 0), objective, step_seconds
        if key not in self._chains:
            limit = min(step_seconds, self._next_step_seconds())
            self._chains[key] = self.native.solve(*key[:2], limit, self.family)
        return self._chains[key]

    def plan(self, chain: _native.ChainReport, name: str, keep_side_outputs: bool = True) -> Plan:
        segments = self.segments(chain.lower_sets)
        return segments_to_plan(self.graph, segments, name, hints=self.hints, keep_side_outputs=keep_side_outputs)

    def min_memory_plan(self, name: str, evaluator: PlanEvaluator) -> Plan:
        return replace(min(self._min_memory_candidates(evaluator), key=lambda c: c[:2]).plan, strategy=name)

    def may_need_less(self, nbytes: int, evaluator: PlanEvaluator) -> bool:
        """Whether min_memory_plan() may need fewer bytes, judged by the model and the candidates of `sublinear`."""
        known = (*self._sublinear_candidates(evaluator), *self.min_memory_candidates)
        if any(candidate.live_bytes < nbytes for candidate in known):
            return True
        if nbytes <= self.least_bytes:
            return False
        most_of_model = ceil((nbytes - self.persistent_bytes) / SETTINGS.least_minimum_ratio) - 1
        return self.native.may_fit(most_of_model, self._next_step_seconds(), self.family)

    def is_near_bound(self, nbytes: int) -> bool:
        """Whether no plan needs much less than `nbytes`."""
        return nbytes <= SETTINGS.near_bound_ratio * self.least_bytes

    @cached_property
    def _seconds_again(self) -> dict[str, float]:
        return seconds_again(self.graph, self.costs)

    @cached_property
    def least_bytes(self) -> int:
        """Bytes below which no plan without copies can go."""
        return least_bytes(self.graph, host_budget_bytes=0)

    def plan_within(self, budget_bytes: int, name: str, evaluator: PlanEvaluator) -> Plan | None:
        """The plan with the least recomputation that fits; None if there is none."""
        if budget_bytes not in self._within:
            self._within[budget_bytes] = self._find_within(budget_bytes, evaluator)
        plan = self._within[budget_bytes]
        return plan and replace(plan, strategy=name)

    def _find_within(self, budget_bytes: int, evaluator: PlanEvaluator) -> Plan | None:
        if not self.may_need_less(budget_bytes + 1, evaluator):
            return None
        smaller = self._planner_of_smaller_family(evaluator)
        fitting = self._fitting_candidate(budget_bytes, evaluator)
        own = [fitting] if fitting is not None else self._min_memory_candidates(evaluator)
        own = own if fitting is not None else [*own, *self._quick_candidates(evaluator)]
        if smaller is None:
            others = self._sublinear_candidates(evaluator)
        else:
            plan = smaller.plan_within(budget_bytes, "", evaluator)
            others = [self._evaluate(plan, evaluator)] if plan is not None else []
        candidates = [candidate for candidate in (*own, *others) if candidate.live_bytes <= budget_bytes]
        if not candidates:
            return None
        return min(candidates, key=lambda c: c.recompute_seconds).plan

    def _fitting_candidate(self, budget_bytes: int, evaluator: PlanEvaluator) -> Candidate | None:
        """The candidate of the dynamic program, for decreasing requests until the plan's own bytes fit."""
        request = budget_bytes - self.persistent_bytes
        # A search without a result takes longer than this question, which is needless if a known chain fits.
        is_known = any(each.live_bytes <= budget_bytes for each in self._sublinear_candidates(evaluator))
        if not is_known and not self.native.may_fit(request, self._next_step_seconds(), self.family):
            return None
        for _ in range(SETTINGS.request_tries):
            chain = self.solve(request)
            if chain is None:
                break
            candidate = self._candidate(chain, evaluator)
            over = candidate.live_bytes - budget_bytes
            if over <= 0:
                return candidate
            request -= max(over, request // 200)
        return None

    def _candidate(
        self, chain: _native.ChainReport, evaluator: PlanEvaluator, keep_side_outputs: bool = True
    ) -> Candidate:
        return self._evaluate(self.plan(chain, "", keep_side_outputs), evaluator)

    def _evaluate(self, plan: Plan, evaluator: PlanEvaluator) -> Candidate:
        return Candidate(evaluator.live_bytes(plan), recompute_seconds(plan, self._seconds_again), plan)

    def _min_memory_candidates(self, evaluator: PlanEvaluator) -> list[Candidate]:
        """Candidates that need few bytes.  Model and plan count differently: more bytes in one may be fewer in the
        other."""
        if not self.min_memory_candidates:
            smaller = self._planner_of_smaller_family(evaluator)
            if smaller is None:
                others = [*self._sublinear_candidates(evaluator)]
            else:
                others = smaller._min_memory_candidates(evaluator)
            own: list[Candidate] = []

            def fewest_bytes() -> int:
                return min(each.live_bytes for each in (*own, *others))

            self._add_candidates(own, self._chains_near_minimum(fewest_bytes), evaluator)
            self.min_memory_candidates = [*own, *others]
        return self.min_memory_candidates

    def _chains_near_minimum(self, fewest_bytes: Callable[[], int]) -> Iterator[_native.ChainReport]:
        """Chains around the minimum of the model, until a plan is near the bound, or near that minimum: others hardly
        ever need less.  `fewest_bytes` returns the fewest bytes of all plans, those of earlier chains included."""
        least = self._least_chain()
        yield least
        for request, new_bytes in self._requests(least):
            fewest = fewest_bytes()
            near_least = SETTINGS.near_least_ratio * (least.model_peak_bytes + self.persistent_bytes)
            if self.is_near_bound(fewest) or fewest <= near_least:
                break
            goals = ["time"] if new_bytes < fewest else []
            goals += ["memory"] if request <= SETTINGS.memory_slack_ratio * least.model_peak_bytes else []
            chains = [self.solve(request, goal) for goal in goals]
            yield from (chain for chain in chains if chain is not None)

    def _quick_candidates(self, evaluator: PlanEvaluator) -> list[Candidate]:
        """Candidates that recompute little in about the fewest bytes; with more bytes than the minimum, one is
        quicker."""
        if self.quick_candidates is None:
            smaller = self._planner_of_smaller_family(evaluator)
            found = [] if smaller is None else [*smaller._quick_candidates(evaluator)]
            fewest = min(each.live_bytes for each in self._min_memory_candidates(evaluator))
            if not self.is_near_bound(fewest):
                requests = self._requests(self._least_chain())
                chains = (self.solve(request) for request, new_bytes in requests if new_bytes < fewest)
                self._add_candidates(found, (chain for chain in chains if chain is not None), evaluator)
            self.quick_candidates = found
        return self.quick_candidates

    def _least_chain(self) -> _native.ChainReport:
        return self.native.minimum(self._next_step_seconds(), self.family)

    def _requests(self, least: _native.ChainReport) -> Iterator[tuple[int, int]]:
        """Bytes of the model from its minimum on, each with the fewest bytes that the plan of a new chain can need
        there: slightly less than the previous request."""
        before = least.model_peak_bytes
        for slack in SETTINGS.slack_ratios:
            request = int(least.model_peak_bytes * slack)
            yield request, int(SETTINGS.least_model_ratio * before) + self.persistent_bytes
            before = request

    def _add_candidates(
        self, own: list[Candidate], chains: Iterable[_native.ChainReport], evaluator: PlanEvaluator
    ) -> None:
        seen: set[tuple[tuple[int, ...], ...]] = set()
        for chain in chains:
            lower_sets = tuple(tuple(members) for members in chain.lower_sets)
            if lower_sets not in seen:
                seen.add(lower_sets)
                own.extend(self._candidate(chain, evaluator, keep) for keep in (True, False))

    def _sublinear_candidates(self, evaluator: PlanEvaluator) -> Sequence[Candidate]:
        return sublinear_candidates(self.graph, self.costs, evaluator, self.hints)

    def _planner_of_smaller_family(self, evaluator: PlanEvaluator) -> LowerSetPlanner | None:
        """The planner of the next smaller family: its plans are candidates too, because of two chains with the same
        bytes in the model, either plan may need fewer."""
        index = FAMILIES.index(self.family)
        if index == 0:
            return None
        return lower_set_planner(self.graph, self.costs, FAMILIES[index - 1], evaluator, self.hints, self)

    def _next_step_seconds(self) -> float:
        """Step seconds for the next question: a share of the rest, so that later questions have some, and never 0,
        which would mean no limit."""
        remaining = max(SETTINGS.all_chains_step_seconds - self.native.searched_step_seconds, 0.0)
        return SETTINGS.one_chain_share * remaining + LAST_STEP_SECONDS

    # -- the native graph ------------------------------------------------------------------------------------------

    def _step_graph(self) -> _native.StepGraph:
        graph, native = self.graph, _native.StepGraph()
        values: dict[str, int] = {}
        inner = self._inner_ops()
        for name, buffer in graph.buffers.items():
            if buffer.kind in (DATA, STASH):
                producer = graph.producer[name]
                if producer.name in self.later:
                    continue
                kept = not can_recompute(producer, name) or matches(producer, self.hints.keep)
                for part, nbytes in self.parts.named(name, buffer.nbytes):
                    values[part] = native.add_value(aligned(nbytes), kept, producer.name in inner)
        for each in self.parts.orders():
            values[each] = native.add_value(0, True, False)
        time_unit = sum(self.costs.op(op) for group in self.groups for op in group) / SETTINGS.time_units
        node_of: dict[object, int] = {}  # by run of a node, and by the name of a layer: the native node
        for node, group in enumerate(self.groups):
            self._add_node(native, group, values, time_unit)
            node_of.update({each: node for op in group for each in (op.node_run, op.layer_name)})
        gradients = {
            part: native.add_gradient(aligned(nbytes))
            for name, buffer in graph.buffers.items()
            if buffer.kind == DIFF
            for part, nbytes in self.parts.named(name, buffer.nbytes)
        }
        for op in graph.ops:
            if op.kind == BACKWARD and op.name not in self.later:
                self._add_step(native, op, values, gradients, node_of)
        return native

    def _inner_ops(self) -> set[str]:
        """Names of the ops whose outputs no op outside their group reads: they are recomputed with it."""
        group_of = {op.name: node for node, group in enumerate(self.groups) for op in group}

        def is_read_outside(op: Op) -> bool:
            readers = (r.name for b in op.writes for r in self.graph.readers[b] if r.kind == FORWARD)
            return any(group_of.get(reader) != group_of[op.name] for reader in readers)

        return {op.name for group in self.groups if len(group) > 1 for op in group if not is_read_outside(op)}

    def _ends(self) -> list[int] | None:
        """Nodes at which a segment may end, whose last op the hints name; None means all."""
        if not self.hints.segment_ends:
            return None
        return [node for node, group in enumerate(self.groups) if matches(group[-1], self.hints.segment_ends)]

    def _add_node(self, native: _native.StepGraph, group: list[Op], values: dict[str, int], time_unit: float) -> None:
        parts = self.parts
        written = unique(b for op in group for b in (*parts.of(op, parts.written_by(op)), *parts.before_next(op)))
        needed = (b for op in group for b in (*parts.read_by(op), *parts.after_previous(op)))
        reads = unique(b for b in needed if b in values and b not in written)
        recomputed = [op.recompute for op in group if op.recompute is not None]
        overlays = []
        if len(group) == 1:
            pairs = [(o.out, o.over) for o in group[0].overlays if o.kind != "intra"]
            overlays = [(values[out], values[over]) for out, over in pairs if out in values and over in values]
        native.add_node(
            [values[b] for b in reads],
            [values[b] for b in written],
            max(1, round(sum(self.costs.op(op) for op in group) / time_unit)),
            max(1, round(sum(self.costs.op(op) for op in recomputed) / time_unit)),
            aligned(max(op.workspace_bytes for op in group)),
            overlays,
        )

    def _add_step(
        self,
        native: _native.StepGraph,
        op: Op,
        values: dict[str, int],
        gradients: dict[str, int],
        node_of: Mapping[object, int],
    ) -> None:
        # A parameter's gradient is consumed as soon as it is final, so it counts as workspace of its op.
        consumed = sum(
            aligned(self.graph.buffers[b].nbytes) for b in op.writes if self.graph.buffers[b].kind == GRADIENT
        )
        pairs = [(gradients[o.out], o) for o in op.overlays if o.out in gradients]
        # The native model omits reads of ops that only read, such as copies of gradients to the host, since they may
        # come before other segments write the gradients; the bytes of the plan include them.
        reads, writes = self.parts.of(op, op.reads), bool(op.writes or op.updates)
        native.add_step(
            node_of.get(op.node_run, node_of.get(op.layer_name, len(self.groups) - 1)),
            [values[b] for b in reads if b in values],
            [gradients[b] for b in reads if b in gradients and writes],
            [gradients[b] for b in self.parts.of(op, (*op.writes, *op.updates)) if b in gradients],
            0.0,
            aligned(op.workspace_bytes) + consumed,
            [(out, values[o.over]) for out, o in pairs if o.over in values],
            [(out, gradients[o.over]) for out, o in pairs if o.over in gradients],
        )


def group_ops(graph: Graph, hints: Hints = Hints()) -> list[list[Op]]:
    """Forward ops except the sources, one per node, or those of a slice in a stage; in long nets, groups that end where
    few bytes cross (at a segment end, if the hints name some).  Outputs that cannot be recomputed are kept.  Of slices
    that alternate, only the first one has nodes (phases.py)."""
    later = graph.later_slices
    forward = [op for op in forward_ops(graph) if op.name not in later]
    ops = [op for op in forward if (op.writes or op.record.batch_slice) and (op.recompute or op.reads)]
    groups = [[op] for op in ops] if later else _stages(ops)
    if len(groups) <= SETTINGS.most_nodes:
        return groups
    crossing = _crossing_bytes(graph, ops)[: len(ops) - 1]
    ends = {group[-1].name for group in groups}
    places = [
        i
        for i in range(len(crossing))
        if ops[i].name in ends and (not hints.segment_ends or matches(ops[i], hints.segment_ends))
    ]
    cuts = [0, *(end + 1 for end in _cheap_cuts(crossing, places, SETTINGS.groups)), len(ops)]
    return [ops[a:b] for a, b in pairwise(cuts)]


def _stages(ops: list[Op]) -> list[list[Op]]:
    """Forward ops one by one.  If forward carries sums and slices run in stages (graph/batch_norm_passes.py), the ops
    of a slice in a stage are together.  Backward ops of a layer all belong to the last one: they carry sums too."""
    if not any(carried_buffers(op) for op in ops):
        return [[op] for op in ops]
    found: list[list[Op]] = []
    before = None
    for op in ops:
        batch_slice = op.record.batch_slice
        if batch_slice is None or batch_slice != before:
            found.append([])
        found[-1].append(op)
        before = batch_slice
    return found


def _cheap_cuts(crossing: list[int], places: list[int], groups: int) -> list[int]:
    """The places, out of `places`, that cut a net into about `groups` groups of similar length: in each interval of the
    net, the place where the fewest bytes cross."""
    length = max(1, len(crossing) // groups)
    cheapest: dict[int, int] = {}  # interval -> place
    for i in places:
        best = cheapest.setdefault(i // length, i)
        if crossing[i] < crossing[best]:
            cheapest[i // length] = i
    return list(cheapest.values())


def _crossing_bytes(graph: Graph, ops: list[Op]) -> list[int]:
    """Bytes that a later forward op reads from before each cut; cut i lies after op i."""
    position = {op.name: i for i, op in enumerate(ops)}
    change = [0] * (len(ops) + 1)
    for i, op in enumerate(ops):
        for name in op.writes:
            last = max((position.get(r.name, i) for r in graph.readers[name] if r.kind == FORWARD), default=i)
            change[i] += graph.buffers[name].nbytes
            change[last] -= graph.buffers[name].nbytes
    return list(accumulate(change))
