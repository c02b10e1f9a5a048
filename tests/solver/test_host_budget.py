"""The host budget of devices that compute in the host's memory is 0, unless the user says otherwise."""

import pytest

from layermem.api import job_of_net, job_of_solver
from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.solver.solver import Solver
from tests.nets import NETS, solver_file

SHARING = ["reference", "cpu"]


def job(device, **options):
    net = Net(read_net_text(NETS["residual"]), 0)
    return job_of_net(net, get_device(device), model_costs(get_device(device).title), **options)


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


def test_a_solver_is_planned_with_the_same_default(tmp_path):
    file = solver_file("chain", tmp_path)
    assert job_of_solver(file, get_device("cpu"), model_costs("cpu")).hints.host_budget_bytes == 0
