"""Nets that share parameters (in threads: tests/utils/test_exclusive.py)."""

import pytest

import layermem
from layermem import caffe
from tests.interactive.test_weights import NET, X, saved

TWO = NET + 'layer { name: "ip2" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 2 } }'


def test_a_net_shares_with_one_net_after_another(tmp_path):
    both, first, second = layermem.Net.from_text(TWO), layermem.Net.from_text(NET), layermem.Net.from_text(TWO)
    saved(tmp_path / "w.npz", 3)
    first.load(tmp_path / "w.npz")
    second.params["ip2"][0].data[...] = 5
    both.share_with(second)
    both.share_with(first)
    assert (both.forward(x=X)["z"] == 5 * first.forward(x=X)["y"].sum(1, keepdims=True)).all()


@pytest.mark.parametrize("kind", [layermem.Solver, caffe.SGDSolver])
def test_weights_loaded_into_a_net_that_shares_are_those_of_the_owner(kind, tmp_path):
    right = saved(tmp_path / "w.caffemodel", 3)
    owner, net = layermem.Net.from_text(NET), layermem.Net.from_text(NET)
    net.share_with(owner)
    net.load(tmp_path / "w.caffemodel")
    assert (net.forward(x=X)["y"] == right).all() and (owner.forward(x=X)["y"] == right).all()
    loss = 'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "y" top: "loss" }'
    solver = kind.from_text(f'base_lr: 0.1 lr_policy: "fixed" max_iter: 1 net_param {{ {NET} {loss} }}')
    net.share_with(solver.net)
    net.load(tmp_path / "w.caffemodel")
    assert (solver.net.params["ip"][0].data == owner.params["ip"][0].data).all()
