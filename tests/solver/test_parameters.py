"""Parameters and optimizer state between the arena and files."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.layers.fillers import fill
from layermem.proto.schema import NetParameter
from layermem.proto.weights import Weights, read_weights
from layermem.solver.parameters import Parameters, check_shared
from tests.nets import DATA, LOSS, solver_file


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
    layer, blobs = parameters.file_layers()["pool1"]
    assert (layer.type, layer.phase, layer.pooling_param.kernel_size, blobs) == ("Pooling", 0, 2, [])
    assert (list(layer.bottom), list(layer.top)) == (["conv1"], ["pool1"])


def test_written_values_are_read_back_and_other_layers_keep_theirs(parameters):
    before = parameters.layers()["conv2"][0].copy()
    values, unknown = parameters.match_layers({"conv1": [np.ones((4, 3, 3, 3)), np.arange(4)], "gone": [np.ones(2)]})
    parameters.write(values)
    assert unknown == ["gone"] and parameters.layers()["conv1"][1].tolist() == [0, 1, 2, 3]
    assert np.array_equal(parameters.layers()["conv2"][0], before)


def test_weights_of_clips_and_signals_are_saved_and_read_in_caffes_shapes(tmp_path):
    file = solver_file("clip", tmp_path, test_iter=None, test_interval=None)
    with Solver(file, device="cpu") as first, Solver(file, device="reference", seed=9) as second:
        first.step(1)
        path = first.snapshot().replace(".solverstate", ".caffemodel")
        second.load(path)
        found, loaded = first.parameters(), second.parameters()
    saved = read_weights(path)
    assert [saved[name][0].shape for name in ("conv1", "half", "twice", "signal")] == [
        (4, 3, 3, 3, 3),
        (4, 2, 2, 2, 2),
        (4, 3, 2, 2, 2),
        (4, 3, 3),
    ]
    for name, blobs in found.items():
        for blob, from_file, value in zip(blobs, saved[name], loaded[name], strict=True):
            assert blob.shape == from_file.shape and (blob == from_file).all() and (blob == value).all()
    assert not any("/" in layer.name for layer in NetParameter.FromString(Path(path).read_bytes()).layer)


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
    layers = Weights(parameters.layers())
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


def test_a_filled_parameter_has_the_values_of_its_filler_in_the_order_of_caffe(parameters):
    """Parameters of four axes are stored channels-last."""
    for name, owned in parameters.train.params.items():
        values = fill(owned.param.filler, owned.param.shape, 5, owned.layer, owned.index)
        assert np.array_equal(parameters.runner.read(name).reshape(values.shape), values)


def test_a_value_that_is_not_finite_is_found_in_any_part_of_a_parameter(parameters, monkeypatch):
    monkeypatch.setattr("layermem.solver.parameters.PART", 2)
    assert parameters.find_not_finite() is None
    for name in parameters.train.params:
        values = parameters.runner.read(name)
        wrong = values.copy()
        wrong.reshape(-1)[-1] = np.inf
        parameters.runner.write(name, wrong)
        assert parameters.find_not_finite() == name
        parameters.runner.write(name, values)


def test_reading_in_parts_gives_the_values_in_the_order_of_caffe(parameters):
    for name in parameters.train.params:
        parts = [*parameters.runner.read_parts(name, 50)]
        assert np.array_equal(np.concatenate(parts), parameters.runner.read(name).reshape(-1))
        assert max(part.size for part in parts) <= max(50, parameters.runner.unit(name))


@pytest.mark.parametrize("kind", ["constant", "gaussian", "positive_unitball", "xavier"])
def test_filling_and_checking_take_no_copy_of_a_parameter(kind, tmp_path):
    text = f"""
        layer {{ name: "x" type: "DummyData" top: "x" dummy_data_param {{ shape {{ dim: 1 dim: 1024 }} }} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "y"
                inner_product_param {{ num_output: 2048 weight_filler {{ type: "{kind}" }} }} }}
        layer {{ name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }}
    """
    with Solver(solver_file(text, tmp_path, test_iter=None, test_interval=None), device="cpu") as solver:
        parameters = Parameters(solver.nets.all, solver.runner, 1)
        tracemalloc.start()
        parameters.fill(3)
        parameters.find_not_finite()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2**20 < 8 * 2**20 == 4 * 1024 * 2048


def layer(name, bottom, top):
    return (
        f'layer {{ {name} type: "InnerProduct" bottom: "{bottom}" top: "{top}" '
        "inner_product_param { num_output: 2 bias_term: false } }"
    )


@pytest.fixture
def repeated(tmp_path) -> Parameters:
    """Parameters of a net with two layers 'ip' and two without a name, each with one parameter of four numbers."""
    chain = [('name: "ip"', "x", "a"), ('name: "ip"', "a", "b"), ("", "b", "c"), ("", "c", "d")]
    layers = layer('name: "first"', "data", "x") + "".join(layer(*each) for each in chain)
    with Solver(solver_file(DATA + layers + LOSS % "d", tmp_path), device="reference") as solver:
        yield Parameters(solver.nets.all, solver.runner, 1)


def values_of(numbers):
    return [np.full((2, 2), numbers)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (Weights.numbered([("ip", "", values_of(1)), ("ip", "", values_of(2))]), {"ip.w0": 2}),
        (
            Weights.numbered([("", "InnerProduct", values_of(1)), ("", "InnerProduct", values_of(2))]),
            {"InnerProduct.w0": 2},
        ),
        (Weights({"ip": values_of(1)}, hdf5=True), {"ip(2).w0": 1}),
        (Weights({"ip": values_of(1), "ip(2)": values_of(2)}, hdf5=True), {"ip.w0": 1, "ip(2).w0": 2}),
        (
            Weights({"InnerProduct": values_of(1), "InnerProduct(2)": values_of(2)}, hdf5=True),
            {"InnerProduct.w0": 1, "InnerProduct(2).w0": 2},
        ),
    ],
    ids=["binary", "binary without a name", "HDF5 of Caffe", "HDF5", "HDF5 without a name"],
)
def test_a_weight_file_sets_one_of_the_layers_of_a_name_as_in_caffe(repeated, weights, expected):
    """Net::CopyTrainedLayersFrom looks for the first layer of a name, ...FromHDF5 for the last."""
    values, unknown = repeated.match_weights(weights)
    assert {name: blob[0, 0] for name, blob in values.items()} == expected and not unknown
    assert [note.partition(":")[0] for note in repeated.repeated_names()] == [
        "2 layers are named 'ip'",
        "2 layers have no name",
    ]


def test_a_layer_of_the_file_that_fits_no_layer_of_its_name_is_refused(repeated):
    with pytest.raises(InputError, match="of shape 3 x 2 in the file, and of shape 2 x 2 in the net"):
        repeated.match_weights(Weights.numbered([("ip", "", values_of(1)), ("ip", "", [np.zeros((3, 2))])]))
