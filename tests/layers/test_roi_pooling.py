"""ROIPooling: windows by hand, empty and malformed regions, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of

IMAGE = np.arange(24.0).reshape(1, 1, 4, 6)  # row r: 6 r .. 6 r + 5


def pooled(settings, *rois, image=IMAGE):
    layer = layer_of(f'type: "ROIPooling" roi_pooling_param {{ {settings} }}', image.shape, (len(rois), 5))
    return forward(layer, image, np.array(rois, float))


def test_a_region_is_cut_into_windows_that_share_a_pixel_where_it_is_no_multiple():
    run = pooled("pooled_h: 2 pooled_w: 2", (0, 1, 0, 5, 3))  # 5 columns: 1 2 3 and 3 4 5; 4 rows: 0 1 and 2 3
    np.testing.assert_array_equal(run.arrays["y0"][0, 0], [[9, 11], [21, 23]])
    np.testing.assert_array_equal(run.arrays["argmax"][0, 0], [[9, 11], [21, 23]])


def test_corners_are_scaled_and_rounded_away_from_zero():
    run = pooled("pooled_h: 1 pooled_w: 1 spatial_scale: 0.5", (0, 1, 1, 1, 1), (0, 0, 0, 3, 5))
    np.testing.assert_array_equal(run.arrays["y0"].reshape(-1), [7, 20])  # pixel (1, 1); rows 0..3, columns 0..2


def test_a_malformed_region_is_one_pixel_and_a_window_outside_the_image_is_zero():
    image = IMAGE - 100
    run = pooled("pooled_h: 1 pooled_w: 2", (0, 3, 2, 1, 0), (0, 5, 0, 8, 0), image=image)
    np.testing.assert_array_equal(run.arrays["y0"][:, 0, 0], [[-85, -85], [-95, 0]])
    np.testing.assert_array_equal(run.arrays["argmax"][:, 0, 0], [[15, 15], [5, -1]])
    backward(run, ("dx0",), np.array([[[[1.0, 10]]], [[[100, 1000]]]]))
    expected = np.zeros(24)
    expected[[15, 5]] = 11, 100  # the empty window's gradient goes nowhere
    np.testing.assert_array_equal(run.arrays["dx0"].reshape(-1), expected)


def test_regions_of_one_image_add_their_gradients_up():
    image = np.stack([IMAGE[0], -IMAGE[0]])
    run = pooled("pooled_h: 1 pooled_w: 1", (1, 0, 0, 5, 3), (0, 0, 0, 5, 3), (1, 0, 0, 2, 2), image=image)
    np.testing.assert_array_equal(run.arrays["y0"].reshape(-1), [0, 23, 0])
    backward(run, ("dx0",), np.array([1.0, 2, 4]).reshape(3, 1, 1, 1))
    assert run.arrays["dx0"][1, 0, 0, 0] == 5 and run.arrays["dx0"][0, 0, 3, 5] == 2
    assert run.arrays["dx0"].sum() == 7


@pytest.mark.parametrize("roi", [(1, 0, 0, 1, 1), (-1, 0, 0, 1, 1), (0, np.nan, 0, 1, 1), (0, 0, 0, np.inf, 1)])
def test_a_region_in_no_image_is_refused(roi):
    with pytest.raises(InputError, match=r"reads a region of interest in image .*, but has 1 images: 0 to 0"):
        pooled("pooled_h: 1 pooled_w: 1", roi)


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("", [(1, 2, 3, 4), (5, 5)], "has no pooled_h or no pooled_w; set both"),
        ("pooled_h: 2 pooled_w: 2", [(1, 2, 3), (5, 5)], "ROIPooling takes 4: N x C x H x W"),
        ("pooled_h: 2 pooled_w: 2", [(1, 2, 3, 4), (5, 4)], "give R x 5: item, x1, y1, x2, y2"),
        ("pooled_h: 2 pooled_w: 2 spatial_scale: 0", [(1, 2, 3, 4), (5, 5)], "use a number above 0"),
    ],
)
def test_an_impossible_pooling_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(f'type: "ROIPooling" roi_pooling_param {{ {settings} }}', *shapes)


# ---- PSROIPooling ---------------------------------------------------------------------------------------------------


def ps_pooled(x, *rois, scale=1.0):
    text = f'type: "PSROIPooling" psroi_pooling_param {{ output_dim: 1 group_size: 2 spatial_scale: {scale} }}'
    return forward(layer_of(text, x.shape, (len(rois), 5)), x, np.array(rois, float))


def test_each_window_is_the_mean_of_a_channel_of_its_own():
    x = np.arange(4.0)[:, None, None] * 100 + IMAGE[0]  # channel k: 100 k + 6 row + column
    run = ps_pooled(x[None], (0, 0, 0, 3, 3))  # 4 x 4 pixels from the corner: windows of 2 x 2
    np.testing.assert_array_equal(run.arrays["y0"][0, 0], [[3.5, 105.5], [215.5, 317.5]])
    backward(run, ("dx0",), np.array([[[[4.0, 8], [0, 0]]]]))
    np.testing.assert_array_equal(run.arrays["dx0"][0, 0, :3, :3], [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    assert run.arrays["dx0"][0, 1].sum() == 8 and not run.arrays["dx0"][0, 2:].any()


def test_a_window_outside_is_zero_and_windows_follow_the_scale():
    x = np.ones((1, 4, 4, 6))
    run = ps_pooled(x, (0, 10, 0, 11, 7), (0, 0, 0, 7, 7), scale=0.5)  # columns 5 to 6, of which 5 is inside
    assert run.arrays["y0"][0].reshape(-1).tolist() == [1, 1, 1, 1]
    assert ps_pooled(x, (0, 20, 0, 23, 7), scale=0.5).arrays["y0"].reshape(-1).tolist() == [0, 0, 0, 0]


def test_psroi_channels_must_be_those_of_the_grid():
    with pytest.raises(InputError, match="output_dim 2 and group_size 2 take N x 8 x H x W"):
        layer_of(
            'type: "PSROIPooling" psroi_pooling_param { output_dim: 2 group_size: 2 spatial_scale: 1 }',
            (1, 4, 3, 3),
            (1, 5),
        )
