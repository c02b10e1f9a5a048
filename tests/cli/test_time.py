"""`layermem time` and `layermem devices`."""

import json

import pytest

from layermem.api import Net, job_of_net
from layermem.backends.base import get_device
from layermem.graph.ops import BACKWARD, FORWARD, UPDATE
from layermem.planning.costs import model_costs, read_costs, write_costs
from layermem.report.plan_report import evaluate
from layermem.solver.benchmark import Benchmark, one_batch, times_by_layer

NET = "prototxt/digits/train_val.prototxt"


def job(device: str):
    return job_of_net(Net(NET, batch=4), get_device(device), model_costs(device))


def test_every_op_is_measured_and_the_file_is_read_as_costs(layermem, tmp_path):
    path = tmp_path / "costs.csv"
    ended = layermem("time", "--net", NET, "--batch", "4", "--iterations", "2", "--out", path)
    assert ended.code == 0 and "link: " in ended.out
    costs, graph = read_costs(path, "cpu"), job("cpu").graphs[0]
    assert graph.fused_updates and set(costs.measured) == set(graph.by_name) and min(costs.measured.values()) > 0
    assert costs.rates.d2h > 1e6 and costs.rates.h2d > 1e6
    found = json.loads(layermem("plan", "--net", NET, "--batch", "4", "--costs", path, "--json").out)
    assert found["predicted_seconds"] == pytest.approx(sum(costs.measured[op.name] for op in graph.ops))


def test_the_table_has_a_row_a_layer_with_forward_and_backward(layermem):
    ended = layermem("time", "--net", NET, "--batch", "2", "--iterations", "1", "--device", "reference")
    rows = {line.split()[0]: line for line in ended.out.splitlines()}
    assert ended.code == 0 and {"data", "conv1", "loss", "(updates)"} <= set(rows) and "on reference" in ended.out


def test_json_names_ops_and_link(layermem):
    found = json.loads(layermem("time", "--net", NET, "--batch", "2", "--iterations", "1", "--json").out)
    assert found["device"] == "cpu" and found["ops"]["conv1+relu1.forward"] > 0  # which cpu runs as one
    assert set(found["link"]) == {"d2h", "h2d"}


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
    net = Net("prototxt/mnist/train_val.prototxt", batch=3)
    assert [array.shape for array in one_batch(net)["mnist"]] == [(3, 1, 28, 28), (3,)]
    given = Net(
        "prototxt/resnet20/train_val.prototxt", inputs={"data": (2, 3, 16, 16), "label": (2,)}, stages=["dummy"]
    )
    assert [array.shape for array in one_batch(given)["data"]] == [(2, 3, 16, 16), (2,)]


def test_times_of_a_layer_are_the_sum_of_its_ops():
    graph = job("cpu").graphs[0]
    found = times_by_layer(graph, {op.name: 1.0 for op in graph.ops})
    conv = next(each for each in found if each.name == "conv2+relu2")
    assert conv.seconds == {FORWARD: 1.0, BACKWARD: 3.0}  # what ReLU lets through, weights, data
    updates = next(each for each in found if each.name == "(updates)")
    assert updates.seconds == {UPDATE: len(graph.of_kind(UPDATE))}
    assert sum(sum(each.seconds.values()) for each in found) == len(graph.ops)
    assert conv.rate(conv.flops) == pytest.approx(conv.flops / 4 / 1e9)


def test_an_op_that_ran_in_place_of_others_counts_for_its_layer_once():
    graph = job("cpu").graphs[0].with_fused_updates
    found = {each.name: each for each in times_by_layer(job("cpu").graphs[0], {op.name: 1.0 for op in graph.ops})}
    assert found["ip1+relu3"].seconds == {FORWARD: 1.0, BACKWARD: 3.0}  # relu_backward, backward_update, dgrad
    assert sum(sum(each.seconds.values()) for each in found.values()) == len(graph.ops)


def test_costs_with_awkward_names_survive_their_file(tmp_path):
    path = tmp_path / "costs.csv"
    names = {'a,"b".forward': 0.25, "c d": 1e-6}
    path.write_text(write_costs(names, d2h=2e9, h2d=3e9))
    costs = read_costs(path, "cpu")
    assert costs.measured == names and (costs.rates.d2h, costs.rates.h2d) == (2e9, 3e9)


@pytest.mark.parametrize("line", ["link.magic,3", "link.d2h,0", "conv1.forward,-1", "conv1.forward,soon"])
def test_costs_that_cannot_be_are_refused_with_their_line(layermem, tmp_path, line):
    path = tmp_path / "costs.csv"
    path.write_text(f"op,seconds\n{line}\n")
    ended = layermem("plan", "--net", NET, "--costs", path)
    assert ended.code == 2 and f"{path}:2" in ended.sentence


def test_devices_say_what_they_are_and_which_is_the_default(layermem):
    lines = {line.split()[0]: line for line in layermem("devices").out.splitlines()}
    assert "NumPy" in lines["reference"] and "native kernels" in lines["cpu"] and "(default)" in lines["cpu"]
    found = json.loads(layermem("devices", "--json").out)
    assert found["default"] == "cpu" and set(found["devices"]) == set(lines) >= {"reference", "cpu"}


def test_nothing_is_measured_in_no_iterations(layermem):
    assert layermem("time", "--net", NET, "--iterations", "0").code == 2
