"""Selects the slices of a training step that are considered under a budget (graph/slices.py).

    layers   data  conv1  conv2  pool1  conv3  pool2  ip  loss           bytes that cross the end of each layer
    bytes          8      8      2      4      1      0.1
    bottlenecks                  *             *      *                  fewer bytes than at any earlier end

    whole/k            the step from end to end: no blob crosses, and gradients of all parameters are held
    conv1..pool1/k     the layers up to a bottleneck, where one blob crosses, after the op that needs the most bytes

A range helps only if all ops after it fit the budget unchanged, which is known before any graph is cut.  Each
BatchNorm of a range adds a pass, and each pass holds the blobs at its border for all items.  So a range has few
BatchNorms, and may begin after the input: where a small blob crosses, before the ops that do not fit.

    ip/rows/k          weights whose update needs much of the budget, with their gradient and optimizer state, in
                       enough bands of rows (graph/bands.py) that one band needs little
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from layermem.graph.bands import Bands
from layermem.graph.batch_norm_passes import needs_two_passes
from layermem.graph.ops import BACKWARD, DATA, FORWARD, UPDATE, Graph, Op
from layermem.graph.slices import Cut
from layermem.ops import InnerProduct
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.settings import SETTINGS
from layermem.utils.units import aligned


def counts_of(items: int) -> list[int]:
    """The numbers of slices that divide a batch into whole items."""
    return [count for count in SETTINGS.slice_counts if items % count == 0]


def ranges(graph: Graph, budget_bytes: int) -> list[tuple[str, str]]:
    """(first, last) of the cuts to consider, as in Cut: ranges from the input to a bottleneck, the shortest first, then
    the whole step."""
    norms = [op.node for op in graph.of_kind(FORWARD) if needs_two_passes(op)]
    firsts = [op for op in graph.of_kind(FORWARD) if op.layers and _takes_blobs(graph, op)][:1]
    if norms:
        firsts = [*_late_first(graph, budget_bytes), *firsts]
    found = [
        (first.layers[0], last.layers[-1])
        for last in _bottlenecks(graph, budget_bytes)[: SETTINGS.bottlenecks]
        for first in firsts
        if sum(first.node <= node <= last.node for node in norms) <= SETTINGS.most_norms
    ]
    return [*dict.fromkeys(found), *([("", "")] if len(norms) <= SETTINGS.most_norms else [])]


def cuts(graph: Graph, items: int, budget_bytes: int) -> Iterator[list[Cut]]:
    """Yield the cuts of each range, from the fewest slices to the most."""
    for first, last in ranges(graph, budget_bytes):
        yield [Cut(first, last, count) for count in counts_of(items)]


def row_bands(graph: Graph, budget_bytes: int) -> list[Bands]:
    """Bands of rows for the InnerProducts with large weights, in the order of the net."""
    products = [op for op in graph.of_kind(FORWARD) if isinstance(op.record, InnerProduct) and op.layers]
    layer_of = {op.roles["w0"]: op.layers[0] for op in products}
    found: list[Bands] = []
    most_bytes = SETTINGS.band_share * budget_bytes
    for update in graph.of_kind(UPDATE):
        layer, needed = layer_of.get(update.roles.get("w0", "")), in_use_bytes(graph, update)
        if layer is not None and needed > most_bytes:
            counts = SETTINGS.slice_counts
            found.append(Bands(layer, next((k for k in counts if needed / k <= most_bytes), counts[-1])))
    return sorted(found, key=lambda bands: [*layer_of.values()].index(bands.layer))


def in_use_bytes(graph: Graph, op: Op) -> int:
    """Aligned bytes that are in use while `op` runs, with every permitted overlay applied."""
    nbytes = sum(aligned(graph.buffers[b].nbytes) for b in op.touches) + aligned(op.workspace_bytes)
    taken: set[str] = set()
    for overlay in op.overlays:
        if not {overlay.out, overlay.over} & taken:
            taken |= {overlay.out, overlay.over}
            nbytes -= aligned(graph.buffers[overlay.out].nbytes)
    return nbytes


def _bytes_of_nodes(graph: Graph) -> dict[int, int]:
    """For each node, the largest number of bytes in use while one of its ops runs."""
    in_use: dict[int, int] = {}
    for op in graph.ops:
        in_use[op.node] = max(in_use.get(op.node, 0), in_use_bytes(graph, op))
    return in_use


def _late_first(graph: Graph, budget_bytes: int) -> list[Op]:
    """The forward op after the smallest bottleneck before all ops that do not fit, if there is one."""
    in_use = _bytes_of_nodes(with_fused_updates(graph))
    largest = max(in_use.values(), default=0)
    begin = min((n for n in in_use if n >= 0 and in_use[n] >= min(budget_bytes, largest)), default=-1)
    ends = [(nbytes, -op.node) for op, blobs, nbytes in _ends(graph) if op.node < begin and blobs == 1]
    return [op for op in graph.of_kind(FORWARD) if op.layers and ends and op.node > -min(ends)[1]][:1]


def _bottlenecks(graph: Graph, budget_bytes: int) -> list[Op]:
    """Last ops of ranges from the input after which every op fits, in the order of the net."""
    graph = with_fused_updates(graph)
    in_use = _bytes_of_nodes(graph)
    largest = max((n for n in in_use if n >= 0), key=lambda n: in_use[n], default=-1)
    nodes = sorted(op.node for op in graph.ops)
    last_too_large = max((node for node, nbytes in in_use.items() if nbytes > budget_bytes), default=-1)
    found: list[Op] = []
    fewest = 0
    for op, blobs, nbytes in _ends(graph):
        is_bottleneck = blobs == 1 and (not fewest or nbytes < fewest)
        fewest = nbytes if is_bottleneck else fewest
        is_short = len(nodes) - bisect_right(nodes, op.node) >= SETTINGS.least_behind_share * len(nodes)
        if is_bottleneck and is_short and op.node >= max(largest, last_too_large):
            found.append(op)
    return found


def _ends(graph: Graph) -> Iterator[tuple[Op, int, int]]:
    """The last forward op of each node that has a backward, with the number and the bytes of the earlier activations
    that forward ops of later nodes read; without sources and their blobs."""
    trained = {op.node for op in graph.ops if op.kind == BACKWARD}
    last_read: dict[str, int] = {}
    made: dict[str, int] = {}
    nodes: dict[int, Op] = {}
    for op in graph.of_kind(FORWARD):
        if op.layers and op.node in trained:
            nodes[op.node] = op
        for b in op.reads:
            last_read[b] = max(op.node, last_read.get(b, -1))
        if _takes_blobs(graph, op):
            made.update({b: op.node for b in op.writes if graph.buffers[b].kind == DATA})
    changes: list[tuple[int, int, int]] = []  # (node, change of the number of blobs, change of their bytes)
    for b, at in made.items():
        if last_read.get(b, -1) > at:
            nbytes = aligned(graph.buffers[b].nbytes)
            changes += [(at, 1, nbytes), (last_read[b], -1, -nbytes)]
    changes.sort(reverse=True)
    blobs = nbytes = 0
    for node, op in sorted(nodes.items()):
        while changes and changes[-1][0] <= node:
            _, more_blobs, more_bytes = changes.pop()
            blobs, nbytes = blobs + more_blobs, nbytes + more_bytes
        yield op, blobs, nbytes


def _takes_blobs(graph: Graph, op: Op) -> bool:
    """Whether an op belongs to a layer with bottoms, not to a source."""
    return any(graph.buffers[b].kind == DATA for b in op.reads)
