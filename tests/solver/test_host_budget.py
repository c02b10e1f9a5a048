"""The default host budget of devices that compute in the host's memory is 0."""

import pytest

from layermem.api import job_of
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.interactive.solver import Solver
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.spill import Spill
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS, solver_file

SHARING = ["reference", "cpu"]


def job(device, **options):
    net = Net(read_net_text(NETS["residual"]), 0)
    return net_job(net, StepOptions(device=device, **options))


@pytest.mark.parametrize("device", SHARING)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_offloads_to_the_memory_that_the_device_computes_in(device, strategy):
    plan = evaluate(job(device), strategy, 1).program
    assert plan.host_bytes == 0 and not any(r.host for schedule in plan.schedules for r in schedule.residencies)


@pytest.mark.parametrize("device", SHARING)
def test_a_host_budget_of_the_user_or_of_the_hints_is_kept(device):
    assert job(device, hints=Hints(host_budget_bytes=4096)).hints.host_budget_bytes == 4096
    assert evaluate(job(device).with_host_budget("1MiB"), "inter").program.host_bytes > 0


def test_a_gpu_offloads_without_a_limit():
    assert job("cuda").hints.host_budget_bytes is None
    assert evaluate(job("cuda"), "inter").program.host_bytes > 0


@pytest.mark.parametrize("device", SHARING)
def test_a_spill_folder_offloads_without_a_limit(device, tmp_path):
    options = {"device": device, "strategy": "inter"}
    with Solver(solver_file("chain", tmp_path), spill=tmp_path, **options) as spilling:
        assert spilling.program.host_bytes > 0
    with Solver(solver_file("chain", tmp_path), **options) as solver:
        assert solver.program.host_bytes == 0


def test_a_saved_plan_of_a_spill_file_is_refused_without_one(tmp_path):
    file, saved = solver_file("chain", tmp_path), tmp_path / "p.json"
    spill = Spill(str(tmp_path), "ext4 on /dev/sda1", 1e9, 2e9)
    report = evaluate(job_of(None, solver=file, spill=spill), "inter")
    saved.write_text(report.program.train.plan.to_json(report.job.graphs[0], spill.values))
    with pytest.raises(InputError, match=r"offloads to a spill file, on ext4 on /dev/sda1; give --spill DIR as well"):
        evaluate(job_of(None, solver=file), plan=saved)
    again = evaluate(job_of(None, solver=file, spill=spill), plan=saved)
    assert (again.peak_bytes, again.seconds) == (report.peak_bytes, report.seconds)
    assert evaluate(job_of(None, solver=file).with_host_budget("1MiB"), plan=saved).peak_bytes == report.peak_bytes


def test_the_rate_of_the_spill_file_decides_what_is_offloaded(tmp_path):
    """Copies at 1 KB/s take longer than all recomputation; those of a fast disk hide behind it."""
    file = solver_file("chain", tmp_path)
    plans = {
        rate: evaluate(job_of(None, solver=file, spill=Spill(".", "ext4", rate, rate)), "auto", "60%")
        for rate in (1e3, 1e15)
    }
    assert plans[1e3].seconds >= plans[1e15].seconds
    assert plans[1e3].offloaded_bytes < plans[1e15].offloaded_bytes or plans[1e15].offloaded_bytes == 0


def test_a_solver_is_planned_with_the_same_default(tmp_path):
    file = solver_file("chain", tmp_path)
    assert job_of(solver=file, device=get_device("cpu"), costs=model_costs("cpu")).hints.host_budget_bytes == 0
