"""The table of measured ops: rows by kind of op, the slowest first, and the step as a whole."""

from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.report.step_table import print_step_table
from layermem.schedule.ir import OFFLOAD, PREFETCH
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS


def test_calls_of_one_kind_are_one_row_and_copies_have_rows_of_their_own(capsys):
    net = Net(read_net_text(NETS["residual"]), 0)
    report = evaluate(net_job(net, StepOptions(device="reference")).with_host_budget("1TiB"), "hybrid")
    schedule = report.program.train
    slow = next(each for each in schedule.instructions if each.kind == "backward" and each.op.layer_type == "Pooling")
    seconds = [5.0 if each is slow else 0.01 for each in schedule.instructions]
    print_step_table([(schedule, seconds)], sum(seconds), 1)
    title, head, first, *rows, total = capsys.readouterr().out.splitlines()
    assert title == "measured times of a step, mean of 1" and head.split() == ["op", "stream", "calls", "time", "share"]
    assert first.startswith("Pooling backward")
    names = [row.split("  ")[0] for row in rows]
    assert len(set(names)) == len(names) and {OFFLOAD, PREFETCH} <= set(names)
    assert total.startswith("step, from its first op to its last") and total.endswith("100.0 %")
    assert str(len(schedule.instructions)) in total.split()


def test_a_step_that_never_ran_has_no_rows(capsys):
    print_step_table([], 0.0, 1)
    assert "0" in capsys.readouterr().out
