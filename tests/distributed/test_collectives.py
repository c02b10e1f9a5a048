"""Sums in the order of ranks and gathers, on the loopback transport."""

import numpy as np
import pytest

from layermem import _native
from layermem.distributed.collectives import (
    AllGatherRun,
    ReduceScatterRun,
    all_gather,
    reduce_scatter,
    reduce_workspace_bytes,
)
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.distributed.ranks import Ranks

GUARD = 12345.0  # next to memory that may be written


def bounds_of(rows: list[tuple[int, int]], size: int) -> list[tuple[int, ...]]:
    """The bounds of items with (rows, elements per row)."""
    return [tuple(row * width for row in Ranks(0, size, size).bounds(count)) for count, width in rows]


def numbers(seed: int, count: int) -> np.ndarray:
    """Numbers of many magnitudes, so that the order of additions shows, and negative zeros."""
    draw = np.random.default_rng(seed)
    values = draw.normal(size=count) * 10.0 ** draw.integers(-6, 6, count)
    return np.where(draw.random(count) < 0.1, -0.0, values).astype(np.float32)


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


ITEMS = {
    "one": [(8, 3)],
    "many": [(5, 7), (1, 1), (64, 9), (2, 3), (3, 1), (10, 11)],  # bounds that are not aligned, ranks without rows
    "none of some ranks": [(1, 5)],
    "larger than a block of the sum": [(7, 1031)],
}


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("piece_bytes", [4, 100, 4 << 20])
@pytest.mark.parametrize("continues", [False, True])
def test_every_owner_adds_the_parts_in_the_order_of_ranks(size, items, piece_bytes, continues):
    if piece_bytes == 4 and "block" in items:
        pytest.skip("thousands of messages")
    bounds = bounds_of(ITEMS[items], size)
    parts = [[numbers(100 * rank + i, bound[-1]) for i, bound in enumerate(bounds)] for rank in range(size)]
    before = [numbers(1000 + i, bound[-1]) for i, bound in enumerate(bounds)]
    expected = []
    for i, whole in enumerate(before):
        total = whole.copy() if continues else np.zeros_like(whole)
        for rank in range(size):
            total = total + parts[rank][i]
        expected.append(total)

    def reduce(transport: Loopback) -> None:
        rank = transport.rank
        nbytes = reduce_workspace_bytes(bounds, rank, piece_bytes)
        workspace = np.full(nbytes // 4 + 1, GUARD, np.float32)
        sums = []
        for whole, bound in zip(before, bounds):
            own = np.full(bound[rank + 1] - bound[rank] + 2, GUARD, np.float32)
            own[1:-1] = whole[bound[rank] : bound[rank + 1]]
            sums.append(own)
        addresses = [at(own) + 4 if len(own) > 2 else 0 for own in sums]
        parts_at = [at(part) for part in parts[rank]]
        reduce_scatter(
            transport, bounds, parts_at, addresses, at(workspace), nbytes, continues=continues, piece_bytes=piece_bytes
        )
        assert workspace[-1] == GUARD
        for own, total, bound in zip(sums, expected, bounds):
            assert own[0] == own[-1] == GUARD
            assert own[1:-1].tobytes() == total[bound[rank] : bound[rank + 1]].tobytes()

    run_ranks(size, reduce, seed=size)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("piece_bytes", [100, 4 << 20])
def test_a_gather_leaves_the_same_items_on_every_rank(size, items, piece_bytes):
    bounds = bounds_of(ITEMS[items], size)
    wholes = [numbers(i, bound[-1]) for i, bound in enumerate(bounds)]

    def gather(transport: Loopback) -> None:
        rank = transport.rank
        values = []
        for whole, bound in zip(wholes, bounds):
            mine = np.full(len(whole) + 1, GUARD, np.float32)
            mine[bound[rank] : bound[rank + 1]] = whole[bound[rank] : bound[rank + 1]]
            values.append(mine)
        all_gather(transport, bounds, [at(each) for each in values], piece_bytes)
        for mine, whole in zip(values, wholes):
            assert mine[-1] == GUARD and mine[:-1].tobytes() == whole.tobytes()

    run_ranks(size, gather, seed=size)


def test_the_workspace_holds_two_sets_of_pieces_or_all_that_is_received():
    bounds = bounds_of([(1000, 1)], 4)
    assert reduce_workspace_bytes(bounds, 0) == 3 * 250 * 4
    assert reduce_workspace_bytes(bounds, 0, piece_bytes=16 * 100) == 2 * 3 * 100 * 4
    assert reduce_workspace_bytes(bounds_of([(1, 5)], 2), 0) == 0  # rank 0 of two owns no row of one
    assert reduce_workspace_bytes([], 0) == 0


def test_one_reduction_and_one_gather_serve_many_steps():
    bounds = bounds_of([(6, 2), (3, 1)], 2)

    def train(transport: Loopback) -> list[np.ndarray]:
        rank = transport.rank
        parts = [np.empty(bound[-1], np.float32) for bound in bounds]
        values = [np.zeros(bound[-1], np.float32) for bound in bounds]
        own = [value[bound[rank] : bound[rank + 1]] for value, bound in zip(values, bounds)]
        nbytes = reduce_workspace_bytes(bounds, rank, 16)
        workspace = np.empty(nbytes // 4, np.float32)
        addresses = [at(part) for part in parts], [at(each) for each in own]
        reduce = ReduceScatterRun(transport, bounds, *addresses, at(workspace), nbytes, 16)
        gather = AllGatherRun(transport, bounds, [at(value) for value in values])
        for step in range(3):
            for part in parts:
                part[...] = step + rank
            reduce(continues=step > 0)
            gather()
        return values

    for values in run_ranks(2, train):
        assert all((value == 1 + 3 + 5).all() for value in values)


def test_nothing_to_share_is_no_message():
    def exchange_all(transport: Loopback) -> None:
        reduce_scatter(transport, [], [], [], 0, 0, continues=False)
        all_gather(transport, [], [])

    run_ranks(2, exchange_all)


def test_the_sum_may_lie_where_the_own_part_is():
    own, received = numbers(0, 3000), numbers(1, 3000)
    expected = (np.float32(0) + received) + own
    _native.add_parts([at(own)], [at(own)], [3000], [at(received)], 1, False)
    assert own.tobytes() == expected.tobytes()


def test_additions_check_their_arguments():
    with pytest.raises(ValueError, match="no such rank"):
        _native.add_parts([], [], [], [], 1, False)
    with pytest.raises(ValueError, match="as many sums"):
        _native.add_parts([1], [], [1], [], 0, False)
