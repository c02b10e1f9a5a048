"""Nets by pycaffe's arguments."""

import inspect

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.errors import InputError
from layermem.proto.read import read_net_text
from tests.caffe.nets import deploy, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("weights.caffemodel", caffe.TEST), {}),
        ((caffe.TEST,), {"weights": "weights.caffemodel"}),
        ((), {"phase": caffe.TEST, "weights": "weights.caffemodel", "level": 1, "stages": ["a"]}),
        ((caffe.TEST, 0, ["a"], "weights.caffemodel"), {}),
    ],
)
def test_every_form_of_arguments_is_the_same_net(folder, arguments, options):
    net = caffe.Net("deploy.prototxt", *arguments, **options)
    assert net.phase == "TEST"
    expected = layermem.Net("deploy.prototxt", weights="weights.caffemodel").params["fc"][0].data
    assert np.array_equal(net.params["fc"][0].data, expected)


def test_a_blob_that_was_reshaped_takes_effect_in_the_next_pass(folder):
    net = caffe.Net("deploy.prototxt", caffe.TEST)
    net.blobs["data"].reshape(2, 3, 20, 14)
    net.blobs["data"].data[...] = 1
    assert net.forward()["prob"].shape == (2, 5) and net.blobs["conv1"].data.shape == (2, 4, 18, 12)


def test_weights_are_saved_and_loaded_as_hdf5(folder):
    net, other = caffe.Net(deploy(), caffe.TEST), caffe.Net(deploy(), caffe.TEST)
    net.params["fc"][0].data[...] = 2
    net.save_hdf5("w.h5")
    other.load_hdf5("w.h5")
    assert np.all(other.params["fc"][0].data == 2)
    net.save_hdf5("w.caffemodel")  # the format is that of the method, not of the name
    assert (folder / "w.caffemodel").read_bytes() == (folder / "w.h5").read_bytes()


WHOLE = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }
layer {
  name: "fc" type: "InnerProduct" bottom: "data" top: "fc" include { phase: TEST }
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param {
    num_output: 3 weight_filler { type: "constant" value: 0.5 } bias_filler { type: "constant" value: 0.1 }
  }
}
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" propagate_down: true relu_param { negative_slope: 0.1 } }
"""


def test_a_caffemodel_has_the_bytes_that_pycaffe_writes(folder):
    (folder / "small.prototxt").write_text(WHOLE)
    caffe.Net(str(folder / "small.prototxt"), caffe.TEST).save("small.caffemodel")
    assert (folder / "small.caffemodel").read_bytes().hex() == (
        "0a05736d616c6ca2061e0a04646174611205496e7075742204646174615001fa08060a040a020104a206ab010a026663120c496e6e6572"
        "50726f647563741a04646174612202666332051d0000803f320a1d0000004025000000003a382a300000003f0000003f0000003f000000"
        "3f0000003f0000003f0000003f0000003f0000003f0000003f0000003f0000003f3a040a0203043a132a0ccdcccc3dcdcccc3dcdcccc3d"
        "3a030a0103420208015001aa072408031a0f0a08636f6e7374616e74150000003f220f0a08636f6e7374616e7415cdcccc3da206200a04"
        "72656c75120452654c551a0266632202666350015801da07050dcdcccc3d"
    )


@pytest.mark.parametrize("name", ["w", "w.weights.1", "w.h5", "w.caffemodel.h5"])
def test_weights_are_saved_as_a_caffemodel_whatever_the_name(folder, name):
    net, other = caffe.Net(deploy(), caffe.TEST), caffe.Net(deploy(), caffe.TEST)
    net.params["fc"][0].data[...] = 2
    net.save("w.caffemodel")
    net.save(name)
    assert (folder / name).read_bytes() == (folder / "w.caffemodel").read_bytes()
    other.copy_from(name)
    assert np.all(other.params["fc"][0].data == 2)


def test_weights_are_saved_by_name_as_npz(folder):
    net, other = caffe.Net(deploy(), caffe.TEST), caffe.Net(deploy(), caffe.TEST)
    net.params["fc"][0].data[...] = 2
    net.save("w.npz")
    other.copy_from("w.npz")
    assert np.all(other.params["fc"][0].data == 2)


def test_gradients_of_parameters_are_cleared():
    net = caffe.Net(deploy(), caffe.TEST)
    net.forward()
    net.blobs["fc"].diff[...] = 1
    net.backward(start="fc")
    assert np.any(net.params["fc"][1].diff)
    net.clear_param_diffs()
    assert not np.any(net.params["fc"][1].diff)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: caffe.Net(deploy(), 7), "no phase 7; use caffe.TRAIN or caffe.TEST"),
        (lambda: caffe.Net(deploy(), "w", 1, 2), "caffe.Net takes a net, weights, phase; 3 arguments follow the net"),
    ],
)
def test_wrong_arguments_are_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_an_error_in_a_net_of_python_names_the_line_of_the_script():
    n = deploy()
    n.far = layermem.L.Convolution(n.data, num_output=1, kernel_size=99)
    with pytest.raises(InputError, match="layer 'far' has windows of 99 x 99") as refused:
        caffe.Net(n, caffe.TRAIN)
    assert refused.value.path == deploy.__code__.co_filename and refused.value.layer == "far"


def test_every_name_is_there_and_explains_itself():
    for name in caffe.__all__:
        value = getattr(caffe, name)
        assert value in (0, 1) or inspect.getdoc(value), name
        assert not callable(value) or inspect.signature(value)
    assert set(caffe.__all__) <= set(dir(caffe)) and "Convolution" in caffe.layer_type_list()


def test_a_name_that_is_not_there_is_answered():
    with pytest.raises(AttributeError, match=r"no 'SGDSolvr' in module 'caffe', .*; did you mean 'SGDSolver'\?"):
        caffe.SGDSolvr  # noqa: B018
    assert caffe.__version__ == "1.0.0"


# -- Python layers -----------------------------------------------------------------------------------------------------

MODULE = """
import numpy as np
import caffe

class Own(Exception):
    def __init__(self, code, more):
        super().__init__(f"{code} {more}")
        self.code = code

class Affine(caffe.Layer):
    def setup(self, bottom, top):
        self.made = getattr(self, "made", 0) + 1
        self.seen = 0
        self.blobs.add_blob(2)
        self.blobs[0].data[...] = [3, 1]

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        self.seen += 1
        if self.param_str == "raise":
            raise Own(7, "of mine")
        top[0].data[...] = self.blobs[0].data[0] * bottom[0].data + self.blobs[0].data[1]

    def backward(self, top, propagate_down, bottom):
        self.backwards = getattr(self, "backwards", 0) + 1
        bottom[0].diff[...] = self.blobs[0].data[0] * top[0].diff
        self.blobs[0].diff[...] = [(top[0].diff * bottom[0].data).sum(), top[0].diff.sum()]

class Source(caffe.Layer):
    values = [0]

    def setup(self, bottom, top):
        top[0].reshape(2, 3)

    def forward(self, bottom, top):
        top[0].data[...] = self.values.pop(0)
"""
PYTHON = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3] } } }
layer { name: "affine" type: "Python" bottom: "x" top: "y" python_param { module: "own_layers" layer: "Affine" } }
"""


@pytest.fixture
def own_layers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_layers.py").write_text(MODULE)

    def net_of(text, phase=caffe.TRAIN):
        (tmp_path / "net.prototxt").write_text(text)
        return caffe.Net("net.prototxt", phase, allow_python=True)

    return net_of


def test_a_python_layer_of_a_net_is_the_users_object_and_has_its_parameters(own_layers):
    net = own_layers(PYTHON)
    layer = net.layers[list(net._layer_names).index("affine")]
    assert type(layer).__name__ == "Affine" and net.layer_dict["affine"] is layer and layer.type == "Python"
    assert layer.blobs[0].data.tolist() == [3, 1] and layer.blobs[0].diff.tolist() == [0, 0]
    layer.blobs[0].data[0] = 2
    x = np.arange(6).reshape(2, 3)
    assert np.array_equal(net.forward(x=x)["y"], 2 * x + 1) and layer.seen == 1
    assert np.all(net.backward(y=np.ones((2, 3)))["x"] == 2)
    assert layer.blobs[0].diff.tolist() == [15, 6] == net.params["affine"][0].diff.tolist()
    layer.blobs[0].data[...] += layer.blobs[0].diff
    assert net.params["affine"][0].data.tolist() == [17, 7]


def test_a_net_that_is_reshaped_keeps_the_users_object(own_layers):
    net = own_layers(PYTHON)
    layer = net.layers[1]
    net.forward()
    for rows in (5, 1, 4):
        net.blobs["x"].reshape(rows, 3)
        assert net.forward()["y"].shape == (rows, 3)
    assert net.layers[1] is layer and (layer.made, layer.seen) == (1, 4)
    layer.blobs[0].data[1] = 9
    assert np.all(net.forward()["y"] == 9)


def test_an_exception_of_a_python_layer_is_of_its_class(own_layers):
    import layermem.errors

    net = own_layers(PYTHON.replace('layer: "Affine"', 'layer: "Affine" param_str: "raise"'))
    own = type(net.layers[1]).forward.__globals__["Own"]
    with pytest.raises(own, match=r"own_layers.py:\d+: layer 'affine' fails in forward .* Own: 7 of mine") as raised:
        net.forward()
    assert isinstance(raised.value, layermem.errors.InputError) and raised.value.code == 7


def test_under_force_backward_a_python_layer_is_called_though_no_gradient_was_set(own_layers):
    for text, calls in ((PYTHON, 0), (f"force_backward: true {PYTHON}", 1)):
        net = own_layers(text)
        net.forward()
        net.backward()
        assert getattr(net.layers[1], "backwards", 0) == calls


def test_the_python_layers_of_a_solver_are_those_of_its_nets_by_hand(own_layers, tmp_path):
    text = f"""
        layer {{ name: "source" type: "Python" top: "x" python_param {{ module: "own_layers" layer: "Source" }} }}
        {PYTHON.split(chr(10), 2)[2]}
        layer {{ name: "zero" type: "DummyData" top: "zero" dummy_data_param {{ shape {{ dim: [2, 3] }} }} }}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "zero" top: "loss" }}"""
    own_layers(text)
    (tmp_path / "s.prototxt").write_text('net: "net.prototxt" base_lr: 0 lr_policy: "fixed"')
    caffe.configure(allow_python=True)
    try:
        solver = caffe.SGDSolver("s.prototxt")
    finally:
        caffe.configure(allow_python=None)
    solver.net.layers[0].values = [1, 2, 3]
    solver.step(1)
    assert np.all(solver.net.blobs["x"].data == 1)
    assert np.all(solver.net.forward(["x"])["x"] == 2) and solver.net.layers[1] is solver.net.separate.layers[1]
    solver.net.layers[1].blobs[0].data[...] = [5, 0]
    solver.step(1)
    assert np.all(solver.net.blobs["y"].data == 15)


# -- other habits ------------------------------------------------------------------------------------------------------


def test_backward_before_forward_goes_through_zeros():
    net = caffe.Net(deploy(), caffe.TEST, seed=4)
    net.blobs["fc"].diff[...] = 1
    made = net.backward(start="fc", end="fc")["pool1"]
    np.testing.assert_allclose(made[:, :, 0, 0], np.ones((4, 5)) @ net.params["fc"][0].data, rtol=1e-5)
    assert not net.params["fc"][0].diff.any() and np.all(net.params["fc"][1].diff == 4)
    with pytest.raises(RuntimeError, match="backward needs what a forward pass leaves"):
        layermem.Net(deploy()).backward()


def test_averages_and_batches_are_as_before_the_first_pass_after_such_a_backward():
    text = """
    layer { name: "d" type: "DummyData" top: "d"
            dummy_data_param { shape { dim: [4, 3] } data_filler { type: "gaussian" } } }
    layer { name: "bn" type: "BatchNorm" bottom: "d" top: "bn" }
    layer { name: "drop" type: "Dropout" bottom: "bn" top: "drop" }"""
    one, other = (caffe.Net(read_net_text(text), caffe.TRAIN, seed=2) for _ in range(2))
    one.blobs["drop"].diff[...] = 1
    one.backward()
    for net in (one, other):
        net.forward()
    for name in ("d", "drop"):
        assert np.array_equal(one.blobs[name].data, other.blobs[name].data)
    for mine, theirs in zip(one.params["bn"], other.params["bn"]):
        assert np.array_equal(mine.data, theirs.data)


def test_names_of_pycaffes_c_class_are_those_of_the_net():
    net = caffe.Net(deploy(), caffe.TEST)
    names = list(net.blobs)
    assert net._layer_names == list(net.layer_dict) and net._layer_names[1] == "conv1"
    assert net._blob_names == names and [blob.shape for blob in net._blobs] == [net.blobs[n].shape for n in names]
    assert [names[i] for i in net._inputs] == net.inputs and [names[i] for i in net._outputs] == net.outputs
    for index, layer in enumerate(net._layer_names):
        assert [names[i] for i in net._top_ids(index)] == net.top_names[layer]
        assert [names[i] for i in net._bottom_ids(index)] == net.bottom_names[layer]
    net.blobs["data"].data[...] = np.random.default_rng(0).normal(size=net.blobs["data"].shape)
    assert net._forward(0, len(net.layers) - 1) == 0 and net.blobs["prob"].data.sum() == pytest.approx(4)
    net.blobs["fc"].diff[...] = 1
    net._backward(net._layer_names.index("fc"), 0)
    assert net.blobs["data"].diff.any() and net._blob_loss_weights == [0] * len(names)


def test_the_objective_of_the_layers_that_ran_is_returned():
    net = caffe.Net(
        read_net_text("""
    layer { name: "d" type: "Input" top: "a" top: "b" input_param { shape { dim: [2, 3] } shape { dim: [2, 3] } } }
    layer { name: "l" type: "EuclideanLoss" bottom: "a" bottom: "b" top: "l" loss_weight: 3 }
    """),
        caffe.TRAIN,
    )
    net.blobs["a"].data[...] = 2
    assert net._forward(0, 1) == 3 * 6 * 4 / 4 and net._forward(0, 0) == 0


def test_of_layers_of_one_name_params_have_the_last():
    layer = 'layer { name: "ip" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: %d } }'
    text = 'layer { name: "in" type: "Input" top: "a" input_param { shape { dim: [1, 2] } } }'
    net = caffe.Net(read_net_text(text + layer % ("a", "b", 3) + layer % ("b", "c", 4)), caffe.TEST)
    assert list(net.params) == ["ip"] and net.params["ip"][0].shape == (4, 3)
    assert net._layer_names == ["in", "ip", "ip"] and net.layer_dict["ip"] is net.layers[2]
    other = caffe.Net(read_net_text(text + layer % ("a", "b", 3) + layer % ("b", "c", 4)), caffe.TEST)
    net.layers[1].blobs[1].data[...] = 1
    net.layers[2].blobs[1].data[...] = 2
    other.share_with(net)
    assert np.all(other.forward(a=np.ones((1, 2)))["c"] == 2) and np.all(other.blobs["b"].data == 1)
    net.clear_param_diffs()


def test_functions_between_layers_are_refused_and_nccl_is_not():
    net = caffe.Net(deploy(), caffe.TEST)
    net.after_backward(caffe.NCCL(None, b""))
    for add in (net.before_forward, net.after_forward, net.before_backward, net.after_backward):
        with pytest.raises(InputError, match=r"calls no function between layers; run them one by one with net.forward"):
            add(print)


def test_errors_are_of_the_types_that_pycaffe_raises(folder):
    with pytest.raises(RuntimeError):
        caffe.Net("missing.prototxt", caffe.TEST)
    with pytest.raises(RuntimeError):
        caffe.Net("deploy.prototxt", "missing.caffemodel", caffe.TEST)
    with pytest.raises(TypeError):
        caffe.Net("deploy.prototxt", "w", 1, 2)
    with pytest.raises(ValueError, match="has 3 numbers; give them and the shape"):
        caffe.io.blobproto_to_array(caffe.proto.caffe_pb2.BlobProto(data=[1, 2, 3]))
    with pytest.raises(ValueError, match="is no Datum"):
        caffe.io.array_to_datum(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="channels of 'data'; give 3 numbers"):
        caffe.io.Transformer({"data": (1, 3, 2, 2)}).set_channel_swap("data", (0, 1))
    with pytest.raises(KeyError):
        caffe.Net("deploy.prototxt", caffe.TEST).blobs["nothing"]
