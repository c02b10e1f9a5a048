"""Losses against targets: plain loops as oracles, hand numbers, gradients."""

from math import exp, log, sqrt

import numpy as np
import pytest

from layermem.errors import InputError
from tests.cases.base import ROWS_AND_IMAGES
from tests.cases.loss import COMPARED, CONTRASTED
from tests.layers.harness import backward, check_gradients, forward, layer_of

RNG = np.random.default_rng


def normal(shape, seed=1):
    return RNG(seed).standard_normal(shape)


# -- EuclideanLoss ----------------------------------------------------------------------------------------------


def test_euclidean_loss_by_hand():
    a, b = np.array([[1.0, 2], [3, 4]]), np.array([[0.0, 2], [3, 1]])
    run = forward(layer_of('type: "EuclideanLoss"', (2, 2), (2, 2)), a, b)
    backward(run, ["dx0", "dx1"], np.array(1.0))
    assert run.arrays["y0"] == (1 + 9) / 4
    assert run.arrays["dx0"].tolist() == [[0.5, 0], [0, 1.5]]
    assert run.arrays["dx1"].tolist() == [[-0.5, 0], [0, -1.5]]


@pytest.mark.parametrize("one, other", COMPARED)
@pytest.mark.parametrize("wants", [("dx0", "dx1"), ("dx0",), ("dx1",)])
def test_euclidean_gradients_go_to_either_bottom(one, other, wants):
    layer = layer_of('type: "EuclideanLoss"', one, other)
    run = check_gradients(layer, normal(one), normal(other, 2), wants=wants)
    difference = normal(one).reshape(-1) - normal(other, 2).reshape(-1)
    assert run.arrays["y0"] == pytest.approx((difference**2).sum() / 4)


def test_bottoms_whose_memory_differs_in_order_may_not_lie_on_each_other():
    (step,) = layer_of('type: "EuclideanLoss"', (2, 3, 2, 2), (2, 12)).backward(["dx0"])
    assert step.overlays == ()


# -- SigmoidCrossEntropyLoss ---------------------------------------------------------------------------------------


def cross_entropy(x, t, ignored=None):
    total, counted = 0.0, 0
    for score, target in zip(x.reshape(-1), t.reshape(-1), strict=True):
        if int(target) != ignored:
            s = 1 / (1 + exp(-score))
            total -= target * log(s) + (1 - target) * log(1 - s)
            counted += 1
    return total, counted


@pytest.mark.parametrize(
    "settings, divisor",
    [
        ("", lambda items, all_, valid: items),
        ("normalization: VALID", lambda items, all_, valid: valid),
        ("normalization: FULL", lambda items, all_, valid: all_),
        ("normalization: BATCH_SIZE", lambda items, all_, valid: items),
        ("normalization: NONE", lambda items, all_, valid: 1),
        ("normalize: true", lambda items, all_, valid: valid),
        ("normalize: false", lambda items, all_, valid: items),
    ],
)
@pytest.mark.parametrize("ignored", [None, -1])
@pytest.mark.parametrize("shape", ROWS_AND_IMAGES)
def test_sigmoid_cross_entropy_is_divided_as_its_normalization_says(settings, divisor, ignored, shape):
    x, t = normal(shape), RNG(3).uniform(0, 1, shape)
    if ignored is not None:
        t.reshape(-1)[::3] = ignored
    settings_text = settings + ("" if ignored is None else f" ignore_label: {ignored}")
    layer = layer_of(f'type: "SigmoidCrossEntropyLoss" loss_param {{ {settings_text} }}', shape, shape)
    total, counted = cross_entropy(x, t, ignored)
    run = check_gradients(layer, x, t, wants=["dx0"])
    assert run.arrays["y0"] == pytest.approx(total / divisor(shape[0], x.size, counted))


def test_sigmoid_cross_entropy_of_huge_scores_does_not_overflow():
    layer = layer_of('type: "SigmoidCrossEntropyLoss"', (1, 3), (1, 3))
    run = forward(layer, np.array([[1e4, -1e4, 1e4]]), np.array([[1.0, 0, 0]]))
    backward(run, ["dx0"], np.array(1.0))
    assert run.arrays["y0"] == 1e4 and run.arrays["dx0"].tolist() == [[0, 0, 1]]


def test_if_every_target_is_ignored_loss_and_gradient_are_zero():
    settings_text = "loss_param { ignore_label: 5 normalization: VALID }"
    layer = layer_of(f'type: "SigmoidCrossEntropyLoss" {settings_text}', (2, 2), (2, 2))
    run = backward(forward(layer, normal((2, 2)), np.full((2, 2), 5.0)), ["dx0"], np.array(1.0))
    assert run.arrays["y0"] == 0 and not run.arrays["dx0"].any()


# -- HingeLoss, MultinomialLogisticLoss ----------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["L1", "L2"])
@pytest.mark.parametrize("shape", ROWS_AND_IMAGES)
def test_hinge_loss_sums_what_each_score_lacks_of_the_margin(norm, shape):
    x = normal(shape)
    classes = x[0].size
    label = RNG(2).integers(0, classes, shape[0]).astype(float)
    total = 0.0
    for row, expected in zip(x.reshape(shape[0], -1), label, strict=True):
        for k, score in enumerate(row):
            lack = max(0.0, 1 - score if k == expected else 1 + score)
            total += lack**2 if norm == "L2" else lack
    layer = layer_of(f'type: "HingeLoss" hinge_loss_param {{ norm: {norm} }}', shape, (shape[0],))
    run = check_gradients(layer, x, label, wants=["dx0"])
    assert run.arrays["y0"] == pytest.approx(total / shape[0])


def test_multinomial_logistic_loss_is_the_mean_of_minus_ln_p():
    p = RNG(1).uniform(0.1, 0.9, (4, 3))
    label = np.array([2.0, 0, 1, 1])
    layer = layer_of('type: "MultinomialLogisticLoss"', (4, 3), (4,))
    run = check_gradients(layer, p, label, wants=["dx0"])
    expected = -sum(log(row[int(k)]) for row, k in zip(p, label, strict=True)) / 4
    assert run.arrays["y0"] == pytest.approx(expected)


def test_a_probability_of_zero_costs_what_the_smallest_one_does():
    layer = layer_of('type: "MultinomialLogisticLoss"', (1, 2), (1,))
    run = forward(layer, np.array([[1.0, 0]]), np.array([1.0]))
    assert run.arrays["y0"] == pytest.approx(-log(1e-20))


# -- ContrastiveLoss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("wants", [("dx0", "dx1"), ("dx1",)])
@pytest.mark.parametrize("shape", CONTRASTED)
def test_contrastive_loss_pulls_like_pairs_together_and_others_apart_to_the_margin(legacy, wants, shape):
    a, b, same = normal(shape), normal(shape, 2), np.array([1.0, 0, 0, 1, 0, 0])
    b[1] = a[1] + 0.3  # an unlike pair inside the margin
    total = 0.0
    for p, q, alike in zip(a.reshape(6, 3), b.reshape(6, 3), same, strict=True):
        squared = float(((p - q) ** 2).sum())
        apart = max(0.0, 2 - squared) if legacy else max(0.0, 2 - sqrt(squared)) ** 2
        total += squared if alike else apart
    settings_text = f"contrastive_loss_param {{ margin: 2 legacy_version: {str(legacy).lower()} }}"
    layer = layer_of(f'type: "ContrastiveLoss" {settings_text}', shape, shape, (6,))
    # Caffe divides by d + 1e-4 where the derivative has d
    run = check_gradients(layer, a, b, same, wants=wants, tolerance=1e-6 if legacy else 3e-4)
    assert run.arrays["y0"] == pytest.approx(total / 12)


def test_an_unlike_pair_at_one_point_has_no_direction_and_no_nan():
    layer = layer_of('type: "ContrastiveLoss"', (1, 2), (1, 2), (1,))
    run = backward(forward(layer, np.ones((1, 2)), np.ones((1, 2)), np.zeros(1)), ["dx0", "dx1"], np.array(1.0))
    assert run.arrays["dx0"].tolist() == [[0, 0]]


# -- all of them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, shapes, remedy",
    [
        ("EuclideanLoss", [(2, 3), (3, 2)], "'x0' of shape 2x3 and 'x1' of shape 3x2; make the batch"),
        ("EuclideanLoss", [(), ()], "make the batch"),
        ("SigmoidCrossEntropyLoss", [(2, 3), (2, 4)], "make the batch"),
        ("HingeLoss", [(2, 3), (2, 3)], "one label per item"),
        ("MultinomialLogisticLoss", [(2, 3), (3,)], "one label per item"),
        ("ContrastiveLoss", [(2, 3, 2, 1), (2, 3, 2, 1), (2,)], "two bottoms of N x C"),
        ("ContrastiveLoss", [(2, 3), (2, 3), (3,)], "one number per pair"),
    ],
)
def test_bottoms_that_cannot_be_compared_are_refused_with_a_remedy(kind, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer_of(f'type: "{kind}"', *shapes)


@pytest.mark.parametrize("kind", ["HingeLoss", "MultinomialLogisticLoss"])
def test_a_label_that_is_no_class_is_refused(kind):
    with pytest.raises(InputError, match="reads label 3, but has scores for 3 classes"):
        forward(layer_of(f'type: "{kind}"', (1, 3), (1,)), np.ones((1, 3)), np.array([3.0]))


@pytest.mark.parametrize(
    "kind, count", [("SigmoidCrossEntropyLoss", 2), ("HingeLoss", 2), ("MultinomialLogisticLoss", 2)]
)
def test_a_target_never_gets_a_gradient(kind, count):
    shapes = [(2, 3), (2, 3) if kind.startswith("Sigmoid") else (2,)]
    layer = layer_of(f'type: "{kind}"', *shapes)
    assert tuple(layer.backward(["dx1"])) == ()
    assert [step.writes for step in layer.backward(["dx0", "dx1"])] == [("dx0",)]


@pytest.mark.parametrize("kind, shapes", [("EuclideanLoss", [(2, 3)] * 2), ("HingeLoss", [(2, 3), (2,)])])
def test_a_loss_is_a_scalar_that_counts_in_the_objective(kind, shapes):
    layer = layer_of(f'type: "{kind}"', *shapes)
    assert layer.tops[0].shape == () and layer.is_loss


# ---- SmoothL1Loss ---------------------------------------------------------------------------------------------------


def smooth_l1(count, settings=""):
    return layer_of(f'type: "SmoothL1Loss" smooth_l1_loss_param {{ {settings} }}', *[(2, 3)] * count)


def test_smooth_l1_is_half_the_square_below_one_and_the_distance_less_a_half_beyond():
    a = np.array([[0.5, -1, 3], [0, -2, 0]])
    run = forward(smooth_l1(2), a, np.zeros((2, 3)))
    assert run.arrays["y0"] == pytest.approx((0.125 + 0.5 + 2.5 + 1.5) / 2)
    backward(run, ("dx0", "dx1"), np.array(2.0))
    np.testing.assert_allclose(run.arrays["dx0"], [[0.5, -1, 1], [0, -1, 0]])
    np.testing.assert_allclose(run.arrays["dx1"], -run.arrays["dx0"])


def test_smooth_l1_with_sigma_and_weights():
    a, b, ones = np.array([[1.0, 5, 7], [0.2, 0, 0]]), np.zeros((2, 3)), np.ones((2, 3))
    inside, outside = ones * [1, 2, 0], ones * 3
    # sigma 2: the knee is at 1/4;  1 -> 1 - 1/8, 10 -> 10 - 1/8, 0 -> 0, 0.2 -> 4/2 0.04
    run = forward(smooth_l1(4, "sigma: 2"), a, b, inside, outside)
    assert run.arrays["y0"] == pytest.approx(3 * (0.875 + 9.875 + 0.08) / 2)
    backward(run, ("dx0",), np.array(2.0))
    np.testing.assert_allclose(run.arrays["dx0"], [[3, 6, 0], [2.4, 0, 0]])
    assert forward(smooth_l1(3, "sigma: 2"), a, b, inside).arrays["y0"] == pytest.approx(run.arrays["y0"] / 3)


@pytest.mark.parametrize("sigma", ["0", "-1", "nan"])
def test_smooth_l1_needs_a_positive_sigma(sigma):
    with pytest.raises(InputError, match="use a number above 0"):
        smooth_l1(2, f"sigma: {sigma}")


def test_smooth_l1_needs_bottoms_of_one_shape():
    with pytest.raises(InputError, match="make the shapes equal"):
        layer_of('type: "SmoothL1Loss"', (2, 3), (2, 4))
