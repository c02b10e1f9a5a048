"""Runs that are resumed from snapshots."""

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.proto.schema import NetParameter, SolverState
from layermem.proto.weights import read_weights
from tests.nets import NETS, solver_file
from tests.solver.snapshots import EVERY, equal, files, trained


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


def test_a_state_of_old_caffe_resumes(tmp_path, monkeypatch):
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
