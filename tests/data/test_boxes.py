"""Boxes of an image: windows and constraints by hand."""

import numpy as np

from layermem.data.boxes import mirrored, overlap, seen_through
from layermem.proto.schema import message_class


def test_boxes_are_seen_through_a_window():
    emit = message_class("EmitConstraint")
    boxes = np.array([[1, 0, 0, 0, 0.5, 0.5, 0], [2, 0, 0.4, 0.4, 0.8, 0.8, 0], [3, 0, 0.9, 0, 1, 1, 0]], np.float32)
    window = np.array([0.25, 0.25, 0.75, 0.75], np.float32)
    found = seen_through(boxes, window, None)
    np.testing.assert_allclose(found[:, 2:6], [[0, 0, 0.5, 0.5], [0.3, 0.3, 1, 1]], atol=1e-6)
    assert seen_through(boxes, window, emit())[:, 0].tolist() == [1, 2]  # the center of box 1 is the corner
    part = emit(emit_type=emit.MIN_OVERLAP, emit_overlap=0.3)  # 1/4 of box 1 is inside, 0.77 of box 2
    assert seen_through(boxes, window, part)[:, 0].tolist() == [2]


def test_overlaps_and_mirrors():
    boxes = np.array([[1, 0, 0, 0, 0.5, 0.25, 1]], np.float32)
    np.testing.assert_allclose(overlap(np.array([0, 0, 0.5, 0.5], np.float32), boxes[:, 2:6]), [0.5])
    assert mirrored(boxes).tolist() == [[1, 0, 0.5, 0, 1, 0.25, 1]]
