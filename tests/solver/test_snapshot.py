"""Snapshots: their contents for other Caffe programs, and where they are written."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from layermem.errors import BudgetError, InputError
from layermem.interactive.solver import Solver
from layermem.proto.schema import NetParameter, SolverState
from layermem.proto.weights import read_weights
from layermem.report.events import Finished
from layermem.utils.files import aside_stem
from tests.nets import DATA, LOSS, solver_file
from tests.solver.snapshots import EVERY, equal, trained


def test_the_weights_are_a_net_parameter_with_caffes_shapes_in_caffes_order(tmp_path):
    solver = trained("chain", tmp_path)
    net = NetParameter.FromString((tmp_path / "run_iter_7.caffemodel").read_bytes())
    assert [(layer.name, layer.type) for layer in net.layer][:3] == [
        ("data", "DummyData"),
        ("conv1", "Convolution"),
        ("conv1_relu", "ReLU"),
    ]
    blobs = {layer.name: layer.blobs for layer in net.layer if layer.blobs}
    assert {name: [tuple(b.shape.dim) for b in each] for name, each in blobs.items()} == {
        "conv1": [(4, 3, 3, 3), (4,)],
        "conv2": [(6, 4, 3, 3), (6,)],
        "score": [(5, 54), (5,)],
    }
    for name, arrays in solver.parameters().items():
        for blob, array in zip(blobs[name], arrays, strict=True):
            np.testing.assert_array_equal(np.array(blob.data, np.float32), array.reshape(-1))


def test_inner_product_weights_over_an_image_are_stored_channel_by_channel(tmp_path):
    """The file's (N, C*H*W) must have Caffe's meaning, which the resulting score shows."""
    text = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 2 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" loss_weight: 1 inner_product_param {
                num_output: 2 weight_filler { type: "gaussian" std: 1 } } }
    """
    file = solver_file(text, tmp_path, test_iter=None, test_interval=None, base_lr=0)
    x = np.arange(24).reshape(2, 3, 2, 2).astype(np.float32)
    with Solver(file, device="reference") as solver:
        solver.give("in", x)
        solver.step(1)
        solver.snapshot()
    weight, bias = read_weights(tmp_path / "run_iter_1.caffemodel")["ip"]
    np.testing.assert_allclose(solver.outputs["y"], x.reshape(2, 12) @ weight.T + bias, rtol=1e-5)


@pytest.mark.parametrize(("kind", "count"), [("SGD", 1), ("AdaDelta", 2)])
def test_the_state_holds_a_history_for_every_parameter_then_the_second_ones(kind, count, tmp_path):
    trained("residual", tmp_path, type=kind, lr_policy="multistep", gamma=0.5, stepvalue=[2, 5])
    state = SolverState.FromString((tmp_path / "run_iter_7.solverstate").read_bytes())
    assert (state.iter, state.current_step) == (7, 2)
    assert state.learned_net == f"{tmp_path}/run_iter_7.caffemodel"
    net = NetParameter.FromString((tmp_path / "run_iter_7.caffemodel").read_bytes())
    shapes = [tuple(blob.shape.dim) for layer in net.layer for blob in layer.blobs]
    assert [tuple(blob.shape.dim) for blob in state.history] == shapes * count
    averages = [i for i, layer in enumerate(net.layer) if layer.type == "BatchNorm"]
    assert averages and not any(state.history[1 + 1].data)  # stem's conv has two blobs; its moving mean has no history
    assert all(any(blob.data) for blob in state.history[:2])


def test_hdf5_snapshots_have_caffes_layout_and_resume_to_the_same_bits(tmp_path):
    whole = trained("shared", tmp_path / "binary")
    trained("shared", tmp_path / "hdf5", snapshot_format="HDF5")
    path = tmp_path / "hdf5" / "run_iter_4.solverstate.h5"
    with h5py.File(path) as file:
        assert file["iter"].shape == (1,) and file["iter"][0] == 4 and file["current_step"][0] == 0
        kind = file["learned_net"].id.get_type()
        assert kind.get_strpad() == h5py.h5t.STR_NULLTERM
        name = str(tmp_path / "hdf5" / "run_iter_4.caffemodel.h5")
        assert file["learned_net"][()] == name.encode() and kind.get_size() == len(name) + 1
        assert sorted(file["history"]) == ["0", "1", "2", "3"]
    before = (tmp_path / "hdf5" / "run_iter_7.caffemodel.h5").read_bytes()
    with Solver(solver_file("shared", tmp_path / "hdf5", **EVERY), device="reference", snapshot=path) as solver:
        solver.solve()
    assert equal(solver.parameters(), whole.parameters())
    trained("shared", tmp_path / "hdf5", snapshot_format="HDF5")
    assert (tmp_path / "hdf5" / "run_iter_7.caffemodel.h5").read_bytes() == before


def test_layers_of_one_name_and_of_none_are_saved_apart_and_resume_to_the_same_bits(tmp_path):
    ip = (
        'layer { %s type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: 4 weight_filler '
        '{ type: "xavier" } } }\n'
    )
    chain = [ip % ('name: "ip"', "data", "a"), ip % ('name: "ip"', "a", "b"), ip % ("", "b", "c"), ip % ("", "c", "d")]
    net = DATA + "".join(chain) + LOSS % "d" + LOSS.replace('"score"', '"score2"') % "d"
    net = net.replace('top: "loss"', "").replace('top: "accuracy"', 'top: "accuracy%d"') % (1, 2)
    whole = trained(net, tmp_path / "whole")
    names = ["ip", "ip(2)", "InnerProduct", "InnerProduct(2)", "score", "score2"]
    assert list(whole.parameters()) == names == list(read_weights(tmp_path / "whole" / "run_iter_4.caffemodel"))
    file = NetParameter.FromString((tmp_path / "whole" / "run_iter_4.caffemodel").read_bytes())
    assert [layer.name for layer in file.layer if layer.blobs] == ["ip", "ip", "", "", "score", "score2"]
    trained(net, tmp_path / "hdf5", snapshot_format="HDF5")
    for folder, end in (("whole", ""), ("hdf5", ".h5")):
        path = tmp_path / folder / f"run_iter_4.solverstate{end}"
        with Solver(solver_file(net, tmp_path / folder, **EVERY), device="reference", snapshot=path) as solver:
            solver.solve()
        assert equal(solver.parameters(), whole.parameters())


def test_a_place_where_no_snapshot_can_be_written_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    file = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "file" / "run"), snapshot=1)
    with pytest.raises(InputError, match="cannot write snapshots to"):
        Solver(file, device="reference")
    quiet = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "file" / "run"))
    Solver(quiet, device="reference").close()


def test_only_hdf5_takes_snapshots_above_two_gibibytes(tmp_path):
    big = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 30000 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" loss_weight: 1
                inner_product_param { num_output: 30000 } }
    """
    fields = {"snapshot": 1, "test_iter": None, "test_interval": None}
    with pytest.raises(
        InputError, match=r"takes 3\.35 GiB, above the limit of the binary format, 2\.00 GiB; set snapshot_format: HDF5"
    ):
        Solver(solver_file(big, tmp_path, **fields), device="reference")
    with pytest.raises(BudgetError):  # gets as far as that
        Solver(solver_file(big, tmp_path, snapshot_format="HDF5", **fields), device="reference", budget="1MiB")


@pytest.mark.parametrize("name", ["..", "score/0", "score/1/b"])
def test_layer_names_that_the_format_of_snapshots_cannot_hold_are_refused_before_the_run(tmp_path, name):
    silence = f'layer {{ name: "{name}" type: "Silence" bottom: "data" }}'
    net = DATA + LOSS % "data" + silence
    with pytest.raises(InputError, match=rf"\.prototxt:\d+: layer '{name}' has .* HDF5.*; rename it"):
        Solver(solver_file(net, tmp_path, snapshot=1, snapshot_format="HDF5"), device="reference")
    for fields in ({"snapshot": 1, "snapshot_format": "BINARYPROTO"}, {"snapshot_format": "HDF5"}):
        Solver(solver_file(net, tmp_path, **fields), device="reference").close()


def test_folders_of_the_prefix_are_made_with_the_first_snapshot_and_not_before(tmp_path):
    file = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "new" / "deep" / "run"), snapshot=1)
    with Solver(file, device="reference") as solver:
        assert not (tmp_path / "new").exists()
        solver.step(1)
    assert (tmp_path / "new" / "deep" / "run_iter_1.solverstate").exists()


@pytest.mark.parametrize("name", ["run_iter_3.caffemodel", "run_iter_7.solverstate.json", "run_best.caffemodel"])
def test_what_is_in_the_way_of_a_future_snapshot_is_refused_before_the_run(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=rf"{name}: cannot be written: Is a directory; use another path"):
        Solver(solver_file("chain", tmp_path, snapshot=7), device="reference")
    Solver(solver_file("chain", tmp_path), device="reference").close()  # writes no snapshots
    Solver(solver_file("chain", tmp_path, snapshot=7, snapshot_prefix="ru"), device="reference").close()


def test_the_longest_prefix_writes_snapshots_and_removes_what_killed_runs_left(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    prefix = "p" * (255 - len("_iter_2147483647.solverstate.h5.json"))
    file = solver_file("chain", tmp_path, snapshot=1, snapshot_prefix=str(tmp_path / prefix))
    (tmp_path / f".{aside_stem(f'{prefix}_iter_3.caffemodel')}.{process.pid}-0.aside").touch()
    with Solver(file, device="reference") as solver:
        assert not [*tmp_path.glob("*.aside")]
        solver.step(1)
    ends = {path.name.removeprefix(prefix) for path in tmp_path.iterdir() if path.name.startswith("p")}
    assert ends == {"_iter_1.caffemodel", "_iter_1.solverstate", "_iter_1.solverstate.json"}


def test_a_second_run_with_the_prefix_of_one_that_goes_on_is_refused(tmp_path):
    file = solver_file("chain", tmp_path, snapshot=1)
    with Solver(file, device="reference") as one, Solver(file, device="reference") as two:
        refusals = []

        def start_another(event):
            if isinstance(event, Finished):
                return
            with pytest.raises(InputError) as refused:
                two.solve()
            refusals.append(str(refused.value))

        one.log = start_another
        one.solve()
        assert two.iteration == 0
        assert {*refusals} == {
            f"{tmp_path}/run: is the snapshot_prefix of a run that goes on, and snapshots of two runs would mix; give "
            "this one another (--set snapshot_prefix=...), or wait for the other"
        }
        two.solve()
        assert two.iteration == one.iteration
    assert not [*tmp_path.glob(".*")]


def test_a_run_removes_what_killed_runs_of_its_prefix_left(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead = f"{process.pid}-0.aside"
    left = [f".run_iter_{i}.{end}.{dead}" for i in (3, 12345) for end in ("caffemodel", "solverstate.h5.json")]
    others = [f".other_iter_3.caffemodel.{dead}", f".run_iter_3.caffemodel.{os.getpid()}-77.aside", f".run.{dead}"]
    for name in (*left, *others):
        (tmp_path / name).write_bytes(b"half")
    Solver(solver_file("chain", tmp_path), device="reference").close()  # writes no snapshots
    assert {path.name for path in tmp_path.iterdir()} == {*left, *others}
    Solver(solver_file("chain", tmp_path, snapshot=1000), device="reference").close()
    assert {path.name for path in tmp_path.iterdir()} == {*others}
