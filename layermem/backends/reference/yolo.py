"""YOLO: boxes are matched and compared in float32 for all blob types, so that all devices decide alike."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.errors import InputError
from layermem.ops import GridDetections, GridLoss, RegionLoss
from layermem.ops.detection import DETECTION, UNUSED
from layermem.ops.yolo import GRID_TRUTH

WARM_UP_SCALE = 0.01


def sigmoid(x: Array) -> Array:
    """The sigmoid, computed in float64."""
    with np.errstate(over="ignore"):
        values: Array = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)
    return values


def by_cell(x: Array, anchors: int) -> Array:
    """A blob of predictions as [items, row, column, anchor, number]."""
    items, channels, rows, columns = x.shape
    return np.moveaxis(x.reshape(items, anchors, channels // anchors, rows, columns), (1, 2), (3, 4))


def decode(cells: Array, anchors: Array, divisor: float) -> Array:
    """Boxes [.., 4] of predictions [items, side, side, anchors, ..]: centre and size, float32."""
    x, side = cells[..., :4].astype(np.float32), np.float32(cells.shape[2])
    at = np.arange(cells.shape[2], dtype=np.float32)
    with np.errstate(over="ignore"):
        size = np.exp(x[..., 2:].astype(np.float64)).astype(np.float32) * anchors.astype(np.float32)
    centers = sigmoid(x[..., :2])
    left = (at[:, None] + centers[..., 0]) / side
    top = (at[:, None, None] + centers[..., 1]) / side
    return np.concatenate([left[..., None], top[..., None], size / np.float32(divisor)], axis=-1)


def overlap(a: Array, b: Array) -> Array:
    """Intersection over union of boxes given by centre and size, broadcast against each other."""
    half = np.float32(0.5)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        low = np.maximum(a[..., :2] - a[..., 2:] * half, b[..., :2] - b[..., 2:] * half)
        high = np.minimum(a[..., :2] + a[..., 2:] * half, b[..., :2] + b[..., 2:] * half)
        size = high - low
        common = size[..., 0] * size[..., 1]
        shares: Array = common / (a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - common)
    return np.where((size > 0).all(axis=-1), shares, np.float32(0))


# -- RegionLoss --------------------------------------------------------------------------------------------------------


def rows_of(op: RegionLoss | GridLoss, truth: Array, item: int, layer: str) -> Array:
    """The true boxes of an item; InputError for a box outside of all cells or without a valid class."""
    unused = np.flatnonzero(truth[:, 3] == 0)
    rows = truth[: unused[0]] if len(unused) else truth
    for label, x, y, w, h in rows:
        if not (np.isfinite([w, h]).all() and 0 <= x < 1 and 0 <= y < 1 and w > 0 and h > 0):
            raise InputError(
                f"reads a true box of item {item} with its center at {x:.9g}, {y:.9g} and of size {w:.9g} x {h:.9g}; "
                "centers are from 0 up to, but not including, 1, and sizes above 0, or a width of 0 behind the last "
                "box; fix the data",
                layer=layer,
            )
        if not -1 < label < op.classes:
            raise InputError(
                f"reads a true box of label {label:.9g}, but has {op.classes} classes: 0 to {op.classes - 1}; fix the "
                "data",
                layer=layer,
            )
    return rows


def region_gradients(op: RegionLoss, call: ReferenceCall) -> Array:
    """The gradients d as [items, row, column, anchor, number]."""
    x = by_cell(call["x0"], len(op.anchors))
    truth = call["x1"].reshape(op.items, op.rows, GRID_TRUTH)
    anchors, boxes = np.array(op.anchors), decode(x, np.array(op.anchors), op.side)
    warm = op.warm_up > 0 and call.context["step"] < op.warm_up
    d = np.zeros(x.shape, x.dtype)
    center, objectness = sigmoid(x[..., :2]), sigmoid(x[..., 4])
    slope = objectness * (1 - objectness)
    d[..., 4] = op.noobject_scale * objectness * slope
    if warm:
        d[..., :2] = -WARM_UP_SCALE * (0.5 - center) * center * (1 - center)
        d[..., 2:4] = WARM_UP_SCALE * x[..., 2:4]
    for n in range(op.items):
        rows = rows_of(op, truth[n], n, call.layer)
        true_boxes = rows[:, 1:].astype(np.float32)
        if len(rows):
            shares = overlap(boxes[n][..., None, :], true_boxes)
            d[n, ..., 4] = np.where(np.fmax.reduce(shares, axis=-1) > np.float32(op.threshold), 0, d[n, ..., 4])
        for row, true_box in zip(rows, true_boxes, strict=True):
            i, j = (int(v * np.float32(op.side)) for v in true_box[:2])
            k = match(op, boxes[n, j, i], anchors, true_box)
            at = (n, j, i, k)
            share = float(overlap(boxes[at], true_box))
            scale = op.coord_scale * (1 if op.rescore else 2 - row[3] * row[4])
            c, o = center[at], objectness[at]
            d[at][:2] = -scale * (row[1:3] * op.side - (i, j) - c) * c * (1 - c)
            d[at][2:4] = -scale * (np.log(row[3:] * op.side / anchors[k]) - x[at][2:4])
            d[at][4] = -op.object_scale * ((share if op.rescore else 1) - o) * slope[at]
            powers = np.exp(x[at][5:] - x[at][5:].max())
            d[at][5:] = op.class_scale * (powers / powers.sum() - (np.arange(op.classes) == int(row[0])))
    return d


def match(op: RegionLoss, boxes: Array, anchors: Array, true_box: Array) -> int:
    """The index of the anchor of a cell, with these boxes, that a true box takes."""
    return most_alike((anchors.astype(np.float32) / np.float32(op.side)) if op.bias_match else boxes[:, 2:], true_box)


def most_alike(sizes: Array, true_box: Array) -> int:
    """The index of the size that overlaps the true box's most, both with the same centre; the first among equals."""
    about = np.array([0, 0, *true_box[2:]], np.float32)
    shares = overlap(np.concatenate([np.zeros_like(sizes), sizes], axis=-1), about)
    return int(np.where(np.isnan(shares), -1, shares).argmax())


@kernel(RegionLoss, "forward")
def region_loss_forward(op: RegionLoss, call: ReferenceCall) -> None:
    call["y0"][...] = np.square(region_gradients(op, call)).sum() / op.items


@kernel(RegionLoss, "backward")
def region_loss_backward(op: RegionLoss, call: ReferenceCall) -> None:
    d = np.moveaxis(region_gradients(op, call), (3, 4), (1, 2)) * (call["dy0"] / op.items)
    call["dx0"][...] = d.reshape(call["dx0"].shape)


# -- GridLoss ----------------------------------------------------------------------------------------------------------


def grid_gradients(op: GridLoss, call: ReferenceCall) -> tuple[Array, Array]:
    """The gradients d as [items, row, column, anchor, number], and the derivatives of the values."""
    x = by_cell(call["x0"], len(op.mask))
    truth = call["x1"].reshape(op.items, op.rows, GRID_TRUTH)
    anchors = np.array(op.anchors)
    own = anchors[list(op.mask)]
    boxes, values = decode(x, own, op.divisor), sigmoid(x)
    slopes = values * (1 - values)
    values[..., 2:4], slopes[..., 2:4] = x[..., 2:4], 1
    d = np.zeros(x.shape, x.dtype)
    d[..., 4] = values[..., 4]
    for n in range(op.items):
        rows = rows_of(op, truth[n], n, call.layer)
        true_boxes = rows[:, 1:].astype(np.float32)
        if len(rows):
            shares = overlap(boxes[n][..., None, :], true_boxes)
            d[n, ..., 4] = np.where(np.fmax.reduce(shares, axis=-1) > np.float32(op.threshold), 0, d[n, ..., 4])
        taken: set[tuple[int, ...]] = set()
        for row, true_box in zip(rows, true_boxes, strict=True):
            best = most_alike(anchors.astype(np.float32) / np.float32(op.divisor), true_box)
            if best not in op.mask:
                continue
            i, j = (int(v * np.float32(op.side)) for v in true_box[:2])
            at = (n, j, i, op.mask.index(best))
            target = np.concatenate([row[1:3] * op.side - (i, j), np.log(row[3:] * op.divisor / anchors[best])])
            d[at][:4] = -op.coord_scale * (2 - row[3] * row[4]) * (target - values[at][:4])
            d[at][4] = (values[at][4] - 1) * (op.object_scale if op.logistic else 1)
            if at not in taken:
                d[at][5:] = op.class_scale * values[at][5:]
            d[at][5 + int(row[0])] = op.class_scale * (values[at][5 + int(row[0])] - 1)
            taken.add(at)
    return d, slopes


@kernel(GridLoss, "forward")
def grid_loss_forward(op: GridLoss, call: ReferenceCall) -> None:
    call["y0"][...] = np.square(grid_gradients(op, call)[0]).sum() / op.items


@kernel(GridLoss, "backward")
def grid_loss_backward(op: GridLoss, call: ReferenceCall) -> None:
    d, slopes = grid_gradients(op, call)
    d = np.moveaxis(d * slopes if op.logistic else d, (3, 4), (1, 2)) * (call["dy0"] / op.items)
    call["dx0"][...] = d.reshape(call["dx0"].shape)


# -- GridDetections ----------------------------------------------------------------------------------------------------


def candidates(op: GridDetections, call: ReferenceCall, item: int) -> tuple[Array, Array, Array]:
    """Boxes [k, 4], scores and labels of the predictions of an item, each with its best class."""
    every = []
    for t, (anchors, divisor) in enumerate(zip(op.anchors, op.divisors, strict=True)):
        x = by_cell(call[f"x{t}"][item : item + 1].astype(np.float32), len(anchors))
        boxes = decode(x, np.array(anchors), divisor).reshape(-1, 4)
        x = x.reshape(len(boxes), -1)
        labels = x[:, 5:].argmax(axis=1)
        best = x[np.arange(len(x)), 5 + labels]
        if op.softmax:
            share = (1 / np.exp(x[:, 5:].astype(np.float64) - best[:, None]).sum(axis=1)).astype(np.float32)
        else:
            share = sigmoid(best)
        every.append((boxes, share * sigmoid(x[:, 4]), labels + 1))
    return tuple(np.concatenate(parts) for parts in zip(*every, strict=True))  # type: ignore[return-value]


@kernel(GridDetections, "forward")
def grid_detections_forward(op: GridDetections, call: ReferenceCall) -> None:
    rows: list[tuple[float, ...]] = []
    for item in range(op.items):
        boxes, scores, labels = candidates(op, call, item)
        least, threshold = np.float32(op.least_score), np.float32(op.threshold)
        order = np.flatnonzero((scores >= least) if op.softmax else (scores > least))
        kept: list[int] = []
        for i in order[np.argsort(-scores[order], kind="stable")]:
            if not kept or not (overlap(boxes[i], boxes[kept]) >= threshold).any():
                kept.append(int(i))
        for i in kept:
            half = boxes[i, 2:] * np.float32(0.5)
            rows.append((item, labels[i], scores[i], *(boxes[i, :2] - half), *(boxes[i, :2] + half)))
    y = call["y0"].reshape(-1, DETECTION)
    y[...] = UNUSED
    if rows:
        y[: len(rows)] = rows
