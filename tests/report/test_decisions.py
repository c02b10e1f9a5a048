"""The decision about each blob of a schedule, in one word."""

from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.report.decisions import FREED, KEPT, OFFLOADED, RECOMPUTED, buffer_decisions
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS


def report_of(strategy: str, *, net: str = "chain", device: str = "reference", phase: int = 0) -> PlanReport:
    net = Net(read_net_text(NETS[net]), phase)
    job = net_job(net, StepOptions(device=device)).with_host_budget("1TiB")
    return evaluate(job, strategy)


def test_liveness_keeps_what_backward_reads_and_frees_the_rest():
    schedule = report_of("liveness").program.train
    decisions = buffer_decisions(schedule)
    assert decisions["data"].decision == decisions["pool1"].decision == decisions["conv1.w0"].decision == KEPT
    assert decisions["conv1"].decision == FREED  # the backward of a ReLU reads its output, or a mask
    assert decisions["loss"].decision == FREED
    assert {each.decision for each in decisions.values()} == {KEPT, FREED}
    assert decisions["data"].nbytes == 4 * 4 * 3 * 6 * 5
    assert not any(name.endswith(".diff") for name in decisions)


def test_recomputed_blobs_are_those_that_recomputed_ops_write():
    report = report_of("recompute")
    small = evaluate(report.job, "recompute", report.minimum_bytes)
    schedule = small.program.train
    again = {buffer for each in schedule.instructions if each.is_recompute for buffer in each.op.writes}
    assert again and small.recomputed_ops
    decisions = buffer_decisions(schedule)
    assert {name for name, each in decisions.items() if each.decision == RECOMPUTED} == again & decisions.keys()


def test_offloaded_blobs_are_those_that_are_copied():
    schedule = report_of("vdnn-all").program.train
    copied = {each.what for each in schedule.instructions if each.op is None}
    assert copied
    assert {name for name, each in buffer_decisions(schedule).items() if each.decision == OFFLOADED} == copied


def test_a_blob_that_takes_the_bytes_of_another_names_it():
    schedule = report_of("liveness").program.train
    assert buffer_decisions(schedule)["conv1'"].in_place_of == "conv1"
    assert buffer_decisions(schedule)["pool1"].in_place_of is None
