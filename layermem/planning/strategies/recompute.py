"""Recomputation by dynamic programming over lower sets (Kusumoto et al., NeurIPS 2019), on the ops of a training graph.

The native planner (layermem._native.LowerSetPlanner) sees forward ops as nodes, activations and stashes as values, and
backward ops with the exact values and gradients that each reads and writes.  It answers with a chain of lower sets;
rebuild.py makes it a plan, with the backward ops in the graph's own order.  The bytes that count are those of the
plan, so the planner is asked for a little less until the plan itself fits.  Where one of the walks of `sublinear`
recomputes less in the same room, or needs less room, it is taken instead.

    recompute          ancestors, complements of descendants and prefixes: near the optimum in a fraction of a second
    recompute-exact    all lower sets, within a time limit
    recompute-approx   the paper's family: each node with its ancestors
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from layermem import _native
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, STASH, Graph, Op, unique
from layermem.planning.base import Hints, Plan, PlanEvaluator, strategy
from layermem.planning.costs import Costs
from layermem.planning.recomputation import can_rebuild, forward_ops, matches, recompute_seconds, segments_to_plan
from layermem.planning.strategies.sublinear import Candidate, candidates
from layermem.utils.units import aligned

TICKS = 1000  # time of a whole forward pass in the planner's unit: fine enough to rank, coarse enough to be quick
MOST_NODES = 700  # longer nets are planned in RUNS runs of ops
RUNS = 200
TRIES = 8
SLACK = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5)  # rooms above the least one that are looked at for the leanest plan
SECONDS = 20.0  # for one question; a guard, seldom met


@strategy(
    "recompute", description="keep boundaries of lower sets, recompute between them (Kusumoto et al. 2019, extended)"
)
def recompute(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _plan("recompute", "extended", graph, costs, budget, evaluator, hints)


@strategy("recompute-exact", description="the same over all lower sets, as far as 20 seconds reach")
def recompute_exact(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _plan("recompute-exact", "exact", graph, costs, budget, evaluator, hints)


@strategy("recompute-approx", description="the same over each op with its ancestors (the paper's ApproxDP)")
def recompute_approx(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    return _plan("recompute-approx", "approx", graph, costs, budget, evaluator, hints)


def _plan(
    name: str, family: str, graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints
) -> Plan:
    """The plan with the least recomputation that fits; the leanest where none does, or no budget is named."""
    nothing = segments_to_plan(graph, [forward_ops(graph)], name, hints=hints)
    if budget is not None and evaluator.live_bytes(nothing) <= budget:
        return nothing
    planner = planner_of(graph, costs, family, evaluator, hints)
    found = planner.within(budget, name, evaluator) if budget is not None else None
    return found or planner.min_memory_plan(name, evaluator)


def planner_of(graph: Graph, costs: Costs, family: str, evaluator: PlanEvaluator, hints: Hints) -> Planner:
    """A planner of `graph`, prepared once for all questions."""
    planner: Planner = evaluator.cached(
        f"lower sets {graph.fingerprint} {family} {hints}", lambda: Planner(graph, costs, family, hints)
    )
    return planner


class Planner:
    """A training graph as the native planner sees it."""

    def __init__(self, graph: Graph, costs: Costs, family: str, hints: Hints):
        self.graph, self.costs, self.hints = graph, costs, hints
        self.runs = runs_of(graph, hints)
        self.base = sum(aligned(b.nbytes) for b in graph.persistent())
        self.lean: list[Candidate] = []
        self.native = _native.LowerSetPlanner(self._step_graph(), family, "live", 20000, ends=self._ends())

    def segments(self, lower_sets: Sequence[Iterable[int]]) -> list[list[Op]]:
        """The forward ops of V_1, V_2, ...; feeds go first, and an output goes with the op that makes its blob."""
        home: dict[str, int] = {}
        before: set[int] = set()
        for i, members in enumerate(lower_sets):
            for node in set(members) - before:
                for op in self.runs[node]:
                    home[op.name] = i
            before = set(members)
        segments: list[list[Op]] = [[] for _ in lower_sets] or [[]]  # no sets: nothing can run again
        for op in forward_ops(self.graph):
            made = [self.graph.producer[b].name for b in op.reads if b in self.graph.producer]
            place = home.get(op.name, max((home.get(m, 0) for m in made), default=0))
            segments[place].append(op)
        return segments

    def solve(self, room: int, objective: str = "time") -> Any:
        """The native plan with the least recomputation in `room` bytes of activations and gradients, or None; or the
        one with the most, whose few large segments may end leaner than the planner's model says."""
        return self.native.solve(max(room, 0), objective, SECONDS)

    def plan(self, found: Any, name: str, beside: bool = True) -> Plan:
        segments = self.segments(found.lower_sets)
        return segments_to_plan(self.graph, segments, name, hints=self.hints, beside=beside)

    def min_memory_plan(self, name: str, evaluator: PlanEvaluator) -> Plan:
        return replace(min(self._lean(evaluator), key=lambda candidate: candidate[:2]).plan, strategy=name)

    def within(self, budget: int, name: str, evaluator: PlanEvaluator) -> Plan | None:
        """The plan with the least recomputation that fits, if one was found."""
        found = self._fitted(budget, name, evaluator)
        others = candidates(self.graph, self.costs, evaluator, self.hints) if found else self._lean(evaluator)
        fits = [candidate for candidate in (*([found] if found else []), *others) if candidate.live_bytes <= budget]
        return (
            replace(min(fits, key=lambda candidate: candidate.recompute_seconds).plan, strategy=name) if fits else None
        )

    def _fitted(self, budget: int, name: str, evaluator: PlanEvaluator) -> Candidate | None:
        """The dynamic program's plan, asked for less and less until the plan's own bytes fit."""
        room = budget - self.base
        for _ in range(TRIES):
            found = self.solve(room)
            if found is None:
                break
            candidate = self._candidate(found, name, evaluator)
            over = candidate.live_bytes - budget
            if over <= 0:
                return candidate
            room -= max(over, room // 200)
        return None

    def _candidate(self, found: Any, name: str, evaluator: PlanEvaluator, beside: bool = True) -> Candidate:
        plan = self.plan(found, name, beside)
        return Candidate(evaluator.live_bytes(plan), recompute_seconds(self.graph, self.costs, plan), plan)

    def _lean(self, evaluator: PlanEvaluator) -> list[Candidate]:
        """Lean plans.  The dynamic program's model is not the plan's: a little more room may end leaner."""
        if not self.lean:
            least = self.native.minimum(time_limit=SECONDS)
            chains = [
                least,
                *(self.solve(int(least.model_peak * s), goal) for s in SLACK for goal in ("time", "memory")),
            ]
            found = [
                self._candidate(chain, "", evaluator, b) for chain in chains if chain is not None for b in (True, False)
            ]
            self.lean = [*found, *candidates(self.graph, self.costs, evaluator, self.hints)]
        return self.lean

    # -- the native graph ------------------------------------------------------------------------------------------

    def _step_graph(self) -> Any:
        graph, native = self.graph, _native.StepGraph()
        values: dict[str, int] = {}
        inner = self._inner_ops()
        for name, buffer in graph.buffers.items():
            if buffer.kind in (DATA, STASH):
                producer = graph.producer[name]
                kept = not can_rebuild(producer, name) or matches(producer, self.hints.keep)
                values[name] = native.add_value(aligned(buffer.nbytes), kept, producer.name in inner)
        tick = sum(self.costs.op(op) for run in self.runs for op in run) / TICKS
        node_of: dict[int, int] = {}  # index of a layer in the net -> native node
        for node, run in enumerate(self.runs):
            self._add_node(native, run, values, tick)
            node_of.update({op.node: node for op in run})
        gradients = {
            name: native.add_gradient(aligned(b.nbytes)) for name, b in graph.buffers.items() if b.kind == DIFF
        }
        for op in graph.ops:
            if op.kind == BACKWARD:
                self._add_step(native, op, values, gradients, node_of)
        return native

    def _inner_ops(self) -> set[str]:
        """Ops of runs whose outputs no op outside their run reads: they are rebuilt with it."""
        home = {op.name: node for node, run in enumerate(self.runs) for op in run}

        def leaves(op: Op) -> bool:
            readers = (r.name for b in op.writes for r in self.graph.readers[b] if r.kind == FORWARD)
            return any(home.get(reader) != home[op.name] for reader in readers)

        return {op.name for run in self.runs if len(run) > 1 for op in run if not leaves(op)}

    def _ends(self) -> list[int] | None:
        """Nodes at which a segment may end: where its last op is at a stage point; None is all."""
        if not self.hints.segment_ends:
            return None
        return [node for node, run in enumerate(self.runs) if matches(run[-1], self.hints.segment_ends)]

    def _add_node(self, native: Any, run: list[Op], values: dict[str, int], tick: float) -> None:
        written = unique(b for op in run for b in op.writes)
        reads = unique(b for op in run for b in op.reads if b in values and b not in written)
        replays = [op.recompute for op in run if op.recompute is not None]
        overlays = []
        if len(run) == 1:
            overlays = [(values[o.out], values[o.over]) for o in run[0].overlays if o.kind != "intra"]
        native.add_node(
            [values[b] for b in reads],
            [values[b] for b in written],
            max(1, round(sum(self.costs.op(op) for op in run) / tick)),
            max(1, round(sum(self.costs.op(op) for op in replays) / tick)),
            aligned(max(op.workspace for op in run)),
            overlays,
        )

    def _add_step(
        self, native: Any, op: Op, values: dict[str, int], gradients: dict[str, int], node_of: dict[int, int]
    ) -> None:
        # A parameter's gradient is updated away right after it is final, so it counts as scratch of its op.
        brief = sum(aligned(self.graph.buffers[b].nbytes) for b in op.writes if self.graph.buffers[b].kind == GRADIENT)
        pairs = [(gradients[o.out], o) for o in op.overlays if o.out in gradients]
        native.add_step(
            node_of.get(op.node, len(self.runs) - 1),
            [values[b] for b in op.reads if b in values],
            [gradients[b] for b in op.reads if b in gradients],
            [gradients[b] for b in (*op.writes, *op.updates) if b in gradients],
            0.0,
            aligned(op.workspace) + brief,
            [(out, values[o.over]) for out, o in pairs if o.over in values],
            [(out, gradients[o.over]) for out, o in pairs if o.over in gradients],
        )


def runs_of(graph: Graph, hints: Hints = Hints()) -> list[list[Op]]:
    """Forward ops that can be rebuilt, one a node; in long nets, runs that end where few bytes cross (at a stage
    point, where the hints name some)."""
    ops = [op for op in forward_ops(graph) if op.recompute is not None and op.writes]
    if len(ops) <= MOST_NODES:
        return [[op] for op in ops]
    crossing = _crossing(graph, ops)[: len(ops) - 1]
    places = [i for i in range(len(crossing)) if not hints.segment_ends or matches(ops[i], hints.segment_ends)]
    ends = _cheap_cuts(crossing, places, RUNS)
    cuts = [0, *(end + 1 for end in ends), len(ops)]
    return [ops[a:b] for a, b in pairwise(cuts)]


def _cheap_cuts(crossing: list[int], places: list[int], runs: int) -> list[int]:
    """Which of `places` to cut a net at into about `runs` runs of like length: in each stretch of the net, the one
    where the fewest bytes cross."""
    stretch = max(1, len(crossing) // runs)
    cheapest: dict[int, int] = {}  # stretch -> place
    for i in places:
        best = cheapest.setdefault(i // stretch, i)
        if crossing[i] < crossing[best]:
            cheapest[i // stretch] = i
    return list(cheapest.values())


def _crossing(graph: Graph, ops: list[Op]) -> list[int]:
    """Bytes that a later forward op reads from before each cut; cut i lies after op i."""
    position = {op.name: i for i, op in enumerate(ops)}
    change = [0] * (len(ops) + 1)
    for i, op in enumerate(ops):
        for name in op.writes:
            last = max((position.get(r.name, i) for r in graph.readers[name] if r.kind == FORWARD), default=i)
            change[i] += graph.buffers[name].nbytes
            change[last] -= graph.buffers[name].nbytes
    crossing, total = [], 0
    for delta in change:
        total += delta
        crossing.append(total)
    return crossing
