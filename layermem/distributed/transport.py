"""The transport: what layermem needs of a message-passing engine.

One rank of a job has one transport.  An exchange moves bytes between the memories of ranks, point to point: no engine
adds numbers, since no engine promises the order of its additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

Span = tuple[int, int]  # address and number of bytes, in the memory of this process
Message = tuple[int, Sequence[Span]]  # the other rank, and the bytes: those of all spans, one after the other


class Exchange(Protocol):
    """Messages under way."""

    def wait(self) -> None:
        """Return when all that was to be received is there, and all that was to be sent may be overwritten."""


class Transport(Protocol):
    """
    exchange    starts to send and to receive; every message of one rank has its counterpart in the same call, by
                number, of the other rank, with as many bytes.  Several may be under way; called by one thread at a time
    allgather   the values of all ranks, in their order: small ones, between steps
    cancel      from any thread: the exchanges of this rank, those under way and all later ones, end with a DeviceError;
                then its memory is safe to free, and the job can only be aborted
    abort       ends all ranks with this exit code
    """

    rank: int
    size: int

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> Exchange: ...

    def allgather(self, value: object) -> list[object]: ...

    def cancel(self) -> None: ...

    def abort(self, code: int) -> NoReturn: ...

    def close(self) -> None: ...
