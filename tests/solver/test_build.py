"""The nets of a solver file, and their reported blobs."""

import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import NetOptions
from layermem.solver.build import Reported, build_nets, reported
from layermem.solver.checks import check_solver
from tests.nets import NETS, solver_file

DEVICE = get_device("reference")


def test_a_net_reports_its_outputs_and_its_losses_by_name(tmp_path):
    """The loss is an output too; accuracy is an output only of the test net."""
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
    nets = build_nets(solver_file("chain", tmp_path), NetOptions(batch=7))
    assert [net.nodes[0].layer.tops[0].shape[0] for net in nets.all] == [7, 4]


@pytest.mark.parametrize(
    ("field", "value", "least"), [("iter_size", 0, 1), ("max_iter", -1, 0), ("average_loss", 0, 1)]
)
def test_a_count_below_the_least_is_refused(field, value, least, tmp_path):
    with pytest.raises(InputError, match=f"has {field} {value}; use {least} or more"):
        check_solver(solver_file("chain", tmp_path, **{field: value}))
