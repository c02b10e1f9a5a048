"""Tests that tests/distributed/test_mpi.py runs under mpiexec: one by its name, on every rank."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from layermem.distributed.collectives import all_gather, reduce_scatter, reduce_workspace_bytes
from layermem.distributed.mpi import MpiTransport, connect
from layermem.errors import DeviceError, LayermemError


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def sums(transport: MpiTransport) -> None:
    """Sums of items with ranks without rows, in several pieces; then whole items on all ranks."""
    rank, size = transport.rank, transport.size
    counts = [1, 10_001, 3, 257, 70_000]
    bounds = [tuple(count * each // size for each in range(size + 1)) for count in counts]
    parts = [
        [np.random.default_rng([each, i]).normal(size=count).astype(np.float32) for i, count in enumerate(counts)]
        for each in range(size)
    ]
    values = [np.zeros(count, np.float32) for count in counts]
    piece_bytes = 1 << 16
    nbytes = reduce_workspace_bytes(bounds, rank, piece_bytes)
    workspace = np.empty(nbytes // 4 + 1, np.float32)
    own = [at(value) + 4 * bound[rank] for value, bound in zip(values, bounds)]
    reduce_scatter(
        transport,
        bounds,
        [at(each) for each in parts[rank]],
        own,
        at(workspace),
        nbytes,
        continues=False,
        piece_bytes=piece_bytes,
    )
    all_gather(transport, bounds, [at(value) for value in values], piece_bytes)
    for i, value in enumerate(values):
        expected = np.zeros_like(value)
        for each in range(size):
            expected = expected + parts[each][i]
        assert value.tobytes() == expected.tobytes(), f"item {i}"


def spans(transport: MpiTransport) -> None:
    """Messages of several spans, of different layouts at both ends, and allgather."""
    other = 1 - transport.rank
    mine, got = np.arange(100, dtype=np.float32) + 1000 * transport.rank, np.zeros(100, np.float32)
    pieces = [(at(mine) + 40, 80), (at(mine), 40), (at(mine) + 120, 280)]
    transport.exchange([(other, pieces)], [(other, [(at(got), 200), (at(got) + 200, 200)])]).wait()
    expected = np.r_[np.arange(10, 30), np.arange(10), np.arange(30, 100)] + 1000 * other
    assert got.tolist() == expected.tolist()
    assert transport.allgather({"rank": transport.rank}) == [{"rank": 0}, {"rank": 1}]


def other_size(transport: MpiTransport) -> None:
    """Send a message that is shorter than the receiver expects."""
    values = np.zeros(4, np.float32)
    if transport.rank == 0:
        transport.exchange([(1, [(at(values), 8)])], []).wait()
    else:
        transport.exchange([], [(0, [(at(values), 16)])]).wait()


def too_long(transport: MpiTransport) -> None:
    """Send a message that is longer than the receiver expects."""
    values = np.zeros(4, np.float32)
    if transport.rank == 0:
        transport.exchange([(1, [(at(values), 16)])], []).wait()
    else:
        transport.exchange([], [(0, [(at(values), 8)])]).wait()


def abort(transport: MpiTransport) -> None:
    """Abort on one rank while the other waits for a message."""
    if transport.rank == 1:
        transport.abort(4)
    transport.exchange([], [(1, [(at(np.zeros(1, np.float32)), 4)])]).wait()


def unreported(transport: MpiTransport) -> None:
    """End one rank without closing while the other waits."""
    if transport.rank == 1:
        sys.exit(3)
    transport.exchange([], [(1, [(at(np.zeros(1, np.float32)), 4)])]).wait()


def cancel(transport: MpiTransport) -> None:
    """Cancel, from another thread, a wait for a message that never comes."""
    values = np.zeros(1, np.float32)
    under_way = transport.exchange([], [(1 - transport.rank, [(at(values), 4)])])
    timer = threading.Timer(0.2, transport.cancel)
    timer.start()
    began = time.monotonic()
    try:
        under_way.wait()
    except DeviceError as error:
        assert "cancelled" in str(error) and time.monotonic() - began < 5
    else:
        raise AssertionError("a cancelled wait returned")
    finally:
        timer.join()


def main() -> None:
    try:
        transport = connect()
        globals()[sys.argv[1]](transport)
    except LayermemError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if sys.argv[1] == "other_size" or "MPI:" in str(error):
            transport.abort(error.exit_code)
        sys.exit(error.exit_code)
    sys.stdout.write(f"rank {transport.rank} of {transport.size} done\n")  # a whole line: ranks share a pipe
    transport.close()


if __name__ == "__main__":
    main()
