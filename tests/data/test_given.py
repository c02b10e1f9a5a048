"""Training on arrays in place of data: which layers read them, in which order, and what a resumed run reads."""

import numpy as np
import pytest

from layermem.distributed.loopback import run_ranks
from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.solver.process_memory import expected_memory
from tests.nets import solver_file

TAIL = """
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3
            weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
INPUT = (
    'layer { name: "in" type: "Input" top: "data" top: "label" input_param { shape { dim: [4, 2] } shape { dim: 4 } } }'
    + TAIL
)
FILES = (
    """
    layer { name: "in" type: "Data" top: "data" top: "label" data_param { source: "absent" batch_size: 4 }
            transform_param { crop_size: 9 mean_value: 7 } }
"""
    + TAIL
)
TWO = (
    """
    layer { name: "a" type: "Input" top: "data" input_param { shape { dim: [4, 2] } } }
    layer { name: "b" type: "Input" top: "label" input_param { shape { dim: 4 } } }
"""
    + TAIL
)
X = np.arange(20, dtype=np.uint8).reshape(10, 2)
ARRAYS = {"data": X, "label": np.arange(10) % 3, "test_data": X[:6] + 100, "test_label": np.zeros(6)}


def batches(solver, count, index=0):
    """The first values of the items of the next batches."""
    found = []
    for _ in range(count):
        (batch,) = ([top for layer in solver._engine.open_feeds.next(index).values() for top in layer],)
        found.append(batch[0][:, 0].tolist())
    return found


def flat(lists):
    return [each for batch in lists for each in batch]


def made(net, tmp_path, data=ARRAYS, **options):
    return Solver(solver_file(net, tmp_path), device="reference", data=data, **options)


@pytest.mark.parametrize("net", [INPUT, FILES, TWO], ids=["Input", "Data", "two layers"])
def test_each_epoch_has_every_item_once_in_an_order_of_the_seed(net, tmp_path):
    with made(net, tmp_path) as solver, made(net, tmp_path) as again, made(net, tmp_path, seed=6) as other:
        taken = flat(batches(solver, 10))
        assert taken == flat(batches(again, 10)) != flat(batches(other, 10))
    epochs = [taken[at : at + 10] for at in range(0, 40, 10)]
    assert all(sorted(epoch) == [*range(0, 20, 2)] for epoch in epochs) and epochs[0] != epochs[1]


def test_tests_take_the_arrays_of_their_own_in_order_and_begin_again_without_a_gap(tmp_path):
    with made(INPUT, tmp_path) as solver:
        assert batches(solver, 3, 1) == [[100, 102, 104, 106], [108, 110, 100, 102], [104, 106, 108, 110]]


def test_two_layers_get_the_data_and_the_label_of_one_item(tmp_path):
    data = {"data": X, "label": X[:, 0], "test_data": X, "test_label": X[:, 0]}
    with made(TWO, tmp_path, data) as solver:
        for _ in range(5):
            batch = solver._engine.open_feeds.next(0)
            assert batch["a"][0][:, 0].tolist() == batch["b"][0].tolist() and batch["a"][0].dtype == np.float32


def test_a_layer_of_files_takes_the_shape_of_the_arrays_and_no_transform(tmp_path):
    images = np.ones((5, 3, 6, 7), np.uint8)
    data = {"data": images, "label": np.zeros(5), "test_data": images, "test_label": np.zeros(5)}
    notes = []
    with made(FILES, tmp_path, data, batch=2, log=notes.append) as solver:
        assert solver.nets.train.input_shapes() == {"data": (2, 3, 6, 7), "label": (2,)}
        assert solver.nets.tests[0].input_shapes()["data"] == (4, 3, 6, 7)
        solver.step(1)
    assert any("transform_param has no effect on arrays" in str(note) for note in notes)


def test_a_resumed_run_has_the_bits_of_the_whole_one_and_so_have_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("arrays.npz", **ARRAYS)
    fields = {"snapshot": 3, "iter_size": 2, "snapshot_prefix": "run", "test_iter": None, "test_interval": None}

    def trained(size, **options):
        def train(transport):
            file = solver_file(INPUT, tmp_path, **fields)
            ranks = transport if size > 1 else None
            with Solver(file, device="cpu", data="arrays.npz", iterations=6, transport=ranks, **options) as solver:
                solver.solve()
                return [blob.tobytes() for blobs in solver.parameters().values() for blob in blobs]

        return run_ranks(size, train, seed=size)

    whole = trained(1)[0]
    assert trained(1, snapshot="run_iter_3.solverstate")[0] == whole
    assert trained(2) == [whole, whole]
    np.savez("arrays.npz", data=X[:8], label=np.zeros(8))
    with pytest.raises(InputError, match="was written with 10 items of data, and the arrays have 8; use the same data"):
        trained(1, snapshot="run_iter_3.solverstate")


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"data": X}, "is given data, and not label; give an array for each top"),
        ({"data": X, "label": np.zeros(9)}, "is given different numbers of items, 10 of data, 9 of label"),
        ({"data": X.reshape(4, 5), "label": np.zeros(4)}, r"takes Nx2 for 'data', and is given Nx5; reshape"),
        ({"data": X, "label": np.array(["a"] * 10)}, "as 'label'; give numbers, with an axis of items first"),
        ({"data": X, "label": np.float32(1)}, "has scalar of type float32 as 'label'"),
        ({"data": X[:0], "label": np.zeros(0)}, "as 'data'; give numbers, with an axis of items first"),
        ({"data": X, "label": np.zeros(10), "labels": np.zeros(10)}, "array 'labels', and no input layer has a top"),
        ({"images": X}, "array 'images', and no input layer has a top of that name; those of the train net are data"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, what, tmp_path):
    with pytest.raises(InputError, match=what):
        made(INPUT, tmp_path, arrays)


def test_arrays_for_tests_are_left_alone_without_tests(tmp_path):
    file = solver_file(INPUT, tmp_path, test_iter=None, test_interval=None)
    with Solver(file, device="reference", data=ARRAYS) as solver:
        solver.step(1)


def test_the_expected_memory_has_the_arrays(tmp_path):
    with made(INPUT, tmp_path) as solver:
        expected = expected_memory(solver.nets.all, solver.program, solver.device)
        assert expected.array_bytes == sum(array.nbytes for array in ARRAYS.values())
        assert f"arrays {expected.array_bytes} B" in str(expected)
