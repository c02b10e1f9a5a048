"""Losses against targets: one sum forward, one sweep backward."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import FLOAT, Columns
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
from layermem.backends.cuda.shape import interleaved, reorder

NAMES = {
    "EuclideanLoss": "euclidean",
    "SigmoidCrossEntropyLoss": "sigmoid_cross_entropy",
    "HingeLoss": "hinge",
    "MultinomialLogisticLoss": "multinomial_logistic",
}
FORWARD, BACKWARD = ([f"{name}.{step}" for name in NAMES] for step in ("forward", "backward"))
TARGETS = ("EuclideanLoss", "SigmoidCrossEntropyLoss")  # x1 has an element for each of x0
WARPS = 8  # of a block


def terms_of(layer: Any) -> int:
    return 2 if layer.type == "SigmoidCrossEntropyLoss" else 1


def rows_of(layer: Any) -> int:
    """Of the forward sum: elements, or items where only the label's score counts."""
    return layer.items if layer.type == "MultinomialLogisticLoss" else layer.bottoms[0].count


def targets_move(layer: Any) -> bool:
    return layer.type in TARGETS and not layer.bottoms[0].ordered_like(layer.bottoms[1])


def targets(layer: Any, b: Addresses, workspace: Workspace) -> tuple[int, Iterator[Launch]]:
    """Where x1 lies in the order of x0's memory, and the launches that bring it there."""
    if not targets_move(layer):
        return b["x1"], iter(())
    copy = workspace.take(layer.bottoms[0].nbytes)
    return copy, reorder(copy, layer.bottoms[0], b["x1"], layer.bottoms[1])


def loss(layer: Any, b: Addresses, step: str, x1: int, *, counted: int = 0, **more: Any) -> Launch:
    """`counted`: where the number of elements that count is; `more`: members of LossArgs that a step has."""
    x0 = layer.bottoms[0]
    at = Columns(rows_of(layer), 1)
    known = normalizer(layer, counted) if terms_of(layer) == 2 else divided_by(layer.items)
    per_item = x0.count // x0.shape[0]
    members = {
        "parts": 0, "dx0": 0, "dx1": 0, "x0": b["x0"], "x1": x1, "dy": b["dy0"], "normalizer": known,
        "labels": labels(layer, b, b["x1"], getattr(layer, "classes", 0)), "at": at.struct(),
        "by_item": divider(per_item), "by_channels": divider((interleaved(x0) or (per_item,))[0]), "count": x0.count,
        "squared": getattr(layer, "squared", False), "accumulate0": b.accumulates("dx0"),
        "accumulate1": b.accumulates("dx1"),
    }  # fmt: skip
    grid = at.grid(at.parts) if step == "forward" else ceil_div(x0.count, THREADS)
    return launch("loss", f"{NAMES[layer.type]}_{step}", "LossArgs", grid, **{**members, **more})


@kernel(*FORWARD)
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace, terms, parts = Workspace(b["workspace"]), terms_of(layer), Columns(rows_of(layer), 1).parts
    x1, moving = targets(layer, b, workspace)
    yield from moving
    each = workspace.take(FLOAT * terms * parts)
    yield loss(layer, b, "forward", x1, parts=each)
    sums, summing = sum_rows(each, parts, terms, workspace)
    yield from summing
    by = normalizer(layer, sums + FLOAT) if terms == 2 else divided_by(layer.items)
    yield ratio(b["y0"], sums, by, 0.5 if layer.type == "EuclideanLoss" else 1.0)


@workspace_bytes(*FORWARD)
def forward_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace, parts = Workspace(), Columns(rows_of(layer), 1).parts
    targets(layer, Addresses({}), workspace)
    workspace.take(FLOAT * terms_of(layer) * parts)
    return workspace.nbytes + sum_rows_bytes(parts, terms_of(layer))


@kernel(*BACKWARD)
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace, counted = Workspace(b["workspace"]), 0
    x1, moving = targets(layer, b, workspace)
    yield from moving
    if terms_of(layer) == 2 and layer.normalizer is None:
        parts = Columns(rows_of(layer), 1).parts
        each = workspace.take(FLOAT * 2 * parts)
        yield loss(layer, b, "forward", x1, parts=each)
        sums, summing = sum_rows(each, parts, 2, workspace)
        yield from summing
        counted = sums + FLOAT
    back = "dx1" in b and targets_move(layer)
    dx1 = workspace.take(layer.bottoms[0].nbytes) if back else b["dx1"]
    more = {"accumulate1": False} if back else {}
    yield loss(layer, b, "backward", x1, dx0=b["dx0"], dx1=dx1, counted=counted, **more)
    if back:
        yield from reorder(b["dx1"], layer.bottoms[1], dx1, layer.bottoms[0], b.accumulates("dx1"))


@workspace_bytes(*BACKWARD)
def backward_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace = Workspace()
    targets(layer, Addresses({}), workspace)
    if terms_of(layer) == 2 and layer.normalizer is None:
        parts = Columns(rows_of(layer), 1).parts
        workspace.take(FLOAT * 2 * parts)
        workspace.take(sum_rows_bytes(parts, 2))
    if "dx1" in roles and targets_move(layer):
        workspace.take(layer.bottoms[0].nbytes)
    return workspace.nbytes


# -- ContrastiveLoss ---------------------------------------------------------------------------------------------------


def contrastive(layer: Any, b: Addresses, step: str, each: int) -> Launch:
    return launch(
        "loss", f"contrastive_{step}", "ContrastiveArgs", ceil_div(layer.items, WARPS), each=each, dx0=b["dx0"],
        dx1=b["dx1"], x0=b["x0"], x1=b["x1"], same=b["x2"], dy=b["dy0"], items=layer.items,
        channels=layer.bottoms[0].count // layer.items, legacy=layer.legacy, accumulate0=b.accumulates("dx0"),
        accumulate1=b.accumulates("dx1"), margin=layer.margin,
    )  # fmt: skip


@kernel("ContrastiveLoss.forward")
def contrastive_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace = Workspace(b["workspace"])
    each = workspace.take(FLOAT * layer.items)
    yield contrastive(layer, b, "forward", each)
    total, summing = sum_rows(each, layer.items, 1, workspace)
    yield from summing
    yield ratio(b["y0"], total, divided_by(layer.items), 0.5)


@workspace_bytes("ContrastiveLoss.forward")
def contrastive_forward_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace = Workspace()
    workspace.take(FLOAT * layer.items)
    return workspace.nbytes + sum_rows_bytes(layer.items, 1)


@kernel("ContrastiveLoss.backward")
def contrastive_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield contrastive(layer, b, "backward", 0)
