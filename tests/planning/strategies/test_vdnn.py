"""What the strategies that offload send to the host."""

import pytest

from layermem.api import build_net
from layermem.planning.hints import Hints
from layermem.planning.plan import Decision
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.solver.jobs import StepOptions, net_job

VGG = "prototxt/vgg16/train_val.prototxt"


def offloaded(strategy, device):
    job = net_job(build_net(VGG, batch=2, stages=["dummy"]), StepOptions(device=device))
    arena_planner = ArenaPlanner(job.graphs, job.costs)
    plan = get_strategy(strategy).make(job.graphs[0], job.costs, None, arena_planner, Hints())
    return {gap.buffer for gap, decision in plan.decisions.items() if decision == Decision.OFFLOAD}


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
def test_vdnn_conv_offloads_the_inputs_of_convolutions_with_or_without_a_relu_of_their_own(device):
    inputs = {"data", "pool1", "pool2", "pool3", "pool4"}
    inputs |= {f"conv{stage}_{n}'" for stage, most in enumerate((1, 1, 2, 2, 2), 1) for n in range(1, most + 1)}
    assert offloaded("vdnn-conv", device) == inputs


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
def test_vdnn_all_offloads_more_than_vdnn_conv(device):
    assert offloaded("vdnn-conv", device) < offloaded("vdnn-all", device)
