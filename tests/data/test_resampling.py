"""Resized images compared with OpenCV if it is installed."""

import numpy as np
import pytest

from layermem.data.resampling import resample, taps
from tests.data.makers import images

MODES = ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4")

IMAGE = images(1, 3, 37, 53)[0]


@pytest.mark.parametrize("size", [(20, 31), (74, 106), (20, 80)])
@pytest.mark.parametrize("mode", MODES)
def test_sizes_are_those_of_opencv(mode, size):
    cv2 = pytest.importorskip("cv2")
    expected = cv2.resize(IMAGE.transpose(1, 2, 0), size[::-1], interpolation=getattr(cv2, f"INTER_{mode}"))
    difference = resample(IMAGE, *size, mode).astype(int) - expected.transpose(2, 0, 1)
    assert abs(difference).max() <= (0 if mode in ("LINEAR", "NEAREST") else 1)


@pytest.mark.parametrize("mode", MODES[1:])
def test_weights_of_a_new_pixel_add_up_to_one(mode):
    for old, new in ((7, 3), (3, 7), (8, 4)):
        np.testing.assert_allclose(taps(old, new, mode)[1].sum(axis=1), 1, atol=1e-6)
