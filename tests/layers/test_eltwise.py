"""Eltwise: sums, products and maxima of any number of bottoms."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, check_gradients, forward, layer_of

SHAPE = (2, 3, 2, 4)


def eltwise(settings, count, shape=SHAPE):
    return layer_of(f'type: "Eltwise" eltwise_param {{ {settings} }}', *[shape] * count)


def inputs(count, shape=SHAPE):
    """Values that all differ, so that no maximum is near a tie."""
    size = int(np.prod(shape))
    return list(np.random.default_rng(1).permutation(count * size).reshape(count, *shape) * 0.01 - 0.2)


CASES = [
    ("", 2, lambda a, b: a + b),
    ("operation: SUM", 3, lambda a, b, c: a + b + c),
    ("coeff: 1 coeff: -1", 2, lambda a, b: a - b),
    ("coeff: 1 coeff: -0.5 coeff: 2", 3, lambda a, b, c: a - b / 2 + 2 * c),
    ("operation: PROD", 2, lambda a, b: a * b),
    ("operation: PROD", 4, lambda a, b, c, d: a * b * c * d),
    ("operation: PROD stable_prod_grad: false", 3, lambda a, b, c: a * b * c),
    ("operation: MAX", 2, np.maximum),
    ("operation: MAX", 4, lambda *xs: np.max(xs, axis=0)),
]


@pytest.mark.parametrize("settings, count, formula", CASES)
@pytest.mark.parametrize("shape", [SHAPE, (5, 3)])
def test_y_is_the_formula_of_the_bottoms(settings, count, formula, shape):
    xs = inputs(count, shape)
    np.testing.assert_allclose(forward(eltwise(settings, count, shape), *xs).arrays["y0"], formula(*xs))


@pytest.mark.parametrize("settings, count, formula", CASES)
def test_gradients(settings, count, formula):
    check_gradients(eltwise(settings, count), *inputs(count))


@pytest.mark.parametrize("settings, count, formula", CASES)
def test_each_gradient_alone_is_the_one_computed_with_the_others(settings, count, formula):
    layer, xs = eltwise(settings, count), inputs(count)
    wants = [f"dx{i}" for i in range(count)]
    together = backward(forward(layer, *xs), wants, xs[0])
    for role in wants:
        alone = backward(forward(layer, *xs), [role], xs[0])
        np.testing.assert_array_equal(alone.arrays[role], together.arrays[role])


def test_a_sum_reads_no_activation_for_its_gradient():
    (step,) = eltwise("", 3).backward(["dx0", "dx2"])
    assert (step.reads, step.writes) == (("dy0",), ("dx0", "dx2"))


@pytest.mark.parametrize("wants, reads", [(["dx0"], ("x1", "x2")), (["dx0", "dx1"], ("x0", "x1", "x2"))])
def test_a_product_reads_the_factors_of_the_wanted_gradients_only(wants, reads):
    (step,) = eltwise("operation: PROD", 3).backward(wants)
    assert step.reads == (*reads, "dy0")


def test_a_product_with_a_zero_still_has_its_gradient():
    run = forward(eltwise("operation: PROD stable_prod_grad: false", 2, (2,)), np.array([0.0, 3]), np.array([5.0, 7]))
    backward(run, ["dx0", "dx1"], np.ones(2))
    assert run.arrays["dx0"].tolist() == [5, 7] and run.arrays["dx1"].tolist() == [0, 3]


def test_of_equal_largest_the_last_wins_the_gradient():
    a, b, c = np.array([1.0, 2, 3]), np.array([1.0, 2, 1]), np.array([1.0, 0, 3])
    run = backward(forward(eltwise("operation: MAX", 3, (3,)), a, b, c), ["dx0", "dx1", "dx2"], np.ones(3))
    assert run.arrays["winner"].tolist() == [2, 1, 2]
    assert [run.arrays[f"dx{i}"].tolist() for i in range(3)] == [[0, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_the_winner_takes_a_byte_while_there_are_at_most_256_bottoms():
    assert eltwise("operation: MAX", 256, (1,)).stash["winner"].dtype == "uint8"
    assert eltwise("operation: MAX", 257, (1,)).stash["winner"].dtype == "int32"
    assert eltwise("operation: SUM", 2).stash == {}


def test_bottoms_of_other_shapes_are_refused_by_name():
    with pytest.raises(InputError, match="'x0' of shape 2x3 with 'x1' of shape 3x2; make the shapes equal"):
        layer_of('type: "Eltwise"', (2, 3), (3, 2))


@pytest.mark.parametrize(
    "settings, remedy",
    [("operation: PROD coeff: 1 coeff: 1", "remove the 'coeff:'"), ("coeff: 1", "give one for each")],
)
def test_coefficients_that_fit_nothing_are_refused(settings, remedy):
    with pytest.raises(InputError, match=remedy):
        eltwise(settings, 2)


def test_one_bottom_is_too_few():
    with pytest.raises(InputError, match="at least 2"):
        eltwise("", 1)
