"""`layermem convert`."""

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image

from layermem.proto.read import read_net
from layermem.proto.schema import Datum, NetParameter
from layermem.proto.weights import read_weights, write_weights
from layermem.solver.state_file import State, read_state, state_content

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
    state = State(7, "a.caffemodel", 2, [np.arange(3, dtype=np.float32)])
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
def test_what_cannot_be_converted_is_refused(layermem, tmp_path, source, target, says):
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


def test_images_become_an_lmdb_and_its_mean(layermem, tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / f"{name}.png")
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 1\n")
    ended = layermem("convert", "images", tmp_path / "list.txt", tmp_path / "db", "--resize", "2x3")
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'db'}: 2 images\n")
    ended = layermem("convert", "mean", tmp_path / "db", tmp_path / "mean.binaryproto")
    lines = ["mean_value: 30", "mean_value: 20", "mean_value: 10", f"{tmp_path / 'mean.binaryproto'}: 3x2x3"]
    assert (ended.code, ended.out.splitlines()) == (0, lines)
    assert layermem("convert", "mean", tmp_path / "db").out.splitlines() == lines[:3]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["images", "list.txt"], "needs LIST and DB"),
        (["images", "list.txt", "db", "--resize", "256"], "'256' is no size; write height x width, such as 256x256"),
        (
            ["a.caffemodel", "b.caffemodel", "--shuffle", "0"],
            "--shuffle is an option of `layermem convert images` and `layermem convert labels` only",
        ),
        (["mean", "db", "--gray"], "--gray is an option of `layermem convert images` only"),
        (["a.caffemodel", "b.caffemodel", "c.caffemodel"], "unknown conversion 'a.caffemodel'"),
        (["images", "none.txt", "db"], "none.txt: no such file"),
        (["mean", "none"], "none: "),
    ],
)
def test_a_conversion_that_cannot_be_is_refused_in_a_sentence(layermem, tmp_path, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    ended = layermem("convert", *words)
    assert ended.code == 2 and what in ended.err and "Traceback" not in ended.err and not [*tmp_path.iterdir()]


def test_labels_become_a_database_beside_the_images_or_an_hdf5_file(layermem, tmp_path):
    for name in ("a 1", "b 2"):
        Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / f"{name}.png")
    (tmp_path / "list.txt").write_text("a 1.png 0 2.5\nb 2.png 1 -3\n")
    words = (tmp_path / "list.txt", tmp_path / "labels", "--shuffle", "1")
    assert layermem("convert", "labels", *words).out == f"{tmp_path / 'labels'}: labels of 2 images\n"
    images = (tmp_path / "list.txt", tmp_path / "images", "--shuffle", "1", "--labels", "2")
    assert layermem("convert", "images", *images).code == 0
    rows = {}
    for folder in ("images", "labels"):
        with lmdb.open(str(tmp_path / folder), readonly=True, lock=False) as environment, environment.begin() as read:
            rows[folder] = [(bytes(key), Datum.FromString(value)) for key, value in read.cursor()]
    assert [key for key, _ in rows["images"]] == [key for key, _ in rows["labels"]]
    assert [(d.channels, d.height, d.width) for _, d in rows["labels"]] == [(2, 1, 1)] * 2
    assert {key[9:]: list(d.float_data) for key, d in rows["labels"]} == {b"a 1.png": [0, 2.5], b"b 2.png": [1, -3]}
    assert not any(d.HasField("label") for _, d in rows["images"])
    assert layermem("convert", "labels", tmp_path / "list.txt", tmp_path / "labels.h5").code == 0
    with h5py.File(tmp_path / "labels.h5") as file:
        assert file["label"][()].tolist() == [[0, 2.5], [1, -3]] and file["label"].dtype == np.float32


def test_caffes_names_of_conversions_are_answered_with_ours(layermem):
    assert "`layermem convert images` here" in layermem("convert_imageset", "a", "b").sentence
    assert "'--resize_height' is written --resize HxW" in layermem("convert", "images", "--resize_height=2").sentence


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
