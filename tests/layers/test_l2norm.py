"""Normalize: lengths by hand, fields of the SSD fork, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.cases.base import OTHER_RANKS
from tests.layers.harness import backward, forward, layer_of

PIXELS = np.array([[[[3.0, 0]], [[4, 2]]]])  # two pixels of two channels: (3, 4) and (0, 2)


def normalize(settings, shape):
    return layer_of(f'type: "Normalize" norm_param {{ {settings} }}', shape)


def test_each_pixel_has_length_one_times_the_scale_of_its_channels():
    layer = normalize("across_spatial: false channel_shared: false", PIXELS.shape)
    y = forward(layer, PIXELS, ws=[np.array([10.0, 100])]).arrays["y0"]
    np.testing.assert_allclose(y, [[[[6, 0]], [[80, 100]]]])


def test_an_item_has_length_one_times_the_one_scale():
    layer = normalize("", PIXELS.shape)
    y = forward(layer, PIXELS, ws=[np.array(29**0.5)]).arrays["y0"]
    np.testing.assert_allclose(y, PIXELS)  # 9 + 16 + 4 = 29


def test_eps_keeps_a_pixel_of_zeros_finite():
    layer = normalize("across_spatial: false eps: 4", (1, 2, 1, 1))
    run = forward(layer, np.zeros((1, 2, 1, 1)), ws=[np.array(6.0)])
    assert not run.arrays["y0"].any()
    backward(run, ("dx0", "dw0"), np.ones((1, 2, 1, 1)))
    np.testing.assert_allclose(run.arrays["dx0"].reshape(-1), [3, 3])  # 6 / sqrt(4)
    assert run.arrays["dw0"] == 0


def test_the_gradient_is_orthogonal_to_the_pixel():
    x = np.random.default_rng(2).standard_normal((2, 5, 3, 2))
    run = forward(normalize("across_spatial: false channel_shared: false", x.shape), x, ws=[np.arange(1.0, 6)])
    backward(run, ("dx0",), np.random.default_rng(3).standard_normal(x.shape))
    np.testing.assert_allclose((run.arrays["dx0"] * x).sum(axis=1), 0, atol=1e-8)


def test_the_scale_begins_at_one_or_by_its_filler():
    shared = normalize("", (2, 3, 4, 5)).params[0]
    assert shared.shape == () and (shared.filler.type, shared.filler.value) == ("constant", 1)
    of_ssd = normalize("channel_shared: false scale_filler { type: 'constant' value: 20 }", (2, 3, 4, 5)).params[0]
    assert of_ssd.shape == (3,) and of_ssd.filler.value == 20


@pytest.mark.parametrize("shape", OTHER_RANKS)
def test_a_bottom_without_pixels_is_refused(shape):
    with pytest.raises(InputError, match=r"Normalize takes N x C or N x C x H x W: Reshape it first"):
        normalize("", shape)
