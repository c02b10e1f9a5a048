"""`layermem convert`."""

import numpy as np
import pytest

from layermem.proto.read import read_net
from layermem.proto.schema import NetParameter
from layermem.proto.weights import read_weights, write_weights
from layermem.solver.state_file import SolverStateData, read_state, state_content

WEIGHTS = {"conv": ("Convolution", [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)])}
OLD = """
    name: "old" input: "data" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 4
    layers { name: "r" type: RELU bottom: "data" top: "r" }
"""


def test_weights_keep_every_value_through_hdf5_and_back(layermem, tmp_path):
    first, middle, last = (tmp_path / name for name in ("a.caffemodel", "b.caffemodel.h5", "c.caffemodel"))
    write_weights(first, "net", WEIGHTS)
    assert layermem("convert", first, middle).code == 0
    ended = layermem("convert", middle, last)
    assert ended.code == 0 and ended.out == f"{last}: 1 layers, 8 values\n"
    assert middle.read_bytes().startswith(b"\x89HDF") and not last.read_bytes().startswith(b"\x89HDF")
    for blob, given in zip(read_weights(last)["conv"], WEIGHTS["conv"][1], strict=True):
        np.testing.assert_array_equal(blob, given)


@pytest.mark.parametrize("name", ["new.caffemodel", "new.caffemodel.h5"])
def test_weights_of_2014_are_written_in_the_shapes_that_caffe_checks(layermem, tmp_path, name):
    old, new = tmp_path / "old.caffemodel", tmp_path / name
    net = NetParameter()
    for layer, kind, shapes in (
        ("conv", "CONVOLUTION", [(20, 1, 3, 3), (1, 1, 1, 20)]),
        ("ip", "INNER_PRODUCT", [(1, 1, 10, 180), (1, 1, 1, 10)]),
    ):
        blobs = net.layers.add(name=layer, type=kind).blobs
        for n, c, h, w in shapes:
            blobs.add(num=n, channels=c, height=h, width=w, data=range(n * c * h * w))
    old.write_bytes(net.SerializeToString())
    assert layermem("convert", old, new).code == 0
    found = {name: [blob.shape for blob in blobs] for name, blobs in read_weights(new).items()}
    assert found == {"conv": [(20, 1, 3, 3), (20,)], "ip": [(10, 180), (10,)]}
    if name.endswith("l"):
        shapes = [tuple(b.shape.dim) for layer in NetParameter.FromString(new.read_bytes()).layer for b in layer.blobs]
        assert shapes == [(20, 1, 3, 3), (20,), (10, 180), (10,)]


def test_a_solver_state_keeps_everything_through_hdf5_and_back(layermem, tmp_path):
    first, middle, last = (tmp_path / name for name in ("a.solverstate", "b.solverstate.h5", "c.solverstate"))
    state = SolverStateData(7, "a.caffemodel", 2, [np.arange(3, dtype=np.float32)])
    with open(first, "wb") as file:
        state_content(first, state)(file)
    assert layermem("convert", first, middle).code == layermem("convert", middle, last).code == 0
    found = read_state(last)
    assert found.digest() == state.digest() and found.learned_net == "a.caffemodel"


def test_an_old_net_is_rewritten_in_todays_form_with_a_note_for_each_change(layermem, prototxt, tmp_path):
    target = tmp_path / "new.prototxt"
    ended = layermem("convert", prototxt(OLD), target)
    assert ended.code == 0 and "a net of 2 layers" in ended.out and len(ended.out.splitlines()) > 1
    net = read_net(target)
    assert [layer.type for layer in net.message.layer] == ["Input", "ReLU"] and not net.notes


def test_a_solver_is_rewritten_too(layermem, prototxt, tmp_path):
    source = prototxt('net: "n.prototxt" solver_type: ADAM base_lr: 0.1 lr_policy: "fixed" max_iter: 3')
    target = tmp_path / "new.prototxt"
    assert layermem("convert", source, target).code == 0
    assert 'type: "Adam"' in target.read_text() and "solver_type" not in target.read_text()


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("a.caffemodel", "b.prototxt", "a.caffemodel: is a weight file by its name, and '"),
        ("nowhere.caffemodel", "b.h5", "no such file"),
        ("nowhere.solverstate", "b.solverstate", "no such file"),
        ("nowhere.prototxt", "b.prototxt", "no such file"),
    ],
)
def test_impossible_conversions_are_refused(layermem, tmp_path, source, target, says):
    ended = layermem("convert", tmp_path / source, tmp_path / target)
    assert ended.code == 2 and says in ended.sentence and not (tmp_path / target).exists()


def test_a_broken_prototxt_is_reported_where_it_breaks(layermem, prototxt, tmp_path):
    ended = layermem("convert", prototxt('name: "x"\nlayer { name: "a" typo: 3 }'), tmp_path / "b.prototxt")
    assert ended.code == 2 and ":2" in ended.sentence and "typo" in ended.sentence
    ended = layermem("convert", prototxt('base_lr: 1\nnet: "x"\nlr_polcy: "fixed"'), tmp_path / "b.prototxt")
    assert ended.code == 2 and "lr_polcy" in ended.sentence


@pytest.mark.parametrize("ending", ["onnx", "caffemodel.gz", "json"])
def test_a_name_of_no_known_kind_is_refused_and_nothing_is_written(layermem, tmp_path, ending):
    source, target = tmp_path / "a.caffemodel", tmp_path / f"b.{ending}"
    write_weights(source, "net", WEIGHTS)
    ended = layermem("convert", source, target)
    assert ended.code == 2 and f"{target}: is of no kind that convert writes" in ended.sentence
    assert ".caffemodel" in ended.sentence and not target.exists()


def test_weights_are_read_whatever_the_name_of_their_file(layermem, tmp_path):
    write_weights(tmp_path / "a.caffemodel", "net", WEIGHTS)
    source = (tmp_path / "a.caffemodel").rename(tmp_path / "a.caffemodel.bak")
    assert layermem("convert", source, tmp_path / "b.caffemodel").code == 0


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_weights_take_other_names_by_a_map_and_come_back(layermem, tmp_path, ending):
    first, middle, last = (tmp_path / name for name in ("a.caffemodel", f"b.{ending}", "c.caffemodel"))
    norm = [np.array([2.0, 4], np.float32), np.array([6.0, 8], np.float32), np.array([2.0], np.float32)]
    write_weights(first, "net", {**WEIGHTS, "bn": ("BatchNorm", norm)})
    lines = "conv/0 features.0.weight\nbn/0 bn.running_mean\nbn/1 bn.running_var\nbn/2 =1\n"
    (tmp_path / "names").write_text(lines)
    words = ("--names", tmp_path / "names")
    ended = layermem("convert", first, middle, *words)
    assert ended.code == 0 and "without 1 blobs that the map does not name: conv/1" in ended.out
    assert layermem("convert", middle, last, *words).code == 0
    read = {name: [blob.tolist() for blob in blobs] for name, blobs in read_weights(last).items()}
    assert read == {"conv": [WEIGHTS["conv"][1][0].tolist()], "bn": [[1, 2], [3, 4], [1]]}
    assert layermem("convert", first, tmp_path / f"all.{ending}").code == 0
    assert layermem("convert", tmp_path / f"all.{ending}", last).code == 0
    assert [blob.tolist() for blob in read_weights(last)["bn"]] == [blob.tolist() for blob in norm]


def test_a_map_is_for_weights_of_other_programs(layermem, tmp_path):
    write_weights(tmp_path / "a.caffemodel", "net", WEIGHTS)
    (tmp_path / "map").write_text("a/0 b\n")
    ended = layermem("convert", tmp_path / "a.caffemodel", tmp_path / "b.caffemodel", "--names", tmp_path / "map")
    assert "--names is of .safetensors and .npz files, which neither IN nor OUT is" in ended.sentence


def test_a_net_with_fields_that_a_plan_alone_can_do_without_is_not_converted(layermem, tmp_path):
    (tmp_path / "a.prototxt").write_text('layer { name: "d" type: "MyData" top: "x" my_data_param { source: "y" } }')
    ended = layermem("convert", tmp_path / "a.prototxt", tmp_path / "b.prototxt")
    assert ended.code == 2 and "a.prototxt:1: 'my_data_param' (column 43)" in ended.sentence
    assert not (tmp_path / "b.prototxt").exists()
