"""Ranks as threads of one process: a transport for tests, with the faults of real ones.

messages    arrive late and in random order, by `seed`; memory for messages holds NaN until the wait for them, and
            bytes that change while they are sent are an error
failures    an error of one rank ends all ranks, and so does a rank that waits for longer than TIMEOUT
"""

from __future__ import annotations

import ctypes
import pickle
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from layermem.distributed.transport import Exchange, Message, Span
from layermem.errors import DeviceError

Result = TypeVar("Result")
Address = tuple[int, int, int, int]  # a message: source, target, number of the call, number within it

TIMEOUT = 60.0  # seconds without a message, after which ranks count as deadlocked
LATE = 0.3  # fraction of messages that arrive after the wait begins
MAX_DELAY = 1e-3  # seconds
UNDEFINED = 0xFF  # the byte of a float32 NaN


def run_ranks(size: int, function: Callable[[Loopback], Result], *, seed: int = 0) -> list[Result]:
    """Call `function` with each of `size` transports, in threads; return the results, or raise the first error of a
    rank."""
    network = Network(size)
    results: dict[int, Result] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(Loopback(network, rank, random.Random(f"{seed} {rank}")))
        except BaseException as error:
            network.fail(error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        network.fail(error)
        raise
    network.check()
    network.check_empty()
    return [results[rank] for rank in range(size)]


class Network:
    """Shared state of the ranks: messages not yet received, gathered values, and the first error."""

    def __init__(self, size: int):
        self.size = size
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        self._messages: dict[Address, bytes] = {}
        self._values: dict[int, dict[int, bytes]] = {}  # by number of the call, then by rank

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def check_empty(self) -> None:
        for source, target, number, _ in self._messages:
            raise DeviceError(f"rank {target} does not receive what rank {source} sends in exchange {number}")

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def put(self, messages: dict[Address, bytes]) -> None:
        with self._changed:
            self._messages.update(messages)
            self._changed.notify_all()

    def take(self, address: Address, cancelled: Callable[[], bool]) -> bytes:
        source, target = address[:2]
        self._wait_for(lambda: address in self._messages, f"rank {target} waits for rank {source}", cancelled)
        with self._changed:
            return self._messages.pop(address)

    def gather(self, rank: int, number: int, value: bytes, cancelled: Callable[[], bool]) -> list[bytes]:
        with self._changed:
            values = self._values.setdefault(number, {})
            values[rank] = value
            self._changed.notify_all()
        self._wait_for(lambda: len(values) == self.size, f"rank {rank} waits in an allgather", cancelled)
        return [values[each] for each in range(self.size)]

    def _wait_for(self, ready: Callable[[], bool], what: str, cancelled: Callable[[], bool]) -> None:
        """Return when `ready()`; raise if a rank failed, this one is cancelled, or no message arrives in time."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self.error or cancelled() or ready(), TIMEOUT)
            self.check()
            if cancelled():
                raise DeviceError("the exchange is cancelled")
            if not ended:
                raise DeviceError(f"{what} for more than {TIMEOUT:g} seconds")


class Loopback:
    """The Transport of one rank of a network."""

    def __init__(self, network: Network, rank: int, random_numbers: random.Random):
        self.rank, self.size = rank, network.size
        self.random = random_numbers
        self.network = network
        self._exchanges = self._gathers = 0
        self._cancelled = False

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> Exchange:
        number, self._exchanges = self._exchanges, self._exchanges + 1
        self.network.check()
        for _, spans in receives:
            for address, nbytes in spans:
                ctypes.memset(address, UNDEFINED, nbytes)
        return LoopbackExchange(self, number, sends, receives)

    def allgather(self, value: object) -> list[object]:
        number, self._gathers = self._gathers, self._gathers + 1
        values = self.network.gather(self.rank, number, pickle.dumps(value), self.cancelled)
        return [pickle.loads(each) for each in values]

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        self.network.notify()

    def abort(self, code: int) -> NoReturn:
        error = DeviceError(f"rank {self.rank} ended the job with exit code {code}")
        self.network.fail(error)
        raise error

    def close(self) -> None:
        pass


class LoopbackExchange:
    """Messages of one rank under way: copies of the bytes that it sends, and addresses for those that it receives."""

    def __init__(self, rank: Loopback, number: int, sends: Sequence[Message], receives: Sequence[Message]):
        self._rank = rank
        self._sent = {
            address: (read(spans), spans)
            for address, (_, spans) in zip(addresses(sends, lambda other: (rank.rank, other), number), sends)
        }
        self._receives = list(zip(addresses(receives, lambda other: (other, rank.rank), number), receives))
        rank.network.put({address: data for address, (data, _) in self._sent.items()})

    def wait(self) -> None:
        random_numbers = self._rank.random
        random_numbers.shuffle(self._receives)
        for address, (other, spans) in self._receives:
            data = self._rank.network.take(address, self._rank.cancelled)
            if random_numbers.random() < LATE:
                time.sleep(random_numbers.random() * MAX_DELAY)
            if len(data) != sum(nbytes for _, nbytes in spans):
                raise DeviceError(f"rank {other} sends {len(data)} bytes where rank {self._rank.rank} receives others")
            write(spans, data)
        self._receives = []
        for data, spans in self._sent.values():
            if read(spans) != data:
                raise DeviceError(f"rank {self._rank.rank} changes bytes while it sends them")
        self._sent = {}


def addresses(messages: Sequence[Message], ends: Callable[[int], tuple[int, int]], number: int) -> list[Address]:
    """The address of each message of one call; messages between the same two ranks are numbered."""
    seen: dict[int, int] = {}
    result = []
    for other, _ in messages:
        seen[other] = seen.get(other, -1) + 1
        result.append((*ends(other), number, seen[other]))
    return result


def read(spans: Sequence[Span]) -> bytes:
    return b"".join(ctypes.string_at(address, nbytes) for address, nbytes in spans)


def write(spans: Sequence[Span], data: bytes) -> None:
    for address, nbytes in spans:
        ctypes.memmove(address, data[:nbytes], nbytes)
        data = data[nbytes:]
