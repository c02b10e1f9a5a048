"""Losses against targets: partial sums and their sum forward, one launch over all elements backward."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel
from layermem.backends.cuda.channel_sums import Columns
from layermem.backends.cuda.copy import reorder
from layermem.backends.cuda.labels import divide_loss, labels, normalizer, sum_rows, sum_rows_bytes
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.cuda.struct_layout import StructValues
from layermem.ops import (
    ContrastiveLoss,
    EuclideanLoss,
    HingeLoss,
    ItemLoss,
    MultinomialLogisticLoss,
    SigmoidCrossEntropyLoss,
    SmoothL1Loss,
    Tensor,
)
from layermem.utils.units import aligned

WARPS = 8  # of a block


def loss_arguments(x: Tensor, call: CudaCall, x1: int, label_struct: StructValues, by: StructValues) -> StructValues:
    """The members of LossArgs that every step has; `x1` is the address of the second bottom in the order of x."""
    per_item = x.count // x.shape[0]
    return {
        "x0": call["x0"], "x1": x1, "dy": call["dy0"], "labels": label_struct, "normalizer": by,
        "by_item": divider(per_item), "by_channels": divider(x.shape[1] if x.interleaved else per_item),
        "count": x.count, "squared": False,
    }  # fmt: skip


def sum_parts(function: str, arguments: StructValues, at: Columns, parts: int) -> Launch:
    return launch(
        "loss",
        function,
        "LossArgs",
        at.grid(at.parts),
        base=arguments,
        parts=parts,
        at=at.struct(),
        dx0=0,
        dx1=0,
        accumulate0=False,
        accumulate1=False,
    )


def gradients(
    function: str, arguments: StructValues, count: int, at: Columns, *, dx0: int, accumulate0: bool, dx1: int = 0,
    accumulate1: bool = False,
) -> Launch:  # fmt: skip
    return launch(
        "loss", function, "LossArgs", ceil_div(count, THREADS), parts=0, at=at.struct(), dx0=dx0, dx1=dx1,
        accumulate0=accumulate0, accumulate1=accumulate1, base=arguments,
    )  # fmt: skip


# -- a target for each element -----------------------------------------------------------------------------------------


def in_order_of(
    x: Tensor, target: Tensor, address: int, workspace: Workspace
) -> tuple[int, list[Launch]]:  # fmt: skip
    """The address of the targets in the order of x's memory, and the launches that copy them there."""
    if x.ordered_like(target):
        return address, []
    copy = workspace.take(x.nbytes)
    return copy, list(reorder(copy, x, address, target))


def reordered_bytes(x: Tensor, target: Tensor) -> int:
    return 0 if x.ordered_like(target) else aligned(x.nbytes)


def parts_workspace_bytes(at: Columns, terms: int) -> int:
    """Partial sums of a loss, and their sums."""
    return aligned(FLOAT * terms * at.parts) + sum_rows_bytes(at.parts, terms)


def euclidean_forward_workspace_bytes(op: EuclideanLoss, roles: Collection[str]) -> int:
    return reordered_bytes(op.a, op.b) + parts_workspace_bytes(Columns(op.a.count, 1), 1)


@kernel(EuclideanLoss, "forward", workspace=euclidean_forward_workspace_bytes)
def euclidean_forward(op: EuclideanLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, at, by = Workspace(call.workspace), Columns(op.a.count, 1), normalizer(op.items)
    b, copies = in_order_of(op.a, op.b, call["x1"], workspace)
    yield from copies
    parts = workspace.take(FLOAT * at.parts)
    yield sum_parts("euclidean_forward", loss_arguments(op.a, call, b, labels(call, call["x1"], 0), by), at, parts)
    total, sums = sum_rows(parts, at.parts, 1, workspace)
    yield from sums
    yield divide_loss(call["y0"], total, by, 0.5)


def euclidean_backward_workspace_bytes(op: EuclideanLoss, roles: Collection[str]) -> int:
    """b in the order of a, then its gradient in that order."""
    return reordered_bytes(op.a, op.b) * (2 if "dx1" in roles else 1)


@kernel(EuclideanLoss, "backward", workspace=euclidean_backward_workspace_bytes)
def euclidean_backward(op: EuclideanLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, at = Workspace(call.workspace), Columns(op.a.count, 1)
    b, copies = in_order_of(op.a, op.b, call["x1"], workspace)
    yield from copies
    reorders = bool(copies) and "dx1" in call
    dx1 = workspace.take(op.a.nbytes) if reorders else call["dx1"]
    arguments = loss_arguments(op.a, call, b, labels(call, call["x1"], 0), normalizer(op.items))
    yield gradients(
        "euclidean_backward", arguments, op.a.count, at, dx0=call["dx0"], accumulate0=call.accumulates("dx0"),
        dx1=dx1, accumulate1=call.accumulates("dx1") and not reorders,
    )  # fmt: skip
    if reorders:
        yield from reorder(call["dx1"], op.b, dx1, op.a, call.accumulates("dx1"))


def sigmoid_forward_workspace_bytes(op: SigmoidCrossEntropyLoss, roles: Collection[str]) -> int:
    return reordered_bytes(op.x, op.target) + parts_workspace_bytes(Columns(op.x.count, 1), 2)


@kernel(SigmoidCrossEntropyLoss, "forward", workspace=sigmoid_forward_workspace_bytes)
def sigmoid_forward(op: SigmoidCrossEntropyLoss, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    target, copies = in_order_of(op.x, op.target, call["x1"], workspace)
    yield from copies
    sums, launches = sum_sigmoid(op, call, target, workspace)
    yield from launches
    yield divide_loss(call["y0"], sums, normalizer(op.normalizer, sums + FLOAT))


def sum_sigmoid(
    op: SigmoidCrossEntropyLoss, call: CudaCall, target: int, workspace: Workspace
) -> tuple[int, list[Launch]]:
    """The address of the loss and of the number of elements that count, and the launches that compute them."""
    at, label_struct = Columns(op.x.count, 1), labels(call, call["x1"], 0, op.ignore_label)
    arguments = loss_arguments(op.x, call, target, label_struct, normalizer(op.normalizer))
    parts = workspace.take(FLOAT * 2 * at.parts)
    first = sum_parts("sigmoid_cross_entropy_forward", arguments, at, parts)
    sums, launches = sum_rows(parts, at.parts, 2, workspace)
    return sums, [first, *launches]


def sigmoid_backward_workspace_bytes(op: SigmoidCrossEntropyLoss, roles: Collection[str]) -> int:
    counting = parts_workspace_bytes(Columns(op.x.count, 1), 2) if op.normalizer is None else 0
    return reordered_bytes(op.x, op.target) + counting


@kernel(SigmoidCrossEntropyLoss, "backward", workspace=sigmoid_backward_workspace_bytes)
def sigmoid_backward(op: SigmoidCrossEntropyLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, counted = Workspace(call.workspace), 0
    target, copies = in_order_of(op.x, op.target, call["x1"], workspace)
    yield from copies
    if op.normalizer is None:
        sums, launches = sum_sigmoid(op, call, target, workspace)
        yield from launches
        counted = sums + FLOAT
    label_struct = labels(call, call["x1"], 0, op.ignore_label)
    arguments = loss_arguments(op.x, call, target, label_struct, normalizer(op.normalizer, counted))
    yield gradients(
        "sigmoid_cross_entropy_backward", arguments, op.x.count, Columns(op.x.count, 1), dx0=call["dx0"],
        accumulate0=call.accumulates("dx0"),
    )  # fmt: skip


def smooth_l1(
    op: SmoothL1Loss, call: CudaCall, step: str, grid: int | tuple[int, int], parts: int, dx0: int, dx1: int
) -> Launch:
    return launch(
        "loss", f"smooth_l1_{step}", "SmoothL1Args", grid, parts=parts, dx0=dx0, dx1=dx1, x0=call["x0"], x1=call["x1"],
        inside=call["x2"], outside=call["x3"], dy=call["dy0"], at=Columns(op.x.count, 1).struct(), count=op.x.count,
        items=op.items, accumulate0=call.accumulates("dx0"), accumulate1=call.accumulates("dx1"),
        sharpness=op.sigma**2,
    )  # fmt: skip


def smooth_l1_workspace_bytes(op: SmoothL1Loss, roles: Collection[str]) -> int:
    return parts_workspace_bytes(Columns(op.x.count, 1), 1)


@kernel(SmoothL1Loss, "forward", workspace=smooth_l1_workspace_bytes)
def smooth_l1_forward(op: SmoothL1Loss, call: CudaCall) -> Iterator[Launch]:
    workspace, at = Workspace(call.workspace), Columns(op.x.count, 1)
    parts = workspace.take(FLOAT * at.parts)
    yield smooth_l1(op, call, "forward", at.grid(at.parts), parts, 0, 0)
    total, sums = sum_rows(parts, at.parts, 1, workspace)
    yield from sums
    yield divide_loss(call["y0"], total, normalizer(op.items))


@kernel(SmoothL1Loss, "backward")
def smooth_l1_backward(op: SmoothL1Loss, call: CudaCall) -> Iterator[Launch]:
    yield smooth_l1(op, call, "backward", ceil_div(op.x.count, THREADS), 0, call["dx0"], call["dx1"])


# -- a label for each item ---------------------------------------------------------------------------------------------


def item_arguments(op: ItemLoss, call: CudaCall, squared: bool) -> StructValues:
    label_struct, by = labels(call, call["x1"], op.classes), normalizer(op.items)
    return {**loss_arguments(op.x, call, call["x1"], label_struct, by), "squared": squared}


def item_forward(function: str, op: ItemLoss, call: CudaCall, at: Columns, squared: bool = False) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    parts = workspace.take(FLOAT * at.parts)
    yield sum_parts(function, item_arguments(op, call, squared), at, parts)
    total, sums = sum_rows(parts, at.parts, 1, workspace)
    yield from sums
    yield divide_loss(call["y0"], total, normalizer(op.items))


def item_backward(function: str, op: ItemLoss, call: CudaCall, at: Columns, squared: bool = False) -> Launch:
    arguments = item_arguments(op, call, squared)
    dx, accumulate = call["dx0"], call.accumulates("dx0")
    return gradients(function, arguments, op.x.count, at, dx0=dx, accumulate0=accumulate)


def hinge_workspace_bytes(op: HingeLoss, roles: Collection[str]) -> int:
    return parts_workspace_bytes(Columns(op.x.count, 1), 1)


@kernel(HingeLoss, "forward", workspace=hinge_workspace_bytes)
def hinge_forward(op: HingeLoss, call: CudaCall) -> Iterator[Launch]:
    yield from item_forward("hinge_forward", op, call, Columns(op.x.count, 1), op.squared)


@kernel(HingeLoss, "backward")
def hinge_backward(op: HingeLoss, call: CudaCall) -> Iterator[Launch]:
    yield item_backward("hinge_backward", op, call, Columns(op.x.count, 1), op.squared)


def multinomial_workspace_bytes(op: MultinomialLogisticLoss, roles: Collection[str]) -> int:
    """A row per item: only the label's score counts."""
    return parts_workspace_bytes(Columns(op.items, 1), 1)


@kernel(MultinomialLogisticLoss, "forward", workspace=multinomial_workspace_bytes)
def multinomial_forward(op: MultinomialLogisticLoss, call: CudaCall) -> Iterator[Launch]:
    yield from item_forward("multinomial_logistic_forward", op, call, Columns(op.items, 1))


@kernel(MultinomialLogisticLoss, "backward")
def multinomial_backward(op: MultinomialLogisticLoss, call: CudaCall) -> Iterator[Launch]:
    yield item_backward("multinomial_logistic_backward", op, call, Columns(op.items, 1))


# -- pairs of items ----------------------------------------------------------------------------------------------------


def contrastive(op: ContrastiveLoss, call: CudaCall, step: str, each: int) -> Launch:
    return launch(
        "loss", f"contrastive_{step}", "ContrastiveArgs", ceil_div(op.items, WARPS), each=each, dx0=call["dx0"],
        dx1=call["dx1"], x0=call["x0"], x1=call["x1"], same=call["x2"], dy=call["dy0"], items=op.items,
        channels=op.item_size, legacy=op.legacy, accumulate0=call.accumulates("dx0"),
        accumulate1=call.accumulates("dx1"), margin=op.margin,
    )  # fmt: skip


def contrastive_workspace_bytes(op: ContrastiveLoss, roles: Collection[str]) -> int:
    return aligned(FLOAT * op.items) + sum_rows_bytes(op.items, 1)


@kernel(ContrastiveLoss, "forward", workspace=contrastive_workspace_bytes)
def contrastive_forward(op: ContrastiveLoss, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    each = workspace.take(FLOAT * op.items)
    yield contrastive(op, call, "forward", each)
    total, sums = sum_rows(each, op.items, 1, workspace)
    yield from sums
    yield divide_loss(call["y0"], total, normalizer(op.items), 0.5)


@kernel(ContrastiveLoss, "backward")
def contrastive_backward(op: ContrastiveLoss, call: CudaCall) -> Iterator[Launch]:
    yield contrastive(op, call, "backward", 0)
