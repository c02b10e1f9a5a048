"""LSTM and RNN layers that read each other run block by block, so no blob between them has all time steps.

    lstm1  ... h_1 .. h_8  ... h_9 .. h_16  Concat          h_1 .. h_8, Concat(h_1 .. h_8), block 1 of lstm2, ...
    lstm2  TimeSlice  block 1  block 2               ->     h_9 .. h_16, Concat(h_9 .. h_16), block 2 of lstm2, ...

Each block of the second layer (layers/recurrent.py) reads the steps that it needs in a Concat of its own, if the joined
blob has no other reader.  The blocks of all layers then run in rounds: block 1 of each layer, then block 2 of each, so
that backward goes through the time steps once.

No bit changes: elements are moved, and a gradient's parts are added in the same order.  Both layers' gradients of h_t
are added in the same order too, since the product of step t+1 that reads h_t belongs to the block of step t.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

from layermem.graph.nodes import Emitter, OpNode
from layermem.layers import make_layer
from layermem.layers.recurrent import TimeSlice
from layermem.layers.shape import Concat
from layermem.proto.schema import LayerParameter


def in_time_blocks(nodes: Sequence[OpNode], kept: Collection[str] = ()) -> list[OpNode]:
    """`nodes` without the Concats that TimeSlices alone read, in rounds; blobs in `kept` stay whole."""
    joined = _joined(nodes, kept)
    if not joined:
        return list(nodes)
    in_blocks: list[OpNode] = []
    for node in nodes:
        if isinstance(node.emitter, TimeSlice) and node.bottoms[0] in joined:
            in_blocks += _blocks(node, node.emitter, joined[node.bottoms[0]])
        elif not joined.keys() & {*node.tops}:
            in_blocks.append(node)
    return _in_rounds(in_blocks, [node for node in nodes if isinstance(node.emitter, TimeSlice)])


def _joined(nodes: Sequence[OpNode], kept: Collection[str]) -> dict[str, OpNode]:
    """The Concats to remove, by top."""
    readers: dict[str, list[Emitter]] = {}
    for node in nodes:
        for blob in node.bottoms:
            readers.setdefault(blob, []).append(node.emitter)
    found: dict[str, OpNode] = {}
    for node in nodes:
        if isinstance(node.emitter, Concat) and node.tops[0] not in kept and not any(node.loss_weights):
            reading = readers.get(node.tops[0], [])
            if reading and all(_fits(reader, node.emitter) for reader in reading):
                found[node.tops[0]] = node
    return found


def _fits(reader: Emitter, concat: Concat) -> bool:
    """Whether the reader cuts what `concat` joins, and only between two of its parts."""
    if not isinstance(reader, TimeSlice) or concat.record.along:
        return False
    return {*reader.record.starts} <= {*concat.record.starts}


def _blocks(node: OpNode, cut: TimeSlice, joined: OpNode) -> Iterator[OpNode]:
    """The Concats, one per block, in place of the TimeSlice `node` of the blob that `joined` makes."""
    assert isinstance(joined.emitter, Concat)
    parts = joined.emitter.record.parts
    begins = [bisect_left(joined.emitter.record.starts, start) for start in cut.record.starts]
    for top, begin, end in zip(node.tops, begins, [*begins[1:], len(parts)], strict=True):
        steps = joined.bottoms[begin:end]
        message = LayerParameter(name=top, type="Concat", bottom=steps, top=(top,), phase=cut.phase)
        message.concat_param.axis = 0
        layer = make_layer(message, cut.phase, parts[begin:end])
        propagate = tuple(may and node.propagate[0] for may in joined.propagate[begin:end])
        yield OpNode(layer, (layer,), steps, (top,), (), propagate, (0.0,))


def _in_rounds(nodes: Sequence[OpNode], cuts: Sequence[OpNode]) -> list[OpNode]:
    """`nodes` with block 1 of each layer first, then block 2, and so on; each behind the blobs that it reads."""
    block_of = {top: number for node in cuts for number, top in enumerate(node.tops)}
    block: dict[str, int] = {}  # by layer, "lstm1" of "lstm1/unit_3"
    rounds: dict[str, int] = {}  # by blob
    placed: list[tuple[int, OpNode]] = []
    for node in nodes:
        layer = node.emitter.name.rpartition("/")[0]
        block.update((layer, block_of[blob]) for blob in node.bottoms if blob in block_of)
        placed.append((max([block.get(layer, 0), *(rounds[blob] for blob in node.bottoms)]), node))
        rounds |= dict.fromkeys(node.tops, placed[-1][0])
    return [node for _, node in sorted(placed, key=itemgetter(0))]
