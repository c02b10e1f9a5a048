"""Boxes of an image, which AnnotatedData transforms together with the image.

Rows of float32: label, instance, left, top, right, bottom, difficult; corners in images.

source  bbox_util.cpp and sampler.cpp of the SSD fork of Caffe (JaccardOverlap, BBoxCoverage, ProjectBBox,
        MeetEmitConstraint)
"""

from __future__ import annotations

import numpy as np

from layermem.proto.schema import Message, enum_name

COLUMNS = 7
CORNERS = slice(2, 6)
UNIT = np.array([0, 0, 1, 1], np.float32)

Boxes = np.ndarray  # [n, COLUMNS]
Window = np.ndarray  # [4]: left, top, right, bottom


def boxes_of(record: Message) -> Boxes:
    """The boxes of an AnnotatedDatum."""
    rows = [
        (group.group_label, each.instance_id, box.xmin, box.ymin, box.xmax, box.ymax, box.difficult)
        for group in record.annotation_group
        for each in group.annotation
        for box in (each.bbox,)
    ]
    return np.array(rows, np.float32).reshape(-1, COLUMNS)


def area(corners: np.ndarray) -> np.ndarray:
    size = corners[..., 2:] - corners[..., :2]
    inside: np.ndarray = np.where((size < 0).any(axis=-1), np.float32(0), size[..., 0] * size[..., 1])
    return inside


def common(window: Window, corners: np.ndarray) -> np.ndarray:
    """The area of each box inside a window."""
    low, high = np.maximum(window[:2], corners[..., :2]), np.minimum(window[2:], corners[..., 2:])
    return area(np.concatenate([low, high], axis=-1))


def overlap(window: Window, corners: np.ndarray) -> np.ndarray:
    """Intersection over union of each box with a window."""
    inside = common(window, corners)
    shares: np.ndarray = inside / np.maximum(area(window) + area(corners) - inside, np.float32(1e-30))
    return shares


def part(inside: np.ndarray, whole: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.where(inside > 0, inside / np.where(whole > 0, whole, 1), np.float32(0))
    return shares


def seen_through(boxes: Boxes, window: Window, emit: Message | None) -> Boxes:
    """The boxes in fractions of a window, clipped to it, except those outside of it and those that `emit` drops."""
    corners = boxes[:, CORNERS]
    keep = (corners[:, :2] < window[2:]).all(axis=1) & (corners[:, 2:] > window[:2]).all(axis=1)
    if emit is not None and enum_name(emit, "emit_type") == "CENTER":
        centers = (corners[:, :2] + corners[:, 2:]) / 2
        keep &= ((centers >= window[:2]) & (centers <= window[2:])).all(axis=1)
    elif emit is not None:
        keep &= part(common(window, corners), area(corners)) > np.float32(emit.emit_overlap)
    size = window[2:] - window[:2]
    moved = np.clip((corners - np.tile(window[:2], 2)) / np.tile(size, 2), 0, 1).astype(np.float32)
    keep &= area(moved) > 0
    found = boxes.copy()
    found[:, CORNERS] = moved
    return found[keep]


def mirrored(boxes: Boxes) -> Boxes:
    """The boxes of the image mirrored left to right."""
    found = boxes.copy()
    found[:, 2], found[:, 4] = 1 - boxes[:, 4], 1 - boxes[:, 2]
    return found
