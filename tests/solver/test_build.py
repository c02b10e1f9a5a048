"""From a solver file to its nets, what they report, and the graphs that share an arena."""

import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.ops import FORWARD, GRADIENT, HISTORY, UPDATE
from layermem.ops import ACCUMULATE
from layermem.solver.build import Reported, build_nets, graphs_of, job_of, reported
from layermem.solver.checks import check_solver
from tests.nets import NETS, solver_file

DEVICE = get_device("reference")


def graphs(folder, **fields):
    file = solver_file("chain", folder, **fields)
    return graphs_of(build_nets(file), file, DEVICE)


def test_a_net_reports_its_outputs_and_its_losses_by_name(tmp_path):
    """The loss is an output too; accuracy is one of the test net alone."""
    nets = build_nets(solver_file("chain", tmp_path))
    assert reported(nets.train) == [Reported("loss", "loss", 1.0, True)]
    assert reported(nets.tests[0]) == [Reported("accuracy", "accuracy", 0.0, True), Reported("loss", "loss", 1.0, True)]
    assert nets.test_iterations == (2,)


def test_a_loss_that_another_layer_reads_counts_and_is_no_output(tmp_path):
    half = 'layer { name: "half" type: "Power" bottom: "loss" top: "half" power_param { scale: 0.5 } }'
    net = NETS["chain"].replace('top: "loss" }', 'top: "loss" loss_weight: 3 }') + half
    train = build_nets(solver_file(net, tmp_path)).train
    assert [(r.name, r.weight, r.output) for r in reported(train)] == [("half", 0.0, True), ("loss", 3.0, False)]


def test_a_batch_replaces_that_of_the_train_net_alone(tmp_path):
    nets = build_nets(solver_file("chain", tmp_path), batch=7)
    assert [net.nodes[0].layer.tops[0].shape[0] for net in nets.all] == [7, 4]


def test_a_solver_has_a_graph_to_train_and_one_for_each_test_net(tmp_path):
    train, test = graphs(tmp_path)
    assert train.of_kind(UPDATE) and {op.kind for op in test.ops} == {FORWARD}


def test_with_iter_size_updates_are_a_graph_of_their_own_and_gradients_outlive_a_step(tmp_path):
    train, updates, _ = graphs(tmp_path, iter_size=2)
    assert {op.record.rule for op in train.of_kind(UPDATE)} == {ACCUMULATE}
    assert {op.kind for op in updates.ops} == {UPDATE}
    sums = {b.name for b in train.buffers.values() if b.kind == GRADIENT and b.persistent}
    assert sums and all(updates.buffers[name].persistent for name in sums)
    assert sums == {op.roles["w0"] for op in train.of_kind(UPDATE)}


@pytest.mark.parametrize(("rule", "count"), [("SGD", 1), ("Adam", 2)])
def test_a_job_counts_the_optimizer_state_of_its_rule(rule, count, tmp_path):
    file = solver_file("chain", tmp_path, type=rule)
    job = job_of(build_nets(file), file, DEVICE)
    parameters = {name for name in job.graphs[0].buffers if name.endswith((".w0", ".w1"))}
    state = [b for b in job.graphs[0].buffers.values() if b.kind == HISTORY]
    assert job.history_count == count and len(state) == count * len(parameters)


@pytest.mark.parametrize(
    ("field", "value", "least"), [("iter_size", 0, 1), ("max_iter", -1, 0), ("average_loss", 0, 1)]
)
def test_a_count_below_the_least_is_refused(field, value, least, tmp_path):
    with pytest.raises(InputError, match=f"has {field} {value}; use {least} or more"):
        check_solver(solver_file("chain", tmp_path, **{field: value}))
