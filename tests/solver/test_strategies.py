"""No strategy and no budget changes a bit of the learned parameters; freed bytes are NaN in all of these runs."""

from functools import cache

import pytest

from layermem.errors import BudgetError
from layermem.interactive.solver import Solver
from layermem.planning.strategies import STRATEGIES
from tests.nets import NETS, solver_file

VARIANTS = {
    "plain": {},
    "clipped": {"clip_gradients": 0.3},
    "held": {"iter_size": 2, "average_loss": 3},
    "held and clipped, Adam": {"iter_size": 2, "clip_gradients": 0.3, "type": "Adam", "base_lr": 0.002},
}
AMPLE = {"host_budget": "1TiB"}  # the default of these devices is 0: they compute in the host's memory
CASES = (
    [(net, "plain") for net in NETS]
    + [("chain", v) for v in VARIANTS if v != "plain"]
    + [("residual", "held and clipped, Adam")]
)


def snapshot_bytes(net, folder, more, device="reference", **options):
    """Train for four iterations, with tests before the first and the last; the snapshot's bytes, and the solver."""
    folder.mkdir(exist_ok=True)
    file = solver_file(net, folder, snapshot_after_train=True, max_iter=4, **more)
    with Solver(file, device=device, poison=True, **{**AMPLE, **options}) as solver:
        solver.solve()
    found = {path.suffix: path.read_bytes() for path in folder.glob("run_iter_4.*") if path.suffix != ".json"}
    assert sorted(found) == [".caffemodel", ".solverstate"]
    found.pop(".solverstate")  # names its folder; its values are compared through the model of the next iterations
    return found, solver


@pytest.fixture(scope="module")
def snapshot_of_caffe(tmp_path_factory):
    @cache
    def trained(net, variant, device):
        folder = tmp_path_factory.mktemp("caffe")
        found, solver = snapshot_bytes(net, folder, VARIANTS[variant], device, strategy="caffe")
        assert solver.iteration == 4
        return found

    return trained


@pytest.mark.exhaustive(20)
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "caffe"])
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("net", "variant"), CASES)
def test_every_strategy_writes_the_same_snapshot(net, variant, device, strategy, snapshot_of_caffe, tmp_path):
    found, solver = snapshot_bytes(net, tmp_path, VARIANTS[variant], device, strategy=strategy)
    assert found == snapshot_of_caffe(net, variant, device)
    assert solver.runner.measured_peak_bytes == solver.runner.arena.nbytes == solver.program.arena_bytes


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("strategy", ["liveness", "intra", "inter", "hybrid"])
@pytest.mark.parametrize("net", ["residual", "inception"])
def test_at_the_least_budget_it_trains_to_the_same_bits_and_one_byte_below_it_is_refused(net, strategy, tmp_path):
    expected, free = snapshot_bytes(net, tmp_path / "free", {}, strategy="caffe")
    with pytest.raises(BudgetError) as caught:
        Solver(solver_file(net, tmp_path), device="reference", strategy=strategy, budget=1, **AMPLE)
    least = caught.value.minimum_bytes
    assert least < free.program.arena_bytes
    for budget in (least, (least + free.program.arena_bytes) // 2, "90%"):
        found, solver = snapshot_bytes(net, tmp_path / f"{budget}", {}, strategy=strategy, budget=budget)
        assert found == expected
        peak = solver.program.arena_bytes
        assert peak == solver.runner.measured_peak_bytes == solver.runner.arena.nbytes <= solver.report.budget_bytes
    with pytest.raises(BudgetError, match="is below the minimum of") as caught:
        Solver(solver_file(net, tmp_path), device="reference", strategy=strategy, budget=least - 1, **AMPLE)
    assert caught.value.minimum_bytes == least


LANGUAGE_MODEL = """
    layer { name: "in" type: "DummyData" top: "word" top: "cont" top: "next" dummy_data_param {
        shape { dim: 16 dim: 4 } shape { dim: 16 dim: 4 } shape { dim: 16 dim: 4 }
        data_filler { type: "uniform" min: 0 max: 7 } data_filler { type: "uniform" min: 0 max: 1 }
        data_filler { type: "uniform" min: 0 max: 7 } } }
    layer { name: "embed" type: "Embed" bottom: "word" top: "embed"
            embed_param { input_dim: 7 num_output: 6 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
    layer { name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm"
            recurrent_param { num_output: 8 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
    layer { name: "score" type: "InnerProduct" bottom: "lstm" top: "score"
            inner_product_param { num_output: 7 axis: 2 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "next" top: "loss"
            softmax_param { axis: 2 } }
"""


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("budget", ["50%", "28%"])
@pytest.mark.parametrize("strategy", ["recompute", "auto"])
def test_an_lstm_learns_the_same_bits_in_half_of_caffes_bytes_and_in_less_resumed_too(strategy, budget, tmp_path):
    expected, _ = snapshot_bytes(LANGUAGE_MODEL, tmp_path / "caffe", {}, "cpu", strategy="caffe")
    options = {"device": "cpu", "strategy": strategy, "budget": budget, "host_budget": 0}
    found, solver = snapshot_bytes(LANGUAGE_MODEL, tmp_path / "less", {}, **options)
    assert found == expected
    assert solver.program.arena_bytes <= solver.job.baseline_bytes * int(budget[:-1]) // 100
    order = [instruction.what for instruction in solver.program.schedules[0].instructions]
    again = {name for name in order if order.count(name) > 1}
    assert any(name.startswith("lstm/") for name in again) == (budget == "28%")  # reuse alone takes a third
    assert not {f"lstm/{name}.forward" for name in ("h_0", "h_T", "c_0", "c_T")} & again
    parts = tmp_path / "parts"
    parts.mkdir()
    with Solver(solver_file(LANGUAGE_MODEL, parts, max_iter=3, snapshot_after_train=True), **options) as first:
        first.solve()
    resumed, _ = snapshot_bytes(LANGUAGE_MODEL, parts, {}, **options, snapshot=parts / "run_iter_3.solverstate")
    assert resumed == expected


def test_a_percentage_is_of_what_caffe_takes_for_the_same_nets(tmp_path):
    options = {"device": "reference", **AMPLE}
    caffe = Solver(solver_file("residual", tmp_path), strategy="caffe", **options)
    half = Solver(solver_file("residual", tmp_path), budget="50%", strategy="hybrid", **options)
    assert half.job.baseline_bytes == caffe.program.arena_bytes
    assert half.report.budget_bytes == caffe.program.arena_bytes // 2 >= half.program.arena_bytes


def test_offloaded_bytes_may_lie_in_a_file(tmp_path):
    expected, _ = snapshot_bytes("chain", tmp_path / "caffe", {}, strategy="caffe")
    found, solver = snapshot_bytes("chain", tmp_path / "spill", {}, strategy="hybrid", spill=tmp_path, host_budget=None)
    assert found == expected and solver.program.host_bytes > 0
