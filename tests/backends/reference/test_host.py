"""Batches in, outputs out, constants and the gradient norm."""

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY, ReferenceCall, UndeclaredRole
from layermem.ops import CopyOut, Feed, Fill, GradientNorm, Kind, Pointwise, Tensor


def test_a_feed_copies_the_batch_of_its_layer_in_the_order_of_the_tops():
    images, labels = np.arange(12.0).reshape(1, 3, 2, 2), np.array([7.0])
    call = ReferenceCall(
        {"y0": np.zeros((1, 3, 2, 2)), "y1": np.zeros(1)}, {"batch": {"data": [images, labels], "other": []}}
    )
    REGISTRY.bind(Feed("data", 2), "forward", call)
    np.testing.assert_array_equal(call["y0"], images)
    assert call["y1"].tolist() == [7]


def test_an_output_is_a_copy_under_the_name_of_its_blob():
    x, results = np.arange(6.0).reshape(2, 3), {}
    REGISTRY.bind(CopyOut("prob"), "forward", ReferenceCall({"x0": x}, {"results": results}))
    x[...] = -1
    assert results["prob"].tolist() == [[0, 1, 2], [3, 4, 5]] and results["prob"].flags.c_contiguous


def test_a_fill_sets_every_element():
    call = ReferenceCall({"y0": np.full((2, 2), np.nan)})
    REGISTRY.bind(Fill(0.5), "fill", call)
    assert call["y0"].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_the_gradient_norm_runs_over_all_gradients():
    call = ReferenceCall({"x0": np.array([3.0]), "x1": np.array([[4.0], [12.0]]), "y0": np.zeros(())})
    REGISTRY.bind(GradientNorm(), "forward", call)
    assert float(call["y0"]) == 13


def test_a_role_that_the_op_does_not_declare_is_an_error_that_names_the_op():
    call = ReferenceCall({"y0": np.zeros(1)}, op="relu1.backward", layer="relu1")
    with pytest.raises(UndeclaredRole, match=r"op 'relu1\.backward' did not declare 'x0'.*declared: y0"):
        call["x0"]


@pytest.mark.parametrize("kind", [Kind.SIGMOID, Kind.ELU, Kind.RELU, Kind.CLIP])
def test_a_slope_is_never_computed_from_dy(kind):
    x = Tensor((3,))
    call = ReferenceCall({"dy0": np.ones(3), "dx0": np.ones(3)}, op="a.backward")
    with pytest.raises(UndeclaredRole, match=r"op 'a\.backward' did not declare 'x0'"):
        REGISTRY.bind(Pointwise(kind, x), "backward", call)


def test_numbered_arrays_come_in_the_order_of_their_numbers():
    arrays = {f"x{i}": np.array([float(i)]) for i in (10, 2, 0)}
    call = ReferenceCall({**arrays, "x": np.zeros(1), "dx0": np.zeros(1)})
    assert [float(a[0]) for a in call.all("x")] == [0, 2, 10]
