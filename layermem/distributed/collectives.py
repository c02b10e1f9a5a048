"""Sums in the order of ranks, and gathers, of float32 elements at addresses.

    items    tensors whose elements the ranks share: bounds[i][r] .. bounds[i][r + 1] - 1 of item i belong to rank r
    part     one rank's summand for an item, with all elements; each rank receives the elements that belong to it

A rank sends and receives its elements of all items as one sequence, in pieces: the next piece is under way while one is
added.  An element of a sum is ((0 + part of rank 0) + part of rank 1) .., so its bits depend neither on the
number of pieces nor on the transport.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from layermem import _native
from layermem.distributed.transport import Message, Span, Transport

Bounds = Sequence[Sequence[int]]  # per item: the begin of each rank's shard, then the number of elements

PIECE_BYTES = 4 << 20  # of all ranks' pieces together
ELEMENT_BYTES = 4


def reduce_workspace_bytes(bounds: Bounds, rank: int, piece_bytes: int = PIECE_BYTES) -> int:
    """Bytes of two sets of pieces from the other ranks, or of one if a set holds everything that this rank receives."""
    size = ranks_of(bounds)
    own = Shard(bounds, rank).elements
    piece = min(own, piece_elements(size, piece_bytes))
    return (2 if own > piece else 1) * (size - 1) * piece * ELEMENT_BYTES


def reduce_scatter(
    transport: Transport,
    bounds: Bounds,
    parts: Sequence[int],
    sums: Sequence[int],
    workspace: int,
    workspace_bytes: int,
    *,
    continues: bool,
    piece_bytes: int = PIECE_BYTES,
) -> None:
    """Add the summands of all ranks into the elements of this rank; see ReduceScatterRun, which serves many steps."""
    ReduceScatterRun(transport, bounds, parts, sums, workspace, workspace_bytes, piece_bytes)(continues=continues)


def all_gather(transport: Transport, bounds: Bounds, values: Sequence[int], piece_bytes: int = PIECE_BYTES) -> None:
    """Fetch the elements of the other ranks; see AllGatherRun, which serves many steps."""
    AllGatherRun(transport, bounds, values, piece_bytes)()


class ReduceScatterRun:
    """
    parts   address of each whole item's part of this rank
    sums    address of this rank's elements of each item's sum; ignored where it has none
    """

    def __init__(
        self,
        transport: Transport,
        bounds: Bounds,
        parts: Sequence[int],
        sums: Sequence[int],
        workspace: int,
        workspace_bytes: int,
        piece_bytes: int = PIECE_BYTES,
    ):
        self._transport = transport
        size, rank = transport.size, transport.rank
        assert workspace_bytes >= reduce_workspace_bytes(bounds, rank, piece_bytes), "too small a workspace"
        shards = [Shard(bounds, each) for each in range(size)]
        piece = piece_elements(size, piece_bytes)
        others = [each for each in range(size) if each != rank]
        self._rounds = []
        for number, begin in enumerate(range(0, max(shard.elements for shard in shards), piece)):
            count = max(0, min(shards[rank].elements - begin, piece))
            first = workspace + number % 2 * len(others) * piece * ELEMENT_BYTES
            received = [first + i * count * ELEMENT_BYTES for i in range(len(others))]
            ranges = list(shards[rank].ranges(begin, begin + piece))
            self._rounds.append(
                Round(
                    messages((each, shards[each].spans(parts, begin, begin + piece)) for each in others),
                    messages((each, [(at, count * ELEMENT_BYTES)]) for each, at in zip(others, received)),
                    [sums[item] + (at - bounds[item][rank]) * ELEMENT_BYTES for item, at, _ in ranges],
                    [parts[item] + at * ELEMENT_BYTES for item, at, _ in ranges],
                    [elements for _, _, elements in ranges],
                    received,
                )
            )

    def __call__(self, *, continues: bool) -> None:
        """Compute sum = (sum if it `continues`, else 0) + part of rank 0 + part of rank 1 .."""
        rounds, rank = self._rounds, self._transport.rank
        under_way = [self._transport.exchange(each.sends, each.receives) for each in rounds[:1]]
        for this, following in zip(rounds, [*rounds[1:], None]):
            if following is not None:
                under_way.append(self._transport.exchange(following.sends, following.receives))
            under_way.pop(0).wait()
            _native.add_parts(this.sums, this.parts, this.counts, this.received, rank, continues)


class AllGatherRun:
    """values   address of each whole item, which already holds this rank's elements"""

    def __init__(self, transport: Transport, bounds: Bounds, values: Sequence[int], piece_bytes: int = PIECE_BYTES):
        self._transport = transport
        size, rank = transport.size, transport.rank
        shards = [Shard(bounds, each) for each in range(size)]
        piece = piece_elements(size, piece_bytes)
        others = [each for each in range(size) if each != rank]
        self._rounds = []
        for begin in range(0, max(shard.elements for shard in shards), piece):
            own = shards[rank].spans(values, begin, begin + piece)
            sends = messages((each, own) for each in others)
            receives = messages((each, shards[each].spans(values, begin, begin + piece)) for each in others)
            self._rounds.append((sends, receives))

    def __call__(self) -> None:
        for exchange in [self._transport.exchange(*each) for each in self._rounds]:
            exchange.wait()


@dataclass(frozen=True)
class Round:
    """One piece of a reduction: its messages, then its additions in the form of native/distributed/ordered_sum.h."""

    sends: Sequence[Message]
    receives: Sequence[Message]
    sums: Sequence[int]
    parts: Sequence[int]
    counts: Sequence[int]
    received: Sequence[int]


class Shard:
    """The elements of all items that one rank owns, in one sequence."""

    def __init__(self, bounds: Bounds, rank: int):
        self._owned = [(bound[rank], bound[rank + 1] - bound[rank]) for bound in bounds]
        self._ends = list(accumulate(count for _, count in self._owned))
        self.elements = self._ends[-1] if self._ends else 0

    def ranges(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (item, first element within the item, number of elements) of the owned elements begin .. end - 1."""
        for item, ((first, count), last) in enumerate(zip(self._owned, self._ends)):
            start = last - count  # index of the item's first owned element
            low, high = max(begin, start), min(end, last)
            if low < high:
                yield item, first + low - start, high - low

    def spans(self, addresses: Sequence[int], begin: int, end: int) -> list[Span]:
        """Address ranges of the owned elements begin .. end - 1, for items at `addresses`; adjacent ranges are
        joined."""
        spans: list[Span] = []
        for item, first, count in self.ranges(begin, end):
            address, nbytes = addresses[item] + first * ELEMENT_BYTES, count * ELEMENT_BYTES
            if spans and sum(spans[-1]) == address:
                address, nbytes = spans[-1][0], spans.pop()[1] + nbytes
            spans.append((address, nbytes))
        return spans


def ranks_of(bounds: Bounds) -> int:
    return len(bounds[0]) - 1 if bounds else 1


def piece_elements(size: int, piece_bytes: int) -> int:
    """Number of elements in a piece from one rank to another: the same on all ranks."""
    return max(1, piece_bytes // ELEMENT_BYTES // size)


def messages(each: Iterator[tuple[int, list[Span]]]) -> list[Message]:
    """The messages that have bytes."""
    return [(rank, spans) for rank, spans in each if sum(nbytes for _, nbytes in spans)]
