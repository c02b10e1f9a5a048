"""The graphs that share an arena, made from the nets of a solver."""

import pytest

from layermem.backends.base import get_device
from layermem.graph.ops import FORWARD, GRADIENT, HISTORY, UPDATE
from layermem.ops import ACCUMULATE
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions, solver_job
from tests.nets import solver_file

DEVICE = get_device("reference")


def graphs(folder, **fields):
    file = solver_file("chain", folder, **fields)
    return [*solver_job(file, build_nets(file), StepOptions(device=DEVICE)).graphs]


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
    job = solver_job(file, build_nets(file), StepOptions(device=DEVICE))
    parameters = {name for name in job.graphs[0].buffers if name.endswith((".w0", ".w1"))}
    state = [b for b in job.graphs[0].buffers.values() if b.kind == HISTORY]
    assert job.history_count == count and len(state) == count * len(parameters)
