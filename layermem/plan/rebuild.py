"""From segments of forward ops to a plan that keeps what leaves a segment and rebuilds the rest (canonical strategy).

    forward    segment by segment; kept: what a later segment reads, what cannot be run again, the whole last segment
    backward   in the graph's own order, so that gradients meet in one order under every plan; before each backward op,
               the forward ops run again whose outputs it needs and nobody has made again yet

Everything else follows from lifetimes: a value lives to its last use, and one that is written again was dropped before.
source  Kusumoto et al., NeurIPS 2019, section 3; Chen et al. 2016
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from layermem.graph.ops import DATA, FORWARD, STASH, Graph, Op
from layermem.plan.base import INTRA, Fate, Gap, Hints, Plan


def segments_to_plan(
    graph: Graph,
    segments: Sequence[Sequence[Op]],
    strategy: str,
    *,
    hints: Hints = Hints(),
    overlays: frozenset[str] = INTRA,
    fates: dict[Gap, Fate] | None = None,
    keep: Collection[str] = (),
) -> Plan:
    """The plan that rebuilds every segment but the last; `keep` names buffers to keep beside the boundaries."""
    rebuild = _Rebuild(graph, segments, hints, keep)
    return Plan(strategy, rebuild.order(), fates or {}, overlays)


class _Rebuild:
    def __init__(self, graph: Graph, segments: Sequence[Sequence[Op]], hints: Hints, keep: Collection[str]):
        self.graph, self.segments = graph, segments
        self.segment_of = {op.name: i for i, ops in enumerate(segments) for op in ops}
        self.position = {op.name: i for i, op in enumerate(graph.ops)}
        self.kept = self._kept(hints, keep)

    def _kept(self, hints: Hints, keep: Collection[str]) -> set[str]:
        """Buffers that stay from the forward pass on."""
        kept = set(keep)
        last = len(self.segments) - 1
        for name, buffer in self.graph.buffers.items():
            if buffer.kind not in (DATA, STASH):
                kept.add(name)
                continue
            producer = self.graph.producer[name]
            home = self.segment_of[producer.name]
            if not can_rebuild(producer, name) or home == last or matches(producer, hints.keep):
                kept.add(name)
            elif not matches(producer, hints.again):
                readers = (op for op in self.graph.readers[name] if op.kind == FORWARD)
                if any(self.segment_of[op.name] != home for op in readers):
                    kept.add(name)
        return kept

    def order(self) -> tuple[str, ...]:
        order = [op.name for ops in self.segments for op in ops]
        available = set(self.kept)
        for op in self.graph.ops:
            if op.kind == FORWARD:
                continue
            for again in self._closure((*op.reads, *op.updates), available):
                available.update(again.replay.writes if again.replay else ())
                order.append(again.name)
            order.append(op.name)
        return tuple(order)

    def _closure(self, wanted: Iterable[str], available: Collection[str]) -> list[Op]:
        """Forward ops to run again so that `wanted` exists, in the graph's order."""
        found: dict[str, Op] = {}
        stack = [b for b in wanted if b not in available]
        while stack:
            buffer = stack.pop()
            producer = self.graph.producer.get(buffer)
            if producer is None or producer.kind != FORWARD or producer.name in found:
                continue
            found[producer.name] = producer
            assert producer.replay is not None
            stack += [b for b in producer.replay.reads if b not in available]
        return sorted(found.values(), key=lambda op: self.position[op.name])


def can_rebuild(producer: Op, buffer: str) -> bool:
    """Whether running `producer` again writes `buffer`."""
    return producer.replay is not None and buffer in producer.replay.writes


def matches(op: Op, globs: Iterable[str]) -> bool:
    """Whether a glob names the layer of `op`, or one of those that it fuses."""
    layers = op.name.rsplit(".", 1)[0].split("+")
    return any(fnmatchcase(layer, glob) for glob in globs for layer in layers)


def forward_ops(graph: Graph) -> list[Op]:
    return graph.of_kind(FORWARD)


def output_bytes(graph: Graph, op: Op) -> int:
    """Bytes of activations and stash that a forward op leaves."""
    return sum(graph.buffers[b].nbytes for b in op.writes)
