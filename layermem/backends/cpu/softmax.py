"""Softmax, its loss, and Accuracy: scores of classes along one axis."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.copy import operand_workspace_bytes, reorder_operand
from layermem.backends.cpu.loss import FIX_LABELS, divisor
from layermem.backends.cpu.support.launch import Axis, launch, query
from layermem.backends.cpu.support.slices import counted_labels, rows_of_batch
from layermem.ops import CARRY, Accuracy, InfogainLoss, Scores, Softmax, SoftmaxLoss
from layermem.utils.units import aligned


def axis(op: Scores) -> Axis:
    return (op.outer, op.classes, op.inner)


def whole_axis(op: Scores) -> Axis:
    """The axis of classes in the whole batch."""
    return (rows_of_batch(op, op.outer)["of"], op.classes, op.inner)


@kernel(Softmax, "forward")
def softmax_forward(op: Softmax, call: CpuCall) -> list[Launch]:
    return [launch("softmax_forward", axis(op), y=call["y0"], x=call["x0"])]


@kernel(Softmax, "backward")
def softmax_backward(op: Softmax, call: CpuCall) -> list[Launch]:
    accumulate = call.accumulates("dx0")
    return [launch("softmax_backward", axis(op), dx=call["dx0"], y=call["y0"], dy=call["dy0"], accumulate=accumulate)]


def softmax_loss_workspace_bytes(op: SoftmaxLoss, roles: Collection[str]) -> int:
    return query("softmax_loss_workspace_bytes", whole_axis(op)) + operand_workspace_bytes(op.label, op.positions)


def softmax_loss_carry_bytes(op: SoftmaxLoss, role: str) -> int:
    return query("softmax_loss_carry_bytes", whole_axis(op))


@kernel(SoftmaxLoss, "forward", workspace=softmax_loss_workspace_bytes, carry=softmax_loss_carry_bytes)
def softmax_loss_forward(op: SoftmaxLoss, call: CpuCall) -> list[Launch]:
    offset = query("softmax_loss_workspace_bytes", whole_axis(op))
    label, before = reorder_operand(call, "x1", op.label, op.positions, offset)
    bound = launch(
        "softmax_loss_forward",
        axis(op),
        loss=call["y0"],
        y=call["y1"],
        x=call["x0"],
        label=label,
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        workspace=call.workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.outer),
    )
    return [*before, naming_layer(call, bound, FIX_LABELS)]


@kernel(SoftmaxLoss, "backward", workspace=softmax_loss_workspace_bytes)
def softmax_loss_backward(op: SoftmaxLoss, call: CpuCall) -> list[Launch]:
    offset = query("softmax_loss_workspace_bytes", whole_axis(op))
    label, before = reorder_operand(call, "x1", op.label, op.positions, offset)
    bound = launch(
        "softmax_loss_backward",
        axis(op),
        dx=call["dx0"],
        x=call["x0"],
        label=label,
        dloss=call["dy0"],
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        accumulate=call.accumulates("dx0"),
        workspace=call.workspace,
        **counted_labels(op, call, op.positions.count, op.normalizer, op.ignore_label),
    )
    return [*before, naming_layer(call, bound, FIX_LABELS)]


# -- InfogainLoss ------------------------------------------------------------------------------------------------------
#
# The softmax is computed first, in the workspace unless the op writes it.


def infogain_workspace_bytes(op: InfogainLoss, roles: Collection[str]) -> int:
    """Workspace of the softmax, the labels in order, and the kernels."""
    kernels = query("infogain_loss_workspace_bytes", whole_axis(op))
    return aligned(op.x.nbytes) + operand_workspace_bytes(op.label, op.positions) + kernels


def infogain_carry_bytes(op: InfogainLoss, role: str) -> int | None:
    """Bytes to carry; kernels of a slice take contiguous classes of a position."""
    return query("infogain_loss_carry_bytes", whole_axis(op)) if op.inner == 1 else None


def infogain_operands(op: InfogainLoss, call: CpuCall) -> tuple[int, int, int, list[Launch]]:
    """Addresses of the softmax, the labels and the kernels' workspace, and the launches that compute the first two."""
    offset = aligned(op.x.nbytes)
    shares = call["y1"] or call.workspace
    label, before = reorder_operand(call, "x1", op.label, op.positions, offset)
    workspace = call.workspace + offset + operand_workspace_bytes(op.label, op.positions)
    return shares, label, workspace, [*before, launch("softmax_forward", axis(op), y=shares, x=call["x0"])]


@kernel(InfogainLoss, "forward", workspace=infogain_workspace_bytes, carry=infogain_carry_bytes)
def infogain_loss_forward(op: InfogainLoss, call: CpuCall) -> list[Launch]:
    shares, label, workspace, before = infogain_operands(op, call)
    bound = launch(
        "infogain_loss_forward",
        axis(op),
        loss=call["y0"],
        p=shares,
        label=label,
        matrix=call["x2"],
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        workspace=workspace,
        carry=call["y0" + CARRY],
        **rows_of_batch(op, op.positions.count),
    )
    return [*before, naming_layer(call, bound, FIX_LABELS)]


@kernel(InfogainLoss, "backward", workspace=infogain_workspace_bytes)
def infogain_loss_backward(op: InfogainLoss, call: CpuCall) -> list[Launch]:
    shares, label, workspace, before = infogain_operands(op, call)
    bound = launch(
        "infogain_loss_backward",
        axis(op),
        dx=call["dx0"],
        p=shares,
        label=label,
        matrix=call["x2"],
        dloss=call["dy0"],
        ignore_label=op.ignore_label,
        divisor=divisor(op.normalizer),
        accumulate=call.accumulates("dx0"),
        workspace=workspace,
        **counted_labels(op, call, op.positions.count, op.normalizer, op.ignore_label),
    )
    return [*before, naming_layer(call, bound, FIX_LABELS)]


# -- Accuracy ----------------------------------------------------------------------------------------------------------


def accuracy_workspace_bytes(op: Accuracy, roles: Collection[str]) -> int:
    return query("accuracy_workspace_bytes", axis(op), "y1" in roles) + operand_workspace_bytes(op.label, op.positions)


@kernel(Accuracy, "forward", workspace=accuracy_workspace_bytes)
def accuracy_forward(op: Accuracy, call: CpuCall) -> list[Launch]:
    offset = query("accuracy_workspace_bytes", axis(op), "y1" in call)
    label, before = reorder_operand(call, "x1", op.label, op.positions, offset)
    bound = launch(
        "accuracy",
        axis(op),
        y=call["y0"],
        by_class=call["y1"],
        x=call["x0"],
        label=label,
        ignore_label=op.ignore_label,
        top_k=op.top_k,
        workspace=call.workspace,
    )
    return [*before, naming_layer(call, bound, FIX_LABELS)]
