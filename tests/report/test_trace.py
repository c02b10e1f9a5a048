"""Traces of a simulated step."""

import json
from dataclasses import replace

import pytest

from layermem.graph.net import Net
from layermem.graph.ops import COMM, COMPUTE
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.trace import trace_text
from layermem.schedule.ir import D2H, H2D, STREAMS
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS

STRATEGIES = ("caffe", "liveness", "hybrid", "recompute")


@pytest.fixture(params=STRATEGIES)
def found(request) -> PlanReport:
    net = Net(read_net_text(NETS["residual"]), 0)
    return evaluate(net_job(net, StepOptions(device="reference")).with_host_budget("1TiB"), request.param)


def test_a_trace_has_every_row_on_its_stream_and_an_arrow_for_every_wait(found):
    events = json.loads(trace_text(found))["traceEvents"]
    rows = [e for e in events if e["ph"] == "X"]
    schedule = found.program.train
    assert [STREAMS[e["tid"] - 1] for e in rows] == [instruction.stream for instruction in schedule.instructions]
    assert [e["cat"] for e in rows] == [instruction.kind for instruction in schedule.instructions]
    waits = sum(len(instruction.after) for instruction in schedule.instructions)
    assert [sum(e["ph"] == kind for e in events) for kind in "sf"] == [waits, waits]
    for start, finish in zip((e for e in events if e["ph"] == "s"), (e for e in events if e["ph"] == "f")):
        assert start["id"] == finish["id"] and start["ts"] <= finish["ts"] and start["tid"] != finish["tid"]


def test_a_trace_has_a_track_of_communication_where_there_is_some(found):
    def tracks(report: PlanReport) -> list[str]:
        events = json.loads(trace_text(report))["traceEvents"]
        return [event["args"]["name"] for event in events if event["name"] == "thread_name"]

    assert tracks(found) == [COMPUTE, D2H, H2D]
    train = found.program.train
    instructions = (*train.instructions[:-1], train.instructions[-1]._replace(stream=COMM))
    schedules = (replace(train, instructions=instructions), *found.program.schedules[1:])
    shared = replace(found, program=replace(found.program, schedules=schedules))
    assert tracks(shared) == [COMPUTE, D2H, H2D, COMM]


def test_rows_of_one_stream_do_not_overlap_in_a_trace(found):
    free = dict.fromkeys(range(1, 4), 0.0)
    for event in json.loads(trace_text(found))["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] >= free[event["tid"]] - 1e-6
            free[event["tid"]] = event["ts"] + event["dur"]


def test_a_trace_names_the_slices_and_what_each_of_them_touches(sliced):
    rows = [event for event in json.loads(trace_text(sliced))["traceEvents"] if event["ph"] == "X"]
    assert [row["name"] for row in rows] == [instruction.what for instruction in sliced.program.train.instructions]
    names = [row["name"] for row in rows]
    layers = ("conv1", "conv1_relu", "pool1")
    assert {name for name in names if "@" in name} == {
        f"{layer}.{step}@{slice}/2"
        for layer in layers
        for step in ("forward", "wgrad" if layer == "conv1" else "backward")
        for slice in (1, 2)
    }
    first, second = (names.index(f"conv1.forward@{slice}/2") for slice in (1, 2))
    assert second < first == second + len(layers)  # forward, the last slice runs first
    (written,) = rows[second]["args"]["writes"]
    assert written.startswith("conv1@2/2@") and rows[second + 1]["args"]["reads"] == [written]
    carried = next(row for row in rows if row["name"] == "conv1.wgrad@2/2")["args"]
    assert [place.partition("@")[0] for place in carried["reads"][-2:]] == [
        "conv1.wgrad.dw0.carry",
        "conv1.wgrad.dw1.carry",
    ]


def test_a_measured_trace_has_the_times_that_are_given(found):
    count = len(found.program.train.instructions)
    events = json.loads(trace_text(found, [(2.0 * i, 2.0 * i + 1) for i in range(count)]))["traceEvents"]
    assert [(e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [(2e6 * i, 1e6) for i in range(count)]
