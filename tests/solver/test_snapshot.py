"""Snapshots: their contents for other Caffe programs, and resumed runs."""

import base64
import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest

from layermem.errors import BudgetError, InputError
from layermem.interactive.solver import Solver
from layermem.proto.schema import NetParameter, SolverState
from layermem.proto.weight_names import read_names
from layermem.proto.weights import read_weights, write_weights
from tests.data.makers import datum, images, make_lmdb
from tests.nets import DATA, LOSS, NETS, solver_file

EVERY = {"snapshot": 2, "max_iter": 7, "snapshot_after_train": True, "test_interval": 2, "average_loss": 3}


def trained(net, folder, *, options=(), **fields):
    folder.mkdir(exist_ok=True)
    solver = Solver(solver_file(net, folder, **{**EVERY, **fields}), device="reference", **dict(options))
    with solver:
        solver.solve()
    return solver


def files(folder, model_only=False):
    """Contents by name; solver states are compared by values only, because they hold paths."""
    found = {}
    for path in sorted(folder.glob("run_iter_*")):
        if path.suffix == ".caffemodel" or path.name.endswith(".caffemodel.h5"):
            found[path.name] = path.read_bytes()
        elif not model_only and path.suffix == ".json":
            ours = json.loads(path.read_text())
            found[path.name] = ours  # holds the hash of the model and of the values of the state
    return found


# ---- contents of files -----------------------------------------------------------------------------------------------


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


def equal(a, b):
    return {k: [x.tobytes() for x in v] for k, v in a.items()} == {k: [x.tobytes() for x in v] for k, v in b.items()}


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


# ---- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize(
    ("net", "fields"),
    [(net, {}) for net in NETS]
    + [("dropout", {"iter_size": 2, "type": "Adam", "clip_gradients": 1, "base_lr": 0.01})]
    + [("dropout", {"type": "AdamW", "lr_policy": "cosine", "warmup_iter": 4, "base_lr": 0.01})],
)
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(net, fields, tmp_path):
    whole = trained(net, tmp_path / "whole", **fields)
    trained(net, tmp_path / "parts", max_iter=4, **fields)
    options = {
        "snapshot": tmp_path / "parts" / "run_iter_4.solverstate",
        "strategy": "hybrid",
        "host_budget": "1TiB",
        "seed": 99,
    }
    resumed = trained(net, tmp_path / "parts", options=options, **fields)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert resumed.loss == whole.loss and resumed.seed == 5


def test_states_are_in_the_snapshot_with_those_of_test_nets_and_in_no_file_of_caffes(tmp_path):
    solver = trained("recurrent", tmp_path)
    saved = json.loads((tmp_path / "run_iter_7.solverstate.json").read_text())["states"]
    expected = {f"{blob}.state{end}" for blob in ("lstm/h", "lstm/c", "rnn/h") for end in ("", ".test1")}
    assert set(saved) == expected and saved["rnn/h.state"]["shape"] == [1, 3, 6]
    values = [base64.b64decode(each["values"]) for each in saved.values()]
    assert len(set(values)) == len(values) and all(map(any, values))
    net = NetParameter.FromString((tmp_path / "run_iter_7.caffemodel").read_bytes())
    blobs = {layer.name: (layer.type, [tuple(b.shape.dim) for b in layer.blobs]) for layer in net.layer}
    assert blobs["lstm"] == ("LSTM", [(16, 30), (16,), (16, 2), (16, 4)])
    assert blobs["rnn"] == ("RNN", [(6, 4), (6,), (6, 6), (6, 6), (6,)])
    assert not any("/" in name for name in blobs)
    history = SolverState.FromString((tmp_path / "run_iter_7.solverstate").read_bytes()).history
    assert [tuple(b.shape.dim) for b in history] == [shape for _, shapes in blobs.values() for shape in shapes]
    fresh = Solver(
        solver_file("recurrent", tmp_path, **EVERY), device="cpu", weights=str(tmp_path / "run_iter_7.caffemodel")
    )
    with fresh:
        assert equal(fresh.parameters(), solver.parameters())


def test_a_snapshot_without_states_starts_from_zero_and_one_of_another_batch_is_refused(tmp_path):
    trained("recurrent", tmp_path, max_iter=2)
    path = tmp_path / "run_iter_2.solverstate"
    file = Path(f"{path}.json")
    saved = json.loads(file.read_text())
    wide = {"shape": [1, 5, 4], "values": base64.b64encode(bytes(80)).decode()}
    file.write_text(json.dumps({**saved, "states": {"lstm/h.state": wide}}))
    with pytest.raises(
        InputError, match=r"has the state 'lstm/h.state' of 1x5x4 numbers, and here it has 1x3x4; resume"
    ):
        trained("recurrent", tmp_path, options={"snapshot": path})
    file.write_text(json.dumps({name: value for name, value in saved.items() if name != "states"}))
    trained("recurrent", tmp_path, max_iter=3, options={"snapshot": path})


def test_a_net_whose_states_would_pass_the_limit_of_a_snapshot_is_refused_before_the_run(tmp_path):
    big = """
        layer { name: "in" type: "Input" top: "x" top: "c" input_param {
            shape { dim: 1 dim: 9000 dim: 1 } shape { dim: 1 dim: 9000 } } }
        layer { name: "it" type: "RNN" bottom: "x" bottom: "c" top: "y" loss_weight: 1
                recurrent_param { num_output: 900 } }
    """
    fields = {"snapshot": 1, "test_iter": None, "test_interval": None}
    with pytest.raises(InputError, match=r"the states of its layers take 30.9 MiB, above .* 24.0 MiB; use a smaller"):
        Solver(solver_file(big, tmp_path, **fields), device="reference")


def test_a_seed_from_the_clock_is_kept_by_the_snapshot(tmp_path):
    whole = trained("dropout", tmp_path, random_seed=None)
    expected = files(tmp_path)
    resumed = trained("dropout", tmp_path, options={"snapshot": tmp_path / "run_iter_2.solverstate"}, random_seed=None)
    assert resumed.seed == whole.seed and files(tmp_path) == expected


def test_arrays_that_the_caller_gives_again_go_on_where_they_were(tmp_path):
    text = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 1 } }
        layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1
                reduction_param { operation: SUMSQ } }
    """
    rows = np.arange(10.0).reshape(5, 2)
    fields = {"test_iter": None, "test_interval": None, "snapshot": 3, "base_lr": 0.001}

    def run(count, snapshot=None):
        solver = Solver(solver_file(text, tmp_path, **fields), device="reference", snapshot=snapshot)
        solver.give("in", rows)
        solver.step(count)
        return solver

    whole = run(7)
    assert equal(run(4, tmp_path / "run_iter_3.solverstate").parameters(), whole.parameters())


def test_a_state_of_another_caffe_program_resumes_with_a_note_that_data_start_over(tmp_path):
    notes = []
    trained("chain", tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    expected = read_weights(tmp_path / "run_iter_4.caffemodel")
    options = {"device": "reference", "log": lambda event: notes.append(getattr(event, "text", ""))}
    with Solver(
        solver_file("chain", tmp_path), snapshot=tmp_path / "run_iter_4.solverstate", seed=8, **options
    ) as solver:
        assert solver.iteration == 4 and solver.seed == 8
        assert equal(solver.parameters(), expected)
        solver.step(1)
    assert any("data start over" in note for note in notes)


def test_a_state_with_the_four_extents_of_old_caffe_and_a_path_from_the_working_directory_resumes(
    tmp_path, monkeypatch
):
    trained("chain", tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    ours = SolverState.FromString((tmp_path / "run_iter_4.solverstate").read_bytes())
    old = SolverState(iter=4, learned_net="models/run_iter_4.caffemodel")
    for blob in ours.history:
        num, channels, height, width = (1,) * (4 - len(blob.shape.dim)) + tuple(blob.shape.dim)
        old.history.add(num=num, channels=channels, height=height, width=width, data=blob.data)
    (tmp_path / "models").mkdir()
    shutil.move(tmp_path / "run_iter_4.caffemodel", tmp_path / "models" / "run_iter_4.caffemodel")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old.solverstate").write_bytes(old.SerializeToString())
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "elsewhere" / "old.solverstate"
    with Solver(solver_file("chain", tmp_path), device="reference", snapshot=path) as solver:
        np.testing.assert_array_equal(solver.runner.read("conv1.w0.h0").reshape(-1), ours.history[0].data)
        assert solver.iteration == 4


def test_a_snapshot_that_moved_is_found_beside_its_state(tmp_path):
    trained("chain", tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    with Solver(
        solver_file("chain", tmp_path), device="reference", snapshot=tmp_path / "there" / "run_iter_4.solverstate"
    ) as solver:
        assert solver.iteration == 4


def test_a_finished_run_that_is_resumed_writes_nothing(tmp_path):
    trained("chain", tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    trained("chain", tmp_path, options={"snapshot": tmp_path / "run_iter_7.solverstate"})
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


# ---- refusals --------------------------------------------------------------------------------------------------------


def refused(folder, name="run_iter_4.solverstate", net="chain", **fields):
    """The sentence with which a resume from `name` is refused."""
    with pytest.raises(InputError) as caught:
        Solver(solver_file(net, folder, **fields), device="reference", snapshot=folder / name)
    return str(caught.value)


def test_files_that_are_no_snapshot_are_refused_in_a_sentence(tmp_path):
    trained("chain", tmp_path)
    state = tmp_path / "run_iter_4.solverstate"
    assert "no such file" in refused(tmp_path, "none.solverstate")
    assert "is a weight file, for --weights" in refused(tmp_path, "run_iter_4.caffemodel")
    (tmp_path / "junk").write_bytes(os.urandom(999))
    assert "is truncated, or is not a solver state" in refused(tmp_path, "junk")
    (tmp_path / "junk").write_bytes(b"")
    assert "is truncated, or is not a solver state" in refused(tmp_path, "junk")
    (tmp_path / "cut").write_bytes(state.read_bytes()[:-7])
    assert "is truncated, or is not a solver state" in refused(tmp_path, "cut")
    (tmp_path / "cut.h5").write_bytes(b"\x89HDF\r\n\x1a\nrest")
    assert "is truncated, or is not a solver state" in refused(tmp_path, "cut.h5")


def test_weights_that_the_system_does_not_read_are_refused(tmp_path, monkeypatch):
    """The folder may have gone since they were found."""

    def read(descriptor, *arguments):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".caffemodel"):
            raise OSError(errno.EIO, "Input/output error")
        return preadv(descriptor, *arguments)

    trained("chain", tmp_path)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", read)
    assert "cannot be read as a snapshot's weights: Input/output error; give another file" in refused(tmp_path)


def test_parts_of_two_snapshots_are_never_taken_for_one(tmp_path):
    trained("chain", tmp_path)
    path = tmp_path / "run_iter_4"
    shutil.copy(tmp_path / "run_iter_6.caffemodel", f"{path}.caffemodel")
    assert "has changed since the snapshot; resume from another one" in refused(tmp_path)
    trained("chain", tmp_path)
    shutil.copy(tmp_path / "run_iter_6.solverstate.json", f"{path}.solverstate.json")
    assert "does not belong to" in refused(tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").write_text('{"layermem": 1')
    assert "is damaged" in refused(tmp_path) and "remove it to resume" in refused(tmp_path)
    trained("chain", tmp_path)
    os.unlink(f"{path}.caffemodel")
    assert "needs the weights" in refused(tmp_path)


LMDB = """
    layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "%s" batch_size: 2 } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
            inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
DAMAGE = {
    "no object": lambda saved: [],
    "no seed": lambda saved: {k: v for k, v in saved.items() if k != "seed"},
    "no feeds": lambda saved: {k: v for k, v in saved.items() if k != "feeds"},
    "no iteration": lambda saved: {k: v for k, v in saved.items() if k != "iteration"},
    "another iteration": lambda saved: {**saved, "iteration": 3},
    "a seed in words": lambda saved: {**saved, "seed": "one"},
    "half a seed": lambda saved: {**saved, "seed": 1.5},
    "an infinite seed": lambda saved: {**saved, "seed": float("inf")},
    "a long seed": lambda saved: {**saved, "seed": 10**100},
    "losses in words": lambda saved: {**saved, "losses": ["low", "high"]},
    "losses that are a number": lambda saved: {**saved, "losses": 1},
    "a long loss": lambda saved: {**saved, "losses": [10**400]},
    "nested losses": lambda saved: {**saved, "losses": [[1.0]]},
    "a device that is a number": lambda saved: {**saved, "device": 1},
    "a hash that is a number": lambda saved: {**saved, "model_sha256": 7},
    "feeds that are a number": lambda saved: {**saved, "feeds": 3},
    "feeds that are no maps": lambda saved: {**saved, "feeds": [["data"]]},
    "a position that is no map": lambda saved: {**saved, "feeds": [{"data": "here"}]},
    "a position of nothing": lambda saved: {**saved, "feeds": [{"data": {}}]},
    "a position before the first": lambda saved: in_feed(saved, sample=-1),
    "a position of 100 digits": lambda saved: in_feed(saved, sample=10**100),
    "a position in words": lambda saved: in_feed(saved, sample="first"),
    "a true position": lambda saved: in_feed(saved, sample=True),
    "an infinite position": lambda saved: in_feed(saved, sample=float("inf")),
    "states that are a list": lambda saved: {**saved, "states": []},
    "a state that is a number": lambda saved: {**saved, "states": {"s": 1}},
    "a state of a negative shape": lambda saved: {**saved, "states": {"s": {"shape": [-1], "values": ""}}},
    "a state of too few values": lambda saved: {**saved, "states": {"s": {"shape": [2], "values": "AAAAAA=="}}},
    "a state in words": lambda saved: {**saved, "states": {"s": {"shape": [1], "values": "zero"}}},
    "a state of no layer": lambda saved: {**saved, "states": {"s": {"shape": [1], "values": "AAAAAA=="}}},
    "an empty key": lambda saved: in_feed(saved, key=""),
    "a key that is a number": lambda saved: in_feed(saved, key=5),
    "half a byte of a key": lambda saved: in_feed(saved, key="303"),
    "a key of another alphabet": lambda saved: in_feed(saved, key="zz"),
    "a key that is too long": lambda saved: in_feed(saved, key="30" * 600),
    "a key of no record": lambda saved: in_feed(saved, key="3939"),
}


def in_feed(saved, **fields):
    return {**saved, "feeds": [{"data": {**saved["feeds"][0]["data"], **fields}}]}


@pytest.fixture
def on_lmdb(tmp_path):
    """A solver at iteration 4 that reads an LMDB, and its snapshot of iteration 2."""
    pixels = images(7)
    make_lmdb(tmp_path / "db", (datum(image, index % 5) for index, image in enumerate(pixels)))
    fields = {"test_iter": None, "test_interval": None, "snapshot": 2, "average_loss": 3, "base_lr": 0.0001}
    with Solver(solver_file(LMDB % (tmp_path / "db"), tmp_path, **fields), device="reference") as solver:
        solver.step(4)
        yield solver, tmp_path / "run_iter_2.solverstate"


def state_of(solver):
    losses, feeds = list(solver.progress.losses), solver._engine.open_feeds.state()
    history = [np.asarray(blob).tobytes() for blob in solver._engine.parameters.history()]
    return solver.iteration, solver.seed, losses, feeds, history, [v.tobytes() for v in solver.parameters()["ip"]]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_json_file_is_one_sentence_and_changes_nothing(on_lmdb, damage):
    solver, snapshot = on_lmdb
    file = Path(f"{snapshot}.json")
    saved = json.loads(file.read_text())
    saved["seed"] += 1  # so that feeds would be reopened
    file.write_text(json.dumps(DAMAGE[damage](saved)))
    before = state_of(solver)
    with pytest.raises(InputError) as caught:
        solver.restore(snapshot)
    assert len(str(caught.value)) < 500 and state_of(solver) == before
    solver.step(1)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"layermem": 1', "1" * 5000, "\xff", ""])
def test_text_that_is_no_json_is_one_sentence(on_lmdb, text):
    solver, snapshot = on_lmdb
    Path(f"{snapshot}.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"is damaged \(.*; remove it to resume"):
        solver.restore(snapshot)


@pytest.mark.parametrize("kind", ["BINARYPROTO", "HDF5"])
def test_snapshot_and_restore_hold_one_blob_at_a_time_beside_the_arena(kind, tmp_path):
    text = (
        """
        layer { name: "in" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 512 }
                data_filler { type: "gaussian" } } }
    """
        + "".join(
            f"""layer {{ name: "ip{i}" type: "InnerProduct" bottom: "{"x" if i == 0 else f"y{i - 1}"}" top: "y{i}"
            inner_product_param {{ num_output: 512 weight_filler {{ type: "xavier" }} }} }}"""
            for i in range(6)
        )
        + 'layer { name: "loss" type: "Reduction" bottom: "y5" top: "loss" loss_weight: 1 }'
    )
    fields = {"test_iter": None, "test_interval": None, "snapshot_format": kind}
    with Solver(solver_file(text, tmp_path, **fields), device="reference") as solver:
        solver.step(1)
        before = solver.parameters()
        tracemalloc.start()
        path = solver.snapshot()
        peaks = [tracemalloc.get_traced_memory()[1]]
        tracemalloc.reset_peak()
        solver.restore(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(peaks) < 2.5 * 4 * 512 * 512  # of twelve such blobs
        assert equal(solver.parameters(), before)


def test_a_snapshot_of_another_device_or_isa_resumes_with_a_note(on_lmdb):
    solver, snapshot = on_lmdb
    said = []
    solver.log = lambda event: said.append(getattr(event, "text", ""))
    solver.restore(snapshot)
    assert not [text for text in said if "was written on" in text]
    file = Path(f"{snapshot}.json")
    saved = json.loads(file.read_text())
    assert saved["device"] == "reference"
    file.write_text(json.dumps({**saved, "device": "cpu avx2"}))
    solver.restore(snapshot)
    assert [text for text in said if "the snapshot was written on 'cpu avx2' and goes on on 'reference'" in text]
    del saved["device"], said[:]  # as earlier versions wrote it
    file.write_text(json.dumps(saved))
    solver.restore(snapshot)
    assert not [text for text in said if "was written on" in text]


def test_losses_that_are_not_finite_are_restored(on_lmdb):
    solver, snapshot = on_lmdb
    file = Path(f"{snapshot}.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "losses": [1, float("nan"), float("inf")]}))
    solver.restore(snapshot)
    assert str(list(solver.progress.losses)) == "[1.0, nan, inf]"


def test_a_seed_beyond_64_bits_is_refused(tmp_path):
    with pytest.raises(InputError, match="is beyond 64 bits"):
        Solver(solver_file("chain", tmp_path), device="reference", seed=2**63)


TYPES = {
    "SGD": {"momentum": 0.9},
    "Nesterov": {"momentum": 0.9},
    "AdaGrad": {},
    "RMSProp": {"rms_decay": 0.9},
    "AdaDelta": {"momentum": 0.9},
    "Adam": {"momentum": 0.9},
    "AdamW": {"momentum": 0.9},
}


@pytest.mark.samples(8)
@pytest.mark.parametrize("theirs, mine", [*itertools.permutations(TYPES, 2)])
def test_the_state_of_another_solver_type_is_refused_by_name(mine, theirs, tmp_path):
    trained("chain", tmp_path, type=theirs, **TYPES[theirs])
    said = refused(tmp_path, type=mine, **TYPES[mine])
    assert f"of a solver of type '{theirs}', and this solver has type '{mine}':" in said and "--weights" in said


@pytest.mark.parametrize("mine", ["AdaGrad", "RMSProp"])
def test_without_its_type_a_state_is_known_by_sums_of_squares_below_zero(mine, tmp_path):
    trained("chain", tmp_path, momentum=0.9)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    said = refused(tmp_path, type=mine, **TYPES[mine])
    assert "another type, with values below 0 where this one has sums of squares" in said


def test_another_net_or_rule_is_refused_and_names_what_does_not_fit(tmp_path):
    trained("chain", tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    said = refused(tmp_path, type="Adam", momentum=0.9)
    assert "has 6 history blobs, and this solver 12;" in said
    wider = NETS["chain"].replace("num_output: 6", "num_output: 7")
    said = refused(tmp_path, net=wider)
    assert "layer 'conv2' has a blob of shape 6 x 4 x 3 x 3 in the file, and of shape 7 x 4 x 3 x 3 in the net" in said
    renamed = NETS["chain"].replace('name: "conv2"', 'name: "other"')
    assert "layer 'other' has no blobs in the snapshot" in refused(tmp_path, net=renamed)


def test_a_snapshot_and_weights_together_are_refused(tmp_path):
    trained("chain", tmp_path)
    with pytest.raises(InputError, match="give only one of them"):
        Solver(
            solver_file("chain", tmp_path),
            device="reference",
            snapshot=tmp_path / "run_iter_4.solverstate",
            weights=str(tmp_path / "run_iter_4.caffemodel"),
        )


def test_a_place_where_no_snapshot_can_be_written_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    file = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "file" / "run"), snapshot=1)
    with pytest.raises(InputError, match="cannot write snapshots to"):
        Solver(file, device="reference")
    quiet = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "file" / "run"))
    Solver(quiet, device="reference").close()


def test_a_net_whose_snapshot_would_pass_two_gibibytes_is_refused_before_the_run_unless_it_is_hdf5(tmp_path):
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


def test_folders_of_the_prefix_are_made_with_the_first_snapshot_and_not_before(tmp_path):
    file = solver_file("chain", tmp_path, snapshot_prefix=str(tmp_path / "new" / "deep" / "run"), snapshot=1)
    with Solver(file, device="reference") as solver:
        assert not (tmp_path / "new").exists()
        solver.step(1)
    assert (tmp_path / "new" / "deep" / "run_iter_1.solverstate").exists()


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


# ---- weights -------------------------------------------------------------------------------------------------------


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
