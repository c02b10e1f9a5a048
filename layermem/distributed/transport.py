"""The transport: the interface of a message-passing engine.

Each rank of a job has one transport.  An exchange moves bytes between the memories of ranks, point to point.  Engines
do not add numbers, because none guarantees the order of its additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol, runtime_checkable

Span = tuple[int, int]  # address and number of bytes, in the memory of this process
Message = tuple[int, Sequence[Span]]  # the other rank, and the spans whose bytes are joined


class Exchange(Protocol):
    """Messages under way."""

    def wait(self) -> None:
        """Return when all messages have been received, and all sent bytes may be overwritten."""


@runtime_checkable
class Transport(Protocol):
    """
    exchange    starts to send and to receive; every message has its counterpart of equal size in the call of the same
                number on the other rank.  Several exchanges may be under way; only one thread calls at a time
    allgather   returns the values of all ranks, in their order: small ones, between steps
    cancel      ends all exchanges of this rank, present and later, with a DeviceError, from any thread; its memory is
                then safe to free, and the job can only be aborted
    abort       ends all ranks with this exit code
    """

    rank: int
    size: int

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> Exchange: ...

    def allgather(self, value: object) -> list[object]: ...

    def cancel(self) -> None: ...

    def abort(self, code: int) -> NoReturn: ...

    def close(self) -> None: ...
