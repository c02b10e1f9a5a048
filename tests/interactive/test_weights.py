"""A net uses the weights that its file held when the net was made."""

import os
import shutil

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.errors import InputError
from tests.data.makers import digits_like, write_mean
from tests.proto.test_weights import ENDINGS

NET = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(path, value: float, in_place: bool = False) -> np.ndarray:
    """Write weights that are all `value`; return the output of the net with them."""
    net = layermem.Net.from_text(NET)
    for blob in net.params["ip"]:
        blob.data[...] = value
    if in_place:
        aside = path.with_name("aside." + path.name)
        net.save(aside)
        path.write_bytes(aside.read_bytes())
    else:
        net.save(path)
    return net.forward(x=X)["y"]


MAKERS = {
    "layermem.Net": lambda net, weights: layermem.Net(net, weights=weights),
    "several": lambda net, weights: layermem.Net(net, weights=[weights]),
    "caffe.Net": lambda net, weights: caffe.Net(net, weights, caffe.TEST),
    "by name": lambda net, weights: caffe.Net(net, phase=caffe.TEST, weights=weights),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_net_has_the_weights_that_the_file_held_when_it_was_made(ending, maker, tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(NET)
    monkeypatch.chdir(tmp_path)
    right = saved(tmp_path / ending, 1)
    nets = [MAKERS[maker]("net.prototxt", ending) for _ in range(3)]
    saved(tmp_path / ending, 2)
    assert (nets[0].forward(x=X)["y"] == right).all()
    (tmp_path / ending).unlink()
    assert (nets[1].forward(x=X)["y"] == right).all()
    os.chdir("/")
    assert (nets[2].forward(x=X)["y"] == right).all()
    nets[2].close()
    assert (nets[2].forward(x=X)["y"] == right).all()


@pytest.mark.parametrize("ending", ENDINGS)
def test_weights_that_are_changed_in_place_before_the_net_runs_are_refused(ending, tmp_path):
    saved(tmp_path / ending, 1)
    net = layermem.Net.from_text(NET, weights=tmp_path / ending)
    saved(tmp_path / ending, 2, in_place=True)
    for _ in range(2):
        with pytest.raises(InputError, match="has changed since it was opened; restore it"):
            net.forward(x=X)


def test_images_are_classified_with_the_weights_that_the_file_held(tmp_path):
    deploy = NET.replace("dim: 2 dim: 3", "dim: 1 dim: 3 dim: 2 dim: 2")
    (tmp_path / "net.prototxt").write_text(deploy)
    source = layermem.Net.from_text(deploy)
    source.save(tmp_path / "w.caffemodel")
    image = np.random.default_rng(0).random((2, 2, 3), np.float32)
    right = layermem.Classifier(tmp_path / "net.prototxt", tmp_path / "w.caffemodel").predict([image], False)
    late = layermem.Classifier(tmp_path / "net.prototxt", tmp_path / "w.caffemodel")
    source.params["ip"][0].data[...] = 3
    source.save(tmp_path / "w.caffemodel")
    assert (late.predict([image], False) == right).all()


DATA = """
    layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 2 backend: LMDB }
            transform_param { mean_file: "mean.binaryproto" } }
"""


def test_a_net_goes_on_with_the_mean_of_when_it_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, pixels = digits_like(tmp_path / "db")
    write_mean(tmp_path / "mean.binaryproto", np.full((3, 6, 5), 7, np.float32))
    net = layermem.Net.from_text(DATA)
    os.replace(tmp_path / "mean.binaryproto", tmp_path / "old")
    write_mean(tmp_path / "mean.binaryproto", np.full((3, 6, 5), 50, np.float32))
    assert np.array_equal(net.forward()["data"], pixels[:2] - np.float32(7))


def moved_away(folder) -> None:
    (folder / "db").rename(folder / "old")


def removed(folder) -> None:
    """Then the file system may give its inode to the next one."""
    shutil.rmtree(folder / "db")


@pytest.mark.parametrize("how", [moved_away, removed])
def test_a_database_that_is_made_again_before_the_first_pass_is_refused(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    digits_like(tmp_path / "db")
    write_mean(tmp_path / "mean.binaryproto", np.zeros((3, 6, 5), np.float32))
    net = layermem.Net.from_text(DATA)
    how(tmp_path)
    _, pixels = digits_like(tmp_path / "db", seed=5)
    with pytest.raises(InputError, match="has changed since the net was made; restore it, or make the net again"):
        net.forward()
    assert np.array_equal(layermem.Net.from_text(DATA).forward()["data"], pixels[:2])


def test_a_net_does_not_read_another_database_of_that_name_in_a_later_working_folder(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        digits_like(tmp_path / name / "db", seed=len(name))
        write_mean(tmp_path / name / "mean.binaryproto", np.zeros((3, 6, 5), np.float32))
    monkeypatch.chdir(tmp_path / "here")
    net = layermem.Net.from_text(DATA)
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(InputError, match="has changed since the net was made"):
        net.forward()
