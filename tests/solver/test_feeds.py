"""Prefetched batches: the same stream, and positions as without prefetching."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.read import read_solver
from layermem.solver.build import build_nets
from layermem.solver.feeds import Feeds
from tests.nets import NETS, solver_file


@pytest.fixture(params=["digits", "noise"])
def feeds(request, tmp_path):
    file = read_solver("prototxt/digits/solver.prototxt")
    if request.param == "noise":
        file = solver_file(NETS["chain"], tmp_path)
    found = Feeds(build_nets(file).all, seed=3)
    yield found
    found.close()


def arrays(batch):
    return [array for tops in batch.values() for array in tops]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


def test_prefetched_batches_come_next(feeds):
    start = feeds.position(0)
    expected = [feeds.next(0) for _ in range(3)]
    feeds.seek(0, start)
    ahead = feeds.prefetch(0)
    assert feeds.prefetch(0) is ahead and feeds.position(0) == start
    first = feeds.next(0)
    assert first is ahead
    assert all(same(a, b) for a, b in zip(expected, [first, feeds.next(0), feeds.next(0)]))


def test_to_go_elsewhere_forgets_what_was_fetched(feeds):
    first = feeds.next(0)
    position, second = feeds.position(0), feeds.next(0)
    feeds.prefetch(0)
    feeds.seek(0, position)
    assert same(feeds.next(0), second) and not same(first, second)
    saved = feeds.state()
    third = feeds.next(0)
    feeds.prefetch(0)
    assert feeds.restore(saved) == []
    assert same(feeds.next(0), third)


def test_a_feed_that_fails_raises_when_its_batch_is_wanted(feeds, monkeypatch):
    (feed,) = feeds.feeds[0].values()
    position = feeds.position(0)

    def broken():
        raise InputError("is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(feed, "next", broken)
        assert feeds.prefetch(0) is None and feeds.position(0) == position
        with pytest.raises(InputError, match="is damaged"):
            feeds.next(0)
    assert arrays(feeds.next(0))


def test_arrays_that_a_caller_gives_are_read_when_the_net_runs(tmp_path):
    net = """
    layer { name: "data" type: "Input" top: "data" top: "label"
            input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
    layer { name: "score" type: "InnerProduct" bottom: "data" top: "score" inner_product_param { num_output: 2 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
    """
    feeds = Feeds(build_nets(solver_file(net, tmp_path)).all, seed=3)
    given = np.zeros((2, 3), np.float32)
    feeds.give(0, "data", (given, np.zeros(2, np.float32)))
    assert feeds.prefetch(0) is None
    given += 1
    assert (arrays(feeds.next(0))[0] == 1).all()
