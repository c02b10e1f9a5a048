"""BatchNorm in two passes, for slices of the batch: the statistics that each item needs are sums over all items.

    forward    statistics      mean, inv_std, the moving averages, from x     a sum over the items
               recompute       y from x, mean, inv_std                        item by item
    backward   gradient_sums   sums, dw3, dw4 from x, dy                      a sum over the items
               input_gradient  dx from x, dy, sums                            item by item

The node of the BatchNorm runs twice, so backward still mirrors forward: statistics and input_gradient belong to its
first run, the other two to the second.  Slices of a region with such ops run in stages, each of them slice by slice:

    layers    conv1  bn1  conv2  bn2  pool                     |  the next stage begins where a sum is complete
    forward   conv1 statistics1  |  recompute1 conv2 statistics2  |  recompute2 pool
    backward  pool gradient_sums2  |  input_gradient2 conv2 gradient_sums1  |  input_gradient1 conv1

source  Ioffe and Szegedy, "Batch Normalization", 2015, section 3 for the gradients
"""

from __future__ import annotations

from dataclasses import replace

from layermem.graph.device import Device
from layermem.graph.op_builder import on_roles, priced
from layermem.graph.ops import BACKWARD, DIFF, FORWARD, STASH, Buffer, Graph, Op, unique
from layermem.ops import BatchNorm, BatchNormScale, Tensor

AVERAGES = ("w0", "w1", "w2")
OF_BATCH = ("mean", "inv_std")
FIRST, SECOND = 0, 1  # runs of the node
NORMS = (BatchNorm, BatchNormScale)  # records with averages


def needs_two_passes(op: Op) -> bool:
    """Whether `op` is a step of a BatchNorm whose items depend on each other."""
    is_norm = isinstance(op.record, NORMS) and op.step in (FORWARD, BACKWARD)
    return is_norm and bool(op.record.over_items(op.step).refusal)


def in_two_passes(graph: Graph, nodes: range, device: Device) -> Graph:
    """`graph` with each BatchNorm of `nodes` in two passes.  Other backward ops of such a node belong to
    the pass next to which they run, and all its other ops to the second pass."""
    divided = {op.node for op in graph.ops if op.node in nodes and needs_two_passes(op)}
    if not divided:
        return graph
    buffers = dict(graph.buffers)
    found: list[Op] = []
    left: set[int] = set()  # nodes whose backward has reached the first pass
    for op in graph.ops:
        if op.node not in divided:
            found.append(op)
        elif needs_two_passes(op):
            divide = _forward_passes if op.kind == FORWARD else _backward_passes
            found += divide(op, buffers, device)
            left.update([op.node] * (op.kind == BACKWARD))
        else:
            found.append(op.of_turn(FIRST if op.node in left else SECOND))
    return replace(graph, buffers=buffers, ops=tuple(found))


def _forward_passes(op: Op, buffers: dict[str, Buffer], device: Device) -> list[Op]:
    """Return the op of the statistics and the op that recomputes y from them.  A graph without backward had no stash,
    so it is declared here.  Returns `op` alone if it has no recomputation."""
    assert isinstance(op.record, NORMS)
    if op.recompute is None:
        return [op]
    channels = Tensor((op.record.x.shape[1],))
    made = {
        role: op.roles.get(role) or _declare(buffers, f"{op.name}.{role}", STASH, channels, device) for role in OF_BATCH
    }
    read = {role: op.roles[role] for role in ("x0", *AVERAGES)}
    statistics = on_roles(_step(op, "statistics"), {**read, **made}, buffers, device, made.values())
    again = replace(
        op.recompute, roles={**op.recompute.roles, **made}, reads=unique((*op.recompute.reads, *made.values()))
    )
    again = priced(again, buffers, device)
    return [
        replace(statistics, flops=max(0, op.flops - op.recompute.flops)).of_turn(FIRST),
        replace(again, recompute=again).of_turn(SECOND),
    ]


def _backward_passes(op: Op, buffers: dict[str, Buffer], device: Device) -> list[Op]:
    """Return the op that sums over the batch and, if the gradient of x is wanted, the op that computes it."""
    assert isinstance(op.record, NORMS)
    sums = {"sums": _declare(buffers, f"{op.name}.sums", DIFF, Tensor((2, op.record.x.shape[1])), device)}
    first = sums | {role: buffer for role, buffer in op.roles.items() if role != "dx0"}
    passes = [on_roles(_step(op, "gradient_sums"), first, buffers, device, sums.values()).of_turn(SECOND)]
    if "dx0" in op.roles:
        second = {role: buffer for role, buffer in op.roles.items() if not role.startswith("dw")}
        gradient = on_roles(replace(op, step="input_gradient"), {**second, **sums}, buffers, device).of_turn(FIRST)
        passes.append(replace(gradient, overlays=op.overlays))
    return [replace(each, flops=op.flops // len(passes)) for each in passes]


def _step(op: Op, step: str) -> Op:
    return replace(op, name=f"{op.name.rpartition('.')[0]}.{step}", step=step)


def _declare(buffers: dict[str, Buffer], name: str, kind: str, tensor: Tensor, device: Device) -> str:
    buffers[name] = Buffer(name, kind, tensor, device.nbytes(tensor))
    return name
