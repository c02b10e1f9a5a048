"""Passes over parts of a net, in pieces and from what a user writes, against one pass over the whole."""

import numpy as np
import pytest

import layermem
from layermem.errors import InputError

CHAIN = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: [2, 3, 6, 6] } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "fc" top: "fc" }
layer { name: "out" type: "InnerProduct" bottom: "fc" top: "out"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
"""
X = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
TOP = np.random.default_rng(1).normal(size=(2, 2)).astype(np.float32)
LAYERS = ["data", "conv", "relu", "pool", "fc", "tanh", "out"]


def gradients(net):
    blobs = {name: np.array(blob.diff) for name, blob in net.blobs.items()}
    return blobs | {f"{layer}.w": np.array(blobs[0].diff) for layer, blobs in net.params.items()}


@pytest.mark.parametrize("keep", [None, ()])
@pytest.mark.parametrize("cuts", [("out",), ("tanh",), ("fc",), ("pool",), ("relu",), ("out", "tanh", "fc", "relu")])
def test_backward_in_pieces_is_backward_as_a_whole(cuts, keep):
    """A piece starts from the gradient that the piece above it has computed."""
    whole, parts = (layermem.Net.from_text(CHAIN, seed=3, keep=keep) for _ in range(2))
    for net in (whole, parts):
        net.forward(data=X)
    expected = whole.backward(out=TOP)
    parts.blobs["out"].diff[...] = TOP
    start = "out"
    for cut in (*cuts, None):
        made = parts.backward(start=start, end=cut)
        start = None if cut is None else LAYERS[LAYERS.index(cut) - 1]
    assert made["data"].tobytes() == expected["data"].tobytes() and made["data"].any()
    for layer in ("conv", "fc", "out"):
        assert np.array_equal(parts.params[layer][0].diff, whole.params[layer][0].diff)


@pytest.mark.parametrize("layer", ["relu", "tanh"])
def test_above_a_layer_in_place_the_diff_is_that_of_its_output(layer):
    net = layermem.Net.from_text(CHAIN, seed=3)
    net.forward(data=X)
    net.blobs["out"].diff[...] = TOP
    above = LAYERS[LAYERS.index(layer) + 1]
    made = net.backward(end=above)
    name = net.bottom_names[above][0]
    assert np.array_equal(net.blobs[name].diff, made[name]) and made[name].any()
    before = np.array(net.blobs[name].diff)
    net.backward(start=layer, end=layer)
    assert net.blobs[name].diff.any() and not np.array_equal(net.blobs[name].diff, before)


def test_a_second_backward_pass_of_a_part_adds_its_gradients_again():
    net = layermem.Net.from_text(CHAIN, seed=3)
    net.forward(data=X)
    net.backward(out=TOP)
    once = np.array(net.params["conv"][0].diff)
    net.backward(start="pool")
    np.testing.assert_allclose(net.params["conv"][0].diff, 2 * once, rtol=1e-4)


def test_layers_that_begin_after_an_input_read_what_a_user_wrote_to_it():
    net = layermem.Net.from_text(CHAIN, seed=3)
    expected = net.forward(data=2 * X)["out"]
    net.forward(data=X)
    net.blobs["data"].data[...] = 2 * X
    assert net.forward(start="conv")["out"].tobytes() == expected.tobytes()


DUMMY = """
layer { name: "data" type: "DummyData" top: "x" top: "noise" dummy_data_param {
    shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 } data_filler { value: 5 } data_filler { type: "gaussian" std: 1 } } }
layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "noise" top: "sum" }
layer { name: "twice" type: "Power" bottom: "x" top: "twice" power_param { scale: 2 } }
"""


def test_constants_of_dummy_data_keep_what_a_user_writes():
    net = layermem.Net.from_text(DUMMY)
    assert np.all(net.blobs["x"].data == 5) and np.all(net.forward()["twice"] == 10)
    net.blobs["x"].data[0] = 7
    for _ in range(2):
        made = net.forward(["noise"])
        assert made["twice"].tolist() == [[14] * 3, [10] * 3]
        np.testing.assert_array_equal(made["sum"], np.float32([[7] * 3, [5] * 3]) + made["noise"])
    net.blobs["x"].data[...] = 1
    assert np.all(net.forward(start="twice")["twice"] == 2)
    assert not np.array_equal(net.forward(["noise"])["noise"], made["noise"])


def test_dummy_data_takes_another_shape_and_other_blobs_only_their_own():
    net = layermem.Net.from_text(DUMMY)
    net.reshape(x=(4, 3), noise=(4, 3))
    net.blobs["x"].data[...] = 3
    assert net.forward()["twice"].shape == (4, 3) and np.all(net.forward()["twice"] == 6)
    net.blobs["twice"].reshape(4, 3)
    with pytest.raises(InputError, match="blob 'twice' is no input of the net, so its shape follows"):
        net.blobs["twice"].reshape(2, 3)


FORCED = """
force_backward: true
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: [2, 3] } shape { dim: [2, 1] } } }
layer { name: "below" type: "InnerProduct" bottom: "data" top: "below" param { lr_mult: 0 } param { lr_mult: 0 }
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "above" type: "InnerProduct" bottom: "below" top: "above" propagate_down: false
        inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "above" bottom: "label" top: "loss" }
"""


def test_force_backward_reaches_frozen_parameters_and_overrides_propagate_down():
    inputs = {"data": np.ones((2, 3)), "label": np.ones((2, 1))}
    forced, plain = (layermem.Net.from_text(text, seed=1) for text in (FORCED, FORCED.split("\n", 2)[2]))
    for net in (forced, plain):
        net.forward(**inputs)
        net.backward()
    error = (forced.blobs["above"].data - 1) / 2
    below = error @ forced.params["above"][0].data
    np.testing.assert_allclose(forced.params["below"][1].diff, below.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(forced.blobs["data"].diff, below @ forced.params["below"][0].data, rtol=1e-5)
    assert not plain.params["below"][1].diff.any() and not plain.blobs["below"].diff.any()


def test_hdf5_output_writes_the_last_pass(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    net = layermem.Net.from_text(
        """
    layer { name: "in" type: "Input" top: "a" top: "b"
            input_param { shape { dim: [2, 3, 1, 1] } shape { dim: [2, 1, 1, 1] } } }
    layer { name: "twice" type: "Power" bottom: "a" top: "twice" power_param { scale: 2 } }
    layer { name: "file" type: "HDF5Output" bottom: "twice" bottom: "b" hdf5_output_param { file_name: "out.h5" } }
    layer { name: "over" type: "Power" bottom: "twice" top: "twice" power_param { shift: 100 } }
    """,
        "TEST",
    )
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1), np.ones((2, 1, 1, 1), np.float32)
    net.forward(end="twice", a=a, b=b)
    assert not (tmp_path / "out.h5").exists()
    for factor in (1, 2):
        net.forward(a=factor * a, b=factor * b)
        with h5py.File(tmp_path / "out.h5") as file:
            assert np.array_equal(file["data"], 2 * factor * a) and np.array_equal(file["label"], factor * b)
    (tmp_path / "out.h5").unlink()
    net.forward(start="over")
    assert not (tmp_path / "out.h5").exists()


GIVEN = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [4, 3, 5, 5] } } }
    layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 2 kernel_size: 3 } }
    layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE global_pooling: true } }
"""


@pytest.mark.parametrize("shape", [(), (0, 3, 5, 5), (3, 5, 5), (2, 3, 5, 5), (4, 3, 7, 6), (4, 1, 5, 5)])
def test_what_an_array_of_another_shape_is_refused_with_can_be_done(shape):
    net, x = layermem.Net.from_text(GIVEN), np.ones(shape)
    with pytest.raises(layermem.InputError) as refused:
        net.forward(x=x)
    advice = str(refused.value).partition("; ")[2]
    advised = f"call net.reshape(x=({', '.join(map(str, shape))})) first"
    assert advice.startswith((advised, "give an array of that shape, or use net.predict"))
    if advice.startswith(advised):
        net.reshape(x=shape)
        assert net.forward(x=x)["p"].shape == (shape[0], 2, 1, 1)
    assert advice.startswith(advised) == (shape in [(2, 3, 5, 5), (4, 3, 7, 6)])


@pytest.mark.parametrize("given", [(each for each in np.ones((4, 3, 5, 5))), None, {}])
def test_what_is_no_array_is_named(given):
    net = layermem.Net.from_text(GIVEN)
    for call in (net.forward, net.forward_all):
        with pytest.raises(layermem.InputError, match=f"is of the type {type(given).__name__}, and a net takes"):
            call(x=given)
    with pytest.raises(layermem.InputError, match="has no items; give at least one"):
        net.forward_all(x=np.zeros((0, 3, 5, 5)))


def test_a_smaller_input_has_the_memory_of_the_larger_one():
    """As in Caffe: an array that was taken before still shows what the net reads."""
    net, images = layermem.Net.from_text(GIVEN), np.random.default_rng(0).normal(size=(4, 3, 5, 5)).astype(np.float32)
    right, view = net.forward(x=images)["p"], net.blobs["x"].data
    net.blobs["x"].reshape(2, 3, 5, 5)
    assert np.array_equal(net.forward()["p"], right[:2])
    view[...] = images[::-1]
    assert np.array_equal(net.forward()["p"], right[:1:-1])
    net.blobs["x"].reshape((4, 3, 5, 5))
    assert np.array_equal(net.forward()["p"], right[::-1])
    with pytest.raises(layermem.InputError, match=r"cannot have the shape \(2.5, 3, 5, 5\); give whole numbers"):
        net.blobs["x"].reshape(2.5, 3, 5, 5)
