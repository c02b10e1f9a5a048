"""From segments of forward ops to a plan that keeps what leaves a segment and rebuilds the rest (canonical strategy).

    forward    segment by segment; kept: what a later segment reads and what its op leaves for backward beside it, what
               cannot be run again, the whole last segment
    backward   in the graph's own order, so that gradients meet in one order under every plan; before each backward op,
               the forward ops run again whose outputs it needs and nobody has made again yet

Everything else follows from lifetimes: a value lives to its last use, and one that is written again was dropped before.
source  Kusumoto et al., NeurIPS 2019, section 3; Chen et al. 2016
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from layermem.graph.ops import DATA, FORWARD, STASH, Graph, Op
from layermem.planning.base import INTRA, Hints, Plan, ops_in_order
from layermem.planning.costs import Costs


def segments_to_plan(
    graph: Graph, segments: Sequence[Sequence[Op]], strategy: str, *, hints: Hints = Hints(), beside: bool = True
) -> Plan:
    """The plan that rebuilds every segment but the last; `hints` may say otherwise of single layers.

    beside   what an op leaves for backward alone stays beside its output; else it is made again, seldom more leanly
    """
    available = _kept(graph, segments, hints, beside)
    order = [op.name for ops in segments for op in ops]
    for op in graph.ops:
        if op.kind == FORWARD:
            continue
        for again in _missing(graph, (*op.reads, *op.updates), available):
            available.update(again.recompute.writes if again.recompute else ())
            order.append(again.name)
        order.append(op.name)
    return Plan(strategy, tuple(order), {}, INTRA)


def _kept(graph: Graph, segments: Sequence[Sequence[Op]], hints: Hints, beside: bool) -> set[str]:
    """Buffers that stay from the forward pass on."""
    segment_of = {op.name: i for i, ops in enumerate(segments) for op in ops}

    def stays(name: str) -> bool:
        producer = graph.producer.get(name)
        if graph.buffers[name].kind not in (DATA, STASH) or producer is None or not can_rebuild(producer, name):
            return True
        if matches(producer, hints.keep):
            return True
        if matches(producer, hints.recompute):
            return False
        home = segment_of[producer.name]
        return home == len(segments) - 1 or any(segment_of[reader] != home for reader in _readers(graph, name, beside))

    return {name for name in graph.buffers if stays(name)}


def _readers(graph: Graph, name: str, beside: bool) -> list[str]:
    """Forward ops that read a buffer; of one that only backward reads, those that read what was made with it.  If it
    went where that stays, its op would run again all the same, and what that op reads would have to be there."""
    own = [op.name for op in graph.readers[name] if op.kind == FORWARD]
    made = graph.producer[name].writes if beside else ()
    return own or [op.name for b in made for op in graph.readers[b] if op.kind == FORWARD]


def _missing(graph: Graph, wanted: Iterable[str], available: Collection[str]) -> list[Op]:
    """Forward ops to run again so that `wanted` exists, in the graph's order."""
    found: dict[str, Op] = {}
    stack = [b for b in wanted if b not in available]
    while stack:
        producer = graph.producer.get(stack.pop())
        if producer is None or producer.kind != FORWARD or producer.name in found:
            continue
        found[producer.name] = producer
        assert producer.recompute is not None
        stack += [b for b in producer.recompute.reads if b not in available]
    return sorted(found.values(), key=lambda op: graph.position[op.name])


def recompute_seconds(graph: Graph, costs: Costs, plan: Plan) -> float:
    """Seconds of the ops that `plan` runs beyond their first time."""
    seen: set[str] = set()
    seconds = 0.0
    for name, op in zip(plan.order, ops_in_order(graph, plan.order)):
        seconds += costs.op(op) if name in seen else 0
        seen.add(name)
    return seconds


def can_rebuild(producer: Op, buffer: str) -> bool:
    """Whether running `producer` again writes `buffer`."""
    return producer.recompute is not None and buffer in producer.recompute.writes


def matches(op: Op, globs: Iterable[str]) -> bool:
    """Whether a glob names the layer of `op`, or one of those that it fuses."""
    layers = op.name.rsplit(".", 1)[0].split("+")
    return any(fnmatchcase(layer, glob) for glob in globs for layer in layers)


def forward_ops(graph: Graph) -> list[Op]:
    return graph.of_kind(FORWARD)


def output_bytes(graph: Graph, op: Op) -> int:
    """Bytes of activations and stash that a forward op leaves."""
    return sum(graph.buffers[b].nbytes for b in op.writes)
