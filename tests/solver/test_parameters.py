"""Parameters and optimizer state between the arena and files."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.solver.parameters import Parameters, check_shared
from layermem.solver.solver import Solver
from tests.nets import solver_file


@pytest.fixture
def solver(tmp_path):
    with Solver(solver_file("chain", tmp_path), device="reference") as solver:
        yield solver


@pytest.fixture
def parameters(solver) -> Parameters:
    return Parameters(solver.nets.all, solver.runner, 1)


def test_layers_have_caffes_shapes_and_files_name_every_layer(parameters):
    layers = parameters.layers()
    assert [blob.shape for blob in layers["conv1"]] == [(4, 3, 3, 3), (4,)]
    assert "pool1" not in layers
    kind, blobs = parameters.file_layers()["pool1"]
    assert (kind, blobs) == ("Pooling", [])


def test_written_values_are_read_back_and_other_layers_keep_theirs(parameters):
    before = parameters.layers()["conv2"][0].copy()
    values, unknown = parameters.match_layers({"conv1": [np.ones((4, 3, 3, 3)), np.arange(4)], "gone": [np.ones(2)]})
    parameters.write(values)
    assert unknown == ["gone"] and parameters.layers()["conv1"][1].tolist() == [0, 1, 2, 3]
    assert np.array_equal(parameters.layers()["conv2"][0], before)


@pytest.mark.parametrize(
    ("blobs", "what"),
    [
        ([np.ones((4, 3, 3, 3))], "has 1 blobs in the file, and 2 in the net; rename the layer"),
        ([np.ones((5, 3, 3, 3)), np.ones(4)], "of shape 5 x 3 x 3 x 3 in the file, and of shape 4 x 3 x 3 x 3 in"),
    ],
)
def test_blobs_that_do_not_fit_are_refused_with_the_layer(parameters, blobs, what):
    with pytest.raises(InputError) as caught:
        parameters.match_layers({"conv1": blobs})
    assert caught.value.layer == "conv1" and what in caught.value.what


def test_a_snapshot_needs_every_parameter(parameters):
    layers = parameters.layers()
    assert set(parameters.match_snapshot(layers)) == set(parameters.train.params)
    del layers["conv2"]
    with pytest.raises(InputError, match="has no blobs in the snapshot; resume with the net of the snapshot"):
        parameters.match_snapshot(layers)


def test_history_blobs_are_those_of_all_parameters_in_order(parameters, solver):
    solver.step(1)
    history = parameters.history()
    assert [blob.shape for blob in history] == [p.param.shape for p in parameters.train.params.values()]
    assert all(np.any(blob) for blob in history)
    parameters.write_history([np.full(blob.shape, 3) for blob in history])
    assert all((np.asarray(blob) == 3).all() for blob in parameters.history())


def test_another_number_of_history_blobs_is_refused(parameters):
    history = parameters.history()
    assert len(parameters.match_history(history)) == len(history)
    with pytest.raises(InputError, match=f"has 1 history blobs, and this solver {len(history)}; resume with"):
        parameters.match_history(history[:1])


def test_filling_depends_on_seed_layer_and_index_only(parameters):
    first = parameters.layers()["conv1"][0].copy()
    parameters.fill(99)
    other = parameters.layers()["conv1"][0].copy()
    parameters.fill(5)  # the seed of the solver
    assert not np.array_equal(first, other) and np.array_equal(parameters.layers()["conv1"][0], first)
    assert not any(np.any(blob) for blob in parameters.history())


def test_nets_that_share_their_layers_pass_the_check(solver):
    check_shared(solver.nets.train, solver.nets.tests[0])
