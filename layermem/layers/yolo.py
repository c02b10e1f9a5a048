"""Layers of grid detectors (YOLO): the losses and the detections of versions 2 and 3.

ops/yolo.py defines a prediction: a box, its objectness o, and scores of classes.

RegionLoss

    x0 predictions [N, A (5 + C), S, S], x1 truth [N, R, 5] -> y a scalar
    A anchors (`biases`, in cells), C = num_class; a row of truth is (label, center x, center y, width, height) in
    images, labels from 0 on; the first row of width 0 ends those of its item

background  o is drawn to 0 by noobject_scale, unless the prediction overlaps a true box by more than thresh
true box    takes the most similar anchor of the cell of its center (with bias_match: 0 the most similar prediction);
            if two boxes take one prediction, the later counts.  There
              x, y     are drawn to the center in the cell by s, and w, h to ln(size S / anchor);
                       s = coord_scale, without rescore times 2 - width height
              o        is drawn to the overlap of prediction and box, without rescore to 1, by object_scale
              classes  softmax loss by class_scale
warm-up     for the first 12800 / N steps of training all other predictions are drawn to their anchors by 0.01
gradient    d = -scale (target - value) value' of each number, value' = 1 for w, h and classes; dx0 = dy d / N
top         y = sum(d^2) / N, as darknet prints it.  Its derivative is not dx0: d is the gradient of
            scale (target - value)^2 / 2 with the targets held, and of the softmax loss
devices     reference and cpu; nets with it are planned for cuda, and refused before they run there
memory      stashes nothing: backward finds the targets again from both bottoms; dx0 may overlay x0, since each
            prediction's gradient needs no other prediction once true boxes have theirs
source      region_loss_layer.cpp of eric612/MobileNet-YOLO

Yolov3
    Likewise for one of several grids, with these differences.  Anchors are in pixels of images of anchors_scale S
    pixels; those of the grid are `mask` of all `biases`.
    true box    takes the most similar of all anchors, if that is one of the grid
                  x, y, w, h   by s = coord_scale (2 - width height);   o  is drawn to 1
                  classes      a sigmoid each; the labels of all boxes of a prediction are drawn to 1
    background  o is drawn to 0;   there is no warm-up
    gradient    value' = 1 for all numbers: the gradient of cross entropies, and of squares for w and h.  With
                use_logic_gradient value' is the derivative, d of o is times object_scale, and y is the sum of the
                squares of d / value'
    source      yolov3_layer.cpp of eric612/MobileNet-YOLO, which draws the label of a second box of one prediction away
                from 1

Yolov3DetectionOutput
    x0, x1, .. predictions of several grids -> y [1, 1, K, 7]: item, label, score, left, top, right, bottom
    Score = o sigmoid(class), above confidence_threshold; labels from 1 on; without boxes that a better one of their
    item, of any class, overlaps by nms_threshold or more.  Grid t has the anchors that its part of `mask` names, in
    pixels of images of anchors_scale[t] S pixels.
    rows      The fork's K is the number of boxes found.  Here it is the number of predictions.  Rows that hold no box
              follow the others and are -1
    memory    stashes nothing and has no gradient
    source    yolov3_detection_output_layer.cpp of eric612/MobileNet-YOLO, which takes the boxes of all items for one's

YoloDetectionOutput
    likewise with one grid, or two with the same anchors, which are in cells.  Score = o softmax(classes), of
    confidence_threshold or more.    source    yolo_detection_output_layer.cpp of eric612/MobileNet-YOLO
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Message, Step, layer
from layermem.layers.detection import finite
from layermem.layers.loss import SCALAR
from layermem.ops.yolo import GRID_BOX, GRID_TRUTH, Anchors
from layermem.proto.schema import TRAIN

WARM_UP_ITEMS = 12800


def anchors_of(p: Message, block: str) -> Anchors:
    """The `biases` in pairs."""
    values = tuple(p.biases)
    if not values or len(values) % 2 or not all(math.isfinite(v) and v > 0 for v in values):
        raise InputError(
            f"has biases {', '.join(f'{v:g}' for v in values) or 'of no anchor'} in its {block}; give the width and "
            "height of each anchor, above 0"
        )
    return tuple(zip(values[::2], values[1::2], strict=True))


def side_of(layer: Layer, bottom: int, anchors: int, classes: int) -> int:
    """The number of cells along each axis of a grid of predictions."""
    x, name = layer.bottoms[bottom], layer.bottom_names[bottom]
    channels = anchors * (GRID_BOX + classes)
    if len(x.shape) != 4 or x.shape[2] != x.shape[3] or not x.count or x.shape[1] != channels:
        raise InputError(
            f"takes predictions from '{name}' of shape {x}; give N x {channels} x S x S, {GRID_BOX} + {classes} "
            f"classes for each of {anchors} anchors in as many rows as columns"
        )
    return x.shape[2]


def classes_of(classes: int, field: str) -> int:
    if classes < 1:
        raise InputError(f"has {field} 0; use at least 1")
    return classes


class CellLoss(Layer):
    """A loss of predictions of a grid and of true boxes."""

    bottom_forms = ("N,C,H,W", "N,R,5")
    record: ops.RegionLoss | ops.GridLoss
    bottom_range = (2, 2)
    is_loss = True

    def true_boxes(self) -> int:
        """The number of rows of an item."""
        items, x1, flags = self.bottoms[0].shape[0], self.bottoms[1], tuple(self.param.propagate_down)
        if not x1.shape or x1.shape[0] != items or x1.count % (items * GRID_TRUTH) or not x1.count or x1.interleaved:
            raise InputError(
                f"takes true boxes from '{self.bottom_names[1]}' of shape {x1}; give {items} x R x {GRID_TRUTH}: "
                "label, center x, center y, width, height"
            )
        if any(flags[1:]):
            raise InputError("propagates to its true boxes, which get no gradient; write false")
        return x1.count // (items * GRID_TRUTH)

    @property
    def flops(self) -> int:
        """Arithmetic of the overlap of every prediction with every row, and of the exponentials of all classes."""
        return 8 * self.bottoms[0].count + 20 * self.record.rows * self.bottoms[0].count // self.record.numbers

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1"), ("y0",), flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = elementwise_overlays("dx0", "x0")
        return (Step("backward", ("x0", "x1", "dy0"), ("dx0",), overlays=overlays, flops=self.flops),)


@layer("RegionLoss")
class RegionLoss(CellLoss):
    record: ops.RegionLoss

    def setup(self) -> None:
        p, block = self.param.region_loss_param, "region_loss_param"
        classes, anchors, count = classes_of(p.num_class, "num_class"), anchors_of(p, block), p.num
        if len(anchors) != count:
            raise InputError(
                f"has {len(p.biases)} biases for num {count}; give {2 * count} biases, two for each anchor"
            )
        if p.coords != GRID_BOX - 1:
            raise InputError(f"has coords {p.coords}; a box has {GRID_BOX - 1}")
        finite(p, block, "object_scale", "noobject_scale", "class_scale", "coord_scale", "thresh")
        side, items = side_of(self, 0, count, classes), self.bottoms[0].shape[0]
        warm_up = WARM_UP_ITEMS // items if self.phase == TRAIN else 0
        self.recompute_kind = "seeded" if warm_up else "exact"
        self.record = ops.RegionLoss(
            items,
            side,
            anchors,
            classes,
            self.true_boxes(),
            p.object_scale,
            p.noobject_scale,
            p.class_scale,
            p.coord_scale,
            p.thresh,
            bool(p.rescore),
            bool(p.bias_match),
            warm_up,
        )
        self.tops = (SCALAR,)


@layer("Yolov3")
class Yolov3(CellLoss):
    record: ops.GridLoss

    def setup(self) -> None:
        p, block = self.param.yolov3_param, "yolov3_param"
        classes, anchors, mask = classes_of(p.num_class, "num_class"), anchors_of(p, block), tuple(p.mask)
        if not mask or len(mask) != p.num:
            raise InputError(f"has {len(mask)} masks for num {p.num}; give one for each anchor of its grid")
        if max(mask) >= len(anchors):
            raise InputError(f"has mask {max(mask)}, but biases of {len(anchors)} anchors: use 0 to {len(anchors) - 1}")
        if p.anchors_scale < 1:
            raise InputError("has anchors_scale 0; give the pixels of a cell, at least 1")
        finite(p, block, "object_scale", "class_scale", "coord_scale", "thresh")
        side, rows = side_of(self, 0, len(mask), classes), self.true_boxes()
        self.record = ops.GridLoss(
            self.bottoms[0].shape[0],
            side,
            anchors,
            mask,
            side * p.anchors_scale,
            classes,
            rows,
            p.object_scale,
            p.class_scale,
            p.coord_scale,
            p.thresh,
            p.use_logic_gradient,
        )
        self.tops = (SCALAR,)


class GridDetections(Layer):
    has_gradient = False
    record: ops.GridDetections

    def plan(self, p: Message, block: str, anchors: Sequence[Anchors], parts: Sequence[int], softmax: bool) -> None:
        """Set the record and the top for grids with these anchors; the unit of anchor t is 1 / parts[t] of a cell."""
        classes, items = classes_of(p.num_classes, "num_classes"), self.bottoms[0].shape[0]
        sides = [side_of(self, i, len(each), classes) for i, each in enumerate(anchors)]
        if any(x.shape[0] != items for x in self.bottoms):
            counts = " and ".join(str(x.shape[0]) for x in self.bottoms)
            raise InputError(f"has predictions of {counts} items; make them equal")
        finite(p, block, "confidence_threshold")
        if not 0 <= p.nms_threshold <= 1:
            raise InputError(f"has nms_threshold {p.nms_threshold:g} in its {block}; use a number from 0 to 1")
        scales = tuple(side * part for side, part in zip(sides, parts, strict=True))
        self.record = ops.GridDetections(
            items, classes, tuple(sides), tuple(anchors), scales, softmax, p.confidence_threshold, p.nms_threshold
        )
        self.tops = (self.record.y,)

    def forward(self) -> Step:
        reads = tuple(f"x{i}" for i in range(len(self.bottoms)))
        return Step("forward", reads, ("y0",), flops=4 * sum(x.count for x in self.bottoms))


@layer("YoloDetectionOutput")
class YoloDetectionOutput(GridDetections):
    bottom_range = (1, 2)

    def setup(self) -> None:
        p, block = self.param.yolo_detection_output_param, "yolo_detection_output_param"
        anchors = anchors_of(p, block)
        if len(anchors) != p.num_box:
            raise InputError(
                f"has {len(p.biases)} biases for num_box {p.num_box}; give {2 * p.num_box} biases, two for each anchor"
            )
        grids = len(self.bottoms)
        self.plan(p, block, [anchors] * grids, [1] * grids, softmax=True)


@layer("Yolov3DetectionOutput")
class Yolov3DetectionOutput(GridDetections):
    bottom_range = (1, None)

    def setup(self) -> None:
        p, block = self.param.yolov3_detection_output_param, "yolov3_detection_output_param"
        anchors, grids, each = anchors_of(p, block), len(self.bottoms), p.num_box
        if p.mask_group_num != grids:
            raise InputError(f"has mask_group_num {p.mask_group_num} and {grids} bottoms; make them equal")
        if each < 1 or len(p.mask) != grids * each:
            raise InputError(
                f"has {len(p.mask)} masks; give num_box, {each}, for each of its {grids} bottoms, at least one"
            )
        if any(m >= len(anchors) for m in p.mask):
            raise InputError(
                f"has mask {max(p.mask)}, but biases of {len(anchors)} anchors: use 0 to {len(anchors) - 1}"
            )
        if len(p.anchors_scale) != grids or not all(p.anchors_scale):
            raise InputError(
                f"has {len(p.anchors_scale)} anchors_scale; give the pixels of a cell, at least 1, for each of its "
                f"{grids} bottoms"
            )
        chosen = [tuple(anchors[m] for m in p.mask[t * each : (t + 1) * each]) for t in range(grids)]
        self.plan(p, block, chosen, list(p.anchors_scale), softmax=False)
