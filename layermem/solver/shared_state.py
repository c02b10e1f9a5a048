"""Persistent buffers whose rows are divided among ranks: the optimizer state.

    state.read("ip.w0.h0")      returns the whole buffer, on the first rank while the others are in `collect`
    state.collect(work)         runs `work`, such as writing a snapshot, on the first rank; the others send its data

A buffer is gathered when it is read, so that there is only one copy outside the arena at a time.  With one rank, or if
all rows lie here, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from layermem.distributed.group import Group, Part
from layermem.runtime.runner import Runner

T = TypeVar("T")


class SharedState:
    """The buffers of `runner` and of the runners of the other ranks.  All ranks construct it together."""

    def __init__(self, runner: Runner, group: Group | None = None):
        self.runner, self.group = runner, group or Group()
        here = {name: (runner.rows(name), runner.shape(name)) for name in runner.persistent}
        everywhere = self.group.gather(here)
        self._rows = [{name: rows for name, (rows, _) in each.items()} for each in everywhere]
        self._shapes = {name: shape for each in everywhere for name, (_, shape) in each.items()}
        self._collecting = False

    def __contains__(self, name: object) -> bool:
        """Whether any rank has rows of a buffer."""
        return any(name in rows for rows in self._rows)

    def is_here(self, name: str) -> bool:
        """Whether this rank has rows of a buffer."""
        return name in self.runner.persistent

    def is_shared(self, name: str) -> bool:
        return any(part != self._rows[0].get(name) for part in self._parts(name))

    def read(self, name: str) -> np.ndarray:
        """A copy of the whole buffer, NCHW; if ranks share it, only on the first one and within `collect`."""
        if not self.is_shared(name):
            return self.runner.read(name)
        assert self._collecting, f"'{name}' is shared by ranks; read it within collect()"
        self.group.gather(name)
        parts = self._parts(name)
        whole = np.empty(self._shapes[name] or (1,), self.runner.device.real)  # a scalar is one row
        if parts[0]:
            mine, begin = self.runner.read(name).reshape(-1, *whole.shape[1:]), 0
            for first, count in parts[0]:
                whole[first : first + count] = mine[begin : begin + count]
                begin += count
        self.group.receive_rows(whole, parts)
        return whole.reshape(self._shapes[name])

    def collect(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work` on the first rank, and None on the others, which send the data that it reads.
        All ranks raise its error."""

        def collect_rows() -> T | None:
            if self.group.is_first:
                self._collecting = True
                try:
                    return work()
                finally:
                    self._collecting = False
                    self.group.gather(None)  # nothing remains to be read
            while (name := self.group.gather(None)[0]) is not None:
                self.group.send_rows(self.runner.read(name) if self.is_here(name) else np.empty(0, np.float32))
            return None

        return work() if self.group.size == 1 else self.group.agree(collect_rows)

    def _parts(self, name: str) -> list[Part]:
        return [rows.get(name, ()) for rows in self._rows]
