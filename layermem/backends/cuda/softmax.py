"""Softmax, SoftmaxWithLoss and Accuracy: lines of scores, one label for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import FLOAT
from layermem.backends.cuda.labels import divided_by, labels, normalizer, ratio, sum_rows, sum_rows_bytes
from layermem.backends.cuda.launch import (
    THREADS,
    Addresses,
    Launch,
    Workspace,
    ceil_div,
    divider,
    kernel,
    launch,
    workspace_bytes,
)
from layermem.backends.cuda.shape import reorder
from layermem.layers import Tensor

WARPS = 8  # of a block

NOWHERE = {"labels": 0, "error_flag": 0, "classes": 0, "ignore": 0, "has_ignore": 0}


def lines(layer: Any, function: str, *, y: int = 0, x: int = 0, dy: int = 0, each: int = 0, terms: int = 1,
          named: Any = NOWHERE, by: Any = None, accumulate: bool = False) -> Launch:  # fmt: skip
    """One launch over all positions: a warp each where the scores of one lie side by side, else a thread each."""
    positions = layer.outer * layer.inner
    if function != "count_labels":
        function += "_warps" if layer.inner == 1 else "_threads"
    grid = ceil_div(positions, WARPS if function.endswith("_warps") else THREADS)
    return launch(
        "softmax", function, "SoftmaxArgs", grid, y=y, x=x, dy=dy, each=each, labels=named,
        normalizer=by or divided_by(1), by_inner=divider(layer.inner), positions=positions, classes=layer.classes,
        terms=terms, top=getattr(layer, "top_k", 0), accumulate=accumulate,
    )  # fmt: skip


def positions_of(layer: Any) -> Tensor:
    """A blob with one element per position, whose memory is in the order of the scores'."""
    shape = layer.bottoms[0].shape
    return Tensor((*shape[: layer.along], 1, *shape[layer.along + 1 :]))


def labels_in_order(layer: Any, b: Addresses, workspace: Workspace) -> tuple[int, Iterator[Launch]]:
    """Where the labels lie in the order of the positions, and the launches that bring them there."""
    if layer.labels_in_order:
        return b["x1"], iter(())
    copy = workspace.take(FLOAT * layer.bottoms[1].count)
    return copy, reorder(copy, positions_of(layer), b["x1"], layer.bottoms[1])


def label_bytes(layer: Any, workspace: Workspace) -> Workspace:
    labels_in_order(layer, Addresses({}), workspace)
    return workspace


@kernel("Softmax.forward")
def softmax_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield lines(layer, "softmax_forward", y=b["y0"], x=b["x0"])


@kernel("Softmax.backward")
def softmax_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield lines(layer, "softmax_backward", y=b["dx0"], x=b["y0"], dy=b["dy0"], accumulate=b.accumulates("dx0"))


def terms_of(layer: Any) -> int:
    """Numbers kept per position: its loss, and whether it counts where that has to be summed too."""
    return 2 if layer.normalizer is None else 1


@kernel("SoftmaxWithLoss.forward")
def softmax_loss_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace, terms, positions = Workspace(b["workspace"]), terms_of(layer), layer.outer * layer.inner
    found, moving = labels_in_order(layer, b, workspace)
    yield from moving
    each = workspace.take(FLOAT * terms * positions)
    named = labels(layer, b, found, layer.classes)
    yield lines(layer, "softmax_loss_forward", y=b["y1"], x=b["x0"], each=each, terms=terms, named=named)
    sums, summing = sum_rows(each, positions, terms, workspace)
    yield from summing
    yield ratio(b["y0"], sums, normalizer(layer, sums + FLOAT))


@workspace_bytes("SoftmaxWithLoss.forward")
def softmax_loss_forward_bytes(layer: Any, roles: Collection[str]) -> int:
    terms, positions = terms_of(layer), layer.outer * layer.inner
    workspace = label_bytes(layer, Workspace())
    workspace.take(FLOAT * terms * positions)
    return workspace.nbytes + sum_rows_bytes(positions, terms)


@kernel("SoftmaxWithLoss.backward")
def softmax_loss_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace, positions, counted = Workspace(b["workspace"]), layer.outer * layer.inner, 0
    found, moving = labels_in_order(layer, b, workspace)
    yield from moving
    named = labels(layer, b, found, layer.classes)
    if layer.normalizer is None:
        each = workspace.take(FLOAT * positions)
        yield lines(layer, "count_labels", each=each, named=named)
        counted, summing = sum_rows(each, positions, 1, workspace)
        yield from summing
    yield lines(
        layer, "softmax_loss_backward", y=b["dx0"], x=b["x0"], dy=b["dy0"], named=named,
        by=normalizer(layer, counted), accumulate=b.accumulates("dx0"),
    )  # fmt: skip


@workspace_bytes("SoftmaxWithLoss.backward")
def softmax_loss_backward_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace, positions = label_bytes(layer, Workspace()), layer.outer * layer.inner
    if layer.normalizer is not None:
        return workspace.nbytes
    workspace.take(FLOAT * positions)
    return workspace.nbytes + sum_rows_bytes(positions, 1)


@kernel("Accuracy.forward")
def accuracy(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace, positions = Workspace(b["workspace"]), layer.outer * layer.inner
    found, moving = labels_in_order(layer, b, workspace)
    yield from moving
    each = workspace.take(FLOAT * 2 * positions)
    named = labels(layer, b, found, layer.classes)
    yield lines(layer, "accuracy", x=b["x0"], each=each, terms=2, named=named)
    sums, summing = sum_rows(each, positions, 2, workspace)
    yield from summing
    yield ratio(b["y0"], sums, {"counted": sums + FLOAT, "otherwise": 0.0})
    if "y1" in b:
        yield launch(
            "softmax", "class_accuracy", "ClassArgs", layer.classes, y=b["y1"], each=each, labels=named,
            positions=positions,
        )  # fmt: skip


@workspace_bytes("Accuracy.forward")
def accuracy_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace, positions = label_bytes(layer, Workspace()), layer.outer * layer.inner
    workspace.take(FLOAT * 2 * positions)
    return workspace.nbytes + sum_rows_bytes(positions, 2)
