"""`auto` on whole nets: ahead of every single strategy that fits, by the time that `plan` and `compare` print."""

from dataclasses import replace
from functools import cache

import pytest

from layermem.api import build_net
from layermem.backends.base import get_device
from layermem.errors import BudgetError
from layermem.planning.costs import model_costs
from layermem.planning.pipeline import Compiler
from layermem.planning.settings import SETTINGS
from layermem.report.comparison import budget_grid
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.solver.jobs import StepOptions, net_job
from tests.planning.jobs import SINGLE

NETS = ("mnist", "resnet50", "alexnet", "vgg16", "googlenet", "resnet20", "unet")
NEARLY = 1.01  # what a greedy search may lose with a larger budget
RIVALS = [name for name in SINGLE if name not in ("caffe", "recompute-exact")]


@cache
def compilers(net, device):
    """The job on the cpu device, with the costs of `device`."""
    job = net_job(
        build_net(f"prototxt/{net}/train_val.prototxt", batch=8),
        StepOptions(device=get_device("cpu"), costs=model_costs(device)),
    )
    return job, {name: Compiler(ArenaPlanner(job.graphs, job.costs), name) for name in (*RIVALS, "auto")}


@pytest.mark.samples(4)
@pytest.mark.parametrize(("device", "net"), [*(("cpu", net) for net in NETS), ("cuda", "unet"), ("cuda", "resnet20")])
def test_auto_is_as_quick_as_the_quickest_single_strategy_at_every_budget(device, net):
    job, made = compilers(net, device)
    compared = 0
    for budget in budget_grid(job, 4)[1:]:
        seconds = {}
        for name, compiler in made.items():
            try:
                seconds[name] = compiler.compile(budget).seconds
            except BudgetError:
                continue
        if seconds:
            assert seconds["auto"] <= min(seconds.values()) * SETTINGS.negligible_ratio, (budget, seconds)
            compared += len(seconds) > 1
    assert compared


@pytest.mark.samples(4)
@pytest.mark.parametrize("net", [net for net in reversed(NETS) if net != "resnet50"])
def test_auto_is_hardly_ever_slower_with_a_larger_budget(net):
    job, made = compilers(net, "cpu")
    before = float("inf")
    for budget in budget_grid(job, 6):
        try:
            seconds = made["auto"].compile(budget).seconds
        except BudgetError:
            continue
        assert seconds <= before * NEARLY, budget
        before = min(seconds, before)


@pytest.mark.whole
def test_in_slices_and_bands_more_bytes_take_no_more_time():
    """Copies take most of the step here, and plans that were made for fewer bytes have most of them to lose."""
    net = build_net("prototxt/vgg16/train_val.prototxt", batch=64)
    device, costs = get_device("cuda", precision="tf32"), model_costs("cuda tf32")
    costs = replace(costs, rates=replace(costs.rates, d2h=45e9, h2d=45e9))
    job = net_job(net, StepOptions(device=device, costs=costs)).with_slices("conv1_1..pool3/8", "fc6/8,fc7/4")
    seconds = [Compiler(ArenaPlanner(job.graphs, costs), "auto").compile(mib << 20).seconds for mib in (600, 800)]
    assert seconds[1] < 0.97 * seconds[0]
