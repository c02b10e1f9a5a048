"""Communication by which all ranks of a job act alike: they share values, and raise the same error.

    group.gather(value)          returns the values of all ranks, in their order
    group.agree(work)            returns the result of `work`; all ranks raise an error of any rank
    group.gather_from(work)      does both

Every rank makes the same calls in the same order.  Without a transport there is one rank, and nothing to send.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from layermem.distributed.transport import Transport
from layermem.errors import InputError, LayermemError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
Part = tuple[tuple[int, int], ...]  # the rows of a rank: runs of them, each by its first row and number of rows


class Group:
    """The ranks that `transport` connects, from the view of one of them."""

    def __init__(self, transport: Transport | None = None):
        self.transport = transport
        self.rank, self.size = (0, 1) if transport is None else (transport.rank, transport.size)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that reports and writes files."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        return [value] if self.transport is None else cast("list[T]", self.transport.allgather(value))

    def agree(self, work: Callable[[], T]) -> T:
        results: list[T] = []
        self.gather_from(lambda: results.append(work()))
        return results[0]

    def gather_from(self, work: Callable[[], T]) -> list[T]:
        """Return the results of all ranks; if `work` fails on some of them, every rank raises the error of the
        first."""
        if self.transport is None:
            return [work()]
        mine: BaseException | None = None
        result: T | None = None
        try:
            result = work()
        except (Exception, KeyboardInterrupt) as error:
            mine = error
        outcomes = self.gather((_as_sent(mine), result))
        for rank, (sent, _) in enumerate(outcomes):
            if sent is not None:
                raise (mine if rank == self.rank and mine is not None else _as_raised(sent))
        return cast("list[T]", [value for _, value in outcomes])

    def check_same(self, values: Sequence[tuple[str, object]], remedy: str) -> None:
        """Raise InputError on all ranks unless each named value is the same on all of them."""
        all_values = self.gather([value for _, value in values])
        for rank, others in enumerate(all_values):
            for (name, _), first, other in zip(values, all_values[0], others):
                if first != other:
                    raise self.agreed(InputError(f"rank {rank} has other {name} than rank 0; {remedy}"))

    def agreed(self, error: LayermemError) -> LayermemError:
        """Mark `error` as one that every rank raises at this point and the first rank reports."""
        error.is_agreed, error.is_reported = True, not self.is_first
        return error

    def send_rows(self, rows: np.ndarray) -> None:
        """Send rows to the first rank, which calls receive_rows; all other ranks make the same call."""
        assert self.transport is not None
        import numpy as np  # a single rank needs no NumPy

        rows = np.ascontiguousarray(rows)
        self.transport.exchange([(0, [(rows.ctypes.data, rows.nbytes)])] if rows.nbytes else [], []).wait()

    def receive_rows(self, out: np.ndarray, parts: Sequence[Part]) -> None:
        """Receive the rows of all other ranks into `out`, which is contiguous; `parts` are the rows of each rank."""
        assert self.transport is not None
        row = out.nbytes // len(out) if len(out) else 0
        messages = [
            (rank, [(out.ctypes.data + first * row, count * row) for first, count in part])
            for rank, part in enumerate(parts)
            if rank != self.rank and part and row
        ]
        self.transport.exchange([], messages).wait()


def _as_sent(error: BaseException | None) -> BaseException | None:
    """An error that another process can raise."""
    if error is None or isinstance(error, LayermemError):
        if error is not None:
            error.is_agreed = True
        return error
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    return LayermemError(f"{type(error).__name__}: {error}")


def _as_raised(error: BaseException) -> BaseException:
    """The error of another rank, which that rank reports."""
    error = copy.copy(error)
    if isinstance(error, LayermemError):
        error.is_agreed = error.is_reported = True
    return error
