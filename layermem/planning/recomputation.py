"""Turns segments of forward ops into a plan that keeps the outputs of each segment and recomputes the rest.

    forward    segment by segment.  Kept: buffers that a later segment reads, with the stashes of the same ops; buffers
               that cannot be recomputed; the whole last segment.  Alternating slices run by phases (phases.py)
    backward   in the graph's own order, so that gradients are summed in one order under every plan; forward ops whose
               outputs are needed and missing are recomputed right before the backward op

Everything else follows from lifetimes: a value lives until its last use, or is freed before it is written again.
source  Kusumoto et al., NeurIPS 2019, section 3 (canonical strategy); Chen et al. 2016
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from layermem.graph.ops import FORWARD, Graph, Op
from layermem.planning.costs import Costs
from layermem.planning.hints import Hints
from layermem.planning.phases import forward_first
from layermem.planning.plan import INTRA, Plan


class Candidate(NamedTuple):
    """A plan with its live bytes, and the seconds of its recomputations."""

    live_bytes: int
    recompute_seconds: float
    plan: Plan


def segments_to_plan(
    graph: Graph,
    segments: Sequence[Sequence[Op]],
    strategy: str,
    *,
    hints: Hints = Hints(),
    keep_side_outputs: bool = True,
) -> Plan:
    """The plan that recomputes every segment except the last; `hints` override this for single layers.

    keep_side_outputs   keep the buffers that an op writes only for backward if the op's output is kept; otherwise they
                        are recomputed, which rarely saves memory
    """
    missing = _dropped_buffers(graph, segments, hints, keep_side_outputs)
    read_after_forward = graph.read_after_forward
    order: list[str] = []
    for name in forward_first(graph, (op for ops in segments for op in ops)):
        wanted = read_after_forward.get(name)
        if wanted and not missing.isdisjoint(wanted):
            for producer in _missing_producers(graph, wanted, missing):
                missing.difference_update(producer.recompute.writes if producer.recompute else ())
                order.append(producer.name)
        order.append(name)
    return Plan(strategy, tuple(order), {}, INTRA)


def _dropped_buffers(graph: Graph, segments: Sequence[Sequence[Op]], hints: Hints, keep_side_outputs: bool) -> set[str]:
    """Buffers that are freed after the forward pass."""
    segment_of = {op.name: i for i, ops in enumerate(segments) for op in ops}
    readers_of, last = graph.forward_readers, len(segments) - 1
    dropped: set[str] = set()
    for name, producer in graph.recomputable.items():
        if producer.kind != FORWARD or (hints.keep and matches(producer, hints.keep)):
            continue
        own = segment_of[producer.name]
        if not (hints.recompute and matches(producer, hints.recompute)):
            if own == last:
                continue
            readers = readers_of[name]
            if not readers and keep_side_outputs:
                # For a buffer that only backward reads, the readers of its op's other outputs count.  If it were freed
                # while these stay, its op would run again anyway, and would need its inputs.
                readers = [reader for beside in producer.writes for reader in readers_of[beside]]
            if not all(segment_of[reader] == own for reader in readers):
                continue
        dropped.add(name)
    return dropped


def _missing_producers(graph: Graph, wanted: Iterable[str], missing: Collection[str]) -> list[Op]:
    """Forward ops to recompute so that none of `wanted` is missing, in the graph's order."""
    producers: dict[str, Op] = {}
    stack = [b for b in wanted if b in missing]
    while stack:
        producer = graph.producer.get(stack.pop())
        if producer is None or producer.kind != FORWARD or producer.name in producers:
            continue
        producers[producer.name] = producer
        assert producer.recompute is not None
        stack += [b for b in producer.recompute.reads if b in missing]
    return sorted(producers.values(), key=lambda op: graph.position[op.name])


def recompute_seconds(plan: Plan, again: Mapping[str, float]) -> float:
    """Seconds of the recomputations in `plan`; `again`: seconds of each op's recomputation (seconds_again)."""
    seen: set[str] = set()
    seconds = 0.0
    for name in plan.order:
        if name in seen:
            seconds += again[name]
        seen.add(name)
    return seconds


def seconds_again(graph: Graph, costs: Costs) -> dict[str, float]:
    """Seconds of a second run of each op that can be recomputed, by name."""
    return {op.name: costs.op(op.recompute) for op in graph.ops if op.recompute is not None}


def can_recompute(producer: Op, buffer: str) -> bool:
    """Whether a second run of `producer` writes `buffer`."""
    return producer.recompute is not None and buffer in producer.recompute.writes


def matches(op: Op, globs: Iterable[str]) -> bool:
    """Whether a glob matches the layer of `op`, or one of the layers fused into it."""
    layers = op.layers or (op.name.rpartition(".")[0],)  # a copy to the host is named after its blob
    return any(fnmatchcase(layer, glob) for glob in globs for layer in layers)


def forward_ops(graph: Graph) -> list[Op]:
    return graph.of_kind(FORWARD)


def output_bytes(graph: Graph, op: Op) -> int:
    """Bytes of activations and stash that a forward op leaves."""
    return sum(graph.buffers[b].nbytes for b in op.writes)
