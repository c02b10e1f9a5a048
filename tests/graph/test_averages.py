"""Running averages on ranks: which ops leave statistics, and what moves the averages; state that ranks cannot share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from layermem.backends.base import get_device
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.ops import COMM, FORWARD
from layermem.graph.sharing import check_shareable
from layermem.layers import LAYERS
from layermem.layers.activation import ReLU
from layermem.ops import Tensor
from layermem.ops.base import PerItem
from layermem.proto.schema import FillerParameter
from layermem.solver.build import build_nets
from tests.cases import CASES
from tests.graph.test_sharing import MICRO_BATCHES, NORMS, assert_same, job, shared_norm, train_on
from tests.nets import DATA, LOSS, conv, norm, relu, solver_file


def test_every_layer_that_changes_parameters_in_forward_has_averages_of_them_or_carries_them():
    """By the case list, which has every type of layer."""
    layers = [case.layer() for case in CASES.values() if {"small", "medium"} & case.sizes.keys()]
    for layer in layers:
        step = layer.forward()
        record = step.record or layer.record
        changed = {role for role in (*step.writes, *step.updates) if role[0] == "w" and role[1:].isdigit()}
        carried = {f"w{i}" for i, param in enumerate(layer.params) if param.carried}
        averages = {role for each in record.averages for role in each.roles}
        assert averages <= changed <= averages | carried, layer.type
        assert not any(each.kept for each in record.of_one_batch().averages), layer.type


def test_averages_of_batch_norm_move_in_the_order_of_micro_batches(tmp_path):
    _, made = job(solver_file(NORMS, tmp_path, iter_size=2), get_device("cpu"), Ranks(1, 2, 2))
    ops = {op.name: op for op in made.graphs[0].ops}
    collect, average = ops["statistics.collect"], ops["bn.average"]
    assert collect.kind == average.kind == FORWARD and collect.stream == average.stream == COMM
    assert "bn.w0.batch" in collect.reads and set(average.reads) <= set(collect.writes)
    assert ops["bn.forward"].record.fraction == 0


TWO = f"""
    {DATA} {conv("p", "data", 8, 1)} {norm("p")} {conv("a", "data", 8, 3)} {norm("a")}
    layer {{ name: "sum" type: "Eltwise" bottom: "p" bottom: "a" top: "sum" }} {relu("sum")} {LOSS % "sum"}
"""


@pytest.mark.parametrize("slices", ["..n2/2", "whole/2"])
def test_slices_leave_the_statistics_of_averages_that_layers_share(slices, tmp_path):
    net = f"""{DATA} {conv("conv1", "data", 4, 3)} {shared_norm("BatchNorm", "n1", "conv1")}
              {conv("conv2", "n1", 4, 3)} {shared_norm("BatchNorm", "n2", "conv2")} {LOSS % "n2"}"""
    file = solver_file(net, tmp_path, iter_size=MICRO_BATCHES)
    assert_same(train_on(file, 1), train_on(file, 2, slices=slices))


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (shared_norm("BatchNorm", "n2", "conv1", "ade"), "shares a part of its averages"),
        (shared_norm("BatchNorm", "n2", "conv1", "bac"), "shares a part of its averages"),
        (
            shared_norm("BatchNorm", "n2", "conv1", settings="batch_norm_param { moving_average_fraction: 0.5 }"),
            "by another fraction; share all of them",
        ),
    ],
)
def test_averages_that_layers_do_not_move_alike_are_refused_on_ranks(second, says, tmp_path):
    net = f"{DATA} {conv('conv1', 'data', 4, 3)} {shared_norm('BatchNorm', 'n1', 'conv1')} {second} {LOSS % 'n2'}"
    train = build_nets(solver_file(net, tmp_path, iter_size=2)).train
    check_shareable(train, Ranks(0, 1, 2))
    with pytest.raises(InputError, match=says):
        check_shareable(train, Ranks(0, 2, 2))


@dataclass(frozen=True)
class Counted(PerItem):
    """y0 = x0, and w0 counts the batches: state that no record has said how to share."""

    x: Tensor


class Counter(ReLU):
    def setup(self) -> None:
        super().setup()
        self.params = (replace(self.make_param(0, (1,), FillerParameter()), lr_mult=0.0, learned=False),)
        self.record = Counted(self.bottoms[0])

    def forward(self):
        return replace(super().forward(), updates=("w0",), overlays=())


def test_state_that_no_record_lets_ranks_share_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(LAYERS, "ReLU", Counter)
    train = build_nets(solver_file("chain", tmp_path, iter_size=2)).train
    with pytest.raises(InputError, match="changes a parameter in forward, from batch to batch"):
        check_shareable(train, Ranks(0, 2, 2))


@pytest.mark.parametrize("slices", [None, "..sum_relu/2"])
def test_two_batch_norms_in_one_op_leave_the_statistics_of_both(slices, tmp_path):
    _, made = job(solver_file(TWO, tmp_path, iter_size=2), get_device("cuda"), Ranks(1, 2, 2), slices)
    ops = {op.name: op for op in made.graphs[0].ops}
    batches = {f"{blob}_bn.w{i}.batch" for blob in "pa" for i in range(3)}
    writers = [op for op in ops.values() if batches & {*op.writes, *op.updates}]
    assert {b for op in writers for b in (*op.writes, *op.updates)} >= batches == {*ops["statistics.collect"].reads}
    for op in writers:
        assert not {f"{blob}_bn.w{i}" for blob in "pa" for i in range(3)} & {*op.touches}
        assert all(record.norm.fraction == 0 for record in getattr(op.record, "norms", [op.record]))
    assert {"p_bn.average", "a_bn.average"} <= ops.keys()
