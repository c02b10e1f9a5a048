"""Schedules of other programs as plans of a net: each computed line is an op, and no bit changes."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.integrations.graph_files.export import graph_file, layers_of
from layermem.integrations.graph_files.import_schedule import plan_of_schedule
from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.interactive.solver import Solver
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS, solver_file


def job_of(net):
    return net_job(Net(read_net_text(NETS[net]), 0), StepOptions(device="reference"))


def schedules(graph):
    """Schedules with and without recomputation, of families whose chains and orders differ."""
    file = graph_file(graph)
    for family in ("exact", "nested"):
        planner = GraphPlanner(file, family)
        least = planner.plan().minimum_bytes
        for budget in (least, (least + planner.values.total_bytes) // 2, planner.values.total_bytes):
            yield planner.plan(budget).schedule


@pytest.mark.parametrize("net", ["residual", "inception"])
def test_a_schedule_is_a_plan_that_recomputes_what_it_computes_again(net):
    job = job_of(net)
    graph, counts = job.graphs[0], set()
    for text in schedules(graph):
        plan = plan_of_schedule(graph, text)
        plan.validate(graph)
        names = [op.name for op in layers_of(graph)]
        computed = [
            names[int(line.split()[1])]
            for line in text.splitlines()
            if line.startswith("compute ") and int(line.split()[1]) < len(names)
        ]
        assert [name for name in plan.order if name in set(names)] == computed
        counts.add(len(computed))
        assert evaluate(job, None, "100%", plan).feasible
    assert len(counts) > 1


@pytest.mark.parametrize("net", ["chain", "residual"])
def test_the_gradients_of_a_schedule_are_those_of_the_net(net, tmp_path):
    def trained(plan):
        with Solver(solver_file(net, tmp_path, test_iter=None, test_interval=None), device="cpu", plan=plan) as solver:
            graph = solver.job.graphs[0]
            solver.step(2)
            return graph, {name: solver.runner.read(name) for name in solver.runner.persistent}

    graph, bits = trained(None)
    for text in list(schedules(graph))[:2]:
        _, found = trained(plan_of_schedule(graph, text))
        assert all(np.array_equal(bits[name], found[name]) for name in bits)


def test_a_schedule_that_cannot_run_is_refused_with_its_line():
    graph = job_of("chain").graphs[0]
    first, *rest = next(iter(schedules(graph))).splitlines()
    with pytest.raises(InputError, match=r"s.txt:1: function [0-9]+ reads the data of variable"):
        plan_of_schedule(graph, "\n".join(rest), "s.txt")
    with pytest.raises(InputError, match=r"s.txt: the schedule ends before function"):
        plan_of_schedule(graph, first, "s.txt")


OPAQUE = """
layer { name: "in" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "m" type: "Mish" bottom: "ip" top: "y" }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "x" top: "loss" }
"""


def test_a_layer_that_cannot_run_again_is_refused():
    net = Net(read_net_text(OPAQUE), 0, NetOptions(inputs={"y": (2, 3)}))
    graph = net_job(net, StepOptions(device="reference")).graphs[0]
    lines = GraphPlanner(graph_file(graph)).plan().schedule.splitlines()
    at = next(i for i, line in enumerate(lines) if line == "compute 1")
    plan_of_schedule(graph, "\n".join(lines))
    with pytest.raises(InputError, match=f"s:{at + 2}: computes .m. a second time, which gives other values"):
        plan_of_schedule(graph, "\n".join([*lines[: at + 1], "compute 1", *lines[at + 1 :]]), "s")
