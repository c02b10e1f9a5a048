"""Calls of native kernels by name: arguments must match the declaration, or are refused by name."""

import struct

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.cpu.support.launch import launch, parameters, query
from tests.native.numbers import at

AXIS = (4, 2, 1)


@pytest.mark.parametrize("name", cpu.kernel_names())
def test_every_kernel_is_declared(name):
    assert parameters(name).nbytes > 0


def test_the_bytes_of_other_arguments_are_refused():
    good, _ = parameters("item_loss_workspace_bytes").pack({"items": 4, "classes": 5})
    assert cpu.bind("item_loss_workspace_bytes", good) == query("item_loss_workspace_bytes", 4, 5)
    with pytest.raises(ValueError, match="end too early"):
        cpu.bind("item_loss_workspace_bytes", good[:-1])
    with pytest.raises(ValueError, match="not those of its declaration"):
        cpu.bind("item_loss_workspace_bytes", good + bytes(8))
    with pytest.raises(ValueError, match="no kernel 'item_loss'"):
        cpu.bind("item_loss", good)


@pytest.mark.parametrize("place", [(-8, 1), (1 << 40, 1), (24, 1 << 40), (24, -1), (24, 2), (8, 1)])
def test_a_vector_lies_within_the_bytes(place):
    """norm_of_rows takes two vectors and an address between them."""
    counts, squares = struct.pack("qq", *place), struct.pack("qq", 40, 0)
    with pytest.raises(ValueError, match="arguments"):
        cpu.bind("norm_of_rows", counts + struct.pack("P", 0) + squares + bytes(8))


@pytest.mark.parametrize("count", [3, np.int64(3), np.uint8(3), True])
def test_integers_of_every_kind_are_taken(count):
    assert query("item_loss_workspace_bytes", count, classes=5) == query("item_loss_workspace_bytes", int(count), 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: query("softmax_loss_workspace_bytes", ("4", 2, 1)), r"axis.outer must be an integer, but is '4'"),
        (lambda: query("softmax_loss_workspace_bytes", (4, 2.0, 1)), r"axis.size must be an integer, but is 2.0"),
        (lambda: query("softmax_loss_workspace_bytes", (4, 2)), r"axis: missing \['inner'\]"),
        (lambda: query("softmax_loss_workspace_bytes", (4, 2, 1, 1)), r"axis has 3 members, not 4"),
        (
            lambda: query("softmax_loss_workspace_bytes", {"outer": 4, "depth": 1}),
            r"unknown \['depth'\], missing \['size'",
        ),
        (lambda: query("softmax_loss_workspace_bytes", (1 << 63, 2, 1)), r"outer must be an integer, but is 92233"),
        (lambda: query("softmax_loss_workspace_bytes", 4), r"axis must be a sequence, but is 4"),
        (lambda: query("softmax_loss_workspace_bytes", AXIS, axis=AXIS), r"got \['axis'\] twice"),
        (lambda: query("softmax_loss_workspace_bytes", AXIS, 1), r"takes 1 arguments, not 2"),
        (lambda: query("softmax_loss_workspace_bytes", AXIS, depth=1), r"unknown \['depth'\], missing \[\]"),
        (lambda: launch("softmax_loss_workspace_bytes", AXIS), r"returns a number"),
        (lambda: query("softmax_forward", AXIS, y=0, x=0), r"softmax_forward is a kernel"),
        (lambda: launch("softmax_forward", AXIS, x=0), r"softmax_forward: missing \['y'\]"),
        (lambda: launch("softmax_forward", AXIS, y=-1, x=0), r"softmax_forward.y must be an address, but is -1"),
        (lambda: launch("relu_forward", 1, y=0, x=0, slope="a"), r"slope must be a number, but is 'a'"),
        (lambda: launch("eltwise_max", 1, y=0, xs="ab"), r"xs must be a sequence, but is 'ab'"),
        (lambda: launch("eltwise_max", 1, y=0, xs=[None]), r"xs\[0\] must be an address, but is None"),
        (lambda: launch("dropout", 1, out=0, x=0, ratio=0.5, seed=0, stream=1 << 32), r"stream must be an integer"),
        (lambda: launch("copy_bytes", 1, 1, out=0, out_pitch=0, x=0, x_pitch=None), r"missing \['x_pitch'\]"),
    ],
)
def test_other_arguments_are_refused_by_name(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: query("softmax_loss_workspace_bytes", (-1, 2, 1)), "must"),
        (lambda: launch("mvn_forward", axis=(-1, 2, 1), y=0, x=0, eps=0), "must"),
        (lambda: launch("update", 1, rule="Sgd", w=0, dw=8, h0=8), "unknown UpdateRule 'Sgd', known are SGD, Nesterov"),
        (lambda: launch("update", 1, rule="SGD", w=0, h0=8), "dw is needed"),
        (lambda: launch("update", 1, rule=8, w=0, dw=8, h0=8), "unknown UpdateRule 8"),
        (lambda: launch("pointwise", "relux", 1, out=0), "unknown function 'relux'"),
        (lambda: launch("relu_forward", 1, y=0, x=0, storage="fp8"), "unknown Storage 'fp8'"),
        (lambda: launch("channel_sums", AXIS, "moments", out=0, a=0, carry=0), "takes plain sums"),
    ],
)
def test_values_that_cannot_be_are_refused_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_members_of_a_struct_are_given_by_their_names_as_well():
    x, y = np.float32([1, 2, 4, 8, 16, 32]).reshape(2, 3), np.zeros((2, 3), np.float32)
    for axis in ((2, 3, 1), {"outer": 2, "size": 3, "inner": 1}, [2, 3, 1], np.array([2, 3, 1])):
        launch("mvn_forward", axis=axis, y=at(y), x=at(x), normalize=False, eps=0)()
        np.testing.assert_allclose(y, x - x.mean(axis=1, keepdims=True), rtol=1e-6)
        y[...] = 0
    launch("mvn_forward", outer=2, size=3, inner=1, y=at(y), x=at(x), normalize=False, eps=0)()
    assert y.any()
