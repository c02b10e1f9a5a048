"""The arena in predicted time, its plot and its trace."""

from itertools import combinations

import pytest

from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.report.memory import live_bytes, spans
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(net_job(net, StepOptions(device="reference")).with_host_budget("1TiB"), request.param)


def test_no_byte_belongs_to_two_residencies_at_one_time(found):
    for a, b in combinations(spans(found.program.train, found.timeline), 2):
        apart_in_time = a.end <= b.begin or b.end <= a.begin
        low, high = sorted((a.residency, b.residency), key=lambda r: r.offset)
        assert apart_in_time or low.offset + low.nbytes <= high.offset, (a, b)


def test_live_bytes_stay_below_the_peak_and_end_with_none(found):
    seconds, counts = live_bytes(spans(found.program.train, found.timeline))
    assert seconds == sorted(seconds) and seconds[-1] == pytest.approx(found.seconds)
    assert 0 < max(counts) <= found.peak_bytes and counts[-1] == 0 and min(counts) >= 0


def test_without_copies_the_largest_live_bytes_are_those_of_the_program():
    net = Net(read_net_text(NETS["inception"]), 0)
    found = evaluate(net_job(net, StepOptions(device="reference")), "liveness")
    assert max(live_bytes(spans(found.program.train, found.timeline))[1]) == found.program.max_live_bytes
