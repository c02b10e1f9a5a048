"""layermem.Solver: its nets, its rate at run time, its callbacks."""

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.interactive.solver import Solver
from tests.nets import NETS, solver_file, solver_text


def losses_of(solver, count):
    losses = []
    for _ in range(count):
        solver.step(1)
        losses.append(float(solver.outputs["loss"]))
    return losses


def test_nets_of_a_solver_show_its_parameters_and_outputs(tmp_path):
    with Solver(solver_file("chain", tmp_path)) as solver, Solver(solver_file("chain", tmp_path)) as other:
        net, test = solver.net, solver.test_nets[0]
        assert isinstance(net, layermem.Net) and list(net.params) == ["conv1", "conv2", "score"] == list(test.params)
        assert (net.inputs, net.outputs, test.outputs) == ([], ["loss"], ["accuracy", "loss"])
        solver.step(1)
        assert net.blobs["loss"].data == solver.outputs["loss"] and solver.iter == 1
        weight, inner = net.params["conv1"][0].data, net.params["score"][0].data
        before = weight.copy(), inner.copy()
        solver.step(1)
        assert not np.array_equal(weight, before[0]) and not np.array_equal(inner, before[1])  # live
        assert np.array_equal(inner, solver.parameters()["score"][0])
        weight[...], inner[...] = before
        other.step(2)
        other.set_parameters({"conv1": [before[0], other.parameters()["conv1"][1]]})
        other.set_parameters({"score": [before[1], other.parameters()["score"][1]]})
        assert losses_of(solver, 2) == losses_of(other, 2)
        assert set(test.forward()) == {"accuracy", "loss"} and set(net.forward()) == {"loss"}
        test.share_with(net)
        with pytest.raises(InputError, match="-1 is no number of iterations"):
            solver.step(-1)


def test_kept_gradients_of_parameters_are_those_of_the_update_and_change_no_bit(tmp_path):
    with (
        Solver(solver_file("chain", tmp_path)) as plain,
        Solver(solver_file("chain", tmp_path), keep="*.diff") as solver,
    ):
        plain.step(1)
        before = {name: [np.array(blob.data) for blob in blobs] for name, blobs in solver.net.params.items()}
        solver.step(1)
        for name, blobs in solver.net.params.items():
            for index, blob in enumerate(blobs):
                assert np.array_equal(blob.data, plain.net.params[name][index].data)
                assert (
                    blob.diff.shape == blob.shape
                    and blob.diff.any()
                    and not np.array_equal(blob.data, before[name][index])
                )


@pytest.mark.parametrize("name", ["chain", "residual"])
def test_kept_blobs_of_the_last_step_are_there_within_the_budget(name, tmp_path):
    with Solver(solver_file(name, tmp_path, test_interval=None, test_iter=None)) as plain:
        expected = losses_of(plain, 3)
        least = plain.report.minimum_bytes
    keep = ["conv*"] if name == "chain" else ["sum", "data"]
    for budget in (None, 2 * least):
        with Solver(solver_file(name, tmp_path), keep=keep, budget=budget) as solver:
            assert losses_of(solver, 3) == expected
            assert solver.runner.measured_peak_bytes <= solver.report.peak_bytes
            blob = solver.net.blobs["conv2" if name == "chain" else "sum"]
            data, diff = np.array(blob.data), np.array(blob.diff)
            assert data.shape == diff.shape == blob.shape and diff.any() and data.min() == 0 < data.max()  # after ReLU
            if budget is None:
                first = data, diff
            assert np.array_equal(first[0], data) and np.array_equal(first[1], diff)


def test_blobs_of_a_step_are_those_of_a_net_with_the_same_weights(tmp_path):
    net = layermem.Net.from_text(NETS["chain"], seed=5)
    with net, Solver(solver_file("chain", tmp_path, random_seed=5), keep="*") as solver:
        net.forward()
        net.backward()
        solver.step(1)
        for name, blob in net.blobs.items():
            assert np.array_equal(solver.net.blobs[name].data, blob.data), name
        for name in ("score", "conv2", "pool1", "conv1"):
            assert np.array_equal(solver.net.blobs[name].diff, net.blobs[name].diff), name


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda s: s.net.blobs["loss"].data, "before the net runs"),
        (lambda s: s.step(1) or s.net.blobs["conv1"].data, r"Solver\(keep=\['conv1'\]\) holds it"),
        (lambda s: s.step(1) or s.net.blobs["conv1"].diff, r"the diff of blob 'conv1' is not in the arena now"),
        (lambda s: s.net.params["conv1"][0].diff, "consumed by its update"),
        (lambda s: s.net.backward(), r"use solver.step\(1\), or a layermem.Net of its own"),
        (lambda s: s.net.forward(end="conv1"), "runs whole forward passes"),
        (lambda s: s.net.reshape(data=(1, 3, 6, 5)), "planned for its shapes"),
        (lambda s: s.net.blobs["conv3"], "did you mean 'conv1'"),
        (lambda s: setattr(s, "base_lr", -1), "cannot use base_lr -1"),
        (lambda s: setattr(s, "rate", float("nan")), "cannot use base_lr nan"),
        (lambda s: s.net.share_with(layermem.Net.from_text(NETS["chain"])), "keeps its own parameters"),
    ],
)
def test_a_mistake_is_one_sentence(wrong, says, tmp_path):
    with Solver(solver_file("chain", tmp_path)) as solver, pytest.raises(layermem.InputError, match=says) as caught:
        wrong(solver)
    assert "\n" not in str(caught.value)


def test_a_rate_that_is_set_changes_the_run_and_a_snapshot_keeps_it(tmp_path):
    policy = {"lr_policy": "step", "gamma": 0.5, "stepsize": 2, "test_iter": None, "test_interval": None}
    with (
        Solver(solver_file("chain", tmp_path, **policy)) as plain,
        Solver(solver_file("chain", tmp_path, **policy)) as solver,
    ):
        assert losses_of(plain, 2) == losses_of(solver, 2)
        assert solver.rate == pytest.approx(0.025) and solver.base_lr == pytest.approx(0.05)
        solver.rate = 0.1
        assert solver.base_lr == pytest.approx(0.2) and solver.rate == pytest.approx(0.1)
        path = solver.snapshot()
        assert losses_of(plain, 2)[1] != (rest := losses_of(solver, 2))[1]
        assert solver.rate == pytest.approx(0.05)  # the policy goes on
    with Solver(solver_file("chain", tmp_path, **policy), snapshot=path) as resumed:
        assert resumed.rate == pytest.approx(0.1) and losses_of(resumed, 2) == rest


@pytest.mark.parametrize("size", [1, 2])
def test_callbacks_come_in_their_order(tmp_path, size):
    seen = []
    with Solver(solver_file("chain", tmp_path, iter_size=size)) as solver:
        weight = solver.net.params["conv1"][0]

        def note(event):
            seen.append((event, solver.iter, weight.data.tobytes()))

        solver.add_callback(lambda: note("start"), lambda: note("gradient"), on_iteration=lambda: note("iteration"))
        solver.step(2)
        if size > 1:
            assert solver.net.params["conv1"][0].diff.shape == (4, 3, 3, 3)
    assert [event[:2] for event in seen] == [
        ("start", 0),
        ("gradient", 0),
        ("iteration", 1),
        ("start", 1),
        ("gradient", 1),
        ("iteration", 2),
    ]
    assert (seen[0][2] == seen[1][2]) == (size > 1) and seen[1][2:] != seen[4][2:]


def test_a_solver_from_text_runs_until_a_callback_ends_it():
    with Solver.from_text(f"{solver_text()} net_param {{ name: 'tiny' {NETS['chain']} }}") as solver:
        solver.add_callback(on_iteration=lambda: solver.iter == 2 and solver.request("stop"))
        solver.step(5)
        assert (solver.iter, solver.interrupted) == (2, True)
        assert repr(solver) == "<Solver: tiny, SGD, iteration 2 of 6>"


def test_a_mistyped_keyword_is_named_with_the_one_that_was_meant(tmp_path):
    with pytest.raises(TypeError, match="'budgets'; did you mean 'budget'"):
        Solver("solver.prototxt", budgets="1GiB")
