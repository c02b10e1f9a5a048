"""`layermem convert onnx` and `layermem convert from-onnx`."""

import numpy as np
import onnx
import pytest

from layermem.proto.weights import read_weights, write_weights

NET = """name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
"""


@pytest.fixture
def small(prototxt, tmp_path):
    """A net, and its weights."""
    blobs = [np.ones((4, 3), np.float32), np.zeros(4, np.float32)]
    write_weights(tmp_path / "w.caffemodel", "small", {"ip": ("InnerProduct", blobs)})
    return prototxt(NET), tmp_path / "w.caffemodel"


def test_a_net_becomes_a_model_of_the_batch_that_was_asked_for(layermem, small, tmp_path):
    net, weights = small
    target = tmp_path / "m.onnx"
    ended = layermem("convert", "onnx", net, target, "--weights", weights, "--batch", 5)
    assert (ended.code, ended.out) == (0, f"{target}: 2 layers, 16 values\n")
    (given,) = onnx.load(target).graph.input
    assert [d.dim_value for d in given.type.tensor_type.shape.dim] == [5, 3]
    assert layermem("convert", "onnx", net, target, "--weights", weights, "--any-batch").code == 0
    (given,) = onnx.load(target).graph.input
    assert [d.dim_param for d in given.type.tensor_type.shape.dim] == ["N", ""]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["NET", "m.onnx"], "layer 'ip' needs its blobs; give weights"),
        (["NET"], "needs NET and OUT; give both"),
        (["NET", "m.caffemodel", "--weights", "WEIGHTS"], "is no name of an ONNX model; give OUT a name that ends in"),
        (["NET", "m.onnx", "--batch", "2", "--any-batch"], "--batch and --any-batch exclude each other"),
        (["NET", "m.onnx", "--names", "map"], "--names is an option of `layermem convert IN OUT` only"),
        (["none.prototxt", "m.onnx"], "none.prototxt: no such file"),
    ],
)
def test_errors_are_reported_before_anything_is_written(layermem, small, tmp_path, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    named = [{"NET": str(small[0]), "WEIGHTS": str(small[1])}.get(word, word) for word in words]
    ended = layermem("convert", "onnx", *named)
    assert ended.code == 2 and what in ended.sentence and {path.name for path in tmp_path.iterdir()} == before


def test_a_model_becomes_a_net_with_its_weights_beside_it(layermem, small, tmp_path):
    model, net = tmp_path / "m.onnx", tmp_path / "again.prototxt"
    assert layermem("convert", "onnx", small[0], model, "--weights", small[1], "--any-batch").code == 0
    ended = layermem("convert", "from-onnx", model, net, "--batch", 3)
    weights = tmp_path / "again.caffemodel"
    assert (ended.code, ended.out) == (0, f"{net}: 2 layers\n{weights}: 1 layers, 16 values\n")
    assert "dim: 3\n      dim: 3\n" in net.read_text()
    assert np.array_equal(read_weights(weights)["ip"][0], read_weights(small[1])["ip"][0])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["MODEL"], "needs MODEL and NET; give both"),
        (["MODEL", "net.caffemodel"], "is no name of a net; give NET a name that ends in .prototxt"),
        (["none.onnx", "net.prototxt"], "none.onnx: no such file"),
        (["w.caffemodel", "net.prototxt"], "w.caffemodel: "),
        (["MODEL", "net.prototxt", "--any-batch"], "--any-batch is an option of `layermem convert onnx` only"),
    ],
)
def test_a_model_that_is_none_is_refused_and_no_file_is_written(layermem, small, tmp_path, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    assert layermem("convert", "onnx", small[0], "m.onnx", "--weights", small[1]).code == 0
    before = {path.name for path in tmp_path.iterdir()}
    ended = layermem("convert", "from-onnx", *("m.onnx" if word == "MODEL" else word for word in words))
    assert ended.code == 2 and what in ended.sentence and {path.name for path in tmp_path.iterdir()} == before


def test_options_of_models_are_for_models(layermem):
    ended = layermem("convert", "a.caffemodel", "b.caffemodel", "--any-batch")
    assert "--any-batch is an option of `layermem convert onnx` only" in ended.sentence
    assert "give `layermem convert onnx NET OUT`" in layermem("convert", "a.caffemodel", "b.onnx").sentence
