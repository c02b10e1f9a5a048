"""Layers of single-shot detectors (SSD): the loss, the detections, and their evaluation.

MultiBoxLoss

    x0 locations [N, P L 4], x1 scores [N, P C], x2 priors [1, 2, P 4], x3 truth [1, 1, R, 8] -> y a scalar
    P priors, C = num_classes, L = 1 (share_location) or C; a row of truth is (item, label, instance, left, top, right,
    bottom, difficult), corners in images; a row of item -1 is unused

matching   each true box takes the prior (or with use_prior_for_matching: false the decoded prediction) that overlaps it
           most, the best pair first; with PER_PREDICTION each other prior then takes the box that it overlaps most, if
           by overlap_threshold
mining     MAX_NEGATIVE: among unmatched priors that overlap by less than neg_overlap, those of the largest loss count
           as background, neg_pos_ratio times the number of matches.  HARD_EXAMPLE: the sample_size priors of the
           largest loss count, as matched or as background.  NONE: every prior counts.  nms_param thins out the
           candidates.  Among equal losses the first prior is taken first
loss       y = (loc_weight loc + conf) / normalizer.  loc: smooth L1, or half the squares, of code - location at the
           matched priors; conf: softmax loss, or sigmoid cross entropy, of the priors that count.  VALID, the default,
           divides by the matches
codes      CORNER       (corner - prior corner) / variance
           CENTER_SIZE  (center - prior center) / prior size / variance, ln(size / prior size) / variance
           CORNER_SIZE  (corner - prior corner) / prior size / variance
devices    reference and cpu; nets with it are planned for cuda, and refused before they run there
memory     stashes the match of each prior, 4 bytes; backward reads all bottoms, which their gradients may overlay.
           Workspace is planned for the largest number of candidates, whatever the data are
source     multibox_loss_layer.cpp and bbox_util.cpp of the SSD fork of Caffe (weiliu89/caffe, branch ssd)

Two gradients differ from the fork's.  With encode_variance_in_target it leaves out the division by the variance in the
gradient of locations: here it is the derivative.  With LOGISTIC and without mining it writes targets to the wrong
places: here they are as with mining.

DetectionOutput
    x0 locations, x1 scores, x2 priors as above -> y [1, 1, K, 7]: item, label, score, left, top, right, bottom
    For each class but the background it takes the top_k boxes with the highest scores above confidence_threshold and
    drops those that a better one overlaps by more than nms_threshold; of each item it keeps the keep_top_k best.
    clip      (OpenCV) boxes end at the borders of the image, before they are compared
    rows      The fork's K is the number of boxes found.  Here it is the largest possible: N min(keep_top_k, classes
              top_k), or all priors without these settings.  Rows that hold no box follow the others and are -1
    memory    stashes nothing and has no gradient
    source    detection_output_layer.cpp and bbox_util.cpp of the SSD fork

DetectionEvaluate
    x0 detections, x1 truth -> y [1, 1, C - 1 + K, 5]: for each class (-1, label, true boxes, -1, -1), then for each
    detection (item, label, score, 1 or 0 where it is right, 1 or 0 where it is wrong), then rows of -1
    A detection is right if it overlaps a true box of its class by overlap_threshold and is the first of the box.
    With name_size_file it takes x2 [N, 6]: the window of the image in each item, and its size in pixels.  Boxes are
    then compared in pixels, with both ends included, as in the fork
    Tests print the mean average precision instead of this top (layermem/solver/average_precision.py)
    memory    stashes nothing and has no gradient
    source    detection_evaluate_layer.cpp of the SSD fork
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Layer, Message, Step, Tensor, layer
from layermem.layers.loss import NORMALIZATIONS, SCALAR
from layermem.ops.detection import DETECTION, ITEM_SIZE, TRUTH
from layermem.proto.schema import enum_name

LARGEST_FLOAT = 3.4028234663852886e38


def count_priors(layer: Layer, priors: Tensor) -> int:
    """The number of boxes in the blob of a PriorBox."""
    if len(priors.shape) < 3 or priors.shape[1] != 2 or priors.interleaved or priors.shape[2] % 4 or not priors.count:
        raise InputError(
            f"takes priors from '{layer.bottom_names[2]}' of shape {priors}; give 1 x 2 x 4 P, the top of a PriorBox "
            "or of a Concat along axis 2"
        )
    if priors.count != 2 * priors.shape[2]:
        raise InputError(f"takes priors from '{layer.bottom_names[2]}' of shape {priors}; give one set for all items")
    return priors.shape[2] // 4


def check_rows(layer: Layer, bottom: int, per_item: int, what: str) -> None:
    """InputError unless the bottom has `per_item` numbers for each item, in Caffe's order."""
    x = layer.bottoms[bottom]
    if not x.shape or x.shape[0] < 1 or x.count != x.shape[0] * per_item or x.interleaved:
        raise InputError(
            f"takes {what} from '{layer.bottom_names[bottom]}' of shape {x}; give {per_item} numbers for each item, "
            f"of a Permute to N x H x W x C, a Flatten and a Concat"
        )


def check_truth(layer: Layer, bottom: int) -> int:
    """The number of rows of true boxes."""
    x = layer.bottoms[bottom]
    if not x.shape or x.shape[-1] != TRUTH or x.interleaved:
        raise InputError(
            f"takes true boxes from '{layer.bottom_names[bottom]}' of shape {x}; give 1 x 1 x R x {TRUTH}: item, "
            "label, instance, left, top, right, bottom, difficult"
        )
    return x.count // TRUTH


def classes_of(p: Message, block: str) -> int:
    if p.num_classes < 1:
        raise InputError(f"needs num_classes of at least 1 in its {block}, the background included")
    return int(p.num_classes)


def finite(p: Message, block: str, *fields: str) -> None:
    for field in fields:
        if not (math.isfinite(getattr(p, field)) and getattr(p, field) >= 0):
            raise InputError(f"has {field} {getattr(p, field):g} in its {block}; use a number from 0 on")


def suppression_of(p: Message, block: str) -> ops.Suppression:
    """The Suppression that nms_param states."""
    finite(p, f"nms_param of its {block}", "nms_threshold")
    return ops.Suppression(p.nms_threshold, p.top_k if p.HasField("top_k") else -1)


@layer("MultiBoxLoss")
class MultiBoxLoss(Layer):
    bottom_forms = ("", "", "", "1,1,R,8")
    record: ops.MultiBoxLoss
    bottom_range = (4, 4)
    is_loss = True

    def setup(self) -> None:
        p, block = self.param.multibox_loss_param, "multibox_loss_param"
        items, priors, classes, loc_classes = _counts(self, p, block)
        finite(p, block, "overlap_threshold", "neg_pos_ratio", "neg_overlap", "loc_weight")
        mining, logistic = mining_of(p), enum_name(p, "conf_loss_type") == "LOGISTIC"
        suppression = self._suppression(mining)
        _check_classes(p, classes, logistic)
        flags = tuple(self.param.propagate_down) or (True, True, False, False)
        if any(flags[2:]):
            raise InputError("propagates to its priors or true boxes, which get no gradient; write false for both")
        self.record = ops.MultiBoxLoss(
            items,
            priors,
            classes,
            loc_classes,
            check_truth(self, 3),
            enum_name(p, "match_type") == "PER_PREDICTION",
            p.overlap_threshold,
            p.use_prior_for_matching,
            p.background_label_id,
            p.use_difficult_gt,
            mining,
            p.neg_pos_ratio,
            p.neg_overlap,
            p.sample_size,
            suppression,
            p.use_prior_for_nms,
            enum_name(p, "code_type"),
            p.encode_variance_in_target,
            p.map_object_to_agnostic,
            p.ignore_cross_boundary_bbox,
            p.bp_inside,
            enum_name(p, "loc_loss_type") == "L2",
            logistic,
            p.loc_weight,
            self._normalizer(items, priors),
            *flags[:2],
        )
        self.tops = (SCALAR,)
        self.stash = {"match": self.record.match}

    def _suppression(self, mining: str) -> ops.Suppression | None:
        """The suppression of overlapping candidates of `mining`, if any; InputError for settings that mine nothing."""
        p = self.param.multibox_loss_param
        if mining != "NONE" and not p.share_location:
            raise InputError("mines negatives without share_location; set mining_type: NONE or share_location: true")
        if mining == "HARD_EXAMPLE" and p.sample_size < 1:
            raise InputError(f"has sample_size {p.sample_size}; use at least 1")
        if mining == "NONE" or not p.HasField("nms_param") or p.nms_param.nms_threshold <= 0:
            return None
        suppression = suppression_of(p.nms_param, "multibox_loss_param")
        if suppression.top_k < 1:
            raise InputError("mines with an nms_param without top_k, which would keep no candidate; give its top_k")
        return suppression

    def _normalizer(self, items: int, priors: int) -> int | None:
        p = self.param.loss_param
        if not p.HasField("normalization") and p.HasField("normalize"):
            return None if p.normalize else items
        return {"FULL": items * priors, "VALID": None, "BATCH_SIZE": items, "NONE": 1}[NORMALIZATIONS[p.normalization]]

    def truth_labels(self, bottom: int) -> tuple[int, ...] | None:
        labels = (c for c in range(self.record.classes) if c != self.record.background)
        return tuple(labels) if bottom == 3 else None

    def forward(self) -> Step:
        reads = ("x0", "x1", "x2", "x3")
        return Step("forward", reads, ("y0", *self.stash), flops=self._flops())

    def _flops(self) -> int:
        """Arithmetic of the softmax of all scores, and of some overlaps of every prior with a box or two of its
        item."""
        return 8 * self.bottoms[1].count + 40 * self.record.priors * max(self.record.items, self.record.rows)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in ("dx0", "dx1") if r in wants)
        overlays = tuple(o for dx in writes for o in elementwise_overlays(dx, dx[1:]))
        reads = ("x0", "x1", "x2", "x3", *self.stash, "dy0")
        flops = 8 * self.bottoms[1].count + 8 * self.bottoms[0].count
        return (Step("backward", reads, writes, overlays=overlays, flops=flops),) if writes else ()


def _counts(layer: Layer, p: Message, block: str) -> tuple[int, int, int, int]:
    """The items, the priors, the classes of scores and those of locations of a layer that reads locations, scores and
    priors; InputError for bottoms that disagree."""
    priors, classes = count_priors(layer, layer.bottoms[2]), classes_of(p, block)
    loc_classes = 1 if p.share_location else classes
    check_rows(layer, 0, priors * loc_classes * 4, "locations")
    check_rows(layer, 1, priors * classes, "scores")
    items, scores = (bottom.shape[0] for bottom in layer.bottoms[:2])
    if scores != items:
        raise InputError(f"has locations of {items} items and scores of {scores}; make them equal")
    return items, priors, classes, loc_classes


def _check_classes(p: Message, classes: int, logistic: bool) -> None:
    """InputError for a background that is none of the classes."""
    background = p.background_label_id
    if not logistic and not 0 <= background < classes:
        raise InputError(
            f"has background_label_id {background}; a softmax needs one from 0 to {classes - 1}, below num_classes"
        )
    if p.map_object_to_agnostic and (classes, background) != (2, 0):
        raise InputError(
            f"maps all objects to one class, with num_classes {classes} and background_label_id {background}; "
            "write 2 and 0"
        )


def mining_of(p: Message) -> str:
    """The mining_type, or the equivalent of the older field do_neg_mining."""
    mining = str(enum_name(p, "mining_type"))
    if not p.HasField("do_neg_mining"):
        return mining
    if not p.HasField("mining_type"):
        return "MAX_NEGATIVE" if p.do_neg_mining else "NONE"
    if p.do_neg_mining != (mining != "NONE"):
        raise InputError(f"gives do_neg_mining and mining_type {mining}, which contradict each other; keep mining_type")
    return mining


@layer("DetectionOutput")
class DetectionOutput(Layer):
    has_gradient = False
    record: ops.DetectionOutput
    bottom_range = (3, 4)  # the fork draws boxes on the fourth, the images

    def setup(self) -> None:
        p, block = self.param.detection_output_param, "detection_output_param"
        items, priors, classes, loc_classes = _counts(self, p, block)
        nms = p.nms_param
        finite(nms, f"nms_param of its {block}", "nms_threshold")
        if not 0 < nms.eta <= 1:
            raise InputError(f"has eta {nms.eta:g} in its nms_param; use a number above 0, at most 1")
        least = p.confidence_threshold if p.HasField("confidence_threshold") else -LARGEST_FLOAT
        top_k = nms.top_k if nms.HasField("top_k") else -1
        if top_k == 0 or p.keep_top_k == 0:
            raise InputError("keeps no box, with a top_k or keep_top_k of 0; use at least 1, or -1 for all")
        self.record = ops.DetectionOutput(
            items,
            priors,
            classes,
            loc_classes,
            p.background_label_id,
            enum_name(p, "code_type"),
            p.variance_encoded_in_target,
            least,
            nms.nms_threshold,
            max(-1, top_k),
            nms.eta,
            max(-1, p.keep_top_k),
            p.clip,
        )
        self.tops = (self.record.y,)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1", "x2"), ("y0",), flops=20 * self.bottoms[0].count + self.bottoms[1].count)


@layer("DetectionEvaluate")
class DetectionEvaluate(Layer):
    bottom_forms = ("", "1,1,R,8")
    has_gradient = False
    takes_truth = True
    is_score = True
    record: ops.DetectionEvaluate
    bottom_range = (2, 3)

    def setup(self) -> None:
        p, x = self.param.detection_evaluate_param, self.bottoms[0]
        if not x.shape or x.shape[-1] != DETECTION or x.interleaved:
            raise InputError(
                f"takes detections from '{self.bottom_names[0]}' of shape {x}; give 1 x 1 x K x {DETECTION}, the "
                "top of a DetectionOutput"
            )
        classes = classes_of(p, "detection_evaluate_param")
        if not 0 < p.overlap_threshold <= 1:
            raise InputError(f"has overlap_threshold {p.overlap_threshold:g}; use a number above 0, at most 1")
        sizes = self.bottoms[2] if len(self.bottoms) == 3 else None
        if sizes is not None and (len(sizes.shape) != 2 or sizes.shape[1] != ITEM_SIZE):
            raise InputError(f"takes sizes of shape {sizes}; remove its third bottom, and give a name_size_file")
        self.record = ops.DetectionEvaluate(
            x.count // DETECTION,
            check_truth(self, 1),
            classes,
            p.background_label_id,
            p.overlap_threshold,
            p.evaluate_difficult_gt,
            sizes.shape[0] if sizes is not None else 0,
        )
        self.tops = (self.record.y,)

    def forward(self) -> Step:
        return Step("forward", ("x0", "x1", "x2")[: len(self.bottoms)], ("y0",), flops=20 * self.bottoms[0].count)

    def truth_labels(self, bottom: int) -> tuple[int, ...] | None:
        return self.record.classes_counted if bottom == 1 else None
