"""DetectionOutput, whose rows are as many as layermem plans: those that hold no box follow the others and are -1.

    boxes     decoded from locations and priors: [items, location classes, priors, 4]
    best      of each class but the background the top_k scores, in their order, and their boxes
    kept      those that NonMaxSuppression selects; all others get a score of minus infinity
    rows      of each item the keep_top_k best, in the order of classes and scores; then of all items together

B is items x classes without the background, k the candidates of a class, K the rows of an item.
"""

from __future__ import annotations

import numpy as np

from layermem import ops
from layermem.errors import InputError
from layermem.integrations.onnx.graph import Piece
from layermem.integrations.onnx.registry import exports
from layermem.layers.detection import LARGEST_FLOAT
from layermem.ops.detection import DETECTION, UNUSED

NEVER_ETA = 0.5  # largest threshold that eta does not lower


@exports("DetectionOutput", operators="Exp, TopK, GatherND, NonMaxSuppression, ScatterND, Where and others")
def detection_output(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.DetectionOutput)
    if record.eta < 1 and record.threshold > NEVER_ETA:
        raise InputError(
            f"lowers its nms_threshold, {record.threshold:g}, by eta, which NonMaxSuppression of ONNX does not do; "
            "remove eta, or export the net up to its bottoms"
        )
    classes = [c for c in range(record.classes) if c != record.background]
    boxes, scores = _best(piece, record, classes)
    rows, used = _rows(piece, record, classes, boxes, _kept(piece, record, len(classes), boxes, scores))
    if record.items > 1:
        rows = _used_first(piece, record, rows, used)
    piece.emit("Reshape", rows, piece.shape_constant(record.y.shape), top=0)


def _decoded(piece: Piece, record: ops.DetectionOutput) -> str:
    """Boxes [items, priors, location classes, 4]."""
    n, p, loc_classes = record.items, record.priors, record.loc_classes
    codes = piece.emit("Reshape", piece.inputs[0], piece.constant("codes", (n, p, loc_classes, 4), "int64"))
    table = piece.emit("Reshape", piece.inputs[2], piece.constant("table", (2, p, 1, 4), "int64"))
    priors, variances = _halves(piece, table, 1, axis=0)
    values = codes if record.in_target else piece.emit("Mul", codes, variances)
    low, high = _halves(piece, priors, 2, axis=3)
    size = piece.emit("Sub", high, low)
    half = piece.constant("half", 0.5)
    if record.code == "CENTER_SIZE":
        moves, growths = _halves(piece, values, 2, axis=3)
        center = piece.emit(
            "Add", piece.emit("Mul", moves, size), piece.emit("Mul", piece.emit("Add", low, high), half)
        )
        reach = piece.emit("Mul", piece.emit("Mul", piece.emit("Exp", growths), size), half)
        corners = (piece.emit(op, center, reach) for op in ("Sub", "Add"))
        boxes = piece.emit("Concat", *corners, axis=3)
    else:
        sized = record.code == "CORNER_SIZE"
        moves = piece.emit("Mul", values, piece.emit("Concat", size, size, axis=3)) if sized else values
        boxes = piece.emit("Add", priors, moves)
    return piece.emit("Clip", boxes, piece.constant("low", 0.0), piece.constant("high", 1.0)) if record.clip else boxes


def _halves(piece: Piece, value: str, size: int, *, axis: int) -> list[str]:
    """The two halves of `value` along an axis, each of `size`."""
    names = [piece.temporary(f"part_{i}") for i in range(2)]
    sizes = piece.constant(f"two_of_{size}", [size] * 2, "int64")
    piece.graph.add(piece.temporary("Split"), "Split", [value, sizes], names, {"axis": axis})
    return names


def _best(piece: Piece, record: ops.DetectionOutput, classes: list[int]) -> tuple[str, str]:
    """Boxes [B, k, 4] and scores [B, k] of the candidates of each class, the best first."""
    n, p, count, k = record.items, record.priors, len(classes), record.candidates
    chosen = piece.constant("classes", classes, "int64")
    boxes = piece.emit("Transpose", _decoded(piece, record), perm=[0, 2, 1, 3])
    if record.loc_classes == 1:
        boxes = piece.emit("Expand", boxes, piece.constant("of_classes", (n, count, p, 4), "int64"))
    else:
        boxes = piece.emit("Gather", boxes, chosen, axis=1)
    boxes = piece.emit("Reshape", boxes, piece.constant("boxes", (n * count, p, 4), "int64"))
    scores = piece.emit("Reshape", piece.inputs[1], piece.constant("all", (n, p, record.classes), "int64"))
    scores = piece.emit("Gather", piece.emit("Transpose", scores, perm=[0, 2, 1]), chosen, axis=1)
    scores = piece.emit("Reshape", scores, piece.constant("scores", (n * count, p), "int64"))
    values, indices = _top(piece, scores, k)
    indices = piece.emit("Reshape", indices, piece.constant("indices", (n * count, k, 1), "int64"))
    return piece.emit("GatherND", boxes, indices, batch_dims=1), values


def _top(piece: Piece, value: str, count: int, *, largest: bool = True) -> tuple[str, str]:
    """The `count` largest or smallest values along the last axis, in their order, and their indices."""
    names = [piece.temporary(name) for name in ("values", "indices")]
    amount = piece.constant(f"top_{count}", [count], "int64")
    piece.graph.add(piece.temporary("TopK"), "TopK", [value, amount], names, {"axis": -1, "largest": int(largest)})
    return names[0], names[1]


def _kept(piece: Piece, record: ops.DetectionOutput, count: int, boxes: str, scores: str) -> str:
    """The scores [items, classes k] of boxes that stay; those of others are minus infinity."""
    n, k = record.items, record.candidates
    options = [piece.constant("all_of_them", [k], "int64"), piece.constant("overlap", [min(record.threshold, 1.0)])]
    if record.least_score > -LARGEST_FLOAT:
        options.append(piece.constant("least", [record.least_score]))
    grid = piece.emit("Reshape", scores, piece.constant("grid", (n * count, 1, k), "int64"))
    low, high = _halves(piece, boxes, 2, axis=2)
    upright = piece.emit("Concat", low, piece.emit("Max", low, high), axis=2)  # ONNX would turn a box that is reversed
    selected = piece.emit("NonMaxSuppression", upright, grid, *options)
    places = piece.emit("Gather", selected, piece.constant("row_and_box", [0, 2], "int64"), axis=1)
    nothing = piece.constant("nothing", np.full((n * count, k), -np.inf))
    kept = piece.emit("ScatterND", nothing, places, piece.emit("GatherND", scores, places))
    return piece.emit("Reshape", kept, piece.constant("of_items", (n, count * k), "int64"))


def _rows(piece: Piece, record: ops.DetectionOutput, classes: list[int], boxes: str, kept: str) -> tuple[str, str]:
    """The rows [items, K, 7] of each item, with UNUSED where there is no box; and which rows have one [items, K, 1]."""
    n, k, rows, count = record.items, record.candidates, record.of_item, len(classes)
    scores, places = _top(piece, kept, rows)
    last = piece.constant("last", count * k, "int64")
    least = piece.constant("lowest", -LARGEST_FLOAT)
    in_order = piece.emit("Where", piece.emit("GreaterOrEqual", scores, least), places, last)
    _, order = _top(piece, in_order, rows, largest=False)
    scores, places = (piece.emit("GatherElements", value, order, axis=1) for value in (scores, places))
    column = piece.constant("column", (n, rows, 1), "int64")
    scores, places = (piece.emit("Reshape", value, column) for value in (scores, places))
    every = piece.emit("Reshape", boxes, piece.constant("boxes_of_items", (n, count * k, 4), "int64"))
    labels = piece.emit("Div", places, piece.constant("candidates", k, "int64"))
    columns = [
        piece.constant("items", np.broadcast_to(np.arange(n)[:, None, None], (n, rows, 1))),
        piece.emit("Gather", piece.constant("labels", classes), labels, axis=0),
        scores,
        piece.emit("GatherND", every, places, batch_dims=1),
    ]
    used = piece.emit("GreaterOrEqual", scores, least)
    return piece.emit("Where", used, piece.emit("Concat", *columns, axis=2), piece.constant("unused", UNUSED)), used


def _used_first(piece: Piece, record: ops.DetectionOutput, rows: str, used: str) -> str:
    """The rows [items K, 7] of all items, those that hold a box first."""
    count = record.items * record.of_item
    flat = piece.emit("Reshape", used, piece.constant("flat", (count,), "int64"))
    now, later = (
        piece.constant(name, np.arange(count) + i * count, "int64") for i, name in enumerate(("now", "later"))
    )
    _, order = _top(piece, piece.emit("Where", flat, now, later), count, largest=False)
    table = piece.emit("Reshape", rows, piece.constant("table_of_rows", (count, DETECTION), "int64"))
    return piece.emit("Gather", table, order, axis=0)
