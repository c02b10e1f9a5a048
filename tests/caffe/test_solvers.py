"""Solvers by pycaffe's names."""

import numpy as np
import pytest

from layermem import caffe
from layermem.caffe import modes
from layermem.errors import InputError

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 } data_filler { type: "gaussian" std: 1 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 1 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(modes, "_seed", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


def write_solver(folder, rest=""):
    (folder / "s.prototxt").write_text(f'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 5 {rest}')
    return "s.prototxt"


def test_a_class_is_a_type_whatever_the_file_names_and_get_solver_reads_it(folder):
    path = write_solver(folder, 'type: "Adam" momentum: 0.9 momentum2: 0.99')
    assert caffe.SGDSolver(path).param.type == "SGD"
    assert type(caffe.get_solver(path)) is caffe.AdamSolver
    names = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")
    assert [getattr(caffe, f"{name}Solver").kind for name in names] == list(names)


def test_steps_train_and_write_the_lines_of_caffe(folder, capsys):
    solver = caffe.SGDSolver(write_solver(folder, "display: 1 random_seed: 1"))
    solver.step(3)
    assert solver.iteration == 3 and "solver.cpp:239] Iteration 2" in capsys.readouterr().err


def test_the_seed_is_that_of_the_file_or_of_set_random_seed(folder):
    def loss(rest, seed):
        caffe.set_random_seed(seed)
        solver = caffe.SGDSolver(write_solver(folder, rest))
        solver.step(1)
        return float(np.asarray(solver.outputs["loss"]))

    assert loss("", 1) == loss("", 1) != loss("", 2)
    assert loss("random_seed: 4", 1) == loss("random_seed: 4", 2)


def test_gradients_of_the_last_step_are_those_of_its_update(folder):
    solver = caffe.SGDSolver(write_solver(folder, "random_seed: 1"))
    weight, bias = solver.net.params["ip"]
    assert not np.any(weight.diff) and solver.net.blobs["ip"].data.tolist() == [[0]] * 4
    before = np.array(weight.data), np.array(bias.data)
    solver.step(1)
    for blob, value in zip((weight, bias), before):
        np.testing.assert_allclose(blob.data, value - 0.01 * blob.diff, rtol=1e-6)
        assert np.any(blob.diff)
    assert np.any(solver.net.blobs["ip"].data) and np.any(solver.net.blobs["ip"].diff)


def test_passes_by_hand_change_nothing_of_the_training(folder):
    path = write_solver(folder, "random_seed: 1 test_iter: 1 test_interval: 100")
    plain, watched = caffe.SGDSolver(path), caffe.SGDSolver(path)
    for _ in range(3):
        plain.step(1)
        watched.step(1)
        after_step = np.array(watched.net.blobs["x"].data)
        watched.net.forward()
        watched.net.backward()
        assert np.any(watched.net.params["ip"][0].diff)
        watched.net.forward(start="ip")
        watched.test_nets[0].forward()
        shared = watched.test_nets[0].params["ip"][0].data
        assert np.array_equal(shared, watched.net.params["ip"][0].data)
    assert np.array_equal(plain.net.params["ip"][0].data, watched.net.params["ip"][0].data)
    assert np.array_equal(plain.net.blobs["x"].data, after_step)


def test_within_a_budget_there_is_one_arena(folder):
    solver = caffe.SGDSolver(write_solver(folder), budget="1MiB")
    solver.step(1)
    with pytest.raises(InputError, match="of a solver goes backward and updates as one; use"):
        solver.net.backward()
