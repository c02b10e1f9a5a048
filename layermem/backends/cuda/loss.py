"""Losses against targets: forward computes partial sums and their sum, backward is one launch over all elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel, whole_batch
from layermem.backends.cuda.copy import reorder
from layermem.backends.cuda.support.channel_sums import Columns
from layermem.backends.cuda.support.labels import divide_loss, labels, normalizer, sum_rows, sum_rows_bytes
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.struct_layout import StructValues
from layermem.ops import (
    BatchSlice,
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
    """The fields of LossArgs that every step has; `x1` is the address of the second bottom in the order of x."""
    per_item = x.count // x.shape[0]
    return {
        "x0": call["x0"],
        "x1": x1,
        "dy": call["dy0"],
        "labels": label_struct,
        "normalizer": by,
        "by_item": divider(per_item),
        "by_channels": divider(x.shape[1] if x.interleaved else per_item),
        "count": x.count,
        "squared": False,
    }


class LossParts(NamedTuple):
    """Sums of `terms` numbers over the parts of `at`; for a slice of a batch, the sums of all slices so far.

    address     [at.parts][terms]
    open_sums   address of the sums of the part that a later slice completes
    """

    at: Columns
    terms: int
    address: int
    open_sums: int

    @classmethod
    def of(cls, at: Columns, terms: int, workspace: Workspace, carry: int) -> LossParts:
        """Parts in the workspace, or in the `carry` of slices."""
        if at.here:
            return cls(at, terms, *at.carried(carry, terms))
        return cls(at, terms, workspace.take(FLOAT * terms * at.parts), 0)

    def total(self, workspace: Workspace) -> tuple[int, list[Launch]]:
        """The address of the sums over all parts, and the launches that compute them; none before the last slice."""
        if not self.at.ends_here:
            return 0, []
        return sum_rows(self.address, Columns(self.at.parts, self.terms), workspace)


def sum_parts(function: str, arguments: StructValues, parts: LossParts) -> Iterator[Launch]:
    for grid, at in parts.at.runs(parts.open_sums):
        yield launch(
            "loss",
            function,
            "LossArgs",
            grid,
            base=arguments,
            parts=parts.address,
            at=at,
            dx0=0,
            dx1=0,
            accumulate0=False,
            accumulate1=False,
        )


def divide_total(
    parts: LossParts, call: CudaCall, workspace: Workspace, by: StructValues, factor: float = 1.0
) -> Iterator[Launch]:
    """Write y0 once the sum is complete."""
    total, sums = parts.total(workspace)
    yield from sums
    if "y0" in call:
        yield divide_loss(call["y0"], total, by, factor)


def gradients(
    function: str,
    arguments: StructValues,
    count: int,
    at: Columns,
    *,
    dx0: int,
    accumulate0: bool,
    dx1: int = 0,
    accumulate1: bool = False,
) -> Launch:
    return launch(
        "loss",
        function,
        "LossArgs",
        ceil_div(count, THREADS),
        parts=0,
        at=at.struct(),
        dx0=dx0,
        dx1=dx1,
        accumulate0=accumulate0,
        accumulate1=accumulate1,
        base=arguments,
    )


# -- a target for each element -----------------------------------------------------------------------------------------


def in_order_of(x: Tensor, target: Tensor, address: int, workspace: Workspace) -> tuple[int, list[Launch]]:
    """The address of the targets in the order of x's memory, and the launches that copy them there."""
    if x.ordered_like(target):
        return address, []
    copy = workspace.take(x.nbytes)
    return copy, list(reorder(copy, x, address, target))


def reordered_bytes(x: Tensor, target: Tensor) -> int:
    return 0 if x.ordered_like(target) else aligned(x.nbytes)


def parts_workspace_bytes(at: Columns, terms: int) -> int:
    """Bytes of the partial sums of a loss, unless slices carry them, and of their sums."""
    parts = 0 if at.here else aligned(FLOAT * terms * at.parts)
    return parts + sum_rows_bytes(Columns(at.parts, terms))


def elements(x: Tensor, batch_slice: BatchSlice | None) -> Columns:
    """All elements of x as the rows of one column."""
    return Columns(x.count, 1).within(batch_slice)


def euclidean_forward_workspace_bytes(op: EuclideanLoss, roles: Collection[str]) -> int:
    return reordered_bytes(op.a, op.b) + parts_workspace_bytes(elements(op.a, op.batch_slice), 1)


def euclidean_carry_bytes(op: EuclideanLoss, role: str) -> int:
    return elements(op.a, op.batch_slice).carry_bytes()


@kernel(EuclideanLoss, "forward", workspace=euclidean_forward_workspace_bytes, carry=euclidean_carry_bytes)
def euclidean_forward(op: EuclideanLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, by = Workspace(call.workspace), normalizer(op.items)
    b, copies = in_order_of(op.a, op.b, call["x1"], workspace)
    yield from copies
    parts = LossParts.of(elements(op.a, op.batch_slice), 1, workspace, call.carry("y0"))
    yield from sum_parts("euclidean_forward", loss_arguments(op.a, call, b, labels(call, call["x1"], 0), by), parts)
    yield from divide_total(parts, call, workspace, by, 0.5)


def euclidean_backward_workspace_bytes(op: EuclideanLoss, roles: Collection[str]) -> int:
    """Bytes for b in the order of a, and for its gradient in that order."""
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
        "euclidean_backward",
        arguments,
        op.a.count,
        at,
        dx0=call["dx0"],
        accumulate0=call.accumulates("dx0"),
        dx1=dx1,
        accumulate1=call.accumulates("dx1") and not reorders,
    )
    if reorders:
        yield from reorder(call["dx1"], op.b, dx1, op.a, call.accumulates("dx1"))


def sigmoid_forward_workspace_bytes(op: SigmoidCrossEntropyLoss, roles: Collection[str]) -> int:
    return reordered_bytes(op.x, op.target) + parts_workspace_bytes(elements(op.x, op.batch_slice), 2)


def sigmoid_carry_bytes(op: SigmoidCrossEntropyLoss, role: str) -> int:
    return elements(op.x, op.batch_slice).carry_bytes(2)


@kernel(SigmoidCrossEntropyLoss, "forward", workspace=sigmoid_forward_workspace_bytes, carry=sigmoid_carry_bytes)
def sigmoid_forward(op: SigmoidCrossEntropyLoss, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    target, copies = in_order_of(op.x, op.target, call["x1"], workspace)
    yield from copies
    sums, launches = sum_sigmoid(op, call, call["x0"], target, workspace)
    yield from launches
    if "y0" in call:
        yield divide_loss(call["y0"], sums, normalizer(op.normalizer, sums + FLOAT))


def sum_sigmoid(
    op: SigmoidCrossEntropyLoss, call: CudaCall, x: int, target: int, workspace: Workspace
) -> tuple[int, list[Launch]]:
    """The address of the loss and of the number of counted elements, and the launches that compute them."""
    label_struct = labels(call, target, 0, op.ignore_label)
    arguments = {**loss_arguments(op.x, call, target, label_struct, normalizer(op.normalizer)), "x0": x}
    parts = LossParts.of(elements(op.x, op.batch_slice), 2, workspace, call.carry("y0"))
    over_parts = sum_parts("sigmoid_cross_entropy_forward", arguments, parts)
    sums, launches = parts.total(workspace)
    return sums, [*over_parts, *launches]


def count_targets(
    op: SigmoidCrossEntropyLoss, call: CudaCall, target: int, workspace: Workspace
) -> tuple[int, list[Launch]]:
    """The address of the number of counted targets in the whole batch, and the launches that count them."""
    if op.batch_slice is None:
        sums, launches = sum_sigmoid(op, call, call["x0"], target, workspace)
        return sums + FLOAT, launches
    whole = of_whole_batch(op)
    targets, copies = in_order_of(whole.x, whole.target, call["x1.whole"], workspace)
    sums, launches = sum_sigmoid(whole, call, targets, targets, workspace)  # the count does not depend on scores
    return sums + FLOAT, [*copies, *launches]


def of_whole_batch(op: SigmoidCrossEntropyLoss) -> SigmoidCrossEntropyLoss:
    return replace(
        op, x=whole_batch(op.x, op.batch_slice), target=whole_batch(op.target, op.batch_slice), batch_slice=None
    )


def sigmoid_backward_workspace_bytes(op: SigmoidCrossEntropyLoss, roles: Collection[str]) -> int:
    if op.normalizer is not None:
        return reordered_bytes(op.x, op.target)
    whole = of_whole_batch(op)
    copies = reordered_bytes(whole.x, whole.target) if op.batch_slice is not None else 0
    return reordered_bytes(op.x, op.target) + copies + parts_workspace_bytes(elements(whole.x, None), 2)


@kernel(SigmoidCrossEntropyLoss, "backward", workspace=sigmoid_backward_workspace_bytes)
def sigmoid_backward(op: SigmoidCrossEntropyLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, counted = Workspace(call.workspace), 0
    target, copies = in_order_of(op.x, op.target, call["x1"], workspace)
    yield from copies
    if op.normalizer is None:
        counted, launches = count_targets(op, call, target, workspace)
        yield from launches
    label_struct = labels(call, call["x1"], 0, op.ignore_label)
    arguments = loss_arguments(op.x, call, target, label_struct, normalizer(op.normalizer, counted))
    yield gradients(
        "sigmoid_cross_entropy_backward",
        arguments,
        op.x.count,
        Columns(op.x.count, 1),
        dx0=call["dx0"],
        accumulate0=call.accumulates("dx0"),
    )


def smooth_l1(
    op: SmoothL1Loss,
    call: CudaCall,
    step: str,
    grid: int | tuple[int, int],
    parts: int,
    at: StructValues,
    dx0: int,
    dx1: int,
) -> Launch:
    return launch(
        "loss",
        f"smooth_l1_{step}",
        "SmoothL1Args",
        grid,
        parts=parts,
        dx0=dx0,
        dx1=dx1,
        x0=call["x0"],
        x1=call["x1"],
        inside=call["x2"],
        outside=call["x3"],
        dy=call["dy0"],
        at=at,
        count=op.x.count,
        items=op.items,
        accumulate0=call.accumulates("dx0"),
        accumulate1=call.accumulates("dx1"),
        sharpness=op.sigma**2,
    )


def smooth_l1_workspace_bytes(op: SmoothL1Loss, roles: Collection[str]) -> int:
    return parts_workspace_bytes(elements(op.x, op.batch_slice), 1)


def smooth_l1_carry_bytes(op: SmoothL1Loss, role: str) -> int:
    return elements(op.x, op.batch_slice).carry_bytes()


@kernel(SmoothL1Loss, "forward", workspace=smooth_l1_workspace_bytes, carry=smooth_l1_carry_bytes)
def smooth_l1_forward(op: SmoothL1Loss, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    parts = LossParts.of(elements(op.x, op.batch_slice), 1, workspace, call.carry("y0"))
    for grid, at in parts.at.runs(parts.open_sums):
        yield smooth_l1(op, call, "forward", grid, parts.address, at, 0, 0)
    yield from divide_total(parts, call, workspace, normalizer(op.items))


@kernel(SmoothL1Loss, "backward")
def smooth_l1_backward(op: SmoothL1Loss, call: CudaCall) -> Iterator[Launch]:
    grid, at = ceil_div(op.x.count, THREADS), Columns(op.x.count, 1).struct()
    yield smooth_l1(op, call, "backward", grid, 0, at, call["dx0"], call["dx1"])


# -- a label for each item ---------------------------------------------------------------------------------------------


def all_items(op: ItemLoss | ContrastiveLoss) -> int:
    """Items of the whole batch, which the loss is divided by."""
    return op.items if op.batch_slice is None else op.items // op.batch_slice.count * op.batch_slice.items


def item_arguments(op: ItemLoss, call: CudaCall, squared: bool) -> StructValues:
    label_struct, by = labels(call, call["x1"], op.classes), normalizer(all_items(op))
    return {**loss_arguments(op.x, call, call["x1"], label_struct, by), "squared": squared}


def item_forward(function: str, op: ItemLoss, call: CudaCall, at: Columns, squared: bool = False) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    parts = LossParts.of(at, 1, workspace, call.carry("y0"))
    yield from sum_parts(function, item_arguments(op, call, squared), parts)
    yield from divide_total(parts, call, workspace, normalizer(all_items(op)))


def item_backward(function: str, op: ItemLoss, call: CudaCall, at: Columns, squared: bool = False) -> Launch:
    arguments = item_arguments(op, call, squared)
    dx, accumulate = call["dx0"], call.accumulates("dx0")
    return gradients(function, arguments, op.x.count, at, dx0=dx, accumulate0=accumulate)


def hinge_workspace_bytes(op: HingeLoss, roles: Collection[str]) -> int:
    return parts_workspace_bytes(elements(op.x, op.batch_slice), 1)


def hinge_carry_bytes(op: HingeLoss, role: str) -> int:
    return elements(op.x, op.batch_slice).carry_bytes()


@kernel(HingeLoss, "forward", workspace=hinge_workspace_bytes, carry=hinge_carry_bytes)
def hinge_forward(op: HingeLoss, call: CudaCall) -> Iterator[Launch]:
    yield from item_forward("hinge_forward", op, call, elements(op.x, op.batch_slice), op.squared)


@kernel(HingeLoss, "backward")
def hinge_backward(op: HingeLoss, call: CudaCall) -> Iterator[Launch]:
    yield item_backward("hinge_backward", op, call, Columns(op.x.count, 1), op.squared)


def items_of(op: MultinomialLogisticLoss | ContrastiveLoss) -> Columns:
    """Columns with a row per item."""
    return Columns(op.items, 1).within(op.batch_slice)


def items_carry_bytes(op: MultinomialLogisticLoss | ContrastiveLoss, role: str) -> int:
    return items_of(op).carry_bytes()


def multinomial_workspace_bytes(op: MultinomialLogisticLoss, roles: Collection[str]) -> int:
    """Bytes for one number per item, since only the label's score contributes to the loss."""
    return parts_workspace_bytes(items_of(op), 1)


@kernel(MultinomialLogisticLoss, "forward", workspace=multinomial_workspace_bytes, carry=items_carry_bytes)
def multinomial_forward(op: MultinomialLogisticLoss, call: CudaCall) -> Iterator[Launch]:
    yield from item_forward("multinomial_logistic_forward", op, call, items_of(op))


@kernel(MultinomialLogisticLoss, "backward")
def multinomial_backward(op: MultinomialLogisticLoss, call: CudaCall) -> Iterator[Launch]:
    yield item_backward("multinomial_logistic_backward", op, call, Columns(op.items, 1))


# -- pairs of items ----------------------------------------------------------------------------------------------------


def contrastive(op: ContrastiveLoss, call: CudaCall, step: str, each: int) -> Launch:
    return launch(
        "loss",
        f"contrastive_{step}",
        "ContrastiveArgs",
        ceil_div(op.items, WARPS),
        each=each,
        dx0=call["dx0"],
        dx1=call["dx1"],
        x0=call["x0"],
        x1=call["x1"],
        same=call["x2"],
        dy=call["dy0"],
        items=op.items,
        of_items=all_items(op),
        channels=op.item_size,
        legacy=op.legacy,
        accumulate0=call.accumulates("dx0"),
        accumulate1=call.accumulates("dx1"),
        margin=op.margin,
    )


def contrastive_workspace_bytes(op: ContrastiveLoss, roles: Collection[str]) -> int:
    return aligned(FLOAT * op.items) + sum_rows_bytes(items_of(op))


@kernel(ContrastiveLoss, "forward", workspace=contrastive_workspace_bytes, carry=items_carry_bytes)
def contrastive_forward(op: ContrastiveLoss, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    each = workspace.take(FLOAT * op.items)
    yield contrastive(op, call, "forward", each)
    total, sums = sum_rows(each, items_of(op), workspace, call.carry("y0"))
    yield from sums
    if "y0" in call:
        yield divide_loss(call["y0"], total, normalizer(all_items(op)), 0.5)


@kernel(ContrastiveLoss, "backward")
def contrastive_backward(op: ContrastiveLoss, call: CudaCall) -> Iterator[Launch]:
    yield contrastive(op, call, "backward", 0)
