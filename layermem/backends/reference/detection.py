"""Detection: boxes are matched and compared in float32 for all blob types, so that all devices decide alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel
from layermem.errors import InputError
from layermem.ops import DetectionEvaluate, DetectionOutput, MultiBoxLoss
from layermem.ops.detection import DETECTION, EVALUATION, IGNORED, ITEM_SIZE, NEGATIVE, TRUTH, UNMATCHED, UNUSED
from layermem.ops.softmax import LARGEST_LOSS

LEAST_OVERLAP = np.float32(1e-6)  # smallest overlap that can match
LEAST_AREA = np.float32(1e-5)  # smallest area that suppression keeps


# -- boxes: arrays [.., 4] of left, top, right, bottom -----------------------------------------------------------------


def areas(boxes: Array) -> Array:
    left, top, right, bottom = np.moveaxis(boxes, -1, 0)
    each: Array = np.where((right < left) | (bottom < top), boxes.dtype.type(0), (right - left) * (bottom - top))
    return each


def overlaps(a: Array, b: Array) -> Array:
    """Intersection over union of all boxes of `a` [n, 4] with all of `b` [m, 4]."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    size = high - low
    common = np.where((size > 0).all(axis=-1), size[..., 0] * size[..., 1], size.dtype.type(0))
    both = areas(a)[:, None] + areas(b)[None] - common
    shares: Array = np.where(common > 0, common / np.where(common > 0, both, 1), 0).astype(size.dtype)
    return shares


def in_pixels(boxes: Array, size: Array) -> Array:
    """Convert boxes of an item to pixels by its ITEM_SIZE, clipped to the image."""
    low, high, pixels = size[:2], size[2:4], size[4:]
    shares = np.clip((boxes - np.tile(low, 2)) / np.tile(high - low, 2), 0, 1)
    result: Array = (shares * np.tile(pixels, 2)).astype(np.float32)
    return result


def pixel_overlaps(a: Array, b: Array) -> Array:
    """Intersection over union of boxes in pixels, with both ends included."""
    one = np.float32(1)
    size = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    common = np.where((size >= 0).all(axis=-1), (size + one).prod(axis=-1), np.float32(0))
    each = [np.where((sizes(x) >= 0).all(axis=-1), (sizes(x) + one).prod(axis=-1), np.float32(0)) for x in (a, b)]
    both = each[0][:, None] + each[1][None] - common
    shares: Array = np.where(common > 0, common / np.where(common > 0, both, one), 0).astype(np.float32)
    return shares


def crosses(boxes: Array) -> Array:
    """For each corner, whether it lies outside of the image."""
    return (boxes < 0) | (boxes > 1)


def sizes(boxes: Array) -> Array:
    return boxes[..., 2:] - boxes[..., :2]


def scales(code: str, priors: Array) -> Array:
    """The divisors of differences of corners."""
    return np.tile(sizes(priors), 2) if code != "CORNER" else np.ones_like(priors)


def encode(code: str, priors: Array, variances: Array | None, boxes: Array) -> Array:
    """The code of each box relative to its prior; `variances` None leaves them out."""
    if code == "CENTER_SIZE":
        centers = (boxes[..., :2] + boxes[..., 2:]) / 2 - (priors[..., :2] + priors[..., 2:]) / 2
        codes = np.concatenate([centers / sizes(priors), np.log(sizes(boxes) / sizes(priors))], axis=-1)
    else:
        codes = (boxes - priors) / scales(code, priors)
    result: Array = codes if variances is None else codes / variances
    return result


def decode(code: str, priors: Array, variances: Array | None, codes: Array) -> Array:
    values = codes if variances is None else variances * codes
    if code == "CENTER_SIZE":
        centers = values[..., :2] * sizes(priors) + (priors[..., :2] + priors[..., 2:]) / 2
        halves = np.exp(values[..., 2:]) * sizes(priors) / 2
        return np.concatenate([centers - halves, centers + halves], axis=-1)
    boxes: Array = priors + values * scales(code, priors)
    return boxes


# -- MultiBoxLoss ------------------------------------------------------------------------------------------------------


class MultiBox:
    """The operands of one op, by item."""

    def __init__(self, op: MultiBoxLoss, call: ReferenceCall):
        self.op = op
        self.locations = call["x0"].reshape(op.items, op.priors, op.loc_classes, 4)
        self.scores = call["x1"].reshape(op.items, op.priors, op.classes)
        self.priors, self.variances = call["x2"].reshape(2, op.priors, 4)
        self.truth = call["x3"].reshape(op.rows, TRUTH)
        self.true_boxes = self.truth[:, 3:7].astype(np.float32)
        self.labels = np.array([op.class_of(int(row[1])) if row[0] != UNUSED else 0 for row in self.truth], int)

    def rows(self, item: int) -> Array:
        """Indices of the rows of truth of an item."""
        mine = self.truth[:, 0].astype(int) == item
        mine &= self.truth[:, 0] != UNUSED
        return np.flatnonzero(mine & (self.op.difficult | (self.truth[:, 7] == 0)))

    def decoded(self, item: int, c: int) -> Array:
        variances = None if self.op.in_target else self.variances.astype(np.float32)
        locations = self.locations[item, :, c].astype(np.float32)
        return decode(self.op.code, self.priors.astype(np.float32), variances, locations)

    def match(self, item: int) -> tuple[Array, Array]:
        """The row of truth of each prior by class, and the largest overlap of each prior (of the last class)."""
        op, rows = self.op, self.rows(item)
        match = np.full((op.loc_classes, op.priors), UNMATCHED, np.int32)
        seen = np.zeros(op.priors, np.float32)
        if op.prior_matching:
            every, seen = find_matches(op, self.priors.astype(np.float32), self.true_boxes, rows)
            for c in range(op.loc_classes):
                if op.loc_classes == 1:
                    match[c] = every
                elif c != op.background:
                    mine = (every >= 0) & (self.truth[np.maximum(every, 0), 1].astype(int) == c)
                    match[c] = np.where(mine, every, UNMATCHED)
            return match, seen
        for c in range(op.loc_classes):
            if op.loc_classes > 1 and c == op.background:
                continue
            wanted = rows if op.loc_classes == 1 else rows[self.truth[rows, 1].astype(int) == c]
            match[c], seen = find_matches(op, self.decoded(item, c), self.true_boxes, wanted)
        return match, seen

    def targets(self, match: Array) -> Array:
        """[priors, classes]: 1 for the target class of a prior."""
        op = self.op
        labels = np.where(match >= 0, self.labels[np.maximum(match, 0)] if op.rows else 0, -1)
        targets = np.zeros((op.priors, op.classes))
        if op.logistic:
            for row in labels:
                targets[row >= 0, row[row >= 0]] = 1
            free = (labels < 0).all(axis=0)
            if op.background < op.classes:
                targets[free, op.background] = 1
        else:
            last = np.full(op.priors, op.background)
            for row in labels:
                last = np.where(row >= 0, row, last)
            targets[np.arange(op.priors), last] = 1
        return targets

    def score_losses(self, item: int, match: Array) -> Array:
        x, targets = self.scores[item], self.targets(match)
        if self.op.logistic:
            each: Array = (np.log1p(np.exp(-abs(x))) - x * (targets - (x >= 0))).sum(axis=1)
            return each
        shifted = x - x.max(axis=1, keepdims=True)
        each = np.log(np.exp(shifted).sum(axis=1)) - (shifted * targets).sum(axis=1)
        return np.where(each > LARGEST_LOSS, LARGEST_LOSS, each)

    def score_gradient(self, item: int, match: Array) -> Array:
        x, targets = self.scores[item], self.targets(match)
        if self.op.logistic:
            gradient: Array = 1 / (1 + np.exp(-x)) - targets
        else:
            powers = np.exp(x - x.max(axis=1, keepdims=True))
            gradient = powers / powers.sum(axis=1, keepdims=True) - targets
        return np.where(self.counts(match)[:, None], gradient, 0)

    def counts(self, match: Array) -> Array:
        """For each prior, whether its score counts."""
        if self.op.mining == "NONE":
            return np.ones(self.op.priors, bool)
        counted: Array = (match[0] >= 0) | (match[0] == NEGATIVE)
        return counted

    def differences(self, item: int, match: Array) -> Array:
        """[priors, loc_classes, 4]: location - code at matched priors, else 0; divided by variances with in_target."""
        op, result = self.op, np.zeros(self.locations.shape[1:], self.locations.dtype)
        for c, row in enumerate(match):
            at = np.flatnonzero(row >= 0)
            priors, variances, locations = self.priors[at], self.variances[at], self.locations[item, at, c]
            boxes = self.truth[row[at], 3:7]
            inner = None if op.in_target else variances
            d = locations - encode(op.code, priors, inner, boxes)
            if op.bp_inside:
                d = np.where(crosses(priors if op.prior_matching else decode(op.code, priors, inner, locations)), 0, d)
            result[at, c] = d / variances if op.in_target else d
        return result

    def location_losses(self, item: int, match: Array) -> Array:
        """[priors, loc_classes]"""
        size = abs(self.differences(item, match))
        losses: Array = np.where(self.op.l2 | (size < 1), size**2 / 2, size - 0.5).sum(axis=-1)
        return losses

    def mine(self, item: int, match: Array, seen: Array) -> None:
        """Choose the priors that count, for one class of locations."""
        op, row = self.op, match[0]
        hard = op.mining == "HARD_EXAMPLE"
        candidates = np.arange(op.priors) if hard else np.flatnonzero((row == UNMATCHED) & (seen < op.neg_overlap))
        costs = self.score_losses(item, match)
        if hard:
            costs = costs + self.location_losses(item, match)[:, 0]
        costs = np.where(np.isnan(costs), np.inf, costs).astype(np.float32)[candidates]
        order = candidates[np.argsort(-costs, kind="stable")]
        matches = np.count_nonzero(row >= 0)
        wanted = op.sample_size if hard else int(np.float32(matches) * np.float32(op.neg_pos_ratio))
        if op.suppression is not None:
            boxes = self.priors.astype(np.float32) if op.prior_suppression else self.decoded(item, 0)
            order = suppress(boxes, order[: op.suppression.top_k], np.float32(op.suppression.threshold))
        chosen = np.zeros(op.priors, bool)
        chosen[order[:wanted]] = True
        lost = (row >= 0) & ~chosen if hard else np.zeros(op.priors, bool)
        match[0] = np.where(lost, UNMATCHED, np.where((row == UNMATCHED) & chosen, NEGATIVE, row))


def find_matches(op: MultiBoxLoss, boxes: Array, truth: Array, rows: Array) -> tuple[Array, Array]:
    """The row of truth that each box is matched with, and its largest overlap with one of `rows`."""
    match = np.full(len(boxes), UNMATCHED, np.int32)
    if not len(rows):
        return match, np.zeros(len(boxes), np.float32)
    shares = overlaps(boxes, truth[rows])
    shares[shares <= LEAST_OVERLAP] = 0
    if op.ignore_crossing:
        ignored = crosses(boxes).any(axis=1)
        match[ignored], shares[ignored] = IGNORED, 0
    seen = shares.max(axis=1)
    left = shares.copy()
    for _ in rows:  # the best pair, then the best remaining one
        i, g = np.unravel_index(left.argmax(), left.shape)
        if left[i, g] <= 0:
            break
        match[i], seen[i] = rows[g], left[i, g]
        left[i], left[:, g] = 0, 0
    if op.per_prediction:
        near = (match == UNMATCHED) & (seen > 0) & (seen >= np.float32(op.overlap_threshold))
        match[near] = rows[shares.argmax(axis=1)][near]
    return match, seen


def suppress(boxes: Array, order: Array, threshold: np.float32) -> Array:
    """The boxes in `order` that no better one overlaps by more than the threshold."""
    kept: list[int] = []
    for i in order:
        if areas(boxes[i]) < LEAST_AREA:
            continue
        if not kept or overlaps(boxes[[i]], boxes[kept]).max() <= threshold:
            kept.append(int(i))
    return np.array(kept, int)


def check_truth(op: MultiBoxLoss, truth: Array, layer: str) -> None:
    """Raise InputError for a true box without a valid item or class."""
    for row in truth.reshape(op.rows, TRUTH):
        if row[0] == UNUSED:
            continue
        item, label = row[:2]
        if not np.isfinite(row).all() or not -1 < item < op.items:
            raise InputError(
                f"reads a true box of item {item:.9g} from {row[3]:.9g}, {row[4]:.9g} to {row[5]:.9g}, {row[6]:.9g}, "
                f"but has {op.items} items: 0 to {op.items - 1}, or -1 for an unused row; fix the data",
                layer=layer,
            )
        if not label > -1 or not (op.agnostic or (label < op.classes and int(label) != op.background)):
            raise InputError(
                f"reads a true box of label {label:.9g}, but has {op.classes} classes: 0 to {op.classes - 1} without "
                f"the background, {op.background}; fix the data",
                layer=layer,
            )


def normalizer(op: MultiBoxLoss, matches: Sequence[Array]) -> int:
    if op.normalizer is not None:
        return op.normalizer
    return max(1, sum(int(np.count_nonzero(match >= 0)) for match in matches))


@kernel(MultiBoxLoss, "forward")
def multibox_loss_forward(op: MultiBoxLoss, call: ReferenceCall) -> None:
    check_truth(op, call["x3"], call.layer)
    boxes, matches = MultiBox(op, call), []
    loc = conf = 0.0
    for item in range(op.items):
        match, seen = boxes.match(item)
        if op.mining != "NONE" and len(boxes.rows(item)):
            boxes.mine(item, match, seen)
        matches.append(match)
        if op.loc:
            loc += boxes.location_losses(item, match).sum()
        if op.conf:
            conf += boxes.score_losses(item, match)[boxes.counts(match)].sum()
    call["y0"][...] = (op.loc_weight * loc + conf) / normalizer(op, matches)
    if "match" in call:
        call["match"][...] = np.stack(matches)


@kernel(MultiBoxLoss, "backward")
def multibox_loss_backward(op: MultiBoxLoss, call: ReferenceCall) -> None:
    boxes, matches = MultiBox(op, call), list(call["match"])
    rate = call["dy0"] / normalizer(op, matches)
    gradients: dict[str, Array] = {}
    if "dx0" in call:
        each = [boxes.differences(item, match) for item, match in enumerate(matches)]
        d = np.stack(each) if op.l2 else np.clip(np.stack(each), -1, 1)
        d = d / boxes.variances[:, None] if op.in_target else d
        gradients["dx0"] = d * (rate * op.loc_weight * op.loc)
    if "dx1" in call:
        gradients["dx1"] = np.stack([boxes.score_gradient(i, match) for i, match in enumerate(matches)]) * (
            rate * op.conf
        )
    for role, gradient in gradients.items():
        call[role][...] = gradient.reshape(call[role].shape)


# -- DetectionOutput ---------------------------------------------------------------------------------------------------


@kernel(DetectionOutput, "forward")
def detection_output_forward(op: DetectionOutput, call: ReferenceCall) -> None:
    locations = call["x0"].reshape(op.items, op.priors, op.loc_classes, 4).astype(np.float32)
    scores = call["x1"].reshape(op.items, op.priors, op.classes).astype(np.float32)
    priors, variances = call["x2"].reshape(2, op.priors, 4).astype(np.float32)
    rows: list[tuple[float, ...]] = []
    for item in range(op.items):
        found: list[tuple[float, ...]] = []  # by class and score
        for c in range(op.classes):
            if c == op.background:
                continue
            location = locations[item, :, 0 if op.loc_classes == 1 else c]
            boxes = decode(op.code, priors, None if op.in_target else variances, location)
            boxes = np.clip(boxes, 0, 1) if op.clip else boxes
            of_class = scores[item, :, c]
            order = np.argsort(-of_class, kind="stable")
            order = order[of_class[order] > np.float32(op.least_score)][: op.candidates]
            found += [(item, c, of_class[i], *boxes[i]) for i in suppress_adaptively(op, boxes, order)]
        if len(found) > op.of_item:
            best = np.argsort([-row[2] for row in found], kind="stable")[: op.of_item]
            found = [found[i] for i in sorted(best)]
        rows += found
    y = call["y0"].reshape(-1, DETECTION)
    y[...] = UNUSED
    if rows:
        y[: len(rows)] = rows


def suppress_adaptively(op: DetectionOutput, boxes: Array, order: Array) -> list[int]:
    """The boxes in `order` that no better one overlaps by more than the threshold, which eta lowers."""
    threshold, kept = np.float32(op.threshold), list[int]()
    for i in order:
        if not kept or overlaps(boxes[[i]], boxes[kept]).max() <= threshold:
            kept.append(int(i))
            if op.eta < 1 and threshold > np.float32(0.5):
                threshold = threshold * np.float32(op.eta)
    return kept


# -- DetectionEvaluate -------------------------------------------------------------------------------------------------


def _check_evaluated(op: DetectionEvaluate, found: np.ndarray, truth: np.ndarray, layer: str) -> None:
    """InputError for a box of a class or an item that is not there."""
    for rows, what in ((found, "detection"), (truth, "true box")):
        for row in rows:
            if not np.isfinite(row).all() or not (row[1] > -1 and int(row[1]) in op.classes_counted):
                raise InputError(
                    f"reads a {what} of label {row[1]:.9g} from {row[3]:.9g}, {row[4]:.9g} to {row[5]:.9g}, "
                    f"{row[6]:.9g}, but has {op.classes} classes: 0 to {op.classes - 1} without the background, "
                    f"{op.background}; fix the data",
                    layer=layer,
                )
    if op.sized_items and len(found) and not ((found[:, 0] >= 0) & (found[:, 0] < op.sized_items)).all():
        raise InputError(f"reads a detection outside of its {op.sized_items} items; fix the data", layer=layer)


@kernel(DetectionEvaluate, "forward")
def detection_evaluate_forward(op: DetectionEvaluate, call: ReferenceCall) -> None:
    found = call["x0"].reshape(op.detections, DETECTION).astype(np.float32)
    truth = call["x1"].reshape(op.truths, TRUTH).astype(np.float32)
    found, truth = found[found[:, 0] != UNUSED], truth[truth[:, 0] != UNUSED]
    _check_evaluated(op, found, truth, call.layer)
    counted = np.ones(len(truth), bool) if op.difficult else truth[:, 7] == 0
    table: list[tuple[float, ...]] = []
    for c in op.classes_counted:
        table.append((UNUSED, c, int(np.count_nonzero(counted & (truth[:, 1].astype(int) == c))), UNUSED, UNUSED))
    whole = found[:, :2].astype(int)
    for item, c in sorted({(int(i), int(label)) for i, label in whole}):
        mine = found[(whole == (item, c)).all(axis=1)]
        rows = np.flatnonzero((truth[:, :2].astype(int) == (item, c)).all(axis=1))
        taken: set[int] = set()
        boxes, true_boxes, compare = mine[:, 3:7], truth[rows, 3:7], overlaps
        if op.sized_items:
            size = call["x2"].reshape(op.sized_items, ITEM_SIZE)[item].astype(np.float32)
            boxes, true_boxes, compare = in_pixels(boxes, size), in_pixels(true_boxes, size), pixel_overlaps
        for n in np.argsort(-mine[:, 2], kind="stable"):
            shares = compare(boxes[n : n + 1], true_boxes)[0] if len(rows) else np.zeros(1, np.float32)
            best = int(shares.argmax())
            right, wrong = 0, 1
            if len(rows) and shares[best] >= np.float32(op.overlap_threshold):
                if not counted[rows[best]]:
                    right, wrong = 0, 0
                elif best not in taken:
                    right, wrong = 1, 0
                    taken.add(best)
            table.append((item, c, mine[n, 2], right, wrong))
    y = call["y0"].reshape(-1, EVALUATION)
    y[...] = UNUSED
    y[: len(table)] = table
