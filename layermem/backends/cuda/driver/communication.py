"""ReduceScatter and AllGather of one device, on the stream COMM: through host memory, or from GPU to GPU by NCCL.

    host    piece 0   fetch | exchange          add  store          fetch, store   copies on the stream
            piece 1           fetch    | exchange         add  store   exchange    by the step's transport
    NCCL    piece 0   send, receive  add      all on one stream, whose order suffices

The host adds with the code of distributed/collectives.py, and the GPU in the same order: the bits are equal.  A call
through the host returns when its messages have arrived; it runs on a separate thread (backends/comm_thread.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from layermem import _native
from layermem.backends.base import Bound, sequence
from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.communication import Staging, note_order, ordered_sum, piece_of, shards_of
from layermem.backends.cuda.driver.context import Driver, Event
from layermem.backends.cuda.driver.memory import DeviceSpan, HostBytes
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.registry import StepContext
from layermem.distributed.collectives import Shard
from layermem.distributed.nccl import Nccl
from layermem.distributed.transport import Message, Span
from layermem.graph.ops import COMM
from layermem.ops import AllGather, Communication, ReduceScatter

Spans = Mapping[str, DeviceSpan]
BindLaunches = Callable[[Iterable[Launch], StepContext, str], Bound]


class Communicator(Protocol):
    """Binds the communication ops."""

    def reduce(self, op: ReduceScatter, spans: Spans, context: StepContext) -> Bound: ...

    def gather(self, op: AllGather, values: Sequence[int], spans: Spans, context: StepContext) -> Bound: ...


def bind(
    communicator: Communicator,
    driver: Driver,
    bind_launches: BindLaunches,
    op: Communication,
    step: str,
    spans: Spans,
    context: StepContext,
) -> Bound:
    """Return a call of `op` that runs in the order of all ranks."""
    calls: list[Bound] = []
    if isinstance(op, ReduceScatter):
        calls.append(communicator.reduce(op, spans, context))
    else:
        assert isinstance(op, AllGather)
        if step == "collect":
            calls += [driver.copy_within(*each, COMM) for each in own_rows(op, spans)]
        role = "y" if step == "collect" else "x"
        values = [spans[f"{role}{i}"].address for i in range(len(op.tensors))]
        calls.append(communicator.gather(op, values, spans, context))
    if "order" in spans:
        calls.append(bind_launches([note_order(op, spans["order"].address)], context, COMM))
    return sequence(calls)


def own_rows(op: AllGather, spans: Spans) -> list[tuple[int, int, int]]:
    """(target, source, bytes) of the rows of this rank."""
    copies = []
    for i, bounds in enumerate(op.bounds):
        begin, end = bounds[op.ranks.rank : op.ranks.rank + 2]
        if begin < end:
            target = spans[f"y{i}"].address + begin * FLOAT
            copies.append((target, spans[f"x{i}"].address, (end - begin) * FLOAT))
    return copies


def sums_of(op: ReduceScatter, spans: Spans) -> list[int]:
    """For each result, the address of its first element if this rank had all elements; 0 if it has none."""
    return [
        spans[f"y{i}"].address - bounds[op.ranks.rank] * FLOAT if f"y{i}" in spans else 0
        for i, bounds in enumerate(op.bounds)
    ]


def other_ranks(op: Communication) -> list[int]:
    return [rank for rank in range(op.ranks.size) if rank != op.ranks.rank]


# -- through the host --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StagedRound:
    """One piece: copies to the host, messages, additions, and copies back."""

    fetch: Sequence[Bound]
    fetched: Event
    sends: Sequence[Message]
    receives: Sequence[Message]
    add: Bound
    store: Sequence[Bound]


class HostCommunicator:
    """Communicates pieces through the op's workspace in the pinned host arena."""

    def __init__(self, driver: Driver):
        self.driver = driver

    def reduce(self, op: ReduceScatter, spans: Spans, context: StepContext) -> Bound:
        staging, shards, rank = Staging(op), shards_of(op), op.ranks.rank
        host: HostBytes = spans["host_workspace"]  # type: ignore[assignment]
        parts, sums = [spans[f"x{i}"].address for i in range(len(op.tensors))], sums_of(op, spans)
        start, rounds = int(host.ctypes.data), []
        for number in range(staging.rounds):
            begin, end = number * staging.piece, (number + 1) * staging.piece
            own, total, to, received = staging.places(number)
            count = sum(elements for _, _, elements in shards[rank].ranges(begin, end))
            fetch = self._fetch(host, own, shards[rank].spans(parts, begin, end))
            if op.continues:
                fetch += self._fetch(host, total, shards[rank].spans(sums, begin, end))
            sends: list[Message] = []
            for other, place in zip(other_ranks(op), to):
                pieces = shards[other].spans(parts, begin, end)
                fetch += self._fetch(host, place, pieces)
                sends += message(other, start + place, bytes_of(pieces))
            receives = [
                each
                for other, place in zip(other_ranks(op), received)
                for each in message(other, start + place, count * FLOAT)
            ]
            add = adder([start + total], [start + own], [count], [start + place for place in received], rank, op)
            store = self._store(host, total, shards[rank].spans(sums, begin, end))
            rounds.append(StagedRound(fetch, self.driver.event(), sends, receives, add, store))
        return lambda: self._run(rounds, context)

    def gather(self, op: AllGather, values: Sequence[int], spans: Spans, context: StepContext) -> Bound:
        staging, shards = Staging(op), shards_of(op)
        host: HostBytes = spans["host_workspace"]  # type: ignore[assignment]
        start, rounds = int(host.ctypes.data), []
        for number in range(staging.rounds):
            begin, end = number * staging.piece, (number + 1) * staging.piece
            own, _, _, received = staging.places(number)
            pieces = shards[op.ranks.rank].spans(values, begin, end)
            sends = [each for other in other_ranks(op) for each in message(other, start + own, bytes_of(pieces))]
            receives: list[Message] = []
            store: list[Bound] = []
            for other, place in zip(other_ranks(op), received):
                theirs = shards[other].spans(values, begin, end)
                receives += message(other, start + place, bytes_of(theirs))
                store += self._store(host, place, theirs)
            fetch = self._fetch(host, own, pieces)
            rounds.append(StagedRound(fetch, self.driver.event(), sends, receives, nothing, store))
        return lambda: self._run(rounds, context)

    def _run(self, rounds: Sequence[StagedRound], context: StepContext) -> None:
        """Run the rounds; a set of pieces is fetched again once the stream has stored its previous content."""
        transport = context["transport"]
        self._start(rounds[0])
        for this, following in zip(rounds, [*rounds[1:], None]):
            if following is not None:
                self._start(following)
            this.fetched.synchronize()
            transport.exchange(this.sends, this.receives).wait()
            this.add()
            for copy in this.store:
                copy()

    def _start(self, each: StagedRound) -> None:
        for copy in each.fetch:
            copy()
        each.fetched.record(self.driver.streams[COMM])

    def _fetch(self, host: HostBytes, place: int, spans: Sequence[Span]) -> list[Bound]:
        return [self.driver.copy_out(part, address, COMM) for part, address in side_by_side(host, place, spans)]

    def _store(self, host: HostBytes, place: int, spans: Sequence[Span]) -> list[Bound]:
        return [self.driver.copy_in(address, part, COMM) for part, address in side_by_side(host, place, spans)]


def side_by_side(host: HostBytes, place: int, spans: Sequence[Span]) -> list[tuple[HostBytes, int]]:
    """Pair consecutive bytes of the host from `place` on with the GPU addresses of `spans`."""
    pairs = []
    for address, nbytes in spans:
        pairs.append((host[place : place + nbytes], address))
        place += nbytes
    return pairs


def bytes_of(spans: Sequence[Span]) -> int:
    return sum(nbytes for _, nbytes in spans)


def message(rank: int, address: int, nbytes: int) -> list[Message]:
    """One message, or none if it would have no bytes."""
    return [(rank, [(address, nbytes)])] if nbytes else []


def adder(
    sums: list[int], own: list[int], counts: list[int], received: list[int], rank: int, op: ReduceScatter
) -> Bound:
    return lambda: _native.add_parts(sums, own, counts, received, rank, op.continues)


def nothing() -> None:
    """The addition of a gather, which adds nothing."""


# -- by NCCL -----------------------------------------------------------------------------------------------------------


class NcclCommunicator:
    """Communicates pieces from GPU to GPU; received pieces of a sum go to the op's workspace."""

    def __init__(self, driver: Driver, bind_launches: BindLaunches, nccl: Nccl):
        self.driver, self.bind_launches, self.nccl = driver, bind_launches, nccl

    def reduce(self, op: ReduceScatter, spans: Spans, context: StepContext) -> Bound:
        parts, sums = [spans[f"x{i}"].address for i in range(len(op.tensors))], sums_of(op, spans)
        workspace = spans["workspace"].address if "workspace" in spans else 0
        shards, piece = shards_of(op), piece_of(op)
        own, calls = shards[op.ranks.rank], []
        for begin in range(0, max(shard.elements for shard in shards), piece):
            ranges = list(own.ranges(begin, begin + piece))
            count, done = sum(elements for _, _, elements in ranges), 0
            sends = [(other, item_spans(shards[other], parts, begin, begin + piece)) for other in other_ranks(op)]
            places, launches = [], []
            for item, first, elements in ranges:
                places.append((done * FLOAT, elements * FLOAT))
                at = first * FLOAT
                received = workspace + done * FLOAT
                launches.append(ordered_sum(op, sums[item] + at, parts[item] + at, received, elements, count))
                done += elements
            receives = [
                (other, [(workspace + i * count * FLOAT + place, nbytes) for place, nbytes in places])
                for i, other in enumerate(other_ranks(op))
            ]
            calls += [self._exchange(sends, receives), self.bind_launches(launches, context, COMM)]
        return sequence(calls)

    def gather(self, op: AllGather, values: Sequence[int], spans: Spans, context: StepContext) -> Bound:
        shards = shards_of(op)
        own = item_spans(shards[op.ranks.rank], values, 0, shards[op.ranks.rank].elements)
        return self._exchange(
            [(other, own) for other in other_ranks(op)],
            [(other, item_spans(shards[other], values, 0, shards[other].elements)) for other in other_ranks(op)],
        )

    def _exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> Bound:
        stream = int(self.driver.streams[COMM].handle)
        return lambda: self.nccl.exchange(sends, receives, stream)


def item_spans(shard: Shard, addresses: Sequence[int], begin: int, end: int) -> list[Span]:
    """The spans of elements of a shard: one for each item, whatever its address, to match the other rank's spans."""
    return [(addresses[item] + first * FLOAT, count * FLOAT) for item, first, count in shard.ranges(begin, end)]
