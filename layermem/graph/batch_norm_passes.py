"""BatchNorm in two passes, as slices of the batch need it: all items have a part in the statistics of each.

    forward    statistics      mean, inv_std, the moving averages, from x     a sum over the items
               recompute       y from x, mean, inv_std                        item by item
    backward   gradient_sums   sums, dw3, dw4 from x, dy                      a sum over the items
               input_gradient  dx from x, dy, sums                            item by item

The node of the BatchNorm becomes two, so that backward mirrors forward still: statistics and input_gradient are of the
first one, the others of the second.  Slices of a region with such ops run in stages, each of them slice by slice:

    layers    conv1  bn1  conv2  bn2  pool                     |  the next stage begins where a sum is complete
    forward   conv1 statistics1  |  recompute1 conv2 statistics2  |  recompute2 pool
    backward  pool gradient_sums2  |  input_gradient2 conv2 gradient_sums1  |  input_gradient1 conv1

source  Ioffe and Szegedy, "Batch Normalization", 2015, section 3 for the gradients
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from layermem.graph.op_builder import Device
from layermem.graph.ops import BACKWARD, DIFF, FORWARD, STASH, Buffer, Graph, Op, unique
from layermem.ops import BatchNorm, BatchNormScale, Tensor
from layermem.ops.normalization import FIRST_PASSES

AVERAGES = ("w0", "w1", "w2")
OF_BATCH = ("mean", "inv_std")
NORMS = (BatchNorm, BatchNormScale)  # records with averages


def needs_two_passes(op: Op) -> bool:
    """Whether `op` is that of a BatchNorm whose items depend on each other."""
    is_norm = isinstance(op.record, NORMS) and op.step in (FORWARD, BACKWARD)
    return is_norm and op.record.batch_sums(op.step) is None


def is_first_pass(op: Op) -> bool:
    """Whether an op behind `op` in the slices reads what it sums over the items."""
    return isinstance(op.record, NORMS) and op.step in FIRST_PASSES


def in_two_passes(graph: Graph, first: int, last: int, device: Device) -> Graph:
    """`graph` with each BatchNorm of nodes first .. last in two passes, and the nodes numbered anew."""
    divided = sorted({op.node for op in graph.ops if first <= op.node <= last and needs_two_passes(op)})
    if not divided:
        return graph
    buffers = dict(graph.buffers)
    node_of = _numbered(graph, divided)
    found: list[Op] = []
    for op in graph.ops:
        if op.node in divided and needs_two_passes(op):
            divide = _forward_passes if op.kind == FORWARD else _backward_passes
            found += divide(op, node_of[op.name], buffers, device)
        else:
            found.append(_at_node(op, node_of[op.name]))
    fused = (_at_node(op, node_of[op.name]) for op in graph.fused_updates)
    return replace(graph, buffers=buffers, ops=tuple(found), fused_updates=tuple(fused))


def passes_of(op: Op, buffers: dict[str, Buffer], device: Device) -> list[Op]:
    """The two passes of a BatchNorm that needs them; what they alone share is added to `buffers`.  `op` itself where
    nothing says how to compute y again."""
    if op.kind == FORWARD:
        return [op] if op.recompute is None else _forward_passes(op, op.node, buffers, device)
    return _backward_passes(op, op.node, buffers, device)


def stages(ops: Iterable[Op]) -> list[list[Op]]:
    """`ops` in their order, cut where one reads what a first pass before it sums over all items."""
    found: list[list[Op]] = [[]]
    results: set[str] = set()
    for op in ops:
        if results.intersection(op.reads):
            found.append([])
            results.clear()
        found[-1].append(op)
        if is_first_pass(op):
            results.update(op.writes)
    return found


def runs_again(op: Op, buffers: Mapping[str, Buffer], whole: Op) -> Op:
    """A slice of the backward op `whole`, which may run once for each of the two passes that read what it writes."""
    is_pure = whole.writes and not (whole.updates or any(buffers[b].kind != DIFF for b in whole.writes))
    return replace(op, recompute=op) if op.kind == BACKWARD and is_pure else op


def _numbered(graph: Graph, divided: Sequence[int]) -> dict[str, int]:
    """The node of each op by name, where those of `divided` are two.  A BatchNorm itself has the second in forward, and
    the first in backward; what runs beside it in backward is with the pass that it runs beside."""
    node_of: dict[str, int] = {}
    behind: set[int] = set()  # nodes whose backward has begun to leave the second one
    for op in (*graph.ops, *graph.fused_updates):
        is_second = op.node in divided and not (op.kind == BACKWARD and (needs_two_passes(op) or op.node in behind))
        node_of[op.name] = op.node + sum(node < op.node for node in divided) + is_second
        if op.kind == BACKWARD and needs_two_passes(op):
            behind.add(op.node)
    return node_of


def _at_node(op: Op, node: int) -> Op:
    if op.node == node and (op.recompute is None or op.recompute.node == node):
        return op
    return replace(op, node=node, recompute=None if op.recompute is None else replace(op.recompute, node=node))


def _forward_passes(op: Op, node: int, buffers: dict[str, Buffer], device: Device) -> list[Op]:
    """Statistics, and what `op` recomputes from them; without a backward, they have had no stash."""
    assert op.recompute is not None and isinstance(op.record, NORMS)
    channels = Tensor((op.record.x.shape[1],))
    made = {
        role: op.roles.get(role) or _declare(buffers, f"{op.name}.{role}", STASH, channels, device) for role in OF_BATCH
    }
    read = {role: op.roles[role] for role in ("x0", *AVERAGES)}
    statistics = _step(op, node - 1, "statistics", {**read, **made}, [*made.values()], buffers, device)
    again = replace(
        op.recompute,
        roles={**op.recompute.roles, **made},
        reads=unique((*op.recompute.reads, *made.values())),
        node=node,
    )
    again = _with_bytes(again, buffers, device)
    return [replace(statistics, flops=max(0, op.flops - op.recompute.flops)), replace(again, recompute=again)]


def _backward_passes(op: Op, node: int, buffers: dict[str, Buffer], device: Device) -> list[Op]:
    """The sums over the batch, and where it is wanted the gradient of x."""
    assert isinstance(op.record, NORMS)
    sums = {"sums": _declare(buffers, f"{op.name}.sums", DIFF, Tensor((2, op.record.x.shape[1])), device)}
    first = sums | {role: buffer for role, buffer in op.roles.items() if role != "dx0"}
    made = [buffer for role, buffer in first.items() if role == "sums" or role.startswith("dw")]
    passes = [_step(op, node + 1, "gradient_sums", first, made, buffers, device)]
    if "dx0" in op.roles:
        second = {role: buffer for role, buffer in op.roles.items() if not role.startswith("dw")}
        gradient = _step(op, node, "input_gradient", {**second, **sums}, [op.roles["dx0"]], buffers, device)
        passes.append(replace(gradient, name=op.name, overlays=op.overlays))
    return [replace(each, flops=op.flops // len(passes)) for each in passes]


def _declare(buffers: dict[str, Buffer], name: str, kind: str, tensor: Tensor, device: Device) -> str:
    buffers[name] = Buffer(name, kind, tensor, device.nbytes(tensor))
    return name


def _step(
    op: Op,
    node: int,
    step: str,
    roles: Mapping[str, str],
    made: Collection[str],
    buffers: Mapping[str, Buffer],
    device: Device,
) -> Op:
    """A pass of `op` with these roles, which writes the buffers `made` or adds to them."""
    updates = tuple(b for b in op.updates if b in roles.values())
    writes = tuple(b for b in made if b not in updates)
    reads = unique(b for b in roles.values() if b not in (*made, *updates))
    accumulates = tuple(role for role in roles if role in op.accumulates)
    name = f"{op.name.rpartition('.')[0]}.{step}"
    divided = replace(
        op,
        name=name,
        step=step,
        node=node,
        roles=roles,
        reads=reads,
        writes=writes,
        updates=updates,
        accumulates=accumulates,
        overlays=(),
        recompute=None,
    )
    return _with_bytes(divided, buffers, device)


def _with_bytes(op: Op, buffers: Mapping[str, Buffer], device: Device) -> Op:
    """`op` with the bytes of its workspace and those that it reads and writes."""
    nbytes = sum(buffers[b].nbytes for b in (*op.reads, *op.updates, *op.updates, *op.writes))
    return replace(op, nbytes=nbytes, workspace_bytes=device.workspace_bytes(op.record, op.step, op.roles.keys()))
