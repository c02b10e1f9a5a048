"""Timed programs: the same numbers every step, on the available data, and times by layer."""

import pytest

from layermem.api import build_net
from layermem.backends.base import get_device
from layermem.graph.ops import BACKWARD, FORWARD, UPDATE
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import LINK_RUNS, WARM, Benchmark, link, one_batch, times_by_layer
from layermem.solver.jobs import StepOptions, net_job

NET = "prototxt/digits/train_val.prototxt"


def job(device: str):
    return net_job(build_net(NET, batch=4), StepOptions(device=device)).with_host_budget("1TiB")


@pytest.mark.parametrize("strategy", ["liveness", "hybrid", "sublinear"])
def test_a_bench_measures_the_peak_that_was_planned(strategy):
    found = evaluate(job("cpu"), strategy)
    measured = Benchmark(found.job.nets[0], found.program, get_device("cpu")).steps(2)
    assert measured.peak_bytes == found.peak_bytes and measured.seconds > 0


def test_steps_that_are_timed_all_compute_the_same():
    found = evaluate(job("reference"))
    bench = Benchmark(found.job.nets[0], found.program, get_device("reference"))
    bench.steps(1)
    first = bench.runner.run()["loss"]
    bench.steps(3)
    assert bench.runner.run()["loss"] == first


def test_a_net_without_its_data_set_gets_noise_in_the_right_shapes():
    net = build_net("prototxt/mnist/train_val.prototxt", batch=3)
    assert [array.shape for array in one_batch(net)["mnist"]] == [(3, 1, 28, 28), (3,)]
    given = build_net(
        "prototxt/resnet20/train_val.prototxt", inputs={"data": (2, 3, 16, 16), "label": (2,)}, stages=["dummy"]
    )
    assert [array.shape for array in one_batch(given)["data"]] == [(2, 3, 16, 16), (2,)]


def test_times_of_a_layer_are_the_sum_of_its_ops():
    graph = job("cpu").graphs[0]
    found = times_by_layer(graph, {op.name: 1.0 for op in graph.ops})
    conv = next(each for each in found if each.name == "conv2+relu2")
    assert conv.seconds == {FORWARD: 1.0, BACKWARD: 3.0}  # ReLU, weights, data
    updates = next(each for each in found if each.name == "(updates)")
    assert updates.seconds == {UPDATE: len(graph.of_kind(UPDATE))}
    assert sum(sum(each.seconds.values()) for each in found) == len(graph.ops)
    assert conv.rate(conv.flops) == pytest.approx(conv.flops / 4 / 1e9)


def test_an_op_that_ran_in_place_of_others_counts_for_its_layer_once():
    graph = job("cpu").graphs[0]
    found = {each.name: each for each in times_by_layer(job("cpu").graphs[0], {op.name: 1.0 for op in graph.ops})}
    assert found["ip1+relu3"].seconds == {FORWARD: 1.0, BACKWARD: 3.0}  # relu_backward, backward_update, dgrad
    assert sum(sum(each.seconds.values()) for each in found.values()) == len(graph.ops)


def test_the_time_of_an_op_is_the_median_of_its_runs_without_the_first(monkeypatch):
    """A device whose calls take 9 s in the first run, which is not counted, and then 1, 5 and 2 s."""
    found = evaluate(job("reference"))
    bench = Benchmark(found.job.nets[0], found.program, get_device("reference"))
    count = len(found.program.train.instructions)
    clock = iter([seconds for seconds in (9.0, 1.0, 5.0, 2.0) for _ in range(count)])
    monkeypatch.setattr(bench.device, "seconds", lambda calls: next(clock))
    assert bench.ops(3) == {op.name: 2.0 for op in found.job.graphs[0].ops}


def test_an_op_that_runs_again_is_timed_where_it_runs_first(monkeypatch):
    """A device on which recomputations take 7 s, and everything else one."""
    found = evaluate(job("cpu"), "recompute", 1)
    bench = Benchmark(found.job.nets[0], found.program, get_device("cpu"))
    instructions = found.program.train.instructions
    clock = iter([7.0 if instruction.is_recompute else 1.0 for instruction in instructions] * (WARM + 1))
    monkeypatch.setattr(bench.device, "seconds", lambda calls: next(clock))
    assert found.recomputed_ops and bench.ops(1) == dict.fromkeys(found.program.plan.order, 1.0)


def test_the_link_is_measured_there_and_back_with_the_same_bytes(monkeypatch):
    device, copies, runs = get_device("reference"), [], []
    bind, run = device.bind_copy, device.run

    def bind_copy(target, source):
        copies.append((source.ctypes.data, target.ctypes.data))
        assert source.nbytes == target.nbytes == 4096
        return bind(target, source)

    monkeypatch.setattr(device, "bind_copy", bind_copy)
    monkeypatch.setattr(device, "run", lambda calls: runs.append(len(calls)) or run(calls))
    assert all(rate > 0 for rate in link(device, 4096))
    assert copies[1] == copies[0][::-1] and runs == [1] * 2 * (WARM + LINK_RUNS)
