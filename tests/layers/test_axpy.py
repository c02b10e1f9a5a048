"""Axpy: by hand, what its gradients read, refusals."""

import numpy as np
import pytest

from layermem.errors import InputError
from tests.layers.harness import backward, forward, layer_of


def axpy(*shapes):
    return layer_of('type: "Axpy"', *shapes)


def test_each_channel_is_scaled_by_its_number_and_added():
    x = np.array([[[[1.0, 2]], [[3, 4]]]])
    run = forward(axpy((1, 2), x.shape, x.shape), np.array([[10.0, -1]]), x, np.ones(x.shape))
    np.testing.assert_array_equal(run.arrays["y0"], [[[[11, 21]], [[-2, -3]]]])
    backward(run, ("dx0", "dx1", "dx2"), np.array([[[[1.0, 5]], [[2, 0]]]]))
    np.testing.assert_array_equal(run.arrays["dx0"], [[1 + 10, 6]])
    np.testing.assert_array_equal(run.arrays["dx1"], [[[[10, 50]], [[-2, 0]]]])
    np.testing.assert_array_equal(run.arrays["dx2"], [[[[1, 5]], [[2, 0]]]])


def test_the_gradient_of_the_sum_may_take_the_bytes_of_dy_and_is_computed_last():
    first, last = axpy((2, 3, 1, 1), (2, 3, 4, 5), (2, 3, 4, 5)).backward(("dx0", "dx1", "dx2"))
    assert first.writes == ("dx0", "dx1") and first.reads == ("x0", "x1", "dy0")
    assert last.writes == ("dx2",) and last.reads == ("dy0",) and last.overlays[0].over == "dy0"


def test_a_gradient_reads_the_other_factor_only():
    (step,) = axpy((2, 3), (2, 3, 4, 5), (2, 3, 4, 5)).backward(("dx0",))
    assert step.reads == ("x1", "dy0")


@pytest.mark.parametrize(
    "shapes", [[(2, 4), (2, 3, 4, 5), (2, 3, 4, 5)], [(2, 3), (2, 3, 4, 5), (2, 3, 4, 4)], [(2, 3), (2, 3), (2, 3)]]
)
def test_bottoms_that_do_not_fit_are_refused(shapes):
    with pytest.raises(InputError, match="give N x C, then N x C x H x W twice"):
        axpy(*shapes)
