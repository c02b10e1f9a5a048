"""Softmax, losses, and the copies of Concat, Slice and Split."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.errors import InputError
from layermem.runtime.cpu.base import Args, Launch, binds
from layermem.runtime.cpu.elements import copy_unless_same

# -- Softmax and losses ------------------------------------------------------------------------------------------------


def axis(layer: Any) -> Any:
    return cpu.Axis(layer.outer, layer.classes, layer.inner)


@binds("Softmax.forward")
def softmax_forward(a: Args) -> list[Launch]:
    return [cpu.softmax_forward(axis(a.layer), y=a["y0"], x=a["x0"])]


@binds("Softmax.backward")
def softmax_backward(a: Args) -> list[Launch]:
    return [cpu.softmax_backward(axis(a.layer), dx=a["dx0"], y=a["y0"], dy=a["dy0"], accumulate=a.adds("dx0"))]


def divisor(layer: Any) -> int:
    """What the sum is divided by; 0 for the labels that count."""
    return 0 if layer.normalizer is None else max(1, layer.normalizer)


def softmax_loss_scratch(layer: Any, roles: Collection[str]) -> int:
    return int(cpu.softmax_loss_workspace(axis(layer)))


@binds("SoftmaxWithLoss.forward", scratch=softmax_loss_scratch)
def softmax_loss_forward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.labels_in_order:
        return None
    launch = cpu.softmax_loss_forward(
        axis(it), loss=a["y0"], y=a["y1"], x=a["x0"], label=a["x1"], ignore_label=it.ignore_label,
        divisor=divisor(it), scratch=a.scratch,
    )  # fmt: skip
    return [judging(it, launch)]


@binds("SoftmaxWithLoss.backward", scratch=softmax_loss_scratch)
def softmax_loss_backward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.labels_in_order:
        return None
    launch = cpu.softmax_loss_backward(
        axis(it), dx=a["dx0"], x=a["x0"], label=a["x1"], dloss=a["dy0"], ignore_label=it.ignore_label,
        divisor=divisor(it), accumulate=a.adds("dx0"), scratch=a.scratch,
    )  # fmt: skip
    return [judging(it, launch)]


def judging(layer: Any, launch: Launch) -> Launch:
    """A launch whose complaint about a label names the layer."""

    def run() -> None:
        try:
            launch()
        except ValueError as error:
            raise InputError(f"{error}; mend the data, or set ignore_label", layer=layer.name) from None

    return run


def sigmoid_loss_scratch(layer: Any, roles: Collection[str]) -> int:
    return int(cpu.sigmoid_loss_workspace(layer.bottoms[0].count))


@binds("SigmoidCrossEntropyLoss.forward", scratch=sigmoid_loss_scratch)
def sigmoid_loss_forward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.bottoms[1].ordered_like(it.bottoms[0]):
        return None
    return [
        cpu.sigmoid_loss_forward(
            a.count("x0"), loss=a["y0"], x=a["x0"], target=a["x1"], ignore_label=it.ignore_label,
            divisor=divisor(it), scratch=a.scratch,
        )
    ]  # fmt: skip


@binds("SigmoidCrossEntropyLoss.backward", scratch=sigmoid_loss_scratch)
def sigmoid_loss_backward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.bottoms[1].ordered_like(it.bottoms[0]):
        return None
    return [
        cpu.sigmoid_loss_backward(
            a.count("x0"), dx=a["dx0"], x=a["x0"], target=a["x1"], dloss=a["dy0"], ignore_label=it.ignore_label,
            divisor=divisor(it), accumulate=a.adds("dx0"), scratch=a.scratch,
        )
    ]  # fmt: skip


@binds("EuclideanLoss.forward", scratch=lambda layer, roles: cpu.euclidean_loss_workspace(layer.bottoms[0].count))
def euclidean_forward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.bottoms[1].ordered_like(it.bottoms[0]):
        return None
    return [
        cpu.euclidean_loss_forward(
            a.count("x0"), loss=a["y0"], a=a["x0"], b=a["x1"], divisor=2 * it.items, scratch=a.scratch
        )
    ]


@binds("EuclideanLoss.backward")
def euclidean_backward(a: Args) -> list[Launch] | None:
    it = a.layer
    if not it.bottoms[1].ordered_like(it.bottoms[0]):
        return None
    launches: list[Launch] = []
    for dx, mine, other in (("dx0", "x0", "x1"), ("dx1", "x1", "x0")):
        if a.has(dx):
            launches.append(
                cpu.euclidean_loss_backward(
                    a.count("x0"), dx=a[dx], a=a[mine], b=a[other], dloss=a["dy0"], divisor=it.items,
                    accumulate=a.adds(dx),
                )
            )  # fmt: skip
    return launches


# -- copies ------------------------------------------------------------------------------------------------------------


def parts(a: Args, whole: str, pieces: str, gather: bool) -> list[Launch]:
    """Copies between `whole` and its pieces along an axis; `gather` writes the whole."""
    it = a.layer
    tensors = it.bottoms if it.type == "Concat" else it.tops
    total = it.tops[0] if it.type == "Concat" else it.bottoms[0]
    rows, size, inner = total.around(it.along)
    launches: list[Launch] = []
    for i, (tensor, start) in enumerate(zip(tensors, it.starts, strict=True)):
        role = f"{pieces}{i}"
        if not a.has(role):
            continue
        width = tensor.shape[it.along] * inner
        at, pitch = a[whole] + 4 * start * inner, size * inner
        if it.view and a[whole] == a[role] and not a.adds(whole if gather else role):
            continue
        if gather:
            launches.append(
                cpu.copy_rows(rows, width, out=at, out_pitch=pitch, x=a[role], x_pitch=width, accumulate=a.adds(whole))
            )
        else:
            launches.append(
                cpu.copy_rows(rows, width, out=a[role], out_pitch=width, x=at, x_pitch=pitch, accumulate=a.adds(role))
            )
    return launches


@binds("Concat.forward")
def concat_forward(a: Args) -> list[Launch]:
    return parts(a, "y0", "x", gather=True)


@binds("Concat.backward")
def concat_backward(a: Args) -> list[Launch]:
    return parts(a, "dy0", "dx", gather=False)


@binds("Slice.forward")
def slice_forward(a: Args) -> list[Launch]:
    return parts(a, "x0", "y", gather=False)


@binds("Slice.backward")
def slice_backward(a: Args) -> list[Launch]:
    return parts(a, "dx0", "dy", gather=True)


@binds("Split.forward")
def split_forward(a: Args) -> list[Launch]:
    return [launch for i in range(len(a.layer.tops)) if a.has(f"y{i}") for launch in copy_unless_same(a, f"y{i}", "x0")]


@binds("Split.backward")
def split_backward(a: Args) -> list[Launch] | None:
    dys = [a[f"dy{i}"] for i in range(len(a.layer.tops)) if a.has(f"dy{i}")]
    if a.adds("dx0") or len(dys) != len(a.layer.tops):
        return None
    return [cpu.eltwise_sum(a.count("dx0"), y=a["dx0"], xs=dys, coefficients=[1.0] * len(dys))]
