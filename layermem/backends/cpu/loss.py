"""Losses against targets and labels."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.copy import operand_workspace_bytes, reorder, reorder_operand
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.cpu.support.slices import counted_labels, items_of_batch, rows_of_batch
from layermem.ops import (
    CARRY,
    ContrastiveLoss,
    EuclideanLoss,
    HingeLoss,
    ItemLoss,
    MultinomialLogisticLoss,
    OpRecord,
    SigmoidCrossEntropyLoss,
    SmoothL1Loss,
    Tensor,
)
from layermem.utils.units import aligned

FIX_LABELS = "fix the data, or set ignore_label"


def divisor(normalizer: int | None) -> int:
    """The divisor of the native sum; 0 stands for the number of labels that count."""
    return 0 if normalizer is None else max(1, normalizer)


def whole_count(op: OpRecord, x: Tensor) -> int:
    """Elements of `x` in the whole batch."""
    return rows_of_batch(op, x.count)["of"]


# -- a target for each element -----------------------------------------------------------------------------------------


def sigmoid_loss_bytes(op: SigmoidCrossEntropyLoss) -> int:
    return query("sigmoid_loss_workspace_bytes", whole_count(op, op.x))


def sigmoid_loss_workspace_bytes(op: SigmoidCrossEntropyLoss, roles: Collection[str]) -> int:
    return sigmoid_loss_bytes(op) + operand_workspace_bytes(op.target, op.x)


def sigmoid_loss_carry_bytes(op: SigmoidCrossEntropyLoss, role: str) -> int:
    return query("sigmoid_loss_carry_bytes", whole_count(op, op.x))


@kernel(SigmoidCrossEntropyLoss, "forward", workspace=sigmoid_loss_workspace_bytes, carry=sigmoid_loss_carry_bytes)
def sigmoid_loss_forward(op: SigmoidCrossEntropyLoss, call: CpuCall) -> list[Launch]:
    target, before = reorder_operand(call, "x1", op.target, op.x, sigmoid_loss_bytes(op))
    bound = launch(
        "sigmoid_loss_forward",
        op.x.count,
        loss=call["y0"],
        x=call["x0"],
        target=target,
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        workspace=call.workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.x.count),
    )
    return [*before, bound]


@kernel(SigmoidCrossEntropyLoss, "backward", workspace=sigmoid_loss_workspace_bytes)
def sigmoid_loss_backward(op: SigmoidCrossEntropyLoss, call: CpuCall) -> list[Launch]:
    target, before = reorder_operand(call, "x1", op.target, op.x, sigmoid_loss_bytes(op))
    bound = launch(
        "sigmoid_loss_backward",
        op.x.count,
        dx=call["dx0"],
        x=call["x0"],
        target=target,
        dloss=call["dy0"],
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        accumulate=call.accumulates("dx0"),
        workspace=call.workspace,
        **counted_labels(op, call, op.x.count, op.normalizer, op.ignore_label),
    )
    return [*before, bound]


def euclidean_loss_workspace_bytes(op: EuclideanLoss, roles: Collection[str]) -> int:
    """Workspace of the native sum, then b in the order of a, then its gradient in that order."""
    reordered = operand_workspace_bytes(op.b, op.a)
    gradient = aligned(op.a.nbytes) if reordered and "dx1" in roles else 0
    return query("euclidean_loss_workspace_bytes", op.a.count) + reordered + gradient


def euclidean_loss_carry_bytes(op: EuclideanLoss, role: str) -> int:
    return query("euclidean_loss_carry_bytes", whole_count(op, op.a))


@kernel(EuclideanLoss, "forward", workspace=euclidean_loss_workspace_bytes, carry=euclidean_loss_carry_bytes)
def euclidean_loss_forward(op: EuclideanLoss, call: CpuCall) -> list[Launch]:
    b, before = reorder_operand(call, "x1", op.b, op.a, query("euclidean_loss_workspace_bytes", op.a.count))
    bound = launch(
        "euclidean_loss_forward",
        op.a.count,
        loss=call["y0"],
        a=call["x0"],
        b=b,
        divisor=2 * items_of_batch(op, op.items),
        workspace=call.workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.a.count),
    )
    return [*before, bound]


@kernel(EuclideanLoss, "backward", workspace=euclidean_loss_workspace_bytes)
def euclidean_loss_backward(op: EuclideanLoss, call: CpuCall) -> list[Launch]:
    offset = query("euclidean_loss_workspace_bytes", op.a.count)
    b, before = reorder_operand(call, "x1", op.b, op.a, offset)
    reordered = bool(before) and "dx1" in call
    db = call.workspace + offset + operand_workspace_bytes(op.b, op.a) if reordered else call["dx1"]
    bound = launch(
        "euclidean_loss_backward",
        op.a.count,
        da=call["dx0"],
        db=db,
        a=call["x0"],
        b=b,
        dloss=call["dy0"],
        divisor=items_of_batch(op, op.items),
        accumulate_da=call.accumulates("dx0"),
        accumulate_db=call.accumulates("dx1") and not reordered,
    )
    if not reordered:
        return [*before, bound]
    workspace = call.workspace + offset + aligned(op.a.nbytes)
    return [*before, bound, *reorder(call["dx1"], op.b, db, op.a, workspace, call.accumulates("dx1"))]


def smooth_l1_workspace_bytes(op: SmoothL1Loss, roles: Collection[str]) -> int:
    return query("euclidean_loss_workspace_bytes", op.x.count)


def smooth_l1_carry_bytes(op: SmoothL1Loss, role: str) -> int:
    return query("smooth_l1_loss_carry_bytes", whole_count(op, op.x))


@kernel(SmoothL1Loss, "forward", workspace=smooth_l1_workspace_bytes, carry=smooth_l1_carry_bytes)
def smooth_l1_forward(op: SmoothL1Loss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "smooth_l1_loss_forward",
            op.x.count,
            loss=call["y0"],
            a=call["x0"],
            b=call["x1"],
            inside=call["x2"],
            outside=call["x3"],
            sigma=op.sigma,
            divisor=items_of_batch(op, op.items),
            workspace=call.workspace,
            carry=call["y0" + CARRY],
            **rows_of_batch(op, op.x.count),
        )
    ]


@kernel(SmoothL1Loss, "backward")
def smooth_l1_backward(op: SmoothL1Loss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "smooth_l1_loss_backward",
            op.x.count,
            da=call["dx0"],
            db=call["dx1"],
            a=call["x0"],
            b=call["x1"],
            inside=call["x2"],
            outside=call["x3"],
            dloss=call["dy0"],
            sigma=op.sigma,
            divisor=items_of_batch(op, op.items),
            accumulate_da=call.accumulates("dx0"),
            accumulate_db=call.accumulates("dx1"),
        )
    ]


# -- pairs of items ----------------------------------------------------------------------------------------------------


def pairs_of_items(op: ContrastiveLoss) -> tuple[int, int]:
    """(pairs, elements of one side of a pair)"""
    pairs = op.items if op.batch_slice is None else op.batch_slice.count
    return pairs, op.a.count // pairs


def contrastive_loss_workspace_bytes(op: ContrastiveLoss, roles: Collection[str]) -> int:
    return query("contrastive_loss_workspace_bytes", *pairs_of_items(op))


def contrastive_loss_carry_bytes(op: ContrastiveLoss, role: str) -> int:
    pairs, size = pairs_of_items(op)
    return query("contrastive_loss_carry_bytes", items_of_batch(op, pairs), size)


@kernel(ContrastiveLoss, "forward", workspace=contrastive_loss_workspace_bytes, carry=contrastive_loss_carry_bytes)
def contrastive_loss_forward(op: ContrastiveLoss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "contrastive_loss_forward",
            *pairs_of_items(op),
            loss=call["y0"],
            a=call["x0"],
            b=call["x1"],
            same=call["x2"],
            margin=op.margin,
            legacy=op.legacy,
            divisor=2 * items_of_batch(op, op.items),
            workspace=call.workspace,
            carry=call["y0" + CARRY],
            **rows_of_batch(op, pairs_of_items(op)[0]),
        )
    ]


@kernel(ContrastiveLoss, "backward")
def contrastive_loss_backward(op: ContrastiveLoss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "contrastive_loss_backward",
            *pairs_of_items(op),
            da=call["dx0"],
            db=call["dx1"],
            a=call["x0"],
            b=call["x1"],
            same=call["x2"],
            dloss=call["dy0"],
            margin=op.margin,
            legacy=op.legacy,
            divisor=items_of_batch(op, op.items),
            accumulate_da=call.accumulates("dx0"),
            accumulate_db=call.accumulates("dx1"),
        )
    ]


# -- a label for each item ---------------------------------------------------------------------------------------------


def item_shape(op: ItemLoss) -> tuple[int, int, int]:
    """(items, classes, channels): labels count the elements of an item in Caffe's order, memory is channels-last."""
    return op.items, op.classes, op.x.shape[1] if len(op.x.shape) == 4 else op.classes


def item_loss_workspace_bytes(op: ItemLoss, roles: Collection[str]) -> int:
    return query("item_loss_workspace_bytes", op.items, op.classes)


def item_loss_carry_bytes(op: ItemLoss, role: str) -> int:
    return query("item_loss_carry_bytes", items_of_batch(op, op.items), op.classes)


@kernel(HingeLoss, "forward", workspace=item_loss_workspace_bytes, carry=item_loss_carry_bytes)
def hinge_loss_forward(op: HingeLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "hinge_loss_forward",
        *item_shape(op),
        loss=call["y0"],
        x=call["x0"],
        label=call["x1"],
        squared=op.squared,
        workspace=call.workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.items),
    )
    return [naming_layer(call, bound, FIX_LABELS)]


@kernel(HingeLoss, "backward")
def hinge_loss_backward(op: HingeLoss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "hinge_loss_backward",
            *item_shape(op),
            dx=call["dx0"],
            x=call["x0"],
            label=call["x1"],
            dloss=call["dy0"],
            squared=op.squared,
            accumulate=call.accumulates("dx0"),
            of=items_of_batch(op, op.items),
        )
    ]


@kernel(MultinomialLogisticLoss, "forward", workspace=item_loss_workspace_bytes, carry=item_loss_carry_bytes)
def multinomial_logistic_loss_forward(op: MultinomialLogisticLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "logistic_loss_forward",
        *item_shape(op),
        loss=call["y0"],
        x=call["x0"],
        label=call["x1"],
        workspace=call.workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.items),
    )
    return [naming_layer(call, bound, FIX_LABELS)]


@kernel(MultinomialLogisticLoss, "backward")
def multinomial_logistic_loss_backward(op: MultinomialLogisticLoss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "logistic_loss_backward",
            *item_shape(op),
            dx=call["dx0"],
            x=call["x0"],
            label=call["x1"],
            dloss=call["dy0"],
            accumulate=call.accumulates("dx0"),
            of=items_of_batch(op, op.items),
        )
    ]
