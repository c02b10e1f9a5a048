"""Losses against targets and labels."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.lines import divisor, judging
from layermem.backends.cpu.moves import arranged, arranged_bytes, padded, reordered

# -- a target for each element -----------------------------------------------------------------------------------------


def target(a: Args, at: int) -> tuple[int, list[Launch]]:
    """x1 in the order of x0, in scratch from byte `at` on if need be."""
    x, t = a.layer.bottoms
    return arranged(a, "x1", t, x, at)


def sigmoid_loss_bytes(layer: Any) -> int:
    return int(cpu.sigmoid_loss_workspace(layer.bottoms[0].count))


def sigmoid_loss_scratch(layer: Any, roles: Collection[str]) -> int:
    return sigmoid_loss_bytes(layer) + arranged_bytes(layer.bottoms[1], layer.bottoms[0])


@binds("SigmoidCrossEntropyLoss.forward", scratch=sigmoid_loss_scratch)
def sigmoid_loss_forward(a: Args) -> list[Launch]:
    it = a.layer
    t, before = target(a, sigmoid_loss_bytes(it))
    return [
        *before,
        cpu.sigmoid_loss_forward(
            a.count("x0"), loss=a["y0"], x=a["x0"], target=t, ignore_label=it.ignore_label, divisor=divisor(it),
            scratch=a.scratch,
        ),
    ]  # fmt: skip


@binds("SigmoidCrossEntropyLoss.backward", scratch=sigmoid_loss_scratch)
def sigmoid_loss_backward(a: Args) -> list[Launch]:
    it = a.layer
    t, before = target(a, sigmoid_loss_bytes(it))
    return [
        *before,
        cpu.sigmoid_loss_backward(
            a.count("x0"), dx=a["dx0"], x=a["x0"], target=t, dloss=a["dy0"], ignore_label=it.ignore_label,
            divisor=divisor(it), accumulate=a.adds("dx0"), scratch=a.scratch,
        ),
    ]  # fmt: skip


def euclidean_bytes(layer: Any) -> int:
    return int(cpu.euclidean_loss_workspace(layer.bottoms[0].count))


def euclidean_scratch(layer: Any, roles: Collection[str]) -> int:
    a, b = layer.bottoms
    turned = arranged_bytes(b, a)  # x1 on the way there, dx1 on the way back
    return euclidean_bytes(layer) + turned + (padded(a.nbytes) if turned and "dx1" in roles else 0)


@binds("EuclideanLoss.forward", scratch=euclidean_scratch)
def euclidean_forward(a: Args) -> list[Launch]:
    it = a.layer
    b, before = target(a, euclidean_bytes(it))
    count, by = a.count("x0"), 2 * it.items
    return [*before, cpu.euclidean_loss_forward(count, loss=a["y0"], a=a["x0"], b=b, divisor=by, scratch=a.scratch)]


@binds("EuclideanLoss.backward", scratch=euclidean_scratch)
def euclidean_backward(a: Args) -> list[Launch]:
    it, at = a.layer, euclidean_bytes(a.layer)
    x, t = it.bottoms
    b, before = target(a, at)
    turned = bool(before) and a.has("dx1")
    own = a.scratch + at + arranged_bytes(t, x)  # dx1 in the order of x0
    launch = cpu.euclidean_loss_backward(
        a.count("x0"), da=a["dx0"], db=own if turned else a["dx1"], a=a["x0"], b=b, dloss=a["dy0"], divisor=it.items,
        accumulate_da=a.adds("dx0"), accumulate_db=a.adds("dx1") and not turned,
    )  # fmt: skip
    after = reordered(a["dx1"], t, own, x, a.scratch + at + padded(x.nbytes), a.adds("dx1")) if turned else []
    return [*before, launch, *after]


# -- pairs of items ----------------------------------------------------------------------------------------------------


def item_size(layer: Any) -> int:
    return int(layer.bottoms[0].count // layer.items)


@binds(
    "ContrastiveLoss.forward", scratch=lambda it, roles: int(cpu.contrastive_loss_workspace(it.items, item_size(it)))
)
def contrastive_forward(a: Args) -> list[Launch]:
    it = a.layer
    return [
        cpu.contrastive_loss_forward(
            it.items, item_size(it), loss=a["y0"], a=a["x0"], b=a["x1"], same=a["x2"], margin=it.margin,
            legacy=it.legacy, divisor=2 * it.items, scratch=a.scratch,
        )
    ]  # fmt: skip


@binds("ContrastiveLoss.backward")
def contrastive_backward(a: Args) -> list[Launch]:
    it = a.layer
    return [
        cpu.contrastive_loss_backward(
            it.items, item_size(it), da=a["dx0"], db=a["dx1"], a=a["x0"], b=a["x1"], same=a["x2"], dloss=a["dy0"],
            margin=it.margin, legacy=it.legacy, divisor=it.items, accumulate_da=a.adds("dx0"),
            accumulate_db=a.adds("dx1"),
        )
    ]  # fmt: skip


# -- a label for each item ---------------------------------------------------------------------------------------------


def item_loss(kind: str, kernel: str) -> None:
    """Bind `kind` to the kernels `kernel`_forward and _backward.  Labels count an item's elements in Caffe's order."""

    def geometry(it: Any) -> tuple[int, int, int]:
        shape = it.bottoms[0].shape
        return it.items, it.classes, shape[1] if len(shape) == 4 else it.classes

    def scratch(it: Any, roles: Collection[str]) -> int:
        return int(cpu.item_loss_workspace(it.items, it.classes))

    def norm(it: Any) -> dict[str, bool]:
        return {"squared": getattr(it, "squared", False)}

    @binds(f"{kind}.forward", scratch=scratch)
    def forward(a: Args) -> list[Launch]:
        run = getattr(cpu, f"{kernel}_forward")
        how = {"loss": a["y0"], "x": a["x0"], "label": a["x1"], "scratch": a.scratch}
        return [judging(a.layer, run(*geometry(a.layer), **how, **norm(a.layer)))]

    @binds(f"{kind}.backward")
    def backward(a: Args) -> list[Launch]:
        run = getattr(cpu, f"{kernel}_backward")
        how = {"dx": a["dx0"], "x": a["x0"], "label": a["x1"], "dloss": a["dy0"], "accumulate": a.adds("dx0")}
        return [run(*geometry(a.layer), **how, **norm(a.layer))]


item_loss("HingeLoss", "hinge_loss")
item_loss("MultinomialLogisticLoss", "logistic_loss")
