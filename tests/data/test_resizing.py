"""resize_param: sizes, padding and boxes by hand."""

import numpy as np
import pytest
from google.protobuf import text_format

from layermem.data.resizing import resizing_of
from layermem.errors import InputError
from layermem.proto.schema import message_class

PAD, COVER = "FIT_LARGE_SIZE_AND_PAD", "FIT_SMALL_SIZE"


def resizing(settings, height=4, width=8):
    text = f"resize_param {{ height: {height} width: {width} {settings} }}"
    return resizing_of(text_format.Parse(text, message_class("TransformationParameter")()))


@pytest.mark.parametrize(
    "mode, size, resized",
    [
        ("WARP", (9, 3), (4, 8)),
        (PAD, (3, 10), (2, 8)),
        (PAD, (9, 3), (4, 1)),
        (PAD, (3, 6), (4, 8)),
        (PAD, (1, 99), (1, 8)),
        (COVER, (3, 10), (4, 13)),
        (COVER, (9, 3), (24, 8)),
        (COVER, (3, 6), (4, 8)),
    ],
)
def test_the_aspect_ratio_decides_which_side_fits(mode, size, resized):
    assert resizing(f"resize_mode: {mode}").size(*size) == resized


@pytest.mark.parametrize(
    "mode, row",
    [
        ("CONSTANT", [9, 9, 1, 2, 3, 9, 9, 9]),
        ("MIRRORED", [3, 2, 1, 2, 3, 2, 1, 2]),
        ("REPEAT_NEAREST", [1, 1, 1, 2, 3, 3, 3, 3]),
    ],
)
def test_the_rest_lies_on_both_sides_and_the_odd_pixel_behind(mode, row):
    image = np.tile(np.array([1, 2, 3], np.uint8), (1, 4, 1))
    made = resizing(f"resize_mode: {PAD} pad_mode: {mode} pad_value: 9").image(image, "LINEAR")
    assert made.dtype == np.uint8 and made.tolist() == [[row] * 4]


@pytest.mark.parametrize(
    "size, corners", [((8, 8), (0.375, 0, 0.625, 1)), ((1, 4), (0.25, 0.25, 0.75, 0.75)), ((3, 6), (0.25, 0, 0.75, 1))]
)
def test_boxes_go_with_their_pixels(size, corners):
    box = np.array([[1, 0, 0.25, 0, 0.75, 1, 0]], np.float32)
    assert resizing(f"resize_mode: {PAD}").boxes(box, *size)[0].tolist() == [1, 0, *corners, 0]
    for mode in ("WARP", COVER):
        assert resizing(f"resize_mode: {mode}").boxes(box, *size).tolist() == box.tolist()


def test_a_size_is_needed():
    with pytest.raises(InputError, match="needs a resize_param with height and width"):
        resizing("", height=0)
