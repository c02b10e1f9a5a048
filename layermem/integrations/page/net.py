"""The net of a page: layers, edges between them, and the groups into which they fold.

    layers   name, type, shape of the tops, parameters, FLOPs, bytes of the tops, and the layer in whose op it runs
    edges    from one layer to another, by index
    groups   layers begin to end (half-open) with a label, each after the group that contains it (parent, -1)

Layers are the layers of the prototxt.  LayerIndex finds the layer of an op and of a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layermem.graph.net import Net
from layermem.graph.ops import Graph, Op
from layermem.integrations.page.columns import Strings, deltas
from layermem.integrations.page.stages import LayerGroup, fold
from layermem.report.net_table import net_values

NONE = -1  # no layer


class LayerIndex:
    """Indices of the layers of `net`, found by ops and buffers of `graph`."""

    def __init__(self, net: Net, graph: Graph):
        self._of = {node.layer.name: i for i, layer in enumerate(net.layers) for node in layer.nodes}
        self._of |= {layer.name: i for i, layer in enumerate(net.layers)}
        self._params = {name: self._of.get(param.layer, NONE) for name, param in net.params.items()}
        self.runs_in = self._fused(graph)
        self._buffers: dict[str, int] = {}
        for op in graph.ops:
            for buffer in (*op.writes, *op.updates):
                self._buffers.setdefault(buffer, self.of_op(op))

    def of_op(self, op: Op) -> int:
        """The first layer that `op` computes, or the owner of the parameter that it updates."""
        for name in op.layers:
            if name in self._of:
                return self._of[name]
        name, _, _ = op.name.rpartition(".")
        return self._of.get(name, self._params.get(name, NONE))

    def of_buffer(self, name: str) -> int:
        """The layer that owns the parameter `name`, or whose op first writes the buffer."""
        return self._params.get(name, self._buffers.get(name, NONE))

    def _fused(self, graph: Graph) -> dict[int, int]:
        """For each layer without an op, the layer whose op computes it."""
        runs_in: dict[int, int] = {}
        for op in graph.ops:
            first, *others = [self._of[name] for name in op.layers if name in self._of] or [NONE]
            runs_in.update((other, first) for other in others if other != first)
        return runs_in


def net_page(net: Net, index: LayerIndex) -> dict[str, object]:
    """The section `net` of a page."""
    values = net_values(net)
    layers = values["layers"]
    types, shapes = Strings(), Strings()
    edges = sorted(_edges(net))
    groups = list(_flat(fold([layer["name"] for layer in layers]), NONE, 0))
    return {
        "name": values["name"],
        "parameters": values["parameters"],
        "flops": values["flops"],
        "activation_bytes": values["activation_bytes"],
        "layers": {
            "name": [layer["name"] for layer in layers],
            "type": [types.add(layer["type"]) for layer in layers],
            "shape": [shapes.add(_shapes(layer["top_shapes"])) for layer in layers],
            "parameters": [layer["parameters"] for layer in layers],
            "flops": [layer["flops"] for layer in layers],
            "bytes": [layer["bytes"] for layer in layers],
            "runs_in": [index.runs_in.get(i, NONE) - i for i in range(len(layers))],
        },
        "types": types.values,
        "shapes": shapes.values,
        "edges": {"from": deltas(a for a, _ in edges), "to": [b - a for a, b in edges]},
        "groups": {
            "label": [group.label for group, _ in groups],
            "begin": [group.begin for group, _ in groups],
            "end": [group.end for group, _ in groups],
            "parent": [parent for _, parent in groups],
        },
    }


def _shapes(shapes: Iterable[Iterable[int]]) -> str:
    return ", ".join("×".join(map(str, shape)) or "scalar" for shape in shapes)


def _edges(net: Net) -> set[tuple[int, int]]:
    """(producer, consumer) of every blob."""
    producer = {blob: i for i, layer in enumerate(net.layers) for node in layer.nodes for blob in node.tops}
    read = ((blob, i) for i, layer in enumerate(net.layers) for node in layer.nodes for blob in node.bottoms)
    return {(producer[blob], i) for blob, i in read if producer[blob] != i}


def _flat(groups: Iterable[LayerGroup], parent: int, count: int) -> Iterator[tuple[LayerGroup, int]]:
    """Yield the groups in order with the index of their parent; `count` groups come before them."""
    for group in groups:
        yield group, parent
        position, count = count, count + 1
        for inner in _flat(group.members, position, count):
            yield inner
            count += 1
