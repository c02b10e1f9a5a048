"""Weights with which a run begins."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.proto.weight_names import read_names
from layermem.proto.weights import write_weights
from tests.nets import NETS, solver_file
from tests.solver.snapshots import equal


def test_weights_are_taken_by_layer_name_and_layers_that_match_none_are_logged(tmp_path):
    said = []
    renamed = NETS["inception"].replace('"one"', '"uno"')
    donor = Solver(solver_file(renamed, tmp_path), device="reference", seed=1)
    donor.snapshot()
    path = str(tmp_path / "run_iter_0.caffemodel")
    options = {"device": "reference", "seed": 2, "log": lambda event: said.append(getattr(event, "text", ""))}
    with Solver(solver_file("inception", tmp_path), **options) as solver:
        own = solver.parameters()
    with Solver(solver_file("inception", tmp_path, weights=path), **options) as solver:
        found = solver.parameters()
    assert [line for line in said if "Ignoring" in line] == ["Ignoring source layer uno"]
    taken = ("stem", "three", "score")
    assert equal({k: found[k] for k in taken}, {k: donor.parameters()[k] for k in taken})
    assert equal({"one": found["one"]}, {"one": own["one"]}) and not equal(found, own)


def test_several_weight_files_follow_each_other_and_an_option_replaces_those_of_the_solver(tmp_path):
    def layers(value):
        return {"left": ("Convolution", [np.full((3, 3, 3, 3), value, np.float32), np.zeros(3, np.float32)])}

    for value in (1, 2, 3):
        write_weights(tmp_path / f"w{value}.caffemodel", "net", layers(value))
    names = [str(tmp_path / f"w{value}.caffemodel") for value in (1, 2, 3)]
    file = solver_file("shared", tmp_path, weights=f"{names[1]}, {names[2]}")
    with Solver(file, device="reference") as solver:
        assert (solver.parameters()["right"][0] == 3).all()  # shared with 'left'
    with Solver(file, device="reference", weights=",".join(names[:2])) as solver:
        assert (solver.parameters()["left"][0] == 2).all()


def test_weights_that_a_solver_names_are_looked_for_beside_it(tmp_path):
    blobs = [np.full((4, 3, 3, 3), 7, np.float32), np.zeros(4, np.float32)]
    write_weights(tmp_path / "w.caffemodel", "net", {"conv1": ("Convolution", blobs)})
    with Solver(solver_file("chain", tmp_path, weights="w.caffemodel"), device="reference") as solver:
        assert (solver.parameters()["conv1"][0] == 7).all()
    with pytest.raises(InputError, match=r"solver.prototxt:\d+: there is no 'none' in the working directory"):
        Solver(solver_file("chain", tmp_path, weights="none"), device="reference")


@pytest.mark.parametrize("ending", ["safetensors", "npz"])
def test_weights_of_other_programs_are_taken_by_the_map_beside_them(tmp_path, ending):
    layers = {"conv1": ("", [np.full((4, 3, 3, 3), 7, np.float32), np.zeros(4, np.float32)])}
    path = tmp_path / f"w.{ending}"
    (tmp_path / "map").write_text("conv1/0 features.0.weight\nconv1/1 features.0.bias\n")
    write_weights(path, "net", layers, names=read_names(tmp_path / "map"))
    (tmp_path / "map").rename(tmp_path / f"w.{ending}.names")
    with Solver(solver_file("chain", tmp_path, weights=f"w.{ending}"), device="reference") as solver:
        assert (solver.parameters()["conv1"][0] == 7).all()


def test_weights_of_another_shape_are_fatal_and_say_what_to_do(tmp_path):
    blobs = [np.zeros((4, 3, 5, 5), np.float32), np.zeros(4, np.float32)]
    path = tmp_path / "w.caffemodel"
    write_weights(path, "net", {"conv1": ("Convolution", blobs)})
    with pytest.raises(InputError) as caught:
        Solver(solver_file("chain", tmp_path), device="reference", weights=str(path))
    assert str(caught.value) == (
        f"{path}: layer 'conv1' has a blob of shape 4 x 3 x 5 x 5 in the file, and of shape 4 x 3 x 3 x 3 in the net; "
        "rename the layer to initialize it anew, or change the net"
    )
    write_weights(path, "net", {"conv1": ("Convolution", blobs[:1])})
    with pytest.raises(InputError, match="has 1 blobs in the file, and 2 in the net"):
        Solver(solver_file("chain", tmp_path), device="reference", weights=str(path))
