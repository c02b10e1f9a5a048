"""HDF5Output layers in tests and in training: rows, files, and failures."""

import h5py
import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from tests.nets import CHAIN, solver_file


def record(path, phase="TEST"):
    return f"""
    layer {{ name: "record" type: "HDF5Output" bottom: "score" bottom: "label" include {{ phase: {phase} }}
            hdf5_output_param {{ file_name: "{path}" }} }}"""


def datasets(path):
    with h5py.File(path) as file:
        return {name: file[name][...] for name in file}


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_test_writes_the_rows_of_all_its_batches(device, tmp_path):
    path = tmp_path / "scores.h5"
    with Solver(solver_file(CHAIN + record(path), tmp_path, max_iter=0), device=device, strategy="hybrid") as solver:
        solver.test()
    found = datasets(path)
    assert found["data"].shape == (8, 5, 1, 1) and found["label"].shape == (8, 1, 1, 1)  # two batches of four
    assert np.isfinite(found["data"]).all() and len(np.unique(found["data"][:, 0])) == 8
    assert [each.name for each in tmp_path.iterdir()] == ["scores.h5"]


def test_training_writes_each_iteration_in_place_of_the_last(tmp_path):
    path = tmp_path / "scores.h5"
    text = CHAIN + record(path, "TRAIN")
    seen = []
    with Solver(solver_file(text, tmp_path, max_iter=2, iter_size=2, test_iter=None, test_interval=None)) as solver:
        for _ in range(2):
            solver.step(1)
            seen.append(datasets(path)["data"])
    assert seen[0].shape == (8, 5, 1, 1) and (seen[0] != seen[1]).any()


def test_a_folder_that_is_not_there_is_an_error_before_the_first_step(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        Solver(solver_file(CHAIN + record(tmp_path / "none" / "scores.h5"), tmp_path))


def test_recording_changes_no_bit_of_the_parameters(tmp_path):
    models = []
    for name, text in (("plain", CHAIN), ("recorded", CHAIN + record(tmp_path / "scores.h5", "TRAIN"))):
        folder = tmp_path / name
        folder.mkdir()
        with Solver(solver_file(text, folder), strategy="sublinear") as solver:
            solver.solve()
            models.append({name: [blob.tobytes() for blob in blobs] for name, blobs in solver.parameters().items()})
    assert models[0] == models[1]
