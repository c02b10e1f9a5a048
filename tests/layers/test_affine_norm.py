"""BN of three forks: which fork a layer is of, its parameters, statistics by hand, refusals."""

import numpy as np
import pytest

from layermem import ops
from layermem.errors import InputError
from tests.layers.harness import TEST, TRAIN, forward, layer_of

X = np.array([[1.0, 10], [3, 10], [5, 40]])  # of three items: means 3 and 20, variances 8/3 and 200


def bn(settings, shape=(3, 2), phase=TRAIN):
    return layer_of(f'type: "BN" bn_param {{ {settings} }}', shape, phase=phase)


YJXIONG, PSPNET, SEGNET = "momentum: 0.75 eps: 1", "decay: 0.25 var_eps: 1", "bn_mode: LEARN"


@pytest.mark.parametrize(
    "settings, blobs, shape",
    [
        ("", 4, (1, 2)),
        (YJXIONG, 4, (1, 2)),
        ("slope_filler { value: 1 }", 4, (1, 2)),
        ("scale_filler { value: 1 } decay: 0.1", 4, (1, 2, 1, 1)),
        ("moving_average: true", 4, (1, 2, 1, 1)),
        ("moving_average: true slope_filler { value: 1 } bias_filler { value: 0 }", 4, (1, 2)),
        ("scale_filler { value: 1 } shift_filler { value: 0 }", 2, (1, 2, 1, 1)),
        ("bn_mode: INFERENCE", 2, (1, 2, 1, 1)),
    ],
)
def test_the_fields_tell_the_fork_and_with_it_the_parameters(settings, blobs, shape):
    assert [param.shape for param in bn(settings).params] == [shape] * blobs


@pytest.mark.parametrize("settings", [YJXIONG, PSPNET])
def test_a_training_step_takes_the_statistics_of_the_batch_and_moves_the_averages(settings):
    run = forward(bn(settings), X, ws=[np.array([2.0, 1]), np.array([0.0, 5]), np.array([4.0, 4]), np.array([8.0, 0])])
    std = np.sqrt([8 / 3 + 1, 201])
    np.testing.assert_allclose(run.arrays["y0"], (X - [3, 20]) / std * [2, 1] + [0, 5])
    np.testing.assert_allclose(run.arrays["w2"], [0.75 * 4 + 0.25 * 3, 0.75 * 4 + 0.25 * 20])
    np.testing.assert_allclose(run.arrays["w3"], [0.75 * 8 + 0.25 * 8 / 3, 0.25 * 200])


@pytest.mark.parametrize(
    "settings, phase",
    [
        ("eps: 1", TEST),
        ("eps: 1 frozen: true", TRAIN),
        ("var_eps: 1 moving_average: true", TEST),
        ("eps: 1 moving_average: true", TEST),
    ],
)
def test_with_averages_the_batch_does_not_matter(settings, phase):
    layer = bn(settings, phase=phase)
    run = forward(layer, X, ws=[np.array([2.0, 1]), np.array([0.0, 5]), np.array([1.0, 10]), np.array([3.0, 8])])
    np.testing.assert_allclose(run.arrays["y0"], (X - [1, 10]) / [2, 3] * [2, 1] + [0, 5])
    assert not layer.stash and not layer.forward().updates


@pytest.mark.parametrize("settings", [PSPNET, "slope_filler { value: 1 } moving_average: false"])
def test_a_test_net_without_moving_average_takes_the_batch_and_moves_nothing(settings):
    step = bn(settings, phase=TEST).forward()
    assert step.reads == ("x0", "w0", "w1") and not step.updates


def test_segnet_takes_the_batch_in_both_phases_and_in_inference_neither():
    for phase in (TRAIN, TEST):
        run = forward(bn(SEGNET, phase=phase), X, ws=[np.array([2.0, 1]), np.array([0.0, 5])])
        np.testing.assert_allclose(run.arrays["y0"], (X - [3, 20]) / np.sqrt([8 / 3, 200]) * [2, 1] + [0, 5])
    layer = bn("bn_mode: INFERENCE")
    assert isinstance(layer.record, ops.Scale)
    np.testing.assert_allclose(
        forward(layer, X, ws=[np.array([2.0, 1]), np.array([0.0, 5])]).arrays["y0"], X * [2, 1] + [0, 5]
    )


def test_no_parameter_of_a_frozen_layer_learns_and_averages_never_do():
    assert [param.learned for param in bn("frozen: true").params] == [False] * 4
    assert [param.learned for param in bn("").params] == [True, True, False, False]
    assert [param.filler.value for param in bn("frozen: true").params] == [0, 0, 0, 1]
    assert bn("frozen: true").backward(("dx0", "dw0"))[0].writes == ("dx0",)


@pytest.mark.parametrize(
    "settings, shape, remedy",
    [
        ("momentum: 0.9 scale_filler { value: 1 }", (3, 2), "momentum and scale_filler; keep one fork's"),
        ("decay: 0.9 bn_mode: LEARN", (3, 2), "decay and bn_mode; keep one fork's"),
        ("axis: 2", (3, 2), "has its channels in axis 2"),
        ("", (3, 2, 4), "BN takes N x C or N x C x H x W: Reshape it first"),
    ],
)
def test_an_impossible_bn_is_refused_with_a_remedy(settings, shape, remedy):
    with pytest.raises(InputError, match=remedy):
        bn(settings, shape)
