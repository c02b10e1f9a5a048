"""Weight gradients that are used up while they are made: wgrad of an InnerProduct and its update as one op.

    wgrad             dw = dy' x                      needs x, dy, dw
    update            w, h <- rule(w, h, dw)          needs w, h, dw
    backward_update   both, a few rows of w at a time needs x, dy, w, h: dw is never there as a whole

In nets whose parameters are most of their bytes (AlexNet, VGG) the largest dw is live at the peak.  A fused update is
offered where no other op reads or accumulates dw (as with shared weights, iter_size and clip_gradients), and where it
needs less memory whatever runs beside it: x and dy, which stay live until w has been read, are smaller than dw.  Its
results are those of the two ops, bit for bit.
source  Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO), 2023
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from layermem import ops
from layermem.graph.ops import BACKWARD, UPDATE, Graph, Op
from layermem.layers.fused import Rectified, Summed
from layermem.layers.inner_product import InnerProduct

KERNEL = "InnerProduct.backward_update"


class Device(Protocol):
    fuses: frozenset[str]

    def workspace(self, kernel: str, layer: object, roles: Collection[str], accumulates: Collection[str]) -> int: ...


@dataclass(frozen=True)
class FusedUpdate:
    """What the kernel needs to know: `parameter` is that of the weight's update (graph.train.Parameter), `rule` the
    stem of its kernel."""

    inner: InnerProduct
    parameter: Any
    rule: str


def offer_fused_updates(graph: Graph, device: Device) -> Graph:
    """`graph` with the fused updates that `device` has kernels for."""
    return replace(graph, fused_updates=tuple(_fused_updates(graph, device))) if KERNEL in device.fuses else graph


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
    """One op for `weights` and `update`, which alone touch the gradient between them, if there is such an op and it
    needs less memory."""
    layer = weights.layer.inner if isinstance(weights.layer, (Rectified, Summed)) else weights.layer
    gradient = graph.buffers[weights.roles["dw0"]]
    if not isinstance(layer, InnerProduct) or not layer.by_rows or weights.updates or gradient.persistent:
        return None
    roles = {role: b for role, b in {**weights.roles, **update.roles}.items() if b != gradient.name}
    fused = FusedUpdate(layer, update.layer, update.kernel.split(".")[0])
    assert isinstance(layer.record, ops.InnerProduct) and isinstance(update.record, ops.Update)
    record = ops.InnerProductUpdate(layer.record, update.record)
    workspace = device.workspace(KERNEL, fused, roles.keys(), ())
    if workspace + sum(graph.buffers[b].nbytes for b in weights.reads) > gradient.nbytes:
        return None
    return Op(
        f"{weights.layer.name}.backward_update", BACKWARD, KERNEL, fused, roles, weights.reads,
        tuple(b for b in weights.writes if b != gradient.name), update.updates, workspace=workspace,
        flops=weights.flops + update.flops, nbytes=weights.nbytes + update.nbytes - 2 * gradient.nbytes,
        node=weights.node, covers=(weights.name, update.name), record=record,
        step="backward_update",
    )  # fmt: skip
