"""Ranks as threads: messages, faults, and the effect of a failed rank on the others."""

import numpy as np
import pytest

from layermem.distributed import loopback
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.errors import DeviceError


def span(array: np.ndarray) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes


@pytest.mark.parametrize("seed", range(5))
def test_every_rank_gets_what_the_others_sent_in_the_call_of_the_same_number(seed):
    def exchange(transport: Loopback) -> list[list[float]]:
        rank, size = transport.rank, transport.size
        results = []
        for call in range(4):
            mine = np.full(3, 10 * call + rank, np.float32)
            got = np.zeros((size, 4), np.float32)
            others = [each for each in range(size) if each != rank]
            under_way = transport.exchange(
                [(each, [span(mine[:1]), span(mine[1:])]) for each in others],
                [(each, [span(got[each, :2]), span(got[each, 3:])]) for each in others],
            )
            assert np.isnan(got[others][:, [0, 1, 3]]).all(), "bytes are undefined until they are waited for"
            under_way.wait()
            under_way.wait()  # once more changes nothing
            results.append(got[others][:, [0, 1, 3]].tolist())
        return results

    expected = [
        [[[10 * call + other] * 3 for other in range(3) if other != rank] for call in range(4)] for rank in range(3)
    ]
    assert run_ranks(3, exchange, seed=seed) == expected


def test_several_exchanges_are_under_way_and_waited_for_in_any_order():
    def exchange(transport: Loopback) -> list[float]:
        other = 1 - transport.rank
        mine, got = np.arange(3, dtype=np.float32) + 10 * transport.rank, np.empty(3, np.float32)
        under_way = [
            transport.exchange([(other, [span(mine[i : i + 1])])], [(other, [span(got[i : i + 1])])]) for i in range(3)
        ]
        for each in reversed(under_way):
            each.wait()
        return got.tolist()

    assert run_ranks(2, exchange) == [[10, 11, 12], [0, 1, 2]]


def test_gathered_values_are_copies_in_the_order_of_ranks():
    values = [{"rank": rank} for rank in range(3)]
    gathered = run_ranks(3, lambda transport: transport.allgather(values[transport.rank]))
    assert gathered == [values] * 3
    assert gathered[0][0] is not values[0]


@pytest.mark.parametrize("failing", [0, 1])
def test_the_first_error_of_a_rank_is_raised_and_no_rank_waits_for_it(failing):
    def fail(transport: Loopback) -> None:
        if transport.rank == failing:
            raise KeyError("first")
        transport.allgather(None)

    with pytest.raises(KeyError, match="first"):
        run_ranks(2, fail)


def test_abort_ends_all_ranks():
    ended = []

    def abort(transport: Loopback) -> None:
        try:
            if transport.rank == 1:
                transport.abort(4)
            got = np.zeros(1, np.float32)
            transport.exchange([], [(1, [span(got)])]).wait()
        finally:
            ended.append(transport.rank)

    with pytest.raises(DeviceError, match="rank 1 ended the job with exit code 4"):
        run_ranks(3, abort)
    assert sorted(ended) == [0, 1, 2]


def test_a_cancelled_exchange_ends_with_an_error():
    def wait(transport: Loopback) -> None:
        got = np.zeros(1, np.float32)
        under_way = transport.exchange([], [(1 - transport.rank, [span(got)])])
        transport.cancel()
        under_way.wait()

    with pytest.raises(DeviceError, match="cancelled"):
        run_ranks(2, wait)


def test_a_message_that_never_comes_is_an_error(monkeypatch):
    monkeypatch.setattr(loopback, "TIMEOUT", 0.05)

    def wait(transport: Loopback) -> None:
        got = np.zeros(1, np.float32)
        if transport.rank == 0:
            transport.exchange([], [(1, [span(got)])]).wait()

    with pytest.raises(DeviceError, match="rank 0 waits for rank 1 for more than"):
        run_ranks(2, wait)


def test_a_message_that_nothing_receives_is_an_error():
    def send(transport: Loopback) -> None:
        if transport.rank == 0:
            transport.exchange([(1, [span(np.zeros(1, np.float32))])], []).wait()

    with pytest.raises(DeviceError, match="rank 1 does not receive what rank 0 sends in exchange 0"):
        run_ranks(2, send)


def test_a_message_of_another_size_is_an_error():
    def exchange(transport: Loopback) -> None:
        values = np.zeros(2, np.float32)
        if transport.rank == 0:
            transport.exchange([(1, [span(values)])], []).wait()
        else:
            transport.exchange([], [(0, [span(values[:1])])]).wait()

    with pytest.raises(DeviceError, match="rank 0 sends 8 bytes where rank 1 receives others"):
        run_ranks(2, exchange)


def test_bytes_that_change_while_they_are_sent_are_an_error():
    def send(transport: Loopback) -> None:
        values = np.zeros(1, np.float32)
        if transport.rank == 0:
            under_way = transport.exchange([(1, [span(values)])], [])
            values[0] = 1
            under_way.wait()
        else:
            transport.exchange([], [(0, [span(values)])]).wait()

    with pytest.raises(DeviceError, match="rank 0 changes bytes while it sends them"):
        run_ranks(2, send)
