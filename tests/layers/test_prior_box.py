"""PriorBox: boxes by hand, sizes of SSD300, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import forward, layer_of


def prior(settings, *shapes):
    return layer_of(f'type: "PriorBox" prior_box_param {{ {settings} }}', *shapes)


def boxes(settings, *shapes):
    y = forward(prior(settings, *shapes), *(np.zeros(shape) for shape in shapes)).arrays["y0"]
    return y[0].reshape(2, -1, 4)


def test_boxes_of_a_pixel_are_the_squares_then_the_aspect_ratios():
    corners, variances = boxes("min_size: 4 max_size: 9 aspect_ratio: 4 img_size: 20", (1, 8, 1, 1))
    np.testing.assert_allclose(
        corners * 20, [[8, 8, 12, 12], [7, 7, 13, 13], [6, 9, 14, 11], [9, 6, 11, 14]], rtol=1e-6
    )
    np.testing.assert_allclose(variances, np.full((4, 4), 0.1), rtol=1e-6)


def test_centers_lie_in_the_middle_of_the_steps_row_by_row():
    settings = "min_size: 2 variance: 0.1 variance: 0.2 variance: 0.3 variance: 0.4"
    corners, variances = boxes(settings, (1, 8, 2, 3), (1, 3, 20, 60))  # steps of 10 down and 20 right
    centers = (corners[:, :2] + corners[:, 2:]) / 2 * [60, 20]
    np.testing.assert_allclose(centers, [(10, 5), (30, 5), (50, 5), (10, 15), (30, 15), (50, 15)], rtol=1e-6)
    np.testing.assert_allclose(variances[-1], [0.1, 0.2, 0.3, 0.4], rtol=1e-6)


def test_steps_offset_and_clip_are_obeyed():
    corners, _ = boxes("min_size: 8 step_h: 2 step_w: 4 offset: 0 img_h: 10 img_w: 20 clip: true", (1, 8, 1, 2))
    np.testing.assert_allclose(corners, [[0, 0, 0.2, 0.4], [0, 0, 0.4, 0.4]], rtol=1e-6)


def test_ratios_count_once_and_flip_may_be_off():
    assert len(boxes("min_size: 4 aspect_ratio: [1, 2, 2, 3] img_size: 9", (1, 1, 1, 1))[0]) == 5
    assert len(boxes("min_size: 4 aspect_ratio: [2, 0.5] img_size: 9", (1, 1, 1, 1))[0]) == 3
    assert len(boxes("min_size: 4 aspect_ratio: [2, 3] flip: false img_size: 9", (1, 1, 1, 1))[0]) == 3


def test_ssd300_has_8732_boxes():
    maps = [(38, "2"), (19, "2, 3"), (10, "2, 3"), (5, "2, 3"), (3, "2"), (1, "2")]
    settings = "min_size: 30 max_size: 60 img_size: 300 aspect_ratio: [%s]"
    assert sum(prior(settings % ratios, (1, 4, side, side)).tops[0].count for side, ratios in maps) == 8 * 8732


def test_it_reads_nothing_and_has_no_gradient():
    layer = prior("min_size: 4", (1, 2, 3, 4), (1, 3, 30, 40))
    assert layer.forward().reads == () and not layer.backward(("dx0", "dx1"))


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("", [(1, 2, 3, 4)], "has no min_size; set prior_box_param"),
        ("min_size: 4", [(1, 2, 3, 4)], "add it, or img_size"),
        ("min_size: 4 img_size: 0", [(1, 2, 3, 4)], "use numbers above 0"),
        ("min_size: 4 max_size: 4 img_size: 9", [(1, 2, 3, 4)], "not above its min_size"),
        ("min_size: [4, 5] max_size: 6 img_size: 9", [(1, 2, 3, 4)], "gives 1 max_size for 2 min_size"),
        ("min_size: 4 img_size: 9 img_h: 3", [(1, 2, 3, 4)], "keep one of the two forms"),
        ("min_size: 4 img_size: 9 step: -1", [(1, 2, 3, 4)], "use numbers above 0"),
        ("min_size: 4 img_size: 9 aspect_ratio: 0", [(1, 2, 3, 4)], "use positive numbers"),
        ("min_size: 4 img_size: 9 variance: [1, 2]", [(1, 2, 3, 4)], "has a wrong variance; give one or four above 0"),
        ("min_size: 4 img_size: 9", [(1, 2, 3)], "PriorBox takes N x C x H x W"),
    ],
)
def test_settings_without_boxes_are_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        prior(settings, *shapes)
