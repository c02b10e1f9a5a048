"""Measures the network between ranks: seconds per message, and bytes per second while all ranks send to all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, cast

import numpy as np

from layermem.distributed.transport import Message, Transport
from layermem.utils.stopwatch import seconds_since

MESSAGES, ROUNDS = 200, 5
PIECE_BYTES = 4 << 20  # that a rank sends to all others together


class NetworkRates(NamedTuple):
    net: float  # bytes per second that a rank sends while it receives at the same rate
    latency: float  # seconds per message


def measure_network(transport: Transport) -> NetworkRates:
    """Measure the rates of the slowest rank; all ranks, at least two, call this at the same time."""
    rank, size = transport.rank, transport.size
    small, large = np.zeros((2, 1), np.float32), np.zeros((2, PIECE_BYTES), np.uint8)
    following, previous = (rank + 1) % size, (rank - 1) % size
    others = [each for each in range(size) if each != rank]
    small_ones = ([_message(following, small[0])], [_message(previous, small[1])])
    piece = PIECE_BYTES // len(others)
    large_ones = (
        [_message(each, large[0][:piece]) for each in others],
        [_message(each, large[1][i * piece :][:piece]) for i, each in enumerate(others)],
    )
    latency = _seconds(transport, *small_ones, count=MESSAGES)
    seconds = _seconds(transport, *large_ones, count=1)
    slowest = [cast("tuple[float, float]", each) for each in transport.allgather((latency, seconds))]
    latency, seconds = (max(each) for each in zip(*slowest))
    return NetworkRates(piece * len(others) / max(seconds - latency, 1e-9), latency)


def _message(rank: int, array: np.ndarray) -> Message:
    return rank, [(int(array.ctypes.data), array.nbytes)]


def _seconds(transport: Transport, sends: Sequence[Message], receives: Sequence[Message], *, count: int) -> float:
    """The median seconds of one exchange over some rounds; all ranks begin a round together."""
    found = []
    for _ in range(ROUNDS):
        transport.allgather(None)
        began = time.perf_counter()
        for _ in range(count):
            transport.exchange(sends, receives).wait()
        found.append(seconds_since(began) / count)
    return median(found)
