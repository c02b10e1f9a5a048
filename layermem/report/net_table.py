"""A net as a table, one row per layer, and as values for JSON.

    net_rows      bottoms, tops, shapes, parameters, FLOPs and bytes of each layer
    fused_rows    the op that runs each layer in a schedule: a device may fuse several layers into one op

Blobs have their names in the prototxt: the bottom and the top of an in-place layer share one name.
"""

from __future__ import annotations

from typing import TypedDict

from layermem.graph.net import Net, NetLayer
from layermem.graph.ops import Graph
from layermem.utils.text import shape_text
from layermem.utils.units import format_bytes

HEADINGS = ["layer", "type", "bottoms", "tops", "shapes", ">parameters", ">FLOPs", ">bytes"]
FUSED_HEADINGS = ["layer", "type", "op", "steps"]


class LayerValues(TypedDict, total=False):
    """Values of a layer; `op` and `steps` only in fused_values."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    top_shapes: list[list[int]]
    parameter_shapes: list[list[int]]
    average_shapes: list[list[int]]
    parameters: int
    flops: int
    bytes: int
    op: str
    steps: list[str]


class NetValues(TypedDict, total=False):
    """Values of a net; `device` only in fused_values."""

    name: str
    phase: str
    layers: list[LayerValues]
    parameters: int
    flops: int
    bytes: int
    activation_bytes: int
    device: str


def net_values(net: Net, *, parts: bool = False) -> NetValues:
    """The values of the table; with `parts`, a layer that consists of several others has a row for each.

    flops             multiplications and additions of a forward pass
    bytes             of the layer's tops, including tops of its parts; an in-place top takes no bytes
    parameters        only learned ones; `average_shapes` are the shapes of running averages
    activation_bytes  the number that Caffe prints as "Memory required for data"
    """
    nodes = (NetLayer(node.layer.param, (node,), node.bottoms, node.tops) for node in net.nodes)
    each = [*nodes] if parts else net.layers
    layers = [_layer_values(layer) for layer in each]
    return {
        "name": net.name,
        "phase": "TEST" if net.phase else "TRAIN",
        "layers": layers,
        "parameters": net.parameter_count,
        "flops": sum(layer["flops"] for layer in layers),
        "bytes": sum(layer["bytes"] for layer in layers),
        "activation_bytes": net.activation_bytes,
    }


def _layer_values(layer: NetLayer) -> LayerValues:
    learned = [param for _, param in layer.params if param.learned]
    parts = [node.layer for node in layer.nodes]
    shapes = {name: top.shape for part in parts for name, top in zip(part.param.top, part.tops)}
    own = [top for part in parts for name, top in zip(part.param.top, part.tops) if name not in part.param.bottom]
    return {
        "name": layer.name,
        "type": layer.type,
        "bottoms": list(layer.message.bottom),
        "tops": list(layer.message.top),
        "top_shapes": [list(shapes[name]) for name in layer.message.top],
        "parameter_shapes": [list(param.shape) for param in learned],
        "average_shapes": [list(param.shape) for _, param in layer.params if not param.learned],
        "parameters": sum(param.tensor.count for param in learned),
        "flops": sum(part.forward().flops for part in parts),
        "bytes": sum(top.nbytes for top in own),
    }


def net_rows(values: NetValues) -> tuple[list[list[str]], list[str]]:
    """The rows under HEADINGS, and the totals."""
    rows = [
        [
            layer["name"],
            layer["type"],
            " ".join(layer["bottoms"]),
            " ".join(layer["tops"]),
            " ".join(map(shape_text, layer["top_shapes"])),
            f"{layer['parameters']:,}" if layer["parameters"] else "",
            format_count(layer["flops"]) if layer["flops"] else "",
            format_bytes(layer["bytes"]) if layer["bytes"] else "",
        ]
        for layer in values["layers"]
    ]
    total = [
        f"{len(rows)} layers",
        "",
        "",
        "",
        "",
        f"{values['parameters']:,}",
        format_count(values["flops"]),
        format_bytes(values["bytes"]),
    ]
    return rows, total


def fused_values(values: NetValues, graph: Graph) -> NetValues:
    """`values` with the `op` that runs each layer in `graph` and, at the first layer of the op, its `steps`."""
    steps: dict[str, list[str]] = {}
    for op in graph.ops:
        name, _, step = op.name.rpartition(".")
        steps.setdefault(name, []).append(step)
    op_of = {layer: op.layer_name for op in graph.ops for layer in op.layers}
    layers: list[LayerValues] = []
    for layer in values["layers"]:
        name = op_of.get(layer["name"], "")
        layers.append({**layer, "op": name, "steps": steps.pop(name, [])})
    return {**values, "device": graph.device, "layers": layers}


def fused_rows(values: NetValues) -> list[list[str]]:
    """The rows under FUSED_HEADINGS."""
    return [[layer["name"], layer["type"], layer["op"], " ".join(layer["steps"])] for layer in values["layers"]]


def format_count(number: float) -> str:
    """A large count with three significant figures: 3858000000 -> '3.86 G'."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor * 0.9995:
            scaled = number / factor
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{digits}f} {letter}"
    return f"{number:.0f}"
