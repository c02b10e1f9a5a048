"""Describes a net for torch_peer.py: a dictionary of its layers, in order."""

from __future__ import annotations

from typing import Any

from layermem import ops
from layermem.graph.net import Net, Node
from layermem.ops import Window

Description = dict[str, Any]


def describe(net: Net) -> Description:
    """The shape of the data, the number of classes, and the layers after the data layer."""
    feed = net.nodes[0]
    layers = [describe_layer(node) for node in net.nodes[1:]]
    classes = next(layer["classes"] for layer in layers if "classes" in layer)
    return {"data": feed.layer.tops[0].shape, "classes": classes, "layers": layers}


def describe_layer(node: Node) -> Description:
    layer, record = node.layer, node.layer.record
    values: Description = {"name": layer.name, "type": layer.type, "bottoms": node.bottoms, "tops": node.tops}
    if isinstance(record, ops.Conv):
        problem = record.problem
        values |= describe_windows(problem.rows, problem.columns)
        values |= {"channels": problem.c, "outputs": problem.k, "group": problem.groups, "bias": record.bias}
        values["dilation"] = [problem.rows.dilation, problem.columns.dilation]
    elif isinstance(record, ops.Pool):
        values |= {**describe_windows(record.rows, record.columns), "method": record.method}
    elif isinstance(record, ops.InnerProduct):
        values |= {"inputs": record.inner, "outputs": record.outputs, "bias": record.bias}
    elif isinstance(record, ops.BatchNorm):
        values |= {"channels": record.x.shape[1], "eps": record.eps, "fraction": record.fraction}
    elif isinstance(record, ops.LRN):
        values |= {"size": record.size, "alpha": record.alpha * record.size, "beta": record.beta, "shift": record.k}
    elif isinstance(record, ops.Dropout):
        values["ratio"] = 1 - 1 / record.scale
    elif layer.type == "SoftmaxWithLoss":
        values |= {"weight": node.loss_weights[0], "classes": layer.bottoms[0].shape[1]}
    return values


def describe_windows(*windows: Window) -> dict[str, list[int]]:
    return {name: [getattr(window, name) for window in windows] for name in ("kernel", "stride", "pad")}
