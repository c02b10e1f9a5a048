"""Softmax, SoftmaxLoss and Accuracy: a row of scores per position, and one label for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel, whole_batch
from layermem.backends.cuda.copy import reorder
from layermem.backends.cuda.support.channel_sums import Columns
from layermem.backends.cuda.support.labels import NO_LABELS, divide_loss, labels, normalizer, sum_rows, sum_rows_bytes
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.backends.cuda.support.strided_index import select_axes, strided_index
from layermem.backends.struct_layout import StructValues
from layermem.ops import Accuracy, InfogainLoss, Scores, Softmax, SoftmaxLoss, Tensor
from layermem.utils.units import aligned

WARPS = 8  # of a block
ONE = normalizer(1)


def positions(op: Scores) -> int:
    return op.outer * op.inner


def arguments(
    op: Scores,
    *,
    y: int = 0,
    x: int = 0,
    dy: int = 0,
    each: int = 0,
    terms: int = 1,
    label_struct: StructValues = NO_LABELS,
    by: StructValues = ONE,
    top_k: int = 0,
    accumulate: bool = False,
) -> StructValues:
    """The fields of SoftmaxArgs."""
    return {
        "y": y, "x": x, "dy": dy, "each": each, "labels": label_struct, "normalizer": by,
        "by_inner": divider(op.inner), "positions": positions(op), "classes": op.classes, "terms": terms, "top": top_k,
        "accumulate": accumulate,
    }  # fmt: skip


def grid_of(op: Scores, function: str) -> int:
    """Blocks over all positions: a warp per position if `function` works by warps, otherwise a thread."""
    return ceil_div(positions(op), WARPS if function.endswith("_warps") else THREADS)


def scores(op: Scores, function: str, **values: Any) -> Launch:
    """One launch over all positions, with the values of `arguments`."""
    return launch("softmax", function, "SoftmaxArgs", grid_of(op, function), base=arguments(op, **values))


def by_team(op: Scores, function: str) -> str:
    """The kernel with a warp per position if the scores of a position are contiguous, otherwise with a thread."""
    return f"{function}_warps" if op.inner == 1 else f"{function}_threads"


@kernel(Softmax, "forward")
def softmax_forward(op: Softmax, call: CudaCall) -> Iterator[Launch]:
    yield scores(op, by_team(op, "softmax_forward"), y=call["y0"], x=call["x0"])


@kernel(Softmax, "backward")
def softmax_backward(op: Softmax, call: CudaCall) -> Iterator[Launch]:
    accumulate = call.accumulates("dx0")
    yield scores(
        op, by_team(op, "softmax_backward"), y=call["dx0"], x=call["y0"], dy=call["dy0"], accumulate=accumulate
    )


# -- labels ------------------------------------------------------------------------------------------------------------


def labels_in_order(
    op: SoftmaxLoss | InfogainLoss | Accuracy, call: CudaCall, workspace: Workspace, role: str = "x1"
) -> tuple[StructValues, list[Launch]]:
    """The labels in the order of the positions' memory, and the launches that copy them there."""
    address, copies = call[role], list[Launch]()
    if not op.labels_in_order:
        address = workspace.take(op.label.nbytes)
        copies = list(reorder(address, op.positions, call[role], op.label))
    return labels(call, address, op.classes, op.ignore_label), copies


def label_bytes(op: SoftmaxLoss | InfogainLoss | Accuracy) -> int:
    return 0 if op.labels_in_order else aligned(op.label.nbytes)


def rows(op: Scores, terms: int) -> Columns:
    """Columns with `terms` numbers per position of the whole batch."""
    return Columns(positions(op), terms).within(op.batch_slice)


def rows_workspace_bytes(op: Scores, terms: int) -> int:
    """Bytes of `terms` numbers per position, and of their sums."""
    return aligned(FLOAT * terms * positions(op)) + sum_rows_bytes(rows(op, terms))


def count_labels(
    op: SoftmaxLoss | InfogainLoss, call: CudaCall, label_struct: StructValues, workspace: Workspace
) -> tuple[int, list[Launch]]:
    """The address of the number of counted labels in the whole batch, and the launches that count them."""
    whole, copies = of_whole_batch(op), list[Launch]()
    if op.batch_slice is not None:
        label_struct, copies = labels_in_order(whole, call, workspace, "x1.whole")
    each = workspace.take(FLOAT * positions(whole))
    count = scores(whole, "count_labels", each=each, label_struct=label_struct)
    counted, launches = sum_rows(each, rows(whole, 1), workspace)
    return counted, [*copies, count, *launches]


def count_bytes(op: SoftmaxLoss | InfogainLoss) -> int:
    """Bytes of the workspace of count_labels."""
    if op.normalizer is not None:
        return 0
    whole = of_whole_batch(op)
    return (label_bytes(whole) if op.batch_slice is not None else 0) + rows_workspace_bytes(whole, 1)


def of_whole_batch(op: SoftmaxLoss | InfogainLoss) -> SoftmaxLoss | InfogainLoss:
    return replace(
        op, x=whole_batch(op.x, op.batch_slice), label=whole_batch(op.label, op.batch_slice), batch_slice=None
    )


# -- SoftmaxLoss -------------------------------------------------------------------------------------------------------


def terms_of(op: SoftmaxLoss | InfogainLoss) -> int:
    """Numbers per position: its loss, and whether it counts, if that has to be summed too."""
    return 2 if op.normalizer is None else 1


def loss_carry_bytes(op: SoftmaxLoss | InfogainLoss, role: str) -> int:
    return rows(op, terms_of(op)).carry_bytes()


def loss_of(op: SoftmaxLoss | InfogainLoss, call: CudaCall, each: int, workspace: Workspace) -> Iterator[Launch]:
    """Compute y0 from the numbers of all positions; for slices, in the last one."""
    sums, launches = sum_rows(each, rows(op, terms_of(op)), workspace, call.carry("y0"))
    yield from launches
    if "y0" in call:
        yield divide_loss(call["y0"], sums, normalizer(op.normalizer, sums + FLOAT))


def loss_forward_workspace_bytes(op: SoftmaxLoss, roles: Collection[str]) -> int:
    return label_bytes(op) + rows_workspace_bytes(op, terms_of(op))


@kernel(SoftmaxLoss, "forward", workspace=loss_forward_workspace_bytes, carry=loss_carry_bytes)
def softmax_loss_forward(op: SoftmaxLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, terms = Workspace(call.workspace), terms_of(op)
    label_struct, copies = labels_in_order(op, call, workspace)
    yield from copies
    each = workspace.take(FLOAT * terms * positions(op))
    yield scores(
        op,
        by_team(op, "softmax_loss_forward"),
        y=call["y1"],
        x=call["x0"],
        each=each,
        terms=terms,
        label_struct=label_struct,
    )
    yield from loss_of(op, call, each, workspace)


def loss_backward_workspace_bytes(op: SoftmaxLoss, roles: Collection[str]) -> int:
    return label_bytes(op) + count_bytes(op)


@kernel(SoftmaxLoss, "backward", workspace=loss_backward_workspace_bytes)
def softmax_loss_backward(op: SoftmaxLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, counted = Workspace(call.workspace), 0
    label_struct, copies = labels_in_order(op, call, workspace)
    yield from copies
    if op.normalizer is None:
        counted, launches = count_labels(op, call, label_struct, workspace)
        yield from launches
    yield scores(
        op,
        by_team(op, "softmax_loss_backward"),
        y=call["dx0"],
        x=call["x0"],
        dy=call["dy0"],
        label_struct=label_struct,
        by=normalizer(op.normalizer, counted),
        accumulate=call.accumulates("dx0"),
    )


# -- InfogainLoss ------------------------------------------------------------------------------------------------------


def infogain(op: InfogainLoss, step: str, matrix: int, row_sums: int = 0, **values: Any) -> Launch:
    function = by_team(op, f"infogain_loss_{step}")
    return launch(
        "softmax",
        function,
        "InfogainArgs",
        grid_of(op, function),
        of=arguments(op, **values),
        matrix=matrix,
        row_sums=row_sums,
    )


def infogain_forward_workspace_bytes(op: InfogainLoss, roles: Collection[str]) -> int:
    probabilities = 0 if "y1" in roles else aligned(op.x.nbytes)
    return probabilities + label_bytes(op) + rows_workspace_bytes(op, terms_of(op))


@kernel(InfogainLoss, "forward", workspace=infogain_forward_workspace_bytes, carry=loss_carry_bytes)
def infogain_loss_forward(op: InfogainLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, terms = Workspace(call.workspace), terms_of(op)
    probabilities = call["y1"] or workspace.take(op.x.nbytes)
    yield scores(op, by_team(op, "softmax_forward"), y=probabilities, x=call["x0"])
    label_struct, copies = labels_in_order(op, call, workspace)
    yield from copies
    each = workspace.take(FLOAT * terms * positions(op))
    yield infogain(op, "forward", call["x2"], x=probabilities, each=each, terms=terms, label_struct=label_struct)
    yield from loss_of(op, call, each, workspace)


def infogain_backward_workspace_bytes(op: InfogainLoss, roles: Collection[str]) -> int:
    return aligned(op.x.nbytes) + aligned(FLOAT * op.classes) + label_bytes(op) + count_bytes(op)


@kernel(InfogainLoss, "backward", workspace=infogain_backward_workspace_bytes)
def infogain_loss_backward(op: InfogainLoss, call: CudaCall) -> Iterator[Launch]:
    workspace, counted = Workspace(call.workspace), 0
    probabilities, row_sums = workspace.take(op.x.nbytes), workspace.take(FLOAT * op.classes)
    yield scores(op, by_team(op, "softmax_forward"), y=probabilities, x=call["x0"])
    matrix = Tensor((op.classes, op.classes))
    yield launch(
        "reduction",
        "reduce_sum",
        "ReduceSumArgs",
        op.classes,
        y=row_sums,
        x=call["x2"],
        b=0,
        outer=strided_index(select_axes(matrix, [0])),
        inner=strided_index(select_axes(matrix, [1])),
        terms=op.classes,
        accumulate=False,
        factor=1.0,
    )
    label_struct, copies = labels_in_order(op, call, workspace)
    yield from copies
    if op.normalizer is None:
        counted, launches = count_labels(op, call, label_struct, workspace)
        yield from launches
    yield infogain(
        op,
        "backward",
        call["x2"],
        row_sums,
        y=call["dx0"],
        x=probabilities,
        dy=call["dy0"],
        label_struct=label_struct,
        by=normalizer(op.normalizer, counted),
        accumulate=call.accumulates("dx0"),
    )


# -- Accuracy ----------------------------------------------------------------------------------------------------------


def accuracy_workspace_bytes(op: Accuracy, roles: Collection[str]) -> int:
    return label_bytes(op) + rows_workspace_bytes(op, 2)


@kernel(Accuracy, "forward", workspace=accuracy_workspace_bytes)
def accuracy_forward(op: Accuracy, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    label_struct, copies = labels_in_order(op, call, workspace)
    yield from copies
    each = workspace.take(FLOAT * 2 * positions(op))
    yield scores(
        op, by_team(op, "accuracy"), x=call["x0"], each=each, terms=2, label_struct=label_struct, top_k=op.top_k
    )
    sums, launches = sum_rows(each, rows(op, 2), workspace)
    yield from launches
    yield divide_loss(call["y0"], sums, normalizer(None, sums + FLOAT))
    if "y1" in call:
        yield launch(
            "softmax",
            "class_accuracy",
            "ClassArgs",
            op.classes,
            y=call["y1"],
            each=each,
            labels=label_struct,
            positions=positions(op),
        )
