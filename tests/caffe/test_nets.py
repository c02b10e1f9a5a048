"""Nets by pycaffe's arguments."""

import inspect

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.errors import InputError
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
    assert "layermem/" not in str(refused.value.path) and refused.value.layer == "far"


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
