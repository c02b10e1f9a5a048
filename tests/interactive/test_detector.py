"""Classes of windows, and the context around them, with numbers worked out by hand."""

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.io import Transformer, load_image, resize_image
from tests.caffe.nets import CLASSES, SIZE, deploy, write_files


def detector(**options):
    return layermem.Detector(deploy(), seed=3, **options)


def test_windows_are_classified_in_order(tmp_path):
    write_files(tmp_path)
    path, windows = tmp_path / "cat.png", [(1, 2, 15, 20), (0, 0, 20, 30)]
    found = detector(raw_scale=255).detect_windows([(path, windows), (load_image(path), windows[:1])])
    assert [each["window"] for each in found] == [*windows, windows[0]] and found[0]["filename"] == path
    assert np.array_equal(found[0]["prediction"], found[2]["prediction"])
    transformer = Transformer({"data": (1, 3, SIZE, SIZE)})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_raw_scale("data", 255)
    blob = transformer.preprocess("data", load_image(path)[1:15, 2:20])
    expected = layermem.Net(deploy(), "TEST", seed=3).predict(blob)
    np.testing.assert_allclose(found[0]["prediction"], expected[0], rtol=1e-5)
    assert found[0]["prediction"].shape == (CLASSES,)


def test_context_fills_the_border_of_the_input(rng):
    """A window of 8x8 (11 x 11 with its last pixels' width of 1) in an input of 12 with 2 pixels of context."""
    image = rng.random((40, 40, 3)).astype(np.float32)
    crop = detector(context_pad=2).crop(image, (10, 10, 17, 17))
    # extent 7 + 1 = 8, scaled by 12 / (12 - 4) to 12, centre 14: from 8 to 20, of which 20 is not read
    assert np.array_equal(crop, resize_image(image[8:20, 8:20], (12, 12)))


def test_beyond_the_image_there_is_the_mean():
    image = np.ones((40, 40, 3), np.float32)
    found = detector(context_pad=2, mean=np.array([51.0, 102.0, 255.0]), raw_scale=255, channel_swap=(2, 1, 0))
    crop = found.crop(image, (0, 10, 7, 17))
    # rows from -2 to 10: 13 rows on 12 pixels, so that 2 * 12 / 13 = 1.8 of them, rounded 2, show no image
    np.testing.assert_allclose(crop[:2], np.broadcast_to([1, 0.4, 0.2], (2, 12, 3)), rtol=1e-6)
    assert np.all(crop[2:] == 1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: detector(context_pad=6), "context_pad 6 needs a square input of more than 12 pixels, and .* 12x12"),
        (lambda: detector().crop(np.ones((4, 4, 3)), (5, 5, 9, 9)), r"window \(5, 5, 9, 9\) has no pixel of an image"),
    ],
)
def test_impossible_windows_are_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_no_windows_are_no_detections():
    assert detector().detect_windows([]) == []
