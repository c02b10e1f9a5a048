"""A step in slices, for what shows one."""

import pytest

from layermem.api import job_of_net
from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate
from tests.nets import NETS


@pytest.fixture(scope="session")
def sliced() -> PlanReport:
    """The first three layers of a chain run in two slices of the batch, forward and backward."""
    net = Net(read_net_text(NETS["chain"]), 0)
    job = job_of_net(net, get_device("reference"), model_costs("reference"))
    return evaluate(job.with_slices("conv1..pool1/2"), "liveness")
