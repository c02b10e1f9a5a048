"""What a solver does when: tests, displays, ends; whose parameters a test net uses."""

import numpy as np
import pytest

from layermem.errors import BudgetError, InputError
from layermem.report import events
from layermem.solver.solver import Solver
from tests.nets import DATA, LOSS, conv, solver_file


def run(net, folder, *, then=None, **fields):
    """Events of a run to the end, and the solver."""
    seen = []
    options = {} if then is None else then
    with Solver(solver_file(net, folder, **fields), device="reference", log=seen.append, **options) as solver:
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
    seen, solver = run("chain", tmp_path, max_iter=7, display=3, average_loss=2)
    losses = [event.loss for event in seen if isinstance(event, events.Stepped)]
    shown = {event.iteration: event.loss for event in seen if isinstance(event, events.Displayed)}
    assert shown == {0: losses[0], 3: pytest.approx(sum(losses[2:4]) / 2), 6: pytest.approx(sum(losses[5:7]) / 2)}
    assert seen[-1] == events.Finished(7, solver.loss, early=False)


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
    (tested,) = (event for event in seen if isinstance(event, events.Tested))
    assert tested.loss == pytest.approx(2 * (13 + 17 + 24) / 3) and tested.outputs[0].weight == 2


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
    with Solver(solver_file("residual", tmp_path), device="reference", strategy="hybrid") as first:
        path.write_text(first.program.train.plan.to_json(first.graphs[0]))
    with Solver(solver_file("residual", tmp_path), device="reference", plan=path) as second:
        assert second.program.arena_bytes == first.program.arena_bytes
        second.step(1)
    with pytest.raises(InputError, match="was made for another net"):
        Solver(solver_file("chain", tmp_path), device="reference", plan=path)
    with pytest.raises(InputError, match="no such file"):
        Solver(solver_file("chain", tmp_path), device="reference", plan=tmp_path / "none")


def test_a_host_budget_is_kept_or_refused(tmp_path):
    free = Solver(solver_file("inception", tmp_path), device="reference", strategy="inter")
    assert free.program.host_bytes > 4096
    lean = Solver(solver_file("inception", tmp_path), device="reference", strategy="inter", host_budget="4KiB")
    assert 0 < lean.program.host_bytes <= 4096
    with pytest.raises(BudgetError, match=r"^host budget 4.00 KiB is below what 'inter' offloads"):
        Solver(solver_file("inception", tmp_path), device="reference", plan=free.program.train.plan, host_budget=4096)
