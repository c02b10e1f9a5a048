"""The order of a solver's tests, displays and ends; parameters of test nets."""

import numpy as np
import pytest

from layermem.errors import BudgetError, DivergenceError, InputError
from layermem.interactive.solver import Solver
from layermem.proto.weights import read_weights
from layermem.report import events
from tests.nets import DATA, LOSS, conv, solver_file


def run(net, folder, *, then=None, device="reference", **fields):
    """Events of a run to the end, and the solver."""
    seen = []
    options = {} if then is None else then
    with Solver(solver_file(net, folder, **fields), device=device, log=seen.append, **options) as solver:
        solver.solve()
    return seen, solver


def iterations(seen, kind):
    return [event.iteration for event in seen if isinstance(event, kind)]


def test_tests_come_before_the_first_iteration_then_at_each_interval_and_at_the_end(tmp_path):
    seen, _ = run("chain", tmp_path, max_iter=6, test_interval=2)
    assert iterations(seen, events.Testing) == [0, 2, 4, 6]
    seen, _ = run("chain", tmp_path, max_iter=6, test_interval=2, test_initialization=False)
    assert iterations(seen, events.Testing) == [2, 4, 6]
    seen, _ = run("chain", tmp_path, max_iter=5, test_interval=2)
    assert iterations(seen, events.Testing) == [0, 2, 4]


def test_displays_come_at_each_interval_with_the_mean_of_the_last_losses(tmp_path):
    seen, _ = run("chain", tmp_path, max_iter=7, display=3, average_loss=2)
    losses = [event.loss for event in seen if isinstance(event, events.Stepped)]
    shown = {event.iteration: event.loss for event in seen if isinstance(event, events.Displayed)}
    assert shown == {0: losses[0], 3: pytest.approx(sum(losses[2:4]) / 2), 6: pytest.approx(sum(losses[5:7]) / 2)}
    assert seen[-1] == events.Finished(7, early=False) and not iterations(seen, events.FinalLoss)


def test_iterations_may_end_a_run_early_without_changing_its_rates(tmp_path):
    fields = {"lr_policy": "poly", "power": 1, "max_iter": 10, "display": 1}
    seen, solver = run("chain", tmp_path, then={"iterations": 3}, **fields)
    rates = [event.rate for event in seen if isinstance(event, events.Displayed)]
    assert solver.iteration == 3 and rates == pytest.approx([0.05, 0.045, 0.04])


def test_the_loss_of_an_iteration_is_the_mean_over_its_batches(tmp_path):
    fields = {"base_lr": 0, "test_iter": None, "test_interval": None}
    one, _ = run("chain", tmp_path, max_iter=4, **fields)
    two, _ = run("chain", tmp_path, max_iter=2, iter_size=2, **fields)
    single = [event.loss for event in one if isinstance(event, events.Stepped)]
    double = [event.loss for event in two if isinstance(event, events.Stepped)]
    assert double == pytest.approx([(single[0] + single[1]) / 2, (single[2] + single[3]) / 2])


@pytest.mark.parametrize("seed", [1, 7])
def test_the_seed_of_a_run_decides_what_dropout_drops_alike_on_every_device(seed, tmp_path):
    losses = {}
    for device in ("reference", "cpu"):
        seen = []
        with Solver(
            solver_file("dropout", tmp_path, max_iter=3, random_seed=seed), device=device, log=seen.append
        ) as s:
            s.solve()
        losses[device] = [event.loss for event in seen if isinstance(event, events.Stepped)]
    assert losses["cpu"] == pytest.approx(losses["reference"], rel=1e-5)


COUNTING = """
    layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }
    layer { name: "loss" type: "Reduction" bottom: "y" top: "l" loss_weight: 0.5 include { phase: TRAIN } }
    layer { name: "power" type: "Reduction" bottom: "y" top: "a sum" loss_weight: 2 include { phase: TEST } }
"""


def test_a_test_gives_the_mean_of_every_output_over_its_batches(tmp_path):
    seen = []
    file = solver_file(COUNTING, tmp_path, test_iter=3, test_compute_loss=True)
    with Solver(file, device="reference", log=seen.append) as solver:
        solver.set_parameters({"ip": [np.eye(2), np.array([0, 10])]})
        solver.give("in", [[1, 2], [3, 4], [5, 9]], test=0)
        assert solver.test(0) == {"a sum": pytest.approx((13 + 17 + 24) / 3)}
        with pytest.raises(InputError, match="has no test net 1; use an index below 1"):
            solver.test(1)
        with pytest.raises(InputError, match=r"takes no arrays in net 'tiny' .layers that do: in"):
            solver.give("ip", [[1, 2]])
        for given in ({"y": [[1, 2]]}, {"x": [[1, 2]], "y": [[1, 2]]}, {}):
            with pytest.raises(InputError, match="name all tops of Input and MemoryData layers that you give"):
                solver.give(test=0, **given)
        with pytest.raises(InputError, match="takes a layer and its arrays, or arrays by the names of tops"):
            solver.give("in", x=[[1, 2]])
    (tested,) = (event for event in seen if isinstance(event, events.Tested))
    assert tested.loss == pytest.approx(2 * (13 + 17 + 24) / 3) and tested.outputs[0].weight == 2


def test_arrays_may_be_given_by_the_names_of_tops(tmp_path):
    file = solver_file(COUNTING, tmp_path, test_iter=1)
    with Solver(file, device="reference") as solver:
        solver.set_parameters({"ip": [np.eye(2), np.array([0, 10])]})
        solver.give(x=[[5, 9]], test=0)
        assert solver.test(0) == {"a sum": pytest.approx(24)}


def test_a_test_changes_nothing_of_the_training(tmp_path):
    often, quiet = {"test_interval": 1}, {"test_iter": None, "test_interval": None}
    _, tested = run("residual", tmp_path, **often)
    _, untested = run("residual", tmp_path, **quiet)
    for name, arrays in tested.parameters().items():
        for a, b in zip(arrays, untested.parameters()[name], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_layer_that_the_train_net_does_not_have_keeps_its_own_parameters(tmp_path):
    extra = """
        layer { name: "judge" type: "InnerProduct" bottom: "score" top: "judge" include { phase: TEST }
                inner_product_param { num_output: 1 weight_filler { type: "constant" value: 1 } } }
    """
    _, solver = run(DATA + conv("c", "data", 2, 3) + LOSS % "c" + extra, tmp_path)
    assert "judge" not in solver.parameters()
    assert (solver.runner.read("judge.w0") == 1).all()


def test_layers_of_one_name_with_other_parameters_in_the_test_net_are_refused(tmp_path):
    net = (
        DATA + conv("c", "data", 2, 3, "include { phase: TRAIN }") + conv("c", "data", 3, 3, "include { phase: TEST }")
    )
    with pytest.raises(InputError) as caught:
        Solver(solver_file(net + LOSS % "c", tmp_path), device="reference")
    assert "layer 'c' has parameters of shapes 3x3x3x3, 3 in this test net and 2x3x3x3, 2 in the train" in str(
        caught.value
    )


def test_a_net_without_a_loss_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no loss to train for"):
        Solver(solver_file(DATA + conv("c", "data", 2, 3), tmp_path), device="reference")


def test_a_run_without_an_end_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no max_iter"):
        Solver(solver_file("chain", tmp_path, max_iter=None), device="reference")


def test_the_batch_of_the_train_net_may_be_replaced(tmp_path):
    with Solver(solver_file("chain", tmp_path), device="reference", batch=7) as solver:
        assert solver.nets.train.blobs["data"].shape == (7, 3, 6, 5)
        assert solver.nets.tests[0].blobs["data"].shape == (4, 3, 6, 5)
        solver.step(1)


def test_parameters_start_by_seed_layer_and_index_whatever_else_the_net_holds(tmp_path):
    tail = LOSS % "c"
    plain = DATA + conv("c", "data", 2, 3) + tail
    longer = DATA + conv("b", "data", 2, 1) + conv("c", "data", 2, 3) + tail
    first, again, other = (
        Solver(solver_file(net, tmp_path), device="reference", seed=seed).parameters()["c"][0]
        for net, seed in ((plain, 1), (longer, 1), (plain, 2))
    )
    assert (first == again).all() and not (first == other).any()


@pytest.mark.parametrize("max_iter, saved", [(0, []), (1, [1]), (2, [2]), (3, [2, 3])])
def test_a_snapshot_at_the_end_is_left_out_where_one_is_due_by_the_interval(tmp_path, max_iter, saved):
    fields = {"max_iter": max_iter, "snapshot": 2, "snapshot_after_train": True}
    with Solver(solver_file("chain", tmp_path, **fields), device="reference") as solver:
        solver.solve()
    assert sorted(path.name for path in tmp_path.glob("*.solverstate")) == [f"run_iter_{i}.solverstate" for i in saved]


def test_a_test_that_is_broken_off_gives_its_batches_back(tmp_path):
    def stop_in_the_test(event):
        if isinstance(event, events.Testing) and event.iteration == 3 and not stopped:
            stopped.append(solver)
            solver.request("stop")

    stopped = []
    fields = {"test_interval": 3, "snapshot_after_train": True}
    solver = Solver(solver_file("chain", tmp_path, **fields), device="reference", log=stop_in_the_test)
    with solver:
        solver.solve()
        assert solver.iteration == 3 and solver.interrupted and stopped
        broken_off = solver.test(0)
    with Solver(solver_file("chain", tmp_path, **fields), device="reference") as whole:
        whole.step(3)
        assert whole.test(0) == broken_off


def test_a_plan_that_was_saved_runs_in_place_of_a_strategy(tmp_path):
    path = tmp_path / "plan.json"
    with Solver(solver_file("residual", tmp_path), device="reference", strategy="hybrid", host_budget="1TiB") as first:
        path.write_text(first.program.train.plan.to_json(first.graphs[0]))
    with Solver(solver_file("residual", tmp_path), device="reference", plan=path, host_budget="1TiB") as second:
        assert second.program.arena_bytes == first.program.arena_bytes
        second.step(1)
    with pytest.raises(InputError, match="was made for another net"):
        Solver(solver_file("chain", tmp_path), device="reference", plan=path)
    with pytest.raises(InputError, match="no such file"):
        Solver(solver_file("chain", tmp_path), device="reference", plan=tmp_path / "none")


def test_a_host_budget_is_kept_or_refused(tmp_path):
    free = Solver(solver_file("inception", tmp_path), device="reference", strategy="inter", host_budget="1TiB")
    assert free.program.host_bytes > 4096
    lean = Solver(solver_file("inception", tmp_path), device="reference", strategy="inter", host_budget="4KiB")
    assert 0 < lean.program.host_bytes <= 4096
    with pytest.raises(BudgetError, match=r"^host budget 4.00 KiB is below what 'inter' needs there"):
        Solver(solver_file("inception", tmp_path), device="reference", plan=free.program.train.plan, host_budget=4096)


# ---- the end -------------------------------------------------------------------------------------------------


def test_the_end_is_that_of_caffe_a_snapshot_then_the_last_loss_then_a_test(tmp_path):
    fields = {"max_iter": 6, "display": 3, "test_interval": 2, "snapshot_after_train": True}
    seen, _ = run("chain", tmp_path, **fields)
    kinds = [type(event) for event in seen[-6:]]
    assert kinds == [events.Saving, events.Saved, events.FinalLoss, events.Testing, events.Tested, events.Finished]
    for fields in ({"max_iter": 5, "display": 3}, {"max_iter": 6, "display": 4}, {"max_iter": 6}):
        seen, _ = run("chain", tmp_path, **fields)
        assert not iterations(seen, events.FinalLoss)


def test_a_run_that_resumes_at_its_end_shows_its_loss_and_tests_again_as_in_caffe(tmp_path):
    fields = {"max_iter": 4, "display": 2, "test_interval": 2, "snapshot_after_train": True}
    first, _ = run("chain", tmp_path, **fields)
    again, _ = run("chain", tmp_path, then={"snapshot": tmp_path / "run_iter_4.solverstate"}, **fields)
    shown = [[event for event in seen if isinstance(event, events.FinalLoss)] for seen in (first, again)]
    assert shown[0] == shown[1] and iterations(again, events.Testing) == [4]


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("strategy", ["caffe", "hybrid", "recompute", "auto"])
@pytest.mark.parametrize("net", ["residual", "dropout", "shared"])
def test_the_last_loss_is_that_of_one_more_iteration_and_only_averages_change(net, strategy, tmp_path):
    fields = {"test_iter": None, "test_interval": None, "display": 1}
    more = []
    with Solver(solver_file(net, tmp_path, max_iter=5, **fields), device="reference", log=more.append) as longer:
        longer.step(4)
        learned = longer.parameters()
        longer.step(1)
        averages = longer.parameters()
    fields["max_iter"] = 4
    with Solver(solver_file(net, tmp_path, **fields), device="reference", strategy=strategy) as tight:
        budget = tight.report.minimum_bytes
    options = {"strategy": strategy, "budget": budget, "poison": True}
    seen, solver = run(net, tmp_path, then=options, **fields)
    (last,) = (event for event in seen if isinstance(event, events.FinalLoss))
    assert last == events.FinalLoss(4, next(e.loss for e in more if isinstance(e, events.Stepped) and e.iteration == 5))
    for node in solver.nets.train.nodes:
        expected = averages if node.layer.type == "BatchNorm" else learned
        for got, blob in zip(solver.parameters().get(node.layer.name, []), expected.get(node.layer.name, [])):
            np.testing.assert_array_equal(got, blob)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_training_goes_on_after_the_last_loss_with_the_next_batch(tmp_path, iter_size):
    fields = {"max_iter": 2, "display": 2, "iter_size": iter_size, "test_iter": None, "test_interval": None}
    with Solver(solver_file("chain", tmp_path, **fields), device="cpu") as solver:
        solver.solve()
        solver.step(2)
    with Solver(solver_file("chain", tmp_path, **fields), device="cpu") as plain:
        plain.step(2)
        plain._engine.open_feeds.next(0)
        plain.step(2)
    for name, blobs in solver.parameters().items():
        for a, b in zip(blobs, plain.parameters()[name], strict=True):
            np.testing.assert_array_equal(a, b)


# ---- divergence ----------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_snapshots_from_before(tmp_path):
    fields = {"base_lr": 1e30, "max_iter": 9, "snapshot": 1, "snapshot_after_train": True, "test_interval": 9}
    run("chain", tmp_path, device="cpu", **{**fields, "base_lr": 0.01, "max_iter": 2})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DivergenceError, match=r"training has diverged, and the last snapshot is .*run_iter_\d"):
        run("chain", tmp_path, device="cpu", then={"snapshot": tmp_path / "run_iter_2.solverstate"}, **fields)
    assert DivergenceError.exit_code == 5
    assert before.items() <= {path: path.read_bytes() for path in tmp_path.iterdir()}.items()
    for path in tmp_path.glob("*.caffemodel"):
        assert all(np.isfinite(blob).all() for blobs in read_weights(path).values() for blob in blobs)


@pytest.mark.parametrize("unset", [True, False])
def test_a_loss_that_no_update_made_is_not_blamed_on_the_rate(tmp_path, unset):
    layers = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 }'
    layers += f"data_filler {{ value: {3e38 if not unset else 1e3} }} }} }}"
    for i in range(18 if unset else 0):
        layers += f'layer {{ name: "bn{i}" type: "BatchNorm" bottom: "x" top: "x" '
        layers += "batch_norm_param { use_global_stats: true } }"
    layers += 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 '
    layers += 'weight_filler { type: "constant" value: 9 } } }'
    layers += 'layer { name: "l" type: "EuclideanLoss" bottom: "y" bottom: "y" top: "l" }'
    (tmp_path / "n.prototxt").write_text(layers)
    (tmp_path / "s.prototxt").write_text(f'net: "{tmp_path}/n.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 1')
    with Solver(tmp_path / "s.prototxt", device="cpu") as solver, pytest.raises(DivergenceError) as caught:
        solver.solve()
    assert "the loss of iteration 0 is nan before any update, and no base_lr changes that; " in str(caught.value)
    assert ("layer 'bn0' uses statistics that no training sets, 0 without weights" in str(caught.value)) == unset
    assert "give trained weights, --weights" in str(caught.value) and "base_lr below" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_are_named_instead_of_the_learning_rate(tmp_path, bad):
    fields = {"momentum": None, "test_iter": None, "test_interval": None}
    with Solver(solver_file(COUNTING, tmp_path, **fields), device="cpu") as solver:
        solver.give(x=[[1, bad]])
        with pytest.raises(DivergenceError, match="the last batch of 'in' has NaN or infinite values") as caught:
            solver.solve()
    assert "base_lr" not in str(caught.value)


def test_the_loss_that_is_not_finite_is_displayed_and_its_iteration_named(tmp_path):
    seen = []
    fields = {"base_lr": 1e30, "momentum": None, "display": 1, "test_iter": None, "test_interval": None}
    solver = Solver(solver_file("chain", tmp_path, **fields), device="cpu", log=seen.append)
    with solver, pytest.raises(DivergenceError, match=r"loss of iteration [1-4] is (nan|inf): training") as caught:
        solver.solve()
    assert "there is no snapshot yet; use a base_lr below 1e+30" in str(caught.value)
    losses = [event.loss for event in seen if isinstance(event, events.Displayed)]
    assert not np.isfinite(losses[-1]) and np.isfinite(losses[:-1]).all()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_run_that_may_hold_nan_goes_on_without_a_warning_and_is_saved(tmp_path, device):
    fields = {"base_lr": 1e30, "max_iter": 6, "snapshot_after_train": True}
    _, solver = run("chain", tmp_path, device=device, then={"allow_nan": True}, **fields)
    assert solver.iteration == 6 and (tmp_path / "run_iter_6.solverstate").exists()


def test_a_snapshot_of_a_parameter_that_is_not_finite_is_refused_by_its_name(tmp_path):
    with Solver(solver_file("chain", tmp_path), device="cpu") as solver:
        weight, bias = solver.parameters()["conv2"]
        solver.set_parameters({"conv2": [weight, bias * np.nan]})
        with pytest.raises(DivergenceError, match=r"'conv2\.w1' is not finite at iteration 0, so no snapshot is saved"):
            solver.snapshot()
    assert not list(tmp_path.glob("run_iter*"))


# ---- nothing to learn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [None, 1])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_solver_whose_net_has_nothing_to_learn_runs(tmp_path, iter_size, clip):
    frozen = DATA + (LOSS % "data").replace('top: "score"', 'top: "score" param { lr_mult: 0 } param { lr_mult: 0 }')
    file = solver_file(frozen, tmp_path, iter_size=iter_size, max_iter=2, clip_gradients=clip)
    with Solver(file, device="cpu", budget="100%") as solver:
        before = solver.parameters()
        solver.solve()
        assert solver.report.bound_bytes <= solver.report.peak_bytes and solver.report.bound_seconds > 0
        assert all((a == b).all() for name in before for a, b in zip(before[name], solver.parameters()[name]))
