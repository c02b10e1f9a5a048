"""The reference device binds ops to NumPy views, and adds where an op accumulates."""

import numpy as np
import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.errors import DeviceError
from layermem.graph.ops import BACKWARD, FORWARD, Op
from layermem.ops import Fill, Kind, Pointwise, Pool, Silence, Tensor, Window

RELU = Pointwise(Kind.RELU, Tensor((1, 2, 1, 3)))


def bind(kind: str, step: str, arrays: dict[str, np.ndarray], accumulates: tuple[str, ...] = ()) -> None:
    op = Op("relu1", kind, RELU, step, {}, (), (), accumulates=accumulates, layer_name="relu1")
    ReferenceDevice().bind(op, arrays, {})()


def test_arrays_are_stored_channels_last_and_kernels_see_caffes_axes():
    x = np.array([[-1.0, 2.0], [3.0, -4.0], [5.0, 6.0]], "float32").reshape(1, 1, 3, 2)
    y = np.empty_like(x)
    bind(FORWARD, "forward", {"x0": x, "y0": y})
    assert y.reshape(3, 2).tolist() == [[0, 2], [3, 0], [5, 6]]


def test_an_accumulating_op_adds_to_what_is_there():
    x, dy = np.array([-1.0, 2.0, 3.0], "float32"), np.array([10.0, 20.0, 30.0], "float32")
    dx = np.array([1.0, 1.0, 1.0], "float32")
    bind(BACKWARD, "backward", {"x0": x, "dy0": dy, "dx0": dx}, accumulates=("dx0",))
    assert dx.tolist() == [1, 21, 31]


def test_a_bound_op_runs_again_on_the_same_arrays():
    y = np.zeros(2, "float32")
    op = Op("seed", BACKWARD, Fill(1.0), "fill", {}, (), (), accumulates=("y0",))
    run = ReferenceDevice().bind(op, {"y0": y}, {})
    run(), run()
    assert y.tolist() == [2, 2]


def test_it_implements_the_steps_of_records_and_no_others():
    device = ReferenceDevice()
    assert device.implements(RELU, "backward") and device.implements(Silence(), "forward")
    assert not device.implements(RELU, "wgrad")


def test_an_op_without_a_kernel_is_a_key_error_at_the_first_run():
    op = Op("x", FORWARD, Silence(), "backward", {}, (), ())
    with pytest.raises(KeyError):
        ReferenceDevice().bind(op, {}, {})()


def test_memory_that_a_kernel_is_refused_is_a_device_error_with_the_layer():
    window = Window(size=1, kernel=4_000_001, pad=2_000_000)
    x, y = np.ones((1, 1, 1, 1), "float32"), np.empty((1, 1, 1, 1), "float32")
    pool = Pool("AVE", Tensor((1, 1, 1, 1)), Tensor((1, 1, 1, 1)), window, window)
    op = Op("pool1", FORWARD, pool, "forward", {}, (), (), layer_name="pool1")
    with pytest.raises(DeviceError, match=r"layer .pool1. needs more memory beside the arena .* use --device cpu"):
        ReferenceDevice().bind(op, {"x0": x, "y0": y}, {})()  # 64 TB of padding
