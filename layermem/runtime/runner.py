"""A program on a device: one arena, one host arena, an executor per schedule, and the buffers that outlive a step."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from layermem.backends.arena import Arena
from layermem.backends.base import Device, NextBatch
from layermem.backends.registry import StepContext
from layermem.graph.ops import Buffer
from layermem.ops import Tensor
from layermem.runtime.executor import Executor
from layermem.runtime.step_times import StepTimes
from layermem.schedule.program import Program
from layermem.utils.free_memory import free_memory
from layermem.utils.units import aligned

LARGE_BYTES = 1 << 26  # arenas from this size on are worth a run of the garbage collector


class PersistentValues(NamedTuple):
    """Persistent buffers while no arena holds them: in `memory`, for each band of one, the buffer, the index of its
    first value, and the values."""

    memory: Arena
    bands: list[tuple[str, int, np.ndarray]]


class Runner:
    """`context` holds the values that ops read at run time: seed, step, rate, batch (arrays by layer name), results.

    spill    folder for the host arena, which is then a file
    poison   fill all unused bytes with NaN (slow; for tests)
    timed    measure the times of the instructions of each run: `times`, by schedule
    memory   another runner, whose arenas and persistent buffers this one takes over (`fits` says whether it can)
    zeroed   whether persistent buffers begin with zeros; otherwise `put` sets them first
    """

    def __init__(
        self,
        program: Program,
        device: Device,
        context: StepContext,
        *,
        spill: Path | None = None,
        poison: bool = False,
        timed: bool = False,
        memory: Runner | None = None,
        zeroed: bool = True,
    ):
        self.program, self.device, self.context, self._spill = program, device, context, spill
        context.setdefault("results", {})
        context.setdefault("loss_scale", 1.0)
        context.setdefault("batch", {})
        if memory is None:
            if program.arena_bytes >= LARGE_BYTES:
                gc.collect()  # nets and solvers are cycles of objects, so a dropped one may still hold its arena
            # The host arena first: pinned memory takes some of a GPU's, and the error about the arena says what fits.
            direct = spill is not None and _is_short_of(program.arena_bytes + program.host_bytes)
            self.host = device.host_arena(program.host_bytes, spill=spill, direct=direct, poison=poison)
            persistent_bytes = program.persistent.device_bytes
            self.arena = device.arena(program.arena_bytes, poison=poison, persistent_bytes=persistent_bytes)
        else:
            self.arena, self.host = memory.arena, memory.host
        self.executors = [
            Executor(schedule, device, self.arena, self.host, context, poison=poison, timed=timed)
            for schedule in program.schedules
        ]
        self.times = [StepTimes() for _ in self.executors]
        device.load()
        self.persistent: dict[str, Buffer] = {}  # whole, whether or not they lie in bands of rows
        self._bands: dict[str, list[Buffer]] = {}  # bands of each buffer in this arena, in the order of their rows
        for buffer in {b.name: b for schedule in program.schedules for b in schedule.graph.persistent()}.values():
            whole = buffer if buffer.band_of is None else buffer.band_of.whole
            self.persistent[whole.name] = whole
            self._bands.setdefault(whole.name, []).append(buffer)
        for name in self.persistent if memory is None and zeroed else ():
            self.zero(name)

    def fits(self, program: Program) -> bool:
        """Whether `program` runs in the arenas of this runner, with all persistent buffers at the same offsets."""
        here, there = self.program.persistent, program.persistent
        enough = program.arena_bytes <= self.arena.nbytes and program.host_bytes <= self.host.nbytes
        return enough and (here.device, here.host) == (there.device, there.host)

    @property
    def held_bytes(self) -> int:
        """Bytes of the arenas that count against the budget."""
        in_memory = self.device.shares_host_memory and not self.host.is_file
        return self.arena.nbytes + (self.host.nbytes if in_memory else 0)

    @property
    def measured_peak_bytes(self) -> int:
        """Bytes from the start of the arena to the last byte written so far, rounded up to the alignment.

        It is read from memory, so bytes that a kernel wrote beyond the end of the arena count as well."""
        return aligned(self.arena.touched_bytes())

    def run(self, index: int = 0, next_batch: NextBatch | None = None) -> dict[str, np.ndarray]:
        """Run one schedule and return the outputs of its net by blob name.  `next_batch` fetches the next batch."""
        self.context["results"].clear()
        executor = self.executors[index]
        executor.run(next_batch)
        if executor.stopwatch is not None:
            self.times[index].add(executor.stopwatch.times())
        return dict(self.context["results"])

    def run_forward(self) -> dict[str, np.ndarray]:
        """Run only the forward ops of the first schedule and return the outputs of its net by blob name."""
        self.context["results"].clear()
        self.executors[0].run_forward()
        return dict(self.context["results"])

    def view(self, name: str) -> np.ndarray | None:
        """A view of a persistent buffer in its memory order (channels-last); None if the host cannot reach it, or if it
        lies in separate bands of rows, some of them perhaps on other ranks."""
        if not self.device.shares_host_memory or len(self._bands[name]) > 1 or not self.is_whole(name):
            return None
        (band,) = self._bands[name]
        arena, offset = self._placement(band.name)
        tensor = band.tensor
        return arena.view(offset, tensor, self.device.dtype(tensor))

    def rows(self, name: str) -> tuple[tuple[int, int], ...]:
        """The rows of a persistent buffer that lie here: all, or those of this rank if ranks share it, which has some
        of every band.  They are runs, each by its first row and number of rows."""
        runs: list[tuple[int, int]] = []
        for band in self._bands[name]:
            first, count = _first(band), _row_count(band)
            if runs and sum(runs[-1]) == first:
                first, count = runs[-1][0], runs.pop()[1] + count
            runs.append((first, count))
        return tuple(runs)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a persistent buffer with all its rows, NCHW."""
        return self.persistent[name].tensor.shape

    def is_whole(self, name: str) -> bool:
        """Whether all rows of a persistent buffer lie here."""
        return self.rows(name) == ((0, _row_count(self.persistent[name])),)

    def read(self, name: str) -> np.ndarray:
        """A copy of the rows of a persistent buffer that lie here, NCHW."""
        first, *others = bands = self._bands[name]
        if not others:
            return self._read(first.name, 0, first.tensor)
        whole = np.empty((sum(map(_row_count, bands)), *first.tensor.shape[1:]), self.device.dtype(first.tensor))
        begin = 0
        for band in bands:
            whole[begin : begin + _row_count(band)] = self._read(band.name, 0, band.tensor)
            begin += _row_count(band)
        return whole

    def take(self) -> PersistentValues:
        """Move the rows of persistent buffers that lie here out of the arenas, for `put` of another runner: into the
        host's memory, or into a file where the host arena is one.  This runner has then no arenas.

        The pages of each buffer are given back before those of its values are written, so a process whose arenas are in
        its memory takes no more than it did, beside one buffer."""
        bands = [band for each in self._bands.values() for band in each]
        values = PersistentValues(Arena(sum(aligned(band.nbytes) for band in bands), spill=self._spill), [])
        bottom, end = self.program.persistent.device_bytes, 0
        self.arena.discard(bottom, self.arena.nbytes - bottom)
        for name in self._bands:
            for band, first in self._begins(name):
                value = self._read(band.name, 0, band.tensor)
                arena, offset = self._placement(band.name)
                arena.discard(offset, band.nbytes)
                span = values.memory.span(end, value.nbytes).view(value.dtype)
                span[:] = value.reshape(-1)
                values.memory.release(end, value.nbytes)
                values.bands.append((name, first, span))
                end += aligned(band.nbytes)
        self.arena, self.host, self.executors = Arena(0), Arena(0), []
        return values

    def put(self, values: PersistentValues) -> None:
        """Set all persistent buffers, those without values to zero; the memory of `values` is given back meanwhile."""
        for name in self.persistent.keys() - {name for name, _, _ in values.bands}:
            self.zero(name)
        for name, first, span in values.bands:
            if name in self.persistent:
                self.write_parts(name, [span], first)
            values.memory.discard(span.ctypes.data - values.memory.address, span.nbytes)

    def write(self, name: str, value: np.ndarray) -> None:
        """Set a persistent buffer from numbers in NCHW order, of any shape with the right count: always those of all
        its rows, even if only some rows lie here."""
        self.write_parts(name, [value.reshape(-1)])

    def write_parts(self, name: str, parts: Iterable[np.ndarray], begin: int = 0) -> None:
        """Set a persistent buffer, from value `begin` on, from consecutive flat arrays, each of whole `unit(name)`s."""
        bands = self._begins(name)
        for part in parts:
            end = begin + part.size
            for band, first in bands:
                low, high = max(begin, first), min(end, first + band.tensor.count)
                if low < high:
                    values = part[low - begin : high - begin]
                    self._write(band.name, low - first, self._part(band.tensor, high - low), values)
            begin = end

    def _begins(self, name: str) -> list[tuple[Buffer, int]]:
        """The bands of a persistent buffer, each with the index of its first value."""
        whole = self.persistent[name]
        row = whole.tensor.count // _row_count(whole)
        return [(band, _first(band) * row) for band in self._bands[name]]

    def unit(self, name: str) -> int:
        """Number of consecutive values of a persistent buffer that also lie together in memory."""
        tensor = self.persistent[name].tensor
        return tensor.count // tensor.shape[0] if tensor.interleaved else 1

    def read_parts(self, name: str, values: int) -> Iterator[np.ndarray]:
        """Yield copies of the values here of a persistent buffer in NCHW order, `values` or one unit(name) at a
        time."""
        unit = self.unit(name)
        whole = unit * max(1, values // unit)
        for band in self._bands[name]:
            for begin in range(0, band.tensor.count, whole):
                part = self._part(band.tensor, min(whole, band.tensor.count - begin))
                yield self._read(band.name, begin, part).reshape(-1)

    @staticmethod
    def _part(tensor: Tensor, count: int) -> Tensor:
        """A tensor of `count` consecutive values of `tensor`: whole rows of an interleaved one."""
        if not tensor.interleaved:
            return replace(tensor, shape=(count,))
        row = tensor.shape[1:]
        return replace(tensor, shape=(count // prod(row), *row))

    def zero(self, name: str) -> None:
        for band in self._bands[name]:
            arena, offset = self._placement(band.name)
            arena.zero(offset, band.nbytes)

    def _read(self, name: str, first: int, tensor: Tensor) -> np.ndarray:
        """The values of `tensor`, from index `first` of a buffer on."""
        arena, offset = self._placement(name)
        dtype = self.device.dtype(tensor)
        return arena.read(offset + first * np.dtype(dtype).itemsize, tensor, dtype)

    def _write(self, name: str, first: int, tensor: Tensor, value: np.ndarray) -> None:
        arena, offset = self._placement(name)
        dtype = self.device.dtype(tensor)
        arena.write(offset + first * np.dtype(dtype).itemsize, tensor, value, dtype)

    def _placement(self, name: str) -> tuple[Arena, int]:
        persistent = self.program.persistent
        return (
            (self.arena, persistent.device[name]) if name in persistent.device else (self.host, persistent.host[name])
        )


def _first(band: Buffer) -> int:
    """The first row of a band within the whole buffer."""
    return 0 if band.band_of is None else band.band_of.first


def _row_count(buffer: Buffer) -> int:
    shape = buffer.tensor.shape
    return shape[0] if shape else 1


def _is_short_of(nbytes: int) -> bool:
    """Whether the memory that is free holds fewer bytes, so that the cache of the system cannot take a spill file."""
    free = free_memory()
    return free is not None and free.nbytes < nbytes
