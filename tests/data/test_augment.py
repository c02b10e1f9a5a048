"""Colours of images compared with OpenCV if it is installed; windows by hand."""

import numpy as np
import pytest

from layermem.data.augment import brightness, contrast, from_hsv, meets, sample, to_hsv
from layermem.proto.schema import message_class
from tests.data.makers import images

IMAGE = images(1, 3, 37, 53)[0]


def test_hues_are_those_of_opencv():
    cv2 = pytest.importorskip("cv2")
    expected = cv2.cvtColor(IMAGE.transpose(1, 2, 0), cv2.COLOR_BGR2HSV)
    np.testing.assert_array_equal(np.stack(to_hsv(IMAGE), axis=2), expected)
    back = cv2.cvtColor(expected, cv2.COLOR_HSV2BGR).transpose(2, 0, 1).astype(int)
    assert abs(from_hsv(*to_hsv(IMAGE)) - back).max() <= 1


def test_brightness_and_contrast_stay_within_bytes():
    p = message_class("DistortionParameter")(
        brightness_prob=1, brightness_delta=200, contrast_prob=1, contrast_lower=3, contrast_upper=3
    )
    rng = np.random.default_rng(1)
    delta = brightness(np.full((3, 1, 1), 100, np.uint8), p, rng)
    assert delta.dtype == np.uint8 and len({*delta.ravel()}) == 1
    assert contrast(np.array([[[10]], [[100]], [[0]]], np.uint8), p, rng).ravel().tolist() == [30, 255, 0]


def test_a_window_meets_a_constraint_if_one_box_is_in_every_stated_range():
    constraint = message_class("SampleConstraint")
    window = np.array([0, 0, 0.5, 0.5], np.float32)
    boxes = np.array([[0, 0, 0.5, 0.25], [0.5, 0.5, 1, 1]], np.float32)  # overlaps 1/2 and 0
    assert meets(window, boxes, constraint())
    assert meets(window, boxes, constraint(min_jaccard_overlap=0.4)) and meets(window, boxes[:0], constraint())
    assert not meets(window, boxes, constraint(min_jaccard_overlap=0.6))
    assert not meets(window, boxes[:0], constraint(max_jaccard_overlap=0.6))
    assert meets(window, boxes, constraint(min_object_coverage=0.9, max_sample_coverage=0.5))
    assert not meets(window, boxes, constraint(min_object_coverage=0.9, max_sample_coverage=0.4))


def test_the_image_stays_if_no_sampler_finds_a_window():
    sampler = message_class("BatchSampler")()
    sampler.sample_constraint.min_jaccard_overlap = 2
    boxes = np.zeros((0, 7), np.float32)
    image, found = sample(IMAGE, boxes, [sampler], None, np.random.default_rng(0))
    assert image is IMAGE and found is boxes
