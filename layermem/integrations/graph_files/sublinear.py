"""Chen et al.'s search for segments on a graph file: what crosses the end of a segment is kept, the rest is recomputed.

    segments  runs of values in topological order, each of more bytes than a threshold (planning/sublinear_search.py)
    forward   every value once;  kept: what a later segment reads, and all of the last segment
    backward  from the last value back; before each gradient, the values are computed again that it reads and that are
              not there, and what these need

source  Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; mxnet-memonger
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layermem.integrations.graph_files.value_graph import ValueGraph
from layermem.planning.sublinear_search import SegmentBytes, search_thresholds

Action = tuple[str, int]


@dataclass(frozen=True)
class SublinearResult:
    """A plan with its exact peak, its recomputation cost, and the end of each segment as a number of values."""

    peak_bytes: int
    cost_recomputed: int
    actions: tuple[Action, ...]
    ends: tuple[int, ...]


def sublinear_plans(values: ValueGraph) -> list[SublinearResult]:
    """Every plan of the search."""
    found: dict[tuple[int, ...], SublinearResult] = {}

    def try_threshold(threshold_bytes: float) -> SegmentBytes:
        ends = _cut(values.bytes, threshold_bytes)
        if ends not in found:
            actions = _actions(values, ends)
            cost = sum(values.costs[i] for kind, i in actions if kind == "recompute")
            found[ends] = SublinearResult(values.native.peak(actions), cost, tuple(actions), ends)
        begins = (0, *ends[:-1])
        largest_bytes = max(sum(values.bytes[begin:end]) for begin, end in zip(begins, ends, strict=True))
        return SegmentBytes(sum(values.bytes[end - 1] for end in ends[:-1]), largest_bytes)

    search_thresholds(try_threshold)
    return list(found.values())


def _cut(sizes: Sequence[int], threshold_bytes: float) -> tuple[int, ...]:
    ends: list[int] = []
    gathered_bytes = 0
    for i, nbytes in enumerate(sizes, 1):
        gathered_bytes += nbytes
        if gathered_bytes > threshold_bytes:
            ends.append(i)
            gathered_bytes = 0
    return tuple(ends) if ends and ends[-1] == len(sizes) else (*ends, len(sizes))


def _actions(values: ValueGraph, ends: Sequence[int]) -> list[Action]:
    count, segment = len(values.bytes), [sum(end <= i for end in ends) for i in range(len(values.bytes))]
    last = segment[-1]
    there = {i for i in range(count) if segment[i] == last or any(segment[r] > segment[i] for r in values.after[i])}
    actions: list[Action] = [("forward", i) for i in range(count)]
    for node in reversed(range(count)):
        for again in _missing(values, values.step_data(node), there):
            actions.append(("recompute", again))
            there.add(again)
        actions.append(("backward", count - 1 - node))
    return actions


def _missing(values: ValueGraph, wanted: Sequence[int], there: set[int]) -> list[int]:
    """The values to compute for `wanted`, in topological order."""
    missing: set[int] = set()
    waiting = list(wanted)
    while waiting:
        node = waiting.pop()
        if node not in there and node not in missing:
            missing.add(node)
            waiting += values.before[node]
    return sorted(missing)
