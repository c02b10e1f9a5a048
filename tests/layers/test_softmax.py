"""Softmax, its loss, accuracy: plain loops over every position as oracles, gradients, Caffe's normalizations."""

import re
from itertools import product
from math import exp, log

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import forward_graph
from layermem.proto.read import read_net_text
from layermem.solver.benchmark import Benchmark
from tests.cases.base import SHAPE_AND_AXIS
from tests.compiling import compile
from tests.layers.harness import backward, check_gradients, forward, layer_of


def scores(shape):
    return np.random.default_rng(6).standard_normal(shape) * 2


def labels(shape, axis, ignored=None):
    """One label per position; every third is `ignored`."""
    axis %= len(shape)
    count = int(np.prod(shape)) // shape[axis]
    drawn = np.random.default_rng(8).integers(0, shape[axis], count).astype(float)
    if ignored is not None:
        drawn[::3] = ignored
    return drawn


def positions(shape, axis):
    """(row of scores) selectors, one per position, in Caffe's order."""
    axis %= len(shape)
    for place in product(*(range(d) for i, d in enumerate(shape) if i != axis)):
        yield (*place[:axis], slice(None), *place[axis:])


def probabilities(row):
    powers = [exp(v) for v in row]
    return [p / sum(powers) for p in powers]


# -- Softmax --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, axis", SHAPE_AND_AXIS)
def test_softmax_is_exp_over_the_sum_of_exp_along_its_axis(shape, axis):
    x = scores(shape)
    run = check_gradients(layer_of(f'type: "Softmax" softmax_param {{ axis: {axis} }}', shape), x)
    for at in positions(shape, axis):
        np.testing.assert_allclose(run.arrays["y0"][at], probabilities(x[at]))


def test_softmax_of_huge_scores_is_still_a_distribution():
    y = forward(layer_of('type: "Softmax"', (1, 3)), np.array([[1e4, -1e4, 1e4]])).arrays["y0"]
    assert y.tolist() == [[0.5, 0, 0.5]]


def test_softmax_reads_its_top_only():
    (step,) = layer_of('type: "Softmax"', (2, 3)).backward(["dx0"])
    assert step.reads == ("y0", "dy0")


# -- SoftmaxWithLoss ----------------------------------------------------------------------------------------------


def softmax_loss(settings, shape, axis=1, label_shape=None, tops=""):
    axis_text = f"softmax_param {{ axis: {axis} }}"
    count = int(np.prod(shape)) // shape[axis]
    text = f'type: "SoftmaxWithLoss" {tops} {axis_text} loss_param {{ {settings} }}'
    return layer_of(text, shape, label_shape or (count,))


def summed(x, label, axis, ignored=None):
    """(sum of -ln p, labels that count), by plain loops."""
    total, counted = 0.0, 0
    for at, expected in zip(positions(x.shape, axis), label, strict=True):
        if expected != ignored:
            total -= log(probabilities(x[at])[int(expected)])
            counted += 1
    return total, counted


@pytest.mark.parametrize("shape, axis", SHAPE_AND_AXIS)
def test_softmax_loss_is_the_mean_of_minus_ln_p_over_all_positions(shape, axis):
    x, label = scores(shape), labels(shape, axis)
    total, counted = summed(x, label, axis)
    run = check_gradients(softmax_loss("", shape, axis), x, label, wants=["dx0"])
    assert run.arrays["y0"] == pytest.approx(total / counted)


@pytest.mark.parametrize(
    "settings, divisor",
    [
        ("", lambda items, all_, valid: valid),
        ("normalization: VALID", lambda items, all_, valid: valid),
        ("normalization: FULL", lambda items, all_, valid: all_),
        ("normalization: BATCH_SIZE", lambda items, all_, valid: items),
        ("normalization: NONE", lambda items, all_, valid: 1),
        ("normalize: true", lambda items, all_, valid: valid),
        ("normalize: false", lambda items, all_, valid: items),
        ("normalize: false normalization: FULL", lambda items, all_, valid: all_),
    ],
)
@pytest.mark.parametrize("ignored", [None, 1, -1, 255])
def test_softmax_loss_is_divided_as_its_normalization_says(settings, divisor, ignored):
    shape = (2, 3, 2, 4)
    x, label = scores(shape), labels(shape, 1, ignored)
    settings_text = "" if ignored is None else f"ignore_label: {ignored}"
    total, counted = summed(x, label, 1, ignored)
    run = check_gradients(softmax_loss(f"{settings} {settings_text}", shape), x, label, wants=["dx0"])
    assert run.arrays["y0"] == pytest.approx(total / divisor(2, 16, counted))


def test_ignoring_each_label_in_turn_loses_each_loss_once():
    shape = (2, 5, 3, 2)
    x, label = scores(shape), labels(shape, 1)

    def loss(settings):
        return float(forward(softmax_loss(f"normalization: NONE {settings}", shape), x, label).arrays["y0"])

    assert sum(loss(f"ignore_label: {k}") for k in range(5)) == pytest.approx(4 * loss(""))


def test_if_every_label_is_ignored_loss_and_gradient_are_zero():
    layer = softmax_loss("ignore_label: 7", (3, 4))
    run = backward(forward(layer, scores((3, 4)), np.full(3, 7)), ["dx0"], np.array(1.0))
    assert run.arrays["y0"] == 0 and not run.arrays["dx0"].any()


def test_a_hopeless_score_has_the_largest_loss_of_caffe_and_a_gradient():
    run = forward(softmax_loss("", (1, 2)), np.array([[1000.0, -1000]]), np.array([1]))
    backward(run, ["dx0"], np.array(1.0))
    assert run.arrays["y0"] == pytest.approx(-log(np.finfo(np.float32).tiny), rel=1e-7)
    assert run.arrays["dx0"].tolist() == [[1, -1]]


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_loss_of_nan_stays_nan(device):
    text = """
        layer { name: "x" type: "DummyData" top: "x" top: "t" dummy_data_param {
                shape { dim: 1 dim: 2 } shape { dim: 1 }
                data_filler { value: nan } data_filler { value: 1 } } }
        layer { name: "l" type: "SoftmaxWithLoss" bottom: "x" bottom: "t" top: "l" }
    """
    net, target = Net(read_net_text(text), 0), get_device(device)
    benchmark = Benchmark(net, compile([forward_graph(net, target)]), target)
    assert np.isnan(benchmark.runner.run()["l"])


def test_the_loss_weight_scales_the_gradient():
    x, label = scores((4, 3)), labels((4, 3), 1)
    one, three = (
        backward(forward(softmax_loss("", x.shape), x, label), ["dx0"], np.array(w)).arrays["dx0"] for w in (1.0, 3.0)
    )
    np.testing.assert_allclose(three, 3 * one)


@pytest.mark.parametrize("shape, axis", SHAPE_AND_AXIS)
def test_a_second_top_has_the_probabilities(shape, axis):
    x, label = scores(shape), labels(shape, axis)
    layer = softmax_loss("", shape, axis, tops='top: "loss" top: "prob"')
    run = forward(layer, x, label)
    want = forward(layer_of(f'type: "Softmax" softmax_param {{ axis: {axis} }}', shape), x)
    np.testing.assert_array_equal(run.arrays["y1"], want.arrays["y0"])
    (step,) = layer.backward(["dx0"])
    assert step.reads == ("x0", "x1", "dy0")  # what flows into the second top is not read


@pytest.mark.parametrize("label_shape", [(2, 1, 3, 2), (2, 3, 2), (12,), (2, 6)])
def test_labels_of_any_shape_meet_the_positions_in_caffes_order(label_shape):
    shape = (2, 5, 3, 2)
    x, label = scores(shape), labels(shape, 1)
    layer = softmax_loss("", shape, label_shape=label_shape)
    total, counted = summed(x, label, 1)
    assert layer.record.labels_in_order
    assert forward(layer, x, label).arrays["y0"] == pytest.approx(total / counted)


@pytest.mark.parametrize(
    "axis, label_shape, in_order",
    [
        (1, (2, 1, 3, 2), True),
        (1, (12,), True),
        (1, (2, 3, 2, 1), False),  # stored as N, W, 1, H
        (2, (2, 5, 1, 2), True),
        (2, (20,), False),  # positions lie as N, W, C
        (0, (30,), False),
        (-1, (2, 5, 3), False),
    ],
)
def test_labels_are_in_order_where_they_lie_in_memory_as_the_positions_do(axis, label_shape, in_order):
    shape = (2, 5, 3, 2)
    layer = softmax_loss("", shape, axis, label_shape)
    assert layer.record.labels_in_order == in_order
    x, label = scores(shape), labels(shape, axis)
    total, counted = summed(x, label, axis)
    assert forward(layer, x, label).arrays["y0"] == pytest.approx(total / counted)


@pytest.mark.parametrize("bad", [-1, 3, 200])
def test_a_label_that_is_no_class_is_refused_with_its_value(bad):
    label = np.array([0, 1, bad, 2.0])
    with pytest.raises(InputError, match=f"layer 'it' reads label {bad}, but has scores for 3 classes"):
        forward(softmax_loss("", (4, 3)), scores((4, 3)), label)
    with pytest.raises(InputError, match="set ignore_label"):
        forward(layer_of('type: "Accuracy"', (4, 3), (4,)), scores((4, 3)), label)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "1e+30", "-1.5", "3.25", "16777216"])
def test_a_label_that_is_no_class_is_refused_as_it_is(bad):
    label = np.array([0, 1, float(bad), 2.0])
    with pytest.raises(InputError, match=f"reads label {re.escape(bad)}, but has scores for 3 classes"):
        forward(softmax_loss("", (4, 3)), scores((4, 3)), label)


def test_a_label_counts_by_its_integer_part_as_in_caffe():
    shape = (4, 3)
    whole, part = (
        forward(softmax_loss("", shape), scores(shape), np.array(label)).arrays["y0"]
        for label in ([0, 1, 2, 0], [-0.5, 1.5, 2.99, 0])
    )
    assert whole == part


def test_a_label_never_gets_a_gradient():
    assert tuple(softmax_loss("", (4, 3)).backward(["dx1"])) == ()
    (step,) = softmax_loss("", (4, 3)).backward(["dx0", "dx1"])
    assert step.writes == ("dx0",)


@pytest.mark.parametrize("kind", ["SoftmaxWithLoss", "Accuracy"])
def test_a_wrong_number_of_labels_is_refused(kind):
    with pytest.raises(InputError, match="'x0' of shape 2x3x4x4 and 'x1' of shape 2; give one label per position"):
        layer_of(f'type: "{kind}"', (2, 3, 4, 4), (2,))


# -- Accuracy -----------------------------------------------------------------------------------------------------


def accuracy(settings, x, label, axis=1, tops=""):
    text = f'type: "Accuracy" {tops} accuracy_param {{ axis: {axis} {settings} }}'
    return forward(layer_of(text, x.shape, label.shape), x, label).arrays


@pytest.mark.parametrize("shape, axis", SHAPE_AND_AXIS)
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("ignored", [None, 1])
def test_accuracy_is_the_share_of_labels_among_the_top_k(shape, axis, top_k, ignored):
    x, label = scores(shape), labels(shape, axis, ignored)
    hits, seen = np.zeros(shape[axis]), np.zeros(shape[axis])
    for at, expected in zip(positions(shape, axis), label.astype(int), strict=True):
        if expected != ignored:
            seen[expected] += 1
            hits[expected] += expected in np.argsort(-x[at])[:top_k]
    settings_text = f"top_k: {top_k}" + ("" if ignored is None else f" ignore_label: {ignored}")
    got = accuracy(settings_text, x, label, axis, tops='top: "all" top: "each"')
    assert got["y0"] == pytest.approx(hits.sum() / seen.sum())
    np.testing.assert_allclose(got["y1"], hits / np.maximum(seen, 1))


def test_a_tie_is_a_miss_unless_top_k_includes_it():
    x, label = np.array([[1.0, 1, 0]]), np.array([0.0])
    assert accuracy("", x, label)["y0"] == 0
    assert accuracy("top_k: 2", x, label)["y0"] == 1


def test_a_net_that_has_diverged_to_nan_finds_nothing():
    assert accuracy("top_k: 3", np.full((2, 3), np.nan), np.array([0.0, 1]))["y0"] == 0


def test_without_a_label_that_counts_the_accuracy_is_zero():
    assert accuracy("ignore_label: 2", scores((2, 3)), np.array([2.0, 2]))["y0"] == 0


@pytest.mark.parametrize("top_k", [0, 4])
def test_a_top_k_beyond_the_classes_is_refused(top_k):
    with pytest.raises(InputError, match="of 3 classes"):
        accuracy(f"top_k: {top_k}", scores((2, 3)), np.zeros(2))


# ---- InfogainLoss ---------------------------------------------------------------------------------------------------


def infogain(settings, *shapes):
    return layer_of(f'type: "InfogainLoss" {settings}', *shapes)


SHARES = np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
GAINS = np.array([[1.0, 0, 0], [0.5, 2, 0.25], [0, 0, 3]])


def test_infogain_multiplies_the_logarithm_of_every_share_with_the_row_of_the_label():
    it = infogain("", (2, 3), (2,), (1, 1, 3, 3))
    run = forward(it, np.log(SHARES), np.array([1.0, 2]), GAINS)
    each = [-(0.5 * np.log(0.5) + 2 * np.log(0.25) + 0.25 * np.log(0.25)), -3 * np.log(0.75)]
    np.testing.assert_allclose(run.arrays["y0"], sum(each) / 2)
    backward(run, ("dx0",), np.array(2.0))
    expected = [SHARES[0] * 2.75 - GAINS[1], SHARES[1] * 3 - GAINS[2]]
    np.testing.assert_allclose(run.arrays["dx0"], expected)


def test_infogain_with_the_unit_matrix_is_softmax_with_loss():
    x, label = np.random.default_rng(1).standard_normal((2, 4, 3, 2)), np.array([3.0, 1, 0, 2, 1, 1] * 2)
    shapes = x.shape, (2, 3, 2)
    loss = "loss_param { ignore_label: 1 }"
    one = forward(infogain(loss, *shapes, (4, 4)), x, label, np.eye(4))
    other = forward(layer_of(f'type: "SoftmaxWithLoss" {loss}', *shapes), x, label)
    np.testing.assert_allclose(one.arrays["y0"], other.arrays["y0"])
    for run in (one, other):
        backward(run, ("dx0",), np.array(1.0))
    np.testing.assert_allclose(one.arrays["dx0"], other.arrays["dx0"], atol=1e-15)


def test_infogain_takes_no_share_below_1e_20():
    run = forward(infogain("", (1, 2), (1,), (2, 2)), np.array([[0.0, -100]]), np.array([1.0]), np.eye(2))
    np.testing.assert_allclose(run.arrays["y0"], -np.log(1e-20))


@pytest.mark.parametrize("mode, divisor", [("FULL", 12), ("VALID", 9), ("BATCH_SIZE", 2), ("NONE", 1)])
def test_infogain_is_divided_as_its_normalization_says(mode, divisor):
    x, label = np.zeros((2, 3, 2, 3)), np.array([0.0, 1, 2, 2] * 3)
    settings = f"loss_param {{ normalization: {mode} ignore_label: 1 }}"
    run = forward(infogain(settings, x.shape, (2, 2, 3), (3, 3)), x, label, np.eye(3))
    np.testing.assert_allclose(run.arrays["y0"], 9 * np.log(3) / divisor)


@pytest.mark.parametrize(
    "settings, shapes, remedy",
    [
        ("", [(2, 3), (2,)], "give `source` in its infogain_loss_param, or a third bottom"),
        ("", [(2, 3), (2,), (2, 3)], "has a matrix of shape 2x3 for 3 classes; give 1 x 1 x 3 x 3 numbers"),
        ("", [(2, 4), (2,), (1, 4, 4, 1)], "give 1 x 1 x 4 x 4"),
        ("", [(2, 3), (3,), (3, 3)], "give one label per position"),
        ("infogain_loss_param { axis: 2 }", [(2, 3), (3,), (3, 3)], "use -2 to 1"),
        ("loss_param { normalize: true }", [(2, 3), (2,), (3, 3)], "use normalization"),
    ],
)
def test_an_impossible_infogain_loss_is_refused_with_a_remedy(settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        infogain(settings, *shapes)
