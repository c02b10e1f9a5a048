"""Weight gradients that are used up while they are made: wgrad of an InnerProduct and its update as one op.

    wgrad             dw = dy' x                      needs x, dy, dw
    update            w, h <- rule(w, h, dw)          needs w, h, dw
    backward_update   both, a few rows of w at a time needs x, dy, w, h: dw is never there as a whole

In nets whose parameters are most of their bytes (AlexNet, VGG) the largest dw is live at the peak.  A fused update is
offered where no other op reads or accumulates dw (as with shared weights, iter_size and clip_gradients); its results
are those of the two ops, bit for bit.  planning/fused_updates.py says which of them save memory.
source  Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO), 2023
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layermem.graph.op_builder import Device
from layermem.graph.ops import BACKWARD, UPDATE, Graph, Op
from layermem.ops import InnerProduct, InnerProductUpdate, Update


def offer_fused_updates(graph: Graph, device: Device) -> Graph:
    """`graph` with the fused updates that `device` has kernels for."""
    return replace(graph, fused_updates=tuple(_fused_updates(graph, device)))


def _fused_updates(graph: Graph, device: Device) -> Iterator[Op]:
    touched: dict[str, list[Op]] = {}
    for op in graph.ops:
        for buffer in op.touches:
            touched.setdefault(buffer, []).append(op)
    for update in graph.of_kind(UPDATE):
        gradient = update.roles.get("dw0", "")
        weights = touched.get(gradient, [update])[0]
        if touched.get(gradient) == [weights, update] and weights.roles.get("dw0") == gradient:
            fused = _fused_update(graph, device, weights, update)
            if fused is not None:
                yield fused


def _fused_update(graph: Graph, device: Device, weights: Op, update: Op) -> Op | None:
    """One op for `weights` and `update`, which alone touch the gradient between them, if the device has such an op."""
    product, rule = weights.record, update.record
    gradient = graph.buffers[weights.roles["dw0"]]
    if not isinstance(product, InnerProduct) or not isinstance(rule, Update):
        return None
    if not product.by_rows or weights.updates or gradient.persistent or product.part is not None:
        return None  # of a slice of the batch, the gradient is carried to the next one
    record = InnerProductUpdate(product, rule)
    if record.fusion not in device.fusions:
        return None
    roles = {role: b for role, b in {**weights.roles, **update.roles}.items() if b != gradient.name}
    workspace_bytes = device.workspace_bytes(record, "backward_update", roles.keys())
    name = ".backward_update".join(weights.name.rsplit(".wgrad", 1))
    return Op(
        name,
        BACKWARD,
        record,
        "backward_update",
        roles,
        weights.reads,
        tuple(b for b in weights.writes if b != gradient.name),
        update.updates,
        workspace_bytes=workspace_bytes,
        flops=weights.flops + update.flops,
        nbytes=weights.nbytes + update.nbytes - 2 * gradient.nbytes,
        node=weights.node,
        covers=(weights.name, update.name),
        layer_name=weights.layer_name,
        layer_type=weights.layer_type,
        layers=weights.layers,
        turns=weights.turns,
    )
