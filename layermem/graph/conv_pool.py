"""A convolution and the MAX pooling that alone reads what it makes, as one op.

    conv1+relu1.forward    conv1'                one op, which stores what is pooled alone:
    pool1.forward          pool1, argmax         conv1+relu1+pool1.forward    pool1, argmax

Backward is as it was: that of the pooling makes the gradient of the convolution's output, from argmax.  The bits are
those of the two ops, and no step takes a byte more.

A finished graph is rewritten, behind slices and storage: so slices of the batch have such an op where both layers are
among them, and types of operands are known.  The device says which pairs it runs (Device.runs_fused); they are two ops
where anything else reads the blob between, such as the backward of a ReLU by its mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from layermem.graph.op_builder import Device
from layermem.graph.ops import FORWARD, Graph, Op, unique
from layermem.ops import CONV_POOL, Conv, ConvPool, Pool

OF_CONV = frozenset({"x0", "w0", "w1", "y0"})  # roles of forward where there is nothing else to store or to add
OF_POOL = frozenset({"x0", "y0", "argmax"})


def with_conv_pools(graph: Graph, device: Device) -> Graph:
    """`graph`, with one op for each such pair."""
    if CONV_POOL not in device.fusions:
        return graph
    pairs = _pairs(graph, device)
    fused, gone = {pair.pool.name: pair.both for pair in pairs}, {pair.conv.name for pair in pairs}
    of_node = {node: pair.both for pair in pairs for node in (pair.conv.node, pair.pool.node)}
    ops = tuple(_placed(fused.get(op.name, op), of_node) for op in graph.ops if op.name not in gone)
    updates = tuple(_placed(op, of_node) for op in graph.fused_updates)
    left_out = {pair.conv.roles["y0"] for pair in pairs}
    buffers = {name: buffer for name, buffer in graph.buffers.items() if name not in left_out}
    return replace(graph, buffers=buffers, ops=ops, fused_updates=updates) if pairs else graph


class _Pair(NamedTuple):
    conv: Op
    pool: Op
    both: Op


def _pairs(graph: Graph, device: Device) -> list[_Pair]:
    touching: dict[str, list[Op]] = {}
    for op in (*graph.ops, *graph.fused_updates):
        for buffer in op.touches:
            touching.setdefault(buffer, []).append(op)
    pools = [op for op in graph.of_kind(FORWARD) if isinstance(op.record, Pool)]
    found: dict[int, list[_Pair]] = {}  # by the node of the pooling
    for pool in filter(_is_pool, pools):
        conv, *others = touching[pool.roles["x0"]]
        if others != [pool] or not _is_convolution(conv, pool):
            continue
        both = _together(conv, pool, graph)
        types = {role: graph.buffers[buffer].tensor.dtype for role, buffer in both.roles.items()}
        if both.name not in graph.by_name and device.runs_fused(both.record, types):
            found.setdefault(pool.node, []).append(_Pair(conv, pool, both))
    counts = Counter(op.node for op in pools)  # of slices: all of them, or none
    return [pair for node, pairs in found.items() if len(pairs) == counts[node] for pair in pairs]


def _is_pool(op: Op) -> bool:
    return type(op.record) is Pool and op.record.method == "MAX" and OF_POOL.issuperset(op.roles) and _is_plain(op)


def _is_convolution(op: Op, pool: Op) -> bool:
    """Whether `op` is one that makes what `pool` reads, of the node before."""
    is_one = isinstance(op.record, Conv) and op.kind == FORWARD and OF_CONV.issuperset(op.roles)
    is_before = op.node == pool.node - 1 and op.roles.get("y0") == pool.roles["x0"]
    return is_one and is_before and op.record.part == pool.record.part and not op.updates and _is_plain(op)


def _is_plain(op: Op) -> bool:
    """Whether `op` takes its operands as they are, and would run again as it ran first."""
    again = op.recompute
    return (again is None or (again.record, again.roles) == (op.record, op.roles)) and not op.passes


def _together(conv: Op, pool: Op, graph: Graph) -> Op:
    assert isinstance(conv.record, Conv) and isinstance(pool.record, Pool)
    between = graph.buffers[pool.roles["x0"]]
    roles = {role: name for role, name in conv.roles.items() if role != "y0"}
    roles |= {role: name for role, name in pool.roles.items() if role != "x0"}
    views = {role: items for role, items in (*conv.views.items(), *pool.views.items()) if role in roles}
    op = replace(
        pool,
        name=f"{conv.layer_name}+{pool.name}",
        record=ConvPool(conv.record, pool.record, part=pool.record.part),
        roles=roles,
        reads=unique(conv.reads),
        overlays=(),
        workspace_bytes=conv.workspace_bytes,
        flops=conv.flops + pool.flops,
        nbytes=conv.nbytes + pool.nbytes - 2 * between.nbytes,
        layer_name=f"{conv.layer_name}+{pool.layer_name}",
        layer_type=conv.layer_type + pool.layer_type,
        layers=(*conv.layers, *pool.layers),
        views=views,
        recompute=None,
    )
    return op if conv.recompute is None or pool.recompute is None else replace(op, recompute=op)


def _placed(op: Op, of_node: Mapping[int, Op]) -> Op:
    """`op`, which is of the node of both where it was of one of the two."""
    both = of_node.get(op.node)
    if both is None:
        return op
    recompute = None if op.recompute is None else _placed(op.recompute, of_node)
    return replace(op, node=both.node, layer_name=both.layer_name, layers=both.layers, recompute=recompute)
