"""Chen et al. 2016 (mxnet-memonger): keep stage points about every sqrt(n)-th byte, rebuild what lies between.

The walk cuts after an op once more than `threshold` bytes of outputs have gathered since the last cut.  The search is
memonger's: from 0, three rounds of threshold <- sqrt(kept x largest segment / 2), then six steps from the least to
sqrt(2) of that; each plan is measured (bytes in use, by lifetimes) and the leanest wins.  With a budget the one with
the least recomputation that fits wins instead.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from layermem.graph.ops import Graph, Op
from layermem.planning.base import Hints, Plan, PlanEvaluator, strategy
from layermem.planning.costs import Costs
from layermem.planning.recomputation import forward_ops, matches, output_bytes, recompute_seconds, segments_to_plan

ROUNDS = 3
STEPS = 6


class Candidate(NamedTuple):
    """A plan of the search: its bytes in use, and the seconds that it recomputes."""

    live_bytes: int
    recompute_seconds: float
    plan: Plan


@strategy("sublinear", description="keep stage points, recompute between them (Chen et al. 2016, mxnet-memonger)")
def sublinear(graph: Graph, costs: Costs, budget: int | None, evaluator: PlanEvaluator, hints: Hints) -> Plan:
    whole = segments_to_plan(graph, [forward_ops(graph)], "sublinear", hints=hints)
    if budget is not None and evaluator.live_bytes(whole) <= budget:
        return whole
    tried = candidates(graph, costs, evaluator, hints)
    fits = [candidate for candidate in tried if budget is not None and candidate.live_bytes <= budget]
    return (
        min(fits, key=lambda candidate: candidate.recompute_seconds)
        if fits
        else min(tried, key=lambda candidate: candidate[:2])
    ).plan


def candidates(graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints) -> list[Candidate]:
    """Every plan of the search; it is made once, for it is the same under any budget."""
    tried: list[Candidate] = evaluator.cached(
        f"sublinear candidates {graph.fingerprint} {hints}", lambda: _search(graph, costs, evaluator, hints)
    )
    return tried


def _search(graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints) -> list[Candidate]:
    tried: dict[tuple[int, ...], list[Candidate]] = {}  # ops in each segment -> what that costs

    def measure(threshold: float) -> list[list[Op]]:
        segments = cut(graph, threshold, hints)
        lengths = tuple(len(ops) for ops in segments)
        if lengths not in tried:
            plans = [segments_to_plan(graph, segments, "sublinear", hints=hints, beside=b) for b in (True, False)]
            tried[lengths] = [
                Candidate(evaluator.live_bytes(plan), recompute_seconds(graph, costs, plan), plan) for plan in plans
            ]
        return segments

    threshold = 0.0
    least = 0
    for _ in range(ROUNDS):
        segments = measure(threshold)
        sizes = [sum(output_bytes(graph, op) for op in ops) for ops in segments]
        kept = sum(output_bytes(graph, ops[-1]) for ops in segments[:-1])
        least = least or max(sizes)
        threshold = sqrt(kept * max(sizes) / 2)
    top = sqrt(2) * threshold
    for step in range(STEPS + 1):
        measure(least + (top - least) * step / STEPS if top > least else top * (step + 1) / (STEPS + 1))
    return [candidate for both in tried.values() for candidate in both]


def cut(graph: Graph, threshold: float, hints: Hints) -> list[list[Op]]:
    """Runs of forward ops, each of which ends at a stage point with more than `threshold` bytes behind it."""
    segments: list[list[Op]] = [[]]
    gathered = 0
    for op in forward_ops(graph):
        segments[-1].append(op)
        gathered += output_bytes(graph, op)
        may_end = op.recompute is not None and (not hints.segment_ends or matches(op, hints.segment_ends))
        if may_end and gathered > threshold:
            segments.append([])
            gathered = 0
    return [ops for ops in segments if ops]
