"""A step in slices, for tests of its presentation."""

import pytest

from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS


@pytest.fixture(scope="session")
def sliced() -> PlanReport:
    """The first three layers of a chain run in two slices of the batch, forward and backward."""
    net = Net(read_net_text(NETS["chain"]), 0)
    job = net_job(net, StepOptions(device="reference"))
    return evaluate(job.with_slices("conv1..pool1/2"), "liveness")
