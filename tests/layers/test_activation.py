"""Activations: closed forms, gradients, what backward reads, the bits of the stash."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.layers import LAYERS
from layermem.layers.activation import Activation
from layermem.ops import Pointwise
from tests.cases import select
from tests.cases.activation import FORMULA_SHAPES
from tests.cases.base import THREE_CHANNELS
from tests.layers.harness import TEST, backward, check_gradients, forward, layer_of, wants_of, with_saved

CASES = [case for case in select("medium", formula=True) if isinstance(case.layer().record, Pointwise)]


def activation(kind, settings="", shape=(2, 3, 2, 5), **kwargs):
    return layer_of(f'type: "{kind}" {settings}', shape, **kwargs)


def numbers(shape, positive=False):
    """Distinct values with both signs, away from 0 and from the bounds of Clip."""
    count = int(np.prod(shape))
    x = np.random.default_rng(5).permutation(count).reshape(shape) * (4.0 / count) - 2 + 0.0371
    return np.abs(x) + 0.1 if positive else x


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("shape", FORMULA_SHAPES)
def test_y_is_the_formula_of_x(case, shape):
    x = numbers(shape, case.positive)
    y = forward(case.at(shape).layer(), x).arrays["y0"]
    np.testing.assert_allclose(y, case.formula(x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("case", [case for case in CASES if wants_of(case.layer())], ids=lambda case: case.name)
@pytest.mark.parametrize("shape", FORMULA_SHAPES)
def test_gradients(case, shape):
    check_gradients(case.at(shape).layer(), numbers(shape, case.positive))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_single_precision_stays_single_and_near(case):
    x = numbers((2, 3, 2, 5), case.positive).astype(np.float32)
    layer = case.at(x.shape).layer()
    run = forward(layer, x, dtype="float32")
    backward(run, wants_of(layer), np.ones(x.shape))
    assert all(run.arrays[role].dtype == np.float32 for role in ("y0", *wants_of(layer)))
    np.testing.assert_allclose(run.arrays["y0"], case.formula(x.astype(np.float64)), rtol=3e-6, atol=3e-7)


def test_every_activation_has_a_formula():
    here = {name for name, cls in LAYERS.items() if issubclass(cls, Activation)}
    assert here == {case.layer().type for case in CASES} | {"PReLU"}


@pytest.mark.parametrize("kind", ["Sigmoid", "TanH", "BNLL", "Swish", "ELU"])
def test_far_from_zero_nothing_overflows(kind):
    y = forward(activation(kind, shape=(4,)), np.array([-1000.0, -100, 100, 1000])).arrays["y0"]
    assert np.isfinite(y).all()


# -- ReLU and Clip: the bits -----------------------------------------------------------------------------------------


def test_a_relu_stashes_one_bit_per_element_in_the_order_of_memory():
    x = -np.ones((1, 3, 2, 2))
    x[0, 2, 0, 0] = x[0, 0, 1, 1] = 1  # elements 2 and 9 of channels-last memory
    run = forward(activation("ReLU", shape=x.shape), x)
    assert run.arrays["mask"].tolist() == [1 << 2, 1 << 1]


@pytest.mark.parametrize("count, nbytes", [(1, 1), (8, 1), (9, 2), (256, 32)])
def test_the_bits_of_a_relu_fill_whole_bytes(count, nbytes):
    assert activation("ReLU", shape=(count,)).stash["mask"].nbytes == nbytes


@pytest.mark.parametrize(
    "slope, saved, reads",
    [
        (0, set(), "mask"),
        (0, {"x0"}, "x0"),
        (0, {"y0"}, "y0"),
        (0.5, {"x0", "y0"}, "y0"),
        (-1, {"y0"}, "mask"),
        (-1, {"x0", "y0"}, "x0"),
    ],
)
def test_a_relu_reads_what_another_op_keeps_or_else_its_bits(slope, saved, reads):
    x = numbers((2, 3, 2, 5))
    plain = activation("ReLU", f"relu_param {{ negative_slope: {slope} }}")
    expected = check_gradients(plain, x).arrays["dx0"]
    frugal = activation("ReLU", f"relu_param {{ negative_slope: {slope} }}")
    with_saved(frugal, frozenset(saved))
    (step,) = frugal.backward(["dx0"])
    assert step.reads == (reads, "dy0")
    np.testing.assert_array_equal(check_gradients(frugal, x).arrays["dx0"], expected)


def test_a_mask_that_no_op_reads_need_not_be_written():
    layer = activation("ReLU", phase=TEST)
    layer.stash = {}
    x = numbers((2, 3, 2, 5))
    np.testing.assert_array_equal(forward(layer, x).arrays["y0"], np.maximum(x, 0))


def test_nothing_flows_through_a_relu_at_zero():
    run = backward(forward(activation("ReLU", shape=(3,)), np.array([-1.0, 0, 1])), ["dx0"], np.ones(3))
    assert run.arrays["dx0"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("saved", [(), ("x0",), ("y0",)])
def test_the_bounds_of_a_clip_belong_to_its_range(saved):
    layer = activation("Clip", "clip_param { min: -1 max: 2 }", (4,))
    with_saved(layer, frozenset(saved))
    run = backward(forward(layer, np.array([-1.5, -1, 2, 2.5])), ["dx0"], np.ones(4))
    assert run.arrays["dx0"].tolist() == [0, 1, 1, 0]


# -- Power, PReLU, Threshold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, reads", [("power: 1", ()), ("power: 0", ()), ("power: 3 scale: 0", ()), ("power: 2", ("x0",))]
)
def test_a_linear_power_needs_no_activation_for_its_gradient(settings, reads):
    (step,) = activation("Power", f"power_param {{ {settings} }}").backward(["dx0"])
    assert step.reads == (*reads, "dy0")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", THREE_CHANNELS)
@pytest.mark.parametrize("wants", [("dx0", "dw0"), ("dx0",), ("dw0",)])
def test_prelu_learns_a_slope_per_channel_or_one(shared, shape, wants):
    layer = activation("PReLU", f"prelu_param {{ channel_shared: {str(shared).lower()} }}", shape)
    x = numbers(shape)
    w = np.array(0.3) if shared else np.array([0.5, -0.25, 0.125])
    assert layer.params[0].shape == w.shape
    run = check_gradients(layer, x, ws=[w], wants=wants)
    slope = w if shared else w.reshape(3, *(1,) * (len(shape) - 2))
    np.testing.assert_allclose(run.arrays["y0"], np.maximum(x, 0) + slope * np.minimum(x, 0))


def test_the_slope_of_a_prelu_starts_at_a_quarter_unless_the_net_says_otherwise():
    filler = activation("PReLU").params[0].filler
    assert (filler.type, filler.value) == ("constant", 0.25)
    own = activation("PReLU", 'prelu_param { filler { type: "gaussian" std: 0.1 } }').params[0].filler
    assert own.type == "gaussian"


def test_a_threshold_is_one_above_it_and_has_no_gradient():
    layer = activation("Threshold", "threshold_param { threshold: 0.5 }", (3,))
    assert forward(layer, np.array([0.25, 0.5, 0.75])).arrays["y0"].tolist() == [0, 0, 1]
    assert layer.backward(["dx0"]) == ()


@pytest.mark.parametrize(
    "kind, settings, remedy",
    [
        ("Clip", "", "add clip_param"),
        ("Clip", "clip_param { min: 2 max: 1 }", "exchange"),
        ("Exp", "exp_param { base: 0 }", "positive base"),
        ("Log", "log_param { base: -3 }", "positive base"),
        ("Log", "log_param { base: 1 }", "another base"),
    ],
)
def test_settings_without_a_meaning_are_refused_with_a_remedy(kind, settings, remedy):
    with pytest.raises(InputError, match=remedy):
        activation(kind, settings)


def test_a_prelu_over_one_axis_is_refused():
    with pytest.raises(InputError, match="at least 2 axes"):
        activation("PReLU", shape=(4,))


@pytest.mark.parametrize("settings", ["base: 1e30 shift: 1e30", "base: 1e30 shift: 2", "base: 1e30 scale: 1e38"])
def test_an_exp_beyond_float_is_refused(settings):
    with pytest.raises(InputError, match=r"overflows float32.*; use a smaller base, scale or shift"):
        layer_of(f'type: "Exp" exp_param {{ {settings} }}', (2, 3))


def test_an_exp_that_vanishes_is_zero():
    assert not forward(layer_of('type: "Exp" exp_param { base: 10 shift: -1e30 }', (3,)), np.ones(3)).arrays["y0"].any()
