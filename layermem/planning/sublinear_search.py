"""Chen et al.'s search for segments: keep a checkpoint about every sqrt(n)-th byte, recompute the ops between.

A segment ends after an op once its ops have more than `threshold_bytes` of outputs.  The search over thresholds is
memonger's: three rounds of threshold <- sqrt(kept x largest segment / 2), starting at 0, then six steps from the
smallest threshold to sqrt(2) times that.

source  Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; mxnet-memonger
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt
from typing import NamedTuple

from layermem.graph.ops import Graph, Op
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.phases import with_later_slices
from layermem.planning.recomputation import (
    Candidate,
    forward_ops,
    matches,
    output_bytes,
    recompute_seconds,
    seconds_again,
    segments_to_plan,
)
from layermem.planning.registry import PlanEvaluator

ROUNDS = 3
STEPS = 6


def sublinear_candidates(graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints) -> list[Candidate]:
    """Every plan of the search; made once, because they are the same for any budget."""
    key = f"sublinear candidates {graph.fingerprint} {hints}"
    return evaluator.cached(key, lambda: _search(graph, costs, evaluator, hints))


def _search(graph: Graph, costs: Costs, evaluator: PlanEvaluator, hints: Hints) -> list[Candidate]:
    tried: dict[tuple[int, ...], list[Candidate]] = {}  # by the number of ops in each segment
    places, again = cut_places(graph, hints), seconds_again(graph, costs)

    def try_threshold(threshold_bytes: float) -> SegmentBytes:
        segments = cut_segments(graph, threshold_bytes, places)
        lengths = tuple(len(ops) for ops in segments)
        if lengths not in tried:
            plans = [
                segments_to_plan(graph, segments, "sublinear", hints=hints, keep_side_outputs=keep)
                for keep in (True, False)
            ]
            tried[lengths] = [
                Candidate(evaluator.live_bytes(plan), recompute_seconds(plan, again), plan) for plan in plans
            ]
        largest_bytes = max(sum(output_bytes(graph, op) for op in ops) for ops in segments)
        return SegmentBytes(sum(output_bytes(graph, ops[-1]) for ops in segments[:-1]), largest_bytes)

    search_thresholds(try_threshold)
    return [candidate for both in tried.values() for candidate in both]


class SegmentBytes(NamedTuple):
    """The bytes of the last outputs of all segments, and of all outputs of the largest segment."""

    kept_bytes: int
    largest_bytes: int


def search_thresholds(try_threshold: Callable[[float], SegmentBytes]) -> None:
    """Call `try_threshold` with each threshold of the search."""
    threshold_bytes = 0.0
    least_bytes = 0
    for _ in range(ROUNDS):
        cut = try_threshold(threshold_bytes)
        least_bytes = least_bytes or cut.largest_bytes
        threshold_bytes = sqrt(cut.kept_bytes * cut.largest_bytes / 2)
    most_bytes = sqrt(2) * threshold_bytes
    for step in range(STEPS + 1):
        if most_bytes > least_bytes:
            try_threshold(least_bytes + (most_bytes - least_bytes) * step / STEPS)
        else:
            try_threshold(most_bytes * (step + 1) / (STEPS + 1))


class Place(NamedTuple):
    """A forward op, the bytes that it leaves, and whether it may end a segment."""

    op: Op
    nbytes: int
    may_end: bool


def cut_places(graph: Graph, hints: Hints) -> list[Place]:
    """The forward ops where segments may be cut, without later slices."""
    later, ends = graph.later_slices, hints.segment_ends
    return [
        Place(op, output_bytes(graph, op), op.recompute is not None and (not ends or matches(op, ends)))
        for op in forward_ops(graph)
        if op.name not in later
    ]


def cut_segments(graph: Graph, threshold_bytes: float, places: Iterable[Place]) -> list[list[Op]]:
    """Cut the forward ops into segments; each has over `threshold_bytes` and ends at an op that may end one."""
    segments: list[list[Op]] = [[]]
    gathered_bytes = 0
    for op, nbytes, may_end in places:
        segments[-1].append(op)
        gathered_bytes += nbytes
        if may_end and gathered_bytes > threshold_bytes:
            segments.append([])
            gathered_bytes = 0
    return with_later_slices(graph, [ops for ops in segments if ops])
